"""Converters of pooling."""

from __future__ import annotations

import math
from typing import Any

from ...graph.graph import Value
from ..common import max_pool
from .call import OnnxCall, converter
from .products import window_arguments


@converter("MaxPool", "AveragePool", "LpPool")
def pool(c: OnnxCall) -> tuple[Value, ...] | Value:
    return windows_of(c, c.input(0), c.op_type)


def windows_of(c: OnnxCall, x: Value, op_type: str) -> tuple[Value, ...] | Value:
    """Returns the maxima, means or norms (as ``op_type`` says) of the windows that the node's attributes describe."""
    n = x.ndim - 2
    if n not in (1, 2, 3):
        raise c.error(f"pooling in {n} dimensions is not supported")
    kernel = tuple(c.attr("kernel_shape"))
    strides, dilations, padding = window_arguments(c, kernel, x)
    attrs: dict[str, Any] = {
        "kernel": kernel, "stride": strides, "padding": padding, "dilation": dilations,
        "ceil_mode": bool(c.attr("ceil_mode", 0)),
    }  # fmt: skip
    if op_type == "MaxPool":
        positions, column_major = c.outputs > 1, bool(c.attr("storage_order", 0))
        return max_pool(c, x, positions=positions, column_major=column_major, **attrs)
    if op_type == "AveragePool":
        return c.op(f"avg_pool{n}d", x, count_include_pad=bool(c.attr("count_include_pad", 0)), **attrs)
    p = c.attr("p", 2)
    powers = c.op("power", c.op("abs", x), c.like(p, x))
    mean = c.op(f"avg_pool{n}d", powers, count_include_pad=True, **attrs)
    total = c.op("multiply", mean, c.like(math.prod(kernel), mean))
    return c.op("power", total, c.like(1.0 / p, total))


@converter("MaxUnpool")
def max_unpool(c: OnnxCall) -> Value:
    x, indices, n = c.input(0), c.input(1), c.input(0).ndim - 2
    kernel = tuple(c.attr("kernel_shape"))
    strides, pads = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("pads", (0,) * 2 * n))
    if not x.is_static:
        raise c.error(f"{x.type_text} has symbolic sizes; shapes= can give them as numbers")
    spatial = [
        (e - 1) * s - pads[d] - pads[n + d] + k
        for d, (e, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = (*x.shape[:2], *spatial)
    wanted = shape if c.optional(2) is None else tuple(c.ints(2))
    if len(wanted) != x.ndim or min(spatial) < 1 or any(a < b for a, b in zip(wanted, shape, strict=True)):
        raise c.error(f"the shape {wanted} does not hold {shape}")
    c.limit(wanted)
    count = math.prod(x.shape)
    empty = c.op("broadcast_to", c.like(0, x), shape=(math.prod(shape),))
    places, values = [c.op("reshape", v, shape=(count,)) for v in (indices, x)]
    out = c.op("reshape", c.op("scatter_elements", empty, places, values), shape=shape)
    after = tuple([a - b for a, b in zip(wanted, shape, strict=True)])
    return c.op("pad", out, pad_before=(0,) * x.ndim, pad_after=after) if any(after) else out


@converter("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(c: OnnxCall) -> Value:
    x = c.input(0)
    axes = tuple(range(2, x.ndim))
    if c.op_type == "GlobalLpPool":
        p = c.attr("p", 2)
        total = c.op("sum", c.op("power", c.op("abs", x), c.like(p, x)), axis=axes, keepdims=True)
        return c.op("power", total, c.like(1.0 / p, total))
    return c.op("mean" if c.op_type == "GlobalAveragePool" else "max", x, axis=axes, keepdims=True)
