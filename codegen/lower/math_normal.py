"""1 + erf(t) without cancellation, which gelu and the normal distribution are made of.

For negative t the sum of 1 and a number close to -1 has few digits left, or none. So it is computed as erfc(|t|) =
exp(-t**2) * h((|t| - 2) / (|t| + 2)) / (|t| + 2) (the transformation is that of M. Shepherd and J. Laframboise, "Chebyshev
approximation of (1 + 2x) exp(x**2) erfc x in 0 <= x < infinity", Mathematics of Computation 36, 1981), t**2 in two parts, and for
positive t as 2 minus that. When t = x / sqrt(2), the exponent is made from x: rounding t would cost x**2 units of the last
place. Where the sum would be denormal it is 0: processors take long over denormal numbers. The polynomials are minimax fits of
the relative error made for this file (Remez exchange in 50 digits).
"""

from __future__ import annotations

import math
import struct
from typing import Any

from ...tir.dtype import bits_of, element_of, is_float
from ...tir.expr import Add, Call, Div, Expr, FloatImm, Mul, Sub
from .math_build import Maths
from .math_exp import exp_normal

__all__ = ["erf_plus_one", "named_sums", "twice_normal"]

# erfc(t) * exp(t**2) * (t + 2) over (t - 2) / (t + 2) on 0 <= t <= 9.2: 2**-28.3, on 0 <= t <= 26.6: 2**-55.9
TAIL_32 = (1.021582708037920011, -0.687160702986501741, 0.279471824491137507, -0.03644159170476256584,
           -0.02150635412366225452, 0.006474088840122497415, 0.003064605560754656478, -0.0008257153903834310848,
           -0.0005928992438023347281, 3.940856566168863889e-05, 6.560854355749259938e-05)  # fmt: skip
TAIL_64 = (1.021582705242022991, -0.6871606844138106559, 0.279472092556049101, -0.03644223150686843247,
           -0.02151066188913883138, 0.006479185067281136434, 0.003090612050843514776, -0.0008372960537823620132,
           -0.0006630734013229384891, 3.437134698677304212e-05, 0.0001444699754876149288, 3.414944134773529334e-05,
           -2.169249475370194304e-05, -1.612298931961438893e-05, -1.137794634512856219e-06, 3.648703811030507436e-06,
           2.029928504865189731e-06, -4.807031560452212176e-09, -6.157985566882249754e-07, -3.200995028731806099e-07,
           4.473242683024695433e-08, 1.120089424402961598e-07, 2.463442675133066568e-08, -1.492378197426956926e-08,
           -5.967083381938474999e-09)  # fmt: skip
# the sum is a normal number down to -x = 13.003 and 37.537, to -t = 9.194 and 26.543


def erf_plus_one(m: Maths, t: Expr) -> Expr:
    """1 + erf(t)."""
    return _sum(m, t, t, 1.0)


def twice_normal(m: Maths, x: Expr) -> Expr:
    """1 + erf(x / sqrt(2)): twice the probability that a normal variable is at most x."""
    return _sum(m, m.name(x * m.f(math.sqrt(0.5))), x, 0.5)


def _sum(m: Maths, t: Expr, x: Expr, share: float) -> Expr:
    """1 + erf(t) where t**2 = share * x**2."""
    most = {0.5: (13.0, 37.5), 1.0: (9.19, 26.5)}[share][0 if m.single else 1]
    far = m.name(m.abs(x) > m.f(most))
    a = m.name(m.select(far, m.f(most), m.abs(x)))
    square, rest = _square(m, a)
    w = m.name(m.f(1.0) / (m.abs(t) + m.f(2.0)))
    u = m.name((m.abs(t) - m.f(2.0)) * w)
    h = m.name(m.poly(u, TAIL_32 if m.single else TAIL_64) * w)
    power = exp_normal(m, m.name(square * m.f(-share)))
    tail = m.name(m.select(far, m.f(0.0), power * m.mad(h, rest * m.f(-share), h)))
    return m.select(t > m.f(0.0), m.f(2.0) - tail, tail)


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
