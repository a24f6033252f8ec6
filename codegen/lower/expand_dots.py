"""Dot products where the machine has no instruction for them: plain arithmetic on the parts of the vectors."""

from __future__ import annotations

from ...tir.dtype import lanes_of, with_lanes
from ...tir.expr import Call, Cast, Expr, Let, Shuffle, Var


def expand_dot(e: Call) -> Expr:
    """``dot4_u8i8`` and ``dot2_bf16`` (see :mod:`tilewright.tir.op`) as casts, products and sums.

    Before::

        T.dot2_bf16(c, a, b)

    After, with ``a`` and ``b`` named::

        c + T.Cast("float32x8", odd(a)) * T.Cast("float32x8", odd(b)) + T.Cast(…, even(a)) * T.Cast(…, even(b))
    """
    c, a, b = e.args
    lanes = lanes_of(e.dtype)
    width = lanes_of(a.dtype) // lanes
    left, right = Var("a", a.dtype), Var("b", b.dtype)
    total = c
    for n in reversed(range(width)):
        x, y = (Cast(e.dtype, part(v, range(n, width * lanes, width))) for v in (left, right))
        total = total + x * y
    return Let(left, a, Let(right, b, total))


def part(vector: Expr, which: range) -> Expr:
    """Some lanes of a vector; a scalar when it is one lane."""
    if len(which) == lanes_of(vector.dtype) and which.step == 1:
        return vector
    picked = Shuffle((vector,), tuple(which))
    assert picked.dtype == with_lanes(vector.dtype, len(which))
    return picked
