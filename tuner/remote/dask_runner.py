"""This runner measures on workers of Dask.distributed (Rocklin, "Dask", SciPy 2015).

Each candidate is a task that is bound to one worker with the wanted ``measure:<cpu>`` resource, and needs one ``build``
of it. A worker builds several candidates side by side and times one at a time, whoever sent it. A candidate is sent once:
when its worker is lost it has failed.
"""

from __future__ import annotations

import asyncio
import importlib
import time
import uuid
from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...codegen.machine.target import Target
from ...tir.stmt import PrimFunc
from ..example_sizes import at_example
from ..measure import MeasureResult, ReferenceFailed, Runner
from ..measure.runner import Finished, TimeUp
from .measuring import VERSION, Answer, MeasureRequest, describe, measure

_POLL_SECONDS = 0.5
_GREETING_SECONDS = 120.0
_REFERENCE_SECONDS = 600.0
_ANSWER_SECONDS = 10.0
_TIMED_OUT = (TimeoutError, asyncio.TimeoutError)  # two classes before Python 3.11


class RemoteError(RuntimeError):
    """The workers cannot be used; the text says why, and which."""


class NoWorker(RemoteError):
    """No worker with the wanted CPU is left."""


def _lost(worker: str) -> MeasureResult:
    return MeasureResult("crash", f"the worker {worker} was lost")


class DaskRunner(Runner):
    """Measures candidates on the workers of a Dask scheduler. ``address``: ``dask://host:8786`` (TCP) or
    ``dask+tls://host:8786`` (with the certificates of Dask's configuration); ``?cpu=NAME`` chooses the workers with
    that CPU, by default that of the target.

    ``limits`` are those of a :class:`~..measure.LocalRunner`. ``answer`` is what a worker does with a request. ``patience``: seconds
    to wait for a worker when none is left. ``machines`` has what each worker said of itself with its last answer.
    """

    def __init__(
        self, address: str, *, answer: Callable[[str], str] = measure, patience: float = 30.0, **limits: float
    ) -> None:
        try:
            self._dask = importlib.import_module("distributed")
        except ImportError:
            raise RemoteError("dask:// needs Dask.distributed: pip install 'tilewright[remote]'") from None
        parts = urlsplit(address)
        self.address = f"{'tls' if parts.scheme.endswith('tls') else 'tcp'}://{parts.netloc}"
        self.cpu = parse_qs(parts.query).get("cpu", [""])[0]
        self.limits, self.patience, self._answer = limits, patience, answer
        self.machines: dict[str, dict[str, Any]] = {}
        self._client: Any = None
        self._request: dict[str, Any] = {}
        self._wanted = ""

    def open(
        self, func: PrimFunc, target: Target, *, seed: int = 0, verify: bool = True, deadline: float = float("inf")
    ) -> None:
        at_example(func)
        self._request = {
            "func": func.script(), "target": str(target), "seed": seed, "verify": verify, "limits": self.limits,
        }  # fmt: skip
        self._wanted = self.cpu or target.mcpu
        if self._client is None:
            try:
                self._client = self._dask.Client(self.address, timeout=15, set_as_default=False)
            except OSError as error:
                raise RemoteError(f"no scheduler answers at {self.address}: {error}") from None
        futures = {worker: self._submit((), worker, deadline=deadline) for worker in self._workers()}
        until = min(deadline, time.monotonic() + _REFERENCE_SECONDS)
        while futures and time.monotonic() < until:
            self._wait(list(futures.values()), min(until, time.monotonic() + _POLL_SECONDS))
            there = self._workers()
            answers = self._answers([future for future in futures.values() if future.done()])
            for worker in [w for w, future in futures.items() if future.key in answers or w not in there]:
                future = futures.pop(worker)
                if future.key in answers:
                    self._results(worker, answers[future.key], 0)
        if futures and time.monotonic() >= deadline:
            raise TimeUp("computing the result of the unscheduled function took all of it")

    def measure(
        self, programs: Sequence[str], *, best_seconds: float = float("inf"), deadline: float = float("inf"),
        finished: Finished | None = None, equally: bool = False,
    ) -> list[MeasureResult]:  # fmt: skip
        best_seconds = float("inf") if equally else best_seconds
        results: list[MeasureResult | None] = [None] * len(programs)
        queue = list(range(len(programs)))[::-1]
        busy: dict[int, tuple[str, Any]] = {}

        def done(number: int, result: MeasureResult) -> None:
            results[number] = result
            del busy[number]
            if finished is not None:
                finished(number, result)

        while (queue or busy) and time.monotonic() < deadline:
            try:
                workers = self._workers()
            except NoWorker:  # nobody else will say what became of these
                for number, (worker, _) in list(busy.items()):
                    done(number, _lost(worker))
                raise
            for worker in self._turns(workers, [w for w, _ in busy.values()])[: len(queue)]:
                number = queue.pop()
                busy[number] = worker, self._submit((programs[number],), worker, best_seconds, deadline)
            self._wait([future for _, future in busy.values()], min(deadline, time.monotonic() + _POLL_SECONDS))
            answers = self._answers([future for _, future in busy.values() if future.done()])
            for number, (worker, future) in list(busy.items()):
                if future.key in answers:
                    done(number, self._results(worker, answers[future.key], 1)[0])
                elif worker not in workers:
                    future.cancel()
                    done(number, _lost(worker))
        for _, future in busy.values():
            future.cancel()
        return [MeasureResult("skipped") if result is None else result for result in results]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    # -- inside ----------------------------------------------------------------------------------------------------

    def _turns(self, workers: Mapping[str, int], busy: Sequence[str]) -> list[str]:
        """Returns a worker for each candidate that can be sent now; those with the least to do come first."""
        free = [(n, worker) for worker, builds in workers.items() for n in range(busy.count(worker), builds)]
        return [worker for _, worker in sorted(free, key=lambda turn: turn[0])]

    def _workers(self) -> dict[str, int]:
        """Returns the addresses of the workers with the wanted CPU, and how many candidates each builds at a time. They
        are known to have this version; it waits for one."""
        resource, until = f"measure:{self._wanted}", time.monotonic() + self.patience
        while True:
            try:
                known = self._client.scheduler_info(n_workers=-1)["workers"]
            except Exception as error:
                raise RemoteError(self._gone(error)) from None
            offers = {worker: info["resources"] for worker, info in known.items()}
            found = {worker: int(has.get("build", 1)) for worker, has in offers.items() if resource in has}
            if found:
                break
            if time.monotonic() >= until:
                others = sorted({name for has in offers.values() for name in has if name.startswith("measure:")})
                there = f"there are {', '.join(others)}" if others else "there are none at all"
                raise NoWorker(f"no worker offers {resource} at {self.address}; {there} (?cpu=NAME chooses)")
            time.sleep(_POLL_SECONDS)
        for worker in found:
            if worker not in self.machines:
                self._greet(worker)
        return found

    def _greet(self, worker: str) -> None:
        """Ask a worker for its version; :class:`RemoteError` when it is another one."""
        future = self._client.submit(
            describe, workers=[worker], allow_other_workers=False, pure=False, retries=0
        )  # fmt: skip
        try:
            facts = dict(future.result(timeout=_GREETING_SECONDS))
        except Exception as error:
            raise RemoteError(f"the worker {worker} does not answer: {type(error).__name__}: {error}") from None
        if facts["version"] != VERSION:
            raise RemoteError(
                f"the worker {facts['host']} ({worker}) runs Tilewright {facts['version']}; this is {VERSION}"
            )
        self.machines[worker] = facts

    def _submit(
        self, programs: tuple[str, ...], worker: str, best_seconds: float = float("inf"), deadline: float = float("inf")
    ) -> Any:
        request = MeasureRequest(
            **self._request, programs=programs,
            best_seconds=None if best_seconds == float("inf") else best_seconds,
            seconds=None if deadline == float("inf") else max(0.0, deadline - time.monotonic()),
        )  # fmt: skip
        return self._client.submit(
            self._answer, request.dumps(), key=f"tilewright-{uuid.uuid4().hex}", workers=[worker],
            allow_other_workers=False, resources={"build": 1}, pure=False, retries=0,
        )  # fmt: skip

    def _gone(self, error: BaseException) -> str:
        return f"the scheduler at {self.address} was lost: {str(error) or type(error).__name__}".split("\n")[0]

    def _wait(self, futures: Sequence[Any], until: float) -> None:
        """Wait for one of the tasks, until that time at most."""
        with self._client.as_current():
            try:
                limit = max(0.0, until - time.monotonic())
                self._dask.wait(futures, timeout=limit, return_when="FIRST_COMPLETED")
            except _TIMED_OUT:
                pass
            except (Exception, CancelledError) as error:  # the client gives up its tasks when it cannot connect again
                raise RemoteError(self._gone(error)) from None

    def _answers(self, futures: Sequence[Any]) -> dict[str, str | BaseException]:
        """Returns the answers of tasks that are done by their keys, or what went wrong. They are fetched together where
        all went well, which takes a tenth of the time.

        An answer that does not come is left out: a machine that is lost between its work and the fetch does not answer, and
        will be missed among the workers.
        """
        well = [future for future in futures if future.status == "finished"]
        found: dict[str, str | BaseException] = {}

        async def fetched() -> Any:
            return await self._client.gather(well, errors="raise", asynchronous=True)

        with suppress(Exception, CancelledError):
            texts = self._client.sync(fetched, callback_timeout=_ANSWER_SECONDS)
            found.update(zip([f.key for f in well], texts, strict=True))
        for future in futures:
            if future.key not in found and future.done():  # a lost one waits for its machine again
                try:
                    found[future.key] = future.result(timeout=_ANSWER_SECONDS)
                except _TIMED_OUT:
                    continue
                except (Exception, CancelledError) as error:
                    found[future.key] = error
        return found

    def _results(self, worker: str, text: str | BaseException, count: int) -> tuple[MeasureResult, ...]:
        """Returns the results in the answer of a task; a task that failed is a crash."""
        try:
            if not isinstance(text, str):
                raise text
            answer = Answer.loads(text)
        except (Exception, CancelledError) as error:
            return (MeasureResult("crash", f"the worker {worker}: {type(error).__name__}: {error}"[:4000]),) * count
        self.machines[worker] = dict(answer.machine) or self.machines.get(worker, {})
        if answer.refused == "reference":
            raise ReferenceFailed(answer.reason)
        if answer.refused == "time":
            raise TimeUp(answer.reason)
        if answer.refused or len(answer.results) != count:
            raise RemoteError(f"the worker {worker} measured nothing: {answer.reason or 'a wrong answer'}")
        return tuple([replace(result, machine=self.machines[worker]) for result in answer.results])
