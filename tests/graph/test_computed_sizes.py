"""Sizes that a network computes: the text, the reference, compiled models, and what is refused."""

import subprocess

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.runtime.arguments import ArgumentError
from tilewright.graph import Builder, GraphError, add_computed_size, evaluate, parse, verify
from tilewright.graph.computed_sizes import room
from tilewright.graph.graph import dims
from tilewright.tir.expr import same


def positives(extent, bound=None):
    """Returns a graph that finds the positive elements of a vector, and twice these."""
    b = Builder("positives")
    n = te.var("n") if bound else extent
    x = b.input("x", (n,))
    ones = b.op("cast", b.op("greater", x, b.constant(0.0)), dtype="int64")
    rank = b.op("subtract", b.op("cumsum", ones), b.constant(1))
    at = b.op("where", b.op("greater", x, b.constant(0.0)), rank, b.constant(1 << 20))
    zeros = b.op("multiply", x, b.constant(0.0))
    every = b.op("scatter_elements", zeros, at, x, axis=0)
    size = add_computed_size(b, b.op("sum", ones), n)
    found = b.op("strided_slice", every, begin=(0,), end=(size,), strides=(1,), slice_mode="size")
    return b.graph([found, b.op("add", found, found)]), size


def samples(extent):
    rng = np.random.default_rng(extent)
    return [
        rng.standard_normal(extent).astype(np.float32),
        np.ones(extent, np.float32),
        np.full(extent, -1, np.float32),
        np.arange(extent, dtype=np.float32),
    ]


@pytest.mark.parametrize("extent", [1, 7, 16, 33])
def test_compiled_models_and_the_reference_find_what_numpy_does(extent):
    graph, _ = positives(extent)
    built = tw.build(graph)
    for x in samples(extent):
        for first, twice in (built(x), evaluate(graph, x)):
            np.testing.assert_array_equal(first, x[x > 0])
            np.testing.assert_array_equal(twice, 2 * x[x > 0])


def test_the_room_follows_sizes_of_inputs():
    graph, size = positives(0, bound=64)
    built = tw.build(graph, bounds={"n": 64})
    for extent in (1, 13, 64, 5):
        for x in samples(extent):
            np.testing.assert_array_equal(built(x)[0], x[x > 0])
    n = graph.inputs[0].shape[0]
    (whole,) = room((size * 2 + n,), {size: n})
    assert same(whole, dims([n * 3])[0])
    assert room((n - size,), {size: n}, {n: 64, size: 64}) == (64,)
    with pytest.raises(GraphError, match="is not known"):
        room((n - size,), {size: n})
    with pytest.raises(tw.driver.BuildError, match="n"):
        tw.build(graph)


def test_the_text_parses_back():
    graph, _ = positives(12)
    again = parse(str(graph))
    assert str(again) == str(graph)
    verify(again)
    (x, *_) = samples(12)
    np.testing.assert_array_equal(evaluate(again, x)[0], x[x > 0])


def test_a_size_that_nothing_reads_but_shapes_is_kept():
    b = Builder("counted")
    x = b.input("x", (6,), "int64")
    size = add_computed_size(b, b.op("sum", x), 9)
    ones = b.op("broadcast_to", b.constant(1.0), shape=(size, 2))
    graph = b.graph([ones])
    built = tw.build(graph)
    for total in (0, 1, 9):
        given = np.array([total, 0, 0, 0, 0, 0])
        assert built(given).shape == evaluate(graph, given)[0].shape == (total, 2)
    with pytest.raises(Exception, match=r"count must be in 0\.\.9"):
        built(np.array([10, 0, 0, 0, 0, 0]))
    with pytest.raises(Exception, match=r"count must be in 0\.\.9"):
        built(np.array([-1, 0, 0, 0, 0, 0]))


def test_two_sizes_one_after_the_other():
    b = Builder("twice")
    x = b.input("x", (5,), "int64")
    first = add_computed_size(b, b.op("max", x), 8)
    rows = b.op("broadcast_to", b.constant(2), shape=(first,))
    second = add_computed_size(b, b.op("sum", rows), first * 2)
    graph = b.graph([b.op("broadcast_to", b.constant(1.5), shape=(second, first))])
    built = tw.build(graph)
    for most in (0, 1, 4, 8):
        given = np.array([0, most, 0, 0, 0])
        got = built(given)
        assert got.shape == evaluate(graph, given)[0].shape == (2 * most, most)
        assert (got == 1.5).all()


def test_sizes_that_do_not_fit_are_refused_at_the_call():
    b = Builder("fits")
    x, y = b.input("x", (5,), "int64"), b.input("y", (4,))
    size = add_computed_size(b, b.op("sum", x), 8)
    graph = b.graph([b.op("add", y, b.op("broadcast_to", b.constant(1.0), shape=(size,)))])
    built = tw.build(graph)
    y = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(built(np.array([4, 0, 0, 0, 0]), y), y + 1)
    with pytest.raises(Exception, match="4|count"):
        built(np.array([3, 0, 0, 0, 0]), y)


def test_arrays_to_write_are_refused():
    built = tw.build(positives(4)[0])
    with pytest.raises(ArgumentError, match=r"computes sizes of its outputs \(count\)"):
        built(np.ones(4, np.float32), out=[np.empty(4, np.float32)] * 2)
    assert built.profile(np.ones(4, np.float32), repeat=1).rows


def test_a_library_says_how_many_there_are(tmp_path):
    built = tw.build(positives(6)[0])
    built.export(tmp_path / "net.c", "net")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "net.h"\nint main(void) {\n'
        "  float x[6] = {1, -1, 2, -2, 3, -3}, found[6], twice[6];\n  int64_t n = 0;\n"
        "  if (net(x, found, twice, &n, 0)) return 1;\n"
        '  printf("%d", (int)n);\n  for (int i = 0; i < n; i++) printf(" %g", twice[i]);\n  return 0;\n}\n'
    )
    subprocess.run(["gcc", "-O1", "-o", "main", "main.c", "net.c", "-lm", "-lpthread"], cwd=tmp_path, check=True)
    made = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    assert made == "3 2 4 6"


def test_what_is_not_well_formed_is_refused():
    graph, size = positives(5)
    place = next(n for n, node in enumerate(graph.nodes) if node.op == "computed_size")
    node = graph.nodes[place]
    late = [*graph.nodes[:place], *graph.nodes[place + 1 :], node]
    with pytest.raises(GraphError, match="computed after it"):
        verify(graph.replaced(late))
    with pytest.raises(GraphError, match="not that of an input|computed after"):
        verify(graph.replaced([n for n in graph.nodes if n is not node]))
    b = Builder("wrong")
    with pytest.raises(GraphError, match=r"computed_size: the count is float32"):
        add_computed_size(b, b.input("x", ()), 3)
