"""1 + erf(t) without cancellation, which gelu and the normal distribution are made of.

For negative t the sum of 1 and a number close to -1 has few digits left, or none. So beyond 0.4 it is computed as
erfc(|t|) = exp(-t**2) * h((|t| - 2) / (|t| + 2)) / (|t| + 2) (the transformation is that of M. Shepherd and J. Laframboise, "Chebyshev
approximation of (1 + 2x) exp(x**2) erfc x in 0 <= x < infinity", Mathematics of Computation 36, 1981), t**2 in two parts; for
positive t that is taken from 2. When t = x / sqrt(2), the exponent is made from x: rounding t would cost x**2 units of the last
place. The polynomials are minimax fits of the relative error made for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

import math
import struct
from typing import Any

from ...tir.dtype import bits_of, element_of, is_float
from ...tir.expr import Add, Call, Div, Expr, FloatImm, Mul, Sub
from .math_build import Maths
from .math_exp import exp
from .math_sigmoid import ERF_SMALL_32, ERF_SMALL_64

__all__ = ["erf_plus_one", "named_sums", "twice_normal"]

# erfc(t) * exp(t**2) * (t + 2) over (t - 2) / (t + 2) on 0.4 <= t <= 10.3: 2**-27.8, on 0.4 <= t <= 27.5: 2**-55.6
TAIL_32 = (1.021582708784832324, -0.6871606524565996257, 0.2794716694801269684, -0.0364432711744847423,
           -0.02150270797763305314, 0.006488552726375646119, 0.003038419408082032939, -0.000870910027200217115,
           -0.0005213687232004602097, 8.604055956224147647e-05)  # fmt: skip
TAIL_64 = (1.021582705242022969, -0.687160684413810078, 0.2794720925560572561, -0.03644223150695965827,
           -0.02151066188964506215, 0.006479185071487112508, 0.003090612062558329397, -0.0008372961425566662672,
           -0.0006630735286542039953, 3.437237845497793406e-05, 0.0001444706286337885549, 3.414222312912276845e-05,
           -2.16932093439391819e-05, -1.609132713507517616e-05, -1.14697334388134562e-06, 3.561458412179213987e-06,
           2.082240382092740547e-06, 1.399668432743346738e-07, -7.437243074293706105e-07, -4.467764738160368752e-07,
           2.020524895229793192e-07, 1.454898920627781933e-07, -5.832679381439041657e-08)  # fmt: skip


def erf_plus_one(m: Maths, t: Expr) -> Expr:
    """1 + erf(t)."""
    return _sum(m, t, t, 1.0)


def twice_normal(m: Maths, x: Expr) -> Expr:
    """1 + erf(x / sqrt(2)): twice the probability that a normal variable is at most x."""
    return _sum(m, m.name(x * m.f(math.sqrt(0.5))), x, 0.5)


def _sum(m: Maths, t: Expr, x: Expr, share: float) -> Expr:
    """1 + erf(t) where t**2 = share * x**2."""
    z = m.name(t * t)
    if m.single:
        near = m.mad(m.poly(z, ERF_SMALL_32), t, t)
    else:
        near = t * m.poly(z, ERF_SMALL_64)
    top = (10.3 if m.single else 27.5) / math.sqrt(share)
    square, rest = _square(m, m.clamp(m.abs(x), 0.0, top))
    a = m.clamp(m.abs(t), 0.0, 10.3 if m.single else 27.5)
    w = m.name(m.f(1.0) / (a + m.f(2.0)))
    u = m.name((a - m.f(2.0)) * w)
    h = m.name(m.poly(u, TAIL_32 if m.single else TAIL_64) * w)
    power = exp(m, square * m.f(-share))
    tail = m.name(power * m.mad(h, rest * m.f(-share), h))
    far = m.select(t > m.f(0.0), m.f(2.0) - tail, tail)
    return m.select(m.abs(t) < m.f(0.4), m.f(1.0) + near, far)


def _square(m: Maths, a: Expr) -> tuple[Expr, Expr]:
    """a**2 in two parts; without fused operations from halves of the number (Dekker)."""
    if m.fused:
        return m.two_product(a, a)
    high = m.name(m.from_bits(m.both(m.to_bits(a), -(1 << (12 if m.single else 27)))))
    low = m.name(a - high)
    p = m.name(a * a)
    return p, m.name(((high * high - p) + high * low * m.f(2.0)) + low * low)


def named_sums(n: Any) -> Expr | None:
    """``erf(t) + 1``, ``1 + erf(t)`` and ``1 - erf(t)`` as the calls that this file computes; None for all else."""
    if isinstance(n, Add):
        found = _with_one(n.a, n.b)
        found = _with_one(n.b, n.a) if found is None else found
        return None if found is None else _named(found.args[0])
    if isinstance(n, Sub):
        found = _with_one(n.a, n.b)
        return None if found is None else _named(found.args[0] * FloatImm(-1.0, found.dtype))
    return None


def _with_one(one: Expr, other: Expr) -> Call | None:
    if isinstance(one, FloatImm) and one.value == 1.0 and isinstance(other, Call) and other.op == "tir.erf":
        return other if is_float(other.dtype) else None
    return None


def _named(t: Expr) -> Call:
    """1 + erf(t), the quotient of x and sqrt(2) told apart."""
    for a, b in ((t.a, t.b), (t.b, t.a)) if isinstance(t, Mul) else ():
        if isinstance(b, FloatImm) and _rounded(b.value, t.dtype) == _rounded(math.sqrt(0.5), t.dtype):
            return Call("tir.twice_normal", (a,), t.dtype)
    if isinstance(t, Div) and isinstance(t.b, FloatImm):
        if _rounded(t.b.value, t.dtype) == _rounded(math.sqrt(2.0), t.dtype):
            return Call("tir.twice_normal", (t.a,), t.dtype)
    return Call("tir.erf_plus_one", (t,), t.dtype)


def _rounded(value: float, dtype: str) -> float:
    code = "d" if bits_of(element_of(dtype)) == 64 else "f"
    return float(struct.unpack(code, struct.pack(code, value))[0])
