"""Constant operands packed once, ahead of the calls."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.codegen.packing import layout_free_params, split_packing
from tilewright.driver.building import build
from tilewright.schedule import Schedule
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


def dense(m, n, k, free=True):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]} if free else {}
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C", attrs=attrs)
    return te.create_prim_func([a, b, c])


def panels(func, cols=16, pad=0.0):
    """B as panels of ``cols`` columns, packed at the root."""
    sch = Schedule(func)
    packed = sch.cache_read("C", 1, "global")
    sch.transform_layout(
        "C", ("read", 1), lambda k, j: (j // cols, k, j % cols), pad_value=pad, leave_padding=pad is None
    )
    sch.vectorize(sch.get_loops(packed)[-1])
    i, j, k = sch.get_loops("C")
    j0, j1 = sch.split(j, [None, cols])
    sch.reorder(i, j0, k, j1)
    sch.vectorize(j1)
    return sch


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


@pytest.mark.parametrize("pad", [0.0, None])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (7, 16, 13), (17, 50, 13), (16, 64, 7)])
def test_matmul(m, n, k, pad):
    sch = panels(dense(m, n, k), pad=pad)
    split = split_packing(sch.func)
    assert list(split.packs) == [1]
    verify(split.main)
    verify(split.packs[1])
    f = compile(sch, "native -num-cores=1", "dense")
    assert list(f) == ["dense", "dense_pack_B"]
    a, b = numbers(m, k), numbers(k, n, seed=1)
    packed = f.pack_weights(b)
    assert packed.shape == (-(-n // 16), k, 16) and packed.dtype == np.float32
    assert packed.flags.c_contiguous and not np.isnan(packed).any()
    for _ in range(2):
        c = np.full((m, n), np.nan, "float32")
        f(a, packed, c)
        np.testing.assert_array_equal(c, a @ b)
    c = np.full((m, n), np.nan, "float32")
    f.bind(*f.packed_arguments([a, b, c]))()
    np.testing.assert_array_equal(c, a @ b)
    with pytest.raises(ValueError, match=r"dense packs 1 arrays \(B\), not 2"):
        f.pack_weights(b, b)


def test_the_interpreter_agrees():
    func = panels(dense(5, 19, 3)).func
    split = split_packing(func)
    a, b = numbers(5, 3), numbers(3, 19, seed=1)
    packed = np.zeros((2, 3, 16), "float32")
    c = np.full((5, 19), np.nan, "float32")
    interpret(split.packs[1], b, packed)
    interpret(split.main, a, packed, c)
    np.testing.assert_array_equal(c, a @ b)


def conv(co=13, ci=5, size=9):
    x = te.placeholder((1, ci, size, size), name="X")
    w = te.placeholder((co, ci, 3, 3), name="W")
    rc, ry, rx = (
        te.reduce_axis((0, ci), name="rc"),
        te.reduce_axis((0, 3), name="ry"),
        te.reduce_axis((0, 3), name="rx"),
    )
    y = te.compute(
        (1, co, size - 2, size - 2),
        lambda n, o, i, j: te.sum(x[n, rc, i + ry, j + rx] * w[o, rc, ry, rx], axis=[rc, ry, rx]),
        name="Y",
        attrs={"layout_free_placeholders": [w]},
    )
    return te.create_prim_func([x, w, y])


def test_convolution():
    func = conv()
    sch = Schedule(func)
    sch.cache_read("Y", 1, "global")
    sch.transform_layout("Y", ("read", 1), lambda o, c, y, x: (o // 8, c, y, x, o % 8), pad_value=0.0)
    f = compile(sch, "native -num-cores=2", "conv")
    x, w = numbers(1, 5, 9, 9), numbers(13, 5, 3, 3, seed=1)
    want = np.full((1, 13, 7, 7), np.nan, "float32")
    interpret(func, x, w, want)
    packed = f.pack_weights(w)
    assert packed.shape == (2, 5, 3, 3, 8)
    np.testing.assert_array_equal(packed[1, :, :, :, 5:], 0)
    got = np.full_like(want, np.nan)
    f(x, packed, got)
    np.testing.assert_array_equal(got, want)


def test_through_build():
    f = build(panels(dense(7, 33, 5)), target="native -num-cores=1", name="dense")
    a, b, c = numbers(7, 5), numbers(5, 33, seed=1), np.full((7, 33), np.nan, "float32")
    f(a, f.pack_weights(b), c)
    np.testing.assert_array_equal(c, a @ b)


def test_a_schedule_without_packing_takes_the_array_as_it_is():
    f = compile(dense(7, 16, 5), "native")
    a, b, c = numbers(7, 5), numbers(5, 16, seed=1), np.full((7, 16), np.nan, "float32")
    assert f.pack_weights(b) is b
    f(a, f.pack_weights(b), c)
    np.testing.assert_array_equal(c, a @ b)


def test_without_the_attribute_nothing_is_split():
    f = compile(panels(dense(7, 16, 5, free=False)), "native", "dense")
    assert list(f) == ["dense"]
    with pytest.raises(ValueError, match="dense has no layout-free parameters"):
        f.pack_weights(numbers(5, 16))


def text(middle: str, last: str, allocs: str = "") -> str:
    return f"""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    T.func_attr({{"layout_free_buffers": [1]}})
    P = T.alloc_buffer((8,))
    {allocs}
    {middle}
    for i in range(8):
        with T.block("C"):
            v = T.axis.spatial(8, i)
            C[v] = {last}
"""


def loop(name: str, value: str) -> str:
    return f"""for i in range(8):
        with T.block("{name}"):
            v = T.axis.spatial(8, i)
            {name}[v] = {value}
"""


@pytest.mark.parametrize(
    ("middle", "last", "allocs"),
    [
        (loop("P", "B[v]"), "P[7 - v] + B[v]", ""),  # B is needed as it is, too
        (loop("P", "B[v] + A[v]"), "P[7 - v]", ""),  # not of B alone
        (loop("P", "B[v]") + "    " + loop("Q", "B[v]"), "P[v] + Q[v]", "Q = T.alloc_buffer((8,))"),  # two results
        (loop("P", "B[v]") + "    " + loop("P", "A[v]"), "P[v]", ""),  # overwritten
        (loop("P", "A[v]"), "P[v] + B[v]", ""),
    ],
)
def test_what_is_not_split(middle, last, allocs):
    func = parse(text(middle, last, allocs))
    split = split_packing(func)
    assert not split.packs and split.main is func


def test_packing_in_several_steps():
    """A buffer that is zeroed first, and another in between."""
    middle = (
        loop("P", "T.float32(0)") + "    " + loop("Q", "B[7 - v]") + "    " + loop("P", "P[v] + Q[v] * T.float32(2)")
    )
    split = split_packing(parse(text(middle, "A[v] + P[v]", "Q = T.alloc_buffer((8,))")))
    assert list(split.packs) == [1]
    verify(split.main)
    verify(split.packs[1])
    b, p, c = numbers(8), np.full(8, np.nan, "float32"), np.full(8, np.nan, "float32")
    interpret(split.packs[1], b, p)
    np.testing.assert_array_equal(p, 2 * b[::-1])
    interpret(split.main, numbers(8, seed=1), p, c)
    np.testing.assert_array_equal(c, numbers(8, seed=1) + p)


def test_two_weights():
    a, b = te.placeholder((6, 5), name="A"), te.placeholder((5, 7), name="B")
    s = te.placeholder((7,), name="S")
    k = te.reduce_axis((0, 5), name="k")
    d = te.compute((6, 7), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="D")
    e = te.compute((6, 7), lambda i, j: d[i, j] + s[j], name="E", attrs={"layout_free_placeholders": [b, s]})
    sch = Schedule(te.create_prim_func([a, b, s, e]))
    sch.cache_read("D", 1, "global")
    sch.transform_layout("D", ("read", 1), lambda k, j: (j, k))
    sch.cache_read("E", 1, "global")
    sch.transform_layout("E", ("read", 1), lambda j: (j // 4, j % 4), pad_value=0.0)
    f = compile(sch, "native", "f")
    assert list(f) == ["f", "f_pack_B", "f_pack_S"]
    x, w, v = numbers(6, 5), numbers(5, 7, seed=1), numbers(7, seed=2)
    packed = f.pack_weights(w, v)
    assert [p.shape for p in packed] == [(7, 5), (2, 4)]
    out = np.full((6, 7), np.nan, "float32")
    f(x, *packed, out)
    np.testing.assert_array_equal(out, x @ w + v)


def test_the_attribute_names_buffers():
    func = dense(2, 2, 2).with_attr("layout_free_buffers", [3])
    with pytest.raises(ValueError, match="layout_free_buffers of main names parameter 3, which is not a buffer"):
        layout_free_params(func)


def test_exported_header_has_both(tmp_path):
    compile(panels(dense(7, 16, 5)), Target("native -num-cores=1"), "dense").export(tmp_path / "dense.o")
    header = (tmp_path / "dense.h").read_text()
    assert "int32_t dense_pack_B(const float* B, float* B_global);" in header
    assert "int32_t dense(const float* A, const float* B_global, float* C);" in header
