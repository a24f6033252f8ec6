"""This module keeps ranges of variables and conditions that hold, and derives bounds from them.

A fact is a polynomial ``p`` with ``p <= 0``. Whether something is at most zero is decided first by interval
arithmetic, then by putting variables at the (possibly symbolic) end of their range that makes the polynomial largest,
latest variable first (Fourier-Motzkin elimination in the directions that ranges allow), then by adding a fact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from math import gcd

from .forms import (
    EVERYTHING,
    ONE,
    Atom,
    AtomTable,
    Interval,
    Mono,
    Poly,
    add,
    const_of,
    constant,
    interval_of,
    mul,
    scale,
)

_NATURAL = Interval(0, None)


class Facts(AtomTable):
    """Holds atoms, their ranges, and the conditions that hold."""

    def __init__(self) -> None:
        super().__init__()
        self._ends: dict[int, tuple[Poly | None, Poly | None]] = {}
        self._tight: dict[int, Interval] = {}
        self._facts: tuple[Poly, ...] = ()
        self._bounds: dict[int, Interval] = {}

    def facts(self) -> tuple[Poly, ...]:
        """Return the conditions that hold: polynomials that are at most zero."""
        return self._facts

    def is_bound(self, a: int) -> bool:
        """Return whether a range of the atom was bound."""
        return a in self._ends

    def ends_of(self, a: int) -> tuple[Poly | None, Poly | None]:
        """Return the ends of an atom's range as they were bound."""
        return self._ends.get(a, (None, None))

    def atom_bound(self, a: int) -> Interval:
        """Return the constant bounds of one atom."""
        if a not in self._bounds:
            self._bounds[a] = self._atom_bound(a)
        return self._bounds[a]

    def _atom_bound(self, a: int) -> Interval:
        atom = self.atoms[a]
        rule = _BOUNDS.get(atom.kind)
        bound = EVERYTHING if rule is None else rule(self, atom)
        ends = self._ends.get(a)
        if ends is not None:
            low, high = ends
            least = None if low is None else self.bound(low).lo
            most = None if high is None else self.bound(high).hi
            bound = Interval(least, most) if bound is EVERYTHING else bound.meet(Interval(least, most))
        tight = self._tight.get(a)
        if tight is not None:
            bound = bound.meet(tight)
        if atom.data and None in bound:
            bound = bound.meet(interval_of(atom.dtype))
        return bound

    def mono_bound(self, m: Mono) -> Interval:
        """Return the constant bounds of a product of atoms; an even power is not negative."""
        if len(m) == 1:
            return self.atom_bound(m[0])
        bound = Interval(1, 1)
        for atom, power in Counter(m).items():
            once = self.atom_bound(atom)
            for _ in range(power // 2):
                bound = bound.times(once.times(once).meet(_NATURAL))
            if power % 2:
                bound = bound.times(once)
        return bound

    def bound(self, p: Poly) -> Interval:
        """Return the constant bounds of a polynomial."""
        lo: int | None = 0
        hi: int | None = 0
        for m, c in p.items():
            if not m:
                lo = None if lo is None else lo + c
                hi = None if hi is None else hi + c
                continue
            mlo, mhi = self.atom_bound(m[0]) if len(m) == 1 else self.mono_bound(m)
            if c < 0:
                mlo, mhi = mhi, mlo
            lo = None if lo is None or mlo is None else lo + c * mlo
            hi = None if hi is None or mhi is None else hi + c * mhi
            if lo is None and hi is None:
                return EVERYTHING
        return Interval(lo, hi)

    def exact(self, p: Poly, dtype: str) -> bool:
        """Return whether the machine's value of p is the mathematical one: indices never overflow, data may."""
        if not self.data(p):
            return True
        return self.bound(p).fits(dtype)

    def at_most_zero(self, p: Poly, depth: int = 0, facts: tuple[Poly, ...] | None = None) -> bool:
        """Return whether p <= 0 can be proved."""
        hi = self.bound(p)[1]
        if hi is not None and hi <= 0:
            return True
        if depth > 12:
            return False
        if facts is None:
            facts = self._facts
        quotients = self._quotients(p)
        if quotients:
            for larger in (self.bound_quotient_difference(p, True), self._bound_quotient(p, quotients, facts)):
                if larger is not None and self.at_most_zero(larger, depth + 1, facts):
                    return True
        for way in self._upper_polynomials(p):
            if all([self.at_most_zero(q, depth + 1, facts) for q in way]):
                return True
        if depth < 4 and quotients:
            smaller = self._without_quotient_factor(p, quotients)
            if smaller is not None and self.at_most_zero(smaller, depth + 1, facts):
                return True
        if depth < 4:
            for q, others in _with_a_fact(p, facts):
                if self.at_most_zero(q, depth + 1, others):
                    return True
        return False

    def bound_quotient_difference(self, p: Poly, up: bool) -> Poly | None:
        """Return ``p`` with ``x // c - y // c`` replaced by an end of its range, or None.

        Where x - y lies in [lo, hi], the upper end is hi / c rounded up, the lower one (without ``up``) lo / c rounded
        down.
        """
        whole = self._quotients(p)
        for n, m in enumerate(whole):
            for other in whole[n + 1 :]:
                a, b = (m, other) if p[m] > 0 else (other, m)
                (x, lower, _), (y, other_lower, _) = self.atoms[a[0]].args, self.atoms[b[0]].args
                if lower != other_lower or p[a] < 0 or p[b] > 0:
                    continue
                apart = self.bound(add(x, y, -1))[1 if up else 0]
                if apart is not None:
                    times = min(p[a], -p[b])
                    end = -(-apart // lower) if up else apart // lower
                    return add(add(p, {a: times, b: -times}, -1), constant(times * end))
        return None

    def _bound_quotient(self, p: Poly, quotients: list[Mono], facts: tuple[Poly, ...]) -> Poly | None:
        """Return ``p`` with a quotient ``x // c`` replaced by the bound that a fact about x gives. None stands for no
        such fact."""
        for m in quotients if facts else ():
            factor, (inner, lower, _) = p[m], self.atoms[m[0]].args
            for f in facts:
                k = const_of(add(inner, f, -1 if factor > 0 else 1))  # x <= k, or x >= k
                if k is not None:
                    return add(add(p, {m: factor}, -1), constant(factor * (k // lower)))
        return None

    def _without_quotient_factor(self, p: Poly, quotients: list[Mono]) -> Poly | None:
        """Return a polynomial without the quotient ``x // c`` that is at most zero only where p is, or None.

        ``t`` is the number by which the factor of the quotient becomes a multiple of c. Where the result is at most
        zero, ``t * p <= t - 1`` and so ``p <= 0``.
        """
        for m in quotients:
            k, (inner, lower, _) = p[m], self.atoms[m[0]].args
            t = lower // gcd(k, lower)
            if t > 1:  # c * (x // c) lies in [x - (c - 1), x]
                end = inner if k > 0 else add(inner, {ONE: 1 - lower})
                rest = add(scale(add(p, {m: k}, -1), t), end, t * k // lower)
                return add(rest, {ONE: 1 - t})
        return None

    def _quotients(self, p: Poly) -> list[Mono]:
        """Return the terms of ``p`` that are a quotient ``x // c`` alone."""
        if not self.has_digits:
            return []
        atoms = self.atoms
        return [m for m in p if len(m) == 1 and (a := atoms[m[0]]).kind == "split" and a.args[2] is None]

    def nonneg(self, p: Poly) -> bool:
        """Return whether p >= 0 can be proved."""
        lo, _ = self.bound(p)
        return True if lo is not None and lo >= 0 else self.at_most_zero(scale(p, -1))

    def below(self, p: Poly, q: Poly) -> bool:
        """Return whether p < q can be proved."""
        diff = add(p, q, -1)
        return self.at_most_zero(add(diff, {ONE: 1}))

    def _upper_polynomials(self, p: Poly) -> list[list[Poly]]:
        """Return ways to prove p <= 0.

        Each is a list of polynomials of which one is at least as large as p. They do not contain the latest atom of p
        that has symbolic ends.
        """
        if len(p) == 1 and ONE in p:
            return []
        linear = all([len(m) < 2 for m in p])
        for a in sorted({a for m in p for a in m}, reverse=True):
            atom = self.atoms[a]
            if linear and atom.kind == "var" and not self._has_symbolic_end(a):
                continue
            if atom.kind in ("var", "min", "max", "choice", "split", "mod", "div") or a in self._ends:
                out = self._without(p, a)
                if out:
                    return out
        return []

    def _has_symbolic_end(self, a: int) -> bool:
        low, high = self._ends[a] if a in self._ends else (None, None)
        return bool(low and any(low)) or bool(high and any(high))

    def _without(self, p: Poly, a: int) -> list[list[Poly]]:
        factor: Poly = {}
        rest: Poly = {}
        nonlinear = False
        for m, c in p.items():
            n = m.count(a)
            if n == 0:
                rest[m] = c
            elif n == 1:
                i = m.index(a)
                factor[m[:i] + m[i + 1 :]] = c
                nonlinear = nonlinear or len(m) > 1
            else:
                return []
        lo, hi = self.bound(factor)
        up = lo is not None and lo >= 0
        if not up and not (hi is not None and hi <= 0):
            return []
        atom, ends = self.atoms[a], []
        if atom.kind in ("min", "max", "choice"):
            ends = [atom.args[0], atom.args[1]]
            if (atom.kind == "min") is not up or atom.kind == "choice":
                return [[add(rest, mul(factor, end)) for end in ends]]
        elif atom.kind == "split" and atom.args[2] is None and not nonlinear:
            inner, lower, _ = atom.args
            k = const_of(factor)
            if k is not None and k % lower == 0:  # c * (p // c) lies in [p - (c - 1), p]
                end = inner if up else add(inner, {ONE: 1 - lower})
                return [[add(rest, end, k // lower)]]
        elif atom.kind == "mod" and up and self.bound(atom.args[1])[0] is not None:
            if self.bound(atom.args[1])[0] >= 1:  # type: ignore[operator]
                ends = [add(atom.args[1], {ONE: -1})]
        elif atom.kind == "div" and set(factor) == {next(iter(atom.args[1]))} and len(atom.args[1]) == 1:
            (_, qc), fc = next(iter(atom.args[1].items())), next(iter(factor.values()))
            if fc % qc == 0 and (self.bound(atom.args[1])[0] or 0) >= 1:  # q * (p // q) lies in [p - (q - 1), p]
                k = fc // qc
                end = atom.args[0] if k > 0 else add(add(atom.args[0], atom.args[1], -1), {ONE: 1})
                return [[add(rest, end, k)]]
        pair = self._ends.get(a)
        if pair is not None:
            end_poly = pair[1] if up else pair[0]
            if end_poly is not None and (nonlinear or const_of(end_poly) is None):
                ends = [*ends, end_poly]
        if nonlinear and not ends:
            value = self.atom_bound(a)[1 if up else 0]
            if value is not None:
                ends = [{ONE: value}]
        ways = [[add(rest, mul(factor, end))] for end in ends]
        below = self._symbolic_quotient(a, const_of(factor), rest)
        return ways if below is None else [*ways, [below]]

    def _symbolic_quotient(self, a: int, factor: int | None, rest: Poly) -> Poly | None:
        """Return a polynomial without the quotient that is at most zero exactly when the given one is. The given one is
        ``factor * (x // q) + rest``.

        x // q <= k is x < (k + 1) * q, and k <= x // q is k * q <= x. None unless the factor is 1 or -1 and q positive.
        """
        atom = self.atoms[a]
        if atom.kind != "div" or factor not in (1, -1) or (self.bound(atom.args[1])[0] or 0) < 1:
            return None
        x, q = atom.args
        if factor == 1:
            return add(add(x, mul(add(rest, {ONE: -1}), q)), {ONE: 1})
        return add(mul(rest, q), x, -1)


def _with_a_fact(p: Poly, facts: tuple[Poly, ...]) -> Iterator[tuple[Poly, tuple[Poly, ...]]]:
    """Return multiples of ``p`` minus multiples of a fact that share a term no more, each with the other facts.

    Where one of them is at most zero, ``p`` is too.
    """
    for i, f in enumerate(facts):
        shared = next((m for m, c in f.items() if m and m in p and (c > 0) == (p[m] > 0)), None)
        if shared is not None:
            c, d = f[shared], p[shared]
            g = gcd(c, d)  # p * (c / g) - f * (d / g) is without the term
            yield add(scale(p, abs(c) // g), f, -(abs(d) // g)), facts[:i] + facts[i + 1 :]


def _split_bound(facts: Facts, atom: Atom) -> Interval:
    p, lower, upper = atom.args
    bound = facts.bound(p)
    if upper is not None:
        step = gcd(upper, *[k for m, k in p.items() if m])  # (64*x + 8) % 96 is 8, 40 or 72
        bound = bound.remainder(Interval(upper, upper)).at_steps(step, p.get(ONE, 0))
    return bound.divided(Interval(lower, lower))


def _both(facts: Facts, atom: Atom) -> tuple[Interval, Interval]:
    return facts.bound(atom.args[0]), facts.bound(atom.args[1])


_BOUNDS: dict[str, Callable[[Facts, Atom], Interval]] = {
    "split": _split_bound,
    "min": lambda facts, atom: Interval.minimum(*_both(facts, atom)),
    "max": lambda facts, atom: Interval.maximum(*_both(facts, atom)),
    "div": lambda facts, atom: Interval.divided(*_both(facts, atom)),
    "mod": lambda facts, atom: Interval.remainder(*_both(facts, atom)),
    "cast": lambda facts, atom: facts.bound(atom.args[0]).unless_wrapped(atom.dtype),
    "choice": lambda facts, atom: Interval.union(*_both(facts, atom)),
    "truncdiv": lambda facts, atom: Interval.truncated(*_both(facts, atom)),
    "truncmod": lambda facts, atom: Interval.truncated_remainder(*_both(facts, atom)),
    "opaque": lambda facts, atom: atom.args[0] if atom.args else EVERYTHING,
}
"""The constant bounds of each kind of atom."""
