"""Calls of a BLAS library's matrix product: their form in programs, and what they compute.

A program says ``T.call_extern("void", "tw_cblas_sgemm", …)``, whichever library it runs with: code generation puts the
library's own name and width of integers in place of it. All matrices are row-major, and ``C = op(A) @ op(B)`` is ``m × n``.

===========  ====================================================================================
argument     meaning
===========  ====================================================================================
threads      the most threads that the library may use; 0: as many as the target has
trans_a      1: ``A`` is stored as ``k × m``, 0: as ``m × k``
trans_b      1: ``B`` is stored as ``n × k``, 0: as ``k × n``
m, n, k      the sizes, int64
a, lda       the address of ``A``, and the elements from one row to the next, int64
b, ldb       the same of ``B``
accumulate   1: the product is added to ``C``, 0: it replaces it
c, ldc       the same of ``C``
===========  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .expr import Call, Expr, StringImm, const
from .expr.node import IRNode
from .walk import pre_order

ROUTINES = {"tw_cblas_sgemm": "sgemm", "tw_cblas_dgemm": "dgemm"}
"""BLAS's names of the routines by the names in programs."""

TYPES = {"float32": "tw_cblas_sgemm", "float64": "tw_cblas_dgemm"}
"""The names in programs by the type of the elements."""

THREADS, SIZES = 1, slice(4, 7)
"""The places of the number of threads and of the sizes among the arguments of the call, after the name."""


def product_call(
    dtype: str, transposed: Sequence[bool], sizes: Sequence[Expr], matrices: Sequence[tuple[Expr, Expr]],
    accumulate: bool,
) -> Call:  # fmt: skip
    """Returns the call of a product. ``matrices``: the addresses of A, B and C, each with the elements between rows."""
    (a, lda), (b, ldb), (c, ldc) = matrices
    flags = [const(int(t), "int32") for t in (False, *transposed)]
    args = (StringImm(TYPES[dtype]), *flags, *sizes, a, lda, b, ldb, const(int(accumulate), "int32"), c, ldc)
    return Call("tir.call_extern", args, "void")


def routine_of(node: IRNode) -> str | None:
    """Returns BLAS's name of the routine that ``node`` calls, or None where it calls none."""
    if not isinstance(node, Call) or node.op != "tir.call_extern":
        return None
    name = node.args[0]
    return ROUTINES.get(name.value) if isinstance(name, StringImm) else None


def called_routines(calls: Iterable[Call]) -> list[str]:
    """Returns BLAS's names of the routines that ``calls`` call, each once, in alphabetical order."""
    return sorted({routine for routine in map(routine_of, calls) if routine is not None})


def blas_calls(body: IRNode) -> list[Call]:
    """Returns the calls of products in ``body``."""
    return [n for n in pre_order(body) if isinstance(n, Call) and routine_of(n) is not None]


def computed_product(
    threads: int, trans_a: int, trans_b: int, m: int, n: int, k: int, a: np.ndarray, lda: int, b: np.ndarray, ldb: int,
    accumulate: int, c: np.ndarray, ldc: int,
) -> None:  # fmt: skip
    """Compute the product on one-dimensional arrays that begin at the addresses; ValueError for rows beyond their ends."""
    left = _matrix("A", a, k, m, lda).T if trans_a else _matrix("A", a, m, k, lda)
    right = _matrix("B", b, n, k, ldb).T if trans_b else _matrix("B", b, k, n, ldb)
    out = _matrix("C", c, m, n, ldc)
    out[...] = left @ right + out if accumulate else left @ right


def _matrix(name: str, data: np.ndarray, rows: int, columns: int, distance: int) -> np.ndarray:
    if rows == 0 or columns == 0:
        return np.zeros((rows, columns), data.dtype)
    if distance < columns or (rows - 1) * distance + columns > data.size:
        raise ValueError(f"{name} has {rows} rows of {columns} elements, {distance} apart, in {data.size} elements")
    step = data.itemsize
    return np.lib.stride_tricks.as_strided(data, (rows, columns), (distance * step, step))


MEANINGS: dict[str, Callable[..., Any]] = dict.fromkeys(ROUTINES, computed_product)
"""What the calls compute, by the names in programs."""
