"""Converters of pooling and resizing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import Call
from .sums_of_products import window_arguments
from .table import converter


@converter("MaxPool", "AveragePool", "LpPool")
def pool(c: Call) -> tuple[Value, ...] | Value:
    x = c.input(0)
    n = x.ndim - 2
    if n not in (1, 2, 3):
        raise c.error(f"pooling in {n} dimensions is not supported")
    if c.outputs > 1 or c.attr("storage_order", 0):
        raise c.error("the indices of the maxima are not supported")
    kernel = tuple(c.attr("kernel_shape"))
    strides, dilations, padding = window_arguments(c, kernel, x)
    attrs: dict[str, Any] = {
        "kernel": kernel, "stride": strides, "padding": padding, "dilation": dilations,
        "ceil_mode": bool(c.attr("ceil_mode", 0)),
    }  # fmt: skip
    if c.op_type == "MaxPool":
        return c.op(f"max_pool{n}d", x, **attrs)
    if c.op_type == "AveragePool":
        return c.op(f"avg_pool{n}d", x, count_include_pad=bool(c.attr("count_include_pad", 0)), **attrs)
    p = c.attr("p", 2)
    powers = c.op("power", c.op("abs", x), c.like(p, x))
    mean = c.op(f"avg_pool{n}d", powers, count_include_pad=True, **attrs)
    total = c.op("multiply", mean, c.like(math.prod(kernel), mean))
    return c.op("power", total, c.like(1.0 / p, total))


@converter("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(c: Call) -> Value:
    x = c.input(0)
    axes = tuple(range(2, x.ndim))
    if c.op_type == "GlobalLpPool":
        p = c.attr("p", 2)
        total = c.op("sum", c.op("power", c.op("abs", x), c.like(p, x)), axis=axes, keepdims=True)
        return c.op("power", total, c.like(1.0 / p, total))
    return c.op("mean" if c.op_type == "GlobalAveragePool" else "max", x, axis=axes, keepdims=True)


@converter("Resize", "Upsample")
def resize(c: Call) -> Value:
    x = c.input(0)
    coordinates = c.attr(
        "coordinate_transformation_mode", "half_pixel" if c.op_type == "Resize" and c.opset > 10 else "asymmetric"
    )
    mode = c.attr("mode", "nearest")
    axes = tuple([a % x.ndim for a in c.attr("axes", tuple(range(x.ndim)))])
    scales, sizes = _wanted(c)
    if (
        c.attr("antialias", 0)
        or c.attr("exclude_outside", 0)
        or coordinates in ("tf_crop_and_resize", "half_pixel_symmetric")
    ):
        raise c.error(f"Resize with {coordinates}, antialias or exclude_outside is not supported")
    out = [int(e) for e in x.shape]
    if sizes is not None:
        policy = c.attr("keep_aspect_ratio_policy", "stretch")
        sizes = [int(s) for s in sizes]
        if policy != "stretch":
            pick = min if policy == "not_larger" else max
            ratio = pick([s / out[a] for s, a in zip(sizes, axes, strict=True)])
            sizes = [int(math.floor(ratio * out[a] + 0.5)) for a in axes]
            scales = [ratio] * len(axes)
        for a, s in zip(axes, sizes, strict=True):
            out[a] = s
    else:
        for a, s in zip(axes, scales, strict=True):
            out[a] = int(math.floor(out[a] * float(s)))
    changed = [d for d in range(x.ndim) if out[d] != x.shape[d]]
    exact = scales is None or all(abs(out[a] / x.shape[a] - float(s)) < 1e-9 for a, s in zip(axes, scales, strict=True))
    if not exact and coordinates != "align_corners":
        raise c.error("scales that do not give whole sizes are not supported")
    if not changed:
        return c.op("identity", x)
    first, n = min(changed), max(changed) - min(changed) + 1
    n = max(n, 1)
    if n > 3:
        raise c.error("resizing of more than three dimensions is not supported")
    lead, tail = math.prod(x.shape[:first]), math.prod(x.shape[first + n :])
    middle = tuple(x.shape[first : first + n])
    layout = "N" + "DHW"[3 - n :] + "C"
    flat = c.op("reshape", x, shape=(lead, *middle, tail))
    attrs: dict[str, Any] = {"method": mode, "coordinate_mode": coordinates, "layout": layout}
    attrs["rounding"] = c.attr(
        "nearest_mode", "round_prefer_floor" if c.op_type == "Resize" and c.opset > 10 else "floor"
    )
    if mode == "cubic":
        attrs["cubic_alpha"] = float(c.attr("cubic_coeff_a", -0.75))
    made = c.op(f"resize{n}d", flat, size=tuple(out[first : first + n]), **attrs)
    return c.op("reshape", made, shape=tuple(out))


def _wanted(c: Call) -> tuple[Any, Any]:
    if c.op_type == "Upsample":
        return (np.asarray(c.attr("scales")) if c.attr("scales") is not None else c.known(1)), None
    if c.opset < 11:
        return c.known(1), None
    scales, sizes = c.known(2), c.known(3)
    return (scales if scales is not None and scales.size else None), (
        sizes if sizes is not None and sizes.size else None
    )
