"""Integers of every type before and after simplification, against an evaluation in plain Python; quotients at their edges.

Index arithmetic (int32 and int64 of variables and constants) never overflows: where it would, nothing is compared.
"""

import random

import pytest

from tilewright.tir import Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Select, Var, const, decl_buffer
from tilewright.tir.arith import Analyzer
from tilewright.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    BinaryOp,
    CmpOp,
    DType,
    Mul,
    Sub,
    cast,
    max_value,
    min_value,
)
from tilewright.tir.walk import pre_order

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
VI, VJ = Var("i"), Var("j", "int64")
RANGES = {VI: (0, 15), VJ: (-4, 7)}
PLAIN = {
    Add: lambda a, b: a + b,
    Sub: lambda a, b: a - b,
    Mul: lambda a, b: a * b,
    FloorDiv: lambda a, b: a // b,
    FloorMod: lambda a, b: a % b,
    Min: min,
    Max: max,
    LT: lambda a, b: a < b,
    LE: lambda a, b: a <= b,
    GT: lambda a, b: a > b,
    GE: lambda a, b: a >= b,
    EQ: lambda a, b: a == b,
    NE: lambda a, b: a != b,
}


class Overflow(Exception):
    """Index arithmetic that leaves its type."""


def wrapped(value: int, dtype: str) -> int:
    bits = DType(dtype).bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.startswith("int") and value >> (bits - 1) else value


def value_of(e: Expr, at: dict[Var, int], strict: bool = False) -> int:
    """The value with wrap-around; ``strict``: index arithmetic raises Overflow instead."""
    if isinstance(e, Var):
        return at[e]
    if isinstance(e, IntImm):
        return e.value
    if isinstance(e, Cast):
        return wrapped(value_of(e.value, at, strict), e.dtype)
    if isinstance(e, Select):
        return value_of(e.true_value if value_of(e.condition, at, strict) else e.false_value, at, strict)
    assert isinstance(e, BinaryOp), e
    out = PLAIN[type(e)](value_of(e.a, at, strict), value_of(e.b, at, strict))
    if isinstance(e, CmpOp):
        return int(out)
    if strict and e.dtype in ("int32", "int64") and not min_value(e.dtype) <= out <= max_value(e.dtype):
        raise Overflow
    return wrapped(out, e.dtype)


def draw(rng: random.Random, dtype: str, depth: int) -> Expr:
    if DType(dtype).is_bool:
        side = rng.choice(TYPES)
        return rng.choice([LT, LE, GT, GE, EQ, NE])(draw(rng, side, depth - 1), draw(rng, side, depth - 1))
    if depth <= 0 or rng.random() < 0.15:
        if dtype in ("int32", "int64") and rng.random() < 0.7:
            return VI if dtype == "int32" else VJ
        small = rng.choice([0, 1, 2, 3, 4, 8, 100, max_value(dtype), min_value(dtype)])
        return const(small if rng.random() < 0.9 or small > 127 else -small if min_value(dtype) else small, dtype)
    kind = rng.randint(0, 9)
    if kind <= 3:
        return Cast(dtype, draw(rng, rng.choice([t for t in TYPES if t != dtype]), depth - 1))
    if kind == 4:
        return Select(draw(rng, "bool", depth - 1), draw(rng, dtype, depth - 1), draw(rng, dtype, depth - 1))
    a = draw(rng, dtype, depth - 1)
    if kind == 5:
        return rng.choice([FloorDiv, FloorMod])(a, const(rng.choice([1, 2, 3, 4, 8, 100]), dtype))
    return rng.choice([Add, Sub, Mul, Min, Max])(a, draw(rng, dtype, depth - 1))


@pytest.mark.parametrize("dtype", [*TYPES, "bool"])
def test_simplified_integers_have_the_same_value(dtype: str) -> None:
    rng = random.Random(dtype)
    changed = compared = 0
    for _ in range(250):
        e = draw(rng, dtype, 4)
        an = Analyzer()
        for v, ends in RANGES.items():
            an.bind(v, ends)
        new = an.simplify(e)
        lo, hi = an.const_int_bound(e)
        changed += new is not e
        for _ in range(8):
            at = {v: rng.randint(*ends) for v, ends in RANGES.items()}
            try:
                expected = value_of(e, at, strict=True)
            except Overflow:
                continue
            compared += 1
            assert value_of(new, at) == expected, f"{e} became {new} at {at}"
            assert (lo is None or lo <= expected) and (hi is None or expected <= hi), f"{e} in {lo}, {hi} at {at}"
            if dtype == "bool":
                assert not an.can_prove(e) or expected
    assert changed > 50 and compared > 500


WRAPS = [
    (Max(Cast("uint32", VI) - const(5, "uint32"), const(1, "uint32")), 3, 2**32 - 2),
    (Min(Cast("uint32", VI - 4), const(2, "uint32")), 1, 2),
    (Cast("int64", Cast("int8", VI * 100)), 2, -56),
    (Cast("int32", Cast("uint8", VI * 30)) // 8, 9, 1),
    (Cast("int32", Cast("uint8", VI * 30 - 40)), 1, 246),
    (Cast("int32", Cast("int64", VI) * const(2**31, "int64")), 1, -(2**31)),
]


@pytest.mark.parametrize(("e", "i", "expected"), WRAPS, ids=[str(e) for e, _, _ in WRAPS])
def test_casts_of_indices_wrap(e: Expr, i: int, expected: int) -> None:
    an = Analyzer()
    an.bind(VI, RANGES[VI])
    lo, hi = an.const_int_bound(e)
    assert value_of(e, {VI: i}) == expected == value_of(an.simplify(e), {VI: i})
    assert (lo is None or lo <= expected) and (hi is None or expected <= hi)


def test_a_constant_wraps_when_it_is_converted() -> None:
    assert [(e.value, e.dtype) for e in (cast("int8", const(300)), cast("uint8", const(-1)))] == [
        (44, "int8"),
        (255, "uint8"),
    ]


@pytest.mark.parametrize("factor", [2, 3, 4, 8])
@pytest.mark.parametrize("period", [2, 3, 4])
def test_quotients_whose_small_part_may_reach_the_factor(factor: int, period: int) -> None:
    """``(g*x + y) // (g*c)`` is ``x // c`` only while ``0 <= y < g``; likewise the remainder."""
    x, y = Var("x"), Var("y")
    c = factor * period
    for low, high in ((0, factor - 1), (0, factor), (-1, factor - 1), (1, factor), (0, 2 * factor - 1)):
        an = Analyzer()
        an.bind(x, (-7, 17)), an.bind(y, (low, high))
        for e in ((x * factor + y) // c, (x * factor + y) % c, (x * factor + y + factor - 1) // c):
            new = an.simplify(e)
            for at in ({x: a, y: b} for a in range(-7, 18) for b in range(low, high + 1)):
                assert value_of(new, at) == value_of(e, at), f"{e} became {new} at {at} with y in {low}, {high}"
        short = an.simplify((x * factor + y) // c)
        assert (short.b.value == period) is ((low, high) == (0, factor - 1))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_least_value_is_added_and_never_taken_away(dtype: str) -> None:
    """Its opposite is no value of the type, so that ``x - 2147483648`` would be no program."""
    least = const(min_value(dtype), dtype)
    loads = [decl_buffer((4,), dtype, "A")[k] for k in range(2)]
    x, y = loads[0], loads[1]
    for e in (x + least, x - least, least - x, y + x * least, y - x * least, x + y + least, -x * least, x - y - least):
        new = Analyzer().simplify(e)
        values = [n.value for n in pre_order(new) if isinstance(n, IntImm)]
        assert all(min_value(dtype) <= v <= max_value(dtype) for v in values), f"{e} became {new}"
