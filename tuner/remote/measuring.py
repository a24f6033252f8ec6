"""This module is what a worker on another machine does: it measures the programs of a request, one request at a time."""

from __future__ import annotations

import os
import platform
import threading
import time
from typing import Any

from ...codegen.machine.cpu import host
from ...codegen.machine.target import Target
from ...tir.parser import parse
from ...tir.stmt import PrimFunc
from ..measure import LocalRunner, ReferenceFailed
from ..measure.runner import TimeUp
from .payload import VERSION, Answer, Request

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


class Measurer:
    """A measurer keeps the processes of one workload, and measures one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runner: LocalRunner | None = None
        self._open: tuple[Any, ...] = ()

    def answer(self, text: str) -> str:
        """Returns the answer to a request, both as text."""
        try:
            request = Request.loads(text)
        except ValueError as error:
            return Answer(machine=machine_facts(), refused="request", reason=str(error)).dumps()
        if request.version != VERSION:
            reason = f"this worker ({platform.node()}) runs Tilewright {VERSION}; the client runs {request.version}"
            return Answer(machine=machine_facts(), refused="version", reason=reason).dumps()
        with self._lock:
            return self._measured(request).dumps()

    def close(self) -> None:
        """End the processes."""
        if self._runner is not None:
            self._runner.close()
        self._runner, self._open = None, ()

    def _measured(self, request: Request) -> Answer:
        deadline = float("inf") if request.seconds is None else time.monotonic() + request.seconds
        try:
            runner = self._opened(request, deadline)
            best = float("inf") if request.best_seconds is None else request.best_seconds
            results = runner.measure(list(request.programs), best_seconds=best, deadline=deadline)
        except (ReferenceFailed, TimeUp, ValueError) as error:
            self.close()
            refused = (
                "reference"
                if isinstance(error, ReferenceFailed)
                else "time"
                if isinstance(error, TimeUp)
                else "request"
            )
            return Answer(machine=machine_facts(), refused=refused, reason=str(error))
        return Answer(tuple(results), machine_facts())

    def _opened(self, request: Request, deadline: float) -> LocalRunner:
        """Returns the runner of the request's workload; the outputs to compare with are computed once."""
        key = (request.func, request.target, request.seed, request.verify, tuple(sorted(request.limits.items())))
        if self._runner is None or key != self._open:
            self.close()
            func = parse(request.func)
            if not isinstance(func, PrimFunc):
                raise ValueError("not a single function")
            runner = LocalRunner(workers=1, **request.limits)
            try:
                runner.open(func, Target(request.target), seed=request.seed, verify=request.verify, deadline=deadline)
            except BaseException:
                runner.close()
                raise
            self._runner, self._open = runner, key
        return self._runner


_MEASURER = Measurer()


def measure(text: str) -> str:
    """Returns the answer of this process to a request."""
    return _MEASURER.answer(text)


def describe() -> dict[str, Any]:
    """Returns :func:`machine_facts` of the process that runs it."""
    return machine_facts()
