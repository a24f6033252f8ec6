"""This module times a workload's default schedule, its tuned schedule and NumPy alternately in one run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

import numpy as np

from ..codegen import Target
from ..codegen.late_tables import is_simulated
from ..graph.graph import Graph
from ..pages.short_repr import short_repr
from ..tir.cost import count_bytes, count_flops
from ..tuner.measure.inputs import KernelInputs, compare, make_arguments, tolerance
from ..tuner.measure.runner import require_seconds, require_whole
from ..tuning_db import Database
from .machine_probes import PeakProbe
from .machine_report import MachineReport, bandwidth_for, measure_machine, peak_dtype, peak_for, require_few_threads
from .models.model_benching import ModelBenchOptions, ModelBenchResult, bench_graph
from .models.model_files import READING, is_model, load_model
from .planning import BuildError, Plan, Request, in_order, not_measurable, plan_request, request, require_known
from .racing import BenchRow, Run, shared_race, timed


@dataclass
class BenchResult:
    """The result of :func:`bench`. ``peak_flops`` and ``bandwidth`` (bytes per second, from the cache or memory that
    ``bandwidth_of`` names) are the measured limits of the machine with the target's threads; None when not measured.
    ``processor_share``: for which part of the time the threads had a processor, clearly below 1 on a busy machine."""

    spec: str
    target: str
    flops: float | None
    bytes: float | None
    rows: list[BenchRow]
    peak_flops: float | None = None
    bandwidth: float | None = None
    bandwidth_of: str = ""
    numpy_threads: int | None = None
    processor_share: float | None = None

    __repr__ = short_repr("spec", "target", "rows")

    def row(self, name: str) -> BenchRow | None:
        """Returns the contender of that name: default, tuned, given or numpy."""
        return next((row for row in self.rows if row.name == name), None)

    @property
    def roofline_seconds(self) -> float | None:
        """Returns the least time that peak and bandwidth allow: each argument moved once, each operation done once."""
        parts = []
        if self.flops and self.peak_flops:
            parts.append(self.flops / self.peak_flops)
        if self.bytes and self.bandwidth:
            parts.append(self.bytes / self.bandwidth)
        return max(parts, default=None)

    def figures(self, row: BenchRow) -> dict[str, float | None]:
        """Returns gflops, gbytes_per_second, share_of_peak, share_of_roofline, speedup_over_numpy of one contender."""
        seconds = row.seconds
        rival = self.row("numpy")
        if seconds is None:
            return dict.fromkeys(_FIGURES)
        gflops = self.flops / seconds / 1e9 if self.flops else None
        return {
            "gflops": gflops,
            "gbytes_per_second": self.bytes / seconds / 1e9 if self.bytes else None,
            "share_of_peak": gflops * 1e9 / self.peak_flops if gflops and self.peak_flops else None,
            "share_of_roofline": self.roofline_seconds / seconds if self.roofline_seconds else None,
            "speedup_over_numpy": rival.seconds / seconds if rival and rival.seconds else None,
        }

    def as_dict(self) -> dict[str, Any]:
        """Returns everything as plain values, for JSON."""
        return {
            "spec": self.spec,
            "target": self.target,
            "flops": self.flops,
            "bytes": self.bytes,
            "peak_gflops": self.peak_flops and self.peak_flops / 1e9,
            "bandwidth_gbytes_per_second": self.bandwidth and self.bandwidth / 1e9,
            "bandwidth_of": self.bandwidth_of,
            "numpy_threads": self.numpy_threads,
            "processor_share": self.processor_share,
            "rows": [
                {
                    "name": row.name,
                    "origin": row.origin,
                    "seconds": row.seconds,
                    "error": row.error,
                    **self.figures(row),
                    "times": row.times,
                }
                for row in self.rows
            ],
        }


_FIGURES = ("gflops", "gbytes_per_second", "share_of_peak", "share_of_roofline", "speedup_over_numpy")


@dataclass(frozen=True)
class BenchOptions:
    """How contenders are timed: alternately, ``rounds`` times, each for about ``round_seconds``; ``seed`` makes the inputs.

    ``machine``: measure the machine (or take what was measured), False for no shares.
    """

    rounds: int = 15
    round_seconds: float = 0.02
    seed: int = 0
    machine: MachineReport | bool = True

    def __post_init__(self) -> None:
        require_whole("rounds", self.rounds, 1)
        require_seconds("round_seconds", self.round_seconds)
        require_whole("seed", self.seed, 0)


@overload
def bench(
    inputs: Graph | os.PathLike[str],
    target: str | Target = "native",
    *,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> ModelBenchResult: ...


@overload
def bench(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> BenchResult: ...


def bench(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    **options: Any,
) -> Any:
    """Time ``inputs`` (see :func:`.planning.request`) as scheduled by default, as tuned in ``db``, and with NumPy.

    The contenders run alternately; NumPy gets as many threads as the target, and the peak of multiply-adds is one of the
    contenders. Results are compared with NumPy's first; the row of a wrong one has an ``error``. ``options`` are those
    of :class:`BenchOptions` by name.

    A graph, or a model that a front end reads, is timed with ONNX Runtime as the rival where that is installed, and the
    result is a :class:`~.models.model_benching.ModelBenchResult`. ``options`` are then those of
    :class:`~.models.model_benching.ModelBenchOptions`, and ``shapes`` and ``constants`` of :func:`build`.
    """
    if is_model(inputs):
        if args is not None:
            raise TypeError("args for a model, which takes none; shapes= gives the shapes of its inputs")
        reading = {key: options.pop(key) for key in READING if key in options}
        require_known(options, ModelBenchOptions, ("db", "require_tuned", *READING), "bench")
        machine, _ = in_order([target], None, None)
        asked_for = ModelBenchOptions(**options)
        source = None if isinstance(inputs, Graph) else inputs
        return bench_graph(
            load_model(inputs, **reading), machine, db=db, require_tuned=require_tuned, source=source, options=asked_for
        )
    require_known(options, BenchOptions, ("db", "require_tuned", "args"), "bench")
    chosen = BenchOptions(**options)
    compiled_for, args = in_order([target], None, args)
    asked = request(inputs, args)
    obstacle = not_measurable(asked, compiled_for)
    if obstacle:
        raise BuildError(f"cannot time {asked.func.name}: {obstacle}")
    require_few_threads(compiled_for)
    if is_simulated(compiled_for.kind):
        raise BuildError(
            f"cannot time {asked.func.name}: {compiled_for.kind} has no clock; build and run it to check results"
        )
    plans = [plan_request(asked, compiled_for)]
    if db is not None or require_tuned:
        tuned = plan_request(asked, compiled_for, db, require_tuned)
        plans[0 if tuned.kind != "tuned" else 1 :] = [tuned]  # its origin names the targets that have records
    func = asked.func
    arguments = make_arguments(func, chosen.seed)
    result = BenchResult(asked.spec or func.name, str(compiled_for), count_flops(func), count_bytes(func), [])
    runs = _contenders(asked, plans, arguments, result)
    measures = chosen.machine is True and not compiled_for.is_gpu
    report = measure_machine(compiled_for) if measures else None if chosen.machine is True else chosen.machine or None
    peak = BenchRow("peak", "multiply-adds on registers")
    if report is not None:
        result.peak_flops = peak_for(report, func, compiled_for)
        result.bandwidth, result.bandwidth_of = bandwidth_for(report, func, compiled_for)
        if result.peak_flops:
            probe = PeakProbe(compiled_for, peak_dtype(func, report))
            runs.append((peak, probe.seconds))
    with numpy_threads(compiled_for.num_cores) as arranged:
        result.numpy_threads = compiled_for.num_cores if arranged else None
        result.processor_share = shared_race(runs, chosen.rounds, chosen.round_seconds, compiled_for)
    if peak.seconds is not None:  # in the same run as the others: the clock may have changed since the report
        result.peak_flops = likely_peak(result, probe.flops_per_call / peak.seconds)
    return result


def likely_peak(result: BenchResult, probed: float) -> float | None:
    """Returns the peak of this run, or the one measured before where a contender reached more than the former. Then
    something else took the processor while the peak was measured."""
    known = result.peak_flops
    reached = max([(result.flops or 0.0) / row.seconds for row in result.rows if row.seconds], default=0.0)
    return known if known is not None and reached > probed and known > probed else probed


def _contenders(asked: Request, plans: Sequence[Plan], arguments: KernelInputs, result: BenchResult) -> list[Run]:
    """Returns NumPy, where it can, and the plans, compiled and compared with NumPy's results."""
    runs: list[Run] = []
    reference = _reference(asked, arguments, result, runs)
    for candidate in plans:
        row = BenchRow(candidate.kind, candidate.origin)
        result.rows.append(row)
        module = candidate.compile()
        arguments.reset_outputs()
        module(*arguments.values)
        if reference is not None:
            dtypes = [arguments.dtypes[position] for position in arguments.outputs]
            wrong = compare(arguments.results(), reference, dtypes, tolerance(asked.func))
            row.error = f"differs from NumPy: {wrong}" if wrong else ""
        runs.append((row, _native(module, arguments)))
    result.rows.sort(key=lambda row: ("default", "given", "tuned", "numpy").index(row.name))
    return runs


def _reference(
    asked: Request, arguments: KernelInputs, result: BenchResult, runs: list[Run]
) -> list[np.ndarray] | None:
    """Returns NumPy's results, and NumPy as a contender; None when the workload has no reference."""
    case = asked.case
    if case is None:
        return None
    ins = [v for i, v in enumerate(arguments.values) if i not in arguments.outputs]
    outs = [np.empty_like(out) for out in arguments.results()]
    if not case.run_reference(ins, outs):
        return None
    row = BenchRow("numpy", f"NumPy {np.__version__}")
    result.rows.append(row)
    scratch = [out.copy() for out in outs]

    runs.append((row, timed(lambda: case.run_reference(ins, scratch))))
    return outs


def _native(module: Any, arguments: KernelInputs) -> Callable[[int], float]:
    def run(number: int) -> float:
        return float(module.time_evaluator(repeat=1, number=number, warmup=1)(*arguments.values).results[0])

    return run


@contextlib.contextmanager
def numpy_threads(count: int) -> Iterator[bool]:
    """Let the BLAS of NumPy use ``count`` threads inside the ``with`` block. Yields whether that was possible."""
    libraries = _blas()
    with libraries.limit(limits=count):
        yield bool(libraries)


@lru_cache(maxsize=1)
def _blas() -> Any:
    """Returns the libraries for linear algebra in this process; looking for them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
