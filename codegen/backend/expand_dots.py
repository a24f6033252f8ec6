"""Expands dot products into plain arithmetic on parts of the vectors, for machines without an instruction for them."""

from __future__ import annotations

from ...tir.expr import Call, Cast, Expr, Let, Shuffle, Var


def expand_dot(e: Call) -> Expr:
    """Return ``dot4_u8i8`` or ``dot2_bf16`` (see :mod:`tilewright.tir.expr.intrinsics`) as casts, products and sums.

    Before::

        T.dot2_bf16(c, a, b)

    After, with ``a`` and ``b`` named::

        c + T.Cast("float32x8", odd(a)) * T.Cast("float32x8", odd(b)) + T.Cast(…, even(a)) * T.Cast(…, even(b))
    """
    c, a, b = e.args
    lanes = e.dtype.lanes
    width = a.dtype.lanes // lanes
    left, right = Var("a", a.dtype), Var("b", b.dtype)
    total = c
    for n in reversed(range(width)):
        x, y = (Cast(e.dtype, part(v, range(n, width * lanes, width))) for v in (left, right))
        total = total + x * y
    return Let(left, a, Let(right, b, total))


def part(vector: Expr, which: range) -> Expr:
    """Returns some lanes of a vector, as a scalar when it is a single lane."""
    if len(which) == vector.dtype.lanes and which.step == 1:
        return vector
    picked = Shuffle((vector,), tuple(which))
    assert picked.dtype == vector.dtype.with_lanes(len(which))
    return picked
