"""Converters of Resize and Upsample.

Where all sizes are whole multiples of the scales, the operator is one of te's; else each axis is a weighted sum of
elements whose indices and weights are worked out here, in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...graph.graph import Value, dims
from ...tir.arith.normal_form.forms import difference
from ...tir.expr import DType, convert, max_
from .call import LARGEST_TABLE, OnnxCall, converter

_METHODS = {"bilinear": "linear", "bicubic": "cubic"}


@converter("GridSample")
def grid_sample(c: OnnxCall) -> Value:
    x, grid, mode = c.input(0), c.input(1), c.attr("mode", "linear")
    attrs = {"padding_mode": c.attr("padding_mode", "zeros"), "align_corners": bool(c.attr("align_corners", 0))}
    return c.op("grid_sample", x, c.cast(grid, x.dtype), method=_METHODS.get(mode, mode), **attrs)


@converter("RoiAlign")
def roi_align(c: OnnxCall) -> Value:
    x, rois, batch = c.input(0), c.input(1), c.input(2)
    ratio = c.attr("sampling_ratio", 0)
    if ratio < 1:
        raise c.error("a number of samples that depends on the regions (sampling_ratio = 0) is not supported")
    half = c.attr("coordinate_transformation_mode", "half_pixel" if c.opset >= 16 else "output_half_pixel")
    return c.op(
        "roi_align", x, rois, batch, pooled_size=(c.attr("output_height", 1), c.attr("output_width", 1)),
        spatial_scale=float(c.attr("spatial_scale", 1.0)), sample_ratio=ratio, aligned=half == "half_pixel",
        mode=c.attr("mode", "avg"),
    )  # fmt: skip


@converter("DeformConv")
def deformable_convolution(c: OnnxCall) -> Value:
    x, w, offset, bias, mask = c.input(0), c.input(1), c.input(2), c.optional(3), c.optional(4)
    if x.ndim != 4 or not isinstance(x.shape[1], int) or not w.is_static:
        raise c.error(f"{x.type_text} and {w.type_text}: two-dimensional images of known channels are supported")
    kernel = tuple(c.attr("kernel_shape", w.shape[2:]))
    pads, groups = tuple(c.attr("pads", (0,) * 4)), c.attr("group", 1)
    windows = c.op(
        "deformable_windows", x, offset, mask, kernel=kernel, stride=tuple(c.attr("strides", (1, 1))),
        padding=pads[:2], dilation=tuple(c.attr("dilations", (1, 1))), groups=c.attr("offset_group", 1),
    )  # fmt: skip
    n, outputs, area = x.shape[0], w.shape[0], offset.shape[2:]
    depth = x.shape[1] // groups * math.prod(kernel)
    columns = c.op("reshape", windows, shape=(n, groups, depth, math.prod(area)))
    weight = c.op("reshape", w, shape=(1, groups, outputs // groups, depth))
    out = c.op("reshape", c.op("matmul", weight, columns), shape=(n, outputs, *area))
    return out if bias is None else c.op("add", out, c.op("reshape", bias, shape=(1, outputs, 1, 1)))


@converter("Col2Im")
def col2im(c: OnnxCall) -> Value:
    image, kernel = c.ints(1), c.ints(2)
    n = len(image)
    return c.op(
        "col2im", c.input(0), image=image, kernel=kernel, stride=tuple(c.attr("strides", (1,) * n)),
        padding=tuple(c.attr("pads", (0,) * 2 * n)), dilation=tuple(c.attr("dilations", (1,) * n)),
    )  # fmt: skip


_PLAIN = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


@dataclass(frozen=True)
class _ResizedAxis:
    """How one axis is resized: from ``size`` elements to ``out``; ``scale`` is their ratio as the model says it."""

    axis: int
    size: Any
    out: Any
    scale: float | None
    roi: tuple[float, float]

    @property
    def is_known(self) -> bool:
        """Whether the sizes are numbers; else the call says them, and the scale where sizes were given is None."""
        return isinstance(self.size, int) and isinstance(self.out, int)

    @property
    def stays(self) -> bool:
        same = self.size == self.out if self.is_known else difference(convert(self.size), convert(self.out)) == 0
        return same and self.scale in (1, None) and self.roi == (0.0, 1.0)

    @property
    def is_whole(self) -> bool:
        return self.is_known and abs(self.out / max(self.size, 1) - self.scale) < 1e-9  # type: ignore[operator]

    @property
    def growth(self) -> float:
        return self.out / max(self.size, 1) if self.is_known else self.scale or 1.0

    def places(self, mode: str) -> Any:
        """Returns where the elements of the result lie among those of the input.

        The operations and their order are those of onnx's reference evaluator, so that a coordinate that is a whole
        number there is one here, and takes the same element when it is rounded.
        """
        scale: Any = self.scale  # known, as the sizes are
        at, n, wide = np.arange(self.out, dtype=np.float64), self.size, scale * self.size
        if mode == "asymmetric":
            return at / scale
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
        return offset + (at + 0.5) / scale - 0.5


@converter("Resize", "Upsample")
def resize(c: OnnxCall) -> Value:
    x = c.input(0)
    newer = c.op_type == "Resize" and c.opset > 10
    mode = c.attr("coordinate_transformation_mode", "half_pixel" if newer else "asymmetric")
    if mode not in (*_PLAIN, "tf_crop_and_resize", "half_pixel_symmetric", "tf_half_pixel_for_nn"):
        raise c.error(f"the coordinates {mode} are not known")
    axes = [a for a in _axes(c, x) if not a.stays]
    for a in axes:
        if isinstance(a.out, int) and a.out < 1:
            raise c.error(
                f"a size of {a.out} elements is not supported; leave the node out of the model, since it has no result"
            )
        if isinstance(a.size, int) and a.size < 1:
            raise c.error(f"axis {a.axis} of {x.type_text} has no elements, and cannot get {a.out}")
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


def _axes(c: OnnxCall, x: Value) -> list[_ResizedAxis]:
    """Returns the axes that the node names, with their scales and sizes."""
    chosen = [c.axis(a, x) for a in c.attr("axes", tuple(range(x.ndim)))]
    scales, sizes = _wanted(c)
    old = [x.shape[a] for a in chosen]
    if (scales is None) == (sizes is None):
        raise c.error("exactly one of scales and sizes has to be there")
    if len(scales if sizes is None else sizes) != len(chosen):
        raise c.error(f"{len(scales if sizes is None else sizes)} scales or sizes for {len(chosen)} axes")
    if sizes is not None:
        out: list[Any] = list(sizes)
        policy = c.attr("keep_aspect_ratio_policy", "stretch")
        known = [isinstance(s, int) and isinstance(e, int) for s, e in zip(out, old, strict=True)]
        factors: list[Any] = [s / max(e, 1) if k else None for s, e, k in zip(out, old, known, strict=True)]
        if policy != "stretch" and not all(known):
            raise c.error(f"keep_aspect_ratio_policy={policy} for {x.type_text}, whose sizes only the call knows")
        if policy != "stretch":
            ratio = (min if policy == "not_larger" else max)(factors)
            out, factors = [int(math.floor(ratio * e + 0.5)) for e in old], [ratio] * len(old)
    else:
        factors = [float(s) for s in scales]
        if not all(0 < f < 1 << 31 for f in factors):
            raise c.error(f"the scales {factors} are not positive numbers")
        out = [_grown(c, e, f) for e, f in zip(old, factors, strict=True)]
    rois = [(0.0, 1.0)] * len(chosen)
    if c.attr("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = [np.float32(r) for r in np.ravel(c.known(1))]
        half = len(roi) // 2
        if half not in (len(chosen), x.ndim):
            raise c.error(f"a region of {len(roi)} numbers for {len(chosen)} axes")
        at = range(half) if half == len(chosen) else chosen
        rois = [(roi[n], roi[half + n]) for n in at]  # type: ignore[misc]  # float32, so that products round as the reference's
    return [_ResizedAxis(*each) for each in zip(chosen, old, out, factors, rois, strict=True)]


def _wanted(c: OnnxCall) -> tuple[Any, Any]:
    """Returns the scales and the sizes, None for what is not given."""
    if c.op_type == "Upsample":
        given = c.attr("scales")
        return (np.asarray(given) if given is not None else c.known(1)), None
    if c.opset < 11:
        return c.known(1), None
    scales, sizes = c.known(2), c.dims(3)
    return None if scales is None or not scales.size else np.ravel(scales), sizes or None


def _grown(c: OnnxCall, size: Any, scale: float) -> Any:
    """Returns the number of elements of an axis after scaling. That of a symbolic size needs a scale that is a ratio."""
    if isinstance(size, int):
        return int(math.floor(size * scale))
    ratio = Fraction(scale).limit_denominator(1 << 10)
    if np.float32(ratio.numerator / ratio.denominator) != np.float32(scale):
        raise c.error(f"a scale of {scale} for {size} elements, which only the call knows; sizes= can say how many")
    grown = size * ratio.numerator
    if (
        scale < ratio
    ):  # the float lies a little below the ratio, so that where that gives a whole number there is one less
        return dims([max_((grown - 1) // ratio.denominator, 0)])[0]
    return dims([grown // ratio.denominator])[0]


def _by_operator(c: OnnxCall, x: Value, axes: Sequence[_ResizedAxis], mode: str, rounding: str) -> Value | None:
    """Returns the result by one of te's operators, or None for more than three neighbouring axes."""
    first, last = min(a.axis for a in axes), max(a.axis for a in axes)
    n = last - first + 1
    if n > 3:
        return None
    out = list(x.shape)
    if not all(isinstance(e, int) for e in out[first : last + 1]):
        return None
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
    made = c.op("reshape", made, shape=tuple(out))
    return made if made.dtype == x.dtype else c.op("cast", made, dtype=x.dtype)


def _by_tables(c: OnnxCall, x: Value, axes: Sequence[_ResizedAxis], mode: str, rounding: str) -> Value:
    out, method = x, c.attr("mode", "nearest")
    if method not in ("nearest", "linear", "cubic"):
        raise c.error(f"the mode {method} is not known")
    for a in sorted(axes, key=lambda a: a.growth):  # what shrinks comes first
        if not a.is_known:
            out = _at_the_call(c, out, a, mode, method, c.attr("nearest_mode", rounding))
            continue
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


def _at_the_call(c: OnnxCall, x: Value, a: _ResizedAxis, mode: str, method: str, rounding: str) -> Value:
    """Returns ``x`` with one axis resized whose sizes only the call knows, by tables that the call computes."""
    if mode == "tf_crop_and_resize" or c.attr("antialias", 0):
        what = mode if mode == "tf_crop_and_resize" else "antialias"
        raise c.error(f"{what} along axis {a.axis}, which has {a.size} elements; shapes= can give a number")
    dtype = "float64"

    def number(v: Any) -> Value:
        return c.constant(v, dtype) if isinstance(v, (int, float)) else c.cast(c.size(v, "int64"), dtype)

    def op(name: str, left: Any, right: Any) -> Value:
        return c.op(name, *[v if isinstance(v, Value) else number(v) for v in (left, right)])

    at, n, out = c.cast(c.places(a.out), dtype), number(a.size), number(a.out)
    scale = op("divide", out, op("maximum", n, 1)) if a.scale is None else number(a.scale)
    wide = op("multiply", scale, n)
    if mode == "asymmetric":
        places = op("divide", at, scale)
    elif mode == "align_corners":
        last = op("subtract", wide, 1)
        steps = c.op("where", op("equal", last, 0), number(1), last)
        places = op("divide", op("multiply", at, op("subtract", n, 1)), steps)
    else:
        places = op("subtract", op("divide", op("add", at, 0.5), scale), 0.5)
        if mode == "half_pixel_symmetric":
            offset = op("multiply", op("divide", n, 2), op("subtract", 1, op("divide", out, wide)))
            places = op("add", offset, places)
        elif mode == "pytorch_half_pixel":
            places = c.op("where", op("equal", wide, 1), number(-0.5), places)
    below = c.op("floor", places)
    rest = op("subtract", places, below)
    if method == "nearest":
        compare, edge = {
            "floor": ("less", 0), "ceil": ("greater", 0), "round_prefer_floor": ("greater", 0.5),
            "round_prefer_ceil": ("greater_equal", 0.5),
        }[rounding]  # fmt: skip
        index = op("add", below, c.cast(op(compare, rest, edge), dtype))
        inside = op("maximum", op("minimum", index, op("subtract", n, 1)), 0)
        return c.op("take", x, c.cast(inside, "int64"), axis=a.axis)
    reach = 1 if method == "linear" else 2
    steps = c.constant(np.arange(1 - reach, reach + 1, dtype=np.float64)[None])
    column = [c.op("expand_dims", v, axis=1) for v in (below, rest)]
    index = op("add", column[0], steps)
    apart = c.op("abs", op("subtract", steps, column[1]))
    weights = _kernel_at_the_call(c, op, apart, method)
    if c.attr("exclude_outside", 0):
        inside = c.op("logical_and", op("greater_equal", index, 0), op("less", index, n))
        weights = op("multiply", weights, c.cast(inside, dtype))
        weights = op("divide", weights, c.op("sum", weights, axis=1, keepdims=True))
    index = op("maximum", op("minimum", index, op("subtract", n, 1)), 0)
    real = dtype if x.dtype == dtype else "float32"
    return c.op("resample", x, c.cast(index, "int32"), c.cast(weights, real), axis=a.axis)


def _kernel_at_the_call(c: OnnxCall, op: Callable[[str, Any, Any], Value], d: Value, method: str) -> Value:
    """Returns the weights of neighbours at the distances ``d``, as :func:`_triangle` and :func:`_keys` do."""
    if method == "linear":
        return op("maximum", op("subtract", 1, d), 0)
    alpha = float(c.attr("cubic_coeff_a", -0.75))

    def polynomial(*factors: float) -> Value:
        total = op("multiply", d, factors[0])
        for factor in factors[1:-1]:
            total = op("multiply", op("add", total, factor), d)
        return op("add", total, factors[-1])

    near = polynomial(alpha + 2, -(alpha + 3), 0.0, 1.0)
    far = polynomial(alpha, -5 * alpha, 8 * alpha, -4 * alpha)
    zero = op("multiply", d, 0)
    return c.op("where", op("less_equal", d, 1), near, c.op("where", op("less", d, 2), far, zero))


def _nearest(places: Any, rounding: str) -> Any:
    below = np.floor(places)
    rest = places - below
    up = {
        "floor": rest < 0, "ceil": rest > 0, "round_prefer_floor": rest > 0.5, "round_prefer_ceil": rest >= 0.5,
    }[rounding]  # fmt: skip
    return (below + up).astype(np.int64)


def _tables(c: OnnxCall, places: Any, a: _ResizedAxis) -> tuple[Any, Any]:
    """Returns the indices of the neighbours of each place, and their weights."""
    alpha = float(c.attr("cubic_coeff_a", -0.75))
    reach, kernel = (1, _triangle) if c.attr("mode") == "linear" else (2, lambda d: _keys(d, alpha))
    narrow = min(a.scale or 1.0, 1.0) if c.attr("antialias", 0) else 1.0
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


def _beyond(c: OnnxCall, x: Value, axes: Sequence[_ResizedAxis]) -> Value:
    """Returns ``x`` with the extrapolation value where a place lies outside of the image."""
    number = float(c.attr("extrapolation_value", 0.0))
    value = c.like(number if DType(x.dtype).is_float else int(number), x)
    for a in axes:
        places = a.places("tf_crop_and_resize")
        shape: list[Any] = [1] * x.ndim
        shape[a.axis] = a.out
        outside = c.constant(((places < 0) | (places > a.size - 1)).reshape(shape), "bool")
        x = c.op("where", outside, value, x)
    return x
