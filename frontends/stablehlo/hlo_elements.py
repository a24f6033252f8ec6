"""Converters of operations on single elements: arithmetic, comparisons, functions, conversions, bits."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...te.ops.elements import ELEMENTS, ElementOperator
from ...tir.expr import DType
from ..common.arithmetic import OF_TRUTHS, power_of_integers
from ..common.graph_call import Converter, enter_row
from .hlo_call import CONVERTERS, HloCall, hlo, known

_ORDER = {"EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater", "GE": "greater_equal"}
_WORD = re.compile(r"(\w+)>$")


def _convert(row: ElementOperator) -> Converter:
    """Returns the converter of an operation that is a row of the table."""

    def convert(c: HloCall) -> Value:
        name = row.name
        if c.dtype == "bool" and row.types in ("number", "bits"):
            name = OF_TRUTHS.get(name, name.replace("bitwise", "logical"))
        return c.together(name, *c.values)

    return convert


for _row in ELEMENTS.values():
    for _name, _ in _row.names("hlo"):
        enter_row(CONVERTERS, _row, _convert(_row), _name, *[f"composite {_name}"] * _name.startswith("chlo."))


def direction(c: HloCall) -> str:
    """Returns which comparison an operation makes, ``LT``."""
    found = _WORD.search(str(c.operation.attributes["comparison_direction"]))
    return found[1].rpartition(" ")[2] if found else "EQ"


@hlo("compare")
def compare(c: HloCall) -> Value:
    a, b = c.values
    row = _ORDER[direction(c)]
    total = "compare_type" in c.operation.attributes and "TOTALORDER" in str(c.operation.attributes["compare_type"])
    if total and DType(a.dtype).is_float:
        a, b = _ordered(c, a), _ordered(c, b)
    elif a.dtype == "bool":
        a, b = c.op("cast", a, dtype="uint8"), c.op("cast", b, dtype="uint8")
    return c.together(row, a, b)


def _ordered(c: HloCall, x: Value) -> Value:
    """Returns integers that are ordered as floats are in the total order of IEEE 754."""
    kind = f"int{DType(x.dtype).bits}"
    bits = c.op("reinterpret", x, dtype=kind)
    most = c.constant(np.iinfo(kind).max, kind)
    return c.op("where", c.op("less", bits, c.constant(0, kind)), c.op("bitwise_xor", bits, most), bits)


@hlo("sign")
def sign(c: HloCall) -> Value:
    x = c.x
    return c.op("where", c.op("is_nan", x), x, c.op("sign", x)) if DType(x.dtype).is_float else c.op("sign", x)


@hlo("divide")
def divide(c: HloCall) -> Value:
    if DType(c.dtype).is_float:
        return c.together("divide", *c.values)
    a, b = c.values
    zero = c.constant(0, c.dtype)
    none = c.op("equal", b, zero)
    out = c.together("truncate_divide", a, c.op("where", none, c.constant(1, c.dtype), b))
    ones = np.array(-1).astype(c.dtype) if not c.dtype.startswith("u") else np.iinfo(c.dtype).max
    return c.op("where", none, c.constant(ones, c.dtype), out)


@hlo("remainder")
def remainder(c: HloCall) -> Value:
    if DType(c.dtype).is_float:
        return c.together("remainder", *c.values)
    a, b = c.values
    none = c.op("equal", b, c.constant(0, c.dtype))
    return c.op("where", none, a, c.together("remainder", a, c.op("where", none, c.constant(1, c.dtype), b)))


@hlo("power")
def power(c: HloCall) -> Value:
    a, b = c.values
    if DType(c.dtype).is_float:
        return c.together("power", a, b)
    one, zero = c.constant(1, c.dtype), c.constant(0, c.dtype)
    out = power_of_integers(c.op, a, b, one, DType(c.dtype).bits)
    if c.dtype.startswith("u"):
        return out
    odd = c.op("bitwise_and", b, one)
    minus = c.op("where", c.op("equal", odd, zero), one, c.constant(-1, c.dtype))
    small = c.op("where", c.op("equal", a, c.constant(-1, c.dtype)), minus, zero)
    small = c.op("where", c.op("equal", a, one), one, small)
    return c.op("where", c.op("less", b, zero), small, out)


@hlo("round_nearest_afz")
def rounded_away(c: HloCall) -> Value:
    x = c.x
    whole = c.op("trunc", x)
    far = c.op("greater_equal", c.op("abs", c.op("subtract", x, whole)), c.constant(0.5, x.dtype))
    return c.op("where", far, c.op("add", whole, c.op("sign", x)), whole)


@hlo("clamp")
def clamp(c: HloCall) -> Value:
    low, x, high = c.values
    return c.together("minimum", c.together("maximum", x, low), high)


@hlo("convert")
def convert(c: HloCall) -> Value:
    return c.cast(c.x, c.dtype) if c.x.dtype != c.dtype else c.op("identity", c.x)


@hlo("real")
def real(c: HloCall) -> Value:
    return c.op("identity", c.x)


@hlo("imag")
def imaginary(c: HloCall) -> Value:
    return c.full(c.x.shape, 0, c.dtype)


@hlo("reduce_precision")
def reduced_precision(c: HloCall) -> Value:
    bits = (c.attribute("exponent_bits"), c.attribute("mantissa_bits"))
    narrow = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}.get(bits)
    if narrow is None:
        raise c.error(f"a precision of {bits[0]} and {bits[1]} bits is not supported")
    if DType(narrow).bits >= DType(c.dtype).bits:
        return c.op("identity", c.x)
    return c.op("cast", c.op("cast", c.x, dtype=narrow), dtype=c.dtype)


# bits


@hlo("shift_left", "shift_right_logical", "shift_right_arithmetic")
def shift(c: HloCall) -> Value:
    x, by = c.values
    kind = DType(c.dtype)
    unsigned = f"uint{kind.bits}"
    far = c.op("greater_equal", c.op("reinterpret", by, dtype=unsigned), c.constant(kind.bits, unsigned))
    most = c.constant(kind.bits - 1, c.dtype)
    if c.name == "shift_right_arithmetic":
        signed = [c.op("reinterpret", v, dtype=f"int{kind.bits}") for v in (x, c.op("where", far, most, by))]
        return c.op("reinterpret", c.op("right_shift", *signed), dtype=c.dtype)
    plain = [c.op("reinterpret", v, dtype=unsigned) for v in (x, c.op("where", far, most, by))]
    out = c.op("left_shift" if c.name == "shift_left" else "right_shift", *plain)
    return c.op("reinterpret", c.op("where", far, c.constant(0, unsigned), out), dtype=c.dtype)


@hlo("popcnt")
def count_of_ones(c: HloCall) -> Value:
    unsigned = f"uint{DType(c.dtype).bits}"
    return c.op("reinterpret", _ones(c, c.op("reinterpret", c.x, dtype=unsigned)), dtype=c.dtype)


def _ones(c: HloCall, x: Value) -> Value:
    """Returns how many bits of an unsigned integer are set: sums of pairs, of fours, of eights and so on."""
    bits = DType(x.dtype).bits
    width = 1
    while width < bits:
        mask = sum(((1 << width) - 1) << at for at in range(0, bits, 2 * width))
        low = c.op("bitwise_and", x, c.constant(np.array(mask, x.dtype), x.dtype))
        high = c.op("right_shift", x, c.constant(width, x.dtype))
        x = c.op("add", low, c.op("bitwise_and", high, c.constant(np.array(mask, x.dtype), x.dtype)))
        width *= 2
    return x


@hlo("count_leading_zeros")
def leading_zeros(c: HloCall) -> Value:
    bits = DType(c.dtype).bits
    x = c.op("reinterpret", c.x, dtype=f"uint{bits}")
    width = 1
    while width < bits:  # all bits below the highest one are set, too
        x = c.op("bitwise_or", x, c.op("right_shift", x, c.constant(width, x.dtype)))
        width *= 2
    zeros = c.op("subtract", c.constant(bits, x.dtype), _ones(c, x))
    return c.op("reinterpret", zeros, dtype=c.dtype)


@hlo("bitcast_convert")
def bits_as(c: HloCall) -> Value:
    x = c.x
    have, want = DType(x.dtype).bits, DType(c.dtype).bits
    if have == want:
        return c.op("reinterpret", x, dtype=c.dtype)
    x = c.op("reinterpret", x, dtype=f"uint{have}")
    if have > want:
        parts = [c.op("right_shift", x, c.constant(n * want, x.dtype)) for n in range(have // want)]
        out = c.op("stack", *[c.op("cast", p, dtype=f"uint{want}") for p in parts], axis=x.ndim)
        return c.op("reinterpret", out, dtype=c.dtype)
    wide = c.op("cast", x, dtype=f"uint{want}")
    total: Any = None
    for n in range(want // have):
        begin = [0] * (x.ndim - 1) + [n]
        part = c.op("squeeze", c.cut(wide, begin, [*x.shape[:-1], n + 1]), axis=x.ndim - 1)
        part = c.op("left_shift", part, c.constant(n * have, part.dtype))
        total = part if total is None else c.op("bitwise_or", total, part)
    return c.op("reinterpret", total, dtype=c.dtype)


@hlo("rng", "rng_bit_generator")
def random(c: HloCall) -> Any:
    raise c.error("random numbers are left to the caller: give them as an argument")


@hlo("set_dimension_size")
def bounded(c: HloCall) -> Any:
    if c.numbers(1, "the size") != [c.x.shape[c.attribute("dimension")]]:
        raise c.error("sizes that change are not supported")
    return c.x


@hlo("iota")
def iota(c: HloCall) -> Any:
    along = c.attribute("iota_dimension")
    shape = c.shape
    if any(d is None for d in shape):
        raise c.error("an iota of an open shape is not supported")
    numbers = np.arange(shape[along]).reshape([-1 if d == along else 1 for d in range(len(shape))])
    small = known(numbers, c.dtype) if c.dtype != "bfloat16" else None
    return c.broadcast(c.value(small) if small is not None else c.constant(numbers, c.dtype), shape)
