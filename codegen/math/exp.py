"""The exponential function and its relatives: exp2, exp10, expm1, sinh, cosh, and tanh, sigmoid, erf.

Each reduces to 2**n * f(r) with |r| <= log(2)/2 (Cody and Waite's two-part constants; those of Cephes, exact products
without a fused operation), evaluates a minimax polynomial (Remez exchange, run for this file in 50 digits; the error
is below 2**-28 for float32, 2**-63 for float64) and multiplies by 2**n, by the instruction for that or in two steps, so
that denormal results and overflow come out right.
"""

from __future__ import annotations

from ...tir.expr import Expr
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


def exp(m: MathBuilder, x: Expr, halved: bool = False) -> Expr:
    """Returns e**x (half of it when ``halved``), at most 1 ULP off."""
    x = m.clamp(x, -104.0, 90.0) if m.single else m.clamp(x, -746.0, 711.0)
    r, n, exponent = _reduced(m, x)
    p = _power(m, r)
    return m.scaled(p * m.f(0.5) if halved else p, n, exponent)


def exp_plus_one(m: MathBuilder, x: Expr) -> Expr:
    """Returns e**x + 1 where e**x is a normal number."""
    r, exponent = _reduce(m, x)
    return m.mad(_power(m, r), m.power(exponent), m.f(1.0))


def exp2(m: MathBuilder, x: Expr) -> Expr:
    """Returns 2**x, at most 1 ULP off; exact for whole x."""
    if m.scales:  # this form is right for every x
        r = m.name(m.call("round_rest", x))
        return m.call("times_exp2", m.mad(m.poly(r, EXP2_32 if m.single else EXP2_64), r, m.f(1.0)), x - r)
    x = m.clamp(x, -152.0, 130.0) if m.single else m.clamp(x, -1077.0, 1026.0)
    n, exponent = m.whole(x + m.f(m.magic))
    r = m.name(x - n)
    p = m.mad(m.poly(r, EXP2_32 if m.single else EXP2_64), r, m.f(1.0))
    return m.scaled(p, n, exponent)


def exp10(m: MathBuilder, x: Expr) -> Expr:
    """Returns 10**x, at most 1 ULP off."""
    x = m.clamp(x, -46.0, 39.0) if m.single else m.clamp(x, -325.0, 309.0)
    n, exponent = m.whole(m.mad(x, m.f(LOG2_10), m.f(m.magic)))
    hi, lo = (3.0078125e-1, 2.48745663981195213739e-4) if m.single else (3.01025390625e-1, 4.60503898119521373889e-6)
    r = m.name(m.mad(n, m.f(-lo), m.mad(n, m.f(-hi), x)))
    p = m.mad(m.poly(r, EXP10_32 if m.single else EXP10_64), r, m.f(1.0))
    return m.scaled(p, n, exponent)


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
    they should."""
    t = m.name(exp(m, m.negative(m.abs(x))))
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


EXPANSIONS = {
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
