"""This module replaces quotients and remainders of loops, their mixed-radix digits, by independent variables.

``f // 13`` and ``f % 13`` take their values independently of each other when the trip count of ``f`` is a multiple of
13; trip counts and divisors may be symbolic. The same holds for a number composed of several loops, such as
``x = f0 * 64 + f1``, also where a condition ``x < 169`` limits it, as after an uneven split of a fused loop.
:func:`write_digits` writes numbers that are divided as sums of such digits.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...expr import (
    INDEX_TYPES,
    LE,
    LT,
    Expr,
    IntImm,
    Range,
    Var,
    cast,
    const,
    is_const_int,
    pre_order,
    same,
    transform,
    uses_var,
)
from ..affine import as_bound, linear_coefficients
from ..analyzer import Analyzer
from ..normal_form.forms import poly_key
from .iter_map import Digit, place_in, radix_of, read_digit

Parts = tuple[list[Expr], list[Expr], dict[Var, Range]]


def without_low_digits(analyzer: Analyzer, condition: Expr) -> Expr:
    """Return a comparison without digits that cannot change its result. ``x * 4 + y < 8`` is ``x < 2``, and ``8 <= x *
    4 + y`` is ``2 <= x``, for y from 0 to 3.

    Other conditions are returned unchanged.
    """
    parts = as_bound(condition)
    if parts is None:
        return condition
    e, bound, below = parts
    limit = analyzer.simplify(bound + 1 if below else bound)  # e < limit, or limit <= e
    line = linear_coefficients(e, list(dict.fromkeys(n for n in pre_order(e) if isinstance(n, Var))))
    if line is None or not isinstance(limit, IntImm) or not isinstance(line[1], IntImm):
        return condition
    factors = {
        v: c.value
        for v, c in zip(dict.fromkeys(n for n in pre_order(e) if isinstance(n, Var)), line[0], strict=True)
        if isinstance(c, IntImm)
    }
    end = limit.value - line[1].value
    for g in sorted(set(factors.values()), reverse=True):
        high = {v: c for v, c in factors.items() if c % g == 0}
        low = {v: c for v, c in factors.items() if v not in high}
        if g < 2 or not low or len(factors) != len(line[0]) or end % g:
            continue
        lo, hi = analyzer.const_int_bound(sum([v * c for v, c in low.items()], const(0, e.dtype)))
        if lo is None or hi is None or lo < 0 or hi >= g:
            continue
        number = analyzer.simplify(sum([v * (c // g) for v, c in high.items()], const(0, e.dtype)))
        edge = const(end // g, e.dtype)
        return LT(number, edge) if below else LE(edge, number)
    return condition


def value_count(analyzer: Analyzer, factors: dict[Var, Expr], ranges: Mapping[Var, Range], once: bool) -> Expr | None:
    """Return the number of consecutive values that the linear form takes; None when some values may be missing."""
    reach: Expr = IntImm(1)
    left = dict(factors)
    while left:
        for v, c in left.items():
            if (is_const_int(c) or analyzer.can_prove(c >= 1)) and (
                analyzer.can_prove_equal(c, reach)
                or (not once and analyzer.can_prove(c >= 1) and analyzer.can_prove(c <= reach))
            ):
                reach = analyzer.simplify(reach + c * (ranges[v].extent - 1))
                del left[v]
                break
        else:
            return None
    return reach


def with_digit_variables(
    analyzer: Analyzer, indices: list[Expr], tests: list[Expr], ranges: dict[Var, Range], once: bool
) -> Parts | None:
    """Return ``indices`` and ``tests`` with digits replaced by new variables, and the ranges of all variables.

    ``analyzer`` learns the new variables. The result is None when digits depend on each other or, with ``once``, when
    two iterations of the loops have the same digits.
    """
    for _ in range(8):
        number = _composed_number(indices, ranges)
        if number is None:
            return _separated(analyzer, indices, tests, ranges, once)
        parts = _as_one(analyzer, number, indices, tests, ranges, once)
        if parts is None:
            return None
        indices, tests, ranges = parts
    return None


def _separated(
    analyzer: Analyzer, indices: list[Expr], tests: list[Expr], ranges: dict[Var, Range], once: bool
) -> Parts | None:
    """Replace the digits of single loops."""
    wanted: dict[Var, list[tuple[Expr, Digit]]] = {}
    whole: set[Var] = set()
    stack: list[Any] = [*indices, *tests]
    while stack:
        n = stack.pop()
        digit = read_digit(n)
        if digit is not None and digit.number in ranges and not _uses(digit, ranges):
            wanted.setdefault(digit.number, []).append((n, digit))  # type: ignore[arg-type]
        elif isinstance(n, Var):
            whole.add(n)
        else:
            stack.extend(n.children())
    out = dict(ranges)
    replaced: dict[Expr, Expr] = {}
    for x, found in wanted.items():
        if x in whole or not analyzer.can_prove_equal(ranges[x].min, const(0, x.dtype)):
            return None
        counts = _independent(analyzer, [digit for _, digit in found], ranges[x].extent, once)
        if counts is None:
            return None
        made: dict[int, Var] = {}
        for (n, _), (place, count) in zip(found, counts, strict=True):
            if place not in made:
                made[place] = Var(f"{x.name}_digit", x.dtype)
                out[made[place]] = Range(const(0, x.dtype), count)
                analyzer.bind(made[place], out[made[place]])
            replaced[n] = made[place]
        del out[x]

    if not replaced:
        return indices, tests, ranges
    return [transform(e, replaced.get) for e in indices], [transform(e, replaced.get) for e in tests], out


def _uses(digit: Digit, ranges: Mapping[Var, Range]) -> bool:
    return any(uses_var(e, lambda v: v in ranges) for e in (digit.lower, digit.upper) if e is not None)


def _independent(
    analyzer: Analyzer, digits: Sequence[Digit], extent: Expr, once: bool
) -> list[tuple[int, Expr]] | None:
    """Return the number of the place of each digit, and how many values it takes.

    The result is None when the digits do not take their values independently of each other while the loop runs, or with
    ``once`` when iterations exist that have the same digits.
    """
    ends = [(analyzer.simplify(d.lower), _upper_end(analyzer, d, extent)) for d in digits]
    low, up = ends[0]
    if not once and all(same(a, low) and same(b, up) for a, b in ends) and same(up, extent):
        if not analyzer.can_prove(low >= 1):
            return None
        return [(0, analyzer.simplify((extent + low - 1) // low))] * len(ends)  # a single digit needs no whole period
    places = radix_of(analyzer, [*[e for pair in ends for e in pair], extent])
    if places is None:
        return None
    spans = [(place_in(analyzer, lower, places), place_in(analyzer, upper, places)) for lower, upper in ends]
    reached = 0
    for first, last in sorted(set(spans)):
        if first < reached or last < first or (once and first != reached):
            return None
        reached = last
    if once and not analyzer.can_prove_equal(places[reached], extent):
        return None
    return [(first, analyzer.simplify(places[last] // places[first])) for first, last in spans]


def _upper_end(analyzer: Analyzer, digit: Digit, extent: Expr) -> Expr:
    if digit.upper is None:
        return extent
    upper: Expr = analyzer.simplify(digit.upper)
    return extent if isinstance(upper, IntImm) and isinstance(extent, IntImm) and upper.value > extent.value else upper


def _composed_number(exprs: Sequence[Expr], ranges: Mapping[Var, Range]) -> Expr | None:
    """Return a sum of loops that is divided by a number. Without one, it is a sum of which a remainder is taken."""
    best: Expr | None = None
    for e in exprs:
        for n in pre_order(e):
            taken = _outside_digit(n, ranges)
            if taken is None or isinstance(taken.number, Var) or not uses_var(taken.number, lambda v: v in ranges):
                continue
            if any(_outside_digit(inner, ranges) is not None for inner in pre_order(taken.number)):
                continue
            if taken.upper is None:
                return taken.number
            best = taken.number if best is None else best
    return best


def _outside_digit(n: Any, ranges: Mapping[Var, Range]) -> Digit | None:
    """Return the digit that ``n`` is, where no loop changes its ends."""
    digit = read_digit(n)
    return None if digit is None or _uses(digit, ranges) else digit


def _as_one(
    analyzer: Analyzer, number: Expr, indices: list[Expr], tests: list[Expr], ranges: dict[Var, Range], once: bool
) -> Parts | None:
    """Return the expressions with the loops of ``number`` replaced by one loop over its values."""
    names = list(ranges)
    line = linear_coefficients(number, names)
    if line is None or not is_const_int(line[1], 0):
        return None
    factors = {v: c for v, c in zip(names, line[0], strict=True) if not is_const_int(c, 0)}
    trip_count = value_count(analyzer, factors, ranges, once)
    if trip_count is None or not all(is_const_int(ranges[v].min, 0) for v in factors):
        return None
    left: list[Expr] = []
    for test in tests:
        bound = as_bound(test)
        if bound is not None and bound[2]:
            limit = analyzer.simplify(number - bound[0] + bound[1] + 1)  # number < limit
            if not uses_var(limit, lambda v: v in ranges):
                if analyzer.can_prove(limit <= trip_count):
                    trip_count = limit
                    continue
                if analyzer.can_prove(trip_count <= limit):
                    continue
        left.append(test)
    if not analyzer.can_prove(trip_count >= 1):
        return None
    x = Var("iteration", number.dtype)

    def replaced(n: Any) -> Expr | None:
        taken = _outside_digit(n, ranges)
        if taken is not None and uses_var(taken.number, lambda v: v in factors):
            rest = taken.number - number
            if is_const_int(analyzer.simplify(rest if taken.upper is None else rest % taken.upper), 0):
                whole = taken.upper is None or analyzer.can_prove(taken.upper >= trip_count)
                return (x if whole else x % taken.upper) // taken.lower
        return None

    indices, left = [transform(e, replaced) for e in indices], [transform(e, replaced) for e in left]
    if any(uses_var(e, lambda v: v in factors) for e in (*indices, *left)):
        return None
    out = {v: r for v, r in ranges.items() if v not in factors}
    out[x] = Range(const(0, number.dtype), cast(number.dtype, trip_count))
    analyzer.bind(x, out[x])
    return [analyzer.simplify(e) for e in indices], [analyzer.simplify(e) for e in left], out


_serial = itertools.count()


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
