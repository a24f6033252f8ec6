"""The parts of the runtime in LLVM IR. :mod:`.pool_ir` has the fork-join pool, :mod:`.cores_ir` the cores of its
threads, :mod:`.memory_ir` scratch memory, :mod:`.timing_ir` loops that time calls, :mod:`.tiles_ir` the request for
tile registers.

Import from the modules; this package imports none of them.
"""

__all__: list[str] = []
