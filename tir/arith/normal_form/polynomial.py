"""This module defines integer polynomials over atoms, the normal form of index arithmetic.

A polynomial maps monomials to coefficients; a monomial is a sorted tuple of atom numbers, ``()`` is the constant term.
An atom is an expression that polynomial arithmetic does not split: a variable, ``(p mod u) // l`` (one kind for
quotients, remainders and both, after the "split" terms of TVM's canonical simplifier), a minimum, a load. Atoms are
numbered by an :class:`AtomTable`, one per analyzer, so that equal atoms have one number and polynomials compare as
dictionaries. Polynomials are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

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
)
from .interval import Interval
from .linear import add_into

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
