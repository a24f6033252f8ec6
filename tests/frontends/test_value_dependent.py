"""Models whose graph depends on values of their inputs, against ONNX Runtime and ONNX's reference."""

import threading

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
import ml_dtypes  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.codegen.runtime.arguments import ArgumentError  # noqa: E402
from tilewright.driver.building import BuildError  # noqa: E402

from .onnx_plain_door import cases, check  # noqa: E402

REDUCED = "g (float[2,3,4] x, int64[1] axes) => (float[a,b] y) { y = ReduceSum<keepdims=0>(x, axes) }"
COMPUTED = """g (float[4,6] x, int64[1] k) => (float[4,j] v, int64[4,j] i) <int64[1] two={2}>
    { m = Mul(k, two) v, i = TopK(x, m) }"""
IF = """g (float[4] x) => (float[n] y) <float t={0}, int64[1] s={0}, int64[1] e={2}>
    { m = ReduceMean<keepdims=0>(x) c = Greater(m, t) y = If (c) <
        then_branch = a () => (float[2] p) { p = Slice(x, s, e) }, else_branch = b () => (float[4] q) { q = Abs(x) }> }"""
TWO = """g (float[4,6] x, int64[2] shape, int64[1] axes) => (float[n] y)
    { r = Reshape(x, shape) y = ReduceMax<keepdims=0>(r, axes) }"""
LOOP = """g (float[3] x, int64 trips) => (float[3] last, float[n,3] rows) <bool yes={1}>
    { last, rows = Loop(trips, yes, x) <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t, float[3] r)
        { d = Identity(c) t = Add(s, s) r = Neg(t) }> }"""


def parsed(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>{text}')


def agrees(model, built, *inputs):
    session = runtime.InferenceSession(model.SerializeToString())
    wanted = session.run(None, dict(zip([i.name for i in session.get_inputs()], inputs, strict=True)))
    made = built(*inputs)
    for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def normal(*shape):
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


CALLS = [
    (REDUCED, [(normal(2, 3, 4), np.array([n])) for n in (0, 1, 2, -1, 0)], 4),
    (COMPUTED, [(normal(4, 6), np.array([n])) for n in (1, 3, 2, 3, 0)], 4),
    (IF, [(normal(4) + n,) for n in (3, -3, 5, 4, -4)], 2),
    (TWO, [(normal(4, 6), np.array(s), np.array([a])) for s, a in (((3, 8), 0), ((3, 8), 1), ((24, 1), 0), ((3, -1), 0))], 4),
    (LOOP, [(normal(3), np.array(n)) for n in (1, 3, 2, 0, 3)], 4),
]  # fmt: skip


@pytest.mark.parametrize(("text", "calls", "count"), CALLS, ids=["axes", "computed", "if", "two", "loop"])
def test_a_model_is_built_for_the_values_of_a_call(text, calls, count):
    model = parsed(text)
    built = tw.build(tw.from_onnx(model))
    for given in calls:
        agrees(model, built, *given)
    assert built.specializations == count
    assert f"{count} of at most 32 specializations by {', '.join(built.deciding)} ({count} built)" == built.origin


def test_inputs_go_by_name_and_into_given_arrays():
    built = tw.build(tw.from_onnx(parsed(REDUCED)))
    x, out = normal(2, 3, 4), np.empty((3, 4), np.float32)
    built(axes=np.array([0]), x=x, out=out)
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-6)
    with pytest.raises(TypeError, match="axes is not given"):
        built(x)


def test_sizes_of_deciding_inputs_are_known_with_their_values():
    text = "g (float[2,n] x, int64[n] order) => (float[2,m] y) { s = Reshape(x, order) y = Neg(s) }"
    built = tw.build(tw.from_onnx(parsed(text)))
    agrees(parsed(text), built, normal(2, 2), np.array([4, 1]))
    agrees(parsed(text), built, normal(2, 3), np.array([3, 2, 1]))


@pytest.mark.filterwarnings("error")
def test_no_more_builds_are_kept_than_asked_for():
    built = tw.build(tw.from_onnx(parsed(REDUCED)), specializations=2)
    x = normal(2, 3, 4)
    for axis in (0, 1, 0):
        built(x, np.array([axis]))
    with pytest.warns(RuntimeWarning, match="more than 2 different values of axes"):
        built(x, np.array([2]))
    assert built.origin == "2 of at most 2 specializations by axes (3 built)"
    np.testing.assert_allclose(built(x, np.array([1])), x.sum(1), rtol=1e-6)  # it was dropped: 0 was used later
    assert "(4 built)" in built.origin
    with pytest.raises(BuildError, match="specializations=0: at least one"):
        tw.build(tw.from_onnx(parsed(REDUCED)), specializations=0)


def test_what_does_not_fit_is_refused():
    built = tw.build(tw.from_onnx(parsed(REDUCED)))
    x = normal(2, 3, 4)
    with pytest.raises(ArgumentError, match=r"axes is int32\[1\], not int64\[1\]"):
        built(x, np.array([0], np.int32))
    with pytest.raises(ArgumentError, match=r"axes is int64\[2\], not int64\[1\]"):
        built(x, np.array([0, 1]))
    with pytest.raises(ArgumentError, match="axes is int, not an array"):
        built(x, 0)
    with pytest.raises(tw.frontends.onnx.OnnxError, match="ReduceSum"):
        built(x, np.array([7]))
    assert built.specializations == 0


def test_export_asks_for_the_values(tmp_path):
    built = tw.build(tw.from_onnx(parsed(TWO)))
    x, shape, axes = normal(4, 6), np.array([3, 8]), np.array([0])
    wanted = built(x, shape, axes)
    with pytest.raises(BuildError, match="depends on the values of shape, axes; .*constants=.*specialized"):
        built.export(tmp_path / "net.so")
    made = built.specialized(x, shape, axes)
    made.export(tmp_path / "net.so")
    np.testing.assert_array_equal(made(x), wanted)
    with pytest.raises(BuildError, match="'shape': … gives them ahead|constants="):
        tw.tune(tw.from_onnx(parsed(TWO)), time_limit=1)


def test_several_threads_build_once():
    built = tw.build(tw.from_onnx(parsed(REDUCED)))
    x, found = normal(2, 3, 4), []
    threads = [threading.Thread(target=lambda n=n: found.append((n, built(x, np.array([n]))))) for n in (0, 1) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6 and "(2 built)" in built.origin
    for n, got in found:
        np.testing.assert_allclose(got, x.sum(n), rtol=1e-6)


CODED = ("FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ", "FLOAT4E2M1", "FLOAT8E8M0", "INT4", "UINT4", "INT2", "UINT2")


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("saturate", [0, 1])
def test_narrow_types_round_as_ml_dtypes(name, saturate):
    number = getattr(onnx.TensorProto, name)
    options = {} if "INT" in name or "FLOAT4" in name else {"saturate": saturate}
    node = onnx.helper.make_node("Cast", ["x"], ["y"], to=number, **options)
    ends = [onnx.helper.make_tensor_value_info(n, t, ["n"]) for n, t in (("x", 1), ("y", number))]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", ends[:1], ends[1:]), opset_imports=[onnx.helper.make_opsetid("", 25)]
    )
    kind = onnx.helper.tensor_dtype_to_np_dtype(number)
    if "INT" in name:
        x = np.arange(-20, 20).astype(np.float32)
        wanted = x.astype(np.int64).astype(kind)
    else:
        levels = np.arange(1 << (4 if "FLOAT4" in name else 8)).astype(np.uint8).view(kind).astype(np.float32)
        levels = levels[np.isfinite(levels) & (np.abs(levels) < 1e30)]
        near = np.concatenate([np.nextafter(levels, np.float32(s * np.inf)) for s in (-1, 1)])
        middle = np.sort(levels)[:-1] / 2 + np.sort(levels)[1:] / 2
        middles = [np.nextafter(middle, np.float32(s * np.inf)) for s in (-1, 1)]
        special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e20, -1e20], np.float32)
        x = np.concatenate([levels, near, middle, *middles, special]).astype(np.float32)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    got = tw.build(tw.from_onnx(model, shapes={"x": x.shape}))(x)
    if "INT" in name:
        np.testing.assert_array_equal(got, wanted.astype(got.dtype))
    else:
        wrong = got != np.asarray(wanted).view(np.uint8)
        assert not wrong.any(), list(zip(x[wrong], got[wrong], np.asarray(wanted).view(np.uint8)[wrong], strict=True))[
            :5
        ]


def test_narrow_types_come_back_where_an_input_has_them():
    text = "g (int4[4] x) => (int4[2,2] y) <int64[2] s={2,2}> { y = Reshape(x, s) }"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>{text}')
    built = tw.build(tw.from_onnx(model))
    x = np.array([-8, -1, 0, 7])
    assert built(x.astype(ml_dtypes.int4)).dtype == ml_dtypes.int4
    assert built(x.astype(ml_dtypes.int4)).astype(int).tolist() == [[-8, -1], [0, 7]]
    assert built(x.astype(np.int8)).dtype == np.int8
    text = "g (float4e2m1[4] x) => (float4e2m1[4] y) { y = Neg(x) }"
    with pytest.raises(tw.frontends.onnx.OnnxError, match="does not compute with float4_e2m1fn"):
        tw.build(tw.from_onnx(onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 23]>{text}')))


NODE_TESTS = (
    "test_reshape_negative_dim", "test_slice_neg_steps", "test_top_k", "test_nonzero_example", "test_unique_sorted_with_axis",
    "test_compress_0", "test_nonmaxsuppression_two_classes", "test_resize_upsample_sizes_nearest", "test_onehot_with_axis",
    "test_range_bfloat16_type_positive_delta", "test_loop11", "test_cast_UINT4_to_FLOAT", "test_dequantizelinear_float4e2m1",
    "test_cast_e8m0_FLOAT_to_FLOAT8E8M0",
)  # fmt: skip


@pytest.mark.parametrize("name", NODE_TESTS)
def test_node_tests_pass_through_the_plain_door(name):
    check(next(case for case in cases() if case.name == name))


SEQUENCE = """g (seq(float[?]) s, int64 at) => (float[n] one, seq(float[?]) rest)
    { one = SequenceAt(s, at) rest = SequenceErase(s, at) }"""


def test_sequences_go_in_and_come_out_as_lists():
    model = parsed(SEQUENCE)
    built = tw.build(tw.from_onnx(model))
    for sizes, at in (((3, 5, 2), 1), ((3, 5, 2), 0), ((4, 1), -1), ((3, 5, 2), 1)):
        given = [normal(n) for n in sizes]
        one, rest = built(given, np.array(at))
        left = [x for n, x in enumerate(given) if n != at % len(given)]
        np.testing.assert_array_equal(one, given[at])
        assert len(rest) == len(left)
        for got, want in zip(rest, left, strict=True):
            np.testing.assert_array_equal(got, want)
    assert built.specializations == 3 and built.deciding == ("s", "at")
    with pytest.raises(ArgumentError, match="s is a sequence of tensors of float32; a call gives it ndarray"):
        built(normal(3), np.array(0))
    with pytest.raises(ArgumentError, match="a call gives it NoneType"):
        built(None, np.array(0))


def test_optional_inputs_may_be_none():
    for name in ("test_optional_has_element_empty_optional_input", "test_optional_get_element_optional_tensor"):
        check(next(case for case in cases() if case.name == name))
