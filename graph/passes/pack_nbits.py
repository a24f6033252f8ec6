"""These passes find products with weights of a few bits, and pack the weights for vectors.

Weights stand in a graph as :func:`~tilewright.te.ops.dense_nbits` has them, or are decoded element by element, as those of
``DequantizeLinear``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...te.ops import pack_nbits
from ...te.ops.quantized import CODE_LANES, CODE_STEPS
from ...tir.expr import DType
from ..graph import Graph, Value
from ..kernels import Services
from ..rules import Match, any_value, constant, either, numbers_of, op, rewritten, rule
from .fold_constants import MOVES

INT8_ERROR = 5e-3
"""The root mean square of the errors of results, relative to theirs, when groups of normal data are rounded to int8."""

_LONGEST = 128
"""The most steps of a sum that is added up before it is scaled: more wait for each other."""

_ROWS = 32
"""The most rows for which floats are multiplied by packed codes: for more, weights are decoded once."""

_ROWS_OF_A_STEP = 8
"""The most rows in a loop, all of whose steps take the weights that are decoded before it."""

Array = np.ndarray[Any, Any]


_PRODUCT = either(
    op("dense_nbits", any_value("x"), constant("codes"), constant("scales"), bind="product"),
    op("dense_nbits", any_value("x"), constant("codes"), constant("scales"), constant("zeros"), bind="product"),
)


@dataclass(frozen=True)
class NbitsWeights:
    """Weights of ``bits`` bits: ``codes`` one a byte (N, K), ``scales`` and ``zeros`` (N, G)."""

    bits: int
    codes: Array
    scales: Array
    zeros: Array | None

    @property
    def group(self) -> int:
        """Returns the number of steps of a group."""
        return -(-self.codes.shape[1] // self.scales.shape[1])

    def sums(self, depth: int) -> Array:
        """Returns the sum of what the first ``depth`` weights of each column stand for."""
        codes = self.codes.astype(np.float64)[:, :depth]
        middle = np.full(self.scales.shape, 1 << (self.bits - 1)) if self.zeros is None else self.zeros
        zeros, scales = [np.repeat(v.astype(np.float64), self.group, axis=1)[:, :depth] for v in (middle, self.scales)]
        return np.asarray(((codes - zeros) * scales).sum(axis=1), np.float32)

    def cut(self, width: int) -> tuple[NbitsWeights, int] | None:
        """Returns the weights with zeros after them, and the number of steps of a part.

        A group is cut into parts of at most :data:`_LONGEST` steps, and a part into quads: ``width`` bytes, with as many codes
        each as a byte holds. None where no number of quads divides the groups.
        """
        unit, groups, group = width * 8 // self.bits, self.scales.shape[1], self.group
        if groups == 1:
            length = -(-group // -(-group // _LONGEST))
            length = -(-length // unit) * unit
            group = -(-group // length) * length
        elif group % unit:
            return None
        else:
            fits = [n for n in range(unit, group + 1, unit) if group % n == 0]
            length = max([n for n in fits if n <= _LONGEST], default=unit)
        rows, depth = self.codes.shape
        full = np.zeros((rows, groups * group), np.uint8)
        full[:, :depth] = self.codes
        return replace(self, codes=full), length


def find_nbits_weights(graph: Graph, services: Services = Services()) -> Graph:
    """Find products with a constant of at most 8 bits that is decoded element by element.

    Before::

        t = multiply(cast(w, dtype="float32"), scales)
        y = dense(x, t)

    After::

        y = dense_nbits(x, codes, scales_1, bits=8)

    Those of many rows stay where the data is not rounded: they decode the weights once.
    """
    if not services.packed_nbits:
        return graph
    most = _ROWS_OF_A_STEP if services.repeated else _ROWS

    @rule(
        either(
            op("matmul", any_value("x"), any_value("w")),
            op("dense", any_value("x"), any_value("w")),
            op("dense", any_value("x"), any_value("w"), any_value("bias")),
        )
    )
    def decoded(m: Match) -> Value | None:
        """A product with decoded weights is one with codes, scales and zero points."""
        x, w, attrs = m["x"], m["w"], m.root.attrs
        if w.ndim != 2 or x.dtype != "float32" or m.out.dtype != "float32" or m.data(w) is not None:
            return None
        if attrs.get("transpose_a") or not w.is_static or 3 * math.prod(w.shape) <= _SMALL:
            return None
        whole = "int8" in services.packed_nbits and _rounded_data(m, x) is not None
        if not whole and _kind(services, "float32") == "float32" and _rows(x) > most:
            return None
        found = _decoded(m, w)
        if found is None:
            return None
        weights = _as_codes(found if m.root.op == "dense" or attrs.get("transpose_b") else found.transposed((1, 0)))
        if weights is None:
            return None
        groups = weights.scales.shape[1]
        codes = m.constant(joined_codes(weights.codes, weights.bits, groups), "uint8")
        zeros = None if weights.zeros is None else m.constant(weights.zeros)
        out = m.op("dense_nbits", x, codes, m.constant(weights.scales), zeros, bits=weights.bits)
        return m.op("add", out, m["bias"]) if "bias" in m else out

    @rule(op("multiply", _PRODUCT, constant("factor")))
    def scaled(m: Match) -> Value | None:
        """What multiplies the columns of a product multiplies the scales of its weights."""
        factor, node = m.array("factor"), m.node("product")
        columns = int(m.out.shape[-1])
        if factor.size != 1 and (factor.size != columns or factor.shape[-1] != columns):
            return None
        if m.readers(node.output) > 1 or not m.fits(node.output) or m["factor"].dtype != "float32":
            return None
        scales = m.numbers("scales").astype(np.float32) * factor.reshape(-1, 1)
        return m.op("dense_nbits", *node.inputs[:2], m.constant(scales), *node.inputs[3:], **node.attrs)

    return rewritten(graph, (decoded, scaled))


def joined_codes(codes: Array, bits: int, groups: int) -> Array:
    """Returns codes, one a byte, (N, K), as bytes (N, G, bytes of a group). The first code is in the lowest bits."""
    rows, depth = codes.shape
    unit = 8 // bits
    full = np.zeros((rows, -(-depth // (unit * groups)) * unit * groups), np.uint8)
    full[:, :depth] = codes
    joined = full[:, ::unit].copy()
    for n in range(1, unit):
        joined |= full[:, n::unit] << (n * bits)
    return joined.reshape(rows, groups, -1)


_SMALL = 1 << 16
"""The bytes that narrow weights have to save."""

_LEAST_GROUP = 16
"""The least number of steps of a group."""


@dataclass(frozen=True)
class _Decoded:
    """The constant ``numbers`` of at most 8 bits, and what they stand for: ``(numbers - zeros) * scales``."""

    numbers: Array
    scales: Array | None = None
    zeros: Array | None = None

    def moved(self, move: Callable[[Array], Array]) -> _Decoded:
        """Returns the weights with their elements at other places."""
        parts = (self.numbers, self.scales, self.zeros)
        shape = self.numbers.shape
        return _Decoded(*[None if p is None else move(np.broadcast_to(p, shape)) for p in parts])  # type: ignore[arg-type]

    def transposed(self, axes: Sequence[int]) -> _Decoded:
        return self.moved(lambda x: x.transpose(axes))


def _decoded(m: Match, value: Value) -> _Decoded | None:
    """Returns what a value decodes, None when it does something else."""
    data = m.data(value)
    if data is not None:
        return _Decoded(data) if value.dtype in ("int8", "uint8") else None
    node = m.producer(value)
    if node is None or node.inputs[0] is None:
        return None
    inner, attrs = node.inputs[0], node.attrs
    if node.op in ("subtract", "multiply"):
        assert node.inputs[1] is not None
        if value.dtype != "float32" and (node.op == "multiply" or value.dtype not in _WIDER):
            return None  # a difference of 8 bits wraps around
        first, other = _decoded(m, inner), _known(m, node.inputs[1])
        if first is None and node.op == "multiply":
            first, other = _decoded(m, node.inputs[1]), _known(m, inner)
        if first is None or other is None or value.shape != first.numbers.shape or first.scales is not None:
            return None
        if node.op == "multiply":
            return replace(first, scales=other)
        return None if first.zeros is not None else replace(first, zeros=other)
    found = _decoded(m, inner) if node.op in ("cast", "reshape", "transpose", "expand_dims", "squeeze") else None
    if found is None:
        return None
    if node.op == "cast":
        return found if value.dtype in _WIDER else None
    return found.moved(lambda x: _MOVES[node.op](x, **attrs))


_WIDER = ("int16", "int32", "int64", "float32")
"""Types that hold the numbers of 8 bits, and their differences."""


_MOVES = {**MOVES, "repeat": lambda x, repeats, axis=0: np.repeat(x, repeats, axis)}
"""NumPy's name for operators that only move elements: of scales and zero points, which are few numbers."""


def _known(m: Match, value: Value) -> Array | None:
    """Returns the data of a value that is a constant, or made of one by moving and widening elements."""
    data = m.data(value)
    if data is not None:
        return numbers_of(data, value.dtype)
    node = m.producer(value)
    inner = None if node is None or node.inputs[0] is None else _known(m, node.inputs[0])
    if node is None or inner is None:
        return None
    if node.op == "cast":
        return inner.astype(value.dtype) if value.dtype in _WIDER else None
    return _MOVES[node.op](inner, **node.attrs) if node.op in _MOVES and len(node.inputs) == 1 else None


def _as_codes(found: _Decoded) -> NbitsWeights | None:
    """Returns rows of weights as unsigned codes of as few bits as they need, or None.

    They have none when scales do not belong to groups."""
    numbers = found.numbers
    rows, depth = numbers.shape
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    signed = numbers.dtype == np.int8
    bits = next(b for b in (2, 4, 8) if (-(1 << b) // 2 <= low and high < (1 << b) // 2 if signed else high < 1 << b))
    middle = 1 << (bits - 1)
    shift = middle if signed else 0
    parts = [np.broadcast_to(np.float32(1), (rows, depth)) if found.scales is None else found.scales]
    parts += [] if found.zeros is None else [found.zeros]
    parts = [np.broadcast_to(p, (rows, depth)) for p in parts]
    group = math.gcd(*[_group(p) for p in parts])
    if group < min(_LEAST_GROUP, depth) or group % (8 // bits) and group < depth:
        return None
    scales, *less = [np.asarray(p[:, ::group], order="C") for p in parts]
    zeros = less[0].astype(np.float32) + shift if less else np.full_like(scales, shift, np.float32)
    codes = (numbers.astype(np.int16) + shift).astype(np.uint8)
    return NbitsWeights(bits, codes, scales.astype(np.float32), None if (zeros == middle).all() else zeros)


def _group(rows: Array) -> int:
    """Returns the largest divisor of the length of rows so that each part of that length has equal elements."""
    depth = rows.shape[1]
    if rows.strides[1] == 0:
        return depth
    changes = np.flatnonzero((rows[:, 1:] != rows[:, :-1]).any(axis=0)) + 1
    return math.gcd(depth, *[int(n) for n in changes])


def pack_nbits_weights(graph: Graph, services: Services = Services()) -> Graph:
    """Pack constant weights of a few bits for the products that read them.

    Before::

        y = dense_nbits(x, codes, scales, bits=4, activations="int8")

    After::

        q, factors, sums = quantize_groups(x, group=32)
        y = dense_packed_nbits(q, sums, codes_1, scales_1, factors=factors, bits=4)

    Data is rounded to int8 where the product or the accuracy that was asked for allows it, and the machine has
    instructions for it.
    """
    if not services.packed_nbits:
        return graph

    @rule(_PRODUCT)
    def packed(m: Match) -> Value | None:
        """A product with codes in the order of the rows is one with packed codes."""
        x, attrs = m["x"], m.root.attrs
        depth = x.shape[-1]
        if not isinstance(depth, int) or x.dtype == "float64":
            return None
        rounded = _rounded_data(m, x) if "int8" in services.packed_nbits else None
        kind = "int8" if rounded else _kind(services, attrs.get("activations", "float32"))
        if kind == "float32" and _rows(x) > _ROWS:
            return None
        weights = _weights(m, depth, int(attrs.get("bits", 4)))
        made = _product(m, weights, kind, rounded)
        return made if made is None or made.dtype == m.out.dtype else m.op("cast", made, dtype=m.out.dtype)

    def _product(m: Match, weights: NbitsWeights, kind: str, rounded: _Rounded | None) -> Value | None:
        width = CODE_STEPS if kind == "int8" else 1
        cut = weights.cut(width)
        if cut is None:
            return None
        x, (whole, length) = m["x"], cut
        parts = whole.codes.shape[1] // length
        codes = m.constant(pack_nbits(whole.codes, whole.bits, parts, width), "uint8")
        scales = m.constant(_panels(whole.scales), m["scales"].dtype)
        zeros = None if whole.zeros is None else m.constant(_panels(whole.zeros), m["zeros"].dtype)
        attrs = {"bits": whole.bits, "columns": int(m.out.shape[-1])}
        if rounded:
            given = _in_parts(m, rounded.numbers, parts, length)
            one = rounded.scale if rounded.scale.ndim else m.op("reshape", rounded.scale, shape=(1,) * x.ndim)
            factors = m.op("broadcast_to", one, shape=(*x.shape[:-1], parts))
            sums = m.op("sum", given, axis=(x.ndim,))
            out = m.op("dense_packed_nbits", given, sums, codes, scales, zeros, factors, **attrs)
            if rounded.zero is None:
                return out
            total = m.constant(whole.sums(int(x.shape[-1])))
            zero = rounded.zero if rounded.zero.dtype == "float32" else m.op("cast", rounded.zero, dtype="float32")
            place = m.op("multiply", zero, rounded.scale)
            return m.op("subtract", out, m.op("multiply", place, total))
        if kind == "int8":
            numbers, factors, sums = m.several("quantize_groups", x, group=length, groups=parts)
            return m.op("dense_packed_nbits", numbers, sums, codes, scales, zeros, factors, **attrs)
        wide = x if x.dtype == "float32" else m.op("cast", x, dtype="float32")
        numbers = _in_parts(m, wide, parts, length)
        return m.op("dense_packed_nbits", numbers, m.op("sum", numbers, axis=(x.ndim,)), codes, scales, zeros, **attrs)

    return rewritten(graph, (packed,))


@dataclass(frozen=True)
class _Rounded:
    """Data that stands for ``(numbers - zero) * scale``, numbers of int8, with a scale and a zero point for each row."""

    numbers: Value
    scale: Value
    zero: Value | None


def _rounded_data(m: Match, x: Value) -> _Rounded | None:
    """Returns the parts of data that was rounded to int8 row by row, None for other data."""
    node = m.producer(x)
    if node is None or node.op != "multiply" or x.dtype != "float32" or not x.ndim:
        return None
    for numbers, scale in (node.inputs, node.inputs[::-1]):
        assert numbers is not None and scale is not None
        inner, zero = _without_casts(m, numbers), None
        made = m.producer(inner)
        if made is not None and made.op == "subtract" and inner.dtype in _WIDER:
            assert made.inputs[0] is not None and made.inputs[1] is not None
            inner, zero = _without_casts(m, made.inputs[0]), _without_casts(m, made.inputs[1])
        each = [v for v in (scale, zero) if v is not None]
        if inner.dtype == "int8" and inner.shape == x.shape and all(_one_a_row(v, x) for v in each):
            if scale.dtype == "float32" and (zero is None or zero.dtype in _WIDER or DType(zero.dtype).bits == 8):
                return _Rounded(inner, scale, zero)
    return None


def _one_a_row(v: Value, x: Value) -> bool:
    """Returns whether ``v`` has one number for each row of ``x``, or one for all."""
    return not v.ndim or (
        v.ndim == x.ndim and v.shape[-1] == 1 and all(a in (1, b) for a, b in zip(v.shape, x.shape, strict=True))
    )


def _without_casts(m: Match, v: Value) -> Value:
    """Returns the whole numbers that are widened to ``v``."""
    node = m.producer(v)
    while node is not None and node.op == "cast" and v.dtype in _WIDER and node.inputs[0] is not None:
        if not DType(node.inputs[0].dtype).is_int:
            break
        v = node.inputs[0]
        node = m.producer(v)
    return v


def _in_parts(m: Match, x: Value, parts: int, length: int) -> Value:
    """Returns rows in parts of some length, with zeros after their ends."""
    more = parts * length - int(x.shape[-1])
    if more:
        x = m.op("pad", x, pad_before=(0,) * x.ndim, pad_after=(*[0] * (x.ndim - 1), more))
    return m.op("reshape", x, shape=(*x.shape[:-1], parts, length))


def _kind(services: Services, activations: str) -> str:
    """Returns the type of the data in a product."""
    allowed = activations == "int8" and services.accuracy is None  # None: any error
    close = services.accuracy is not None and services.accuracy >= INT8_ERROR
    return "int8" if "int8" in services.packed_nbits and (allowed or close) else "float32"


def _rows(x: Value) -> int:
    """Returns the number of rows, 1 where it is not known."""
    return math.prod([d if isinstance(d, int) else 1 for d in x.shape[:-1]])


def _weights(m: Match, depth: int, bits: int) -> NbitsWeights:
    """Returns the weights of a product, with codes one a byte."""
    data = m.array("codes")
    rows, groups, bytes_ = data.shape
    count = 8 // bits
    codes = np.stack([(data >> (n * bits)) & ((1 << bits) - 1) for n in range(count)], axis=-1)
    codes = codes.reshape(rows, groups * bytes_ * count)
    if groups == 1:
        codes = np.asarray(codes[:, :depth], order="C")
    return NbitsWeights(bits, codes, m.numbers("scales"), m.numbers("zeros") if "zeros" in m else None)


def _panels(rows: Array) -> Array:
    """Returns numbers of rows and groups (N, G) as (P, G, 16). Rows of zeros follow the last one."""
    count, groups = rows.shape
    panels = -(-count // CODE_LANES)
    full = np.zeros((panels * CODE_LANES, groups), rows.dtype)
    full[:count] = rows
    return np.asarray(full.reshape(panels, CODE_LANES, groups).transpose(0, 2, 1), order="C")
