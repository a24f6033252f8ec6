"""This module measures the programs of a request on another machine. A worker there takes one request at a time.

A machine has one place where candidates are timed, whoever sent them; meanwhile others are built on other cores.
:func:`pretend` is a stand-in that answers at once, to rehearse a cluster.
Requests and answers are JSON texts: programs, targets, limits, statuses and times, never a pickle.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import json
import os
import platform
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from ... import __version__
from ...codegen import CODEGEN_VERSION
from ...codegen.machine.cpu import available_cores, host
from ...codegen.machine.target import Target
from ...tir.parser import parse
from ...tir.stmt import PrimFunc
from ...tuning_db.connection import FileLock
from ..measure import LocalRunner, MeasureResult, ReferenceFailed
from ..measure.runner import TimeUp

VERSION = f"{__version__}, code generator {CODEGEN_VERSION}"
"""The version that client and worker must share, for their times and programs to mean the same."""


@dataclass(frozen=True)
class MeasureRequest:
    """A request to measure ``programs`` (texts) that schedule the workload ``func``. The ``limits`` are those of a
    :class:`~..measure.LocalRunner`, ``best_seconds`` is the best so far (None: nothing yet), ``seconds`` the time that is
    left."""

    func: str
    target: str
    programs: tuple[str, ...]
    seed: int = 0
    verify: bool = True
    best_seconds: float | None = None
    seconds: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    version: str = VERSION

    def dumps(self) -> str:
        """Returns the text."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> MeasureRequest:
        """Returns the request that :meth:`dumps` wrote; ValueError for anything else."""
        data = _object(text)
        try:
            return MeasureRequest(**{**data, "programs": tuple(data["programs"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a request: {error}") from None


@dataclass(frozen=True)
class Answer:
    """An answer: the results of the programs, and ``machine``: the worker's host, CPU, frequency, load and versions.

    ``refused`` says why nothing was measured: ``version``, ``reference`` (the unscheduled function does not run), ``time``
    or ``request``, and ``reason`` says it in words.
    """

    results: tuple[MeasureResult, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""
    reason: str = ""

    def dumps(self) -> str:
        """Returns the text."""
        return json.dumps(asdict(self))

    @staticmethod
    def loads(text: str) -> Answer:
        """Returns the answer that :meth:`dumps` wrote; ValueError for anything else."""
        data = _object(text)
        try:
            results = tuple([MeasureResult(**{**r, "times": tuple(map(float, r["times"]))}) for r in data["results"]])
            return Answer(results, dict(data["machine"]), str(data["refused"]), str(data["reason"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not an answer: {error}") from None


def _object(text: str) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("not an object")
    return data


_CPU = "TILEWRIGHT_CPU_NAME"
"""The variable of the environment that gives this machine's CPU another name, in tests."""


def cpu_name() -> str:
    """Returns the name of this machine's CPU, by which it is found."""
    return os.environ.get(_CPU) or host().cpu


def machine_facts() -> dict[str, Any]:
    """Returns the host, CPU, frequency in MHz (None where the system does not say), load, and versions of this machine."""
    return {
        "host": platform.node(), "cpu": cpu_name(), "mhz": _megahertz(), "load": os.getloadavg()[0], "pid": os.getpid(),
        "version": VERSION, "python": platform.python_version(),
    }  # fmt: skip


def _megahertz() -> float | None:
    try:
        with open("/proc/cpuinfo") as lines:
            found = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    except (OSError, ValueError):
        return None
    return max(found, default=None)


@dataclass
class _Workload:
    """The runners of one workload, of which ``free`` are those that no request uses; ``made`` counts all."""

    first: LocalRunner
    places: int
    free: list[LocalRunner] = field(default_factory=list)
    made: int = 1


class Measurer:
    """A measurer answers requests, several at a time: their programs are built side by side, and timed one by one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._workloads: dict[tuple[Any, ...], _Workload] = {}

    def answer(self, text: str) -> str:
        """Returns the answer to a request, both as text."""
        try:
            request = MeasureRequest.loads(text)
        except ValueError as error:
            return Answer(machine=machine_facts(), refused="request", reason=str(error)).dumps()
        if request.version != VERSION:
            reason = f"this worker ({platform.node()}) runs Tilewright {VERSION}; the client runs {request.version}"
            return Answer(machine=machine_facts(), refused="version", reason=reason).dumps()
        deadline = float("inf") if request.seconds is None else time.monotonic() + request.seconds
        best = float("inf") if request.best_seconds is None else request.best_seconds
        try:
            with self._runner(request, deadline) as runner:
                results = runner.measure(list(request.programs), best_seconds=best, deadline=deadline)
        except (ReferenceFailed, TimeUp, ValueError) as error:
            kinds = {ReferenceFailed: "reference", TimeUp: "time"}
            refused = next((word for kind, word in kinds.items() if isinstance(error, kind)), "request")
            return Answer(machine=machine_facts(), refused=refused, reason=str(error)).dumps()
        return Answer(tuple(results), machine_facts()).dumps()

    def close(self) -> None:
        """End the processes that no request uses."""
        with self._changed:
            for key, workload in list(self._workloads.items()):
                if len(workload.free) == workload.made:
                    for runner in workload.free:
                        runner.close()
                    del self._workloads[key]

    @contextmanager
    def _runner(self, request: MeasureRequest, deadline: float) -> Iterator[LocalRunner]:
        """Gives a runner of the request's workload, for this request alone."""
        key = (request.func, request.target, request.seed, request.verify, tuple(sorted(request.limits.items())))
        with self._changed:
            if key not in self._workloads:
                self.close()
                self._workloads[key] = _opened(request, deadline)
            workload = self._workloads[key]
            while not workload.free and workload.made >= workload.places:
                if not self._changed.wait(min(deadline - time.monotonic(), threading.TIMEOUT_MAX)):
                    raise TimeUp("other candidates took all of the time")
            workload.made += not workload.free
            runner = workload.free.pop() if workload.free else workload.first.twin()
        try:
            yield runner
        except BaseException:
            runner.close()
            raise
        finally:
            with self._changed:
                workload.free.append(runner)
                self._changed.notify()


def _opened(request: MeasureRequest, deadline: float) -> _Workload:
    """Returns the workload of a request with its first runner; the outputs to compare with are computed once."""
    func, target = parse(request.func), Target(request.target)
    if not isinstance(func, PrimFunc):
        raise ValueError("not a single function")
    building, timing = split_cores(target.num_cores)
    limits = dict(request.limits)
    runner = LocalRunner(workers=1, timing=lambda processes: alone(processes, building, timing), **limits)
    try:
        runner.open(func, target, seed=request.seed, verify=request.verify, deadline=deadline)
    except BaseException:
        runner.close()
        raise
    return _Workload(runner, places() if building else 1, [runner])


_MEASURER = Measurer()


def measure(text: str) -> str:
    """Returns the answer of this process to a request."""
    return _MEASURER.answer(text)


def describe() -> dict[str, Any]:
    """Returns :func:`machine_facts` of the process that runs it."""
    return machine_facts()


_MOST = 8
_WAIT_SECONDS = 600.0


def _lock_path() -> str:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(tempfile.gettempdir(), f"tilewright-timing-{user}.lock")


_PLACE = FileLock(_lock_path(), _WAIT_SECONDS)


def places() -> int:
    """Returns how many candidates are in hand at a time: one is timed, the others are built."""
    return min(_MOST, available_cores())


def split_cores(needed: int) -> tuple[list[int], list[int]]:
    """Returns the cores to build on, and the last ``needed`` ones, to time on. The first list is empty when candidates
    need all cores: then nothing is built while one is timed. Both are empty where processes cannot be pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    cores = sorted(os.sched_getaffinity(0))[: available_cores()]
    if needed >= len(cores):
        return [], []
    return cores[:-needed], cores[-needed:]


@contextmanager
def alone(processes: Sequence[int], building: Sequence[int], timing: Sequence[int]) -> Iterator[None]:
    """Holds this machine's place for timing, and keeps ``processes`` on the cores for it meanwhile."""
    with _PLACE:
        _pin(processes, timing)
        try:
            yield
        finally:
            _pin(processes, building)


def _pin(processes: Sequence[int], cores: Sequence[int]) -> None:
    for process in processes if cores else ():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(process, cores)


SECONDS = 0.05
FATAL = "!"
"""A program that begins so ends the process of the worker."""


def pretend(text: str) -> str:
    """Returns an answer to a request after 50 milliseconds for each program."""
    results = []
    for program in MeasureRequest.loads(text).programs:
        if program.startswith(FATAL):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(SECONDS)
        share = int(hashlib.sha256(program.encode()).hexdigest()[:6], 16) / 2**24
        results.append(MeasureResult("ok", "", (1e-3 * (1 + share),) * 2))
    return Answer(tuple(results), machine_facts()).dumps()


def offered() -> dict[str, int]:
    """Returns the resources of a worker on this machine. These are ``build``, how many candidates it has in hand at a
    time, and exactly one ``measure:<cpu>``."""
    return {"build": places(), f"measure:{cpu_name()}": 1}


def run_worker(address: str, *, started: Callable[[Any], object] = lambda nanny: None) -> None:
    """Serve the scheduler at ``address`` (``host:8786``, ``tls://host:8786``) until it ends or this process is
    interrupted. ImportError without Dask.distributed, OSError when no scheduler answers."""
    dask = importlib.import_module("distributed")
    asyncio.run(_serve(dask, address, started))


async def _serve(dask: Any, address: str, started: Callable[[Any], object]) -> None:
    name = f"{platform.node()}-{cpu_name()}-{id(started):x}"
    async with dask.Nanny(
        address, nthreads=places() + 1, resources=offered(), name=name, memory_limit=0, death_timeout=300, dashboard=False,
        preload=[__name__],
    ) as nanny:  # fmt: skip
        started(nanny)
        await nanny.finished()
