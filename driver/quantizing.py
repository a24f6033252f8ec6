"""This module quantizes models, and says what that costs in accuracy: for each output, and for each product by itself."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..codegen import Target
from ..graph.graph import Graph
from ..graph.passes import PASSES, prepare
from ..graph.quantize import QuantizedLayer, Quantizer, calibrated, data_ranges, local_errors
from ..pages import size_text
from ..pages.messages import short_repr
from ..tir.expr.dtype import bfloat16_from_bits
from .benching import model_inputs
from .models.model import Model
from .models.model_building import build_graph, load_model

_BEFORE = PASSES[: [step.name for step in PASSES].index("fold_scales") + 1]
"""The passes before products are quantized: constants are folded, and batch norms are part of the weights."""


def quantize(
    model: Any, kind: str, *, calibration: Any = None, group: int | None = None, activations: str = "int8",
    keep: Collection[str] = (), target: str | Target = "native", **reading: Any,
) -> Graph:  # fmt: skip
    """Returns the graph of a float model with quantized products, which :func:`~tilewright.driver.build` takes.

    Args:
        model: a Graph, or a model that ``build`` reads; ``reading`` goes to its front end (``shapes``, ``constants``). kind:
        ``"int8"`` (data and weights of all products and convolutions), ``"int8-weights"`` or ``"int4-weights"`` (weights
        of matrix products). calibration: inputs that the model will see, needed by ``"int8"``: one sample or a list of
        them, each an array, a tuple, or a mapping by the inputs' names. group: the weights of a column that share a
        scale, a multiple of 16, 0 for all (by default 0 for 8 bits, 32 for 4). activations: ``"float32"`` where building
        must not round the data of products with quantized weights to int8. keep: names of results whose products stay
        as they are. target: the machine on which the calibration runs.

    ValueError for an unknown kind or name, and for samples that do not fit.
    """
    return _quantizer(model, kind, calibration, group, activations, keep, target, reading).quantized_graph()


@dataclass(frozen=True)
class OutputAccuracy:
    """How an output differs from that of the float model over all samples. ``error``: the root of the mean square of the
    differences over that of the output; ``largest``: the largest difference; ``same_choice``: the share of rows, along the
    last axis, whose largest element is at the same place."""

    name: str
    error: float
    largest: float
    same_choice: float | None


@dataclass(frozen=True)
class LayerAccuracy:
    """A product. ``error``: how its result differs when it alone is quantized, relative as in :class:`OutputAccuracy`;
    None where it stays as it is."""

    layer: QuantizedLayer
    error: float | None


@dataclass(frozen=True)
class QuantizationReport:
    """What quantizing has cost: ``graph`` is the quantized network, ``outputs`` and ``layers`` compare it with the float one.
    ``layers`` begin with the one whose error is largest."""

    graph: Graph
    kind: str
    outputs: tuple[OutputAccuracy, ...]
    layers: tuple[LayerAccuracy, ...]
    samples: int

    __repr__ = short_repr("kind", "samples")

    @property
    def bytes_before(self) -> int:
        """Returns the bytes of the weights of products."""
        return sum(row.layer.bytes_before for row in self.layers)

    @property
    def bytes_after(self) -> int:
        """Returns their bytes when they are quantized."""
        return sum(row.layer.bytes_after for row in self.layers)

    def as_dict(self) -> dict[str, Any]:
        """Returns the report as plain values."""
        return {
            "kind": self.kind,
            "samples": self.samples,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "outputs": [vars(row) for row in self.outputs],
            "layers": [{**vars(row.layer), "error": row.error} for row in self.layers],
        }

    def __str__(self) -> str:
        lines = [f"{self.kind}: weights of products {size_text(self.bytes_before)} → {size_text(self.bytes_after)}", ""]
        rows = [["output", "relative error", "largest", "same choice"]]
        for out in self.outputs:
            choice = "" if out.same_choice is None else f"{100 * out.same_choice:.1f} %"
            rows.append([out.name, f"{out.error:.2g}", f"{out.largest:.2g}", choice])
        lines += [*_table(rows), ""]
        rows = [["product", "operator", "error alone", "bytes"]]
        for row in self.layers:
            said = f"stays: {row.layer.kept}" if row.error is None else f"{row.error:.2g}"
            rows.append([row.layer.name, row.layer.op, said, size_text(row.layer.bytes_after)])
        return "\n".join([*lines, *_table(rows)])


def quantization_report(
    model: Any, kind: str, inputs: Any = None, *, calibration: Any = None, group: int | None = None,
    activations: str = "int8", keep: Collection[str] = (), target: str | Target = "native", **reading: Any,
) -> QuantizationReport:  # fmt: skip
    """Returns what quantizing a model costs, with the quantized graph. The arguments are those of :func:`quantize`;
    ``inputs`` are samples on which both models run, by default those of the calibration, else random ones."""
    machine = Target.of(target)
    quantizer = _quantizer(model, kind, calibration, group, activations, keep, machine, reading)
    graph = quantizer.graph
    samples = _samples(graph, calibration if inputs is None else inputs) or [model_inputs(graph, {})]
    made = quantizer.quantized_graph()
    before, after = build_graph(graph, machine), build_graph(made, machine)
    pairs = [(_run(before, sample), _run(after, sample)) for sample in samples]
    outputs = []
    for n, v in enumerate(graph.outputs):
        want, got = [np.stack([np.asarray(pair[side][n], np.float64) for pair in pairs]) for side in (0, 1)]
        outputs.append(_compared(v.name, want, got))
    local, names = local_errors(quantizer)
    errors: dict[str, float] = {}
    if names:
        alone = build_graph(local, machine)
        squares = np.sum([[float(v) for v in _run(alone, sample)] for sample in samples], axis=0)
        apart, whole = squares.reshape(-1, 2).T
        errors = {name: math.sqrt(a / (w or 1.0)) for name, a, w in zip(names, apart, whole, strict=True)}
    layers = [LayerAccuracy(layer, errors.get(layer.name)) for layer in quantizer.layers()]
    layers.sort(key=lambda row: -1.0 if row.error is None else row.error, reverse=True)
    return QuantizationReport(made, kind, tuple(outputs), tuple(layers), len(samples))


def _quantizer(
    model: Any, kind: str, calibration: Any, group: int | None, activations: str, keep: Collection[str],
    target: str | Target, reading: Mapping[str, Any],
) -> Quantizer:  # fmt: skip
    """Returns what quantizes the products of a model, calibrated."""
    machine = Target.of(target)
    keep = (keep,) if isinstance(keep, str) else keep
    size = group if group is not None else 32 if kind == "int4-weights" else 0
    graph = prepare(load_model(model, **reading), _BEFORE)
    quantizer = Quantizer(graph, kind, size, activations, keep)
    if kind != "int8":
        return quantizer
    samples = _samples(graph, calibration)
    if not samples:
        raise ValueError(
            "int8 needs calibration=, a list of inputs that the model will see: they give the ranges of its data"
        )
    extremes, names = data_ranges(graph, quantizer)
    if not names:
        return quantizer
    built = build_graph(extremes, machine)
    return calibrated(quantizer, names, [_run(built, sample) for sample in samples])


def _samples(graph: Graph, given: Any) -> list[dict[str, Any]]:
    """Returns samples as mappings by the names of the inputs."""
    if given is None:
        return []
    if isinstance(given, (np.ndarray, tuple, Mapping)) or not isinstance(given, Sequence):
        given = [given]
    names = [v.name for v in graph.inputs]
    out = []
    for sample in given:
        if isinstance(sample, Mapping):
            found = dict(sample)
        else:
            arrays = sample if isinstance(sample, (tuple, list)) else (sample,)
            found = dict(zip(names, arrays, strict=False)) if len(arrays) == len(names) else {}
        if set(found) != set(names):
            raise ValueError(
                f"a sample has the inputs {', '.join(map(str, found)) or 'of another number'}; the model takes {', '.join(names)}"
            )
        out.append(found)
    return out


def _run(model: Model, sample: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns the outputs of a model as a tuple of arrays of numbers."""
    made = model(**sample)
    outputs = made if isinstance(made, tuple) else (made,)
    bits = [v.dtype == "bfloat16" for v in model.outputs]
    return tuple(
        [bfloat16_from_bits(np.asarray(o)) if b else np.asarray(o) for o, b in zip(outputs, bits, strict=True)]
    )


def _compared(name: str, want: np.ndarray, got: np.ndarray) -> OutputAccuracy:
    apart = got - want
    size = math.sqrt(float(np.mean(want**2))) if want.size else 0.0
    error = math.sqrt(float(np.mean(apart**2))) if want.size else 0.0
    same = None
    if want.ndim > 1 and want.shape[-1] > 1:
        same = float(np.mean(want.argmax(-1) == got.argmax(-1)))
    return OutputAccuracy(name, error / size if size else error, float(np.abs(apart).max(initial=0.0)), same)


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    return ["  ".join([cell.ljust(w) for cell, w in zip(row, widths, strict=True)]).rstrip() for row in rows]
