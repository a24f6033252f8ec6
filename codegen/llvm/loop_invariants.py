"""Finds functions whose innermost loops have no invariant accesses and conditions: a few of LLVM's passes are enough.

Most of the time of LLVM's pipeline goes into moving invariant loads and conditions out of loops, and memory into
registers. Code that was tiled, vectorized and promoted to register values has none of these, and the emitter writes
each address once. A few clean-up passes are enough for such code, and take a fifth of the time. What does not change in an
outer loop may stay there: to move it gains little, and takes registers that the inner loop needs.
"""

from __future__ import annotations

from ...tir.expr import BufferLoad, Expr, Let, Var
from ...tir.expr.base.node import Node
from ...tir.stmt import BufferStore, For, IfThenElse, LetStmt, Stmt, While, statements_in
from ...tir.walk import LEAVES
from ..lowered import REGISTER_SCOPE


def has_no_loop_invariants(body: Stmt) -> bool:
    """Returns whether every memory access and every condition inside an innermost loop depends on its variable. The
    changes in a ``while`` loop are unknown, so that a body with one counts as having loop-invariant accesses."""
    loops = _innermost_loops(body)
    return loops is not None and all([_depends(n.body, _Iterations(frozenset((n.loop_var,)))) for n in loops])


def _innermost_loops(body: Stmt) -> list[For] | None:
    """Returns the loops without another one inside them; None when there is a ``while`` loop."""
    found: dict[For, None] = {}
    stack: list[tuple[Stmt, For | None]] = [(body, None)]
    while stack:
        s, around = stack.pop()
        if isinstance(s, While):
            return None
        if isinstance(s, For):
            if around is not None:
                found.pop(around, None)
            found[s], around = None, s
        stack += [(child, around) for child in statements_in(s) if type(child) is not BufferStore]
    return list(found)


def _depends(s: Stmt, inside: _Iterations) -> bool:
    """Returns whether the accesses and conditions of ``s``, which holds no loop, differ between iterations."""
    if isinstance(s, BufferStore):
        if s.buffer.scope != REGISTER_SCOPE and not inside.decides(s.indices):
            return False
    elif isinstance(s, IfThenElse):
        if not inside.decides((s.condition,)):
            return False
    elif isinstance(s, LetStmt) and inside.decides((s.value,)):
        return inside.changes(s.value) and _depends(s.body, inside.with_var(s.var))
    for c in s.children():
        if type(c) in LEAVES:
            continue
        if not (inside.changes(c) if isinstance(c, Expr) else _depends(c, inside)):
            return False
    return True


class _Iterations:
    """Tells which expressions differ between the iterations of a loop: those with one of the variables ``moving``."""

    def __init__(self, moving: frozenset[Var]) -> None:
        self.moving = moving
        self._uses: dict[Node, bool] = {}
        self._changes: dict[Node, bool] = {}

    def with_var(self, var: Var) -> _Iterations:
        """Returns the same where ``var`` differs as well."""
        return _Iterations(self.moving | {var})

    def decides(self, parts: tuple[Expr, ...]) -> bool:
        """Returns whether one of the variables is in one of the expressions."""
        return any(map(self.uses, parts))

    def uses(self, e: Node) -> bool:
        """Returns whether one of the variables is in ``e``."""
        if type(e) in LEAVES:
            return e in self.moving
        if e not in self._uses:
            self._uses[e] = self.decides(e.children())
        return self._uses[e]

    def changes(self, e: Node) -> bool:
        """Returns whether every load from memory in ``e`` depends on one of the variables."""
        if type(e) in LEAVES:
            return True
        if e in self._changes:
            return self._changes[e]
        inside = self.with_var(e.var) if isinstance(e, Let) and self.uses(e.value) else self
        known = True
        for c in e.children():
            if type(c) not in LEAVES and not inside.changes(c):
                known = False
        if known and type(e) is BufferLoad and e.buffer.scope != REGISTER_SCOPE:
            known = self.decides(e.indices)
        self._changes[e] = known
        return known
