"""Converters of reductions, softmax and normalizations."""

from __future__ import annotations

import math
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from ..common import batch_normalized, log_sum_exp, moments, per_channel, reduced
from .call import OnnxCall, converter


def _axes(c: OnnxCall, x: Value) -> tuple[int, ...]:
    """Returns the axes of a reduction, none when it reduces nothing."""
    axes = c.ints(1, "axes")
    if axes is None or not len(axes):
        return () if c.attr("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(sorted({c.axis(a, x) for a in axes}))


_PLAIN = {"ReduceSum": "sum", "ReduceProd": "prod", "ReduceMax": "max", "ReduceMin": "min", "ReduceMean": "mean"}


@converter(
    "ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    "ReduceLogSum", "ReduceLogSumExp",
)  # fmt: skip
def reduction(c: OnnxCall) -> Value:
    x, name, keep = c.input(0), c.op_type, bool(c.attr("keepdims", 1))
    axes = _axes(c, x)
    if name == "ReduceLogSumExp":
        return log_sum_exp(c, x, axes, keep)
    if name == "ReduceL1":
        x = c.op("abs", x)
    elif name in ("ReduceL2", "ReduceSumSquare"):
        x = c.op("square", x)
    total = reduced(c, _PLAIN.get(name, "sum"), x, axes, keep)
    if name == "ReduceL2":
        wide = total if DType(total.dtype).is_float else c.cast(total, "float64")
        return c.cast(c.op("sqrt", wide), total.dtype)
    return c.op("log", total) if name == "ReduceLogSum" else total


@converter("ArgMax", "ArgMin")
def arg_extreme(c: OnnxCall) -> Value:
    x, axis = c.input(0), c.attr("axis", 0)
    op = c.op_type.lower()
    axis = c.axis(axis, x)
    keep = bool(c.attr("keepdims", 1))
    if not c.attr("select_last_index", 0):
        return c.op(op, x, axis=axis, keepdims=keep, dtype="int64")
    first = c.op(op, c.op("flip", x, axis=axis), axis=axis, keepdims=keep, dtype="int64")
    return c.op("subtract", c.size(x.shape[axis] - 1, first.dtype), first)


@converter("Softmax", "LogSoftmax")
def softmax(c: OnnxCall) -> Value:
    x = c.input(0)
    op = "softmax" if c.op_type == "Softmax" else "log_softmax"
    if c.opset >= 13:
        return c.op(op, x, axis=c.axis(c.attr("axis", -1), x))
    return as_matrix(c, x, c.attr("axis", 1), lambda flat: c.op(op, flat, axis=1))


def as_matrix(c: OnnxCall, x: Value, axis: int, f: Any) -> Value:
    """Returns ``f`` of ``x`` as a matrix whose rows begin at ``axis``, in the shape of ``x``."""
    axis = c.axis(axis, x)
    rows = math.prod(x.shape[:axis])
    return c.op("reshape", f(c.op("reshape", x, shape=(rows, -1))), shape=x.shape)


@converter("Hardmax")
def hardmax(c: OnnxCall) -> Value:
    x = c.input(0)
    if c.opset < 13:
        return as_matrix(c, x, c.attr("axis", 1), lambda flat: _hard(c, flat, 1))
    return _hard(c, x, c.axis(c.attr("axis", -1), x))


def _hard(c: OnnxCall, x: Value, axis: int) -> Value:
    first = c.op("argmax", x, axis=axis, keepdims=True, dtype="int64")
    places = c.places(x.shape[axis], "int64", axis, x.ndim)
    return c.op("cast", c.op("equal", first, places), dtype=x.dtype)


@converter("LpNormalization")
def lp_normalization(c: OnnxCall) -> Value:
    x, axis, p = c.input(0), c.attr("axis", -1) % c.input(0).ndim, c.attr("p", 2)
    total = c.op("sum", c.op("abs" if p == 1 else "square", x), axis=axis, keepdims=True)
    size = total if p == 1 else c.op("sqrt", total)
    zero = c.op("equal", size, c.like(0, size))
    safe = c.op("where", zero, c.op("add", c.op("multiply", size, c.like(0, size)), c.like(1, size)), size)
    return c.op("divide", x, safe)


@converter("BatchNormalization")
def batch_normalization(c: OnnxCall) -> tuple[Value, ...]:
    x = c.input(0)
    if c.attr("training_mode", 0):
        return _training_batch_normalization(c, x)
    if c.outputs > 1 and c.opset < 14:
        raise c.error("batch normalization in training mode is not supported before version 14")
    given = [c.cast(c.input(n), x.dtype) for n in range(1, 5)]
    return (c.op("batch_norm", x, *given, axis=1 if x.ndim > 1 else 0, epsilon=float(c.attr("epsilon", 1e-5))),)


def _training_batch_normalization(c: OnnxCall, x: Value) -> tuple[Value, ...]:
    """Returns the result by the batch's own mean and variance, and the running ones moved towards these."""
    scale, bias, mean, variance = [c.input(n) for n in range(1, 5)]
    momentum = float(c.attr("momentum", 0.9))
    out, *own, _ = batch_normalized(c, x, scale, bias, float(c.attr("epsilon", 1e-5)))
    moved = []
    for before, batch in zip((mean, variance), own, strict=True):
        kept = c.op("multiply", before, c.like(momentum, before))
        moved.append(c.op("add", kept, c.op("multiply", c.cast(batch, before.dtype), c.like(1 - momentum, before))))
    return (out, *moved)[: max(c.outputs, 1)]


@converter("LayerNormalization")
def layer_normalization(c: OnnxCall) -> tuple[Value, ...]:
    x, scale, bias = c.input(0), c.input(1), c.optional(2)
    axes = tuple(range(c.axis(c.attr("axis", -1), x), x.ndim))
    epsilon = float(c.attr("epsilon", 1e-5))
    full = tuple(x.shape[a] for a in axes)
    if c.outputs == 1 and scale.shape == full and (bias is None or bias.shape == full):
        return (c.op("layer_norm", x, scale, bias, axis=axes, epsilon=epsilon),)
    wide = c.cast(x, "float32") if x.dtype in ("float16", "bfloat16") else x
    mean, apart, variance = moments(c, wide, axes)
    inverse = c.op("divide", c.like(1, variance), c.op("sqrt", c.op("add", variance, c.like(epsilon, variance))))
    out = c.op("multiply", c.cast(c.op("multiply", apart, inverse), x.dtype), scale)
    return (out if bias is None else c.op("add", out, bias), mean, inverse)[: max(c.outputs, 1)]


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(c: OnnxCall) -> Value:
    x, scale = c.input(0), c.input(1)
    axes = tuple(range(c.axis(c.attr("axis", -1), x), x.ndim))
    epsilon = float(c.attr("epsilon", 1e-5))
    if scale.shape == tuple(x.shape[a] for a in axes):
        return c.op("rms_norm", x, scale, axis=axes, epsilon=epsilon)
    return c.op("multiply", c.op("rms_norm", x, None, axis=axes, epsilon=epsilon), scale)


@converter("InstanceNormalization")
def instance_normalization(c: OnnxCall) -> Value:
    x = c.input(0)
    normal = c.op("layer_norm", x, None, None, axis=tuple(range(2, x.ndim)), epsilon=float(c.attr("epsilon", 1e-5)))
    return per_channel(c, normal, c.input(1), c.input(2))


@converter("GroupNormalization")
def group_normalization(c: OnnxCall) -> Value:
    x, scale, bias, groups = c.input(0), c.input(1), c.input(2), c.attr("num_groups")
    if c.opset >= 21:
        return c.op("group_norm", x, scale, bias, groups=groups, epsilon=float(c.attr("epsilon", 1e-5)))
    parts = c.op("reshape", x, shape=(x.shape[0], groups, -1))
    normal = c.op("layer_norm", parts, None, None, axis=2, epsilon=float(c.attr("epsilon", 1e-5)))
    return c.op("reshape", per_channel(c, normal, scale, bias), shape=x.shape)


@converter("LRN")
def lrn(c: OnnxCall) -> Value:
    x, size = c.input(0), c.attr("size")
    alpha, beta, bias = float(c.attr("alpha", 1e-4)), float(c.attr("beta", 0.75)), float(c.attr("bias", 1.0))
    if not 0 < size <= 1024:
        raise c.error(f"windows of {size} channels")
    before, after = [0] * x.ndim, [0] * x.ndim
    before[1], after[1] = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = c.op("pad", c.op("square", x), pad_before=tuple(before), pad_after=tuple(after))
    total: Value | None = None
    for k in range(size):
        begin, end = [0] * x.ndim, list(x.shape)
        begin[1], end[1] = k, x.shape[1] + k
        part = c.op("strided_slice", squares, begin=tuple(begin), end=tuple(end))
        total = part if total is None else c.op("add", total, part)
    assert total is not None
    inner = c.op("add", c.op("multiply", total, c.like(alpha / size, x)), c.like(bias, x))
    return c.op("divide", x, c.op("power", inner, c.like(beta, x)))


@converter("MeanVarianceNormalization")
def mean_variance(c: OnnxCall) -> Value:
    x = c.input(0)
    _, apart, variance = moments(c, x, c.attr("axes", (0, 2, 3)))
    return c.op("divide", apart, c.op("add", c.op("sqrt", variance), c.like(1e-9, x)))
