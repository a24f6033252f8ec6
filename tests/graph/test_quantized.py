"""Products of dequantized numbers: they become products of integers, with the results of the floats."""

import math

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target
from tilewright.driver import build_graph
from tilewright.driver.graph_services import prepared
from tilewright.graph import Builder, evaluate, prepare
from tilewright.graph.quantize import quantized


def dequantized(b, x, zero, scale):
    wide = b.op("cast", x, dtype="int32")
    if zero is not None:
        wide = b.op("subtract", wide, b.constant(np.array(zero, np.int32)))
    return b.op("multiply", b.op("cast", wide, dtype="float32"), b.constant(np.asarray(scale, np.float32)))


def convolved(x, w, attrs):
    """Sums of products of windows, in whole numbers, by NumPy."""
    pad = attrs.get("padding", 0)
    top, left, bottom, right = (pad,) * 4 if isinstance(pad, int) else pad
    padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
    step = attrs.get("stride", 1)
    return np.einsum("nchwyx,ocyx->nohw", windows[:, :, ::step, ::step], w.astype(np.int64), optimize=True)


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


def test_zero_points_within_a_column_stay_floats():
    b = Builder("net")
    x = dequantized(b, b.input("x", (3, 8), "uint8"), 7, 0.25)
    w = dequantized(b, b.constant(np.arange(40, dtype=np.int8).reshape(8, 5)), np.arange(40).reshape(8, 5) % 7, 0.5)
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


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize(("op", "axis", "zero"), [("MatMul", None, False), ("MatMul", 0, True), ("MatMul", 1, True),
                                                  ("Gemm", 0, True), ("Gemm", 1, False)])  # fmt: skip
def test_narrow_weights_are_decoded_in_the_product(dtype, rows, op, axis, zero):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    steps, columns, rng, made = 256, 201, np.random.default_rng(0), onnx.helper.make_node
    shape = (columns, steps) if op == "Gemm" else (steps, columns)
    info = np.iinfo(dtype)
    given = {"q": rng.integers(info.min, info.max + 1, shape).astype(dtype)}
    given["s"] = np.asarray(rng.random(() if axis is None else shape[axis]) * 0.01 + 0.01, np.float32)
    if zero:
        given["z"] = rng.integers(info.min // 4, info.max // 4, given["s"].shape).astype(dtype)
    nodes = [made("DequantizeLinear", [*given], ["w"], **({} if axis is None else {"axis": axis})),
             made(op, ["x", "w"], ["y"], **({"transB": 1} if op == "Gemm" else {}))]  # fmt: skip
    ends = [
        onnx.helper.make_tensor_value_info(n, 1, [rows, size]) for n, size in zip("xy", (steps, columns), strict=True)
    ]
    constants = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in given.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = rng.standard_normal((rows, steps)).astype(np.float32)
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    run = tw.build(tw.from_onnx(model), target="native -num-cores=1")
    np.testing.assert_allclose(run(x), expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    step = run.steps[-1]
    assert run.workspace_bytes < 4 * steps * columns  # no array of decoded weights
    text = step.versions[0].built.scheduled
    assert "T.vectorized" in text
    if rows <= 16:
        wide = [line for line in text.splitlines() if "alloc_buffer" in line and str(steps) in line]
        assert all(dtype in line or "x_global" in line for line in wide), wide


@pytest.mark.parametrize(
    ("op", "shape", "weight", "attrs"),
    [
        ("dense", (3, 24), (16, 24), {}),
        ("matmul", (2, 3, 24), (24, 16), {}),
        ("conv2d", (2, 8, 9, 7), (6, 8, 3, 3), {"padding": 1}),
        ("conv2d", (1, 8, 9, 7), (6, 8, 3, 2), {"padding": (0, 1, 2, 0), "stride": 2}),
        ("conv2d", (1, 4, 40, 40), (32, 4, 3, 3), {"padding": 1}),
        ("conv2d", (2, 8, 5, 5), (6, 8, 1, 1), {}),
        ("depthwise_conv2d", (1, 8, 6, 6), (8, 1, 3, 3), {"padding": 1}),
    ],
)
@pytest.mark.parametrize("batch", ["number", "symbol"])
def test_products_less_a_zero_point_of_the_call(op, shape, weight, attrs, batch):
    rng = np.random.default_rng(5)
    b = Builder("g")
    first = tw.te.size_var("n") if batch == "symbol" else shape[0]
    x, zero = b.input("x", (first, *shape[1:]), "uint8"), b.input("zero", (), "uint8")
    w_data = rng.integers(-128, 128, weight).astype(np.int8)
    w = b.constant(w_data, "w")
    moved = b.op("subtract", b.op("cast", x, dtype="int32"), b.op("cast", zero, dtype="int32"))
    g = b.graph([b.op(op, moved, w, out_dtype="int32", **attrs)])
    (product,) = [node for node in prepare(g).nodes if node.op == op and node.inputs[0].dtype != "int32"]
    assert product.inputs[0].dtype == "uint8"
    assert not any(math.prod(d.shape) > 4096 for d in prepare(g).constants.values())  # no image of sums
    data = rng.integers(0, 256, shape).astype(np.uint8)
    built = tw.build(g, "native -num-cores=1", **({"bounds": {"n": 4}} if batch == "symbol" else {}))
    for z in (0, 1, 128, 255):
        given = data, np.array(z, np.uint8)
        large = op == "conv2d" and data.size > 1000  # the interpreter takes long
        want = convolved(data.astype(np.int64) - z, w_data, attrs) if large else evaluate(g, *given)[0]
        np.testing.assert_array_equal(built(*given), want)


@pytest.mark.parametrize("op", ["matmul", "matmul reshaped", "dense", "conv2d", "conv2d padded"])
@pytest.mark.parametrize("zeros", ["one", "near", "channels", "int8"])
@pytest.mark.parametrize("data", ["plain", "known", "of the call"])
def test_weights_with_zero_points_stay_narrow(op, zeros, data):
    """Products of integers less zero points of both sides are products of numbers of 8 bits, and exact."""
    rng = np.random.default_rng(0)
    windows = op.startswith("conv2d")
    shape, of_weight = ((2, 5, 9, 9), (24, 5, 3, 3)) if windows else ((6, 40), (24, 40) if op == "dense" else (40, 24))
    channel = 0 if windows or op == "dense" else 1
    low, high = {"near": (90, 156), "int8": (-128, 128)}.get(zeros, (0, 256))
    w = rng.integers(low, high, of_weight).astype("int8" if zeros == "int8" else "uint8")
    each = [1] * w.ndim
    each[channel] = 24
    zero = {"one": 117, "near": 121, "int8": -7}.get(zeros, rng.integers(60, 200, each))
    x = rng.integers(0, 256, shape).astype("uint8")
    b = Builder()
    given = [b.input("x", (2, 3, 40) if op.endswith("reshaped") else shape, "uint8")]
    left = b.op("cast", given[0], dtype="int32")
    if data == "known":
        left = b.op("subtract", left, b.constant(np.int32(131)))
    elif data == "of the call":
        given.append(b.input("z", (), "uint8"))
        left = b.op("subtract", left, b.op("cast", given[1], dtype="int32"))
    if op.endswith("reshaped"):  # as the rows of several matrices are those of one
        left = b.op("reshape", left, shape=shape)
    right = b.op("subtract", b.op("cast", b.constant(w), dtype="int32"), b.constant(np.asarray(zero, np.int32)))
    attrs = {"padding": 1} if op.endswith("padded") else {}
    net = b.graph([b.op(op.split()[0], left, right, out_dtype="int32", **attrs)])
    text = str(prepare(net))
    product = next(line for line in text.splitlines() if f"= {op.split()[0]}(" in line and "ones" not in line)
    names = product.partition("(")[2].split(")")[0].split(", ")[:2]
    types = [next(line for line in text.splitlines() if f" {n}: " in line or f"({n}: " in line) for n in names]
    assert all(
        "int8[" in t.partition(f"{n}: ")[2].split("=")[0].split(",")[0] for n, t in zip(names, types, strict=True)
    ), text
    less = 0 if data == "plain" else 131
    arrays = [
        x.reshape(2, 3, 40) if op.endswith("reshaped") else x,
        *([np.array(131, "uint8")] if data == "of the call" else []),
    ]
    made = np.asarray(tw.build(net)(*arrays))
    centered, kernel = x.astype(np.int64) - less, w.astype(np.int64) - zero
    if windows:
        np.testing.assert_array_equal(made, convolved(centered, kernel, attrs))
    else:
        np.testing.assert_array_equal(made, centered @ (kernel.T if op == "dense" else kernel))
        np.testing.assert_array_equal(made, evaluate(net, *arrays)[0])


@pytest.mark.parametrize(
    "target", ["native -num-cores=1", "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -num-cores=1"]
)
@pytest.mark.parametrize(("dtype", "bits"), [("uint8", 8), ("int8", 8), ("int16", 16)])
def test_data_is_quantized_without_divisions(target, dtype, bits):
    """Numbers near the middle of two whole ones, zeros, infinities, and scales of any magnitude are those of a division."""
    info, count = np.iinfo(dtype), 4096
    b = Builder()
    x, scale, zero = b.input("x", (count,)), b.input("scale", (1,)), b.input("zero", (), dtype)
    y = quantized(b, x, scale, zero, (info.min, info.max), dtype)
    graph = b.graph([y])
    made = prepared(graph, Target(target))
    assert [n.op for n in made.nodes if n.op in ("divide", "quantize_by_scale")] == ["quantize_by_scale"]
    run, rng = build_graph(graph, target), np.random.default_rng(bits)
    scales = [
        0.0,
        1e-45,
        1e-39,
        1e-20,
        1.0,
        -0.03,
        1e20,
        2.0**127,
        3.4e38,
        np.inf,
        *rng.random(40),
        *(10.0 ** rng.uniform(-40, 36, 40)),
    ]
    with np.errstate(all="ignore"):
        for s in np.float32(scales):
            near = ((rng.integers(-300 << (bits - 8), 300 << (bits - 8), count) + 0.5) * float(s)).astype(np.float32)
            data = (near.view(np.int32) + rng.integers(-2, 3, count).astype(np.int32)).view(np.float32)
            data[:7] = [0, -0.0, np.inf, -np.inf, 3e38, -3e38, 1e-45]
            place = rng.integers(info.min, info.max, endpoint=True)
            want = np.clip(np.rint(data / s) + np.float32(place), info.min, info.max)
            got = run(data, s.reshape(1), np.array(place, dtype))
            known = ~np.isnan(want)
            np.testing.assert_array_equal(got[known], want[known].astype(dtype))


@pytest.mark.parametrize("change", ["channels", "read", "float", "wide", "few"])
def test_divisions_that_stay(change):
    b = Builder()
    x = b.input("x", (4, 16) if change == "few" else (64, 64))
    scale = b.input("scale", (64,) if change == "channels" else ())
    whole = b.op("round", b.op("divide", x, scale))
    cut = b.op("clip", whole, low=0.0, high=255.0 if change != "wide" else 2.0**24)
    outputs = [cut if change == "float" else b.op("cast", cut, dtype="int32"), *([whole] if change == "read" else [])]
    made = prepared(b.graph(outputs), Target.of("native"))
    assert "divide" in [n.op for n in made.nodes]


def test_wrong_arguments_of_quantization_by_scale():
    x, s = te.placeholder((4, 4)), te.placeholder((4,))
    with pytest.raises(ValueError, match="it is one number"):
        te.ops.quantize_by_scale(x, s, low=0, high=255, dtype="uint8")
    with pytest.raises(ValueError, match="whole numbers of at most 20 bits"):
        te.ops.quantize_by_scale(x, te.placeholder(()), low=0.5, high=255, dtype="uint8")
