"""What the analyzer can prove and what its answers look like."""

import random

import pytest

from tilewright.tir import (
    And,
    Broadcast,
    BufferStore,
    Evaluate,
    Expr,
    For,
    IfThenElse,
    IntImm,
    Ramp,
    Range,
    Select,
    Var,
    const,
    decl_buffer,
    structural_equal,
)
from tilewright.tir.analysis.regions import region_union
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.arith import Analyzer, eval_interval, linear_coefficients
from tilewright.tir.expr import op, same
from tilewright.tir.expr.intrinsics.control_and_memory import if_then_else, likely
from tilewright.tir.walk import substitute

VI, J, K, L, N, M = [Var(x) for x in "ijklnm"]


@pytest.fixture
def an() -> Analyzer:
    a = Analyzer()
    a.bind(N, (1, None))
    a.bind(M, (1, None))
    a.bind(VI, (0, 15))
    a.bind(J, Range.from_extent(8))
    a.bind(K, Range.from_extent((N + 7) // 8))
    a.bind(L, Range.from_extent(N))
    return a


SIMPLER = [
    ((VI * 8 + J) // 8, VI),
    ((VI * 8 + J) % 8, J),
    ((VI * 8 + J) // 4, VI * 2 + J // 4),
    ((VI * 8 + J) % 16, VI % 2 * 8 + J),
    (VI // 4 * 4 + VI % 4, VI),
    (VI // 2 // 3, VI // 6),
    (VI % 8 % 4, VI % 4),
    (VI // 4 % 2, VI % 8 // 4),
    ((VI * 8 + J) // 16 % 4, VI % 8 // 2),
    (VI % 8 // 4 * 4 + VI % 4, VI % 8),
    ((VI * N + L) // N, VI),
    ((VI * N + L) % N, L),
    (N - N % 8 - N // 8 * 8, const(0)),
    (M // N * N + M % N, M),
    ((M * N + N) // N, M + 1),
    (op.min_(VI, 15), VI),
    (op.max_(VI, J - 8), VI),
    (op.min_(op.min_(VI, N), 15), op.min_(VI, N)),
    (if_then_else(VI < 16, VI, J), VI),
    (if_then_else(VI < 8, VI % 8, J), if_then_else(VI < 8, VI, J)),
    (Select(VI >= 0, N, M), N),
    (-VI + 3, 3 - VI),
    (J * 2 - VI * 3 + N, J * 2 + N - VI * 3),
    (VI * 4 < 18, VI < 5),
    (VI * 8 + J < N + J, VI * 8 < N),
    (VI + 1 < N, VI < N - 1),
    (And(VI < 10, VI < 5), VI < 5),
    (And(VI < 5, VI < 10), VI < 5),
    (And(VI * 8 < N, VI * 8 < N), VI * 8 < N),
    ((VI * 8).astype("int64") + 0, (VI * 8).astype("int64")),
]


@pytest.mark.parametrize("before, after", SIMPLER, ids=[str(i) for i in range(len(SIMPLER))])
def test_simpler(an: Analyzer, before: object, after: object) -> None:
    got = an.simplify(before)
    assert same(got, after), f"{before} became {got}, not {after}"
    assert an.simplify(got) is got


PROVABLE = [
    VI * 8 + J < 128,
    K * 8 < N,
    (N + 7) // 8 * 8 >= N,
    N // 8 * 8 <= N,
    L * M + K < N * M + K,
    VI * N + L < 16 * N,
    op.min_(VI * 8 + 8, N) <= N,
    op.min_(8, N - K * 8) >= 1,
    op.max_(VI, J) >= VI,
    (N + 7) // 8 >= 1,
    N % M < M,
    ~((VI * 4 + 1).equal(VI * 2 + J * 2)),
    (L + 1) * M <= N * M,
]


@pytest.mark.parametrize("claim", PROVABLE, ids=[str(i) for i in range(len(PROVABLE))])
def test_provable(an: Analyzer, claim: object) -> None:
    assert an.can_prove(claim), str(claim)


@pytest.mark.parametrize("claim", [VI < 15, K * 8 + J < N, VI < N, N > 1, VI * N < 15 * N, L < M])
def test_not_provable(an: Analyzer, claim: object) -> None:
    assert not an.can_prove(claim)


def test_constraints(an: Analyzer) -> None:
    with an.constraint(K * 8 + J < N):
        assert an.can_prove(K * 8 + J < N)
        assert an.can_prove(K * 8 + J <= N - 1)
        with an.constraint(And(VI < 4, VI.equal(3))):
            assert same(an.simplify(VI + J), J + 3)
    assert not an.can_prove(K * 8 + J < N)
    assert same(an.simplify(VI + J), VI + J)
    with an.constraint(likely(VI * 8 + J < 100)):
        assert an.can_prove(VI <= 12) and not an.can_prove(VI <= 11)


def test_conditions_on_memory_are_not_remembered(an: Analyzer) -> None:
    a = decl_buffer((16,), "int32", "a")
    with an.constraint(a[VI] > 0):
        assert not an.can_prove(a[VI] > 0)


def test_bounds(an: Analyzer) -> None:
    assert an.const_int_bound(VI * 8 + J) == (0, 127)
    assert an.const_int_bound(VI - J) == (-7, 15)
    assert an.const_int_bound(N) == (1, None)
    assert an.const_int_bound(op.min_(N, 8)) == (1, 8)
    assert an.const_int_bound(L % 4) == (0, 3)
    assert an.const_int_bound(-VI // 4) == (-4, 0)


def test_binding_again_forgets_the_old_range() -> None:
    a = Analyzer()
    a.bind(VI, (0, 3))
    assert a.can_prove(VI < 4)
    a.bind(VI, (0, 7))
    assert not a.can_prove(VI < 4)
    a.bind(VI, J + 1)
    assert a.can_prove_equal(VI, J + 1)


def test_binding_again_under_a_condition() -> None:
    a = Analyzer()
    a.bind(VI, (0, 3))
    claim = VI < 4
    assert a.can_prove(claim)
    with a.constraint(J < N):
        a.bind(VI, (0, 7))
    assert not a.can_prove(claim)


def test_what_lets_hold_may_wrap() -> None:
    data = decl_buffer((4,), "int32", "data")
    a = Analyzer()
    a.bind(VI, data[0] % 16)
    assert a.const_int_bound(VI) == (0, 15) and a.can_prove(VI + 1 > VI)
    a.bind(J, data[0] + data[1])
    assert not a.can_prove(J + 1 > J)


def test_widened_constants() -> None:
    assert const(0.1).astype("float64").value == 0.10000000149011612


def test_intervals() -> None:
    a = Analyzer()
    a.bind(N, (1, None))
    lo, hi = eval_interval(VI * 8 + J, {VI: (const(0), N - 1), J: Range.from_extent(8)}, a)
    assert same(lo, const(0)) and same(hi, N * 8 - 1)
    lo, hi = eval_interval(K * 16 - VI, {VI: (const(0), const(3))})
    assert same(lo, K * 16 - 3) and same(hi, K * 16)
    lo, hi = eval_interval((K * 8 + VI) % 8, {VI: Range.from_extent(4)})
    assert (int(lo), int(hi)) == (0, 3)
    assert eval_interval(VI * K, {VI: Range.from_extent(4)}) is None


def test_linear_coefficients() -> None:
    coefficients, base = linear_coefficients((VI + J * 2) * 4 + N, [VI, J])
    assert [int(c) for c in coefficients] == [4, 8] and base is N
    coefficients, _ = linear_coefficients(VI * N + J, [VI, J])
    assert coefficients[0] is N
    assert linear_coefficients(VI // 2, [VI]) is None
    assert linear_coefficients(VI * J, [VI, J]) is None
    assert linear_coefficients(VI // 2 + J, [J]) is not None


def test_vectors() -> None:
    lanes = Ramp(VI * 8, const(1), 8)
    a = Analyzer()
    a.bind(VI, (0, 15))
    assert same(a.simplify(lanes + Broadcast(J, 8)), Ramp(VI * 8 + J, const(1), 8))
    assert same(a.simplify(lanes // Broadcast(const(8), 8)), Broadcast(VI, 8))
    assert same(a.simplify(lanes % Broadcast(const(8), 8)), Ramp(const(0), const(1), 8))
    assert same(a.simplify(lanes < Broadcast(const(128), 8)), Broadcast(const(1, "bool"), 8))
    kept = lanes < Broadcast(const(100), 8)
    assert a.simplify(kept) is kept
    assert same(a.simplify(Ramp(VI, const(0), 4)), Broadcast(VI, 4))
    assert same(a.simplify(Ramp(VI * 4, const(4), 4) // Broadcast(const(4), 4)), Ramp(VI, const(1), 4))


def test_statements() -> None:
    a = decl_buffer((128,), "float32", "a")
    store = BufferStore(a, const(1.0), ((VI * 8 + J) // 8 * 8 + J,))
    loop = For(VI, const(0), const(16), "serial", For(J, const(0), const(8), "serial", IfThenElse(VI < 16, store)))
    new = simplify(loop)
    assert same(new.body.body.indices[0], VI * 8 + J)
    assert simplify(new) is new
    guarded = For(VI, const(0), const(16), "serial", IfThenElse(VI < 3, BufferStore(a, const(1.0), (op.min_(VI, 2),))))
    assert simplify(guarded).body.then_case.indices[0] is VI
    dead = For(VI, const(0), const(16), "serial", IfThenElse(VI > 15, store))
    assert isinstance(simplify(dead).body, Evaluate)


def test_regions() -> None:
    a = decl_buffer((N, 16), "float32", "a")
    union = region_union([a[0:4, 1:2], a[2:8, 1:4]])
    assert [(int(r.min), int(r.extent)) for r in union.region] == [(0, 8), (1, 3)]
    with pytest.raises(ValueError, match="different buffers"):
        region_union([a[0:1, 0:1], decl_buffer((4, 4), name="b")[0:1, 0:1]])


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda x, y, z: (x * 8 + y) % 7, "(x * 8 + y) % 7"),
        (lambda x, y, z: x * 8 % 7, "x % 7"),
        (lambda x, y, z: x * 64 // 56, "x * 64 // 56"),
        (lambda x, y, z: (x * 4 + z) // 16, "x // 4"),
        (lambda x, y, z: (x * 4 + 5) // 16, "(x * 4 + 5) // 16"),
        (lambda x, y, z: x // 4 < 2, "x < 8"),
        (lambda x, y, z: x // 4 <= 2, "x <= 11"),
        (lambda x, y, z: 2 <= (x * 3 + y) // 4, "x * 3 + y >= 8"),
        (lambda x, y, z: x // 4 - 1 < 2, "x < 12"),
        (lambda x, y, z: -2 <= x * -1, "x <= 2"),
        (lambda x, y, z: 2 - x <= 1, "1 <= x"),
        (lambda x, y, z: op.min_(x * 2, y * 2), "T.min(x, y) * 2"),
        (lambda x, y, z: op.max_(x, y) - op.min_(x, y) + 1, "T.max(x, y) + 1 - T.min(x, y)"),
        (lambda x, y, z: 5 - x + y * 2, "y * 2 + 5 - x"),
        (lambda x, y, z: 0 - x - y, "0 - x - y"),
    ],
)
def test_forms_as_in_tvm(expression, expected) -> None:
    an = Analyzer()
    x, y, z = Var("x"), Var("y"), Var("z")
    for v, n in ((x, 100), (y, 8), (z, 4)):
        an.bind(v, Range.from_extent(n))
    assert str(an.simplify(expression(x, y, z))) == expected


@pytest.mark.parametrize("steps", [(2, 3), (2, 5), (3, 4), (4, 6), (5, 2), (2, 4, 8), (2, 5, 10), (3, 4, 7), (2, 3, 9)])
def test_digits_of_any_factors_join_only_where_they_fit(steps: tuple[int, ...]) -> None:
    """Sums of x // c and of (x % c) // d times factors, whether the factors divide one another or not."""
    x = Var("x")
    bounds = (*steps, None)
    for signs in range(1 << len(steps)):
        total: Expr = x % steps[0]
        for n, c in enumerate(steps):
            top = bounds[n + 1]
            term = (x if top is None else x % top) // c * c
            total = total + term if signs >> n & 1 else total - term
        simple = simplify(total)
        for value in (*range(-20, 41), 240, 1000):
            at = {x: const(value)}
            assert structural_equal(simplify(substitute(total, at)), simplify(substitute(simple, at))), simple


def test_quotients_that_are_always_as_far_apart() -> None:
    """(a*x + b*y + c) // m - (a*x + b*y + d) // m is a number only when it is the same for all x and y."""
    rng = random.Random(0)
    x, y = Var("x"), Var("y")
    an = Analyzer()
    an.bind(x, Range.from_extent(12))
    an.bind(y, Range.from_extent(8))
    for _ in range(300):
        a, b, m = rng.choice([3, 4, 8, 24, 360]), rng.choice([0, 2, 8]), rng.choice([4, 8, 12, 16])
        c, d = rng.randint(-40, 40), rng.randint(-40, 40)
        line = [a * i + b * j for i in range(12) for j in range(8)]
        found = an.simplify((x * a + y * b + c) // m - (x * a + y * b + d) // m)
        if isinstance(found, IntImm):
            assert {(v + c) // m - (v + d) // m for v in line} == {found.value}
        found = an.simplify((x * a + y * b + c) % m - (x * a + y * b + d) % m)
        if isinstance(found, IntImm):
            assert {(v + c) % m - (v + d) % m for v in line} == {found.value}


@pytest.mark.parametrize(
    "a, c, d, m, apart", [(360, 7, 0, 16, 0), (360, 15, 8, 16, 0), (24, 3, -5, 16, None), (24, 3, -5, 8, 1)]
)
def test_a_steady_difference_of_quotients(a, c, d, m, apart) -> None:
    an, x = Analyzer(), Var("x")
    found = an.simplify((x * a + c) // m - (x * a + d) // m)
    assert (found.value if isinstance(found, IntImm) else None) == apart


def test_a_quotient_by_a_size_is_compared_without_it() -> None:
    """x // n < k is x < k * n for sizes n, and k <= x // n is k * n <= x."""
    x, n = Var("x"), Var("n")
    an = Analyzer()
    an.bind(n, (1, None))
    an.bind(x, Range.from_extent(n * 32))
    assert an.can_prove(x // n < 32) and an.can_prove(x // n <= 31) and an.can_prove((x + n) // n >= 1)
    assert not an.can_prove(x // n < 31) and not an.can_prove(x // n >= 1) and not an.can_prove((x + n) // n < 32)
    unknown = Analyzer()  # n may be negative
    unknown.bind(x, Range.from_extent(n * 32))
    assert not unknown.can_prove(x // n < 32)
