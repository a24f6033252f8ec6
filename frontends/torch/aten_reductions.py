"""Converters of reductions, softmax, normalizations, and attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.builder import add_scan
from ...graph.graph import Value
from ...tir.expr import DType, Expr, max_
from ..common import batch_normalized, inverse_deviation, moments, per_channel, reduced
from .aten_call import AtenCall, aten


@aten("sum", "sum.dim_IntList", "prod", "prod.dim_int", "mean", "mean.dim")
def total(c: AtenCall, x: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    row = next(r for r in ("sum", "prod", "mean") if f".{r}" in c.label)
    if c.dtype == "bool":  # a sum of truth values, or a product
        return reduced(c, row, c.cast(x, "bool"), c.axes(dims, x), bool(keepdim))
    wide = c.cast(c.cast(x, "uint8") if x.dtype == "bool" else x, c.dtype)
    return reduced(c, row, wide, c.axes(dims, x), bool(keepdim))


@aten("amax", "amin")
def extreme(c: AtenCall, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return reduced(c, "max" if "amax" in c.label else "min", x, c.axes(dims, x), bool(keepdim))


@aten("max.dim", "min.dim")
def extreme_along(c: AtenCall, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    row = "max" if ".max" in c.label else "min"
    numbers = c.cast(x, "uint8") if x.dtype == "bool" else x
    if not x.ndim:
        return c.op("identity", x), c.constant(0, "int64")
    axis = c.axis(dim, x)
    where = c.op(f"arg{row}", numbers, axis=axis, keepdims=bool(keepdim), dtype="int64")
    return reduced(c, row, x, (axis,), bool(keepdim)), where


@aten("max", "min")
def extreme_of_all(c: AtenCall, x: Value) -> Value:
    return reduced(c, "max" if ".max" in c.label else "min", x, range(x.ndim))


@aten("argmax", "argmin")
def arg_extreme(c: AtenCall, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    row = "argmax" if "argmax" in c.label else "argmin"
    if not x.ndim:
        return c.constant(0, "int64")
    if dim is None:
        flat = c.op("reshape", x, shape=(math.prod(x.shape),))
        return c.op("reshape", c.op(row, flat, axis=0, dtype="int64"), shape=c.shape)
    return c.op(row, x, axis=c.axis(dim, x), keepdims=bool(keepdim), dtype="int64")


@aten("any", "any.dim", "any.dims", "all", "all.dim", "all.dims")
def any_all(c: AtenCall, x: Value, dims: Any = None, keepdim: bool = False) -> Value:
    row = "max" if ".any" in c.label else "min"
    return c.cast(reduced(c, row, c.cast(x, "bool"), c.axes(dims, x), bool(keepdim)), c.dtype)


@aten("var.correction", "var.dim")
def variance(
    c: AtenCall, x: Value, dims: Any = None, correction: Any = 1, keepdim: bool = False, **named: Any
) -> Value:
    if "unbiased" in named or isinstance(correction, bool):
        correction = int(named.get("unbiased", correction))
    axes = c.axes(dims, x)
    count = math.prod(x.shape[a] for a in axes)
    mean = c.op("mean", x, axis=axes, keepdims=True)
    squares = c.op("square", c.op("subtract", x, mean))
    out = c.op("sum", squares, axis=axes, keepdims=bool(keepdim))
    left = count - (1 if correction is None else correction)
    if isinstance(left, Expr):
        return c.op("divide", out, c.size(max_(left, 0), x.dtype))
    return c.op("divide", out, c.constant(max(left, 0), x.dtype))


@aten("cumsum", "cumprod")
def running(c: AtenCall, x: Value, dim: int, dtype: Any = None) -> Value:
    wide = c.cast(c.cast(x, "uint8") if x.dtype == "bool" else x, c.dtype)
    return c.op("cumsum" if "cumsum" in c.label else "cumprod", wide, axis=c.axis(dim, x)) if x.ndim else wide


@aten("cummax", "cummin")
def running_extreme(c: AtenCall, x: Value, dim: int) -> tuple[Value, ...]:
    """Returns the extreme up to each element, and its last place. A NaN stays, and its place is that of the last NaN."""
    if not x.ndim:
        return c.op("identity", x), c.constant(0, "int64")
    row = "greater_equal" if "cummax" in c.label else "less_equal"
    axis, numbers = c.axis(dim, x), c.cast(x, "uint8") if x.dtype == "bool" else x
    front = (axis, *[d for d in range(x.ndim) if d != axis])
    moved = c.op("transpose", numbers, axes=front)
    rest = moved.shape[1:]
    first = c.op("squeeze", c.part(moved, 0, 0, 1), axis=0)
    states = [first, c.full(rest, 0, "int64")]
    places = c.op("places", c.full((x.shape[axis],), 0, "int64"), axis=0, dtype="int64")

    def step(before: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        (best, at), (new, place) = before, parts
        taken = c.op(row, new, best)
        if DType(new.dtype).is_float:
            still = c.op("logical_and", taken, c.op("logical_not", c.op("is_nan", best)))
            taken = c.op("logical_or", c.op("is_nan", new), still)
        now = [c.op("where", taken, new, best), c.op("where", taken, place, at)]
        return now, now

    _, rows = add_scan(c.builder, states, [moved, places], step)
    back = tuple(int(d) for d in np.argsort(front))
    values, at = [c.op("transpose", r, axes=back) for r in rows]
    return c.cast(values, x.dtype), at


@aten("logcumsumexp")
def running_log_of_sum(c: AtenCall, x: Value, dim: int) -> Value:
    if not x.ndim:
        return c.op("identity", x)
    axis = c.axis(dim, x)
    front = (axis, *[d for d in range(x.ndim) if d != axis])
    wide = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    moved = c.op("transpose", wide, axes=front)
    start = c.full(moved.shape[1:], -math.inf, wide.dtype)

    def step(before: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        now = c.op("logaddexp", before[0], parts[0])
        return [now], [now]

    _, (rows,) = add_scan(c.builder, [start], [moved], step)
    return c.cast(c.op("transpose", rows, axes=tuple(int(d) for d in np.argsort(front))), x.dtype)


@aten("_softmax", "_log_softmax", "softmax.int", "log_softmax.int")
def softmax(c: AtenCall, x: Value, dim: int, *rest: Any) -> Value:
    row = "log_softmax" if "log" in c.label else "softmax"
    return softmax_along(c, row, x, dim)


def softmax_along(c: AtenCall, row: str, x: Value, dim: int, **named: Any) -> Value:
    """Returns the softmax or its logarithm in the type of the result. A single number is a row of one element."""
    wide = c.cast(x, c.dtype)
    if x.ndim:
        return c.op(row, wide, axis=c.axis(dim, x), **named)
    return c.op("reshape", c.op(row, c.op("reshape", wide, shape=(1,)), axis=0, **named), shape=())


@aten("native_layer_norm")
def layer_norm(
    c: AtenCall, x: Value, shape: Any, weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value, ...]:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    out = c.op("layer_norm", x, weight, bias, axis=axes, epsilon=float(epsilon))
    return (out, *_statistics(c, x, axes, epsilon)) if c.needs(1) or c.needs(2) else (out,)


def _statistics(c: AtenCall, x: Value, axes: tuple[int, ...], epsilon: float) -> tuple[Value, Value]:
    wide = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    mean, _, variance = moments(c, wide, axes)
    return mean, inverse_deviation(c, variance, epsilon)


@aten("native_group_norm")
def group_norm(c: AtenCall, x: Value, weight: Value | None, bias: Value | None, *sizes: Any) -> tuple[Value, ...]:
    batch, channels, _, groups, epsilon = sizes
    parts = c.op("reshape", x, shape=(batch, groups, math.prod(x.shape[1:]) // groups))
    normal = c.op("layer_norm", parts, None, None, axis=2, epsilon=float(epsilon))
    out = c.op("reshape", normal, shape=x.shape)
    out = per_channel(c, out, weight, bias)
    if not c.needs(1) and not c.needs(2):
        return (out,)
    mean, root = _statistics(c, parts, (2,), epsilon)
    return out, *[c.op("reshape", v, shape=(batch, groups)) for v in (mean, root)]


@aten("_native_batch_norm_legit_no_training")
def batch_norm(c: AtenCall, x: Value, weight: Value | None, bias: Value | None, *rest: Any) -> tuple[Value, ...]:
    mean, var, _, epsilon = rest
    ones = c.constant(np.ones(mean.shape), mean.dtype)
    zeros = c.constant(np.zeros(mean.shape), mean.dtype)
    given = [ones if weight is None else weight, zeros if bias is None else bias, mean, var]
    out = c.op(
        "batch_norm", x, *[c.cast(v, x.dtype) for v in given], axis=1 if x.ndim > 1 else 0, epsilon=float(epsilon)
    )
    empty = c.constant(np.zeros((0,)), "float32") if c.needs(1) or c.needs(2) else out
    return (out, empty, empty) if empty is not out else (out,)


@aten("_native_batch_norm_legit", "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional")
def batch_norm_training(
    c: AtenCall, x: Value, weight: Value | None, bias: Value | None, *rest: Any
) -> tuple[Value, ...]:
    stats = "no_stats" not in c.label
    running_mean, running_var, training, momentum, epsilon = rest if stats else (None, None, *rest)
    if not training:
        return batch_norm(c, x, weight, bias, running_mean, running_var, momentum, epsilon)
    out, mean, var, root = batch_normalized(c, x, weight, bias, epsilon)
    if not stats or "functional" not in c.label:
        return out, mean, root
    count = math.prod(x.shape[d] for d in range(x.ndim) if d != 1)
    unbiased = c.op("multiply", var, c.constant(count / max(count - 1, 1), x.dtype))
    return out, mean, root, _moved(c, running_mean, mean, momentum), _moved(c, running_var, unbiased, momentum)


def _moved(c: AtenCall, old: Any, new: Value, momentum: float) -> Value:
    kept = c.op("multiply", old, c.constant(1 - momentum, old.dtype))
    return c.op("add", kept, c.op("multiply", c.cast(new, old.dtype), c.constant(momentum, old.dtype)))


@aten("native_dropout")
def dropout(c: AtenCall, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    if train and p > 0:
        raise c.error("dropout in training mode draws random numbers, which is not supported")
    return c.op("identity", x), c.full(x.shape, True, "bool")


@aten("topk", "sort", "sort.stable")
def sorted_values(c: AtenCall, x: Value, *args: Any, **named: Any) -> tuple[Value, ...]:
    if "topk" in c.label:
        k, dim, largest = [*args, *[-1, True][max(len(args) - 1, 0) :]][:3]
        dim, largest = named.get("dim", dim), named.get("largest", largest)
    else:
        dim, largest = [*args, *[-1, False][len(args) :]][:2]
        dim, largest = named.get("dim", dim), named.get("descending", largest)
        k = x.shape[dim] if x.ndim else 1
    if not x.ndim:
        return c.op("identity", x), c.constant(0, "int64")
    numbers = c.cast(x, "uint8") if x.dtype == "bool" else x
    values, places = c.several("topk", numbers, k=k, axis=c.axis(dim, x), largest=bool(largest))
    return c.cast(values, x.dtype), places


@aten("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    c: AtenCall, q: Value, k: Value, v: Value, dropout: float = 0.0, is_causal: bool = False, **named: Any
) -> tuple[Value, ...]:
    attn_mask, scale = named.get("attn_mask"), named.get("scale")
    if dropout:
        raise c.error("dropout in attention draws random numbers, which is not supported")
    k, v = [_of_all_heads(c, x, q) for x in (k, v)]
    if is_causal and q.shape[-2] != k.shape[-2]:
        allowed = np.tril(np.ones((int(q.shape[-2]), int(k.shape[-2])), bool))
        attn_mask, is_causal = c.constant(allowed, "bool"), False
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    out = c.op("attention", q, k, v, attn_mask, scale=factor, causal=bool(is_causal), safe=True)
    if not c.needs(1):
        return (out,)
    scores = _scores(c, q, k, factor, is_causal, attn_mask)
    most = c.op("max", scores, axis=(scores.ndim - 1,), keepdims=True)
    sums = c.op("sum", c.op("exp", c.op("subtract", scores, most)), axis=(scores.ndim - 1,))
    return out, c.op("add", c.op("log", sums), c.op("reshape", most, shape=sums.shape))


def _of_all_heads(c: AtenCall, x: Value, q: Value) -> Value:
    """Returns keys or values with as many heads as the queries have: some share theirs."""
    batch, heads, *rest = x.shape
    if heads == q.shape[1]:
        return x
    each = q.shape[1] // heads
    wide = c.op("broadcast_to", c.op("expand_dims", x, axis=2), shape=(batch, heads, each, *rest))
    return c.op("reshape", wide, shape=(batch, q.shape[1], *rest))


def _scores(c: AtenCall, q: Value, k: Value, factor: float, is_causal: bool, mask: Value | None) -> Value:
    """Returns the scores with what is not allowed at -inf, in float32 where the operands are narrower."""
    wide = q.dtype if q.dtype in ("float32", "float64") else "float32"
    product = c.op("matmul", c.cast(q, wide), c.cast(k, wide), transpose_b=True)
    scores = c.op("multiply", product, c.constant(factor, wide))
    if is_causal:
        scores = c.op("add", scores, c.constant(np.triu(np.full(scores.shape[-2:], -np.inf), 1), wide))
    if mask is None:
        return scores
    if mask.dtype != "bool":
        return c.op("add", scores, c.cast(mask, wide))
    return c.op("where", mask, scores, c.constant(-math.inf, wide))


@aten("_safe_softmax")
def safe_softmax(c: AtenCall, x: Value, dim: int, dtype: Any = None) -> Value:
    """Returns a softmax in which rows of -inf are 0."""
    return softmax_along(c, "softmax", x, dim, safe=True)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_gradients(
    c: AtenCall, gradient: Value, q: Value, k: Value, v: Value, out: Value, sums: Value, dropout: float,
    is_causal: bool, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Returns the gradients of attention; its weights are computed again."""
    if dropout:
        raise c.error("dropout in attention draws random numbers, which is not supported")
    scaling = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    factor = c.constant(scaling, q.dtype)
    scores = _scores(c, q, k, scaling, is_causal, attn_mask)
    weights = c.op("softmax", scores, axis=scores.ndim - 1, safe=True)
    of_weights = c.op("matmul", gradient, v, transpose_b=True)
    mean = c.op("sum", c.op("multiply", of_weights, weights), axis=(scores.ndim - 1,), keepdims=True)
    of_scores = c.op("multiply", c.op("multiply", weights, c.op("subtract", of_weights, mean)), factor)
    of_q = c.op("matmul", of_scores, k)
    return of_q, c.op("matmul", of_scores, q, transpose_a=True), c.op("matmul", weights, gradient, transpose_a=True)
