"""This module times a model with default schedules, with those on record, and in ONNX Runtime, in turns."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...codegen import Target
from ...graph.graph import Graph, Value
from ...pages.short_repr import short_repr
from ...pages.written_files import utf8_text
from ...tir.expr import to_numpy
from ...tuner.measure.runner import require_seconds, require_whole
from ...tuning_db import Database
from ..planning import BuildError
from ..racing import BenchRow, Run, shared_race, timed
from .model import Model
from .model_building import build_graph
from .model_profile import Profile

_AGREES = 1e-3
"""The largest difference from ONNX Runtime's results, relative to the largest element, that rounding may cause."""


@dataclass(frozen=True)
class ModelBenchOptions:
    """How a model is timed: contenders alternately, ``rounds`` times, each for about ``round_seconds``. ``arrays``: inputs by
    name (``seed`` makes those that are not given); ``profile``: how long each kernel takes, as well;
    ``accuracy``: that of :class:`.model_building.GraphOptions`."""

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
