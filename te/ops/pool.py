"""Pooling takes the maximum or the mean over windows.

Adaptive pooling chooses the windows so that the result has the requested size; :func:`max_pool_positions` finds where
the maxima lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tir.expr import Expr, IntImm, all_, cast, const, max_identity, max_value, select
from ...tir.expr import max_ as larger
from ...tir.expr import min_ as smaller
from ...tir.expr.reducers import ARGMAX, ARGMAX_OR_NAN
from ..compute import compute
from ..reduce import max_, reduce_axis, reduction_by, sum_
from ..tensor import Tensor
from .arguments import ELEMWISE, INJECTIVE, check_tensor, constant, one_each
from .reductions import max as max_over
from .reductions import mean as mean_over
from .windows import AXES, SPATIAL, Windows, check_layout


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


Index = tuple[Expr, ...]


def _windows(
    op: str, n: int, data: Tensor, output_size: Any, layout: str
) -> tuple[list[Any], Callable[[Index], list[Expr]], Callable[[Index], Expr], Callable[[Index], Expr], list[Any]]:
    """Returns the output's shape, three functions of an output's index, and the axes of the window. The functions
    return the index of the window's element, whether that lies in the window, and the number of elements of the window.

    Window ``i`` of ``out`` goes from ``i * size // out`` up to ``(i + 1) * size / out`` rounded up.
    """
    check_tensor(op, data, n + 2, "the data")
    _, first = check_layout(op, layout, n)
    asked = one_each(op, f"output_size={output_size!r}", output_size, n)
    shape = list(data.shape)
    sizes, outs = [], []
    for d in range(n):
        size = constant(op, "a size", data.shape[first + d])
        out = size if asked[d] is None else constant(op, "output_size", asked[d])
        if out < 1:
            raise ValueError(f"{op}: output_size={output_size!r} has to be at least 1")
        sizes.append(size)
        outs.append(out)
        shape[first + d] = const(out)
    ends = [
        [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]
        for size, out in zip(sizes, outs, strict=True)
    ]
    longest = [max(hi - lo for lo, hi in e) for e in ends]
    even = [size % out == 0 for size, out in zip(sizes, outs, strict=True)]
    window = [reduce_axis((0, k), name=f"r{d.lower()}") for k, d in zip(longest, "DHW"[3 - n :], strict=True)]

    def begin(i: Index, d: int) -> Expr:
        here = i[first + d]
        return here * longest[d] if even[d] else here * sizes[d] // outs[d]

    def length(i: Index, d: int) -> Expr:
        end: Expr = ((i[first + d] + 1) * sizes[d] + (outs[d] - 1)) // outs[d]
        return const(longest[d]) if even[d] else end - begin(i, d)

    def at(i: Index) -> list[Expr]:
        index: list[Expr] = list(i)
        for d in range(n):
            index[first + d] = begin(i, d) + window[d].var
        return index

    def inside(i: Index) -> Expr:
        return all_(*[window[d].var < length(i, d) for d in range(n) if not even[d]])

    def count(i: Index) -> Expr:
        out: Expr = const(1)
        for d in range(n):
            out = out * length(i, d)
        return out

    return shape, at, inside, count, window


def _max(op: str, n: int, data: Tensor, output_size: Any, layout: str, name: str) -> Tensor:
    shape, at, inside, _, window = _windows(op, n, data, output_size, layout)
    out: Tensor = compute(
        shape, lambda *i: max_(data(*at(i)), axis=window, where=inside(i)), name=name or op, tag="adaptive_pool_max"
    )
    return out


def _avg(op: str, n: int, data: Tensor, output_size: Any, layout: str, name: str) -> Tensor:
    shape, at, inside, count, window = _windows(op, n, data, output_size, layout)
    acc = data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else "float32"
    out_dtype = data.dtype if data.dtype.is_float else "float32"
    name = name or op
    total = compute(
        shape,
        lambda *i: sum_(cast(acc, data(*at(i))), axis=window, where=inside(i)),
        name=f"{name}_sum",
        tag="adaptive_pool_sum",
    )
    out: Tensor = compute(shape, lambda *i: cast(out_dtype, total(*i) / cast(acc, count(i))), name=name, tag=ELEMWISE)
    return out


def adaptive_max_pool1d(data: Tensor, output_size: Any, layout: str = "NCW", name: str = "") -> Tensor:
    """:func:`adaptive_max_pool2d` in one dimension, ``NCW`` or ``NWC``."""
    return _max("adaptive_max_pool1d", 1, data, output_size, layout, name)


def adaptive_max_pool2d(data: Tensor, output_size: Any, layout: str = "NCHW", name: str = "") -> Tensor:
    """Returns the maximum over windows that divide the input among ``output_size`` elements per dimension.

    Window ``i`` of ``out`` begins at ``i * size // out`` and ends before ``(i + 1) * size / out`` rounded up, so windows
    may overlap. ``output_size``: a number, or one per dimension, None where the size stays. ``layout``: ``NCHW`` or
    ``NHWC``. Sizes are constants.
    """
    return _max("adaptive_max_pool2d", 2, data, output_size, layout, name)


def adaptive_max_pool3d(data: Tensor, output_size: Any, layout: str = "NCDHW", name: str = "") -> Tensor:
    """:func:`adaptive_max_pool2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    return _max("adaptive_max_pool3d", 3, data, output_size, layout, name)


def adaptive_avg_pool1d(data: Tensor, output_size: Any, layout: str = "NCW", name: str = "") -> Tensor:
    """:func:`adaptive_avg_pool2d` in one dimension, ``NCW`` or ``NWC``."""
    return _avg("adaptive_avg_pool1d", 1, data, output_size, layout, name)


def adaptive_avg_pool2d(data: Tensor, output_size: Any, layout: str = "NCHW", name: str = "") -> Tensor:
    """Returns the mean over the windows of :func:`adaptive_max_pool2d`. Integers give float32."""
    return _avg("adaptive_avg_pool2d", 2, data, output_size, layout, name)


def adaptive_avg_pool3d(data: Tensor, output_size: Any, layout: str = "NCDHW", name: str = "") -> Tensor:
    """:func:`adaptive_avg_pool2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    return _avg("adaptive_avg_pool3d", 3, data, output_size, layout, name)


def max_pool_positions(
    data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, column_major: bool = False,
    name: str = "T_max_pool_positions",
) -> Tensor:  # fmt: skip
    """Returns the position in the flattened ``data`` (N, C, spatial…) of the maximum of each window, the first of equals.

    The windows are those of :func:`max_pool2d` in one to three dimensions. With ``column_major`` positions are counted
    with the first spatial dimension innermost.
    """
    op = "max_pool_positions"
    check_tensor(op, data, (3, 4, 5), "the data")
    n = data.ndim - 2
    windows = Windows.of(op, data, "NC" + SPATIAL[n], kernel, stride, padding, dilation)
    extents: list[Any] = [e.value if isinstance(e, IntImm) else e for e in data.shape]
    padded = windows.padded(max_identity(data.dtype))
    axes = [reduce_axis((0, k), f"k{d}") for d, k in enumerate(windows.sizes)]
    larger = reduction_by(ARGMAX_OR_NAN if data.dtype.is_float else ARGMAX)

    def places(i: tuple[Expr, ...]) -> list[Expr]:
        """Returns the spatial index in the data itself, which lies outside for an element of the padding."""
        at = windows.index(i, i[1], [axis.var for axis in axes])[2:]
        return [p - before for p, before in zip(at, windows.before, strict=True)]

    def f(*i: Expr) -> Any:
        position: Expr = const(0)
        inner = list(zip(places(i), extents[2:], strict=True))
        for place, extent in reversed(inner) if column_major else inner:
            position = position * extent + place
        position = cast("int64", position)
        if padded is not data:  # of equals the element with the smaller position is taken: never the padding
            inside = all_(*[c for place, extent in inner for c in (place >= 0, place < extent)])
            position = select(inside, position, const(max_value("int64"), "int64"))
        return larger((position, padded(*windows.index(i, i[1], [a.var for a in axes]))), axis=axes)

    shape = [*data.shape[:2], *windows.counts()]
    inside = compute(shape, f, f"{name}_inside", tag="comm_reduce", requires=windows.requires())[0]
    plane = math.prod([cast("int64", e) for e in data.shape[2:]])

    def whole(*i: Expr) -> Any:
        return cast("int64", i[0] * extents[1] + i[1]) * plane + inside(*i)

    out: Tensor = compute(shape, whole, name, tag=INJECTIVE)
    return out
