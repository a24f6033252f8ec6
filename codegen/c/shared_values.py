"""Finds the values that C names once because several places use them. Written out at each place, the text would double
with every level of a program whose values share their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from ...tir.expr import And, BufferLoad, Call, Expr, Let, Or, Var
from ...tir.expr.intrinsics import Effect, effect_of
from ...tir.stmt import Buffer, Stmt, While

LARGEST_REPEATED = 12
"""How many nodes a value may have that is written out wherever it is used."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """A place in the text where values are evaluated whatever happens. It stands in front of a statement, or in an
    operand that a condition guards. ``shared`` are the values it names, ``names`` those that it has named, ``put``
    writes a line."""

    shared: Collection[Expr]
    put: Callable[[str], None]
    names: dict[Expr, str] = field(default_factory=dict)


def evaluated_once(s: Stmt) -> list[Expr]:
    """Returns the expressions that a statement evaluates once, in front of its body."""
    return [] if isinstance(s, While) else [part for part in s.children() if isinstance(part, Expr)]


def shared_values(roots: Sequence[Expr], registers: Collection[Buffer]) -> Collection[Expr]:
    """Returns the values below ``roots`` that several operations use and that are evaluated in any case.

    Parts are the same when they are one object. There are none where a call may write memory, since its place among the
    loads matters.
    """
    uses = _uses(roots)
    shared = [e for e, n in uses.items() if n > 1 and _is_large(e, registers)]
    if not shared or any([isinstance(e, Call) and effect_of(e) is Effect.WRITES for e in uses]):
        return ()
    always = set(roots)
    todo = list(always)
    while todo:
        new = [part for part in _always_evaluated(todo.pop()) if part not in always]
        always.update(new)
        todo += new
    return {e for e in shared if e in always and e.dtype.kind not in ("handle", "void")}


def _uses(roots: Sequence[Expr]) -> dict[Expr, int]:
    """Returns how often C mentions each part of ``roots`` when every part is written once."""
    uses = dict(Counter(roots))
    todo = list(uses)
    while todo:
        e = todo.pop()
        parts = e.children()
        for part in parts * 2 if isinstance(e, Call) and e.op == "tir.isnan" else parts:
            if part not in uses:
                uses[part] = 0
                todo.append(part)
            uses[part] += 1
    return uses


def _always_evaluated(e: Expr) -> Sequence[Expr]:
    """Returns the operands that are evaluated whenever ``e`` is; others a condition guards, or their variables have a
    scope."""
    if isinstance(e, (And, Or)) and e.dtype.lanes == 1:
        return (e.a,)
    if isinstance(e, Let):
        return (e.value,)
    if isinstance(e, Call) and e.op == "tir.if_then_else":
        return e.args[: 1 if e.args[0].dtype.lanes == 1 else 2]
    return e.children()


def _is_large(e: Expr, registers: Collection[Buffer]) -> bool:
    """Returns whether ``e`` has too many nodes to be written out more than once."""
    todo, count = [e], 0
    while todo and count <= LARGEST_REPEATED:
        part = todo.pop()
        count += 1
        if not isinstance(part, Var) and not (isinstance(part, BufferLoad) and part.buffer in registers):
            todo += part.children()
    return count > LARGEST_REPEATED
