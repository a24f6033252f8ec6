"""The simplifier keeps the value: random programs, negatives included, before and after."""

import itertools
import math
import random

import pytest

from tilewright.tir import And, Cast, Expr, FloatImm, IntImm, Not, Or, Select, Var, const, parse
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.arith import Analyzer, eval_interval, linear_coefficients
from tilewright.tir.expr import op
from tilewright.tir.expr.intrinsics.control_and_memory import if_then_else
from tilewright.tir.interpret.interpret_expr import ExprCompiler
from tilewright.tir.stmt import BufferStore
from tilewright.tir.walk import pre_order

VI, J, K, N = Var("i"), Var("j"), Var("k"), Var("n")
DOMAINS = {VI: range(-5, 6), J: range(0, 8), K: range(-3, 13), N: range(1, 9)}


def fresh() -> Analyzer:
    an = Analyzer()
    an.bind(N, (1, None))
    for v, d in DOMAINS.items():
        if v is not N:
            an.bind(v, (d.start, d.stop - 1))
    return an


def random_index(rng: random.Random, depth: int, symbolic: bool) -> Expr:
    if depth == 0 or rng.random() < 0.1:
        leaves = [VI, J, K, N] if symbolic else [VI, J, K]
        return rng.choice(leaves) if rng.random() < 0.75 else const(rng.randint(-9, 17), "int32")
    kind = rng.choice("++--***//%%mMs?")
    a = random_index(rng, depth - 1, symbolic)
    if kind in "/%":
        if symbolic and rng.random() < 0.3:
            b: Expr = N if rng.random() < 0.6 else N * rng.choice([2, 4])
        else:
            b = const(rng.choice([2, 3, 4, 6, 8, 16, -3, 1]), "int32")
        return a // b if kind == "/" else a % b
    if kind == "*" and rng.random() < 0.7:
        return a * rng.choice([-3, -1, 2, 4, 8, 5])
    b = random_index(rng, depth - 1, symbolic)
    if kind == "+":
        return a + b
    if kind == "-":
        return a - b
    if kind == "*":
        return a * b
    if kind in "mM":
        return (op.min_ if kind == "m" else op.max_)(a, b)
    c = random_condition(rng, depth - 1, symbolic)
    return Select(c, a, b) if kind == "s" else if_then_else(c, a, b)


def random_condition(rng: random.Random, depth: int, symbolic: bool) -> Expr:
    kind = rng.randint(0, 9) if depth > 0 else rng.randint(0, 5)
    if kind <= 6:
        a, b = random_index(rng, max(depth - 1, 0), symbolic), random_index(rng, max(depth - 1, 0), symbolic)
        return [a < b, a <= b, a > b, a >= b, a.equal(b), ~(a.equal(b)), a < b][kind]
    a, b = random_condition(rng, depth - 1, symbolic), random_condition(rng, depth - 1, symbolic)
    return [And(a, b), Or(a, b), Not(a)][kind - 7]


def points(rng: random.Random, count: int) -> list[dict[Var, int]]:
    return [{v: rng.choice(d) for v, d in DOMAINS.items()} for _ in range(count)]


def agree(e: Expr, new: Expr, where: list[dict[Var, int]]) -> None:
    ex = ExprCompiler(lambda *_: None, {})
    f, g = ex.compile(e), ex.compile(new)
    for p in where:
        for v, x in p.items():
            ex.registers[ex.slot(v)] = x
        assert f() == g(), f"{e} is {f()}, simplified {new} is {g()} at { {v.name: x for v, x in p.items()} }"


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_random_index_expressions(seed: int, symbolic: bool) -> None:
    rng = random.Random(seed * 2 + symbolic)
    for _ in range(120):
        e = random_index(rng, 4, symbolic)
        an = fresh()
        new = an.simplify(e)
        where = points(rng, 30)
        agree(e, new, where)
        lo, hi = an.const_int_bound(e)
        ex = ExprCompiler(lambda *_: None, {})
        f = ex.compile(e)
        for p in where:
            for v, x in p.items():
                ex.registers[ex.slot(v)] = x
            assert (lo is None or lo <= f()) and (hi is None or f() <= hi), f"{e} is {f()}, bounds {lo}, {hi}"
        again = fresh().simplify(new)
        agree(new, again, where)


@pytest.mark.parametrize("seed", range(6))
def test_random_conditions(seed: int) -> None:
    rng = random.Random(100 + seed)
    for _ in range(100):
        e = random_condition(rng, 3, seed % 2 == 1)
        agree(e, fresh().simplify(e), points(rng, 40))


@pytest.mark.parametrize("seed", range(4))
def test_random_constraints(seed: int) -> None:
    rng = random.Random(200 + seed)
    checked = 0
    for _ in range(150):
        c, e = random_condition(rng, 2, seed % 2 == 1), random_index(rng, 3, seed % 2 == 1)
        d = random_condition(rng, 2, False)
        an = fresh()
        with an.constraint(c):
            new, known = an.simplify(e), an.simplify(d)
        ex = ExprCompiler(lambda *_: None, {})
        holds, f, g, h, m = [ex.compile(x) for x in (c, e, new, d, known)]
        for p in points(rng, 40):
            for v, x in p.items():
                ex.registers[ex.slot(v)] = x
            if holds():
                checked += 1
                assert f() == g(), f"under {c}: {e} became {new}"
                assert h() == m(), f"under {c}: {d} became {known}"
    assert checked > 500


@pytest.mark.parametrize("seed", range(4))
def test_random_intervals(seed: int) -> None:
    rng = random.Random(300 + seed)
    found = 0
    for _ in range(100):
        e = random_index(rng, 3, True)
        an = Analyzer()
        an.bind(N, (1, None)), an.bind(K, (-3, 12))
        ends = eval_interval(e, {VI: (const(-5), const(5)), J: (const(0), N - 1)}, an)
        if ends is None:
            continue
        found += 1
        ex = ExprCompiler(lambda *_: None, {})
        f, lo, hi = ex.compile(e), ex.compile(ends[0]), ex.compile(ends[1])
        for n, k in itertools.product((1, 2, 5), (-3, 0, 4)):
            for i, j in itertools.product((-5, -1, 0, 2, 5), range(n)):
                for v, x in ((VI, i), (J, j), (N, n), (K, k)):
                    ex.registers[ex.slot(v)] = x
                assert lo() <= f() <= hi(), f"{e} is {f()}, interval [{ends[0]}, {ends[1]}]"
    assert found > 40


@pytest.mark.parametrize("seed", range(2))
def test_random_linear_forms(seed: int) -> None:
    rng = random.Random(400 + seed)
    for _ in range(100):
        e = random_index(rng, 3, True)
        got = linear_coefficients(e, [VI, J])
        if got is not None:
            (ci, cj), base = got
            assert not any(v in (VI, J) for v in [*_vars(ci), *_vars(cj), *_vars(base)])
            agree(e, ci * VI + cj * J + base, points(rng, 20))


def _vars(e: Expr) -> list[Var]:
    out = [e] if isinstance(e, Var) else []
    for c in e.children():
        out += _vars(c)  # type: ignore[arg-type]
    return out


def test_floats_keep_their_bits() -> None:
    x = Var("x", "float32")
    assert simplify(x * 1.0) is x
    assert simplify(x / 1.0) is x
    assert simplify(x - 0.0) is x
    kept = x + 0.0
    assert simplify(kept) is kept
    third = simplify(FloatImm(1.0) / FloatImm(3.0))
    assert isinstance(third, FloatImm) and third.value == 0.3333333432674408
    assert simplify(Cast("float64", FloatImm(0.1))).value == 0.10000000149011612
    compare = Not(x < 1.0)
    assert simplify(compare) is compare


def test_wrapping_data_is_not_assumed_to_be_exact() -> None:
    from tilewright.tir import decl_buffer

    a = decl_buffer((4,), "int32", "a")[0]
    assert isinstance(simplify(a + 1 < a), Expr) and not isinstance(simplify(a + 1 < a), IntImm)
    assert simplify(a - a).value == 0
    assert fresh().can_prove(a % 8 < 8)
    for e in (a + 56, Select(a < 0, a + 56, a)):  # a place that counts from the end, kept inside
        assert fresh().const_int_bound(op.min_(op.max_(e, 0), 55)) == (0, 55)
        assert fresh().const_int_bound(op.max_(e, 7)) == (7, 2**31 - 1)
    small = decl_buffer((4,), "int8", "b")[0]
    assert fresh().can_prove(small.astype("int32") + 1 > small.astype("int32"))


@pytest.mark.parametrize(
    ("shape", "of"),
    [
        ((16, 40, 40, 2), (800, 64)), ((2, 16, 40, 40), (40, 1280)), ((24, 80), (16, 24, 5)), ((15, 192), (2, 160, 3, 3)),
        ((6, 10, 14), (28, 30)), ((5, 12, 7), (42, 2, 5)), ((40, 40, 30), (300, 160)),
    ],
)  # fmt: skip
def test_the_places_of_a_reshape_are_those_of_its_result(shape: tuple[int, ...], of: tuple[int, ...]) -> None:
    an, loops = Analyzer(), [Var(f"i{n}") for n in range(len(of))]
    for v, extent in zip(loops, of, strict=True):
        an.bind(v, (0, extent - 1))
    number = const(0, "int32")
    for v, extent in zip(loops, of, strict=True):
        number = number * extent + v
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    index = [an.simplify(number // s % e) for s, e in zip(strides, shape, strict=True)]
    place = sum([i * s for i, s in zip(index, strides, strict=True)], const(0, "int32"))
    assert str(an.simplify(place)) == str(an.simplify(number))


@pytest.mark.parametrize("seed", range(3))
def test_joined_digits_keep_their_value(seed: int) -> None:
    """The quotient's digit is one of a sum, or without a common factor; negative numbers too."""
    rng, joined = random.Random(700 + seed), 0
    for _ in range(60):
        lower, steps, w = rng.choice([1, 2]), rng.choice([2, 3, 5]), rng.choice([4, 6, 10])
        u = lower * steps
        y = VI * rng.choice([1, 3, 8]) + K * rng.choice([0, 1, 5])
        e = J * rng.choice([1, 2, 32]) + rng.choice([0, 0, 3])
        two = ((e + y // u) % w * steps + y % u // lower) * rng.choice([1, 7])
        joined += str(fresh().simplify(two)).count("%") == 1
        agree(two, fresh().simplify(two), points(rng, 20))
        g = rng.choice([2, 5, 8])
        sum_ = (VI * (g * 8) + K * g + J % g) // (g * w) * (g * w) + (VI * 8 + K) % w * g + J % g
        agree(sum_, fresh().simplify(sum_), points(rng, 20))
    assert joined > 20


@pytest.mark.parametrize("kind", ["vectorized", "serial"])
def test_a_lane_that_a_condition_leaves_alone_stays_a_lane(kind):
    """A loop over steps has the constant; one over lanes becomes a vector with a mask."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((48,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.{kind}(16):
        if 32 + i < 33:
            B[i] = A[32 + i]
""")
    (store,) = [n for n in pre_order(simplify(func).body) if isinstance(n, BufferStore)]
    assert isinstance(store.indices[0], Var if kind == "vectorized" else IntImm)
