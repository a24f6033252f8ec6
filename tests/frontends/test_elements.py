"""Every row of the table of element-wise operators under its names elsewhere, against those systems."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder
from tilewright.te.ops.elements import ELEMENTS

from .cheap_builds import cheap_builds

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -3.0, 7.25, 100.0, -100.0, np.inf, -np.inf, np.nan, 1e-20, -1e-5]
PARAMETERS = {
    "celu": (1.5,),
    "hardtanh": (-2.0, 0.5),
    "elu": (0.3, 1.5, 2.0),
    "leaky_relu": (0.2,),
    "softplus": (2.0, 5.0),
}
"""Arguments of PyTorch's operators besides the operands, in their order."""

HALF = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 4e-6, "float64": 2e-13}


def operands(row, dtype):
    """Returns each pair of special values, and truth values first where the row asks for them."""
    values = np.array(SPECIAL, dtype) if dtype.startswith("float") else np.array([0, 1, -1, 3, -7, 100], dtype)
    pairs = [g.reshape(-1) for g in np.meshgrid(*[values] * min(row.operands, 2), indexing="ij")]
    if row.operands == 3:
        return [pairs[0] > 0, pairs[0], pairs[1]]
    return pairs


def agree(got, want, dtype):
    got, want = np.asarray(got), np.asarray(want)
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(
            got.astype("float64"), want.astype("float64"), rtol=HALF[dtype], atol=HALF[dtype], equal_nan=True
        )


def built(graph):
    with cheap_builds():
        return tw.build(graph, target="native -num-cores=1")


def dtypes_of(row):
    return (
        ["int32"]
        if row.types == "bits"
        else ["float32", "float16", "float64"]
        if row.types == "float"
        else ["float32", "int32"]
    )


ATEN = [
    (row.name, name) for row in ELEMENTS.values() for name, _ in row.names("aten") if row.name not in ("nextafter",)
]
INF_IS_NAN = {"gelu", "silu", "hardswish", "mish"}
"""x times a function that is 0 at -inf: eager's loops over vectors and the rest of them differ there."""


def _applied(packet, more):
    import torch

    class Applied(torch.nn.Module):
        def forward(self, *xs):
            return packet(*xs, *more)

    return Applied()


@pytest.mark.parametrize("name, aten", ATEN, ids=[a for _, a in ATEN])
def test_names_of_pytorch(name, aten):
    torch = pytest.importorskip("torch")
    row = ELEMENTS[name]
    packet = getattr(torch.ops.aten, aten.partition(".")[0])
    for dtype in dtypes_of(row):
        given = [torch.from_numpy(a) for a in operands(row, dtype)]
        if name in INF_IS_NAN:
            given = [torch.where(t.isinf(), 2.0, t) for t in given]
        more = PARAMETERS.get(name, ())
        module = _applied(packet, more)
        try:
            want = packet(*given, *more)
        except (RuntimeError, NotImplementedError):
            continue  # eager has no such type
        program = torch.export.export(module, tuple(given))
        graph = tw.from_torch(program)
        assert name in [n.op for n in graph.nodes] or dtype == "int32" or "identity" in [n.op for n in graph.nodes]
        agree(built(graph)(*given), want.numpy(), dtype)


ONNX = [(row.name, name) for row in ELEMENTS.values() for name, _ in row.names("onnx")]


@pytest.mark.parametrize("name, op", ONNX, ids=[o for _, o in ONNX])
def test_names_of_onnx(name, op):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    row = ELEMENTS[name]
    for dtype in ["bool"] if row.types == "truth" else ["int32"] if row.types == "bits" else ["float32"]:
        given = operands(row, "float32" if dtype == "bool" else dtype)
        given = [g > 0 for g in given] if dtype == "bool" else given
        kinds = [onnx.helper.np_dtype_to_tensor_dtype(g.dtype) for g in given]
        out = 9 if row.types in ("test", "order", "truth") else kinds[-1]
        info = onnx.helper.make_tensor_value_info
        names = [f"x{n}" for n in range(len(given))]
        model = onnx.helper.make_model(
            onnx.helper.make_graph(
                [onnx.helper.make_node(op, names, ["y"])], "g",
                [info(n, k, g.shape) for n, k, g in zip(names, kinds, given, strict=True)],
                [info("y", out, given[-1].shape)],
            ),
            opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9,
        )  # fmt: skip
        onnx.checker.check_model(model)
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        want = runtime.InferenceSession(model.SerializeToString(), options).run(
            None, dict(zip(names, given, strict=True))
        )[0]
        graph = tw.from_onnx(model)
        assert [n.op for n in graph.nodes] == [name]
        agree(built(graph)(*given), want, "float32")


ARRAYS = [(row.name, name) for row in ELEMENTS.values() for name, _ in row.names("array_api")]


def recorded(expression):
    """Returns the operators that an expression of lazy arrays applies."""
    return {expression.op}.union(*[recorded(e) for e in expression.inputs])


@pytest.mark.parametrize("name, function", ARRAYS, ids=[f for _, f in ARRAYS])
def test_names_of_the_array_api(name, function):
    row = ELEMENTS[name]
    xp = tw.lazy
    for dtype in [d for d in dtypes_of(row) if d != "float16"]:  # the standard has none
        given = operands(row, dtype)
        with np.errstate(all="ignore"):
            try:
                want = getattr(np, function)(*given)
            except (TypeError, ValueError):
                continue  # NumPy has no such type
            if "shift" in function or (dtype == "int32" and row.name in ("floor_divide", "floor_mod")):
                continue  # negative shifts and divisors of 0 are errors or open there
            got = getattr(xp, function)(*[xp.asarray(g) for g in given])
        assert name in recorded(got.expression)
        agree(np.asarray(got), want, str(want.dtype) if want.dtype.kind == "f" else dtype)


@pytest.mark.parametrize("name", ["celu", "hardtanh", "logaddexp", "softsign", "selu"])
def test_a_row_is_an_operator_of_graphs(name):
    row = ELEMENTS[name]
    given = operands(row, "float32")
    b = Builder("one")
    graph = b.graph([b.op(name, *[b.input(f"x{n}", g.shape) for n, g in enumerate(given)])])
    inputs = [tw.te.placeholder(g.shape, "float64", f"x{n}") for n, g in enumerate(given)]
    wide = tw.build([*inputs, row.function(*inputs)], target="native -num-cores=1")
    agree(built(graph)(*given), wide(*[g.astype("float64") for g in given]), "float32")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "uint64", "float32"])
def test_tests_of_lazy_arrays_of_any_type(dtype):
    x = np.array([0, 1, 2, 100]).astype(dtype)
    x = -x if dtype in ("int8", "int32", "float32") else x
    for function in "signbit isnan isinf isfinite".split():
        np.testing.assert_array_equal(
            np.asarray(getattr(tw.lazy, function)(tw.lazy.asarray(x))), getattr(np, function)(x)
        )


HLO = [(row.name, hlo) for row in ELEMENTS.values() for hlo, _ in row.names("hlo")]


@pytest.mark.parametrize("name, hlo", HLO, ids=[h for _, h in HLO])
def test_names_of_stablehlo(name, hlo):
    from tilewright.frontends.stablehlo.hlo_call import CONVERTERS

    for key in [hlo, *[f"composite {hlo}"] * hlo.startswith("chlo.")]:
        assert CONVERTERS[key].__qualname__ == f"ELEMENTS[{name!r}]"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_cube_roots_reciprocals_and_signs_at_the_edges(dtype):
    info = np.finfo(dtype)
    x = np.array(
        [0.0, np.inf, np.nan, info.smallest_subnormal, info.tiny / 3, info.tiny, 0.3, 1, 8, 27, info.max], dtype
    )
    x = np.concatenate([x, -x])
    for name, most in ("cbrt", 2), ("reciprocal", 0), ("signbit", 0):
        b = Builder("one")
        got = built(b.graph([b.op(name, b.input("x", x.shape, dtype))]))(x)
        with np.errstate(all="ignore"):
            want = np.cbrt(x.astype(np.longdouble)).astype(dtype) if name == "cbrt" else getattr(np, name)(x)
        assert got.dtype == want.dtype
        if got.dtype != "bool":
            np.testing.assert_array_equal(np.signbit(got[~np.isnan(x)]), np.signbit(want[~np.isnan(x)]))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        if most and got.dtype != "bool":
            np.testing.assert_array_max_ulp(got[finite], want[finite], most)
        else:
            np.testing.assert_array_equal(got[finite], want[finite])


@pytest.mark.parametrize(
    "written", [lambda b, x: b.op("reciprocal", x), lambda b, x: b.op("divide", b.constant(1.0), x)]
)
def test_reciprocals_are_divisions_to_the_forms(written):
    from tilewright.graph.passes import prepare

    b = Builder("one")
    x = b.input("x", (8,))
    out = written(b, b.op("add", b.constant(1.0), b.op("exp", b.op("negative", x))))
    assert [n.op for n in prepare(b.graph([out])).nodes] == ["sigmoid"]


def test_forms_that_cannot_be_read_are_named():
    from tilewright.graph.patterns import _pattern

    for form, reason in {
        "log(x": "was never closed", "nothing(x)": "no operator 'nothing'", "exp(y)": "'y' is neither", "3": "no operator",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=f"of the row 'silu' of ELEMENTS .*{reason}") as caught:
            _pattern(ELEMENTS["silu"], ("x",), form)
        assert repr(form) in str(caught.value)
    _pattern(ELEMENTS["silu"], ("x",), "log(x / (1 - x))")


def test_forms_of_jax_become_the_operator():
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp
    from jax import export

    from tilewright.graph.passes import prepare

    x = np.array(SPECIAL, "float32")
    for name, f in {
        "celu": lambda x: jax.nn.celu(x, 1.5), "elu": jax.nn.elu, "clip": jax.nn.relu6, "softplus": jax.nn.softplus,
        "logaddexp": lambda x: jnp.logaddexp(x, 2 * x), "mish": jax.nn.mish, "hardswish": jax.nn.hard_swish,
    }.items():  # fmt: skip
        graph = tw.from_stablehlo(export.export(jax.jit(f))(jax.ShapeDtypeStruct(x.shape, x.dtype)))
        ready = prepare(graph)
        assert name in [n.op for n in ready.nodes] and "where" not in [n.op for n in ready.nodes], str(ready)
        got, want = built(graph)(x), np.asarray(f(x))
        agree(got, np.where(np.isinf(x) & (name in INF_IS_NAN), got, want), "float32")
