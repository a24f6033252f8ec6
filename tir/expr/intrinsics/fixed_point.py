"""This module has rounded fixed-point products: TVM's ``q_multiply_shift`` and ``q_multiply_shift_per_axis``.

The interpreter and lowering replace a call by the steps of :func:`fixed_point_steps`, so the meaning is defined once:
in int64, ``x`` is shifted left, multiplied by ``y``, half of the last kept bit is added, and the sum is shifted right
(a half is rounded up). The result is cut to 32 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base.dtype import DType
from ..nodes.arithmetic import make_binary
from ..nodes.constants import cast, const
from ..nodes.expr import NE, Broadcast, Call, Expr, Max, Select
from .operation_row import Operation, is_int_or_bool, types_text


def _fixed_point_product(args: Sequence[Expr], dtype: str | None) -> str:
    """Return int32 with the most lanes of an argument; two int32 are multiplied, the others are shifts."""
    lanes = max([a.dtype.lanes for a in args])
    if any(a.dtype.lanes not in (1, lanes) for a in args):
        raise TypeError(f"the lanes of {types_text(args)} differ")
    for a in args[:2]:
        if a.dtype.element != "int32":
            raise TypeError(f"multiplies int32 numbers, not {a.dtype}")
    for a in args[2:]:
        if not is_int_or_bool(a.dtype):
            raise TypeError(f"shifts by integers, not {a.dtype}")
    return DType("int32").with_lanes(lanes)


q_multiply_shift = Operation(
    "q_multiply_shift", ("x", "y", "q", "s"),
    "x * y * 2**(s - q) as int32, rounded to nearest, halves up: the product of two int32 with q > 0 fractional bits, "
    "shifted left by s (right when that is negative)",
    _fixed_point_product,
)  # fmt: skip
q_multiply_shift_per_axis = Operation(
    "q_multiply_shift_per_axis", ("x", "y", "ls", "rs", "q", "is_lshift_required", "is_rshift_required"),
    "x * 2**ls * y * 2**(-q - rs) as int32, rounded to nearest, halves up; with is_lshift_required 0, ls is ignored, "
    "and is_rshift_required 0 promises that rs is 0",
    _fixed_point_product,
)  # fmt: skip
FIXED_POINT = {q_multiply_shift.op, q_multiply_shift_per_axis.op}
"""The calls that :func:`fixed_point_steps` expands."""


def fixed_point_steps(call: Call) -> Expr:
    """Return the value of a call of :data:`FIXED_POINT` in additions, products and shifts of int64."""
    lanes = call.dtype.lanes
    wide = DType("int64").with_lanes(lanes)

    def widened(e: Expr) -> Expr:
        return cast(wide, e if e.dtype.lanes == lanes else Broadcast(e, lanes))

    zero, one = const(0, wide), const(1, wide)
    if call.op == q_multiply_shift.op:
        x, y, q, s = [widened(e) for e in call.args]
        left, right = make_binary(Max, s, zero), q + make_binary(Max, zero - s, zero)
    else:
        x, y, ls, rs, q, needed, _ = [widened(e) for e in call.args]
        left, right = Select(NE(needed, zero), ls, zero), q + rs
    product = (x << left) * y
    return cast(call.dtype, (product + (one << (right - one))) >> right)
