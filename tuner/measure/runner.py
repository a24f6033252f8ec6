"""How candidates are measured: a runner returns a status and timings for each of a batch of scheduled programs.

:class:`LocalRunner` measures on this machine, in worker processes (:mod:`.process` starts them and speaks with them,
:mod:`.measuring_worker` is what they do):

1. ``open`` starts the workers. Each gets the unscheduled function, as text, before its first job, and fills arrays for it
   (:mod:`.inputs`). One of them computes the results that candidates are compared with (:mod:`.reference`).
2. ``measure`` takes scheduled functions, as text. The workers compile them side by side (``_compile``), and then one worker at a
   time works, so that compiling never disturbs a timing.
3. Each candidate runs in the worker that compiled it (``_first_run``). Memory around its arrays is looked at, and its results
   are compared with the reference. It runs once more, which warms the caches, and is timed twice. A timing is the time of as many
   calls as take ``min_seconds``, divided by their number. Layout-free arguments are packed before, which is not timed.
4. The candidates that are right are timed alternately (``_race``). One whose interval lies above the least of the leader's
   figure, the best before this batch and the fastest single timing of it is dropped, after two timings one that is more than a
   quarter slower (racing: Maron and Moore, "Hoeffding races", NIPS 1993).

A simulated target has a count instead of a clock: its candidates are timed once, without a race, and may take ``run_timeout``.

Timings of the same code are skewed, because noise only adds time. So the figure of a candidate (:func:`estimate`) is the median
of the faster half of its timings, which ignores disturbances and, unlike the minimum, does not improve merely by repeating.

A candidate that fails has another status than ``ok`` and an infinite figure, and the others go on:

===================  ===============================================================================================
``compile_error``    the compiler refuses it; ``run_error``: a call of it raises an error
``wrong_result``     its results are further from the reference than rounding explains
``memory_damaged``   it has written beside its arrays; its worker is replaced
``timeout``          it takes longer than ``compile_timeout``, ``run_timeout`` or the limit of its first run
                     (``_first_run``); its worker is killed and replaced
``crash``            its worker has died, or no worker would start
``out_of_memory``    it needs more than ``memory_bytes``
``skipped``          the deadline came first
===================  ===============================================================================================

What else a lost worker had compiled is compiled again; what it had timed keeps its timings, and is raced no more.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...codegen.late_tables import is_simulated
from ...codegen.machine.cpu import available_cores
from ...codegen.machine.target import Target
from ...pages.messages import require_seconds, require_whole, short_repr
from ...tir.stmt import PrimFunc
from ..example_sizes import at_example
from .inputs import FILLS
from .process import ForkServer, Message, WorkerDied, WorkerProcess, wait_any


@dataclass(frozen=True)
class MeasureResult:
    """The result of measuring one candidate.

    ``status``: ``ok``, or one of the module's list; ``schedule_error`` comes from the session, before anything is measured.
    ``error`` is the reason of a failure.
    ``times`` are all timings in seconds per call. ``machine`` says where it was measured, when that was not here.
    """

    status: str
    error: str = ""
    times: tuple[float, ...] = ()
    compile_seconds: float = 0.0
    machine: Mapping[str, Any] = field(default_factory=dict)

    __repr__ = short_repr()

    @property
    def ok(self) -> bool:
        """Returns whether the candidate ran and computed the right thing."""
        return self.status == "ok"

    @property
    def run_seconds(self) -> float:
        """Returns the figure of the candidate (:func:`estimate`), infinity for a failed one."""
        return estimate(self.times) if self.ok and self.times else float("inf")


class TimeUp(Exception):
    """The deadline came before the first candidate could be measured."""


class ReferenceFailed(RuntimeError):
    """The unscheduled function could not be run, so no candidate can be checked."""


Finished = Callable[[int, MeasureResult], None]
"""Is told the number of a program in its batch, and its result."""


class Runner(ABC):
    """A runner measures schedules of one workload at a time. Derive from it to measure on another machine."""

    __repr__ = short_repr()

    @abstractmethod
    def open(
        self, func: PrimFunc, target: Target, *, seed: int = 0, verify: bool = True, deadline: float = float("inf")
    ) -> None:
        """Prepare for ``func``, whose sizes are numbers or have examples.

        With ``verify`` outputs are compared with those of the unscheduled function. :class:`TimeUp` when computing these takes
        longer than until ``deadline`` (``time.monotonic``).
        """

    @abstractmethod
    def measure(
        self, programs: Sequence[str], *, best_seconds: float = float("inf"), deadline: float = float("inf"),
        finished: Finished | None = None, equally: bool = False,
    ) -> list[MeasureResult]:  # fmt: skip
        """Measure each scheduled program (its text); return their results in the same order.

        ``best_seconds`` is the best so far; what is not done at ``deadline`` is skipped. ``finished`` is called with number and
        result of each program as soon as it has run or failed. It may be timed again later, and then fail as well; ``finished``
        is not called again, but what is returned says so. ``equally``: time slow ones as carefully as the best. A runner may
        leave out ``deadline`` of ``open``, ``finished`` and ``equally``.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything; the runner may be opened again."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True)
class RunnerLimits:
    """The limits of a :class:`LocalRunner`: seconds before a worker is killed, and when a candidate has run enough.

    ``memory_bytes``: address space of a worker; 0 for no limit. ``min_seconds``: a timing repeats the call until it takes
    this long. ``race_seconds``: a contender is timed again until the sum of its timings, in seconds per call, reaches
    it. Fewer than three are never enough, and timings come in twos. ``recycle_after``: jobs after which a worker is replaced.
    """

    compile_timeout: float = 30.0
    run_timeout: float = 10.0
    reference_timeout: float = 300.0
    memory_bytes: int = 16 << 30
    min_seconds: float = 2e-4
    race_seconds: float = 0.1
    max_samples: int = 12
    recycle_after: int = 200

    def __post_init__(self) -> None:
        for name in ("compile_timeout", "run_timeout", "reference_timeout", "min_seconds", "race_seconds"):
            require_seconds(name, getattr(self, name), zero=name in ("min_seconds", "race_seconds"))
        require_whole("memory_bytes", self.memory_bytes, 0)
        require_whole("max_samples", self.max_samples, 1)
        require_whole("recycle_after", self.recycle_after, 1)


class LocalRunner(Runner):
    """This runner measures in worker processes on this machine.

    ``workers``: how many compile side by side; by default the cores this process may use, at most 8. ``timing``
    makes a context in which candidates run, such as a lock that several runners share, from the ids of the processes.
    ``limits`` are those of :class:`RunnerLimits` by name.
    """

    def __init__(
        self, *, workers: int | None = None, environment: dict[str, str] | None = None,
        timing: Callable[[list[int]], AbstractContextManager[Any]] = nullcontext, **limits: Any,
    ) -> None:  # fmt: skip
        self.limits = RunnerLimits(**limits)
        self._timing = timing
        count = workers if workers is not None else min(8, available_cores())
        memory = self.limits.memory_bytes
        self._server = ForkServer()
        self.workers = [
            WorkerProcess(memory_bytes=memory, environment=environment, server=self._server)
            for _ in range(max(1, count))
        ]
        self._open_message: dict[str, object] = {}
        self._reference: tuple[bytes, ...] | None = None
        self._about_reference: dict[str, object] = {}
        """What workers are told of the reference: the scales of its results, and whether it was computed in float64."""
        self._ready: dict[WorkerProcess, int | None] = {}
        self._next_job = 0
        self._check_seconds = 0.0
        self._deadline = float("inf")
        self._simulated = False

    def open(
        self, func: PrimFunc, target: Target, *, seed: int = 0, verify: bool = True, deadline: float = float("inf")
    ) -> None:
        fixed = at_example(func)
        missing = target.missing_here()
        if missing:
            raise ValueError(f"this machine cannot run code for {target}: no {', '.join(missing[:3])}")
        self._ready.clear()
        self._reference = None
        self._simulated = is_simulated(target.kind)
        if target.is_gpu and not is_simulated(target.kind):
            for worker in self.workers:  # a device's driver reserves more addresses than any limit
                worker.memory_bytes = None
        self._deadline = deadline
        self._check_seconds = (
            sum(b.num_bytes() or 0 for b in fixed.buffers) / 2e7
        )  # a generous time for filling and comparing
        self._open_message = {
            "command": "open", "func": func.script(), "target": str(target), "seed": seed, "fill": FILLS[0],
        }  # fmt: skip
        for worker in self.workers:  # they start side by side
            worker.start()
        if verify:
            self._compute_reference()

    def _compute_reference(self) -> None:
        """Compute the results that candidates are compared with, from arguments by the first of :data:`FILLS` that serves.

        A fill serves when most results are finite and a worker finds that they tell right from wrong (``telling``,
        :func:`~.reference.tells`). Only the results of recurrences may fail to tell, as they grow or saturate from step to step;
        only for them the fills after the second one are tried.
        """
        worker = self.workers[0]
        answers: dict[str, Message] = {}
        for fill in FILLS:
            self._open_message["fill"] = fill
            self._ready.pop(worker, None)
            try:
                self._make_ready(worker, self.limits.reference_timeout)
                limit = min(self.limits.reference_timeout, max(self._deadline - time.monotonic(), 0.0))
                answer = worker.request({"command": "reference"}, timeout=limit)
            except TimeoutError:
                worker.kill()
                if time.monotonic() >= self._deadline:
                    raise TimeUp("computing the result of the unscheduled function took all of it") from None
                raise ReferenceFailed(
                    f"the unscheduled function takes more than {self.limits.reference_timeout:g} s; a longer "
                    "reference_timeout, or verify=False, would let the tuning go on"
                ) from None
            except WorkerDied as died:
                worker.kill()
                raise ReferenceFailed(f"the unscheduled function does not run: {died}") from None
            if answer.header["status"] != "ok":
                raise ReferenceFailed(f"the unscheduled function does not run: {answer.header['error']}")
            answers[fill] = answer
            finite, telling = answer.header["finite"] >= 0.5, answer.header["telling"]
            if finite and telling or fill == FILLS[1] and all(a.header["telling"] for a in answers.values()):
                break
        else:  # nothing keeps this recurrence in range
            fill = next((f for f, a in answers.items() if a.header["finite"] >= 0.5), FILLS[1])
            answer = answers[fill]
        self._open_message["fill"] = fill
        self._reference = answer.blobs
        self._about_reference = {name: answer.header[name] for name in ("scales", "exact")}
        self._ready.clear()

    def _make_ready(self, worker: WorkerProcess, timeout: float = 60.0) -> None:
        """Make sure that the worker runs and has the workload and the reference. TimeoutError for each of them after
        ``timeout`` seconds."""
        if worker.alive and self._ready.get(worker) == worker.pid:
            return
        worker.start()
        messages: list[tuple[dict[str, object], Sequence[bytes]]] = [(self._open_message, ())]
        if self._reference is not None:
            messages.append(({"command": "expect", **self._about_reference}, self._reference))
        for header, blobs in messages:
            answer = worker.request(header, blobs, timeout=timeout)
            if answer.header["status"] != "ok":
                raise WorkerDied(f"{header['command']}: {answer.header['error']}")
        self._ready[worker] = worker.pid

    def measure(
        self, programs: Sequence[str], *, best_seconds: float = float("inf"), deadline: float = float("inf"),
        finished: Finished | None = None, equally: bool = False,
    ) -> list[MeasureResult]:  # fmt: skip
        self._deadline = deadline
        jobs = [_Job(self._next_job + i, program) for i, program in enumerate(programs)]
        self._next_job += len(jobs)
        best = best_seconds
        told: set[int] = set()

        def tell() -> None:
            for number, job in enumerate(jobs):
                if finished is not None and number not in told and job.status not in ("waiting", "compiled"):
                    told.add(number)
                    finished(number, job.result())

        while time.monotonic() < deadline:
            self._compile([job for job in jobs if job.status == "waiting"], deadline)
            tell()
            todo = [job for job in jobs if job.status == "compiled"]
            if not todo:
                break
            with self._timing(self._processes()):
                for job in todo:
                    if job.status == "compiled" and time.monotonic() < deadline:
                        self._first_run(job, jobs, best, float("inf") if equally else 1.5 * best)
                        best = min([best, *job.times]) if job.status == "ok" else best
                        tell()
            if not any(job.status == "waiting" for job in jobs):
                break
        if any(job.status == "ok" for job in jobs):
            with self._timing(self._processes()):
                self._race(jobs, best, deadline, equally)
        self._tidy(jobs)
        return [job.result() for job in jobs]

    def _compile(self, jobs: Sequence[_Job], deadline: float) -> None:
        """Compile ``jobs`` in all workers side by side, one job at a time in each; none is timed meanwhile.

        A worker that dies or takes longer than ``compile_timeout`` fails its job; what else it had compiled waits again.
        """
        queue = list(reversed(jobs))
        busy: dict[WorkerProcess, tuple[_Job, float]] = {}
        while queue or busy:
            for worker in self.workers:
                if queue and worker not in busy and time.monotonic() < deadline:
                    job = queue.pop()
                    try:
                        self._make_ready(worker)
                        worker.send({"command": "compile", "job": job.number, "program": job.program})
                    except (WorkerDied, TimeoutError) as error:
                        worker.kill()
                        job.fail("crash", f"no worker would start: {error}")
                        continue
                    busy[worker] = (job, time.monotonic() + self.limits.compile_timeout)
            if not busy:
                if queue and time.monotonic() >= deadline:
                    return
                continue
            wait_any(list(busy), min([deadline, *[limit for _, limit in busy.values()]]) - time.monotonic())
            for worker, (job, limit) in list(busy.items()):
                try:
                    answer = worker.poll()
                except WorkerDied as died:
                    job.fail("crash", f"while compiling: {died}")
                    self._lost(worker, jobs)
                    del busy[worker]
                    continue
                if answer is not None:
                    self._compiled(job, worker, answer)
                    del busy[worker]
                elif time.monotonic() >= deadline:  # the job stays as it is, and counts as skipped
                    self._lost(worker, jobs)
                    del busy[worker]
                    queue.clear()
                elif time.monotonic() >= limit:
                    job.fail("timeout", f"compiling takes more than {self.limits.compile_timeout:g} s")
                    self._lost(worker, jobs)
                    del busy[worker]
            if time.monotonic() < deadline:
                queue.extend(
                    job
                    for job in jobs
                    if job.status == "waiting"
                    and job not in queue
                    and not any(job is other for other, _ in busy.values())
                )

    def _compiled(self, job: _Job, worker: WorkerProcess, answer: Message) -> None:
        """Note what a worker answers to ``compile``; the job then runs in that worker, which has its code."""
        worker.jobs += 1
        if answer.header["status"] == "ok":
            job.status, job.worker = "compiled", worker
            job.compile_seconds = float(answer.header["compile_seconds"])
        else:
            job.fail(str(answer.header["status"]), str(answer.header["error"]))

    def _first_run(self, job: _Job, jobs: Sequence[_Job], best: float, stop_above: float) -> None:
        """Compare the result with the reference, then time it twice.

        It may take a hundred times the best, at least 2 s and at most ``run_timeout``, besides the time for filling and
        comparing arrays. While no best is known, and on simulated targets, the limit is ``run_timeout``. It is timed only once
        where a call takes more than a second and more than four times ``stop_above``, which no disturbance explains; 1 s takes
        the place of ``stop_above`` while no best is known.
        """
        finite = best < float("inf") and not self._simulated
        limit = (
            min(self.limits.run_timeout, max(2.0, 100 * best)) if finite else self.limits.run_timeout
        ) + self._check_seconds
        if self._run(job, jobs, check=True, samples=2, stop_above=stop_above if finite else 1.0, limit=limit):
            job.status = "ok"

    def _race(self, jobs: Sequence[_Job], best: float, deadline: float, equally: bool) -> None:
        """Time the candidates that are ok alternately, until each was timed ``max_samples`` times or long enough.

        That is until the sum of its timings (per call) reaches ``race_seconds``; fewer than three are never enough. One whose
        interval lies above that figure (see the module) is left out; with ``equally`` it is not. One that fails is no longer ok.
        """
        while time.monotonic() < deadline:
            running = [j for j in jobs if j.status == "ok" and j.worker is not None]
            if not running:
                return
            leader = min(min(estimate(j.times) for j in running), best)
            contenders = [
                j for j in running
                if len(j.times) < (1 if self._simulated else self.limits.max_samples)
                and (equally or interval(j.times).low <= leader)
                and (len(j.times) < 3 or sum(j.times) < self.limits.race_seconds)
            ]  # fmt: skip
            if not contenders:
                return
            for job in contenders:
                self._run(job, jobs, check=False, samples=2, stop_above=float("inf"), limit=self.limits.run_timeout)

    def _run(
        self, job: _Job, jobs: Sequence[_Job], *, check: bool, samples: int, stop_above: float, limit: float
    ) -> bool:
        """Run ``job`` in its worker; True when timings came back."""
        worker = job.worker
        if worker is None:
            return False
        request = {
            "command": "run", "job": job.number, "check": check, "samples": samples,
            "min_seconds": self.limits.min_seconds, "stop_above": stop_above,
        }  # fmt: skip
        try:
            answer = worker.request(request, timeout=min(limit, max(self._deadline - time.monotonic(), 0.0)))
        except TimeoutError:
            self._lost(worker, jobs)
            if time.monotonic() < self._deadline:
                job.fail("timeout", f"running takes more than {limit:g} s")
            elif not job.times:
                job.status = "waiting"  # neither measured nor failed
            return False
        except WorkerDied as died:
            job.fail("crash", f"while running: {died}")
            self._lost(worker, jobs)
            return False
        if answer.header["status"] != "ok":
            job.fail(str(answer.header["status"]), str(answer.header["error"]))
            if job.status == "memory_damaged":
                self._lost(worker, jobs)
            return False
        job.times.extend(float(t) for t in answer.header["times"])
        job.machine = answer.header.get("machine", {})
        return True

    def _lost(self, worker: WorkerProcess, jobs: Sequence[_Job]) -> None:
        """Kill the worker; jobs that it has compiled but not run have to be compiled again."""
        worker.kill()
        self._ready.pop(worker, None)
        for job in jobs:
            if job.worker is worker:
                job.worker = None
                if job.status == "compiled":  # this ends: a loss fails one job for good, or comes at the deadline
                    job.status = "waiting"

    def _tidy(self, jobs: Sequence[_Job]) -> None:
        """Free the batch's code; replace workers that have done ``recycle_after`` jobs."""
        for job in jobs:
            worker = job.worker
            if worker is not None and worker.alive:
                try:
                    worker.request({"command": "drop", "job": job.number}, timeout=10.0)
                except (WorkerDied, TimeoutError):
                    worker.kill()
        for worker in self.workers:
            if worker.jobs >= self.limits.recycle_after:
                worker.kill()

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._server.close()
        self._ready.clear()

    def twin(self) -> LocalRunner:
        """Returns a runner with one process of its own for the same workload, which is prepared once for both."""
        environment = self.workers[0].environment
        other = LocalRunner(workers=1, environment=environment, timing=self._timing, **vars(self.limits))
        other._check_seconds, other._open_message = self._check_seconds, self._open_message
        other._reference, other._about_reference = self._reference, self._about_reference
        other._simulated = self._simulated
        other.workers[0].memory_bytes = self.workers[0].memory_bytes
        return other

    def _processes(self) -> list[int]:
        return [worker.pid for worker in self.workers if worker.pid is not None]


@dataclass
class _Job:
    number: int
    program: str
    worker: WorkerProcess | None = None
    status: str = "waiting"
    error: str = ""
    compile_seconds: float = 0.0
    times: list[float] = field(default_factory=list)
    machine: Mapping[str, Any] = field(default_factory=dict)

    def fail(self, status: str, error: str) -> None:
        self.status, self.error = status, error

    def result(self) -> MeasureResult:
        status = "skipped" if self.status in ("waiting", "compiled") else self.status
        return MeasureResult(status, self.error, tuple(self.times), self.compile_seconds, self.machine)


# the figure of a candidate


class TimeInterval(NamedTuple):
    """An interval that probably contains the figure of a candidate, in seconds."""

    low: float
    high: float


def estimate(times: Sequence[float]) -> float:
    """Returns the median of the faster half of ``times`` (seconds); the only one, when there is one.

    >>> estimate([3.0, 1.0, 2.0, 90.0])
    1.5
    """
    if len(times) == 0:
        raise ValueError("no timings to estimate from")
    ordered = np.sort(np.asarray(times, dtype=np.float64))
    return float(np.median(ordered[: (len(ordered) + 1) // 2]))


def interval(times: Sequence[float]) -> TimeInterval:
    """Returns an interval for :func:`estimate`, by the spread of the faster half of the timings.

    It is plus or minus 1.5 times the spread over the root of the number of timings in that half. The spread is the slowest
    less the fastest of them, and at least 0.2 % of the figure. With fewer than three timings nothing is known about the
    spread: 20 % to either side is assumed.
    """
    ordered = np.sort(np.asarray(times, dtype=np.float64))
    half = ordered[: (len(ordered) + 1) // 2]
    middle = float(np.median(half))
    if len(ordered) < 3:
        return TimeInterval(0.8 * middle, 1.2 * middle)
    spread = max(float(half[-1] - half[0]), 0.002 * middle)
    radius = 1.5 * spread / np.sqrt(len(half))
    return TimeInterval(middle - radius, middle + radius)
