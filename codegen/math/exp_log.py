"""Exponential functions, logarithms, hyperbolic functions and powers; also rsqrt, hypot and fmod.

Each reduces to 2**n * f(r) with |r| <= log(2)/2 (Cody and Waite's two-part constants; those of Cephes, exact products
without a fused operation), evaluates a minimax polynomial (Remez exchange, run for this file in 50 digits; the error
is below 2**-28 for float32, 2**-63 for float64) and multiplies by 2**n, by the instruction for that or in two steps, so
that denormal results and overflow come out right.

x = 2**e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); float32 evaluates log(1 + f) as f - f**2/2 + f**3 * q(f), as
Cephes does, float64 through s = f / (2 + f) as fdlibm does (its constants for log(2) and log2 and log10 in two parts
as well); the polynomials are minimax fits made for this file (Remez exchange in 50 digits).

For float64 the logarithm is s = (m - 1) / (m + 1), log(m) = 2 s + 2/3 s**3 + s**5 q(s**2), each leading term a sum of
two numbers (about 2**-68 relative, after Tang's and SLEEF's double-double logarithms); the product with y keeps its
error term, which the exponential adds to its argument. float32 values are computed in the same way in float64, without
pairs: errors of 2**-37 for log2 and 2**-34 for exp2 are small enough. This completes vectors of positive x and finite
y. Other vectors get the values of C's table of special values (ISO C, F.10.4.4). The polynomials are minimax fits made
for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...tir.expr import And, Call, Cast, DType, Expr, Or
from . import lookup_tables
from .math_builder import Expansion, MathBuilder

LOG2_E = 1.442695040888963407
LOG2_10 = 3.321928094887362348
# (exp(r) - 1 - r) / r**2 on |r| <= log(2)/2
EXP_32 = (0.4999999337313229576, 0.1666651952398874958, 0.04166840106290276491, 0.00836885107871537931,
          0.001381432201843465294)  # fmt: skip
EXP_64 = (0.5000000000000000045, 0.1666666666666668374, 0.04166666666666608332, 0.008333333333316785919,
          0.001388888888911909327, 0.0001984126989701278737, 2.480158692234377651e-05, 2.755723422092141018e-06,
          2.755758384710809712e-07, 2.51122642427342721e-08, 2.082643686247857605e-09)  # fmt: skip
# (2**r - 1) / r on |r| <= 1/2
EXP2_32 = (0.6931472031153316792, 0.2402264788004606542, 0.05550331854168715989, 0.009618439851067678829,
           0.001339913252692213844, 0.0001535315290103286974)  # fmt: skip
EXP2_64 = (0.6931471805599453085, 0.2402265069591007151, 0.05550410866482168925, 0.009618129107628326591,
           0.001333355814639212043, 0.0001540353039364489304, 1.52527338549195605e-05, 1.321548659255505162e-06,
           1.017805167042036031e-07, 7.054974984721368519e-09, 4.456614444108788031e-10,
           2.562520465659680459e-11)  # fmt: skip
# (10**r - 1) / r on |r| <= log10(2)/2
EXP10_32 = (2.302585167921417357, 2.650948744502797749, 2.034649627831825464, 1.171292989936137914,
            0.5420356120760583682, 0.2063188654652559463)  # fmt: skip
EXP10_64 = (2.302585092994045681, 2.650949055239199036, 2.034678592293480203, 1.171255148912248627,
            0.5393829291941120349, 0.2069958487004061496, 0.068089365301478726, 0.01959769433346669608,
            0.005013911917785906563, 0.001154510148176087486, 0.0002422688443682491996,
            4.627538859859039365e-05)  # fmt: skip
# (sinh(x) - x) / x**3 over x**2 on |x| <= 1
SINH_64 = (0.1666666666666666743, 0.00833333333333313881, 0.0001984126984143768083, 2.755731915533702755e-06,
           2.505212339852690628e-08, 1.605724034352996271e-10, 7.7593121353034207e-13)  # fmt: skip


def _reduce(m: MathBuilder, x: Expr) -> tuple[Expr, Expr]:
    """Returns (r, n << mantissa bits) with x = n * log(2) + r."""
    r, _, exponent = _reduced(m, x)
    return r, exponent


def _reduced(m: MathBuilder, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Returns (r, n, n << mantissa bits) with x = n * log(2) + r."""
    n, exponent = m.whole(m.mad(x, m.f(LOG2_E), m.f(m.magic)))
    hi, lo = (0.693359375, -2.12194440e-4) if m.single else (6.93145751953125e-1, 1.42860682030941723212e-6)
    r = m.mad(n, m.f(-hi), x)
    return m.name(m.mad(n, m.f(-lo), r)), n, exponent


def minus_one(m: MathBuilder, r: Expr) -> Expr:
    """Returns exp(r) - 1 for |r| <= log(2)/2."""
    q = m.poly(r, EXP_32 if m.single else EXP_64)
    return m.mad(r * r, q, r)


def _power(m: MathBuilder, r: Expr) -> Expr:
    """Returns exp(r) for |r| <= log(2)/2. With fused operations this takes one step less than exp(r) - 1 and an
    addition."""
    if m.fused:
        return m.poly(r, (1.0, 1.0, *(EXP_32 if m.single else EXP_64)))
    return minus_one(m, r) + m.f(1.0)


def _vanishing(m: MathBuilder, x: Expr, least: float, p: Expr) -> Expr:
    """Returns ``p``, and 0 where x lies below ``least``.

    There p * 2**n rounds to 0, which processors find slowly (some 100 cycles for a result that underflows); 0 * 2**n is
    exact. Softmax with a mask takes exp of many times -inf.
    """
    return m.select(x < m.f(least), m.f(0.0), p)


def exp(m: MathBuilder, x: Expr, halved: bool = False, vanishes: Expr | None = None) -> Expr:
    """Returns e**x (half of it when ``halved``), at most 1 ULP off. It may be 0 where it ``vanishes``."""
    least, most = (-104.0, 90.0) if m.single else (-746.0, 711.0)
    x = m.name(x)
    r, n, exponent = _reduced(m, m.clamp(x, least, most))
    p = _vanishing(m, x, least, _power(m, r)) if vanishes is None else m.select(vanishes, m.f(0.0), _power(m, r))
    return m.scaled(p * m.f(0.5) if halved else p, n, exponent)


def exp_plus_one(m: MathBuilder, x: Expr) -> Expr:
    """Returns e**x + 1 where e**x is a normal number."""
    r, exponent = _reduce(m, x)
    return m.mad(_power(m, r), m.power(exponent), m.f(1.0))


def exp2(m: MathBuilder, x: Expr) -> Expr:
    """Returns 2**x, at most 1 ULP off; exact for whole x."""
    least, most = (-152.0, 130.0) if m.single else (-1077.0, 1026.0)
    x = m.name(x)
    if m.scales:  # this form is right for every x
        r = m.name(m.call("round_rest", x))
        p = m.mad(m.poly(r, EXP2_32 if m.single else EXP2_64), r, m.f(1.0))
        return m.call("times_exp2", _vanishing(m, x, least, p), x - r)
    cut = m.name(m.clamp(x, least, most))
    n, exponent = m.whole(cut + m.f(m.magic))
    r = m.name(cut - n)
    p = m.mad(m.poly(r, EXP2_32 if m.single else EXP2_64), r, m.f(1.0))
    return m.scaled(_vanishing(m, x, least, p), n, exponent)


def exp10(m: MathBuilder, x: Expr) -> Expr:
    """Returns 10**x, at most 1 ULP off."""
    least, most = (-46.0, 39.0) if m.single else (-325.0, 309.0)
    given = m.name(x)
    x = m.name(m.clamp(given, least, most))
    n, exponent = m.whole(m.mad(x, m.f(LOG2_10), m.f(m.magic)))
    hi, lo = (3.0078125e-1, 2.48745663981195213739e-4) if m.single else (3.01025390625e-1, 4.60503898119521373889e-6)
    r = m.name(m.mad(n, m.f(-lo), m.mad(n, m.f(-hi), x)))
    p = m.mad(m.poly(r, EXP10_32 if m.single else EXP10_64), r, m.f(1.0))
    return m.scaled(_vanishing(m, given, least, p), n, exponent)


def expm1(m: MathBuilder, x: Expr) -> Expr:
    """Returns e**x - 1 without cancellation, at most 2 ULP off.

    It is 2 * (s * p + (s - 1/2)) with s = 2**(n - 1), p = exp(r) - 1.
    """
    cut = m.clamp(x, -20.0, 89.0) if m.single else m.clamp(x, -40.0, 710.0)  # n is at most 128 (float64: 1024)
    r, exponent = _reduce(m, cut)
    p = minus_one(m, r)
    s = m.name(m.power(exponent, -1))
    return m.with_sign(m.mad(s, p, s - m.f(0.5)) * m.f(2.0), x)


def sinh(m: MathBuilder, x: Expr) -> Expr:
    """Returns (e**x - e**-x) / 2, at most 2 ULP off."""
    a = m.name(m.abs(x))
    half = m.name(exp(m, a, halved=True))
    z = m.name(x * x)
    small = m.mad(m.poly(z, SINH_64) * z, x, x)
    return m.select(a < m.f(1.0), small, m.with_sign(half - m.f(0.25) / half, x))


def cosh(m: MathBuilder, x: Expr) -> Expr:
    """Returns (e**x + e**-x) / 2, at most 2 ULP off."""
    half = m.name(exp(m, m.abs(x), halved=True))
    return half + m.f(0.25) / half


# The functions tanh, sigmoid and erf. erf of float32, and tanh with fused multiply-adds, are in ``lookup_tables``.
# tanh is x + x**3 * p(x**2) below 0.625 (float64: a quotient p / q, the constants of Cephes, S. Moshier), from
# there on 1 - 2 / (exp(2 |x|) + 1). sigmoid is the quotient of 1 or exp(-|x|) and 1 + exp(-|x|), the sum in two
# parts. erf of float64 has a polynomial near zero and is 1 - exp(-x**2) * h((x - 2) / (x + 2)) beyond. The other
# polynomials are minimax fits made for this file (Remez exchange in 50 digits).


# (tanh(x) - x) / x**3 over x**2 on |x| <= 0.625: 2**-27.8 of tanh
TANH_32 = (-0.3333328194190330452, 0.1333144219665718105, -0.05373971502970966298, 0.0206390872101169455,
           -0.00570498706405300643)  # fmt: skip
TANH_TOP_64 = (-1.61468768441708447952e3, -9.92877231001918586564e1, -9.64399179425052238628e-1)
TANH_BOTTOM_64 = (4.84406305325125486048e3, 2.23548839060100448583e3, 1.12811678491632931402e2, 1.0)
# erf(x) / x over x**2 on |x| <= 1
ERF_SMALL_64 = (1.128379167095512566, -0.3761263890318351954, 0.1128379167094418472, -0.02686617064311146761,
             0.005223977606118478563, -0.0008548325929314772017, 0.0001205529357690991431, -1.492471230220320119e-05,
             1.644713157382671567e-06, -1.620631377909078583e-07, 1.371098049121964507e-08,
             -7.779468669579859864e-10)  # fmt: skip
# erfc(x) * exp(x**2) over (x - 2) / (x + 2) on 0.99 <= x <= 6
ERF_LARGE_64 = (0.2553956763105057439, -0.4271858474139583934, 0.2416581942424663629, -0.07897858101573325169,
             0.003732892404341709023, 0.006997461739303367126, -0.0008471432515749531121, -0.0009819770293918002478,
             4.355561664934666011e-05, 0.0001743611403689474494, 2.752516455581037014e-05, -2.757766313592733675e-05,
             -1.39598043044557747560e-05, 1.363843787300057092e-06, 3.676001306279686126e-06,
             1.247840478131955824e-06)  # fmt: skip


def tanh(m: MathBuilder, x: Expr) -> Expr:
    """Returns the hyperbolic tangent, at most 1.5 ULP off."""
    if m.single and m.fused:
        return lookup_tables.tanh(m, x)
    a = m.name(m.abs(x))
    small = m.name(a < m.f(0.625))
    cut = m.name(m.select(a > m.f(22.0), m.f(22.0), a))
    bottom = m.name(exp_plus_one(m, m.name(cut + cut)))
    z = m.name(x * x)
    if m.single:
        large = m.f(1.0) - m.f(2.0) / bottom
        return m.with_sign(m.select(small, m.mad(m.poly(z, TANH_32) * z, x, x), large), x)
    top = m.select(small, m.poly(z, TANH_TOP_64) * (z * a), m.f(-2.0))
    bottom = m.select(small, m.poly(z, TANH_BOTTOM_64), bottom)
    return m.with_sign(m.select(small, a, m.f(1.0)) + top / bottom, x)


def sigmoid(m: MathBuilder, x: Expr) -> Expr:
    """Returns 1 / (1 + e**-x), at most 1.5 ULP off. The term e**-|x| never overflows, and small results are denormal as
    they should. For large x the term would be denormal, which processors are slow on and the sum does not show: there it is 0."""
    least, most = (-104.0, 87.25) if m.single else (-746.0, 708.0)
    vanishes = m.abs(x - m.f((least + most) / 2)) > m.f((most - least) / 2)
    t = m.name(exp(m, m.negative(m.abs(x)), vanishes=vanishes))
    total, lost = m.quick_two_sum(m.f(1.0), t)
    top = m.name(m.select(x >= m.f(0.0), m.f(1.0), t))
    if m.fused:
        return m.quotient(top, m.f(0.0), total, lost)
    q = m.name(top / total)
    return q - q * (lost / total)


def erf(m: MathBuilder, x: Expr) -> Expr:
    """Returns the error function, at most 1.5 ULP off."""
    if m.single:
        return lookup_tables.erf(m, x)
    z = m.name(x * x)
    small = x * m.poly(z, ERF_SMALL_64)
    a = m.clamp(m.abs(x), 0.0, 6.0)
    u = m.name((a - m.f(2.0)) / (a + m.f(2.0)))
    tail = exp(m, m.negative(m.name(a * a))) * m.poly(u, ERF_LARGE_64)
    return m.select(m.abs(x) < m.f(1.0), small, m.with_sign(m.f(1.0) - tail, x))


EXPONENTIALS = {
    "exp": Expansion(exp),
    "exp2": Expansion(exp2),
    "exp10": Expansion(exp10),
    "expm1": Expansion(expm1),
    "sinh": Expansion(sinh, sinh),
    "cosh": Expansion(cosh, cosh),
    "tanh": Expansion(tanh),
    "sigmoid": Expansion(sigmoid),
    "erf": Expansion(erf),
}


# (log(1 + f) - f + f**2/2) / f**3 on [sqrt(1/2) - 1, sqrt(2) - 1]
LOG_32 = (0.3333331260413534194, -0.2500000959900981263, 0.2000211865370745557, -0.1666799587222508063,
          0.1421955247619374973, -0.124055886595705978, 0.1188816117202939932, -0.1167565299468641594,
          0.06746644392293577469)  # fmt: skip
# (log2(1 + f) - f * log2(e)) / f**2 on the same interval
LOG2_32 = (-0.7213475204528529498, 0.4808980166927288534, -0.3606735659850840829, 0.2885711303361787585,
           -0.2404864849822165839, 0.205131914329392753, -0.1786679916624822812, 0.1712902384944243633,
           -0.1700927213940943704, 0.09977085076786594429)  # fmt: skip
# (2 * atanh(s) - 2 * s) / s**3 over s**2 on |s| <= 0.1716
ATANH_64 = (0.6666666666666734412, 0.3999999999941467822, 0.285714287423876025, 0.2222219857319052301,
            0.1818356432565121274, 0.1531405056725373583, 0.1479594952397212441)  # fmt: skip


def split(m: MathBuilder, x: Expr, positive: bool = False) -> tuple[Expr, Expr, Expr]:
    """Returns (e, f, e << mantissa bits) with x = 2**e * (1 + f).

    Denormal x is scaled first, unless ``positive`` says that x is normal. For x <= 0, infinity and NaN the numbers are
    arbitrary.
    """
    shift: Expr | None = None
    if not positive:
        smallest, bits = (2.0**-126, 25) if m.single else (2.0**-1022, 54)
        tiny = m.name(x < m.f(smallest))
        x = m.select(tiny, x * m.f(2.0**bits), x)
        shift = m.select(tiny, m.f(float(bits)), m.f(0.0))
    b = m.name(m.to_bits(x))
    root_half = 0x3F3504F3 if m.single else 0x3FE6A09E667F3BCD
    e = m.name(m.shr(b - m.i(root_half), m.mantissa))
    exponent = m.name(m.shl(e, m.mantissa))
    f = m.name(m.from_bits(b - exponent) - m.f(1.0))
    value = m.from_bits(e + m.i(m.magic_bits)) - m.f(m.magic)
    return m.name(value if shift is None else value - shift), f, exponent


def finish(m: MathBuilder, x: Expr, result: Expr, start: float = 0.0) -> Expr:
    """Returns ``result`` with the values of a logarithm at infinity, at ``start`` (minus infinity), below it and for
    NaN (NaN)."""
    inner = m.select(x < m.f(math.inf), result, x)
    outer = m.select(x.equal(m.f(start)), m.f(-math.inf), m.f(math.nan))
    return m.select(x > m.f(start), inner, outer)


def _of_parts(m: MathBuilder, e: Expr, f: Expr) -> Expr:
    """Returns e * log(2) + log(1 + f)."""
    z = m.name(f * f)
    if m.single:
        y = m.poly(f, LOG_32) * (f * z)
        y = m.mad(e, m.f(-2.12194440e-4), y)
        y = m.mad(z, m.f(-0.5), y)
        return m.mad(e, m.f(0.693359375), f + y)
    half = m.name(z * m.f(0.5))
    small = m.name(m.mad(e, m.f(1.90821492927058770002e-10), _tail(m, f, half)))
    return m.mad(e, m.f(6.93147180369123816490e-01), f - (half - small))


def _tail(m: MathBuilder, f: Expr, half: Expr) -> Expr:
    """Returns log(1 + f) - f + half, where half is f**2 / 2.

    It is s * (half + s**2 * q(s**2)) with s = f / (2 + f).
    """
    s = m.name(f / (f + m.f(2.0)))
    z = m.name(s * s)
    return s * m.mad(m.poly(z, ATANH_64), z, half)


def log(m: MathBuilder, x: Expr) -> Expr:
    """Returns the natural logarithm, at most 1 ULP off."""
    e, f, _ = split(m, x)
    return finish(m, x, _of_parts(m, e, f))


def log2(m: MathBuilder, x: Expr) -> Expr:
    """Returns the logarithm to base 2, at most 2 ULP off."""
    e, f, _ = split(m, x)
    if m.single:
        y = m.mad(f, m.f(0.442695040888963407), m.poly(f, LOG2_32) * (f * f))
        return finish(m, x, e + (f + y))
    hi, lo = _double(m, f)
    high = m.name(hi * m.f(1.44269504072144627571e00))
    low = m.mad(lo + hi, m.f(1.67517131648865118353e-10), lo * m.f(1.44269504072144627571e00))
    w = m.name(e + high)
    return finish(m, x, (low + ((e - w) + high)) + w)


def log10(m: MathBuilder, x: Expr) -> Expr:
    """Returns the logarithm to base 10, at most 2 ULP off."""
    e, f, _ = split(m, x)
    if m.single:
        z = m.name(f * f)
        y = m.name(m.mad(z, m.f(-0.5), m.poly(f, LOG_32) * (f * z)))
        out = m.mad(e, m.f(2.48745663981195213739e-4), (f + y) * m.f(7.00731903251827651129e-4))
        out = m.mad(f, m.f(4.3359375e-1), m.mad(y, m.f(4.3359375e-1), out))
        return finish(m, x, m.mad(e, m.f(3.0078125e-1), out))
    hi, lo = _double(m, f)
    high = m.name(hi * m.f(4.34294481878168880939e-01))
    whole = m.name(e * m.f(3.01029995663611771306e-01))
    low = m.mad(lo + hi, m.f(2.50829467116452752298e-11), lo * m.f(4.34294481878168880939e-01))
    low = m.mad(e, m.f(3.69423907715893078616e-13), low)
    w = m.name(whole + high)
    return finish(m, x, (low + ((whole - w) + high)) + w)


def _double(m: MathBuilder, f: Expr) -> tuple[Expr, Expr]:
    """Returns log(1 + f) as a sum of two float64 (after FreeBSD's e_log2.c). The lower half of the bits of the first is
    zero."""
    half = m.name(f * f * m.f(0.5))
    hi = m.name(m.from_bits(m.both(m.to_bits(f - half), -(1 << 32))))
    return hi, m.name(((f - hi) - half) + _tail(m, f, half))


def log1p(m: MathBuilder, x: Expr) -> Expr:
    """Returns log(1 + x), precise near zero, at most 2 ULP off. The rounding error of 1 + x is added to f."""
    u, lost = m.two_sum(x, m.f(1.0))
    e, f, exponent = split(m, u, positive=True)
    most = m.i(100 << m.mantissa)  # for large x the rounding error of 1 + x does not matter
    scale = m.from_bits(m.i(m.one_bits) - m.select(exponent > most, most, exponent))
    f = m.name(m.mad(lost, scale, f))
    return m.with_sign(finish(m, x, _of_parts(m, e, f), -1.0), x)


def asinh(m: MathBuilder, x: Expr) -> Expr:
    """Returns the inverse of sinh, at most 3 ULP off."""
    a = m.name(m.abs(x))
    big = m.name(a > m.f(2.0**60))
    z = a * a
    y = m.name(m.select(big, a, a + z / (m.f(1.0) + m.call("sqrt", m.mad(a, a, m.f(1.0))))))
    out = log1p(m, y)
    return m.with_sign(m.select(big, out + m.f(0.6931471805599453), out), x)


def acosh(m: MathBuilder, x: Expr) -> Expr:
    """Returns the inverse of cosh for x >= 1, else NaN; at most 3 ULP off."""
    big = m.name(x > m.f(2.0**60))
    t = m.name(x - m.f(1.0))
    y = m.name(m.select(big, x, t + m.call("sqrt", m.mad(t, t, t + t))))
    out = m.name(log1p(m, y))
    return m.select(x >= m.f(1.0), m.select(big, out + m.f(0.6931471805599453), out), m.f(math.nan))


def atanh(m: MathBuilder, x: Expr) -> Expr:
    """Returns the inverse of tanh for |x| <= 1, else NaN; at most 3 ULP off."""
    a = m.name(m.abs(x))
    y = m.name((a + a) / (m.f(1.0) - a))
    out = m.select(a > m.f(1.0), m.f(math.nan), log1p(m, y) * m.f(0.5))
    return m.with_sign(out, x)


LOGARITHMS = {
    "log": Expansion(log),
    "log2": Expansion(log2),
    "log10": Expansion(log10),
    "log1p": Expansion(log1p),
    "asinh": Expansion(asinh, asinh),
    "acosh": Expansion(acosh, acosh),
    "atanh": Expansion(atanh, atanh),
}


# (2 * atanh(s) - 2 s - 2/3 s**3) / s**5 over s**2 on |s| <= 0.1716
POW_LOG = (0.3999999999999999768, 0.2857142857143427254, 0.2222222221979543044, 0.1818181862791376661,
           0.1538457155950791832, 0.1333580926582463283, 0.1168418737728554012, 0.1191755511525753663)  # fmt: skip
# log2((1 + s) / (1 - s)) / s over s**2 on |s| <= 0.1717: 2**-37.8
LOG2_SHORT = (2.885390081790171813, 0.961796673225676332, 0.5770836085926824348, 0.4116712227569081466,
              0.34075911781867177)  # fmt: skip
# (2**r - 1) / r on |r| <= 1/2: 2**-34.3
EXP2_SHORT = (0.6931471807047626464, 0.2402265106700183377, 0.05550410392565633, 0.009618038059784278852,
              0.001333393535641291033, 0.0001546678148101931832, 0.00001519613397472984038)  # fmt: skip
LOG2_E_HIGH, LOG2_E_LOW = 1.4426950408889634, 2.0355273740931033e-17
TWO_THIRDS_HIGH, TWO_THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17


def pow_float32(m: MathBuilder, x: Expr, y: Expr) -> Expr:
    """Returns x**y of float32 values given as float64, at most 0.51 ULP of float32 off."""
    e, f, _ = split(m, m.name(m.abs(x)), positive=True)  # no float32 is denormal in float64
    s = m.name(f / (f + m.f(2.0)))
    log = m.name(m.mad(s, m.poly(m.name(s * s), LOG2_SHORT), e))
    cut = m.clamp(log * y, -160.0, 160.0)
    n, exponent = m.whole(cut + m.f(m.magic))
    r = m.name(cut - n)
    size = m.name(m.mad(m.poly(r, EXP2_SHORT), r, m.f(1.0)) * m.power(exponent))
    return _power_of_magnitude(m, x, y, log, size)


def pow_float64(m: MathBuilder, x: Expr, y: Expr) -> Expr:
    """Returns x**y, at most 1 ULP off."""
    hi, lo = _log2_pair(m, m.name(m.abs(x)))
    p = m.name(hi * y)
    e = m.name(m.fma(hi, y, m.negative(p)) + lo * y)
    e = m.select(m.abs(p) < m.f(2000.0), e, m.f(0.0))  # also where p is infinite or NaN
    cut = m.clamp(p, -1077.0, 1026.0)
    n, exponent = m.whole(cut + m.f(m.magic))
    r = m.name((cut - n) + e)
    size = m.times_power(m.mad(m.poly(r, EXP2_64), r, m.f(1.0)), exponent)
    return _power_of_magnitude(m, x, y, hi, m.name(size))


def _log2_pair(m: MathBuilder, x: Expr) -> tuple[Expr, Expr]:
    """Returns log2(x) as a sum of two float64, for x neither 0, infinite nor NaN."""
    e, f, _ = split(m, x)
    d, d_low = m.two_sum(f, m.f(2.0))
    inverse = m.name(m.f(1.0) / d)
    s = m.name(f * inverse)
    s_low = m.name(m.fma(m.negative(s), d_low, m.fma(m.negative(s), d, f)) * inverse)
    z, z_low = m.two_product(s, s)
    z_low = m.name(m.mad(s * m.f(2.0), s_low, z_low))
    # the cubic's coefficient: 2/3 + z * q(z)
    c, c_low = m.quick_two_sum(m.f(TWO_THIRDS_HIGH), m.name(z * m.poly(z, POW_LOG)))
    c_low = m.name(c_low + m.f(TWO_THIRDS_LOW))
    cube, cube_low = m.two_product(s, z)
    cube_low = m.name(m.mad(s, z_low, m.mad(s_low, z, cube_low)))
    t, t_low = m.two_product(cube, c)
    t_low = m.name(m.mad(cube, c_low, m.mad(cube_low, c, t_low)))
    a, a_low = m.quick_two_sum(m.name(s * m.f(2.0)), t)
    a_low = m.name(a_low + m.mad(s_low, m.f(2.0), t_low))
    # times log2(e), plus the exponent
    g, g_low = m.two_product(a, m.f(LOG2_E_HIGH))
    g_low = m.name(m.mad(a, m.f(LOG2_E_LOW), m.mad(a_low, m.f(LOG2_E_HIGH), g_low)))
    total, low = m.two_sum(e, g)
    return m.quick_two_sum(total, m.name(low + g_low))


def _power_of_magnitude(m: MathBuilder, x: Expr, y: Expr, log: Expr, size: Expr) -> Expr:
    """Returns x**y from log2|x| and |x|**y, which are right where no operand is 0, infinite or NaN."""
    rare = MathBuilder(m.dtype, m.fused)
    p = rare.name(finish(rare, rare.name(rare.abs(x)), log) * y)
    limit = rare.select(p > rare.f(0.0), rare.f(math.inf), rare.select(p < rare.f(0.0), rare.f(0.0), p))
    whole = rare.name(rare.select(rare.abs(p) < rare.f(math.inf), size, limit))
    far = rare.finish(_special(rare, x, y, whole))
    return m.either(And(And(x > m.f(0.0), x < m.f(math.inf)), m.abs(y) < m.f(math.inf)), size, far)


def _special(m: MathBuilder, x: Expr, y: Expr, size: Expr) -> Expr:
    """Returns x**y with its sign and special values, from |x|**y."""
    one, zero = m.f(1.0), m.f(0.0)
    whole = m.name(m.call("trunc", y).equal(y))
    half = m.name(y * m.f(0.5))
    odd = m.name(And(whole, ~m.call("trunc", half).equal(half)))
    negative = m.name(m.to_bits(x) < m.i(0))
    signed = m.select(And(negative, odd), m.negative(size), size)
    undefined = And(And(x < zero, ~whole), x > m.f(-math.inf))
    out = m.name(m.select(undefined, m.f(math.nan), signed))
    a = m.abs(x)
    unit = And(a.equal(one), m.abs(y).equal(m.f(math.inf)))
    return m.select(Or(Or(x.equal(one), y.equal(zero)), unit), one, out)


def rsqrt(m: MathBuilder, x: Expr) -> Expr:
    """Returns 1 / sqrt(x), at most 1.5 ULP off."""
    return m.f(1.0) / m.call("sqrt", x)


# The functions hypot and fmod, two functions of two arguments that need no logarithm.


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
    **EXPONENTIALS,
    **LOGARITHMS,
    "pow": Expansion(pow_float64, pow_float32),
    "rsqrt": Expansion(rsqrt),
    "hypot": Expansion(hypot, hypot_float32),
    "fmod": Expansion(fmod, fmod_float32, needs_fused=True),
}
