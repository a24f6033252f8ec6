"""This module has operations of matrix units that four warps of a GPU, a *warp group*, run together. They are ``wgmma``
of sm_90a.

======================================================  ================================================================
``wgmma_left(dtype, address, stride)``                  64 rows of 16 numbers in shared memory, the left operand
``wgmma_right(dtype, address, stride, panel)``          16 rows of n numbers there: panels of 64 columns, ``panel`` elements
                                                        apart
``wgmma_fence(c)``                                      ``c``, before the first product after other uses of its registers
``wgmma_dot(c, a, b)``                                  ``c[i, j] + sum(a[i, k] * b[k, j])``, begun and not yet awaited
``wgmma_commit()``                                      closes a group of products that were begun
``wgmma_wait(c, groups)``                               ``c``, when at most so many groups are not done
``wgmma_store(address, stride, value)``                 64 rows of n sums to memory
======================================================  ================================================================

Sums are a vector of their 64 n numbers, row by row, n = 64, 128, 192 or 256. The 128 threads of the group hold them together. Operands
stay in shared memory, in buffers of the scope ``shared.swizzled``: rows of 128 bytes, in which pieces of 16 bytes are
exchanged so that the memory's banks take turns. Only addresses change by that; the operations see plain rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType, bfloat16_from_bits
from ..nodes.expr import Expr
from .operation_row import Effect, Lanes, Operation, Spelling
from .tile_operations import check_place

GROUP_ROWS, GROUP_STEPS, PANEL = 64, 16, 64
"""The rows of sums, the steps of one product, and the columns that lie side by side in shared memory."""
OPERANDS = ("float16", "bfloat16")
"""The types of operands; sums are float32."""
WIDTHS = (64, 128, 192, 256)
"""The columns of sums."""


def group_columns(dtype: DType) -> int:
    """Return the columns of sums of a warp group, or 0 for another type."""
    columns = dtype.lanes // GROUP_ROWS
    return columns if dtype.element == "float32" and columns in WIDTHS and dtype.lanes == columns * GROUP_ROWS else 0


def _loaded(strides: int, lanes: Sequence[int]) -> Callable[[Sequence[Expr], str | None], str]:
    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        wanted = DType(dtype or "")
        if wanted.element not in OPERANDS or wanted.lanes not in lanes:
            raise TypeError(
                f"{dtype} is no operand of a warp group; there are {', '.join(f'{t}x{lanes[0]}' for t in OPERANDS)}"
            )
        check_place(args[0], args[1 : 1 + strides])
        return dtype or ""

    return rule


def _stored(args: Sequence[Expr], dtype: str | None) -> str:
    _sums(args[2].dtype)
    check_place(args[0], args[1:2])
    return "void"


def _sums(dtype: DType) -> str:
    if not group_columns(dtype):
        raise TypeError(f"{dtype} is not the sums of a warp group: float32, {GROUP_ROWS} rows of {WIDTHS}")
    return str(dtype)


def _dotted(args: Sequence[Expr], dtype: str | None) -> str:
    c, a, b = [x.dtype for x in args]
    out = _sums(c)
    fits = a.lanes == GROUP_ROWS * GROUP_STEPS and b.lanes == GROUP_STEPS * group_columns(c)
    if a.element != b.element or a.element not in OPERANDS or not fits:
        raise TypeError(
            f"takes sums and two operands of one type, such as float32x4096 and float16x1024, not {c}, {a}, {b}"
        )
    return out


def _load(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    half, lanes = dtype.kind == "bfloat", dtype.lanes

    def run(there: np.ndarray, stride: int, panel: int | None = None) -> Any:
        if panel is None:
            places = np.arange(GROUP_ROWS)[:, None] * stride + np.arange(GROUP_STEPS)
        else:
            column = np.arange(lanes // GROUP_STEPS)
            places = np.arange(GROUP_STEPS)[:, None] * stride + column // PANEL * panel + column % PANEL
        values = there[_inside(places, there.size)]
        return bfloat16_from_bits(values) if half else values

    return run


def _store(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    columns = DType(types[2]).lanes // GROUP_ROWS

    def run(there: np.ndarray, stride: int, value: Any) -> None:
        there[_inside(np.arange(GROUP_ROWS)[:, None] * stride + np.arange(columns), there.size)] = value

    return run


def _inside(places: np.ndarray, size: int) -> np.ndarray:
    if places.min() < 0 or places.max() >= size:
        raise IndexError(f"a tile reaches {places.max()} elements far; there are {size}")
    return places.reshape(-1)


def dot_of_group(c: Any, a: Any, b: Any) -> Any:
    """Return ``c + a @ b``, of one group or of several: the last dimension of each holds the numbers."""
    lead = c.shape[:-1]
    total = c.reshape(*lead, GROUP_ROWS, -1).astype(np.float32)
    left, right = (
        a.reshape(*lead, GROUP_ROWS, -1).astype(np.float32),
        b.reshape(*lead, GROUP_STEPS, -1).astype(np.float32),
    )
    for k in range(GROUP_STEPS):
        total = total + left[..., :, k, None] * right[..., None, k, :]
    return total.reshape(c.shape)


wgmma_left = Operation(
    "wgmma_left", ("address", "stride"), "64 rows of 16 numbers of shared memory, row r from r * stride elements on",
    _loaded(1, (GROUP_ROWS * GROUP_STEPS,)), evaluate=_load, effect=Effect.READS, lanes=Lanes.NEVER,
    spelling=Spelling.TYPED,
)  # fmt: skip
wgmma_right = Operation(
    "wgmma_right", ("address", "stride", "panel"),
    "16 rows of shared memory, row r from r * stride elements on; columns 64 p and more from p * panel elements on",
    _loaded(2, [GROUP_STEPS * n for n in WIDTHS]), evaluate=_load, effect=Effect.READS, lanes=Lanes.NEVER,
    spelling=Spelling.TYPED,
)  # fmt: skip
wgmma_fence = Operation(
    "wgmma_fence", ("c",), "sums, whose registers products may use from here on", lambda args, dtype: _sums(args[0].dtype),
    evaluate=lambda dtype, types: lambda c: c, effect=Effect.READS, lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_dot = Operation(
    "wgmma_dot", ("c", "a", "b"),
    "c[i, j] + sum(a[i, k] * b[k, j] for k in range(16)), which other operations may use after wgmma_wait; the order of the sum "
    "is the machine's",
    _dotted, evaluate=lambda dtype, types: dot_of_group, effect=Effect.READS, lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_commit = Operation(
    "wgmma_commit", (), "nothing; the products begun since the last call are a group", lambda args, dtype: "void",
    evaluate=lambda dtype, types: lambda: None, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
wgmma_wait = Operation(
    "wgmma_wait", ("c", "groups"), "sums, when at most so many groups of products are not done",
    lambda args, dtype: _sums(args[0].dtype), evaluate=lambda dtype, types: lambda c, groups: c, effect=Effect.READS,
    lanes=Lanes.NEVER,
)  # fmt: skip
wgmma_store = Operation(
    "wgmma_store", ("address", "stride", "value"), "write sums to memory, row r from r * stride elements on",
    _stored, evaluate=_store, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
