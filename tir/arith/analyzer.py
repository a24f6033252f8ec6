"""This module defines the analyzer, which simplifies, compares and proves from what is known about variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from math import gcd
from typing import Any

from ..expr import (
    EQ,
    GE,
    GT,
    INDEX_TYPES,
    LE,
    LT,
    NE,
    And,
    BufferLoad,
    Call,
    CmpOp,
    Expr,
    ExprLike,
    IntImm,
    Let,
    Not,
    Or,
    Range,
    Var,
    const,
    convert,
    logical_not,
    match_types,
    same,
)
from ..expr.deep_recursion import with_room
from ..expr.node import IRNode
from ..expr.traversal import pre_order, reads_memory, substitute
from .normal_form.canonical import Canonical, join_splits
from .normal_form.forms import EVERYTHING, ONE, Interval, Mono, Poly, add, const_of, constant, scale
from .rewrite_rules import RULES
from .smt import solver_proves

_MAX_PARTS = 6
_NATURAL = Interval(0, None)


def _without(m: Mono, a: int) -> Mono:
    """Return the product of the factors of ``m`` but one ``a``."""
    at = m.index(a)
    return (*m[:at], *m[at + 1 :])


class Analyzer(Canonical):
    """Proves and simplifies under known ranges of variables and conditions.

    >>> from tilewright.tir.expr import Var
    >>> i, j, an = Var("i"), Var("j"), Analyzer()
    >>> an.bind(i, (0, 3)), an.bind(j, (0, 7))
    (None, None)
    >>> an.can_prove_equal((i * 8 + j) // 8, i), an.can_prove(i * 8 + j < 32)
    (True, True)

    A variable that is not bound may have any value; bind sizes with ``bind(n, (0, None))``. Inside a loop over a size it
    is at least 1, which :meth:`nonempty` and :meth:`learn_nonempty` tell. Index arithmetic never overflows.
    """

    def __init__(self) -> None:
        super().__init__()
        self._version = 0

    # -- knowledge ---------------------------------------------------------------------------------------------------

    def bind(self, var: Var, value: Range | ExprLike | tuple[Any, Any]) -> None:
        """Set the values of ``var``.

        ``value`` is a ``Range`` (``[min, min + extent)``, which is assumed not to be empty), an expression equal to the
        variable, or a pair of inclusive ends, each of them ``None`` when unknown.
        """
        if var.dtype not in INDEX_TYPES:
            return
        data, bound = False, None
        if isinstance(value, tuple):
            lo, hi = [
                x if x is None else constant(x) if type(x) is int else self.poly(convert(x, var.dtype)) for x in value
            ]
        elif type(value) is Range and type(value.min) is IntImm and type(value.extent) is IntImm:
            least, most = value.min.value, value.min.value + value.extent.value - 1
            bound = Interval(least, most)
            lo, hi = {ONE: least} if least else {}, {ONE: most} if most else {}
        elif isinstance(value, Range):
            lo = self.poly(value.min)
            hi = add(add(lo, self.poly(value.extent)), {ONE: -1})
        else:
            lo = hi = self.poly(convert(value, var.dtype))
            if self.data(lo):  # arithmetic on values from memory may wrap
                data, exact = True, self.exact(lo, var.dtype)
                lo, hi = (lo, hi) if exact else (None, None)
                if exact and reads_memory(convert(value)):
                    lo, hi = self._constant_ends(lo)
        known = var in self._by_var
        a = self.var_atom(var)
        if known and self.atoms[a].data is data and self._ends.get(a) == (lo, hi):
            return
        self._ends[a] = (lo, hi)
        self.atoms[a].data = data
        if known:
            self._version += 1
            self._forget()
        elif bound is not None and a not in self._tight:
            self._bounds[a] = bound

    def _constant_ends(self, p: Poly | None) -> tuple[Poly | None, Poly | None]:
        """Return the least and the greatest value of ``p`` as numbers.

        A variable keeps the value that was read from memory, whatever is stored there later. So it may not be
        compared with a later load from the same place.
        """
        ends = (None, None) if p is None else self.bound(p)
        return tuple([None if e is None else constant(e) for e in ends])  # type: ignore[return-value]

    def _forget(self) -> None:
        self._poly_memo, self._simp_memo, self._bounds = {}, {}, {}

    @contextmanager
    def constraint(self, condition: Expr) -> Iterator[None]:
        """Assume ``condition`` inside the ``with``. Conditions that read memory are ignored."""
        facts_before, memos = (self._facts, self._tight), (self._poly_memo, self._simp_memo, self._bounds)
        version = self._version
        facts, tight = list(self._facts), dict(self._tight)
        self._learn(condition, True, facts, tight)
        if len(facts) > len(self._facts) or tight != self._tight:
            self._facts, self._tight = tuple(facts), tight
            self._forget()
        try:
            yield
        finally:
            self._facts, self._tight = facts_before
            if self._version == version:
                self._poly_memo, self._simp_memo, self._bounds = memos
            else:  # a variable was bound again in the meantime
                self._forget()

    def learn(self, condition: Expr) -> None:
        """Assume ``condition`` from now on, or until the :meth:`constraint` around ends."""
        facts, tight = list(self._facts), dict(self._tight)
        self._learn(condition, True, facts, tight)
        if len(facts) > len(self._facts) or tight != self._tight:
            self._facts, self._tight = tuple(facts), tight
            self._version += 1
            self._forget()

    @contextmanager
    def nonempty(self, *extents: Expr) -> Iterator[None]:
        """Assume inside the ``with`` that each of ``extents`` is at least 1, as extents of loops are inside the loops.

        >>> from tilewright.tir.expr import Var
        >>> n, m, an = Var("n"), Var("m"), Analyzer()
        >>> an.bind(n, (0, None)), an.bind(m, (0, None))
        (None, None)
        >>> with an.nonempty(n * m):
        ...     an.can_prove(n >= 1)
        True
        >>> an.can_prove(n >= 1)
        False
        """
        with ExitStack() as known:
            for condition in self._iterations(extents):
                known.enter_context(self.constraint(condition))
            yield

    def learn_nonempty(self, *extents: Expr) -> None:
        """Assume from now on that each of ``extents`` is at least 1; see :meth:`nonempty`."""
        for condition in self._iterations(extents):
            self.learn(condition)

    def _iterations(self, extents: Iterable[Expr]) -> Iterator[Expr]:
        """Yield what holds where loops of these extents have iterations.

        Variables that are at least 0 are at least 1 when an extent would be 0 with them. So are other factors of an extent,
        as in ``n // 2 * m``, and what they multiply is at least 1 then, too.
        """
        for extent in extents:
            if isinstance(extent, IntImm) or extent.dtype not in INDEX_TYPES:
                continue
            for var in {n: None for n in pre_order(extent) if isinstance(n, Var) and n.dtype in INDEX_TYPES}:
                atom = self.var_atom(var)
                if var is not extent and self.ends_of(atom)[1] is None and self.atom_bound(atom) == _NATURAL:
                    least = self.simplify(substitute(extent, {var: const(0, var.dtype)}))
                    if isinstance(least, IntImm) and least.value <= 0:
                        yield var >= 1
            rest = self.poly(extent)
            for a in self._factors(rest):
                low = self.atom_bound(a).lo
                if low is not None and low >= 0:
                    rest = {_without(m, a): c for m, c in rest.items()}
                    yield self.to_expr({(a,): 1}, extent.dtype) >= const(1, extent.dtype)
                    times = gcd(*rest.values())
                    yield self.to_expr({m: c // times for m, c in rest.items()}, extent.dtype) >= const(1, extent.dtype)
            yield extent >= 1

    def _factors(self, p: Poly) -> list[int]:
        """Return the atoms that each term of ``p`` has; none of what is read from memory."""
        first = next(iter(p), ()) if len(p) > 1 or any(len(m) > 1 for m in p) else ()
        return [] if self.data(p) else [a for a in dict.fromkeys(first) if all(a in m for m in p)]

    def _learn(self, e: Expr, holds: bool, facts: list[Poly], tight: dict[int, Interval]) -> None:
        if isinstance(e, Not):
            self._learn(e.a, not holds, facts, tight)
        elif isinstance(e, Call) and e.op == "tir.likely":
            self._learn(e.args[0], holds, facts, tight)
        elif isinstance(e, And) and holds or isinstance(e, Or) and not holds:
            self._learn(e.a, holds, facts, tight)
            self._learn(e.b, holds, facts, tight)
        elif isinstance(e, CmpOp) and e.a.dtype in INDEX_TYPES:
            p, q = self.poly(e.a), self.poly(e.b)
            if self.data(p) or self.data(q):
                return
            t = type(e)
            if not holds:
                t = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}[t]
            diff = add(p, q, -1)
            if t in (LE, EQ):
                self._fact(diff, facts, tight)
            if t in (GE, EQ):
                self._fact(scale(diff, -1), facts, tight)
            if t is LT:
                self._fact(add(diff, {ONE: 1}), facts, tight)
            elif t is GT:
                self._fact(add(scale(diff, -1), {ONE: 1}), facts, tight)
            elif t is NE:  # only an end of the range can be cut off
                lo, hi = self.bound(diff)
                if lo == 0:
                    self._fact(add(scale(diff, -1), {ONE: 1}), facts, tight)
                elif hi == 0:
                    self._fact(add(diff, {ONE: 1}), facts, tight)

    def _fact(self, p: Poly, facts: list[Poly], tight: dict[int, Interval]) -> None:
        """Record p <= 0 as a bound of an atom where possible, else as a fact."""
        terms = [(m, c) for m, c in p.items() if m]
        if not terms:
            return
        k = p.get(ONE, 0)
        if len(terms) == 1 and len(terms[0][0]) == 1:
            (a,), c = terms[0]
            new = Interval(None, -k // c) if c > 0 else Interval(_ceil_div(k, -c), None)
            tight[a] = new.meet(tight.get(a, EVERYTHING))
            atom = self.atoms[a]
            if atom.kind == "split" and atom.args[2] is None and not atom.data:  # q // d <= e is q < (e + 1) * d
                q, d, _ = atom.args
                if new.hi is not None:
                    self._fact(add(q, constant((new.hi + 1) * d - 1), -1), facts, tight)
                if new.lo is not None:
                    self._fact(add(constant(new.lo * d), q, -1), facts, tight)
            return
        facts.append(p)
        for m, c in terms:  # c * a <= -rest bounds a when the rest is bounded
            if len(m) == 1:
                rest = self.bound({n: d for n, d in p.items() if n != m})[0]
                if rest is not None:
                    (a,) = m
                    new = Interval(None, -rest // c) if c > 0 else Interval(_ceil_div(rest, -c), None)
                    tight[a] = new.meet(tight.get(a, EVERYTHING))

    # -- questions ---------------------------------------------------------------------------------------------------

    def simplify(self, e: Any) -> Any:
        """Return ``e`` in a simpler, canonical form; the same object when nothing changes."""
        if type(e) is IntImm:
            return e
        if e in self._simp_memo:
            return self._simp_memo[e]
        return self._simplified(e if isinstance(e, IRNode) else convert(e))

    _simplified = with_room(Canonical.simp)

    @with_room
    def can_prove(self, condition: ExprLike) -> bool:
        """Return whether ``condition`` can be proved for all values that the variables may have."""
        e = convert(condition)
        if isinstance(e, CmpOp) and type(e.a) is IntImm and type(e.b) is IntImm:
            return bool(e.compute(e.a.value, e.b.value))
        if isinstance(e, CmpOp) and e.a.dtype in INDEX_TYPES:
            return holds(self, e) or solver_proves(self, e)
        simple = self.simp(e)
        return simple.value != 0 if isinstance(simple, IntImm) else solver_proves(self, e)

    def can_prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """Return whether it can be proved that both always have the same value."""
        if a is b:
            return True
        if type(a) is IntImm and type(b) is int:
            return a.value == b and a.dtype in INDEX_TYPES
        x, y = convert(a), convert(b)
        if type(x) is IntImm and type(y) is IntImm:
            alike = x.dtype == y.dtype or (x.dtype in INDEX_TYPES and y.dtype in INDEX_TYPES)
            return alike and x.value == y.value
        if x.dtype in INDEX_TYPES and y.dtype in INDEX_TYPES:
            p, q = self.poly(x), self.poly(y)
            if p == q:
                return True
            diff = join_splits(self, add(p, q, -1))
            if not diff:
                return True
            k = const_of(diff)
            if k is not None or not (self.exact(p, x.dtype) and self.exact(q, y.dtype)):
                return False
            return self.at_most_zero(diff) and self.at_most_zero(scale(diff, -1)) or solver_proves(self, EQ(x, y))
        return same(self.simp(x), self.simp(y))

    def const_int_bound(self, e: ExprLike) -> Interval:
        """Return the constant bounds ``(lo, hi)``, inclusive; ``None`` where none is known."""
        x = convert(e)
        if x.dtype not in INDEX_TYPES:
            return Interval(x.value, x.value) if isinstance(x, IntImm) else EVERYTHING
        p = self.poly(x)
        low, high = self.bound_quotient_difference(p, False), self.bound_quotient_difference(p, True)
        if low is None or high is None:
            return self.bound(p)
        return self.bound(p).meet(Interval(self.bound(low).lo, self.bound(high).hi))

    # -- trees -------------------------------------------------------------------------------------------------------

    def simp_tree(self, e: Any) -> Any:
        special = _SPECIAL.get(type(e))
        if special is not None:
            return special(self, e)
        if isinstance(e, CmpOp) and e.a.dtype in INDEX_TYPES:
            return compare(self, e)
        return self._by_rules(e.map_children(self.simp))

    def _by_rules(self, e: Any) -> Any:
        for rule in RULES.get(type(e), ()):
            new = rule(self, e)
            if new is not None:
                return new if new is e else self.simp(new)
        return e

    def _conjunction(self, e: And) -> Expr:
        """Simplify each part where the parts before it hold, and drop a part that others imply."""
        if e.dtype != "bool":
            return self._by_rules(e.map_children(self.simp))
        parts: list[Expr] = []
        for part in _parts(e, And):
            new = self._under(parts, part)
            if isinstance(new, IntImm):
                if not new.value:
                    return new
                continue
            parts.extend(p for p in _parts(new, And) if not any(same(p, q) for q in parts))
        if 1 < len(parts) <= _MAX_PARTS and not any(isinstance(n, BufferLoad) for p in parts for n in pre_order(p)):
            for part in parts[:-1]:  # a later part may imply an earlier one
                others = [p for p in parts if p is not part]
                known = self._under(others, part) if others else part
                if isinstance(known, IntImm):
                    if not known.value:
                        return known
                    parts = others
        return _chain(And, parts, e, True)

    def _disjunction(self, e: Or) -> Expr:
        """Simplify each part where the parts before it do not hold."""
        if e.dtype != "bool":
            return self._by_rules(e.map_children(self.simp))
        parts: list[Expr] = []
        for part in _parts(e, Or):
            new = self._under([logical_not(p) for p in parts], part)
            if isinstance(new, IntImm):
                if new.value:
                    return new
                continue
            parts.extend(p for p in _parts(new, Or) if not any(same(p, q) for q in parts))
        return _chain(Or, parts, e, False)

    def _under(self, known: list[Expr], e: Expr) -> Any:
        if not known:
            return self.simp(e)
        with self.constraint(_join(And, known)):
            return self.simp(e)

    def _lazy(self, e: Call) -> Expr:
        """Simplify each side of an if_then_else under its condition."""
        if e.op != "tir.if_then_else":
            return self._by_rules(e.map_children(self.simp))
        condition = self.simp(e.args[0])
        if isinstance(condition, IntImm):
            return self.simp(e.args[1] if condition.value else e.args[2])
        yes = self._under([condition], e.args[1])
        no = self._under([logical_not(condition)], e.args[2])
        if condition is e.args[0] and yes is e.args[1] and no is e.args[2]:
            return self._by_rules(e)
        return self._by_rules(Call(e.op, (condition, yes, no), e.dtype))

    def poly_given(self, condition: Expr, e: Expr) -> Poly:
        with self.constraint(condition):
            return self.poly(e)

    def _let_tree(self, e: Let) -> Expr:
        value = self.simp(e.value)
        if isinstance(value, (IntImm, Var)):
            return self.simp(substitute(e.body, {e.var: value}))
        self.bind(e.var, value)
        body = self.simp(e.body)
        return e if value is e.value and body is e.body else Let(e.var, value, body)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _parts(e: Expr, cls: type) -> list[Expr]:
    if type(e) is cls:
        return [*_parts(e.a, cls), *_parts(e.b, cls)]  # type: ignore[attr-defined]
    return [e]


def _join(cls: Any, parts: list[Expr]) -> Expr:
    out = parts[0]
    for part in parts[1:]:
        out = cls(out, part)
    return out


def _chain(cls: Any, parts: list[Expr], old: Expr, empty: bool) -> Expr:
    if not parts:
        return const(empty, "bool")
    out = _join(cls, parts)
    return old if same(out, old) else out


_SPECIAL: dict[type, Callable[[Any, Any], Any]] = {
    And: Analyzer._conjunction,
    Or: Analyzer._disjunction,
    Call: Analyzer._lazy,
    Let: Analyzer._let_tree,
}


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
