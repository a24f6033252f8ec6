"""The worker process compiles and runs candidates, and answers with their times.

``python -m tilewright.tuner.measure.measuring_worker PARENT_PID MEMORY_BYTES``, messages on stdin and stdout
(:mod:`.process`). It never imports XGBoost, keeps compiled candidates until told to drop them, and ends when its
parent is gone. Requests, each answered once:

=============  =========================================================================================
``open``       func, target, seed, fill → the workload, at its example where sizes are symbolic; that before is dropped
``reference``  → the outputs of the unscheduled function (:mod:`.reference`), and of a recurrence how far right ones spread
``expect``     the reference outputs, and spreads, as raw parts; their scales
``compile``    job, program (the scheduled function as text) → compile_seconds
``run``        job, check, samples, min_seconds, stop_above → times (seconds per call); ``check`` compares with the
               reference first; no more than two are taken when both are above ``stop_above``
``drop``       job → its code is freed
=============  =========================================================================================
"""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...codegen.compile import compile as compile_func
from ...codegen.machine.target import Target
from ...tir.parser import parse
from ...tir.stmt import PrimFunc
from ..cost.cost_features import seconds_of_counts
from ..cost.machine_model import MachineModel
from ..example_sizes import at_example, example_numbers
from .inputs import KernelInputs, compare, make_arguments, scales_of, tolerance
from .process import Message, serve
from .reference import double_results, is_recurrence, reference_run, spread_of, tells

SIMULATED = "simulated: seconds that the model of the machine makes of the simulator's counts"
"""What a record says of times that nobody measured."""

_LEAST_SECONDS = 1e-10
"""No call is shorter, whatever the clock says: a call that does nothing takes about a nanosecond."""


class Failure(Exception):
    """A failure to be answered: its ``status`` and the reason."""

    def __init__(self, status: str, reason: str) -> None:
        Exception.__init__(self, reason)
        self.status = status


class Worker:
    """A worker holds one workload and its compiled candidates, and answers requests."""

    def __init__(self) -> None:
        self.func: PrimFunc | None = None
        self.target: Target | None = None
        self.arguments: KernelInputs | None = None
        self.expected: list[np.ndarray] | None = None
        self.limits = (0.0, 0.0)
        self.scales: tuple[float, ...] = ()
        self.spreads: list[np.ndarray] = []
        self.modules: dict[int, Any] = {}
        self.sizes: dict[int, int] = {}

    def answer(self, message: Message) -> tuple[dict[str, Any], list[Any]]:
        """Returns the reply to one request; an exception becomes a status and a reason."""
        header = dict(message.header)
        command = str(header.pop("command", ""))
        handler: Callable[..., Any] | None = getattr(self, f"do_{command}", None)
        if handler is None:
            return {"status": "protocol_error", "error": f"unknown command {command!r}"}, []
        try:
            reply, blobs = handler(message.blobs, **header)
            return {"status": "ok", **reply}, blobs
        except Failure as failure:
            return {"status": failure.status, "error": str(failure)}, []
        except MemoryError as error:
            return {"status": "out_of_memory", "error": f"{command}: {error or 'memory limit reached'}"}, []
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(last.filename)}:{last.lineno}"
            return {"status": f"{command}_error", "error": f"{type(error).__name__}: {error} ({where})"[:4000]}, []

    def do_open(
        self, blobs: Any, func: str, target: str, seed: int, fill: str = "plain"
    ) -> tuple[dict[str, Any], list[Any]]:
        self.modules.clear()
        self.expected = None
        parsed = parse(func)
        if not isinstance(parsed, PrimFunc):
            raise Failure("open_error", "not a single function")
        self.func, self.target = at_example(parsed), Target(target)
        self.arguments = make_arguments(self.func, seed, fill=fill)
        numbers = (example_numbers(parsed) or {}) if self.func is not parsed else {}
        self.sizes = {n: numbers[p] for n, p in enumerate(parsed.params) if p in numbers}
        return {}, []

    def do_reference(self, blobs: Any) -> tuple[dict[str, Any], list[Any]]:
        func, target, arguments = self._workload()
        run = reference_run(func, target, arguments)
        results = [np.asarray(r, order="C").copy() for r in arguments.results()]
        finite = [np.isfinite(r).mean() for r in results if r.dtype.kind == "f" and r.size]
        scales = scales_of(arguments, run)
        doubles = double_results(func, target, arguments)
        telling, spreads = True, []
        if doubles is not None:
            if is_recurrence(func):
                spreads = [spread_of(r, d) for r, d in zip(results, doubles, strict=True)]
                telling = tells(doubles, spreads)
            with np.errstate(all="ignore"):
                results = [np.asarray(d, order="C").astype(r.dtype) for r, d in zip(results, doubles, strict=True)]
        about = {"finite": min(finite, default=1.0), "scales": scales, "exact": doubles is not None, "telling": telling}
        return about, [*results, *spreads]

    def do_expect(
        self, blobs: Any, scales: Sequence[float] = (), exact: bool = False
    ) -> tuple[dict[str, Any], list[Any]]:
        func, _, arguments = self._workload()
        self.limits, self.scales = tolerance(func, exact=exact), tuple(scales)
        shapes = [arguments.values[p].shape for p in arguments.outputs]
        count = len(shapes)
        self.expected = [
            np.frombuffer(blob, arguments.values[p].dtype).reshape(shape)
            for blob, p, shape in zip(blobs[:count], arguments.outputs, shapes, strict=True)
        ]
        self.spreads = [
            np.frombuffer(blob, np.float32).reshape(shape) for blob, shape in zip(blobs[count:], shapes, strict=False)
        ]
        return {}, []

    def do_compile(self, blobs: Any, job: int, program: str) -> tuple[dict[str, Any], list[Any]]:
        _, target, _ = self._workload()
        start = time.perf_counter()
        self.modules[job] = compile_func(parse(program), target, f"tw_job{job}", cache=False)
        return {"compile_seconds": time.perf_counter() - start}, []

    def do_run(
        self, blobs: Any, job: int, check: bool, samples: int, min_seconds: float, stop_above: float
    ) -> tuple[dict[str, Any], list[Any]]:
        _, _, arguments = self._workload()
        module = self.modules[job]
        if check:
            self._check(module, arguments)
        values = self._handed_over(module, arguments)
        run = module.bind(*values)
        counted = getattr(run, "counted", None)
        if (
            counted is not None
        ):  # a simulated device has no clock, so that the model of the machine says what the counts take
            assert self.target is not None
            seconds = seconds_of_counts(counted(), MachineModel.of(self.target))
            return {"times": [max(seconds, _LEAST_SECONDS)], "machine": {"clock": SIMULATED}}, []
        run()  # a failed assertion is an error here; it also warms the caches
        return {"times": _timings(run.seconds, samples, min_seconds, stop_above)}, []

    def do_drop(self, blobs: Any, job: int) -> tuple[dict[str, Any], list[Any]]:
        self.modules.pop(job, None)
        return {}, []

    def _workload(self) -> tuple[PrimFunc, Target, KernelInputs]:
        if self.func is None or self.target is None or self.arguments is None:
            raise Failure("protocol_error", "no workload is open")
        return self.func, self.target, self.arguments

    def _check(self, module: Any, arguments: KernelInputs) -> None:
        arguments.reset_outputs()
        module(*self._handed_over(module, arguments))
        damage = arguments.damage()
        if damage is not None:
            raise Failure("memory_damaged", damage)
        if self.expected is not None:
            dtypes = [arguments.dtypes[p] for p in arguments.outputs]
            difference = compare(arguments.results(), self.expected, dtypes, self.limits, self.scales, self.spreads)
            if difference is not None:
                raise Failure("wrong_result", difference)

    def _handed_over(self, module: Any, arguments: KernelInputs) -> Sequence[Any]:
        """Returns the arguments as the module takes them: with sizes, and layout-free ones packed, which is not timed."""
        values = list(arguments.values)
        for position, size in sorted(self.sizes.items()):
            values.insert(position, size)
        pack = getattr(module, "packed_arguments", None)
        return values if pack is None else pack(values)


_CANNOT_BE_NOISE = 1.0
"""A disturbance does not take so many seconds."""


def _timings(seconds: Callable[[int], float], samples: int, at_least: float, stop_above: float) -> list[float]:
    """Returns ``samples`` times in seconds per call, at least two.

    Where the first two are above ``stop_above`` they are all: a single one decides nothing, whatever disturbed it. A call
    so slow that no disturbance explains it is not repeated. ``seconds(number)`` is the time of so many calls, and a sample
    has as many as take ``at_least`` seconds.
    """
    number, taken = _repeated(seconds, at_least)
    times = [taken / number]
    while len(times) < samples or len(times) == 1:
        if len(times) > 1 and min(times) > stop_above:
            break
        if taken > _CANNOT_BE_NOISE and times[0] > 4 * stop_above:
            break
        taken = seconds(number)
        if taken < at_least / 2:  # the number of calls was found while something else had the processor
            number, taken = _repeated(seconds, at_least)
        times.append(taken / number)
    return [max(t, _LEAST_SECONDS) for t in times]


def _repeated(seconds: Callable[[int], float], at_least: float) -> tuple[int, float]:
    """Returns a number of calls that take ``at_least`` seconds together, and the seconds that they took."""
    number, taken = 1, seconds(1)
    while taken < at_least:
        per_call = max(taken / number, _LEAST_SECONDS)
        number = min(math.ceil(1.2 * at_least / per_call), 100 * number)
        taken = seconds(number)
        if number > at_least / _LEAST_SECONDS:
            break
    return number, taken


_SMALL = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            v = T.axis.spatial(16, i)
            B[v] = A[v] + 1.0
"""


def warm() -> None:
    """Do once, on one thread, what each child would do first. It loads the compiler, and compiles and runs a small
    function."""
    worker = Worker()
    requests = (
        {"command": "open", "func": _SMALL, "target": "native -num-cores=1", "seed": 0, "fill": "plain"},
        {"command": "reference"},
        {"command": "compile", "job": 0, "program": _SMALL},
        {"command": "run", "job": 0, "check": True, "samples": 1, "min_seconds": 0.0, "stop_above": 1.0},
    )
    for request in requests:
        worker.answer(Message(request, ()))


if __name__ == "__main__":
    serve(Worker().answer, warm=warm)
