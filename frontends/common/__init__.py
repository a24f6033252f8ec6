"""What the readers of all formats build of operators of the graph.

A reader normalizes what its format says: axes counted from the front, pads before and behind, numbers per dimension. The
functions here take that and a :class:`~..graph_call.GraphCall`, and add operators: padding (:mod:`.shapes`), windows
(:mod:`.windows`), reductions and normalizations (:mod:`.reductions`).
"""

from .reductions import batch_normalized, inverse_deviation, log_sum_exp, moments, per_channel, reduced
from .shapes import known_number, padded, picked, spread
from .windows import convolution, max_pool, transposed_convolution

__all__ = [
    "batch_normalized", "convolution", "inverse_deviation", "known_number", "log_sum_exp", "max_pool", "moments", "padded",
    "per_channel", "picked", "reduced", "spread", "transposed_convolution",
]  # fmt: skip
