"""This module defines the forms that index arithmetic is brought into: intervals, linear forms, and polynomials over atoms.

What a term is, the caller says: a variable, the key of an expression, the name of a value. :func:`collect` reads the
form of an expression, and :func:`difference` compares two expressions by their forms alone, without an analyzer.

A polynomial maps monomials to coefficients; a monomial is a sorted tuple of atom numbers, ``()`` is the constant term.
An atom is an expression that polynomial arithmetic does not split: a variable, ``(p mod u) // l`` (one kind for
quotients, remainders and both, after the "split" terms of TVM's canonical simplifier), a minimum, a load. Atoms are
numbered by an :class:`AtomTable`, one per analyzer, so that equal atoms have one number and polynomials compare as
dictionaries. Polynomials are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...expr import (
    INDEX,
    INT64,
    Add,
    BinaryOp,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Sub,
    Var,
    cast,
    match_types,
    max_value,
    min_value,
    value_key,
)


class Interval(NamedTuple):
    """Represents the integers from ``lo`` to ``hi``, both included; an end of None is unknown.

    The results of arithmetic contain every value that the operation may have for values of its operands.

    >>> Interval(-3, 5).times(Interval(2, 4)), Interval(None, 7).divided(Interval(2, 2))
    (Interval(lo=-12, hi=20), Interval(lo=None, hi=3))
    """

    lo: int | None
    hi: int | None

    def negated(self) -> Interval:
        """Return the interval of ``-x``."""
        return Interval(None if self.hi is None else -self.hi, None if self.lo is None else -self.lo)

    def plus(self, other: Interval) -> Interval:
        """Return the interval of ``x + y``."""
        return Interval(
            None if self.lo is None or other.lo is None else self.lo + other.lo,
            None if self.hi is None or other.hi is None else self.hi + other.hi,
        )

    def minus(self, other: Interval) -> Interval:
        """Return the interval of ``x - y``."""
        return self.plus(other.negated())

    def times(self, other: Interval) -> Interval:
        """Return the interval of ``x * y``."""
        (alo, ahi), (blo, bhi) = self, other
        if alo is not None and ahi is not None and blo is not None and bhi is not None:
            products = (alo * blo, alo * bhi, ahi * blo, ahi * bhi)
            return Interval(min(products), max(products))
        if ahi is not None and ahi < 0:
            return self.negated().times(other).negated()
        if bhi is not None and bhi < 0:
            return self.times(other.negated()).negated()
        if alo is None or blo is None or alo < 0 or blo < 0:
            return EVERYTHING
        return Interval(alo * blo, None if ahi is None or bhi is None else ahi * bhi)

    def divided(self, other: Interval) -> Interval:
        """Return the interval of ``x // y``, which rounds down; unknown unless all divisors are positive."""
        (lo, hi), (least, most) = self, other
        if least is None or least < 1 or (most is not None and most < least):  # no divisors: the code never runs
            return EVERYTHING
        if lo is not None:
            lo = lo // least if lo < 0 else 0 if most is None else lo // most
        if hi is not None:
            hi = hi // least if hi >= 0 else -1 if most is None else hi // most
        return Interval(lo, hi)

    def remainder(self, other: Interval) -> Interval:
        """Return the interval of ``x % y`` where the quotient is rounded down; unknown unless all divisors are
        positive."""
        (lo, hi), (least, most) = self, other
        if least is None or least < 1:
            return EVERYTHING
        if lo is None or lo < 0 or hi is None:
            return Interval(0, None if most is None else most - 1)
        if hi < least:
            return self
        return Interval(0, hi if most is None else min(hi, most - 1))

    def at_steps(self, step: int, first: int) -> Interval:
        """Return the interval of those of its numbers that lie a multiple of ``step`` from ``first``."""
        lo = None if self.lo is None else self.lo + (first - self.lo) % step
        hi = None if self.hi is None else self.hi - (self.hi - first) % step
        return self if lo is not None and hi is not None and lo > hi else Interval(lo, hi)

    def truncated(self, other: Interval) -> Interval:
        """Return the interval of the quotient rounded towards zero, whose magnitude is at most that of the dividend."""
        (lo, hi), (least, most) = self, other
        if least is None or least < 1:
            return self._mirrored()
        if lo is not None:
            lo = -(-lo // least) if lo < 0 else 0 if most is None else lo // most
        if hi is not None:
            hi = hi // least if hi >= 0 else 0 if most is None else -(-hi // most)
        return Interval(lo, hi)

    def truncated_remainder(self, other: Interval) -> Interval:
        """Return the interval of the remainder of that quotient, which has the sign of the dividend."""
        (lo, hi), (least, most) = self, other
        below = None if least is None or most is None else max(abs(least), abs(most), 1) - 1
        lo = 0 if lo is not None and lo >= 0 else lo if below is None else -below if lo is None else max(lo, -below)
        hi = 0 if hi is not None and hi <= 0 else hi if below is None else below if hi is None else min(hi, below)
        return Interval(lo, hi)

    def _mirrored(self) -> Interval:
        """Return the smallest interval around zero that has these numbers."""
        if self.lo is None or self.hi is None:
            return EVERYTHING
        most = max(abs(self.lo), abs(self.hi))
        return Interval(-most, most)

    def minimum(self, other: Interval) -> Interval:
        """Return the interval of ``min(x, y)``."""
        return Interval(
            None if self.lo is None or other.lo is None else min(self.lo, other.lo),
            other.hi if self.hi is None else self.hi if other.hi is None else min(self.hi, other.hi),
        )

    def maximum(self, other: Interval) -> Interval:
        """Return the interval of ``max(x, y)``."""
        return self.negated().minimum(other.negated()).negated()

    def union(self, other: Interval) -> Interval:
        """Return the least interval that contains both."""
        return Interval(
            None if self.lo is None or other.lo is None else min(self.lo, other.lo),
            None if self.hi is None or other.hi is None else max(self.hi, other.hi),
        )

    def meet(self, other: Interval) -> Interval:
        """Return the values that lie in both."""
        return Interval(
            other.lo if self.lo is None else self.lo if other.lo is None else max(self.lo, other.lo),
            other.hi if self.hi is None else self.hi if other.hi is None else min(self.hi, other.hi),
        )

    def fits(self, dtype: str) -> bool:
        """Return whether both ends are known and values of the integer type ``dtype``."""
        return (
            self.lo is not None and self.hi is not None and min_value(dtype) <= self.lo and self.hi <= max_value(dtype)
        )

    def unless_wrapped(self, dtype: str) -> Interval:
        """Return the interval where the type ``dtype`` holds all of it, else an unknown one: its values may wrap."""
        return self if self.fits(dtype) else EVERYTHING


EVERYTHING = Interval(None, None)


def interval_of(dtype: str) -> Interval:
    """Return the values of an integer type."""
    return Interval(int(min_value(dtype)), int(max_value(dtype)))


def add_terms(p: Mapping[Any, int], q: Mapping[Any, int], k: int = 1) -> dict[Any, int]:
    """Return the coefficients of ``p + k * q``, without those that are zero."""
    out = dict(p)
    add_into(out, q, k)
    return out


def add_into(out: dict[Any, int], q: Mapping[Any, int], k: int) -> None:
    """Add ``k * q`` to the coefficients ``out``; those that become zero are removed."""
    for term, coefficient in q.items():
        total = k * coefficient
        if term in out:
            total += out[term]
        if total:
            out[term] = total
        elif term in out:
            del out[term]


@dataclass(frozen=True, slots=True)
class Linear:
    """Represents ``const + sum(coefficient * term)``; no coefficient is zero."""

    const: int = 0
    terms: Mapping[Any, int] = field(default_factory=dict)

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return ``self + factor * other``."""
        return Linear(self.const + factor * other.const, add_terms(self.terms, other.terms, factor))

    def times(self, factor: int) -> Linear:
        """Return ``factor * self``."""
        if factor == 1:
            return self
        return Linear(self.const * factor, {t: c * factor for t, c in self.terms.items()} if factor else {})


def collect(e: Expr, leaf: Callable[[Expr], Linear | None]) -> Linear | None:
    """Return the form of sums, differences and products with constants; ``leaf`` gives that of any other expression.

    The result is None where ``leaf`` gives None.

    >>> i, j = Var("i"), Var("j")
    >>> form = collect((i - j) * 4 + 3 + j, lambda e: Linear(0, {e: 1}))
    >>> form.const, list(form.terms.values())
    (3, [4, -3])
    """
    terms: dict[Any, int] = {}
    const = _gather(e, 1, leaf, terms)
    return None if const is None else Linear(const, terms)


def _gather(e: Any, factor: int, leaf: Callable[[Expr], Linear | None], terms: dict[Any, int]) -> int | None:
    """Add the terms of ``factor * e`` to ``terms``; return its constant, or None where ``leaf`` gives None."""
    kind = type(e)
    if kind is IntImm:
        return factor * e.value
    if kind is Add or kind is Sub:
        a = _gather(e.a, factor, leaf, terms)
        b = None if a is None else _gather(e.b, factor if kind is Add else -factor, leaf, terms)
        return None if a is None or b is None else a + b
    if kind is Mul and type(e.b) is IntImm:
        return _gather(e.a, factor * e.b.value, leaf, terms)
    form = _product(e, leaf) if kind is Mul else leaf(e)
    if form is None:
        return None
    add_into(terms, form.terms, factor)
    return factor * form.const


def _product(e: Mul, leaf: Callable[[Expr], Linear | None]) -> Linear | None:
    a, b = collect(e.a, leaf), collect(e.b, leaf)
    if a is None or b is None:
        return None
    if b.terms:
        a, b = b, a
    return leaf(e) if b.terms else a.times(b.const)


def difference(a: Expr, b: Expr) -> int | None:
    """Return ``a - b`` where the sums differ by a constant alone, else None."""
    if a is b:
        return 0
    left, right = _form(a), _form(b)
    return left.const - right.const if left.terms == right.terms else None


def _form(e: Expr) -> Linear:
    """Return the linear form over keys that are equal for expressions of equal structure."""
    found = collect(e, lambda n: Linear(0, {expression_key(n): 1}))
    assert found is not None
    return found


def expression_key(e: Any) -> Hashable:
    """Return a key that is equal for expressions of equal structure; sums may differ in the order of their terms."""
    if isinstance(e, (Add, Sub)):
        form = _form(e)
        return (frozenset(form.terms.items()), form.const)
    return value_key(e, expression_key)


Mono = tuple[int, ...]
Poly = dict[Mono, int]
ONE: Mono = ()


def add(p: Poly, q: Poly, k: int = 1) -> Poly:
    """Return p + k * q."""
    if not q:
        return p
    if not p and k == 1:
        return q
    out = dict(p)
    add_into(out, q, k)
    return out


def scale(p: Poly, k: int) -> Poly:
    """Return k * p."""
    if k == 1:
        return p
    return {m: c * k for m, c in p.items()} if k else {}


def mul(p: Poly, q: Poly) -> Poly:
    """Return p * q."""
    if len(q) <= 1 and (not q or ONE in q):
        return scale(p, q[ONE]) if q else q
    if len(p) <= 1 and (not p or ONE in p):
        return scale(q, p[ONE]) if p else p
    out: Poly = {}
    for m, c in p.items():
        for n, d in q.items():
            product = tuple(sorted(m + n))
            total = out.get(product, 0) + c * d
            if total:
                out[product] = total
            else:
                out.pop(product, None)
    return out


def constant(n: int) -> Poly:
    """Return the polynomial of a number."""
    return {ONE: n} if n else {}


def const_of(p: Poly) -> int | None:
    """Return the value of a constant polynomial, else None."""
    if not p:
        return 0
    return p.get(ONE) if len(p) == 1 else None


def poly_key(p: Poly) -> Hashable:
    """Return a key that is the same for equal polynomials, whatever the order of their terms."""
    return tuple(p.items()) if len(p) < 2 else tuple(sorted(p.items()))


class Atom:
    """Represents one atom.

    ``kind`` is var, split (p, l, u: ``(p mod u) // l``, u None for no remainder), div, mod, tdiv, tmod,
    min, max (p, q), cast (p) or opaque; ``data`` says that its value comes from memory or a call, where integers wrap.
    """

    __slots__ = ("args", "data", "dtype", "expr", "kind", "number")

    def __init__(self, number: int, kind: str, args: tuple[Any, ...], expr: Expr, dtype: DType, data: bool) -> None:
        self.number = number
        self.kind = kind
        self.args = args
        self.expr = expr
        self.dtype = dtype
        self.data = data


DIGITS = ("split", "mod")
"""The kinds of atoms that are digits of a number."""

_PAIRS: dict[str, type[BinaryOp]] = {"div": FloorDiv, "mod": FloorMod, "min": Min, "max": Max}


class AtomTable:
    """Numbers atoms, and converts polynomials back to expressions."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._by_key: dict[Hashable, Atom] = {}
        self._by_var: dict[Var, int] = {}
        self._keep: list[object] = []
        self.has_digits = False
        """Whether some atom is a quotient or a remainder by a constant, or a symbolic remainder."""

    def var_atom(self, var: Var) -> int:
        """Return the number of the atom of a variable, which is made when it is new."""
        if var in self._by_var:
            return self._by_var[var]
        number = self._by_var[var] = len(self.atoms)
        self.atoms.append(Atom(number, "var", (), var, var.dtype, False))
        return number

    def intern(
        self,
        key: Hashable,
        kind: str,
        args: tuple[Any, ...],
        dtype: DType,
        make: Callable[[], Expr],
        data: bool = False,
        keep: object = None,
    ) -> Poly:
        """Return the polynomial of the atom with ``key``. It is made when it is new; ``keep`` lives as long as the
        table."""
        atom = self._by_key.get(key)
        if atom is None:
            atom = Atom(len(self.atoms), kind, args, make(), dtype, data)
            self.atoms.append(atom)
            self._by_key[key] = atom
            self.has_digits = self.has_digits or kind in DIGITS
            if keep is not None:
                self._keep.append(keep)
        return {(atom.number,): 1}

    def split_atom(self, p: Poly, lower: int, upper: int | None, dtype: DType) -> Poly:
        """Return the atom ``(p mod upper) // lower``."""

        def make() -> Expr:
            e = self.to_expr(p, dtype)
            if max(lower, upper or 0) > max_value(e.dtype):
                e = cast("int64", e)
            if upper is not None:
                e = FloorMod(e, IntImm(upper, e.dtype))
            return e if lower == 1 else FloorDiv(e, IntImm(lower, e.dtype))

        return self.intern(("split", poly_key(p), lower, upper), "split", (p, lower, upper), dtype, make, self.data(p))

    def pair_atom(self, kind: str, p: Poly, q: Poly, dtype: DType) -> Poly:
        """Return the atom p // q, p % q, min(p, q) or max(p, q)."""

        def make() -> Expr:
            return _PAIRS[kind](*match_types(self.to_expr(p, dtype), self.to_expr(q, dtype)))

        keys = (poly_key(p), poly_key(q))
        if kind in ("min", "max") and repr(keys[1]) < repr(keys[0]):
            keys = (keys[1], keys[0])
        return self.intern((kind, *keys), kind, (p, q), dtype, make, self.data(p) or self.data(q))

    def known_pair(self, kind: str, p: Poly, q: Poly) -> Poly | None:
        """Return the atom of :meth:`pair_atom` if there is one already, else None."""
        atom = self._by_key.get((kind, poly_key(p), poly_key(q)))
        return None if atom is None else {(atom.number,): 1}

    def data(self, p: Poly) -> bool:
        """Return whether an atom of p comes from memory or a call."""
        atoms = self.atoms
        for m in p:
            for a in m:
                if atoms[a].data:
                    return True
        return False

    def to_expr(self, p: Poly, dtype: DType) -> Expr:
        """Return the expression of p.

        Products come first, then larger coefficients, then the order of insertion; positive terms (the constant last)
        come before negative ones. The type is int64 instead of int32 when a coefficient needs it, unless the values
        come from memory, where they wrap.
        """
        if not p:
            return IntImm(0, dtype)
        if len(p) == 1:
            ((m, c),) = p.items()
            if not m and -_HALF <= c < _HALF:
                return IntImm(c, dtype)
            if c == 1 and len(m) == 1:
                return self._factor(m[0], dtype)
        small = min(p.values()) >= -_HALF and max(p.values()) < _HALF
        if dtype is INDEX:
            if not small and not self.data(p):
                dtype = INT64
        elif self._is_narrow(p):
            return cast(dtype, self.to_expr(p, INDEX))
        bits = dtype.bits
        least = -(1 << (bits - 1))  # its negative does not fit the type, so it is added, never subtracted
        terms = [(m, c if small else _wrap(c, bits)) for m, c in p.items() if m]
        if len(terms) > 1:
            terms.sort(key=lambda t: (t[1] < 0, -len(t[0]), -abs(t[1])))
        constant = _wrap(p[ONE], bits) if ONE in p else 0
        out: Expr | None = None
        if terms and terms[0][1] == -1 and constant <= 0:
            out = IntImm(0, dtype)
        for m, c in terms:
            if c == 0:
                continue
            if c < 0 and constant > 0:
                out = IntImm(constant, dtype) if out is None else Add(out, IntImm(constant, dtype))
                constant = 0
            if out is None:
                out = self._product(m, c, dtype)
            elif c > 0 or c == least:
                out = Add(out, self._product(m, c, dtype))
            else:
                out = Sub(out, self._product(m, -c, dtype))
        if out is None:
            return IntImm(constant, dtype)
        if constant > 0 or constant == least:
            return Add(out, IntImm(constant, dtype))
        return Sub(out, IntImm(-constant, dtype)) if constant < 0 else out

    def _is_narrow(self, p: Poly) -> bool:
        """Return whether p, whose type is int64, is a sum of int32 values that fits int32."""
        atoms = self.atoms
        if len(p) < 2 and all(len(m) < 2 and c == 1 for m, c in p.items()):
            return False  # a single value, which is converted itself
        if any(atoms[a].expr.dtype != INDEX for m in p for a in m) or not any(p):
            return False
        return self.bound(p).fits(INDEX)

    def bound(self, p: Poly) -> Interval:
        """Return the constant bounds of a polynomial."""
        raise NotImplementedError

    def _product(self, m: Mono, c: int, dtype: DType) -> Expr:
        e = self._factor(m[0], dtype)
        for a in m[1:]:
            e = Mul(e, self._factor(a, dtype))
        return e if c == 1 else Mul(e, IntImm(c, dtype))

    def _factor(self, a: int, dtype: DType) -> Expr:
        e = self.atoms[a].expr
        return e if e.dtype == dtype else cast(dtype, e)


_HALF = 1 << 31


def _wrap(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return value if -half <= value < half else ((value + half) & ((1 << bits) - 1)) - half
