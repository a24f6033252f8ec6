"""This module has operations of the matrix units of GPUs on tiles of 16 by 16 numbers. A warp holds a tile together.

==========================================  ===========================================================================
``wmma_load_a(dtype, address, stride)``     16 rows of 16 numbers from memory, ``stride`` elements from row to row
``wmma_load_b(dtype, address, stride)``     the same for the right operand
``wmma_store(address, stride, value)``      16 rows of 16 numbers to memory
``wmma_dot(c, a, b)``                       ``c[i, j] + sum(a[i, k] * b[k, j])``: float16, bfloat16 into float32, int8,
                                            and float32, of which the products take the values of ``round_tf32``
``round_tf32(x)``                           float32 rounded to the eleven bits that matrix units multiply
==========================================  ===========================================================================

A tile is a vector of its 256 numbers, row by row. The threads of a warp hold it together, so that no thread has an element of
it by itself; all of them run the operation at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..nodes.constants import const
from ..nodes.expr import Call, Expr, Let, Select, Var
from .operation_row import Effect, Lanes, Operation, Spelling
from .tile_operations import check_place, load_tile, store_tile

_LOST = 13
"""How many bits of a float32 matrix units do not multiply."""
SIDE = 16
"""The rows and columns of a tile."""
SUMS = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "int8": "int32", "uint8": "int32"}
"""The type of sums by that of the operands."""


def is_warp_tile(dtype: DType) -> bool:
    """Return whether values of ``dtype`` are tiles of 16 by 16 numbers."""
    return dtype.lanes == SIDE * SIDE and (dtype.element in SUMS or dtype.element in SUMS.values())


def _loaded(args: Sequence[Expr], dtype: str | None) -> str:
    wanted = DType(dtype or "")
    if wanted.element not in SUMS:
        raise TypeError(f"{dtype} is no tile of an operand; there are {', '.join(f'{t}x256' for t in SUMS)}")
    _check(args, wanted)
    return dtype or ""


def _stored(args: Sequence[Expr], dtype: str | None) -> str:
    _check(args, args[2].dtype)
    return "void"


def _check(args: Sequence[Expr], dtype: DType) -> None:
    if not is_warp_tile(dtype):
        raise TypeError(f"{dtype} is not a tile of {SIDE} by {SIDE} numbers")
    check_place(args[0], args[1:2])


def _dotted(args: Sequence[Expr], dtype: str | None) -> str:
    c, a, b = [x.dtype for x in args]
    if a != b or c != DType(SUMS.get(a.element, "")).with_lanes(SIDE * SIDE) or a.lanes != SIDE * SIDE:
        raise TypeError(
            f"takes sums and two operands of one type, such as float32x256 and float16x256, not {c}, {a}, {b}"
        )
    return c


def dot_of_tiles(c: Any, a: Any, b: Any) -> Any:
    """Return ``c + a @ b`` of tiles, the last 256 numbers of each. Integers wrap, floats add one product after the
    other."""
    kind = np.int64 if c.dtype.kind in "iu" else np.float32
    shape = (*c.shape[:-1], SIDE, SIDE)
    a, b = [rounded_to_tf32(x) if x.dtype == np.float32 else x for x in (a, b)]  # the others have fewer bits
    left, right, total = [x.reshape(shape).astype(kind) for x in (a, b, c)]
    for k in range(SIDE):
        total = total + left[..., :, k, None] * right[..., None, k, :]
    return total.astype(c.dtype).reshape(c.shape)


def rounded_to_tf32(x: Any) -> Any:
    """Return float32 with eleven significant bits: the nearest, away from zero between two. NaN stays."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(1 << (_LOST - 1))) & np.uint32(0xFFFFFFFF << _LOST & 0xFFFFFFFF)).view(np.float32)
    return np.where(np.isnan(x), x, rounded).astype(np.float32)[()]


def _float32(args: Sequence[Expr], dtype: str | None) -> str:
    if args[0].dtype.element != "float32":
        raise TypeError(f"takes float32, not {args[0].dtype}")
    return str(args[0].dtype)


def tf32_steps(call: Call) -> Expr:
    """Return ``round_tf32`` as operations on bits."""
    (x,) = call.args
    whole = DType("int32").with_lanes(x.dtype.lanes)
    named = Var("x", x.dtype)
    bits = Call("tir.reinterpret", (named,), whole) + const(1 << (_LOST - 1), whole)
    rounded = Call("tir.reinterpret", (Call("tir.bitwise_and", (bits, const(-1 << _LOST, whole)), whole),), x.dtype)
    return Let(named, x, Select(Call("tir.isnan", (named,), DType("bool").with_lanes(x.dtype.lanes)), named, rounded))


round_tf32 = Operation(
    "round_tf32", ("x",), "float32 rounded to eleven significant bits, halves away from zero, as matrix units of GPUs do",
    _float32, evaluate=lambda dtype, types: rounded_to_tf32, instructions=4,
)  # fmt: skip
wmma_load_a = Operation(
    "wmma_load_a", ("address", "stride"), "a tile of the left operand from memory, row r from r * stride elements on",
    _loaded, evaluate=load_tile, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wmma_load_b = Operation(
    "wmma_load_b", ("address", "stride"), "a tile of the right operand from memory, row r from r * stride elements on",
    _loaded, evaluate=load_tile, effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.TYPED,
)  # fmt: skip
wmma_store = Operation(
    "wmma_store", ("address", "stride", "value"), "write a tile to memory in the layout that it is loaded from",
    _stored, evaluate=store_tile, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
wmma_dot = Operation(
    "wmma_dot", ("c", "a", "b"),
    "c[i, j] + sum(a[i, k] * b[k, j] for k in range(16)); the order of the sum of floats is the machine's",
    _dotted, evaluate=lambda dtype, types: dot_of_tiles, lanes=Lanes.NEVER,
)  # fmt: skip
