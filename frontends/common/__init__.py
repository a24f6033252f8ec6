"""What the readers of all formats have in common: calls, tables of converters, and what they build of operators.

A reader gives each converter a :class:`GraphCall` (:mod:`.graph_call`), and keeps converters in a table
(:mod:`.converters`). A converter normalizes what its format says: axes counted from the front, pads before and behind,
numbers per dimension. The functions here take that and the call, and add operators: powers of integers
(:mod:`.elements`), padding (:mod:`.shapes`), windows (:mod:`.windows`), reductions and normalizations
(:mod:`.reductions`), products (:mod:`.products`), lookups and writes at places that are computed (:mod:`.indexing`).
"""

from .converters import Converter, UnsupportedOperators, entering, require_inputs
from .elements import power_of_integers
from .graph_call import GraphCall, add_sizes
from .indexing import Place, at_dimensions, looked_up, written
from .products import product, scaled_sum
from .reductions import batch_normalized, inverse_deviation, log_sum_exp, moments, per_channel, reduced
from .shapes import known_number, padded, picked, spread
from .windows import convolution, max_pool, transposed_convolution

__all__ = [
    "Converter", "GraphCall", "Place", "UnsupportedOperators", "add_sizes", "at_dimensions", "batch_normalized", "convolution", "entering",
    "inverse_deviation", "known_number", "log_sum_exp", "looked_up", "max_pool", "moments", "padded", "per_channel", "picked",
    "power_of_integers", "product", "reduced", "require_inputs", "scaled_sum", "spread", "transposed_convolution", "written",
]  # fmt: skip
