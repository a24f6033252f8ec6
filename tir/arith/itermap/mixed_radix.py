"""This module defines numbers in a mixed radix, of which index maps consist (see :mod:`.iter_map`).

A :class:`Digit` is one digit as an expression has it; :func:`radix_of` finds the radix that several digits share. The
other classes are the parts of an analyzed map.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from ...expr import Expr, FloorDiv, FloorMod, IntImm, Var, const, product
from ..analyzer import Analyzer


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """Represents ``number % upper // lower``; an ``upper`` of None stands for no remainder."""

    number: Expr
    lower: Expr
    upper: Expr | None

    @property
    def constant(self) -> bool:
        """Returns whether both ends are constants."""
        return isinstance(self.lower, IntImm) and (self.upper is None or isinstance(self.upper, IntImm))


def read_digit(e: Any) -> Digit | None:
    """Return the digit that a quotient, a remainder or both are; None for anything else and for divisors below 1.

    >>> d = read_digit(Var("x") // 4 % 8); str(d.lower), str(d.upper)
    ('4', '32')
    """
    if not isinstance(e, (FloorDiv, FloorMod)) or (isinstance(e.b, IntImm) and e.b.value < 1):
        return None
    inner = e.a
    both = isinstance(inner, (FloorDiv, FloorMod)) and type(inner) is not type(e)
    if not both or (isinstance(inner.b, IntImm) and inner.b.value < 1):  # type: ignore[attr-defined]
        if isinstance(e, FloorDiv):
            return Digit(inner, e.b, None)
        return Digit(inner, const(1, e.dtype), e.b)
    assert isinstance(inner, (FloorDiv, FloorMod))
    if isinstance(e, FloorDiv):
        return Digit(inner.a, e.b, inner.b)
    return Digit(inner.a, inner.b, inner.b * e.b)


def digit_of(e: Expr, known: Container[Var]) -> tuple[Var, int, int | None] | None:
    """Return (v, lower, upper) when ``e`` is a digit with constant ends of a known variable.

    ``v`` alone has lower 1 and upper None.
    """
    if isinstance(e, Var):
        return (e, 1, None) if e in known else None
    digit = constant_digit(e)
    return digit if digit is not None and isinstance(digit[0], Var) and digit[0] in known else None  # type: ignore[return-value]


def constant_digit(e: Any) -> tuple[Expr, int, int | None] | None:
    """Return (number, lower, upper) when ``e`` is a digit with constant ends, else None."""
    digit = read_digit(e)
    if digit is None or not digit.constant:
        return None
    upper = None if digit.upper is None else digit.upper.value  # type: ignore[attr-defined]
    return digit.number, digit.lower.value, upper  # type: ignore[attr-defined]


def radix_of(analyzer: Analyzer, cuts: Iterable[Expr]) -> list[Expr] | None:
    """Return the places of a mixed radix that has all ``cuts``: 1 and each different cut, least first.

    The result is None when one place is not known to be positive and to divide the next one.
    """
    cuts = list(cuts)
    places: list[Expr] = [const(1, cuts[0].dtype if cuts else "int32")]
    left: list[Expr] = []
    for cut in cuts:
        if not any(analyzer.can_prove_equal(cut, known) for known in (*places, *left)):
            left.append(cut)
    if all(isinstance(cut, IntImm) for cut in left):
        left.sort(key=lambda cut: cut.value)  # type: ignore[attr-defined]
    while left:  # the next place is the one that divides all others
        found = next((w for w in left if all(divides(analyzer, w, other) for other in left)), None)
        if found is None or not divides(analyzer, places[-1], found):
            return None
        left = [w for w in left if w is not found]
        places.append(found)
    return places


def place_in(analyzer: Analyzer, cut: Expr, places: Iterable[Expr]) -> int:
    """Return the index of ``cut`` among ``places``, which :func:`radix_of` returned."""
    return next(n for n, place in enumerate(places) if analyzer.can_prove_equal(cut, place))


def divides(analyzer: Analyzer, a: Expr, b: Expr) -> bool:
    """Return whether both are known to be positive and ``b`` to be a multiple of ``a``."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value > 0 and b.value > 0 and b.value % a.value == 0
    return analyzer.can_prove(a >= 1) and analyzer.can_prove(b >= 1) and analyzer.can_prove_equal((b // a) * a, b)


def divides_evenly(analyzer: Analyzer, c: Expr, e: Expr) -> bool:
    """Return whether ``e % c`` is known to be 0; neither needs to be positive."""
    if type(c) is IntImm and type(e) is IntImm:
        return c.value != 0 and e.value % c.value == 0
    return analyzer.can_prove_equal(e % c, 0)


def times(analyzer: Analyzer, a: Expr, b: Expr) -> Expr:
    """Return the product of two sizes, simplified."""
    if type(b) is IntImm and b.value == 1:
        return a
    if type(a) is IntImm and a.value == 1:
        return b
    made = product((a, b))
    return made if isinstance(made, IntImm) else analyzer.simplify(made)


@dataclass(frozen=True, slots=True, eq=False)
class IterMark:
    """Represents a number in ``[0, extent)``: a loop variable minus its start, or a sum of digits."""

    source: Var | IterSum
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSplit:
    """Represents a digit: ``mark // lower_factor % extent * scale``."""

    mark: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSum:
    """Represents the sum of the digits ``args`` and of ``base``, which contains no loop variable."""

    args: tuple[IterSplit, ...]
    base: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterMap:
    """Represents an analyzed index map.

    Binding i is ``indices[i]``, which has one digit at most after joining; it takes ``extents[i]`` values from
    ``mins[i]`` on. ``errors`` are texts; there are none when the map is quasi-affine and surjective.
    """

    indices: tuple[IterSum, ...]
    errors: tuple[str, ...]
    injective: bool

    @property
    def surjective(self) -> bool:
        """Returns whether the values form a box in which every combination is reached."""
        return not self.errors

    @property
    def bijective(self) -> bool:
        """Returns whether each combination of values is reached by exactly one iteration."""
        return not self.errors and self.injective

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Returns how many values each binding takes."""
        return tuple([s.args[0].extent if s.args else IntImm(1, s.base.dtype) for s in self.indices])

    @property
    def mins(self) -> tuple[Expr, ...]:
        """The least value of each binding."""
        return tuple([s.base for s in self.indices])
