"""Passes over graphs: what each makes of small graphs, all of them on random graphs, and a planted bug that is caught."""

import math

import numpy as np
import pytest

from tilewright.graph import (
    PASSES,
    Builder,
    GraphError,
    GraphPass,
    PassTimes,
    add_scan,
    evaluate,
    parse,
    prepare,
    register_pass,
    register_rule,
)
from tilewright.graph.passes import split_transposed
from tilewright.graph.passes.narrow_weights import constants_out_of_loops, move_narrow_weights, narrow_into_loops
from tilewright.graph.patterns import RULES
from tilewright.graph.rules import Rule, any_value, number, op, rewritten, rule
from tilewright.tir.expr import Var

from .random_graphs import random_graph

SMALL = {"rtol": 1e-4, "atol": 1e-4}


def check(graph, after, *inputs):
    with np.errstate(all="ignore"):
        for got, want in zip(evaluate(after, *inputs), evaluate(graph, *inputs), strict=True):
            np.testing.assert_allclose(got, want, **SMALL)


def filled(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]


def ops_after(lines, inputs="x: float32[2, 3, 4]", data=None):
    """Returns the operators that are left of a graph of these lines, and checks its results."""
    body = "\n    ".join(lines)
    graph = parse(f"def f({inputs}):\n    {body}", data)
    after = prepare(graph)
    check(graph, after, *filled(graph))
    return [n.op for n in after.nodes]


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        (["c: float32[()] = constant(-0.0)", "y = add(c, x)", "z = relu(y)", "return z"], ["relu"]),
        (["c: float32[1, 1] = constant(((1.0,),))", "y = multiply(x, c)", "z = relu(y)", "return z"], ["relu"]),
        (["y = identity(x)", "z = negative(y)", "w = negative(z)", "v = relu(w)", "return v"], ["relu"]),
        (["c: float32[()] = constant(0.0)", "y = maximum(x, c)", "z = relu(y)", "return z"], ["relu"]),
        (
            ["a: float32[()] = constant(0.0)", "b: float32[()] = constant(6.0)", "y = maximum(x, a)",
             "z = minimum(y, b)", "return z"],
            ["clip"],
        ),
        (
            ["a: float32[()] = constant(2.0)", "b: float32[()] = constant(3.0)", "y = multiply(x, a)",
             "z = multiply(b, y)", "return z"],
            ["multiply"],
        ),
        (["y = cast(x, dtype='float64')", "z = cast(y, dtype='float32')", "w = relu(z)", "return w"], ["relu"]),
        (["y = reshape(x, shape=(6, 4))", "z = flatten(y)", "w = expand_dims(z, axis=0)", "return w"], ["reshape"]),
        (["y = reshape(x, shape=(6, 4))", "z = reshape(y, shape=(2, 3, 4))", "w = relu(z)", "return w"], ["relu"]),
        (
            ["y = transpose(x, axes=(1, 2, 0))", "z = transpose(y, axes=(2, 0, 1))", "w = relu(z)", "return w"],
            ["relu"],
        ),
        (["y = expand_dims(x, axis=0)", "z = transpose(y, axes=(1, 2, 3, 0))", "return z"], ["reshape"]),
        (
            ["y = transpose(x, axes=(0, 2, 1))", "z = matmul(x, y)", "w = transpose(z, axes=(0, 2, 1))",
             "v = matmul(w, x)", "return v"],
            ["matmul", "matmul"],
        ),
        (
            ["y = strided_slice(x, begin=(0, 1, 0), end=(2, 3, 4), strides=1)",
             "z = strided_slice(y, begin=(1, 0, 0), end=(2, 2, 4), strides=(1, 1, 2))", "return z"],
            ["strided_slice"],
        ),
        (
            ["t = transpose(x, axes=(2, 0, 1))", "y = strided_slice(t, begin=(1, 0, 0), end=(4, 1, 3), strides=(2, 1, 1))",
             "z = relu(y)", "return z"],
            ["strided_slice", "transpose", "relu"],
        ),
        (
            ["t = transpose(x, axes=(2, 0, 1))", "y = strided_slice(t, begin=(1, 0, 0), end=(4, 1, 3))", "return y, t"],
            ["transpose", "strided_slice"],
        ),
        (["y = strided_slice(x, begin=(0, 0, 0), end=(9, 9, 9))", "z = relu(y)", "return z"], ["relu"]),
        (["y, z = split(x, sections=(1,), axis=1)", "w = concatenate(y, z, axis=1)", "v = relu(w)", "return v"], ["relu"]),
        (["y = broadcast_to(x, shape=(5, 2, 3, 4))", "z = broadcast_to(x, shape=(2, 3, 4))", "w = add(z, y)",
          "return w"], ["broadcast_to", "add"]),
        (
            ["n: bool[()] = constant(False)", "m = broadcast_to(n, shape=(2, 3, 4))", "a = exp(x)", "y = where(m, a, x)",
             "z = relu(y)", "return z"],
            ["relu"],
        ),
        (["a = exp(x)", "b = exp(x)", "unread = tanh(x)", "y = add(a, b)", "return y"], ["exp", "add"]),
        (["y = relu(x)", "return x, y, y"], ["relu", "identity", "identity"]),
    ],
)  # fmt: skip
def test_what_algebra_leaves(lines, want):
    assert ops_after(lines) == want


def test_constants_are_computed_and_outputs_keep_their_names():
    data = {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}
    graph = parse(
        """
def f(x: float32[4, 3]):
    w: float32[2, 3] = constant()
    t = transpose(w)
    e = exp(t)
    y = matmul(x, e)
    out = identity(y)
    return out
""",
        data,
    )
    after = prepare(graph)
    assert [n.op for n in after.nodes] == ["matmul"]
    assert after.outputs[0].name == "out"
    check(graph, after, *filled(graph))


def weights(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {
        n: (rng.random(s) + 0.5 if n == "v" else rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()
    }


CHANNELS = "    g: float32[6] = constant()\n    b: float32[6] = constant()\n    m: float32[6] = constant()\n    v: float32[6] = constant()\n"


@pytest.mark.parametrize(
    ("shape", "weight", "product"),
    [
        ("2, 4, 5, 5", (6, 4, 3, 3), "conv2d(x, w, padding=1)"),
        ("2, 4, 5, 5", (6, 2, 3, 3), "conv2d(x, w, padding=1, groups=2)"),
        ("2, 3, 5, 5", (3, 2, 3, 3), "depthwise_conv2d(x, w, stride=2)"),
        ("2, 4, 5", (6, 4, 3), "conv1d(x, w)"),
        ("2, 4", (6, 4), "dense(x, w)"),
    ],
)
def test_batch_norm_moves_into_the_weights_before_it(shape, weight, product):
    head = f"def f(x: float32[{shape}]):\n    w: float32{list(weight)} = constant()\n" + CHANNELS
    text = head + f"    a = {product}\n    n = batch_norm(a, g, b, m, v)\n    y = relu(n)\n    return y"
    graph = parse(text, weights(1, w=weight, g=6, b=6, m=6, v=6))
    after = prepare(graph)
    assert [n.op for n in after.nodes] == [product.split("(")[0], "relu"]
    check(graph, after, *filled(graph))


@pytest.mark.parametrize(
    ("shape", "weight", "product", "left"),
    [
        ("2, 6, 5, 5", (4, 6, 3, 3), "conv2d(n, w)", ["conv2d"]),
        ("2, 6, 5, 5", (4, 3, 3, 3), "conv2d(n, w, groups=2)", ["conv2d"]),
        ("2, 6, 5, 5", (6, 1, 3, 3), "depthwise_conv2d(n, w)", ["depthwise_conv2d"]),
        ("2, 6, 5, 5", (4, 6, 3, 3), "conv2d(n, w, padding=1)", ["multiply", "add", "conv2d"]),
        ("2, 6", (4, 6), "dense(n, w)", ["dense"]),
        ("2, 6", (6, 4), "matmul(n, w)", ["matmul", "add"]),
        ("2, 6", (4, 6), "matmul(n, w, transpose_b=True)", ["matmul", "add"]),
    ],
)
def test_batch_norm_moves_into_the_weights_after_it(shape, weight, product, left):
    head = f"def f(x: float32[{shape}]):\n    w: float32{list(weight)} = constant()\n" + CHANNELS
    graph = parse(head + f"    n = batch_norm(x, g, b, m, v)\n    y = {product}\n    return y",
                  weights(2, w=weight, g=6, b=6, m=6, v=6))  # fmt: skip
    after = prepare(graph)
    assert [n.op for n in after.nodes] == left
    check(graph, after, *filled(graph))


@pytest.mark.parametrize(
    ("gamma", "beta", "mean", "folds"),
    [(0, 0, 3, True), (1, 0, 1024, True), (2, 1024, 524288, True), (1, 0, 1025, False), (0.5, 1, 4096, False)],
)
def test_batch_norm_moves_as_long_as_its_shift_is_not_too_large(gamma, beta, mean, folds):
    """The mean times the scale is at most 1024 times the larger of gamma and beta. A channel that is 0 has neither."""
    head = "def f(x: float32[2, 4]):\n    w: float32[6, 4] = constant()\n" + CHANNELS
    text = head + "    a = dense(x, w)\n    y = batch_norm(a, g, b, m, v, epsilon=0.0)\n    return y"
    data = {n: np.full(6, a, np.float32) for n, a in (("g", gamma), ("b", beta), ("m", mean), ("v", 1))}
    graph = parse(text, weights(1, w=(6, 4)) | data)
    after = prepare(graph)
    assert [n.op for n in after.nodes] == (["dense"] if folds else ["dense", "batch_norm"])
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(evaluate(after, x)[0], evaluate(graph, x)[0], rtol=1e-4)


def test_weights_that_two_read_stay():
    graph = parse(
        """
def f(x: float32[2, 4]):
    w: float32[3, 4] = constant()
    c: float32[3] = constant((2.0, 3.0, 4.0))
    a = dense(x, w)
    y = multiply(a, c)
    return y, a
""",
        weights(3, w=(3, 4)),
    )
    after = prepare(graph)
    assert [n.op for n in after.nodes] == ["dense", "multiply"]
    check(graph, after, *filled(graph))


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_after_all_passes(seed):
    graph, inputs = random_graph(seed + 1000)
    check(graph, prepare(graph), *inputs)


@pytest.mark.parametrize("step", list(dict.fromkeys(p.name for p in PASSES)))
def test_random_graphs_after_each_pass_alone(step):
    chosen = next(p for p in PASSES if p.name == step)
    for seed in range(4):
        graph, inputs = random_graph(seed + 2000)
        check(graph, prepare(graph, [chosen]), *inputs)


def test_a_planted_bug_is_caught():
    """A rule that takes x - y for y + x changes the results of some random graph."""

    @rule(op("subtract", any_value("x"), any_value("y")))
    def wrong(m):
        return m.op("add", m["y"], m["x"])

    def differs(seed):
        graph, inputs = random_graph(seed)
        try:
            check(graph, prepare(graph, [GraphPass("wrong", lambda g, services: rewritten(g, [wrong]))]), *inputs)
        except AssertionError:
            return True
        return False

    assert any(differs(seed) for seed in range(20))


def test_passes_of_users_are_timed_and_shown(capsys):
    b = Builder("f")
    graph = b.graph([b.op("relu", b.op("relu", b.input("x", (3,))))])

    def halve(g, services):
        return g.replaced(g.nodes[:1], outputs=g.nodes[0].outputs) if len(g.nodes) > 1 else g

    made = register_pass("halve", halve, before="merge_equal")
    try:
        times = PassTimes()
        after = prepare(graph, [made], show=["halve"], times=times)
        assert [p.name for p in PASSES][-3:] == ["halve", "merge_equal", "distinct_outputs"]
    finally:
        PASSES.remove(made)
    assert times.operators == {"halve": (2, 1)} and "halve" in str(times)
    assert after.outputs[0].name == "relu_1"
    shown = capsys.readouterr().err
    assert shown.index("# before halve") < shown.index("relu_1: float32[3] = relu(relu)") < shown.index("# after halve")
    with pytest.raises(ValueError, match="there is no pass 'odd'"):
        register_pass("odd", halve, before="odd")


def test_rules_of_users():
    @rule(op("log", op("exp", any_value("x"))))
    def log_of_exp(m):
        return m["x"]

    register_rule(log_of_exp)
    try:
        assert ops_after(["a = exp(x)", "y = log(a)", "z = relu(y)", "return z"]) == ["relu"]
    finally:
        RULES.remove(log_of_exp)


def test_rules_that_are_wrong_are_named():
    b = Builder("f")
    x = b.input("x", (3, 1))
    graph = b.graph([b.op("add", x, b.input("y", (1, 4)))])
    with pytest.raises(GraphError, match="the rule first puts x"):
        rewritten(graph, [Rule("first", op("add", any_value("x"), any_value("y")), lambda m: m["x"])])
    swap = Rule("swap", op("add", any_value("x"), any_value("y")), lambda m: m.op("add", *m.root.inputs[::-1]))
    with pytest.raises(
        GraphError, match=r"swap: add\(\w+, \w+\) becomes add\(\w+, \w+\)\. A rule must not fit what it makes"
    ):
        rewritten(graph, [swap, Rule("never", op("exp", any_value("x")), lambda m: m["x"])])
    with pytest.raises(GraphError, match="the rule asks asks for 'z'; what fits its pattern here names 'x', 'y'"):
        rewritten(graph, [Rule("asks", op("add", any_value("x"), any_value("y")), lambda m: m["z"])])
    with pytest.raises(GraphError, match="no operator 'ad'; did you mean pad"):
        op("ad", any_value("x"))
    with pytest.raises(GraphError, match="does not begin with an operator"):
        rewritten(graph, [Rule("all", any_value("x"), lambda m: None)])


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (op("add", any_value("a"), op("exp", any_value("a"))), True),
        (op("add", op("exp", any_value("a")), any_value("a")), True),
        (op("add", any_value("a"), op("exp", any_value("b"))), True),
        (op("add", op("exp", any_value("a")), op("exp", any_value("a"))), False),
        (op("subtract add", any_value(), any_value()), True),
        (op("add", any_value(), None), False),
        (op("add", any_value(), any_value(), axis=1), False),
    ],
)
def test_what_patterns_fit(pattern, fits):
    b = Builder("f")
    x = b.input("x", (3,))
    graph = b.graph([b.op("add", x, b.op("exp", x))])
    found = []
    rewritten(graph, [Rule("look", pattern, lambda m: found.append(m))])
    assert bool(found) is fits


def test_products_of_several_factors_fit_in_any_order_and_tree():
    pattern = op("multiply", any_value("x"), number(0.5), op("exp", any_value("x")))
    for order in range(12):
        b = Builder("f")
        x = b.input("x", (3,))
        parts = [x, b.constant(0.5), b.op("exp", x)]
        parts = [parts[k] for k in [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)][order % 6]]
        inner = b.op("multiply", parts[0], parts[1])
        out = b.op("multiply", inner, parts[2]) if order < 6 else b.op("multiply", parts[2], inner)
        after = rewritten(b.graph([out]), [Rule("found", pattern, lambda m: m.op("relu", m["x"]))])
        assert [n.op for n in after.nodes] == ["relu"]


def gelu(b, x, form):
    c = b.constant
    if form == "erf":
        inner = b.op("add", b.op("erf", b.op("divide", x, c(math.sqrt(2.0)))), c(1.0))
        return b.op("multiply", b.op("multiply", x, inner), c(0.5))
    cube = b.op("power", x, c(3.0)) if form == "tanh" else b.op("multiply", b.op("multiply", x, x), x)
    inner = b.op("multiply", b.op("add", x, b.op("multiply", cube, c(0.044715))), c(math.sqrt(2 / math.pi)))
    return b.op("multiply", b.op("multiply", c(0.5), x), b.op("add", b.op("tanh", inner), c(1.0)))


def normed(b, x, kind):
    c = b.constant
    centre = b.op("subtract", x, b.op("mean", x, axis=(-1,), keepdims=True)) if kind == "layer_norm" else x
    square = b.op("power", centre, c(2.0)) if kind == "layer_norm" else b.op("multiply", centre, centre)
    root = b.op("sqrt", b.op("add", b.op("mean", square, axis=-1, keepdims=True), c(1e-5)))
    if kind == "rms_norm":
        return b.op(
            "multiply", b.constant(np.arange(1, 5, dtype=np.float32)), b.op("multiply", x, b.op("divide", c(1.0), root))
        )
    scaled = b.op("multiply", b.op("divide", centre, root), b.constant(np.arange(1, 5, dtype=np.float32)))
    return b.op("add", scaled, b.constant(np.ones((1, 1, 4), np.float32)))


def written_softmax(b, x):
    e = b.op("exp", b.op("subtract", x, b.op("max", x, axis=2, keepdims=True)))
    return b.op("divide", e, b.op("sum", e, axis=2, keepdims=True))


def turned(b, x):
    lower = b.op("strided_slice", x, begin=(0, 0, 0), end=(2, 3, 2))
    upper = b.op("strided_slice", x, begin=(0, 0, 2), end=(2, 3, 4), strides=(1, 1, 1))
    cos, sin = b.input("cos", (3, 4)), b.input("sin", (3, 4))
    half = b.op("concatenate", b.op("negative", upper), lower, axis=-1)
    return b.op("add", b.op("multiply", x, cos), b.op("multiply", half, sin))


def attended(b, x, mask):
    k, v = b.op("exp", b.input("k", (2, 3, 4))), b.input("v", (2, 3, 4))
    scores = b.op("divide", b.op("matmul", x, b.op("transpose", k, axes=(0, 2, 1))), b.constant(3.0))
    scores = b.op("add", scores, b.input("mask", (1, 3, 3))) if mask else scores
    return b.op("matmul", b.op("softmax", scores, axis=-1), v)


@pytest.mark.parametrize(
    ("write", "want"),
    [
        (lambda b, x: gelu(b, x, "erf"), ["gelu"]),
        (lambda b, x: gelu(b, x, "tanh"), ["gelu"]),
        (lambda b, x: gelu(b, x, "products"), ["gelu"]),
        (lambda b, x: b.op("multiply", b.op("sigmoid", x), x), ["silu"]),
        (lambda b, x: b.op("multiply", x, b.op("divide", b.op("clip", b.op("add", x, b.constant(3.0)), low=0.0, high=6.0),
                                               b.constant(6.0))), ["hardswish"]),
        (lambda b, x: b.op("multiply", b.op("silu", x), b.input("u", (2, 3, 4))), ["swiglu"]),
        (lambda b, x: normed(b, x, "layer_norm"), ["layer_norm"]),
        (lambda b, x: normed(b, x, "rms_norm"), ["rms_norm"]),
        (written_softmax, ["softmax"]),
        (turned, ["rotary"]),
        (lambda b, x: attended(b, x, False), ["exp", "attention"]),
        (lambda b, x: attended(b, x, True), ["exp", "attention"]),
    ],
)  # fmt: skip
def test_what_exporters_write_out_becomes_one_operator(write, want):
    b = Builder("f")
    graph = b.graph([write(b, b.input("x", (2, 3, 4)))])
    after = prepare(graph)
    assert [n.op for n in after.nodes] == want
    check(graph, after, *filled(graph))


def test_patterns_that_nearly_fit_stay():
    b = Builder("f")
    x = b.input("x", (2, 3, 4))
    y = b.op("multiply", x, b.op("sigmoid", b.op("multiply", x, b.constant(1.702))))
    z = b.op("divide", b.op("exp", x), b.op("sum", b.op("exp", x), axis=(1, 2), keepdims=True))
    after = prepare(b.graph([y, z]))
    assert {"sigmoid", "sum"} <= {n.op for n in after.nodes}


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "extra"),
    [(2, 2, 0, 0), (3, 2, 1, 1), (4, 2, 1, 0), (3, 3, 0, 0), ((3, 2), (2, 3), 0, (0, 1)), (5, 2, 2, 1), (1, 2, 0, 1),
     ((7, 3), (2, 1), (1, 0), 0), (2, 2, (1, 0, 0, 1), 0), (4, 3, (0, 1, 2, 1), (1, 0))],
)  # fmt: skip
@pytest.mark.parametrize("size", [(1, 1), (5, 4), (1, 7)])
def test_transposed_convolutions_become_plain_ones(kernel, stride, padding, extra, size):
    k = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    words = f"stride={stride}, padding={padding}, output_padding={extra}"
    text = (
        f"def f(x: float32[2, 3, {size[0]}, {size[1]}]):\n    w: float32[3, 4, {k[0]}, {k[1]}] = constant()\n"
        f"    b: float32[4] = constant()\n    y = conv2d_transpose(x, w, b, {words})\n    z = relu(y)\n    return z"
    )
    try:
        graph = parse(text, weights(3, w=(3, 4, *k), b=4))
    except GraphError:
        pytest.skip("nothing is left of the result")
    after = prepare(graph)
    assert "conv2d_transpose" not in [n.op for n in after.nodes]
    check(graph, after, *filled(graph))


@pytest.mark.parametrize("bias", ["", "b, "])
@pytest.mark.parametrize(("size", "kernel", "words"), [
    ((4, 5), (2, 2), "stride=2, groups=3"), ((4, 5), (3, 4), "stride=2, groups=2"), ((4, 5), (3, 3), "stride=2, padding=1"),
    ((1, 9), (1, 5), "stride=(1, 3), padding=(0, 2)"), ((1, 1), (4, 3), "groups=2"), ((1, 1), (4, 3), "stride=2"),
])  # fmt: skip
def test_transposed_convolutions_by_kernels_of_the_call(size, kernel, words, bias):
    """The operator in groups, of single rows and pixels, and with kernels and a bias that are no constants."""
    groups = int(words.partition("groups=")[2] or 1)
    text = (
        f"def f(x: float32[2, 6, {size[0]}, {size[1]}], w: float32[6, 2, {kernel[0]}, {kernel[1]}], "
        f"b: float32[{2 * groups}]):\n    y = conv2d_transpose(x, w, {bias}{words})\n    z = relu(y)\n    return z"
    )
    graph = parse(text)
    after = prepare(graph)
    assert "conv2d_transpose" not in [n.op for n in after.nodes]
    check(graph, after, *filled(graph))


@pytest.mark.parametrize("words", ["stride=1", 'stride=2, padding="valid"'])
def test_transposed_convolutions_that_stay(words):
    text = f"def f(x: float32[1, 3, 4, 4]):\n    w: float32[3, 4, 2, 2] = constant()\n    y = conv2d_transpose(x, w, {words})\n    return y"
    graph = parse(text, weights(3, w=(3, 4, 2, 2)))
    after = prepare(graph)
    assert [n.op for n in after.nodes] == ["conv2d_transpose"]
    check(graph, after, *filled(graph))


def test_batch_norm_moves_into_a_transposed_convolution():
    text = "def f(x: float32[1, 4, 3, 5]):\n    w: float32[4, 6, 2, 2] = constant()\n" + CHANNELS
    text += "    a = conv2d_transpose(x, w, stride=2)\n    y = batch_norm(a, g, b, m, v)\n    return y"
    graph = parse(text, weights(1, w=(4, 6, 2, 2), g=6, b=6, m=6, v=6))
    after = prepare(graph)
    assert [n.op for n in after.nodes] == ["conv2d", "depth_to_space"]
    check(graph, after, *filled(graph))


@pytest.mark.parametrize(
    ("low", "high", "joined"),
    [({}, {}, True), ({"axis": (0, 1)}, {}, True), ({"axis": 0}, {"axis": 0}, False), ({"keepdims": True}, {}, False)],
)
def test_both_extremes_of_an_array_are_found_at_once(low, high, joined):
    b = Builder("f")
    x = b.input("x", (5, 7))
    small, large = b.op("min", x, **low), b.op("max", x, **high)
    graph = b.graph([b.op("subtract", large, small), b.op("relu", x), b.op("exp", small)])
    after = prepare(graph)
    assert ("extremes" in [n.op for n in after.nodes], {n.op for n in after.nodes} >= {"max", "min"}) == (
        joined,
        not joined,
    )
    check(graph, after, *filled(graph))


def test_extremes_of_different_arrays_stay_apart():
    b = Builder("f")
    x, y = b.input("x", (5, 7)), b.input("y", (5, 7))
    graph = b.graph(
        [b.op("subtract", b.op("max", x), b.op("min", y)), b.op("subtract", b.op("max", y), b.op("max", x))]
    )
    after = prepare(graph)
    assert [n.op for n in after.nodes].count("extremes") == 1
    check(graph, after, *filled(graph))


def function_of_a_byte(dtype, to, shape=(3, 100), middle=(), op="sigmoid", size=()):
    """Returns a graph of what a quantizer writes around a function; ``middle`` are more outputs of its steps."""
    b = Builder("net")
    x = b.input("x", shape, dtype)
    wide = b.op("multiply", b.op("cast", x, dtype="float32"), b.constant(np.full(size, 0.05, np.float32)))
    made = b.op(op, wide)
    ends = np.iinfo(to)
    y = b.op(
        "clip", b.op("round", b.op("multiply", made, b.constant(200.0))), low=float(ends.min), high=float(ends.max)
    )
    return b.graph([b.op("cast", y, dtype=to), *[{"wide": wide, "made": made}[name] for name in middle]])


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("to", ["uint8", "int8"])
@pytest.mark.parametrize("size", [(), (1, 1)])
def test_a_costly_function_of_a_byte_is_a_table(dtype, to, size):
    graph = function_of_a_byte(dtype, to, size=size)
    after = prepare(graph)
    assert [n.op for n in after.nodes] == (["take"] if dtype == "uint8" else ["reinterpret", "take"])
    x = np.resize(np.arange(256).astype(np.uint8).view(dtype), (3, 100))
    np.testing.assert_array_equal(evaluate(after, x)[0], evaluate(graph, x)[0])


@pytest.mark.parametrize(
    "options",
    [
        {"middle": ["made"]},
        {"op": "relu"},
        {"size": (100,)},
        {"size": (3, 3, 100), "shape": (1, 1, 1)},
    ],
)
def test_other_functions_of_a_byte_stay(options):
    after = prepare(function_of_a_byte("uint8", "int8", **options))
    assert "take" not in [n.op for n in after.nodes]


def test_a_step_that_others_read_is_computed_for_them():
    graph = function_of_a_byte("uint8", "int8", middle=["wide"])
    after = prepare(graph)
    assert [n.op for n in after.nodes] == ["cast", "multiply", "take"]
    x = np.resize(np.arange(256).astype(np.uint8), (3, 100))
    for got, want in zip(evaluate(after, x), evaluate(graph, x), strict=True):
        np.testing.assert_array_equal(got, want)


def quantized(b, x, scale, zero):
    """Returns int8 numbers of floats."""
    shifted = b.op("add", b.op("round", b.op("divide", x, b.constant(scale))), b.constant(float(zero)))
    return b.op("cast", b.op("clip", shifted, low=-128.0, high=127.0), dtype="int8")


def dequantized(b, q, scale, zero):
    """Returns the floats that int8 numbers stand for."""
    wide = b.op("subtract", b.op("cast", q, dtype="int32"), b.constant(zero, dtype="int32"))
    return b.op("multiply", b.op("cast", wide, dtype="float32"), b.constant(scale))


def gated(gate, read=(), size=(3, 100)):
    """Returns a graph of x · gate(x), quantized before, between and after; ``read`` are more outputs of its steps."""
    b = Builder("net")
    q = b.input("q", size, "int8")
    x = dequantized(b, q, 0.05, 7)
    between = quantized(b, b.op(gate, x), 1 / 255, -128)
    y = quantized(b, b.op("multiply", x, dequantized(b, between, 1 / 255, -128)), 0.03, -100)
    after = quantized(b, b.op("relu", dequantized(b, y, 0.03, -100)), 0.02, -128)
    return b.graph([{"y": y, "between": between, "after": after, "x": x, "q": q}[name] for name in ("y", *read)])


@pytest.mark.parametrize(
    ("gate", "read", "tables"),
    [
        ("sigmoid", [], 1),
        ("sigmoid", ["x"], 1),
        ("sigmoid", ["between"], 1),  # what is left to the end is one quantization
        ("hardsigmoid", [], 1),  # two quantizations take longer than a lookup
        ("hardsigmoid", ["between"], 0),
        ("sigmoid", ["after"], 1),  # the relu after a table is cheap
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_functions_through_several_quantizations_are_one_table(gate, read, tables, symbolic):
    size = (Var("n"), 100) if symbolic else (3, 100)
    graph = gated(gate, read, size)
    after = prepare(graph)
    assert [n.op for n in after.nodes].count("take") == tables
    assert (gate in {n.op for n in after.nodes}) == (tables == 0)
    x = np.resize(np.arange(-128, 128).astype(np.int8), (3, 100))
    for got, want in zip(evaluate(after, x), evaluate(graph, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_functions_of_two_bytes_stay():
    b = Builder("net")
    x, y = [b.op("cast", b.input(name, (5,), "uint8"), dtype="float32") for name in "xy"]
    graph = b.graph([b.op("cast", b.op("sigmoid", b.op("add", x, y)), dtype="uint8")])
    assert "take" not in [n.op for n in prepare(graph).nodes]


@pytest.mark.parametrize(
    ("kernel", "stride", "words", "counts"),
    [((3, 3), (2, 2), "padding=0", (4, 2)), ((3, 3), (2, 2), "padding=1, output_padding=1", (4, 2)),
     ((5, 3), (3, 2), "padding=(0, 1, 1, 0)", (4, 2)), ((4, 5), (2, 2), "padding=1", (2, 1)), ((1, 3), (1, 2), "padding=0", (2, 1)),
     ((2, 7), (3, 3), "padding=0", (2, 1)), ((3, 3), (4, 4), "padding=0", (1, 1)), ((3, 3), (2, 2), "padding=2", (1, 1))],
)  # fmt: skip
@pytest.mark.parametrize("bias", ["", "b, "])
@pytest.mark.parametrize("wide", [2, 4])
def test_places_with_fewer_elements_of_the_kernel_are_convolutions_of_their_own(
    kernel, stride, words, counts, bias, wide, monkeypatch
):
    """With channels enough no zeros are multiplied, and the results are those of the transposed convolution. With half as
    many channels the places of a row's columns stay together."""
    monkeypatch.setattr(split_transposed, "_WIDE", wide)
    count = counts[wide > 2]
    h, w = kernel
    text = (
        f"def f(x: float32[1, 3, 4, 3], w: float32[3, 2, {h}, {w}], b: float32[2]):\n"
        f"    y = conv2d_transpose(x, w, {bias}stride={stride}, {words})\n    return y"
    )
    graph = parse(text)
    after = prepare(graph)
    assert [n.op for n in after.nodes].count("conv2d") == count and "conv2d_transpose" not in [
        n.op for n in after.nodes
    ]
    check(graph, after, *filled(graph))


@pytest.mark.parametrize(
    ("move", "attrs"),
    [
        ("squeeze", {"axis": 0}),
        ("transpose", {"axes": (2, 0, 1)}),
        ("reshape", {"shape": (80, 50)}),
        ("strided_slice", {"begin": (0, 70, 0), "end": (1, 3, 50), "strides": (1, -2, 1)}),
        ("strided_slice", {"begin": (0, 4, 1), "end": (1, 7, 30), "slice_mode": "size"}),
    ],
)
@pytest.mark.parametrize("count", [(), (80, 1), (1, 1, 50)])
def test_elements_of_weights_move_before_they_are_decoded(move, attrs, count):
    rng, b = np.random.default_rng(3), Builder()
    scales = rng.random(count).astype(np.float32)
    zeros = np.broadcast_to(rng.integers(-9, 9, count), count).astype(np.int32)
    whole = b.op("cast", b.constant(rng.integers(-128, 127, (1, 80, 50)).astype(np.int8)), dtype="int32")
    shifted = b.op("subtract", whole, b.constant(zeros))
    wide = b.op("multiply", b.op("cast", shifted, dtype="float32"), b.constant(scales))
    graph = b.graph([b.op(move, wide, **attrs)])
    after = move_narrow_weights(graph)
    assert [n.op for n in after.nodes] == ["cast", "subtract", "cast", "multiply"]
    np.testing.assert_array_equal(evaluate(after)[0], evaluate(graph)[0])


@pytest.mark.parametrize("steps", [0, 3])
def test_weights_that_no_product_takes_are_decoded_before_the_loop(steps):
    rng, b = np.random.default_rng(5), Builder()
    x, h = b.input("x", (4, 30)), b.constant(np.zeros((4, 30), np.float32))
    numbers = b.constant(rng.integers(-128, 127, (30, 30)).astype(np.int8))
    w = b.op("multiply", b.op("cast", numbers, dtype="float32"), b.constant(np.float32(0.01)))

    def step(states, parts):
        product = b.op("matmul", states[0], w)
        return [b.op("tanh", b.op("add", product, x))], []

    (last,), _ = add_scan(b, [h], [], step, steps=steps)
    graph = b.graph([last])
    inside = narrow_into_loops(graph)
    (loop,) = [n for n in inside.nodes if n.body is not None]
    assert "cast" in [n.op for n in loop.body.nodes] and "cast" not in [n.op for n in inside.nodes]
    back = constants_out_of_loops(inside)
    (loop,) = [n for n in back.nodes if n.body is not None]
    assert "cast" not in [n.op for n in loop.body.nodes]
    data = rng.standard_normal((4, 30)).astype(np.float32)
    for after in (inside, back, prepare(graph)):
        np.testing.assert_allclose(evaluate(after, data)[0], evaluate(graph, data)[0], rtol=1e-5, atol=1e-6)
