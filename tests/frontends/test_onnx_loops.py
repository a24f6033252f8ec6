"""Recurrent layers, If, Scan and Loop of ONNX, against ONNX Runtime."""

import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tilewright.driver import build  # noqa: E402
from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.onnx import from_onnx  # noqa: E402
from tilewright.graph import evaluate, fuse, prepare  # noqa: E402
from tilewright.graph.value_dependent import ValueDependentGraph  # noqa: E402

FLOAT = TensorProto.FLOAT


def info(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def agree(nodes, inputs, outputs, constants):
    """Returns the graph of a model after the passes; the compiled graph computes what ONNX Runtime does."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(
        nodes, "net", [info(*i) for i in inputs.items()], [info(o, None) for o in outputs], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()}
    want = runtime.InferenceSession(model.SerializeToString()).run(None, arrays)
    read = from_onnx(model)
    made = build_graph(read)(*arrays.values())
    for got, expected in zip(made if isinstance(made, tuple) else (made,), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return prepare(read)


def layer(op, steps, batch, width, state, **attrs):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    lengths = attrs.pop("lengths", None)
    d = 2 if attrs.get("direction") == "bidirectional" else 1
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.standard_normal((d, gates * state, width)).astype(np.float32) / 3,
        "r": rng.standard_normal((d, gates * state, state)).astype(np.float32) / 3,
        "b": rng.standard_normal((d, 2 * gates * state)).astype(np.float32) / 3,
    }
    if lengths is not None:
        constants["n"] = np.array(lengths, np.int32)
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, ["x", "w", "r", "b", "n" if lengths else ""], outputs, hidden_size=state, **attrs)
    return agree([node], {"x": [steps, batch, width]}, outputs, constants)


@pytest.mark.parametrize(
    ("op", "sizes", "attrs"),
    [
        ("LSTM", (13, 2, 5, 7), {}),
        ("LSTM", (7, 3, 4, 16), {"direction": "bidirectional", "lengths": (7, 1, 5)}),
        ("GRU", (13, 1, 5, 7), {"direction": "reverse"}),
        ("GRU", (7, 2, 5, 7), {"linear_before_reset": 1, "lengths": (2, 7)}),
        ("RNN", (16, 1, 1, 1), {"activations": ["Relu"]}),
    ],
)
def test_recurrent_layers(op, sizes, attrs):
    graph = layer(op, *sizes, **attrs)
    loops = [n for n in graph.nodes if n.op == "scan"]
    assert [n.attrs["steps"] for n in loops] == [sizes[0]] * len(loops)
    products = [[n.op for n in loop.attrs["body"].nodes].count("dense") for loop in loops]
    assert products == [2 if op == "GRU" else 1] * len(loops)  # the input's product is outside


def test_kernels_do_not_grow_with_the_steps():
    counts = [len(list(fuse(layer("LSTM", steps, 1, 5, 7)).leaves())) for steps in (2, 64)]
    assert counts[0] == counts[1] < 12


def test_scan_along_axes_and_backwards():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "a"], ["t"]), helper.make_node("Mul", ["t", "b"], ["p"]),
         helper.make_node("MatMul", ["t", "k"], ["q"])],
        "body", [info("s", [3]), info("a", [3]), info("b", [3])], [info("t", [3]), info("p", [3]), info("q", [2])],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["s0", "x", "z"], ["s1", "p1", "q1"], body=body, num_scan_inputs=2, scan_input_axes=[1, 0],
        scan_input_directions=[1, 0], scan_output_axes=[1, 0], scan_output_directions=[0, 1],
    )  # fmt: skip
    k = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = agree([node], {"s0": [3], "x": [3, 13], "z": [13, 3]}, ["s1", "p1", "q1"], {"k": k})
    assert [n.op for n in graph.nodes].count("scan") == 1


@pytest.mark.parametrize(("trips", "ends", "loops"), [(13, False, 1), (13, True, 0), (2, False, 1), (1, False, 0)])
def test_loops_with_a_trip_count(trips, ends, loops):
    """A loop that ends by its own condition before its trip count is unrolled."""
    condition = (
        [helper.make_node("Less", ["i", "five"], ["go"])] if ends else [helper.make_node("Identity", ["on"], ["go"])]
    )
    body = helper.make_graph(
        [*condition, helper.make_node("Cast", ["i"], ["f"], to=FLOAT), helper.make_node("Add", ["s", "f"], ["u"]),
         helper.make_node("Mul", ["u", "w"], ["t"]), helper.make_node("Neg", ["t"], ["row"])],
        "body", [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("s", [4])],
        [info("go", [], TensorProto.BOOL), info("t", [4]), info("row", [4])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["n", "yes", "s0"], ["s1", "rows"], body=body)
    constants = {
        "n": np.array(trips),
        "yes": np.array(True),
        "five": np.array(5),
        "w": np.array([0.5, 0.25, 1, -1], np.float32),
    }
    graph = agree([node], {"s0": [4]}, ["s1", "rows"], constants)
    assert [n.op for n in graph.nodes].count("scan") == loops


# what data decide

INT, BOOL = TensorProto.INT64, TensorProto.BOOL
CONSTANTS = {"zero": np.float32(0), "one": np.float32(1), "five": np.array(5), "hundred": np.float32(100), "yes": np.array(True), "ever": np.array(2**63 - 1)}  # fmt: skip
node = helper.make_node


def body_of(nodes, inputs, outputs):
    return helper.make_graph(nodes, "body", [info(*i) for i in inputs], [info(*o) for o in outputs])


def branch_of(nodes, *outputs):
    """Returns a branch; its outputs have unknown shapes."""
    return body_of(nodes, [], [(o, None) if isinstance(o, str) else o for o in outputs])


def same(nodes, inputs, outputs, calls, opset=18):
    """Returns the graph of a model of ``inputs`` (name: shape and type) that gives what ONNX Runtime does, compiled and
    interpreted."""
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "net", [info(n, *i) for n, i in inputs.items()], [info(*o) for o in outputs], weights)  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    session, read = runtime.InferenceSession(model.SerializeToString()), from_onnx(model)
    built = build_graph(read, bounds={d: 16 for i in inputs.values() for d in i[0] if isinstance(d, str)})
    for given in calls:
        want = session.run(None, dict(zip(inputs, given, strict=True)))
        made = built(*given)
        for results in (made if isinstance(made, tuple) else (made,), evaluate(read, *given)):
            for got, expected in zip(results, want, strict=True):
                assert got.shape == expected.shape and got.dtype == expected.dtype
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    return read


POSITIVE = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "zero"], ["c"])]
"""Nodes that say whether the sum of x is positive."""


@pytest.mark.parametrize("size", [5, "n"])
def test_a_branch_that_data_choose(size):
    then = branch_of([node("Mul", ["x", "x"], ["t"]), node("Shape", ["x"], ["k"])], "t", ("k", [1], INT))
    other = branch_of([node("Neg", ["x"], ["e"]), node("Constant", [], ["l"], value_ints=[7])], "e", ("l", [1], INT))
    choice = node("If", ["c"], ["y", "z"], then_branch=then, else_branch=other)
    x = np.arange(5, dtype=np.float32)
    calls = [(x,), (-x,), (x * np.float32(np.nan),)]
    if size == "n":
        calls += [(x[:1],), (x[1:2],), (x[:0],)]
    same([*POSITIVE, choice], {"x": ([size],)}, [("y", [size]), ("z", [1], INT)], calls)


def test_branches_inside_branches_and_a_flag_that_is_given():
    inner = node("If", ["b"], ["t"], then_branch=branch_of([node("Exp", ["x"], ["p"])], "p"), else_branch=branch_of([node("Identity", ["x"], ["q"])], "q"))  # fmt: skip
    choice = node("If", ["c"], ["y"], then_branch=branch_of([inner], "t"), else_branch=branch_of([node("Neg", ["x"], ["e"])], "e"))  # fmt: skip
    x = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
    calls = [(s * x, np.array([f])) for s in (np.float32(1), np.float32(-1)) for f in (True, False)]
    same([*POSITIVE, choice], {"x": ([2, 3],), "b": ([1], BOOL)}, [("y", [2, 3])], calls)


def test_branches_of_other_shapes_are_built_for_the_choice():
    then = branch_of([node("Identity", ["x"], ["t"])], "t")
    other = branch_of([node("ReduceSum", ["x"], ["e"], keepdims=1)], "e")
    graph = helper.make_graph([node("If", ["c"], ["y"], then_branch=then, else_branch=other)], "net", [info("x", [5]), info("c", [], BOOL)], [info("y", None)])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    read = from_onnx(model)
    assert isinstance(read, ValueDependentGraph)
    shown = r"If 'y': result 0 is float32\[5\] in one branch and float32\[1\] in the other.*constants=\{'c': …\} gives them ahead"
    assert re.search(shown, read.refusal())
    x, built = np.arange(5, dtype=np.float32), build(read)
    np.testing.assert_array_equal(built(x, np.array(True)), x)
    np.testing.assert_array_equal(built(x, np.array(False)), [10])
    np.testing.assert_array_equal(build_graph(from_onnx(model, constants={"c": False}))(x), [10])


def counting(*more, inner=(), go="on", rows=(), size="n"):
    """Returns the body of a loop with the variable s, which grows by one and by what ``inner`` makes of it."""
    nodes = [node("Identity", [go], ["go"]), node("Add", ["s", "one"], ["u"]), *inner, *more]
    variables = [("i", [], INT), ("on", [], BOOL), ("s", [size])]
    return body_of(
        nodes, variables, [("go", [], BOOL), ("u" if not inner else "t", [size]), *[(r, [size]) for r in rows]]
    )


@pytest.mark.parametrize("size", [3, "n"])
def test_a_trip_count_and_a_condition_that_are_inputs(size):
    loop = node("Loop", ["m", "f", "x"], ["y"], body=counting())
    x = np.arange(3, dtype=np.float32)
    calls = [(x, np.array(m), np.array(f)) for m in (0, 1, 13) for f in (True, False)]
    if size == "n":
        calls += [(x[:0], np.array(2), np.array(True)), (x[:1], np.array(2), np.array(True))]
    read = same([loop], {"x": ([size],), "m": ([], INT), "f": ([], BOOL)}, [("y", [size])], calls)
    assert [n.op for n in read.nodes].count("scan") == 1


@pytest.mark.parametrize("trips", ["", "ever", "five", "m"])
def test_a_loop_as_long_as_data_say(trips):
    """Such are the loops that PyTorch writes: the largest trip count, and a condition that the body computes."""
    small = [node("ReduceMax", ["t"], ["w"], keepdims=0), node("Less", ["w", "hundred"], ["again"])]
    body = counting(*small, inner=[node("Add", ["u", "u"], ["t"])], go="again")
    body.node.append(body.node[0])
    del body.node[0]
    loop = node("Loop", [trips, "yes", "x"], ["y"], body=body)
    inputs = {"x": ([3],), **({"m": ([1], INT)} if trips == "m" else {})}
    calls = [(np.full(3, a, np.float32), *[np.array([4])] * (trips == "m")) for a in (0, 30, 99, 300)]
    same([loop], inputs, [("y", [3])], calls)


def test_rows_of_as_many_steps_as_a_size():
    body = counting(node("Neg", ["u"], ["row"]), rows=["row"], size=3)
    shape = [node("Shape", ["z"], ["k"]), node("Squeeze", ["k"], ["m"])]
    loop = node("Loop", ["m", "", "x"], ["y", "rows"], body=body)
    x = np.arange(3, dtype=np.float32)
    calls = [(x, np.zeros(m, np.float32)) for m in (0, 1, 2, 13)]
    same([*shape, loop], {"x": ([3],), "z": (["m"],)}, [("y", [3]), ("rows", ["m", 3])], calls)


def test_rows_of_no_steps():
    body = counting(node("Neg", ["u"], ["row"]), rows=["row"], size=3)
    loop = node("Loop", ["none", "yes", "x"], ["y", "rows"], body=body)
    nodes = [node("Constant", [], ["none"], value_int=0), loop]
    same(nodes, {"x": ([3],)}, [("y", [3]), ("rows", [0, 3])], [(np.ones(3, np.float32),)])


def test_rows_whose_number_an_input_says_are_built_for_it_unless_nothing_reads_them():
    body = counting(node("Neg", ["u"], ["row"]), rows=["row"], size=3)

    def read(*outputs):
        loop = node("Loop", ["m", "", "x"], [*outputs], body=body)
        graph = helper.make_graph(
            [loop], "net", [info("x", [3]), info("m", [], INT)], [info(o, None) for o in outputs if o],
            [numpy_helper.from_array(CONSTANTS["one"], "one")],
        )  # fmt: skip
        return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))

    found = read("y", "rows")
    assert isinstance(found, ValueDependentGraph)
    assert re.search(
        "how many rows of row there are is not known.*constants=.'m': …. gives them ahead", found.refusal()
    )
    built = build(found)
    for m in (0, 1, 4):
        y, rows = built(np.ones(3, np.float32), np.array(m))
        np.testing.assert_array_equal(y, np.full(3, 1 + m, np.float32))
        np.testing.assert_array_equal(rows, -np.ones((m, 3), np.float32) - np.arange(1, m + 1)[:, None])
    for outputs in (("y", ""), ("y",)):  # ONNX Runtime takes neither
        got = build_graph(read(*outputs))(np.ones(3, np.float32), np.array(4))
        np.testing.assert_array_equal(got, np.full(3, 5, np.float32))


def test_more_steps_than_are_unrolled():
    """A loop without a trip count ends by its condition, however late."""
    body = body_of(
        [node("Cast", ["i"], ["f"], to=FLOAT), node("Add", ["s", "one"], ["t"]), node("Less", ["i", "many"], ["go"])],
        [("i", [], INT), ("on", [], BOOL), ("s", [1])], [("go", [], BOOL), ("t", [1])],
    )  # fmt: skip
    nodes = [node("Constant", [], ["many"], value_int=2000), node("Loop", ["", "yes", "x"], ["y"], body=body)]
    same(nodes, {"x": ([1],)}, [("y", [1])], [(np.zeros(1, np.float32),)])


@pytest.mark.parametrize("size", [3, "n"])
def test_loops_and_branches_inside_each_other(size):
    """A loop in a branch in a loop; the branch that is not chosen takes no step."""
    inside = node("Loop", ["i", "", "u"], ["p"], body=body_of(
        [node("Mul", ["v", "half"], ["w"]), node("Identity", ["k"], ["l"])],
        [("j", [], INT), ("k", [], BOOL), ("v", [size])], [("l", [], BOOL), ("w", [size])],
    ))  # fmt: skip
    choice = [
        node("ReduceSum", ["u"], ["total"], keepdims=0), node("Greater", ["total", "hundred"], ["large"]),
        node("If", ["large"], ["t"], then_branch=branch_of([inside], "p"), else_branch=branch_of([node("Add", ["u", "u"], ["q"])], "q")),
    ]  # fmt: skip
    nodes = [node("Constant", [], ["half"], value_float=0.5), node("Loop", ["m", "", "x"], ["y"], body=counting(inner=choice))]  # fmt: skip
    x = np.arange(3, dtype=np.float32)
    same(nodes, {"x": ([size],), "m": ([], INT)}, [("y", [size])], [(x, np.array(m)) for m in (0, 3, 12)])


def test_a_branch_that_is_not_chosen_takes_no_steps():
    """Its loop would have no end."""
    forever = node("Loop", ["", "c", "x"], ["t"], body=body_of(
        [node("Identity", ["c"], ["l"]), node("Add", ["v", "one"], ["w"])],
        [("j", [], INT), ("k", [], BOOL), ("v", [3])], [("l", [], BOOL), ("w", [3])],
    ))  # fmt: skip
    choice = node("If", ["d"], ["y"], then_branch=branch_of([forever], "t"), else_branch=branch_of([node("Neg", ["x"], ["e"])], "e"))  # fmt: skip
    x = np.ones(3, np.float32)
    yes, no = np.array(True), np.array(False)
    same([choice], {"x": ([3],), "c": ([], BOOL), "d": ([], BOOL)}, [("y", [3])], [(x, yes, no), (x, no, yes)])


@pytest.mark.parametrize("steps", [4, "n"])
def test_a_choice_in_each_step_of_a_scan(steps):
    body = body_of(
        [node("Greater", ["a", "zero"], ["c"]),
         node("If", ["c"], ["t"], then_branch=branch_of([node("Add", ["s", "a"], ["p"])], "p"), else_branch=branch_of([node("Neg", ["s"], ["q"])], "q")),
         node("Identity", ["t"], ["row"])],
        [("s", []), ("a", [])], [("t", []), ("row", [])],
    )  # fmt: skip
    scan = node("Scan", ["s0", "x"], ["s1", "rows"], body=body, num_scan_inputs=1)
    x = np.float32([1, -2, 3, 4])
    calls = [(np.float32(2), x), (np.float32(-2), -x)]
    same(
        [scan], {"s0": ([],), "x": ([steps],)}, [("s1", []), ("rows", [steps])], [(np.asarray(a), b) for a, b in calls]
    )


def ending(go="again", size=3):
    """Returns the body of a loop that doubles the variable s until its greatest element is 100 or more, and stacks what it had."""
    return body_of(
        [node("Add", ["s", "s"], ["t"]), node("Neg", ["s"], ["row"]), node("ReduceMax", ["t"], ["w"], keepdims=0),
         node("Less", ["w", "hundred"], ["again"])],
        [("i", [], INT), ("on", [], BOOL), ("s", [size])], [("again", [], BOOL), ("t", [size]), ("row", [size])],
    )  # fmt: skip


@pytest.mark.parametrize("size", [3, "n"])
@pytest.mark.parametrize("trips", ["", "ever", "five"])
def test_rows_as_many_as_data_say(trips, size):
    loop = node("Loop", [trips, "c", "x"], ["y", "rows"], body=ending(size=size))
    behind = node("ReduceSum", ["rows", "axis"], ["total"], keepdims=0)
    axis = node("Constant", [], ["axis"], value_ints=[0])
    calls = [(np.full(3, a, np.float32),) for a in (1, 3, 99, 300)]
    calls.append((np.full(3, -1, np.float32) if size == 3 else np.full(7, 2, np.float32),))  # -1: no rows
    outputs = [("y", [size]), ("rows", ["k", size]), ("total", [size])]
    read = same([*POSITIVE, axis, loop, behind], {"x": ([size],)}, outputs, calls)
    assert [n.op for n in read.nodes].count("scan") == 2


def test_rows_that_no_bound_limits_are_at_most_as_many_as_there_is_room():
    """A loop without a trip count has room for 1024 rows; a call that makes more is refused."""
    body = body_of(
        [node("Add", ["s", "one"], ["t"]), node("Less", ["t", "x"], ["go"]), node("Identity", ["t"], ["row"])],
        [("i", [], INT), ("on", [], BOOL), ("s", [])], [("go", [], BOOL), ("t", []), ("row", [])],
    )  # fmt: skip
    loop = node("Loop", ["", "yes", "zero"], ["y", "rows"], body=body)
    weights = [numpy_helper.from_array(np.asarray(CONSTANTS[n]), n) for n in ("yes", "zero", "one")]
    graph = helper.make_graph([loop], "net", [info("x", [])], [info("rows", None)], weights)
    built = build(from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)))
    for n in (1, 1024):
        np.testing.assert_array_equal(built(np.float32(n)), np.arange(1, n + 1, dtype=np.float32))
    with pytest.raises(RuntimeError, match="0..1024"):
        built(np.float32(1025))


def test_rows_of_a_loop_inside_a_loop_are_built_for_their_numbers():
    """How many rows there are is found inside each iteration, so the iterations are written out."""
    outer = body_of(
        [node("Loop", ["five", "k", "v"], ["w", "rows"], body=ending()), node("ReduceSum", ["rows", "axis"], ["u"], keepdims=0),
         node("Identity", ["k"], ["l"])],
        [("j", [], INT), ("k", [], BOOL), ("v", [3])], [("l", [], BOOL), ("u", [3])],
    )  # fmt: skip
    axis = node("Constant", [], ["axis"], value_ints=[0])
    loop = node("Loop", ["m", "", "x"], ["y"], body=outer)
    weights = [numpy_helper.from_array(np.asarray(CONSTANTS[n]), n) for n in ("five", "hundred")]
    graph = helper.make_graph([axis, loop], "net", [info("x", [3]), info("m", [], INT)], [info("y", None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    session, built = runtime.InferenceSession(model.SerializeToString()), build(from_onnx(model))
    for trips, first in ((2, 1), (2, 40), (1, 99), (0, 7), (3, 300)):
        x, m = np.full(3, first, np.float32), np.array(trips, np.int64)
        np.testing.assert_allclose(built(x, m), session.run(None, {"x": x, "m": m})[0], rtol=1e-6)
    assert set(built.deciding) == {"x", "m"}


@pytest.mark.parametrize("shared", [True, False])
def test_trip_counts_of_inner_loops_that_data_say(shared):
    """Each iteration of the outer loop has a trip count of its own, out of an input, with or without a condition of data."""
    condition = "d2 = Greater(m, limit)" if shared else "d2 = Identity(d)"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[3,4] x, int64[3] counts) => (float[3] y) <int64 three={{3}}, bool t={{1}}, float limit={{1}}> {{
      y = Loop (three, t) <body = outer (int64 i, bool c) => (bool c2, float row) {{
         c2 = Identity(c)
         n = Gather(counts, i)
         v0 = Gather(x, i)
         s, r = Loop (n, c, v0) <body = inner (int64 j, bool d, float[4] v) => (bool d2, float[4] w, float[4] q) {{
            half = Constant<value_float=0.5>()
            w = Mul(v, half)
            m = ReduceMax<keepdims=0>(w)
            {condition}
            q = Identity(w)
         }}>
         row = ReduceSum<keepdims=0>(r)
      }}>
    }}"""
    model = onnx.parser.parse_model(text)
    session, built = runtime.InferenceSession(model.SerializeToString()), build(from_onnx(model))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for counts in ([1, 2, 3], [0, 5, 2], [1, 2, 3]):
        n = np.array(counts, np.int64)
        np.testing.assert_allclose(built(x, n), session.run(None, {"x": x, "counts": n})[0], rtol=1e-6)
    assert built.deciding == ("counts",) and built.specializations == 2


@pytest.mark.parametrize("batches", [3, "b"])
@pytest.mark.parametrize("lengths", [None, (4, 1, 3), (2, 0, 4)])
@pytest.mark.parametrize("backwards", [(0, 0), (1, 0)])
def test_scan_of_batches(batches, lengths, backwards):
    """Scan of version 8 has batches in front, and may have lengths. The oracle is its own definition in steps of NumPy."""
    body = body_of(
        [node("Mul", ["s", "half"], ["d"]), node("Add", ["d", "a"], ["t"]), node("Mul", ["t", "b"], ["row"])],
        [("s", [2]), ("a", [2]), ("b", [2])], [("t", [2]), ("row", [2])],
    )  # fmt: skip
    body.initializer.append(numpy_helper.from_array(np.float32(0.5), "half"))
    scan = node("Scan", ["n" if lengths else "", "s0", "x", "z"], ["s1", "rows"], body=body, num_scan_inputs=2, directions=backwards)  # fmt: skip
    inputs = {**({"n": ([batches], INT)} if lengths else {}), "s0": ([batches, 2],), "x": ([batches, 4, 2],), "z": ([batches, 4, 2],)}  # fmt: skip
    graph = helper.make_graph([scan], "net", [info(k, *v) for k, v in inputs.items()], [info("s1", None), info("rows", None)])  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3)
    built = build_graph(from_onnx(model), bounds={"b": 8} if batches == "b" else {})
    rng = np.random.default_rng(0)
    for count in (3, 1) if batches == "b" and not lengths else (3,):
        s, x, z = (rng.standard_normal((count, *d)).astype(np.float32) for d in ((2,), (4, 2), (4, 2)))
        ends, rows = built(*([np.array(lengths)] if lengths else []), s, x, z)
        for b in range(count):
            state, n = s[b], 4 if lengths is None else lengths[b]
            parts = [v[b, :n][::-1] if back else v[b, :n] for v, back in zip((x, z), backwards, strict=True)]
            for t in range(n):
                state = state * np.float32(0.5) + parts[0][t]
                np.testing.assert_allclose(rows[b, t], state * parts[1][t], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(ends[b], state, rtol=1e-6, atol=1e-6)
