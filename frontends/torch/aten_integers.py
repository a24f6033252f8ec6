"""Converters of operators of number theory, and of those on the bits of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...graph.scan_operator import add_scan
from ...tir.expr import DType
from .aten_call import AtenCall, aten


@aten("gcd")
def greatest_common_divisor(c: AtenCall, x: Value, y: Value) -> Value:
    """Adds Euclid's algorithm: the remainders of Fibonacci's numbers take the most steps, 1.45 for each bit."""
    shape = c.shape
    states = [c.op("broadcast_to", c.op("abs", c.cast(v, c.dtype)), shape=shape) for v in (x, y)]
    zero, one = c.constant(0, c.dtype), c.constant(1, c.dtype)

    def step(before: Sequence[Value], _: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        a, b = before
        ends = c.op("equal", b, zero)
        rest = c.op("remainder", a, c.op("where", ends, one, b))
        return [c.op("where", ends, a, b), c.op("where", ends, zero, rest)], []

    (divisor, _), _ = add_scan(c.builder, states, [], step, steps=math.ceil(1.45 * DType(c.dtype).bits))
    return divisor


@aten("view.dtype")
def view_as_type(c: AtenCall, x: Value, dtype: Any) -> Value:
    """Reads the bits of elements as another type. Of another width it has more or fewer elements along the last axis."""
    if c.dtype == "bool" and x.dtype != "bool":
        raise c.error("bits cannot be read as bool; compare with 0 instead: x != 0")
    x = c.cast(x, "uint8") if x.dtype == "bool" else x
    have, want = DType(x.dtype).bits, DType(c.dtype).bits
    if have == want:
        return c.op("reinterpret", x, dtype=c.dtype) if x.dtype != c.dtype else c.cast(x, c.dtype)
    x = c.op("reinterpret", x, dtype=f"uint{have}")
    if have > want:
        parts = [c.op("right_shift", x, c.constant(n * want, x.dtype)) for n in range(have // want)]
        out = c.op("stack", *[c.cast(p, f"uint{want}") for p in parts], axis=x.ndim)
        return c.op("reinterpret", c.op("reshape", out, shape=c.shape), dtype=c.dtype)
    count = want // have
    wide = c.op("reshape", c.cast(x, f"uint{want}"), shape=(*c.shape, count))
    total: Any = None
    for n in range(count):
        part = c.op("squeeze", c.part(wide, wide.ndim - 1, n, 1), axis=wide.ndim - 1)
        part = c.op("left_shift", part, c.constant(n * have, part.dtype))
        total = part if total is None else c.op("bitwise_or", total, part)
    return c.op("reinterpret", total, dtype=c.dtype)
