"""Pooling takes the maximum or the mean over windows."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, IntImm, cast, const, max_identity
from ...tir.expr import max_ as larger
from ...tir.expr import min_ as smaller
from ..compute import compute
from ..reduce import max_, reduce_axis, sum_
from ..tensor import Tensor
from .blocks.axis_reductions import max as max_over
from .blocks.axis_reductions import mean as mean_over
from .blocks.operator_arguments import ELEMWISE, check_tensor
from .blocks.windows import AXES, Windows, check_layout


def _pool(op: str, data: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, layout: str) -> Windows:
    """Returns the windows of a pooling; ValueError when one could lie in the padding alone."""
    check_tensor(op, data, len(layout), "the data")
    windows = Windows.of(op, data, layout, kernel, stride, padding, dilation)
    for size, reach, before, after in zip(windows.sizes, windows.reach, windows.before, windows.after, strict=True):
        if before >= reach or after >= reach:
            raise ValueError(f"{op}: padding={padding!r} lets a window of {size} elements see padding only")
    return windows


def _reduced(windows: Windows, make: Any, value: Any, ceil_mode: bool, name: str, tag: str, layout: str) -> Tensor:
    """Returns a stage of ``make(element, axes)`` over each window; ``value`` is the padding."""
    shape, more = list(windows.data.shape), []
    for d in range(len(windows.sizes)):
        extent, added = _ceiled(windows, d) if ceil_mode else (windows.count(d), 0)
        shape[windows.first + d] = extent
        more.append(added)
    padded = windows.padded(value, more)
    letters = [letter for letter in layout if letter not in "NC"]
    axes = [reduce_axis((0, k), name=f"r{d.lower()}") for k, d in zip(windows.sizes, letters, strict=True)]

    def body(*i: Expr) -> Any:
        return make(padded(*windows.index(i, i[windows.channel], [axis.var for axis in axes])), axes)

    names = [AXES[letter] for letter in layout]
    out: Tensor = compute(shape, body, name=name, tag=tag, varargs_names=names, requires=windows.requires())
    return out


def _ceiled(windows: Windows, d: int) -> tuple[Expr, int]:
    """Returns how many windows there are with one that is cut off, and how many elements of padding it adds."""
    stride, size = windows.strides[d], windows.extents[d]
    extent = windows.count(d, stride - 1)
    if not isinstance(extent, IntImm) or not isinstance(size, IntImm):
        raise ValueError(f"{windows.op}: ceil_mode needs constant sizes")
    count = extent.value
    if (count - 1) * stride >= size.value + windows.before[d]:  # the last window would start in the padding after
        count -= 1
    end = (count - 1) * stride + windows.reach[d]
    return const(count), max(end - size.value - windows.before[d] - windows.after[d], 0)


def _max_pool(windows: Windows, ceil_mode: bool, layout: str, name: str) -> Tensor:
    lowest = max_identity(windows.data.dtype)
    return _reduced(windows, lambda e, k: max_(e, axis=k), lowest, ceil_mode, name or windows.op, "pool_max", layout)


def _avg_pool(windows: Windows, ceil_mode: bool, layout: str, count_include_pad: bool, name: str) -> Tensor:
    dtype, name = windows.data.dtype, name or windows.op
    acc = dtype if dtype.is_float and dtype.bits >= 32 else "float32"
    out_dtype = dtype if dtype.is_float else "float32"
    total = _reduced(windows, lambda e, k: sum_(cast(acc, e), axis=k), 0, ceil_mode, f"{name}_sum", "pool_sum", layout)
    mean: Tensor = compute(
        total.shape,
        lambda *i: cast(out_dtype, total(*i) / cast(acc, _counted(windows, i, ceil_mode, count_include_pad))),
        name=name,
        tag=ELEMWISE,
        varargs_names=[AXES[letter] for letter in layout],
    )
    return mean


def _counted(windows: Windows, i: tuple[Expr, ...], ceil_mode: bool, count_include_pad: bool) -> Expr:
    """Returns by how many elements the sum over the window of output ``i`` is divided."""
    out: Expr = const(1)
    for d, (size, step, extent) in enumerate(zip(windows.sizes, windows.dilations, windows.extents, strict=True)):
        before, after = windows.before[d], windows.after[d]
        begin = i[windows.first + d] * windows.strides[d] - before
        lo, hi = (-before, extent + after) if count_include_pad else (0, extent)
        if not ceil_mode and (count_include_pad or before == after == 0):  # no window reaches beyond
            here: Expr = const(size)
        elif step == 1:
            here = smaller(begin + size, hi) - larger(begin, lo)
        else:  # how many of begin, begin + step, … lie in [lo, hi)
            skipped = (larger(lo - begin, 0) + (step - 1)) // step
            here = smaller((hi - begin + (step - 1)) // step, size) - skipped
        out = out * here
    return larger(out, 1)


def max_pool1d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCW", name: str = "") -> Tensor:  # fmt: skip
    """:func:`max_pool2d` in one dimension, ``NCW`` or ``NWC``."""
    return _max_pool(_pool("max_pool1d", data, kernel, stride, padding, dilation, layout), ceil_mode, layout, name)


def max_pool2d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCHW", name: str = "") -> Tensor:  # fmt: skip
    """Returns the maximum over windows of ``kernel`` elements, ``stride`` (by default the kernel's size) apart.

    ``padding`` as in :func:`conv2d`; it never is the maximum. ``ceil_mode`` keeps a last window that is cut off, as
    long as it starts inside the input or the padding before it. ``layout``: ``NCHW`` or ``NHWC``.
    """
    return _max_pool(_pool("max_pool2d", data, kernel, stride, padding, dilation, layout), ceil_mode, layout, name)


def max_pool3d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCDHW", name: str = "") -> Tensor:  # fmt: skip
    """:func:`max_pool2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    return _max_pool(_pool("max_pool3d", data, kernel, stride, padding, dilation, layout), ceil_mode, layout, name)


def avg_pool1d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True,
               name: str = "") -> Tensor:  # fmt: skip
    """:func:`avg_pool2d` in one dimension, ``NCW`` or ``NWC``."""
    return _avg_pool(
        _pool("avg_pool1d", data, kernel, stride, padding, dilation, layout), ceil_mode, layout, count_include_pad, name
    )


def avg_pool2d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True,
               name: str = "") -> Tensor:  # fmt: skip
    """Returns the mean over windows; the arguments of :func:`max_pool2d`.

    The sum is divided by the elements of the window that lie in the input, with ``count_include_pad`` by those in the
    input and its padding (what ``ceil_mode`` adds never counts). Integers give float32.
    """
    return _avg_pool(
        _pool("avg_pool2d", data, kernel, stride, padding, dilation, layout), ceil_mode, layout, count_include_pad, name
    )


def avg_pool3d(data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
               ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True,
               name: str = "") -> Tensor:  # fmt: skip
    """:func:`avg_pool2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    return _avg_pool(
        _pool("avg_pool3d", data, kernel, stride, padding, dilation, layout), ceil_mode, layout, count_include_pad, name
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
