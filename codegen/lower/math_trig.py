"""Sine, cosine, tangent of float32 (through float64), and the inverse functions.

The argument is reduced by multiples of pi/2 in three parts (fdlibm's constants), which is exact enough for float32
arguments up to 2**28; beyond that the bits of 2/pi that matter are picked out and multiplied as whole numbers (Payne
and Hanek, "Radian reduction for trigonometric functions", 1983). Polynomials are minimax fits made for this file.
"""

from __future__ import annotations

import math

from ...tir.expr import Call, Expr
from .math_build import Maths

__all__ = ["acos", "asin", "atan", "atan2", "cos", "sin", "tan"]

SIN_64 = (-0.1666666666666663165, 0.008333333333322315121, -0.0001984126982972518526, 2.755731366205243433e-06,
          -2.505075326390144013e-08, 1.589650491716638385e-10)  # fmt: skip
COS_64 = (0.04166666666666660417, -0.001388888888887460473, 2.480158728965227548e-05, -2.755731437620095462e-07,
          2.087572408874991229e-09, -1.135959757992587556e-11)  # fmt: skip
# (atan(x) - x) / x**3 over x**2 on |x| <= sqrt(2) - 1
ATAN_64 = (-0.3333333333333320752, 0.1999999999995582886, -0.1428571428038726536, 0.1111111079190991394,
           -0.09090897979348423508, 0.07692063877720162305, -0.06663143223033832649, 0.05848159898008162612,
           -0.05040469948694043447, 0.03809300397429160747, -0.01793726203194113262)  # fmt: skip
# (asin(x) - x) / x**3 over x**2 on |x| <= 1/2
ASIN_64 = (0.1666666666666538274, 0.07500000000343059333, 0.04464285682347251607, 0.03038195933156473146,
           0.02237175351805006808, 0.01735977115824209463, 0.0138845981685496069, 0.01217328037958274833,
           0.006510851385944995809, 0.01957390630808557877, -0.01629406771147296442, 0.03195895833490970079)  # fmt: skip
TWO_OVER_PI = 0.636619772367581343075535053490057448
PI_HALF = 1.5707963267948966192
PI_HALF_LOW = 6.123233995736766036e-17
# the first bits of 2/pi after the binary point, 32 in each word
WORDS = (0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB)


def _reduce(m: Maths, x: Expr) -> tuple[Expr, Expr]:
    """(r, quadrant) of a float32 ``x`` given as float64: x = quadrant * pi/2 + r, |r| <= pi/4; ``m`` is float64."""
    t = m.name(m.mad(x, m.f(TWO_OVER_PI), m.f(m.magic)))
    n = m.name(t - m.f(m.magic))
    r = m.fma(n, m.f(-1.57079632673412561417), x)
    r = m.fma(n, m.f(-6.07710050630396597660e-11), r)
    r = m.name(m.fma(n, m.f(-2.02226624879595063154e-21), r))
    large = m.name(m.abs(x) > m.f(2.0**27))
    far, far_quadrant = _payne_hanek(m, x)
    return m.name(m.select(large, far, r)), m.name(m.select(large, far_quadrant, m.to_bits(t)))


def _payne_hanek(m: Maths, x: Expr) -> tuple[Expr, Expr]:
    """The same for |x| >= 2**27: x = k * 2**e with a 24-bit k; 96 bits of 2/pi from bit e - 2 on, times k."""
    bits = m.name(m.to_bits(m.abs(x)))
    exponent = m.name(m.shr(bits, 52) - m.i(1023 + 23))  # e of |x| = k * 2**e, 4 .. 104
    k = m.name(m.shr(m.both(bits, (1 << 52) - 1), 29) + m.i(1 << 23))
    start = m.name(exponent - m.i(2))  # bits of weight 4 and above make full turns
    word, shift = m.name(m.shr(start, 5)), m.name(m.both(start, 31))
    picked = []
    for offset in range(4):
        value: Expr = m.i(WORDS[offset + 3])
        for w in (2, 1, 0):
            value = m.select(word <= m.i(w), m.i(WORDS[offset + w]), value)
        picked.append(m.name(value))
    mask = (1 << 32) - 1

    def funnel(a: Expr, b: Expr) -> Expr:
        both = Call("tir.bitwise_or", (m.shl(a, 32), b), m.int_dtype)
        moved = Call("tir.shift_right", (both, m.i(32) - shift), m.int_dtype)
        return m.both(moved, mask)

    high, middle, low = [funnel(picked[i], picked[i + 1]) for i in range(3)]
    # k * (high, middle, low) modulo 2**96: 2 bits of quadrant, then the fraction of a quarter turn
    p0 = m.name(k * low)
    p1 = m.name(k * middle + m.both(m.shr(p0, 32), mask))
    top = m.name(m.both(k * high + m.both(m.shr(p1, 32), mask), mask))
    rest = m.name(m.shl(m.both(p1, mask), 30) + m.shr(m.both(p0, mask), 2))  # 62 bits below the top word
    # round to the nearest quadrant: the fraction as a signed number
    whole = m.name(m.shr(top + m.i(1 << 29), 30))
    signed = m.name(top - m.shl(whole, 30))  # -2**29 .. 2**29, in units of 2**-30
    fraction = m.cast("float64", signed) * m.f(2.0**-30) + m.cast("float64", rest) * m.f(2.0**-92)
    r = m.name(fraction * m.f(PI_HALF))
    negative = m.name(x < m.f(0.0))
    return m.select(negative, m.negative(r), r), m.select(negative, m.i(0) - whole, whole)


def _sin_poly(m: Maths, r: Expr, z: Expr) -> Expr:
    return m.mad(m.poly(z, SIN_64) * z, r, r)


def _cos_poly(m: Maths, z: Expr) -> Expr:
    return m.mad(m.poly(z, COS_64) * z, z, m.mad(z, m.f(-0.5), m.f(1.0)))


def _wave(m: Maths, x: Expr, shift: int) -> Expr:
    """sin(x + shift * pi/2)"""
    r, quadrant = _reduce(m, x)
    if shift:
        quadrant = m.name(quadrant + m.i(shift))
    z = m.name(r * r)
    odd = m.both(quadrant, 1).equal(m.i(1))
    value = m.select(odd, _cos_poly(m, z), _sin_poly(m, r, z))
    flip = m.both(quadrant, 2).equal(m.i(2))
    value = m.name(value)
    value = m.select(flip, m.negative(value), value)
    return m.select(m.abs(x) < m.f(math.inf), value, m.f(math.nan))


def sin(m: Maths, x: Expr) -> Expr:
    """The sine of a float32 given as float64."""
    return m.select(x.equal(m.f(0.0)), x, _wave(m, x, 0))


def cos(m: Maths, x: Expr) -> Expr:
    """The cosine of a float32 given as float64."""
    return _wave(m, x, 1)


def tan(m: Maths, x: Expr) -> Expr:
    """The tangent of a float32 given as float64."""
    r, quadrant = _reduce(m, x)
    z = m.name(r * r)
    s, c = m.name(_sin_poly(m, r, z)), m.name(_cos_poly(m, z))
    odd = m.name(m.both(quadrant, 1).equal(m.i(1)))
    value = m.select(odd, m.negative(c), s) / m.select(odd, s, c)
    value = m.select(x.equal(m.f(0.0)), x, value)
    return m.select(m.abs(x) < m.f(math.inf), value, m.f(math.nan))


def atan(m: Maths, x: Expr) -> Expr:
    """The inverse tangent, at most 2 ULP off."""
    return m.with_sign(_atan_ratio(m, m.name(m.abs(x)), m.f(1.0)), x)


def _atan_ratio(m: Maths, y: Expr, x: Expr) -> Expr:
    """atan(y / x) of y, x >= 0 with one division: y/x, (y - x)/(y + x) or -x/y, and 0, pi/4 or pi/2 added."""
    large = m.name(y > x * m.f(2.414213562373095))
    middle = m.name(y > x * m.f(0.41421356237309503))
    above = m.select(large, m.negative(x), m.select(middle, y - x, y))
    below = m.select(large, y, m.select(middle, y + x, x))
    t = m.name(above / below)
    base = m.select(large, m.f(PI_HALF), m.select(middle, m.f(PI_HALF / 2), m.f(0.0)))
    low = m.select(large, m.f(PI_HALF_LOW), m.select(middle, m.f(PI_HALF_LOW / 2), m.f(0.0)))
    z = m.name(t * t)
    return base + (m.mad(m.poly(z, ATAN_64) * z, t, low) + t)


def atan2(m: Maths, y: Expr, x: Expr) -> Expr:
    """The angle of the point (x, y), from -pi to pi."""
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


def _asin_small(m: Maths, x: Expr, z: Expr) -> Expr:
    """asin(x) of |x| <= 1/2, z = x * x."""
    return m.mad(m.poly(z, ASIN_64) * z, x, x)


def asin(m: Maths, x: Expr) -> Expr:
    """The inverse sine, at most 2 ULP off; NaN for |x| > 1."""
    a = m.name(m.abs(x))
    big = m.name(a > m.f(0.5))
    z = m.name(m.select(big, (m.f(1.0) - a) * m.f(0.5), a * a))
    root = m.name(m.select(big, m.call("sqrt", z), a))
    p = m.name(_asin_small(m, root, z))
    return m.with_sign(m.select(big, m.f(PI_HALF) - (p + p - m.f(PI_HALF_LOW)), p), x)


def acos(m: Maths, x: Expr) -> Expr:
    """The inverse cosine, at most 2 ULP off; NaN for |x| > 1."""
    a = m.name(m.abs(x))
    big = m.name(a > m.f(0.5))
    z = m.name(m.select(big, (m.f(1.0) - a) * m.f(0.5), a * a))
    root = m.name(m.select(big, m.call("sqrt", z), x))
    p = m.name(_asin_small(m, root, z))
    edge = m.select(x > m.f(0.0), p + p, m.f(2 * PI_HALF) - (p + p - m.f(2 * PI_HALF_LOW)))
    return m.select(big, edge, m.f(PI_HALF) - (p - m.f(PI_HALF_LOW)))
