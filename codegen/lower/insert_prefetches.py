"""Inserts prefetches ahead of the accesses of a loop whose annotation asks for them."""

from __future__ import annotations

from typing import Any

from ...tir.arith import Analyzer, linear_coefficients
from ...tir.buffer import Buffer
from ...tir.expr import Broadcast, BufferLoad, Call, Expr, IntImm, Ramp, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import AssertStmt, BufferStore, Evaluate, For, IfThenElse, LetStmt, Stmt, While, seq
from ...tir.walk import post_order, pre_order, substitute, transform_statements, vars_in
from ..machine.target import Target

DISTANCE = "pragma_prefetch_distance"
_NEAR = ("register", "local")


def insert_prefetches(func: PrimFunc, target: Target) -> PrimFunc:
    """Insert prefetches in loops with ``pragma_prefetch_distance = d``: each iteration prefetches for the d-th
    iteration after it.

    ``d`` is a number of iterations for every buffer read in the loop, or a dict of numbers by the buffers' names.
    Prefetches stand before the statement that reads, one per cache line and statement list. With one number for all,
    buffers in which the loop advances by less than a cache line per iteration are left to the hardware prefetcher,
    which recognizes such streams.

    Before::

        for k in T.serial(64, annotations={"pragma_prefetch_distance": 8}):
            ... B[k, 0:16] ...

    After::

        for k in range(64):
            T.prefetch(T.address_of(B[k + 8, 0]), 0, 3)
            ... B[k, 0:16] ...
    """

    def post(n: Node) -> Stmt | None:
        if isinstance(n, For) and DISTANCE in n.annotations:
            rest = {k: v for k, v in n.annotations.items() if k != DISTANCE}
            return n.with_(annotations=rest, body=_Inserter(n, target.caches.line).stmt(n.body))
        return None

    return transform_statements(func, post)  # type: ignore[no-any-return]


def unrolled_distance(wanted: Any, factor: int) -> Any:
    """Returns the distance in iterations of a loop that was unrolled by ``factor``."""
    if isinstance(wanted, dict):
        return {name: unrolled_distance(d, factor) for name, d in wanted.items()}
    return -(-_number(wanted) // factor)


def _number(value: Any) -> int:
    return int(value.value if isinstance(value, IntImm) else value)


class _Inserter:
    """The insertion of prefetches into one annotated loop."""

    def __init__(self, loop: For, line: int) -> None:
        self.var, self.line = loop.loop_var, line
        self.wanted = loop.annotations[DISTANCE]
        self.analyzer = Analyzer()
        self.asked: list[tuple[Buffer, Expr]] = []

    def stmt(self, s: Stmt) -> Stmt:
        """Return ``s`` with prefetches before the statements that read."""
        if isinstance(s, (For, IfThenElse, While)):
            outer, self.asked = self.asked, []
            inside: Stmt = s.map_children(lambda c: self.stmt(c) if isinstance(c, Stmt) else c)
            self.asked = outer
            return inside
        if isinstance(s, (BufferStore, Evaluate, LetStmt, AssertStmt)):
            ahead = [self.ahead(load) for part in s.children() if isinstance(part, Expr) for load in _loads(part)]
            first = [p for p in ahead if p is not None]
            after: Stmt = s.map_children(lambda c: self.stmt(c) if isinstance(c, Stmt) else c)
            return seq(*first, after)
        return s.map_children(lambda c: self.stmt(c) if isinstance(c, Stmt) else c)

    def ahead(self, load: BufferLoad) -> Stmt | None:
        """Return the prefetch for one load, or None when it is not wanted or an earlier one covers it."""
        buffer = load.buffer
        distance = self.distance(buffer)
        if buffer.scope in _NEAR or distance <= 0:
            return None
        firsts = [_first(i) for i in load.indices]
        indices = [i for i in firsts if i is not None]
        if len(indices) < len(firsts) or not any(self.var in vars_in(i) for i in indices):
            return None
        place: Expr = const(0, self.var.dtype)
        for index, stride in zip(indices, buffer.element_strides(), strict=True):
            place = place + index * stride
        place = self.analyzer.simplify(place)
        size = buffer.dtype.element.bytes
        if not isinstance(self.wanted, dict):
            step = linear_coefficients(place, [self.var])
            if step is not None:
                by = self.analyzer.simplify(step[0][0])
                if isinstance(by, IntImm) and abs(by.value) * size < self.line:
                    return None
        for other, at in self.asked:
            gap = self.analyzer.simplify(place - at) if other.data is buffer.data else None
            if isinstance(gap, IntImm) and abs(gap.value) * size < self.line:
                return None
        self.asked.append((buffer, place))
        later = {self.var: self.var + const(distance, self.var.dtype)}
        there = BufferLoad(buffer, tuple([self.analyzer.simplify(substitute(i, later)) for i in indices]))
        address = Call("tir.address_of", (there,), "handle")
        return Evaluate(Call("tir.prefetch", (address, const(0), const(3)), "int32"))

    def distance(self, buffer: Buffer) -> int:
        """Return the prefetch distance of a buffer in iterations."""
        if isinstance(self.wanted, dict):
            return _number(self.wanted.get(buffer.name, 0))
        return _number(self.wanted)


def _loads(e: Expr) -> list[BufferLoad]:
    return [n for n in post_order(e) if isinstance(n, BufferLoad)]


def _first(index: Expr) -> Expr | None:
    """Returns the index of the first lane, or None for lanes that are irregular or read from memory."""
    if isinstance(index, Ramp):
        index = index.base
    elif isinstance(index, Broadcast):
        index = index.value
    elif index.dtype not in ("int32", "int64"):
        return None
    return None if any(isinstance(n, (BufferLoad, Call)) for n in pre_order(index)) else index
