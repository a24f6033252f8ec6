"""Portable C source from lowered functions: GCC's and Clang's vector types, OpenMP for parallel loops (serial without).

:func:`.emit.emit_c` writes a source file; :mod:`.expr` has expressions, :mod:`.helpers` the small inline functions that
C has no operator for.
"""

from .emit import CEmitError, emit_c

__all__ = ["CEmitError", "emit_c"]
