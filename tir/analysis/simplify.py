"""This module simplifies whole statements and functions, using the loop ranges and conditions in scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..arith.analyzer import Analyzer
from ..arith.rewrite_rules import truth
from ..expr import (
    BufferLoad,
    Expr,
    IntImm,
    Range,
    Var,
    logical_not,
    pre_order,
    reads_memory,
)
from ..expr.deep_recursion import with_room
from ..expr.node import map_tuple
from ..stmt import (
    Allocate,
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    IRModule,
    LetStmt,
    PrimFunc,
    While,
    seq,
)


def bind_sizes(analyzer: Analyzer, func: PrimFunc) -> None:
    """Let the analyzer know that the sizes of the function's parameters are not negative; each of them may be 0."""
    for size in size_variables(func.buffer_map):
        analyzer.bind(size, (0, None))


_latest: tuple[Mapping[Var, Buffer], tuple[Var, ...]] = ({}, ())
"""The parameters of the function that was asked about last, and their sizes; the steps of a schedule keep them."""


def size_variables(buffer_map: Mapping[Var, Buffer]) -> tuple[Var, ...]:
    """Return the variables that are extents of parameters; those of the latest ``buffer_map`` are remembered."""
    global _latest
    known, sizes = _latest
    if known is not buffer_map:
        extents = [extent for buffer in buffer_map.values() for extent in buffer.shape]
        sizes = tuple(dict.fromkeys([extent for extent in extents if isinstance(extent, Var)]))
        _latest = buffer_map, sizes
    return sizes


def loop_values(loop: For) -> Range | tuple[None, None]:
    """Return the range of the variable of ``loop`` for :meth:`Analyzer.bind`, as it holds inside the loop.

    Bounds are read once. Where they come from memory that the body writes, nothing is known: what such a load gives
    inside the loop need not be what it gave before it.
    """
    if reads_memory(loop.min) or reads_memory(loop.extent):
        read = {n.buffer for e in (loop.min, loop.extent) for n in pre_order(e) if isinstance(n, BufferLoad)}
        if any(isinstance(n, BufferStore) and n.buffer in read for n in pre_order(loop.body)):
            return None, None
    return Range(loop.min, loop.extent)


@with_room
def simplify(node: Any, analyzer: Analyzer | None = None, *, data: bool = True) -> Any:
    """Return ``node`` (expression, statement, PrimFunc or IRModule) simplified; the same object when nothing changed.

    Loops of one iteration stay. A decided condition is removed with its dead branch. ``data``: False leaves arithmetic on
    values from memory, and on floats, as it is written, also the order of its operands.
    """
    an = Analyzer() if analyzer is None else analyzer
    if isinstance(node, IRModule):
        functions = {name: simplify(f, data=data) for name, f in node.functions.items()}
        if all(functions[name] is f for name, f in node.functions.items()):
            return node
        return IRModule(functions, node.attrs)
    if isinstance(node, PrimFunc):
        bind_sizes(an, node)
    return _Walk(an, data)(node)


class _Walk:
    """Simplifies statements. What stands in a loop is simplified as if the loop had iterations.

    A lane of a vector loop stays in the indices, also where a condition leaves one lane: the loop becomes a vector with a mask.
    """

    def __init__(self, analyzer: Analyzer, data: bool) -> None:
        self.an, self.data = analyzer, data
        self.lanes: list[Var] = []

    def __call__(self, node: Any) -> Any:
        if isinstance(node, Expr):
            if not self.data and (node.dtype.is_float or reads_memory(node)):
                return node.map_children(self)
            return self.an.simplify(node)
        visit = getattr(self, "_" + type(node).__name__.lower(), None)
        return node.map_children(self) if visit is None else visit(node)

    def _for(self, loop: For) -> Any:
        lo, extent = self(loop.min), self(loop.extent)
        if isinstance(extent, IntImm) and extent.value <= 0:
            return Evaluate(IntImm(0))
        values = loop_values(loop.with_(min=lo, extent=extent))
        with self.an.nonempty(extent):
            self.an.bind(loop.loop_var, values)
            vector = loop.kind == "vectorized" and not (isinstance(extent, IntImm) and extent.value == 1)
            self.lanes += [loop.loop_var] * vector
            body = self(loop.body)
            del self.lanes[len(self.lanes) - vector :]
        if lo is loop.min and extent is loop.extent and body is loop.body:
            return loop
        return loop.with_(min=lo, extent=extent, body=body)

    def _ifthenelse(self, s: IfThenElse) -> Any:
        condition = self(s.condition)
        known = truth(condition)
        if known is not None:
            chosen = s.then_case if known else s.else_case
            return Evaluate(IntImm(0)) if chosen is None else self(chosen)
        with self.an.constraint(condition):
            one = any(bound.lo == bound.hi for bound in map(self.an.const_int_bound, self.lanes))
            then_case = s.then_case if one else self(s.then_case)
        then_case = self(then_case) if one else then_case
        else_case = None
        if s.else_case is not None:
            with self.an.constraint(logical_not(condition)):
                else_case = self(s.else_case)
        if condition is s.condition and then_case is s.then_case and else_case is s.else_case:
            return s
        return IfThenElse(condition, then_case, else_case)

    def _while(self, s: While) -> Any:
        condition = self(s.condition)
        if truth(condition) is False:
            return Evaluate(IntImm(0))
        body = self(s.body)  # the condition need not hold any more after the first store
        return s if condition is s.condition and body is s.body else While(condition, body)

    def _letstmt(self, s: LetStmt) -> Any:
        value = self(s.value)
        self.an.bind(s.var, value)
        body = self(s.body)
        return s if value is s.value and body is s.body else LetStmt(s.var, value, body)

    def _assertstmt(self, s: AssertStmt) -> Any:
        condition = Analyzer().simplify(s.condition)  # it may say of a size that it is not 0
        if truth(condition) is True:
            return self(s.body)
        with self.an.constraint(condition):
            body = self(s.body)
        return s if condition is s.condition and body is s.body else AssertStmt(condition, s.message, body)

    def _bufferstore(self, s: BufferStore) -> Any:
        new = s.map_children(self)
        if new.predicate is not None:
            known = truth(new.predicate)
            if known is True:
                return BufferStore(new.buffer, new.value, new.indices)
            if known is False:
                return Evaluate(IntImm(0))
        return new

    def _allocate(self, s: Allocate) -> Any:
        return s.map_children(self)

    def _seqstmt(self, s: Any) -> Any:
        stmts = map_tuple(s.seq, self)
        return s if stmts is s.seq else seq(*stmts)

    def _blockrealize(self, s: BlockRealize) -> Any:
        values, predicate = map_tuple(s.iter_values, self), self(s.predicate)
        if truth(predicate) is False:
            return Evaluate(IntImm(0))
        with self.an.constraint(predicate):
            values = map_tuple(values, self)
            block = self._block(s.block)
        if values is s.iter_values and predicate is s.predicate and block is s.block:
            return s
        return BlockRealize(values, predicate, block)

    def _block(self, block: Block) -> Any:
        for axis in block.iter_vars:
            self.an.bind(axis.var, axis.dom)
        return block.map_children(self)
