"""This module has operations of matrix units on tiles of 16 rows of 64 bytes, like those of x86's AMX.

==========================================  ===========================================================================
``tile_load(dtype, address, stride)``       16 rows of 64 bytes from memory, ``stride`` elements from row to row
``tile_store(address, stride, value)``      16 rows of 64 bytes to memory
``tile_dot4(c, a, b)``                      ``c[i, j] + sum(a[i, 4k + q] * b[k, 4j + q])``, uint8 or int8 by int8 into int32
``tile_dot2_bf16(c, a, b)``                 ``c[i, j] + sum(a[i, 2k + q] * b[k, 2j + q])``, bfloat16 into float32
==========================================  ===========================================================================

A tile is a vector of all its numbers, row by row: ``int32x256`` is 16 rows of 16, ``int8x1024`` 16 rows of 64. The
right operand holds four (two) consecutive terms of the sum side by side for each column, like the dot products of
vectors.

Row r of a tile in memory begins r * stride elements behind the element that is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType, bfloat16_from_bits, bfloat16_to_bits
from ..nodes.expr import Call, Expr
from .operation_row import Effect, Evaluator, Lanes, Operation, Spelling, TypeRule, types_text

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


TILE_BYTES = 64
"""The number of bytes in a row of a tile."""


def _one_of_each(*choices: tuple[str, ...]) -> TypeRule:
    """Return the rule that each argument has one of the types listed for it. The result has the type of the first
    one."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        if not all(a.dtype in allowed for a, allowed in zip(args, choices, strict=True)):
            takes = ", ".join(" or ".join(allowed) for allowed in choices)
            raise TypeError(f"takes {takes}, not {types_text(args)}")
        return args[0].dtype

    return rule


def is_tile(dtype: DType) -> bool:
    """Return whether values of ``dtype`` are 16 rows of 64 bytes."""
    return not dtype.is_bool and dtype.lanes > 1 and dtype.bits * dtype.lanes == 8 * TILE_ROWS * TILE_BYTES


def _loaded(args: Sequence[Expr], dtype: str | None) -> str:
    _check(args, DType(dtype or ""))
    return dtype or ""


def _stored(args: Sequence[Expr], dtype: str | None) -> str:
    _check(args, args[2].dtype)
    return "void"


def _check(args: Sequence[Expr], dtype: DType) -> None:
    """Raise TypeError unless a tile of type ``dtype`` is at the address and the stride that ``args`` begin with."""
    if not is_tile(dtype):
        raise TypeError(f"{dtype} is not a tile of {TILE_ROWS} rows of {TILE_BYTES} bytes")
    check_place(args[0], args[1:2])


def _dot(width: int) -> Evaluator:
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

    return lambda dtype, types: run


tile_load = Operation(
    "tile_load", ("address", "stride"), "16 rows of 64 bytes from memory, row r from r * stride elements on",
    _loaded, evaluate=load_tile, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
tile_store = Operation(
    "tile_store", ("address", "stride", "value"), "write a tile to memory in the layout that tile_load reads",
    _stored, evaluate=store_tile, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
tile_dot4 = Operation(
    "tile_dot4", ("c", "a", "b"),
    "c[i, j] + sum(a[i, 4 * k + q] * b[k, 4 * j + q] for k in range(16) for q in range(4)), the instructions tdpbusd "
    "and tdpbssd; the products are exact, the sum wraps",
    _one_of_each(("int32x256",), ("uint8x1024", "int8x1024"), ("int8x1024",)), evaluate=_dot(4), lanes=Lanes.NEVER,
)  # fmt: skip
tile_dot2_bf16 = Operation(
    "tile_dot2_bf16", ("c", "a", "b"),
    "c[i, j] + sum(a[i, 2 * k + q] * b[k, 2 * j + q] for k in range(16) for q in range(2)), the instruction tdpbf16ps; "
    "the products are exact in float32, the sums are rounded to nearest even in an order that the machine chooses, and "
    "subnormal numbers may count as zero",
    _one_of_each(("float32x256",), ("bfloat16x512",), ("bfloat16x512",)), evaluate=_dot(2), lanes=Lanes.NEVER,
)  # fmt: skip
TILE_DOTS = {tile_dot4.op: 4, tile_dot2_bf16.op: 2}
"""By operation: how many numbers of a row are multiplied and added at once."""
