"""What the solver proves is true, and more than the analyzer proves alone."""

import itertools
import random

import pytest

from tilewright.tir.arith import Analyzer
from tilewright.tir.arith.smt import solving
from tilewright.tir.expr import And, IntImm, Not, Or, Range, Var, max_, min_
from tilewright.tir.walk import substitute

pytest.importorskip("z3")


@pytest.fixture
def known():
    """An analyzer, sizes n and t from 1, i in [0, n), j in [0, 16), x in [0, 100)."""
    an = Analyzer()
    n, t, i, j, x = map(Var, "ntijx")
    for size in (n, t):
        an.bind(size, (1, None))
    an.bind(i, Range(IntImm(0), n))
    an.bind(j, (0, 15))
    an.bind(x, (0, 99))
    return an, n, t, i, j, x


TRUE = {
    "squares": lambda n, t, i, j, x: i * i < n * n,
    "remainders of squares": lambda n, t, i, j, x: j * j % 16 < 10,
    "rounded up": lambda n, t, i, j, x: i * i // t < (n * n + t - 1) // t,
    "digits": lambda n, t, i, j, x: x // 3 + x % 3 <= 34,
    "scaled": lambda n, t, i, j, x: x * x // 5 <= x * 20,
    "either": lambda n, t, i, j, x: Or(x // 3 + x % 3 < 20, x > 50),
    "both": lambda n, t, i, j, x: And(j * j % 4 <= 1, x // 7 * 2 + x % 7 < 34),
    "never": lambda n, t, i, j, x: Not(j * j % 16 > 9),
}
FALSE = {
    "squares": lambda n, t, i, j, x: i * i < n,
    "remainders of squares": lambda n, t, i, j, x: j * j % 16 < 9,
    "rounded down": lambda n, t, i, j, x: i // t < n // t,
    "digits": lambda n, t, i, j, x: x // 3 + x % 3 <= 33,
    "memory": lambda n, t, i, j, x: Var("unknown") > x,
}


@pytest.mark.parametrize("name", TRUE)
def test_proves_more(known, name):
    an, *values = known
    assert not an.can_prove(TRUE[name](*values))
    with solving():
        assert an.can_prove(TRUE[name](*values))
    assert not an.can_prove(TRUE[name](*values))


@pytest.mark.parametrize("name", FALSE)
def test_proves_nothing_false(known, name):
    an, *values = known
    with solving():
        assert not an.can_prove(FALSE[name](*values))


def test_conditions_in_force_are_known(known):
    an, n, t, i, j, x = known
    claim = i * i + i < n * t
    with solving():
        assert not an.can_prove(claim)
        with an.constraint(t > i + 1):
            assert an.can_prove(claim)


def test_equality(known):
    an, n, t, i, j, x = known
    with solving():
        assert not an.can_prove_equal(x * x % 7, x % 7)
        assert an.can_prove_equal(x * x % 7, (x % 7) * (x % 7) % 7)
        assert an.can_prove_equal(x // 3 % 2, (x % 6) // 3)


def test_random_claims_hold_where_they_are_proven():
    rng = random.Random(7)
    a, b = Var("a"), Var("b")
    domain = [dict(zip((a, b), map(IntImm, at), strict=True)) for at in itertools.product(range(-3, 5), range(1, 8))]

    def draw(depth):
        if depth == 0:
            return rng.choice((a, b, IntImm(rng.randint(-7, 7))))
        x, y = draw(depth - 1), draw(depth - 1)
        kind = rng.randrange(7)
        if kind == 3:
            return x // rng.choice((2, 3, 7))
        if kind == 4:
            return x % rng.choice((2, 3, b))
        return (x + y, x - y, x * y, None, None, min_(x, y), max_(x, y))[kind]

    an = Analyzer()
    an.bind(a, (-3, 4))
    an.bind(b, (1, 7))
    proven = more = 0
    for _ in range(150):
        left = draw(3)
        values = [Analyzer().simplify(substitute(left, at)).value for at in domain]
        claim = left <= IntImm(max(values) - (rng.random() < 0.3))
        alone = an.can_prove(claim)
        with solving():
            holds = an.can_prove(claim)
        assert not holds or all(v <= claim.b.value for v in values), claim
        proven, more = proven + holds, more + (holds and not alone)
    assert proven > 60 and more > 5


def test_answers_do_not_depend_on_time(known):
    an, n, t, i, j, x = known
    hard = Not(And(And(n * n * n + t * t * t == x * x * x, n > 0), And(t > 0, x > 0)))
    with solving():
        assert [an.can_prove(hard) for _ in range(2)] == [False, False]
