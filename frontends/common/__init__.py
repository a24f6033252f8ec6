"""What the readers of all formats build of operators of the graph.

A reader normalizes what its format says: axes counted from the front, pads before and behind, numbers per dimension. The
functions here take that and a :class:`~..graph_call.GraphCall`, and add operators: padding (:mod:`.shapes`) and windows
(:mod:`.windows`).
"""

from .shapes import known_number, padded, picked, spread
from .windows import convolution, max_pool, transposed_convolution

__all__ = ["convolution", "known_number", "max_pool", "padded", "picked", "spread", "transposed_convolution"]
