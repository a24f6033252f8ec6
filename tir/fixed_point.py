"""This module builds rounded fixed-point products: TVM's ``q_multiply_shift`` and ``q_multiply_shift_per_axis``.

The interpreter and lowering replace a call by the steps of :func:`fixed_point_steps`, so the meaning is defined once:
in int64, ``x`` is shifted left, multiplied by ``y``, half of the last kept bit is added, and the sum is shifted right
(a half is rounded up). The result is cut to 32 bits.
"""

from __future__ import annotations

from typing import Any

from .dtype import element_of, is_int, lanes_of, with_lanes
from .expr import NE, Broadcast, Call, Expr, Select, cast, const, convert
from .op import max_

FIXED_POINT = {"tir.q_multiply_shift": 4, "tir.q_multiply_shift_per_axis": 7}
"""The calls that :func:`fixed_point_steps` expands, and how many arguments each has."""


def q_multiply_shift(x: Any, y: Any, q: Any, s: Any) -> Expr:
    """Return ``x * y * 2**(s - q)`` as int32, rounded to nearest, halves up.

    This is the product of two int32 with ``q`` > 0 fractional bits, shifted left by ``s`` (right when that is
    negative).

    TypeError unless ``x`` and ``y`` are int32 and ``q`` and ``s`` integers.
    """
    return _call("q_multiply_shift", x, y, q, s)


def q_multiply_shift_per_axis(
    x: Any, y: Any, ls: Any, rs: Any, q: Any, is_lshift_required: Any, is_rshift_required: Any
) -> Expr:
    """Return ``x * 2**ls * y * 2**(-q - rs)`` as int32, rounded to nearest, halves up.

    With ``is_lshift_required`` 0, ``ls`` is ignored.

    ``is_rshift_required`` 0 promises that ``rs`` is 0. TypeError unless ``x`` and ``y`` are int32 and the others
    integers.
    """
    return _call("q_multiply_shift_per_axis", x, y, ls, rs, q, is_lshift_required, is_rshift_required)


def _call(name: str, *args: Any) -> Expr:
    exprs = tuple([convert(a) for a in args])
    lanes = max(lanes_of(e.dtype) for e in exprs)
    for e in exprs[:2]:
        if element_of(e.dtype) != "int32":
            raise TypeError(f"{name} multiplies int32 numbers, not {e.dtype}")
    for e in exprs[2:]:
        if not (is_int(e.dtype) or element_of(e.dtype) == "bool"):
            raise TypeError(f"{name} shifts by integers, not {e.dtype}")
    return Call(f"tir.{name}", exprs, with_lanes("int32", lanes))


def fixed_point_steps(call: Call) -> Expr:
    """Return the value of a call of :data:`FIXED_POINT` in additions, products and shifts of int64."""
    lanes = lanes_of(call.dtype)
    wide = with_lanes("int64", lanes)

    def widened(e: Expr) -> Expr:
        return cast(wide, e if lanes_of(e.dtype) == lanes else Broadcast(e, lanes))

    zero, one = const(0, wide), const(1, wide)
    if call.op == "tir.q_multiply_shift":
        x, y, q, s = [widened(e) for e in call.args]
        left, right = max_(s, zero), q + max_(zero - s, zero)
    else:
        x, y, ls, rs, q, needed, _ = [widened(e) for e in call.args]
        left, right = Select(NE(needed, zero), ls, zero), q + rs
    product = (x << left) * y
    return cast(call.dtype, (product + (one << (right - one))) >> right)
