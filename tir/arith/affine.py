"""This module finds linear forms of expressions, and intervals with symbolic ends.

It also reads comparisons of index arithmetic as bounds of one side and as differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..expr import (
    GE,
    GT,
    INDEX,
    INDEX_TYPES,
    LE,
    LT,
    Add,
    DType,
    Expr,
    ExprLike,
    IntImm,
    Range,
    Sub,
    Var,
    convert,
    index_like,
)
from .analyzer import Analyzer
from .normal_form.canonical import floordiv, join_splits, minimum
from .normal_form.forms import ONE, Poly, add, constant, mul, scale


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


_HALF = 1 << 31

Ends = tuple[Expr, Expr]
"""The least and the greatest value, both included, where they may be symbolic."""


def linear_coefficients(
    expr: ExprLike, variables: Sequence[Var], analyzer: Analyzer | None = None
) -> tuple[list[Expr], Expr] | None:
    """Return ``([c0, c1, …], base)`` for a linear expression, else None. It means ``expr = c0*v0 + c1*v1 + … + base``.

    None of ``variables`` is in the coefficients and in the base.

    >>> from tilewright.tir.expr import Var
    >>> i, j = Var("i"), Var("j")
    >>> [c.value for c in linear_coefficients(i * 8 + j + 3, [i, j])[0]]
    [8, 1]
    """
    an = Analyzer() if analyzer is None else analyzer
    e = convert(expr)
    if e.dtype not in INDEX_TYPES:
        return None
    numbers = [an.var_atom(v) for v in variables]
    form = linear_form(an, an.poly(e), set(numbers))
    return (
        None
        if form is None
        else ([an.to_expr(form[0].get(n, {}), e.dtype) for n in numbers], an.to_expr(form[1], e.dtype))
    )


def linear_form(an: Analyzer, p: Poly, numbers: set[int]) -> tuple[dict[int, Poly], Poly] | None:
    """Return the coefficients in ``p`` of the atoms with these numbers, and the terms without them. None stands for an
    atom that is not alone in its term."""
    coefficients: dict[int, Poly] = {}
    base: Poly = {}
    hidden = _Hidden(an, numbers)
    for m, c in p.items():
        found = [a for a in m if hidden.inside(a)]
        if not found:
            base[m] = c
        elif len(found) == 1 and found[0] in numbers:
            rest = list(m)
            rest.remove(found[0])
            coefficients.setdefault(found[0], {})[tuple(rest)] = c
        else:
            return None
    return coefficients, base


def constant_coefficients(e: Expr, variables: Sequence[Var]) -> list[int] | None:
    """Return the coefficients of :func:`linear_coefficients` as numbers; None where one is not constant.

    >>> from tilewright.tir.expr import Var
    >>> i, n = Var("i"), Var("n")
    >>> constant_coefficients(i * 8 + n, [i]), constant_coefficients(i * n, [i])
    ([8], None)
    """
    found = linear_coefficients(e, variables)
    numbers = [] if found is None else [c.value for c in found[0] if isinstance(c, IntImm)]
    return numbers if found is not None and len(numbers) == len(variables) else None


def shifted_sums(terms: Mapping[Var, int], shifts: Sequence[int], dtype: DType, analyzer: Analyzer) -> list[Expr]:
    """Return the sum of variables with coefficients plus each of several numbers, as simplifying gives it.

    The results share what does not depend on the number. Their type is int64 where a number does not fit ``dtype``.
    """
    p: Poly = {(analyzer.var_atom(v),): c for v, c in terms.items()}
    if dtype is INDEX and all([c > 0 for c in terms.values()]) and all([-_HALF < n < _HALF for n in shifts]):
        base = analyzer.to_expr(p, dtype)
        if not p:
            return [IntImm(n, dtype) for n in shifts]
        if base.dtype is dtype:  # a sum of positive terms ends with the number
            signs = [(Add if n > 0 else Sub, n) for n in shifts]
            return [kind(base, IntImm(abs(n), dtype)) if n else base for kind, n in signs]
    return [analyzer.to_expr({**p, ONE: n} if n else p, dtype) for n in shifts]


class _Hidden:
    """Finds which atoms contain one of the given variables."""

    def __init__(self, an: Analyzer, numbers: set[int]) -> None:
        self.an, self.numbers = an, numbers
        self._known: dict[int, bool] = {}

    def inside(self, a: int) -> bool:
        """Return whether one of the variables is inside atom ``a``."""
        known = self._known.get(a)
        if known is None:
            atom = self.an.atoms[a]
            if a in self.numbers:
                known = True
            elif atom.kind in ("split", "div", "mod", "min", "max", "cast"):
                known = any(self.of(p) for p in atom.args if isinstance(p, dict))
            elif atom.kind == "var":
                known = False
            else:
                variables = {self.an.atoms[n].expr for n in self.numbers}
                known = _mentions(atom.expr, variables)
            self._known[a] = known
        return known

    def of(self, p: Poly) -> bool:
        """Return whether one of the variables is in p."""
        return any(self.inside(a) for m in p for a in m)


def _mentions(e: Expr, variables: set[Expr]) -> bool:
    stack: list[object] = [e]
    while stack:
        top = stack.pop()
        if isinstance(top, Var) and top in variables:
            return True
        stack.extend(top.children())  # type: ignore[attr-defined]
    return False


def eval_interval(
    expr: ExprLike,
    dom: Mapping[Var, tuple[ExprLike, ExprLike] | Range],
    analyzer: Analyzer | None = None,
) -> Ends | None:
    """Return bounds of ``expr`` while each variable of ``dom`` runs over its interval; None when no bounds are found.

    An interval is a pair of inclusive ends, or a Range; its ends may be symbolic. The bounds are exact for sums of
    variables with coefficients of known sign; otherwise they may be too wide.
    """
    an = Analyzer() if analyzer is None else analyzer
    e = convert(expr)
    if isinstance(e, IntImm):
        return e, e
    if e.dtype not in INDEX_TYPES:
        return None
    ends: dict[int, tuple[Poly, Poly]] = {}
    for v, d in dom.items():
        if isinstance(d, Range):
            lo = an.poly(d.min)
            hi = add(add(lo, an.poly(d.extent)), {ONE: -1})
        else:
            lo, hi = an.poly(convert(d[0], v.dtype)), an.poly(convert(d[1], v.dtype))
        ends[an.var_atom(v)] = (lo, hi)
    pair = _Intervals(an, ends, e.dtype).of(an.poly(e))
    return None if pair is None else (an.to_expr(pair[0], e.dtype), an.to_expr(pair[1], e.dtype))


class _Intervals:
    """Computes intervals of polynomials. ``ends`` gives both ends of some variables; the others are fixed."""

    def __init__(self, an: Analyzer, ends: Mapping[int, tuple[Poly, Poly]], dtype: DType) -> None:
        self.an, self.ends, self.dtype = an, ends, dtype
        self.hidden = _Hidden(an, set(ends))

    def of(self, p: Poly) -> tuple[Poly, Poly] | None:
        """Return both ends of p; None when unknown."""
        lo: Poly = {}
        hi: Poly = {}
        groups: dict[int, Poly] = {}
        for m, c in p.items():
            moving = [a for a in m if self.hidden.inside(a)]
            if not moving:
                term: Poly = {m: c}
                lo, hi = add(lo, term), add(hi, term)
            elif len(moving) == 1:
                rest = list(m)
                rest.remove(moving[0])
                groups.setdefault(moving[0], {})[tuple(rest)] = c
            else:
                ends = self._product(m, c)
                if ends is None:
                    return None
                lo, hi = add(lo, ends[0]), add(hi, ends[1])
        for a, factor in groups.items():
            pair = self._atom(a)
            if pair is None:
                return None
            if self.an.nonneg(factor):
                lo, hi = add(lo, mul(factor, pair[0])), add(hi, mul(factor, pair[1]))
            elif self.an.at_most_zero(factor):
                lo, hi = add(lo, mul(factor, pair[1])), add(hi, mul(factor, pair[0]))
            else:
                return None
        return join_splits(self.an, lo), join_splits(self.an, hi)

    def _product(self, m: tuple[int, ...], c: int) -> tuple[Poly, Poly] | None:
        lo: Poly = {ONE: 1}
        hi: Poly = {ONE: 1}
        for a in m:  # where no factor is negative, the ends are multiplied
            itself: Poly = {(a,): 1}
            pair = self._atom(a) if self.hidden.inside(a) else (itself, itself)
            if pair is None or not self.an.nonneg(pair[0]):
                return None
            lo, hi = mul(lo, pair[0]), mul(hi, pair[1])
        return (scale(lo, c), scale(hi, c)) if c > 0 else (scale(hi, c), scale(lo, c))

    def _atom(self, a: int) -> tuple[Poly, Poly] | None:
        if a in self.ends:
            return self.ends[a]
        an, atom, dtype = self.an, self.an.atoms[a], self.dtype
        if atom.kind == "split":
            p, lower, upper = atom.args
            pair = self.of(p)
            if upper is not None:
                whole = {ONE: upper}
                if pair is not None:
                    first, last = floordiv(an, pair[0], whole, dtype), floordiv(an, pair[1], whole, dtype)
                    if first == last:
                        shift = scale(first, -upper)
                        pair = add(pair[0], shift), add(pair[1], shift)
                    else:
                        pair = None
                if pair is None:
                    pair = {}, {ONE: upper - 1}
            if pair is None:
                return None
            return floordiv(an, pair[0], {ONE: lower}, dtype), floordiv(an, pair[1], {ONE: lower}, dtype)
        if atom.kind in ("div", "mod"):
            p, q = atom.args
            if self.hidden.of(q) or not an.nonneg(add(q, {ONE: -1})):
                return None
            pair = self.of(p)
            if atom.kind == "div":
                return None if pair is None else (floordiv(an, pair[0], q, dtype), floordiv(an, pair[1], q, dtype))
            if pair is not None:
                first, last = floordiv(an, pair[0], q, dtype), floordiv(an, pair[1], q, dtype)
                if first == last:
                    return add(pair[0], mul(first, q), -1), add(pair[1], mul(first, q), -1)
            return {}, add(q, {ONE: -1})
        if atom.kind in ("min", "max"):
            first_pair, second_pair = self.of(atom.args[0]), self.of(atom.args[1])
            if first_pair is None or second_pair is None:
                return None
            return (
                minimum(an, first_pair[0], second_pair[0], dtype, atom.kind),
                minimum(an, first_pair[1], second_pair[1], dtype, atom.kind),
            )
        if atom.kind == "choice":
            first_pair, second_pair = self.of(atom.args[0]), self.of(atom.args[1])
            if first_pair is None or second_pair is None:
                return None
            return (
                minimum(an, first_pair[0], second_pair[0], dtype, "min"),
                minimum(an, first_pair[1], second_pair[1], dtype, "max"),
            )
        lo, hi = an.atom_bound(a)
        if lo is not None and hi is not None and atom.kind in ("opaque", "truncdiv", "truncmod"):
            return constant(lo), constant(hi)
        return None
