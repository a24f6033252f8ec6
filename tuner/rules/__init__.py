"""Schedule rules group blocks and offer recipes that schedule each group.

``schedule_rule``: the base class of rules, how to register one of your own, and schedule functions with ``sample_*`` calls as a rule. ``stages_to_inline``: stages that are
computed where they are used. ``int8_products``: products of int8 by dot-product instructions and by
a matrix unit. ``multi_level_tiling``: reductions with a vectorized spatial axis (matmul, convolution, pooling). ``row_reductions``: reductions along rows (softmax, layer norm, sums).
``winograd_rule``: convolutions by Winograd's method. ``fused_stages``: several stages of any kind, tile by tile of the last one.
``elementwise_rule``: all other blocks. ``in_order``: scans and triangles of loops. For GPUs: ``gpu_products``, ``gpu_rows``.
"""

from .elementwise_rule import ElementwiseRule
from .fused_stages import FusedStagesRule
from .gpu_products import GpuMatrixUnitRule, GpuTilingRule
from .gpu_rows import GpuElementRule, GpuRowChainRule, GpuRowRule
from .in_order import GpuOrderRule, InOrderRule
from .int8_products import DotRule, TileRule
from .multi_level_tiling import MultiLevelTilingRule
from .row_reductions import RowReductionRule
from .schedule_rule import Group, ScheduleFunction, ScheduleRule, default_rules, register_rule
from .stages_to_inline import blocks_to_inline, paddings_to_inline
from .winograd_rule import WinogradRule

__all__ = [
    "DotRule",
    "ElementwiseRule",
    "FusedStagesRule",
    "GpuElementRule",
    "GpuMatrixUnitRule",
    "GpuOrderRule",
    "GpuRowChainRule",
    "GpuRowRule",
    "GpuTilingRule",
    "Group",
    "InOrderRule",
    "MultiLevelTilingRule",
    "RowReductionRule",
    "ScheduleFunction",
    "ScheduleRule",
    "TileRule",
    "WinogradRule",
    "blocks_to_inline",
    "default_rules",
    "paddings_to_inline",
    "register_rule",
]
