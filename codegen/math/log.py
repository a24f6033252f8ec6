"""Logarithms (log, log2, log10, log1p) and the inverse hyperbolic functions, which use them.

x = 2**e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); float32 evaluates log(1 + f) as f - f**2/2 + f**3 * q(f), as
Cephes does, float64 through s = f / (2 + f) as fdlibm does (its constants for log(2) and log2 and log10 in two parts
as well); the polynomials are minimax fits made for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

import math

from ...tir.expr import Expr
from .math_builder import Expansion, MathBuilder

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


EXPANSIONS = {
    "log": Expansion(log),
    "log2": Expansion(log2),
    "log10": Expansion(log10),
    "log1p": Expansion(log1p),
    "asinh": Expansion(asinh, asinh),
    "acosh": Expansion(acosh, acosh),
    "atanh": Expansion(atanh, atanh),
}
