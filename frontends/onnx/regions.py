"""Converters of operators that read images at places which values name, and of sums of overlapping windows."""

from __future__ import annotations

import math

from ...graph.graph import Value
from .call import Call
from .table import converter

_METHODS = {"bilinear": "linear", "bicubic": "cubic"}


@converter("GridSample")
def grid_sample(c: Call) -> Value:
    x, grid, mode = c.input(0), c.input(1), c.attr("mode", "linear")
    attrs = {"padding_mode": c.attr("padding_mode", "zeros"), "align_corners": bool(c.attr("align_corners", 0))}
    return c.op("grid_sample", x, c.cast(grid, x.dtype), method=_METHODS.get(mode, mode), **attrs)


@converter("RoiAlign")
def roi_align(c: Call) -> Value:
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
def deformable_convolution(c: Call) -> Value:
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
def col2im(c: Call) -> Value:
    image, kernel = c.ints(1), c.ints(2)
    n = len(image)
    return c.op(
        "col2im", c.input(0), image=image, kernel=kernel, stride=tuple(c.attr("strides", (1,) * n)),
        padding=tuple(c.attr("pads", (0,) * 2 * n)), dilation=tuple(c.attr("dilations", (1,) * n)),
    )  # fmt: skip
