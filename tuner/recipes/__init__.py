"""Recipes are schedule functions with named parameters, one for each kind of kernel.

The tuner's rules call them with the decisions of a candidate, kernels scheduled by hand with numbers of their own.
``tiled_product``: reductions in register tiles, and products of one row, row after row. ``int8_tiles``: tiles by dot-product
instructions and by a matrix unit. ``sweeps``: element-wise stages and transposes, and reductions along rows with what depends on
them. ``fused_tiles``: several stages, tile by tile of the last one. ``winograd_tiles``: convolutions by Winograd's method.
``loop_steps``: the steps that several recipes take, among them operands packed into panels, and padded. On GPUs:
``gpu_products``, ``gpu_rows``.
"""

from .fused_tiles import TileStage, fused_tiles
from .int8_tiles import TILE, DotInstruction, UnitTiles, dot_tile, matrix_unit_product, steps_of
from .loop_steps import Panels, arrange, by_lanes, finish_tile, inline_padding, loops_within, pack, pad_product
from .sweeps import ElementSweep, RowSweep, sweep_elements, sweep_rows
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
