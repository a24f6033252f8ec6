"""The functions tanh, sigmoid and erf. erf of float32, and tanh with fused multiply-adds, are in ``lookup_tables``.

tanh is x + x**3 * p(x**2) below 0.625 (float64: a quotient p / q, the constants of Cephes, S. Moshier), from there on
1 - 2 / (exp(2 |x|) + 1). sigmoid is the quotient of 1 or exp(-|x|) and 1 + exp(-|x|), the sum in two parts. erf
of float64 has a polynomial near zero and is 1 - exp(-x**2) * h((x - 2) / (x + 2)) beyond. The other polynomials are
minimax fits made for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

from ...tir.expr import Expr
from . import lookup_tables
from .exp import exp, exp_plus_one
from .math_builder import Expansion, MathBuilder

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
    "tanh": Expansion(tanh),
    "sigmoid": Expansion(sigmoid),
    "erf": Expansion(erf),
}
