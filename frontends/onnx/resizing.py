"""Converters of Resize and Upsample.

Where all sizes are whole multiples of the scales, the operator is one of te's; else each axis is a weighted sum of
elements whose indices and weights are worked out here, in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...tir.expr import DType
from .call import LARGEST_TABLE, Call
from .table import converter

_PLAIN = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized: from ``size`` elements to ``out``; ``scale`` is their ratio as the model says it."""

    axis: int
    size: int
    out: int
    scale: float
    roi: tuple[float, float]

    @property
    def is_whole(self) -> bool:
        return abs(self.out / self.size - self.scale) < 1e-9

    def places(self, mode: str) -> Any:
        """Returns where the elements of the result lie among those of the input.

        The operations and their order are those of onnx's reference evaluator, so that a coordinate that is a whole
        number there is one here, and takes the same element when it is rounded.
        """
        at, n, wide = np.arange(self.out, dtype=np.float64), self.size, self.scale * self.size
        if mode == "asymmetric":
            return at / self.scale
        if mode == "align_corners":
            return at * (n - 1) / (wide - 1) if wide != 1 else at * 0
        if mode == "tf_crop_and_resize":
            begin, end = self.roi
            if wide == 1:
                return at * 0 + (end - begin) * (n - 1) / 2 + begin * (n - 1)
            return at * (end - begin) * (n - 1) / (wide - 1) + begin * (n - 1)
        if mode == "pytorch_half_pixel" and wide == 1:
            return at * 0 - 0.5
        offset = n / 2 * (1 - self.out / wide) if mode == "half_pixel_symmetric" else 0
        return offset + (at + 0.5) / self.scale - 0.5


@converter("Resize", "Upsample")
def resize(c: Call) -> Value:
    x = c.input(0)
    if not x.is_static:
        raise c.error(f"{x.type_text} has symbolic sizes, so it cannot be resized")
    newer = c.op_type == "Resize" and c.opset > 10
    mode = c.attr("coordinate_transformation_mode", "half_pixel" if newer else "asymmetric")
    if mode not in (*_PLAIN, "tf_crop_and_resize", "half_pixel_symmetric", "tf_half_pixel_for_nn"):
        raise c.error(f"the coordinates {mode} are not known")
    axes = [a for a in _axes(c, x) if a.out != a.size or a.scale != 1 or a.roi != (0.0, 1.0)]
    if any(a.out < 1 for a in axes):
        raise c.error(f"a size of {min(a.out for a in axes)} elements is not supported")
    if not axes:
        return c.op("identity", x)
    if (
        all(a.is_whole for a in axes)
        and mode in _PLAIN
        and not (c.attr("antialias", 0) or c.attr("exclude_outside", 0))
    ):
        made = _by_operator(c, x, axes, mode, "round_prefer_floor" if newer else "floor")
        if made is not None:
            return made
    return _by_tables(c, x, axes, mode, "round_prefer_floor" if newer else "floor")


def _axes(c: Call, x: Value) -> list[_Axis]:
    """Returns the axes that the node names, with their scales and sizes."""
    chosen = [a % x.ndim for a in c.attr("axes", tuple(range(x.ndim)))]
    scales, sizes = _wanted(c)
    old = [int(x.shape[a]) for a in chosen]
    if (scales is None) == (sizes is None):
        raise c.error("exactly one of scales and sizes has to be there")
    if len(scales if sizes is None else sizes) != len(chosen):
        raise c.error(f"{len(scales if sizes is None else sizes)} scales or sizes for {len(chosen)} axes")
    if sizes is not None:
        out = [int(s) for s in sizes]
        policy = c.attr("keep_aspect_ratio_policy", "stretch")
        factors = [s / max(e, 1) for s, e in zip(out, old, strict=True)]
        if policy != "stretch":
            ratio = (min if policy == "not_larger" else max)(factors)
            out, factors = [int(math.floor(ratio * e + 0.5)) for e in old], [ratio] * len(old)
    else:
        factors = [float(s) for s in scales]
        if not all(0 < f < 1 << 31 for f in factors):
            raise c.error(f"the scales {factors} are not positive numbers")
        out = [int(math.floor(e * f)) for e, f in zip(old, factors, strict=True)]
    rois = [(0.0, 1.0)] * len(chosen)
    if c.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = [np.float32(r) for r in np.ravel(c.known(1))]
        half = len(roi) // 2
        if half not in (len(chosen), x.ndim):
            raise c.error(f"a region of {len(roi)} numbers for {len(chosen)} axes")
        at = range(half) if half == len(chosen) else chosen
        rois = [(roi[n], roi[half + n]) for n in at]
    return [_Axis(*each) for each in zip(chosen, old, out, factors, rois, strict=True)]


def _wanted(c: Call) -> tuple[Any, Any]:
    """Returns the scales and the sizes, None for what is not given."""
    if c.op_type == "Upsample":
        given = c.attr("scales")
        return (np.asarray(given) if given is not None else c.known(1)), None
    if c.opset < 11:
        return c.known(1), None
    scales, sizes = [None if v is None or not v.size else np.ravel(v) for v in (c.known(2), c.known(3))]
    return scales, sizes


def _by_operator(c: Call, x: Value, axes: Sequence[_Axis], mode: str, rounding: str) -> Value | None:
    """Returns the result by one of te's operators, or None for more than three neighbouring axes."""
    first, last = min(a.axis for a in axes), max(a.axis for a in axes)
    n = last - first + 1
    if n > 3:
        return None
    out = [int(e) for e in x.shape]
    for a in axes:
        out[a.axis] = a.out
    lead, tail = math.prod(x.shape[:first]), math.prod(x.shape[last + 1 :])
    flat = c.op("reshape", x, shape=(lead, *x.shape[first : last + 1], tail))
    attrs: dict[str, Any] = {
        "method": c.attr("mode", "nearest"), "coordinate_mode": mode, "layout": "N" + "DHW"[3 - n :] + "C",
        "rounding": c.attr("nearest_mode", rounding),
    }  # fmt: skip
    if attrs["method"] == "cubic":
        attrs["cubic_alpha"] = float(c.attr("cubic_coeff_a", -0.75))
    made = c.op(f"resize{n}d", flat, size=tuple(out[first : last + 1]), **attrs)
    return c.op("reshape", made, shape=tuple(out))


def _by_tables(c: Call, x: Value, axes: Sequence[_Axis], mode: str, rounding: str) -> Value:
    out, method = x, c.attr("mode", "nearest")
    if method not in ("nearest", "linear", "cubic"):
        raise c.error(f"the mode {method} is not known")
    for a in sorted(axes, key=lambda a: a.out / a.size):  # what shrinks comes first
        c.limit((a.out,), LARGEST_TABLE)
        places = a.places("half_pixel" if mode == "tf_half_pixel_for_nn" else mode)
        if method == "nearest":
            index = _nearest(places, c.attr("nearest_mode", rounding))
            out = c.op("take", out, c.constant(np.clip(index, 0, a.size - 1).astype(np.int64)), axis=a.axis)
            continue
        index, weights = _tables(c, places, a)
        table = c.constant(np.clip(index, 0, a.size - 1), "int32")
        out = c.op(
            "resample", out, table, c.constant(weights, "float64" if x.dtype == "float64" else "float32"), axis=a.axis
        )
    if mode == "tf_crop_and_resize":
        out = _beyond(c, out, axes)
    return out if out.dtype == x.dtype else c.op("cast", out, dtype=x.dtype)


def _nearest(places: Any, rounding: str) -> Any:
    below = np.floor(places)
    rest = places - below
    up = {
        "floor": rest < 0, "ceil": rest > 0, "round_prefer_floor": rest > 0.5, "round_prefer_ceil": rest >= 0.5,
    }[rounding]  # fmt: skip
    return (below + up).astype(np.int64)


def _tables(c: Call, places: Any, a: _Axis) -> tuple[Any, Any]:
    """Returns the indices of the neighbours of each place, and their weights."""
    alpha = float(c.attr("cubic_coeff_a", -0.75))
    reach, kernel = (1, _triangle) if c.attr("mode") == "linear" else (2, lambda d: _keys(d, alpha))
    narrow = min(a.scale, 1.0) if c.attr("antialias", 0) else 1.0
    span = math.ceil(reach / narrow)
    c.limit((a.out, 2 * span), LARGEST_TABLE)
    below = np.floor(places)
    steps = np.arange(1 - span, span + 1)
    weights = kernel(np.abs((steps[None, :] - (places - below)[:, None]) * narrow))
    index = (below[:, None] + steps[None, :]).astype(np.int64)
    if c.attr("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= a.size), 0, weights)
    if narrow < 1 or c.attr("exclude_outside", 0):
        weights = weights / weights.sum(axis=1, keepdims=True)
    return index, weights


def _triangle(d: Any) -> Any:
    return np.clip(1 - d, 0, 1)


def _keys(d: Any, a: float) -> Any:
    """Returns the weights of cubic interpolation (Keys, 1981) at the distances ``d``."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _beyond(c: Call, x: Value, axes: Sequence[_Axis]) -> Value:
    """Returns ``x`` with the extrapolation value where a place lies outside of the image."""
    number = float(c.attr("extrapolation_value", 0.0))
    value = c.op("broadcast_to", c.like(number if DType(x.dtype).is_float else int(number), x), shape=x.shape)
    for a in axes:
        places = a.places("tf_crop_and_resize")
        shape = [1] * x.ndim
        shape[a.axis] = a.out
        outside = c.constant(((places < 0) | (places > a.size - 1)).reshape(shape), "bool")
        x = c.op("where", c.op("broadcast_to", outside, shape=x.shape), value, x)
    return x
