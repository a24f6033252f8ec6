"""This module converts expressions to normal forms and back, and computes quotients, remainders and extremes of these forms.

Rules, for a constant c > 0 (every one holds for negative values as well, because ``//`` and ``%`` floor):

- multiples:            (c*x + y) // c = x + y // c          (c*x + y) % c = y % c
- within one period:    y // c = k and y % c = y - c*k       when k*c <= y < (k + 1)*c
- common factor:        (g*x + y) // (g*c) = x // c          (g*x + y) % (g*c) = g*(x % c) + y      when 0 <= y < g
                        (where x has no common factor any more, as in TVM)
- nested:               (x // a) // b = x // (a*b)           (x // a) % b = (x % (a*b)) // a
                        (x % a) % b = x % b                  when b divides a
- joined parts:         c*(x // c) + x % c = x               (see :func:`join_splits`)
- constant difference:  (g*x + y) // (g*c) - g*x // (g*c) = 0  when 0 <= y < g
- a symbolic divisor q: (q*x + y) // q = x + y // q          y // q = 0 and y % q = y  when 0 <= y < q

A rule may divide another number than the one that is given only where this number, and the divisor, fit the type as well:
(x // 3 + 5) // 7 is (x + 15) // 21 unless x + 15 may be too large.

Scalars of type int32 and int64 become polynomials (:meth:`Canonical.poly`); everything else is simplified as a tree by
the analyzer's rules. :meth:`Canonical.simp` is the entry; results are kept per node until a new fact
is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import gcd
from typing import Any

from ...expr import (
    INDEX_TYPES,
    Add,
    BinaryOp,
    Call,
    Cast,
    DType,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Select,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    logical_not,
    make_binary,
    match_types,
    max_value,
    same,
    value_key,
)
from ...expr.traversal import reads_memory, substitute, uses_var
from .facts import Facts
from .forms import DIGITS, ONE, Interval, Mono, Poly, add, const_of, constant, interval_of, mul, poly_key, scale

LARGEST_DIVISOR = (1 << 63) - 1
"""The largest divisor that an expression can have."""


def floordiv(facts: Facts, p: Poly, q: Poly, dtype: DType) -> Poly:
    """Return p // q; ``q`` is not the constant zero."""
    c = const_of(q)
    if c is None:
        return _symbolic(facts, p, q, dtype)[0]
    if c < 0:  # x // -c = -x // c
        return floordiv(facts, scale(p, -1), {ONE: -c}, dtype)
    return _divide(facts, p, c, dtype)


def floormod(facts: Facts, p: Poly, q: Poly, dtype: DType) -> Poly:
    """Return p % q; ``q`` is not the constant zero."""
    c = const_of(q)
    if c is None:
        return _symbolic(facts, p, q, dtype)[1]
    if c < 0:  # x % -c = -(-x % c)
        return scale(floormod(facts, scale(p, -1), {ONE: -c}, dtype), -1)
    return _remainder(facts, p, c, dtype)


def _divide(facts: Facts, p: Poly, c: int, dtype: DType) -> Poly:
    if c == 1 or not p:
        return p
    out: Poly = {}
    rest: Poly = {}
    for m, k in p.items():
        whole = k // c if k % c == 0 or m == ONE else 0
        if whole:
            out[m] = whole
        if k - whole * c:
            rest[m] = k - whole * c
    if not rest:
        return out
    lo, hi = facts.bound(rest)
    if lo is not None and hi is not None and lo // c == hi // c:
        return add(out, constant(lo // c))
    if _within(facts, rest, c):
        return out
    if not _keeps(facts, p, rest, dtype):
        return facts.split_atom(p, c, None, dtype)
    part = _common_factor(facts, rest, c)
    if part is not None and _plain(part):
        g, multiple, _ = part
        return add(out, _divide(facts, multiple, c // g, dtype))
    single = _single(facts, rest)
    if single is not None and c * single[0][1] <= LARGEST_DIVISOR:  # (x // a + k) // b = (x + a*k) // (a*b)
        (inner, lower, upper), k = single
        moved = add(inner, constant(lower * k))
        if upper is None and _keeps(facts, rest, moved, dtype):
            return add(out, _divide(facts, moved, c * lower, dtype))
        if upper is not None and k == 0:
            return add(out, _split(facts, inner, lower * c, upper, dtype))
    return add(out, facts.split_atom(rest, c, None, dtype))


def _remainder(facts: Facts, p: Poly, c: int, dtype: DType) -> Poly:
    if c == 1:
        return {}
    whole = _flatten(facts, p, c)
    rest = _reduced(whole, c)
    if not _keeps(facts, p, whole, dtype):
        whole, rest = p, _reduced(p, c)
        flat = _reduced(_flatten(facts, rest, c), c)
        rest = flat if _keeps(facts, p, flat, dtype) else rest
    # (8*x + y) % 7 keeps its factors like its quotient, so that both refer to one number; 8*x % 7 is x % 7
    whole = {m: whole.get(m, k) if m else k for m, k in rest.items()}
    mixed = len(set(whole.values())) > 1
    if not rest:
        return {}
    lo, hi = facts.bound(rest)
    if lo is not None and hi is not None and lo // c == hi // c:
        return add(rest, constant(-c * (lo // c)))
    if _within(facts, rest, c):
        return rest
    if not _keeps(facts, p, rest, dtype):
        return facts.split_atom(p, 1, c, dtype)
    part = _common_factor(facts, rest, c)
    if part is not None and _plain(part) and not (mixed and rest != whole):
        g, multiple, small = part
        return add(scale(_remainder(facts, multiple, c // g, dtype), g), small)
    single = _single(facts, rest)
    if single is not None and single[1] == 0:
        (inner, lower, upper), _ = single
        fits = lower * c <= LARGEST_DIVISOR
        if fits and (upper is None or upper % (lower * c) == 0):  # (x // a) % b = (x % (a*b)) // a
            return _split(facts, inner, lower, lower * c, dtype)
    if mixed and rest.keys() == whole.keys() and _keeps(facts, p, whole, dtype):
        rest = whole
    return facts.split_atom(rest, 1, c, dtype)


def _keeps(facts: Facts, p: Poly, new: Poly, dtype: DType) -> bool:
    """Return whether ``new``, in place of p, is computed without overflow. Of an index, that it does where p does."""
    if facts.data(new):
        return facts.exact(new, dtype)
    return facts.bound(new).fits(dtype) or not facts.bound(p).fits(dtype)


def _split(facts: Facts, p: Poly, lower: int, upper: int | None, dtype: DType) -> Poly:
    """Return ``(p mod upper) // lower`` for ``p`` in normal form."""
    if upper is None:
        return _divide(facts, p, lower, dtype)
    if lower >= upper:
        return {}
    if lower == 1:
        return _remainder(facts, p, upper, dtype)
    p = _remainder(facts, p, upper, dtype)
    single = _single(facts, p)
    if single is not None and single[1] == 0 and single[0][1] == 1 and single[0][2] == upper:
        return facts.split_atom(single[0][0], lower, upper, dtype)
    return _divide(facts, p, lower, dtype)


def _within(facts: Facts, p: Poly, c: int) -> bool:
    """Return whether 0 <= p < c can be proved with symbolic ends or facts (constant bounds were tried before)."""
    if not facts.facts() and not any(facts.is_bound(a) for m in p for a in m):
        return False
    return facts.nonneg(p) and facts.at_most_zero(add(p, {ONE: 1 - c}))


def _reduced(p: Poly, c: int) -> Poly:
    """Return p with factors beyond c, and the constant, modulo c."""
    out = {m: k % c if m == ONE or not -c < k < c else k for m, k in p.items()}
    return {m: k for m, k in out.items() if k}


def _flatten(facts: Facts, p: Poly, c: int) -> Poly:
    """Return p with ``k * (x % u)`` replaced by ``k * x`` where that adds a multiple of c."""
    for m, k in p.items():
        if len(m) == 1:
            atom = facts.atoms[m[0]]
            if atom.kind == "split" and atom.args[1] == 1 and atom.args[2] is not None and k * atom.args[2] % c == 0:
                rest = {n: d for n, d in p.items() if n != m}
                return _flatten(facts, add(rest, atom.args[0], k), c)
    return p


def _common_factor(facts: Facts, p: Poly, c: int) -> tuple[int, Poly, Poly] | None:
    """Return (g, x, y) with p = g*x + y and 0 <= y < g. The factor g > 1 is the largest such divisor of c."""
    factors = sorted({gcd(k, c) for m, k in p.items() if m} - {1}, reverse=True)
    if not factors:
        return None
    for g in factors:
        multiple: Poly = {}
        small: Poly = {}
        for m, k in p.items():
            if m == ONE:
                if k // g:
                    multiple[m] = k // g
                if k % g:
                    small[m] = k % g
            elif k % g == 0:
                multiple[m] = k // g
            else:
                small[m] = k
        lo, hi = facts.bound(small)
        if lo is not None and hi is not None and lo >= 0 and hi < g:
            return g, multiple, small
    return None


def _single(facts: Facts, p: Poly) -> tuple[tuple[Poly, int, int | None], int] | None:
    """Return the arguments of the split atom s, and k, when p is s + k."""
    if len(p) > 2:
        return None
    terms = [(m, c) for m, c in p.items() if m]
    if len(terms) != 1 or terms[0][1] != 1 or len(terms[0][0]) != 1:
        return None
    atom = facts.atoms[terms[0][0][0]]
    return (atom.args, p.get(ONE, 0)) if atom.kind == "split" else None  # type: ignore[return-value]


def _symbolic(facts: Facts, p: Poly, q: Poly, dtype: DType) -> tuple[Poly, Poly]:
    """Return p // q and p % q by long division with the leading term of q."""
    lead = max((m for m in q), key=lambda m: (len(m), m))
    quotient: Poly = {}
    rest = p
    for _ in range(8):
        step = _step(rest, lead, q[lead])
        if step is None:
            break
        quotient, rest = add(quotient, step), add(rest, mul(step, q), -1)
    if not _keeps(facts, p, rest, dtype):
        quotient, rest = {}, p
    if not rest:
        return quotient, {}
    if facts.nonneg(rest) and facts.below(rest, q):
        return quotient, rest
    if facts.below(rest, {}) and facts.nonneg(add(rest, q)):  # one period below
        return add(quotient, {ONE: -1}), add(rest, q)
    return add(quotient, facts.pair_atom("div", rest, q, dtype)), facts.pair_atom("mod", rest, q, dtype)


def _step(p: Poly, lead: tuple[int, ...], coefficient: int) -> Poly | None:
    """Return a term of p divided by the leading term of a divisor; None when no term is divisible."""
    for m, k in p.items():
        if len(m) >= len(lead) and k % coefficient == 0:
            remaining = list(m)
            try:
                for a in lead:
                    remaining.remove(a)
            except ValueError:
                continue
            return {tuple(remaining): k // coefficient}
    return None


def minimum(facts: Facts, p: Poly, q: Poly, dtype: DType, kind: str = "min") -> Poly:
    """Return min(p, q), or max(p, q) when ``kind`` is "max"."""
    if kind == "max":
        small, large = q, p
    else:
        small, large = p, q
    diff = add(small, large, -1)
    if facts.at_most_zero(diff):
        return p
    if facts.at_most_zero(scale(diff, -1)):
        return q
    for first, second in ((p, q), (q, p)):  # min(min(a, b), c) where a or b is decided against c
        inner = _pair(facts, first, kind)
        if inner is not None:
            a, b = inner
            for one, other in ((a, b), (b, a)):
                low, high = (one, second) if kind == "min" else (second, one)
                if facts.at_most_zero(add(low, high, -1)):
                    return first
                if facts.at_most_zero(add(high, low, -1)):
                    return minimum(facts, other, second, dtype, kind)
    cp, cq = p.get(ONE, 0), q.get(ONE, 0)
    if cp == cq and cp and len(p) > 1 and len(q) > 1:  # min(a + c, b + c) = min(a, b) + c
        a, b = [add(x, {ONE: -cp}) for x in (p, q)]
        if _keeps(facts, p, a, dtype) and _keeps(facts, q, b, dtype):
            return add(minimum(facts, a, b, dtype, kind), {ONE: cp})
    g = gcd(*p.values(), *q.values())
    if g > 1:  # min(g*a, g*b) = g * min(a, b)
        a, b = [{m: k // g for m, k in x.items()} for x in (p, q)]
        return scale(minimum(facts, a, b, dtype, kind), g)
    return facts.pair_atom(kind, p, q, dtype)


def _pair(facts: Facts, p: Poly, kind: str) -> tuple[Poly, Poly] | None:
    if len(p) == 1:
        (m, c) = next(iter(p.items()))
        if c == 1 and len(m) == 1 and facts.atoms[m[0]].kind == kind:
            return facts.atoms[m[0]].args  # type: ignore[return-value]
    return None


def join_splits(facts: Facts, p: Poly) -> Poly:
    """Return p with adjacent digits of one number joined.

    ``k*(u/l)*s1 + k*s2`` with s1 = (x mod w) // u and s2 = (x mod u) // l becomes ``k * ((x mod w) // l)`` when l
    divides u and u divides w. The two may be digits of different numbers, where the lower one is a digit of both: in
    ``40 * ((64*(f % 25) + v) // 40) + (64*f + v) % 40`` the remainders are equal.
    The upper digit may be one of a sum with a quotient, see :func:`_with_digit_below`. ``q * (x // q) + x % q`` becomes ``x``, for symbolic q as well. The difference of two
    quotients or remainders becomes a number where it is constant.
    """
    if not facts.has_digits:
        return p
    splits = [(m, c) for m, c in p.items() if len(m) == 1 and facts.atoms[m[0]].kind in DIGITS]
    if not splits:
        return p
    for m, c in splits:
        atom = facts.atoms[m[0]]
        if atom.kind == "mod":
            x, q = atom.args
            quotient = facts.known_pair("div", x, q)
            if quotient is not None and all(p.get(n) == d * c for n, d in mul(quotient, q).items()):
                return join_splits(facts, add(add(p, mul(quotient, q), -c), add(x, {m: 1}, -1), c))
            continue
        for n, d in splits:
            apart = _constant_difference(facts, m, n) if n != m and d == -c else None
            if apart is not None:
                rest = {k: v for k, v in p.items() if k not in (m, n)}
                return join_splits(facts, add(rest, constant(apart), c))
        x, lower, upper = atom.args
        if upper is None or upper % lower:
            continue
        for n, d in splits:
            joined = _with_digit_below(facts, n, m) if n != m and d * lower == c * upper else None
            if joined is not None:
                rest = {k: v for k, v in p.items() if k not in (m, n)}
                return join_splits(facts, add(rest, joined, c))
        for n, d in splits:
            other = facts.atoms[n[0]]
            if n != m and other.kind == "split" and d * lower == c * upper:
                under, low, high = other.args
                y, at, top = _without_factor(facts, under, low, high, upper)
                if at != upper or (top is not None and top % upper):
                    continue
                if (
                    y is x
                    or y == x
                    or _congruent(facts, x, y, upper)
                    or _split(facts, y, lower, upper, atom.dtype) == {m: 1}
                ):
                    rest = {k: v for k, v in p.items() if k not in (m, n)}
                    joined = _split(facts, y, lower, top, atom.dtype)
                    return join_splits(facts, add(rest, joined, c))
    return p


def _without_factor(facts: Facts, y: Poly, lower: int, upper: int | None, wanted: int) -> tuple[Poly, int, int | None]:
    """Return the parts of a digit, with the divisor ``wanted`` where that leaves out a common factor.

    ``(1280*i + 40*j + k) // 1600`` is ``(32*i + j) // 40`` where k is in ``range(40)``.
    """
    if lower % wanted or lower == wanted:
        return y, lower, upper
    part, g = _common_factor(facts, y, lower), lower // wanted
    if part is None or part[0] != g or (upper is not None and upper % g):
        return y, lower, upper
    return part[1], wanted, upper if upper is None else upper // g


def _with_digit_below(facts: Facts, m: Mono, n: Mono) -> Poly | None:
    """Return ``(u*e + y) mod (u*w) // l`` for the digits m, ``(e + y // u) mod w``, and n, ``(y mod u) // l``, else None.

    The two are its quotient by u/l and the remainder: the quotient of ``(64*i + v) // 2`` is ``(32*i + v // 2) % 40``.
    """
    atom, below = facts.atoms[m[0]], facts.atoms[n[0]]
    y, lower, upper = below.args
    if atom.kind != "split" or atom.args[1] != 1 or atom.args[2] is None:
        return None
    x, _, w = atom.args
    for t, k in x.items():
        part = facts.atoms[t[0]] if len(t) == 1 and k == 1 else None
        if part is None or part.kind != "split" or part.args[1:] != (upper, None) or part.args[0] != y:
            continue
        whole = add(scale(add(x, {t: 1}, -1), upper), y)
        if facts.data(whole) or not facts.bound(whole).fits(atom.dtype) or upper * w > LARGEST_DIVISOR:
            continue
        joined = _split(facts, whole, lower, upper * w, atom.dtype)
        if len(joined) == 1:
            return joined
    return None


def _congruent(facts: Facts, x: Poly, y: Poly, c: int) -> bool:
    """Return whether x and y have one remainder by c. Both are computed already, so that neither overflows."""
    if facts.data(x) or facts.data(y):
        return False
    return not any(k % c for k in _flatten(facts, add(x, y, -1), c).values())


def _constant_difference(facts: Facts, m: Mono, n: Mono) -> int | None:
    """Return the difference of two quotients or remainders when it is constant, else None. That is x // c - y // c, or
    x % c - y % c, for two atoms m and n.

    x - y must be constant: (8*x + 7) // 16 - 8*x // 16 = 0, because 8*x % 16 is at most 8.
    """
    one, other = facts.atoms[m[0]], facts.atoms[n[0]]
    if one.kind != "split" or other.kind != "split" or one.args[1:] != other.args[1:]:
        return None
    (x, lower, upper), y = one.args, other.args[0]
    step = const_of(add(x, y, -1))
    if step is None or not (upper is None or lower == 1):
        return None
    c = lower if upper is None else upper
    g = gcd(c, *[k for t, k in y.items() if t])
    least = y.get(ONE, 0) % g  # y % c is this number plus a multiple of g
    whole = (least + step) // c
    if (c - g + least + step) // c != whole:
        return None
    return whole if upper is None else step - whole * c


def _plain(part: tuple[int, Poly, Poly]) -> bool:
    """Return whether taking out a common factor leaves a sum without factors. An example is ``(4*x + y) // 16 = x //
    4``.

    Others keep their form, so that in ``64*x // 56`` the number that is divided remains visible.
    """
    _, multiple, small = part
    return all(abs(k) == 1 for m, k in multiple.items() if m) and not (ONE in multiple and ONE in small)


class Canonical(Facts):
    """Converts index expressions to polynomials and back."""

    def __init__(self) -> None:
        super().__init__()
        self._poly_memo: dict[Expr, Poly] = {}
        self._simp_memo: dict[Any, Any] = {}

    def simp(self, e: Any) -> Any:
        """Return ``e`` simplified; the same object when nothing changes."""
        if type(e) in _CONSTANTS:
            return e
        if e in self._simp_memo:
            return self._simp_memo[e]
        if isinstance(e, Expr) and (dtype := e.dtype) in INDEX_TYPES:
            new = self.to_expr(self.poly(e), dtype)
            out = e if new is e or new.dtype != dtype or same(new, e) else new
        else:
            out = self.simp_tree(e)
        self._simp_memo[e] = out
        return out

    def simp_tree(self, e: Any) -> Any:
        """Return ``e`` simplified, for everything that is not index arithmetic."""
        raise NotImplementedError

    def poly(self, e: Expr) -> Poly:
        """Return the normal form of an int32 or int64 scalar."""
        if type(e) is IntImm:
            return {ONE: e.value} if e.value else {}
        if e in self._poly_memo:
            return self._poly_memo[e]
        p = _CONVERT[type(e)](self, e) if type(e) in _CONVERT else self._opaque(e)
        self._poly_memo[e] = p
        return p

    def poly_given(self, condition: Expr, e: Expr) -> Poly:
        """Return the normal form of ``e`` where ``condition`` holds."""
        return self.poly(e)

    def var_poly(self, e: Var) -> Poly:
        """Return the normal form of a variable; a constant when it has only one possible value."""
        a = self.var_atom(e)
        lo, hi = self.atom_bound(a)
        if lo is not None and lo == hi:
            return constant(lo)
        return {(a,): 1}

    def _add(self, e: Add) -> Poly:
        p, q = self.poly(e.a), self.poly(e.b)
        return join_splits(self, add(p, q)) if any(p) or any(q) else self._folded(e, p, q)

    def _sub(self, e: Sub) -> Poly:
        p, q = self.poly(e.a), self.poly(e.b)
        return join_splits(self, add(p, q, -1)) if any(p) or any(q) else self._folded(e, p, q)

    def _mul(self, e: Mul) -> Poly:
        p, q = self.poly(e.a), self.poly(e.b)
        return mul(p, q) if any(p) or any(q) else self._folded(e, p, q)

    def _folded(self, e: BinaryOp, p: Poly, q: Poly) -> Poly:
        """Return the result for two constants, which wraps around if they are data."""
        made = make_binary(type(e), *[IntImm(c.get(ONE, 0), e.dtype) for c in (p, q)])
        assert isinstance(made, IntImm)
        return constant(made.value)

    def _operands(self, e: BinaryOp) -> tuple[Poly, Poly] | None:
        """Return both normal forms when the machine's values are the mathematical ones, else None."""
        p, q = self.poly(e.a), self.poly(e.b)
        return (p, q) if self.exact(p, e.dtype) and self.exact(q, e.dtype) else None

    def _division(self, e: FloorDiv | FloorMod) -> Poly:
        pair = self._operands(e)
        if pair is None or not self._divides(*pair, e.dtype):
            return self._opaque(e)
        compute = floordiv if type(e) is FloorDiv else floormod
        return join_splits(self, compute(self, pair[0], pair[1], e.dtype))

    def _divides(self, p: Poly, q: Poly, dtype: str) -> bool:
        """Return whether the rules of division hold for p // q.

        They do when q is not zero (data may be zero, an index never is) and, for a negative constant q, when -p and -q
        fit the type as well.
        """
        c = const_of(q)
        if c is None:
            return not self.data(q) or (self.bound(q)[0] or 0) > 0
        return c > 0 or (c < 0 and -c <= max_value(dtype) and self.exact(scale(p, -1), dtype))

    def _trunc(self, e: TruncDiv | TruncMod) -> Poly:
        pair = self._operands(e)
        if pair is None or const_of(pair[1]) == 0:
            return self._opaque(e)
        p, q = pair
        lo = self.bound(q)[0]
        if lo is not None and lo > 0 and self.nonneg(p):  # both kinds of rounding give the same
            return (floordiv if type(e) is TruncDiv else floormod)(self, p, q, e.dtype)
        a, b = const_of(p), const_of(q)
        if a is not None and b is not None:
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            value = quotient if type(e) is TruncDiv else a - quotient * b
            return constant(value)
        return self._opaque(e, "truncdiv" if type(e) is TruncDiv else "truncmod", pair)

    def _extreme(self, e: Min | Max) -> Poly:
        pair = self._operands(e)
        if pair is None:
            return self._opaque(e)
        return minimum(self, pair[0], pair[1], e.dtype, "min" if type(e) is Min else "max")

    def _choice(self, e: Expr, condition: Expr, a: Expr, b: Expr, lazy: bool) -> Poly:
        condition = self.simp(condition)
        if isinstance(condition, IntImm):
            return self.poly(a if condition.value else b)
        if lazy:
            p, q = self.poly_given(condition, a), self.poly_given(logical_not(condition), b)
        else:
            p, q = self.poly(a), self.poly(b)
        if p == q:
            return p
        make: Callable[[], Expr]
        sa, sb = match_types(self.to_expr(p, e.dtype), self.to_expr(q, e.dtype))
        if lazy:
            make = lambda: Call("tir.if_then_else", (condition, sa, sb), sa.dtype)  # noqa: E731
        else:
            make = lambda: Select(condition, sa, sb)  # noqa: E731
        key = ("choice", lazy, self.key(condition), poly_key(p), poly_key(q), e.dtype)
        data = self.data(p) or self.data(q) or reads_memory(condition)
        return self.intern(key, "choice", (p, q), e.dtype, make, data, condition)

    def _select(self, e: Select) -> Poly:
        return self._choice(e, e.condition, e.true_value, e.false_value, False)

    def _call(self, e: Call) -> Poly:
        if e.op == "tir.if_then_else":
            return self._choice(e, e.args[0], e.args[1], e.args[2], True)
        if e.op == "tir.likely":
            return self.poly(e.args[0])
        return self._opaque(e)

    def _cast(self, e: Cast) -> Poly:
        if e.value.dtype not in INDEX_TYPES:
            return self._opaque(e)
        p = self.poly(e.value)
        k = const_of(p)
        if k is not None and Interval(k, k).fits(e.dtype):
            return constant(k)
        if self.fits(p, e):
            return p
        value = self.simp(e.value)
        dtype = e.dtype
        fits = dtype == "int64" or not self.data(p)
        key = ("cast", dtype, poly_key(p))
        return self.intern(key, "cast" if fits else "opaque", (p,) if fits else (), dtype, lambda: Cast(dtype, value),
                           self.data(p))  # fmt: skip

    def keeps_value(self, e: Cast) -> bool:
        """Return whether ``e`` converts an index from one width to the other and keeps its value."""
        return e.dtype in INDEX_TYPES and e.value.dtype in INDEX_TYPES and self.fits(self.poly(e.value), e)

    def fits(self, p: Poly, e: Cast) -> bool:
        """Return whether the conversion ``e`` from one width of indices to the other keeps the value p."""
        if not self.exact(p, e.value.dtype):
            return False
        return self.bound(p).fits(e.dtype) or (e.dtype == "int64" and not self.data(p))

    def _let(self, e: Let) -> Poly:
        value = self.simp(e.value)
        if isinstance(value, (IntImm, Var)) or not uses_var(e.body, e.var):
            return self.poly(substitute(e.body, {e.var: value}))
        return self._opaque(e)

    def _opaque(self, e: Expr, kind: str = "opaque", operands: tuple[Any, ...] = ()) -> Poly:
        """Return an atom for ``e``, with the operands simplified; of some kinds its bounds follow from ``operands``."""
        new = self.simp_tree(e)
        if new.dtype in INDEX_TYPES and type(new) is not type(e):
            return self.poly(new)
        bound = operands
        if isinstance(new, Cast) and new.value.dtype.is_int and new.dtype.lanes == 1:
            values = interval_of(new.value.dtype)
            if values.fits(new.dtype):
                bound = (values,)
        elif isinstance(new, (Min, Max)) and new.dtype in INDEX_TYPES:  # an operand that wraps around may be any number
            every = interval_of(new.dtype)
            parts = [self.poly(x) for x in (new.a, new.b)]
            ends = [self.bound(p) if self.exact(p, new.dtype) else every for p in parts]
            bound = ((Interval.minimum if isinstance(new, Min) else Interval.maximum)(*ends),)
        # The key is made of the keys of the operands, because the key of ``new`` itself would be computed here.
        key = value_key(new, self.key)
        # what is left of indices, and their quotients rounded to zero, never overflow either
        data = kind not in ("truncdiv", "truncmod") or any(self.data(p) for p in operands)
        return self.intern(key, kind, bound, e.dtype, lambda: new, data, new)

    def key(self, e: Any) -> Hashable:
        """Return a key that is equal for equal expressions. ``e`` must be simplified.

        Variables are compared by identity; calls with side effects and unknown nodes are equal only to themselves.
        """
        if type(e) in _POLY_TYPES and e.dtype in INDEX_TYPES:
            return (e.dtype, poly_key(self.poly(e)))
        return value_key(e, self.key)


_CONVERT: dict[type, Callable[[Any, Any], Poly]] = {
    Var: Canonical.var_poly,
    Add: Canonical._add,
    Sub: Canonical._sub,
    Mul: Canonical._mul,
    FloorDiv: Canonical._division,
    FloorMod: Canonical._division,
    TruncDiv: Canonical._trunc,
    TruncMod: Canonical._trunc,
    Min: Canonical._extreme,
    Max: Canonical._extreme,
    Select: Canonical._select,
    Call: Canonical._call,
    Cast: Canonical._cast,
    Let: Canonical._let,
}
_CONSTANTS = frozenset((IntImm, FloatImm, StringImm))
_POLY_TYPES = frozenset((Var, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))
