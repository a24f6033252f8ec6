"""shift_operand: that it computes the same for every pair of signs, and what it refuses."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.schedule import Schedule, ScheduleError, Trace
from tilewright.tir import structural_equal, verify
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

ALL = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def product(m, n, k, left="int8", right="int8", wide="int32"):
    a, b = te.placeholder((m, k), left, name="A"), te.placeholder((k, n), right, name="B")
    q = te.reduce_axis((0, k), name="q")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, q].astype(wide) * b[q, j].astype(wide), axis=q), name="C")
    return te.create_prim_func([a, b, c])


@pytest.mark.parametrize("operand", ["A", "B"])
@pytest.mark.parametrize("left", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("right", ["int8", "uint8", "uint16"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 13, 17), (16, 1, 5)])
def test_the_product_stays_what_it_was(m, n, k, left, right, operand):
    func = product(m, n, k, left, right)
    sch = Schedule(func)
    shifted, sums, result = sch.shift_operand("C", operand)
    verify(sch.func)
    source = sch.get(shifted).reads[0].buffer.dtype
    assert {source, sch.get(shifted).writes[0].buffer.dtype} in ({"int8", "uint8"}, {"int16", "uint16"})
    assert [c.name for c in sch.get_consumers(sums)] == [result.name]
    rng = np.random.default_rng(0)
    a = rng.choice([*ALL[left], 0, 1], (m, k)).astype(left)
    b = rng.choice([*ALL[right], 0, 1], (k, n)).astype(right)
    want = (a.astype("int64") @ b.astype("int64")).astype("int32")  # wraps, as int32 does
    module = compile(sch, Target("native -num-cores=1"), "product")
    for run in (lambda *v: interpret(sch.func, *v), module):
        out = np.full((m, n), 77, "int32")
        run(a, b, out)
        np.testing.assert_array_equal(out, want)
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert structural_equal(again.func, sch.func)


def test_a_window_and_a_sum_of_one_element():
    """The other factor's sums follow its own axes: all of a window's, or none."""
    a, b = te.placeholder((2, 9), "uint8", name="A"), te.placeholder((3, 4), "uint8", name="B")
    r = te.reduce_axis((0, 3), name="r")
    c = te.compute(
        (2, 7, 4), lambda p, i, j: te.sum(a[p, i + r].astype("int32") * b[r, j].astype("int32"), axis=r), name="C"
    )
    rng = np.random.default_rng(0)
    x, w = rng.integers(0, 256, (2, 9)).astype("uint8"), rng.integers(0, 256, (3, 4)).astype("uint8")
    want = np.stack([x[:, i : i + 3].astype("int32") @ w.astype("int32") for i in range(7)], axis=1)
    for operand, shape in (("B", (2, 7)), ("A", (4,))):
        sch = Schedule(te.create_prim_func([a, b, c]))
        _, sums, _ = sch.shift_operand("C", operand)
        assert tuple(int(e) for e in sch.get(sums).writes[0].buffer.shape) == shape
        out = np.full((2, 7, 4), 77, "int32")
        interpret(sch.func, x, w, out)
        np.testing.assert_array_equal(out, want)
    u, v = te.placeholder((13,), "int8", name="U"), te.placeholder((13,), "int8", name="V")
    k = te.reduce_axis((0, 13), name="k")
    s = te.compute((), lambda: te.sum(u[k].astype("int32") * v[k].astype("int32"), axis=k), name="S")
    sch = Schedule(te.create_prim_func([u, v, s]))
    sch.shift_operand("S", 0)
    x, w = rng.integers(-128, 128, (2, 13)).astype("int8")
    out = np.full((), 77, "int32")
    interpret(sch.func, x, w, out)
    assert out == x.astype("int32") @ w.astype("int32")


def test_what_it_refuses():
    sch = Schedule(product(4, 4, 8))
    with pytest.raises(ScheduleError, match="has no read buffer 'D'"):
        sch.shift_operand("C", "D")
    split = sch.copy()
    split.decompose_reduction("C", split.get_loops("C")[2])
    with pytest.raises(ScheduleError, match="C"):
        split.shift_operand("C", "B")
    with pytest.raises(ScheduleError, match="not a product of narrow integers"):
        Schedule(product(4, 4, 8, "int32", "int8")).shift_operand("C", "B")
    with pytest.raises(ScheduleError, match="is no element of an array of integers"):
        Schedule(product(4, 4, 8, "float32", "float32", "float32")).shift_operand("C", "B")
    square = te.placeholder((8,), "int8", name="A")
    k = te.reduce_axis((0, 8), name="k")
    s = te.compute((1,), lambda i: te.sum(square[k].astype("int32") * square[k].astype("int32"), axis=k), name="S")
    with pytest.raises(ScheduleError, match="one of the two factors"):
        Schedule(te.create_prim_func([square, s])).shift_operand("S", "A")
    most = te.compute((1,), lambda i: te.max(square[k].astype("int32"), axis=k), name="S")
    with pytest.raises(ScheduleError, match="not a sum of products from zero"):
        Schedule(te.create_prim_func([square, most])).shift_operand("S", "A")


def test_a_factor_in_the_index_of_the_other():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,), "int8"), B: T.Buffer((4,), "int8"), C: T.Buffer((1,), "int32")):
    for k in range(4):
        with T.block("C"):
            v0 = T.axis.spatial(1, 0)
            vk = T.axis.reduce(4, k)
            with T.init():
                C[v0] = 0
            C[v0] = C[v0] + T.cast(A[T.cast(B[vk], "int32")], "int32") * T.cast(B[vk], "int32")
""")
    with pytest.raises(ScheduleError, match="one of the two factors"):
        Schedule(func).shift_operand("C", "B")


def test_after_blockize_it_would_run_often():
    sch = Schedule(product(4, 4, 8))
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [2, 2])
    sch.reorder(i0, i1, j, k)
    inner = sch.blockize(i1)
    with pytest.raises(ScheduleError, match="stands inside block"):
        sch.shift_operand("C", "B")
    assert inner.name


@pytest.mark.parametrize("point", [0, 3, 128, -5])
@pytest.mark.parametrize("operand", ["A", "B"])
def test_zero_points_go_along(operand, point):
    """The shift is one more zero point; where both are the same number, nothing is left of them."""
    a, b, z = (
        te.placeholder((5, 7), "uint8", "A"),
        te.placeholder((7, 4), "int8", "B"),
        te.placeholder((4,), "int8", "z"),
    )
    q, wide = te.reduce_axis((0, 7), name="q"), lambda x: x.astype("int32")
    c = te.compute(
        (5, 4), lambda i, j: te.sum((wide(a[i, q]) - point) * (wide(b[q, j]) - wide(z[j])), axis=q), name="C"
    )
    sch = Schedule(te.create_prim_func([a, b, z, c]))
    shifted, *sums, _ = sch.shift_operand("C", operand)
    verify(sch.func)
    assert len(sums) == (1 if operand == "A" and point == 128 else 1 + (operand == "A" or point != 0))
    rng = np.random.default_rng(0)
    x, w, y = (
        rng.integers(0, 256, (5, 7)).astype("uint8"),
        *(rng.integers(-128, 128, s).astype("int8") for s in ((7, 4), 4)),
    )
    out = np.zeros((5, 4), "int32")
    interpret(sch.func, x, w, y, out)
    np.testing.assert_array_equal(out, (x.astype("int32") - point) @ (w.astype("int32") - y))
