"""This pass quantizes data by products with the reciprocal of its scale, exactly as by divisions."""

from __future__ import annotations

import math

from ...tir.expr import DType
from ..graph import Graph, Value
from ..kernels import Services
from ..rules import Match, any_value, either, numbers_of, op, rewritten, rule

_FEWEST = 1 << 10
"""The elements of data from which on the reciprocal, which is one division, pays."""

_LARGEST = 1 << 20
"""The largest bounds and zero points that :func:`~tilewright.te.ops.quantize_by_scale` takes."""


def quantize_quotients(graph: Graph, services: Services = Services()) -> Graph:
    """Round quotients by one scale, which are cut to the numbers of a narrow type, without dividing.

    Before::

        r = round(divide(x, scale))
        y = cast(clip(add(r, zero), low=0.0, high=255.0), dtype="uint8")

    After::

        y = quantize_by_scale(x, scale, zero, low=0.0, high=255.0, dtype="uint8")

    The numbers are the same.
    """
    return rewritten(graph, (_quantized,)) if services.fused_multiply_add else graph


_rounded = op("round", op("divide", any_value("x"), any_value("scale"), bind="quotient"), bind="rounded")


@rule(op("cast", op("clip", either(op("add", _rounded, any_value("zero"), bind="moved"), _rounded), bind="cut")))
def _quantized(m: Match) -> Value | None:
    """cast(clip(round(x / scale) + zero)) of whole numbers"""
    x, scale, cut = m["x"], m["scale"], m.node("cut")
    if not DType(m.out.dtype).is_int or x.dtype != "float32" or scale.dtype != "float32":
        return None
    if not scale.is_static or math.prod(scale.shape) != 1 or scale.ndim > x.ndim or x.shape != m.out.shape:
        return None
    if x.is_static and math.prod(x.shape) < _FEWEST:
        return None
    steps = [m.node(name) for name in ("quotient", "rounded", "moved", "cut") if name in m]
    if any(m.readers(n.output) > 1 for n in steps) or max(abs(cut.attrs[end]) for end in ("low", "high")) > 1 << 16:
        return None
    if "zero" in m and not _is_small(m, m["zero"]):
        return None
    if any(cut.attrs[end] != int(cut.attrs[end]) for end in ("low", "high")):
        return None
    zero = m["zero"] if "zero" in m else None
    return m.op("quantize_by_scale", x, scale, zero, **cut.attrs, dtype=m.out.dtype)


def _is_small(m: Match, zero: Value) -> bool:
    """Returns whether a zero point is one whole number of at most 16 bits, in float32."""
    if not zero.is_static or math.prod(zero.shape) != 1 or zero.dtype != "float32":
        return False
    data = m.data(zero)
    if data is not None:
        number = float(numbers_of(data, zero.dtype).reshape(-1)[0])
        return abs(number) <= _LARGEST and number == int(number)
    made = m.producer(zero)
    while made is not None and made.op in ("cast", "reshape"):
        (zero,) = made.given
        if DType(zero.dtype).is_int and DType(zero.dtype).bits <= 16:
            return True
        made = m.producer(zero)
    return False
