"""A builder for the polynomial expansions: constants of a type, named values, bit operations, powers of two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...tir.expr import Call, Cast, DType, Expr, Let, Select, Var, const
from ...tir.walk import vars_in


class MathBuilder:
    """Writes straight-line float code of one type (float32 or float64, any number of lanes).

    Values that are used more than once are named by :meth:`name`; :meth:`finish` puts the names around the result.
    ``fused`` says that the target multiplies and adds in one rounding; polynomials then use ``tir.fma``. What relies
    on exact products asks for :meth:`fma`, which is right everywhere and slow where the instruction is missing.
    ``scales``: it has instructions for ``tir.times_exp2`` and ``tir.round_rest``.
    """

    def __init__(self, dtype: DType, fused: bool = True, scales: bool = False) -> None:
        self.dtype = dtype
        self.fused = fused
        self.scales = scales
        self.bits = dtype.bits
        self.lanes = dtype.lanes
        self.single = self.bits == 32
        self.int_dtype = DType(f"int{self.bits}").with_lanes(self.lanes)
        self.mantissa = 23 if self.single else 52
        self.one_bits = 0x3F800000 if self.single else 0x3FF0000000000000
        # magic + n, for a small whole n, holds n in its low bits; adding magic rounds half to even
        self.magic = 12582912.0 if self.single else 6755399441055744.0
        self.magic_bits = 0x4B400000 if self.single else 0x4338000000000000
        self._names: list[tuple[Var, Expr]] = []

    def f(self, value: float) -> Expr:
        """Return a float constant."""
        return const(float(value), self.dtype)

    def i(self, value: int) -> Expr:
        """Return an integer constant as wide as the float."""
        return const(value, self.int_dtype)

    def name(self, value: Expr) -> Expr:
        """Return a variable for ``value``, which is computed once."""
        var = Var(f"t{len(self._names)}", value.dtype)
        self._names.append((var, value))
        return var

    def finish(self, result: Expr) -> Expr:
        """Return ``result`` inside bindings of the names that it uses."""
        used = vars_in(result)
        for var, value in reversed(self._names):
            if var in used:
                used = used | vars_in(value)
                result = Let(var, value, result)
        self._names = []
        return result

    def mad(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Return a * b + c, fused where the target can."""
        return self.fma(a, b, c) if self.fused else a * b + c

    def fma(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Return a * b + c, rounded once."""
        return Call("tir.fma", (a, b, c), self.dtype)

    def poly(self, x: Expr, coefficients: Sequence[float]) -> Expr:
        """Return c0 + c1 * x + c2 * x**2 + … by Horner's rule."""
        out = self.f(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            out = self.mad(out, x, self.f(c))
        return out

    def call(self, op: str, *args: Expr) -> Expr:
        """Return a call of ``tir.<op>``, one of the operations that machines have."""
        return Call(f"tir.{op}", args, self.dtype)

    def abs(self, x: Expr) -> Expr:
        """Return |x|."""
        return self.call("fabs", x)

    def with_sign(self, x: Expr, sign: Expr) -> Expr:
        """Return |x| with the sign of ``sign``."""
        return self.call("copysign", x, sign)

    def negative(self, x: Expr) -> Expr:
        """Return -x."""
        return x * self.f(-1.0)

    def select(self, condition: Expr, a: Expr, b: Expr) -> Expr:
        """Return a where the condition holds, else b."""
        return Select(condition, a, b)

    def clamp(self, x: Expr, lo: float, hi: float) -> Expr:
        """Return x limited to [lo, hi]; NaN stays NaN (an unordered comparison is false)."""
        x = self.name(self.select(x > self.f(hi), self.f(hi), x))
        return self.name(self.select(x < self.f(lo), self.f(lo), x))

    def to_bits(self, x: Expr) -> Expr:
        """Return the bits of a float."""
        return Call("tir.reinterpret", (x,), self.int_dtype)

    def from_bits(self, x: Expr) -> Expr:
        """Return the float with these bits."""
        return Call("tir.reinterpret", (x,), self.dtype)

    def shl(self, x: Expr, by: int) -> Expr:
        """Return x << by."""
        return Call("tir.shift_left", (x, self.i(by)), self.int_dtype)

    def shr(self, x: Expr, by: int) -> Expr:
        """Return x >> by, keeping the sign."""
        return Call("tir.shift_right", (x, self.i(by)), self.int_dtype)

    def both(self, x: Expr, mask: int) -> Expr:
        """Return x & mask."""
        return Call("tir.bitwise_and", (x, self.i(mask)), self.int_dtype)

    def cast(self, dtype: DType, x: Expr) -> Expr:
        """Return x as another element type."""
        return Cast(dtype.with_lanes(x.dtype.lanes), x)

    def lookup(self, number: Expr, values: Sequence[float]) -> Expr:
        """Return the constant with this number, modulo the number of constants."""
        return Call("tir.lookup", (number, *[const(v, self.dtype.with_lanes(1)) for v in values]), self.dtype)

    # -- powers of two -----------------------------------------------------------------------------------------------

    def whole(self, scaled: Expr) -> tuple[Expr, Expr]:
        """Return (n, n << mantissa bits), where n is the whole number nearest to ``scaled - magic``.

        ``scaled`` has the magic number added. NaN gives NaN and some integer.
        """
        t = self.name(scaled)
        return self.name(t - self.f(self.magic)), self.name(self.shl(self.to_bits(t), self.mantissa))

    def times_power(self, x: Expr, exponent: Expr) -> Expr:
        """Return x * 2**n from n << mantissa bits, in two steps: right for results that are denormal or overflow.

        n may lie in twice the range of the exponent.
        """
        half = self.name(self.both(self.shr(exponent, 1), -(1 << self.mantissa)))
        first = self.from_bits(half + self.i(self.one_bits))
        second = self.from_bits((exponent - half) + self.i(self.one_bits))
        return x * first * second

    def scaled(self, x: Expr, n: Expr, exponent: Expr) -> Expr:
        """Return x * 2**n from both forms of n that :meth:`whole` gives, by the machine's instruction or
        :meth:`times_power`."""
        return self.call("times_exp2", x, n) if self.scales else self.times_power(x, exponent)

    def power(self, exponent: Expr, shift: int = 0) -> Expr:
        """Return 2**(n + shift) from n << mantissa bits; the result must be a normal number."""
        return self.from_bits(exponent + self.i(self.one_bits + (shift << self.mantissa)))

    # -- two numbers as one ------------------------------------------------------------------------------------------

    def two_sum(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Return (s, e) with s + e = a + b exactly (Knuth); both operands must be names already."""
        s = self.name(a + b)
        t = self.name(s - a)
        return s, self.name((a - (s - t)) + (b - t))

    def quick_two_sum(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Return the same as :meth:`two_sum`, for |a| >= |b| (Dekker)."""
        s = self.name(a + b)
        return s, self.name(b - (s - a))

    def two_product(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Return (p, e) with p + e = a * b exactly."""
        p = self.name(a * b)
        return p, self.name(self.fma(a, b, self.negative(p)))

    def exact_product(self, a: Expr, b: Expr) -> tuple[Expr, Expr]:
        """Return the same as :meth:`two_product` on every target. Without fused operations it multiplies halves of the
        numbers (Dekker), which must not be small."""
        if self.fused:
            return self.two_product(a, b)
        (a_high, a_low), (b_high, b_low) = self.halves(a), self.halves(b)
        p = self.name(a * b)
        return p, self.name((((a_high * b_high - p) + a_high * b_low) + a_low * b_high) + a_low * b_low)

    def added_product(self, a: Expr, b: Expr, c: Expr) -> Expr:
        """Return a * b + c, for sums that nearly vanish."""
        if self.fused:
            return self.fma(a, b, c)
        p, rest = self.exact_product(a, b)
        return (p + c) + rest

    def halves(self, a: Expr) -> tuple[Expr, Expr]:
        """Return (high, low) with high + low = a. Each has half of the bits, so that their products are exact."""
        high = self.name(self.from_bits(self.both(self.to_bits(a), -(1 << (12 if self.single else 27)))))
        return high, self.name(a - high)

    def quotient(self, a: Expr, a_low: Expr, b: Expr, b_low: Expr) -> Expr:
        """Return (a + a_low) / (b + b_low), where the low parts are small. It takes one division, corrected by its
        remainder where the target has fused operations."""
        if not self.fused:
            return a / b
        inverse = self.name(self.f(1.0) / b)
        q = self.name(a * inverse)
        rest = self.fma(self.negative(q), b, a) + self.fma(self.negative(q), b_low, a_low)
        return self.fma(rest, inverse, q)

    # -- rare cases --------------------------------------------------------------------------------------------------

    def either(self, usual: Expr, near: Expr, far: Expr) -> Expr:
        """Return ``near`` where the condition holds, else ``far``, which is evaluated only when some lane needs it."""
        return Call("tir.if_then_else", (Call("tir.likely", (usual,), usual.dtype), near, far), near.dtype)


@dataclass(frozen=True, slots=True)
class Expansion:
    """Represents what a call of a function of float32 or float64 becomes.

    ``rule`` takes a builder and the arguments, and is for both types, unless ``of_float32`` is for float32 values that are
    held in float64. Where the target has no fused operations, a float64 function that ``needs_fused`` stays a call.
    """

    rule: Callable[..., Expr]
    of_float32: Callable[..., Expr] | None = None
    needs_fused: bool = False
