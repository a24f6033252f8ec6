"""The LLVM back end.

:mod:`.llvm_ir` writes IR text from a lowered function; :mod:`.jit`, the only user of llvmlite, compiles it.
"""

from .llvm_ir import emit

__all__ = ["emit"]
