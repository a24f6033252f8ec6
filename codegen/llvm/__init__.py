"""The LLVM back end.

:mod:`.emit` writes IR text from a lowered function; :mod:`.jit`, the only user of llvmlite, compiles it.
"""

from .emit import emit

__all__ = ["emit"]
