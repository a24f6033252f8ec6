"""Graphs: text, checks, division into kernels, memory, and the compiled whole against the reference."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.driver.models.model_building import build_graph
from tilewright.graph import (
    Builder,
    Graph,
    GraphError,
    Node,
    Value,
    evaluate,
    fuse,
    parse,
    plan_memory,
    register_operator,
    specialize,
    unfused,
    verify,
)
from tilewright.graph.graph import in_row_order
from tilewright.graph.graph_operators import OPERATORS, Operator, infer
from tilewright.graph.memory_plan import size_of


def run(func, *arrays):
    compile(func)(*arrays)


def whole(rng, *shape):
    """Whole numbers, so that sums of floats are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def network(rng):
    """A small convolutional network with a branch, a view and a softmax."""
    b = Builder("net")
    x = b.input("x", (1, 3, 9, 9))
    w = b.constant(whole(rng, 8, 3, 3, 3), "w")
    y = b.op("relu", b.op("conv2d", x, w, b.constant(whole(rng, 8), "bias"), stride=2, padding=1))
    z = b.op("add", b.op("conv2d", y, b.constant(whole(rng, 8, 8, 1, 1), "v")), y)
    flat = b.op("reshape", z, shape=(1, 8 * 25))
    return b.graph([b.op("softmax", b.op("dense", flat, b.constant(whole(rng, 5, 200) / 64, "d"))), z])


def test_text_round_trip():
    graph = network(np.random.default_rng(0))
    text = str(graph)
    again = parse(text, {v.name: data for v, data in graph.constants.items()})
    verify(again)
    assert str(again) == text
    assert "conv2d: float32[1, 8, 5, 5] = conv2d(x, w, bias, stride=2, padding=1)" in text


def test_text_of_symbols_results_and_attributes():
    n = te.var("n")
    b = Builder("net")
    x = b.input("x", (n, 4))
    p, q = b.several("split", x, sections=(1,), axis=1)
    y = b.op("clip", b.op("concatenate", q, p, axis=1), low=-1.0, high=float("inf"))
    z = b.op("reshape", y, shape=(n * 2, 2))
    graph = b.graph([z])
    assert str(parse(str(graph))) == str(graph)
    assert "reshape: float32[n * 2, 2]" in str(graph)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "def f(x: float32[2]):\n  y: float32[3] = relu(x)\n  return y",
            r"line 2: y is float32\[2\], not float32\[3\]",
        ),
        ("def f(x: float32[2]):\n  y: float32[2] = reluu(x)\n  return y", "there is no operator 'reluu'"),
        ("def f(x: float32[2]):\n  y: float32[2] = relu(z)\n  return y", "line 2: z is not defined"),
        ("def f(x: float32[2]):\n  x: float32[2] = relu(x)\n  return x", "x is defined twice"),
        ("def f(x):\n  return x", "the input x has no type"),
        ("def f(x: float32[2]):\n  y: float32[2] = relu(x)", "ends with return"),
        ("def f(x: float32[2, 3]):\n  y: float32[2, 3] = matmul(x, x)\n  return y", "the length of the sum differs"),
        (
            "def f(x: float32[2]):\n  c: float32[9, 9] = constant()\n  return c",
            "the data of the constant c is not given",
        ),
        ("while True: pass", "a graph is one function"),
        ("def f(", "this is not a graph"),
    ],
)
def test_what_is_no_graph_is_refused(text, problem):
    with pytest.raises(GraphError, match=problem):
        parse(text)


def _around(body):
    """A loop of three steps over a body with one state."""
    x = Value("x", "float32", (2,))
    return Node("scan", (x,), (Value("z", "float32", (2,)),), {"body": body, "states": 1, "arrays": 0, "steps": 3})


def test_the_verifier_finds_what_is_wrong():
    x, y = Value("x", "float32", (2,)), Value("y", "float32", (2,))
    relu = Node("relu", (x,), (y,))
    verify(Graph("f", (x,), (y,), (relu,)))
    broken = {
        "reads x, which nothing before it provides": Graph("f", (), (y,), (relu,)),
        "is not provided": Graph("f", (x,), (y,), ()),
        "is provided twice": Graph("f", (x,), (y,), (relu, relu)),
        r"gives float32\[2\], not float32\[3\]": Graph(
            "f", (x,), (), (Node("relu", (x,), (Value("z", "float32", (3,)),)),)
        ),
        "the name 'x' is taken": Graph("f", (x,), (), (Node("relu", (x,), (Value("x", "float32", (2,)),)),)),
        "the name 'y' is taken": Graph("f", (x,), (), (relu, _around(Graph("y", (x,), (x,), ())))),
        "the name '1st' is taken, or is not an identifier": Graph(
            "f", (x,), (), (_around(Graph("1st", (x,), (x,), ())),)
        ),
        "the data of": Graph("f", (), (), (), {x: np.zeros(3, np.float32)}),
    }
    for problem, graph in broken.items():
        with pytest.raises(GraphError, match=problem):
            verify(graph)


def test_operators_of_users():
    register_operator("twice", lambda x, by=2.0: te.compute(x.shape, lambda *i: x(*i) * by, "twice"), "elementwise")
    try:
        b = Builder()
        graph = b.graph([b.op("twice", b.input("x", (3,)), by=3.0)])
        np.testing.assert_array_equal(evaluate(graph, np.ones(3, np.float32))[0], [3, 3, 3])
        with pytest.raises(ValueError, match="already"):
            register_operator("twice", lambda x: x)
    finally:
        del OPERATORS["twice"]
    with pytest.raises(ValueError, match="kind='odd'"):
        register_operator("other", lambda x: x, "odd")


def test_fusion_joins_epilogues_and_leaves_views_out():
    division = fuse(network(np.random.default_rng(0)))
    assert [k.name for k in division.kernels] == ["conv2d_relu", "conv2d_add", "dense", "softmax"]
    assert len(division.views) == 1


@pytest.mark.parametrize(
    ("known", "kernels"), [(True, ["matmul_cast_take", "pad"]), (False, ["matmul_cast", "negative_take_pad"])]
)
def test_a_lookup_in_a_constant_table_joins_what_makes_its_index(known, kernels):
    """A product's result is looked up before it is stored; a pad, which moves elements, stays apart."""
    rng = np.random.default_rng(0)
    table, x, w = rng.standard_normal(256).astype(np.float32), rng.integers(0, 4, (5, 7)), rng.integers(0, 4, (7, 3))
    b = Builder("f")
    product = b.op("matmul", b.input("x", (5, 7), "int32"), b.constant(w, dtype="int32"))
    given = b.constant(table) if known else b.op("negative", b.input("table", (256,)))
    found = b.op("take", given, b.op("cast", product, dtype="uint8"), axis=0, mode="fast")
    graph = b.graph([b.op("pad", found, pad_before=(1, 1), pad_after=(1, 1), value=2.0)])
    assert [k.name for k in fuse(graph).kernels] == kernels
    arrays = [x.astype(np.int32), *([] if known else [-table])]
    np.testing.assert_array_equal(build_graph(graph)(*arrays), np.pad(table[x @ w], 1, constant_values=2.0))


def test_no_kernel_waits_for_itself():
    """The sum may join one of the products only where the other one is not computed from it."""
    b = Builder()
    x, w = b.input("x", (4, 4)), b.constant(np.eye(4, dtype=np.float32))
    p = b.op("matmul", x, w)
    q = b.op("matmul", b.op("relu", p), w)
    graph = b.graph([b.op("add", p, q)])
    names = [k.name for k in fuse(graph).kernels]
    assert sorted(names) in (
        ["matmul", "matmul_add", "relu"],
        ["matmul_add", "matmul_relu"],
        ["matmul", "matmul_add", "matmul_relu"],
    )
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    np.testing.assert_array_equal(build_graph(graph)(x), x + np.maximum(x, 0))


def read_twice(dtype, *, op, by=None, shown=False, readers=2):
    """``op`` of an array, which sums along different axes read; ``by`` is a second operand, ``shown`` makes it an output."""
    b = Builder("f")
    x = b.input("x", (6, 50, 40), dtype)
    made = b.op(op, x, *([] if by is None else [b.input("y", by, dtype)]))
    sums = [b.op("sum", made, axis=axes) for axes in ((0, 2), (1, 2), (0,))[:readers]]
    return b.graph([*sums, *([made] if shown else [])])


@pytest.mark.parametrize(("given", "kernels"), [
    ({"op": "square"}, ["square_sum", "square_sum_1"]),
    ({"op": "square", "readers": 3}, ["square_sum", "square_sum_1", "square_sum_2"]),
    ({"op": "add", "by": (40,)}, ["add_sum", "add_sum_1"]),
    ({"op": "exp"}, ["exp", "sum", "sum_1"]),
    ({"op": "add", "by": (6, 50, 40)}, ["add", "sum", "sum_1"]),
    ({"op": "square", "shown": True}, ["square", "sum", "sum_1"]),
])  # fmt: skip
def test_what_is_cheap_is_computed_by_each_kernel_that_reads_it(given, kernels):
    """Neither costly work is repeated, nor are two arrays read in place of one, nor is a result that leaves the graph."""
    graph = read_twice("float32", **given)
    assert [k.name for k in fuse(graph).kernels] == kernels
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, v.shape).astype(np.float32) for v in graph.inputs]
    made = {"square": np.square, "exp": np.exp, "add": np.add}[given["op"]](*arrays)
    axes = ((0, 2), (1, 2), (0,))[: given.get("readers", 2)]
    expected = [*[made.sum(a) for a in axes], *([made] if given.get("shown") else [])]
    for got, want in zip(build_graph(graph)(*arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-4)


def test_chains_that_several_kernels_read_are_repeated_whole():
    """Two levels: the first result is read by the second, and by a sum; the second by two sums."""
    b = Builder("f")
    first = b.op("square", b.input("x", (7, 33)))
    second = b.op("relu", first)
    graph = b.graph([b.op("sum", first, axis=0), b.op("max", second, axis=1), b.op("sum", second, axis=1)])
    division = fuse(graph)
    assert sorted(k.name for k in division.kernels) == ["square_relu_max", "square_relu_sum", "square_sum"]
    assert all(k.inputs == graph.inputs and len(k.outputs) == 1 for k in division.kernels)
    x = np.random.default_rng(0).uniform(-1, 1, (7, 33)).astype(np.float32)
    for got, want in zip(build_graph(graph)(x), ((x * x).sum(0), (x * x).max(1), (x * x).sum(1)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


def test_what_one_kernel_alone_reads_at_several_places_is_part_of_it():
    """Costly work, too: nothing is repeated."""
    b = Builder("f")
    made = b.op("exp", b.input("x", (5, 48)))
    graph = b.graph([b.op("multiply", b.op("sigmoid", made), b.op("tanh", made))])
    assert len(fuse(graph).kernels) == 1
    x = np.random.default_rng(0).uniform(-1, 1, (5, 48)).astype(np.float32)
    e = np.exp(x)
    np.testing.assert_allclose(build_graph(graph)(x), np.tanh(e) / (1 + np.exp(-e)), rtol=1e-5)


@pytest.mark.parametrize("reader", ["matmul", "transpose larger"])
def test_what_is_read_often_is_stored(reader):
    """A product and a repetition read each element many times."""
    b = Builder("f")
    made = b.op("square", b.input("x", (16, 16)))
    one = b.op("matmul", made, b.input("w", (16, 16))) if reader == "matmul" else b.op("tile", made, reps=(3, 1))
    graph = b.graph([one, b.op("sum", made, axis=0)])
    assert "square" in [k.name for k in fuse(graph).kernels]


def test_cheap_work_over_a_symbolic_size_is_repeated():
    n = te.var("n")
    b = Builder("f")
    made = b.op("square", b.input("x", (n, 40)))
    graph = b.graph([b.op("sum", made, axis=0), b.op("sum", made, axis=1)])
    assert [k.name for k in fuse(graph).kernels] == ["square_sum", "square_sum_1"]
    run_graph = build_graph(graph)
    for size in (1, 13, 64):
        x = np.random.default_rng(size).uniform(-1, 1, (size, 40)).astype(np.float32)
        for got, want in zip(run_graph(x), ((x * x).sum(0), (x * x).sum(1)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(("op", "count"), [("cumsum", 2), ("cumprod", 2), ("sum", 1)])
def test_a_transpose_stays_alone_before_a_prefix_sum(op, count):
    b = Builder("f")
    x = b.input("x", (5, 7))
    turned = b.op("abs", b.op("transpose", x, axes=(1, 0)))
    graph = b.graph([b.op(op, turned, axis=0)])
    assert len(fuse(graph).kernels) == count
    data = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    want = getattr(np, op)(np.abs(data.T), axis=0)
    np.testing.assert_allclose(build_graph(graph)(data), want, rtol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
def test_a_dense_layer_reads_a_transposed_matrix_as_it_lies(biased):
    rng = np.random.default_rng(0)
    b = Builder("f")
    x, w = b.input("x", (7, 13)), b.input("w", (5, 7))
    bias = [b.constant(whole(rng, 5))] if biased else []
    graph = b.graph([b.op("dense", b.op("transpose", x, axes=(1, 0)), w, *bias)])
    made = build_graph(graph)
    a, c = whole(rng, 7, 13), whole(rng, 5, 7)
    want = a.T @ c.T + (next(iter(graph.constants.values())) if biased else 0)
    np.testing.assert_array_equal(made(a, c), want)
    assert len(made.steps) == 1


@pytest.mark.parametrize(("axes", "count"), [((0, 2, 1), 2), ((1, 0, 2), 1), ((2, 0, 1), 2), (None, 2)])
def test_a_transpose_that_moves_the_last_axis_stays_alone_before_rows(axes, count):
    b = Builder("f")
    turned = b.op("abs", b.op("transpose", b.input("x", (3, 5, 7)), axes=axes))
    graph = b.graph([b.op("softmax", turned, axis=-1)])
    assert len(fuse(graph).kernels) == count
    data = np.random.default_rng(0).standard_normal((3, 5, 7)).astype(np.float32)
    e = np.exp(np.abs(np.transpose(data, axes)))
    np.testing.assert_allclose(build_graph(graph)(data), e / e.sum(-1, keepdims=True), rtol=1e-5)


def view_of_a_sum(b, x):
    return [b.op("reshape", b.op("sum", x, axis=1), shape=(1, 5))]


def view_that_others_read(b, x):
    y = b.op("reshape", b.op("softmax", x, axis=-1), shape=(7, 5))
    return [y, b.op("sum", y, axis=0)]


def view_of_an_output(b, x):
    y = b.op("softmax", x, axis=-1)
    return [y, b.op("reshape", y, shape=(35,))]


def two_views(b, x):
    y = b.op("reshape", b.op("softmax", x, axis=-1), shape=(35,))
    return [b.op("reshape", y, shape=(7, 5)), b.op("reshape", y, shape=(35, 1))]


def view_of_an_input(b, x):
    return [b.op("reshape", x, shape=(35,))]


@pytest.mark.parametrize(
    ("made", "count"),
    [(view_of_a_sum, 1), (view_that_others_read, 2), (view_of_an_output, 2), (two_views, 3), (view_of_an_input, 1)],
)
def test_views_that_leave_the_graph_are_written_where_they_lie(made, count):
    b = Builder("f")
    graph = b.graph(made(b, b.input("x", (5, 7))))
    assert len(fuse(graph).kernels) == count
    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    got, want = build_graph(graph)(x), evaluate(graph, x)
    for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert g.shape == w.shape
        np.testing.assert_allclose(g, w, rtol=1e-5)


def test_a_moved_axis_of_one_element_joins_rows():
    b = Builder("f")
    graph = b.graph([b.op("softmax", b.op("transpose", b.input("x", (5, 7, 1)), axes=(0, 2, 1)), axis=-1)])
    assert len(fuse(graph).kernels) == 1


def test_results_alive_together_do_not_overlap():
    rng = np.random.default_rng(1)
    for _ in range(20):
        graph = random_graph(rng)
        for division in (fuse(graph), unfused(graph)):
            plan = plan_memory(division)
            items = [(at, at + size_of(v), *plan.lifetimes[v]) for v, at in plan.offsets.items()]
            for k, (a, b, first, last) in enumerate(items):
                assert b <= plan.size and a % 64 == 0
                for c, d, begin, end in items[k + 1 :]:
                    assert b <= c or d <= a or last < begin or end < first
            assert "bytes in all" in plan.describe()


def random_graph(rng, size=10):
    """Random operators on matrices, of which some are read several times."""
    b = Builder("net")
    m, n = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    values = [b.input("x", (m, n)), b.input("y", (m, n))]
    square = b.constant(whole(rng, n, n), "w")
    for _ in range(size):
        v = values[int(rng.integers(len(values)))]
        o = values[int(rng.integers(len(values)))]
        kind = int(rng.integers(9))
        if kind == 0:
            made = b.op("matmul", b.op("clip", v, low=-4.0, high=4.0), square)
        elif kind == 1:
            made = b.op("add", v, o)
        elif kind == 2:
            made = b.op("maximum", v, b.op("sum", o, axis=1, keepdims=True))
        elif kind == 3:
            made = b.op("transpose", b.op("transpose", v))
        elif kind == 4:
            made = b.op("reshape", b.op("relu", b.op("reshape", v, shape=(m * n,))), shape=(m, n))
        elif kind == 5:
            made = b.op("concatenate", *b.several("split", v, sections=(n // 2,), axis=1)[::-1], axis=1) if n > 1 else v
        elif kind == 6:
            made = b.op("subtract", v, b.op("max", v, axis=0, keepdims=True))
        elif kind == 7:
            made = b.op("minimum", b.op("abs", v), b.constant(7.0))
        else:
            made = b.op("multiply", b.op("sign", v), b.constant(2.0))
        values.append(made)
    picked = [values[int(k)] for k in rng.integers(0, len(values), 2)]
    return b.graph([values[-1], *picked])


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_compute_the_same_in_any_division(seed):
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    inputs = [whole(rng, *v.shape) for v in graph.inputs]
    want = evaluate(graph, *inputs)
    for got, expected in zip(build_graph(graph)(*inputs), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_network_against_the_reference():
    rng = np.random.default_rng(2)
    graph = network(rng)
    x = whole(rng, 1, 3, 9, 9)
    want = evaluate(graph, x, run=run)
    model = build_graph(graph)
    got = model(x)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-7)
    mine = np.empty((1, 5), np.float32), np.empty((1, 8, 5, 5), np.float32)
    assert model(x, out=mine)[0] is mine[0]
    np.testing.assert_array_equal(mine[1], want[1])
    with pytest.raises(TypeError, match="takes 1 inputs"):
        model(x, x)


def test_equal_kernels_are_built_once():
    b = Builder()
    x = b.input("x", (8, 8))
    for k in range(4):
        x = b.op("relu", b.op("matmul", x, b.constant(np.eye(8, dtype=np.float32) * (k + 1))))
    model = build_graph(b.graph([x]))
    assert len({step.built.symbol for step in model.steps}) == 1 and len(model.steps) == 4
    np.testing.assert_array_equal(model(np.eye(8, dtype=np.float32)), np.eye(8) * 24)


def test_outputs_that_are_inputs_constants_or_given_twice():
    b = Builder()
    x, c = b.input("x", (3,)), b.constant(np.arange(3, dtype=np.float32))
    y = b.op("relu", x)
    graph = b.graph([y, x, c, y, b.op("reshape", x, shape=(3, 1))])
    x = np.array([-1, 2, -3], np.float32)
    got = build_graph(graph)(x)
    for a, want in zip(got, ([0, 2, 0], x, [0, 1, 2], [0, 2, 0], x[:, None]), strict=True):
        np.testing.assert_array_equal(a, want)


def test_sizes_filled_in():
    n = te.var("n")
    b = Builder()
    x = b.input("x", (n, 3))
    graph = b.graph([b.op("sum", b.op("reshape", x, shape=(n * 3,)), axis=0)])
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert evaluate(graph, x)[0] == 66
    assert specialize(graph, {n: 4}).inputs[0].shape == (4, 3)
    assert build_graph(specialize(graph, {n: 4}))(x) == 66
    with pytest.raises(GraphError, match="the input x"):
        evaluate(graph, x[:, :2])


def test_types_are_inferred_once(monkeypatch):
    """Equal applications share the result; other types, attributes, and an operator of the same name made anew do not."""
    count = []

    def first(x, times=2):
        count.append(1)
        return te.compute((x.shape[0] * times,), lambda i: x[i // times], "first")

    monkeypatch.setitem(OPERATORS, "often", Operator("often", first, "opaque", {"times": 2}))
    x, y, n = (Value("x", "float32", (3,)), Value("y", "float32", (3,)), Value("n", "float32", (te.var("n"),)))
    assert [infer("often", [v], {}) for v in (x, y)] == [[("float32", (6,))]] * 2 and len(count) == 1
    assert infer("often", [x], {"times": 3}) == [("float32", (9,))] and len(count) == 2
    assert infer("often", [n], {}) is not infer("often", [n], {}) and len(count) == 4
    monkeypatch.setitem(OPERATORS, "often", Operator("often", lambda x: x, "opaque", {}))
    assert infer("often", [x], {}) == [("float32", (3,))]


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (1, 300), (129, 257), (3, 130, 131)])
def test_copies_in_row_order(shape):
    data = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    moved = np.empty(data.nbytes + 1, np.uint8)[1:].view(np.int32).reshape(shape)
    moved[...] = data
    for view in (data, data.T, data[::-1] if shape else data, np.broadcast_to(data, (2, *shape)), moved):
        made = in_row_order(view)
        np.testing.assert_array_equal(made, view)
        assert made.flags.c_contiguous and made.flags.aligned
    assert in_row_order(data) is data
