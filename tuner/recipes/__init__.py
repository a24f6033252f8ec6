"""Recipes are schedule functions with named parameters, one for each kind of kernel.

The tuner's rules call them with the decisions of a candidate, kernels scheduled by hand with numbers of their own.
``tiled_product``: reductions in register tiles, and products of one row, row after row. ``dot_product``: tiles by dot-product instructions. ``matrix_unit_product``:
products by a matrix unit. ``row_sweep``: reductions along rows with what depends on them. ``element_sweep``: element-wise
stages and transposes. ``fused_tiles``: several stages, tile by tile of the last one. ``winograd_tiles``: convolutions by Winograd's
method. ``panels``: operands packed into panels, and padded. ``loop_steps``: the steps that several recipes take. On GPUs: ``gpu_products``, ``gpu_rows``,
``gpu_row_chain``, ``gpu_elements``.
"""

from .dot_product import DotInstruction, dot_tile
from .element_sweep import ElementSweep, sweep_elements
from .fused_tiles import TileStage, fused_tiles
from .loop_steps import arrange, by_lanes, finish_tile, loops_within
from .matrix_unit_product import TILE, UnitTiles, matrix_unit_product, steps_of
from .panels import Panels, inline_padding, pack, pad_product
from .row_sweep import RowSweep, sweep_rows
from .tiled_product import TileNest, outer_sums, tiled_product
from .winograd_tiles import WinogradBlocks, WinogradStages, winograd_tiles

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
    "steps_of",
    "sweep_elements",
    "sweep_rows",
    "tiled_product",
    "winograd_tiles",
]
