"""This module reads comparisons of index arithmetic as bounds of one side and as differences."""

from __future__ import annotations

from ..expr import GE, GT, LE, LT, Expr, IntImm, index_like


def as_bound(condition: Expr) -> tuple[Expr, Expr, bool] | None:
    """Return ``condition`` as a bound, or None when it is not one. A bound is (e, b, True) for ``e <= b`` or (e, b,
    False) for ``e >= b``."""
    if isinstance(condition, (LT, LE)) and isinstance(condition.a, IntImm):  # 1 <= e
        return condition.b, condition.a if isinstance(condition, LE) else condition.a + 1, False
    if isinstance(condition, LT):
        return condition.a, condition.b - 1, True
    if isinstance(condition, LE):
        return condition.a, condition.b, True
    if isinstance(condition, GT):
        return condition.a, condition.b + 1, False
    if isinstance(condition, GE):
        return condition.a, condition.b, False
    return None


def as_difference(condition: Expr) -> Expr | None:
    """Return an expression that is negative exactly where the comparison holds; None for other conditions.

    The comparison is one of index arithmetic. Such arithmetic neither wraps around nor reads memory that the check
    protects or that is written further inside.
    """
    if not isinstance(condition, (LT, LE, GT, GE)) or not (index_like(condition.a) and index_like(condition.b)):
        return None
    small, large = (condition.a, condition.b) if isinstance(condition, (LT, LE)) else (condition.b, condition.a)
    return small - large if isinstance(condition, (LT, GT)) else small - large - 1
