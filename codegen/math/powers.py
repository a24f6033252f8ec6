"""Powers x**y by way of log2 and exp2 (float32 in float64, float64 in pairs of float64), rsqrt, hypot and fmod.

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
from .exp import EXP2_64
from .log import finish, split
from .math_builder import Expansion, MathBuilder

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
    "pow": Expansion(pow_float64, pow_float32),
    "rsqrt": Expansion(rsqrt),
    "hypot": Expansion(hypot, hypot_float32),
    "fmod": Expansion(fmod, fmod_float32, needs_fused=True),
}
