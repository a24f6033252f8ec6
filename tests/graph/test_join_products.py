"""Several products of one operand become one product where that is predicted to be faster."""

import math

import numpy as np
import pytest

from tilewright.driver.models.model_building import build_graph
from tilewright.graph import Services, evaluate, fuse, parse, prepare
from tilewright.graph.passes.join_products import join_products

ONE_IS_CHEAPER, ALL_ARE_EQUAL = (
    Services(seconds=lambda kernel: 1e-3),
    Services(seconds=lambda kernel: _width(kernel.func) * 1e-3),
)


def _width(func):
    return math.prod(int(e) for e in func.buffer_map[func.params[-1]].shape)


def graph_of(lines, **shapes):
    rng = np.random.default_rng(0)
    data = {name: rng.integers(-4, 5, shape).astype(np.float32) for name, shape in shapes.items()}
    head = [f"    {name}: float32[{', '.join(map(str, shape))}] = constant()" for name, shape in shapes.items()]
    return parse("def net(x: float32[5, 6]):\n" + "\n".join(head + [f"    {line}" for line in lines]), data)


def agree(before, after):
    x = np.random.default_rng(1).integers(-4, 5, (5, 6)).astype(np.float32)
    for a, b in zip(evaluate(after, x), evaluate(before, x), strict=True):
        np.testing.assert_array_equal(a, b)


CASES = [
    (["a = matmul(x, w)", "b = matmul(x, v)", "return a, b"], {"w": (6, 7), "v": (6, 13)}, 1),
    (["a = matmul(x, w, transpose_b=True)", "b = matmul(x, v, transpose_b=True)", "c = add(a, d)", "e = add(b, f)",
      "return c, e"], {"w": (7, 6), "v": (1, 6), "d": (7,), "f": (1, 1)}, 1),
    (["a = dense(x, w, d)", "b = dense(x, v, f)", "c = relu(b)", "return a, c"],
     {"w": (7, 6), "v": (16, 6), "d": (7,), "f": (16,)}, 1),
    (["a = dense(x, w)", "b = dense(x, v)", "c = dense(x, u)", "d = add(a, b)", "e = add(d, c)", "return e"],
     {"w": (7, 6), "v": (7, 6), "u": (7, 6)}, 1),
    (["a = dense(x, w)", "b = dense(x, v, d)", "return a, b"], {"w": (7, 6), "v": (7, 6), "d": (7,)}, 2),
    (["a = matmul(x, w)", "b = matmul(x, w, transpose_b=True)", "return a, b"], {"w": (6, 6)}, 2),
    (["a = matmul(x, w)", "b = matmul(a, v)", "return b"], {"w": (6, 6), "v": (6, 6)}, 2),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "shapes", "left"), CASES)
def test_products_of_one_operand_become_one(lines, shapes, left):
    graph = graph_of(lines, **shapes)
    after = join_products(graph, ONE_IS_CHEAPER)
    prepare(after, [])
    assert sum(n.op in ("matmul", "dense") for n in after.nodes) == left
    agree(graph, after)


@pytest.mark.parametrize("services", [ALL_ARE_EQUAL, Services()])
def test_products_stay_apart_where_nothing_is_gained(services):
    graph = graph_of(CASES[0][0], **CASES[0][1])
    assert join_products(graph, services) is graph


def test_heads_are_cut_out_by_the_transposes_that_read_them():
    lines = []
    for n in "qkv":
        lines += [f"{n}p = matmul(x, w{n})", f"{n} = add({n}p, b{n})", f"{n}h = reshape({n}, shape=(1, 5, 2, 4))"]
        lines += [f"{n}t = transpose({n}h, axes=(0, 2, 1, 3))"]
    lines += ["y = attention(qt, kt, vt)", "return y"]
    shapes = {f"w{n}": (6, 8) for n in "qkv"} | {f"b{n}": (8,) for n in "qkv"}
    graph = graph_of(lines, **shapes)
    after = prepare(graph, services=ONE_IS_CHEAPER)
    names = [kernel.name for kernel in fuse(after).kernels]
    assert names == ["matmul_add", *[f"strided_slice_transpose{n}" for n in ("", "_1", "_2")], "attention"]
    x = np.random.default_rng(1).integers(-4, 5, (5, 6)).astype(np.float32) / 4
    want = evaluate(graph, x)[0]
    for got in (evaluate(after, x)[0], build_graph(graph)(x)):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("line", "kernel"),
    [("y = add(r, s)", "matmul_add"), ("y = add(s, r)", "matmul_add"), ("y = multiply(s, n)", "matmul_multiply")],
)
def test_residuals_join_products_whose_result_is_reshaped(line, kernel):
    text = f"""
def net(x: float32[1, 5, 6], r: float32[1, 5, 7]):
    w: float32[6, 7] = constant()
    v = reshape(x, shape=(5, 6))
    p = matmul(v, w)
    s = reshape(p, shape=(1, 5, 7))
    n = negative(r)
    {line}
    z = transpose(y, axes=(2, 1, 0))
    t = exp(y)
    return z, t
"""
    rng = np.random.default_rng(0)
    graph = parse(text, {"w": rng.integers(-2, 3, (6, 7)).astype(np.float32) / 4})
    after = prepare(graph)
    assert kernel in [k.name for k in fuse(after).kernels]
    arrays = [rng.integers(-2, 3, v.shape).astype(np.float32) / 4 for v in graph.inputs]
    for a, b in zip(evaluate(after, *arrays), evaluate(graph, *arrays), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
