"""What a vector loop computes is what each of its lanes would: masks, values shared by all lanes, calls, loops inside loops.

Inputs and outputs touch an unreadable page where a lane that takes no part could read or write outside.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c import emit_c
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.lower.lanes import all_lanes, any_lane, ramp_arithmetic
from tilewright.schedule import Schedule
from tilewright.tir import decl_buffer
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.arith import Analyzer
from tilewright.tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Broadcast,
    BufferLoad,
    FloorDiv,
    FloorMod,
    IntImm,
    Not,
    Ramp,
    Var,
)
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.walk import pre_order, substitute

from ..fuzz.guarded_arrays import at_the_end

NATIVE = "native -num-cores=1"


def agrees(func, *arrays, targets=(NATIVE, "llvm -mcpu=x86-64-v3 -num-cores=1")):
    """Machine code computes what the interpreter computes; the last array is the output."""
    func = getattr(func, "func", func)
    want = arrays[-1].copy()
    interpret(func, *arrays[:-1], want)
    for target in targets:
        given = [at_the_end(a) if isinstance(a, np.ndarray) else a for a in arrays]
        compile(func, target, cache=False)(*given)
        np.testing.assert_array_equal(given[-1], want)


# -- masks ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FloorDiv, FloorMod, LT, LE, GT, GE])
@pytest.mark.parametrize("factor", [2, 3, 4, 6, 8])
def test_ramps_that_begin_at_multiples(kind, factor):
    """``i * factor + first + lane``: what is decided for all lanes is what each of them has, for every ``i``, and lanes that no multiple
    of the other number lies between are decided."""
    meaning = {
        FloorDiv: int.__floordiv__,
        FloorMod: int.__mod__,
        LT: int.__lt__,
        LE: int.__le__,
        GT: int.__gt__,
        GE: int.__ge__,
    }[kind]
    i = Var("i", "int32")
    for first in (0, 1, 4):
        for other in (-8, 0, 1, 3, 4, 8, 11, 12, 56) if kind not in (FloorDiv, FloorMod) else (1, 3, 4, 8, 12, 14, 56):
            for stride in (0, 1, 2):
                base = i * factor + first
                made = ramp_arithmetic(kind, Ramp(base, IntImm(stride), 4), IntImm(other), Analyzer())
                end = other + (kind in (GT, LE))
                if stride == 1 and factor % 4 == 0 and first % 4 == 0 and end and end % 4 == 0:
                    assert made is not None
                    assert isinstance(made, Ramp) == (kind is FloorMod)
                if made is None:
                    continue
                for at in range(-20, 21):
                    value = simplify(substitute(made.base if isinstance(made, Ramp) else made, {i: IntImm(at)}))
                    step = simplify(made.stride).value if isinstance(made, Ramp) else 0
                    lanes = [meaning(at * factor + first + stride * lane, other) for lane in range(4)]
                    assert [int(value.value) + step * lane for lane in range(4)] == [int(x) for x in lanes]


@pytest.mark.parametrize("sign", [LT, LE, GT, GE, EQ, NE])
@pytest.mark.parametrize("swapped", [False, True])
def test_masks_are_decided_as_their_lanes(sign, swapped):
    """Every base, stride and limit: what is decided holds in all lanes, or in none, and what some lane decides in some."""
    truth = {LT: int.__lt__, LE: int.__le__, GT: int.__gt__, GE: int.__ge__, EQ: int.__eq__, NE: int.__ne__}[sign]
    analyzer = Analyzer()
    for base in range(-3, 4):
        for stride in (-2, -1, 0, 1, 3):
            for limit in range(-5, 6):
                ramp, other = Ramp(IntImm(base), IntImm(stride), 4), Broadcast(IntImm(limit), 4)
                mask = sign(other, ramp) if swapped else sign(ramp, other)
                values = [base + stride * n for n in range(4)]
                lanes = [truth(limit, v) if swapped else truth(v, limit) for v in values]
                assert all_lanes(mask, analyzer) in (None, True if all(lanes) else False if not any(lanes) else None)
                if sign not in (EQ, NE):
                    assert bool(any_lane(mask, analyzer).value) is any(lanes)
                    assert bool(any_lane(Not(mask), analyzer).value) is not all(lanes)
                    both = And(Broadcast(IntImm(1, "bool"), 4), mask)
                    assert bool(any_lane(both, analyzer).value) is any(lanes)


@pytest.mark.parametrize("condition", ["i != 3", "i == 3", "i % 3 != 1", "i != 0 and i != 15"])
@pytest.mark.parametrize("n", [7, 16, 17])
def test_lanes_left_out_in_the_middle(condition, n):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in T.vectorized({n}):
        if {condition}:
            B[i] = A[i]
        else:
            B[i] = T.float32(-1)
""")
    agrees(func, np.arange(n, dtype="float32"), np.zeros(n, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "float16"])
@pytest.mark.parametrize("lanes", [25, 31, 32, 64])
def test_registers_without_an_active_lane_are_not_loaded(lanes, dtype):
    """Lanes from the twentieth on are known to be inactive, those before at run time."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((20,), "{dtype}"), C: T.Buffer((20,), "{dtype}"), n: T.int32, B: T.Buffer((20,), "{dtype}")):
    for j in T.vectorized({lanes}):
        if j < n and j < 20:
            B[j] = T.if_then_else(A[j] == C[j], A[j], T.Cast("{dtype}", 1))
""")
    targets = [f"llvm -mcpu={cpu} -num-cores=1" for cpu in ("x86-64-v4", "x86-64-v3", "x86-64-v2", "sandybridge")]
    a, c = np.random.default_rng(0).integers(0, 2, (2, 20)).astype(dtype)
    for n in (2, 20, 31):
        agrees(func, a, c, n, np.zeros(20, dtype), targets=targets)


@pytest.mark.parametrize("n", [1, 7, 13, 16, 17, 33])
def test_both_sides_of_a_choice_are_masked(n):
    """Either side reads outside of its array where the other is chosen."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((5,), "float32"), B: T.Buffer((7,), "float32"), C: T.Buffer(({n},), "float32")):
    for i in T.vectorized({n}):
        C[i] = T.if_then_else(i >= 5, T.if_then_else(i < 12, B[i - 5], T.float32(3)), A[i])
""")
    low = parse(f"""
@T.prim_func
def f(A: T.Buffer((5,), "float32"), B: T.Buffer((7,), "float32"), C: T.Buffer(({n},), "float32")):
    for i in T.vectorized({n}):
        C[i] = T.if_then_else(i < 5, A[i], T.if_then_else(i >= 12, T.float32(3), B[i - 5]))
""")
    for f in (func, low):
        agrees(f, np.arange(5, dtype="float32"), np.arange(7, dtype="float32") + 10, np.zeros(n, "float32"))


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
def test_lanes_far_apart_are_compared_with_a_limit(sign):
    """The last lane is at 7 * 2**29, which takes more than 32 bits."""
    func = parse(f"""
@T.prim_func
def f(n: T.int64, C: T.Buffer((8,), "int32")):
    for i in T.vectorized(T.int64(8)):
        C[i] = T.Select(i * T.int64(536870912) {sign} n, 1, 0)
""")
    for n in (-5, 2**29, 2**31, 7 * 2**29, 2**32 + 2**29):
        agrees(func, n, np.full(8, 9, "int32"), targets=(NATIVE,))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4])
def test_the_smaller_of_lanes_and_a_size(lanes):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((9,), "int32"), n: T.int32, C: T.Buffer(({lanes}, 3), "int32")):
    for i in T.vectorized({lanes}):
        C[i, 0] = T.min(i + n, 5)
        C[i, 1] = A[T.max(T.min(i * n, 7), n)]
        C[i, 2] = T.max(i, n - 3) * 2
""")
    for n in (0, 3, 5):
        agrees(func, np.arange(9, dtype="int32") * 3, n, np.zeros((lanes, 3), "int32"))


def test_limits_of_indices_beyond_32_bits():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((9,), "int32"), n: T.int32, C: T.Buffer((5, 3), "int32")):
    for i in range(5):
        C[i, 0] = A[T.min(i * n, 7)]
        C[i, 1] = A[T.max(8 - i * n, 1)]
        C[i, 2] = T.min(i * n, 7)
""")
    agrees(func, np.arange(9, dtype="int32") * 3, 2**30, np.zeros((5, 3), "int32"))


@pytest.mark.parametrize("divisor", ["i + 1", "i * n + 1", "i - n", "n * 2 - i", "(i + n) % 5 + 1"])
def test_divisors_that_count_lanes(divisor):
    """Quotients of data by numbers that rise or fall from lane to lane, with a constant or an unknown step."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((8,), "int32"), n: T.int32, C: T.Buffer((8, 2), "int32")):
    for i in T.vectorized(8):
        C[i, 0] = A[i] // ({divisor})
        C[i, 1] = A[i] % ({divisor})
""")
    for n in (9, 13):
        agrees(func, np.arange(-20, 20, 5, dtype="int32"), n, np.zeros((8, 2), "int32"))


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "uint64"])
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
def test_unsigned_comparisons(dtype, sign, through_c):
    """Numbers on both sides of the signed types' largest, compared as data, as scalars, and in min and max."""
    info = np.iinfo(dtype)
    values = np.array([0, 1, info.max // 2, info.max // 2 + 1, info.max - 1, info.max], dtype)
    a, b = np.repeat(values, len(values)), np.tile(values, len(values))
    n = len(a)
    func = parse(
        f"""
@T.prim_func
def f(A: T.Buffer(({n},), "{dtype}"), B: T.Buffer(({n},), "{dtype}"), s: T.{dtype}, C: T.Buffer(({n}, 6), "{dtype}")):
    for i in T.KIND({n}):
        C[i, 0] = T.Select(A[i] {sign} B[i], T.{dtype}(1), T.{dtype}(0))
        C[i, 1] = T.Select(A[i] {sign} s, T.{dtype}(1), T.{dtype}(0))
        C[i, 2] = T.min(A[i], B[i])
        C[i, 3] = T.max(A[i], s)
        C[i, 4] = T.Select(s {sign} s - T.{dtype}(7), T.{dtype}(1), T.{dtype}(0))
        C[i, 5] = T.max(s - T.{dtype}(7), T.{dtype}(3))
""".replace("KIND", "serial")
    )
    vector = parse(func.script().replace(f"range({n})", f"T.vectorized({n})"))
    for s in (3, int(info.max) - 2):
        for f in (func, vector):
            agrees(f, a, b, s, np.zeros((n, 6), dtype))
        want, got = np.zeros((n, 6), dtype), np.zeros((n, 6), dtype)
        interpret(func, a, b, s, want)
        through_c(func)(a, b, s, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("divisor", [3, 7, 8, -3])
def test_negative_dividends_of_indices(divisor, through_c):
    func = parse(f"""
@T.prim_func
def f(n: T.int32, B: T.Buffer((17, 2), "int32")):
    for i in range(17):
        B[i, 0] = (i - 9) // {divisor} + (n - i) % {divisor}
        B[i, 1] = (i * 2 - n) // {divisor} * 5 + (i - 9) % {divisor}
""")
    for n in (-11, 0, 5):
        agrees(func, n, np.zeros((17, 2), "int32"))
        want, got = np.zeros((17, 2), "int32"), np.zeros((17, 2), "int32")
        interpret(func, n, want)
        through_c(func)(n, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("to", ["int8", "uint8", "int16", "uint32", "uint64"])
def test_indices_converted_are_data(to, through_c):
    """What is cut off, or has lost its sign, is so in comparisons, minima, quotients and addresses, too."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((300,), "int32"), B: T.Buffer((9, 4), "int32")):
    for i in range(9):
        B[i, 0] = T.Select(T.Cast("{to}", i * 100 - 50) > T.{to}(3), 1, 0)
        B[i, 1] = T.Cast("int32", T.min(T.Cast("{to}", i * 100 - 50), T.{to}(100)))
        B[i, 2] = T.Cast("int32", T.Cast("{to}", i * 100 - 50) // T.{to}(7))
        B[i, 3] = A[T.Cast("int32", T.Cast("{to}", i * 31 - 9) % T.{to}(120)) + 120]
""")
    a, want, got = np.arange(300, dtype="int32"), np.zeros((9, 4), "int32"), np.zeros((9, 4), "int32")
    agrees(func, a, np.zeros((9, 4), "int32"))
    interpret(func, a, want)
    through_c(func)(a, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_wide_indices_that_are_cut(kind):
    """An int64 that is converted to int32 may lose bits."""
    func = parse(f"""
@T.prim_func
def f(B: T.Buffer((T.int64(16),), "int32")):
    for i in T.{kind}(T.int64(16)):
        B[i] = T.Select(T.Cast("int32", i * T.int64(1500000000)) > 5, 1, 0) + T.Cast("int32", i * T.int64(1 << 31)) % 7
""")
    agrees(func, np.zeros(16, "int32"))


def test_constants_that_data_turn_out_to_be_wrap():
    """What a choice leaves of data is a product of constants, which wraps as the data did."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer((2,), "int32"), B: T.Buffer((2,), "bool")):
    for i in T.unroll(2):
        B[i] = A[i] <= T.if_then_else(i < 3, -2, A[i]) * T.if_then_else(i > 4, A[i], 2147483647)
""")
    agrees(func, np.array([0, 3], "int32"), np.zeros(2, bool))
    agrees(simplify(func), np.array([0, 3], "int32"), np.zeros(2, bool))


# -- one value for all lanes ---------------------------------------------------------------------------------------------


def test_a_value_of_all_lanes_is_not_read_in_vain():
    A = te.placeholder((2,), name="A")
    B = te.compute((256,), lambda i: te.if_then_else(i < 32, A[i // 16], te.const(0.0)), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    outer, inner = sch.split(sch.get_loops("B")[0], [None, 16])
    sch.vectorize(inner)
    agrees(sch, np.ones(2, "float32"), np.zeros(256, "float32"))


def test_idle_vectors_read_nothing():
    A = te.placeholder((13,), "int16", name="A")
    B = te.compute((65,), lambda i: te.cast("uint8", A[i // 5]), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    sch.vectorize(sch.split(sch.get_loops("B")[0], [16, None])[1])
    agrees(sch, np.arange(13, dtype="int16"), np.zeros(65, "uint8"))


@pytest.mark.parametrize(
    "value",
    ["T.Select(i < 5 and A[i] > T.float32(2), T.float32(1), T.float32(0))",
     "T.Select(i >= 5 or A[i] > T.float32(2), T.float32(1), T.float32(0))",
     'T.Cast("float32", i < 5 and A[i] > T.float32(2) or i >= 12)'],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_what_the_first_truth_value_decides(kind, value):
    """The second one is not looked at: here it is outside of the array."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((5,), "float32"), B: T.Buffer((2048,), "float32")):
    for i in T.{kind}(2048):
        B[i] = {value}
""")
    agrees(func, np.arange(5, dtype="float32"), np.zeros(2048, "float32"))


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_one_element_under_a_mask(dtype):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((2,), "{dtype}"), n: T.int32, B: T.Buffer((8,), "{dtype}")):
    B[T.Ramp(0, 1, 8)] = A.vload([T.Broadcast(n, 8)], predicate=T.Ramp(0, 1, 8) < T.Broadcast(8 - 4 * n, 8))
""")
    a = np.array([1, 0], dtype)
    for n, want in ((0, [1] * 8), (1, [0] * 8), (1 << 20, [0] * 8)):
        b = np.ones(8, dtype)
        compile(func, NATIVE)(a, n, b)
        np.testing.assert_array_equal(b, np.array(want, dtype))


@pytest.mark.parametrize("n", [13, 50])
def test_a_value_that_is_certainly_inside_is_read_plainly(n):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((7,), "float32"), B: T.Buffer((7, {n}), "float32")):
    for i in range(7):
        for j in range(4):
            for v in T.vectorized(16):
                if j * 16 + v < {n}:
                    B[i, j * 16 + v] = A[i]
""")
    for node in pre_order(lower(func, NATIVE).func.body):
        assert getattr(node, "op", "") != "tir.if_then_else"
    agrees(func, np.arange(7, dtype="float32"), np.zeros((7, n), "float32"))


def test_a_length_that_is_loaded():
    """`t < L[b]` compares with data: it is not decided by the ends of a loop."""
    L, X = te.placeholder((4,), "int32", name="L"), te.placeholder((8, 4), name="X")
    Y = te.compute((8, 4), lambda t, b: te.if_then_else(t < L[b], X[t, b], te.const(0.0)), name="Y")
    sch = Schedule(te.create_prim_func([L, X, Y]))
    sch.vectorize(sch.get_loops("Y")[1])
    agrees(sch, np.array([0, 3, 8, -(2**31)], "int32"), np.ones((8, 4), "float32"), np.zeros((8, 4), "float32"))


def test_conditions_are_not_read_before_their_guards():
    func = parse("""
@T.prim_func
def f(I: T.Buffer((5,), "int32"), B: T.Buffer((64,), "float32")):
    for i in range(64):
        for j in range(1):
            B[i] = T.if_then_else(i < 5 and I[i] % 3 + j == 1, T.float32(1), T.float32(2))
""")
    agrees(func, np.arange(5, dtype="int32"), np.zeros(64, "float32"))


def test_conditions_are_not_read_before_they_are_written():
    func = parse("""
@T.prim_func
def f(I: T.Buffer((16,), "int32"), B: T.Buffer((16,), "float32")):
    P = T.alloc_buffer((16,), "int32")
    for i in range(16):
        with T.block("P"):
            v = T.axis.spatial(16, i)
            P[v] = I[v] + 1
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = T.Select(P[v] % 7 > 3, T.float32(1), T.float32(2))
""")
    agrees(func, np.arange(16, dtype="int32"), np.zeros(16, "float32"))


# -- loops inside loops, registers, reductions -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["T.float32(1)", "A[i]", "A[j]", "A[i] * A[j]", 'T.Cast("float32", j)'])
@pytest.mark.parametrize("n", [4, 7, 16])
def test_a_vector_loop_in_a_vector_loop(value, n):
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n}, {n}), "float32")):
    for i in T.vectorized({n}):
        for j in T.vectorized({n}):
            B[i, j] = {value}
""")
    agrees(func, np.arange(n, dtype="float32") + 1, np.full((n, n), 7, "float32"))


def test_a_vector_loop_moved_into_a_vector_loop():
    A = te.placeholder((8, 16), name="A")
    B = te.compute((8, 16), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((8, 16), lambda i, j: B[i, j] * 2.0, name="C")
    sch = Schedule(te.create_prim_func([A, C]))
    sch.vectorize(sch.get_loops("B")[1])
    sch.vectorize(sch.get_loops("C")[0])
    try:
        sch.compute_at("B", sch.get_loops("C")[0])
        sch.vectorize(sch.get_loops("B")[-1])
    except Exception as refused:
        assert type(refused).__name__ == "ScheduleError"
    agrees(sch, np.arange(128, dtype="float32").reshape(8, 16), np.zeros((8, 16), "float32"))


def test_what_counts_the_lanes_stays_a_loop():
    func = parse("""
@T.prim_func
def f(B: T.Buffer((1,), "float32")):
    for i in T.vectorized(16):
        B[0] = B[0] + T.float32(1)
""")
    agrees(func, np.zeros(1, "float32"))


def test_masked_scratch_in_registers():
    """Idle turns store nothing: the value of the one before them stays."""
    A = te.placeholder((13,), "int32", name="A")
    B = te.compute((13,), lambda i: te.cast("int8", A[i]), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    o, v = sch.split(sch.get_loops("B")[0], [None, 32])
    sch.vectorize(v)
    sch.split(o, [None, 3])
    copy = sch.cache_write("B", 0, "shared")
    sch.vectorize(sch.get_loops(copy)[0])
    agrees(sch, np.arange(13, dtype="int32"), np.full(13, 77, "int8"))


def test_a_mask_that_grows():
    """Each turn looks at lanes that the mask of the one before it left out."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    R = T.alloc_buffer((16,), "float32", scope="local")
    for i in T.vectorized(16):
        R[i] = T.float32(1)
    for t in range(4):
        for i in T.vectorized(16):
            if i < t * 2 + 2:
                B[i] = B[i] + R[i]
                R[i] = A[i] * T.float32(2)
""")
    agrees(func, np.arange(16, dtype="float32"), np.zeros(16, "float32"))


@pytest.mark.parametrize("guard", ["i * 8 + j < 13", "i * 8 + j < 13 and k < 11", "k < i * 8 + j"])
@pytest.mark.parametrize("update", ["S[i * 8 + j] + A[i * 8 + j, k]", "T.max(S[i * 8 + j], A[i * 8 + j, k])",
                                    "T.Select(A[i * 8 + j, k] > S[i * 8 + j], A[i * 8 + j, k], S[i * 8 + j])"])  # fmt: skip
def test_horizontal_reductions_under_a_condition(guard, update):
    rows = 16 if guard.startswith("k") else 13
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer(({rows}, 16), "float32"), S: T.Buffer(({rows},), "float32")):
    for i, j in T.grid(2, 8):
        for k in T.serial(16, annotations={{"tir.horizontal_reduce": 1}}):
            if {guard}:
                S[i * 8 + j] = {update}
""")
    a = np.arange(rows * 16, dtype="float32").reshape(rows, 16)
    agrees(func, a, np.ones(rows, "float32"))


def test_bools_put_together_in_c(through_c):
    func = parse("""
@T.prim_func
def f(A: T.Buffer((16,), "bool"), B: T.Buffer((16,), "bool")):
    R = T.alloc_buffer((16,), "bool", scope="local")
    for i in T.unroll(8):
        R[i] = A[15 - i]
    for i in T.vectorized(8):
        R[8 + i] = A[i]
    for i in T.vectorized(8):
        B[i] = R[i]
    for i in T.unroll(8):
        B[8 + i] = R[8 + i]
""")
    a = np.arange(16) % 3 > 0
    b = np.zeros(16, bool)
    through_c(func)(a, b)
    np.testing.assert_array_equal(b.view("uint8"), np.concatenate([a[:7:-1], a[:8]]))


def test_registers_of_c_are_set(through_c):
    """A value chosen between a new one and one that was never set is no licence for the compiler."""
    func = parse("""
@T.prim_func
def f(A: T.Buffer((7,), "float32"), B: T.Buffer((7,), "float32")):
    for i in T.unroll(7):
        R = T.alloc_buffer((1,), "float32", scope="local")
        for v in T.vectorized(4):
            if v < 1:
                R[v] = A[i]
        B[i] = T.min(R[0], T.float32(100))
""")
    assert " = {0};" in emit_c([lower(func, NATIVE)]) or "R[" in emit_c([lower(func, NATIVE)])
    a, b = np.arange(7, dtype="float32"), np.zeros(7, "float32")
    through_c(func, NATIVE, "-O1")(a, b)
    np.testing.assert_array_equal(b, a)


# -- calls ---------------------------------------------------------------------------------------------------------------


def calling(n, expression):
    return parse(f"""
@T.prim_func
def f(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    for i in T.vectorized({n}):
        B[i] = {expression}
""")


@pytest.mark.parametrize("n", [1, 7, 8, 13, 17])
@pytest.mark.parametrize("op", ["call_pure_extern", "call_extern"])
def test_functions_of_others_are_called_with_scalars(n, op, through_c):
    func = calling(n, f'T.{op}("float32", "sinhf", A[i]) * T.float32(2)')
    a = np.arange(n, dtype="float32") / 8
    for call in (compile(func, NATIVE), compile(func, "llvm -mcpu=x86-64-v3 -num-cores=1"), through_c(func)):
        b = np.zeros(n, "float32")
        call(a, b)
        np.testing.assert_allclose(b, 2 * np.sinh(a), rtol=1e-6)


def test_an_intrinsic_of_scalars():
    func = calling(17, 'T.call_llvm_pure_intrin("float32", "llvm.fabs.f32", A[i])')
    a = np.arange(17, dtype="float32") - 8
    b = np.zeros(17, "float32")
    compile(func, NATIVE)(a, b)
    np.testing.assert_array_equal(b, np.abs(a))


@pytest.mark.parametrize("op", ["call_pure_extern", "call_extern"])
def test_lanes_that_take_no_part_do_not_call(op):
    """strlen of a null pointer would end the process."""
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((17,), "int64"), B: T.Buffer((17,), "int64")):
    for i in T.vectorized(17):
        B[i] = T.if_then_else(A[i] != T.int64(0), T.{op}("int64", "strlen", A[i]), T.int64(-1))
""")
    text = ctypes.create_string_buffer(b"four")
    a = np.where(np.arange(17) % 3 == 0, ctypes.addressof(text), 0).astype("int64")
    b = np.zeros(17, "int64")
    compile(func, NATIVE)(a, b)
    np.testing.assert_array_equal(b, np.where(a != 0, 4, -1))


def test_a_call_behind_a_truth_value():
    func = parse("""
@T.prim_func
def f(A: T.Buffer((17,), "int64"), B: T.Buffer((17,), "bool")):
    for i in range(17):
        B[i] = A[i] != T.int64(0) and T.call_pure_extern("int64", "strlen", A[i]) == T.int64(4)
""")
    text = ctypes.create_string_buffer(b"four")
    a = np.where(np.arange(17) % 3 == 0, ctypes.addressof(text), 0).astype("int64")
    b = np.zeros(17, bool)
    compile(func, NATIVE)(a, b)
    np.testing.assert_array_equal(b, a != 0)


def test_masks_cost_nothing_where_they_cost_nothing_before():
    """A tile's edge in a product: the operand of all lanes is one plain load."""
    A, B = te.placeholder((13, 12), name="A"), te.placeholder((12, 50), name="B")
    k = te.reduce_axis((0, 12), name="k")
    sch = Schedule(
        te.create_prim_func([A, B, te.compute((13, 50), lambda i, j: te.sum(A[i, k] * B[k, j], k), name="C")])
    )
    i, j, r = sch.get_loops("C")
    (_, i1), (_, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 32])
    sch.reorder(r, i1, j1)
    sch.vectorize(j1)
    text = emit(lower(sch, Target("llvm -mcpu=x86-64-v4 -num-cores=1")))
    assert "chosen" not in text
    loads = [n for n in pre_order(lower(sch, NATIVE).func.body) if isinstance(n, BufferLoad)]
    assert loads and not any(
        getattr(n, "op", "") == "tir.if_then_else" for n in pre_order(lower(sch, NATIVE).func.body)
    )


def test_a_second_condition_that_reads_inside_its_buffers_needs_no_mask():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), K: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in T.vectorized(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = T.Select(A[v] > T.float32(0) or A[v] == T.float32(0) and K[v] < 3, K[v], 0)
""")
    lowered = lower(func, "llvm -mcpu=x86-64-v4")
    assert not any(isinstance(n, BufferLoad) and n.predicate is not None for n in pre_order(lowered.func.body))


def test_a_comparison_of_floats_is_not_negated_for_a_mask():
    a = Broadcast(BufferLoad(decl_buffer((1,), "float32", "A"), (IntImm(0),)), 8)
    lanes = [n for n in pre_order(any_lane(Not(LT(a, a)), Analyzer())) if isinstance(n, (LT, GE))]
    assert [type(n) for n in lanes] == [LT]  # not a < b holds of NaN, a >= b does not


def test_a_predicate_that_names_values_is_used_more_than_once():
    """fmod becomes a named value; the condition that holds it guards loads as well as it decides."""
    A, B = te.placeholder((14,), "float32", "A"), te.placeholder((14,), "float32", "B")
    func = te.create_prim_func([A, B, te.ops.floor_mod(A, B)])
    sch = Schedule(func)
    outer, inner = sch.split(sch.get_loops("T_floor_mod")[0], [None, 16])
    sch.vectorize(inner)
    a = np.array([7, -7, 7, -7, 5.5, -5.5, 0, 1, 2, 3, -3, 8, 9, -9], np.float32)
    b = np.array([3, 3, -3, -3, 2, 2, 4, 7, 2, -2, 2, 3, -4, 4], np.float32)
    got = np.zeros(14, np.float32)
    compile(sch.func)(a, b, got)
    np.testing.assert_array_equal(got, np.mod(a, b))


@pytest.mark.parametrize("dtype", ["float32", "int8", "float64", "float16"])
@pytest.mark.parametrize("n", [1, 2, 7, 13, 16])
def test_the_first_lanes_are_stored_without_a_mask(n, dtype):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((16,), "{dtype}"), B: T.Buffer(({n},), "{dtype}")):
    B.vstore([T.Ramp(0, 1, 16)], A[T.Ramp(0, 1, 16)], predicate=T.Ramp(0, 1, 16) < T.Broadcast({n}, 16))
""")
    agrees(func, np.arange(16).astype(dtype), np.zeros(n, dtype))
    assert "mask" not in emit(lower(func, "llvm -mcpu=x86-64-v3")).partition("define")[2]


@pytest.mark.parametrize("n", [2, 13])
def test_a_load_under_a_mask_is_not_cleared_again(n):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer(({n},), "float32"), n: T.int64, B: T.Buffer((16,), "float32")):
    for i in T.vectorized(16):
        B[i] = T.if_then_else(i < n and i < {n}, A[i], T.float32(0.0))
""")
    a = np.linspace(1, 2, n, dtype="float32")
    for m in (0, 1, n, 16):
        agrees(func, a, m, np.ones(16, "float32"))
    assert "select" not in emit(lower(func, NATIVE))


@pytest.mark.parametrize("rest", ["-0.0", "0.0", "1.0"])
def test_other_values_than_zero_are_chosen(rest):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((5,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        B[i] = T.if_then_else(i < 5, A[i], T.float32({rest}))
""")
    out = np.zeros(8, "float32")
    compile(func, NATIVE, cache=False)(np.ones(5, "float32"), out)
    np.testing.assert_array_equal(out[5:], np.full(3, float(rest)))
    assert (np.signbit(out[5:]) == np.signbit(float(rest))).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", ["max", "min"])
def test_the_larger_of_two_vectors_is_nan_where_one_is(op, dtype):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((16,), "{dtype}"), B: T.Buffer((16,), "{dtype}"), C: T.Buffer((16,), "{dtype}")):
    for i in T.vectorized(16):
        C[i] = T.{op}(A[i], B[i])
""")
    a, b = np.arange(16, dtype=dtype), np.arange(16, dtype=dtype)[::-1].copy()
    a[[1, 2, 14]] = np.nan, np.inf, -np.nan
    b[[2, 3, 14]] = np.nan, -np.inf, np.nan
    agrees(func, a, b, np.zeros(16, dtype))
