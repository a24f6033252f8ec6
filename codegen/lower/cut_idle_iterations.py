"""Shortens loops whose last iterations do nothing, because a check around all of their work no longer holds."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import Expr, IntImm, Var, conjuncts, const, structural_equal
from ...tir.stmt import AttrStmt, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt, seq
from .bound_checks import Domains, inner_domains, linear_gap
from .scoped_transform import ScopedTransform


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
    return ScopedTransform({For: _shortened}).function(func)


def _shortened(loop: For, scope: ScopedTransform) -> Stmt | None:
    """Returns ``loop`` up to the iteration from which it does nothing, or an empty result when no iteration does
    anything."""
    if loop.kind not in ("serial", "parallel") or not (isinstance(loop.min, IntImm) and loop.min.value == 0):
        return None
    checks = _checks_around_body(loop.body) if isinstance(loop.extent, IntImm) else []
    if not checks:
        return None
    inner = inner_domains(loop.body)
    ends = [_end(term, loop.loop_var, inner, scope.analyzer) for term in checks]
    end = min([e for e in ends if e is not None], default=loop.extent.value)  # type: ignore[attr-defined]
    if end >= loop.extent.value:  # type: ignore[attr-defined]
        return None
    return scope.below(loop.with_(extent=const(end, loop.loop_var.dtype))) if end > 0 else seq()


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


def _end(term: Expr, var: Var, inner: Domains, analyzer: Analyzer) -> int | None:
    """Returns the value of ``var`` from which on ``term`` holds for no values of the loops inside."""
    gap = linear_gap(term, var, inner, analyzer, always=False)
    if gap is None or gap.slope <= 0:
        return None
    least = analyzer.const_int_bound(gap.base)[0]
    return None if least is None else max(-(least // gap.slope), 0)  # slope * var + least >= 0
