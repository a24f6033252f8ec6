"""Chooses which arrays of a graph are stored in another order of dimensions. The choice is a minimum cut, and so the
best one.

For one order (NHWC, say) each operator either works on arrays in that order, where a row of :mod:`.carried_attributes` says how,
or on plain ones. An operator has a predicted time in both, and an array that one operator makes in one order and another one
reads in the other order has to be transposed. :mod:`.labels` builds this as a flow network, whose minimum cut
(:mod:`.min_cut`) is the cheapest choice, and :mod:`.relabeled` makes the graph of it.
"""

from .labels import Costs, chosen_labels
from .relabeled import relabeled

__all__ = ["Costs", "chosen_labels", "relabeled"]
