"""Schedule rules: which blocks belong together, and the recipes that may schedule them.

``base``: what a rule is, and how to register one of your own. ``inlining``: stages computed where they are used.
``tiling``: reductions with a vectorized spatial axis (matmul, convolution, pooling). ``rows``: reductions along rows
(softmax, layer norm, sums). ``elementwise``: everything else. ``helpers``: steps that the recipes share.
"""

from .base import Group, ScheduleRule, default_rules, register_rule
from .elementwise import ElementwiseRule
from .inlining import blocks_to_inline, paddings_to_inline
from .rows import RowReductionRule
from .tiling import MultiLevelTilingRule

__all__ = [
    "ElementwiseRule",
    "Group",
    "MultiLevelTilingRule",
    "RowReductionRule",
    "ScheduleRule",
    "blocks_to_inline",
    "default_rules",
    "paddings_to_inline",
    "register_rule",
]
