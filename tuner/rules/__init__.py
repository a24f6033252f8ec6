"""Schedule rules: which blocks belong together, and the recipes that may schedule them.

``base``: what a rule is, and how to register one of your own. ``inlining``: stages computed where they are used.
``dots``: products of int8 by dot-product instructions. ``tiles``: by a matrix unit.
``tiling``: reductions with a vectorized spatial axis (matmul, convolution, pooling). ``rows``: reductions along rows
(softmax, layer norm, sums). ``elementwise``: everything else; ``in_order``: scans and triangles of loops. ``helpers``: steps
that the recipes share.
"""

from .base import Group, ScheduleRule, default_rules, register_rule
from .dots import DotRule
from .elementwise import ElementwiseRule
from .in_order import InOrderRule
from .inlining import blocks_to_inline, paddings_to_inline
from .rows import RowReductionRule
from .tiles import TileRule
from .tiling import MultiLevelTilingRule

__all__ = [
    "DotRule",
    "ElementwiseRule",
    "Group",
    "InOrderRule",
    "MultiLevelTilingRule",
    "RowReductionRule",
    "ScheduleRule",
    "TileRule",
    "blocks_to_inline",
    "default_rules",
    "paddings_to_inline",
    "register_rule",
]
