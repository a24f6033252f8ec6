"""This package reads programs of PyTorch into graphs.

:func:`from_torch` reads an exported program; :func:`op` registers a converter for an operator that is missing or the
user's own.
"""

from .aten_call import AtenCall
from .aten_table import op
from .program_reader import Reader, UnsupportedTorchOperators, from_torch, is_supported
from .torch_package import TorchError, dtype_name, load_torch

__all__ = [
    "AtenCall",
    "Reader",
    "TorchError",
    "UnsupportedTorchOperators",
    "dtype_name",
    "from_torch",
    "is_supported",
    "load_torch",
    "op",
]
