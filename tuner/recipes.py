"""Recipes are schedule functions with named parameters, one for each kind of kernel.

The tuner's rules call them with the decisions of a candidate, kernels scheduled by hand with numbers of their own. Each stands
with its costs and its rule in a file of :mod:`.rules`. ``tiled_product``: reductions in register tiles, and products of one row, row
after row. ``dot_tile``, ``matrix_unit_product``: tiles by dot-product instructions and by a matrix unit. ``sweep_elements``: element-wise
stages and transposes; ``sweep_rows``: reductions along rows with what depends on them; ``reduce_columns``: vectors of results of a
reduction. ``fused_tiles``: several stages, tile by tile of the last one. ``winograd_tiles``: convolutions by Winograd's method. The
steps that several recipes take are in :mod:`.loop_steps`.
"""

from .cost.axis_roles import TILE
from .loop_steps import Panels, arrange, by_lanes, finish_tile, inline_padding, loops_within, pack, pad_product
from .rules.dot_products import DotInstruction, dot_tile
from .rules.fused_stages import TileStage, fused_tiles
from .rules.matrix_unit import UnitTiles, matrix_unit_product, steps_of
from .rules.multi_level_tiling import TileNest, outer_sums, tiled_product
from .rules.short_results import reduce_short_results
from .rules.sweeps import ElementSweep, RowSweep, reduce_columns, sweep_elements, sweep_rows
from .rules.winograd import WinogradBlocks, WinogradStages, winograd_tiles

__all__ = [
    "TILE",
    "DotInstruction",
    "ElementSweep",
    "Panels",
    "RowSweep",
    "TileNest",
    "TileStage",
    "UnitTiles",
    "WinogradBlocks",
    "WinogradStages",
    "arrange",
    "by_lanes",
    "dot_tile",
    "finish_tile",
    "fused_tiles",
    "inline_padding",
    "loops_within",
    "matrix_unit_product",
    "outer_sums",
    "pack",
    "pad_product",
    "reduce_columns",
    "reduce_short_results",
    "steps_of",
    "sweep_elements",
    "sweep_rows",
    "tiled_product",
    "winograd_tiles",
]
