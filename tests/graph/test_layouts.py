"""Orders of dimensions chosen over a whole graph: transposes that cancel, convolutions with the channels last."""

import itertools

import numpy as np
import pytest

from tilewright.graph import Services, evaluate, parse, prepare
from tilewright.graph.passes.choose_layouts import SINK, SOURCE, Network, choose_layouts


def laid_out(text, data=None, services=Services()):
    graph = parse(text, data)
    after = choose_layouts(graph, services)
    prepare(after, [])
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    for got, want in zip(evaluate(after, *inputs), evaluate(graph, *inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return after


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["t = transpose(x, axes=(0, 2, 1))", "a = relu(t)", "y = transpose(a, axes=(0, 2, 1))", "return y"], 0),
        (["t = transpose(x, axes=(2, 0, 1))", "a = relu(t)", "y = transpose(a, axes=(1, 2, 0))", "return y"], 0),
        (["t = transpose(x, axes=(0, 2, 1))", "s = softmax(t, axis=1)", "y = transpose(s, axes=(0, 2, 1))",
          "return y"], 0),
        (["t = transpose(x, axes=(0, 2, 1))", "a = mean(t, axis=(1, 2))", "return a"], 0),
        (["t = transpose(x, axes=(1, 0, 2))", "u = transpose(x, axes=(1, 0, 2))", "a = add(t, u)", "return a"], 1),
        (["t = transpose(x, axes=(0, 2, 1))", "c: float32[4, 1] = constant(((1.0,), (2.0,), (3.0,), (4.0,)))",
          "a = multiply(t, c)", "p, q = split(a, sections=(1,), axis=1)", "b = concatenate(q, p, axis=-2)",
          "s = strided_slice(b, begin=(0, 1, 0), end=(2, 4, 3), strides=(1, 2, 1))", "y = transpose(s, axes=(0, 2, 1))",
          "return y"], 0),
        (["t = transpose(x, axes=(0, 2, 1))", "a = relu(t)", "return a"], 1),
        (["t = transpose(x, axes=(0, 2, 1))", "a = relu(t)", "y = transpose(a, axes=(0, 2, 1))", "return y, a"], 1),
    ],
)  # fmt: skip
def test_transposes_cancel_across_what_can_work_in_either_order(lines, left):
    after = laid_out("def f(x: float32[2, 3, 4]):\n    " + "\n    ".join(lines))
    assert sum(n.op == "transpose" for n in after.nodes) == left


CONVOLUTIONS = """
def net(x: float32[1, 3, 9, 9]):
    w: float32[8, 3, 3, 3] = constant()
    v: float32[8, 1, 3, 3] = constant()
    u: float32[4, 8, 1, 1] = constant()
    b: float32[8] = constant()
    k: float32[8, 1, 1] = constant()
    a = conv2d(x, w, b, padding=1)
    c = relu(a)
    d = depthwise_conv2d(c, v, padding=1)
    e = multiply(d, k)
    p = max_pool2d(e, kernel=2, stride=2)
    q = conv2d(p, u)
    m = global_avg_pool(q)
    r = reshape(m, shape=(1, 4))
    return r
"""


def weights():
    rng = np.random.default_rng(1)
    shapes = {"w": (8, 3, 3, 3), "v": (8, 1, 3, 3), "u": (4, 8, 1, 1), "b": (8,), "k": (8, 1, 1)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def test_convolutions_with_the_channels_last_where_that_is_faster():
    def faster_last(kernel):
        return 1e-3 if kernel.inputs[0].shape[1] in (3, 8) else 1e-4

    after = laid_out(CONVOLUTIONS, weights(), Services(seconds=faster_last))
    assert [n.attrs.get("layout") for n in after.nodes if "conv" in n.op] == ["NHWC"] * 3
    assert [n.op for n in after.nodes].count("transpose") == 1


def test_convolutions_stay_as_they_are_where_nothing_is_gained():
    after = laid_out(CONVOLUTIONS, weights(), Services(seconds=lambda kernel: 1e-4))
    assert [n.attrs.get("layout") for n in after.nodes if "conv" in n.op] == [None] * 3
    assert "transpose" not in [n.op for n in after.nodes]


@pytest.mark.parametrize("seed", range(8))
def test_cuts_are_minimal(seed):
    rng = np.random.default_rng(seed)
    inner = list(range(5))
    edges = {}
    for a, b in itertools.permutations([SOURCE, *inner, SINK], 2):
        if rng.integers(2) and b != SOURCE and a != SINK:
            edges[a, b] = float(rng.integers(1, 9))
    network = Network()
    for (a, b), capacity in edges.items():
        network.edge(a, b, capacity)

    def cost(side):
        return sum(c for (a, b), c in edges.items() if a not in side and b in side)

    sides = [{SINK, *chosen} for n in range(6) for chosen in itertools.combinations(inner, n)]
    assert cost(network.sink_side()) == min(cost(side) for side in sides)
