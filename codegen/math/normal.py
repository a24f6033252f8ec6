"""Computes 1 + erf(t) without cancellation, for gelu and the normal distribution.

For negative t the sum of 1 and a number close to -1 keeps few digits, or none. It is therefore computed as erfc(|t|),
and for positive t as 2 - erfc(|t|). With a = |t| * sqrt(2), which is |x| for gelu(x),

    erfc(|t|) = exp(-a**2 / 2) * v * p(v),   v = 2c / (a + c)

(the substitution is that of M. Shepherd and J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x**2) erfc x in 0
<= x < infinity", Mathematics of Computation 36, 1981). Rounding errors that would show in the result are kept as a
second number (T. Dekker, Numer. Math. 18, 1971): those of the square, of its remainder in the exponential, of p's last
step and of the product with v. The quotient v need not be exact: it belongs to an a' close to a, and q(a) = exp(a**2 /
2) * erfc(a / sqrt(2)) has the derivative a * q(a) - sqrt(2 / pi), so that one step of Taylor's series leads from a' to
a.

Where the sum would be denormal it is 0, because processors are slow on denormal numbers. The polynomials are minimax
fits of the relative error made for this file (Remez exchange in 40 digits).
"""

from __future__ import annotations

import math
import struct
from typing import Any

from ...tir.expr import Add, Call, Div, DType, Expr, FloatImm, Mul, Sub, structural_equal
from . import lookup_tables
from .exp_log import LOG2_E, minus_one
from .math_builder import Expansion, MathBuilder

# p over v - CENTRE, v = 2 * SHIFT / (a + SHIFT): 2**-26.7 on 0 <= a <= 13.02, 2**-55.5 on 0 <= a <= 37.6. The shifts have
# few bits, so that a + SHIFT can be taken apart exactly; the centres so that the first coefficient is nearly a float
SHIFT_32, CENTRE_32 = 3.5, 1.15625
TAIL_32 = (0.2402680963, 0.1922504464, 0.1063141843, 0.03574783744, 0.003215444851, -0.00261074479, -0.0006811345003,
           0.0002664852354, 7.692128562e-5, -3.339742031e-5)  # fmt: skip
SHIFT_64, CENTRE_64 = 6.0, 1.0
TAIL_64 = (0.1295586286488936985, 0.1168348382651442586, 0.0948281486357972983, 0.06898393096259832469,
           0.04466237430694137532, 0.02544670534408478444, 0.01252865261152685969, 0.005164219251231108979,
           0.00167163677288176616, 0.0003552675352315050089, 5.478341297734488665e-6, -0.00003022673642920334907,
           -0.00001079202636553265492, -1.792699199961793298e-7, 1.132822889659874568e-6, 2.999695504251942563e-7,
           -7.182199820297764267e-8, -5.176299651165661033e-8, 1.62112411519126303e-9, 7.211516338842002137e-9,
           3.195876500843948204e-12, -8.092909132131353242e-10, 1.230952286639358999e-10)  # fmt: skip
# log(2) in two parts; the first in two again whose products with whole numbers are exact without fused operations
LOG2_32, LOG2_32_SHORT, LOG2_32_LOW = 0.693147182464599609375, 0.693359375, -1.904654299957767879e-9
LOG2_64, LOG2_64_SHORT, LOG2_64_LOW = 0.693147180559945286, 6.93145751953125e-1, 2.3190468138462996e-17
# sqrt(2) rounded, and the rest of it
ROOT_32, ROOT_64 = (1.41421353816986083984, 2.42032342089579387e-8), (1.41421356237309514547, -9.66729331345291304e-17)
# the sum is a normal number down to x = -13.003 and -37.537, to t = -9.194 and -26.543
MOST_X, MOST_T = (13.0, 37.5), (9.19, 26.5)
# erf(x / sqrt(2)) / x by its Taylor series in x**2: 2**-62 on 0 <= |x| <= 0.25
NEAR = 0.25
NEAR_ERF = [math.sqrt(2.0 / math.pi) / ((-2.0) ** n * math.factorial(n) * (2 * n + 1)) for n in range(8)]


def erf_plus_one(m: MathBuilder, t: Expr) -> Expr:
    """Returns 1 + erf(t)."""
    far, size = _cut(m, t, MOST_T)
    root, rest = ROOT_32 if m.single else ROOT_64
    a, a_low = m.exact_product(size, m.f(root))
    return _sum(m, t, far, *_tail(m, a, m.name(m.mad(size, m.f(rest), a_low)), m.exact_product(size, m.negative(size))))


def twice_normal(m: MathBuilder, x: Expr) -> Expr:
    """Returns 1 + erf(x / sqrt(2)), which is twice the probability that a standard normal variable is at most x."""
    far, a = _cut(m, x, MOST_X)
    return _sum(m, x, far, *_tail(m, a, None, m.exact_product(a, m.name(a * m.f(-0.5)))))


def gelu(m: MathBuilder, x: Expr) -> Expr:
    """Returns x / 2 * (1 + erf(x / sqrt(2))), at most 2 ULP off; for float32 see lookup_tables.

    The exponential's power of two joins x / 2 exactly for negative x, so that the parts of erfc are added last; for
    positive x it is x / 2 + x / 2 * erf; without fused operations near 0 too, erf by its Taylor series. (``low`` is not
    negative at 0, which -0 needs.)
    """
    if m.single:
        return lookup_tables.gelu(m, x)
    far, a = _cut(m, x, MOST_X)
    exponent, high, low = _tail(m, a, None, m.exact_product(a, m.name(a * m.f(-0.5))))
    half = m.name(x * m.f(0.5))
    power = m.name(m.power(exponent))
    minus = m.negative(power)
    erf = m.mad(minus, low, m.mad(minus, high, m.f(1.0)))
    # 2**64 times as large until the parts are together: the small one would be denormal
    factor = m.name(x * m.f(2.0**63) * power)
    if m.fused:
        tail = m.fma(factor, high, factor * low) * m.f(2.0**-64)
    else:
        product, rest = m.exact_product(factor, high)
        tail = m.with_sign((product + (rest + factor * low)) * m.f(2.0**-64), x)
    # x * 0: -0, but NaN for minus infinity, as the formula has it
    whole = m.select(x > m.f(0.0), m.mad(half, erf, half), m.select(far, x * m.f(0.0), tail))
    if m.fused:
        return whole
    # erfc near 1 is made of two numbers, whose roundings (spared with fused operations) are as large as the result's
    near_erf = x * m.poly(m.name(x * x), NEAR_ERF)
    return m.select((a > m.f(0.0)) & (a < m.f(NEAR)), half + half * near_erf, whole)


def _cut(m: MathBuilder, x: Expr, most: tuple[float, float]) -> tuple[Expr, Expr]:
    """Returns (whether |x| is too large, |x| or the largest); NaN is not too large."""
    limit = m.f(most[0 if m.single else 1])
    far = m.name(m.abs(x) > limit)
    return far, m.name(m.select(far, limit, m.abs(x)))


def _sum(m: MathBuilder, x: Expr, far: Expr, exponent: Expr, high: Expr, low: Expr) -> Expr:
    tail = m.name(m.select(far, m.f(0.0), (high + low) * m.power(exponent)))
    return m.select(x > m.f(0.0), m.f(2.0) - tail, tail)


def _tail(m: MathBuilder, a: Expr, a_low: Expr | None, square: tuple[Expr, Expr]) -> tuple[Expr, Expr, Expr]:
    """Returns (exponent, high, low) with erfc((a + a_low) / sqrt(2)) = 2**n * (high + low). ``square`` is -a**2 / 2 in
    two parts."""
    # exp(-a**2 / 2) = 2**n * (1 + grown) * (1 + late)
    whole, exponent = m.whole(m.mad(square[0], m.f(LOG2_E), m.f(m.magic)))
    first, short, last = (LOG2_32, LOG2_32_SHORT, LOG2_32_LOW) if m.single else (LOG2_64, LOG2_64_SHORT, LOG2_64_LOW)
    n = m.name(whole)
    if m.fused:
        r = m.name(m.fma(n, m.f(-first), square[0]))
    else:
        r = m.name((square[0] - n * m.f(short)) - n * m.f(first - short))
    late = m.mad(n, m.f(-last), square[1])
    grown = m.name(minus_one(m, r))
    # v, and d = a + shift in two parts
    shift, centre = (SHIFT_32, CENTRE_32) if m.single else (SHIFT_64, CENTRE_64)
    d = m.name(a + m.f(shift))
    d_low = a - (d - m.f(shift))
    d_low = m.name(d_low if a_low is None else d_low + a_low)
    u = m.name(m.f(2.0 * shift) / d - m.f(centre))
    v = m.name(u + m.f(centre))  # exactly
    # p and v * p in two parts
    first_c, *others = TAIL_32 if m.single else TAIL_64
    second = m.name(m.poly(u, others[1:]))
    slope = m.name(m.mad(u, second, m.f(others[0])))
    if m.single:
        p = m.name(m.mad(u, slope, m.f(first_c)))
        p_low = m.added_product(u, slope, m.f(first_c) - p)
    else:  # the error of the slope counts too, because there are more roundings before it
        above, above_low = m.exact_product(u, slope)
        p, p_low = m.two_sum(m.f(first_c), above)
        p_low = p_low + m.mad(u, m.added_product(u, second, m.f(others[0]) - slope), above_low)
    high, rest = m.exact_product(v, p)
    low = m.mad(v, p_low, rest)
    # from the a' of v to a: (a - a') * (a * v * p - sqrt(2/pi)), where a - a' = (v * d - 2 * shift) / v
    off = m.mad(v, d_low, m.added_product(v, d, m.f(-2.0 * shift)))
    low = m.mad(off, m.mad(a, p, d * m.f(-math.sqrt(0.5 / math.pi) / shift)), low)
    low = m.name(m.mad(high, late, low))
    return exponent, high, m.name(m.mad(high, grown, m.mad(low, grown, low)))


def named_sums(n: Any) -> Expr | None:
    """Returns the replacement of a sum of 1 and erf, or of gelu, as a call; None for other nodes.

    The sums are ``erf(t) + 1``, ``1 + erf(t)`` and ``1 - erf(t)``.

    It is applied from the leaves upwards, because gelu is a product with the call that replaced its sum.
    """
    if isinstance(n, Mul):
        return _named_gelu(n)
    if isinstance(n, Add):
        found = _with_one(n.a, n.b)
        found = _with_one(n.b, n.a) if found is None else found
        return None if found is None else _named(found.args[0])
    if isinstance(n, Sub):
        found = _with_one(n.a, n.b)
        return None if found is None else _named(found.args[0] * FloatImm(-1.0, found.dtype))
    return None


def _named_gelu(n: Mul) -> Call | None:
    """Returns the call of gelu for x * 0.5 * twice_normal(x), with the factors in any order."""
    for one, others in ((n.a, n.b), (n.b, n.a)):
        if not isinstance(others, Mul):
            continue
        factors = (one, others.a, others.b)
        sums = [e for e in factors if isinstance(e, Call) and e.op == "tir.twice_normal"]
        halves = [e for e in factors if isinstance(e, FloatImm) and e.value == 0.5]
        if len(sums) == 1 and len(halves) == 1:
            (x,) = [e for e in factors if e is not sums[0] and e is not halves[0]]
            if structural_equal(x, sums[0].args[0]):
                return Call("tir.gelu", (x,), n.dtype)
    return None


def _with_one(one: Expr, other: Expr) -> Call | None:
    if isinstance(one, FloatImm) and one.value == 1.0 and isinstance(other, Call) and other.op == "tir.erf":
        return other if other.dtype.is_float else None
    return None


def _named(t: Expr) -> Call:
    """Returns the call for 1 + erf(t), which differs when t is a quotient of x and sqrt(2)."""
    for a, b in ((t.a, t.b), (t.b, t.a)) if isinstance(t, Mul) else ():
        if isinstance(b, FloatImm) and _rounded(b.value, t.dtype) == _rounded(math.sqrt(0.5), t.dtype):
            return Call("tir.twice_normal", (a,), t.dtype)
    if isinstance(t, Div) and isinstance(t.b, FloatImm):
        if _rounded(t.b.value, t.dtype) == _rounded(math.sqrt(2.0), t.dtype):
            return Call("tir.twice_normal", (t.a,), t.dtype)
    return Call("tir.erf_plus_one", (t,), t.dtype)


def _rounded(value: float, dtype: DType) -> float:
    code = "d" if dtype.element.bits == 64 else "f"
    return float(struct.unpack(code, struct.pack(code, value))[0])


EXPANSIONS = {
    "erf_plus_one": Expansion(erf_plus_one),
    "gelu": Expansion(gelu),
    "twice_normal": Expansion(twice_normal),
}
