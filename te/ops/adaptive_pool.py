"""Adaptive pooling chooses windows so that the result has the requested size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.expr import Expr, all_, cast, const
from ..compute import compute
from ..reduce import max_, reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import ELEMWISE, check_tensor, constant, one_each
from .blocks.windows import check_layout

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
