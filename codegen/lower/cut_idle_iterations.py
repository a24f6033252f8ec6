"""Shortens loops whose last iterations do nothing, because a check around all of their work no longer holds."""

from __future__ import annotations

from ...tir.arith import Analyzer, conjuncts, eval_interval, linear_coefficients, loop_values
from ...tir.equal import structural_equal
from ...tir.expr import Expr, IntImm, Var, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import AttrStmt, For, IfThenElse, LetStmt, SeqStmt, Stmt, seq
from ...tir.walk import vars_in
from .bound_checks import as_difference, inner_domains


def cut_idle_iterations(func: PrimFunc) -> PrimFunc:
    """Leave out the last iterations of loops in which no check around the work can hold.

    Before, where a loop of 16 was split by ``[1000, 4]``::

        for i0, i1 in T.grid(1000, 4):
            if i0 * 4 + i1 < 16: f(i0 * 4 + i1)

    After::

        for i0, i1 in T.grid(4, 4):
            if i0 * 4 + i1 < 16: f(i0 * 4 + i1)

    Where the factors of a split exceed the extent by less than one outer iteration, nothing is cut, because some checks
    hold in the last iteration.
    """
    analyzer = Analyzer()

    def visit(node: Node) -> Node:
        if isinstance(node, Expr):
            return node
        if isinstance(node, For):
            node = _shortened(node, analyzer)
            if not isinstance(node, For):
                return node
            if isinstance(node.min, IntImm) or isinstance(node.extent, IntImm):
                analyzer.bind(node.loop_var, loop_values(node))
        return node.map_children(visit)

    return func.with_body(visit(func.body))  # type: ignore[arg-type]


def _shortened(loop: For, analyzer: Analyzer) -> Stmt:
    """Returns ``loop`` up to the iteration from which it does nothing, or an empty result when no iteration does
    anything."""
    if loop.kind not in ("serial", "parallel") or not (isinstance(loop.min, IntImm) and loop.min.value == 0):
        return loop
    if not isinstance(loop.extent, IntImm):
        return loop
    inner = inner_domains(loop.body)
    ends = [_end(term, loop.loop_var, inner, analyzer) for term in _checks_around_body(loop.body)]
    end = min([e for e in ends if e is not None], default=loop.extent.value)
    if end >= loop.extent.value:
        return loop
    return loop.with_(extent=const(end, loop.loop_var.dtype)) if end > 0 else seq()


def _checks_around_body(body: Stmt) -> list[Expr]:
    """Returns the checks that must hold for ``body`` to do anything."""
    if isinstance(body, (For, LetStmt, AttrStmt)):
        return _checks_around_body(body.body)
    if isinstance(body, IfThenElse):
        return [] if body.else_case is not None else [*conjuncts(body.condition), *_checks_around_body(body.then_case)]
    if isinstance(body, SeqStmt):
        first, *others = [_checks_around_body(part) for part in body.seq]
        return [t for t in first if all(any(structural_equal(t, other) for other in o) for o in others)]
    return []


def _end(term: Expr, var: Var, inner: dict[Var, tuple[Expr, Expr] | None], analyzer: Analyzer) -> int | None:
    """Returns the value of ``var`` from which on ``term`` holds for no values of the loops inside."""
    gap = as_difference(term)
    used = vars_in(term)
    if gap is None or var not in used or any(inner[v] is None for v in used & set(inner)):
        return None
    span = eval_interval(gap, {v: inner[v] for v in used & set(inner)})  # type: ignore[misc]
    linear = None if span is None else linear_coefficients(analyzer.simplify(span[0]), [var])
    if linear is None:
        return None
    (slope,), base = linear
    least = analyzer.const_int_bound(base)[0]
    if not isinstance(slope, IntImm) or slope.value <= 0 or least is None:
        return None
    return max(-(least // slope.value), 0)  # slope * var + least >= 0
