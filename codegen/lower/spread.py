"""Asks for what the next trip of an outer loop reads, a little in every trip of the inner ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ...tir.arith import Analyzer, linear_coefficients
from ...tir.buffer import Buffer
from ...tir.dtype import bytes_of, element_of
from ...tir.expr import BufferLoad, Call, Expr, IntImm, Ramp, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import Evaluate, For, Stmt, seq
from ...tir.walk import replace_node, substitute, transform_statements, uses_var
from ..target import Target

__all__ = ["NEXT", "spread_prefetches"]

NEXT = "pragma_prefetch_next"
_MOST_LINES = 64


def spread_prefetches(func: PrimFunc, target: Target) -> PrimFunc:
    """``pragma_prefetch_next = ["B"]`` on a loop: while one trip computes, the part of ``B`` that the next one reads is
    brought into the second-level cache, evenly spread over the inner loops.

    It is for an operand that comes from beyond that cache, a stretch of memory per trip, which the inner loops go through
    several times: the first time would wait for memory, and all others leave it idle.

    Before (``B`` has 64 floats, 4 cache lines, per trip of ``p``)::

        for p in T.serial(8, annotations={"pragma_prefetch_next": ["B"]}):
            for i in range(4):
                for k in range(4): ... B[p, k, 0:16] ...

    After::

        for p in range(8):
            for i in range(4):
                for k in range(4):
                    T.prefetch(T.address_of(B_flat[p * 64 + (i * 4 + k) * 16 + 64]), 0, 2)
                    ... B[p, k, 0:16] ...

    The nest of inner loops with the most trips does it; conditions and loops of unknown extents on the way to the reads,
    or a place that does not move evenly with the annotated loop, and nothing is asked for.
    """

    def post(n: Node) -> Stmt | None:
        if not (isinstance(n, For) and NEXT in n.annotations):
            return None
        names = [str(getattr(name, "value", name)) for name in n.annotations[NEXT]]
        loop = n.with_(annotations={k: v for k, v in n.annotations.items() if k != NEXT})
        for name in names:
            loop = _spread(loop, name, target.caches.line)
        return loop

    return transform_statements(func, post)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Nest:
    """Loops from the annotated one inwards, and a load in the innermost."""

    loops: tuple[For, ...]
    load: BufferLoad

    @property
    def trips(self) -> int:
        """Of the innermost body, per trip of the annotated loop."""
        return math.prod(loop.extent.value for loop in self.loops)  # type: ignore[attr-defined]


def _nests(s: Node, name: str, loops: tuple[For, ...] = ()) -> Iterator[_Nest]:
    """The loads of the buffer ``name`` below ``s``, each with the loops around it, as far as these are serial."""
    for child in s.children():
        if isinstance(child, For):
            if child.kind == "serial" and isinstance(child.extent, IntImm):
                yield from _nests(child, name, (*loops, child))
        elif isinstance(child, BufferLoad) and child.buffer.name == name and loops:
            yield _Nest(loops, child)
        else:
            yield from _nests(child, name, loops)


def _spread(loop: For, name: str, line: int) -> For:
    nests = list(_nests(loop, name))
    if not nests:
        return loop
    nest = max(nests, key=lambda n: n.trips)
    buffer = nest.load.buffer
    total = _elements(buffer)
    firsts = [i.base if isinstance(i, Ramp) else i for i in nest.load.indices]
    if total is None or any(i.dtype not in ("int32", "int64") for i in firsts):
        return loop
    place: Expr = const(0, loop.loop_var.dtype)
    for index, stride in zip(firsts, buffer.element_strides(), strict=True):
        place = place + index * stride
    analyzer = Analyzer()
    start = analyzer.simplify(substitute(place, {inner.loop_var: inner.min for inner in nest.loops}))
    found = linear_coefficients(start, [loop.loop_var])
    step = analyzer.simplify(found[0][0]) if found is not None else None
    if not isinstance(step, IntImm) or step.value <= 0 or any(uses_var(start, n.loop_var) for n in nest.loops):
        return loop
    per_line = max(1, line // bytes_of(element_of(buffer.dtype)))
    lines = -(-step.value // per_line)
    share = -(-lines // nest.trips)
    if share > _MOST_LINES:
        return loop
    count: Expr = const(0, loop.loop_var.dtype)
    for inner in nest.loops:
        count = count * inner.extent + (inner.loop_var - inner.min)
    view = buffer.with_(name=f"{buffer.name}_flat", shape=(IntImm(total),), data=buffer.data)
    asked = [
        Evaluate(Call("tir.prefetch", (_address(view, analyzer.simplify(
            start + step + (count * share + n) * per_line)), const(0), const(2)), "int32"))
        for n in range(share)
    ]  # fmt: skip
    innermost = nest.loops[-1]
    return replace_node(loop, innermost, innermost.with_(body=seq(*asked, innermost.body)))  # type: ignore[no-any-return]


def _address(view: Buffer, place: Expr) -> Expr:
    return Call("tir.address_of", (BufferLoad(view, (place,)),), "handle")


def _elements(buffer: Buffer) -> int | None:
    if buffer.strides or not all(isinstance(e, IntImm) for e in buffer.shape):
        return None
    return math.prod(e.value for e in buffer.shape)  # type: ignore[attr-defined]
