"""Graphs as func and linalg: what goes out comes in structurally equal, and IREE's results are those of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import from_mlir, tir, to_mlir
from tilewright.graph import Builder, GraphError, evaluate
from tilewright.graph.kernels import whole_function
from tilewright.tir.interpret import interpret

from .outside_tools import IREE, MLIR_OPT, IreeModule, verified_by_mlir_opt

pytest.importorskip("xdsl", reason="the package xdsl is not installed")


def whole(*shape):
    """Return small whole numbers, whose sums are exact."""
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(np.float32)


def convolutions():
    b = Builder("net")
    x = b.input("x", (1, 3, 9, 9))
    y = b.op(
        "relu", b.op("conv2d", x, b.constant(whole(5, 3, 3, 3), "w"), b.constant(whole(5), "bias"), stride=2, padding=1)
    )
    z = b.op("add", b.op("conv2d", y, b.constant(whole(5, 5, 1, 1), "v")), y)
    flat = b.op("reshape", z, shape=(1, 5 * 25))
    return b.graph([b.op("dense", flat, b.constant(whole(7, 125), "d")), z])


def rows():
    b = Builder("rows")
    x = b.input("x", (7, 13))
    return b.graph(
        [b.op("softmax", b.op("add", b.op("matmul", x, b.constant(whole(13, 17), "w")), b.constant(whole(17), "c")))]
    )


def one():
    b = Builder("one")
    return b.graph([b.op("relu", b.input("x", (1,)))])


GRAPHS = {"convolutions": convolutions, "rows": rows, "one": one}


@pytest.mark.parametrize("name", GRAPHS)
def test_what_goes_out_comes_in(name):
    graph = GRAPHS[name]()
    text = str(to_mlir(graph))
    assert f"func.func @{graph.name}(" in text and "linalg.generic" in text
    tir.assert_structural_equal(from_mlir(text), whole_function(graph))


def parts(graph):
    """Return the graph's inputs, its constants, and its results by the reference."""
    inputs = [whole(*[int(n) for n in v.shape]) for v in graph.inputs]
    return inputs, list(graph.constants.values()), evaluate(graph, *inputs)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_comes_in_computes_the_same(name):
    graph = GRAPHS[name]()
    inputs, constants, expected = parts(graph)
    results = [np.full(e.shape, np.nan, e.dtype) for e in expected]
    interpret(from_mlir(str(to_mlir(graph))), *inputs, *constants, *results)
    for got, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(not MLIR_OPT, reason="mlir-opt of version 19 or later is not installed")
@pytest.mark.parametrize("name", GRAPHS)
def test_mlir_opt_takes_it(name):
    assert "linalg" in verified_by_mlir_opt(str(to_mlir(GRAPHS[name]())))


@pytest.mark.skipif(not IREE, reason="iree-base-compiler and iree-base-runtime are not installed")
@pytest.mark.parametrize("name", GRAPHS)
def test_iree_computes_the_same(name):
    graph = GRAPHS[name]()
    inputs, constants, expected = parts(graph)
    for got, wanted in zip(IreeModule(str(to_mlir(graph)))(graph.name, *inputs, *constants), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-7)


def test_an_output_that_is_an_input_is_refused():
    b = Builder("net")
    x = b.input("x", (3,))
    with pytest.raises(GraphError, match="the output x is an input"):
        to_mlir(b.graph([x]))
