"""What is killed loses no record: the scheduler, the workers and the client are processes here, ended by SIGKILL."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.te import ops
from tilewright.tuner import tune
from tilewright.tuner.remote.measuring import pretend
from tilewright.tuning_db import Database

TARGET = Target("native -num-cores=1")
SPEC = "matmul:M=13,N=17,K=16"
CPU = "ash"
PATIENCE = 240.0
"""Seconds to wait for what takes two on a quiet machine: a busy one must not fail these tests."""


def product():
    a, b = te.placeholder((13, 16), name="A"), te.placeholder((16, 17), name="B")
    return te.create_prim_func([a, b, ops.matmul(a, b)])


def until(found, what):
    limit = time.monotonic() + PATIENCE
    while not (result := found()):
        assert time.monotonic() < limit, f"{what} took more than {PATIENCE:g} s"
        time.sleep(0.05)
    return result


class Cluster:
    """``dask scheduler`` and two ``tilewright worker``; :meth:`ready` starts what is not there."""

    def __init__(self, folder):
        root = str(Path(__file__).resolve().parents[3])
        paths = os.pathsep.join([root, *[p for p in sys.path if p.endswith("site-packages")]])
        self.environment = {**os.environ, "TILEWRIGHT_CPU_NAME": CPU, "PYTHONPATH": paths}
        self.folder, self.scheduler, self.workers = folder, None, []

    def start(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", *words], env=self.environment, cwd="/", start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def ready(self):
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.stop(self.workers)
            file = self.folder / "scheduler.json"
            file.unlink(missing_ok=True)
            words = ("--port", "0", "--no-dashboard", "--host", "127.0.0.1", "--scheduler-file", str(file))
            self.scheduler = self.start("distributed.cli.dask_scheduler", *words)
            until(lambda: file.exists() and file.read_text().endswith("}"), "the scheduler's start")
            self.address = json.loads(file.read_text())["address"]
        self.workers = [w for w in self.workers if w.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(self.start("tilewright", "worker", self.address))
        with self.runner() as runner:
            runner.patience = PATIENCE
            until(lambda: len(self.there(runner)) == 2, "the workers' start")
        return self

    def there(self, runner):
        """The workers that the runner sees."""
        runner.open(product(), TARGET)
        return runner.machines

    def runner(self):
        from tilewright.tuner.remote.dask_runner import DaskRunner

        return DaskRunner(f"{self.address.replace('tcp://', 'dask://')}?cpu={CPU}", answer=pretend, patience=PATIENCE)

    def stop(self, processes):
        for process in processes:
            if process is not None and process.poll() is None:
                process.kill()
            if process is not None:
                process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    pytest.importorskip("distributed", reason="Dask.distributed is not installed")
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop([*made.workers, made.scheduler])


def tune_words(cluster, path, trials):
    runner = f"{cluster.address.replace('tcp://', 'dask://')}?cpu={CPU}"
    return ["tune", SPEC, "--num-cores", 1, "--trials", trials, "--all-trials", "--runner", runner, "--db", path]


def records_of(path):
    if not Path(path).exists():
        return []
    with Database(path) as db:
        return db.records()


def test_a_search_from_the_command_line_ends_and_says_where_it_measured(cluster, tmp_path):
    cluster.ready()
    path = str(tmp_path / "tuned.db")
    client = cluster.start("tilewright", *map(str, tune_words(cluster, path, 4)))
    assert client.wait(PATIENCE) == 0
    records = records_of(path)
    assert len(records) >= 4 and all(r.ok for r in records) and {r.machine["cpu"] for r in records} == {CPU}


def test_a_killed_client_keeps_its_records_and_the_workers_go_on(cluster, tmp_path):
    cluster.ready()
    path = str(tmp_path / "killed.db")
    client = cluster.start("tilewright", *map(str, tune_words(cluster, path, 4000)))
    until(lambda: len(records_of(path)) >= 3, "measuring")
    client.send_signal(signal.SIGKILL)
    client.wait()
    with Database(path) as db:
        assert db.check() == [] and len(db.records()) >= 3
    with cluster.runner() as runner:
        runner.open(product(), TARGET)
        assert all(r.ok for r in runner.measure([f"p{n}" for n in range(4)]))


def test_a_killed_worker_loses_what_it_had_in_hand_and_comes_back(cluster):
    with cluster.ready().runner() as runner:
        runner.open(product(), TARGET)
        results = runner.measure(["p0", "!", *[f"p{n}" for n in range(2, 12)]])
        lost = [r for r in results if not r.ok]
        assert results[1] in lost and len(lost) <= 2  # a worker has two candidates in hand
        assert all(r.status == "crash" and "was lost" in r.error for r in lost)
        until(lambda: len(runner._workers()) == 2, "the worker's second start")


def killing_at(number, process, told):
    """A callback that tells numbers, and kills the process once so many were told."""

    def finished(which, result):
        told[which] = result
        if len(told) == number:
            process.send_signal(signal.SIGKILL)
            process.wait()

    return finished


def test_a_killed_nanny_leaves_the_rest_to_the_other_worker(cluster):
    cluster.ready()
    told = {}
    with cluster.runner() as runner:
        runner.open(product(), TARGET)
        results = runner.measure([f"p{n}" for n in range(24)], finished=killing_at(3, cluster.workers[0], told))
    lost = [r for r in results if not r.ok]
    assert len(told) == 24 and len(lost) <= 2 and all("was lost" in r.error for r in lost)


def test_a_killed_scheduler_ends_the_search_and_its_records_stay(cluster, tmp_path):
    from tilewright.tuner.remote.dask_runner import RemoteError

    cluster.ready()
    with Database(tmp_path / "cut.db") as db, cluster.runner() as runner:
        told = {}
        kill = killing_at(5, cluster.scheduler, told)
        with pytest.raises(RemoteError, match="the scheduler at tcp://.* was lost"):
            tune(
                product(), TARGET, trials=200, runner=runner, db=db, stop_early=False,
                callbacks=[lambda event: [kill(r.id, r) for r in event.records]],
            )  # fmt: skip
        assert [r.status for r in db.records()].count("ok") >= 5 and db.check() == []
        assert [s.status for s in db.sessions()] == ["failed"]
