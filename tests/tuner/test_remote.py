"""Measuring on other machines: what a worker does with a request, and workers of Dask in this process."""

import datetime
import json
import threading

import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.te import ops
from tilewright.tuner import LocalRunner, tune
from tilewright.tuner.measure import MeasureResult
from tilewright.tuner.remote import measuring, runner_addresses, runner_for
from tilewright.tuner.remote.measuring import VERSION, Answer, Measurer, MeasureRequest, pretend
from tilewright.tuning_db import Database

TARGET = Target("native -num-cores=1")


def product(m=13, n=17, k=16):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return te.create_prim_func([a, b, ops.matmul(a, b)])


# -- without Dask --------------------------------------------------------------------------------------------------------


def test_requests_and_answers_are_text():
    request = MeasureRequest(
        product().script(), str(TARGET), ("p",), seed=3, best_seconds=0.5, limits={"run_timeout": 2.0}
    )
    assert MeasureRequest.loads(request.dumps()) == request
    answer = Answer((MeasureResult("ok", "", (1e-3, 2e-3), 0.5), MeasureResult("crash", "why")), {"host": "h"})
    assert Answer.loads(answer.dumps()) == answer


@pytest.mark.parametrize("text", ["[]", "{}", '{"results": [{"status": 1}]}', '{"programs": ["p"], "what": 1}'])
def test_other_texts_are_refused(text):
    for kind in (MeasureRequest, Answer):
        with pytest.raises(ValueError):
            kind.loads(text)
    assert Answer.loads(Measurer().answer(text)).refused == "request"


def test_a_worker_of_another_version_says_so():
    request = MeasureRequest(product().script(), str(TARGET), (), version="0.0.1, code generator 7")
    answer = Answer.loads(Measurer().answer(request.dumps()))
    assert answer.refused == "version"
    assert f"runs Tilewright {VERSION}; the client runs 0.0.1, code generator 7" in answer.reason


def test_a_request_is_measured_and_says_where():
    func, measurer = product(), Measurer()
    wrong = func.script().replace("+ A", "- A")
    try:
        answer = Answer.loads(
            measurer.answer(MeasureRequest(func.script(), str(TARGET), (func.script(), wrong)).dumps())
        )
    finally:
        measurer.close()
    assert [r.status for r in answer.results] == ["ok", "wrong_result"] and answer.results[0].times
    assert {"host", "cpu", "mhz", "load", "version"} <= answer.machine.keys()


def test_a_function_that_does_not_run_is_refused():
    func = product(500, 500, 500)
    limits = {"reference_timeout": 0.001}
    answer = Answer.loads(Measurer().answer(MeasureRequest(func.script(), str(TARGET), (), limits=limits).dumps()))
    assert answer.refused == "reference" and "takes more than 0.001 s" in answer.reason


class Entry:
    name = "mine"

    @staticmethod
    def load():
        return lambda address: LocalRunner(workers=1)


def test_packages_offer_runners(monkeypatch):
    monkeypatch.setattr(
        runner_addresses, "entry_points", lambda group: [Entry] if group == "tilewright.runners" else []
    )
    assert isinstance(runner_for("mine://somewhere"), LocalRunner) and isinstance(runner_for("local"), LocalRunner)
    with pytest.raises(ValueError, match="runner 'tapir://x': no such runner; there are local, dask.*://…, mine://…"):
        runner_for("tapir://x")


# -- one worker, several candidates --------------------------------------------------------------------------------------


class Rehearsed:
    """A runner whose candidates wait for each other: "first" is timed only while "second" is built."""

    timed, building, inside = threading.Event(), threading.Event(), []

    def __init__(self, *, timing, **_):
        self.timing = timing

    def open(self, *_, **__):
        pass

    def twin(self):
        return Rehearsed(timing=self.timing)

    def measure(self, programs, **_):
        (program,) = programs
        if program == "second":
            assert self.timed.wait(20), "nothing was timed while this was built"
            self.building.set()
        with self.timing([]):
            self.inside.append(program)
            assert self.inside == [program], "two candidates were timed at once"
            self.timed.set()
            assert self.building.wait(20), "nothing was built while this was timed"
            self.inside.remove(program)
        return [MeasureResult("ok", "", (1e-3,))]


def test_candidates_are_built_while_another_is_timed_alone(monkeypatch):
    monkeypatch.setattr(measuring, "LocalRunner", Rehearsed)
    monkeypatch.setattr(measuring, "places", lambda: 3)
    monkeypatch.setattr(measuring, "split_cores", lambda needed: ([0], [1]))
    measurer, func = Measurer(), product().script()
    texts = [MeasureRequest(func, str(TARGET), (name,)).dumps() for name in ("first", "second", "third", "fourth")]
    answers = []
    threads = [
        threading.Thread(target=lambda t=text: answers.append(measurer.answer(t)), daemon=True) for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [r.status for text in answers for r in Answer.loads(text).results] == ["ok"] * 4


@pytest.mark.parametrize("cores, needed, split", [
    ([0, 1, 2, 3], 1, ([0, 1, 2], [3])), ([2, 5, 7], 2, ([2], [5, 7])), ([0, 1], 2, ([], [])), ([4], 1, ([], [])),
])  # fmt: skip
def test_cores_to_build_on_and_to_time_on(monkeypatch, cores, needed, split):
    monkeypatch.setattr(measuring.os, "sched_getaffinity", lambda pid: set(cores))
    monkeypatch.setattr(measuring, "available_cores", lambda: len(cores))
    assert measuring.split_cores(needed) == split


# -- with Dask -----------------------------------------------------------------------------------------------------------


def cluster_of(dask, *cpus, protocol="tcp://", **options):
    """A scheduler and workers in this process; the resources say which CPUs they have. ``options``: of all of them."""

    def worker(cpu):
        offered = {"build": 2, f"measure:{cpu}": 1}
        return {"cls": dask.Worker, "options": {"nthreads": 3, "resources": offered, "memory_limit": 0, **options}}

    address = {"port": 0, "host": "127.0.0.1", "protocol": protocol}
    scheduler = {
        "cls": dask.Scheduler,
        "options": {"dashboard": False, "dashboard_address": ":0", **address, **options},
    }
    return dask.SpecCluster({n: worker(cpu) for n, cpu in enumerate(cpus)}, scheduler, silence_logs=50, **options)


@pytest.fixture(scope="module")
def dask():
    return pytest.importorskip("distributed", reason="Dask.distributed is not installed")


@pytest.fixture(scope="module")
def cluster(dask):
    with cluster_of(dask, "oak", "oak", "elm") as made:
        yield made


def dask_runner(cluster, cpu, **options):
    from tilewright.tuner.remote.dask_runner import DaskRunner

    address = cluster.scheduler_address.replace("tcp://", "dask://").replace("tls://", "dask+tls://")
    return DaskRunner(f"{address}?cpu={cpu}", **{"patience": 2.0, **options})


def addresses(cluster, *numbers):
    return {cluster.workers[n].address for n in numbers}


@pytest.mark.parametrize("cpu, workers", [("oak", (0, 1)), ("elm", (2,))])
def test_candidates_go_to_the_cpu_that_was_named(cluster, cpu, workers):
    told = []
    with dask_runner(cluster, cpu, answer=pretend) as runner:
        runner.open(product(), TARGET)
        results = runner.measure([f"p{n}" for n in range(8)], finished=lambda n, r: told.append(n))
        assert set(runner.machines) == addresses(cluster, *workers)
    assert all(r.ok for r in results) and sorted(told) == list(range(8))


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
        dask_runner(cluster, "yew", patience=0.1) as runner,
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


def test_a_real_kernel_is_tuned_through_a_worker_and_records_say_where(cluster, tmp_path):
    with Database(tmp_path / "remote.db") as db, dask_runner(cluster, "elm") as runner:
        result = tune(product(), TARGET, trials=4, runner=runner, db=db, final_race=0)
        records = db.records(result.func)
    assert result.best is not None and len(records) == len(result.records) >= 4
    for record in records:
        assert {"host", "cpu", "mhz", "load", "version", "python"} <= record.machine.keys()


# -- certificates --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A key and a certificate that vouches for itself, as files."""
    x509 = pytest.importorskip("cryptography.x509", reason="cryptography is not installed")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tuners")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(hours=1))
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
        key, hashes.SHA256()
    )
    place = tmp_path_factory.mktemp("tls")
    pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (place / "key.pem").write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))
    (place / "cert.pem").write_bytes(made.public_bytes(pem))
    return str(place / "cert.pem"), str(place / "key.pem")


def test_workers_with_certificates_answer_those_who_have_one_too(dask, certificate):
    import dask as configured

    from tilewright.tuner.remote.dask_runner import RemoteError

    cert, key = certificate
    tls = "distributed.comm.tls"
    mine = {f"{tls}.ca-file": cert, f"{tls}.client.cert": cert, f"{tls}.client.key": key}
    secure = dask.Security(
        tls_ca_file=cert, require_encryption=True, **{f"tls_{role}_{what}": path for role in ("client", "scheduler", "worker")
        for what, path in (("cert", cert), ("key", key))},
    )  # fmt: skip
    with cluster_of(dask, "oak", security=secure, protocol="tls://") as cluster:
        with configured.config.set(mine), dask_runner(cluster, "oak", answer=pretend) as runner:
            runner.open(product(), TARGET)
            assert runner.measure(["p0"])[0].ok and runner.address.startswith("tls://")
        plain = dask_runner(cluster, "oak", answer=pretend)
        plain.address = plain.address.replace("tls://", "tcp://")
        with configured.config.set({"distributed.comm.timeouts.connect": 1}), plain as runner:
            with pytest.raises(RemoteError, match="no scheduler answers at tcp://"):
                runner.open(product(), TARGET)
