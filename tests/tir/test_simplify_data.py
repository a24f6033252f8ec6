"""The simplifier on data: vectors, floats, small integers, truth values; random programs before and after."""

import random

import numpy as np
import pytest

from tilewright.tir import (
    And,
    Broadcast,
    Buffer,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Not,
    Or,
    Ramp,
    Select,
    TruncMod,
    Var,
    const,
    decl_buffer,
)
from tilewright.tir.arith import Analyzer
from tilewright.tir.expr import DType, make_binary, max_value, min_value
from tilewright.tir.expr.intrinsics.number_operations import popcount
from tilewright.tir.expr.traversal import reads_memory
from tilewright.tir.interpret.interpret_expr import ExprCompiler
from tilewright.tir.interpret.interpret_memory import Memory
from tilewright.tir.walk import pre_order

VI, J = Var("i"), Var("j")
FLOATS, INTS, LONGS, BYTES, WORDS = [
    decl_buffer((4,), t, n)
    for t, n in (("float32", "F"), ("int32", "K"), ("int64", "L"), ("int8", "B"), ("uint8", "W"))
]
VALUES = {
    FLOATS: np.array([0.0, -0.0, 1.5, np.nan], "float32"),
    INTS: np.array([2**31 - 1, -(2**31), 7, -3], "int32"),
    LONGS: np.array([2**63 - 1, -(2**63), 2**31, -11], "int64"),
    BYTES: np.array([127, -128, 5, -1], "int8"),
    WORDS: np.array([255, 0, 3, 200], "uint8"),
}
BUFFERS = {b.dtype: b for b in VALUES}


class Draw(random.Random):
    """Draws with loop variables, or with constants at the ends of types: indices never overflow, data may."""

    extreme = False


def random_value(rng: Draw, dtype: str, depth: int) -> Expr:
    lanes, element = DType(dtype).lanes, DType(dtype).element
    if DType(dtype).is_bool:
        return random_condition(rng, lanes, depth)
    if depth == 0 or rng.random() < 0.1:
        if lanes > 1:
            if element == "int32" and not rng.extreme and rng.random() < 0.5:
                return Ramp(random_value(rng, "int32", 0), const(rng.choice([0, 1, 1, 4, -1])), lanes)
            return Broadcast(random_value(rng, element, 0), lanes)
        if rng.random() < 0.4:
            if DType(element).is_float:
                return const(rng.choice([0.0, -0.0, 1.0, 2.5]), element)
            ends = [int(min_value(element)), int(max_value(element)), int(max_value(element)) - 1]
            return const(rng.choice([0, 1, 2, 3, 8, 100, *(ends if rng.extreme else [])]), element)
        if element == "int32" and not rng.extreme and rng.random() < 0.6:
            return rng.choice([VI, J])
        return BUFFERS[element][rng.randint(0, 3)]
    kind = rng.randint(0, 7)
    a = random_value(rng, dtype, depth - 1)
    if kind == 6:
        return Select(random_condition(rng, lanes, depth - 1), a, random_value(rng, dtype, depth - 1))
    if kind == 7:
        other = rng.choice(
            [t for t in ("float32", "int32", "int64", "int8", "uint8") if not (DType(t).is_float and element != t)]
        )
        return Cast(dtype, random_value(rng, DType(other).with_lanes(lanes), depth - 1))
    if not DType(dtype).is_float and kind == 5:
        divisor = const(
            rng.choice([1, 2, 3, 4, 5, 7, 8, 100, int(max_value(element)), int(max_value(element)) // 3]), dtype
        )
        if element[0] != "u" and rng.random() < 0.2:
            divisor = const(rng.choice([-1, -2, -3]), dtype)
        return a // divisor if rng.random() < 0.5 else a % divisor
    b = random_value(rng, dtype, depth - 1)
    if rng.extreme and not reads_memory(a) and not reads_memory(b):
        return b  # no sum of two constants, which would be an index that overflows
    return [lambda: a + b, lambda: a - b, lambda: a * b, lambda: Min(a, b), lambda: Max(a, b), lambda: b][kind]()


def random_condition(rng: Draw, lanes: int, depth: int) -> Expr:
    kind = rng.randint(0, 8)
    if depth == 0 or kind <= 5:
        element = rng.choice(["float32", "int32", "int32", "int64", "int8", "uint8"])
        dtype = DType(element).with_lanes(lanes)
        a, b = random_value(rng, dtype, max(depth - 1, 0)), random_value(rng, dtype, max(depth - 1, 0))
        return [a < b, a <= b, a > b, a >= b, a.equal(b), Not(a.equal(b))][min(kind, 5)]
    a, b = random_condition(rng, lanes, depth - 1), random_condition(rng, lanes, depth - 1)
    return [And(a, b), Or(a, b), Not(a)][kind - 6]


@pytest.mark.parametrize(
    "dtype", ["int32", "int64", "float32", "int8", "uint8", "int32x4", "float32x4", "int8x4", "bool", "boolx4"]
)
def test_random_values(dtype: str) -> None:
    rng = Draw(dtype)
    changed = 0
    for turn in range(200):
        rng.extreme = turn % 2 == 1
        e = random_value(rng, dtype, 3)
        an = Analyzer()
        an.bind(VI, (0, 15)), an.bind(J, (-4, 7))
        new = an.simplify(e)
        changed += new is not e
        assert new.dtype == e.dtype
        memory = Memory(False, {})
        ex: ExprCompiler = memory.exprs
        f, g = ex.compile(e), ex.compile(new)
        for buffer, array in VALUES.items():
            memory.view(buffer).set(array)
        with np.errstate(all="ignore"):
            for _ in range(12):
                at = {VI: rng.randint(0, 15), J: rng.randint(-4, 7)}
                for v, x in at.items():
                    ex.registers[ex.slot(v)] = x
                before, after = f(), g()
                np.testing.assert_array_equal(after, before, err_msg=f"{e} became {new} at {at}")
                if DType(dtype).is_float and not any(isinstance(n, (Min, Max)) for n in pre_order(e)):  # min(0.0, -0.0)
                    number = ~np.isnan(np.asarray(before))
                    signs = np.signbit(np.asarray(before)) == np.signbit(np.asarray(after))
                    assert np.all(signs | ~number), f"{e} became {new}: a zero changed its sign"
    assert changed > 30


def test_masks_that_always_hold_go() -> None:
    an = Analyzer()
    an.bind(VI, (0, 3))
    lanes = Ramp(VI * 4, const(1), 4)
    load = BufferLoad(decl_buffer((16,), name="A"), (lanes,), lanes < Broadcast(const(16), 4))
    assert an.simplify(load).predicate is None
    kept = BufferLoad(load.buffer, (lanes,), lanes < Broadcast(const(15), 4))
    assert an.simplify(kept) is kept


def test_impure_calls_are_never_joined() -> None:
    call = Call("tir.call_extern", (VI,), "int32")
    other = Call("tir.call_extern", (VI,), "int32")
    difference = call - other
    assert Analyzer().simplify(difference) is difference
    pure = popcount(VI) - popcount(VI)
    assert int(Analyzer().simplify(pure)) == 0


@pytest.mark.parametrize("a", [2**62 + 12345, -(2**62) - 12345, -7, 7, 0, -(2**63)])
@pytest.mark.parametrize("b", [1000003, -1000003, 3, -1])
def test_remainders_of_large_constants_are_exact(a, b):
    for cls, want in ((FloorDiv, a // b), (FloorMod, a % b), (TruncMod, abs(a) % abs(b) * (-1 if a < 0 else 1))):
        wrapped = (want + 2**63) % 2**64 - 2**63
        assert int(make_binary(cls, const(a, "int64"), const(b, "int64"))) == wrapped


COMPARED = {
    "sum": lambda i: i + 3, "difference": lambda i: i - 3, "multiple": lambda i: i * 2 + 4, "descending": lambda i: 7 - i,
    "quotient": lambda i: (i + 2) // 4 + 1,
}  # fmt: skip
DATA = {
    "load": lambda x: x, "multiple": lambda x: x * 2, "negative": lambda x: x * -1, "quotient": lambda x: x // 4,
    "clamped": lambda x: Min(x, const(9)), "rest": lambda x: x % 8,
}  # fmt: skip


@pytest.mark.parametrize("index", COMPARED)
@pytest.mark.parametrize("data", DATA)
def test_constants_stay_on_the_side_of_the_index(index: str, data: str) -> None:
    memory, an = Memory(False, {}), Analyzer()
    memory.view(INTS).set(VALUES[INTS])
    an.bind(VI, (0, 15))
    ex: ExprCompiler = memory.exprs
    for place in range(4):
        a, b = COMPARED[index](VI), DATA[data](INTS[place])
        pairs = [(a, b), (b, a), (a.astype("int64"), b.astype("int64")), (a + J, b + J)]
        for e in [made for x, y in pairs for made in (x < y, x <= y, x > y, x >= y, x.equal(y), Not(x.equal(y)))]:
            f, g = ex.compile(e), ex.compile(an.simplify(e))
            for i in (0, 1, 7, 15):
                ex.registers[ex.slot(VI)], ex.registers[ex.slot(J)] = i, -2
                assert f() == g(), f"{e} became {an.simplify(e)} at {i}"


NESTED = {
    "quotients": lambda x, m: (x // 3 + 5) // 7, "below": lambda x, m: (x // 3 - 5) // 7, "large": lambda x, m: x // (m // 2) // (m // 2),
    "remainder": lambda x, m: x // 3 % m, "joined": lambda x, m: x // 3 % m * 3 + x % 3, "moved": lambda x, m: (Max(x, x * 0) - 100) // 7,
    "rest": lambda x, m: (Max(x, x * 0) - 100) % 7, "flat": lambda x, m: (x % 6 * 2) % 3, "odd": lambda x, m: (x // 4 * 2 + 1) // 2,
}  # fmt: skip


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("buffer", [INTS, LONGS], ids=["int32", "int64"])
def test_divisions_of_data_divide_no_number_beyond_the_type(name: str, buffer: Buffer) -> None:
    memory, an, most = Memory(False, {}), Analyzer(), int(max_value(buffer.dtype))
    memory.view(buffer).set(VALUES[buffer])
    for place in range(4):
        e = NESTED[name](buffer[place], const(most, buffer.dtype))
        new = an.simplify(e)
        assert memory.exprs.compile(new)() == memory.exprs.compile(e)(), f"{e} became {new}"


@pytest.mark.parametrize("c", [2**31 - 1, 2**31 - 2, 2**30 + 7])
def test_remainders_of_indices_stay_within_the_type(c: int) -> None:
    memory, an = Memory(False, {}), Analyzer()
    an.bind(VI, (0, 30))
    ex: ExprCompiler = memory.exprs
    for e in ((VI - 3) % c, (VI - 3) // c, (VI * 2 - 7) % c, Min(VI - 20, J) % c):
        f, g = ex.compile(e), ex.compile(an.simplify(e))
        for i in range(31):
            ex.registers[ex.slot(VI)], ex.registers[ex.slot(J)] = i, -9
            assert f() == g(), f"{e} became {an.simplify(e)} at {i}"
        for n in pre_order(an.simplify(e)):
            bounds = an.const_int_bound(n) if n.dtype == "int32" and not DType(n.dtype).is_bool else (0, 0)
            assert all(b is None or -(2**31) <= b < 2**31 for b in bounds), n
