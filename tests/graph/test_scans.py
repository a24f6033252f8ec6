"""Loops over steps: text, reference, passes, memory and compiled code against NumPy."""

import numpy as np
import pytest

from tilewright import te
from tilewright.driver.models.model_building import build_graph
from tilewright.graph import (
    Builder,
    GraphError,
    add_scan,
    add_while,
    evaluate,
    fuse,
    named_constants,
    order_kernels,
    parse,
    plan_memory,
    prepare,
)
from tilewright.graph.entry import entry_function, place
from tilewright.graph.passes.drop_states import drop_states
from tilewright.graph.passes.hoist_from_loops import hoist_from_loops

SIZES = {"x": (3, 5), "h": (3, 4), "c": (3, 4), "s": (4,)}


def recurrent(steps, reverse=False, outputs="hcr"):
    """A cell with two states, of which the first is a row as well, and a second row that no state goes into."""
    rng = np.random.default_rng(0)
    w, r = [rng.integers(-2, 3, s).astype(np.float32) / 4 for s in ((4, 5), (4, 4))]
    b = Builder("net")
    x, h, c, s = b.input("x", (steps, 3, 5)), *[b.input(n, SIZES[n]) for n in "hcs"]
    wc, rc = b.constant(w, "w"), b.constant(r, "r")

    def step(states, parts):
        scale = b.op("multiply", s, s)
        line = b.op("add", b.op("dense", b.op("negative", parts[0]), wc), scale)
        new = b.op("add", b.op("add", b.op("dense", states[0], rc), line), states[1])
        out = b.op("tanh", new)
        return [out, b.op("multiply", new, b.constant(0.5))], [out, line]

    ends, rows = add_scan(b, [h, c], [x], step, reverse=reverse)
    graph = b.graph([{"h": ends[0], "c": ends[1], "r": rows[0], "l": rows[1]}[o] for o in outputs])

    def expected(x, h, c, s):
        every, lines = np.zeros((steps, 3, 4), np.float32), np.zeros((steps, 3, 4), np.float32)
        for t in range(steps)[:: -1 if reverse else 1]:
            lines[t] = -x[t] @ w.T + s * s
            new = h @ r.T + lines[t] + c
            h, c = np.tanh(new), new / 2
            every[t] = h
        return [{"h": h, "c": c, "r": every, "l": lines}[o] for o in outputs]

    arrays = [rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    return graph, arrays, expected(*arrays)


@pytest.mark.parametrize(
    ("steps", "reverse", "outputs"),
    [(1, False, "hcr"), (2, True, "hcrl"), (7, False, "c"), (13, True, "h"), (16, False, "lrhc")],
)
def test_loops_compute_what_numpy_does(steps, reverse, outputs):
    graph, arrays, want = recurrent(steps, reverse, outputs)
    prepared = prepare(graph)
    made = build_graph(graph)(*arrays)
    results = {
        "reference": evaluate(graph, *arrays),
        "prepared": evaluate(prepared, *arrays),
        "compiled": made if isinstance(made, tuple) else (made,),
    }
    for name, got in results.items():
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=name)


def test_text_round_trip():
    graph, arrays, want = recurrent(7, True)
    text = str(graph)
    again = parse(text, named_constants(graph))
    assert str(again) == text
    assert "    def step(h_1: float32[3, 4], c_1: float32[3, 4], x_1: float32[3, 5], s: float32[4]):" in text
    assert "body=step, states=2, arrays=1, steps=7, history=(0,), reverse=True)" in text
    for a, b in zip(evaluate(again, *arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_products_of_parts_become_one_product_outside():
    graph, arrays, want = recurrent(7)
    after = hoist_from_loops(graph)
    assert [n.op for n in after.nodes] == [
        "multiply", "negative", "reshape", "dense", "reshape", "add", "scan", "take",
    ]  # fmt: skip
    (body,) = [n.attrs["body"] for n in after.nodes if n.op == "scan"]
    assert [n.op for n in body.nodes] == ["dense", "add", "add", "tanh", "multiply"]
    for a, b in zip(evaluate(after, *arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_kernels_and_memory_do_not_grow_with_the_steps():
    plans = {}
    for steps in (7, 64):
        division = order_kernels(fuse(prepare(recurrent(steps, outputs="c")[0])))
        plans[steps] = division, plan_memory(division)
    assert [leaf.kernel.name for leaf in plans[7][0].leaves()] == [leaf.kernel.name for leaf in plans[64][0].leaves()]
    assert {leaf.calls for leaf in plans[64][0].leaves()} == {1, 64}
    loops = [[p.sizes[loop] for loop in p.loops] for _, p in plans.values()]
    assert loops[0] == loops[1]


def test_a_loop_in_a_loop():
    b = Builder("net")
    x, h = b.input("x", (3, 5, 7)), b.input("h", (7,))

    def outer(states, parts):
        def inner(sums, rows):
            return [b.op("add", b.op("multiply", sums[0], b.constant(0.5)), rows[0])], []

        ends, _ = add_scan(b, [states[0]], [parts[0]], inner)
        return ends, [b.op("negative", ends[0])]

    ends, rows = add_scan(b, [h], [x], outer, reverse=True)
    graph = b.graph([*ends, *rows])
    arrays = [np.random.default_rng(1).standard_normal(v.shape).astype(np.float32) for v in graph.inputs]
    state, want = arrays[1], np.zeros((3, 7), np.float32)
    for i in (2, 1, 0):
        for j in range(5):
            state = state / 2 + arrays[0][i, j]
        want[i] = -state
    for got in (evaluate(prepare(graph), *arrays), build_graph(graph)(*arrays)):
        np.testing.assert_allclose(got[0], state, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got[1], want, rtol=1e-5, atol=1e-6)


def halved(b, x, limit, count):
    """A loop that halves ``x`` until no element is larger than ``limit``, counts the steps, and lets two states change places."""

    def goes_on(states):
        return b.op("greater", b.op("max", states[0], axis=(0,)), limit)

    def step(states):
        h, n, first, second = states
        one = b.constant(1, dtype="int32")
        return [b.op("multiply", h, b.constant(0.5)), b.op("add", n, one), second, first]

    zero, one = b.constant(0, dtype="int32"), b.constant(1, dtype="int32")
    return add_while(b, [x, count, zero, one], goes_on, step)


def halved_by_numpy(x, limit, n=0):
    first = n
    while x.max() > limit:
        x, n = x / 2, n + 1
    return x, n, (n - first) % 2


@pytest.mark.parametrize("most", [0.5, 3.0, 100.0])
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_loop_that_goes_on_as_long_as_a_condition_holds(most, symbolic):
    b = Builder("net")
    size = te.var("n") if symbolic else 5
    ends = halved(b, b.input("x", (size,)), b.input("limit", ()), b.constant(0, dtype="int32"))
    graph = b.graph([b.op("negative", ends[0]), *ends[1:3]])
    x = np.linspace(0.25, most, 5, dtype=np.float32)
    want = halved_by_numpy(x, 1.0)
    assert str(parse(str(graph))) == str(graph)
    run = build_graph(graph, bounds={"n": 7} if symbolic else {})
    for got in (evaluate(prepare(graph), x, np.float32(1)), run(x, np.float32(1))):
        np.testing.assert_array_equal(got[0], -want[0])
        assert [int(g) for g in got[1:]] == list(want[1:])


def test_a_loop_without_a_number_of_steps_in_a_loop():
    b = Builder("net")
    x, limit = b.input("x", (7, 3)), b.input("limit", ())

    def outer(states, parts):
        h, n, *_ = halved(b, b.op("add", states[0], parts[0]), limit, states[1])
        return [h, n], [n]

    ends, (counts,) = add_scan(b, [b.constant(np.zeros(3, np.float32)), b.constant(0, dtype="int32")], [x], outer)
    graph = b.graph([ends[0], counts])
    data = np.random.default_rng(2).integers(1, 40, (7, 3)).astype(np.float32)
    state, n, want = np.zeros(3, np.float32), 0, []
    for row in data:
        state, n, _ = halved_by_numpy(state + row, 2.0, n)
        want.append(n)
    for got in (evaluate(prepare(graph), data, np.float32(2)), build_graph(graph)(data, np.float32(2))):
        np.testing.assert_array_equal(got[0], state)
        np.testing.assert_array_equal(got[1], want)


def carrying(reads, counted):
    """A loop with the states n, h, a weight that it passes on, a state that only itself needs, and one that h needs."""
    b = Builder("net")
    x, w = b.input("x", (3, 4)), b.input("w", (4, 4))
    count = b.input("count", () if counted is None else (counted,), "int32")  # its value, or its size
    one, zero = b.constant(1, dtype="int32"), b.constant(0, dtype="int32")

    def step(states):
        n, h, weight, alone, scale = states
        next_h = b.op("multiply", b.op("tanh", b.op("dense", h, weight)), scale)
        bigger = b.op("add", scale, b.constant(0.5))
        return [b.op("add", n, one), next_h, b.op("identity", weight), b.op("dense", alone, weight), bigger]

    states = [zero, x, w, x, b.constant(1.0)]
    if counted is not None:
        ends, rows = add_scan(b, states, [], lambda s, _: (new := step(s), [new[2], new[1]]), steps=counted)
        ends = [*ends, *rows]
    else:
        ends = add_while(b, states, lambda states: b.op("less", states[0], count), step)
    return b.graph([ends[k] for k in reads])


def carried_by_numpy(x, w, count):
    n, h, alone, scale, weights, rows = 0, x, x, np.float32(1), [], []
    while n < count:
        n, h, alone, scale = n + 1, np.tanh(h @ w.T) * scale, alone @ w.T, scale + np.float32(0.5)
        weights.append(w)
        rows.append(h)
    return [n, h, w, alone, scale, np.array(weights), np.array(rows)]


@pytest.mark.parametrize(
    ("reads", "counted", "states"),
    [((0,), None, 2), ((1,), None, 4), ((2, 4), None, 3), ((3, 2), None, 3), ((0, 1, 2, 3, 4), None, 5)]
    + [((1,), 4, 2), ((2, 5, 6), 4, 2), ((0,), 4, 1), ((3, 6), 4, 3), ((5,), 4, 0), ((1, 2), "n", 2)],
)
def test_loops_do_not_carry_what_never_changes_or_nothing_needs(reads, counted, states):
    symbolic = counted == "n"
    graph = carrying(reads, te.var("n") if symbolic else counted)
    after = drop_states(graph)
    loops = [n for n in after.nodes if n.op == "scan"]
    assert sum(n.attrs["states"] for n in loops) == states
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((4, 4)).astype(np.float32) / 2
    for count in [counted] if isinstance(counted, int) else [0, 1, 5]:
        given = [x, w, np.int32(count) if counted is None else np.zeros(count, np.int32)]
        want = carried_by_numpy(x, w, count)
        made = [evaluate(graph, *given), evaluate(after, *given), build_graph(graph)(*given)]
        for got in made:
            for g, k in zip(got if isinstance(got, (tuple, list)) else (got,), reads, strict=True):
                np.testing.assert_allclose(g, want[k], rtol=1e-4, atol=1e-5)


def test_a_state_that_an_inner_loop_passes_on_is_an_input_of_both():
    b = Builder("net")
    x, w = b.input("x", (3, 4)), b.input("w", (4, 4))

    def outer(states, _):
        def inner(inside, _):
            return [b.op("dense", inside[0], inside[1]), inside[1]], []

        return add_scan(b, states, [], inner, steps=2)[0], []

    graph = b.graph(add_scan(b, [x, w], [], outer, steps=3)[0])
    after = drop_states(graph)
    (loop,) = after.nodes
    assert loop.attrs["states"] == 1 and [n.attrs["states"] for n in loop.body.nodes if n.op == "scan"] == [1]
    assert after.outputs[1] is after.inputs[1]
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((4, 4)).astype(np.float32) / 2
    want = x @ np.linalg.matrix_power(w.T, 6)
    for got in (evaluate(after, x, w), build_graph(graph)(x, w)):
        np.testing.assert_allclose(got[0], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(got[1], w)


BODY = """
def net(h: float32[4], x: float32[7, 4]):
    def step(a: float32[4], b: float32[4]):
        c = add(a, b)
        return c
    y = scan({args}, body=step, {attrs})
    return y
"""


@pytest.mark.parametrize(
    ("args", "attrs", "problem"),
    [
        ("h", "states=1, arrays=1, steps=7", "1 inputs for 2 of the body"),
        ("h, x", "states=1, arrays=1, steps=6", r"input 1 does not fit b, float32\[4\], of the body for 6 steps"),
        ("h, h", "states=1, arrays=1, steps=7", "input 1 does not fit b"),
        ("h, x", "states=1, arrays=1, steps=-1", "scan: -1 steps"),
        ("h, x", "states=1, arrays=1, steps=7, history=(1,)", "names no states"),
        ("h, h", "states=1, arrays=0, steps=None", "the first says whether it goes on"),
    ],
)
def test_loops_that_do_not_fit_are_refused(args, attrs, problem):
    with pytest.raises(GraphError, match=problem):
        parse(BODY.format(args=args, attrs=attrs))


@pytest.mark.parametrize("results", ["twice", "exchanged", "constant"])
def test_results_of_a_body_that_share_memory_have_no_addresses(results):
    """prepare puts copies before such results; a program made without it would write one place twice."""
    b = Builder("net")
    h, c = b.input("h", (3,)), b.input("c", (3,))

    def step(states, parts):
        out = b.op("negative", states[0])
        if results == "exchanged":
            return [states[1], states[0]], []
        return [out, out if results == "twice" else b.constant(np.ones(3, np.float32))], []

    ends, _ = add_scan(b, [h, c], [], step, steps=2)
    graph = b.graph(ends)
    division = order_kernels(fuse(graph))
    with pytest.raises(GraphError, match="scan: the results of its body share memory; prepare the graph first"):
        entry_function(division, plan_memory(division), [], place({}))
    arrays = [np.arange(3, dtype=np.float32), np.full(3, 7, np.float32)]
    want = {"twice": arrays[:1] * 2, "exchanged": arrays, "constant": [arrays[0], np.ones(3)]}[results]
    for a, w in zip(build_graph(graph)(*arrays), want, strict=True):
        np.testing.assert_array_equal(a, w)


def test_states_keep_their_type():
    b = Builder("net")
    h, x = b.input("h", (4,)), b.input("x", (3, 4))
    with pytest.raises(GraphError, match="the state h_1: .* becomes stack"):
        add_scan(b, [h], [x], lambda s, p: ([b.op("stack", s[0], p[0])], []))
    assert not b.nodes
