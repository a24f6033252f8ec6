"""Exported libraries, called from Python without the compiler."""

import json
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.exported import ArrayError, LoadError, load_module
from tilewright.exported import library as loading
from tilewright.graph import Builder

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))), reason="needs a linker")
TARGET = "native -num-cores=1"


def rows(n, name="relu"):
    a = te.placeholder((n, 8), name="A")
    return [a, te.compute((n, 8), lambda i, j: te.max(a[i, j], 0.0), name="B")]


@pytest.fixture(scope="module")
def relu(tmp_path_factory):
    path = tmp_path_factory.mktemp("relu") / "relu.so"
    tw.build(rows(te.var("n")), TARGET, name="relu").export(path)
    return load_module(path)


def sample(rows=7):
    return np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)


def test_outputs_are_made_or_given(relu):
    x = sample()
    want = np.maximum(x, 0)
    np.testing.assert_array_equal(relu(x), want)
    np.testing.assert_array_equal(relu(A=x), want)
    for _ in range(2):  # the second call of a kind takes what the first one checked
        out = np.full_like(x, np.nan)
        assert relu(x, out) is None
        np.testing.assert_array_equal(out, want)
    out = np.full_like(x, np.nan)
    assert relu(x, out=out) is out
    np.testing.assert_array_equal(out, want)
    assert relu["relu"] is relu.get_function("relu") is relu.entry
    assert repr(relu.entry) == "<loaded relu(A: float32[n, 8], B: float32[n, 8] (written))>"
    assert [*relu] == ["relu"]
    assert len(relu) == 1


@pytest.mark.parametrize("count", [0, 1, 2, 70])
def test_any_size(relu, count):
    np.testing.assert_array_equal(relu(sample(count)), np.maximum(sample(count), 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f, x: f(x.astype("float64")), r"argument 0 \(A\): expected dtype float32, got float64"),
        (lambda f, x: f(x.astype(">f4")), "expected dtype float32, got >f4"),
        (lambda f, x: f(x[:, ::2]), "row-major array without gaps"),
        (lambda f, x: f(x[0]), "expected 2 dimensions"),
        (lambda f, x: f(x[:, :7].copy()), "expected 8 in dimension 1, got 7"),
        (lambda f, x: f(x, np.zeros((8, 8), np.float32)), r"expected 7 \(n, bound by another argument\)"),
        (lambda f, x: f(x, x), "shares memory with argument 0"),
        (lambda f, x: f(), "A is not given"),
        (lambda f, x: f(None), "got None"),
        (lambda f, x: f(x, None), "got None"),
        (lambda f, x: f(x, x, x), "takes 2 arguments, 3 were given"),
        (lambda f, x: f(x, C=x), "has no argument 'C'"),
        (lambda f, x: f(x, A=x), "A is given twice"),
        (lambda f, x: f(x, out=(x, x)), "has 1 outputs that are not given; out= has 2"),
        (lambda f, x: f([1.0]), "expected an array, A: .*, got list; np.asarray makes one"),
        (lambda f, x: f(np.frombuffer(bytes(8 * 8 * 4 + 1), np.uint8)[1:].view(np.float32).reshape(8, 8)), "not aligned"),
        (lambda f, x: f(x, np.frombuffer(bytes(x.nbytes), np.float32).reshape(x.shape)), "read-only"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_nothing_written(relu, call, message):
    x = sample()
    before = x.copy()
    relu(x, np.zeros_like(x))
    with pytest.raises(ArrayError, match=message):
        call(relu, x)
    np.testing.assert_array_equal(x, before)


def test_several_functions_scalars_and_derived_sizes(tmp_path):
    n = te.var("n")
    a, s, h = (
        te.placeholder((n,), name="A"),
        te.placeholder((), "int32", name="S"),
        te.placeholder((), "bool", name="H"),
    )
    pairs = te.compute((n // 2,), lambda i: a[2 * i] + a[2 * i + 1], name="P")
    scaled = te.compute(
        (n + 1,), lambda i: te.if_then_else(i < n, a[te.min(i, n - 1)], 0.0) * s[()].astype("float32"), name="Q"
    )
    flagged = te.compute((n,), lambda i: te.select(h[()], a[i], -a[i]), name="R")
    both = tw.build({"pairs": [a, pairs], "scaled": [a, s, scaled], "flagged": [a, h, flagged]}, TARGET)
    both.export(tmp_path / "k.so")
    loaded = load_module(tmp_path / "k.so")
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(loaded["pairs"](x[:8]), x[:8].reshape(4, 2).sum(1))
    np.testing.assert_array_equal(loaded["scaled"](x, 3), np.append(x * 3, 0))
    np.testing.assert_array_equal(loaded["flagged"](x, False), -x)
    with pytest.raises(ValueError, match="several functions, .* pick one"):
        loaded(x)
    with pytest.raises(KeyError, match="no function 'nosuch' in k.so; there are"):
        loaded["nosuch"]


@pytest.mark.parametrize("value", [0.5, -1.0009765625, 65504.0, 1e-7])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_scalar_parameters(tmp_path, dtype, value):
    text = f"""
@T.prim_func
def scale(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), s: T.{dtype}):
    for i in range(4):
        with T.block("B"):
            v = T.axis.spatial(4, i)
            B[v] = A[v] * T.Cast("float32", s)
"""
    func = tw.tir.parse(text)
    module = tw.codegen.compile(func, TARGET)
    module.export(tmp_path / "s.so")
    x = np.arange(4, dtype=np.float32)
    want = np.empty_like(x)
    module(x, want, value)
    got = np.empty_like(x)
    load_module(tmp_path / "s.so")(x, got, value)
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ArrayError, match=f"expected a number, {dtype}, got str"):
        load_module(tmp_path / "s.so")(x, got, "1")


def test_a_failed_assertion_is_told_with_its_sizes(tmp_path):
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    module = tw.build([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")], TARGET, name="up")
    module.export(tmp_path / "up.so")
    loaded = load_module(tmp_path / "up.so")
    loaded.entry._failures[1] = "n has to be even"
    loaded.entry._function = lambda *values: 1
    with pytest.raises(RuntimeError, match=r"up: n has to be even \(n = 3\)"):
        loaded(np.zeros(3, np.float32))


def test_two_sizes_of_one_name(tmp_path):
    n, other = te.var("n"), te.var("n")
    a, b = te.placeholder((n,), name="A"), te.placeholder((other,), name="B")
    total = te.compute((n, other), lambda i, j: a[i] + b[j], name="C")
    tw.build([a, b, total], TARGET, name="outer").export(tmp_path / "outer.so")
    x, y = sample(3)[0], sample(5)[:, 0].copy()
    np.testing.assert_array_equal(load_module(tmp_path / "outer.so")(x, y), x[:, None] + y)


def test_several_threads(relu):
    wrong = []

    def work(count):
        x = sample(count)
        for _ in range(200):
            if not np.array_equal(relu(x), np.maximum(x, 0)):
                wrong.append(count)

    threads = [threading.Thread(target=work, args=(count,)) for count in (3, 5, 64)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def model():
    b = Builder("net")
    rows = te.size_var("rows")
    x = b.input("x", (rows, 16))
    w = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
    return tw.build(b.graph([b.op("relu", b.op("matmul", x, b.constant(w)))]), TARGET, bounds={"rows": 8})


@pytest.mark.parametrize("constants", ["inside", "beside"])
def test_a_model(tmp_path, constants):
    built = model()
    built.export(tmp_path / "net.so", constants=constants)
    loaded = load_module(tmp_path / "net.so")
    assert loaded.entry.workspace_bytes == built.workspace_bytes
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
        np.testing.assert_array_equal(loaded(x), built(x))
        np.testing.assert_array_equal(loaded(x=x), built(x))


def test_weights_that_are_missing_or_others_are_refused(tmp_path):
    model().export(tmp_path / "net.so", constants="beside")
    weights = tmp_path / "net.weights"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-4])
    with pytest.raises(LoadError, match="net.weights' of net: the file is not the file that was written"):
        load_module(tmp_path / "net.so")
    weights.unlink()
    with pytest.raises(LoadError, match="cannot be read; keep it beside the library"):
        load_module(tmp_path / "net.so")


def test_files_that_are_no_library(tmp_path):
    with pytest.raises(LoadError, match="there is no file"):
        load_module(tmp_path / "none.so")
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(LoadError, match="is not a shared library for this machine"):
        load_module(tmp_path / "text.so")
    (tmp_path / "c.c").write_text("int answer(void) { return 42; }\n")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler:
        subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "c.so", tmp_path / "c.c"], check=True)
        with pytest.raises(LoadError, match="does not describe its functions"):
            load_module(tmp_path / "c.so")


def test_a_library_that_was_exported_again_is_loaded_anew(tmp_path):
    path, x = tmp_path / "k.so", sample()
    loaded = []
    for factor in (2.0, 3.0):
        a = te.placeholder((7, 8), name="A")
        tw.build([a, te.compute((7, 8), lambda i, j, a=a, f=factor: a[i, j] * f, name="B")], TARGET, name="k").export(
            path
        )
        loaded.append(load_module(path))
    for one, factor in zip(loaded, (2.0, 3.0), strict=True):
        np.testing.assert_array_equal(one(x), x * np.float32(factor))
    np.testing.assert_array_equal(load_module(path)(x), x * np.float32(3))
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(LoadError, match="was written over while it is loaded"):
        load_module(path)


def test_a_library_for_another_processor_is_refused(tmp_path, monkeypatch):
    tw.build(rows(4), TARGET, name="relu").export(tmp_path / "relu.so")
    monkeypatch.setattr(loading, "_lacking", lambda features: ["avx512f"] if features else [])
    with pytest.raises(LoadError, match="this processor lacks avx512f"):
        load_module(tmp_path / "relu.so")


def test_features_by_the_names_of_linux(monkeypatch, tmp_path):
    told = "processor : 0\nflags\t\t: fpu sse4_2 avx avx2 fma f16c avx512f avx512_vnni amx_tile\n"
    monkeypatch.setattr(loading.sys, "platform", "linux")
    monkeypatch.setattr(loading.Path, "read_text", lambda path, errors="": told)
    assert loading._lacking(["avx", "avx512f", "avx512vnni", "amx-tile", "bmi", "sse4.2"]) == []
    assert loading._lacking(["avx512bf16", "avx512vnni", "amx-int8"]) == ["avx512bf16", "amx-int8"]


def test_a_library_of_a_later_form_is_refused(tmp_path, monkeypatch):
    tw.build(rows(4), TARGET, name="relu").export(tmp_path / "relu.so")
    monkeypatch.setattr(loading, "FORMAT", 0)
    with pytest.raises(LoadError, match="which is newer than this one"):
        load_module(tmp_path / "relu.so")


def test_loading_imports_no_compiler(relu):
    program = (
        "import sys, numpy, tilewright as tw\n"
        f"tw.load_module({str(relu.path)!r})(numpy.zeros((3, 8), 'float32'))\n"
        "print([m for m in sys.modules if m.startswith(('tilewright.', 'llvmlite'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.replace("'", '"'))
    assert set(loaded) == {"tilewright.exported", "tilewright.exported.library"}
