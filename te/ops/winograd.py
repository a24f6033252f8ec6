"""This module has the convolution of Winograd: 3 x 3 windows with fewer multiplications.

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
from ...tir.expr import Expr, all_, const
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import check_tensor, constant, require_same, shape_text, with_bias
from .blocks.windows import Windows

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
