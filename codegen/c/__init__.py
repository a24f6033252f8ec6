"""Portable C source from lowered functions: GCC's and Clang's vector types, OpenMP for parallel loops (serial without).

:func:`.c_source.emit_c` writes a source file; :mod:`.c_expr` has expressions, :mod:`.inline_functions` the small inline
functions for operations without an operator in C.
"""

from ..late_tables import Backend
from .c_header import c_header
from .c_source import emit_c
from .inline_functions import CEmitError

__all__ = ["C", "CEmitError", "emit_c"]

C = Backend("c", ".c", emit_c, c_header)
"""The back end ``c`` of modules."""
