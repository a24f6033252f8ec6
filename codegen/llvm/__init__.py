"""LLVM: :mod:`.emit` writes IR text from a lowered function, :mod:`.jit` (the one home of llvmlite) compiles it."""

from .emit import emit

__all__ = ["emit"]
