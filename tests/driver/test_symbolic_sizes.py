"""Kernels of symbolic sizes get the schedules of example sizes, and compute what NumPy does for every size."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen import lower
from tilewright.driver.building import BuildError, _divides_by_sizes, plan
from tilewright.graph import Builder, parse, prepare, register_operator
from tilewright.graph.graph_operators import OPERATORS
from tilewright.schedule import Schedule
from tilewright.tir import structural_equal
from tilewright.tir.expr import FloorDiv, FloorMod
from tilewright.tir.interpret import interpret
from tilewright.tuner import Space, choose_default
from tilewright.tuner.example_sizes import example_of, examples_of, raised_to_usual, with_example

ONE = "native -num-cores=1"
SIZES = (1, 7, 13, 16, 17, 64, 65)
RNG = np.random.default_rng(0)
W = RNG.integers(-2, 3, (24, 40)).astype(np.float32)
K = RNG.integers(-2, 3, (5, 3, 3, 3)).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def convolved(x):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, K), 0)


def attended(q, k, v):
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))) @ v


CASES = {
    "product": (
        ("n 24",),
        lambda b, x: b.op("sigmoid", b.op("add", b.op("matmul", x, b.constant(W)), b.constant(W[0]))),
        lambda x: 1 / (1 + np.exp(-(x @ W + W[0]))),
    ),
    "products of two": (("n 24", "24 n"), lambda b, x, y: b.op("matmul", x, y), lambda x, y: x @ y),
    "sums over n": (("n 24", "n 13"), lambda b, x, y: b.op("matmul", x, y, transpose_a=True), lambda x, y: x.T @ y),
    "images": (
        ("n 3 7 7",),
        lambda b, x: b.op("relu", b.op("conv2d", x, b.constant(K), padding=1)),
        convolved,
    ),
    "rows": (("2 n n",), lambda b, x: b.op("softmax", b.op("relu", x)), lambda x: softmax(np.maximum(x, 0))),
    "norm": (
        ("1 n 24",),
        lambda b, x: b.op("layer_norm", x, b.constant(W[:, 0]), b.constant(W[:, 1])),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * W[:, 0] + W[:, 1],
    ),
    "attention": (("1 2 n 16",) * 3, lambda b, q, k, v: b.op("attention", q, k, v), attended),
    "vector": (("n", "n"), lambda b, x, y: b.op("maximum", b.op("add", x, y), x), lambda x, y: np.maximum(x + y, x)),
    "transposed": (("n 17",), lambda b, x: b.op("transpose", x, axes=(1, 0)), lambda x: x.T),
    "total": (("3 n",), lambda b, x: b.op("sum", x, axis=(1,)), lambda x: x.sum(1)),
    "joined": (("n 3", "n 4"), lambda b, x, y: b.op("concatenate", x, y, axis=1), lambda x, y: np.concatenate([x, y], 1)),
    "shape": (("n 6",), lambda b, x: b.op("tanh", b.op("reshape", x, shape=(b.n * 2, 3))), lambda x: np.tanh(x.reshape(-1, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_size_is_computed(name):
    shapes, build, expected = CASES[name]
    n = te.var("n")
    b = Builder("net")
    b.n = n
    inputs = [b.input(f"x{k}", [n if d == "n" else int(d) for d in s.split()]) for k, s in enumerate(shapes)]
    run = tw.build(b.graph([build(b, *inputs)]), ONE, bounds={"n": 65})
    assert [step.built.kind for step in run.steps] == ["default"] * len(run.steps)
    for size in SIZES:
        arrays = [RNG.integers(-4, 5, [size if d is n else d for d in v.shape]).astype(np.float32) for v in inputs]
        np.testing.assert_allclose(run(*arrays), expected(*arrays), rtol=1e-4, atol=1e-4, err_msg=str(size))


def test_examples_are_the_largest_sizes_where_these_are_small():
    n = te.var("n")
    x = te.placeholder((n, 24), name="x")
    func = te.create_prim_func([x, te.compute((n, 24), lambda i, j: x[i, j] * 2.0, "y")])
    for bounds, size in (({"n": 4}, 4), ({"n": 1000}, 64), ({}, 64)):
        example = example_of(with_example(func, examples_of(bounds)[0]))
        assert [int(e) for e in example.buffer_map[example.params[0]].shape] == [size, 24]
    made = plan(func, target=ONE)
    assert made.origin.startswith("the analytic model's best schedule for n = 64")
    assert "T.vectorized" in made.scheduled.script()
    assert example_of(example) is None


def test_records_of_the_example_serve_every_size(tmp_path):
    n = te.var("n")
    b = Builder("net")
    x = b.input("x", (n, 24))
    graph = b.graph([b.op("matmul", x, b.constant(W))])
    result = tw.tune(graph, ONE, db=tmp_path / "t.db", trials=3)
    assert result.trials > 0
    run = tw.build(graph, ONE, db=tmp_path / "t.db", bounds={"n": 17})
    assert [step.built.kind for step in run.steps] == ["tuned"]
    for size in (1, 7, 17):
        data = RNG.integers(-4, 5, (size, 24)).astype(np.float32)
        np.testing.assert_array_equal(run(data), data @ W)


def test_a_model_is_tuned_at_several_sizes_and_each_part_has_its_schedule(tmp_path):
    n = te.var("n")
    b = Builder("net")
    x, fixed = b.input("x", (n, 24)), b.input("f", (8, 24))
    graph = b.graph([b.op("matmul", x, b.constant(W)), b.op("tanh", fixed)])
    result = tw.tune(graph, ONE, db=tmp_path / "t.db", trials=3, sizes={"n": [1, 40]})
    assert sorted(k.shapes.split(",")[0] for k in result.kernels) == ["1x24", "40x24", "8x24"]
    run = tw.build(graph, ONE, db=tmp_path / "t.db", bounds={"n": [1, 40]})
    kinds = {version.built.kind for step in run.steps for version in step.versions}
    assert kinds == {"tuned"}
    for size in (1, 2, 33, 40):
        data = RNG.integers(-4, 5, (size, 24)).astype(np.float32)
        product, _ = run(data, np.zeros((8, 24), "float32"))
        np.testing.assert_array_equal(product, data @ W)


@pytest.mark.parametrize(
    ("sizes", "error", "text"),
    [
        ({"m": [1, 2]}, BuildError, "no symbolic size m; its symbolic sizes: n"),
        ({"n": [0, 2]}, BuildError, "sizes="),
        ([{"n": 1}], TypeError, "sizes of a model are a mapping"),
    ],
)
def test_sizes_of_a_model_that_are_none(sizes, error, text):
    b = Builder("net")
    graph = b.graph([b.op("relu", b.input("x", (te.var("n"), 3)))])
    with pytest.raises(error, match=text):
        tw.tune(graph, ONE, trials=1, sizes=sizes)


def test_orders_of_symbolic_arrays_are_chosen():
    n = te.var("n")
    b = Builder("net")
    x = b.input("x", (n, 4, 7))
    there = b.op("relu", b.op("transpose", x, axes=(0, 2, 1)))
    after = prepare(b.graph([b.op("transpose", there, axes=(0, 2, 1))]))
    assert [node.op for node in after.nodes] == ["relu"]


def test_sizes_up_to_each_end_have_schedules_of_their_own():
    n, m = te.var("n"), te.var("m")
    b = Builder("net")
    x, y = b.input("x", (n, 24)), b.input("y", (m, 5))
    product = b.op("matmul", x, b.constant(W))
    fixed = b.op("relu", b.input("z", (3, 3)))
    run = tw.build(b.graph([product, b.op("tanh", y), fixed]), ONE, bounds={"n": [4, 65, 17], "m": [1, 9]})
    assert sorted(len(step.versions) for step in run.steps) == [1, 2, 3]
    texts = [v.built.scheduled for step in run.steps if len(step.versions) == 3 for v in step.versions]
    assert len(set(texts)) == 3 and "n <= 4: " in run.origins["matmul"] and "for n = 17" in run.origins["matmul"]
    for size in (1, 4, 5, 17, 18, 65):
        data, other = RNG.integers(-4, 5, (size, 24)).astype(np.float32), np.ones((min(size, 9), 5), np.float32)
        got = run(data, other, -np.ones((3, 3), np.float32))
        np.testing.assert_array_equal(got[0], data @ W)
        np.testing.assert_allclose(got[1], np.tanh(other), rtol=1e-6)
        assert not got[2].any()
        rows = run.profile(data, other, np.ones((3, 3), np.float32), repeat=1).rows
        assert any(f"for n = {4 if size <= 4 else 17 if size <= 17 else 65}" in row.origin for row in rows)
    with pytest.raises(RuntimeError, match="n must be in 0..65"):
        run(np.ones((66, 24), np.float32), np.ones((1, 5), np.float32), np.ones((3, 3), np.float32))


def test_bounds_of_numpy_s_integers():
    b, n = Builder("net"), te.var("n")
    graph = b.graph([b.op("relu", b.input("x", (n, 3)))])
    for bound in (np.int64(7), np.array([1, 7])):
        run = tw.build(graph, ONE, bounds={"n": bound})
        assert run(np.ones((7, 3), np.float32)).sum() == 21


def test_a_size_with_one_end_does_not_choose_among_schedules():
    n, m = te.var("n"), te.var("m")
    b = Builder("net")
    run = tw.build(b.graph([b.op("relu", b.input("x", (n, m)))]), ONE, bounds={"n": [4, 65], "m": 100})
    (step,) = run.steps
    assert [{var.name: end for var, end in v.up_to.items()} for v in step.versions] == [{"n": 4}, {"n": 65}]


@pytest.mark.parametrize("wrong", [[], [0, 4], 0])
def test_ends_that_are_none(wrong):
    n = te.var("n")
    b = Builder("net")
    with pytest.raises(BuildError, match="neither a number nor a list of numbers of at least 1"):
        tw.build(b.graph([b.op("relu", b.input("x", (n, 3)))]), ONE, bounds={"n": wrong})


def test_shapes_of_results_are_worked_out_once_for_each_size():
    b, n, m = Builder("net"), te.var("n"), te.var("m")
    x, y = b.input("x", (n, 3)), b.input("y", (m, 3))
    both = b.op("concatenate", x, y, axis=0)
    run = tw.build(b.graph([both, b.op("relu", x)]), ONE, bounds={"n": 8, "m": 8})

    def shapes(*extents):
        given = [np.full((e, 3), e, np.float32) for e in extents]
        joined, first = run(*given)
        assert (joined == np.concatenate(given)).all() and (first == given[0]).all()
        named, again = run(y=given[1], x=given[0])
        assert (named == joined).all() and (again == first).all()
        return joined.shape[0], first.shape[0]

    assert [shapes(1, 7), shapes(7, 1), shapes(1, 7), shapes(8, 8)] == [(8, 1), (8, 7), (8, 1), (16, 8)]


@pytest.mark.parametrize("wrong", [np.zeros(4, np.float32), np.zeros((4, 16, 1), np.float32), [[0.0] * 16] * 4])
def test_what_has_another_rank_is_refused_before_and_after_a_call_that_fits(wrong):
    b = Builder("net")
    run = tw.build(b.graph([b.op("relu", b.input("x", (te.var("n"), 16)))]), ONE, bounds={"n": 8})
    for _ in range(2):
        with pytest.raises(ValueError, match="do not tell the shape of the output|expected 2 dimensions"):
            run(wrong)
        run(np.zeros((4, 16), np.float32))


def two_names(name):
    """Returns a graph of inputs whose first sizes have different names, and the same in NumPy."""
    n, m = te.var("n"), te.var("m")
    b = Builder("net")
    x, z = b.input("x", (n, 4)), b.input("z", (m, 4))
    if name == "sum":
        return b.graph([b.op("add", x, z)]), np.add
    if name == "chain":  # what was broadcast meets both sizes again
        total = b.op("multiply", b.op("add", b.op("relu", b.op("multiply", x, z)), x), z)
        product = b.op("matmul", total, b.constant(W[:4]))
        return b.graph([product]), lambda x, z: ((np.maximum(x * z, 0) + x) * z) @ W[:4]
    if name == "columns":
        turned = b.op("add", b.op("transpose", x, axes=(1, 0)), b.op("transpose", z, axes=(1, 0)))
        return b.graph([b.op("transpose", turned, axes=(1, 0))]), np.add
    if name == "batches":
        wide = [b.op("expand_dims", v, axis=at) for v, at in ((x, 1), (z, 2))]
        return b.graph([b.op("matmul", *wide)]), lambda x, z: x[:, None] @ z[:, :, None]
    below = b.op("concatenate", x, z, axis=0)
    return b.graph([b.op("matmul", below, b.constant(W[:4]))]), lambda x, z: np.concatenate([x, z]) @ W[:4]


@pytest.mark.parametrize("name", ["sum", "chain", "columns", "batches", "rows of both"])
def test_two_names_broadcast_at_the_call(name):
    graph, expected = two_names(name)
    run = tw.build(graph, target=ONE, bounds={"n": 9, "m": 9})
    for rows in ((5, 5), (5, 1), (1, 5), (1, 1), (5, 3), (9, 2)):
        x, z = (RNG.integers(-3, 4, (r, 4)).astype(np.float32) for r in rows)
        if name != "rows of both" and 1 not in rows and rows[0] != rows[1]:
            with pytest.raises(ValueError, match=rf"n = {rows[0]}, dimension 0 of x; m = {rows[1]}, dimension 0 of z"):
                run(x, z)
            continue
        assert np.array_equal(run(x, z), expected(x, z)), rows


@pytest.mark.parametrize("op", ["concatenate", "where", "swiglu", "reshape", "layer_norm", "matmul"])
def test_sizes_that_an_operator_takes_to_be_equal_are_compared(op):
    n, m = te.var("n"), te.var("m")
    b = Builder("net")
    x, z = b.input("x", (n, 4)), b.input("z", (m, 4))
    turned = b.op("transpose", x, axes=(1, 0))
    made = {
        "concatenate": lambda: b.op("concatenate", x, z, axis=1),
        "where": lambda: b.op("where", b.op("greater", x, b.constant(0.0)), x, z),
        "swiglu": lambda: b.op("swiglu", x, z),
        "reshape": lambda: b.op("add", b.op("reshape", x, shape=(4, m)), b.op("transpose", z, axes=(1, 0))),
        "layer_norm": lambda: b.op("layer_norm", turned, b.op("max", z, axis=1)),
        "matmul": lambda: b.op("matmul", turned, z),
    }[op]()
    run = tw.build(b.graph([made]), target=ONE, bounds={"n": 9, "m": 9})
    x, z = RNG.random((5, 4), np.float32), RNG.random((5, 4), np.float32)
    assert np.isfinite(run(x, z)).all()
    for rows in (3, 1, 8):
        other = RNG.random((rows, 4), np.float32)
        if rows == 1 and op in ("where", "swiglu"):  # these broadcast
            assert np.array_equal(run(x, other), run(x, np.repeat(other, 5, 0)))
            continue
        with pytest.raises(ValueError, match=rf"{op}: .*n = 5, dimension 0 of x; m = {rows}, dimension 0 of z"):
            run(x, other)


def test_memory_for_sizes_that_are_halved_towards_zero():
    n = te.var("n")
    half = te.truncdiv(n - 2, 2)
    b = Builder("net")
    x = b.input("x", (n, 3))
    part = b.op("strided_slice", x, begin=(0, 0), end=(half, 3), slice_mode="size")
    graph = b.graph([b.op("softmax", b.op("cumsum", part, axis=0), axis=1)])
    run = tw.build(graph, target=ONE, bounds={"n": 9})
    for rows in (2, 3, 4, 9):
        data = RNG.random((rows, 3), np.float32)
        sums = np.exp(np.cumsum(data[: (rows - 2) // 2], axis=0))
        np.testing.assert_allclose(run(data), sums / sums.sum(1, keepdims=True), rtol=1e-5)


def test_a_size_that_no_array_of_a_kernel_tells_alone():
    n, m = te.var("n"), te.var("m")
    b = Builder("net")
    flat = b.op("reshape", b.op("exp", b.input("x", (n, m, 4))), shape=(n * m * 4,))
    middle = b.op("strided_slice", b.op("cumsum", flat, axis=0), begin=(n * m * 2 - 1,), end=(1,), slice_mode="size")
    run = tw.build(b.graph([middle]), target=ONE, bounds={"n": 9, "m": 9})
    for sizes in ((1, 1), (3, 5), (9, 2)):
        x = RNG.random((*sizes, 4), np.float32)
        np.testing.assert_allclose(run(x), np.cumsum(np.exp(x))[[sizes[0] * sizes[1] * 2 - 1]], rtol=1e-5)


def test_tensor_expressions_compare_sizes_at_the_call():
    n, m = te.var("n"), te.var("m")
    x, z = te.placeholder((n, 4), name="x"), te.placeholder((m, 4), name="z")
    beside = tw.build([x, z, te.ops.concatenate([x, z], axis=1)], target=ONE)
    a, b = RNG.random((5, 4), np.float32), RNG.random((3, 4), np.float32)
    with pytest.raises(ValueError, match="n = 5, dimension 0 of x; m = 3, dimension 0 of z"):
        beside(a, b, np.zeros((5, 8), np.float32))
    total = tw.build([x, z, te.ops.add(x, z)], target=ONE)
    for rows in ((5, 1), (1, 5), (0, 1), (1, 0), (0, 0)):
        a, b = (RNG.random((r, 4), np.float32) for r in rows)
        out = np.zeros((a + b).shape, np.float32)
        total(a, b, out)
        assert np.array_equal(out, a + b), rows


@pytest.mark.parametrize(("window", "stride", "bound"), [(64, 16, 512), (70, 1, 100), (3, 2, 8)])
def test_windows_larger_than_the_usual_example(window, stride, bound):
    n = te.var("n")
    b = Builder("net")
    x = b.input("x", (1, 1, n))
    weight = RNG.integers(-2, 3, (4, 1, window)).astype(np.float32)
    run = tw.build(b.graph([b.op("conv1d", x, b.constant(weight), stride=stride)]), target=ONE, bounds={"n": bound})
    for size in (window, window + 1, bound):
        data = RNG.integers(-2, 3, (1, 1, size)).astype(np.float32)
        places = np.lib.stride_tricks.sliding_window_view(data[0, 0], window)[::stride]
        assert np.array_equal(run(data)[0], weight[:, 0] @ places.T), size
    with pytest.raises(ValueError, match=f"a window of {window} elements has to fit into n .*n = {window - 1}, "):
        run(np.zeros((1, 1, window - 1), np.float32))


def test_example_sizes_meet_what_the_operators_need():
    n, m = te.var("n"), te.var("m")
    x, z = te.placeholder((n, 1, m), name="x"), te.placeholder((8, 1, 100), name="w")
    func = te.create_prim_func([x, z, te.ops.conv1d(x, z)])
    assert [int(e) for e in example_of(with_example(func, {"n": 2, "m": 16})).buffers[0].shape] == [2, 1, 100]


def test_examples_suit_the_arrays_that_are_made_of_sizes():
    """64 samples make no frame of 400, and 64 rows few after five halvings: what a size is scheduled for makes usual numbers of both."""
    n, m = te.var("n"), te.var("m")
    frames = (n - 400) // 160 + 1
    x = te.placeholder((n,), name="x")
    func = te.create_prim_func([x, te.compute((frames, 400), lambda i, j: x[i * 160 + j] * 2.0, "y")])
    rows, width = [int(e) for e in example_of(func).buffers[-1].shape]
    assert rows >= 16 and width == 400
    assert [int(e) for e in example_of(with_example(func, {"n": 720})).buffers[-1].shape] == [3, 400]  # asked for
    halved = [m, m // 32]
    assert raised_to_usual({m: 64}, halved, {m: 4000})[m] == 512
    assert raised_to_usual({m: 64}, halved, {m: 200})[m] == 200
    assert raised_to_usual({m: 64}, halved, {}) == raised_to_usual({m: 64}, [m, m * 3, m % 4], {m: 4000}) == {m: 64}
    data = RNG.standard_normal(2000).astype("float32")
    for size in (400, 1999, 2000):
        assert np.array_equal(
            tw.build(func, target=ONE)(data[:size]),
            np.lib.stride_tricks.sliding_window_view(data[:size], 400)[::160] * 2,
        )


def test_a_model_is_scheduled_for_usual_numbers_of_frames():
    n = te.var("n")
    b = Builder("net")
    x = b.input("x", (1, 1, n))
    weight = RNG.integers(-2, 3, (32, 1, 400)).astype(np.float32)
    y = b.op("transpose", b.op("conv1d", x, b.constant(weight), stride=160), axes=(0, 2, 1))
    run = tw.build(b.graph([y]), target=ONE, bounds={"n": 12640})
    assert run.origins and all("for n = 4096" in origin for origin in run.origins.values())
    data = RNG.integers(-2, 3, (1, 1, 3000)).astype(np.float32)
    places = np.lib.stride_tricks.sliding_window_view(data[0, 0], 400)[::160]
    assert np.array_equal(run(data)[0], places @ weight[:, 0].T)


def test_a_window_far_larger_than_the_input_is_named():
    b = Builder("net")
    x = b.input("x", (1, 2, te.var("n")))
    run = tw.build(b.graph([b.op("max_pool1d", x, kernel=100, stride=2)]), target=ONE, bounds={"n": 300})
    assert run(np.zeros((1, 2, 300), np.float32)).shape == (1, 2, 101)
    with pytest.raises(
        ValueError, match=r"max_pool1d: a window of 100 elements has to fit into n .*\(n = 30, dimension 2 of x\)"
    ):
        run(np.zeros((1, 2, 30), np.float32))


def test_the_text_of_broadcast_sizes_parses():
    graph, _ = two_names("columns")
    assert str(parse(str(graph))) == str(graph)


def test_what_a_kernel_asserts_reaches_the_caller():
    """Its kernel asserts that ``x`` is as long as what it reads."""
    n, m = te.var("n"), te.var("m")
    register_operator("shorter", lambda x, y: te.compute(y.shape, lambda i: x[i] + y[i], "shorter"))
    try:
        b = Builder("net")
        x, y = b.input("x", (n,)), b.input("y", (m,))
        run = tw.build(b.graph([b.op("relu", b.op("shorter", b.op("sigmoid", x), y))]), ONE, bounds={"n": 8, "m": 8})
    finally:
        del OPERATORS["shorter"]
    given = np.ones(3, np.float32)
    np.testing.assert_allclose(run(given, given[:2]), 1 / (1 + np.exp(-given[:2])) + 1, rtol=1e-5)
    assert run(given[:0], given[:0]).shape == (0,)
    with pytest.raises(
        RuntimeError, match=r"net: the kernel shorter\S*: .*n = 3, dimension 0 of x.*m = 4, dimension 0 of y"
    ):
        run(given, np.ones(4, np.float32))


def test_an_output_of_negative_size_is_named():
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    twice = te.compute((n - 2,), lambda i: x[i] + x[i + 2], "Y")
    run = tw.build([x, twice], ONE)
    assert [run(np.ones(k, np.float32)).shape for k in (5, 3, 2)] == [(3,), (1,), (0,)]
    with pytest.raises(ValueError, match=r"dimension 0 of the output Y is n - 2, .* -1 \(n = 1, dimension 0 of X\)"):
        run(np.ones(1, np.float32))

    register_operator("twice", lambda x: te.compute((x.shape[0] - 2,), lambda i: x[i] + x[i + 2], "twice"))
    try:
        b = Builder("net")
        run = tw.build(b.graph([b.op("twice", b.input("x", (n,)), name="y")]), ONE, bounds={"n": 8})
    finally:
        del OPERATORS["twice"]
    assert [run(np.ones(k, np.float32)).shape for k in (5, 3, 2)] == [(3,), (1,), (0,)]
    with pytest.raises(ValueError, match=r"dimension 0 of the output y is n - 2, .* -1 \(n = 1, dimension 0 of x\)"):
        run(np.ones(1, np.float32))


USED = {
    "matrix times vector": (
        lambda A, x, n, k: te.compute((24,), lambda i: te.sum(A[i, k] * x[k], axis=k), name="o"),
        lambda A, x, n: A[:, :n] @ x[:n],
    ),
    "largest of rows": (
        lambda A, x, n, k: te.compute((24,), lambda i: te.max(A[i, k] * x[k], axis=k), name="o"),
        lambda A, x, n: (A[:, :n] * x[:n]).max(1, initial=-np.inf),
    ),
    "softmax of what is used": (
        lambda A, x, n, k: te.compute(
            (24,),
            lambda i, P=te.ops.softmax(te.compute((24, n), lambda i, j: A[i, j] * x[j], name="s")): te.sum(
                P[i, k] * x[k], axis=k
            ),
            name="o",
        ),
        lambda A, x, n: softmax(A[:, :n] * x[:n]) @ x[:n] if n else np.zeros(24),
    ),
    "element-wise stage": (
        lambda A, x, n, k: te.compute(
            (24,),
            lambda i, P=te.compute((24, n), lambda i, j: te.exp(A[i, j]) * x[j], name="s"): te.sum(P[i, k], axis=k),
            name="o",
        ),
        lambda A, x, n: (np.exp(A[:, :n]) * x[:n]).sum(1),
    ),
}


@pytest.mark.parametrize("name", USED)
def test_sizes_that_are_arguments(name):
    make, expected = USED[name]
    n = te.var("n")
    A, x = te.placeholder((24, 150), name="A"), te.placeholder((150,), name="x")
    out = make(A, x, n, te.reduce_axis((0, n), name="k"))
    made = plan([A, x, n, out], target=ONE)
    assert made.origin.startswith("the analytic model's best schedule for n = 64")
    assert "T.vectorized" in made.scheduled.script()
    run, scheduled = tw.build([A, x, n, out], target=ONE), made.scheduled
    a, b = RNG.random((24, 150), np.float32), RNG.random(150, np.float32)
    for used in (0, 1, 2, 15, 16, 17, 33, 64, 65, 149, 150):
        right = expected(a, b, used)
        for function in (run, lambda *args: interpret(scheduled, *args)) if used < 34 else (run,):
            result = np.full(24, np.nan, np.float32)
            function(a, b, used, result)
            np.testing.assert_allclose(result, right, rtol=1e-5, err_msg=f"n = {used}")


def test_sizes_made_of_an_argument():
    n = te.var("n")
    k = te.reduce_axis((0, n // 2), name="k")
    A = te.placeholder((8, 1024), name="A")
    out = te.compute((8,), lambda i: te.sum(A[i, k + 1], axis=k), name="o")
    made = plan([A, n, out], target=ONE)
    assert made.origin.startswith("the analytic model's best schedule for n = 960")  # up to 2047 fit
    assert "T.vectorized" in made.scheduled.script()
    run, a, result = tw.build([A, n, out], target=ONE), RNG.random((8, 1024), np.float32), np.zeros(8, np.float32)
    for used in (0, 1, 2, 33, 64, 65, 960, 2046):
        run(a, used, result)
        np.testing.assert_allclose(result, a[:, 1 : used // 2 + 1].sum(1), rtol=1e-5)


@pytest.mark.parametrize("name", ["largest of all", "every second"])
def test_large_sizes_have_a_schedule_of_their_own(name):
    """Where all elements make one result, partial results of large sizes fill several vectors."""
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    length = n if name == "largest of all" else n // 2
    r = te.reduce_axis((0, length), name="r")
    chosen = te.compute(
        (length,), lambda i, x=(lambda i: x[i]) if length is n else (lambda i: x[2 * i + 1]): te.if_then_else(x(i) > 0.0, x(i), -1.0), name="c",
    )  # fmt: skip
    tensors = [x, te.compute((), lambda: te.max(chosen[r] * chosen[r], axis=r), name="o")]
    made = plan(tensors, target=ONE)
    assert "above n = 512 for n = 1024" in made.origin
    lanes = [int(text.partition(")")[0]) for text in made.scheduled.script().split("T.vectorized(")[1:]]
    assert "n <= 512" in made.scheduled.script() and max(lanes[-2:]) >= 2 * max(lanes[:-2])
    run = made.compile()
    for size in (2, 3, 7, 64, 65, 511, 512, 513, 1000, 1025, 5000):
        a, result = RNG.standard_normal(size).astype(np.float32), np.zeros((), np.float32)
        run(a, result)
        read = a if length is n else a[1::2]
        np.testing.assert_allclose(result, np.where(read > 0, read * read, 1).max(), rtol=1e-6, err_msg=str(size))


def test_other_functions_have_no_schedule_for_large_sizes():
    n = te.var("n")
    x, y, r = te.placeholder((n, n), name="x"), te.placeholder((64, n), name="y"), te.reduce_axis((0, n), name="r")
    for tensors in (
        [x, te.compute((n, n), lambda i, j: x[j, i] + 1.0, name="z")],
        [y, te.compute((64,), lambda i: te.sum(y[i, r], axis=r), name="z")],
    ):
        assert "above" not in plan(tensors, target=ONE).origin


def test_large_sizes_are_scheduled_by_other_parts_where_these_are_better():
    """Columns of few steps are summed along vectors; those of a large matrix are vectors of results, some rows at a time."""
    n = te.var("n")
    x, t = te.placeholder((n, n), name="x"), te.placeholder((n,), "int32", name="t")
    r = te.reduce_axis((0, n), name="r")
    out = te.compute((n,), lambda i: te.sum(te.sigmoid(x[r, t[i]]), axis=r), name="z")
    made = plan([x, t, out], target=ONE)
    assert made.parts == ("rows_z",) and "above n = 256 for n = 1024" in made.origin
    assert "n <= 256" in made.scheduled.script()
    run = made.compile()
    for size in (1, 3, 24, 64, 255, 256, 257, 300):
        a, b = RNG.standard_normal((size, size)).astype(np.float32), RNG.integers(0, size, size).astype(np.int32)
        result = np.zeros(size, np.float32)
        run(a, b, result)
        s = 1 / (1 + np.exp(-a.astype(float)))
        np.testing.assert_allclose(result, s[:, b].sum(0), rtol=1e-4, err_msg=str(size))


def test_axes_that_only_the_example_divides_stay_whole():
    n = te.var("n")
    x, w = te.placeholder((n, n), name="x"), te.placeholder(((n + 3) // 4,), name="w")
    s = te.compute((n, n // 2), lambda i, j: te.sigmoid(x[i, 2 * j + 1]), name="s")
    r = [te.reduce_axis((0, n), "r"), te.reduce_axis((0, n // 2), "q")]
    made = plan([x, w, te.compute((), lambda: te.min(s[r[0], r[1]] * w[r[0] // 4], axis=r), name="z")], target=ONE)
    assert made.origin.startswith("the analytic model's best schedule for n = 64,")
    run = made.compile()
    for size in (2, 5, 24, 61, 64, 67, 600):
        a, b = RNG.standard_normal((size, size)).astype(np.float32), RNG.standard_normal((size + 3) // 4)
        b, result = b.astype(np.float32), np.zeros((), np.float32)
        run(a, b, result)
        expected = 1 / (1 + np.exp(-a[:, 1::2].astype(float))) * b.repeat(4)[:size, None]
        np.testing.assert_allclose(result, expected.min(), rtol=1e-5, err_msg=str(size))


@pytest.mark.parametrize("shape", [("n", "n", 8), ("n", 12), (3, "n", "m"), ("m", "n", 4, "n"), ("n", 5, 2, 3)])
@pytest.mark.parametrize("reduce", [te.sum, te.max])
def test_reductions_of_all_axes_go_through_one_stretch_of_memory(shape, reduce):
    sizes = {name: te.size_var(name) for name in ("n", "m") if name in shape}
    extents = [sizes.get(e, e) for e in shape]
    x = te.placeholder(extents, name="x")
    r = [te.reduce_axis((0, e), name=f"r{d}") for d, e in enumerate(extents)]
    made = plan([x, te.compute((), lambda: reduce(x[tuple(r)], axis=r), name="y")], ONE)
    assert "_fused_1 in T.vectorized(" in made.scheduled.script()
    built = made.compile()
    for n in (1, 2, 7, 16, 17, 33):
        array = RNG.integers(-9, 9, [{"n": n, "m": 2 * n + 1}.get(e, e) for e in shape]).astype(np.float32)
        expected = array.sum(dtype=np.float64) if reduce is te.sum else array.max()
        assert built(array) == np.float32(expected), n


def largest_of_the_first_three(shape):
    """The maximum over all axes but the first; along the last one, elements behind the third count as 0."""
    n = te.size_var("n")
    extents = [n if extent == "n" else extent for extent in shape]
    x = te.placeholder(extents, name="x")
    axes = [te.reduce_axis((0, extent), name=f"r{k}") for k, extent in enumerate(extents[1:])]

    def value(i):
        return te.if_then_else(axes[-1] < 3, x[(i, *axes)], te.const(0, "float32"))

    return x, te.compute(tuple(extents[:1]), lambda i: te.max(value(i), axis=axes), name="y")


@pytest.mark.parametrize("shape", [(64, "n", "n"), ("n", "n", 3, "n")], ids=str)
def test_a_condition_on_a_reduced_axis_is_not_found_by_division(shape):
    """Where a value depends on the place along an axis, the axis keeps its loop, and no element divides by the size."""
    x, y = largest_of_the_first_three(shape)
    module = tw.build([x, y], "native -num-cores=1")
    divided = [m for m in tir.walk.pre_order(module["main"]._lowered.func.body) if isinstance(m, FloorMod)]
    assert not [m for m in divided if m.dtype.lanes > 1]
    for size in (1, 2, 7, 16, 17, 33):
        data = np.random.default_rng(size).standard_normal([size if e == "n" else e for e in shape]).astype("float32")
        expected = np.where(np.arange(size) < 3, data, 0).max(axis=tuple(range(1, len(shape))))
        np.testing.assert_array_equal(module(data), expected)


@pytest.mark.parametrize("shape", [(64, "n", "n"), ("n", "n", 3, "n")], ids=str)
def test_rows_of_which_the_caller_says_why_not_are_left_out(shape):
    """The function of all sizes follows the best row that is not refused, such as one that fuses axes and divides."""
    x, y = largest_of_the_first_three(shape)
    base = Schedule(te.create_prim_func([x, y]))
    space = Space(example_of(base.func), "llvm -mcpu=x86-64-v4 -num-cores=1", of=base)
    best = choose_default(space, base)
    steps = best.schedule.trace.dumps()
    fused = best.follower.schedule.func
    other = choose_default(space, base, lambda func: "it is the best" if structural_equal(func, fused) else "")
    assert other.schedule.trace.dumps() != steps
    assert other.seconds >= best.seconds > 0
    run = tw.build(other.follower.schedule, ONE)
    for size in (1, 2, 7, 16, 17, 33):
        data = RNG.standard_normal([size if e == "n" else e for e in shape]).astype("float32")
        expected = np.where(np.arange(size) < 3, data, 0).max(axis=tuple(range(1, len(shape))))
        np.testing.assert_array_equal(run(data), expected)


ALL_SIZES = (1, 2, 3, 5, 16, 61, 64, 100)


@pytest.mark.parametrize("more", [-2, -1, 2, 3])
@pytest.mark.parametrize("reduced", [False, True], ids=["elements", "extremes"])
def test_vectors_are_not_as_long_as_a_row_of_the_example(more, reduced):
    """A row of ``n + 2`` elements has vectors of 64 at the example of 64, as it has at other sizes, and not of 66."""
    n = te.size_var("n")
    x = te.placeholder((n + 4, n + 4), name="x")
    y = te.compute((n, n + more), lambda i, j: te.exp(x[i, j + 1]), name="y")
    r = [te.reduce_axis((0, n), name="r"), te.reduce_axis((0, n + more), name="q")]
    made = plan([x, te.compute((), lambda: te.max(y[r[0], r[1]], axis=r), name="z") if reduced else y], ONE)
    wide = [
        int(loop.extent)
        for loop in tir.walk.pre_order(made.scheduled.body)
        if getattr(loop, "kind", "") == "vectorized"
    ]
    assert max(wide) >= 16 and all(extent % 8 == 0 for extent in wide if extent > 16), wide
    run = made.compile()
    for size in ALL_SIZES:
        if size + more > 0:
            a = RNG.standard_normal((size + 4, size + 4)).astype(np.float32)
            expected = np.exp(a[:size, 1 : size + more + 1])
            np.testing.assert_allclose(run(a), expected.max() if reduced else expected, rtol=1e-5, err_msg=str(size))


def test_an_axis_is_split_by_a_number_only_where_that_keeps_vectors():
    """``r // 2`` for ``r`` in ``range(2 * n)`` is two axes of which the inner one has two steps: too few for vectors."""
    n = te.size_var("n")
    x, t = te.placeholder((n, 6, 16), name="x"), te.placeholder((16,), "int32", name="t")
    w = te.placeholder((2 * n, 8), name="w")
    r = te.reduce_axis((0, 2 * n), name="r")
    s = te.compute((2 * n, 6, 16), lambda i, j, k: te.max(x[i // 2, j, t[k]], w[i, j % 8]), name="s")
    y = te.compute((6, 16), lambda i, j: te.min(s[r, i, 15 - j], axis=r), name="y")
    made = plan([x, t, w, y], ONE)
    wide = [
        int(loop.extent)
        for loop in tir.walk.pre_order(made.scheduled.body)
        if getattr(loop, "kind", "") == "vectorized"
    ]
    assert min(wide) >= 4, made.scheduled.script()
    run = made.compile()
    for size in ALL_SIZES:
        a, b = (
            RNG.standard_normal((size, 6, 16)).astype(np.float32),
            RNG.standard_normal((2 * size, 8)).astype(np.float32),
        )
        at = RNG.integers(0, 16, 16).astype(np.int32)
        expected = np.maximum(a.repeat(2, 0)[:, :, at[::-1]], b[:, :6, None]).min(0)
        np.testing.assert_array_equal(run(a, at, b), expected, str(size))


@pytest.mark.parametrize("divisor", [3, 5, 6])
def test_tiles_are_whole_periods_of_divided_indices(divisor):
    """All tiles read ``y[j // 3]`` at the same distances, so that no lane divides; a period of 80 or 96 is one tile."""
    n = te.size_var("n")
    x, y = te.placeholder((n, n), name="x"), te.placeholder((n, (n + divisor - 1) // divisor), name="y")
    r, q = te.reduce_axis((0, n), name="r"), te.reduce_axis((0, n), name="q")
    made = plan(
        [x, y, te.compute((), lambda: te.sum(x[r, q] * y[n - 1 - r, q // divisor], axis=[r, q]), name="z")], ONE
    )
    long = {
        int(loop.extent)
        for loop in tir.walk.pre_order(made.scheduled.body)
        if getattr(loop, "kind", "") == "vectorized" and int(loop.extent) > 16
    }
    period = np.lcm(16, divisor)
    assert long and all(extent % period == 0 for extent in long), made.scheduled.script()
    run = made.compile()
    for size in (*ALL_SIZES, 47, 48, 49, 95, 96, 97, 161):
        a = RNG.integers(-3, 4, (size, size)).astype(np.float32)
        b = RNG.integers(-3, 4, (size, -(-size // divisor))).astype(np.float32)
        expected = (a * b[::-1].repeat(divisor, 1)[:, :size]).sum()
        np.testing.assert_array_equal(run(a, b), expected, str(size))


@pytest.mark.parametrize("turned", [False, True])
def test_fused_axes_of_a_size_whose_vectors_go_through_memory_do_not_divide(turned):
    """The quotients of a block that only moves along its arrays are joined; those of a transposed one are not."""
    n = te.size_var("n")
    x = te.placeholder((n, n), name="x")
    y = te.compute((n, n), lambda i, j: 1 / (x[j, i] if turned else x[i, j]), name="y")
    sch = Schedule(te.create_prim_func([x, y]))
    fused = sch.fuse(*sch.get_loops("y"))
    assert _divides_by_sizes(sch.func)  # without vectors the place of each element is divided
    sch.vectorize(sch.split(fused, [None, 16])[1])
    assert _divides_by_sizes(sch.func) == turned
    divided = [m for m in tir.walk.pre_order(lower(sch.func, ONE).func.body) if isinstance(m, (FloorDiv, FloorMod))]
    assert any(not isinstance(m.b, tir.expr.IntImm) for m in divided) == turned
    run = tw.build(sch, ONE)
    for size in ALL_SIZES:
        a = RNG.integers(1, 9, (size, size)).astype(np.float32)
        np.testing.assert_array_equal(run(a), 1 / (a.T if turned else a), str(size))
