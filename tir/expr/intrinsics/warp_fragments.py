"""This module has products of which each thread of a warp holds its own numbers: ``mma`` and ``ldmatrix`` of PTX.

Unlike tiles (:mod:`.matrix_operations`), which a warp holds together, a *fragment* is a short vector of one thread. Which numbers of the
matrices it has is part of the meaning, so that arithmetic on them is that of any other registers.

==========================================  ===========================================================================
``mma(c, a, b)``                            the thread's four numbers of ``C + A B`` of its warp
``ldmatrix(row)``, ``ldmatrix_t(row)``      the thread's numbers of four matrices of 8 rows of 16 bytes, of which each
                                            thread gives one row; ``_t``: of the matrices transposed
==========================================  ===========================================================================

Let g = lane // 4 and q = lane % 4 of a thread, and u the operands' numbers in 32 bits: 2 of float16 and bfloat16, 4 of int8. Then A has
16 rows of 8 u numbers, B 8 u rows of 8, and C 16 rows of 8. The thread holds

- of C, number n: row g + 8 (n // 2), column 2 q + n % 2;
- of A, number n = u r + e: row g + 8 (r % 2), column 4 u (r // 2) + u q + e;
- of B, number n = u r + e: row 4 u r + u q + e, column g.

Thread l gives row l % 8 of matrix l // 8 to ``ldmatrix``, and gets of matrix m the numbers u m to u m + u - 1: those at row g, columns
u q to u q + u - 1. Source: the PTX manual, "Matrix Fragments for mma.m16n8k16" and "ldmatrix".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import DType
from ..nodes import BufferLoad, Expr
from .operation_row import Effect, Lanes, Operation, TypeRule, types_text

FRAGMENT_SUMS = {"float16": "float32", "bfloat16": "float32", "int8": "int32", "uint8": "int32"}
"""The type of sums by that of the operands."""
_REGISTER = 4
_ROW = 16
"""The bytes of a row of a matrix."""
_WARP = 32


def fragment_lanes(dtype: DType) -> int:
    """Return how many numbers of an element type lie in a register of 32 bits."""
    return _REGISTER // dtype.element.bytes


def _product(args: Sequence[Expr], dtype: str | None) -> str:
    c, a, b = [x.dtype for x in args]
    u = fragment_lanes(a) if a.element in FRAGMENT_SUMS else 0
    sums = DType(FRAGMENT_SUMS.get(a.element, "float32")).with_lanes(4)
    if not u or c != sums or a.lanes != 4 * u or b != a.element.with_lanes(2 * u):
        raise TypeError(f"takes fragments such as float32x4, float16x8 and float16x4, not {types_text(args)}")
    return c


def _rows(narrow: bool) -> TypeRule:
    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        (row,) = args
        of = row.dtype
        if of.element not in FRAGMENT_SUMS or of.bytes != _ROW or (narrow and of.element.bytes != 2):
            raise TypeError(f"takes a row of {_ROW} bytes, such as float16x8, not {of}")
        if not isinstance(row, BufferLoad):
            raise TypeError(f"takes a row from a buffer, not {row}")
        return of

    return rule


mma = Operation(
    "mma", ("c", "a", "b"), "the thread's four numbers of C + A B, of which the threads of its warp hold fragments; floats are "
    "added in the machine's order",
    _product, effect=Effect.READS, lanes=Lanes.NEVER,
)  # fmt: skip
ldmatrix = Operation(
    "ldmatrix", ("row",), "the thread's numbers of four matrices of 8 rows, one of which each thread of the warp reads",
    _rows(False), effect=Effect.READS, lanes=Lanes.NEVER,
)  # fmt: skip
ldmatrix_t = Operation(
    "ldmatrix_t", ("row",), "the thread's numbers of four matrices of 8 columns, one of which each thread of the warp reads",
    _rows(True), effect=Effect.READS, lanes=Lanes.NEVER,
)  # fmt: skip
FRAGMENT_OPERATIONS = frozenset(row.op for row in (mma, ldmatrix, ldmatrix_t))


def warps_products(c: Any, a: Any, b: Any) -> Any:
    """Return all threads' fragments of C + A B from their fragments, the rows of the arguments.

    Integers wrap, and floats are added one product after the other.
    """
    u = a.shape[1] // 4
    kind = np.int64 if c.dtype.kind in "iu" else np.float32
    warps = len(c) // _WARP
    left = np.zeros((warps, 16, 8 * u), kind)
    right = np.zeros((warps, 8 * u, 8), kind)
    total = np.zeros((warps, 16, 8), kind)
    lane = np.arange(_WARP)[:, None]
    g, q = lane // 4, lane % 4
    n = np.arange(4 * u)
    r, e = n // u, n % u
    left[:, g + 8 * (r % 2), 4 * u * (r // 2) + u * q + e] = a.reshape(warps, _WARP, -1)
    n, r, e = n[: 2 * u], r[: 2 * u], e[: 2 * u]
    right[:, 4 * u * r + u * q + e, g + 0 * n] = b.reshape(warps, _WARP, -1)
    n = np.arange(4)
    rows, columns = g + 8 * (n // 2), 2 * q + n % 2
    total[:, rows, columns] = c.reshape(warps, _WARP, -1)
    for k in range(8 * u):
        total = total + left[:, :, k, None] * right[:, None, k, :]
    if kind is np.int64:
        total = (total + 2**31) % 2**32 - 2**31
    return total[:, rows, columns].reshape(c.shape).astype(c.dtype)


def exchanged_rows(rows: Any, transposed: bool) -> Any:
    """Return what ``ldmatrix`` gives each thread; row l of ``rows`` is what thread l gives."""
    u = rows.shape[1] // 4
    matrices = rows.reshape(-1, 4, 8, 4 * u)
    if transposed:
        matrices = matrices.swapaxes(2, 3)
    parts = matrices.reshape(-1, 4, 8, 4, u)  # warp, matrix, g, q, number
    return parts.transpose(0, 2, 3, 1, 4).reshape(rows.shape)
