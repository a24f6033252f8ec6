"""The functions hypot and fmod, two functions of two arguments that need no logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...tir.expr import Call, Cast, DType, Expr, Or
from .math_builder import Expansion, MathBuilder


def hypot(m: MathBuilder, x: Expr, y: Expr) -> Expr:
    """Returns sqrt(x*x + y*y), at most 1 ULP off. It is infinite when an argument is infinite, even if the other is
    NaN.

    float64 is scaled by a power of two where a square would overflow or lose bits; float32 is computed in float64,
    where it cannot.
    """
    a, b = m.name(m.abs(x)), m.name(m.abs(y))
    infinite = Or(a.equal(m.f(math.inf)), b.equal(m.f(math.inf)))
    big = m.name(m.select(a < b, b, a))
    up, down = big < m.f(2.0**-450), big > m.f(2.0**500)
    scale = m.name(m.select(up, m.f(2.0**600), m.select(down, m.f(2.0**-600), m.f(1.0))))
    back = m.select(up, m.f(2.0**-600), m.select(down, m.f(2.0**600), m.f(1.0)))
    a, b = m.name(a * scale), m.name(b * scale)
    return m.select(infinite, m.f(math.inf), m.call("sqrt", m.mad(a, a, b * b)) * back)


def hypot_float32(m: MathBuilder, x: Expr, y: Expr) -> Expr:
    """Returns the same for float32 values given as float64."""
    out = m.call("sqrt", m.mad(x, x, y * y))
    infinite = Or(m.abs(x).equal(m.f(math.inf)), m.abs(y).equal(m.f(math.inf)))
    return m.select(infinite, m.f(math.inf), out)


def fmod(m: MathBuilder, x: Expr, y: Expr) -> Expr:
    """Returns x - trunc(x / y) * y, exact, of float64 values with |x / y| < 2**52. Beyond, it is the C library's
    function.

    The quotient is rounded up by at most one, and then |y| is added back. This needs a fused operation.
    """
    a, b = m.name(m.abs(x)), m.name(m.abs(y))
    return m.either(a < b * m.f(2.0**52), _remainder(m, x, a, b, m.fma), Call("tir.fmod", (x, y), m.dtype))


def fmod_float32(m: MathBuilder, x: Expr, y: Expr) -> Expr:
    """Returns the same for float32 values given as float64; with |x / y| < 2**29 every product is exact."""
    a, b = m.name(m.abs(x)), m.name(m.abs(y))
    single = DType("float32").with_lanes(m.lanes)
    far = Cast(m.dtype, Call("tir.fmod", (Cast(single, x), Cast(single, y)), single))
    return m.either(a < b * m.f(2.0**29), _remainder(m, x, a, b, m.mad), far)


def _remainder(m: MathBuilder, x: Expr, a: Expr, b: Expr, multiply: Callable[[Expr, Expr, Expr], Expr]) -> Expr:
    r = m.name(multiply(m.negative(m.call("trunc", a / b)), b, a))
    r = m.select(r < m.f(0.0), r + b, r)
    return m.with_sign(m.select(a < b, a, r), x)


EXPANSIONS = {
    "hypot": Expansion(hypot, hypot_float32),
    "fmod": Expansion(fmod, fmod_float32, needs_fused=True),
}
