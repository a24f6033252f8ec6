"""Digits of loops: what the analyses say is compared with all iterations of small loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.tir.arith import Analyzer
from tilewright.tir.arith.itermap import invert, with_digit_variables
from tilewright.tir.arith.itermap.iter_map import radix_of, read_digit
from tilewright.tir.expr import Range, Reason, Var, const
from tilewright.tir.walk import substitute


def digits_at_random(rng, x):
    """One to three digits of ``x``."""
    out = []
    for _ in range(int(rng.integers(1, 4))):
        lower, upper = int(rng.choice([1, 2, 3, 4, 6, 8])), int(rng.choice([0, 2, 3, 4, 6, 8, 12, 24]))
        e = x % upper if upper else x
        e = e // lower if lower > 1 else e
        if e is not x:
            out.append(e)
    return out


def values(exprs, env):
    at = {v: const(n, v.dtype) for v, n in env.items()}
    return tuple(int(Analyzer().simplify(substitute(e, at))) for e in exprs)


def bound(*loops):
    analyzer = Analyzer()
    for v, extent in loops:
        analyzer.bind(v, Range.from_extent(extent))
    return analyzer


@pytest.mark.parametrize("seed", range(40))
def test_digits_that_are_called_independent_take_all_combinations(seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        x, extent = Var("x"), int(rng.integers(1, 49))
        analyzer = bound((x, extent))
        digits = [analyzer.simplify(e) for e in digits_at_random(rng, x)]
        once = bool(rng.integers(2))
        found = with_digit_variables(analyzer, digits, [], {x: Range.from_extent(extent)}, once)
        if found is None:
            continue
        exprs, _, ranges = found
        reached = [values(digits, {x: n}) for n in range(extent)]
        box = itertools.product(*[range(int(r.extent)) for r in ranges.values()])
        said = [values(exprs, dict(zip(ranges, point, strict=True))) for point in box]
        assert set(said) == set(reached), (digits, extent)
        if once:
            assert len(said) == len(reached), (digits, extent)


def test_a_last_period_that_is_cut_short_makes_digits_dependent():
    x = Var("x")  # x // 6 is 1 for 6 and 7 only, where x % 4 is 2 and 3
    assert with_digit_variables(bound((x, 8)), [x % 4, x // 6], [], {x: Range.from_extent(8)}, False) is None


@pytest.mark.parametrize("seed", range(40))
def test_solutions_are_the_iterations_that_give_the_values(seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):
        v, w = Var("v"), Var("w")
        doms = {v: Range.from_extent(int(rng.integers(1, 25))), w: Range.from_extent(int(rng.integers(1, 9)))}
        analyzer = bound(*[(x, int(r.extent)) for x, r in doms.items()])
        indices = [*digits_at_random(rng, v), w] if rng.integers(2) else [v * int(rng.integers(1, 12)) + w]
        indices = [e + 2 if rng.integers(2) else 5 - e for e in indices]
        places = [Var(f"p{n}") for n in range(len(indices))]
        found = invert(analyzer, doms, indices, places)
        if isinstance(found, Reason):
            continue
        solved, tests = found
        for point in itertools.product(*[range(int(r.extent)) for r in doms.values()]):
            env = dict(zip(doms, point, strict=True))
            at = dict(zip(places, values(indices, env), strict=True))
            assert values([solved[v], solved[w]], at) == point
            assert all(values(tests, at))


def test_a_radix_is_a_chain_of_divisors():
    analyzer, n = Analyzer(), Var("n")
    assert [int(e) for e in radix_of(analyzer, [const(24), const(4), const(4)])] == [1, 4, 24]
    assert radix_of(analyzer, [const(6), const(4)]) is None
    assert radix_of(analyzer, [n, n * 4]) is None, "n may be 0"
    analyzer.bind(n, (1, None))
    assert [str(e) for e in radix_of(analyzer, [n * 4, n])] == ["1", "n", "n * 4"]


def test_digits_are_read_from_quotients_and_remainders():
    x, n = Var("x"), Var("n")
    shown = [read_digit(e) for e in (x // 4, x % 8, x % 8 // 4, x // 4 % 8, x // n % 2, x, x + 1)]
    assert [None if d is None else (str(d.number), str(d.lower), str(d.upper)) for d in shown] == [
        ("x", "4", "None"), ("x", "1", "8"), ("x", "4", "8"), ("x", "4", "32"), ("x", "n", "n * 2"), None, None,
    ]  # fmt: skip
