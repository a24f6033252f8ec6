"""This module defines statements: loops, blocks, stores, sequences, branches.

A :class:`Block` is a unit of computation with its own axes; a :class:`BlockRealize` says, inside loops, which values
the axes take and when (``predicate``). ``init`` runs when all reduction axes are at the start of their domain. A
reduction without iterations gives its init as well, unless one loop binds reduction and spatial axes
(:mod:`tilewright.tir.analysis.reductions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from ..expr import Expr, IntImm, IterVar, Var
from ..expr.base.node import Node, binds, counts, declares, holds, node, nodes, uses
from .buffer import Buffer, BufferRegion, MatchBufferRegion

FOR_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread_binding")


class Stmt(Node):
    """The base class of all statements."""

    __slots__ = ()
    __hash__ = object.__hash__


@node
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

    parts = counts("min", "extent") + binds("loop_var") + nodes("body")

    def __post_init__(self) -> None:
        if self.kind not in FOR_KINDS:
            raise ValueError(f"loop kind {self.kind!r}; there are {FOR_KINDS}")


@node
class BufferStore(Stmt):
    """Stores ``buffer[indices] = value``; with ``predicate``, a bool vector, only the marked lanes are written."""

    buffer: Buffer
    value: Expr
    indices: tuple[Expr, ...]
    predicate: Expr | None = None

    parts = uses("buffer") + counts("indices") + nodes("value", "predicate")


@node
class SeqStmt(Stmt):
    """Runs statements one after the other; :func:`seq` makes sequences without nesting."""

    seq: tuple[Stmt, ...]

    parts = nodes("seq")

    def rebuilt(self, stmts: tuple[Stmt, ...]) -> Stmt:
        """Return the sequence of other statements, flattened."""
        return seq(*stmts)


@node
class IfThenElse(Stmt):
    """Runs ``then_case`` when ``condition`` holds, else ``else_case`` (if any)."""

    condition: Expr
    then_case: Stmt
    else_case: Stmt | None = None

    parts = nodes("condition", "then_case", "else_case")


@node
class While(Stmt):
    """Runs ``body`` repeatedly, as long as ``condition`` holds.

    The condition is evaluated anew before each iteration, the first one included, so that ``body`` may not run at all.
    What the body writes to memory, the condition and the next iteration see. Nothing says that the loop ends.
    """

    condition: Expr
    body: Stmt

    parts = nodes("condition", "body")


@node
class LetStmt(Stmt):
    """Runs ``body``, in which ``var`` has the value ``value``; that is evaluated once."""

    var: Var
    value: Expr
    body: Stmt

    parts = nodes("value") + binds("var") + nodes("body")


@node
class AttrStmt(Stmt):
    """Represents an attribute ``attr_key = value`` of ``node`` that holds in ``body``."""

    node: Any
    attr_key: str
    value: Expr
    body: Stmt

    parts = nodes("value", "body")


@node
class AssertStmt(Stmt):
    """Stops the run with ``message`` when ``condition`` is false. Messages may hold names, so they are not compared."""

    condition: Expr
    message: str
    body: Stmt

    parts = nodes("condition", "body")
    names = ("message",)


@node
class Allocate(Stmt):
    """Allocates ``buffer``, uninitialized, for ``body``. Before lowering, blocks have ``alloc_buffers`` instead."""

    buffer: Buffer
    body: Stmt
    annotations: Mapping[str, Any] = field(default_factory=dict)

    parts = declares("buffer") + nodes("body")


@node
class Evaluate(Stmt):
    """Evaluates an expression for its side effect; ``Evaluate(0)`` does nothing."""

    value: Expr

    parts = nodes("value")


@node
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

    parts = (
        holds("iter_vars", "reads", "writes")
        + declares("alloc_buffers")
        + holds("match_buffers")
        + nodes("init", "body")
    )
    names = ("name_hint",)

    @property
    def name(self) -> str:
        """The block's name, ``name_hint`` in TVM."""
        return self.name_hint


@node
class BlockRealize(Stmt):
    """Runs ``block`` with its axes bound to ``iter_values`` where ``predicate`` holds."""

    iter_values: tuple[Expr, ...]
    predicate: Expr
    block: Block

    parts = counts("iter_values") + nodes("predicate", "block")


def children_of(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements of a sequence, or the single statement."""
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def below_assertions(stmt: Stmt) -> Stmt:
    """Return the statement inside the assertions that stand around all of ``stmt``; itself where there are none."""
    while isinstance(stmt, AssertStmt):
        stmt = stmt.body
    return stmt


def seq(*stmts: Stmt | None) -> Stmt:
    """Return the statements one after the other: nested sequences are flattened, ``None`` and no-ops dropped."""
    flat: Any = stmts
    if not _DISSOLVED.isdisjoint(map(type, stmts)):
        flat = []
        for stmt in stmts:
            if type(stmt) is SeqStmt:
                flat += stmt.seq
            elif stmt is not None and (type(stmt) is not Evaluate or type(stmt.value) is not IntImm):
                flat.append(stmt)
    if not flat:
        return Evaluate(IntImm(0))
    return flat[0] if len(flat) == 1 else SeqStmt(tuple(flat))


_DISSOLVED = frozenset((SeqStmt, Evaluate, type(None)))


def statements_in(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements directly below ``stmt``, in order."""
    kind = type(stmt)
    if kind is For:
        return (stmt.body,)  # type: ignore[attr-defined]
    if kind is BlockRealize:
        return (stmt.block,)  # type: ignore[attr-defined]
    if kind is Block:
        return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)  # type: ignore[attr-defined]
    if kind is SeqStmt:
        return stmt.seq  # type: ignore[attr-defined]
    if kind is BufferStore or kind is Evaluate:
        return ()
    return tuple([child for child in stmt.children() if isinstance(child, Stmt)])


def is_no_op(stmt: Stmt) -> bool:
    """Return whether the statement is ``Evaluate`` of a constant."""
    return isinstance(stmt, Evaluate) and isinstance(stmt.value, IntImm)
