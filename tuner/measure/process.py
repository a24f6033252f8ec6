"""A WorkerProcess starts one worker, sends it messages, waits for answers with a deadline, and kills it.

The worker is ``python -m`` of a module that calls :func:`.serving.serve`, never a fork of this process: that would inherit locks
and threads of whatever the user's program runs. It may be the fork of such a worker that waits (:mod:`.fork_server`). It
runs in a session of its own, so that Ctrl-C reaches only the tuner.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from .fork_server import ForkedWorker, ForkServer, ServerLost
from .protocol import Message, MessageReader, ProtocolError, encode


class WorkerDied(Exception):
    """The worker process is gone; the text says how it ended."""


class WorkerProcess:
    """A worker that is started at the first message and started anew after it was killed or died.

    ``module``: what it runs, by default the worker that measures. ``server``: forks the workers, where it works.
    """

    def __init__(
        self,
        *,
        memory_bytes: int | None = None,
        environment: Mapping[str, str] | None = None,
        module: str = "tilewright.tuner.measure.measuring_worker",
        server: ForkServer | None = None,
    ) -> None:
        self.memory_bytes, self.module, self.server = memory_bytes, module, server
        self.environment = dict(environment or {})
        self.jobs = 0
        self._process: subprocess.Popen[bytes] | ForkedWorker | None = None
        self._reader = MessageReader()
        self._stderr: Any = None

    @property
    def alive(self) -> bool:
        """Returns whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Returns the process id while it runs."""
        return self._process.pid if self._process is not None and self.alive else None

    def start(self) -> None:
        """Start the process unless it runs."""
        if self.alive:
            return
        self.kill()
        environment = {
            **os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1",
            **self.environment,
        }  # fmt: skip
        command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
        command += ["-m", self.module, str(os.getpid()), str(self.memory_bytes or 0)]
        self._stderr = tempfile.TemporaryFile()
        self._reader = MessageReader()
        self.jobs = 0
        folder = tempfile.gettempdir() if sys.version_info < (3, 11) else None  # the path has it where there is no -P
        if self.server is not None and self.server.usable:
            with suppress(ServerLost):
                self.server.start(command, environment, folder)
                self._process = self.server.fork(self._stderr.fileno(), self.memory_bytes or 0)
                return
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=environment, bufsize=0,
            start_new_session=True, cwd=folder,
        )  # fmt: skip

    def send(self, header: dict[str, Any], blobs: Sequence[Any] = ()) -> None:
        """Send a message; :class:`WorkerDied` when the process is gone."""
        self.start()
        assert self._process is not None and self._process.stdin is not None
        try:
            for chunk in encode(header, blobs):
                view = memoryview(chunk)
                while view.nbytes:
                    view = view[self._process.stdin.write(view) :]
        except (BrokenPipeError, OSError):
            raise WorkerDied(self._last_words()) from None

    def receive(self, timeout: float) -> Message:
        """Returns the next message. TimeoutError after ``timeout`` seconds (the worker still runs), WorkerDied when it
        is gone."""
        deadline = time.monotonic() + timeout
        while True:
            message = self.poll()
            if message is not None:
                return message
            left = deadline - time.monotonic()
            if left <= 0 or not wait_any([self], left):
                raise TimeoutError(f"no answer within {timeout:g} s")

    def poll(self) -> Message | None:
        """Returns a complete message if one is there, without waiting."""
        while True:
            try:
                message = self._reader.next()
            except ProtocolError as error:
                raise WorkerDied(f"the worker's answer makes no sense: {error}") from None
            if message is not None:
                return message
            if not _readable(self, 0.0):
                return None
            data = os.read(self.fileno(), 1 << 20)
            if not data:
                raise WorkerDied(self._last_words())
            try:
                self._reader.feed(data)
            except ProtocolError as error:
                raise WorkerDied(f"the worker's answer makes no sense: {error}") from None

    def request(self, header: dict[str, Any], blobs: Sequence[Any] = (), *, timeout: float) -> Message:
        """Send and wait for the answer."""
        self.send(header, blobs)
        return self.receive(timeout)

    def fileno(self) -> int:
        """Returns the descriptor that becomes readable when an answer comes."""
        if self._process is None or self._process.stdout is None:
            raise WorkerDied("the worker was not started")
        return self._process.stdout.fileno()

    def kill(self) -> None:
        """End the process at once and release its pipes."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, self._stderr):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass

    def _last_words(self) -> str:
        """Returns a sentence that says how the process ended, with the last line that it wrote to stderr."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the worker closed its pipe"
        if code < 0:
            try:
                how = f"killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"killed by signal {-code}"
        else:
            how = f"ended with exit status {code}"
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - 4000))
        lines = [line.strip() for line in self._stderr.read().decode(errors="replace").splitlines() if line.strip()]
        return f"{how}: {lines[-1][:500]}" if lines else how


def _readable(worker: WorkerProcess, timeout: float) -> bool:
    return bool(select.select([worker.fileno()], [], [], max(0.0, timeout))[0])


def wait_any(workers: Sequence[WorkerProcess], timeout: float) -> list[WorkerProcess]:
    """Returns the workers whose answer has begun to arrive (or who died), waiting up to ``timeout`` seconds for the
    first."""
    ready = select.select([w.fileno() for w in workers], [], [], max(0.0, timeout))[0]
    return [w for w in workers if w.fileno() in ready]
