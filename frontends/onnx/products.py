"""Converters of products: matrices, convolutions, Einstein sums, pooling, Fourier transforms, and determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.builder import add_scan
from ...graph.graph import Value
from ...tir.expr import DType
from .. import common
from ..common import max_pool, product
from .call import LARGEST_TABLE, OnnxCall, converter


def window_arguments(c: OnnxCall, kernel: tuple[int, ...], data: Value) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Returns strides, dilations and padding of a window, with ``auto_pad`` worked out."""
    n = len(kernel)
    strides = tuple(c.attr("strides", (1,) * n))
    dilations = tuple(c.attr("dilations", (1,) * n))
    auto = c.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        return strides, dilations, tuple(c.attr("pads", (0,) * (2 * n)))
    if auto == "VALID":
        return strides, dilations, (0,) * (2 * n)
    before, after = [], []
    for extent, k, s, d in zip(data.shape[2:], kernel, strides, dilations, strict=True):
        if not isinstance(extent, int):
            raise c.error(f"auto_pad={auto} needs known sizes")
        total = max((-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent, 0)
        more = total - total // 2
        before.append(more if auto == "SAME_LOWER" else total // 2)
        after.append(total - before[-1])
    return strides, dilations, (*before, *after)


def convolution(c: OnnxCall, x: Value, w: Value, bias: Value | None, out_dtype: str | None = None) -> Value:
    """Returns the convolution that the node's attributes describe."""
    strides, dilations, padding = window_arguments(c, tuple(c.attr("kernel_shape", w.shape[2:])), x)
    windows = {"stride": strides, "padding": padding, "dilation": dilations}
    return common.convolution(c, x, w, bias, groups=c.attr("group", 1), out_dtype=out_dtype, **windows)


def channels_first(c: OnnxCall, x: Value) -> Value:
    """Returns images that have the channels at the end with these behind the batch."""
    return c.op("transpose", x, axes=(0, x.ndim - 1, *range(1, x.ndim - 1)))


def channels_last(c: OnnxCall, x: Value) -> Value:
    """Returns images with the channels at the end."""
    return c.op("transpose", x, axes=(0, *range(2, x.ndim), 1))


def shifted(c: OnnxCall, x: Value, zero: Value | None, axis: int) -> Value:
    """Returns ``x`` less its zero point in int32, or ``x`` itself without one. A vector holds one per index of ``axis``."""
    if zero is None:
        return x
    data = c.builder.constants.get(zero)
    if data is not None and not data.any():
        return x
    wide = c.cast(zero, "int32")
    if zero.ndim == 1 and zero.shape[0] != 1:
        shape = [1] * x.ndim
        shape[axis] = zero.shape[0]
        wide = c.op("reshape", wide, shape=tuple(shape))
    elif zero.ndim == 1:
        wide = c.op("reshape", wide, shape=(1,) * x.ndim)
    return c.op("subtract", c.cast(x, "int32"), wide)


@converter("MatMul")
def matmul(c: OnnxCall) -> Value:
    return common.product(c, c.input(0), c.input(1))


@converter("Gemm")
def gemm(c: OnnxCall) -> Value:
    a, b, bias = c.input(0), c.input(1), c.optional(2)
    alpha, beta = float(c.attr("alpha", 1.0)), float(c.attr("beta", 1.0))
    if c.attr("transA", 0):
        a = c.op("transpose", a, axes=(1, 0))
    attrs: dict[str, Any] = {} if DType(a.dtype).is_float else {"out_dtype": a.dtype}
    out = c.op("dense", a, b, **attrs) if c.attr("transB", 0) else c.op("matmul", a, b, **attrs)
    if bias is not None and (
        not bias.is_static or not out.is_static
    ):  # it has the product's shape, or broadcasts to it
        bias = c.op("broadcast_to", bias, shape=out.shape)
    return common.scaled_sum(c, out, bias, alpha, beta)


@converter("Conv")
def conv(c: OnnxCall) -> Value:
    return convolution(c, c.input(0), c.input(1), c.optional(2))


@converter("ConvTranspose")
def conv_transpose(c: OnnxCall) -> Value:
    x, w, bias = c.input(0), c.input(1), c.optional(2)
    n = x.ndim - 2
    kernel = tuple(c.attr("kernel_shape", w.shape[2:]))
    strides, dilations = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("dilations", (1,) * n))
    extra, pads = tuple(c.attr("output_padding", (0,) * n)), tuple(c.attr("pads", (0,) * 2 * n))
    wanted, auto = c.attr("output_shape"), c.attr("auto_pad", "NOTSET")
    groups = c.attr("group", 1)
    if auto.startswith("SAME") and wanted is None:
        wanted = [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        totals = [
            s * (e - 1) + p + (k - 1) * d + 1 - o
            for s, e, p, k, d, o in zip(strides, x.shape[2:], extra, kernel, dilations, wanted, strict=True)
        ]
        halves = [int(t / 2) for t in totals]  # towards zero
        low = [t - h if auto == "SAME_LOWER" else h for t, h in zip(totals, halves, strict=True)]
        pads = (*low, *[t - b for t, b in zip(totals, low, strict=True)])
    windows = {"stride": strides, "padding": pads, "dilation": dilations, "output_padding": extra}
    return common.transposed_convolution(c, x, w, bias, groups=groups, **windows)


@converter("MatMulInteger")
def matmul_integer(c: OnnxCall) -> Value:
    a, b = shifted(c, c.input(0), c.optional(2), -2), shifted(c, c.input(1), c.optional(3), -1)
    return common.product(c, a, b, "int32")


@converter("ConvInteger")
def conv_integer(c: OnnxCall) -> Value:
    x, w = shifted(c, c.input(0), c.optional(2), 0), shifted(c, c.input(1), c.optional(3), 0)
    return convolution(c, x, w, None, "int32")


@converter("Einsum")
def einsum(c: OnnxCall) -> Value:
    equation = c.attr("equation").replace(" ", "")
    return c.op("einsum", *[v for v in c.inputs if v is not None], equation=equation)


@converter("MaxPool", "AveragePool", "LpPool")
def pool(c: OnnxCall) -> tuple[Value, ...] | Value:
    return windows_of(c, c.input(0), c.op_type)


def windows_of(c: OnnxCall, x: Value, op_type: str) -> tuple[Value, ...] | Value:
    """Returns the maxima, means or norms (as ``op_type`` says) of the windows that the node's attributes describe."""
    n = x.ndim - 2
    if n not in (1, 2, 3):
        raise c.error(f"pooling in {n} dimensions is not supported")
    kernel = tuple(c.attr("kernel_shape"))
    strides, dilations, padding = window_arguments(c, kernel, x)
    attrs: dict[str, Any] = {
        "kernel": kernel, "stride": strides, "padding": padding, "dilation": dilations,
        "ceil_mode": bool(c.attr("ceil_mode", 0)),
    }  # fmt: skip
    if op_type == "MaxPool":
        positions, column_major = c.outputs > 1, bool(c.attr("storage_order", 0))
        return max_pool(c, x, positions=positions, column_major=column_major, **attrs)
    if op_type == "AveragePool":
        return c.op(f"avg_pool{n}d", x, count_include_pad=bool(c.attr("count_include_pad", 0)), **attrs)
    p = c.attr("p", 2)
    powers = c.op("power", c.op("abs", x), c.like(p, x))
    mean = c.op(f"avg_pool{n}d", powers, count_include_pad=True, **attrs)
    total = c.op("multiply", mean, c.like(math.prod(kernel), mean))
    return c.op("power", total, c.like(1.0 / p, total))


@converter("MaxUnpool")
def max_unpool(c: OnnxCall) -> Value:
    x, indices, n = c.input(0), c.input(1), c.input(0).ndim - 2
    kernel = tuple(c.attr("kernel_shape"))
    strides, pads = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("pads", (0,) * 2 * n))
    if not x.is_static:
        raise c.error(f"{x.type_text} has symbolic sizes; shapes= can give them as numbers")
    spatial = [
        (e - 1) * s - pads[d] - pads[n + d] + k
        for d, (e, s, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    shape = (*x.shape[:2], *spatial)
    wanted = shape if c.optional(2) is None else tuple(c.ints(2))
    if len(wanted) != x.ndim or min(spatial) < 1 or any(a < b for a, b in zip(wanted, shape, strict=True)):
        raise c.error(f"the shape {wanted} does not hold {shape}")
    c.limit(wanted)
    count = math.prod(x.shape)
    empty = c.op("broadcast_to", c.like(0, x), shape=(math.prod(shape),))
    places, values = [c.op("reshape", v, shape=(count,)) for v in (indices, x)]
    out = c.op("reshape", c.op("scatter_elements", empty, places, values), shape=shape)
    after = tuple([a - b for a, b in zip(wanted, shape, strict=True)])
    return c.op("pad", out, pad_before=(0,) * x.ndim, pad_after=after) if any(after) else out


@converter("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(c: OnnxCall) -> Value:
    x = c.input(0)
    axes = tuple(range(2, x.ndim))
    if c.op_type == "GlobalLpPool":
        p = c.attr("p", 2)
        total = c.op("sum", c.op("power", c.op("abs", x), c.like(p, x)), axis=axes, keepdims=True)
        return c.op("power", total, c.like(1.0 / p, total))
    return c.op("mean" if c.op_type == "GlobalAveragePool" else "max", x, axis=axes, keepdims=True)


_LONGEST = 1 << 14
"""Longer transforms would need too large a matrix."""


@converter("DFT")
def dft(c: OnnxCall) -> Value:
    x = c.input(0)
    axis = c.attr("axis", 1) if c.opset < 20 else -2 if c.optional(2) is None else int(np.ravel(c.known(2))[0])
    if not -x.ndim <= axis < x.ndim - 1 or axis == -1:
        raise c.error(f"axis {axis} of {x.type_text}")
    axis = c.axis(axis, x)
    inverse, onesided = bool(c.attr("inverse", 0)), bool(c.attr("onesided", 0))
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise c.error(f"axis {axis} of {x.type_text} has no known size")
    usual = 2 * (extent - 1) if inverse and onesided else extent
    length = usual if c.optional(1) is None else int(np.ravel(c.known(1))[0])
    order = [*[d for d in range(x.ndim - 1) if d != axis], axis, x.ndim - 1]
    turned = x if axis == x.ndim - 2 else c.op("transpose", x, axes=tuple(order))
    out = transformed(c, turned, length, inverse, onesided)
    return out if axis == x.ndim - 2 else c.op("transpose", out, axes=tuple([order.index(d) for d in range(x.ndim)]))


def transformed(c: OnnxCall, x: Value, length: int, inverse: bool, onesided: bool) -> Value:
    """Returns the transform along the last but one axis. The last axis has the real, or the real and imaginary
    parts."""
    parts, extent = x.shape[-1], x.shape[-2]
    if parts not in (1, 2) or not isinstance(extent, int) or not 0 < length <= _LONGEST:
        raise c.error(f"a transform of length {length} of {x.type_text} is not supported")
    used = min(extent, length // 2 + 1 if inverse and onesided else length)
    if used < extent:
        x = c.op("strided_slice", x, begin=(0,) * x.ndim, end=(*x.shape[:-2], used, parts))
    c.limit((used, length), 1 << 25)
    matrix = _matrix(used, parts, length, inverse, onesided)
    count = matrix.shape[2]
    flat = c.op("reshape", x, shape=(*x.shape[:-2], used * parts))
    made = product(c, flat, c.constant(matrix.reshape(used * parts, -1), x.dtype))
    return c.op("reshape", made, shape=(*x.shape[:-2], count, matrix.shape[3]))


def _matrix(used: int, parts: int, length: int, inverse: bool, onesided: bool) -> Any:
    """Returns the share of each part of each input in each part of each output: (input, part, output, part)."""
    outputs = length if inverse or not onesided else length // 2 + 1
    angle = 2 * np.pi * ((np.arange(used)[:, None] * np.arange(outputs)[None, :]) % length) / length
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if inverse else 1)
    matrix = np.empty((used, 2, outputs, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cos, -sin
    matrix[:, 1, :, 0], matrix[:, 1, :, 1] = sin, cos
    if inverse:
        matrix /= length
    if inverse and onesided:  # what is left out is the conjugate of what is there
        twice = np.full(used, 2.0)
        twice[0] = 1
        if length % 2 == 0 and used == length // 2 + 1:
            twice[-1] = 1
        return (matrix * twice[:, None, None, None])[:, :parts, :, :1]
    return matrix[:, :parts]


@converter("STFT")
def stft(c: OnnxCall) -> Value:
    x, window = c.input(0), c.optional(2)
    step = int(np.ravel(c.known(1))[0])
    extent = x.shape[1]
    length = window.shape[0] if window is not None else extent
    if c.optional(3) is not None:
        length = int(np.ravel(c.known(3))[0])
    if not isinstance(extent, int) or not isinstance(length, int) or step < 1 or not 0 < length <= extent:
        raise c.error(f"frames of {length} elements, {step} apart, of {x.type_text}")
    frames = (extent - length) // step + 1
    c.limit((frames, length), LARGEST_TABLE)
    index = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = c.op("take", x if x.ndim == 3 else c.op("expand_dims", x, axis=x.ndim), c.constant(index), axis=1)
    if window is not None:
        cut = c.op("multiply", cut, c.op("reshape", window, shape=(length, 1)))
    return transformed(c, cut, length, False, bool(c.attr("onesided", 1)))


@converter("Det")
def determinant(c: OnnxCall) -> Value:
    """Returns determinants by Gaussian elimination with row pivots, as the product of the pivots."""
    x = c.input(0)
    if x.ndim < 2 or not isinstance(x.shape[-1], int) or x.shape[-1] != x.shape[-2]:
        raise c.error(f"{x.type_text} is no square matrix of a known size")
    size = x.shape[-1]
    matrices = c.op("reshape", x, shape=(-1, size, size))
    count = matrices.shape[0]
    ones = c.op("broadcast_to", c.constant(1, x.dtype), shape=(count,))
    if not size:
        return c.op("reshape", ones, shape=x.shape[:-2])
    rows, columns = c.places(size, "int64", 1, 3), c.places(size, "int64", 2, 3)
    row = c.places(size, "int64", 1, 2)

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        (a, product), (k,) = states, parts
        here = c.op("equal", columns, k)
        column = c.op("sum", c.op("where", here, a, c.like(0, a)), axis=2)
        open_rows = c.op("where", c.op("less", row, k), c.like(-1, a), c.op("abs", column))
        best = c.op("argmax", open_rows, axis=1, dtype="int64")
        at = c.op("reshape", best, shape=(count, 1, 1))
        pivot_row = c.op("sum", c.op("where", c.op("equal", rows, at), a, c.like(0, a)), axis=1, keepdims=True)
        first_row = c.op("sum", c.op("where", c.op("equal", rows, k), a, c.like(0, a)), axis=1, keepdims=True)
        a = c.op("where", c.op("equal", rows, at), first_row, a)
        a = c.op("where", c.op("equal", rows, k), pivot_row, a)
        pivot = c.op("sum", c.op("where", here, pivot_row, c.like(0, a)), axis=2)
        column = c.op("sum", c.op("where", here, a, c.like(0, a)), axis=2)
        safe = c.op("where", c.op("equal", pivot, c.like(0, a)), c.like(1, a), pivot)
        factor = c.op("where", c.op("greater", row, k), c.op("divide", column, safe), c.like(0, a))
        a = c.op("subtract", a, c.op("multiply", c.op("expand_dims", factor, axis=2), pivot_row))
        pivot = c.op("reshape", pivot, shape=(count,))
        signed = c.op("where", c.op("equal", best, k), pivot, c.op("negative", pivot))
        return [a, c.op("multiply", product, signed)], []

    (_, product), _ = add_scan(c.builder, [matrices, ones], [c.constant(np.arange(size), "int64")], step)
    return c.op("reshape", product, shape=x.shape[:-2])
