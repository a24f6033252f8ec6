"""Recipes are schedule functions with named parameters, one for each kind of kernel.

The tuner's rules call them with the decisions of a candidate, kernels scheduled by hand with numbers of their own.
``tiled_product``: reductions in register tiles. ``panels``: operands packed into panels. ``loop_steps``: the steps that
several recipes take.
"""

from .panels import Panels
from .tiled_product import TileNest, tiled_product

__all__ = ["Panels", "TileNest", "tiled_product"]
