"""This module writes numbers that are divided as sums of their digits in a mixed radix. Each digit is a new
variable."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from ...expr import INDEX_TYPES, Expr, IntImm, Var, const, pre_order
from ..analyzer import Analyzer
from ..normal_form.polynomial import poly_key
from .mixed_radix import Digit, place_in, radix_of, read_digit

_serial = count()


@dataclass(frozen=True, slots=True, eq=False)
class DigitSum:
    """Represents ``value`` as the sum of each of ``digits`` times its place in ``places``, the least place first."""

    value: Expr
    places: list[Expr]
    digits: list[Var] = field(default_factory=list)

    def of(self, analyzer: Analyzer, digit: Digit) -> Expr:
        """Return a digit of the value, whose ends are among the places, as a sum of the variables."""
        first = place_in(analyzer, digit.lower, self.places)
        last = len(self.places) if digit.upper is None else place_in(analyzer, digit.upper, self.places)
        total: Expr = const(0, self.value.dtype)
        for n in range(first, last):
            total = total + self.digits[n] * analyzer.simplify(self.places[n] // digit.lower)
        return total


def write_digits(
    analyzer: Analyzer, exprs: Iterable[Expr], as_written: bool = False
) -> tuple[list[Expr], list[DigitSum]] | None:
    """Return ``exprs`` with quotients and remainders written as sums of digits, and the numbers that were divided.

    ``analyzer`` learns the ranges of the new variables. A number that was divided has digits itself where it is made of
    quotients and remainders. The result is None when the divisors of a number do not form a mixed radix.

    ``as_written`` does not simplify ``exprs`` first. All digits of a fused loop that was split, ``x = i * 4 + j``, are
    then digits of ``x``; simplified, ``x // 196`` is ``i // 49``, and ``x % 14`` stays a digit of ``x``.
    """
    simple = list(exprs) if as_written else [analyzer.simplify(e) for e in exprs]
    found: dict[Hashable, list[Digit]] = {}
    for e in simple:
        for n in pre_order(e):
            digit = _digit(n)
            if digit is not None:
                found.setdefault(_key(analyzer, digit.number), []).append(digit)
    sums: dict[Hashable, DigitSum] = {}
    for key, digits in found.items():
        places = radix_of(analyzer, [e for d in digits for e in (d.lower, d.upper) if e is not None])
        if places is None:
            return None
        sums[key] = _sum_of_digits(analyzer, digits[0].number, places)

    def rewrite(n: Any) -> Any:
        digit = _digit(n)
        return n.map_children(rewrite) if digit is None else sums[_key(analyzer, digit.number)].of(analyzer, digit)

    if not sums:
        return simple, []
    return [rewrite(e) for e in simple], [replace(s, value=rewrite(s.value)) for s in sums.values()]


def _digit(n: Any) -> Digit | None:
    digit = read_digit(n)
    return digit if digit is not None and n.dtype in INDEX_TYPES else None


def _key(analyzer: Analyzer, number: Expr) -> Hashable:
    return poly_key(analyzer.poly(number))


def _sum_of_digits(analyzer: Analyzer, value: Expr, places: list[Expr]) -> DigitSum:
    out = DigitSum(value, places)
    for place, above in zip(places, [*places[1:], None], strict=True):
        digit = Var(f"digit{next(_serial)}", value.dtype)
        lo, hi = analyzer.const_int_bound(value)
        if above is not None:
            analyzer.bind(digit, (0, analyzer.simplify(above // place) - 1))
        elif isinstance(place, IntImm):
            size = place.value
            analyzer.bind(digit, (None if lo is None else lo // size, None if hi is None else hi // size))
        elif lo is not None and lo >= 0:
            analyzer.bind(digit, (0, None))
        out.digits.append(digit)
    return out
