"""Replaces calls of mathematical functions by vector code."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Call, Expr
from ...tir.expr.intrinsics.matrix_operations import round_tf32, tf32_steps
from ...tir.expr.intrinsics.number_operations import FIXED_POINT, exp2, exp2_approx, fixed_point_steps
from ...tir.stmt import PrimFunc
from ...tir.walk import distinct, transform
from ..machine.target import Target
from ..math import EXPANDED, expand, named_sums

LOWERED = EXPANDED | FIXED_POINT | {round_tf32.op, exp2_approx.op}
"""The calls that :func:`lower_math` replaces."""


def lower_math(func: PrimFunc, target: Target | None = None) -> PrimFunc:
    """Expand every mathematical call of ``func``.

    Before::

        B[i] = T.tanh(A[i])

    After (float32, the coefficients shortened)::

        B[i] = T.Let(T.Select(9.2 <= T.fabs(t0), T.copysign(1, t0), t4), where={t0: A[i], …})

    Where the target has no float64, calls of float32 whose expansion computes in it stay.
    """
    fused = True if target is None else target.has_fma
    scales = target is not None and target.has("avx512dq")
    narrow = target is not None and not target.has_doubles

    def post(n: Any) -> Expr | None:
        if not isinstance(n, Call):
            return None
        if n.op == round_tf32.op:
            return tf32_steps(n)
        if n.op == exp2_approx.op:
            if target is not None and target.kind == "cuda" and n.dtype.element == "float32":
                return None
            n = Call(exp2.op, n.args, n.dtype)
        made = fixed_point_steps(n) if n.op in FIXED_POINT else expand(n, fused, scales)
        return None if made is not None and narrow and _is_wide(made) and not _is_wide(n) else made

    if any(isinstance(n, Call) and n.op == "tir.erf" for n in distinct(func.body)):
        func = transform(func, post=named_sums)
    return transform(func, post=post)


def _is_wide(e: Expr) -> bool:
    """Returns whether a part of ``e`` has 64 bits."""
    return any(isinstance(n, Expr) and n.dtype.bits == 64 and n.dtype != "handle" for n in distinct(e))
