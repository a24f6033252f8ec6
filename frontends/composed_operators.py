"""Operators that several front ends make of operators of the graph: powers of integers, padding with zeros in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..graph.graph import Value


def power_of_integers(op: Callable[..., Any], x: Any, exponent: Any, one: Any, bits: int) -> Any:
    """Returns ``x`` to the power ``exponent``, which is not negative; it wraps where it overflows.

    ``op`` adds operators, ``one`` is 1 in the data type of both, which has ``bits`` bits.
    """
    out = one
    for n in range(bits):
        factor = op("multiply", op("bitwise_and", exponent, one), op("subtract", x, one))
        out = op("multiply", out, op("add", factor, one))
        if n < bits - 1:
            exponent, x = op("right_shift", exponent, one), op("multiply", x, x)
    return out


def spread(op: Callable[..., Value], x: Value, gaps: Sequence[int], fill: Any = 0) -> Value:
    """Returns ``x`` with ``gaps[d]`` elements ``fill`` between each two along dimension ``d``; ``op`` adds operators."""
    for axis, gap in enumerate(gaps):
        extent = x.shape[axis]
        if not gap or extent == 1:
            continue
        wide = op("expand_dims", x, axis=axis + 1)
        after = tuple(gap if d == axis + 1 else 0 for d in range(wide.ndim))
        wide = op("pad", wide, pad_before=(0,) * wide.ndim, pad_after=after, value=fill)
        shape = [*x.shape[:axis], extent * (gap + 1), *x.shape[axis + 1 :]]
        flat = op("reshape", wide, shape=tuple(shape))
        shape[axis] -= gap
        x = op("strided_slice", flat, begin=(0,) * x.ndim, end=tuple(shape))
    return x


def padded(op: Callable[..., Value], x: Value, low: Sequence[int], high: Sequence[int], fill: Any = 0) -> Value:
    """Returns ``x`` with elements ``fill`` before and behind it; negative numbers cut elements off."""
    begin = tuple(max(-n, 0) for n in low)
    end = tuple(e + min(n, 0) if n < 0 else e for e, n in zip(x.shape, high, strict=True))
    if any(begin) or any(n < 0 for n in high):
        x = op("strided_slice", x, begin=begin, end=end)
    before, after = tuple(max(n, 0) for n in low), tuple(max(n, 0) for n in high)
    return op("pad", x, pad_before=before, pad_after=after, value=fill) if any((*before, *after)) else x
