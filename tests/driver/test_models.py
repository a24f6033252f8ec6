"""Models: what is built, how it is called, what a library of it does in a C program, and what stays on the disk."""

from __future__ import annotations

import ctypes
import json
import math
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tuning_db
from tilewright.codegen import Target, lower
from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.llvm.jit import JITError
from tilewright.codegen.runtime.export import ExportError
from tilewright.driver import BuildError, ModelTuningInterrupted, NoRecordError, TuneError, benching, graph_services
from tilewright.driver.building import recorded
from tilewright.driver.models import kernel_building, model_building, model_tuning
from tilewright.driver.models.model_building import build_graph, kernel_jobs
from tilewright.graph import Builder, evaluate, fuse, prepare

ONE = "native -num-cores=1"


def whole(rng, *shape):
    """Whole numbers, so that sums of floats are exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


def layers(sizes=(16, 17, 13), rows=7, name="net"):
    """Dense layers with a relu after each. The result of the last but one is an output as well."""
    rng = np.random.default_rng(0)
    b = Builder(name)
    values = [b.input("x", (rows, sizes[0]))]
    for wide, narrow in zip(sizes, sizes[1:], strict=False):
        w = b.constant(whole(rng, narrow, wide), "w")
        values.append(b.op("relu", b.op("add", b.op("dense", values[-1], w), b.constant(whole(rng, narrow), "bias"))))
    return b.graph([values[-1], values[-2]] if len(values) > 2 else [values[-1]])


@pytest.fixture(scope="module")
def built():
    return tw.build(layers(), ONE)


def test_calls_in_every_form(built):
    x = whole(np.random.default_rng(1), 7, 16)
    want = evaluate(layers(), x)
    mine = np.empty((7, 13), np.float32), np.empty((7, 17), np.float32)
    for got in (built(x), built(x=x), built(x, out=mine), built(x=x, out=list(mine))):
        for a, expected in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, expected)
    assert built(x, out=mine)[0] is mine[0]
    assert built(x)[0] is not built(x)[0]


def test_what_a_model_says(built):
    assert repr(built).startswith(
        "<Model net(x: float32[7, 16]) -> float32[7, 13], float32[7, 17]: 2 kernels (2 default) for"
    )
    assert set(built.origins) == {"dense_relu", "dense_relu_1"}
    assert built.constant_bytes >= 4 * (16 * 17 + 17 * 13 + 17 + 13)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda f, x: f(), TypeError, r"net takes 1 inputs \(x: float32\[7, 16\]\), not 0: x is not given"),
        (lambda f, x: f(x, x), TypeError, "net takes 1 inputs .*, not 2"),
        (lambda f, x: f(y=x), TypeError, "none is called y"),
        (lambda f, x: f(x, x=x), TypeError, "x is given by position and by name"),
        (lambda f, x: f(x[:3]), ValueError, r"argument 0 \(x\): expected .*7"),
        (lambda f, x: f(x[0]), ValueError, "expected 2 dimensions"),
        (lambda f, x: f(x.astype(np.float64)), ValueError, "expected dtype float32, got float64"),
        (lambda f, x: f(x, out=x), ValueError, "net has 2 outputs; out= has 1 arrays"),
        (lambda f, x: f(x, out=(x, x)), ValueError, "argument 1"),
    ],
)
def test_wrong_inputs_are_explained(built, call, error, message):
    with pytest.raises(error, match=message):
        call(built, np.zeros((7, 16), np.float32))


def test_profile(built):
    profile = built.profile(np.zeros((7, 16), np.float32), repeat=2)
    assert {row.name for row in profile.rows} == set(built.origins) and all(row.calls == 1 for row in profile.rows)
    assert profile.seconds > 0 and [row.seconds for row in profile.rows] == sorted(
        [row.seconds for row in profile.rows], reverse=True
    )
    text = str(profile)
    assert "GFLOP/s" in text and "dense_relu_1" in text and "net: 2 calls of kernels" in text
    assert profile.rows[0].as_dict()["gflops"] > 0


def test_several_threads_call_one_model(built):
    rng = np.random.default_rng(2)
    inputs = [whole(rng, 7, 16) for _ in range(4)]
    want = [built(x) for x in inputs]
    wrong = []

    def work(k):
        for _ in range(50):
            if not all(np.array_equal(a, b) for a, b in zip(built(inputs[k]), want[k], strict=True)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_build_takes_graphs_files_and_models_in_memory(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 3]) for n in ("x", "y")]
    proto = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    onnx.save(proto, tmp_path / "m.onnx")
    x = np.array([[-1, 2, -3]], np.float32)
    for what in (proto, tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        f = tw.build(what, ONE, shapes={"x": (1, 3)}, name="step")
        np.testing.assert_array_equal(f(x), [[0, 2, 0]])
        assert f.name == "step"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"bound": {}}, TypeError, "build\\(\\) takes no 'bound'; did you mean bounds?"),
        ({"shapes": {}}, TypeError, "a graph takes no shapes"),
        ({"args": [1]}, TypeError, "args for a model"),
        ({"bounds": {"n": 3}}, BuildError, "net has no symbolic size n"),
        ({"require_tuned": True}, NoRecordError, "the kernel dense_relu.*no database was given"),
    ],
)
def test_options_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        tw.build(layers(), ONE, **options)


def test_a_record_that_does_not_apply_is_no_tuned_kernel(monkeypatch, tmp_path):
    trace = '{"format": 1, "insts": [{"name": "get_block", "args": {"name": "nowhere"}, "out": "b0"}]}'
    monkeypatch.setattr(model_building, "_recorded", lambda *_: [("a record", trace)])
    with tuning_db.open_database(tmp_path / "t.db"):
        pass
    with pytest.raises(BuildError, match="the kernel dense_relu.*no record of it applies"):
        tw.build(layers(), ONE, db=tmp_path / "t.db", require_tuned=True)
    assert "does not apply" in str(tw.build(layers(), ONE, db=tmp_path / "t.db").origins)


def test_options_of_models_are_for_models():
    with pytest.raises(TypeError, match="bounds for models only"):
        tw.build("relu:M=1,N=4", bounds={})


def test_a_front_end_of_a_package(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.odd").touch()

    class Entry:
        name, dist = ".odd", None

        def load(self):
            return lambda path: layers(name=path.split(".")[0])

    monkeypatch.setattr(model_building, "entry_points", lambda group: [Entry()])
    monkeypatch.setattr(model_building, "_found", [])
    assert model_building.is_model("some.odd") and not model_building.is_model("matmul:M=1")
    assert model_building.load_model("some.odd").name == "some"


def test_symbolic_sizes_need_bounds():
    n = te.var("n")
    b = Builder()
    x = b.input("x", (n, 3))
    graph = b.graph([b.op("softmax", b.op("matmul", x, b.constant(np.eye(3, dtype=np.float32))))])
    with pytest.raises(BuildError, match="n has no bound; give the largest value of each symbolic size with bounds="):
        tw.build(graph, ONE)
    f = tw.build(graph, ONE, bounds={"n": 16})
    for rows in (1, 7, 16):
        x = whole(np.random.default_rng(rows), rows, 3)
        np.testing.assert_allclose(f(x), evaluate(graph, x)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match=r"n must be in 0\.\.16"):
        f(np.zeros((17, 3), np.float32))


# -- the disk, and other processes


def test_a_kernel_is_kept_and_shared_between_models(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    count, build_kernel = [], kernel_building.build_kernel
    monkeypatch.setattr(kernel_building, "build_kernel", lambda job: count.append(1) or build_kernel(job))
    first = tw.build(layers((16, 17, 17, 17), name="first"), ONE)
    assert len(count) == 2  # three layers, two kernels
    x = whole(np.random.default_rng(1), 7, 16)
    again = tw.build(layers((16, 17), name="second"), ONE)
    assert len(count) == 2 and again.steps[0].built.symbol == first.steps[0].built.symbol
    np.testing.assert_array_equal(again(x), evaluate(layers((16, 17)), x)[0])


def test_kernels_are_built_in_other_processes(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    graph = layers((16, 17, 13, 7, 1))
    seen = []
    f = tw.build(graph, ONE, processes=1, note=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)
    x = whole(np.random.default_rng(1), 7, 16)
    np.testing.assert_array_equal(f(x)[0], evaluate(graph, x)[0])


def test_a_kernel_that_a_process_cannot_build_is_built_here(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_building, "WORKER", "tilewright.no_such_module")
    graph = layers((16, 17, 13, 7, 1))
    assert len(build_graph(graph, ONE, processes=2).steps) == 4


def test_records_are_used(tmp_path):
    graph = layers((16, 17), name="net")
    (kernel,) = fuse(prepare(graph)).kernels
    db = tmp_path / "tuning.db"
    assert tw.tune(kernel.func, ONE, trials=3, db=db).best is not None
    f = tw.build(graph, ONE, db=db, require_tuned=True)
    assert f.steps[0].built.kind == "tuned" and f.origins["dense_relu"].startswith("record ")
    x = whole(np.random.default_rng(1), 7, 16)
    np.testing.assert_array_equal(f(x), evaluate(graph, x)[0])
    with tw.Database(db) as opened:
        assert list(recorded(opened, kernel.func, Target(ONE)))


def test_a_schedule_that_does_not_apply_is_left_out():
    (kernel,) = fuse(prepare(layers((16, 17)))).kernels
    job = kernel_building.job_for(kernel, Target(ONE), [("record 7", '{"insts": [], "decisions": []}')])
    odd = kernel_building.job_for(kernel, Target(ONE), [("record 7", "not a trace")])
    assert job.symbol != odd.symbol
    made = kernel_building.build_kernel(odd)
    assert made.kind == "default" and made.origin.startswith("record 7 does not apply to")


def test_names_of_values_do_not_make_another_kernel():
    b = Builder("other")
    x, weight = b.input("activations", (7, 16)), b.constant(np.ones((17, 16), np.float32), "weight")
    y = b.op(
        "relu", b.op("add", b.op("dense", x, weight, name="p"), b.constant(np.ones(17, np.float32), "b"), name="q")
    )
    graphs = layers((16, 17)), b.graph([y])
    jobs = [job for g in graphs for ((_, job),) in kernel_jobs(fuse(prepare(g)), Target(ONE)).values()]
    assert jobs[0].key == jobs[1].key


# -- export

BESIDE = ["net.h", "net.hpp", "net.pc", "netConfig.cmake", "netConfigVersion.cmake"]

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"

static float x[2][7 * 16], y[2][7 * 13], z[2][7 * 17];
static int failed[2];

static void *work(void *arg) {
  int k = *(int *)arg;
  void *space = k ? aligned_alloc(64, (NET_WORKSPACE_BYTES + 63) / 64 * 64) : NULL;
  for (int i = 0; i < 100; i++) failed[k] |= net(x[k], y[k], z[k], space);
  free(space);
  return NULL;
}

int main(int count, char **words) {
  pthread_t threads[2];
  int which[2] = {0, 1};
  LOAD
  if (fread(x, sizeof x, 1, stdin) != 1) return 2;
  for (int k = 0; k < 2; k++) pthread_create(&threads[k], NULL, work, &which[k]);
  for (int k = 0; k < 2; k++) pthread_join(threads[k], NULL);
  fwrite(y, sizeof y, 1, stdout);
  fwrite(z, sizeof z, 1, stdout);
  return failed[0] || failed[1];
}
"""


@pytest.mark.parametrize("constants", ["inside", "beside"])
def test_a_c_program_runs_the_library_in_two_threads(tmp_path, constants, built):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    files = built.export(tmp_path / "net.so", constants=constants)
    beside = constants == "beside"
    assert [f.name for f in files] == ["net.so", *(["net.weights"] if beside else []), *BESIDE]
    load = 'if (net(x[0], y[0], z[0], NULL) != -6 || net_load("absent") != 1 || net_load(words[0]) != 2) return 3;'
    load += "if (net_load(words[1])) return 4;"
    (tmp_path / "main.c").write_text(PROGRAM.replace("LOAD", load if beside else ""))
    command = [compiler, "main.c", "-o", "main", "-L.", "-l:net.so", "-lpthread", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    x = whole(np.random.default_rng(3), 2, 7, 16)
    done = subprocess.run(["./main", "net.weights"], cwd=tmp_path, input=x.tobytes(), capture_output=True, check=True)
    y, z = np.split(np.frombuffer(done.stdout, np.float32), [2 * 7 * 13])
    for k in range(2):
        want = built(x[k])
        np.testing.assert_array_equal(y.reshape(2, 7, 13)[k], want[0])
        np.testing.assert_array_equal(z.reshape(2, 7, 17)[k], want[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the symbols of an ELF library")
def test_a_library_shows_its_entry_only(tmp_path, built):
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("no nm")
    built.export(tmp_path / "net.so", "other")
    shown = subprocess.run([nm, "-D", "--defined-only", "net.so"], cwd=tmp_path, capture_output=True, text=True).stdout
    names = [line.split()[-1] for line in shown.splitlines()]
    assert [n for n in names if not n.startswith("tilewright_runtime_")] == ["other", "tilewright_description"]
    assert "int32_t other(const float* x, float* " in (tmp_path / "net.h").read_text()
    assert f"#define OTHER_WORKSPACE_BYTES {built.workspace_bytes or 1}" in (tmp_path / "net.h").read_text()


def test_a_library_with_line_tables_is_the_same_code(tmp_path, built):
    objdump = shutil.which("objdump")
    if objdump is None or not any(map(shutil.which, ("cc", "gcc", "clang", "ld"))):
        pytest.skip("needs objdump and a linker")
    files = built.export(tmp_path / "net.so", debug_info=True)
    assert [f.name for f in files] == ["net.so", *BESIDE, "net.tir"]
    said = subprocess.run([objdump, "--dwarf=decodedline", "net.so"], cwd=tmp_path, capture_output=True, text=True)
    lines = (tmp_path / "net.tir").read_text().splitlines()
    told = {lines[int(n) - 1].strip() for n in re.findall(r"^net\.tir\s+(\d+) ", said.stdout, re.MULTILINE)}
    kernels = {step.built.symbol for step in built.steps}
    assert kernels <= {name for line in told for name in re.findall(r"def (\w+)\(", line)}
    assert any("=" in line and "[" in line for line in told)
    with_lines, plain = tmp_path / "net.so", tmp_path / "plain.so"
    built.export(plain)
    x, results = whole(np.random.default_rng(3), 7, 16), []
    for path in (with_lines, plain):
        y, z = np.zeros((7, 13), np.float32), np.zeros((7, 17), np.float32)
        assert (
            getattr(ctypes.CDLL(str(path)), path.stem.replace("plain", "net"))(*[v.ctypes for v in (x, y, z)], None)
            == 0
        )
        results.append((y.tobytes(), z.tobytes()))
    assert results[0] == results[1] == tuple(np.asarray(v).tobytes() for v in built(x))


def test_exports_that_are_refused(built, tmp_path):
    with pytest.raises(ExportError, match="a model has them as a library"):
        built.export(tmp_path / "net.c", debug_info=True)
    with pytest.raises(ExportError, match="it becomes a shared library, .so"):
        built.export(tmp_path / "net.o")
    with pytest.raises(ValueError, match="inside"):
        built.export(tmp_path / "net.so", constants="elsewhere")


def test_a_model_for_another_machine_is_built_and_not_run():
    f = tw.build(layers((16, 17)), "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=1")
    with pytest.raises(JITError, match="this model is for llvm"):
        f(np.zeros((7, 16), np.float32))


def test_constants_are_held_once(built):
    """A weight that is packed is not there in its own layout as well."""
    sizes = [p.size for step in built.steps for p in step.built.packs.values()]
    plain = 4 * (16 * 17 * (len(sizes) < 2) + 17 + 13)
    assert sizes and built.constant_bytes <= sum(sizes) + plain + 64 * 4


def test_calls_between_kernels_are_plain_calls(built):
    """The entry loads nothing and stores nothing between two kernels: a call, a comparison, a branch."""
    lowered = lower(built._parts.entry, built.target, "calls")
    body = emit(lowered)
    assert body.count("call i32 @tw_") == 2 and "alloca" not in body and "tw_parallel_for" not in body


# -- tuning


def test_a_model_is_tuned_kernel_by_kernel(tmp_path, monkeypatch):
    """Two equal layers are one kernel with two calls; what is on record is not measured again, nor for another model.
    Sessions keep versions, and the machine's limits where these are known."""
    limits = {"roofline_seconds": 1e-9, "peak_flops": 1e11, "bandwidth": 1e10, "limited_by": "memory"}
    monkeypatch.setattr(model_tuning, "known_report", lambda target: object())
    monkeypatch.setattr(model_tuning, "model_of", lambda report, target: None)
    monkeypatch.setattr(model_tuning, "limits_of", lambda report, func, target: limits)
    db = tmp_path / "tuning.db"
    seen = []
    result = tw.tune(layers((16, 17, 17, 17)), ONE, db=db, trials=3, callbacks=[seen.append])
    assert [(k.calls, k.trials) for k in sorted(result.kernels, key=lambda k: k.calls)] == [(1, 3), (2, 3)]
    assert result.stopped == "trials" and result.trials == 6 and 0 < result.seconds <= result.default_seconds
    assert seen[-1].measured == seen[-1].kernels == 2 and 0 < seen[-1].seconds <= seen[-1].default_seconds
    with tw.Database(db) as opened:
        first = {(r.workload, r.trace) for r in opened.records()}
        sessions = opened.sessions()
        assert all("tilewright" in s.versions and s.status == "done" and s.ended for s in sessions)
        assert {s.roofline_seconds for s in sessions} == {1e-9}
        again = tw.tune(layers((16, 17, 17), name="other"), ONE, db=opened, trials=2)
        both = [(r.workload, r.trace) for r in opened.records()]
    assert again.seconds < math.inf and again.trials == 4
    assert len(both) == len(set(both)) > len(first)
    f = tw.build(layers((16, 17, 17)), ONE, db=db, require_tuned=True)
    assert f.origin == "2 kernels (2 tuned)"


def test_the_time_goes_where_a_model_gains_most(monkeypatch):
    tuning = model_tuning._Tuning(layers(), Target(ONE), None, model_tuning.ModelTuneOptions())
    first, second = tuning.tasks
    monkeypatch.setattr(model_tuning.KernelTask, "seconds", property(lambda t: 1e-6))
    assert tuning._next() is first
    for task in tuning.tasks:
        task._session = object()
    for gains, chosen in [((1.0, 2.0), second), ((3.0, 2.0), first)]:
        first.expected_gain, second.expected_gain = gains
        assert tuning._next() is chosen
    first.done = "no further gain was expected"
    assert tuning._next() is second
    second.calls = 0  # a negligible part of the model
    assert tuning._next() is None


def test_a_kernel_is_done_at_a_share_of_the_roofline(monkeypatch):
    task = model_tuning.kernel_tasks(layers((16, 17)), Target(ONE), 8)[0]
    task.floor = 0.8e-6
    monkeypatch.setattr(model_tuning.KernelTask, "seconds", property(lambda t: 1e-6))
    task.finish(0.9)
    assert not task.done
    task.finish(0.8)
    assert task.done == "it reaches 80% of the roofline"


@pytest.mark.parametrize("stop", ["callback", "interrupt"])
def test_tuning_a_model_is_stopped(tmp_path, stop):
    def now(progress):
        if stop == "interrupt":
            raise KeyboardInterrupt
        progress.stop()

    def run():
        return tw.tune(layers(), ONE, db=tmp_path / "t.db", callbacks=[lambda p: p.trials == 0 or now(p)])

    if stop == "interrupt":
        with pytest.raises(ModelTuningInterrupted, match="1 candidates were measured") as caught:
            run()
        result = caught.value.result
    else:
        result = run()
    assert result.stopped == ("interrupted" if stop == "interrupt" else "stopped")
    with tw.Database(tmp_path / "t.db") as opened:
        assert opened.count("records") == result.trials >= 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tw.tune(layers(), ONE, trial=3), TypeError, "tune\\(\\) takes no 'trial'; did you mean trials?"),
        (lambda: tw.tune(layers(), ONE, args=[1]), TypeError, "args for a model"),
        (lambda: tw.tune(layers(), "llvm -mtriple=aarch64-linux-gnu"), TuneError, "this machine cannot run"),
    ],
)
def test_tuning_that_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- timing


def test_bench_times_models_in_turns(tmp_path):
    db = tmp_path / "t.db"
    tw.tune(layers((16, 17)), ONE, db=db, trials=1)
    result = tw.bench(layers((16, 17)), ONE, db=db, rounds=2, round_seconds=1e-4, profile=True)
    assert [row.name for row in result.rows] == ["default", "tuned"] == list(result.profiles)
    assert all(row.seconds > 0 and not row.error for row in result.rows)
    assert result.profiles["tuned"].rows[0].kind == "tuned" and result.speedup(result.rows[0]) is None
    assert json.loads(json.dumps(result.as_dict()))["profiles"]["tuned"][0]["calls"] == 1
    again = tw.bench(layers((16, 17)), ONE, rounds=1, arrays={"x": np.ones((7, 16), np.float32)}, round_seconds=1e-4)
    assert [row.name for row in again.rows] == ["default"]


def test_inputs_are_made_for_models():
    b = Builder()
    graph = b.graph([b.op("add", b.op("cast", b.input("ids", (2, 3), "int64"), dtype="float32"), b.input("x", (3,)))])
    made = benching.model_inputs(graph, {})
    assert made["ids"].dtype == np.int64 and set(made["ids"].reshape(-1)) <= {0, 1} and made["x"].shape == (3,)
    x = np.ones(3, np.float32)
    assert benching.model_inputs(graph, {"x": x})["x"] is x
    with pytest.raises(BuildError, match="has no input y; its inputs: ids, x"):
        benching.model_inputs(graph, {"y": x})
    with pytest.raises(BuildError, match=r"the input x: float32\[3\] does not take float64\[3\]"):
        benching.model_inputs(graph, {"x": np.ones(3)})


def test_a_wrong_result_is_told(monkeypatch, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in ("x.1", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x.1"], ["y"])], "g", value[:1], value[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    result = tw.bench(tmp_path / "m.onnx", ONE, rounds=1, round_seconds=1e-4)
    assert [row.name for row in result.rows] == ["default", "onnxruntime"] and not result.rows[0].error
    assert result.speedup(result.rows[0]) > 0
    monkeypatch.setattr(benching.Model, "__call__", lambda self, *a, **k: np.full((2, 3), 2, np.float32))
    told = tw.bench(tmp_path / "m.onnx", ONE, rounds=1, round_seconds=1e-4).rows[0].error
    assert told.startswith("output 0 differs from ONNX Runtime's by")


def test_predicted_times_are_kept_between_builds(monkeypatch):
    store: dict[str, bytes] = {}
    monkeypatch.setattr(graph_services, "find_object", store.get)
    monkeypatch.setattr(graph_services, "keep_object", store.__setitem__)
    machine = Target(ONE)
    b = Builder("net")
    x, w = b.input("x", (1, 3, 16, 13)), b.constant(np.ones((16, 3, 3, 3), np.float32), "w")
    graph = b.graph([b.op("conv2d", x, w, padding=1)])
    first = graph_services.prepared(graph, machine)
    assert len(store) == 1
    monkeypatch.setattr(graph_services, "Space", None)  # whoever asks the analytic model again fails
    again = graph_services.prepared(graph, machine)
    assert [n.op for n in again.nodes] == [n.op for n in first.nodes]
    with pytest.raises(TypeError):
        graph_services.prepared(graph, Target(ONE.replace("cores=1", "cores=2")))


def test_large_constants_are_folded_with_single_numbers():
    """Kernels fold what is large, and a number has no dimensions for them."""
    b = Builder("net")
    x, large = b.input("x", (400, 300)), np.arange(120_000, dtype=np.float32).reshape(400, 300)
    known = b.op("maximum", b.constant(large), b.constant(np.float32(70_000)))
    run = tw.build(b.graph([b.op("add", x, known)]), ONE)
    assert len(run.steps) == 1
    np.testing.assert_array_equal(run(np.ones((400, 300), np.float32)), 1 + np.maximum(large, 70_000))
