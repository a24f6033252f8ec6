"""Bounds checks written as differences that are negative where the check holds, and the ranges of the loops around
them."""

from __future__ import annotations

from ...tir.expr import GE, GT, LE, LT, Expr, IntImm, Let, Var
from ...tir.index_types import index_like
from ...tir.stmt import For, LetStmt, Stmt
from ...tir.walk import pre_order


def as_difference(term: Expr) -> Expr | None:
    """Returns an expression that is negative exactly where the comparison holds, or None.

    None is returned unless the comparison is one of index arithmetic. Such arithmetic neither wraps around nor reads
    memory that the check protects or that is written further inside.
    """
    if not isinstance(term, (LT, LE, GT, GE)) or not (index_like(term.a) and index_like(term.b)):
        return None
    if isinstance(term, LT):
        return term.a - term.b
    if isinstance(term, LE):
        return term.a - term.b - 1
    if isinstance(term, GT):
        return term.b - term.a
    return term.b - term.a - 1


def inner_domains(body: Stmt) -> dict[Var, tuple[Expr, Expr] | None]:
    """Returns the loop variables inside ``body`` with their constant ranges, and None for those whose range is not
    constant."""
    out: dict[Var, tuple[Expr, Expr] | None] = {}
    for n in pre_order(body):
        if isinstance(n, For):
            constant = isinstance(n.min, IntImm) and isinstance(n.extent, IntImm)
            out[n.loop_var] = (n.min, n.min + n.extent - 1) if constant else None
        elif isinstance(n, (Let, LetStmt)):
            out[n.var] = None
    return out
