"""This module evaluates the operations of :mod:`.tile_ops` on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .dtype import lanes_of, parse_dtype
from .rounding import bfloat16_from_bits, bfloat16_to_bits
from .tile_ops import TILE_ROWS


def _dot(width: int) -> Callable[[Any, Any, Any], Any]:
    def run(c: Any, a: Any, b: Any) -> Any:
        """Add integers in int64, wrapping at the end; add float products one after the other, rounding to float32."""
        kind = np.int64 if c.dtype == np.int32 else np.float32
        left = a.reshape(TILE_ROWS, -1, width).astype(kind)
        right = b.reshape(-1, TILE_ROWS, width).astype(kind)
        total = c.reshape(TILE_ROWS, -1).astype(kind)
        for k in range(right.shape[0]):
            for q in range(width):
                total = total + left[:, k, q, None] * right[None, k, :, q]
        return total.astype(c.dtype).reshape(-1)

    return run


def _rows(there: np.ndarray, stride: int, lanes: int) -> np.ndarray:
    """Return the offsets of a tile's elements in flat memory; IndexError when one is outside."""
    places = np.arange(TILE_ROWS)[:, None] * stride + np.arange(lanes // TILE_ROWS)
    if places.min() < 0 or places.max() >= there.size:
        raise IndexError(f"a tile with rows {stride} apart reaches {places.max()} elements far; there are {there.size}")
    return places.reshape(-1)


def _load(dtype: str) -> Callable[[Any, Any], Any]:
    lanes, half = lanes_of(dtype), parse_dtype(dtype).kind == "bfloat"

    def run(there: np.ndarray, stride: int) -> Any:
        values = there[_rows(there, stride, lanes)]
        return bfloat16_from_bits(values) if half else values

    return run


def _store(dtype: str) -> Callable[[Any, Any, Any], Any]:
    lanes, half = lanes_of(dtype), parse_dtype(dtype).kind == "bfloat"

    def run(there: np.ndarray, stride: int, value: Any) -> None:
        there[_rows(there, stride, lanes)] = bfloat16_to_bits(value) if half else value

    return run


TILE_CALLS: dict[str, Callable[[str, tuple[str, ...]], Callable[..., Any]]] = {
    "tir.tile_dot2_bf16": lambda dtype, sources: _dot(2),
    "tir.tile_dot4": lambda dtype, sources: _dot(4),
    "tir.tile_load": lambda dtype, sources: _load(dtype),
    "tir.tile_store": lambda dtype, sources: _store(sources[2]),
}
"""By operation: a function that returns the evaluator for given types of the result and of the arguments."""
