"""Products of dequantized numbers: they become products of integers, with the results of the floats."""

import numpy as np
import pytest

from tilewright.graph import Builder, evaluate, prepare


def dequantized(b, x, zero, scale):
    wide = b.op("cast", x, dtype="int32")
    if zero is not None:
        wide = b.op("subtract", wide, b.constant(np.array(zero, np.int32)))
    return b.op("multiply", b.op("cast", wide, dtype="float32"), b.constant(np.asarray(scale, np.float32)))


@pytest.mark.parametrize(
    ("op", "shape", "weight", "scale", "attrs", "left"),
    [
        ("matmul", (3, 8), (8, 5), 0.5, {}, ["matmul", "add", "cast", "multiply"]),
        ("matmul", (2, 3, 8), (8, 5), [0.5, 1, 2, 4, 0.25], {}, ["matmul", "add", "cast", "multiply"]),
        ("dense", (3, 8), (5, 8), np.ones((5, 1)) * 0.25, {}, ["dense", "add", "cast", "multiply"]),
        ("conv2d", (1, 3, 5, 5), (4, 3, 3, 3), np.ones((4, 1, 1, 1)) / 2, {"padding": 1},
         ["pad", "conv2d", "add", "cast", "multiply"]),
        ("conv2d", (1, 4, 5, 5), (4, 2, 3, 3), 0.5, {"groups": 2, "padding": (1, 0, 1, 2)},
         ["pad", "conv2d", "add", "cast", "multiply"]),
        ("depthwise_conv2d", (1, 3, 5, 5), (3, 1, 3, 3), 0.5, {"stride": 2}, ["depthwise_conv2d", "add", "cast", "multiply"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_quantized_numbers(op, shape, weight, scale, attrs, left, bias):
    rng = np.random.default_rng(0)
    b = Builder("net")
    x = dequantized(b, b.input("x", shape, "uint8"), 7, 0.25)
    w = dequantized(b, b.constant(rng.integers(-8, 8, weight).astype(np.int8)), None, scale)
    channels = 5 if op in ("matmul", "dense") else weight[0]
    given = (b.constant(rng.integers(-3, 4, channels).astype(np.float32)),) if bias and op != "matmul" else ()
    graph = b.graph([b.op(op, x, w, *given, **attrs)])
    after = prepare(graph)
    assert [n.op for n in after.nodes if n.op not in ("transpose", "reshape")][: len(left)] == left
    assert "int8" in {v.dtype for v in after.constants}
    data = rng.integers(0, 16, shape).astype(np.uint8)
    np.testing.assert_allclose(evaluate(after, data)[0], evaluate(graph, data)[0], rtol=1e-6)


def test_weights_with_a_zero_point_stay_floats():
    b = Builder("net")
    x = dequantized(b, b.input("x", (3, 8), "uint8"), 7, 0.25)
    w = dequantized(b, b.constant(np.arange(40, dtype=np.int8).reshape(8, 5)), 3, 0.5)
    after = prepare(b.graph([b.op("matmul", x, w)]))
    assert "int8" not in {v.dtype for v in after.constants}


@pytest.mark.parametrize(
    ("op", "shape", "weight", "attrs", "left"),
    [
        ("matmul", (3, 8), (8, 5), {}, ["matmul", "add"]),
        ("conv2d", (1, 3, 5, 5), (4, 3, 3, 3), {"padding": 1}, ["pad", "conv2d", "add"]),
    ],
)
def test_products_of_shifted_integers(op, shape, weight, attrs, left):
    rng = np.random.default_rng(1)
    b = Builder("net")
    x = b.op("subtract", b.op("cast", b.input("x", shape, "uint8"), dtype="int32"), b.constant(np.array(9, np.int32)))
    w = b.constant(rng.integers(-128, 128, weight).astype(np.int8))
    graph = b.graph([b.op(op, x, w, out_dtype="int32", **attrs)])
    after = prepare(graph)
    assert [n.op for n in after.nodes] == left
    data = rng.integers(0, 256, shape).astype(np.uint8)
    np.testing.assert_array_equal(evaluate(after, data)[0], evaluate(graph, data)[0])
