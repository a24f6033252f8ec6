"""This module does the test of :mod:`.dependence` by integers alone, for constant factors, divisors and ranges.

Most indices are sums of loops, or of digits of fused loops, times constants, as ``split`` and ``fuse`` make them. For
these neither an analyzer nor new variables are needed. Where this test does not decide, the general one may.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..arith.itermap import digit_of
from ..arith.normal_form.linear import Linear, collect, expression_key
from ..expr import Expr, IntImm, Range, Var, uses_var
from ..stmt import For
from .access import Access

Span = tuple[int, int]
"""The first and the last value of a loop, or of a digit of it."""

Digit = tuple[Var, int, "int | None"]
"""``v % upper // lower`` as (v, lower, upper); a loop itself is (v, 1, None)."""


def undetermined(chain: Sequence[For], store: Access, other: Access, wanted: Iterable[Var]) -> tuple[Var, ...] | None:
    """Return the ``wanted`` loops of ``chain`` that may differ where both accesses address one element.

    None means that this is not known.
    """
    if store.moving or other.moving:
        return None
    system = _System(chain, store.loops, other.loops)
    rows = []
    for f, e, g, h in zip(store.indices, store.extents, other.indices, other.extents, strict=True):
        one, two = collect(f, system.term), collect(g, system.term)
        if one is not None and two is not None and isinstance(e, IntImm) and isinstance(h, IntImm):
            rows.append((one, e.value, two, h.value))
    system.solve(rows)
    missing = tuple([v for v in wanted if not system.is_known(v)])
    alike = len(rows) == len(store.indices) and all(f == g and e == h for f, e, g, h in rows)
    met = {term[0] for f, _, g, _ in rows for term in (*f.terms, *g.terms) if term in system.moving}
    return missing if not missing or (alike and met.isdisjoint(missing)) else None


class _System:
    """The equations between the indices of two accesses, and the digits ``known`` to be equal in both."""

    def __init__(self, chain: Sequence[For], mine: Sequence[For], others: Sequence[For]) -> None:
        self.chain, self.mine, self.others = (
            {lp.loop_var: _span(lp) for lp in loops} for loops in (chain, mine, others)
        )
        self.ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in (*chain, *mine, *others)}
        self.moving: set[Any] = set()
        self.known: set[Any] = set()

    def term(self, e: Expr) -> Linear | None:
        """Return ``e`` as one term: a digit of a loop, or the key of an expression without loops."""
        digit = digit_of(e, self.ranges)
        if digit is not None:
            self.moving.add(digit)
            return Linear(0, {digit: 1})
        return None if uses_var(e, self.ranges.__contains__) else Linear(0, {expression_key(e): 1})

    def solve(self, rows: Sequence[tuple[Linear, int, Linear, int]]) -> None:
        """Find the digits of the chain's loops that the equations make equal, each with the help of those before."""
        left = [(d, row) for row in rows for d in row[0].terms if d in self.moving and d[0] in self.chain]
        found = True
        while found:
            found = False
            for digit, row in left:
                if not self.is_equal(digit) and self.determines(digit, *row):
                    self.known.add(digit)
                    found = True

    def is_equal(self, digit: Digit) -> bool:
        """Return whether the digit is known to be equal in both accesses."""
        return digit in self.known or self.is_known(digit[0])

    def is_known(self, v: Var) -> bool:
        """Return whether the value of a loop of the chain is known to be equal in both accesses. It is when all its
        digits are."""
        span = self.chain[v]
        if span is not None and span[0] == span[1]:
            return True
        expected: int | None = 1
        for _, lower, upper in sorted([d for d in self.known if d[0] is v], key=lambda d: d[1]):
            if lower != expected or (upper is not None and upper % lower):
                return False
            expected = upper
        return expected is None or (span is not None and 0 <= span[0] and span[1] < expected)

    def determines(self, digit: Digit, f: Linear, e: int, g: Linear, h: int) -> bool:
        """Return whether ``f + i == g + j`` makes the digit equal. Here i goes from 0 to e - 1 and j from 0 to h -
        1."""
        factor = f.terms[digit]
        if g.terms.get(digit) != factor:
            return False
        low = high = f.const - g.const
        terms = {**f.terms, **g.terms}
        del terms[digit]
        for term in terms:
            found = self.difference(term, f.terms.get(term, 0), g.terms.get(term, 0))
            if found is None:
                return False
            low, high = low + found[0], high + found[1]
        return high + e - 1 < abs(factor) and h - 1 - low < abs(factor)

    def difference(self, term: Any, a: int, b: int) -> Span | None:
        """Return the least and the greatest value of ``a`` times the term here minus ``b`` times the term there."""
        if term not in self.moving:
            return (0, 0) if a == b else None
        if term[0] in self.chain:
            if self.is_equal(term):
                return _times(self.chain, term, a - b)
            one, two = _times(self.chain, term, a), _times(self.chain, term, -b)
        else:
            one, two = _times(self.mine, term, a), _times(self.others, term, -b)
        return None if one is None or two is None else (one[0] + two[0], one[1] + two[1])


def _span(loop: For) -> Span | None:
    first, count = loop.min, loop.extent
    if isinstance(first, IntImm) and isinstance(count, IntImm) and count.value > 0:
        return first.value, first.value + count.value - 1
    return None


def _times(spans: Mapping[Var, Span | None], digit: Digit, factor: int) -> Span | None:
    """Return the least and the greatest value of ``factor`` times the digit; None when that is not known."""
    if factor == 0:
        return 0, 0
    v, lower, upper = digit
    span = spans.get(v)
    if upper is not None:
        span = 0, (upper - 1 if span is None or span[0] < 0 else min(upper - 1, span[1]))
    if span is None:
        return None
    ends = span[0] // lower * factor, span[1] // lower * factor
    return min(ends), max(ends)
