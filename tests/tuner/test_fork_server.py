"""Workers are forked from a server that has imported everything; whatever happens to it, no measure is lost or wrong."""

import os
import signal
import sys
import tempfile

import pytest

from tilewright.tir.parser import parse
from tilewright.tuner.measure.process import ForkServer, WorkerDied, WorkerProcess

from .failing_candidates import GOOD, KINDS, TARGET, program, runner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

NOTHING = {"command": "drop", "job": 0}
KILLS_ITS_SERVER = program(
    "B[v] = A[v] + 1.0",
    'T.evaluate(T.call_extern("int32", "kill", T.call_extern("int32", "getppid"), 9))\n    '
    'T.evaluate(T.call_extern("int32", "pause"))',
)


@pytest.fixture(scope="module")
def made():
    with runner() as opened:
        yield opened


def test_the_worker_after_a_crash_is_a_fork_of_the_same_server(made):
    first = made.measure([GOOD])[0]
    server, worker = made._server._process.pid, made.workers[0].pid
    assert [r.status for r in made.measure([KINDS["segfault"][0], GOOD])] == ["crash", "ok"]
    assert made._server._process.pid == server and made.workers[0].pid not in (worker, server)
    assert first.ok and os.getppid() != server


@pytest.mark.parametrize("kind", ["killed from outside", "killed by a candidate"])
def test_a_server_that_is_lost_is_started_anew(made, kind):
    made.measure([GOOD])
    before = made._server._process.pid
    if kind == "killed from outside":
        os.kill(before, signal.SIGKILL)
        made._server._process.wait()
    else:
        (failed,) = made.measure([KILLS_ITS_SERVER])
        assert failed.status == "crash" and failed.run_seconds == float("inf")
    assert [r.status for r in made.measure([GOOD, KINDS["wrong"][0]])] == ["ok", "wrong_result"]
    assert made._server._process.pid != before


def test_workers_are_started_alone_where_there_is_no_server(made):
    with runner() as other:
        other._server.usable = False
        other.close()
        assert [r.status for r in other.measure([KINDS["abort"][0], GOOD])] == ["crash", "ok"]
        assert other._server._process is None


def test_a_server_that_cannot_fork_is_not_asked_again():
    server = ForkServer()
    worker = WorkerProcess(server=server)
    server.start([sys.executable, "-c", "import sys; sys.exit(2)"], dict(os.environ))
    server._process.wait()
    server.start = lambda *_: None
    assert worker.request(NOTHING, timeout=60).header["status"] == "ok"
    assert not server.usable
    worker.kill()


class Interrupted:
    """A socket of which Ctrl-C keeps one answer."""

    def __init__(self, socket):
        self.socket, self.calls = socket, 0

    def __getattr__(self, name):
        return getattr(self.socket, name)

    def recv(self, count):
        self.calls += 1
        if self.calls == 1:
            raise KeyboardInterrupt
        return self.socket.recv(count)


def test_an_answer_that_ctrl_c_kept_is_not_taken_for_the_next_one():
    worker = WorkerProcess(server=ForkServer())
    worker.request(NOTHING, timeout=60)
    worker.kill()
    open_files = len(os.listdir("/proc/self/fd"))
    worker.server._socket = Interrupted(worker.server._socket)
    with pytest.raises(KeyboardInterrupt):
        worker.start()
    worker.kill()
    assert worker.server.usable and len(os.listdir("/proc/self/fd")) <= open_files
    assert worker.request(NOTHING, timeout=60).header["status"] == "ok" and worker.alive
    worker.kill()
    worker.server.close()


def test_the_server_is_not_started_where_modules_of_the_user_may_lie(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10))  # it has no option -P
    worker = WorkerProcess(server=ForkServer())
    worker.request(NOTHING, timeout=60)
    assert os.path.samefile(f"/proc/{worker.server._process.pid}/cwd", tempfile.gettempdir())
    worker.kill()
    worker.server.close()


def test_children_are_reaped_where_the_user_s_program_ignores_their_ends():
    worker = WorkerProcess(server=ForkServer())
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        worker.request(NOTHING, timeout=60)
    finally:
        signal.signal(signal.SIGCHLD, before)
    server = worker.server._process
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        worker.receive(10.0)
    assert worker.server._process is server and server.poll() is None
    worker.kill()
    worker.server.close()


def test_children_end_with_their_server_even_when_they_are_stopped():
    worker = WorkerProcess(server=ForkServer())
    worker.request(NOTHING, timeout=60)
    os.kill(worker.pid, signal.SIGSTOP)
    status = f"/proc/{worker.pid}/status"
    worker.server.close()
    for _ in range(1000):
        if not os.path.exists(status) or "\nState:\tZ" in open(status).read():
            break
        os.sched_yield()
        signal.sigtimedwait([], 0.01)
    else:
        pytest.fail("the stopped child outlived its server")
    assert not worker.alive
    with pytest.raises(WorkerDied, match="SIGKILL"):
        worker.receive(1.0)


def test_a_forked_worker_has_a_session_and_a_limit_of_memory_of_its_own():
    worker = WorkerProcess(server=ForkServer(), memory_bytes=3 << 30)
    worker.request(NOTHING, timeout=60)
    limits = open(f"/proc/{worker.pid}/limits").read()
    assert os.getsid(worker.pid) == worker.pid != os.getsid(worker.server._process.pid)
    assert next(line.split()[3] for line in limits.splitlines() if line.startswith("Max address")) == str(3 << 30)
    worker.kill()
    worker.server.close()


def test_the_workload_opens_in_each_child(made):
    made.open(parse(GOOD), TARGET)
    assert made.measure([GOOD])[0].ok
