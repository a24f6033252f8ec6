"""The runtime of compiled code.

In LLVM IR (:mod:`.runtime_ir`: :mod:`.pool_ir` the fork-join pool, :mod:`.memory_ir` scratch memory, timing loops), loaded once
per process by :mod:`.loader` or linked into exported files. In Python: :mod:`.module` has Module and Function,
:mod:`.argument_checks` checks and explains, :mod:`.array_views` reads arrays of any library, :mod:`.native_glue` makes the native quick
path around both, :mod:`.timing` asks the clock.

Import from the modules; this package imports none of them.
"""

__all__: list[str] = []
