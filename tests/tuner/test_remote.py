"""Measuring on other machines: workers of Dask in processes of their own, with CPUs of made-up names."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.te import ops
from tilewright.tuner import LocalRunner, tune
from tilewright.tuner.measure import MeasureResult
from tilewright.tuner.remote import runner_choice, runner_for
from tilewright.tuner.remote.measuring import Measurer
from tilewright.tuner.remote.payload import VERSION, Answer, Request
from tilewright.tuner.remote.stand_in import pretend
from tilewright.tuning_db import Database

TARGET = Target("native -num-cores=1")


def product(m=13, n=17, k=16):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, ops.matmul(a, b)])


# -- without Dask --------------------------------------------------------------------------------------------------------


def test_requests_and_answers_are_text():
    request = Request(product().script(), str(TARGET), ("p",), seed=3, best_seconds=0.5, limits={"run_timeout": 2.0})
    assert Request.loads(request.dumps()) == request
    answer = Answer((MeasureResult("ok", "", (1e-3, 2e-3), 0.5), MeasureResult("crash", "why")), {"host": "h"})
    assert Answer.loads(answer.dumps()) == answer


@pytest.mark.parametrize("text", ["[]", "{}", '{"results": [{"status": 1}]}', '{"programs": ["p"], "what": 1}'])
def test_other_texts_are_refused(text):
    for kind in (Request, Answer):
        with pytest.raises(ValueError):
            kind.loads(text)
    assert Answer.loads(Measurer().answer(text)).refused == "request"


def test_a_worker_of_another_version_says_so():
    request = Request(product().script(), str(TARGET), (), version="0.0.1, code generator 7")
    answer = Answer.loads(Measurer().answer(request.dumps()))
    assert answer.refused == "version"
    assert f"runs Tilewright {VERSION}; the client runs 0.0.1, code generator 7" in answer.reason


def test_a_request_is_measured_and_says_where():
    func, measurer = product(), Measurer()
    wrong = func.script().replace("+ A", "- A")
    try:
        answer = Answer.loads(measurer.answer(Request(func.script(), str(TARGET), (func.script(), wrong)).dumps()))
    finally:
        measurer.close()
    assert [r.status for r in answer.results] == ["ok", "wrong_result"] and answer.results[0].times
    assert {"host", "cpu", "mhz", "load", "version"} <= answer.machine.keys()


def test_a_function_that_does_not_run_is_refused():
    func = product(500, 500, 500)
    limits = {"reference_timeout": 0.001}
    answer = Answer.loads(Measurer().answer(Request(func.script(), str(TARGET), (), limits=limits).dumps()))
    assert answer.refused == "reference" and "takes more than 0.001 s" in answer.reason


class Entry:
    name = "mine"

    @staticmethod
    def load():
        return lambda address: LocalRunner(workers=1)


def test_packages_offer_runners(monkeypatch):
    monkeypatch.setattr(runner_choice, "entry_points", lambda group: [Entry] if group == "tilewright.runners" else [])
    assert isinstance(runner_for("mine://somewhere"), LocalRunner) and isinstance(runner_for("local"), LocalRunner)
    with pytest.raises(ValueError, match="--runner tapir://x: no such runner; there are local, dask.*://…, mine://…"):
        runner_for("tapir://x")


# -- with Dask -----------------------------------------------------------------------------------------------------------


class Cluster:
    """A scheduler in this process, and ``tilewright worker`` in processes of their own."""

    def __init__(self, dask):
        self.dask, self.workers = dask, []
        self.inner = dask.LocalCluster(n_workers=0, scheduler_port=0, dashboard_address=None, processes=True)
        self.address = self.inner.scheduler_address.replace("tcp://", "dask://")

    def add(self, cpu):
        root = str(Path(__file__).resolve().parents[3])
        paths = os.pathsep.join([root, *[p for p in sys.path if p.endswith("site-packages")]])
        environment = {**os.environ, "TILEWRIGHT_CPU_NAME": cpu, "PYTHONPATH": paths}
        command = [sys.executable, "-m", "tilewright", "worker", self.inner.scheduler_address]
        self.workers.append(
            subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True)
        )

    def wait(self, count):
        until = time.monotonic() + 60
        with self.dask.Client(self.inner, set_as_default=False) as client:
            while len(client.scheduler_info(n_workers=-1)["workers"]) < count:
                assert time.monotonic() < until, "the workers did not start"
                time.sleep(0.1)

    def close(self):
        for worker in self.workers:
            worker.terminate()
        self.inner.close()
        for worker in self.workers:
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()


@pytest.fixture(scope="module")
def cluster():
    dask = pytest.importorskip("distributed", reason="Dask.distributed is not installed")
    made = Cluster(dask)
    for cpu in ("oak", "oak", "elm"):
        made.add(cpu)
    made.wait(3)
    yield made
    made.close()


def dask_runner(cluster, cpu, **options):
    from tilewright.tuner.remote.dask_runner import DaskRunner

    return DaskRunner(f"{cluster.address}?cpu={cpu}", patience=2.0, **options)


@pytest.mark.parametrize("cpu, workers", [("oak", 2), ("elm", 1)])
def test_candidates_go_to_the_cpu_that_was_named(cluster, cpu, workers):
    told = []
    with dask_runner(cluster, cpu, answer=pretend) as runner:
        runner.open(product(), TARGET)
        results = runner.measure([f"p{n}" for n in range(8)], finished=lambda n, r: told.append(n))
        facts = list(runner.machines.values())
    assert all(r.ok for r in results) and sorted(told) == list(range(8))
    assert len(facts) == workers and {f["cpu"] for f in facts} == {cpu} and len({f["pid"] for f in facts}) == workers


def test_the_candidates_of_a_seed_do_not_depend_on_the_number_of_workers(cluster):
    found = []
    for cpu in ("oak", "elm"):
        with dask_runner(cluster, cpu, answer=pretend) as runner:
            result = tune(product(64, 64, 64), TARGET, trials=16, seed=3, runner=runner, final_race=0, stop_early=False)
            found.append([(r.sketch, json.dumps(r.decisions), r.run_seconds) for r in result.records])
    assert sorted(found[0]) == sorted(found[1]) and len(found[0]) == 16


def test_no_worker_of_a_cpu_says_which_there_are(cluster):
    from tilewright.tuner.remote.dask_runner import RemoteError

    with (
        pytest.raises(
            RemoteError, match="no worker offers measure:yew at tcp://.*; there are measure:elm, measure:oak"
        ),
        dask_runner(cluster, "yew") as runner,
    ):
        runner.open(product(), TARGET)


def test_a_worker_of_another_version_is_refused_by_name(cluster, monkeypatch):
    from tilewright.tuner.remote import dask_runner as module

    monkeypatch.setattr(module, "VERSION", "9.9.9, code generator 1")
    with (
        pytest.raises(module.RemoteError, match=r"the worker \S+ \(tcp://.*\) runs Tilewright .*; this is 9.9.9, code"),
        dask_runner(cluster, "elm") as runner,
    ):
        runner.open(product(), TARGET)


def test_a_real_kernel_is_tuned_through_a_worker(cluster, tmp_path):
    with Database(tmp_path / "remote.db") as db, dask_runner(cluster, "elm") as runner:
        result = tune(product(), TARGET, trials=4, runner=runner, db=db, final_race=0)
        assert result.best is not None and len(db.records(result.func)) == len(result.records) >= 4


def test_a_lost_worker_loses_its_candidate_only(cluster):
    """The nanny starts the worker again; nothing is measured twice."""
    with dask_runner(cluster, "oak", answer=pretend) as runner:
        runner.patience = 30.0
        runner.open(product(), TARGET)
        results = runner.measure(["p0", "!", *[f"p{n}" for n in range(2, 8)]])
    assert [n for n, r in enumerate(results) if not r.ok] == [1]
    assert results[1].status == "crash" and "was lost" in results[1].error
    assert np.isfinite([r.run_seconds for r in results if r.ok]).all()
