"""LLVM: :mod:`.llvm_ir` writes IR text from a lowered function, :mod:`.jit` (the one home of llvmlite) compiles it."""

from .llvm_ir import emit

__all__ = ["emit"]
