"""Convolutions of int8 and bfloat16 on a matrix unit: their candidates are right, and the model chooses the unit where it pays."""

import re

import numpy as np
import pytest

from tilewright import build, te
from tilewright.codegen import Target, compile
from tilewright.tir.interpret import interpret
from tilewright.tuner import default_schedule
from tilewright.tuner.space import Space

UNIT = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-cores=1"
unit = pytest.mark.skipif(
    not (Target("native").has_amx_int8 and Target("native").has_amx_bf16),
    reason="this machine has no AMX, or does not let this process use it",
)


def convolution(shape, outputs, window, stride, left="uint8", followed=True):
    """A convolution over NHWC with padding; of integers it is requantized to uint8 when it is ``followed``."""
    half = left == "bfloat16"
    x = te.placeholder(shape, left, name="X")
    w = te.placeholder((window, window, shape[-1], outputs), left if half else "int8", name="W")
    sums = te.ops.conv2d(x, w, stride, window // 2, layout="NHWC", out_dtype="float32" if half else "int32")
    if not followed:
        return te.create_prim_func([x, w, sums])
    scale = te.placeholder((outputs,), "float32", name="S")

    def requantized(n, i, j, f):
        return te.cast("uint8", te.min(te.max(te.round(sums[n, i, j, f].astype("float32") * scale[f]), 0.0), 255.0))

    return te.create_prim_func([x, w, scale, te.compute(sums.shape, requantized, name="Y")])


def arguments(func, seed=0):
    """Random arguments over all values of the types, every third of them an end; of bfloat16, small whole numbers."""
    rng = np.random.default_rng(seed)
    out = []
    for buffer in func.buffers[:-1]:
        shape = [int(n) for n in buffer.shape]
        if buffer.dtype == "bfloat16":
            out.append((rng.integers(-8, 9, shape).astype("float32").view("uint32") >> 16).astype("uint16"))
        elif buffer.dtype == "float32":
            out.append(rng.uniform(1e-4, 2e-3, shape).astype("float32"))
        else:
            low, high = (-128, 127) if buffer.dtype == "int8" else (0, 255)
            ends = rng.choice([low, high], shape)
            out.append(
                np.where(rng.random(shape) < 0.3, ends, rng.integers(low, high, shape, endpoint=True)).astype(
                    buffer.dtype
                )
            )
    return out


def wanted(func, given, stride):
    """The convolution by NumPy, in float64, which holds these sums exactly."""
    x, w, *scale = given
    if x.dtype == "uint16":
        x, w = [(a.astype("uint32") << 16).view("float32") for a in (x, w)]
    r = w.shape[0] // 2
    x = np.pad(x.astype("float64"), ((0, 0), (r, r), (r, r), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[:2], axis=(1, 2))[:, ::stride, ::stride]
    sums = np.einsum("nijcyx,yxcf->nijf", windows, w.astype("float64"))
    if not scale:
        return sums.astype(str(func.buffers[-1].dtype))
    return np.clip(np.round(sums.astype("float32") * scale[0]), 0, 255).astype("uint8")


CASES = [
    ((1, 5, 6, 64), 32, 3, 1), ((2, 7, 7, 64), 48, 3, 2), ((1, 6, 6, 16), 16, 3, 1), ((1, 8, 8, 64), 64, 1, 1),
    ((1, 7, 5, 128), 40, 1, 2), ((1, 5, 5, 48), 32, 3, 1), ((3, 4, 4, 64), 32, 1, 1),
]  # fmt: skip


CANDIDATES = [
    *[(case, "uint8", followed) for case in CASES[:5] for followed in (True, False)],
    *[(case, left, False) for case in CASES[:2] for left in ("int8", "bfloat16")],
]


@pytest.mark.parametrize(("case", "left", "followed"), CANDIDATES, ids=str)
def test_candidates_compute_the_convolution(case, left, followed):
    func = convolution(*case, left, followed)
    given = arguments(func)
    want = wanted(func, given, case[3])
    space = Space(func, Target(UNIT))
    sketch = next(s for s in space.sketches if "tiles_" in s.name)
    out = np.full_like(want, 77)
    interpret(space.schedule(sketch, [int(v) for v in space.best_rows(sketch, 1)[0]]).func, *given, out)
    np.testing.assert_array_equal(out, want)


@unit
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_shapes_of_tiles_compute_the_convolution(case, cores):
    target = Target(f"native -num-cores={cores}")
    func = convolution(*case)
    given = arguments(func, 1)
    want = wanted(func, given, case[3])
    space = Space(func, target)
    sketch = next(s for s in space.sketches if "tiles_" in s.name)
    rows = sketch.all_rows()
    for row in rows[:: max(1, len(rows) // 2)]:
        out = np.full_like(want, 77)
        module = compile(space.schedule(sketch, [int(v) for v in row]), target, "conv")
        assert "tdpbusd" in module.get_source("asm")
        module(*given, out)
        np.testing.assert_array_equal(out, want)


CHOSEN = [
    (((1, 14, 14, 64), 64, 3, 1), "uint8", "tdpbusd"),
    (((1, 14, 14, 64), 64, 3, 1), "int8", "tdpbssd"),
    (((1, 14, 14, 64), 64, 3, 2), "bfloat16", "tdpbf16ps"),
    (((1, 14, 14, 256), 64, 1, 1), "uint8", "tdpbusd"),
    (((1, 32, 32, 3), 32, 7, 2), "uint8", "vpdpbusd"),
    (((1, 2, 2, 64), 64, 3, 1), "uint8", "vpdpbusd"),
]


@pytest.mark.parametrize(("case", "left", "instruction"), CHOSEN, ids=str)
def test_the_model_takes_the_unit_where_it_pays(case, left, instruction):
    """Windows of a few channels are gathered one by one into tiles, and few rows leave most of a tile empty."""
    text = build(convolution(*case, left, followed=False), Target(UNIT)).get_source("asm")
    assert instruction in text
    assert ("tdpb" in text) == instruction.startswith("tdpb")


@pytest.mark.parametrize("target", ["llvm -mcpu=cascadelake -num-cores=1", "llvm -mcpu=znver4 -num-cores=1", UNIT + " -mattr=-amx-int8"])  # fmt: skip
def test_processors_without_the_unit_are_offered_none(target):
    names = [sketch.name for sketch in Space(convolution(*CASES[0]), Target(target)).sketches]
    assert names and not any("tiles_" in name for name in names)


def test_sums_are_requantized_where_tiles_are_stored():
    """No sums of the whole result are in memory: the scratch between tiles and requantization is 32 by 32."""
    func = convolution((1, 16, 16, 64), 64, 3, 1)
    scheduled = default_schedule(func, Target(UNIT))
    text = compile(scheduled, Target(UNIT), "conv").get_source("lowered")
    assert text.count("T.tile_dot4(") == 4 and text.count("T.tile_store(") == 4
    assert re.findall(r'decl_buffer\(\((.*)\), "int32"\)', text) == ["32, 32"]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("target", [pytest.param("native -num-cores=1", marks=unit, id="unit"), "native -mattr=-amx-tile -num-cores=1"])  # fmt: skip
def test_a_quantized_convolution_equals_that_of_onnx_runtime(dtype, target):
    """QLinearConv with zero points and a bias is a convolution of narrow integers, whatever instructions compute it."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    if not Target("native").has("avx2"):
        pytest.skip("this machine has no AVX2")
    rng = np.random.default_rng(5)
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    x = rng.choice([low, high, 7], (1, 64, 9, 9)).astype(dtype)
    constants = {
        "xs": np.float32(0.02), "xz": np.array(high - 40, dtype),
        "w": np.where(rng.random((32, 64, 3, 3)) < 0.3, rng.choice([-127, 127], (32, 64, 3, 3)),
                      rng.integers(-127, 127, (32, 64, 3, 3))).astype("int8"),
        "ws": rng.uniform(1e-4, 1e-3, 32).astype("float32"), "wz": np.zeros(32, "int8"),
        "ys": np.float32(0.25), "yz": np.array(low + 128, dtype), "b": rng.integers(-9999, 9999, 32).astype("int32"),
    }  # fmt: skip
    helper = onnx.helper
    node = helper.make_node(
        "QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1] * 4, kernel_shape=[3, 3]
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, (1, 32, 9, 9))],
        [onnx.numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    built = build(model, target)
    (want,) = session.run(None, {"x": x})
    assert np.unique(want).size > 20
    np.testing.assert_array_equal(built(x), want)
    (product,) = [step.func.script() for step in built.steps if "conv2d" in step.name]
    assert 'T.Cast("int32", pad' in product and f'"{dtype}"' in product


@pytest.mark.parametrize(
    ("left", "right", "word"),
    [
        ("int8", "uint8", "tdpbsud"),
        ("uint8", "uint8", "tdpbuud"),
        ("uint8", "int8", "tdpbusd"),
        ("int8", "int8", "tdpbssd"),
    ],
)
def test_factors_of_either_sign_take_tiles(left, right, word):
    """A convolution of one place with channels first has weights as rows and unsigned pixels as columns."""
    w, x = te.placeholder((64, 128), left, name="W"), te.placeholder((128, 196), right, name="X")
    r = te.reduce_axis((0, 128), name="r")
    y = te.compute((64, 196), lambda i, j: te.sum(w[i, r].astype("int32") * x[r, j].astype("int32"), axis=r), name="Y")
    assert word in build([w, x, y], UNIT).get_source("asm")
    rng, ends = np.random.default_rng(0), {"int8": (-128, 128), "uint8": (0, 256)}
    a, b = (rng.integers(*ends[t], s).astype(t) for t, s in ((left, (64, 128)), (right, (128, 196))))
    a[0], b[:, 0] = ends[left][1] - 1, ends[right][1] - 1
    got = np.zeros((64, 196), "int32")
    build([w, x, y], "native -num-cores=1")(a, b, got)
    np.testing.assert_array_equal(got, a.astype("int32") @ b.astype("int32"))
