"""Intervals of integers: each operation contains the results of random values, negatives included."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tilewright.tir.arith.normal_form.forms import EVERYTHING, Interval, interval_of

BINARY = {
    "plus": lambda a, b: a + b,
    "minus": lambda a, b: a - b,
    "times": lambda a, b: a * b,
    "divided": lambda a, b: a // b if b else None,
    "remainder": lambda a, b: a % b if b else None,
    "truncated": lambda a, b: int(math.trunc(a / b)) if b else 0,
    "truncated_remainder": lambda a, b: int(math.fmod(a, b)) if b else 0,
    "minimum": min,
    "maximum": max,
}
EXACT = {"plus", "minus", "minimum", "maximum", "times"}
"""Operations whose result has both ends as values when all ends are known."""


def random_interval(rng):
    """An interval, and values in it."""
    lo, hi = sorted(int(n) for n in rng.integers(-9, 10, size=2))
    some = [lo, hi, *(int(n) for n in rng.integers(lo, hi + 1, size=4))]
    far = [lo - 50, hi + 50]
    ends = [None if rng.integers(4) == 0 else lo, None if rng.integers(4) == 0 else hi]
    return Interval(*ends), some + [n for n, end in zip(far, ends, strict=True) if end is None]


def inside(n, interval):
    return (interval.lo is None or interval.lo <= n) and (interval.hi is None or n <= interval.hi)


@pytest.mark.parametrize("name", BINARY)
def test_results_lie_inside(name):
    rng = np.random.default_rng(7)
    for _ in range(600):
        (a, xs), (b, ys) = random_interval(rng), random_interval(rng)
        out = getattr(a, name)(b)
        results = [BINARY[name](x, y) for x, y in itertools.product(xs, ys)]
        assert all(n is None or inside(n, out) for n in results), (a, b, out)
        if name in EXACT and None not in (*a, *b):
            assert {out.lo, out.hi} <= set(results), (a, b, out)


def test_quotients_by_positive_numbers_reach_their_ends():
    rng = np.random.default_rng(8)
    for _ in range(600):
        lo, hi = sorted(int(n) for n in rng.integers(-20, 21, size=2))
        low, high = sorted(int(n) for n in rng.integers(1, 9, size=2))
        out = Interval(lo, hi).divided(Interval(low, high))
        results = [x // y for x in range(lo, hi + 1) for y in range(low, high + 1)]
        assert out == (min(results), max(results))


def test_unions_and_meets():
    rng = np.random.default_rng(9)
    for _ in range(300):
        (a, xs), (b, ys) = random_interval(rng), random_interval(rng)
        assert all(inside(n, a.union(b)) for n in (*xs, *ys))
        assert all(inside(n, a.meet(b)) == (inside(n, a) and inside(n, b)) for n in (*xs, *ys))
        assert a.negated().negated() == a


def test_values_that_a_type_does_not_hold_are_unknown():
    assert interval_of("int8") == (-128, 127)
    assert Interval(0, 127).unless_wrapped("int8") == (0, 127)
    assert Interval(0, 128).unless_wrapped("int8") == EVERYTHING == Interval(None, 3).unless_wrapped("int8")
    assert Interval(0, 0).times(Interval(None, 3)) == EVERYTHING


def small_intervals():
    ends = [None, *range(-3, 4)]
    return [Interval(lo, hi) for lo in ends for hi in ends if lo is None or hi is None or lo <= hi]


@pytest.mark.parametrize("name", BINARY)
def test_all_small_intervals(name):
    """Each pair of small intervals holds all results, so that an end which is off by one has nowhere to hide."""
    among = {a: [n for n in range(-7, 8) if inside(n, a)] for a in small_intervals()}
    for a, b in itertools.product(among, repeat=2):
        out = getattr(a, name)(b)
        results = {BINARY[name](x, y) for x in among[a] for y in among[b]} - {None}
        assert all(inside(n, out) for n in results), (a, b, out)
