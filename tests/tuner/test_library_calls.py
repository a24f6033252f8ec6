"""Calls of a BLAS library as candidates: measured beside the others, on record, replayed, never chosen without a measurement."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tuner
from tilewright.codegen import Target, TargetError
from tilewright.driver.building import plan
from tilewright.graph import parse
from tilewright.schedule import Trace
from tilewright.tir.blas_calls import blas_calls
from tilewright.tuner.rules import schedule_rule
from tilewright.tuning_db import open_database

HERE = "native -num-cores=1 -libs=cblas"
try:
    LIBRARY = Target(HERE).blas_library
except TargetError as error:
    pytest.skip(str(error), allow_module_level=True)


def dense(m=96, n=80, k=64):
    A, B, bias = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B"), te.placeholder((n,), name="bias")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[j, r], axis=r), name="C")
    return te.create_prim_func([A, B, bias, te.compute((m, n), lambda i, j: C[i, j] + bias[j], name="D")])


@pytest.fixture
def few_rules(monkeypatch):
    """Without the rules that tile products, calls are the fastest candidates by far."""
    kept = [rule for rule in schedule_rule._registered if rule.name in ("cblas", "elementwise", "in_order")]
    monkeypatch.setattr(schedule_rule, "_registered", kept)


def test_calls_are_candidates_where_the_target_names_a_library():
    names = {
        target: [s.name for s in tuner.Space(dense(), target).sketches] for target in (HERE, "native -num-cores=1")
    }
    found = [name for name in names[HERE] if "cblas_C" in name]
    assert found == ["cblas_C+map_D"] and set(names[HERE]) - set(found) == set(names["native -num-cores=1"])


def test_the_analytic_model_never_chooses_a_call():
    for size in (16, 512):
        made = plan(dense(size, size, size), HERE)
        assert made.kind == "default" and not blas_calls(made.scheduled.body) and "calls" not in made.origin
    left = tuner.choose_default(tuner.Space(dense(), HERE, rules=[tuner.rules.BlasRule()]))
    assert not blas_calls(left.schedule.func.body)


def test_what_is_no_product_has_no_call():
    X, r = te.placeholder((64, 64), name="X"), te.reduce_axis((0, 64))
    func = te.create_prim_func([X, te.compute((64,), lambda i: te.sum(X[i, r], axis=r), name="Y")])
    assert not any("cblas" in sketch.name for sketch in tuner.Space(func, HERE).sketches)


def test_a_call_that_measures_faster_goes_on_record(tmp_path, few_rules):
    tw.tune(dense(), target=HERE, trials=4, db=tmp_path / "tuned.db")
    func = dense()
    module = tw.build(func, HERE, db=tmp_path / "tuned.db")
    assert module.origin.startswith("record ") and module.origin.endswith(f"calls cblas_sgemm of {LIBRARY.identity}")
    rng = np.random.default_rng(0)
    a, b, c = [rng.random(shape, dtype="float32") for shape in ((96, 64), (80, 64), 80)]
    np.testing.assert_allclose(module(a, b, c), a @ b.T + c, rtol=1e-4)
    with open_database(tmp_path / "tuned.db") as db:
        best = db.fastest(func, Target(HERE))[0]
        replayed = tuner.replay(func, Trace.from_json(best.trace))
        assert len(blas_calls(replayed.func.body)) == 1
        assert "call_blas" in replayed.trace.as_python()
    without = tw.build(func, "native -num-cores=1", db=tmp_path / "tuned.db")
    assert "calls" not in without.origin  # the record is of another target


def test_kernels_of_models_call_as_well(tmp_path, few_rules):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((64, 96)).astype("float32")
    graph = parse(
        "def net(x: float32[32, 64]):\n    w: float32[64, 96] = constant()\n    y = matmul(x, w)\n    z = relu(y)\n    return z\n",
        {"w": w},
    )
    tw.tune(graph, target=HERE, trials=6, db=tmp_path / "tuned.db")
    x = rng.standard_normal((32, 64)).astype("float32")
    for _ in range(2):  # the second one takes the kept kernel
        model = tw.build(graph, HERE, db=tmp_path / "tuned.db")
        origins = " ".join([one.built.origin for step in model.steps for one in step.versions])
        assert f"calls cblas_sgemm of {LIBRARY.identity}" in origins
        (z,) = model(x) if isinstance(model(x), tuple) else (model(x),)
        np.testing.assert_allclose(z, np.maximum(x @ w, 0), rtol=1e-4, atol=1e-4)
    model.export(tmp_path / "net.c")
    assert "TILEWRIGHT_SGEMM" in (tmp_path / "net.c").read_text()
