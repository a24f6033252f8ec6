"""This module pools regions of images whose borders lie between elements (He et al., Mask R-CNN, 2017)."""

from __future__ import annotations

from functools import reduce as combine
from typing import Any

from ...tir.expr import Expr, Or, cast, const
from ...tir.expr import max_ as larger
from ...tir.expr import min_ as smaller
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import max_, reduce_axis, sum_
from ..tensor import Tensor
from .blocks.between_elements import linear_sample
from .blocks.operator_arguments import ELEMWISE, check_tensor


def roi_align(
    data: Tensor, rois: Tensor, batch: Tensor, pooled_size: tuple[int, int], spatial_scale: float = 1.0,
    sample_ratio: int = 2, aligned: bool = True, mode: str = "avg", name: str = "T_roi_align",
) -> Tensor:  # fmt: skip
    """Returns the regions ``(R, C, *pooled_size)``. Each element is the mean or the maximum of samples.

    There are ``sample_ratio`` by ``sample_ratio`` samples per element.
    data: (N, C, H, W); rois: (R, 4) as x1, y1, x2, y2; batch: (R), which image each region lies in. ``aligned`` moves
    regions by half an element; ``mode="max"`` takes the largest weighted neighbour, as ONNX does.
    """
    op = "roi_align"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, rois, 2, "the regions")
    check_tensor(op, batch, 1, "the images' numbers")
    if sample_ratio < 1 or min(pooled_size) < 1:
        raise ValueError(f"{op}: pooled_size={pooled_size}, sample_ratio={sample_ratio}; both have to be at least 1")
    if mode not in ("avg", "max"):
        raise ValueError(f"{op}: mode={mode!r}; there are avg and max")
    wide = data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else "float32"
    half = const(0.5 if aligned else 0.0, wide)
    axes = [reduce_axis((0, sample_ratio), n) for n in ("sy", "sx")]
    images = cast(batch.dtype, data.shape[0])

    def place(r: Expr, d: int, cell: Expr, k: Expr) -> tuple[Expr, Expr]:
        """Returns a sample's coordinate inside the image, and whether it was outside."""
        low, high = [
            cast(wide, rois(r, const(n))) * const(spatial_scale, wide) - half for n in ((1, 3) if d == 0 else (0, 2))
        ]
        length = high - low if aligned else larger(high - low, const(1.0, wide))
        size = length / const(float(pooled_size[d]), wide)
        part = (cast(wide, k) + const(0.5, wide)) * size / const(float(sample_ratio), wide)
        at = low + cast(wide, cell) * size + part
        extent = cast(wide, data.shape[2 + d])
        outside = Or(at < const(-1.0, wide), at > extent)
        return smaller(larger(at, const(0.0, wide)), extent - const(1.0, wide)), outside

    def f(r: Expr, c: Expr, y: Expr, x: Expr) -> Any:
        image = smaller(larger(batch(r), const(0, batch.dtype)), images - const(1, batch.dtype))
        (py, oy), (px, ox) = [
            place(r, d, cell, axis.var) for d, (cell, axis) in enumerate(zip((y, x), axes, strict=True))
        ]
        terms = linear_sample(data, (image, c), (py, px))
        value = combine(larger if mode == "max" else lambda a, b: a + b, terms)
        value = if_then_else(Or(oy, ox), const(0.0, wide), value)
        return max_(value, axis=axes) if mode == "max" else sum_(value, axis=axes)

    shape = (rois.shape[0], data.shape[1], *[const(n) for n in pooled_size])
    total = compute(shape, f, f"{name}_samples", tag="roi_align")
    share = const(1.0 if mode == "max" else 1.0 / sample_ratio**2, wide)
    out: Tensor = compute(shape, lambda *i: cast(data.dtype, total(*i) * share), name, ELEMWISE)
    return out
