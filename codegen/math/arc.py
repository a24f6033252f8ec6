"""The inverse trigonometric functions of float64. float32 values are computed in float64.

atan takes the quotient of one division into |t| <= sqrt(2) - 1, asin and acos use sqrt((1 - x) / 2) beyond 1/2, as
Cephes and fdlibm do. Polynomials are minimax fits made for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

import math

from ...tir.expr import Expr
from .math_builder import Expansion, MathBuilder

# (atan(x) - x) / x**3 over x**2 on |x| <= sqrt(2) - 1
ATAN_64 = (-0.3333333333333320752, 0.1999999999995582886, -0.1428571428038726536, 0.1111111079190991394,
           -0.09090897979348423508, 0.07692063877720162305, -0.06663143223033832649, 0.05848159898008162612,
           -0.05040469948694043447, 0.03809300397429160747, -0.01793726203194113262)  # fmt: skip
# (asin(x) - x) / x**3 over x**2 on |x| <= 1/2
ASIN_64 = (0.1666666666666538274, 0.07500000000343059333, 0.04464285682347251607, 0.03038195933156473146,
           0.02237175351805006808, 0.01735977115824209463, 0.0138845981685496069, 0.01217328037958274833,
           0.006510851385944995809, 0.01957390630808557877, -0.01629406771147296442, 0.03195895833490970079)  # fmt: skip
PI_HALF = 1.5707963267948966192
PI_HALF_LOW = 6.123233995736766036e-17


def atan(m: MathBuilder, x: Expr) -> Expr:
    """Returns the inverse tangent, at most 2 ULP off."""
    return m.with_sign(_atan_ratio(m, m.name(m.abs(x)), m.f(1.0)), x)


def _atan_ratio(m: MathBuilder, y: Expr, x: Expr) -> Expr:
    """Returns atan(y / x) of y, x >= 0 with one division.

    The quotient is y/x, (y - x)/(y + x) or -x/y, and 0, pi/4 or pi/2 is added.
    """
    large = m.name(y > x * m.f(2.414213562373095))
    middle = m.name(y > x * m.f(0.41421356237309503))
    above = m.select(large, m.negative(x), m.select(middle, y - x, y))
    below = m.select(large, y, m.select(middle, y + x, x))
    t = m.name(above / below)
    base = m.select(large, m.f(PI_HALF), m.select(middle, m.f(PI_HALF / 2), m.f(0.0)))
    low = m.select(large, m.f(PI_HALF_LOW), m.select(middle, m.f(PI_HALF_LOW / 2), m.f(0.0)))
    z = m.name(t * t)
    return base + (m.mad(m.poly(z, ATAN_64) * z, t, low) + t)


def atan2(m: MathBuilder, y: Expr, x: Expr) -> Expr:
    """Returns the angle of the point (x, y), from -pi to pi."""
    a, b = m.name(m.abs(y)), m.name(m.abs(x))
    infinite = m.name(m.select(a < b, b, a).equal(m.f(math.inf)))
    both = m.name(m.select(a < b, a, b).equal(m.f(math.inf)))
    top = m.select(infinite, m.select(a.equal(m.f(math.inf)), m.f(1.0), m.f(0.0)), a)
    bottom = m.select(infinite, m.select(b.equal(m.f(math.inf)), m.f(1.0), m.f(0.0)), b)
    top = m.name(m.select(both, m.f(1.0), top))
    bottom = m.name(m.select(both, m.f(1.0), bottom))
    zero = m.name(m.select(a < b, b, a).equal(m.f(0.0)))
    angle = m.name(m.select(zero, m.f(0.0), _atan_ratio(m, top, m.select(zero, m.f(1.0), bottom))))
    behind = m.to_bits(x) < m.i(0)
    out = m.select(behind, m.f(math.pi) - (angle - m.f(2 * PI_HALF_LOW)), angle)
    nan = m.select(a.equal(a), b, a)
    return m.select(nan.equal(nan), m.with_sign(out, y), nan)


def _asin_small(m: MathBuilder, x: Expr, z: Expr) -> Expr:
    """Returns asin(x) for |x| <= 1/2, where z = x * x."""
    return m.mad(m.poly(z, ASIN_64) * z, x, x)


def _folded(m: MathBuilder, a: Expr, small: Expr | None = None) -> tuple[Expr, Expr, Expr]:
    """Returns whether ``a``, which is |x|, is above 1/2, and z and its root for taking asin. The argument z is (1 - a)
    / 2 there, else the square of ``small``, which is a or x."""
    big = m.name(a > m.f(0.5))
    z = m.name(m.select(big, (m.f(1.0) - a) * m.f(0.5), a * a))
    return big, z, m.name(m.select(big, m.call("sqrt", z), a if small is None else small))


def asin(m: MathBuilder, x: Expr) -> Expr:
    """Returns the inverse sine, at most 2 ULP off; NaN for |x| > 1."""
    big, z, root = _folded(m, m.name(m.abs(x)))
    q = m.name(m.poly(z, ASIN_64) * z)
    twice = m.name(root + root)
    quarter = m.f(PI_HALF / 2)  # two small steps: quarter - twice is exact where it matters
    above = (quarter - twice) + (quarter - m.mad(q, twice, m.f(-PI_HALF_LOW)))
    return m.with_sign(m.select(big, above, m.mad(q, root, root)), x)


def acos(m: MathBuilder, x: Expr) -> Expr:
    """Returns the inverse cosine, at most 2 ULP off; NaN for |x| > 1."""
    big, z, root = _folded(m, m.name(m.abs(x)), x)
    p = m.name(_asin_small(m, root, z))
    edge = m.select(x > m.f(0.0), p + p, m.f(2 * PI_HALF) - (p + p - m.f(2 * PI_HALF_LOW)))
    return m.select(big, edge, m.f(PI_HALF) - (p - m.f(PI_HALF_LOW)))


EXPANSIONS = {
    "asin": Expansion(asin, asin),
    "acos": Expansion(acos, acos),
    "atan": Expansion(atan, atan),
    "atan2": Expansion(atan2, atan2),
}
