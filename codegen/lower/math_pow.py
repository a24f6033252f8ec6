"""Powers: x**y through log2 and exp2, float32 in float64, float64 in pairs of float64.

For float64 the logarithm is s = (m - 1) / (m + 1), log(m) = 2 s + 2/3 s**3 + s**5 q(s**2), each leading term a sum of two
numbers (about 2**-68 relative, after Tang's and SLEEF's double-double logarithms); the product with y keeps its error
term, which the exponential adds to its argument. The table of special values is C's (ISO C, F.10.4.4).
"""

from __future__ import annotations

import math

from ...tir.expr import And, Expr, Or
from .math_build import Maths
from .math_exp import EXP2_64, exp2
from .math_log import _finish, _split, log2

__all__ = ["pow_float32", "pow_float64"]

# (2 * atanh(s) - 2 s - 2/3 s**3) / s**5 over s**2 on |s| <= 0.1716
POW_LOG = (0.3999999999999999768, 0.2857142857143427254, 0.2222222221979543044, 0.1818181862791376661,
           0.1538457155950791832, 0.1333580926582463283, 0.1168418737728554012, 0.1191755511525753663)  # fmt: skip
LOG2_E_HIGH, LOG2_E_LOW = 1.4426950408889634, 2.0355273740931033e-17
TWO_THIRDS_HIGH, TWO_THIRDS_LOW = 0.6666666666666666, 3.700743415417188e-17


def pow_float32(m: Maths, x: Expr, y: Expr) -> Expr:
    """x**y of float32 values given as float64."""
    size = exp2(m, m.name(log2(m, m.name(m.abs(x))) * y))
    return _special(m, x, y, m.name(size))


def pow_float64(m: Maths, x: Expr, y: Expr) -> Expr:
    """x**y, at most 2 ULP off."""
    hi, lo = _log2_pair(m, m.name(m.abs(x)))
    p = m.name(hi * y)
    e = m.name(m.fma(hi, y, m.negative(p)) + lo * y)
    e = m.select(m.abs(p) < m.f(2000.0), e, m.f(0.0))  # also where p is infinite or NaN
    cut = m.clamp(p, -1077.0, 1026.0)
    n, exponent = m.whole(cut + m.f(m.magic))
    r = m.name((cut - n) + e)
    size = m.times_power(m.mad(m.poly(r, EXP2_64), r, m.f(1.0)), exponent)
    return _special(m, x, y, m.name(size))


def _log2_pair(m: Maths, x: Expr) -> tuple[Expr, Expr]:
    """log2(x) as a sum of two float64; the first is right alone for 0, infinity and NaN."""
    e, f, _ = _split(m, x)
    d, d_low = m.two_sum(f, m.f(2.0))
    s = m.name(f / d)
    s_low = m.name(m.fma(m.negative(s), d_low, m.fma(m.negative(s), d, f)) / d)
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
    hi, lo = m.quick_two_sum(total, m.name(low + g_low))
    return m.name(_finish(m, x, hi)), m.name(m.select(m.abs(lo) < m.f(1.0), lo, m.f(0.0)))


def _special(m: Maths, x: Expr, y: Expr, size: Expr) -> Expr:
    """The sign and the special values of x**y, given |x|**y."""
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
