"""Products with weights of a few bits: packed, with data of float32 and rounded to int8, and found where they are decoded."""

import numpy as np
import pytest

from tests.frontends.onnx_nbits import differs, draw
from tilewright import te
from tilewright.codegen import Target
from tilewright.driver import build, build_graph
from tilewright.driver.graph_services import prepared
from tilewright.graph import Builder
from tilewright.te import ops
from tilewright.tir.expr.dtype import bfloat16_from_bits, bfloat16_to_bits
from tilewright.tuner import Space

VNNI = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server -num-cores=1"
AVX2 = "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -num-cores=1"


def weights(rng, bits, columns, depth, group, zeros):
    codes = rng.integers(0, 1 << bits, (columns, depth)).astype(np.uint8)
    scales = (rng.random((columns, depth // group)) + 0.1).astype(np.float32)
    zero = rng.integers(0, 1 << bits, scales.shape).astype(np.uint8) if zeros else None
    less = np.full(scales.shape, 1 << (bits - 1)) if zero is None else zero
    real = (codes - np.repeat(less, group, 1).astype(float)) * np.repeat(scales, group, 1)
    unit = 8 // bits
    packed = sum((codes[:, n::unit].astype(int) << (n * bits)) for n in range(unit)).astype(np.uint8)
    return codes, scales, zero, packed.reshape(columns, depth // group, -1), real


def graph_of(rng, shape, bits, columns, group, zeros, activations, bias=True):
    codes, scales, zero, packed, real = weights(rng, bits, columns, shape[-1], group, zeros)
    b = Builder()
    x = b.input("x", shape)
    given = [b.constant(packed, "w", "uint8"), b.constant(scales, "s"), *([b.constant(zero, "z")] if zeros else [])]
    y = b.op("dense_nbits", x, *given, bits=bits, activations=activations)
    add = rng.standard_normal(columns).astype(np.float32) if bias else np.zeros(columns, np.float32)
    return b.graph([b.op("relu", b.op("add", y, b.constant(add))) if bias else y]), real, add


def rounded(x, group):
    """Returns what the rounded numbers of each group stand for."""
    parts = x.reshape(*x.shape[:-1], -1, group)
    most = np.abs(parts).max(-1, keepdims=True)
    scale = np.where(most == 0, 1, most * np.float32(1 / 127)).astype(np.float32)
    return (np.rint(parts / scale) * scale).reshape(x.shape)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("shape", [(1, 128), (7, 128), (2, 3, 128)])
def test_a_layer_is_that_of_the_weights(bits, zeros, shape):
    rng = np.random.default_rng(bits)
    x = rng.standard_normal(shape).astype(np.float32)
    for activations, data in (("float32", x), ("int8", rounded(x, 32))):
        graph, real, add = graph_of(rng, shape, bits, 40, 32, zeros, activations)
        built = build_graph(graph)
        want = np.maximum(data @ real.T + add, 0)
        scale = np.abs(want).max()
        if activations == "int8" and "quantize_groups" not in str(prepared(graph, Target.of("native"))):
            want, scale = np.maximum(x @ real.T + add, 0), scale  # a machine without such instructions
        np.testing.assert_allclose(built(x), want, atol=3e-6 * scale)


def test_data_is_rounded_where_the_accuracy_allows_it():
    rng = np.random.default_rng(0)
    asked, _, _ = graph_of(rng, (4, 256), 4, 64, 32, False, "int8")
    plain, _, _ = graph_of(rng, (4, 256), 4, 64, 32, False, "float32")

    def rounds(graph, target, accuracy=None):
        text = str(prepared(graph, Target.of(target), accuracy))
        assert "dense_packed_nbits" in text
        return "quantize_groups" in text

    assert rounds(asked, VNNI) and not rounds(asked, VNNI, 1e-4) and not rounds(asked, AVX2)
    assert not rounds(plain, VNNI) and not rounds(plain, VNNI, 1e-3) and rounds(plain, VNNI, 0.01)


def test_dot_product_instructions_take_the_codes():
    num, sums = te.placeholder((4, 8, 32), "int8", "q"), te.placeholder((4, 8), "int32", "s")
    factors, scales = te.placeholder((4, 8), name="f"), te.placeholder((4, 8, 16), name="w")
    codes = te.placeholder((4, 8, 4, 16, 4), "uint8", "c")
    y = ops.relu(ops.dense_packed_nbits(num, sums, codes, scales, factors=factors, bits=4))
    func = te.create_prim_func([num, sums, codes, scales, factors, y])
    space = Space(func, VNNI)
    (sketch,) = space.sketches
    text = str(space.schedule(sketch, sketch.best_rows(1)[0]).func)
    assert "dot4_u8i8" in text and not space.left
    assert "vpdpbusd" in build(func, VNNI).get_source("asm")


def test_integer_data_comes_with_factors():
    num, sums = te.placeholder((4, 8, 32), "int8", "q"), te.placeholder((4, 8), "int32", "s")
    codes, scales = te.placeholder((4, 8, 4, 16, 4), "uint8", "c"), te.placeholder((4, 8, 16), name="w")
    with pytest.raises(ValueError, match="data of int8 comes with factors"):
        ops.dense_packed_nbits(num, sums, codes, scales)
    with pytest.raises(ValueError, match="pack_nbits makes them"):
        ops.dense_packed_nbits(num, sums, codes, scales, factors=te.placeholder((4, 8), name="f"), bits=8)


@pytest.mark.parametrize(
    "shapes, match",
    [
        (((4, 100), (8, 3, 16), (8, 3)), "3 groups of 32 codes are no rows of 100"),
        (((4, 96), (8, 3, 16), (8, 2)), "number of rows or groups"),
        (((4, 96), (8, 48), (8, 3)), "3 dimensions"),
    ],
)
def test_wrong_shapes_are_named(shapes, match):
    x, codes, scales = shapes
    with pytest.raises(ValueError, match=match):
        ops.dense_nbits(te.placeholder(x), te.placeholder(codes, "uint8"), te.placeholder(scales))
    with pytest.raises(ValueError, match="there are 2, 4, 8"):
        ops.dense_nbits(te.placeholder((4, 96)), te.placeholder((8, 3, 16), "uint8"), te.placeholder((8, 3)), bits=3)


FORMS = ("columns", "rows", "rows and bias", "blocks", "scaled later", "view")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("narrow", [False, True])
def test_decoded_weights_are_found(form, narrow):
    rng = np.random.default_rng(0)
    depth, columns, group = 256, 192, 32
    low, high = (-8, 8) if narrow else (-128, 128)
    q = rng.integers(low, high, (depth, columns)).astype(np.int8)
    b = Builder()
    x = b.input("x", (3, depth))
    if form.startswith("rows"):  # (N, K) with a scale for each row
        scale = rng.random((columns, 1)).astype(np.float32)
        real = q.T * scale
        w = b.op("multiply", b.op("cast", b.constant(q.T.copy()), dtype="float32"), b.constant(scale))
        bias = [b.constant(np.zeros(columns, "float32"))] if "bias" in form else []
        y, real = b.op("dense", x, w, *bias), real.T
    elif form == "blocks":
        scale, zero = (
            rng.random((depth // group, columns)).astype(np.float32),
            rng.integers(-5, 5, (depth // group, columns)),
        )
        wide, less = b.op("cast", b.constant(q), dtype="int32"), b.constant(zero.astype(np.int8))
        spread = b.op("cast", b.op("repeat", less, repeats=group, axis=0), dtype="int32")
        real = (q - np.repeat(zero, group, 0)) * np.repeat(scale, group, 0)
        centered = b.op("cast", b.op("subtract", wide, spread), dtype="float32")
        y = b.op("matmul", x, b.op("multiply", centered, b.op("repeat", b.constant(scale), repeats=group, axis=0)))
    elif form == "view":  # as torchao's groups of rows
        scale = rng.random((columns, depth // group, 1)).astype(np.float32)
        parts = b.op("reshape", b.constant(q.T.copy()), shape=(columns, depth // group, group))
        w = b.op("multiply", b.op("cast", parts, dtype="float32"), b.constant(scale))
        w = b.op("transpose", b.op("reshape", w, shape=(columns, depth)), axes=(1, 0))
        y = b.op("matmul", x, w)
        real = (q.T.reshape(columns, -1, group) * scale).reshape(columns, depth).T
    else:
        scale = rng.random((1, columns)).astype(np.float32)
        w = b.op("cast", b.constant(q), dtype="float32")
        later = form == "scaled later"
        y = b.op("matmul", x, w if later else b.op("multiply", w, b.constant(scale)))
        y, real = b.op("multiply", y, b.constant(scale)) if later else y, q * scale
    graph = b.graph([y])
    text = str(prepared(graph, Target.of(VNNI)))
    assert f"bits={4 if narrow else 8}" in text and text.count("dense_packed_nbits") and "multiply(" not in text
    given = rng.standard_normal((3, depth)).astype(np.float32)
    want = given @ real
    np.testing.assert_allclose(build_graph(graph)(given), want, atol=2e-6 * np.abs(want).max() * depth**0.5)


def test_scales_that_belong_to_no_groups_stay():
    rng = np.random.default_rng(0)
    b = Builder()
    x, q = b.input("x", (3, 256)), rng.integers(-128, 128, (256, 192)).astype(np.int8)
    scale = rng.random((256, 1)).astype(np.float32)  # one for each step of the sum
    y = b.op("matmul", x, b.op("multiply", b.op("cast", b.constant(q), dtype="float32"), b.constant(scale)))
    graph = b.graph([y])
    assert "nbits" not in str(prepared(graph, Target.of(VNNI)))
    given = rng.standard_normal((3, 256)).astype(np.float32)
    np.testing.assert_allclose(build_graph(graph)(given), given @ (q * scale), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("seed", range(16))
def test_products_of_a_few_bits_are_those_of_onnx_runtime(seed):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    found = differs(draw(seed))
    assert found is None or found.startswith("refused"), draw(seed).text


@pytest.mark.parametrize("zero", [None, "int8", "float32"])
@pytest.mark.parametrize("rows", [2, 50])
def test_data_that_was_rounded_before_stays_int8(zero, rows):
    """Dequantized rows of int8 by weights of a few bits are sums of integers, as exact as the floats."""
    rng = np.random.default_rng(0)
    b = Builder()
    q, s = b.input("q", (rows, 100), "int8"), b.input("s", (rows, 1))
    wide, given = b.op("cast", q, dtype="float32"), [q, s]
    if zero:
        given.append(b.input("z", (rows, 1), zero))
        wide = b.op("subtract", wide, given[-1] if zero == "float32" else b.op("cast", given[-1], dtype="float32"))
    codes = rng.integers(-8, 8, (100, 320)).astype("int8")
    scale = rng.random((1, 320)).astype("float32")
    w = b.op("multiply", b.op("cast", b.constant(codes), dtype="float32"), b.constant(scale))
    graph = b.graph([b.op("matmul", b.op("multiply", wide, s), w)])
    assert "dense_packed_nbits" in (text := str(prepared(graph, Target.of(VNNI)))) and "quantize_groups" not in text
    numbers, factor = rng.integers(-128, 128, (rows, 100)).astype("int8"), rng.random((rows, 1)).astype("float32")
    places = rng.integers(-100, 100, (rows, 1)).astype(zero or "int8")
    want = ((numbers.astype(float) - (places if zero else 0)) * factor) @ (codes * scale.astype(float))
    got = build_graph(graph)(numbers, factor, *([places] if zero else []))
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


def test_what_wraps_around_or_scales_rows_is_no_weight_in_groups():
    rng = np.random.default_rng(0)
    q, z = rng.integers(-128, 128, (256, 256)).astype("int8"), rng.integers(-90, 90, (1, 256)).astype("int8")
    b = Builder()
    x, s = b.input("x", (256, 256)), b.constant(rng.random((256, 1)).astype("float32"))
    wrapped = b.op("cast", b.op("subtract", b.constant(q), b.constant(z)), dtype="float32")
    rows = b.op("multiply", b.op("matmul", x, b.op("cast", b.constant(q), dtype="float32")), s)
    graph = b.graph([b.op("matmul", x, wrapped), rows])
    given = rng.standard_normal((256, 256)).astype("float32")
    got = build_graph(graph, accuracy=0.01)(given)
    for made, want in zip(got, (given @ (q - z).astype("float32"), given @ q * graph.constants[s]), strict=True):
        np.testing.assert_allclose(made, want, atol=0.03 * np.abs(want).max())


def test_scales_of_bfloat16_are_numbers():
    """The data of a bfloat16 constant is its bits; a cast of many of them is not folded."""
    rng = np.random.default_rng(0)
    codes, scale = rng.integers(-8, 8, (1024, 512)).astype("int8"), rng.random((32, 512)).astype("float32")
    bits = bfloat16_to_bits(scale)
    b = Builder()
    spread = b.op("cast", b.op("repeat", b.constant(bits, dtype="bfloat16"), repeats=32, axis=0), dtype="float32")
    w = b.op("multiply", b.op("cast", b.constant(codes), dtype="float32"), spread)
    graph = b.graph([b.op("matmul", b.input("x", (2, 1024)), w)])
    assert "dense_packed_nbits" in str(prepared(graph, Target.of(VNNI)))
    x = rng.standard_normal((2, 1024)).astype("float32")
    want = x @ (codes * np.repeat(bfloat16_from_bits(bits), 32, 0))
    np.testing.assert_allclose(build_graph(graph)(x), want, atol=1e-5 * np.abs(want).max())
