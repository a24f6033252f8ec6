"""This module defines statements: loops, blocks, stores, sequences, branches.

A :class:`Block` is a unit of computation with its own axes; a :class:`BlockRealize` says, inside loops, which values
the axes take and when (``predicate``). ``init`` runs when all reduction axes are at the start of their domain. A
reduction without iterations gives its init as well, unless one loop binds reduction and spatial axes
(:mod:`.reduction_init`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .buffer import Buffer, BufferRegion, MatchBufferRegion
from .expr import Expr, IntImm, IterVar, Var
from .node import Node, map_tuple

FOR_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")


class Stmt(Node):
    """The base class of all statements."""

    __slots__ = ()
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class For(Stmt):
    """Represents a loop: ``loop_var`` runs over ``[min, min + extent)``, in order when serial.

    ``kind`` is one of :data:`FOR_KINDS`; ``thread_binding`` names the thread axis (``threadIdx.x``) of that kind.
    """

    loop_var: Var
    min: Expr
    extent: Expr
    kind: str
    body: Stmt
    thread_binding: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in FOR_KINDS:
            raise ValueError(f"loop kind {self.kind!r}; there are {FOR_KINDS}")

    def with_(self, **changes: Any) -> For:
        """Return this loop with the named fields changed."""
        values = {name: getattr(self, name) for name in For.__slots__}
        values.update(changes)
        return For(**values)

    def children(self) -> Iterator[Node]:
        yield self.min
        yield self.extent
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> For:
        lo, extent, body = f(self.min), f(self.extent), f(self.body)
        if lo is self.min and extent is self.extent and body is self.body:
            return self
        return For(self.loop_var, lo, extent, self.kind, body, self.thread_binding, self.annotations)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferStore(Stmt):
    """Stores ``buffer[indices] = value``; with ``predicate``, a bool vector, only the marked lanes are written."""

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]
    predicate: Expr | None = None

    def children(self) -> Iterator[Node]:
        yield from self.indices
        yield self.value
        if self.predicate is not None:
            yield self.predicate

    def map_children(self, f: Callable[[Any], Any]) -> BufferStore:
        indices, value = map_tuple(self.indices, f), f(self.value)
        predicate = None if self.predicate is None else f(self.predicate)
        if indices is self.indices and value is self.value and predicate is self.predicate:
            return self
        return BufferStore(self.buffer, value, indices, predicate)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SeqStmt(Stmt):
    """Runs statements one after the other; :func:`seq` makes sequences without nesting."""

    seq: tuple[Stmt, ...]

    def children(self) -> Iterator[Node]:
        return iter(self.seq)

    def map_children(self, f: Callable[[Any], Any]) -> Stmt:  # type: ignore[override]
        stmts = map_tuple(self.seq, f)
        return self if stmts is self.seq else seq(*stmts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IfThenElse(Stmt):
    """Runs ``then_case`` when ``condition`` holds, else ``else_case`` (if any)."""

    condition: Expr
    then_case: Stmt
    else_case: Stmt | None = None

    def children(self) -> Iterator[Node]:
        yield self.condition
        yield self.then_case
        if self.else_case is not None:
            yield self.else_case

    def map_children(self, f: Callable[[Any], Any]) -> IfThenElse:
        condition, then_case = f(self.condition), f(self.then_case)
        else_case = None if self.else_case is None else f(self.else_case)
        if condition is self.condition and then_case is self.then_case and else_case is self.else_case:
            return self
        return IfThenElse(condition, then_case, else_case)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class While(Stmt):
    """Runs ``body`` repeatedly, as long as ``condition`` holds.

    The condition is evaluated anew before each iteration, the first one included, so that ``body`` may not run at all.
    What the body writes to memory, the condition and the next iteration see. Nothing says that the loop ends.
    """

    condition: Expr
    body: Stmt

    def children(self) -> Iterator[Node]:
        yield self.condition
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> While:
        condition, body = f(self.condition), f(self.body)
        return self if condition is self.condition and body is self.body else While(condition, body)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LetStmt(Stmt):
    """Runs ``body``, in which ``var`` has the value ``value``; that is evaluated once."""

    var: Var
    value: Expr
    body: Stmt

    def children(self) -> Iterator[Node]:
        yield self.value
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> LetStmt:
        value, body = f(self.value), f(self.body)
        return self if value is self.value and body is self.body else LetStmt(self.var, value, body)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AttrStmt(Stmt):
    """Represents an attribute ``attr_key = value`` of ``node`` that holds in ``body``."""

    node: Any
    attr_key: str
    value: Expr
    body: Stmt

    def children(self) -> Iterator[Node]:
        yield self.value
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> AttrStmt:
        value, body = f(self.value), f(self.body)
        return self if value is self.value and body is self.body else AttrStmt(self.node, self.attr_key, value, body)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AssertStmt(Stmt):
    """Stops the run with ``message`` when ``condition`` is false."""

    condition: Expr
    message: str
    body: Stmt

    def children(self) -> Iterator[Node]:
        yield self.condition
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> AssertStmt:
        condition, body = f(self.condition), f(self.body)
        if condition is self.condition and body is self.body:
            return self
        return AssertStmt(condition, self.message, body)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Allocate(Stmt):
    """Allocates ``buffer``, uninitialized, for ``body``. Before lowering, blocks have ``alloc_buffers`` instead."""

    buffer: Buffer
    body: Stmt
    annotations: Mapping[str, Any] = field(default_factory=dict)

    def children(self) -> Iterator[Node]:
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> Allocate:
        body = f(self.body)
        return self if body is self.body else Allocate(self.buffer, body, self.annotations)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """Evaluates an expression for its side effect; ``Evaluate(0)`` does nothing."""

    value: Expr

    def children(self) -> Iterator[Node]:
        yield self.value

    def map_children(self, f: Callable[[Any], Any]) -> Evaluate:
        value = f(self.value)
        return self if value is self.value else Evaluate(value)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Block(Stmt):
    """Represents a unit of computation.

    ``iter_vars`` are its axes with domains and kinds; ``reads`` and ``writes`` are the regions that it accesses for one
    value of the axes; ``alloc_buffers`` live inside it; ``match_buffers`` rename regions.
    """

    iter_vars: tuple[IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The block's name, ``name_hint`` in TVM."""
        return self.name_hint

    def with_(self, **changes: Any) -> Block:
        """Return this block with the named fields changed."""
        values = {name: getattr(self, name) for name in Block.__slots__}
        values.update(changes)
        return Block(**values)

    def children(self) -> Iterator[Node]:
        """Yield the domains, the regions (also of match_buffers), the init and the body."""
        for axis in self.iter_vars:
            yield axis.dom.min
            yield axis.dom.extent
        for region in (*self.reads, *self.writes, *[m.source for m in self.match_buffers]):
            for r in region.region:
                yield r.min
                yield r.extent
        if self.init is not None:
            yield self.init
        yield self.body

    def map_children(self, f: Callable[[Any], Any]) -> Block:
        def axis(iv: IterVar) -> IterVar:
            dom = iv.dom.map(f)
            return iv if dom is iv.dom else IterVar(dom, iv.var, iv.kind, iv.thread_tag)

        def match(m: MatchBufferRegion) -> MatchBufferRegion:
            source = m.source.map(f)
            return m if source is m.source else MatchBufferRegion(m.buffer, source)

        iter_vars = map_tuple(self.iter_vars, axis)
        reads = map_tuple(self.reads, lambda r: r.map(f))
        writes = map_tuple(self.writes, lambda r: r.map(f))
        matches = map_tuple(self.match_buffers, match)
        init = None if self.init is None else f(self.init)
        body = f(self.body)
        new = (iter_vars, reads, writes, matches, init, body)
        old = (self.iter_vars, self.reads, self.writes, self.match_buffers, self.init, self.body)
        if all(n is o for n, o in zip(new, old, strict=True)):
            return self
        return Block(
            iter_vars, reads, writes, self.name_hint, body, init, self.alloc_buffers, matches, self.annotations
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BlockRealize(Stmt):
    """Runs ``block`` with its axes bound to ``iter_values`` where ``predicate`` holds."""

    iter_values: tuple[Expr, ...]
    predicate: Expr
    block: Block

    def children(self) -> Iterator[Node]:
        yield from self.iter_values
        yield self.predicate
        yield self.block

    def map_children(self, f: Callable[[Any], Any]) -> BlockRealize:
        values, predicate, block = map_tuple(self.iter_values, f), f(self.predicate), f(self.block)
        if values is self.iter_values and predicate is self.predicate and block is self.block:
            return self
        return BlockRealize(values, predicate, block)


def seq(*stmts: Stmt | None) -> Stmt:
    """Return the statements one after the other: nested sequences are flattened, ``None`` and no-ops dropped."""
    flat: list[Stmt] = []
    for stmt in stmts:
        if isinstance(stmt, SeqStmt):
            flat.extend(stmt.seq)
        elif stmt is not None and not is_no_op(stmt):
            flat.append(stmt)
    if not flat:
        return Evaluate(IntImm(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


def is_no_op(stmt: Stmt) -> bool:
    """Return whether the statement is ``Evaluate`` of a constant."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)
