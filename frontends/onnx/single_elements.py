"""Converters of operators on single elements: the table of element-wise operators has most, and these are the others."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...te.ops.elements import ELEMENTS, ElementOperator
from ...tir.expr import DType, max_value, min_value, to_numpy
from ...tir.expr.dtype import kept_as_bits
from ..common.graph_call import Converter, enter_row
from .call import CODED_DTYPES, CONVERTERS, HELD_DTYPES, OnnxCall, ValueList, converter, dtype_of
from .coded_types import converted, decoded


def _convert(row: ElementOperator, told: Mapping[str, Any]) -> Converter:
    """Returns the converter of an operator that is a row of the table; ``told`` has ONNX's defaults of its attributes."""

    def convert(c: OnnxCall) -> Value:
        attrs = {name: c.attr(name, default) for name, default in told.items()}
        operands = _aligned(c) if row.operands == 2 else [c.input(n) for n in range(row.operands)]
        return c.op(row.name, *operands, **attrs)

    return convert


for _row in ELEMENTS.values():
    for _name, _told in _row.names("onnx"):
        enter_row(CONVERTERS, _row, _convert(_row, _told), ("", _name))


def _aligned(c: OnnxCall) -> tuple[Value, Value]:
    """Returns both operands; before version 7 the second one is aligned at ``axis``."""
    a, b = c.input(0), c.input(1)
    if c.opset < 7 and c.attr("broadcast") and c.attr("axis") is not None and b.ndim:
        behind = a.ndim - c.attr("axis") % a.ndim - b.ndim
        b = c.op("reshape", b, shape=(*b.shape, *[1] * behind))
    return a, b


@converter("Div")
def div(c: OnnxCall) -> Value:
    a, b = _aligned(c)
    return c.op("divide" if DType(a.dtype).is_float else "truncate_divide", a, b)


@converter("Mod")
def mod(c: OnnxCall) -> Value:
    return c.op("remainder" if c.attr("fmod", 0) else "floor_mod", c.input(0), c.input(1))


@converter("BitShift")
def bit_shift(c: OnnxCall) -> Value:
    return c.op("left_shift" if c.attr("direction") == "LEFT" else "right_shift", c.input(0), c.input(1))


@converter("Pow")
def power(c: OnnxCall) -> Value:
    a, b = _aligned(c)
    exponent = c.builder.constants.get(b)
    if (
        exponent is not None
        and exponent.size == 1
        and float(exponent.reshape(-1)[0]) in (2.0, 0.5)
        and DType(a.dtype).is_float
    ):
        return c.op("square" if float(exponent.reshape(-1)[0]) == 2.0 else "sqrt", a)
    wide = a.dtype if DType(a.dtype).is_float and a.dtype != "float16" else "float64"
    return c.cast(c.op("power", c.cast(a, wide), c.cast(b, wide)), a.dtype)


@converter("Max", "Min", "Sum", "Mean")
def variadic(c: OnnxCall) -> Value:
    op = {"Max": "maximum", "Min": "minimum"}.get(c.op_type, "add")
    total = reduce(lambda a, b: c.op(op, a, b), [v for v in c.inputs if v is not None])
    if c.op_type != "Mean":
        return total if len(c.inputs) > 1 else c.op("identity", total)
    return c.op("divide", total, c.like(len(c.inputs), total))


@converter("Cast", "CastLike")
def cast(c: OnnxCall) -> Value:
    x = c.input(0)
    held = HELD_DTYPES.get(c.attr("to")) if c.op_type == "Cast" else c.small.get(c.input(1))
    source = c.small.get(x)
    if held is not None and held == source:
        out = c.op("identity", x)
        c.small[out] = held
        return out
    if source is not None and source in CODED_DTYPES.values():
        x = decoded(c, x, source)
    if held is not None:
        return converted(c, x, held)
    to = dtype_of(c.attr("to"), c.label) if c.op_type == "Cast" else c.input(1).dtype
    data = c.builder.constants.get(x)
    if data is not None and c.op_type == "CastLike" and x not in c.shapes:
        with np.errstate(all="ignore"):
            return (
                c.constant(data.astype(to_numpy(to)), to)
                if not kept_as_bits(to) and not kept_as_bits(x.dtype)
                else _converted(c, x, to)
            )
    if x.dtype == to:
        return c.op("identity", x)
    if to == "bool":
        x = c.cast(x, "float32") if DType(x.dtype).is_storage else x
        return c.op("not_equal", x, c.like(0, x))
    return _converted(c, x, to)


def _converted(c: OnnxCall, x: Value, to: str) -> Value:
    """Returns ``x`` as ``to``; float8 saturates unless the attribute ``saturate`` is 0."""
    if DType(to).is_storage and c.attr("saturate", 1):
        x = c.op("clip", c.cast(x, "float32"), low=float(min_value(to)), high=float(max_value(to)))
    return c.op("cast", x, dtype=to)


@converter("BitCast")
def bit_cast(c: OnnxCall) -> Value:
    x, to = c.input(0), dtype_of(c.attr("to"), c.label)
    if DType(x.dtype).bytes != DType(to).bytes:
        raise c.error(f"{x.dtype} and {to} differ in their number of bits")
    if "bool" in (x.dtype, to):
        plain = c.cast(x, "uint8") if x.dtype == "bool" else x
        return c.op("not_equal", plain, c.like(0, plain)) if to == "bool" else c.op("reinterpret", plain, dtype=to)
    return c.op("reinterpret", x, dtype=to)


@converter("Optional", "OptionalGetElement")
def optional_element(c: OnnxCall) -> Value | ValueList:
    if not c.has(0) and 0 not in c.sequences:
        raise c.error("an optional value without an element is not supported")
    return c.sequences[0] if 0 in c.sequences else c.op("identity", c.input(0))


@converter("Clip")
def clip(c: OnnxCall) -> Value:
    x = c.input(0)
    for n, (name, op) in enumerate((("min", "maximum"), ("max", "minimum")), 1):
        limit = c.like(c.attr(name), x) if c.attr(name) is not None else c.optional(n)
        if limit is not None:
            x = c.op(op, x, limit)
    return x if x is not c.input(0) else c.op("identity", x)


@converter("Swish")
def swish(c: OnnxCall) -> Value:
    x = c.input(0)
    return c.op("multiply", x, c.op("sigmoid", c.op("multiply", x, c.like(float(c.attr("alpha", 1.0)), x))))


@converter("PRelu")
def prelu(c: OnnxCall) -> Value:
    x, slope = c.input(0), c.input(1)
    if c.opset < 7 and slope.ndim == 1 and x.ndim > 1:  # a number for each channel
        slope = c.op("reshape", slope, shape=(*slope.shape, *[1] * (x.ndim - 2)))
    negative = c.op("minimum", x, c.like(0, x))
    return c.op("add", c.op("maximum", x, c.like(0, x)), c.op("multiply", negative, slope))


@converter("Dropout")
def dropout(c: OnnxCall) -> tuple[Value, ...]:
    training = c.optional(2) is not None and bool(np.any(c.known(2)))
    if training and (c.optional(1) is None or float(np.ravel(c.known(1))[0]) != 0):
        raise c.error("dropout in training mode draws random numbers, which is not supported")
    out = c.op("identity", c.input(0))
    if c.outputs < 2:
        return (out,)
    return out, c.op("equal", c.input(0), c.input(0)) if c.input(0).dtype != "bool" else c.op("identity", c.input(0))
