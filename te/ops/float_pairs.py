"""This module has functions of two floats, element by element; shapes broadcast as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tir.expr import Expr, Or, cast, const, max_, promote, select
from ...tir.expr.intrinsics import float_operations as operations
from ...tir.expr.intrinsics.float_operations import abs_, isnan
from ...tir.expr.intrinsics.integer_operations import reinterpret
from .blocks.broadcast import broadcasting


def _of_floats(f: Callable[[Expr, Expr], Expr], exact: bool = False) -> Callable[[Expr, Expr], Any]:
    """Returns ``f`` of floats; narrow ones are computed in float32 unless ``exact``, and integers are an error."""

    def checked(a: Expr, b: Expr) -> Any:
        if not (a.dtype.is_float and b.dtype.is_float):
            raise TypeError(f"floats are needed, not {a.dtype} and {b.dtype}")
        dtype = promote(a.dtype, b.dtype)
        wide = dtype if dtype.bits >= 32 or exact else "float32"
        return cast(dtype, f(cast(wide, a), cast(wide, b)))

    return checked


def _log_of_sum(a: Expr, b: Expr) -> Expr:
    apart = operations.log1p(operations.exp(-abs_(a - b)))
    return max_(a, b) + select(a.equal(b), const(math.log(2), a.dtype), apart)  # a - b of equal infinities is NaN


def _next_after(a: Expr, b: Expr) -> Expr:
    """Returns the float next to ``a``, whose bits are one more or one less. Next to zero is the smallest float with b's
    sign."""
    kind = f"int{a.dtype.bits}"
    bits, one = reinterpret(kind, a), const(1, kind)
    farther = (a < b).equal(bits > const(0, kind))
    sign = const(-(2 ** (a.dtype.bits - 1)), kind)
    least = select(b > const(0, b.dtype), one, sign + one)
    moved = select(a.equal(const(0, a.dtype)), least, bits + select(farther, one, const(-1, kind)))
    return select(Or(isnan(a), isnan(b)), a + b, select(a.equal(b), b, reinterpret(a.dtype, moved)))


atan2 = broadcasting("atan2", _of_floats(operations.atan2), "The angle of the point (b, a)")
copysign = broadcasting("copysign", _of_floats(operations.copysign), "a with the sign of b")
hypot = broadcasting("hypot", _of_floats(operations.hypot), "The length of (a, b), without overflow")
logaddexp = broadcasting("logaddexp", _of_floats(_log_of_sum), "The logarithm of exp(a) + exp(b), without overflow")
nextafter = broadcasting("nextafter", _of_floats(_next_after, exact=True), "The float after a on the way to b")
