"""This package reads programs of PyTorch into graphs.

:func:`from_torch` reads an exported program; :func:`op` registers a converter for an operator that is missing or the
user's own.
"""

from .aten_call import AtenCall
from .aten_table import op
from .program_reader import Reader, UnsupportedTorchOperators, from_torch, is_supported
from .torch_package import TorchError, load_torch, to_array

__all__ = [
    "AtenCall",
    "Reader",
    "TorchError",
    "UnsupportedTorchOperators",
    "from_torch",
    "is_supported",
    "load_torch",
    "op",
    "to_array",
]
