"""What ONNX files have in them as people publish them: the smallest model of each kind, against ONNX Runtime."""

import re

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx.parser")

from onnx import numpy_helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.codegen.runtime.arguments import ArgumentError, SizeError  # noqa: E402
from tilewright.driver.building import BuildError  # noqa: E402
from tilewright.frontends.onnx import OnnxError  # noqa: E402
from tilewright.graph import fuse, prepare  # noqa: E402
from tilewright.graph.value_dependent import ValueDependentGraph  # noqa: E402
from tilewright.tir.expr import convert, vars_in  # noqa: E402

HEADER = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "ai.onnx.ml" : 3]>'


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(text, **constants):
    model = onnx.parser.parse_model(HEADER + text)
    model.graph.initializer.extend([numpy_helper.from_array(a, n) for n, a in constants.items()])
    return model


def same_as_onnxruntime(model, *cases, bounds=None, tolerance=1e-5, **options):
    """Returns the built model after its results for each case were compared."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1  # with more, it rounds the states of an LSTM by other ranges
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings)
    f = tw.build(tw.from_onnx(model, **options), "native -num-cores=1", bounds=bounds or {})
    for arrays in cases:
        want = session.run(None, dict(zip([i.name for i in session.get_inputs()], arrays, strict=True)))
        got = f(*arrays)
        for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            assert np.shape(g) == w.shape and g.dtype == w.dtype
            np.testing.assert_allclose(g, w, tolerance, tolerance)
    return f


def test_a_squeeze_of_a_size_that_the_call_has_to_have():
    model = model_of("g (float[n,a,3] x) => (float[k,l] y) <int64[1] i={1}> { y = Squeeze(x, i) }")
    f = same_as_onnxruntime(model, [normal(4, 1, 3)], [normal(2, 1, 3)], bounds={"n": 4, "a": 2})
    with pytest.raises(SizeError, match=r"squeeze: axis 1 of x, \(n, a, 3\), has to have the extent 1 \(a = 2"):
        f(normal(2, 2, 3))


def test_a_convolution_of_arrays_that_may_have_been_broadcast_reads_their_sizes():
    text = """g (float[1,4,a,c] x, float[1,4,d,e] z) => (float[1,5,k,l] y, float[1,4,m,n] s) {
        s = Add(x, z) y = Conv<pads=[1,1,1,1]>(s, w) }"""
    model = model_of(text, w=normal(5, 4, 3, 3))
    shapes = [((9, 12), (9, 12)), ((1, 12), (9, 12)), ((9, 12), (1, 1)), ((9, 1), (1, 7)), ((1, 1), (1, 1))]
    cases = [[normal(1, 4, *s), normal(1, 4, *t, seed=1)] for s, t in shapes]
    same_as_onnxruntime(model, *cases, bounds=dict.fromkeys("acde", 12))
    (kernel,) = [k for k in fuse(prepare(tw.from_onnx(model))).kernels if k.nodes[0].op == "conv2d"]
    assert {v for d in kernel.func.buffers[0].shape for v in vars_in(convert(d))} == set(kernel.sizes)
    with pytest.raises(SizeError):
        same_as_onnxruntime(model, [normal(1, 4, 9, 12), normal(1, 4, 9, 12)], bounds=dict.fromkeys("acde", 12))(
            normal(1, 4, 9, 12), normal(1, 4, 8, 12)
        )


SQUEEZED = """g (float[n,a,3] x) => (float[k] y) <float two={2}> {
    m = Mul(x, two) q = Squeeze(m) y = Neg(q) }"""


def test_a_squeeze_without_axes_is_built_for_the_sizes_that_are_one():
    read = tw.from_onnx(model_of(SQUEEZED))
    assert isinstance(read, ValueDependentGraph)
    with pytest.raises(AttributeError, match=r"whether n is 1 has to be known; shapes=\{'x': …\} gives them ahead"):
        read.nodes  # noqa: B018
    sizes = [(1, 1), (1, 4), (5, 1), (3, 2), (4, 3), (1, 2)]
    f = same_as_onnxruntime(model_of(SQUEEZED), *[[normal(n, a, 3)] for n, a in sizes], bounds={"n": 5, "a": 4})
    assert f.specializations == 4 and f.deciding == ("x",)
    with pytest.raises(BuildError, match=r"depends on the sizes of x; read it with shapes=\{'x': …\}"):
        f.export("x.so")
    fixed = same_as_onnxruntime(model_of(SQUEEZED), [normal(1, 4, 3)], shapes={"x": (1, 4, 3)})
    assert not hasattr(fixed, "specializations")
    with pytest.raises(ArgumentError, match="x has 1 dimensions"):
        f(normal(3))


def test_a_squeeze_of_a_size_that_a_formula_tells():
    text = """g (float[n,4] x, float[m,4] z) => (float[k] y) <int64[2] s={-1,2}, int64[1] a={1}> {
        c = Concat<axis=0>(x, z) r = ReduceMax<axes=[1]>(c) t = Transpose(r) w = Slice(t, a, i, a) y = Squeeze(w) }"""
    model = model_of(text, i=np.array([1 << 40]))
    f = same_as_onnxruntime(
        model, *[[normal(n, 4), normal(m, 4)] for n, m in ((1, 1), (2, 1), (3, 2), (1, 1))], bounds={"n": 5, "m": 5}
    )
    assert f.specializations == 2


def test_a_squeeze_in_a_loop_asks_for_the_size_once():
    text = """g (float[b,3] x) => (float[k] y) <int64 trips={4}, bool yes={1}> {
        y, rows = Loop(trips, yes, x) <body = t (int64 i, bool c, float[b,3] s) => (bool d, float[b,3] u, float[j] r)
            { d = Identity(c) u = Add(s, s) q = Squeeze(s) r = ReduceSum<keepdims=0>(q) }> }"""
    f = same_as_onnxruntime(model_of(text), *[[normal(b, 3)] for b in (1, 2, 3, 1)], bounds={"b": 3})
    assert f.specializations == 2


RECURRENT = """g (float[s,b,4] xs, float[b,4] h0) => (float[k,l,4] rows, float[j,4] last)
    <int64 zero={0}, int64 one={1}, int64 ever={4611686018427387904}> {
    sh = Shape(xs) length = Gather(sh, zero) go0 = Less(zero, length)
    t9, last, w9, length9, rows = Loop(ever, go0, zero, h0, w, length) <body = b
        (int64 i, bool go, int64 t, float[b,4] h, float[4,4] wi, int64 n) => (bool g2, int64 t2, float[b,4] h2, float[4,4] w2, int64 n2, float[b,4] row) {
        xt = Gather(xs, t) p = MatMul(h, wi) q = Add(p, xt) h2 = Tanh(q) row = Identity(h2) w2 = Identity(wi) n2 = Identity(n)
        t2 = Add(t, one) g2 = Less(t2, n) }> }"""
"""A recurrent layer as TensorFlow's are exported: the loop counts up to a size, and carries its weights and the length."""


def test_a_loop_does_not_carry_weights_and_is_counted_by_what_its_condition_needs():
    model = model_of(RECURRENT, w=normal(4, 4))
    cases = [[normal(s, b, 4), normal(b, 4, seed=1)] for s, b in ((5, 2), (1, 1), (13, 3))]
    same_as_onnxruntime(model, *cases, bounds={"s": 16, "b": 3})
    loops = [n for n in prepare(tw.from_onnx(model)).nodes if n.op == "scan"]
    states = [[v.type_text for v in n.body.inputs[: n.attrs["states"]]] for n in loops]
    assert states[0] and all(text.endswith("[]") for text in states[0])  # numbers alone decide how often it runs
    assert [text for text in states[1] if "4, 4" in text] == []


def test_a_loop_whose_condition_is_known_stays_a_loop():
    model = model_of(RECURRENT, w=normal(4, 4))
    shapes = {"xs": (7, 2, 4), "h0": (2, 4)}
    same_as_onnxruntime(model, [normal(7, 2, 4), normal(2, 4, seed=1)], shapes=shapes)
    assert [n.attrs["steps"] for n in tw.from_onnx(model, shapes=shapes).nodes if n.op == "scan"] == [7]
    one = {"xs": (1, 2, 4), "h0": (2, 4)}  # one iteration is written out
    same_as_onnxruntime(model, [normal(1, 2, 4), normal(2, 4, seed=1)], shapes=one)
    assert "scan" not in [n.op for n in tw.from_onnx(model, shapes=one).nodes]


def test_what_a_loop_with_a_known_condition_counts_is_known():
    text = """g (float[7,3] x) => (float[k] y) <int64 zero={0}, int64 two={2}, int64 ever={4611686018427387904}, bool yes={1}, int64[1] z={0}, int64 five={5}> {
        n, s = Loop(ever, yes, zero, x) <body = b (int64 i, bool go, int64 t, float[7,3] a) => (bool g2, int64 t2, float[7,3] c) {
            c = Add(a, a) t2 = Add(t, two) g2 = Less(t2, five) }>
        e = Unsqueeze(n, z) y = Slice(s, z, e) }"""
    same_as_onnxruntime(model_of(text), [normal(7, 3)])


def test_a_branch_that_squeezes_a_size_of_one():
    text = """g (float[n,a,3] x) => (float[k,l] y) <int64 one={1}, int64 first={1}, int64[1] i={1}> {
        s = Shape(x) d = Gather(s, first) c = Equal(d, one)
        q = If (c) <then_branch = t () => (float[n,3] p) { p = Squeeze(x, i) }, else_branch = e () => (float[n,a,3] p2) { p2 = Identity(x) }>
        y = Neg(q) }"""
    f = same_as_onnxruntime(model_of(text), [normal(4, 1, 3)], bounds={"n": 4, "a": 2})
    with pytest.raises(SizeError, match="has to have the extent 1"):
        f(normal(2, 2, 3))


@pytest.mark.parametrize("op, gates", [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_first_state_of_one_row_says_that_the_batch_is_one(op, gates):
    text = f"g (float[5,b,2] x, float[1,1,3] h) => (float[5,1,k,3] y) {{ y, z = {op}<hidden_size=3>(x, w, r, , , h) }}"
    model = model_of(text, w=normal(1, 3 * gates, 2), r=normal(1, 3 * gates, 3, seed=1))
    f = same_as_onnxruntime(model, [normal(5, 1, 2), normal(1, 1, 3)], bounds={"b": 3})
    with pytest.raises(SizeError, match=r"as many elements as \(b, 3\)"):
        f(normal(5, 2, 2), normal(1, 1, 3))


def test_a_range_of_floats_up_to_a_size():
    text = """g (float[n,3] x) => (float[k] y) <int64 first={0}, float half={0.5}, float zero={0}, float one={1}> {
        s = Shape(x) d = Gather(s, first) c = Cast<to=1>(d) r = Range(zero, c, one) y = Add(r, half) }"""
    same_as_onnxruntime(model_of(text), [normal(4, 3)], [normal(1, 3)], bounds={"n": 8})


def test_a_range_of_parts_up_to_a_size_is_refused():
    text = """g (float[n,3] x) => (float[k] y) <int64 first={0}, float half={0.5}, float zero={0}> {
        s = Shape(x) d = Gather(s, first) c = Cast<to=1>(d) y = Range(zero, c, half) }"""
    with pytest.raises(OnnxError, match="Range"):
        tw.from_onnx(model_of(text))


@pytest.mark.parametrize("name", ["?", "-1"])
def test_sizes_without_a_name_are_each_their_own(name):
    model = model_of("g (float[n,m] x) => (float[k,l] y) { y = Neg(x) }")
    for d in model.graph.input[0].type.tensor_type.shape.dim:
        d.dim_param = name
    same_as_onnxruntime(model, [normal(2, 5)], [normal(4, 3)], bounds={"x_0": 4, "x_1": 5})


def test_a_negative_size_of_an_input_is_any_size():
    model = model_of("g (float[n,3] x) => (float[k,l] y) { y = Neg(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    same_as_onnxruntime(model, [normal(2, 3)], bounds={"x_0": 4})


TABLE_OF_POSITIONS = """g (float[b,n,4] x) => (float[b,n,4] y) <int64[1] z={0}, int64[1] o={1}, int64[1] w={2}> {
    s = Shape(x) e = Slice(s, o, w, z) p = Slice(t, z, e, o) q = Add(x, p) y = MatMul(q, m) }"""


def test_a_table_that_is_cut_at_a_size_leaves_the_size_as_it_is():
    model = model_of(TABLE_OF_POSITIONS, t=normal(1, 6, 4), m=normal(4, 4))
    assert [str(d) for d in tw.from_onnx(model).outputs[0].shape] == ["b", "n", "4"]
    f = same_as_onnxruntime(model, [normal(2, 6, 4)], [normal(1, 1, 4)], [normal(2, 3, 4)], bounds={"b": 2, "n": 8})
    with pytest.raises(SizeError, match="n = 7"):
        f(normal(1, 7, 4))


def test_a_slice_of_a_slice_of_a_table_that_is_cut_at_a_size():
    text = """g (float[n,4] x) => (float[n,2] y) <int64[1] z={0}, int64[1] o={1}, int64[1] w={2}, int64[1] h={3}> {
        s = Shape(x) e = Slice(s, z, o, z) p = Slice(t, z, e, z) c = Slice(p, o, h, o) d = Slice(x, o, h, o) y = Add(c, d) }"""
    same_as_onnxruntime(model_of(text, t=normal(6, 4)), [normal(6, 4)], [normal(2, 4)], bounds={"n": 6})


@pytest.mark.parametrize("direction, count", [("forward", 1), ("reverse", 1), ("bidirectional", 2)])
@pytest.mark.parametrize("dtype, columns", [(np.int8, ()), (np.uint8, ()), (np.int8, (16,))])
def test_an_lstm_whose_data_is_rounded_at_the_call(direction, count, dtype, columns):
    text = f"""g (float[t,b,3] x, float[{count},b,4] h, float[{count},b,4] c) => (float[t,{count},b,4] y, float[{count},b,4] yh, float[{count},b,4] yc) {{
        y, yh, yc = com.microsoft.DynamicQuantizeLSTM<hidden_size=4, direction="{direction}">(x, w, r, bias, , h, c, , ws, wz, rs, rz) }}"""
    rng = np.random.default_rng(0)
    constants = {"bias": normal(count, 32)}
    for name, depth in (("w", 3), ("r", 4)):
        constants[name] = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (count, depth, 16)).astype(dtype)
        constants[name + "s"] = rng.uniform(0.005, 0.02, (count, *columns)).astype(np.float32)
        constants[name + "z"] = np.full((count, *columns), 0 if dtype is np.int8 else 120, dtype)
    cases = [[normal(t, b, 3), normal(count, b, 4, seed=1), normal(count, b, 4, seed=2)] for t, b in ((5, 2), (1, 1))]
    same_as_onnxruntime(model_of(text, **constants), *cases, bounds={"t": 5, "b": 2})


def ensemble(kind, seed=0, trees=5, depth=3, columns=4, ids=(0,), low=-1.0, modes=("BRANCH_LEQ",), **attributes):
    """Returns a model of random trees with a weight of each of ``ids`` in every leaf."""
    rng = np.random.default_rng(seed)
    nodes = {n: [] for n in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids", "missing_value_tracks_true")}  # fmt: skip
    ends = {n: [] for n in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(trees):
        count = 2 ** (depth + 1) - 1
        for n in range(count):
            leaf = n >= count // 2 or (n == 2 and tree == 1)
            row = (tree, n, int(rng.integers(columns)), float(rng.normal()), "LEAF" if leaf else str(rng.choice(modes)), 0 if leaf else 2 * n + 1, 0 if leaf else 2 * n + 2, int(rng.integers(2)))  # fmt: skip
            for values, v in zip(nodes.values(), row, strict=True):
                values.append(v)
            for target in ids if leaf else ():
                for values, v in zip(ends.values(), (tree, n, target, float(rng.uniform(low, 1) / trees)), strict=True):
                    values.append(v)
    which = "target" if kind == "TreeEnsembleRegressor" else "class"
    outputs = ["y"] if which == "target" else ["label", "y"]
    given = {**{f"nodes_{k}": v for k, v in nodes.items()}, **{f"{which}_{k}": v for k, v in ends.items()}}
    node = onnx.helper.make_node(kind, ["x"], outputs, domain="ai.onnx.ml", **given, **attributes)
    model = model_of(f"g (float[n,{columns}] x) => (float[n,k] y) {{ y = Neg(x) }}")
    del model.graph.node[:]
    model.graph.node.append(node)
    if which == "class":
        model.graph.output.insert(0, onnx.helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["n"]))
    return model


ROWS = [[normal(50, 4)], [normal(1, 4, seed=1)]]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ids": (0, 1), "n_targets": 2, "base_values": [0.5, -1.0]},
        {"aggregate_function": "AVERAGE", "base_values": [0.5]},
        {"aggregate_function": "MAX"},
        {"aggregate_function": "MIN"},
        {"modes": ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE")},
        {"depth": 0},
    ],
)
def test_trees_that_give_numbers(options):
    same_as_onnxruntime(ensemble("TreeEnsembleRegressor", **{"n_targets": 1, **options}), *ROWS, bounds={"n": 50})


def test_trees_take_missing_values_where_they_say():
    x = normal(50, 4)
    x[::3, 1] = x[::7, 2] = np.nan
    same_as_onnxruntime(ensemble("TreeEnsembleRegressor", n_targets=1), [x], bounds={"n": 50})


@pytest.mark.parametrize("base", [{}, {"base_values": [0.1]}])
@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("how", ["NONE", "LOGISTIC"])
def test_trees_that_choose_of_two_classes(base, low, how):
    options = {"ids": (0,), "low": low, "post_transform": how, "classlabels_int64s": [3, 7], **base}
    same_as_onnxruntime(ensemble("TreeEnsembleClassifier", **options), *ROWS, bounds={"n": 50})


@pytest.mark.parametrize("how", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [{}, {"base_values": [0.1, -0.2, 0.3]}])
def test_trees_that_choose_of_classes(how, base):
    options = {"ids": (0, 1, 2), "post_transform": how, "classlabels_int64s": [3, 7, 5], **base}
    same_as_onnxruntime(ensemble("TreeEnsembleClassifier", **options), *ROWS, bounds={"n": 50})


def test_trees_with_a_score_for_each_of_two_classes():
    model = ensemble("TreeEnsembleClassifier", ids=(0, 1), classlabels_int64s=[3, 7])
    label, scores = tw.build(tw.from_onnx(model), bounds={"n": 50})(ROWS[0][0])
    np.testing.assert_array_equal(label, np.array([3, 7])[scores.argmax(1)])  # ONNX Runtime asks for the sign of one
    del model.graph.output[0]
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": ROWS[0][0]})
    np.testing.assert_allclose(scores, want, 1e-5, 1e-5)


def test_a_branch_that_cannot_be_read_names_what_decides():
    text = """g (float[4] x, int64 rate) => (float[4] y) <int64 fast={16}> {
        c = Equal(rate, fast)
        y = If (c) <then_branch = t () => (float[4] p) { p = Neg(x) }, else_branch = e () => (float[4] q) { q = MatMul(x, w) }> }"""
    model = model_of(text, w=normal(3, 4))
    read = tw.from_onnx(model)
    assert isinstance(read, ValueDependentGraph)
    assert re.search("MatMul 'q'.*constants={'rate': …} gives them ahead", read.refusal())
    x, f = normal(4), tw.build(tw.from_onnx(model, constants={"rate": np.int64(16)}))
    np.testing.assert_array_equal(f(x), -x)
    g = tw.build(read)
    np.testing.assert_array_equal(g(x, np.array(16)), -x)
    with pytest.raises(OnnxError, match="MatMul 'q'"):
        g(x, np.array(8))


def ensemble_of_roots(modes=range(7), targets=2, dtype=np.float32, seed=0, **attributes):
    """Returns a model of TreeEnsemble of version 5 with random trees, and the input's number of columns."""
    rng, inner = np.random.default_rng(seed), 14
    feature, mode = rng.integers(0, 4, inner), rng.choice(list(modes), inner)
    leaves, table, roots = [], {"true": [], "false": []}, [0, 7]
    for n in range(inner):  # two trees of seven inner nodes each
        for side, k in (("true", 1), ("false", 2)):
            child = 2 * (n % 7) + k
            if child < 7:
                table[side].append((n - n % 7 + child, 0))
            else:
                table[side].append((len(leaves), 1))
                leaves.append(int(rng.integers(targets)))
    members = [m for _ in range(int((mode == 6).sum())) for m in (*rng.integers(-2, 3, 2).astype(float), np.nan)]
    tensors = {
        "nodes_splits": rng.integers(-2, 3, inner).astype(dtype), "nodes_modes": mode.astype(np.uint8), "leaf_weights": rng.normal(size=len(leaves)).astype(dtype),
        **({"membership_values": np.array(members, dtype)} if members else {}),
    }  # fmt: skip
    node = onnx.helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=targets, tree_roots=roots, nodes_featureids=feature, leaf_targetids=leaves,
        nodes_missing_value_tracks_true=rng.integers(0, 2, inner), **{f"nodes_{side}nodeids": [n for n, _ in rows] for side, rows in table.items()},
        **{f"nodes_{side}leafs": [end for _, end in rows] for side, rows in table.items()}, **{k: numpy_helper.from_array(v, k) for k, v in tensors.items()}, **attributes,
    )  # fmt: skip
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = onnx.helper.make_graph(
        [node], "g", [onnx.helper.make_tensor_value_info("x", kind, ["n", 4])], [onnx.helper.make_tensor_value_info("y", kind, None)]
    )  # fmt: skip
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("ai.onnx.ml", 5)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"modes": range(6), "targets": 1},
        {"aggregate_function": 0, "dtype": np.float64},
        {"aggregate_function": 2},
        {"aggregate_function": 3, "targets": 5},
    ],
)
def test_trees_of_inner_nodes_and_leaves(options):
    """Random numbers are whole, so that comparisons for equality and members hold often; some are missing."""
    dtype = options.get("dtype", np.float32)
    x = np.random.default_rng(1).integers(-2, 3, (50, 4)).astype(dtype)
    x[::7, 1] = np.nan
    same_as_onnxruntime(ensemble_of_roots(**options), [x], [x[:1]], bounds={"n": 50})


@pytest.mark.parametrize(("number", "theirs"), [(1, 2), (2, 1)])
def test_transformed_scores_of_trees(number, theirs):
    """ONNX numbers softmax 1 and the sigmoid 2; ONNX Runtime takes them the other way round."""
    x = np.random.default_rng(1).integers(-2, 3, (5, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(ensemble_of_roots(post_transform=theirs).SerializeToString())
    got = tw.build(tw.from_onnx(ensemble_of_roots(post_transform=number)), bounds={"n": 5})(x)
    np.testing.assert_allclose(got, session.run(None, {"x": x})[0], 1e-5)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"tree_roots": [0, 14]}, "begins at the node 14 of 14"),
        ({"nodes_truenodeids": [99] * 14}, "a branch leads to (leaf|node) 99"),
        ({"leaf_targetids": [5] * 16}, "target 5 of 2"),
        ({"aggregate_function": 4}, "aggregate_function is 4; there are 0 to 3"),
    ],
)
def test_trees_that_are_wrong_are_refused(wrong, said):
    model = ensemble_of_roots()
    (node,) = model.graph.node
    for a in [a for a in node.attribute if a.name in wrong]:
        node.attribute.remove(a)
    node.attribute.extend([onnx.helper.make_attribute(k, v) for k, v in wrong.items()])
    with pytest.raises(OnnxError, match=said):
        tw.from_onnx(model)


def counts_of(shape=("n", "k"), dtype=onnx.TensorProto.INT64, **attributes):
    given = {
        "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 1, "mode": "TF", "ngram_counts": [0, 3, 7], "ngram_indexes": [6, 0, 2, 1, 5, 7],
        "pool_int64s": [1, 2, 3, 1, 2, 2, 3, 3, 2, 1], **attributes,
    }  # fmt: skip
    node = onnx.helper.make_node("TfIdfVectorizer", ["x"], ["y"], **given)
    made = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "g", [made("x", dtype, shape)], [made("y", onnx.TensorProto.FLOAT, None)])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "IDF"},
        {"mode": "TFIDF", "max_skip_count": 3},
        {"mode": "TFIDF", "weights": [0.5, 2, -1, 3, 4, 0.25]},
        {"mode": "IDF", "weights": [0.5, 2, -1, 3, 4, 0.25]},
        {"mode": "TFIDF", "weights": [0.5, 2, -1, 3, 4, 0.25], "ngram_indexes": [1, 0, 1, 1, 0, 3]},
        {"mode": "IDF", "ngram_indexes": [1, 0, 1, 1, 0, 3]},
        {"min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 0},
        {"dtype": onnx.TensorProto.INT32},
    ],
)
def test_counts_of_n_grams(options):
    dtype = np.int32 if "dtype" in options else np.int64
    x = np.random.default_rng(0).integers(1, 4, (5, 13)).astype(dtype)
    model = counts_of(**options)
    same_as_onnxruntime(model, [x], [x[:1]], [x[:, :3].copy()], [x[:, :1].copy()], bounds={"n": 5, "k": 13})
    same_as_onnxruntime(counts_of(("k",), **options), [x[0]], bounds={"k": 13})


@pytest.mark.parametrize(
    "options, said",
    [
        ({"pool_int64s": [1, 1, 3, 1, 2, 2, 3, 3, 2, 1]}, "a 1-gram is twice"),
        ({"ngram_indexes": [0, 1]}, "there are 2 columns"),
        ({"mode": "IDF", "weights": [1.0] * 6, "ngram_indexes": [0] * 6}, "have one column"),
        ({"ngram_counts": [0, 3, 6]}, "its 2-grams are the numbers 3 to 6"),
    ],
)
def test_pools_that_are_wrong_are_refused(options, said):
    with pytest.raises(OnnxError, match=said):
        tw.from_onnx(counts_of(**options))
