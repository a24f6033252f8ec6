"""What the readers of all formats have in common: calls, tables of converters, and what they build of operators.

A reader gives each converter a :class:`GraphCall`, and keeps converters in a table (:mod:`.graph_call`). A converter
normalizes what its format says: axes counted from the front, pads before and behind, numbers per dimension. The
functions here take that and the call, and add operators: powers of integers, products, reductions and normalizations
(:mod:`.arithmetic`), padding and windows (:mod:`.windows`), lookups and writes at places that are computed
(:mod:`.indexing`).
"""

from .arithmetic import (
    batch_normalized,
    inverse_deviation,
    log_sum_exp,
    moments,
    per_channel,
    power_of_integers,
    product,
    reduced,
    scaled_sum,
)
from .graph_call import Converter, GraphCall, UnsupportedOperators, add_sizes, entering, require_inputs
from .indexing import Place, at_dimensions, looked_up, written
from .windows import convolution, known_number, max_pool, padded, picked, spread, transposed_convolution

__all__ = [
    "Converter", "GraphCall", "Place", "UnsupportedOperators", "add_sizes", "at_dimensions", "batch_normalized", "convolution", "entering",
    "inverse_deviation", "known_number", "log_sum_exp", "looked_up", "max_pool", "moments", "padded", "per_channel", "picked",
    "power_of_integers", "product", "reduced", "require_inputs", "scaled_sum", "spread", "transposed_convolution", "written",
]  # fmt: skip
