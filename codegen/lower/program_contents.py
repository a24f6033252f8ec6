"""Tells what a program contains, so that passes with nothing to do are left out."""

from __future__ import annotations

from functools import lru_cache

from ...tir.dtype import DType
from ...tir.expr import BufferLoad, Call, Cast, Expr, FloatImm, IntImm, Var
from ...tir.function import PrimFunc
from ...tir.stmt import Allocate, AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse
from ...tir.walk import distinct

Content = type | str
HALF, INIT, MASK = "half", "init", "mask"
UNROLLED, VECTORIZED = "unrolled", "vectorized"
"""The words for values of float16 or bfloat16, blocks with an init, masked accesses, and two kinds of loops."""


def contents(func: PrimFunc) -> set[Content]:
    """Return the types of the nodes of ``func``, the kinds of its loops, its calls and its annotations.

    A block counts as what it becomes when blocks are removed: the allocations of its buffers, and an ``IfThenElse``
    when it has a predicate. Attributes count as annotations.
    """
    found: set[Content] = set()
    for n in distinct(func.body):
        kind = type(n)
        found.add(kind)
        if isinstance(n, Expr):
            _add_expression(n, found)
        elif kind is For:
            found.add(n.kind)  # type: ignore[attr-defined]
            found.update(n.annotations)  # type: ignore[attr-defined]
        elif kind is AttrStmt:
            found.add(n.attr_key)  # type: ignore[attr-defined]
        elif isinstance(n, Block):
            found.update(n.annotations)
            if n.init is not None:
                found.add(INIT)
            if n.alloc_buffers:
                found.add(Allocate)
        elif isinstance(n, BlockRealize):
            if not (isinstance(n.predicate, IntImm) and n.predicate.value):
                found.add(IfThenElse)
        elif isinstance(n, BufferStore) and n.predicate is not None:
            found.add(MASK)
    return found


def _add_expression(n: Expr, found: set[Content]) -> None:
    if isinstance(n, (Var, FloatImm, Cast)):
        if _is_half(n.dtype):
            found.add(HALF)
    elif isinstance(n, Call):
        found.add(n.op)
        if _is_half(n.dtype):
            found.add(HALF)
    elif isinstance(n, BufferLoad):
        if _is_half(n.buffer.dtype):
            found.add(HALF)
        if n.predicate is not None:
            found.add(MASK)


@lru_cache(maxsize=256)
def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16
