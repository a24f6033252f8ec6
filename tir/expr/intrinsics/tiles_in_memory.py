"""This module says how tiles of 16 rows lie in memory. Row r begins r * stride elements behind the element that is
given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..base.rounding import bfloat16_from_bits, bfloat16_to_bits
from ..nodes.expr import Call, Expr

TILE_ROWS = 16
"""The number of rows of a tile."""


def check_place(address: Expr, strides: Sequence[Expr]) -> None:
    """Raise TypeError unless ``address`` is that of an element, and the strides are integers."""
    if not (isinstance(address, Call) and address.op == "tir.address_of"):
        raise TypeError(f"takes T.address_of(an element), not {address}")
    for stride in strides:
        if not stride.dtype.is_int or stride.dtype.lanes > 1:
            raise TypeError(f"the stride is {stride.dtype}, not an integer")


def _places(there: np.ndarray, stride: int, lanes: int) -> np.ndarray:
    """Return the offsets of a tile's elements in flat memory; IndexError when one is outside."""
    places = np.arange(TILE_ROWS)[:, None] * stride + np.arange(lanes // TILE_ROWS)
    if places.min() < 0 or places.max() >= there.size:
        raise IndexError(f"a tile with rows {stride} apart reaches {places.max()} elements far; there are {there.size}")
    return places.reshape(-1)


def load_tile(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the meaning of loads of tiles of type ``dtype``."""
    lanes, half = dtype.lanes, dtype.kind == "bfloat"

    def run(there: np.ndarray, stride: int) -> Any:
        values = there[_places(there, stride, lanes)]
        return bfloat16_from_bits(values) if half else values

    return run


def store_tile(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the meaning of stores of tiles, whose type is the third of ``types``."""
    lanes, half = DType(types[2]).lanes, DType(types[2]).kind == "bfloat"

    def run(there: np.ndarray, stride: int, value: Any) -> None:
        there[_places(there, stride, lanes)] = bfloat16_to_bits(value) if half else value

    return run
