"""Products of matrices, and their sums with a further operand."""

from __future__ import annotations

import math
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from .graph_call import GraphCall


def product(c: GraphCall, a: Value, b: Value, out_dtype: str | None = None) -> Value:
    """Returns the product of matrices, and of vectors as NumPy treats them; that of integers wraps in their type.

    Matrices that one matrix follows are one matrix of all their rows.
    """
    attrs = {} if out_dtype is None else {"out_dtype": out_dtype}
    if not DType(a.dtype).is_float and out_dtype is None:
        attrs = {"out_dtype": a.dtype}
    left, right = a, b
    if a.ndim == 1:
        left = c.op("expand_dims", a, axis=0)
    if b.ndim == 1:
        right = c.op("expand_dims", b, axis=1)
    if left.ndim > 2 and right.ndim == 2 and left.is_static:  # one product of all rows
        rows = math.prod(left.shape[:-1])
        flat = c.op("matmul", c.op("reshape", left, shape=(rows, left.shape[-1])), right, **attrs)
        out = c.op("reshape", flat, shape=(*left.shape[:-1], right.shape[-1]))
    else:
        out = c.op("matmul", left, right, **attrs)
    if a.ndim == 1:
        out = c.op("squeeze", out, axis=out.ndim - 2)
    return c.op("squeeze", out, axis=out.ndim - 1) if b.ndim == 1 else out


def scaled_sum(c: GraphCall, x: Value, other: Value | None, alpha: Any, beta: Any) -> Value:
    """Returns ``alpha * x + beta * other``; where ``beta`` is 0, nothing of ``other`` is read."""
    if alpha != 1:
        x = c.op("multiply", x, c.constant(alpha, x.dtype))
    if other is None or beta == 0:
        return x
    return c.op("add", x, other if beta == 1 else c.op("multiply", other, c.constant(beta, other.dtype)))
