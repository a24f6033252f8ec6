"""This module times contenders alternately in one run: schedules of a workload and NumPy, or a model's and ONNX Runtime.

So a machine whose speed drifts treats all alike. :func:`race` takes the turns, :func:`bench` times a workload, and
:func:`bench_graph` a model with default schedules, with those on record, and in ONNX Runtime.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np

from ..codegen import Target
from ..codegen.late_tables import is_simulated
from ..graph.graph import Graph, Value
from ..pages.messages import require_seconds, require_whole, short_repr
from ..pages.written_files import utf8_text
from ..tir.cost import count_bytes, count_flops
from ..tir.expr import to_numpy
from ..tuner.measure import estimate
from ..tuner.measure.inputs import KernelInputs, compare, make_arguments, tolerance
from ..tuning_db import Database
from .building import BuildError, Plan, Request, in_order, plan_request, request, require_known
from .machine_report import (
    MachineReport,
    PeakProbe,
    bandwidth_for,
    measure_machine,
    peak_dtype,
    peak_for,
    processor_share,
    require_few_threads,
)
from .models.model import Model, Profile
from .models.model_building import READING, build_graph, is_model, load_model
from .tuning import not_measurable

_BLAS_SPINS_SECONDS = 0.03
"""OpenBLAS's threads keep their cores busy for 2**26 cycles after a product, which would slow down the next
contender."""


@dataclass
class BenchRow:
    """A row is one contender. ``times`` are seconds per call, one per round; ``error`` says why there are none, or that
    the result is wrong."""

    name: str
    origin: str
    times: list[float] = field(default_factory=list)
    error: str = ""

    __repr__ = short_repr("name", "seconds", "error")

    @property
    def seconds(self) -> float | None:
        """Returns the figure: the median of the faster half."""
        return estimate(self.times) if self.times else None


Run = tuple[BenchRow, Callable[[int], float]]
"""A contender, and the seconds per call over so many calls."""


def timed(call: Callable[[], object]) -> Callable[[int], float]:
    """Returns the contender that calls a Python function: the seconds per call over so many calls."""

    def run(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - start) / number

    return run


def race(runs: Sequence[Run], rounds: int, round_seconds: float) -> None:
    """Run the contenders alternately, ``rounds`` times; a slow one runs once per round, a fast one many times."""
    numbers = []
    for _, run in runs:
        time.sleep(_BLAS_SPINS_SECONDS)
        run(1)
        numbers.append(max(1, min(1_000_000, int(round_seconds / max(run(1), 1e-9)))))
    for _ in range(rounds):
        for (row, run), number in zip(runs, numbers, strict=True):
            row.times.append(run(number))
            if row.name == "numpy":
                time.sleep(_BLAS_SPINS_SECONDS)


def shared_race(runs: Sequence[Run], rounds: int, round_seconds: float, target: Target) -> float | None:
    """Run the contenders as :func:`race` does, and return the :func:`processor_share` of ``target``'s threads. It is
    taken before and after, and the smaller one counts. None for a GPU."""
    before = None if target.is_gpu else processor_share(target)
    race(runs, rounds, round_seconds)
    return None if before is None else min(before, processor_share(target))


_AGREES = 1e-3
"""The largest difference from ONNX Runtime's results, relative to the largest element, that rounding may cause."""


@dataclass(frozen=True)
class ModelBenchOptions:
    """How a model is timed: contenders alternately, ``rounds`` times, each for about ``round_seconds``. ``arrays``: inputs by
    name (``seed`` makes those that are not given); ``profile``: how long each kernel takes, as well;
    ``accuracy``: that of :class:`.models.model_building.GraphOptions`."""

    rounds: int = 15
    round_seconds: float = 0.02
    seed: int = 0
    arrays: Mapping[str, Any] | None = None
    profile: bool = False
    accuracy: float | None = None

    def __post_init__(self) -> None:
        require_whole("rounds", self.rounds, 1)
        require_seconds("round_seconds", self.round_seconds)
        require_whole("seed", self.seed, 0)


@dataclass
class ModelBenchResult:
    """The result of timing a model: a row per contender (default, tuned, onnxruntime), and profiles by the rows' names.

    A row whose outputs differ from ONNX Runtime's has an ``error``. ``processor_share``: for which part of the time the
    threads had a processor, clearly below 1 on a busy machine.
    """

    model: str
    target: str
    rows: list[BenchRow]
    profiles: dict[str, Profile]
    processor_share: float | None = None

    __repr__ = short_repr("model", "target", "rows")

    def row(self, name: str) -> BenchRow | None:
        """Returns the contender of that name."""
        return next((row for row in self.rows if row.name == name), None)

    def speedup(self, row: BenchRow) -> float | None:
        """Returns how many times faster than ONNX Runtime a contender is."""
        other = self.row("onnxruntime")
        return other.seconds / row.seconds if other is not None and other.seconds and row.seconds else None

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON."""
        rows = [
            {"name": row.name, "origin": row.origin, "seconds": row.seconds, "error": row.error,
             "speedup_over_onnxruntime": self.speedup(row), "times": row.times}
            for row in self.rows
        ]  # fmt: skip
        profiles = {name: [row.as_dict() for row in profile.rows] for name, profile in self.profiles.items()}
        return {
            "model": self.model, "target": self.target, "processor_share": self.processor_share, "rows": rows,
            "profiles": profiles,
        }  # fmt: skip


def bench_graph(
    graph: Graph,
    target: Target,
    *,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    source: Any = None,
    options: ModelBenchOptions | None = None,
) -> ModelBenchResult:
    """Time a graph. ``source``: the ONNX model that it was read from, which ONNX Runtime runs where it is installed."""
    chosen = options or ModelBenchOptions()
    inputs = model_inputs(graph, chosen.arrays or {}, chosen.seed)
    models = {"default": build_graph(graph, target, accuracy=chosen.accuracy)}
    if db is not None or require_tuned:
        tuned = build_graph(graph, target, db=db, require_tuned=require_tuned, accuracy=chosen.accuracy)
        if any(step.built.kind == "tuned" for step in tuned.steps):
            models["tuned"] = tuned
    result = ModelBenchResult(graph.name, str(target), [], {})
    runs: list[Run] = []
    outputs: dict[str, Sequence[Any]] = {}
    for name, model in models.items():
        row = BenchRow(name, model.origin)
        result.rows.append(row)
        outputs[name] = _outputs(model, inputs)
        runs.append((row, timed(_call(model, inputs, outputs[name]))))
    other = rival(source, target.num_cores) if source is not None else None
    if other is not None:
        version, run = other
        arrays = list(inputs.values())
        reference = run(arrays)
        for row in result.rows:
            row.error = _difference(outputs[row.name], reference)
        row = BenchRow("onnxruntime", version)
        result.rows.append(row)
        runs.append((row, timed(lambda: run(arrays))))
    result.processor_share = shared_race(runs, chosen.rounds, chosen.round_seconds, target)
    if chosen.profile:
        result.profiles = {name: model.profile(*inputs.values()) for name, model in models.items()}
    return result


def model_inputs(graph: Graph, given: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Returns an array for each input: the one that is given, else random numbers in [-1, 1). Integers are 0 and 1.

    :class:`BuildError` for symbolic shapes, for names that are no inputs, and for arrays that do not fit.
    """
    rng = np.random.default_rng(seed)
    names = [v.name for v in graph.inputs]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise BuildError(f"{graph.name} has no input {', '.join(unknown)}; its inputs: {', '.join(names)}")
    return {v.name: _input(v, given.get(v.name), rng) for v in graph.inputs}


def _input(value: Value, given: Any, rng: np.random.Generator) -> np.ndarray:
    dtype = np.dtype(to_numpy(value.dtype))
    if given is not None:
        array = np.asarray(given, order="C")
        if array.dtype != dtype or array.ndim != value.ndim:
            raise BuildError(f"the input {value!r} does not take {array.dtype}{list(array.shape)}")
        return array
    if not value.is_static:
        raise BuildError(f"the input {value!r} has a symbolic size; give its shape, or an array")
    if dtype.kind in "iub":
        return rng.integers(0, 2, value.shape).astype(dtype)
    return rng.uniform(-1, 1, value.shape).astype(dtype)


def _outputs(model: Model, inputs: Mapping[str, Any]) -> Sequence[Any]:
    made = model(**inputs)
    return made if isinstance(made, tuple) else (made,)


def _call(model: Model, inputs: Mapping[str, Any], out: Sequence[Any]) -> Callable[[], Any]:
    arrays = [inputs[v.name] for v in model.inputs]
    return lambda: model(*arrays, out=out)


def _difference(got: Sequence[Any], expected: Sequence[Any]) -> str:
    """Returns in words where results differ from ONNX Runtime's by more than rounding, or nothing."""
    for n, (a, b) in enumerate(zip(got, expected, strict=True)):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return f"output {n} has the shape {a.shape}, not {b.shape} as in ONNX Runtime"
        if b.size == 0:
            continue
        if b.dtype.kind in "iub":
            wrong = int(np.count_nonzero(a != b))
            if wrong:
                return f"output {n} differs from ONNX Runtime's in {wrong} of {b.size} elements"
            continue
        scale = float(np.nanmax(np.abs(b.astype(np.float64)))) or 1.0
        off = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)))) / scale
        if not off <= _AGREES:
            return f"output {n} differs from ONNX Runtime's by {off:.1e} of its largest element"
    return ""


Results = list[Any]


def rival(what: Any, threads: int) -> tuple[str, Callable[[Sequence[Any]], Results]] | None:
    """Returns ONNX Runtime's version, and a function of the inputs in order that returns the outputs.

    ``what``: the file of a model, or a model of the package onnx. All optimizations are on. None for other models, and
    where ONNX Runtime is not installed.
    """
    source = _source(what)
    if source is None:
        return None
    try:
        ort = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    return f"ONNX Runtime {ort.__version__}", lambda arrays: list(
        session.run(None, dict(zip(names, arrays, strict=True)))
    )


def _source(what: Any) -> str | bytes | None:
    if isinstance(what, (str, os.PathLike)):
        if Path(what).suffix.lower() != ".onnx":
            return None
        path = os.fspath(what)
        return path if utf8_text(path) == path else Path(path).read_bytes()  # ONNX Runtime takes names in UTF-8 only
    made = getattr(what, "SerializeToString", None)
    return bytes(made()) if made is not None else None


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
    """Time ``inputs`` (see :func:`.building.request`) as scheduled by default, as tuned in ``db``, and with NumPy.

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
