"""The sine, cosine and tangent, and their inverse functions.

A small argument is reduced by n * pi/2 in three parts of full precision (after Cody and Waite, "Software Manual for the
Elementary Functions", 1980). A fused multiply-subtract of the first part is exact, and the rounding error of the second
is kept, so that the difference is a sum of two numbers. A large float32 argument is reduced in float64 and, from 2**27
on, by a multiplication with the relevant bits of 2/pi as whole numbers (Payne and Hanek, "Radian reduction for
trigonometric functions", 1983), as is a large float64 argument. The reduction of large arguments runs only when a lane
needs it.

The tangent is the quotient of sine and cosine, both as sums of two numbers, corrected by its remainder. Polynomials are
minimax fits made for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...tir.expr import Call, Cast, DType, Expr
from .math_builder import Expansion, MathBuilder

# (sin(r) - r) / r**3 over r**2: on |r| <= 0.8 (2**-27.8 of the sine), and on |r| <= 0.7864 (2**-57.9)
SIN_32 = (-0.1666665319229088854, 0.008332070886388430952, -0.0001950306904475999863)
SIN_64 = (-0.1666666666666663017, 0.008333333333321974128, -0.0001984126982946944543, 2.755731357828128406e-06,
          -2.505074080156509787e-08, 1.58958150058248705e-10)  # fmt: skip
# (cos(r) - 1 + r**2/2) / r**4 over r**2, on the same (2**-32.7 and 2**-63.9 of the cosine)
COS_32 = (0.04166664318294107713, -0.001388719423204278575, 0.00002441919694599668588)
COS_64 = (0.04166666666666659177, -0.001388888888887285042, 0.00002480158728871953618, -2.755731414014516034e-07,
          2.087569539403506085e-09, -1.135824817628384391e-11)  # fmt: skip
TWO_OVER_PI = 0.636619772367581343075535053490057448
# pi/2 as a sum of three numbers: the errors are 2**-76 and 2**-163
PI_HALF_32 = (1.5707963705062866211, -4.3711388286737928865e-8, -1.7151245100058818728e-15)
PI_HALF_64 = (1.570796326794896558, 6.1232339957367660359e-17, -1.4973849048591698329e-33)
PI_HALF = PI_HALF_64[0]
# the same in parts of 33 bits (fdlibm's): products with whole numbers below 2**20 are exact
PI_HALF_SHORT = (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
NEAR_32 = 2.0**17
NEAR_64 = 2.0**30
NEAR_SHORT = 2.0**20
# the bits of 2/pi after the binary point
BITS = (
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921C"
    "FE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE05980F"
    "EF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D08"
    "56033046"
)
WORDS = tuple([int(BITS[i : i + 8], 16) for i in range(0, len(BITS), 8)])
LOW_WORD = (1 << 32) - 1


Formula = Callable[[MathBuilder, Expr, Expr, Expr], Expr]
"""A function of (r, low, quadrant), where r + low is the argument minus quadrant * pi/2."""


def _reduce_near(m: MathBuilder, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Returns (r, low, quadrant) for |x| up to 2**17 (float32) or 2**30 (float64); needs a fused operation.

    x - n * P1 is exact: a multiple of the last bit of P1, or of x, and less than 1. The error of the next difference is
    exact as well, because its first operand is a multiple of the last bit of the second.
    """
    first, second, third = PI_HALF_32 if m.single else PI_HALF_64
    t = m.name(m.fma(x, m.f(TWO_OVER_PI), m.f(m.magic)))
    n = m.name(t - m.f(m.magic))
    exact = m.name(m.fma(n, m.f(-first), x))
    p, p_low = m.two_product(n, m.f(second))
    r = m.name(exact - p)
    low = m.name(((exact - r) - p) - p_low)
    return r, m.name(m.fma(n, m.f(-third), low)), m.to_bits(t)


def _reduce_float32(m: MathBuilder, x: Expr, multiply: Callable[[Expr, Expr, Expr], Expr]) -> tuple[Expr, Expr]:
    """Returns (r, bits that end in the quadrant) of a float32 value given as float64, with enough precision for
    float32."""
    t = m.name(m.mad(x, m.f(TWO_OVER_PI), m.f(m.magic)))
    n = m.name(t - m.f(m.magic))
    r = x
    for part in PI_HALF_SHORT:
        r = multiply(n, m.f(-part), r)
    return m.name(r), m.to_bits(t)


def _reduce_large(m: MathBuilder, x: Expr) -> tuple[Expr, Expr]:
    """Returns the same for every float32 value."""
    r, quadrant = _reduce_float32(m, x, m.fma)
    large = m.name(m.abs(x) > m.f(2.0**27))
    far, far_quadrant = _payne_hanek(m, x)
    return m.name(m.select(large, far, r)), m.name(m.select(large, far_quadrant, quadrant))


def _payne_hanek(m: MathBuilder, x: Expr) -> tuple[Expr, Expr]:
    """Returns the same for |x| >= 2**27.

    x = k * 2**e with a 24-bit k, and 96 bits of 2/pi from bit e - 2 on are multiplied by k.
    """
    bits = m.name(m.to_bits(m.abs(x)))
    exponent = m.name(m.shr(bits, 52) - m.i(1023 + 23))  # the exponent e of |x| = k * 2**e, 4 .. 104
    k = m.name(m.shr(m.both(bits, (1 << 52) - 1), 29) + m.i(1 << 23))
    start = m.name(exponent - m.i(2))  # bits of weight 4 and above are multiples of 2 * pi
    word, shift = m.name(m.shr(start, 5)), m.name(m.both(start, 31))
    picked = []
    for offset in range(4):
        value: Expr = m.i(WORDS[offset + 3])
        for w in (2, 1, 0):
            value = m.select(word <= m.i(w), m.i(WORDS[offset + w]), value)
        picked.append(m.name(value))

    def funnel(a: Expr, b: Expr) -> Expr:
        both = Call("tir.bitwise_or", (m.shl(a, 32), b), m.int_dtype)
        moved = Call("tir.shift_right", (both, m.i(32) - shift), m.int_dtype)
        return m.both(moved, LOW_WORD)

    high, middle, low = [funnel(picked[i], picked[i + 1]) for i in range(3)]
    # k * (high, middle, low) modulo 2**96: 2 bits of quadrant, then the fraction of a quarter turn
    p0 = m.name(k * low)
    p1 = m.name(k * middle + m.both(m.shr(p0, 32), LOW_WORD))
    top = m.name(m.both(k * high + m.both(m.shr(p1, 32), LOW_WORD), LOW_WORD))
    rest = m.name(m.shl(m.both(p1, LOW_WORD), 30) + m.shr(m.both(p0, LOW_WORD), 2))  # 62 bits below the top word
    # round to the nearest quadrant: the fraction as a signed number
    whole = m.name(m.shr(top + m.i(1 << 29), 30))
    signed = m.name(top - m.shl(whole, 30))  # -2**29 .. 2**29, in units of 2**-30
    fraction = m.cast(DType("float64"), signed) * m.f(2.0**-30) + m.cast(DType("float64"), rest) * m.f(2.0**-92)
    r = m.name(fraction * m.f(PI_HALF))
    negative = m.name(x < m.f(0.0))
    return m.select(negative, m.negative(r), r), m.select(negative, m.i(0) - whole, whole)


def _payne_hanek_64(m: MathBuilder, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Returns (r, low, quadrant) for |x| >= 2**30.

    x = k * 2**e with a 53-bit k, and 192 bits of 2/pi from bit e - 2 on are multiplied by k.
    """
    bits = m.name(m.to_bits(m.abs(x)))
    start = m.name(m.shr(bits, 52) - m.i(1023 + 52 + 2 - 32))  # a word of zeros stands before the binary point
    low_k = m.name(m.both(bits, LOW_WORD))
    high_k = m.name(m.both(m.shr(bits, 32), (1 << 20) - 1) + m.i(1 << 20))
    # seven words from word start // 32 on, found by halving
    words: list[Expr] = [m.i(w) for w in (0, *WORDS)]
    for step in (16, 8, 4, 2, 1):
        there = m.name(m.both(start, 32 * step).equal(m.i(0)))
        words = [m.name(m.select(there, words[j], words[j + step])) for j in range(6 + step)]
    shift = m.name(m.i(32) - m.both(start, 31))
    window = []
    for above, below in zip(words[:-1], words[1:], strict=True):
        both = Call("tir.bitwise_or", (m.shl(above, 32), below), m.int_dtype)
        window.append(m.name(m.both(Call("tir.shift_right", (both, shift), m.int_dtype), LOW_WORD)))
    # the product modulo 2**192 in digits of 32 bits, the lowest left out
    columns: list[list[Expr]] = [[] for _ in range(8)]
    for j, w in enumerate(reversed(window)):
        for k, place in ((low_k, j), (high_k, j + 1)):
            if place < 6:
                product = m.name(k * w)
                columns[place].append(m.both(product, LOW_WORD))
                columns[place + 1].append(m.both(m.shr(product, 32), LOW_WORD))
    carry: Expr = m.i(0)
    digits = []
    for column in columns[1:6]:
        total = carry
        for term in column:
            total = total + term
        digits.append(m.name(total))
        carry = m.shr(digits[-1], 32)
    second_digit, third_digit, fourth_digit, top = [m.name(m.both(d, LOW_WORD)) for d in digits[1:]]
    # the nearest quadrant; what is left of a quarter turn as a sum of two numbers
    quadrant = m.name(m.shr(top + m.i(1 << 29), 30))
    parts = [top - m.shl(quadrant, 30), fourth_digit, third_digit, second_digit]
    first, second, third, fourth = [
        m.name(m.cast(DType("float64"), p) * m.f(2.0 ** (-30 - 32 * n))) for n, p in enumerate(parts)
    ]
    a, b = m.two_sum(first, second)
    b, c = m.two_sum(b, third)
    a, b = m.two_sum(a, b)
    a, b = m.two_sum(a, m.name(b + (c + fourth)))
    r, low = m.two_product(a, m.f(PI_HALF))
    low = low + m.mad(a, m.f(PI_HALF_64[1]), b * m.f(PI_HALF))
    negative = m.name(x < m.f(0.0))
    return (
        m.name(m.select(negative, m.negative(r), r)),
        m.name(m.select(negative, m.negative(low), low)),
        m.name(m.select(negative, m.i(0) - quadrant, quadrant)),
    )


def _sine(m: MathBuilder, r: Expr, low: Expr, z: Expr) -> tuple[Expr, Expr]:
    """Returns sin(r + low) as r plus the returned correction."""
    p = m.poly(z, SIN_32 if m.single else SIN_64)
    return r, m.name(m.mad(r * z, p, low))


def _cosine(m: MathBuilder, r: Expr, low: Expr, z: Expr) -> tuple[Expr, Expr]:
    """Returns cos(r + low) likewise: 1 - z/2, and a correction that includes the rounding error of that difference."""
    half = m.name(z * m.f(0.5))
    top = m.name(m.f(1.0) - half)
    rest = m.mad(z * z, m.poly(z, COS_32 if m.single else COS_64), m.negative(r) * low)
    return top, m.name(((m.f(1.0) - top) - half) + rest)


def _sine_of_parts(m: MathBuilder, r: Expr, low: Expr, quadrant: Expr) -> Expr:
    """Returns sin(r + low + quadrant * pi/2)."""
    z = m.name(r * r)
    odd = m.name(m.both(quadrant, 1).equal(m.i(1)))
    s, s_low = _sine(m, r, low, z)
    c, c_low = _cosine(m, r, low, z)
    value = m.select(odd, c + c_low, s + s_low)
    flip = m.both(m.shl(quadrant, m.bits - 2), -(1 << (m.bits - 1)))
    return m.from_bits(Call("tir.bitwise_xor", (m.to_bits(value), flip), m.int_dtype))


def _shifted(m: MathBuilder, r: Expr, low: Expr, quadrant: Expr) -> Expr:
    return _sine_of_parts(m, r, low, m.name(quadrant + m.i(1)))


def _tangent_of_parts(m: MathBuilder, r: Expr, low: Expr, quadrant: Expr) -> Expr:
    """Returns tan(r + low + quadrant * pi/2)."""
    z = m.name(r * r)
    odd = m.name(m.both(quadrant, 1).equal(m.i(1)))
    s, s_low = m.quick_two_sum(*_sine(m, r, low, z))
    c, c_low = m.quick_two_sum(*_cosine(m, r, low, z))
    top, bottom = m.name(m.select(odd, m.negative(c), s)), m.name(m.select(odd, s, c))
    top_low, bottom_low = m.select(odd, m.negative(c_low), s_low), m.select(odd, s_low, c_low)
    return m.quotient(top, top_low, bottom, bottom_low)


def _function(m: MathBuilder, x: Expr, name: str, formula: Formula) -> Expr:
    """Returns ``formula`` of the reduced argument, which takes a slower path for lanes with large arguments.

    For float64 that path stays a call until code is emitted, which takes :func:`large_argument_path` for it; C source
    calls the C library.
    """
    if not m.single:
        near: Expr = formula(m, *_reduce_near(m, x))
        return m.either(m.abs(x) <= m.f(NEAR_64), near, Call(f"tir.{name}", (x,), m.dtype))
    wide = MathBuilder(DType("float64").with_lanes(m.lanes), m.fused)
    doubled = Cast(wide.dtype, x)
    a = wide.name(doubled)
    r, quadrant = _reduce_large(wide, a)
    value = wide.select(
        wide.abs(a) < wide.f(math.inf), formula(wide, r, wide.f(0.0), wide.name(quadrant)), wide.f(math.nan)
    )
    far = Cast(m.dtype, wide.finish(value))
    if m.fused:
        return m.either(m.abs(x) <= m.f(NEAR_32), formula(m, *_reduce_near(m, x)), far)
    a = wide.name(doubled)
    r, quadrant = _reduce_float32(wide, a, wide.mad)
    near = Cast(m.dtype, wide.finish(formula(wide, r, wide.f(0.0), wide.name(quadrant))))
    return m.either(m.abs(x) <= m.f(NEAR_SHORT), near, far)


def sin(m: MathBuilder, x: Expr) -> Expr:
    """Returns the sine, at most 1 ULP off."""
    return m.select(x.equal(m.f(0.0)), x, _function(m, x, "sin", _sine_of_parts))


def cos(m: MathBuilder, x: Expr) -> Expr:
    """Returns the cosine, at most 1 ULP off."""
    return _function(m, x, "cos", _shifted)


def tan(m: MathBuilder, x: Expr) -> Expr:
    """Returns the tangent, at most 1.25 ULP off."""
    return m.select(x.equal(m.f(0.0)), x, _function(m, x, "tan", _tangent_of_parts))


def large_argument_path(call: Call) -> Expr | None:
    """Returns a sine, cosine or tangent of float64 for |x| >= 2**30, or None for other calls. For smaller arguments the
    value is arbitrary."""
    formula = {"tir.sin": _sine_of_parts, "tir.cos": _shifted, "tir.tan": _tangent_of_parts}.get(call.op)
    if formula is None or call.dtype.bits != 64:
        return None
    m = MathBuilder(call.dtype)
    x = m.name(call.args[0])
    value = formula(m, *_payne_hanek_64(m, x))
    return m.finish(m.select(m.abs(x) < m.f(math.inf), value, m.f(math.nan)))


# The inverse trigonometric functions of float64. float32 values are computed in float64. atan takes the quotient of
# one division into |t| <= sqrt(2) - 1, asin and acos use sqrt((1 - x) / 2) beyond 1/2, as Cephes and fdlibm do.
# Polynomials are minimax fits made for this file (Remez exchange in 50 digits).


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
    "sin": Expansion(sin, needs_fused=True),
    "cos": Expansion(cos, needs_fused=True),
    "tan": Expansion(tan, needs_fused=True),
    "asin": Expansion(asin, asin),
    "acos": Expansion(acos, acos),
    "atan": Expansion(atan, atan),
    "atan2": Expansion(atan2, atan2),
}
