"""This module writes index expressions as sums of digits, and sums of digits as one digit of a new number.

It is the arithmetic of :mod:`.iter_map`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Mul, Range, Sub, Var, const, same, uses_var
from ..analyzer import Analyzer
from .mixed_radix import IterMark, IterSplit, IterSum, divides_evenly, times


class NotAffine(Exception):
    """Raised with the reason why an expression is not quasi-affine."""


@dataclass(slots=True)
class Constraint:
    """States that the digits of ``total`` form a number below ``bound``; ``mark`` is that number once it has one."""

    condition: Expr
    total: IterSum
    bound: Expr
    mark: IterMark | None = None


class DigitSums:
    """Holds the numbers of which digits are taken: loops, sums of digits, and the numbers of active predicates."""

    def __init__(self, an: Analyzer, loops: Mapping[Var, Range], keep_unit: bool) -> None:
        self.an = an
        self.loops = loops
        self.keep_unit = keep_unit
        self.marks: dict[Var, IterMark] = {v: IterMark(v, r.extent) for v, r in loops.items()}
        self.fused: list[IterMark] = []
        self.active: list[Constraint] = []
        self.equal = an.can_prove_equal

    def divides(self, c: Expr, e: Expr) -> bool:
        """Return whether ``e`` is known to be a multiple of ``c``."""
        return divides_evenly(self.an, c, e)

    def times(self, a: Expr, b: Expr) -> Expr:
        """Return the simplified product."""
        return times(self.an, a, b)

    def _free(self, e: Expr) -> bool:
        return not uses_var(e, self.loops.__contains__)

    # -- parsing -----------------------------------------------------------------------------------------------------

    def parse(self, e: Expr) -> IterSum:
        """Return ``e`` as a sum of digits; raise NotAffine with the reason when it is not one."""
        if type(e) is Var and e in self.loops:
            mark, start = self.marks[e], self.loops[e].min
            if not self.keep_unit and self.equal(mark.extent, 1):
                return IterSum((), start)
            one = const(1, e.dtype)
            return IterSum((IterSplit(mark, one, mark.extent, one),), start)
        if self._free(e):
            return IterSum((), e)
        if isinstance(e, Add):
            return self._plus(self.parse(e.a), self.parse(e.b), const(1, e.dtype))
        if isinstance(e, Sub):
            return self._plus(self.parse(e.a), self.parse(e.b), const(-1, e.dtype))
        if isinstance(e, Mul):
            if self._free(e.b):
                return self._scaled(self.parse(e.a), e.b)
            if self._free(e.a):
                return self._scaled(self.parse(e.b), e.a)
            raise NotAffine(f"{e} multiplies loops")
        if isinstance(e, (FloorDiv, FloorMod)):
            if not self._free(e.b):
                raise NotAffine(f"{e} divides by a loop")
            return self._divided(self.parse(e.a), e)
        if isinstance(e, Cast) and self.an.keeps_value(e):
            return self.parse(e.value)
        raise NotAffine(f"{e} is not a sum, product, quotient or remainder")

    def _plus(self, a: IterSum, b: IterSum, sign: Expr) -> IterSum:
        args = list(a.args)
        for split in b.args:
            scale = self.times(split.scale, sign)
            for i, old in enumerate(args):
                if (
                    old.mark is split.mark
                    and same(old.lower_factor, split.lower_factor)
                    and same(old.extent, split.extent)
                ):
                    total = self.an.simplify(old.scale + scale)
                    args[i] = IterSplit(old.mark, old.lower_factor, old.extent, total)
                    break
            else:
                args.append(IterSplit(split.mark, split.lower_factor, split.extent, scale))
        kept = tuple([s for s in args if not self.equal(s.scale, 0)])
        if type(b.base) is IntImm and b.base.value == 0 and a.base.dtype is b.base.dtype:
            return IterSum(kept, self.an.simplify(a.base))
        return IterSum(kept, self.an.simplify(a.base + b.base * sign))

    def _scaled(self, a: IterSum, k: Expr) -> IterSum:
        args = tuple([IterSplit(s.mark, s.lower_factor, s.extent, self.times(s.scale, k)) for s in a.args])
        return IterSum(args, self.times(a.base, k))

    def _divided(self, a: IterSum, e: FloorDiv | FloorMod) -> IterSum:
        if isinstance(e.b, IntImm) and e.b.value == 0:
            raise NotAffine(f"{e} divides by zero")
        if not a.args:
            return IterSum((), self.an.simplify(type(e)(a.base, e.b)))
        digit = self.single(a)
        if digit is None:
            raise NotAffine(f"{e.a} has digits that leave gaps or overlap")
        c, base, quotient = e.b, a.base, isinstance(e, FloorDiv)
        zero = const(0, e.dtype)
        if not self.divides(c, base):
            raise NotAffine(f"the constant part of {e.a} is not a multiple of {c}")
        new_base = self.an.simplify(base // c) if quotient else zero
        if self.divides(c, digit.scale):  # the whole digit is a multiple of c
            if not quotient:
                return IterSum((), zero)
            scale = self.an.simplify(digit.scale // c)
            return IterSum((IterSplit(digit.mark, digit.lower_factor, digit.extent, scale),), new_base)
        if not self.divides(digit.scale, c):
            raise NotAffine(f"{digit.scale} and {c} do not divide each other in {e}")
        step = self.an.simplify(c // digit.scale)
        if self.an.can_prove(digit.extent <= step):
            return IterSum((), new_base) if quotient else IterSum((digit,), zero)
        if quotient:
            extent = self.an.simplify((digit.extent + step - 1) // step)
            split = IterSplit(digit.mark, self.times(digit.lower_factor, step), extent, const(1, e.dtype))
        else:
            split = IterSplit(digit.mark, digit.lower_factor, step, digit.scale)
        return IterSum((split,), new_base)

    # -- putting digits together ---------------------------------------------------------------------------------------

    def single(self, a: IterSum) -> IterSplit | None:
        """Return the digits of ``a`` as one digit of a new mark; None when they leave gaps or overlap."""
        args = self.matched(self._combined(list(a.args)))
        if len(args) == 1:
            return args[0]
        args = args[::-1]  # among digits of the same scale those of one iteration come first, as inner loops
        for start in args:
            chain, rest = [start], [s for s in args if s is not start]
            while rest:
                top = chain[-1]
                wanted = self.times(top.scale, top.extent)
                follower = next((s for s in rest if self.equal(s.scale, wanted)), None)
                if follower is None:
                    break
                chain.append(follower)
                rest = [s for s in rest if s is not follower]
            if not rest:
                mark = self._mark(chain, start.scale)
                return IterSplit(mark, const(1, start.scale.dtype), mark.extent, start.scale)
        return None

    def _combined(self, args: list[IterSplit]) -> list[IterSplit]:
        """Return ``args`` with adjacent digits of one number as one digit. For example, ``f // 4 * 4 + f % 4`` is
        ``f``."""
        for high in args:
            for low in args:
                if (
                    high is not low
                    and high.mark is low.mark
                    and self.equal(high.lower_factor, self.times(low.lower_factor, low.extent))
                    and self.equal(high.scale, self.times(low.scale, low.extent))
                ):
                    extent, whole = self.times(low.extent, high.extent), low.mark.extent
                    if self.an.can_prove(self.times(low.lower_factor, extent) > whole):  # to its end
                        extent = self.an.simplify((whole + low.lower_factor - 1) // low.lower_factor)
                    both = IterSplit(low.mark, low.lower_factor, extent, low.scale)
                    return self._combined([both if s is high else s for s in args if s is not low])
        return args

    def _mark(self, chain: list[IterSplit], unit: Expr) -> IterMark:
        one = const(1, unit.dtype)
        digits, extent = [], one
        for s in chain:
            scale = s.scale if self.equal(unit, 1) else self.an.simplify(s.scale // unit)
            digits.append(IterSplit(s.mark, s.lower_factor, s.extent, scale))
            extent = self.times(extent, s.extent)
        for mark in self.fused:
            if (
                isinstance(mark.source, IterSum)
                and same_digits(mark.source.args, digits)
                and self.equal(mark.extent, extent)
            ):
                return mark
        mark = IterMark(IterSum(tuple(digits), const(0, unit.dtype)), extent)
        self.fused.append(mark)
        return mark

    def matched(self, args: list[IterSplit]) -> list[IterSplit]:
        """Return ``args`` with the digits of each predicate's number replaced by that number."""
        for c in self.active:
            assert c.mark is not None
            found: list[IterSplit] = []
            factor: Expr | None = None
            for digit in c.total.args:
                alike = [s for s in args if same_digit(s, digit) and all(s is not f for f in found)]
                ratios = [(s, self._ratio(s, digit)) for s in alike]
                fitting = [(s, r) for s, r in ratios if r is not None and (factor is None or self.equal(factor, r))]
                if fitting:
                    found.append(fitting[0][0])
                    factor = fitting[0][1]
            if len(found) == len(c.total.args) and factor is not None:
                rest = [s for s in args if all(s is not f for f in found)]
                args = [IterSplit(c.mark, const(1, factor.dtype), c.mark.extent, factor), *rest]
        return args

    def _ratio(self, a: IterSplit, b: IterSplit) -> Expr | None:
        return self.an.simplify(a.scale // b.scale) if self.divides(b.scale, a.scale) else None


def same_digits(a: Sequence[IterSplit], b: Sequence[IterSplit]) -> bool:
    return len(a) == len(b) and all(same_digit(x, y) and same(x.scale, y.scale) for x, y in zip(a, b, strict=True))


def same_digit(a: IterSplit, b: IterSplit) -> bool:
    return a.mark is b.mark and same(a.lower_factor, b.lower_factor) and same(a.extent, b.extent)
