"""Converters of matrix products and convolutions with general dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from .. import common
from .hlo_call import HloCall, hlo
from .hlo_shapes import padded
from .jaxlib_package import load_jaxlib


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
