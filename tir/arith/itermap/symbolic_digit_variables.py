"""This module replaces ``f // n`` and ``f % n``, for a loop of symbolic trip count ``n * 32``, by independent
variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...expr import Expr, FloorDiv, FloorMod, IntImm, Range, Var, const
from ...walk import uses_var
from ..analyzer import Analyzer

Parts = tuple[list[Expr], list[Expr], dict[Var, Range]]
Digit = tuple[Expr, "Expr | None"]
"""The pair (lower, upper) of ``x % upper // lower``; an upper of None stands for the loop's extent."""


def with_symbolic_digits(
    analyzer: Analyzer, indices: list[Expr], tests: list[Expr], ranges: dict[Var, Range], once: bool
) -> Parts | None:
    """Return ``indices`` and ``tests`` with symbolic digits replaced by new variables, and the ranges of all variables.

    Digits are replaced when the loop's extent or the digit's place is symbolic; ``analyzer`` learns the new variables.
    The result is None when the digits of a loop depend on each other or, with ``once``, when two of its iterations have
    the same digits. A loop that has other digits, or is used itself, is left unchanged.
    """
    wanted: dict[Var, list[tuple[Expr, Digit]]] = {}
    whole: set[Var] = set()
    stack: list[Any] = [*indices, *tests]
    while stack:
        n = stack.pop()
        found = _digit(n, ranges)
        if found is not None:
            wanted.setdefault(found[0], []).append((n, found[1]))
        elif isinstance(n, Var):
            whole.add(n)
        else:
            stack.extend(n.children())
    out = dict(ranges)
    replaced: dict[Expr, Expr] = {}
    for x, parts in wanted.items():
        numbers = (ranges[x].extent, *[e for _, digit in parts for e in digit if e is not None])
        if x in whole or all(isinstance(e, IntImm) for e in numbers):
            continue
        if not analyzer.can_prove_equal(ranges[x].min, const(0, x.dtype)):
            return None
        places = _independent(analyzer, [digit for _, digit in parts], ranges[x].extent, once)
        if places is None:
            return None
        made: dict[Expr, Var] = {}
        for (n, _), (place, extent) in zip(parts, places, strict=True):
            if place not in made:
                made[place] = Var(f"{x.name}_digit", x.dtype)
                out[made[place]] = Range(const(0, x.dtype), extent)
                analyzer.bind(made[place], out[made[place]])
            replaced[n] = made[place]
        del out[x]

    def replace(n: Any) -> Any:
        return replaced[n] if n in replaced else n.map_children(replace)

    return ([replace(e) for e in indices], [replace(e) for e in tests], out) if replaced else (indices, tests, ranges)


def _digit(n: Any, ranges: Mapping[Var, Range]) -> tuple[Var, Digit] | None:
    """Return (x, (lower, upper)) for ``x % upper // lower`` or ``x // lower % (upper // lower)`` of one of the
    loops."""
    if not isinstance(n, (FloorDiv, FloorMod)):
        return None
    lower: Expr = const(1, n.dtype)
    upper: Expr | None = None
    if isinstance(n, FloorDiv):
        lower, n = n.b, n.a
    if isinstance(n, FloorMod):
        upper, n = n.b, n.a
        if isinstance(n, FloorDiv) and isinstance(lower, IntImm) and lower.value == 1:
            lower, upper, n = n.b, upper * n.b, n.a
    if not isinstance(n, Var) or n not in ranges or (upper is None and isinstance(lower, IntImm) and lower.value == 1):
        return None
    if any(uses_var(e, lambda v: v in ranges) for e in (lower, upper) if e is not None):
        return None
    return n, (lower, upper)


def _independent(analyzer: Analyzer, digits: list[Digit], extent: Expr, once: bool) -> list[tuple[Expr, Expr]] | None:
    """Return the place and the number of values of each digit (one expression for equal places).

    The result is None when the digits do not take their values independently of each other while the loop runs, or with
    ``once`` when iterations exist that have the same digits.
    """
    ends = [(analyzer.simplify(low), extent if up is None else analyzer.simplify(up)) for low, up in digits]
    out: dict[int, tuple[Expr, Expr]] = {}
    last: Expr = const(1, extent.dtype)
    while len(out) < len(ends):
        left = [k for k in range(len(ends)) if k not in out]
        lowest = next((k for k in left if _is_lowest(analyzer, k, {j: ends[j] for j in left})), None)
        if lowest is None or _times(analyzer, last, ends[lowest][0], once) is None:
            return None
        low, last = ends[lowest]
        count = _times(analyzer, low, last, False)
        if count is None:
            return None
        out.update({k: (low, count) for k in left if analyzer.can_prove_equal(ends[k][0], low)})
    if _times(analyzer, last, extent, once) is None:
        return None
    return [out[k] for k in range(len(ends))]


def _is_lowest(analyzer: Analyzer, k: int, ends: Mapping[int, tuple[Expr, Expr]]) -> bool:
    """Return whether each other digit equals digit ``k`` or has a place that is a multiple of its end."""
    low, up = ends[k]
    return all(
        analyzer.can_prove_equal(up, other_up)
        if analyzer.can_prove_equal(low, other)
        else _times(analyzer, up, other, False) is not None
        for other, other_up in ends.values()
    )


def _times(analyzer: Analyzer, low: Expr, high: Expr, same: bool) -> Expr | None:
    """Return ``high / low`` where it is a positive integer, and 1 with ``same``; else None."""
    if not analyzer.can_prove(low >= 1) or not analyzer.can_prove(high >= 1):
        return None
    count = analyzer.simplify(high // low)
    if not analyzer.can_prove_equal(count * low, high):
        return None
    return None if same and not analyzer.can_prove_equal(low, high) else count
