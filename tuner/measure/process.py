"""A WorkerProcess starts one worker, sends it messages, waits for answers with a deadline, and kills it.

The worker is ``python -m`` of a module that calls :func:`serve`, never a fork of this process: that would inherit locks
and threads of whatever the user's program runs. It may be the fork of such a worker that waits (:class:`ForkServer`). It
runs in a session of its own, so that Ctrl-C reaches only the tuner.

A fork server is a worker that has imported everything and waits. Each worker is a child that it forks in
milliseconds.

It runs no code of candidates, has one thread, and is a process of its own, so its children inherit no locks or threads of
the user's program. The tuner sends it the pipes of a child over a socket. Children are reaped only when the tuner asks,
so that their ids stay theirs until then; they are killed when the server ends.

Messages are a JSON header and raw bytes; nothing is pickled. A message is ``b"TWM1"``, the header's length as a little-endian
``uint32``, the header (UTF-8 JSON, an object whose ``blobs`` lists the lengths of the raw parts), then the raw parts. Arrays
travel as raw parts with dtype and shape in the header, so a worker's answer can never run code in the tuner.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

_MAGIC = b"TWM1"
_PREFIX = struct.Struct("<4sI")
_MAX_HEADER = 64 << 20
_MAX_BLOB = 64 << 30

Header = dict[str, Any]


class ProtocolError(Exception):
    """The received bytes are not a message of this protocol."""


class Message(NamedTuple):
    """A header and the raw parts that came with it."""

    header: Header
    blobs: tuple[bytes, ...]


def encode(header: Header, blobs: Sequence[Any] = ()) -> list[Any]:
    """Returns the chunks to be written, in order; ``blobs`` are bytes-like and are not copied."""
    views = [memoryview(b).cast("B") if memoryview(b).nbytes else memoryview(b"") for b in blobs]
    text = json.dumps({**header, "blobs": [v.nbytes for v in views]}, separators=(",", ":")).encode()
    if len(text) > _MAX_HEADER:
        raise ProtocolError(f"a header of {len(text)} bytes; the limit is {_MAX_HEADER}")
    return [_PREFIX.pack(_MAGIC, len(text)), text, *views]


def write_message(stream: BinaryIO, header: Header, blobs: Sequence[Any] = ()) -> None:
    """Write one message and flush."""
    for chunk in encode(header, blobs):
        stream.write(chunk)
    stream.flush()


def read_message(stream: BinaryIO) -> Message | None:
    """Returns the next message, waiting for it; None at the end of the stream."""
    reader = MessageReader()
    while True:
        need = reader.missing
        data = stream.read(need)
        if not data:
            if reader.empty:
                return None
            raise ProtocolError("the stream ended inside a message")
        reader.feed(data)
        message = reader.next()
        if message is not None:
            return message


class MessageReader:
    """A MessageReader assembles messages from the chunks of bytes that arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def empty(self) -> bool:
        """Returns whether no part of a message is waiting."""
        return not self._buffer

    @property
    def missing(self) -> int:
        """Returns how many bytes may be read without reaching beyond the current message; at least 1."""
        return max(1, self._needed() - len(self._buffer))

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next(self) -> Message | None:
        """Returns the first complete message, or None."""
        total = self._needed()
        if len(self._buffer) < total or total == _PREFIX.size:
            return None
        header, start, lengths = self._header()
        blobs = []
        for length in lengths:
            blobs.append(bytes(memoryview(self._buffer)[start : start + length]))
            start += length
        del self._buffer[:total]
        return Message(header, tuple(blobs))

    def _needed(self) -> int:
        """The number of bytes of the current message, as far as it is known."""
        if len(self._buffer) < _PREFIX.size:
            return _PREFIX.size
        magic, length = _PREFIX.unpack_from(self._buffer)
        if magic != _MAGIC or length > _MAX_HEADER:
            raise ProtocolError(f"{bytes(self._buffer[:16])!r} does not begin a message")
        if len(self._buffer) < _PREFIX.size + length:
            return _PREFIX.size + int(length)
        _, start, lengths = self._header()
        return start + sum(lengths)

    def _header(self) -> tuple[Header, int, list[int]]:
        end = _PREFIX.size + _PREFIX.unpack_from(self._buffer)[1]
        try:
            header = json.loads(bytes(self._buffer[_PREFIX.size : end]))
            lengths = header.pop("blobs")
            sane = all(isinstance(n, int) and 0 <= n <= _MAX_BLOB for n in lengths)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ProtocolError(f"a damaged header: {error}") from None
        if not sane:
            raise ProtocolError(f"impossible lengths {lengths}")
        return header, end, lengths


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


_FORK, _POLL, _KILL = b"F", b"P", b"K"
_NUMBER = struct.Struct("<q")
_RUNS = -1 << 20
"""What the server answers for a child that still runs."""
_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of <linux/prctl.h>."""
_START_SECONDS, _ANSWER_SECONDS = 60.0, 10.0


class ServerLost(OSError):
    """The fork server does not answer; it has been ended."""


class ForkServer:
    """The tuner's side of a server: it starts with the first child, and starts anew after it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: Any = None
        self.usable = sys.platform == "linux" and hasattr(socket, "send_fds")
        """Whether this system can fork a process that has native libraries, and pass descriptors to it."""

    def start(self, command: Sequence[str], environment: dict[str, str], folder: str | None = None) -> None:
        """Start the server in ``folder`` unless it runs, without waiting for it. ``command`` gets the number of its socket as
        one word more."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, env=environment, pass_fds=[theirs.fileno()], start_new_session=True,
                cwd=folder,
            )  # fmt: skip
        self._socket = ours
        ours.settimeout(_START_SECONDS)

    def fork(self, stderr: int, memory_bytes: int) -> ForkedWorker:
        """Returns a new child with a limit of memory. It raises :class:`ServerLost` when the server does not make one,
        which is not asked again then."""
        requests, stdin = os.pipe()
        stdout, replies = os.pipe()
        try:
            pid = self._ask(_FORK, [requests, replies, stderr], memory_bytes)
        except BaseException as error:
            self.usable = self.usable and not isinstance(error, ServerLost)
            os.close(stdin)
            os.close(stdout)
            raise
        finally:
            os.close(requests)
            os.close(replies)
        return ForkedWorker(self, pid, stdin, stdout)

    def close(self) -> None:
        """End the server, and with it its children."""
        process, self._process = self._process, None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if process is not None:
            process.kill()
            process.wait()

    def status(self, pid: int, *, kill: bool = False) -> int | None:
        """Returns how a child has ended, as subprocess.Popen.returncode; None while it runs. ``kill``: end it first."""
        code = self._ask(_KILL if kill else _POLL, (), pid)
        return None if code == _RUNS else code

    def _ask(self, word: bytes, descriptors: Sequence[int], number: int = 0) -> int:
        try:
            if self._socket is None:
                raise ServerLost("the fork server was ended")
            socket.send_fds(self._socket, [word + _NUMBER.pack(number)], list(descriptors))
            answer = self._socket.recv(_NUMBER.size)
            self._socket.settimeout(_ANSWER_SECONDS)
            return int(_NUMBER.unpack(answer)[0])
        except BaseException as error:
            self.close()  # after Ctrl-C too: the answer would be taken for that of the next request
            if isinstance(error, (OSError, struct.error)):
                raise ServerLost(f"the fork server does not answer: {error}") from None
            raise


class ForkedWorker:
    """A child of a fork server, with those parts of subprocess.Popen that a WorkerProcess needs."""

    def __init__(self, server: ForkServer, pid: int, stdin: int, stdout: int) -> None:
        self.server, self.pid = server, pid
        self.stdin, self.stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb", 0)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Returns how it has ended, None while it runs. A child whose server is lost was killed with it."""
        return self._asked(kill=False)

    def kill(self) -> None:
        """End it at once."""
        self._asked(kill=True)

    def wait(self, timeout: float | None = None) -> int:
        """Returns how it has ended; subprocess.TimeoutExpired when it still runs after ``timeout`` seconds."""
        done, step = threading.Event(), 0.001
        while self.poll() is None:
            if timeout is not None and timeout <= 0:
                raise subprocess.TimeoutExpired("worker", 0.0)
            done.wait(step)
            timeout = None if timeout is None else timeout - step
            step = min(2 * step, 0.05)
        assert self.returncode is not None
        return self.returncode

    def _asked(self, *, kill: bool) -> int | None:
        if self.returncode is None:
            try:
                self.returncode = self.server.status(self.pid, kill=kill)
            except ServerLost:
                self.returncode = -signal.SIGKILL
        return self.returncode


def become_child(descriptor: int, parent: int) -> tuple[int, int]:
    """Fork children as the socket asks for them. In each child it returns, with its pipes as standard streams, the id
    of its parent and its limit of memory. The server itself ends with the tuner, ``parent``."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the user's program may ignore it; then nobody could be waited for
    control = socket.socket(fileno=descriptor)
    control.settimeout(1.0)
    own, children = os.getpid(), set[int]()
    while True:
        try:
            message, pipes, _, _ = socket.recv_fds(control, 64, 3)
        except TimeoutError:
            if os.getppid() != parent:
                os._exit(1)
            continue
        if not message:
            os._exit(0)
        word, number = message[:1], int(_NUMBER.unpack(message[1:])[0])
        if word == _FORK:
            if len(os.listdir("/proc/self/task")) > 1:  # a thread might hold a lock that the child waits for
                os._exit(2)
            memory_bytes, number = number, os.fork()
            if number == 0:
                control.close()
                _take(pipes, own)
                return own, memory_bytes
            children.add(number)
            for pipe in pipes:
                os.close(pipe)
        else:
            number = _ended(children, number, kill=word == _KILL)
        control.send(_NUMBER.pack(number))


def _take(pipes: Sequence[int], server: int) -> None:
    """Be a process of its own with ``pipes`` as standard streams, which is killed when the server ends."""
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    os.setsid()
    for standard, pipe in enumerate(pipes):
        os.dup2(pipe, standard)
        os.close(pipe)


def _ended(children: set[int], pid: int, *, kill: bool) -> int:
    """Returns how a child has ended, after which its id is no longer its own."""
    if pid not in children:
        return -int(signal.SIGKILL)
    if kill:
        os.kill(pid, signal.SIGKILL)
    found, status = os.waitpid(pid, 0 if kill else os.WNOHANG)
    if found == 0:
        return _RUNS
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def serve(
    answer: Callable[[Message], tuple[dict[str, Any], list[Any]]], *, warm: Callable[[], object] | None = None
) -> None:
    """Answer requests until stdin ends. The arguments of the process are its parent's id, a limit of memory, and for a fork
    server, whose children answer, the number of its socket; it calls ``warm`` before.

    It ignores Ctrl-C, and ends when its parent has ended.
    """
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(sys.argv) > 3:
        if warm is not None:
            warm()
        parent, memory_bytes = become_child(int(sys.argv[3]), parent)
    _limit_memory(memory_bytes)
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of other code to stdout, native code included, must not mix with the messages
    requests = sys.stdin.buffer
    while (message := read_message(requests)) is not None:
        header, blobs = answer(message)
        write_message(replies, header, blobs)


def _limit_memory(memory_bytes: int) -> None:
    if resource is None:
        return
    if memory_bytes > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch_parent(parent: int) -> None:
    """End this process when its parent has ended, even while generated code runs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
