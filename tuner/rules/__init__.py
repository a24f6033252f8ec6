"""Schedule rules: each takes a kind of blocks; its recipe and its costs stand in the same file.

``multi_level_tiling``: reductions with a vectorized spatial axis (matmul, convolution, pooling). ``dot_products``: products of int8 and bfloat16 by
dot-product instructions, and by tiles of a matrix unit (``matrix_unit``). ``nbits_products``: products with weights of a few bits. ``cached_attention``: attention over a cache of keys and values. ``winograd``: convolutions
by Winograd's method. ``fused_stages``: several stages of any kind, tile by tile of the last one. ``sweeps``: reductions along rows (softmax, layer norm, sums), and element-wise stages, which are all
other blocks. ``recurrences``: running sums and the like, step by step, with vectors or rows side by side. ``in_order``: other
scans, and triangles of loops. For GPUs: ``gpu_matrix_units``, ``gpu_products`` (both by ``product_form``), ``gpu_rows``. ``library_calls``: products by calls of BLAS. ``stages_to_inline``: stages that are
computed where they are used. ``schedule_rule``: the base class of rules, how to register one of your own, and schedule functions with
``sample_*`` calls as a rule.
"""

from .cached_attention import CachedAttentionRule
from .dot_products import DotRule
from .fused_stages import FusedStagesRule
from .gpu_attention import GpuAttentionRule
from .gpu_matrix_units import GpuMatrixUnitRule
from .gpu_products import GpuTilingRule
from .gpu_rows import GpuElementRule, GpuRowChainRule, GpuRowRule
from .in_order import GpuOrderRule, InOrderRule
from .library_calls import BlasRule
from .multi_level_tiling import MultiLevelTilingRule
from .nbits_products import NbitsRule
from .recurrences import RecurrenceRule
from .schedule_rule import Group, ScheduleFunction, ScheduleRule, default_rules, register_rule
from .stages_to_inline import blocks_to_inline, cheaper_inlined, paddings_to_inline
from .sweeps import ElementwiseRule, RowReductionRule
from .winograd import WinogradRule

__all__ = [
    "BlasRule",
    "CachedAttentionRule",
    "DotRule",
    "ElementwiseRule",
    "FusedStagesRule",
    "GpuElementRule",
    "GpuAttentionRule",
    "GpuMatrixUnitRule",
    "GpuOrderRule",
    "GpuRowChainRule",
    "GpuRowRule",
    "GpuTilingRule",
    "Group",
    "InOrderRule",
    "MultiLevelTilingRule",
    "NbitsRule",
    "RecurrenceRule",
    "RowReductionRule",
    "ScheduleFunction",
    "ScheduleRule",
    "WinogradRule",
    "blocks_to_inline",
    "cheaper_inlined",
    "default_rules",
    "paddings_to_inline",
    "register_rule",
]

RULES = (
    ElementwiseRule(),
    FusedStagesRule("fused_stages", 1 << 30),
    FusedStagesRule("fused_pairs", 2),
    FusedStagesRule("fused_siblings", 1 << 30, siblings=True),
    GpuTilingRule(),
    GpuAttentionRule(),
    GpuMatrixUnitRule(),
    GpuRowRule(),
    GpuRowChainRule(),
    GpuElementRule(),
    RecurrenceRule(),
    InOrderRule(),
    GpuOrderRule(),
    DotRule(),
    MultiLevelTilingRule(),
    RowReductionRule(),
    WinogradRule(),
    NbitsRule(),
    CachedAttentionRule(),
    BlasRule(),
)
"""The library's rules; those of equal priority are asked in this order."""

for _rule in RULES:
    register_rule(_rule)
