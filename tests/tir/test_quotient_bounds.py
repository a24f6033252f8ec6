"""What is proven about quotients holds for all values, and what tiles and windows need is proven."""

import itertools

import numpy as np
import pytest

from tilewright.tir import Var
from tilewright.tir.arith import Analyzer

A, B, R = Var("a"), Var("b"), Var("r")
ENDS = {A: 5, B: 2, R: 1}


def analyzer():
    an = Analyzer()
    for v, end in ENDS.items():
        an.bind(v, (0, end))
    return an


@pytest.mark.parametrize(
    ("condition", "claim"),
    [
        (A * 3 + B < 16, (A * 3 + B) // 2 <= 7),
        (A * 3 + B < 16, (A * 3 + B) // 2 + R <= 8),
        (A * 3 + B >= 7, (A * 3 + B) // 2 - R >= 2),
        (A * 6 + B < 16, (A * 6 + B) // 2 <= 7),  # which is a * 3 + b // 2
        (A * 3 + B < 18, (A * 3 + B) // 2 + R <= A * 3 // 2 + 2),
        (A * 3 + B < 18, (A * 3 + B) // 2 <= (A * 3 + 2) // 2),
        (A * 3 + B < 18, (A * 2 + 1) // 3 - A * 2 // 3 <= 1),
        (A * 3 + B < 18, (A * 2 + 1) // 3 >= A * 2 // 3),
    ],
)
def test_proven(condition, claim):
    an = analyzer()
    with an.constraint(condition):
        assert an.can_prove(claim)


def test_bounds_of_quotients_that_move_together():
    an = analyzer()
    assert an.const_int_bound((A * 5 + 7) // 16 - A * 5 // 16) == (0, 1)
    assert an.const_int_bound((A * 2 + 4) // 3 - A * 2 // 3 + R) == (1, 3)


@pytest.mark.parametrize("seed", range(8))
def test_random_claims_that_are_proven_hold(seed):
    rng = np.random.default_rng(seed)
    proven = 0
    for _ in range(60):
        p, q, s = (int(x) for x in rng.integers(-4, 5, 3))
        k1, k2, d = int(rng.integers(-6, 7)), int(rng.integers(-6, 7)), int(rng.integers(2, 6))
        m1, m2, m3, end = (int(x) for x in rng.integers(-3, 4, 4))
        x, y = A * p + B * q + k1, A * p + B * s + k2
        limit = int(rng.integers(-5, 12))
        claim = x // d * m1 + y // d * m2 + R * m3 <= end * 3
        an = analyzer()
        with an.constraint(x <= limit):
            if an.can_prove(claim):
                proven += 1
                for a, b, r in itertools.product(*[range(e + 1) for e in ENDS.values()]):
                    if a * p + b * q + k1 <= limit:
                        value = (a * p + b * q + k1) // d * m1 + (a * p + b * s + k2) // d * m2 + r * m3
                        assert value <= end * 3, (str(claim), a, b, r)
    assert proven > 5


@pytest.mark.parametrize(
    ("value", "ends"),
    [
        (A * 64 % 96, (0, 64)),
        ((A * 64 + 8) % 96, (8, 72)),
        ((A * 6 + B * 4 + 1) % 8, (1, 7)),
        ((A * 64 + R) % 96, (0, 95)),
    ],
)
def test_remainders_of_multiples_are_multiples(value, ends):
    assert analyzer().const_int_bound(value) == ends


@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_remainders_hold(seed):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        p, q, k = (int(x) for x in rng.integers(-9, 10, 3))
        upper, lower, more = int(rng.integers(1, 25)), int(rng.integers(1, 4)), int(rng.integers(-2, 3))
        lo, hi = analyzer().const_int_bound((A * p + B * q + k) % upper // lower + R * more)
        for a, b, r in itertools.product(*[range(end + 1) for end in ENDS.values()]):
            assert lo <= (a * p + b * q + k) % upper // lower + r * more <= hi
