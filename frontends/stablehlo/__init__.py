"""This package reads StableHLO programs, which JAX exports, into graphs.

:func:`from_stablehlo` reads a program; :func:`op` registers a converter for an operation that is missing. Loops are
written out, so their trip counts have to be known while the program is read; random numbers are left to the caller.
"""

from .hlo_call import HloCall, StableHloError, op
from .hlo_reader import UnsupportedStableHloOperators, from_stablehlo

__all__ = ["HloCall", "StableHloError", "UnsupportedStableHloOperators", "from_stablehlo", "op"]
