"""Finds functions without loop-invariant accesses and conditions, for which a few of LLVM's passes are enough.

Most of the time of LLVM's pipeline goes into moving invariant loads and conditions out of loops, and memory into
registers. Code that was tiled, vectorized and promoted to register values has none of these, and the emitter writes
each address once. A few clean-up passes are enough for such code, and take a fifth of the time.
"""

from __future__ import annotations

from ...tir.expr import BufferLoad, Expr, Let, Var
from ...tir.expr.base.node import Node
from ...tir.stmt import BufferStore, For, IfThenElse, LetStmt, Stmt, While
from ...tir.walk import distinct
from ..lowered import REGISTER_SCOPE

NO_LOOP_INVARIANTS = "; loops: settled"
"""The line at the head of an emitted module without loop-invariant accesses."""


def has_no_loop_invariants(body: Stmt) -> bool:
    """Returns whether every memory access and every condition inside a loop depends on the variable of its innermost
    loop. The changes in a ``while`` loop are unknown, so that a body with one counts as having loop-invariant accesses."""
    stack: list[tuple[Node, frozenset[Var] | None]] = [(body, None)]
    seen: dict[frozenset[Var], set[int]] = {}
    while stack:
        n, moving = stack.pop()
        if isinstance(n, For):
            stack += [(n.min, moving), (n.extent, moving), (n.body, frozenset((n.loop_var,)))]
            continue
        if isinstance(n, While):
            return False
        if isinstance(n, Expr):
            if moving is not None and not _changes(n, moving, seen.setdefault(moving, set())):
                return False
            continue
        if moving is not None:
            if isinstance(n, BufferStore) and n.buffer.scope != REGISTER_SCOPE and not _uses(n.indices, moving):
                return False
            if isinstance(n, IfThenElse) and not _uses((n.condition,), moving):
                return False
            if isinstance(n, LetStmt) and _uses((n.value,), moving):
                stack += [(n.value, moving), (n.body, moving | {n.var})]
                continue
        stack += [(c, moving) for c in n.children()]
    return True


def _changes(e: Expr, moving: frozenset[Var], seen: set[int]) -> bool:
    """Returns whether every load from memory in ``e`` depends on one of the variables. ``seen``: the expressions of which
    that is known, by identity."""
    stack: list[Node] = [e]
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        if isinstance(n, Let) and _uses((n.value,), moving):
            moving, seen = moving | {n.var}, set()
        seen.add(id(n))
        if isinstance(n, BufferLoad) and n.buffer.scope != REGISTER_SCOPE and not _uses(n.indices, moving):
            return False
        stack.extend(n.children()[::-1])
    return True


def _uses(parts: tuple[Expr, ...], moving: frozenset[Var]) -> bool:
    return any(isinstance(n, Var) and n in moving for part in parts for n in distinct(part))
