"""Finds functions whose innermost loops have no invariant accesses and conditions: a few of LLVM's passes are enough.

Most of the time of LLVM's pipeline goes into moving invariant loads and conditions out of loops, and memory into
registers. Code that was tiled, vectorized and promoted to register values has none of these, and the emitter writes
each address once. A few clean-up passes are enough for such code, and take a fifth of the time. What does not change in an
outer loop may stay there: to move it gains little, and takes registers that the inner loop needs.
"""

from __future__ import annotations

from ...tir.expr import BufferLoad, Expr, FloatImm, IntImm, Let, Var
from ...tir.expr.base.node import Node
from ...tir.stmt import BufferStore, For, IfThenElse, LetStmt, Stmt, While
from ...tir.walk import statements
from ..lowered import REGISTER_SCOPE

NO_LOOP_INVARIANTS = "; loops: settled"
"""The line at the head of an emitted module without loop-invariant accesses."""


def has_no_loop_invariants(body: Stmt) -> bool:
    """Returns whether every memory access and every condition inside an innermost loop depends on its variable. The
    changes in a ``while`` loop are unknown, so that a body with one counts as having loop-invariant accesses."""
    stack: list[tuple[Node, _Iterations | None]] = [(body, None)]
    while stack:
        n, inside = stack.pop()
        if isinstance(n, For):
            within = (
                None if any([isinstance(s, For) for s in statements(n.body)]) else _Iterations(frozenset((n.loop_var,)))
            )
            stack += [(n.min, None), (n.extent, None), (n.body, within)]
            continue
        if isinstance(n, While):
            return False
        if inside is not None:
            if isinstance(n, Expr):
                if not inside.changes(n):
                    return False
                continue
            if isinstance(n, BufferStore) and n.buffer.scope != REGISTER_SCOPE and not inside.decides(n.indices):
                return False
            if isinstance(n, IfThenElse) and not inside.decides((n.condition,)):
                return False
            if isinstance(n, LetStmt) and inside.decides((n.value,)):
                stack += [(n.value, inside), (n.body, inside.with_var(n.var))]
                continue
        elif isinstance(n, Expr):
            continue
        stack += [(c, inside) for c in n.children() if type(c) not in _LEAVES]
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
        return any([self.uses(part) for part in parts])

    def uses(self, e: Node) -> bool:
        """Returns whether one of the variables is in ``e``."""
        if type(e) in _LEAVES:
            return e in self.moving
        known = self._uses.get(e)
        if known is None:
            known = self._uses[e] = any([self.uses(c) for c in e.children()])
        return known

    def changes(self, e: Node) -> bool:
        """Returns whether every load from memory in ``e`` depends on one of the variables."""
        if type(e) in _LEAVES:
            return True
        known = self._changes.get(e)
        if known is not None:
            return known
        inside = self.with_var(e.var) if isinstance(e, Let) and self.uses(e.value) else self
        known = all([inside.changes(c) for c in e.children()])
        if isinstance(e, BufferLoad) and e.buffer.scope != REGISTER_SCOPE:
            known = known and self.decides(e.indices)
        self._changes[e] = known
        return known


_LEAVES = frozenset((Var, IntImm, FloatImm))
