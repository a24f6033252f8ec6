"""Circuits compute what the interpreter computes, bit by bit, in Icarus Verilog."""

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.circuits import HardwareError, installed_simulators

from .__main__ import cycle_table
from .int8_kernels import SCHEDULES, arrays_of, matmul

simulated = pytest.mark.skipif("icarus" not in installed_simulators(), reason="iverilog is not installed")


def agree(func, *numbers, simulator="icarus", seed=0):
    """Run a function in a simulator and in the interpreter on the same arrays; return the cycles."""
    module = tw.build(func, "verilog")
    got, want = [*arrays_of(func, seed), *numbers], [*arrays_of(func, seed), *numbers]
    cycles = module.simulate(*got, simulator=simulator)
    tw.tir.interpret(func, *want)
    for one, two in zip(got, want, strict=True):
        assert np.array_equal(one, two)
    return cycles


OPERATIONS = (
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} // {b}", "{a} % {b}", "T.truncdiv({a}, {b})", "T.truncmod({a}, {b})",
    "T.min({a}, {b})", "T.max({a}, {b})", "T.bitwise_and({a}, {b})", "T.bitwise_or({a}, {b})", "T.bitwise_xor({a}, {b})",
    "T.shift_left({a}, {b})", "T.shift_right({a}, {b})", "T.bitwise_not({a})", "T.popcount({a})", "T.clz({a})",
    "T.Select({a} < {b}, {a}, {b})", "T.shift_left({a}, T.{d}(3)) + T.shift_right({b}, T.{d}(2))",
    "T.if_then_else({a} >= {b} and {a} != T.{d}(3), {a} * {b}, {a} // T.{d}(3))",
    "{a} % T.{d}(7) + {b} // T.{d}(8)", "T.Select(not ({a} == {b} or {a} > T.{d}(5)), {b} - {a}, T.{d}(1))",
    "{a} * {a} * {b} + {a} * T.{d}(5) - {b}",
)  # fmt: skip


@simulated
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_operations(dtype):
    """Values are the ends of the type, small ones and any; divisors are zero and -1, distances too large and negative."""
    n, ops = 48, [*OPERATIONS, *([] if dtype.startswith("u") else ["T.abs({a})"])]
    lines = [f"        C[{row}, i] = {op.format(a='A[i]', b='B[i]', d=dtype)}" for row, op in enumerate(ops)]
    func = tw.tir.parse(
        f"@T.prim_func\ndef main(A: T.Buffer(({n},), '{dtype}'), B: T.Buffer(({n},), '{dtype}'), "
        f"C: T.Buffer(({len(ops)}, {n}), '{dtype}'), D: T.Buffer(({n},), 'int16'), E: T.Buffer(({n},), 'bool')):\n"
        f"    for i in range({n}):\n" + "\n".join(lines) + "\n"
        '        D[i] = T.Cast("int16", A[i]) + T.Cast("int16", E[i])\n        E[i] = T.Cast("bool", B[i])\n'
    )
    arrays = arrays_of(func)
    ends = np.iinfo(dtype)
    edges = np.array([0, 1, 2, 7, ends.max, ends.min, ends.max - 1, ends.min + 1], dtype)
    rng = np.random.default_rng(1)
    for array in arrays[:2]:
        array[8:16], array[16:32] = edges, rng.integers(-9 * (ends.min < 0), 10, 16)
    arrays[1][:8] = edges
    got, want = [a.copy() for a in arrays], [a.copy() for a in arrays]
    tw.build(func, "verilog").simulate(*got, simulator="icarus")
    tw.tir.interpret(func, *want)
    wrong = [op for op, one, two in zip(ops, got[2], want[2], strict=True) if not np.array_equal(one, two)]
    assert not wrong
    assert np.array_equal(got[3], want[3]) and np.array_equal(got[4], want[4])


PROGRAMS = {
    "loops of one iteration": ("A: T.Buffer((1, 5), 'int8'), B: T.Buffer((1, 5), 'int8')", """
for i, j, k in T.grid(1, 5, 1):
    B[i, j] = A[i, j] + T.int8(k)"""),
    "no iterations": ("A: T.Buffer((4,), 'int8'), B: T.Buffer((4,), 'int8')", """
for i, j in T.grid(4, 0):
    B[i] = A[j]"""),
    "nested conditions": ("A: T.Buffer((17,), 'int16'), B: T.Buffer((17,), 'int16')", """
for i in range(17):
    if A[i] > T.int16(0):
        if i % 3 == 1:
            B[i] = A[i]
        else:
            B[i] = A[i] // T.int16(3)
    else:
        if i < 9:
            B[i] = T.int16(-1)"""),
    "conditions around loops": ("A: T.Buffer((6, 7), 'int8'), B: T.Buffer((6,), 'int8')", """
for i in range(6):
    if A[i, 0] > T.int8(0):
        for j in range(7):
            B[i] = B[i] + A[i, j]
    else:
        B[i] = T.int8(3)
        for j in range(2):
            B[i] = B[i] * A[i, j]"""),
    "several results": ("A: T.Buffer((13,), 'uint8'), B: T.Buffer((13,), 'uint8'), C: T.Buffer((13,), 'bool')", """
for i in range(13):
    B[i] = A[12 - i] * T.uint8(3)
    C[i] = A[i] > T.uint8(100)"""),
    "in place": ("A: T.Buffer((16,), 'int32')", """
for i in range(15):
    A[i + 1] = A[i + 1] + A[i]"""),
    "in place, as a pipeline": ("A: T.Buffer((16,), 'int32')", """
for i in T.serial(15, annotations={"pragma_pipeline": 2}):
    A[i + 1] = A[i + 1] * T.int32(3) + A[i]"""),
    "four behind, as a pipeline": ("A: T.Buffer((32,), 'int32')", """
for i in T.serial(28, annotations={"pragma_pipeline": 1}):
    A[i + 4] = A[i] * T.int32(5) + T.int32(1)"""),
    "a histogram, as a pipeline": ("A: T.Buffer((40,), 'uint8'), H: T.Buffer((16,), 'int16')", """
for i in T.serial(40, annotations={"pragma_pipeline": 0}):
    H[A[i] % T.uint8(16)] = H[A[i] % T.uint8(16)] + T.int16(1)"""),
    "a nest as a pipeline": ("A: T.Buffer((5, 7, 3), 'int8'), B: T.Buffer((5, 3), 'int32')", """
for i in T.serial(5, annotations={"pragma_pipeline": 0}):
    for j, k in T.grid(7, 3):
        B[i, k] = B[i, k] + T.Cast("int32", A[i, j, k])"""),
    "a condition in a pipeline": ("A: T.Buffer((17,), 'int16'), B: T.Buffer((17,), 'int16')", """
for i in T.serial(17, annotations={"pragma_pipeline": 1}):
    if A[i] > T.int16(5):
        B[16 - i] = A[i] * A[i]"""),
    "a triangle": ("A: T.Buffer((7, 7), 'int8'), B: T.Buffer((7,), 'int32')", """
for i in range(7):
    for j in range(i, 7):
        B[i] = B[i] + T.Cast("int32", A[i, j])
    for j in range(i):
        B[i] = B[i] - T.Cast("int32", A[i, j])"""),
    "a triangle of pipelines": ("A: T.Buffer((7, 7), 'int8'), B: T.Buffer((7, 7), 'int32')", """
for i in range(7):
    for j in T.serial(i, annotations={"pragma_pipeline": 1}):
        B[i, j] = T.Cast("int32", A[i, j]) - i"""),
    "a number": ("A: T.Buffer((9,), 'int32'), n: T.int32", """
for i in range(9):
    A[i] = A[i] * n - T.Select(n < 0, n, i)"""),
    "a gather": ("I: T.Buffer((8,), 'uint8'), A: T.Buffer((16,), 'int16'), B: T.Buffer((8,), 'int16')", """
for i in range(8):
    B[i] = A[I[i] % T.uint8(16)]"""),
    "a memory inside": ("A: T.Buffer((4, 8), 'int8'), B: T.Buffer((4, 8), 'int8')", """
M = T.alloc_buffer((8,), "int8")
for i in range(4):
    for j in range(8):
        M[j] = A[i, j] * T.int8(2)
    for j in range(8):
        B[i, j] = M[7 - j]"""),
    "lanes and parallel loops": ("A: T.Buffer((6, 4), 'int8'), B: T.Buffer((6, 4), 'int8')", """
for i in T.parallel(6):
    for j in T.vectorized(4):
        B[i, j] = A[i, j] + T.int8(1)"""),
    "banks that are not known": ("A: T.Buffer((13,), 'int8'), B: T.Buffer((13,), 'int8')", """
for i in T.serial(11, annotations={"pragma_array_partition": [["A", 0, 3], ["B", 0, 4]]}):
    B[i + 1] = A[i] + A[i + 2] + B[12 - i]"""),
    "fixed point": ("A: T.Buffer((13,), 'int32'), B: T.Buffer((13,), 'int32')", """
for i in range(13):
    B[i] = T.q_multiply_shift(A[i], 1395864371, 31, -3)"""),
    "one word twice": ("A: T.Buffer((8,), 'int8'), B: T.Buffer((8,), 'int8')", """
for i in range(8):
    B[i] = T.int8(1)
    if A[i] > T.int8(0):
        B[i] = A[i]
    B[(i + 1) % 8] = B[i] + A[i]
    B[i] = B[i] + T.int8(1)"""),
    "a word that is read twice after a condition": ("A: T.Buffer((8,), 'int8'), B: T.Buffer((8,), 'int8')", """
for i in range(8):
    if A[i] > T.int8(2):
        B[0] = A[i]
    B[i] = B[0] * T.int8(3) + B[0] // A[i]"""),
    "a pipeline longer than 64 cycles": ("A: T.Buffer((80,), 'int8'), B: T.Buffer((3,), 'int8')", """
for i in T.serial(3, annotations={"pragma_pipeline": 0}):
    for j in T.unroll(70):
        B[i] = B[i] + A[i + j]"""),
    "a word of a step before": ("A: T.Buffer((8,), 'int8'), R: T.Buffer((), 'int8'), B: T.Buffer((8,), 'int8')", """
for i in T.serial(8, annotations={"pragma_pipeline": 0}):
    B[i] = R[()]
    R[()] = R[()] // T.int8(3) + A[i]"""),
    "words of Verilog": ("reg: T.Buffer((3,), 'int8'), wire: T.Buffer((3,), 'int8'), net1: T.int32", """
for module in range(3):
    wire[module] = reg[module] + T.Cast("int8", net1)"""),
}  # fmt: skip
"""Parameters and bodies of functions."""


def program(title):
    parameters, body = PROGRAMS[title]
    return tw.tir.parse(f"@T.prim_func\ndef main({parameters}):" + body.replace("\n", "\n    ") + "\n")


@simulated
@pytest.mark.parametrize("title", PROGRAMS)
def test_programs(title):
    func = program(title)
    agree(func, *[-7 for p in func.params if p not in func.buffer_map])


@simulated
@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 13, 1), (5, 1, 17)])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_awkward_sizes(schedule, sizes):
    agree(SCHEDULES[schedule](matmul(*sizes), "C").func)


@simulated
def test_table_of_the_guide():
    """A part of the table is made anew, and every schedule of it takes fewer cycles than the one before."""
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "hardware.md").read_text()
    rows = cycle_table(["fir 64, 16 taps"]).splitlines()
    assert all(row in guide for row in rows)
    cycles = [int(row.split(" | ")[2]) for row in rows[2:]]
    assert cycles == sorted(cycles, reverse=True) and len(set(cycles)) == len(SCHEDULES)


@simulated
def test_predicates_of_tails():
    """A split that does not divide leaves iterations out."""
    sch = tw.Schedule(matmul(5, 7, 13))
    i, _, k = sch.get_loops(sch.get_block("C"))
    sch.split(i, [None, 4])
    sch.unroll(sch.split(k, [None, 4])[1])
    agree(sch.func)


def test_calls_and_texts(tmp_path):
    """A call makes the results; the texts are there without a simulator."""
    module = tw.build(matmul(2, 3, 4), "verilog")
    assert "module matmul (" in module.get_source() and "matmul_bench" in module.get_source("bench")
    assert [path.name for path in module.export(tmp_path / "mm.v")] == ["mm.v", "mm_bench.v"]
    with pytest.raises(HardwareError, match="suffix .v"):
        module.export(tmp_path / "mm.so")
    with pytest.raises(ValueError, match="no source 'llvm'"):
        module.get_source("llvm")
    a, b, _ = arrays_of(matmul(2, 3, 4))
    if "icarus" in installed_simulators():
        assert np.array_equal(module(a, b), a.astype("int32") @ b.astype("int32"))


REFUSED = {
    "an interval of 1": ("A: T.Buffer((16,), 'int32')", """
for i in T.serial(15, annotations={"pragma_pipeline": 1}):
    A[i + 1] = A[i] * T.int32(3)""", "next iteration may need the word of A .* 2 is possible"),
    "one port": ("A: T.Buffer((16,), 'int32'), B: T.Buffer((12,), 'int32')", """
for i in T.serial(12, annotations={"pragma_pipeline": 1}):
    B[i] = A[i] + A[i + 2] + A[i + 4]""", "3 words of A are read .* pragma_array_partition divides it; 3 is possible"),
    "loops inside": ("A: T.Buffer((4, 4), 'int32'), B: T.Buffer((4,), 'int32')", """
for i in T.serial(4, annotations={"pragma_pipeline": 1}):
    B[i] = 0
    for j in range(4):
        B[i] = B[i] + A[i, j]""", "loop i cannot be a pipeline, since j stands in it.*unroll j"),
    "float32": ("A: T.Buffer((4,), 'float32'), B: T.Buffer((4,), 'float32')", """
for i in range(4):
    B[i] = A[i] * T.float32(2)""", "Mul of float32 has no meaning in hardware"),
    "exp": ("A: T.Buffer((4,), 'float32'), B: T.Buffer((4,), 'float32')", """
for i in range(4):
    B[i] = T.exp(A[i])""", "tir.exp of float32 has no meaning in hardware"),
    "a conversion": ("A: T.Buffer((4,), 'int32'), B: T.Buffer((4,), 'int32')", """
for i in range(4):
    B[i] = T.Cast("int32", T.Cast("float32", A[i]))""", "Cast of float32 has no meaning"),
    "copies of floats": ("A: T.Buffer((4,), 'float32'), B: T.Buffer((4,), 'float32')", """
for i in range(4):
    B[i] = A[i]""", "buffer A holds float32"),
    "sizes": ("a: T.handle, B: T.Buffer((4,), 'int32')", """
n = T.int32()
A = T.match_buffer(a, (n,), "int32")
for i in range(4):
    B[i] = A[i]""", "the size n is not known"),
    "while": ("A: T.Buffer((4,), 'int32')", """
while A[0] > 0:
    A[0] = A[0] - 1""", "has no meaning in hardware"),
    "threads": ("A: T.Buffer((4,), 'int32')", """
for i in T.thread_binding(4, thread="threadIdx.x"):
    A[i] = 1""", "loop i, which is bound to threadIdx.x, has no meaning"),
    "a dimension that is not there": ("A: T.Buffer((4,), 'int32')", """
for i in T.serial(4, annotations={"pragma_array_partition": [["A", 1, 2]]}):
    A[i] = 1""", "A has 1 dimensions, none of number 1"),
}  # fmt: skip


@pytest.mark.parametrize("title", REFUSED)
def test_refused(title):
    parameters, body, words = REFUSED[title]
    func = tw.tir.parse(f"@T.prim_func\ndef main({parameters}):" + body.replace("\n", "\n    ") + "\n")
    with pytest.raises(HardwareError, match=words):
        tw.build(func, "verilog")


def test_annotation_that_is_no_list():
    func = tw.tir.parse(
        "@T.prim_func\ndef main(A: T.Buffer((4,), 'int32')):\n"
        "    for i in T.serial(4, annotations={'pragma_array_partition': 'A'}):\n        A[i] = 1\n"
    )
    with pytest.raises(ValueError, match="list of"):
        tw.build(func, "verilog")


def test_missing_simulator(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(HardwareError, match="this machine lacks iverilog and vvp or verilator"):
        tw.build(matmul(2, 2, 2), "verilog").simulate(*arrays_of(matmul(2, 2, 2)))
