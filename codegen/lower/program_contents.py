"""Tells what a program contains, so that passes with nothing to do are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...tir.expr import BufferLoad, Call, Cast, FloatImm, IntImm, Var
from ...tir.stmt import Allocate, AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, PrimFunc
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
        words = _WORDS.get(kind)
        if words is not None:
            found.update(words(n))
    return found


def _of_value(n: Any) -> Iterable[Content]:
    return (HALF,) if n.dtype.is_float and n.dtype.bits == 16 else ()


def _of_access(n: BufferLoad | BufferStore) -> Iterable[Content]:
    if n.predicate is not None:
        yield MASK
    if isinstance(n, BufferLoad):
        yield from _of_value(n.buffer)


def _of_block(n: Block) -> Iterable[Content]:
    yield from n.annotations
    if n.init is not None:
        yield INIT
    if n.alloc_buffers:
        yield Allocate


_WORDS: dict[type, Callable[[Any], Iterable[Content]]] = {
    AttrStmt: lambda n: (n.attr_key,),
    Block: _of_block,
    BlockRealize: lambda n: () if isinstance(n.predicate, IntImm) and n.predicate.value else (IfThenElse,),
    BufferLoad: _of_access,
    BufferStore: _of_access,
    Call: lambda n: (n.op, *_of_value(n)),
    Cast: _of_value,
    FloatImm: _of_value,
    For: lambda n: (n.kind, *n.annotations),
    Var: _of_value,
}
