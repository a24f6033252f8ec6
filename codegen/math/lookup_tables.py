"""The functions gelu, erf and tanh of float32, as polynomials on sixteen intervals whose coefficients are looked up.

The leading bits of a + offset determine the interval of a = |x|, so that intervals grow with a; AVX-512 looks up
sixteen coefficients by one instruction. A polynomial of degree 5 in a - centre has small rounding errors: the
difference is exact, the first coefficient is nearly exact (benchmarks/math_fit.py, which made the tables, explains
how), and the influence of the others decreases with every power.

gelu(x) = max(x, 0) - a * Phi(-a), and the product is put together as

    a * Phi(-a) = (min(a, bend) / 2 * 2**n) * (1 + q) * (1 + s),   1 + q = 2**(-r / STEP),   r = a**2 + n * STEP

where s is looked up. Only the small number w = q + s + q * s is rounded on the way, and the last step is one fused
operation, max(x, 0) - S - S * w. (Without fused operations, S + S * w is computed in two parts.) STEP is close to 2 *
log(2) and has so few bits that r is rounded once. The quotient of exp(-a**2 / 2) and 2**(-a**2 / STEP) is smooth, and s
includes it. Up to ``bend`` the factor a is kept separate, so that gelu is right near zero; beyond, a * exp(a**2 / 2) *
Phi(-a) is nearly constant and s stays small.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...tir.expr import Expr
from .math_builder import MathBuilder


@dataclass(frozen=True)
class PiecewisePolynomial:
    """The sixteen intervals of 0 <= a <= limit, on each of which a polynomial holds. The number of an interval is the
    exponent and ``bits`` further bits of a + offset, modulo 16.

    With ``apart``, a itself is added to the value of the first interval, whose table then holds only the difference.
    """

    offset: float
    bits: int
    limit: float
    apart: bool = False

    def number(self, a: float) -> int:
        """Return the number of the interval that holds ``a``."""
        return self._leading(a) & 15

    def intervals(self) -> Iterator[tuple[float, float]]:
        """Return the ends of each interval, starting from zero."""
        low = 0.0
        for leading in range(self._leading(0.0) + 1, self._leading(self.limit) + 1):
            (edge,) = struct.unpack("f", struct.pack("I", leading << (23 - self.bits)))
            yield low, edge - self.offset
            low = edge - self.offset
        yield low, self.limit

    def _leading(self, a: float) -> int:
        (pattern,) = struct.unpack("I", struct.pack("f", a + self.offset))
        return int(pattern) >> (23 - self.bits)


STEP = 355 / 256
BEND = 0.5625 - 2.0**-24  # the first float32 of an interval
GELU = PiecewisePolynomial(0.9375, 2, 13.0)
ERF = PiecewisePolynomial(1.375, 3, 4.0, apart=True)
TANH = PiecewisePolynomial(0.625, 2, 9.2)
# 2**(-r / STEP) - 1 over r on |r| <= STEP / 2: 2**-28.8
POWER = (-0.499847, 0.12492349, -0.020813935, 0.0026010557, -0.0002612653, 2.1596932e-05)
# centres, then the coefficients from the constant on; the largest relative error beside the name
GELU_TABLE: Sequence[Sequence[float]] = (  # 2**-25.1
    (1.30775, 1.81225, 2.31025, 2.8165, 3.5805, 4.573, 5.552, 6.566, 8.0785, 10.0345, 12.014781, 0.03190625,
     0.186375, 0.4355, 0.69025, 0.93775),
    (0.04374427, 0.1636326, 0.23527685, 0.28176266, 0.32436395, 0.35425073, 0.3698492, 0.3784959, 0.38376853,
     0.38329613, 0.37805423, -0.024957163, -0.13292465, -0.2708518, -0.23697309, -0.09862734),
    (0.30815333, 0.18092512, 0.11329332, 0.073819764, 0.041468177, 0.021332974, 0.011565752, 0.0059996634,
     0.001465929, -0.0016366922, -0.0035303817, -0.766784, -0.6363286, -0.48041454, 0.65293205, 0.47622803),
    (-0.17285389, -0.0898664, -0.05041824, -0.029725412, -0.014728329, -0.0068055615, -0.0036008784, -0.0020737618,
     -0.0010776892, -0.00058921124, -0.00039403557, 0.47514713, 0.3741463, 0.25993645, -0.43018508, -0.29375884),
    (0.079076044, 0.036685366, 0.018481867, 0.00981247, 0.004182639, 0.001608277, 0.0007142526, 0.00034290872,
     0.00013412829, 4.914214e-05, 2.1292246e-05, -0.25036156, -0.18877131, -0.12232706, 0.22761072, 0.14651598),
    (-0.032046724, -0.013384004, -0.0061062374, -0.0029456858, -0.0011142688, -0.00036361502, -0.00013972993,
     -5.860675e-05, -1.9581195e-05, -5.8096452e-06, -2.0637551e-06, 0.11691892, 0.085015185, 0.051818594,
     -0.10437988, -0.06368247),
    (0.011551558, 0.004411933, 0.0018285357, 0.0008170183, 0.0002783157, 7.702538e-05, 2.5267085e-05, 9.442779e-06,
     2.705662e-06, 6.448459e-07, 1.9724715e-07, -0.09706687, -0.034458414, -0.01991598, 0.043032665, 0.024797281),
)  # fmt: skip
ERF_TABLE: Sequence[Sequence[float]] = (  # 2**-26.7
    (0.751, 1.00125, 1.25275, 1.50225, 1.75025, 2.003375, 2.253875, 2.497, 2.86875, 3.37725, 3.82, 0.0, 0.188,
     0.3106875, 0.4376875, 0.5609375),
    (0.7117981, 0.84321904, 0.92354834, 0.96637183, 0.98668486, 0.99539155, 0.9985647, 0.99958646, 0.9999503,
     0.9999982, 0.99999994, 0.0, 0.20966232, 0.3396127, 0.46407282, 0.57238847),
    (0.6419668, 0.41407037, 0.2348988, 0.11812962, 0.05272883, 0.020389618, 0.00701875, 0.0022111852, 0.00030082843,
     1.256075e-05, 5.189809e-07, 0.12837917, 1.0891943, 1.0245521, 0.9316593, 0.8237661),
    (-0.48211372, -0.41458878, -0.29427242, -0.17746261, -0.09228974, -0.040847845, -0.015819134, -0.0055206087,
     -0.00086048915, -4.207408e-05, -3.3659908e-06, 3.1122266e-07, -0.20476812, -0.31831512, -0.40777543,
     -0.46208107),
    (0.027376419, 0.13870782, 0.16746874, 0.13835497, 0.09011144, 0.047760252, 0.021429604, 0.008454043,
     0.0015505293, 9.0993446e-05, 4.2654633e-06, -0.3761426, -0.33740723, -0.27562633, -0.19156164, -0.10181345),
    (0.14981617, 0.06887412, -0.0063085794, -0.04432897, -0.04789125, -0.03423089, -0.018937275, -0.008803866,
     -0.0020448964, -0.0001541333, 3.021479e-05, 0.00029347755, 0.09974834, 0.14863653, 0.17761727, 0.18235601),
    (-0.052356724, -0.068564825, -0.04706636, -0.0150095085, 0.006421654, 0.012989127, 0.010637301, 0.0061852313,
     0.0017790442, 0.00017340912, 4.7626658e-05, 0.11095498, 0.09493991, 0.07185039, 0.025536165, -0.006234816),
)  # fmt: skip
TANH_TABLE: Sequence[Sequence[float]] = (  # 2**-24.7
    (1.61575, 2.13175, 2.629, 3.11675, 3.8925, 4.889, 5.867, 6.859, 8.318525, 0.0, 0.1851875, 0.31125, 0.50225,
     0.75375, 0.9965, 1.2545),
    (0.92400527, 0.9722447, 0.9896425, 0.99608254, 0.99916846, 0.99988663, 0.99998397, 0.9999978, 0.9999999, 0.0,
     0.18309918, 0.30157384, 0.46388483, 0.63738084, 0.76012033, 0.8495407),
    (0.14621435, 0.054740276, 0.020607727, 0.007819553, 0.0016624809, 0.00022673313, 3.2066142e-05, 4.4096805e-06,
     2.3871166e-07, 1.0, 0.9664747, 0.9090532, 0.78481096, 0.5937457, 0.4222171, 0.27828056),
    (-0.13511229, -0.05321975, -0.02039289, -0.0077882684, -0.0016583942, -0.00022634037, -3.2015178e-05,
     -4.387365e-06, -2.337312e-07, 3.1188853e-07, -0.17695995, -0.2741465, -0.36405522, -0.37844208, -0.32093856,
     -0.23641273),
    (0.07609737, 0.033497076, 0.013312385, 0.0051524867, 0.001101927, 0.00015065444, 2.1363076e-05, 2.9373743e-06,
     1.5404929e-07, -0.33335564, -0.2897777, -0.22033541, -0.09275259, 0.04328322, 0.10320476, 0.10808959),
    (-0.02487694, -0.014879119, -0.006436986, -0.0025638097, -0.00057808845, -7.929496e-05, -1.1227317e-05,
     -1.6073685e-06, -9.325006e-08, 0.0004727998, 0.11160794, 0.15751864, 0.16321391, 0.09854181, 0.028976407,
     -0.012666326),
    (0.0010972545, 0.004450296, 0.0023596615, 0.00097622356, 0.00023710493, 3.252443e-05, 4.410098e-06,
     6.158919e-07, 3.9474944e-08, 0.12998603, 0.10148285, 0.044901956, -0.025666185, -0.06301303, -0.04627761,
     -0.019418808),
)  # fmt: skip


def gelu(m: MathBuilder, x: Expr) -> Expr:
    """Returns x / 2 * (1 + erf(x / sqrt(2))), at most 2 ULP off. It is -0 below -13, since processors are slow on
    denormal numbers."""
    a = m.name(m.abs(x))
    near = m.name(a <= m.f(GELU.limit))
    t = m.name(m.mad(a * a, m.f(-1 / STEP), m.f(m.magic)))
    if m.fused:
        r = m.name(m.fma(a, a, m.fma(t, m.f(STEP), m.f(-m.magic * STEP))))
    else:
        high, low = m.halves(a)
        r = m.name((high * high + (t - m.f(m.magic)) * m.f(STEP)) + low * (a + high))
    q = m.name(m.poly(r, POWER) * r)
    s = m.name(_piece(m, GELU, GELU_TABLE, a))
    w = m.mad(q, s, q + s)
    b = m.name(m.select(a > m.f(BEND), m.f(BEND), a))
    # x * 0: -0, but NaN for minus infinity, as the formula has it
    positive = m.select(x < m.f(0.0), x * m.f(0.0), x)
    if m.scales:
        size = m.call("times_exp2", b, t - m.f(m.magic + 1))
    else:
        power = m.power(m.shl(m.to_bits(t), m.mantissa), -1)
        if not m.fused:  # b * (1 + w) rounded once, as long as no operand is small
            product, rest = m.exact_product(b, m.name(w))
            total, lost = m.two_sum(b, product)
            return positive - m.select(near, (total + (lost + rest)) * power, m.f(0.0))
        size = b * power
    size = m.name(m.select(near, size, m.f(0.0)))
    return m.mad(m.negative(size), m.select(near, w, m.f(0.0)), positive - size)


def erf(m: MathBuilder, x: Expr) -> Expr:
    """Returns the error function, at most 1.5 ULP off."""
    return _odd(m, ERF, ERF_TABLE, x)


def tanh(m: MathBuilder, x: Expr) -> Expr:
    """Returns the hyperbolic tangent, at most 1.5 ULP off."""
    return _odd(m, TANH, TANH_TABLE, x)


def _odd(m: MathBuilder, pieces: PiecewisePolynomial, table: Sequence[Sequence[float]], x: Expr) -> Expr:
    limit = m.f(pieces.limit)
    a = m.name(m.select(m.abs(x) > limit, limit, m.abs(x)))
    return m.with_sign(_piece(m, pieces, table, a), x)


def _piece(m: MathBuilder, pieces: PiecewisePolynomial, table: Sequence[Sequence[float]], a: Expr) -> Expr:
    """Returns the polynomial of the interval that holds ``a``, evaluated there."""
    place = m.name(a + m.f(pieces.offset))
    number = m.name(m.shr(m.to_bits(place), m.mantissa - pieces.bits))
    centre, constant, *others = [m.lookup(number, row) for row in table]
    d = m.name(a - centre)
    slope = others[-1]
    for c in reversed(others[:-1]):
        slope = m.mad(slope, d, c)
    if pieces.apart:
        _, end = next(pieces.intervals())
        constant = m.select(place < m.f(end + pieces.offset), a, constant)
    return m.mad(slope, d, constant)
