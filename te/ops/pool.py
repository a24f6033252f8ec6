"""Pooling takes the maximum or the mean over windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.dtype import bits_of, is_float, min_value
from ...tir.expr import Expr, IntImm, cast, const
from ...tir.op import max_ as larger
from ...tir.op import min_ as smaller
from ..compute import compute
from ..reduce import max_, reduce_axis, sum_
from ..tensor import Tensor
from ._common import ELEMWISE, check_tensor, per_dimension
from .axis_reductions import max as max_over
from .axis_reductions import mean as mean_over
from .conv import check_layout, output_extent
from .pad import pad, window_padding


def _max_pool(
    op: str, n: int, data: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    layout: str, name: str,
) -> Tensor:  # fmt: skip
    lowest = min_value(check_tensor(op, data, n + 2, "the data").dtype)
    padded, shape, at, window = _windows(op, n, data, kernel, stride, padding, dilation, ceil_mode, layout, lowest)
    out: Tensor = compute(
        shape,
        lambda *i: max_(padded(*at(i)), axis=window),
        name=name or op,
        tag="pool_max",
        varargs_names=_names(layout),
    )
    return out


def _avg_pool(
    op: str, n: int, data: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    layout: str, count_include_pad: bool, name: str,
) -> Tensor:  # fmt: skip
    check_tensor(op, data, n + 2, "the data")
    padded, shape, at, window = _windows(op, n, data, kernel, stride, padding, dilation, ceil_mode, layout, 0)
    acc = data.dtype if is_float(data.dtype) and bits_of(data.dtype) >= 32 else "float32"
    out_dtype = data.dtype if is_float(data.dtype) else "float32"
    name = name or op
    total = compute(
        shape,
        lambda *i: sum_(cast(acc, padded(*at(i))), axis=window),
        name=f"{name}_sum",
        tag="pool_sum",
        varargs_names=_names(layout),
    )
    _, first = check_layout(op, layout, n)
    sizes = per_dimension(op, "kernel", kernel, n)
    strides = sizes if stride is None else per_dimension(op, "stride", stride, n)
    dilations = per_dimension(op, "dilation", dilation, n)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    extents = data.shape[first : first + n]
    before, after = window_padding(op, padding, reach, strides, extents)

    def count(i: tuple[Expr, ...]) -> Expr:
        out: Expr = const(1)
        for d in range(n):
            extent, step = extents[d], dilations[d]
            begin = i[first + d] * strides[d] - before[d]
            lo, hi = (-before[d], extent + after[d]) if count_include_pad else (0, extent)
            if _never_leaves(count_include_pad, ceil_mode, before[d], after[d]):
                here: Expr = const(sizes[d])
            elif step == 1:
                here = smaller(begin + sizes[d], hi) - larger(begin, lo)
            else:  # how many of begin, begin + step, … lie in [lo, hi)
                skipped = (larger(lo - begin, 0) + (step - 1)) // step
                here = smaller((hi - begin + (step - 1)) // step, sizes[d]) - skipped
            out = out * here
        return larger(out, 1)

    mean: Tensor = compute(
        shape,
        lambda *i: cast(out_dtype, total(*i) / cast(acc, count(i))),
        name=name,
        tag=ELEMWISE,
        varargs_names=_names(layout),
    )
    return mean


def _never_leaves(count_include_pad: bool, ceil_mode: bool, before: int, after: int) -> bool:
    return not ceil_mode and (count_include_pad or (before == 0 and after == 0))


def _names(layout: str) -> list[str]:
    return ["nn" if d == "N" else "cc" if d == "C" else {"D": "zz", "H": "yy", "W": "xx"}[d] for d in layout]


def _windows(
    op: str, n: int, data: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
    layout: str, value: Any,
) -> tuple[Tensor, list[Expr], Callable[[tuple[Expr, ...]], list[Any]], list[Any]]:  # fmt: skip
    """Returns the padded input, the output's shape, the index of an output's window, and the axes of the window."""
    _, first = check_layout(op, layout, n)
    sizes = per_dimension(op, "kernel", kernel, n)
    strides = sizes if stride is None else per_dimension(op, "stride", stride, n)
    dilations = per_dimension(op, "dilation", dilation, n)
    reach = [(k - 1) * d + 1 for k, d in zip(sizes, dilations, strict=True)]
    extents = data.shape[first : first + n]
    before, after = window_padding(op, padding, reach, strides, extents)
    for d in range(n):
        if before[d] >= reach[d] or after[d] >= reach[d]:
            raise ValueError(f"{op}: padding={padding!r} lets a window of {sizes[d]} elements see padding only")
    shape, lo, hi = list(data.shape), [0] * data.ndim, [0] * data.ndim
    for d in range(n):
        axis, s = first + d, strides[d]
        extent = output_extent(op, data, extents[d], reach[d], s, before[d], after[d] + (s - 1) * ceil_mode)
        more = 0
        if ceil_mode:
            if not isinstance(extent, IntImm) or not isinstance(extents[d], IntImm):
                raise ValueError(f"{op}: ceil_mode needs constant sizes")
            size, count = extents[d].value, extent.value  # type: ignore[attr-defined]
            if (count - 1) * s >= size + before[d]:  # the last window would start in the padding after
                count -= 1
            extent = const(count)
            more = max((count - 1) * s + reach[d] - size - before[d] - after[d], 0)
        shape[axis], lo[axis], hi[axis] = extent, before[d], after[d] + more
    padded = pad(data, lo, hi, value) if any(lo) or any(hi) else data
    window = [reduce_axis((0, k), name=f"r{d.lower()}") for k, d in zip(sizes, "DHW"[3 - n :], strict=True)]

    def at(i: tuple[Expr, ...]) -> list[Any]:
        index: list[Any] = list(i)
        for d in range(n):
            index[first + d] = i[first + d] * strides[d] + window[d].var * dilations[d]
        return index

    return padded, shape, at, window


def max_pool1d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCW", name: str = "") -> Tensor:  # fmt: skip
    """:func:`max_pool2d` in one dimension, ``NCW`` or ``NWC``."""
    return _max_pool("max_pool1d", 1, data, kernel, stride, padding, dilation, ceil_mode, layout, name)


def max_pool2d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCHW", name: str = "") -> Tensor:  # fmt: skip
    """Returns the maximum over windows of ``kernel`` elements, ``stride`` (by default the kernel's size) apart.

    ``padding`` as in :func:`conv2d`; it never is the maximum. ``ceil_mode`` keeps a last window that is cut off, as
    long as it starts inside the input or the padding before it. ``layout``: ``NCHW`` or ``NHWC``.
    """
    return _max_pool("max_pool2d", 2, data, kernel, stride, padding, dilation, ceil_mode, layout, name)


def max_pool3d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCDHW", name: str = "") -> Tensor:  # fmt: skip
    """:func:`max_pool2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    return _max_pool("max_pool3d", 3, data, kernel, stride, padding, dilation, ceil_mode, layout, name)


def avg_pool1d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True,
               name: str = "") -> Tensor:  # fmt: skip
    """:func:`avg_pool2d` in one dimension, ``NCW`` or ``NWC``."""
    return _avg_pool(
        "avg_pool1d", 1, data, kernel, stride, padding, dilation, ceil_mode, layout, count_include_pad, name
    )


def avg_pool2d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
               name: str = "") -> Tensor:  # fmt: skip
    """Returns the mean over windows; the arguments of :func:`max_pool2d`.

    The sum is divided by the elements of the window that lie in the input, with ``count_include_pad`` by those in the
    input and its padding (what ``ceil_mode`` adds never counts). Integers give float32.
    """
    return _avg_pool(
        "avg_pool2d", 2, data, kernel, stride, padding, dilation, ceil_mode, layout, count_include_pad, name
    )


def avg_pool3d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True,
               name: str = "") -> Tensor:  # fmt: skip
    """:func:`avg_pool2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    return _avg_pool(
        "avg_pool3d", 3, data, kernel, stride, padding, dilation, ceil_mode, layout, count_include_pad, name
    )


def _spatial_axes(op: str, data: Tensor, layout: str) -> tuple[int, ...]:
    check_tensor(op, data, (3, 4, 5), "the data")
    layout = layout or {3: "NCW", 4: "NCHW", 5: "NCDHW"}[data.ndim]
    if len(layout) != data.ndim:
        raise ValueError(f"{op}: layout={layout!r} for {data.ndim} dimensions")
    _, first = check_layout(op, layout, data.ndim - 2)
    return tuple(range(first, first + data.ndim - 2))


def global_avg_pool(data: Tensor, layout: str = "", name: str = "global_avg_pool") -> Tensor:
    """Returns the mean over all spatial dimensions, which stay with extent 1. ``layout``: channels first by default."""
    out: Tensor = mean_over(data, _spatial_axes("global_avg_pool", data, layout), True, name)
    return out


def global_max_pool(data: Tensor, layout: str = "", name: str = "global_max_pool") -> Tensor:
    """Returns the maximum over all spatial dimensions, which stay with extent 1. ``layout``: channels first by
    default."""
    out: Tensor = max_over(data, _spatial_axes("global_max_pool", data, layout), True, name)
    return out
