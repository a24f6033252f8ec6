"""Named operations of linalg: which te programs become one, what comes back in, and that IREE computes the same."""

from __future__ import annotations

import pytest

from tilewright import from_mlir, te, tir, to_mlir
from tilewright.te import ops

from .iree_table import compared
from .outside_tools import IREE, MLIR_OPT, IreeModule, verified_by_mlir_opt
from .programs import arrays

pytest.importorskip("xdsl", reason="the package xdsl is not installed")


def convolution_of_pixels(stride):
    """A convolution of images whose channels come last, as te writes it without padding."""

    def make(x, w):
        n, h, _, c = x.shape
        kh, kw, _, f = w.shape
        dy, dx, rc = te.reduce_axis((0, kh), "dy"), te.reduce_axis((0, kw), "dx"), te.reduce_axis((0, c), "rc")
        shape = (n, (h - kh) // stride + 1, (x.shape[2] - kw) // stride + 1, f)
        return te.compute(shape, lambda b, i, j, o: te.sum(
            x[b, i * stride + dy, j * stride + dx, rc] * w[dy, dx, rc, o], [dy, dx, rc]), "conv")  # fmt: skip

    return make


F32, I32 = "float32", "int32"
ROWS = [
    ("matmul", ops.matmul, [(7, 13), (13, 17)], F32, "linalg.matmul"),
    ("matmul of int32", ops.matmul, [(7, 13), (13, 17)], I32, "linalg.matmul"),
    ("batch_matmul", ops.batch_matmul, [(3, 7, 13), (3, 13, 5)], F32, "linalg.batch_matmul"),
    ("conv2d", ops.conv2d, [(1, 3, 9, 8), (5, 3, 3, 2)], F32, "linalg.conv_2d_nchw_fchw"),
    ("conv2d by twos", lambda x, w: ops.conv2d(x, w, stride=2), [(1, 3, 9, 8), (5, 3, 3, 2)], F32, "linalg.conv_2d_nchw_fchw"),
    ("conv2d of int8", lambda x, w: ops.conv2d(x, w, out_dtype=I32), [(1, 3, 9, 8), (5, 3, 3, 2)], "int8", "linalg.conv_2d_nchw_fchw"),
    ("pixels", convolution_of_pixels(1), [(1, 9, 8, 3), (3, 2, 3, 5)], F32, "linalg.conv_2d_nhwc_hwcf"),
    ("pixels by twos", convolution_of_pixels(2), [(1, 9, 8, 3), (3, 2, 3, 5)], F32, "linalg.conv_2d_nhwc_hwcf"),
    ("transpose", lambda x: ops.transpose(x, (2, 0, 1)), [(7, 13, 5)], F32, "linalg.transpose"),
    ("sum", lambda x: ops.sum(x, axis=1), [(7, 13)], F32, "linalg.reduce"),
    ("sum of columns", lambda x: ops.sum(x, axis=0), [(7, 13)], F32, "linalg.reduce"),
    ("max of both ends", lambda x: ops.max(x, axis=(0, 2)), [(7, 13, 5)], F32, "linalg.reduce"),
    ("prod", lambda x: ops.prod(x, axis=1), [(7, 3)], I32, "linalg.reduce"),
    ("full", lambda x: ops.full((3, 5), 2.5, F32), [(1,)], F32, "linalg.fill"),
]  # fmt: skip
NOT = [
    ("dense has transposed weights", ops.dense, [(7, 13), (17, 13)], F32),
    ("sum of squares", lambda x: te.compute((7,), lambda i: te.sum(x[i, K] * x[i, K], K)), [(7, 13)], F32),
    ("matmul of uint8", lambda x, w: ops.matmul(x, w, out_dtype="uint32"), [(7, 13), (13, 17)], "uint8"),
    ("relu", ops.relu, [(7, 13)], F32),
]
K = te.reduce_axis((0, 13), "k")


def func_of(make, shapes, dtype, symbol="main"):
    inputs = [te.placeholder(shape, dtype, f"in{n}") for n, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, make(*inputs)]).with_attr("global_symbol", symbol)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_block_that_is_exactly_one_has_its_name(row):
    _, make, shapes, dtype, name = row
    func = func_of(make, shapes, dtype)
    text = str(to_mlir(func, named=True))
    assert name in text and "linalg.generic" not in text
    tir.assert_structural_equal(from_mlir(text), func)


@pytest.mark.parametrize("row", NOT, ids=lambda row: row[0])
def test_another_block_stays_generic(row):
    _, make, shapes, dtype = row
    func = func_of(make, shapes, dtype)
    text = str(to_mlir(func, named=True))
    assert "linalg.generic" in text
    tir.assert_structural_equal(from_mlir(text), func)


def test_sizes_may_be_open():
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, m), name="A"), te.placeholder((m, 5), name="B")
    func = te.create_prim_func([a, b, ops.matmul(a, b)])
    text = str(to_mlir(func, named=True))
    assert "linalg.matmul" in text
    tir.assert_structural_equal(from_mlir(text), func)


@pytest.mark.skipif(MLIR_OPT is None, reason="mlir-opt 19 or later is not installed")
def test_mlir_opt_verifies_named_operations():
    functions = {f"f{n}": func_of(make, shapes, dtype) for n, (_, make, shapes, dtype, _) in enumerate(ROWS)}
    assert verified_by_mlir_opt(str(to_mlir(functions, named=True))).count("func.func @") == len(ROWS)


@pytest.mark.skipif(not IREE, reason="iree-base-compiler and iree-base-runtime are not installed")
def test_iree_runs_named_operations():
    functions = {f"f{n}": func_of(make, shapes, dtype, f"f{n}") for n, (_, make, shapes, dtype, _) in enumerate(ROWS)}
    module = IreeModule(str(to_mlir(functions, named=True)))
    for (name, *_), func in zip(ROWS, functions.values(), strict=True):
        assert compared(func, module, arrays(func)) == "equal", name
