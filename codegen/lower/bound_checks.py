"""Bounds checks inside a loop as linear functions of its variable, which are negative where the check holds."""

from __future__ import annotations

from dataclasses import dataclass

from ...tir.arith import Analyzer, eval_interval, linear_coefficients
from ...tir.arith.affine import as_difference
from ...tir.expr import Expr, IntImm, Let, Var
from ...tir.stmt import For, LetStmt, Stmt
from ...tir.walk import all_nodes, vars_in

Domains = dict[Var, tuple[Expr, Expr] | None]
"""Loop variables with their constant ranges, None for those whose range is not constant."""


def inner_domains(body: Stmt) -> Domains:
    """Returns the variables of the loops inside ``body`` with their ranges."""
    out: Domains = {}
    for n in all_nodes(body):
        if type(n) is For:
            constant = isinstance(n.min, IntImm) and isinstance(n.extent, IntImm)
            out[n.loop_var] = (n.min, n.min + n.extent - 1) if constant else None
        elif type(n) is LetStmt or type(n) is Let:
            out[n.var] = None
    return out


@dataclass(frozen=True, slots=True)
class LinearGap:
    """A linear function of a variable that is negative exactly where a check holds. It is ``value = slope * var +
    base``."""

    value: Expr
    slope: int
    base: Expr


def linear_gap(term: Expr, var: Var, inner: Domains, analyzer: Analyzer, *, always: bool) -> LinearGap | None:
    """Returns where ``term`` holds in all iterations of the loops inside (with ``always``), or in at least one.

    None is returned for checks that are no linear function of ``var``.
    """
    gap = as_difference(term)
    used = vars_in(term)
    inside = used & inner.keys()
    if gap is None or var not in used or any(inner[v] is None for v in inside):
        return None
    span = eval_interval(gap, {v: inner[v] for v in inside})  # type: ignore[misc]
    if span is None:
        return None
    end = analyzer.simplify(span[int(always)])
    linear = None if vars_in(end) & inner.keys() else linear_coefficients(end, [var])
    if linear is None:
        return None
    (slope,), base = linear
    return LinearGap(end, slope.value, analyzer.simplify(base)) if isinstance(slope, IntImm) else None
