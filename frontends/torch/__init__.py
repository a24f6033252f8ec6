"""This package reads programs of PyTorch into graphs.

:func:`from_torch` reads an exported program; :func:`op` registers a converter for an operator that is missing or the
user's own.
"""

from .aten_call import AtenCall, TorchError, load_torch, op, to_array
from .decompositions import core_decompositions
from .program_reader import (
    ProgramReader,
    UnsupportedTorchOperators,
    from_torch,
    graphs_of,
    is_supported,
    missing_operators,
    unknown_strides,
    unknown_strides_error,
)

__all__ = [
    "AtenCall",
    "ProgramReader",
    "TorchError",
    "UnsupportedTorchOperators",
    "core_decompositions",
    "from_torch",
    "graphs_of",
    "is_supported",
    "load_torch",
    "missing_operators",
    "op",
    "to_array",
    "unknown_strides",
    "unknown_strides_error",
]
