"""Converters of matrix products, convolutions, pooling and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from .aten_call import AtenCall
from .aten_table import aten


def _product(c: AtenCall, a: Value, b: Value) -> Value:
    attrs: dict[str, Any] = {} if DType(a.dtype).is_float else {"out_dtype": a.dtype}
    return c.op("matmul", a, b, **attrs)


@aten("mm", "bmm", "matmul")
def product(c: AtenCall, a: Value, b: Value) -> Value:
    return _product(c, a, b)


@aten("addmm", "baddbmm")
def product_and_sum(c: AtenCall, bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    out = _product(c, a, b)
    if alpha != 1:
        out = c.op("multiply", out, c.constant(alpha, out.dtype))
    if beta == 0:
        return out
    return c.op("add", out, bias if beta == 1 else c.op("multiply", bias, c.constant(beta, bias.dtype)))


@aten("linear")
def linear(c: AtenCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    return c.op("dense", x, weight, bias)


@aten("convolution")
def convolution(c: AtenCall, x: Value, weight: Value, bias: Value | None, *sizes: Any) -> Value:
    stride, padding, dilation, transposed, output_padding, groups = sizes
    n = weight.ndim - 2
    alone = x.ndim == n + 1
    if alone:
        x = c.op("expand_dims", x, axis=0)
    options = {"stride": _each(stride, n), "padding": _each(padding, n)}
    if transposed:
        if any(d != 1 for d in dilation):
            raise c.error("a transposed convolution with dilation is not supported")
        options["output_padding"] = _each(output_padding, n)
        out = _transposed(c, x, weight, bias, {**options, "groups": groups})
    elif n == 2 and weight.shape[1] == 1 and groups == x.shape[1] and weight.shape[0] % groups == 0:
        kernels = c.op("reshape", weight, shape=(groups, weight.shape[0] // groups, *weight.shape[2:]))
        out = c.op("depthwise_conv2d", x, kernels, bias, dilation=_each(dilation, n), **options)
    else:
        out = c.op(f"conv{n}d", x, weight, bias, dilation=_each(dilation, n), groups=groups, **options)
    return c.op("squeeze", out, axis=0) if alone else out


def _each(numbers: Sequence[int], n: int) -> tuple[int, ...]:
    return tuple(numbers) if len(numbers) == n else tuple(numbers) * n


def _transposed(c: AtenCall, x: Value, weight: Value, bias: Value | None, options: dict[str, Any]) -> Value:
    n = weight.ndim - 2
    if n == 1:
        wide = {k: v if k == "groups" else ({"stride": 1}.get(k, 0), *v) for k, v in options.items()}
        up = [c.op("expand_dims", v, axis=2) for v in (x, weight)]
        return c.op("squeeze", c.op("conv2d_transpose", *up, bias, **wide), axis=2)
    if n != 2:
        raise c.error(f"a transposed convolution over {n} dimensions is not supported")
    return c.op("conv2d_transpose", x, weight, bias, **options)


def _window(kernel: Any, stride: Any, padding: Any, n: int) -> dict[str, Any]:
    return {
        "kernel": _each(kernel, n),
        "stride": _each(stride, n) if stride else _each(kernel, n),
        "padding": _each(padding, n),
    }


def _batched(c: AtenCall, x: Value, n: int, pool: Any) -> Value:
    if x.ndim == n + 2:
        out: Value = pool(x)
        return out
    return c.op("squeeze", pool(c.op("expand_dims", x, axis=0)), axis=0)


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d")
def max_pool(c: AtenCall, x: Value, kernel: Any, *rest: Any) -> tuple[Value, ...]:
    given: list[Any] = [*rest, *[(), (0,), (1,), False][len(rest) :]]
    stride, padding, dilation, ceil_mode = given
    if c.needs(1) and "with_indices" in c.label:
        raise c.error("the indices of a pooling are not supported")
    n = 3 if "pool3d" in c.label else 2
    window = _window(kernel, stride, padding, n)
    window["dilation"] = _each(dilation if isinstance(dilation, (list, tuple)) else [dilation], n)
    return (_batched(c, x, n, lambda v: c.op(f"max_pool{n}d", v, ceil_mode=bool(ceil_mode), **window)),)


@aten("avg_pool2d", "avg_pool3d", "avg_pool1d")
def avg_pool(c: AtenCall, x: Value, kernel: Any, *rest: Any) -> Value:
    given: list[Any] = [*rest, *[(), (0,), False, True, None][len(rest) :]]
    stride, padding, ceil_mode, count_include_pad, divisor = given
    n = int(c.label.split("avg_pool")[1][0])
    window = _window(kernel, stride, padding, n)
    if divisor is not None:
        raise c.error("divisor_override is not supported")
    attrs = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
    return _batched(c, x, n, lambda v: c.op(f"avg_pool{n}d", v, **attrs, **window))


@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(c: AtenCall, x: Value, size: Sequence[int]) -> Value:
    n = len(size)
    if all(s == 1 for s in size) and x.ndim == n + 2:
        return c.op("global_avg_pool", x)
    return _batched(c, x, n, lambda v: c.op(f"adaptive_avg_pool{n}d", v, output_size=tuple(size)))


@aten("upsample_nearest2d.vec", "upsample_nearest2d", "upsample_bilinear2d.vec", "upsample_bilinear2d")
def upsample(c: AtenCall, x: Value, size: Any, *rest: Any) -> Value:
    out = c.shape[2:]
    if "nearest" in c.label:
        return c.op("resize2d", x, size=out, method="nearest", coordinate_mode="asymmetric", rounding="floor")
    corners = bool(rest[0]) if rest else False
    if not corners and any(o % i and i % o for o, i in zip(out, x.shape[2:], strict=True)) and rest[-1] is not None:
        raise c.error("resizing by a factor that is not the ratio of the sizes is not supported")
    return c.op("resize2d", x, size=out, method="linear", coordinate_mode="align_corners" if corners else "half_pixel")
