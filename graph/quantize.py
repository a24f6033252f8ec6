"""This module replaces the products of a network by products of quantized numbers.

There are three kinds. ``int8``: the data of each product is rounded to uint8 by a range that was seen before (calibration), its
weights to int8 per channel. ``int8-weights`` and ``int4-weights``: the weights of matrix products are codes in groups
(:func:`~tilewright.te.ops.dense_nbits`), and what the data is rounded to is chosen when the network is built.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..pages import did_you_mean
from ..tir.expr import DType
from .builder import Builder
from .graph import Graph, GraphError, Node, Value, substituted
from .graph_operators import channels_of
from .passes.pack_nbits import joined_codes

KINDS = ("int8", "int8-weights", "int4-weights")
"""The kinds of quantized networks."""

Array = np.ndarray[Any, Any]

_WINDOWS = ("conv1d", "conv2d", "conv3d", "depthwise_conv2d")
_MATRICES = ("matmul", "dense")


def quantized(
    b: Builder, x: Value, scale: Value | None, zero: Value | None, ends: tuple[float, float], dtype: str
) -> Value:
    """Returns the numbers nearest to ``x / scale`` plus the zero point, ties to even, cut at ``ends``. ``x`` and ``scale``,
    which is 1 where it is None, are float32."""
    whole = b.op("round", x if scale is None else b.op("divide", x, scale))
    if zero is not None:
        whole = b.op("add", whole, zero if zero.dtype == "float32" else b.op("cast", zero, dtype="float32"))
    return b.op("cast", b.op("clip", whole, low=float(ends[0]), high=float(ends[1])), dtype=dtype)


def dequantized(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    """Returns what whole numbers stand for, ``(x - zero) * scale`` in float32."""
    factor = scale if scale.dtype == "float32" else b.op("cast", scale, dtype="float32")
    if DType(x.dtype).is_float:  # float8, whose zero point is 0
        return b.op("multiply", b.op("cast", x, dtype="float32"), factor)
    wide = x if x.dtype == "int32" else b.op("cast", x, dtype="int32")
    if zero is not None:
        wide = b.op("subtract", wide, zero if zero.dtype == "int32" else b.op("cast", zero, dtype="int32"))
    return b.op("multiply", b.op("cast", wide, dtype="float32"), factor)


@dataclass(frozen=True)
class QuantizedLayer:
    """A product of a network: its result's name, its operator, and the bytes of its weights before and after. ``kept``
    says why it stays as it is."""

    name: str
    op: str
    bytes_before: int
    bytes_after: int = 0
    kept: str = ""


@dataclass
class Quantizer:
    """Replaces the products of ``graph``, whose weights are constants, one by one.

    ``group``: the steps of a sum that share a scale, 0 for all. ``ranges``: the least and the greatest number of the data of
    each product, by the name of its result. ``keep``: the results that stay as they are. ``activations``: the types to
    which building may round the data of matrix products, of :func:`~tilewright.te.ops.dense_nbits`.
    """

    graph: Graph
    kind: str
    group: int = 0
    activations: str = "int8"
    keep: Collection[str] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"there is no kind {self.kind!r}{did_you_mean(self.kind, KINDS)}; there are {', '.join(KINDS)}"
            )
        if self.activations not in ("float32", "int8"):
            raise ValueError(f"activations={self.activations!r}; there are float32 and int8")
        if self.group and (self.group < 16 or self.group % 16):
            raise ValueError(f"group={self.group}: 0 for a whole row, or a multiple of 16")
        names = [node.output.name for node in self.products()]
        for name in self.keep:
            if name not in names:
                near = did_you_mean(name, names)
                raise ValueError(f"keep: no product makes {name!r}{near}; there are {', '.join(names) or 'none'}")

    def products(self) -> list[Node]:
        """Returns the products with constant weights."""
        found = [n for n in self.graph.nodes if n.op in (*_WINDOWS, *_MATRICES) and len(n.outputs) == 1]
        return [n for n in found if n.inputs[1] in self.graph.constants]

    @cached_property
    def obstacles(self) -> dict[Node, str]:
        """Returns why each product stays as it is, in the order of the graph; an empty text replaces it."""
        return {node: self._obstacle(node) for node in self.products()}

    def _obstacle(self, node: Node) -> str:
        weight = node.inputs[1]
        assert weight is not None and node.inputs[0] is not None
        data = self.graph.constants[weight]
        if node.output.name in self.keep:
            return "asked for"
        if weight.dtype not in ("float32", "float16") or node.output.dtype != weight.dtype:
            return f"its weights are {weight.dtype}, its result {node.output.dtype}"
        if not np.isfinite(data).all():
            return "a weight is not finite"
        if self.kind == "int8":
            if weight.dtype != "float32" or node.attrs.get("out_dtype"):
                return f"its weights are {weight.dtype}"
            if channels_of(node) is None:
                return "its weights have no channels"
            low, high = self.ranges.get(node.output.name, (0.0, 0.0))
            return "" if math.isfinite(low) and math.isfinite(high) else "its data is not finite"
        if node.op not in _MATRICES:
            return "a convolution: int8 quantizes those"
        if weight.ndim != 2 or node.attrs.get("transpose_a") or node.inputs[0].ndim < 1:
            return "its weights are no matrix"
        return ""

    def layers(self) -> list[QuantizedLayer]:
        """Returns what becomes of each product."""
        out = []
        for node, kept in self.obstacles.items():
            weight = node.inputs[1]
            assert weight is not None
            before = self.graph.constants[weight].nbytes
            rows, depth = self._matrix(node).shape if not kept and node.op in _MATRICES else (1, 1)
            count, bits = math.prod(self.graph.constants[weight].shape), 4 if self.kind == "int4-weights" else 8
            scales = 4 * rows * (-(-depth // self.group) if self.group else 1)
            after = before if kept else count * bits // 8 + scales
            out.append(QuantizedLayer(node.output.name, node.op, before, after, kept))
        return out

    def quantized_graph(self) -> Graph:
        """Returns the network with quantized products. Results keep their names."""
        b = Builder.on(self.graph)
        mapping: dict[Value, Value] = {}
        for old in self.graph.nodes:
            node = substituted(old, mapping)
            if self.obstacles.get(old) == "":
                mapping[old.output] = self.replacement(b, node, old)
            else:
                b.nodes.append(node)
        outputs = [mapping.get(v, v) for v in self.graph.outputs]
        return b.graph(outputs)

    def replacement(self, b: Builder, node: Node, old: Node) -> Value:
        """Add the quantized product to ``b``, and return its result. ``old`` is the product in the graph."""
        made = self._by_ranges(b, node, old) if self.kind == "int8" else self._by_codes(b, node, old)
        if not np.array_equal(made.shape, node.output.shape) or made.dtype != node.output.dtype:
            raise GraphError(f"{node.output.name}: {made.type_text} is not {node.output.type_text}")
        return made

    def _matrix(self, node: Node) -> Array:
        """Returns the weights of a product of matrices, a row for each column of the result."""
        assert node.inputs[1] is not None
        data = self.graph.constants[node.inputs[1]]
        return data if node.op == "dense" or node.attrs.get("transpose_b") else data.T

    def _by_codes(self, b: Builder, node: Node, old: Node) -> Value:
        bits = 4 if self.kind == "int4-weights" else 8
        codes, scales = codes_of(np.asarray(self._matrix(old), np.float32), bits, self.group)
        joined = joined_codes(codes, bits, scales.shape[1])
        out = b.op("dense_nbits", node.inputs[0], b.constant(joined, "codes", "uint8"), b.constant(scales, "scales"),
                   bits=bits, activations=self.activations)  # fmt: skip
        return b.op("add", out, node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else out

    def _by_ranges(self, b: Builder, node: Node, old: Node) -> Value:
        assert old.inputs[1] is not None and node.inputs[0] is not None
        channels, weight = channels_of(old), self.graph.constants[old.inputs[1]]
        assert channels is not None
        low, high = self.ranges[old.output.name]
        low, high = min(low, 0.0), max(high, 0.0)
        step = (high - low) / 255 or 1.0
        zero = int(np.clip(np.rint(-low / step), 0, 255))
        scale = b.constant(np.float32(step), "scale", "float32")
        place = b.constant(np.uint8(zero), "zero", "uint8")
        numbers = quantized(b, node.inputs[0], scale, place, (0, 255), "uint8")
        every = tuple([d for d in range(weight.ndim) if d not in channels.weight_out])
        most = np.abs(weight).max(axis=every, keepdims=True, initial=0.0)
        steps = np.where(most > 0, most / 127, 1.0).astype(np.float32)
        whole = np.clip(np.rint(weight / steps), -127, 127).astype(np.int8)
        real = dequantized(b, b.constant(whole, "w"), b.constant(steps, "steps"), None)
        return b.op(node.op, dequantized(b, numbers, scale, place), real, *node.inputs[2:], **node.attrs)


def codes_of(weights: Array, bits: int, group: int) -> tuple[Array, Array]:
    """Returns rows of weights as unsigned codes, one a byte, and the scale of each group. A code is ``2 ** (bits - 1)``
    more than the weight over its scale.

    The weight of the largest magnitude becomes the least code: there is one more on that side (as in llama.cpp's Q4_0).
    Weights of 8 bits are symmetric.
    """
    rows, depth = weights.shape
    group = group or depth
    groups = -(-depth // group)
    full = np.zeros((rows, groups * group), np.float32)
    full[:, :depth] = weights
    parts = full.reshape(rows, groups, group)
    middle = 1 << (bits - 1)
    if bits == 8:
        scales = np.abs(parts).max(-1) / 127
    else:
        at = np.abs(parts).argmax(-1)[..., None]
        scales = np.take_along_axis(parts, at, -1)[..., 0] / -middle
    scales = np.where(scales == 0, 1.0, scales).astype(np.float32)
    codes = np.clip(np.rint(parts / scales[..., None]), -middle, middle - 1) + middle
    return codes.astype(np.uint8).reshape(rows, -1), scales


def data_ranges(graph: Graph, quantizer: Quantizer) -> tuple[Graph, list[str]]:
    """Returns a graph that computes the least and the greatest number of the data of each product, and their names."""
    b = Builder.on(graph)
    b.nodes += list(graph.nodes)
    outputs: list[Value] = []
    names: list[str] = []
    for node in quantizer.products():
        data = node.inputs[0]
        assert data is not None
        if data.dtype == "float32" and all(d != 0 for d in data.shape if isinstance(d, int)):
            axes = tuple(range(data.ndim))
            outputs += [b.op("min", data, axis=axes), b.op("max", data, axis=axes)]
            names.append(node.output.name)
    return b.graph(outputs), names


def local_errors(quantizer: Quantizer) -> tuple[Graph, list[str]]:
    """Returns a graph that computes each product as it is and quantized, and the names of the products.

    Both take the data of the float network. Its results are, for each, the sum of the squares of the differences, and that of the results.
    """
    b = Builder.on(quantizer.graph)
    b.nodes += quantizer.graph.nodes
    outputs: list[Value] = []
    names: list[str] = []
    for node, kept in quantizer.obstacles.items():
        if not kept:
            plain = node.output
            apart = b.op("subtract", quantizer.replacement(b, node, node), plain)
            outputs += [_squares(b, apart), _squares(b, plain)]
            names.append(plain.name)
    return b.graph(outputs), names


def _squares(b: Builder, x: Value) -> Value:
    wide = x if x.dtype == "float32" else b.op("cast", x, dtype="float32")
    return b.op("sum", b.op("multiply", wide, wide), axis=tuple(range(x.ndim)))


def calibrated(quantizer: Quantizer, names: Sequence[str], found: Sequence[Sequence[Any]]) -> Quantizer:
    """Returns the quantizer with the ranges of all samples: ``found`` has the results of :func:`data_ranges` of each."""
    ends = np.array([[float(np.asarray(v)) for v in sample] for sample in found], np.float64).reshape(len(found), -1, 2)
    ranges = {name: (ends[:, n, 0].min(), ends[:, n, 1].max()) for n, name in enumerate(names)}
    return Quantizer(quantizer.graph, quantizer.kind, quantizer.group, quantizer.activations, quantizer.keep, ranges)
