"""Programs of JAX: exported functions, portable artifacts, one kernel in JAX; the oracle is JAX itself."""

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="needs the extra jax")

import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import te  # noqa: E402
from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.stablehlo import StableHloError, UnsupportedStableHloOperators, from_stablehlo, hlo_call, op  # noqa: E402
from tilewright.graph import evaluate  # noqa: E402


def exported(f, *args):
    return export.export(jax.jit(f))(*jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), args))


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(f, *args, compiled=False):
    graph = from_stablehlo(exported(f, *args))
    flat = [np.asarray(a) for a in jax.tree.leaves(args)]
    if compiled:
        got = build_graph(graph)(*flat)
        got = got if isinstance(got, tuple) else (got,)
    else:
        got = evaluate(graph, *flat)
    wanted = jax.tree.leaves(jax.jit(f)(*args))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)
    return graph


def mlp(params, x):
    for w, b in params[:-1]:
        x = jax.nn.gelu(x @ w + b)
    w, b = params[-1]
    return jax.nn.log_softmax(x @ w + b)


def convolutions(params, x):
    dims = ("NHWC", "HWIO", "NHWC")
    x = jax.nn.relu(lax.conv_general_dilated(x, params["stem"], (2, 2), "SAME", dimension_numbers=dims))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    x = jax.nn.relu(
        lax.conv_general_dilated(x, params["depth"], (1, 1), "SAME", dimension_numbers=dims, feature_group_count=8)
    )
    return jnp.mean(x, (1, 2)) @ params["head"]


def block(params, x):
    def norm(x):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)

    batch, length, width = x.shape
    q, k, v = jnp.split((norm(x) @ params["qkv"]).reshape(batch, length, 2, 3 * width // 2), 3, -1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // 2)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(x.shape)
    x = x + mixed @ params["out"]
    return x + jax.nn.silu(norm(x) @ params["up"]) @ params["down"]


MODELS = {
    "mlp": (mlp, [(numbers(7, 13), numbers(13)), (numbers(13, 5), numbers(5))], numbers(3, 7)),
    "convolutions": (
        convolutions,
        {"stem": numbers(3, 3, 3, 8), "depth": numbers(3, 3, 1, 8), "head": numbers(8, 5)},
        numbers(2, 17, 13, 3),
    ),
    "transformer block": (
        block,
        {"qkv": numbers(16, 48), "out": numbers(16, 16), "up": numbers(16, 32), "down": numbers(32, 16)},
        numbers(2, 7, 16),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_equal_jax(name):
    f, params, x = MODELS[name]
    check(f, params, x, compiled=True)


def test_a_model_of_flax_equals_jax():
    linen = pytest.importorskip("flax.linen", reason="needs flax")
    model = linen.Sequential(
        [linen.Conv(4, (3, 3)), linen.relu, linen.LayerNorm(), lambda x: x.mean((1, 2)), linen.Dense(3)]
    )
    x = jnp.asarray(numbers(2, 7, 5, 3))
    check(model.apply, model.init(jax.random.key(0), x), x, compiled=True)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.max(x), jnp.any(x > 1, 0)),
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, axis=1, reverse=True)),
        lambda x: (x[jnp.array([1, -1, 3])], x[:, ::-2], x[1:3, jnp.array([0, 4])], x[jnp.array([1, 0]), jnp.array([5, 7])]),
        lambda x: (x.at[jnp.array([1, 1, 9])].add(1.0), x.at[2, 1:3].set(5.0), x.at[jnp.array([0, 3]), 2].max(0.3)),
        lambda x: (jnp.sort(x, axis=0), jnp.argsort(x, axis=1), -jnp.sort(-x), lax.top_k(x, 3)),
        lambda x: (jnp.cbrt(x), jnp.round(x), jnp.arctan2(x, x[::-1]), jnp.arcsin(x / 9), jnp.logaddexp(x, 1.0)),
        lambda x: (lax.bitcast_convert_type(x, np.uint8), lax.reduce_precision(x, 8, 7), jnp.clip(x, -1, 1), x.astype(int)),
        jax.grad(lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), "SAME") ** 2).sum()),
        lambda x: jax.random.uniform(jax.random.wrap_key_data(jnp.array([1, 2], np.uint32)), (5,)) + x[0, 0],
        lambda x: (lax.concatenate([x[:1], x[:0], x], 0), lax.concatenate([x[:, :0], x[:, 2:3]], 1), lax.concatenate([x[:0], x[:0]], 0)),
    ],
    ids=["reductions", "scans", "lookups", "writes", "sorts", "functions", "conversions", "pooling", "random", "joined"],
)  # fmt: skip
def test_functions_equal_jax(f):
    check(f, numbers(4, 8))


def test_loops_of_known_length_are_written_out():
    check(lambda x: lax.fori_loop(0, 5, lambda i, c: c * 2 + i, x), numbers(4))
    check(lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0], x), numbers(5, 3))


def root(x):
    """Newton's method, and how many steps it takes."""
    return lax.while_loop(
        lambda c: jnp.abs(c[0] * c[0] - x).max() > 1e-3, lambda c: ((c[0] + x / c[0]) / 2, c[1] + 1), (x, 0)
    )


def nested(x):
    """A loop inside a loop inside a counted loop; the inner ones end by what they find."""

    def outer(c):
        return lax.while_loop(lambda d: d.sum() < 9, lambda d: d * 2 + 1, c) / 100

    return lax.scan(lambda c, a: (lax.while_loop(lambda d: d.max() > 0.5, outer, c + a * a), c), x[0] * 0, x)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (root, (np.abs(numbers(7)) + 0.5,)),
        (lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x), (numbers(4) + 99,)),  # no step
        (lambda x: lax.while_loop(lambda c: c[0].sum() < 9, lambda c: (c[1] + 1, c[0]), (x, x * 0)), (numbers(3),)),  # swapped
        (jax.vmap(root), (np.abs(numbers(3, 5)) + 0.5,)),
        (nested, (numbers(40, 3),)),
    ],
    ids=["root", "no step", "swapped", "vmap", "nested"],
)  # fmt: skip
def test_loops_that_end_by_data(f, args):
    check(f, *args, compiled=True)


def stores_beside(c, a):
    return (c[0] + a, c[1].at[3].add(c[0].sum())), a * 2


STORED = {
    "rows": (lambda x: lax.scan(lambda c, a: (c + a, (c * a, c.sum())), x[0], x), 1),
    "from the last": (lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0], x, reverse=True), 1),
    "and a state": (lambda x: lax.scan(stores_beside, (x[0], x[:, 0]), x), 2),
    "nested": (lambda x: lax.scan(lambda c, a: (c + a, lax.scan(lambda d, e: (d + e, d * e), 0.0, a)), x[0], x), 1),
    "swapped": (
        lambda x: lax.fori_loop(0, 40, lambda i, c: (c[1].at[i].set(x[i]), c[0].at[i].set(c[0][3])), (x, x + 1)),
        3,
    ),
    "returned": (lambda x: lax.fori_loop(0, 40, lambda i, c: (c[0].at[i].set(x[i]), c[0]), (x * 0, x)), 3),
    "every second": (lambda x: lax.fori_loop(0, 40, lambda i, c: c.at[(i * 2) % 40].set(c[i] + x[i]), x), 2),
}


@pytest.mark.parametrize("name", STORED)
def test_rows_of_a_long_loop_are_stored_one_by_one(name):
    f, states = STORED[name]
    (loop,) = [n for n in from_stablehlo(exported(f, numbers(40, 40))).nodes if n.op == "scan"]
    assert loop.attrs["states"] == states
    check(f, numbers(40, 40), compiled=True)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: lax.fori_loop(0, 100, lambda i, c: c * 0.5 + i, x), (numbers(5),)),
        (lambda x: lax.fori_loop(7, 40, lambda i, c: c + i, x), (numbers(1),)),
        (lambda x: lax.scan(lambda c, a: (jnp.tanh(c + a), c * a), x[0], x), (numbers(70, 3),)),
        (lambda x, w: lax.scan(lambda c, a: (jnp.tanh(c @ w + a), c), x[0], x)[1], (numbers(33, 7), numbers(7, 7))),
    ],
)
def test_long_loops_that_are_counted_become_loops_of_the_graph(f, args):
    graph = from_stablehlo(exported(f, *args))
    assert [node.op for node in graph.nodes].count("scan") == 1 and len(graph.nodes) < 9
    check(f, *args, compiled=True)


def positive(n):
    x = numbers(2, n, n)
    return x @ x.transpose(0, 2, 1) + np.eye(n, dtype=np.float32)


@pytest.mark.parametrize("n", [1, 7])
def test_factors_and_triangular_systems(n):
    a, b = positive(n), numbers(2, n, 3, seed=1)
    check(jnp.linalg.cholesky, a, compiled=True)
    check(jnp.linalg.cholesky, -a)  # NaN
    for lower, transposed, unit in (
        (True, False, False),
        (False, False, True),
        (True, True, False),
        (False, True, False),
    ):

        def solve(a, b, lower=lower, transposed=transposed, unit=unit, left=True):
            return lax.linalg.triangular_solve(
                a, b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
            )

        a = positive(n) / n + np.eye(n, dtype=np.float32)
        check(solve, a, b)
        check(lambda a, b, solve=solve: solve(a, b, left=False), a, np.ascontiguousarray(b.transpose(0, 2, 1)))


def test_branches_that_depend_on_data_are_selected():
    def f(x, n):
        return lax.cond(n > 0, jnp.sin, jnp.cos, x), lax.switch(n, [lambda y: y * 2, lambda y: y - 1, jnp.tanh], x)

    for n in (-1, 0, 1, 7):
        check(f, numbers(4), np.int32(n))


def test_a_branch_with_a_loop_takes_steps_only_where_it_is_chosen():
    def f(x, n):  # the loop has no end for n = 0
        return lax.cond(n > 0, lambda y: lax.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + n, s[1] * 2), (n, y))[1], jnp.cos, x)  # fmt: skip

    for n in (0, 1, 4, 20):
        check(f, numbers(4), np.int32(n))


def test_dynamic_slices_stay_inside():
    for n in (-3, 0, 2, 9):
        check(lambda x, n: (lax.dynamic_slice(x, (n, 0), (2, 8)), lax.dynamic_update_slice(x, x[:2, :3] * 2, (n, n))),
              numbers(4, 8), np.int32(n))  # fmt: skip


def test_symbolic_sizes_stay():
    def f(x, w):
        return jax.nn.softmax(jax.nn.relu(x @ w) + 1)

    shape = export.symbolic_shape("rows, 8")
    program = export.export(jax.jit(f))(
        jax.ShapeDtypeStruct(shape, np.float32), jax.ShapeDtypeStruct((8, 3), np.float32)
    )
    graph = from_stablehlo(program)
    assert str(graph.inputs[0].shape[0]) == "rows"
    x, w = numbers(5, 8), numbers(8, 3, seed=1)
    (got,) = evaluate(graph, x, w)
    np.testing.assert_allclose(got, f(x, w), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.mean(0),
        lambda x: (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-3),
        lambda x: x + x.shape[0] * 2,
        lambda x: jnp.array([x.shape[0], 2 * x.shape[0] - 1]),
        lambda x: x + jnp.arange(x.shape[0])[:, None],
        lambda x: jnp.where(jnp.tril(jnp.ones((x.shape[0],) * 2, bool)), x @ x.T, -1.0),
        lambda x: (x[:, 1:], x[:, 2], x[::1, ::2]),
        lambda x: x.argmax(1),
        lambda x: x[0],
        lambda x: x[-1],
        lambda x: x[jnp.array([0, -1, 0]), jnp.array([6, 0, -2])],
        lambda x: jnp.asarray(x).at[:, jnp.array([0, 5])].multiply(jnp.array([2.0, 3.0])),
        lambda x: jnp.asarray(x).at[jnp.array([0, 0]), 1:3].add(1.0),
    ],
)
def test_numbers_and_slices_of_symbolic_sizes(f):
    program = export.export(jax.jit(f))(jax.ShapeDtypeStruct(export.symbolic_shape("rows, 7"), np.float32))
    run = build_graph(from_stablehlo(program), "native -num-cores=1", bounds={"rows": 17}, processes=0)
    for rows in (1, 13, 17):
        x = numbers(rows, 7)
        found, wanted = run(x), f(x)
        for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (found, wanted)], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_slices_that_depend_on_symbolic_sizes_are_refused():
    shape = export.symbolic_shape("rows, 7", constraints=["rows >= 3"])
    program = export.export(jax.jit(lambda x: jax.lax.dynamic_slice(x, (1, 0), (2, 7))))(
        jax.ShapeDtypeStruct(shape, np.float32)
    )
    with pytest.raises(StableHloError, match="dynamic_slice.*from its first element on only"):
        from_stablehlo(program)


def test_files_text_and_artifacts_are_read(tmp_path):
    program, x = exported(lambda x: jnp.tanh(x) + 1, numbers(3)), numbers(3)
    (tmp_path / "f.mlir").write_text(program.mlir_module())
    (tmp_path / "f.mlirbc").write_bytes(program.mlir_module_serialized)
    for what in (program, program.mlir_module(), program.mlir_module_serialized):
        np.testing.assert_allclose(evaluate(from_stablehlo(what), x)[0], np.tanh(x) + 1, rtol=1e-5)
    for what in (program, tmp_path / "f.mlir", str(tmp_path / "f.mlirbc")):
        np.testing.assert_allclose(tw.build(what)(x), np.tanh(x) + 1, rtol=1e-5)


def test_arguments_that_are_not_read_stay_inputs():
    graph = from_stablehlo(exported(lambda x, unused, y: x + y, numbers(3), numbers(2), numbers(3)))
    assert [v.shape for v in graph.inputs] == [(3,), (2,), (3,)]


def test_what_is_no_program_is_refused(tmp_path):
    with pytest.raises(StableHloError, match=r"there is no file .*missing\.mlir"):
        from_stablehlo(tmp_path / "missing.mlir")
    with pytest.raises(StableHloError, match="the text is not a StableHLO program: Unable to parse"):
        from_stablehlo("func.func @main(\n")
    with pytest.raises(StableHloError, match=r"function is not a StableHLO program; jax\.export\.export"):
        from_stablehlo(lambda x: x)


def test_all_missing_operations_are_listed_at_once():
    def f(x):
        return jnp.fft.rfft(x).real + jnp.linalg.eigh(x)[1][:, :3]

    with pytest.raises(UnsupportedStableHloOperators, match=r"stablehlo\.fft: 1 \(first: .*fft.*\)") as raised:
        from_stablehlo(exported(f, numbers(4, 4)))
    assert len(raised.value.operators) > 1


def test_a_converter_of_ones_own():
    text = "func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {\n%r = stablehlo.custom_call @twice(%a) : (tensor<3xf32>) -> tensor<3xf32>\nreturn %r : tensor<3xf32>\n}"  # fmt: skip

    @op("custom_call @twice")
    def twice(c):
        return c.op("add", c.x, c.x)

    try:
        np.testing.assert_array_equal(evaluate(from_stablehlo(text), numbers(3))[0], 2 * numbers(3))
    finally:
        del hlo_call.CONVERTERS["custom_call @twice"]


def test_a_kernel_is_a_function_of_jax():
    a, b = te.placeholder((5, 7), name="a"), te.placeholder((5, 7), name="b")
    c = te.compute((5, 7), lambda i, j: a[i, j] * b[i, j] + 1.0, name="c")
    f = tw.jax.call([a, b, c], backward=lambda inputs, g: (g * inputs[1], g * inputs[0]))
    x, y = numbers(5, 7), numbers(5, 7, seed=1)
    np.testing.assert_allclose(f(x, y), x * y + 1, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x, y: f(x * 2, y) - 1)(x, y), 2 * x * y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(f)(np.stack([x, y]), np.stack([y, y])), [x * y + 1, y * y + 1], rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: f(x, y).sum())(x), y)
    with pytest.raises(StableHloError, match=r"a is float32\[5, 6\]|expected"):
        f(x[:, :6], y)
    with pytest.raises(StableHloError, match=r"a is int32\[5, 7\]; float32"):
        f(x.astype(np.int32), y)


@pytest.mark.parametrize(
    "name",
    [
        "AllGatherOp",
        "CholeskyOp",
        "CollectivePermuteOp",
        "ConvolutionOp",
        "GatherOp",
        "TriangularSolveOp",
        "TupleOp",
        "WhileOp",
        "ScatterOp",
        "SelectAndScatterOp",
        "SortOp",
        "ReduceOp",
        "ReduceWindowOp",
    ],
)
def test_operations_equal_the_interpreter_of_stablehlo(name):
    from .stablehlo_operators import CASES, problem_of

    for text in CASES[name]:
        assert problem_of(name, text, compiled=False) == ""


def test_arrays_with_values_go_to_the_kernel_without_a_callback(monkeypatch):
    a = te.placeholder((7,), name="a")
    f = tw.jax.call([a, te.compute((7,), lambda i: a[i] * 2.0, name="b")])
    assert "pure_callback" in str(jax.make_jaxpr(f)(jnp.ones(7)))
    monkeypatch.delattr(jax, "pure_callback")
    out = f(jnp.arange(7.0))
    assert isinstance(out, jax.Array) and out.tolist() == [2.0 * n for n in range(7)]
    assert f(np.arange(7.0)).tolist() == out.tolist()  # float64 is float32 for JAX


def test_kernels_of_bfloat16_give_that_type():
    a = te.placeholder((3,), "bfloat16", "a")
    f = tw.jax.call([a, te.compute((3,), lambda i: a[i] + a[i], "b")])
    x = jnp.asarray([1, 2, -0.5], jnp.bfloat16)
    for made in (f(x), jax.jit(f)(x)):
        assert made.dtype == jnp.bfloat16 and made.tolist() == [2, 4, -1]


def test_arrays_of_jax_are_arguments_and_results():
    a = te.placeholder((5,), name="a")
    f = tw.build([a, te.compute((5,), lambda i: a[i] + 1.0, name="c")])
    x = jnp.arange(5, dtype=np.float32)
    made = f(x)
    assert isinstance(made, jax.Array)
    np.testing.assert_array_equal(made, x + 1)
    out = np.empty(5, np.float32)
    f(x, out)
    np.testing.assert_array_equal(out, x + 1)
    with pytest.raises(ValueError, match="it is written to, but the array is read-only"):
        f(out, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cube_roots_of_subnormal_numbers_and_zeros(dtype):
    info = np.finfo(dtype)
    x = np.array(
        [0.0, -0.0, info.smallest_subnormal, -info.tiny / 3, info.tiny, 5, -27, info.max, -np.inf, np.nan], dtype
    )
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        exported = jax.export.export(jax.jit(jax.numpy.cbrt))(x)
    got = tw.build(exported, target="native -num-cores=1")(x)
    want = np.cbrt(x)
    np.testing.assert_array_max_ulp(got[:-1], want[:-1], 2)
    assert np.isnan(got[-1]) and np.signbit(got[1]) and not np.signbit(got[0])
