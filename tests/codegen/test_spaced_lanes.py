"""Lanes a few elements apart are picked out of whole vectors; farther ones are gathered."""

import numpy as np
import pytest

from tilewright.codegen import Target, compile, lower
from tilewright.codegen.llvm.emit import emit
from tilewright.tir.parser import parse

TARGETS = {name: Target(f"llvm -mcpu={name} -num-cores=1") for name in ("x86-64-v2", "x86-64-v3", "x86-64-v4")}


def program(lanes, distance, dtype="float32", rows=3, first=1):
    """``B[i, j] = A[i, first + distance * j]``; the last row of A ends with the last element that is read."""
    width = first + distance * (lanes - 1) + 1
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {width}), "{dtype}"), B: T.Buffer(({rows}, {lanes}), "{dtype}")):
    for i in range({rows}):
        for j in T.vectorized({lanes}):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj * {distance} + {first}]
""")


@pytest.mark.parametrize(
    ("lanes", "distance", "dtype", "target", "loads", "gathers"),
    [
        (16, 2, "float32", "x86-64-v4", 2, 0),
        (16, 3, "float32", "x86-64-v4", 3, 0),
        (16, 4, "float32", "x86-64-v4", 4, 0),
        (16, 5, "float32", "x86-64-v4", 0, 1),
        (32, 2, "float32", "x86-64-v4", 4, 0),
        (4, 3, "float32", "x86-64-v4", 3, 0),
        (2, 2, "float32", "x86-64-v4", 1, 0),
        (13, 2, "float32", "x86-64-v4", 0, 0),
        (8, 2, "float64", "x86-64-v4", 2, 0),
        (64, 4, "int8", "x86-64-v4", 4, 0),
        (16, 2, "int16", "x86-64-v3", 2, 0),
        (16, 3, "float32", "x86-64-v3", 6, 0),
        (8, 2, "int32", "x86-64-v2", 4, 0),
    ],
)
def test_lanes_a_few_elements_apart_are_picked_out_of_vectors(lanes, distance, dtype, target, loads, gathers):
    func = program(lanes, distance, dtype)
    text = emit(lower(func, TARGETS[target]))
    assert (text.count("= load <"), text.count("@llvm.masked.gather") > 0) == (loads, gathers > 0)
    a = np.arange(3 * func.buffers[0].shape[1].value).astype(dtype).reshape(3, -1)
    b = np.zeros((3, lanes), dtype)
    if not TARGETS[target].missing_here():
        compile(func, TARGETS[target])(a, b)
        np.testing.assert_array_equal(b, a[:, 1::distance])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("distance", [2, 3, 4])
@pytest.mark.parametrize(("lanes", "active"), [(64, 48), (64, 33), (32, 17), (16, 13), (16, 1), (8, 7)])
def test_lanes_at_the_end_of_a_row_are_picked_out_of_vectors_too(lanes, active, distance, target):
    """Nothing beyond the last lane is read: A ends there."""
    text = program(active, distance).script()
    func = parse(
        text.replace(f"T.vectorized({active})", f"T.vectorized({lanes})").replace(
            "T.reads", f"T.where(j < {active})\n                T.reads"
        )
    )
    assert "masked.gather" not in emit(lower(func, TARGETS[target]))
    a = np.arange(3 * func.buffers[0].shape[1].value).astype("float32").reshape(3, -1)
    b = np.full((3, active), np.nan, "float32")
    if not TARGETS[target].missing_here():
        compile(func, TARGETS[target])(a, b)
        np.testing.assert_array_equal(b, a[:, 1::distance])


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("lanes", "distance", "dtype"), [
    (16, 2, "float32"), (32, 3, "float32"), (8, 4, "int32"), (8, 2, "float64"), (64, 2, "int8"),
])  # fmt: skip
def test_lanes_at_the_end_of_a_symbolic_row_are_picked_out_of_vectors_too(lanes, distance, dtype, target):
    """How many are left is known at the call."""
    func = parse(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (3, n * {distance}), "{dtype}")
    B = T.match_buffer(b, (3, n), "{dtype}")
    for i, k in T.grid(3, (n + {lanes - 1}) // {lanes}):
        for j in T.vectorized({lanes}):
            with T.block("B"):
                vi = T.axis.spatial(3, i)
                vj = T.axis.spatial(n, k * {lanes} + j)
                T.where(k * {lanes} + j < n)
                B[vi, vj] = A[vi, vj * {distance} + 1]
""")
    instruction = target == "x86-64-v4" or dtype != "int8"
    assert ("masked.gather" in emit(lower(func, TARGETS[target]))) != instruction
    if TARGETS[target].missing_here():
        return
    run = compile(func, TARGETS[target])
    for n in (1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 100):
        a = np.arange(3 * n * distance).astype(dtype).reshape(3, -1)
        b = np.zeros((3, n), dtype)
        run(a, b)
        np.testing.assert_array_equal(b, a[:, 1::distance], err_msg=str(n))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("repeats", [2, 3, 4, 5])
def test_repeats_at_the_end_of_a_symbolic_row_are_picked_out_of_a_vector(repeats, target):
    """A vector goes through whole places, and how many are left is known at the call."""
    wide = 16 // repeats * repeats
    func = parse(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (3, (n + {repeats - 1}) // {repeats}))
    B = T.match_buffer(b, (3, n))
    for i, k in T.grid(3, (n + {wide - 1}) // {wide}):
        for j in T.vectorized({wide}):
            with T.block("B"):
                vi = T.axis.spatial(3, i)
                vj = T.axis.spatial(n, k * {wide} + j)
                T.where(k * {wide} + j < n)
                B[vi, vj] = A[vi, vj // {repeats}]
""")
    one = target == "x86-64-v4" or repeats in (2, 4)  # else the second vector of the last 15 begins within a place
    assert ("masked.gather" not in emit(lower(func, TARGETS[target]))) == one
    if TARGETS[target].missing_here():
        return
    run = compile(func, TARGETS[target])
    for n in (1, 2, 3, 7, 8, 14, 15, 16, 17, 33, 64, 65):
        a, b = np.arange(3 * -(-n // repeats), dtype="float32").reshape(3, -1), np.zeros((3, n), "float32")
        run(a, b)
        np.testing.assert_array_equal(b, a.repeat(repeats, 1)[:, :n], err_msg=str(n))


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("distance", "before", "width"), [(2, 1, 31), (2, 3, 56), (3, 2, 41), (4, 5, 70), (2, 17, 20)])
def test_lanes_between_two_ends_are_picked_out_of_vectors_too(distance, before, width, target):
    """The padding before and behind a row leaves out lanes at both ends."""
    count = (width + 2 * before - 1) // distance + 1
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((2, {width}), "float32"), B: T.Buffer((2, {count}), "float32")):
    for i, k in T.grid(2, {-(-count // 16)}):
        for j in T.vectorized(16):
            with T.block("B"):
                vi = T.axis.spatial(2, i)
                vj = T.axis.spatial({count}, k * 16 + j)
                T.where(k * 16 + j < {count})
                B[vi, vj] = T.if_then_else(
                    vj * {distance} >= {before} and vj * {distance} < {width + before},
                    A[vi, vj * {distance} - {before}], T.float32(-1)
                )
""")
    assert "masked.gather" not in emit(lower(func, TARGETS[target]))
    if TARGETS[target].missing_here():
        return
    a = np.arange(2 * width, dtype="float32").reshape(2, width)
    b = np.zeros((2, count), "float32")
    compile(func, TARGETS[target])(a, b)
    np.testing.assert_array_equal(b, np.pad(a, ((0, 0), (before, before)), constant_values=-1)[:, ::distance])


@pytest.mark.parametrize("active", [16, 12])
@pytest.mark.parametrize(("repeats", "gathered"), [(3, 8), (4, 4), (8, 2), (2, 8), (1, 16)])
def test_a_place_that_several_lanes_read_is_gathered_once(repeats, gathered, active):
    """Sixteen lanes read columns of an array of n columns; a symbolic stride is no distance of lanes that are picked."""
    func = parse(f"""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (16, n))
    B = T.match_buffer(b, (n, {active}))
    for i in range(n):
        for j in T.vectorized(16):
            with T.block("B"):
                vi = T.axis.spatial(n, i)
                vj = T.axis.spatial({active}, j)
                T.where(j < {active})
                B[vi, vj] = A[vj // {repeats}, vi]
""")
    text = emit(lower(func, TARGETS["x86-64-v4"]))
    count = 1 << (-(-active // repeats) - 1).bit_length() if repeats > 1 else 16
    assert f"masked.gather.v{count}f32" in text and count <= gathered
    if TARGETS["x86-64-v4"].missing_here():
        return
    run = compile(func, TARGETS["x86-64-v4"])
    for n in (1, 2, 5, 17):
        a, b = np.arange(16 * n, dtype="float32").reshape(16, n), np.zeros((n, active), "float32")
        run(a, b)
        np.testing.assert_array_equal(b, a.repeat(repeats, 0)[:active].T)


@pytest.mark.parametrize("distance", [2, 3, 4])
def test_the_code_for_a_vector_of_spaced_lanes_is_short(distance):
    """An instruction for each vector and for each but one to join them."""
    module = compile(program(16, distance), TARGETS["x86-64-v4"])
    row = [line for line in module.get_source("asm").splitlines() if "vpermt2ps" in line or "vpermi2ps" in line]
    assert 0 < len(row) <= 3 * (distance - 1) and "vinsertps" not in module.get_source("asm")


@pytest.mark.parametrize(
    ("index", "period"), [("vj % {0}", 96), ("(vj + 32) % {0}", 96), ("vj // {0}", 32), ("vj % {0}", 16)]
)
def test_wide_vectors_are_taken_apart_where_an_index_begins_again(index, period):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((96,)), B: T.Buffer((384,))):
    for j in range(6):
        for v in T.vectorized(64):
            with T.block("B"):
                vj = T.axis.spatial(384, j * 64 + v)
                B[vj] = A[{index.format(period)}] + T.float32(1)
""")
    lowered = lower(func, TARGETS["x86-64-v4"]).func.script()
    assert "% T.Broadcast" not in lowered and "// T.Broadcast" not in lowered
    if TARGETS["x86-64-v4"].missing_here():
        return
    a, b, vj = np.arange(96, dtype="float32"), np.zeros(384, "float32"), np.arange(384)
    compile(func, TARGETS["x86-64-v4"])(a, b)
    np.testing.assert_array_equal(b, a[eval(index.format(period), {"vj": vj})] + 1)


def test_the_lanes_of_nine_vectors_are_known():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((36,)), B: T.Buffer((5, 144))):
    for i in range(5):
        for v in T.vectorized(144):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, v])
                B[vi, vj] = A[vj % 36] + T.float32(1)
""")
    lowered = lower(func, TARGETS["x86-64-v4"])
    assert "v_o" not in lowered.func.script()
    if TARGETS["x86-64-v4"].missing_here():
        return
    a, b = np.arange(36, dtype="float32"), np.zeros((5, 144), "float32")
    compile(func, TARGETS["x86-64-v4"])(a, b)
    np.testing.assert_array_equal(b, np.tile(a + 1, (5, 4)))
