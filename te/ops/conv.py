"""This module has convolutions in one to three dimensions: strided, padded, dilated, grouped, and Winograd's.

The depthwise and the transposed one are beside them. What deep learning calls a convolution is a correlation: the
kernel is not flipped.

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016, arXiv:1509.09308): ``tile x tile`` results
at a time are A^T [(G g G^T) * (B^T d B)] A of a piece ``d`` of the data and the window ``g``. The sums over channels
are ``(tile + 2)^2`` products of matrices. Per result and channel that takes 4 multiplications for tiles of 2 and 2.25 for
tiles of 4, instead of 9. Sums in another order round otherwise: float32 results of tiles of 4 are off by 3e-6
(16 channels) to 3e-5 (1024 channels) of the largest one, those of tiles of 2 less than by the plain convolution. An infinity may become NaN, and both may reach all results of their tiles. With float32,
data above 1e36 and results above 1e34 may overflow on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.annotations import WINOGRAD
from ...tir.expr import Expr, IntImm, Range, all_, cast, const
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Requirement, Tensor
from .arguments import accumulator, check_tensor, constant, per_dimension, require_same, same, shape_text, with_bias
from .windows import AXES, SPATIAL, Windows, arranged, check_layout, window_padding

_WINDOW = {"D": "rz", "H": "ry", "W": "rx"}


@dataclass(frozen=True, slots=True)
class _Form:
    """The arguments of a convolution beside its operands; :func:`conv2d` explains them."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int
    layout: str
    kernel_layout: str = ""
    bias: Tensor | None = None
    out_dtype: str | None = None
    name: str = ""


def conv1d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in one dimension, ``NCW`` (weights OIW) or ``NWC`` (weights WIO)."""
    return _conv("conv1d", 1, data, weight, _Form(stride, padding, dilation, groups, layout, **rest))


def conv2d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCHW", **rest: Any) -> Tensor:  # fmt: skip
    """Returns a convolution of images.

    data: (N, C, H, W) and weight: (O, C/groups, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C) and
    (KH, KW, C/groups, O) when it is ``NHWC``; ``kernel_layout="OIHW" | "HWIO" | "OHWI"`` says otherwise.

    ``stride`` and ``dilation``: a number or one per dimension. ``padding``: a number, one or two per dimension (top,
    left, bottom, right), ``"same"`` or ``"valid"``; it is a stage of its own, ``pad_temp``. ``bias=``: (O,).
    ``out_dtype=``: see :func:`matmul`. ``name=``: of the stage.
    """
    return _conv("conv2d", 2, data, weight, _Form(stride, padding, dilation, groups, layout, **rest))


def conv3d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCDHW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in three dimensions, ``NCDHW`` (weights OIDHW) or ``NDHWC`` (weights DHWIO)."""
    return _conv("conv3d", 3, data, weight, _Form(stride, padding, dilation, groups, layout, **rest))


def _conv(op: str, n: int, data: Tensor, weight: Tensor, form: _Form) -> Tensor:
    """Returns a convolution over ``n`` dimensions; see :func:`conv2d`."""
    check_tensor(op, data, n + 2, "the data")
    check_tensor(op, weight, n + 2, "the weight")
    channel, _ = check_layout(op, form.layout, n)
    spatial = SPATIAL[n]
    order = form.kernel_layout or ("OI" + spatial if channel == 1 else spatial + "IO")
    if sorted(order) != sorted("OI" + spatial):
        raise ValueError(f"{op}: kernel_layout={order!r} has to name each of {'OI' + spatial} once")
    kernel = [constant(op, "the kernel's size", weight.shape[order.index(d)]) for d in spatial]
    outputs, depth = weight.shape[order.index("O")], weight.shape[order.index("I")]
    groups = constant(op, "groups", form.groups)
    requires = _check_groups(op, groups, data.shape[channel], outputs, depth, data, weight)
    windows = Windows.of(op, data, form.layout, kernel, form.stride, form.padding, form.dilation)
    padded, room = windows.padded(), windows.counts()
    acc, out = accumulator(op, [data.dtype, weight.dtype], form.out_dtype)
    name = form.name or f"{op}_{form.layout.lower()}"
    rc = reduce_axis(Range.from_extent(depth), name="rc")
    window = [reduce_axis((0, k), name=_WINDOW[d]) for k, d in zip(kernel, spatial, strict=True)]

    def f(*i: Expr) -> Any:
        ff = i[channel]
        source = rc.var if groups == 1 else ff // (outputs // groups) * depth + rc.var
        where = {"O": ff, "I": rc.var, **{d: w.var for d, w in zip(spatial, window, strict=True)}}
        w = weight(*[where[d] for d in order])
        axes = [rc, *window] if channel == 1 else [*window, rc]
        element = padded(*windows.index(i, source, [w.var for w in window]))
        return sum_(cast(acc, element) * cast(acc, w), axis=axes)

    names = arranged("nn", "ff", [AXES[d] for d in spatial], channel)
    shape = arranged(data.shape[0], outputs, room, channel)
    plain = form.bias is not None or acc == out
    total = compute(
        shape, f, name if plain else f"{name}_acc", name, varargs_names=names, requires=[*requires, *windows.requires()]
    )
    return with_bias(op, total, form.bias, channel, acc, out, name)


def _check_groups(
    op: str, groups: int, channels: Any, outputs: Any, depth: Any, data: Tensor, weight: Tensor
) -> list[Requirement]:
    """Returns the conditions on channels that the call has to check; ValueError where groups do not divide them."""
    if groups < 1:
        raise ValueError(f"{op}: groups={groups}")
    for size, what in ((channels, "input"), (outputs, "output")):
        if isinstance(size, IntImm) and size.value % groups:
            raise ValueError(f"{op}: {groups} groups do not divide {size.value} {what} channels")
    if isinstance(channels, IntImm) and isinstance(depth, IntImm) and channels.value != depth.value * groups:
        raise ValueError(
            f"{op}: the data has {channels.value} channels in {groups} group(s), the weight {depth.value} per group: the "
            f"shapes are {shape_text(data)} and {shape_text(weight)}"
        )
    both = f"{op}: the channels of the data have to be {groups} times those of the weight, {channels} and {depth}"
    return [] if same(channels, depth * groups) else [(channels.equal(depth * groups), both)]


def depthwise_conv2d(
    data: Tensor,
    weight: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "",
) -> Tensor:
    """Returns a convolution of each channel by itself.

    data: (N, C, H, W), weight: (C, M, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C), (KH, KW, C, M) when it is
    ``NHWC``; output channel ``c * M + m`` is channel ``c`` with its ``m``-th kernel.
    """
    op = "depthwise_conv2d"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, weight, 4, "the weight")
    channel, _ = check_layout(op, layout, 2)
    at_c, at_k = (0, 2) if channel == 1 else (2, 0)
    requires = require_same(op, "the number of channels", data.shape[channel], weight.shape[at_c], data, weight)
    multiplier = constant(op, "the channel multiplier", weight.shape[at_c + 1])
    kernel = [constant(op, "the kernel's size", e) for e in weight.shape[at_k : at_k + 2]]
    windows = Windows.of(op, data, layout, kernel, stride, padding, dilation)
    padded, room = windows.padded(), windows.counts()
    acc, out = accumulator(op, [data.dtype, weight.dtype], out_dtype)
    name = name or f"depthwise_conv2d_{layout.lower()}"
    ry, rx = reduce_axis((0, kernel[0]), name="ry"), reduce_axis((0, kernel[1]), name="rx")

    def f(*i: Expr) -> Any:
        c = i[channel]
        source = c // multiplier
        pick = c % multiplier if multiplier > 1 else const(0)
        w = weight(source, pick, ry, rx) if channel == 1 else weight(ry, rx, source, pick)
        return sum_(cast(acc, padded(*windows.index(i, source, [ry.var, rx.var]))) * cast(acc, w), axis=[ry, rx])

    shape = arranged(data.shape[0], weight.shape[at_c] * multiplier, room, channel)
    plain = bias is not None or acc == out
    names = arranged("nn", "cc", ["yy", "xx"], channel)
    total = compute(
        shape, f, name if plain else f"{name}_acc", name, varargs_names=names, requires=[*requires, *windows.requires()]
    )
    return with_bias(op, total, bias, channel, acc, out, name)


def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "",
) -> Tensor:
    """Returns the transpose of :func:`conv2d`: it spreads each input over a window, ``stride`` apart.

    data: (N, C, H, W), weight: (C, O/groups, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C), (KH, KW, O/groups, C)
    when it is ``NHWC``. The output has ``(H - 1) * stride - padding + KH + output_padding`` rows.
    """
    op = "conv2d_transpose"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, weight, 4, "the weight")
    channel, first = check_layout(op, layout, 2)
    order = "IOHW" if channel == 1 else "HWOI"
    strides = per_dimension(op, "stride", stride, 2)
    extra = per_dimension(op, "output_padding", output_padding, 2, least=0)
    if any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise ValueError(f"{op}: output_padding={output_padding} has to be smaller than stride={stride}")
    kernel = [constant(op, "the kernel's size", weight.shape[order.index(d)]) for d in "HW"]
    depth, per_group = weight.shape[order.index("I")], weight.shape[order.index("O")]
    requires = require_same(op, "the number of input channels", data.shape[channel], depth, data, weight)
    extents = data.shape[first : first + 2]
    before, after = window_padding(op, padding, kernel, [1, 1], extents)
    if isinstance(depth, IntImm) and depth.value % groups:
        raise ValueError(f"{op}: {groups} groups do not divide {depth.value} input channels")
    in_group = depth // groups
    room = [
        (e - 1) * s + k - lo - hi + more
        for e, s, k, lo, hi, more in zip(extents, strides, kernel, before, after, extra, strict=True)
    ]
    for e in room:
        if isinstance(e, IntImm) and e.value < 1:
            raise ValueError(f"{op}: the output has {e.value} rows or columns; the padding {padding} is too large")
    acc, out = accumulator(op, [data.dtype, weight.dtype], out_dtype)
    name = name or f"conv2d_transpose_{layout.lower()}"
    lead = [k - 1 - lo for k, lo in zip(kernel, before, strict=True)]
    wide = _spread(data, first, strides, lead, [r + k - 1 for r, k in zip(room, kernel, strict=True)])
    rc = reduce_axis(Range.from_extent(in_group), name="rc")
    ry, rx = reduce_axis((0, kernel[0]), name="ry"), reduce_axis((0, kernel[1]), name="rx")

    def f(*i: Expr) -> Any:
        ff = i[channel]
        source = rc.var if groups == 1 else ff // per_group * in_group + rc.var
        index: list[Any] = [i[0], None, None, None]
        index[channel], index[first], index[first + 1] = source, i[first] + ry.var, i[first + 1] + rx.var
        where = {"I": source, "O": ff if groups == 1 else ff % per_group,
                 "H": kernel[0] - 1 - ry.var, "W": kernel[1] - 1 - rx.var}  # fmt: skip
        return sum_(cast(acc, wide(*index)) * cast(acc, weight(*[where[d] for d in order])), axis=[rc, ry, rx])

    names = arranged("nn", "ff", ["yy", "xx"], channel)
    shape = arranged(data.shape[0], per_group * groups, room, channel)
    plain = bias is not None or acc == out
    total = compute(shape, f, name if plain else f"{name}_acc", name, varargs_names=names, requires=requires)
    return with_bias(op, total, bias, channel, acc, out, name)


def _spread(data: Tensor, first: int, strides: Sequence[int], lead: Sequence[int], extents: Sequence[Expr]) -> Tensor:
    """Returns a stage of ``data`` whose elements lie ``strides`` apart, after ``lead`` zeros.

    A plain convolution of it with the flipped kernel is the transposed convolution.
    """
    shape, old = list(data.shape), data.shape[first : first + 2]
    shape[first : first + 2] = extents

    def spread(*i: Expr) -> Any:
        index, inside = list(i), []
        for d in range(2):
            at = i[first + d] - lead[d]
            index[first + d] = at // strides[d]
            inside += [at >= 0, at < (old[d] - 1) * strides[d] + 1]
            if strides[d] > 1:
                inside.append((at % strides[d]).equal(0))
        return if_then_else(all_(*inside), data(*index), const(0, data.dtype))

    out: Tensor = compute(shape, spread, name="data_dilate", tag="injective,dilate")
    return out


Matrix = tuple[tuple[float, ...], ...]
_ELEMENTS = ("float32", "float64")


@dataclass(frozen=True)
class _Transforms:
    """The matrices B^T, G and A^T of a tile's size. The sums of rows that share subexpressions are taken group by group:
    ``data_groups`` and ``result_groups`` hold numbers of columns."""

    data: Matrix
    window: Matrix
    result: Matrix
    data_groups: Matrix
    result_groups: Matrix


_TRANSFORMS = {
    2: _Transforms(
        data=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
        window=((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
        result=((1, 1, 1, 0), (0, 1, -1, -1)),
        data_groups=((0, 2), (1, 3)),
        result_groups=((0,), (1, 2), (3,)),
    ),
    4: _Transforms(
        data=((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0), (0, -2, -1, 2, 1, 0),
              (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
        window=((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6),
                (1 / 24, -1 / 12, 1 / 6), (0, 0, 1)),
        result=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
        data_groups=((4, 2, 0), (5, 3, 1)),
        result_groups=((0,), (1, 2), (3, 4), (5,)),
    ),
}  # fmt: skip


def winograd_weights(weight: np.ndarray[Any, Any], tile: int = 4) -> np.ndarray[Any, Any]:
    """Returns the weights (3, 3, C, O) of a convolution as :func:`winograd_conv2d` takes them. Their shape is (tile +
    2, tile + 2, C, O).

    float32 or float64; an infinity becomes NaN. ValueError for other weights and tiles.
    """
    if tile not in _TRANSFORMS or weight.shape[:2] != (3, 3) or weight.ndim != 4 or weight.dtype.name not in _ELEMENTS:
        raise ValueError(
            f"winograd_weights: tiles of {tile} and weights {weight.dtype}{list(weight.shape)}; "
            "there are tiles of 2 and of 4, and weights float32[3, 3, C, O] and float64"
        )
    g = np.array(_TRANSFORMS[tile].window)
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.einsum("ai,bj,ijco->abco", g, g, weight.astype(np.float64), optimize=True)
        return np.asarray(made, weight.dtype, order="C")


def winograd_conv2d(
    data: Tensor, weight: Tensor, padding: Any = 0, bias: Tensor | None = None, name: str = ""
) -> Tensor:
    """Returns :func:`conv2d` of 3 x 3 windows without strides, with the channels last, by Winograd's method.

    data: (N, H, W, C); weight: (4, 4, C, O) or (6, 6, C, O), which :func:`winograd_weights` makes for tiles of 2 or 4;
    ``padding`` and ``bias`` as in :func:`conv2d`. Sizes are constants, elements float32 or float64.
    """
    op = "winograd_conv2d"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, weight, 4, "the weight")
    requires = require_same(op, "the number of input channels", data.shape[3], weight.shape[2], data, weight)
    edge = [constant(op, "the weight's size", e) for e in weight.shape[:2]]
    tile = edge[0] - 2
    if tile not in _TRANSFORMS or edge[0] != edge[1]:
        raise ValueError(
            f"{op}: the weight has the shape {shape_text(weight)}; there are (4, 4, C, O) and (6, 6, C, O)"
        )
    if data.dtype not in _ELEMENTS or weight.dtype != data.dtype:
        raise ValueError(f"{op}: {data.dtype} by {weight.dtype}; there are products of float32 and of float64")
    windows = Windows.of(op, data, "NHWC", (3, 3), 1, padding, 1)
    rows, columns = (constant(op, "a size", e) for e in windows.counts())
    name = name or op
    pieces = _tiles(op, _padded(data, windows, rows, columns, tile), rows, columns, tile)
    rc = reduce_axis((0, weight.shape[2]), name="rc")
    products = compute(
        (*pieces.shape[:5], weight.shape[3]),
        lambda a, b, n, y, x, f: sum_(pieces(a, b, n, y, x, rc.var) * weight(a, b, rc.var, f), axis=rc),
        name=f"{name}_products", attrs={WINOGRAD: "products"}, requires=requires,
    )  # fmt: skip
    tiles = _results(name, products, tile)
    out = compute(
        (data.shape[0], rows, columns, weight.shape[3]),
        lambda n, y, x, f: tiles(n, y // tile, y % tile, x // tile, x % tile, f),
        name=name, attrs={WINOGRAD: "taken"},
    )  # fmt: skip
    return with_bias(op, out, bias, 3, data.dtype, data.dtype, name)


def _padded(data: Tensor, windows: Windows, rows: int, columns: int, tile: int) -> Tensor:
    """Returns the data with zeros for the padding and for the rest of the last tiles. Without any, it is the data itself."""
    (top, left), (height, width) = windows.before, (-(-n // tile) * tile + 2 for n in (rows, columns))
    n, h, w, c = data.shape
    if not (top or left) and all(constant(windows.op, "a size", e) == s for e, s in ((h, height), (w, width))):
        return data

    def element(i: Expr, y: Expr, x: Expr, f: Expr) -> Any:
        inside = all_(y >= top, y < h + top, x >= left, x < w + left)
        return if_then_else(inside, data(i, y - top, x - left, f), const(0, data.dtype))

    made: Tensor = compute((n, height, width, c), element, name="winograd_padded", attrs={WINOGRAD: "padding"})
    return made


def _tiles(op: str, data: Tensor, rows: int, columns: int, tile: int) -> Tensor:
    """Returns B^T d B of the pieces ``d``, which overlap by two rows and columns."""
    made, edge = _TRANSFORMS[tile], tile + 2
    shape = (edge, edge, data.shape[0], -(-rows // tile), -(-columns // tile), data.shape[3])

    def down(a: Expr, b: Expr, n: Expr, y: Expr, x: Expr, c: Expr) -> Any:
        return _row_of(made.data, made.data_groups, a, lambda i: data(n, y * tile + i, x * tile + b, c))

    half = compute(shape, down, name="winograd_data_rows", attrs={WINOGRAD: "data_rows"})

    def across(a: Expr, b: Expr, n: Expr, y: Expr, x: Expr, c: Expr) -> Any:
        return _row_of(made.data, made.data_groups, b, lambda i: half(a, i, n, y, x, c))

    out: Tensor = compute(shape, across, name="winograd_data", attrs={WINOGRAD: "data"})
    return out


def _results(name: str, products: Tensor, tile: int) -> Tensor:
    """Returns A^T m A of the products ``m``: (N, tiles, tile, tiles, tile, O)."""
    made = _TRANSFORMS[tile]
    _, edge, n, height, width, outputs = products.shape

    def down(i: Expr, b: Expr, n: Expr, y: Expr, x: Expr, f: Expr) -> Any:
        return _row_of(made.result, made.result_groups, i, lambda a: products(a, b, n, y, x, f))

    half = compute((tile, edge, n, height, width, outputs), down, name=f"{name}_rows", attrs={WINOGRAD: "result_rows"})

    def across(n: Expr, y: Expr, i: Expr, x: Expr, j: Expr, f: Expr) -> Any:
        return _row_of(made.result, made.result_groups, j, lambda b: half(i, b, n, y, x, f))

    shape = (n, height, tile, width, tile, outputs)
    out: Tensor = compute(shape, across, name=f"{name}_tiles", attrs={WINOGRAD: "results"})
    return out


def _row_of(matrix: Matrix, groups: Matrix, row: Expr, element: Callable[[int], Any]) -> Any:
    """Returns the product of one row of a matrix and the elements of a column."""
    sums = [_sum_of(coefficients, groups, element) for coefficients in matrix]
    out = sums[-1]
    for k in reversed(range(len(sums) - 1)):
        out = if_then_else(row.equal(k), sums[k], out)
    return out


def _sum_of(coefficients: Sequence[float], groups: Matrix, element: Callable[[int], Any]) -> Any:
    """Returns a sum whose groups are the same expressions in rows that differ by signs. They are thus computed once.

    A group begins with a positive coefficient, and what all its coefficients have in common stands in front of it.
    """
    total = None
    for group in groups:
        terms = [(coefficients[int(i)], int(i)) for i in group if coefficients[int(i)]]
        if not terms:
            continue
        first = terms[0][0]
        common = abs(first) if len({abs(factor) for factor, _ in terms}) == 1 else 1.0
        scale = common if first > 0 else -common
        part = None
        for factor, i in terms:
            part = _plus(part, factor / scale, element(i))
        total = _plus(total, scale, part)
    return total


def _plus(total: Any, factor: float, x: Any) -> Any:
    """Returns ``total + factor * x``; a ``total`` of None stands for nothing."""
    scaled = x if abs(factor) == 1.0 else x * const(abs(factor), x.dtype)
    if total is None:
        return scaled if factor > 0 else const(0, x.dtype) - scaled
    return total + scaled if factor > 0 else total - scaled
