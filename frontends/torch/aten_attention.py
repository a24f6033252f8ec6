"""Converters of attention, and of its gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph.graph import Value
from .aten_call import AtenCall, aten
from .aten_reductions import softmax_along


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
