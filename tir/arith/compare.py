"""This module decides comparisons of index expressions, or removes their common terms and factors."""

from __future__ import annotations

from math import gcd

from ..expr import EQ, GE, GT, LE, LT, NE, CmpOp, Expr, IntImm, match_types, same
from .normal_form.canonical import Canonical
from .normal_form.floor_division import join_splits
from .normal_form.polynomial import ONE, Poly, add, const_of, constant, scale


def compare(an: Canonical, e: CmpOp) -> Expr:
    """Return a comparison of int32 or int64 scalars decided, or without common terms and factors."""
    t = type(e)
    p, q = an.poly(e.a), an.poly(e.b)
    dtype = e.a.dtype
    if not (an.exact(p, dtype) and an.exact(q, dtype)):
        return IntImm(int(t in (EQ, LE, GE)), "bool") if p == q else _of_simplified_sides(an, e)
    if t is GT or t is GE:  # a > b is b < a; the sides are exchanged again at the end
        decided = _decide(an, LT if t is GT else LE, q, p)
    else:
        decided = _decide(an, t, p, q)
    if decided is not None:
        return IntImm(int(decided), "bool")
    left, right = _balance(t, p, q)
    dividend = _without_quotient(an, t, left, right)
    if dividend is not None:
        return compare(an, t(*match_types(*[an.to_expr(side, dtype) for side in dividend])))
    signs = {c < 0 for side in (left, right) for m, c in side.items() if m}
    if signs == {True} and (const_of(left) is None) is not (const_of(right) is None):  # -x < k is -k < x
        left, right = scale(right, -1), scale(left, -1)
        if t is GT or t is GE:
            t, left, right = (LT if t is GT else LE), right, left
    if not (an.exact(left, dtype) and an.exact(right, dtype)):  # a constant moved to data may make it wrap around
        return _of_simplified_sides(an, e)
    a, b = match_types(an.to_expr(left, dtype), an.to_expr(right, dtype))
    return e if t is type(e) and same(a, e.a) and same(b, e.b) else t(a, b)


def _of_simplified_sides(an: Canonical, e: CmpOp) -> Expr:
    a, b = an.simp(e.a), an.simp(e.b)
    return e if a is e.a and b is e.b else type(e)(a, b)


def holds(an: Canonical, e: CmpOp) -> bool:
    """Return whether :func:`compare` finds a comparison of int32 or int64 scalars to be true."""
    t = type(e)
    p, q = an.poly(e.a), an.poly(e.b)
    dtype = e.a.dtype
    if not (an.exact(p, dtype) and an.exact(q, dtype)):
        return p == q and t in (EQ, LE, GE)
    if t is EQ or t is NE:
        return _decide(an, t, p, q) is True
    if t is GT or t is GE:
        p, q = q, p
    diff = join_splits(an, add(p, q, -1))
    return an.at_most_zero(add(diff, {ONE: 1}) if t is LT or t is GT else diff)


def _decide(an: Canonical, t: type, p: Poly, q: Poly) -> bool | None:
    diff = join_splits(an, add(p, q, -1))
    lo, hi = an.bound(diff)
    if t is EQ or t is NE:
        if lo is not None and lo == hi:
            return (lo == 0) is (t is EQ)
        if lo is not None and lo > 0 or hi is not None and hi < 0 or _no_root(diff):
            return t is NE
        if an.at_most_zero(add(diff, {ONE: 1})) or an.at_most_zero(add(scale(diff, -1), {ONE: 1})):
            return t is NE
        if an.at_most_zero(diff) and an.at_most_zero(scale(diff, -1)):
            return t is EQ
        return None
    strict = {ONE: 1} if t is LT else {}
    if an.at_most_zero(add(diff, strict)):
        return True
    refuted = {ONE: 1} if t is LE else {}  # not (p < q) is q - p <= 0
    return False if an.at_most_zero(add(scale(diff, -1), refuted)) else None


def _without_quotient(an: Canonical, t: type, p: Poly, q: Poly) -> tuple[Poly, Poly] | None:
    """Return both sides of x < c*k for x // c < k, and likewise for other comparisons. None stands for another form of
    ``p t q``."""
    if t in (EQ, NE):
        return None
    up = t in (LT, GE)  # whether multiples of c belong to the upper side
    for side, other in ((p, q), (q, p)):
        k = const_of(other)
        if k is not None and len(side) == 1:
            (m, factor) = next(iter(side.items()))
            atom = an.atoms[m[0]] if len(m) == 1 and factor == 1 else None
            if atom is not None and atom.kind == "split" and atom.args[2] is None:
                x, c, _ = atom.args
                limit = k * c if up is (side is p) else k * c + c - 1
                end = constant(limit)
                return (x, end) if side is p else (end, x)
    return None


def _balance(t: type, p: Poly, q: Poly) -> tuple[Poly, Poly]:
    """Return the sides of ``p t q`` without common terms and factors, with the constant on one side."""
    common = [m for m in p if m in q]
    kp, kq = p.get(ONE, 0), q.get(ONE, 0)
    if common and any(m for m in common):
        diff = add(p, q, -1)
        left = {m: c for m, c in diff.items() if m and c > 0}
        right = {m: -c for m, c in diff.items() if m and c < 0}
        offset = diff.get(ONE, 0)
    elif kp and len(p) > 1:
        left, right = {m: c for m, c in p.items() if m}, {m: c for m, c in q.items() if m}
        offset = kp - kq
        common = [ONE]
    elif kp and kq:
        return p, q
    else:
        left, right = {m: c for m, c in p.items() if m}, {m: c for m, c in q.items() if m}
        offset = kp - kq
        if not left:  # c < x keeps its sides
            g = _gcd(right)
            return (constant(offset), right) if g == 1 else (p, q)
    g = _gcd({**left, **{(*m, -1): c for m, c in right.items()}})
    if g > 1:
        if t in (EQ, NE):
            if offset % g:
                g = 1
            scaled = offset // g
        elif t is LT:  # g*x + k < 0 is x + floor(k / g) < 0
            scaled = offset // g
        elif t is LE:  # g*x + k <= 0 is x + ceil(k / g) <= 0
            scaled = -(-offset // g)
        elif t is GT:
            scaled = -(-offset // g)
        else:
            scaled = offset // g
        left = {m: c // g for m, c in left.items()}
        right = {m: c // g for m, c in right.items()}
        offset = scaled
    elif not common:
        return p, q
    if offset:
        if right and not left:
            left[ONE] = offset
        else:
            right[ONE] = -offset
    return left, right


def _gcd(p: Poly) -> int:
    return gcd(*[abs(c) for m, c in p.items() if m]) if p else 1


def _no_root(p: Poly) -> bool:
    """Return whether ``p == 0`` is impossible because the coefficients' common factor does not divide the constant."""
    g = _gcd(p)
    return g > 1 and p.get(ONE, 0) % g != 0
