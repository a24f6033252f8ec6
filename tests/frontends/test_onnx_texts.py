"""ONNX models that work on texts, against ONNX Runtime and Python's own functions."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.codegen import ExportError  # noqa: E402
from tilewright.frontends.onnx import OnnxError, UnsupportedOnnxOperators, from_onnx  # noqa: E402

from .onnx_backend import cases, outcome  # noqa: E402

TEXT, FLOAT, INT = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64
ML = "ai.onnx.ml"


def model(nodes, inputs, outputs, constants=None, opset=20):
    """A model; inputs and outputs are name: (type, shape), constants name: array."""
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "net",
        [value(n, *t) for n, t in inputs.items()],
        [value(n, *t) for n, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(ML, 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def texts(*words):
    return np.array(words, object)


def by_runtime(proto, *inputs):
    runtime = pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    runtime.set_default_logger_severity(3)
    session = runtime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([i.name for i in proto.graph.input], inputs, strict=True)))


def agree(proto, *inputs):
    made = tw.build(proto)(*inputs)
    for got, want in zip(made if isinstance(made, tuple) else (made,), by_runtime(proto, *inputs), strict=True):
        assert got.shape == np.shape(want)
        if got.dtype.kind == "f":
            np.testing.assert_allclose(got, want, rtol=1e-6)
        else:
            assert got.tolist() == np.asarray(want).tolist()


WORDS = ["", "monday", "Monday", "a b  c", "ÄPFEL", "x,y,,z", "1.5", "née"]


@pytest.fixture
def words():
    rng = np.random.default_rng(7)
    return lambda *shape: rng.choice(np.array(WORDS, object), shape)


NAMES = ("string", "strnorm", "label_encoder", "regex", "tfidf")


@pytest.mark.parametrize("case", [c for c in cases() if any(n in c.name for n in NAMES)], ids=lambda c: c.name)
def test_onnx_tests_with_texts(case):
    found = outcome(case)
    assert found.status == "ok", found.reason


@pytest.mark.parametrize("change", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("shape", [(1,), (7,), (1, 13)])
def test_normalized_texts_are_those_of_onnx_runtime(words, change, sensitive, shape):
    node = helper.make_node(
        "StringNormalizer", ["x"], ["y"], stopwords=["MONDAY", "née"], case_change_action=change, is_case_sensitive=sensitive,
        locale="C.UTF-8",
    )  # fmt: skip
    out = (TEXT, [None] * len(shape))
    x = words(*shape)
    x[x == "ÄPFEL"] = "APFEL"  # ONNX Runtime changes the case of letters beyond ASCII by the locale
    agree(model([node], {"x": (TEXT, shape)}, {"y": out}), x)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 0), (2, 13)])
def test_texts_are_joined_divided_matched_and_compared(words, shape):
    nodes = [
        helper.make_node("StringConcat", ["x", "mark"], ["joined"]),
        helper.make_node("StringSplit", ["joined"], ["parts", "counts"], delimiter=",", maxsplit=2),
        helper.make_node("RegexFullMatch", ["joined"], ["matches"], pattern="[a-z]+,.*"),
        helper.make_node("Equal", ["x", "mark"], ["same"]),
    ]
    loose = [None] * len(shape)
    outputs = {"joined": (TEXT, loose), "parts": (TEXT, [*loose, None]), "counts": (INT, loose)}
    outputs |= {"matches": (TensorProto.BOOL, loose), "same": (TensorProto.BOOL, loose)}
    agree(model(nodes, {"x": (TEXT, shape)}, outputs, {"mark": texts(",q")}), words(*shape))


def test_texts_are_moved(words):
    nodes = [
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[2, 0, 1]),
        helper.make_node("Unsqueeze", ["t", "zero"], ["u"]),
        helper.make_node("Squeeze", ["u", "zero"], ["s"]),
        helper.make_node("Concat", ["s", "t"], ["c"], axis=-1),
        helper.make_node("Gather", ["c", "places"], ["g"], axis=1),
        helper.make_node("Identity", ["g"], ["i"]),
        helper.make_node("Where", ["mask", "i", "one"], ["y"]),
        helper.make_node("Shape", ["y"], ["extents"]),
    ]
    constants = {
        "target": np.array([0, -1, 4]), "zero": np.array([0]), "places": np.array([[1, -1], [0, 1]]),
        "mask": np.array([True, False] * 7), "one": texts("one"),
    }  # fmt: skip
    proto = model(nodes, {"x": (TEXT, (3, 7, 4))}, {"y": (TEXT, [None] * 4), "extents": (INT, [4])}, constants)
    proto.graph.initializer[2].CopyFrom(numpy_helper.from_array(np.array([[1, -1], [0, 1]]), "places"))
    x = words(3, 7, 4)
    c = np.concatenate([x.transpose(2, 0, 1)] * 2, axis=-1)
    y, extents = tw.build(proto)(x)
    assert y.shape == tuple(extents) == (4, 2, 2, 14)
    assert (y[..., 1::2] == "one").all() and (y[..., ::2] == c[:, [[1, -1], [0, 1]]][..., ::2]).all()


@pytest.mark.parametrize("kind", ["strings", "int64s", "floats"])
def test_labels_are_looked_up(words, kind):
    rng = np.random.default_rng(3)
    keys = {"strings": ["monday", "née", ""], "int64s": [3, -1, 7], "floats": [0.5, float("nan"), 3.0]}[kind]
    nodes = [
        helper.make_node(
            "LabelEncoder", ["x"], ["y"], domain=ML, **{f"keys_{kind}": keys, "values_strings": list("abc")}
        )
    ]
    nodes += [helper.make_node("LabelEncoder", ["y"], ["z"], domain=ML, keys_strings=list("ac"), values_floats=[0.5, -2.0], default_float=9.0)]  # fmt: skip
    x = {"strings": words(13), "int64s": rng.integers(-1, 8, 13), "floats": np.array([0.5, np.nan, 3, 4], np.float32)}[
        kind
    ]
    given = {"strings": TEXT, "int64s": INT, "floats": FLOAT}[kind]
    agree(model(nodes, {"x": (given, x.shape)}, {"y": (TEXT, x.shape), "z": (FLOAT, x.shape)}), x)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1, 0), (2, 2, 0), (1, 3, 2), (2, 3, 5)])
def test_runs_of_words_are_counted_as_onnx_runtime_does(mode, lengths):
    rng = np.random.default_rng(5)
    least, most, skip = lengths
    pool = ["a", "b", "c", *"ab", *"bb", *"aab", *"cba"]
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=least, max_gram_length=most, max_skip_count=skip,
        ngram_counts=[0, 3, 7], ngram_indexes=[0, 1, 2, 4, 3, 6, 5], pool_strings=pool,
        weights=[1.0, 0.5, 2.0, 3.0, 0.25, 4.0, 7.0],
    )  # fmt: skip
    x = rng.choice(np.array(list("abcd"), object), (3, 17))
    agree(model([node], {"x": (TEXT, (3, 17))}, {"y": (FLOAT, (3, 7))}), x)


def classifier():
    """Words become numbers, a network of numbers chooses, and the choice becomes a word."""
    nodes = [
        helper.make_node("StringNormalizer", ["words"], ["low"], case_change_action="LOWER"),
        helper.make_node("LabelEncoder", ["low"], ["ids"], domain=ML, keys_strings=["red", "green"], values_int64s=[1, 2], default_int64=0),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "best"], ["label"]),
    ]  # fmt: skip
    constants = {
        "table": np.eye(3, 5, dtype=np.float32), "w": np.diag(np.arange(5, dtype=np.float32))[:, :4],
        "names": texts("none", "stop", "go", "?"),
    }  # fmt: skip
    outputs = {"label": (TEXT, ["n"]), "scores": (FLOAT, ["n", 4])}
    return model(nodes, {"words": (TEXT, ["n"])}, outputs, constants)


def test_the_numbers_between_texts_are_compiled(words):
    run = tw.build(classifier(), bounds={"n": 16})
    assert run.origin == "3 steps in Python, " + run.model.origin
    for extent in (1, 7, 13):
        given = np.array((["Red", "GREEN", "x"] * 5)[:extent], object)
        label, scores = run(given)
        assert label.tolist() == (["stop", "go", "none"] * 5)[:extent]
        assert scores.shape == (extent, 4) and scores[0].tolist() == [0, 1, 0, 0]
    label, scores = run(words=np.array(["green"]), out=(np.empty(1, object), np.empty((1, 4), np.float32)))
    assert label.tolist() == ["go"]
    assert "argmax" in str(run.profile(texts("red")))


def test_a_graph_with_texts_is_shown():
    graph = from_onnx(classifier(), name="colours")
    text = str(graph)
    assert text.startswith(
        "host colours(words: string[n]):\n    low = StringNormalizer(words, case_change_action='LOWER')"
    )
    assert "argmax" in text and text.splitlines()[-1] == "    return label: string[n], scores: float32[n, 4]"


def test_a_model_with_texts_is_no_library(tmp_path):
    with pytest.raises(ExportError, match="cannot export net to 'm.so': StringNormalizer 'low' works on texts"):
        tw.build(classifier(), bounds={"n": 4}).export(tmp_path / "m.so")
    assert not list(tmp_path.iterdir())


def test_only_the_compiled_part_is_tuned_and_timed():
    only = model([helper.make_node("StringConcat", ["x", "x"], ["y"])], {"x": (TEXT, [2])}, {"y": (TEXT, [2])})
    assert tw.build(only)(texts("a", "b")).tolist() == ["aa", "bb"]
    with pytest.raises(ValueError, match="net has no kernels: it works on texts only, which Python computes"):
        tw.tune(only, trials=1)
    with pytest.raises(ValueError, match="net has no kernels"):
        tw.bench(only)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros(2, np.float32), r"net: the input words: string\[n\] takes an array of texts, not of float32"),
        (np.array(["a", 3], object), r"the input words: string\[n\] takes an array of texts, not of int"),
        (texts("a").reshape(1, 1), r"the input words: string\[n\] is given with the shape \[1, 1\]"),
    ],
)
def test_inputs_that_are_no_texts(given, words):
    with pytest.raises(ValueError, match=words):
        tw.build(classifier(), bounds={"n": 4})(given)


def test_texts_that_do_not_fit_are_named_at_the_call():
    to_number = helper.make_node("Cast", ["x"], ["y"], to=FLOAT, name="number")
    run = tw.build(model([to_number], {"x": (TEXT, [2])}, {"y": (FLOAT, [2])}))
    assert run(texts("1e3", "-INF")).tolist() == [1000, -np.inf]
    with pytest.raises(ValueError, match="net: Cast 'number': could not convert string to float: 'one'"):
        run(texts("one", "2"))


def one_node(name, inputs, **attributes):
    domain = attributes.pop("domain", "")
    return helper.make_node(name, inputs, ["y"], name="it", domain=domain, **attributes)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (one_node("StringConcat", ["x", "n"]), "StringConcat 'it': input 1, n, is of the data type float32; here it takes texts"),
        (one_node("StringNormalizer", ["n"]), "StringNormalizer 'it': input 0, n, is of the data type float32; here it takes texts"),
        (one_node("Gather", ["x", "x"]), "Gather 'it': input 1, x, is of the data type string; here it takes numbers"),
        (one_node("Add", ["x", "x"]), "Add 'it' takes the text 'x'; it works on numbers only"),
        (one_node("Reshape", ["x", "k"]), "Reshape 'it': input 1 has to be a constant"),
        (one_node("Reshape", ["x", "none"]), "Reshape 'it' reads 'none', which nothing provides"),
        (one_node("RegexFullMatch", ["x"], pattern="("), r"RegexFullMatch 'it': the pattern '\(' cannot be read"),
        (one_node("StringNormalizer", ["x"], case_change_action="UP"), "the change of case 'UP' is not known"),
        (one_node("StringNormalizer", ["m"]), r"it takes texts of the shape \[C\] or \[1, C\], not \[2, 3\]"),
        (one_node("StringConcat", ["x", "m"]), r"StringConcat 'it': the shapes \(2,\), \(2, 3\) do not broadcast"),
        (one_node("LabelEncoder", ["x"], domain=ML, keys_strings=["a"]), "LabelEncoder 'it': it has no values"),
        (one_node("LabelEncoder", ["x"], domain=ML, keys_strings=["a"], values_int64s=[1, 2]), "1 keys for 2 values"),
        (one_node("Concat", ["x", "x"]), "Concat 'it': its inputs and attributes do not fit it"),
        (one_node("TfIdfVectorizer", ["x"], mode="TF", ngram_indexes=[1 << 40]), "its results would have 1099511627777 columns"),
    ],
)  # fmt: skip
def test_nodes_that_texts_do_not_fit(node, words):
    inputs = {"x": (TEXT, [2]), "m": (TEXT, [2, 3]), "n": (FLOAT, [2]), "k": (INT, [1])}
    with pytest.raises(OnnxError, match=words):
        from_onnx(model([node], inputs, {"y": (TEXT, None)}))


def test_numbers_that_need_texts_of_computed_numbers_are_refused():
    nodes = [
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Cast", ["r"], ["words"], to=TEXT, name="to_words"),
        helper.make_node("Cast", ["words"], ["again"], to=FLOAT, name="back"),
        helper.make_node("Relu", ["again"], ["y"], name="last"),
    ]
    with pytest.raises(
        OnnxError, match="Relu 'last' reads 'again', which Cast 'back' makes of texts that are computed"
    ):
        from_onnx(model(nodes, {"n": (FLOAT, [2])}, {"y": (FLOAT, [2])}))
    run = tw.build(model(nodes[:2], {"n": (FLOAT, [2])}, {"words": (TEXT, [2])}))
    assert run(np.array([-1, 2.5], np.float32)).tolist() == ["0.0", "2.5"]


def test_missing_operators_are_listed_with_those_of_texts():
    nodes = [helper.make_node("StringConcat", ["x", "x"], ["y"]), helper.make_node("Sing", ["y"], ["z"], domain="mine")]
    proto = model(nodes, {"x": (TEXT, [2])}, {"z": (TEXT, [2])})
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    with pytest.raises(UnsupportedOnnxOperators, match=r"mine.Sing: 1 \(first: Sing 'z'\)"):
        from_onnx(proto)


def test_texts_may_be_given_as_constants():
    node = helper.make_node("StringConcat", ["x", "c"], ["y"])
    proto = model([node], {"x": (TEXT, ["n"]), "c": (TEXT, [1])}, {"y": (TEXT, ["n"])})
    run = tw.build(proto, constants={"c": np.array(["!"])}, shapes={"x": (2,)})
    assert run(texts("a", "b")).tolist() == ["a!", "b!"]


def test_damaged_texts_are_refused():
    node = helper.make_node("StringConcat", ["x", "c"], ["y"])
    proto = model([node], {"x": (TEXT, [2])}, {"y": (TEXT, [2])}, {"c": texts("a", "b")})
    proto.graph.initializer[0].dims[0] = 1 << 62
    with pytest.raises(OnnxError, match=r"the tensor 'c' of the shape \(4611686018427387904,\) has 2 texts"):
        from_onnx(proto)
