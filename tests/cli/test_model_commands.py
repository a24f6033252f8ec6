"""Models on the command line."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402


@pytest.fixture
def model(tmp_path):
    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("ld")), reason="needs a linker")
def test_build_makes_a_library(run, tmp_path, model):
    done = run("build", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "--name", "step", "-o", "m.so", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["files"] == ["m.so", "m.h", "m.hpp", "m.pc", "mConfig.cmake", "mConfigVersion.cmake"] and told[
        "symbols"
    ] == ["step"]
    assert told["origin"] == "1 kernels (1 default)"
    assert "int32_t step(const float* x, float* y, void* workspace)" in (tmp_path / "m.h").read_text()


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("ld")), reason="needs a linker")
def test_a_size_may_stay_open(run, tmp_path, model):
    done = run("build", "m.onnx", "--num-cores", "1", "--name", "step", "-o", "m.so", "--bounds", "n=32")
    assert done.code == 0, done.err
    assert "int32_t step(const float* x, float* y, int64_t n, void* workspace)" in (tmp_path / "m.h").read_text()
    assert "--bounds is for models" in run("build", "relu:M=1,N=4", "-o", "r.so", "--bounds", "n=3").err
    shown = run("show", "m.onnx", "--stage", "memory", "--bounds", "n=32", "--num-cores", "1")
    assert shown.code == 0 and "0 bytes in all" in shown.out


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("ld")), reason="needs a linker")
def test_a_library_has_the_version_that_is_given(run, tmp_path, model):
    line = ("build", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "-o", "m.so")
    done = run(*line, "--package-version", "2.10.3")
    assert done.code == 0, done.err
    assert "Version: 2.10.3\n" in (tmp_path / "m.pc").read_text()
    assert '"2.10.3"' in (tmp_path / "mConfigVersion.cmake").read_text()
    for words, message in (
        (("--package-version", "new"), "--package-version: "),
        (("-o", "m.c", "--package-version", "1.0"), "libraries, .so and .a, have one"),
    ):
        refused = run(*line, *words)
        assert refused.code == 2 and message in refused.err and "bug" not in refused.err
    assert run(*line).code == 0 and "2.10.3" not in (tmp_path / "m.pc").read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-o", "m.o"], 2, "a model becomes a shared or static library, .so or .a, or a C file"),
        (["-o", "m.so", "--arg", "x=wide"], 2, "a shape is written NAME=1,3,224,224"),
        (["-o", "m.so", "--bounds", "n"], 2, "bounds are written n=32,m=512"),
        (["-o", "m.so", "--bounds", "m=3"], 1, "has no symbolic size m; its symbolic sizes: n"),
    ],
)
def test_what_cannot_be_built_is_explained(run, model, words, code, message):
    done = run("build", "m.onnx", *words)
    assert done.code == code and message in done.err and "bug" not in done.err


def test_a_page_shows_a_kernel(run, tmp_path, model):
    line = ["show", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "--html", "k.html"]
    done = run(*line)
    assert done.code == 0 and done.out.startswith("k.html: ") and "relu of g: " in done.out
    page = (tmp_path / "k.html").read_text()
    assert "relu of g: " in page and "machine code" in page and "T.match_buffer" not in page
    missing = run(*line, "--kernel", "nosuch")
    assert missing.code == 1 and "g has no kernel 'nosuch'; there are relu" in missing.err


def test_a_damaged_file(run, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"no model")
    done = run("build", "m.onnx", "-o", "m.so")
    assert done.code == 1 and "is not a readable ONNX model" in done.err and "bug" not in done.err


@pytest.mark.parametrize(
    ("stage", "shown"),
    [
        ("graph", "def g(x: float32[7, 3]):"),
        ("fused", "= relu(x)"),
        ("kernels", "relu(x: float32[7, 3]) -> "),
        ("memory", "0 bytes in all"),
        ("tir", "def relu("),
        ("scheduled", "# relu: the analytic model's best schedule"),
        ("lowered", "T.Ramp("),
        ("ll", "; relu: the analytic model's best schedule"),
        ("asm", "ret"),
        ("c", "int32_t tw_"),
    ],
)
def test_show(run, model, stage, shown):
    done = run("show", "m.onnx", "--arg", "x=7,3", "--stage", stage, "--num-cores", "1")
    assert done.code == 0 and shown in done.out, done


def test_stages_of_models_and_of_workloads_differ(run, model):
    assert "m.onnx has the stages graph, fused" in run("show", "m.onnx", "--stage", "te").err
    assert run("show", "relu:M=1,N=4", "--stage", "memory").code == 2


def test_tune_and_build_with_the_records(run, model):
    done = run("tune", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "--trials", "2", "--db", "t.db", "--until", "1")
    assert done.code == 0, done.err
    assert re.search("m.onnx: [12] trials? in", done.out) and "by default" in done.out and "relu" in done.out
    assert re.search("m.onnx: [12] trials, 1 kernels done", done.err) and "ended: " in done.err
    done = run("tune", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "--trials", "1", "--db", "t.db", "--json")
    told = json.loads(done.out)  # the kernel has two candidates only, which are on record
    assert told["trials"] == 0 and told["kernels"][0]["name"] == "relu" and told["seconds"] > 0
    done = run("build", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "--db", "t.db", "--require-tuned", "-o", "m.so")
    assert done.code == 0 and "1 kernels (1 tuned)" in done.out


def test_patience_is_for_workloads(run, model):
    done = run("tune", "m.onnx", "--patience", "3", "--db", "t.db")
    assert done.code == 2 and "--patience is for workloads" in done.err


def test_bench(run, model):
    words = ["bench", "m.onnx", "--arg", "x=7,3", "--num-cores", "1", "--rounds", "1"]
    done = run(*words, "--profile")
    assert done.code == 0 and "default" in done.out and "1 kernels (1 default)" in done.out
    assert "GFLOP/s" in done.out and "not tuned yet: tilewright tune m.onnx" in done.err
    assert run(*words, "--require-tuned", "--db", "absent.db").code == 2
    done = run("bench", "relu:M=1,N=4", "--profile")
    assert done.code == 2 and "--profile is for models" in done.err


def test_a_microcontroller_gets_a_folder_with_c(run, tmp_path, model):
    words = ["build", "m.onnx", "--arg", "x=7,3", "--target", "c -mcpu=cortex-m7", "-o", "firmware"]
    done = run(*words)
    assert done.code == 0, done.err
    assert "firmware/g.c, firmware/g.h: 1 kernels" in done.out and "constants " in done.out
    assert "int32_t g(const float* x, float* y);" in (tmp_path / "firmware" / "g.h").read_text()
    told = json.loads(run(*words, "--json").out)
    assert told["files"] == ["firmware/g.c", "firmware/g.h"] and told["workspace_bytes"] > 0


def test_quantize_writes_a_model_and_says_what_it_costs(run, tmp_path):
    from tilewright.graph import Builder, save_graph

    rng, b = np.random.default_rng(0), Builder("net")
    x = b.input("x", (4, 64))
    y = b.op("dense", x, b.constant((rng.standard_normal((48, 64)) / 8).astype("float32")), name="scores")
    save_graph(b.graph([y]), "m.twgraph")
    (tmp_path / "words.npz").write_text("words")
    np.savez("samples.npz", x=rng.standard_normal((5, 4, 64)).astype("float32"))
    words = ["quantize", "m.twgraph", "--num-cores", "1", "--kind"]
    done = run(*words, "int8", "--calibration", "samples.npz", "-o", "q.twgraph")
    assert done.code == 0, done.err
    assert "scores" in done.out and "5 samples" in done.out and "tilewright bench q.twgraph" in done.out
    told = json.loads(run(*words, "int4-weights", "--json").out)
    assert told["kind"] == "int4-weights" and told["bytes_after"] < told["bytes_before"] / 5
    assert run("bench", "q.twgraph", "--num-cores", "1", "--rounds", "1").code == 0
    for wrong, says in [
        ([*words, "int8"], "needs --calibration"),
        ([*words, "int8-weights", "--calibration", "words.npz"], "no file of arrays"),
        ([*words, "int8-weights", "-o", "q.onnx"], "has to end in .twgraph"),
        ([*words, "int8-weights", "-o", "nowhere/q.twgraph"], "there is no folder nowhere"),
        (["quantize", "matmul:M=8,N=8,K=8"], "is no model"),
    ]:
        refused = run(*wrong)
        assert refused.code == 2 and says in refused.err, refused.err
    np.savez("other.npz", z=np.zeros((4, 64), "float32"))
    refused = run(*words, "int8", "--calibration", "other.npz")
    assert refused.code == 2 and "has z; the model takes x" in refused.err


@pytest.mark.parametrize(
    "command", ["show m.onnx", "tune m.onnx --time-limit 5", "bench m.onnx", "build m.onnx -o m.so"]
)
def test_values_that_decide_a_graph_are_asked_for(run, tmp_path, command):
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("axes", TensorProto.INT64, [1]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x", "axes"], ["y"])], "g", inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "m.onnx")
    done = run(*command.split())
    assert done.code == 1 and "bug" not in done.err and "Traceback" not in done.err
    told = " ".join(done.err.split())
    assert re.search(r"depends on (the )?values of .*constants=\{'axes': …\}", told), told
