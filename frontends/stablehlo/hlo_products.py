"""Converters of matrix products, convolutions, factorizations, and triangular systems."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.builder import add_scan
from ...graph.graph import Value
from ...tir.expr import DType
from .. import common
from .hlo_call import HloCall, hlo, load_jaxlib, op
from .hlo_shapes import padded


@hlo("dot_general")
def dot_general(c: HloCall) -> Value:
    d = load_jaxlib("dialects.stablehlo").DotDimensionNumbers(c.operation.attributes["dot_dimension_numbers"])
    a, b = c.values
    return product(
        c, a, b, (list(d.lhs_batching_dimensions), list(d.rhs_batching_dimensions)),
        (list(d.lhs_contracting_dimensions), list(d.rhs_contracting_dimensions)), c.dtype,
    )  # fmt: skip


@hlo("dot")
def dot(c: HloCall) -> Value:
    a, b = c.values
    return product(c, a, b, ([], []), ([a.ndim - 1], [0]), c.dtype)


def product(
    c: HloCall, a: Value, b: Value, batch: tuple[list[int], list[int]], summed: tuple[list[int], list[int]], dtype: str
) -> Value:
    """Returns the sum of products over the dimensions ``summed``: batch dimensions, those of ``a``, those of ``b``."""
    free = [[d for d in range(v.ndim) if d not in (*x, *s)] for v, x, s in zip((a, b), batch, summed, strict=True)]
    lead = [a.shape[d] for d in batch[0]]
    shape = [*lead, *[a.shape[d] for d in free[0]], *[b.shape[d] for d in free[1]]]
    rows, columns = _extent(a, free[0]), _extent(b, free[1])
    depth = _extent(a, summed[0])
    left = _arranged(c, a, [*batch[0], *free[0], *summed[0]], [*lead, rows, depth])
    turned = len(free[1]) == 1 and [*batch[1], *free[1], *summed[1]] == list(range(b.ndim))
    order = [*batch[1], *free[1], *summed[1]] if turned else [*batch[1], *summed[1], *free[1]]
    right = _arranged(c, b, order, [*lead, columns, depth] if turned else [*lead, depth, columns])
    attrs: dict[str, Any] = {"transpose_b": True} if turned else {}
    if dtype != a.dtype or not DType(dtype).is_float:
        attrs["out_dtype"] = dtype
    if a.dtype == "bool":
        left, right = c.cast(left, "uint8"), c.cast(right, "uint8")
        attrs["out_dtype"] = "int32"
    if a.dtype != b.dtype:
        left, right = c.cast(left, dtype), c.cast(right, dtype)
    out = c.cast(c.op("matmul", left, right, **attrs), dtype)
    return out if out.shape == tuple(shape) else c.op("reshape", out, shape=tuple(shape))


def _extent(v: Value, dims: Sequence[int]) -> Any:
    out: Any = 1
    for d in dims:
        out = v.shape[d] if isinstance(out, int) and out == 1 else v.shape[d] * out
    return out


def _arranged(c: HloCall, v: Value, order: list[int], shape: list[Any]) -> Value:
    if order != list(range(v.ndim)):
        v = c.op("transpose", v, axes=tuple(order))
    return v if v.shape == tuple(shape) else c.op("reshape", v, shape=tuple(shape))


@hlo("einsum", "unary_einsum")
def einsum(c: HloCall) -> Value:
    return c.op("einsum", *c.values, equation=c.attribute("einsum_config"))


@hlo("convolution", "dynamic_conv")
def convolution(c: HloCall) -> Value:
    d = load_jaxlib("dialects.stablehlo").ConvDimensionNumbers(c.operation.attributes["dimension_numbers"])
    x, kernel = c.values[:2]
    n = x.ndim - 2
    if not 1 <= n <= 3:
        raise c.error(f"a convolution over {n} dimensions is not supported")
    order = [d.input_batch_dimension, d.input_feature_dimension, *d.input_spatial_dimensions]
    x = _arranged(c, x, order, _at(x, order))
    order = [d.kernel_output_feature_dimension, d.kernel_input_feature_dimension, *d.kernel_spatial_dimensions]
    kernel = _arranged(c, kernel, order, _at(kernel, order))
    flipped = [2 + k for k, r in enumerate(c.attribute("window_reversal", [False] * n)) if r]
    if flipped:
        kernel = c.op("flip", kernel, axis=tuple(flipped))
    pads = _pairs(c, n)
    spread = c.attribute("lhs_dilation", [1] * n)
    zero = c.constant(0, x.dtype)
    if any(s != 1 for s in spread) or any(p < 0 for pair in pads for p in pair):
        low, high = [0, 0, *[p[0] for p in pads]], [0, 0, *[p[1] for p in pads]]
        x = padded(c, x, zero, low, high, [0, 0, *[s - 1 for s in spread]])
        pads = [(0, 0)] * n
    groups, batches = c.attribute("feature_group_count", 1), c.attribute("batch_group_count", 1)
    if batches > 1:
        x, groups = _batches_as_groups(c, x, batches), batches
    out = _convolved(c, x, kernel, pads, groups)
    places = [d.output_batch_dimension, d.output_feature_dimension, *d.output_spatial_dimensions]
    back = [places.index(k) for k in range(n + 2)]
    return out if back == list(range(n + 2)) else c.op("transpose", out, axes=tuple(back))


def _at(v: Value, order: Sequence[int]) -> list[Any]:
    return [v.shape[k] for k in order]


def _pairs(c: HloCall, n: int) -> list[tuple[int, int]]:
    if c.name == "dynamic_conv":
        flat = [int(p) for p in c.numbers(2, "the padding")]
        return [(flat[2 * k], flat[2 * k + 1]) for k in range(n)]
    return [(a, b) for a, b in c.attribute("padding", [[0, 0]] * n)]


def _batches_as_groups(c: HloCall, x: Value, groups: int) -> Value:
    """Returns (N / groups, groups * C, …): each part of the batch becomes a group of channels."""
    batch, channels, *space = x.shape
    parts = c.op("reshape", x, shape=(groups, batch // groups, channels, *space))
    order = (1, 0, *range(2, parts.ndim))
    return c.op("reshape", c.op("transpose", parts, axes=order), shape=(batch // groups, groups * channels, *space))


def _convolved(c: HloCall, x: Value, kernel: Value, pads: list[tuple[int, int]], groups: int) -> Value:
    n = x.ndim - 2
    if x.dtype != c.dtype and DType(c.dtype).is_float:
        x, kernel = c.cast(x, c.dtype), c.cast(kernel, c.dtype)
    return common.convolution(
        c, x, kernel, None, stride=c.attribute("window_strides", [1] * n),
        padding=(*[a for a, _ in pads], *[b for _, b in pads]), dilation=c.attribute("rhs_dilation", [1] * n),
        groups=groups, out_dtype=None if DType(c.dtype).is_float else c.dtype,
    )  # fmt: skip


def _matrices(c: HloCall, x: Value, swapped: bool = False) -> Value:
    """Returns an array of matrices with one leading dimension, each transposed where ``swapped``."""
    if not x.is_static or 0 in x.shape:
        raise c.error("matrices of symbolic sizes, and empty ones, are not supported")
    flat = c.op("reshape", x, shape=(math.prod(x.shape[:-2]), *x.shape[-2:]))
    return c.op("transpose", flat, axes=(0, 2, 1)) if swapped else flat


def _factor(c: HloCall, x: Value, lower: bool) -> tuple[Value, Value]:
    """Returns the factors of positive definite matrices, of which one triangle is read, and whether each has one.

    Each step divides a column by the root of its diagonal element, and subtracts its product with itself from the rest.
    """
    a, n = _matrices(c, x, swapped=not lower), x.shape[-1]
    rows = c.constant(np.arange(n), "int64")

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (rest,), (at,) = states, parts
        column = c.op("take", rest, at, axis=2)
        pivot = c.op("take", column, at, axis=1)
        scaled = c.op("divide", column, c.op("expand_dims", c.op("sqrt", pivot), axis=1))
        scaled = c.op("where", c.op("greater_equal", rows, at), scaled, c.constant(0, x.dtype))
        product = c.op("multiply", c.op("expand_dims", scaled, axis=2), c.op("expand_dims", scaled, axis=1))
        good = c.cast(c.op("greater", pivot, c.constant(0, x.dtype)), "int32")
        return [c.op("subtract", rest, product)], [scaled, good]

    _, (columns, good) = add_scan(c.builder, [a], [rows], step)
    found = c.op("transpose", columns, axes=(1, 2, 0) if lower else (1, 0, 2))
    return c.op("reshape", found, shape=x.shape), c.op("reshape", c.op("min", good, axis=0), shape=x.shape[:-2])


def _solved(c: HloCall, a: Value, b: Value, lower: bool, transposed: bool, unit: bool) -> Value:
    """Returns the solutions of triangular systems, row by row: each is subtracted from those that are left."""
    matrices, rest = _matrices(c, a, swapped=transposed), _matrices(c, b)

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (left,), (at,) = states, parts
        column, row = c.op("take", matrices, at, axis=2), c.op("take", left, at, axis=1)
        if not unit:
            row = c.op("divide", row, c.op("expand_dims", c.op("take", column, at, axis=1), axis=1))
        product = c.op("multiply", c.op("expand_dims", column, axis=2), c.op("expand_dims", row, axis=1))
        return [c.op("subtract", left, product)], [row]

    places = c.constant(np.arange(a.shape[-1]), "int64")
    _, (rows,) = add_scan(c.builder, [rest], [places], step, reverse=lower == transposed)
    return c.op("reshape", c.op("transpose", rows, axes=(1, 0, 2)), shape=b.shape)


def _swapped(c: HloCall, x: Value) -> Value:
    return c.op("transpose", x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@hlo("cholesky")
def cholesky(c: HloCall) -> Value:
    return _factor(c, c.x, bool(c.attribute("lower", False)))[0]


@hlo("triangular_solve")
def triangular_solve(c: HloCall) -> Value:
    a, b = c.values
    lower, unit = bool(c.attribute("lower")), bool(c.attribute("unit_diagonal"))
    transposed = "NO_TRANSPOSE" not in str(c.operation.attributes["transpose_a"])
    if c.attribute("left_side"):
        return _solved(c, a, b, lower, transposed, unit)
    return _swapped(c, _solved(c, a, _swapped(c, b), lower, not transposed, unit))


def _letter(c: HloCall, name: str) -> str:
    return chr(c.operation.attributes["mhlo.backend_config"][name].value)


@op("custom_call @lapack_spotrf_ffi", "custom_call @lapack_dpotrf_ffi")
def lapack_cholesky(c: HloCall) -> tuple[Value, Value]:
    factor, good = _factor(c, c.x, _letter(c, "uplo") == "L")
    return factor, c.op("subtract", c.constant(1, "int32"), good)


@op("custom_call @lapack_strsm_ffi", "custom_call @lapack_dtrsm_ffi")
def lapack_triangular_solve(c: HloCall) -> Value:
    a, b = c.values
    lower, unit, transposed = _letter(c, "uplo") == "L", _letter(c, "diag") == "U", _letter(c, "trans_x") != "N"
    if _letter(c, "side") == "L":
        return _solved(c, a, b, lower, transposed, unit)
    return _swapped(c, _solved(c, a, _swapped(c, b), lower, not transposed, unit))
