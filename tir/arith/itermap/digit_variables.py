"""This module replaces quotients and remainders of loops, their mixed-radix digits, by independent variables.

``f // 13`` and ``f % 13`` take their values independently of each other when the trip count of ``f`` is a multiple of
13. The same holds for a number composed of several loops, such as ``x = f0 * 64 + f1``, also where a condition
``x < 169`` limits it, as after an uneven split of a fused loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...expr import GE, GT, LE, LT, Expr, FloorDiv, FloorMod, IntImm, Range, Var, const, is_const_int
from ...walk import pre_order, uses_var
from ..affine import linear_coefficients
from ..analyzer import Analyzer
from .inverse_map import digit_of
from .symbolic_digit_variables import with_symbolic_digits

Parts = tuple[list[Expr], list[Expr], dict[Var, Range]]


def as_bound(condition: Expr) -> tuple[Expr, Expr, bool] | None:
    """Return ``condition`` as (e, b, True) for ``e <= b`` or (e, b, False) for ``e >= b``; None when it is neither."""
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


def without_low_digits(analyzer: Analyzer, condition: Expr) -> Expr:
    """Return ``x * 4 + y < 8`` as ``x < 2``, and ``8 <= x * 4 + y`` as ``2 <= x``, for y from 0 to 3.

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
    parts = with_symbolic_digits(analyzer, indices, tests, ranges, once)
    if parts is None:
        return None
    indices, tests, ranges = parts
    for _ in range(8):
        number = _composed_number(indices, ranges)
        if number is None:
            return _single(analyzer, indices, tests, ranges, once)
        parts = _as_one(analyzer, number, indices, tests, ranges, once)
        if parts is None:
            return None
        indices, tests, ranges = parts
    return None


def _single(
    analyzer: Analyzer, indices: list[Expr], tests: list[Expr], ranges: dict[Var, Range], once: bool
) -> Parts | None:
    """Replace the digits of single loops."""
    wanted: dict[Var, dict[tuple[int, int | None], list[Expr]]] = {}
    whole: set[Var] = set()
    for e in (*indices, *tests):
        stack: list[Any] = [e]
        while stack:
            n = stack.pop()
            digit = digit_of(n, ranges)
            if digit is not None and digit[1:] != (1, None):
                x, lower, upper = digit
                wanted.setdefault(x, {}).setdefault((lower, upper), []).append(n)
            elif isinstance(n, Var):
                whole.add(n)
            else:
                stack.extend(n.children())
    if not wanted:
        return indices, tests, ranges
    out = dict(ranges)
    replaced: dict[Expr, Expr] = {}
    for x, parts in wanted.items():
        extent = ranges[x].extent
        if x in whole or not isinstance(extent, IntImm) or not is_const_int(ranges[x].min, 0):
            return None
        trip_count = extent.value
        last = 1
        for lower, upper in sorted((low, trip_count if up is None else min(up, trip_count)) for low, up in parts):
            # digits must not overlap, and the loop must run over whole periods of each
            if (
                lower < last
                or (once and lower != last)
                or (upper != trip_count and (trip_count % upper or upper % lower))
            ):
                return None
            last = upper
        if once and last != trip_count:
            return None
        for (lower, up), nodes in parts.items():
            top = trip_count if up is None else min(up, trip_count)
            digit_var = Var(f"{x.name}_digit", x.dtype)
            out[digit_var] = Range(const(0, x.dtype), const(-(-top // lower), x.dtype))
            analyzer.bind(digit_var, out[digit_var])
            replaced.update((n, digit_var) for n in nodes)
        del out[x]

    def replace(n: Any) -> Any:
        return replaced[n] if n in replaced else n.map_children(replace)

    return [replace(e) for e in indices], [replace(e) for e in tests], out


def _taken(n: Any) -> tuple[Expr, int, int | None] | None:
    """Return (x, lower, upper) when n is ``x % upper // lower`` but not x itself."""
    lower, upper = 1, None
    if isinstance(n, FloorDiv) and isinstance(n.b, IntImm) and n.b.value > 0:
        lower, n = n.b.value, n.a
    if isinstance(n, FloorMod) and isinstance(n.b, IntImm) and n.b.value > 0:
        upper, n = n.b.value, n.a
    return (n, lower, upper) if (lower, upper) != (1, None) else None


def _composed_number(exprs: Sequence[Expr], ranges: Mapping[Var, Range]) -> Expr | None:
    """Return a sum of loops that is divided, or else one of which a remainder is taken."""
    best: Expr | None = None
    for e in exprs:
        for n in pre_order(e):
            taken = _taken(n)
            if taken is None or isinstance(taken[0], Var) or not uses_var(taken[0], lambda v: v in ranges):
                continue
            if any(_taken(inner) is not None for inner in pre_order(taken[0])):
                continue
            if taken[2] is None:
                return taken[0]
            best = taken[0] if best is None else best
    return best


def _as_one(
    analyzer: Analyzer, number: Expr, indices: list[Expr], tests: list[Expr], ranges: dict[Var, Range], once: bool
) -> Parts | None:
    """Return the expressions with the loops of ``number`` replaced by one loop over its values."""
    names = list(ranges)
    line = linear_coefficients(number, names)
    if line is None or not is_const_int(line[1], 0):
        return None
    factors = {v: c for v, c in zip(names, line[0], strict=True) if not is_const_int(c, 0)}
    reach = value_count(analyzer, factors, ranges, once)
    if not isinstance(reach, IntImm) or not all(is_const_int(ranges[v].min, 0) for v in factors):
        return None
    trip_count, left = reach.value, []
    for test in tests:
        bound = as_bound(test)
        if bound is not None and bound[2]:
            above = analyzer.simplify(bound[0] - number - bound[1])  # number + above <= 0
            if isinstance(above, IntImm):
                trip_count = min(trip_count, 1 - above.value)
                continue
        left.append(test)
    if trip_count < 1:
        return None
    x = Var("iteration", number.dtype)

    def replace(n: Any) -> Any:
        taken = _taken(n)
        if taken is not None and uses_var(taken[0], lambda v: v in factors):
            core, lower, upper = taken
            rest = analyzer.simplify(core - number if upper is None else (core - number) % upper)
            if is_const_int(rest, 0):
                digit: Expr = x if upper is None or upper >= trip_count else x % upper
                return digit // lower
        return n.map_children(replace)

    indices, left = [replace(e) for e in indices], [replace(e) for e in left]
    if any(uses_var(e, lambda v: v in factors) for e in (*indices, *left)):
        return None
    out = {v: r for v, r in ranges.items() if v not in factors}
    out[x] = Range(const(0, number.dtype), const(trip_count, number.dtype))
    analyzer.bind(x, out[x])
    return [analyzer.simplify(e) for e in indices], [analyzer.simplify(e) for e in left], out
