"""This module finds which index maps from loops to block axes are one to one.

Loops that were split and fused bind axes with expressions like ``i0 * 8 + i1``, ``f // 8`` and ``f % 8``. Such an
expression represents a number in a mixed radix. An :class:`IterMark` is a whole number in ``[0, extent)`` (a loop
variable counted from zero, or the sum of several digits), an :class:`IterSplit` is one digit of it,
``(mark // lower_factor) % extent * scale``, and an :class:`IterSum` is a sum of digits and a constant. The theory is
that of TVM's iter_affine_map, after the paper "TensorIR" (Feng et al., ASPLOS 2023).

A map is *surjective* here when every combination of the values is reached, so that the values form a box and the axes
are independent; it is *injective* when no two iterations give the same values, *bijective* when both hold. Extents may
be symbolic; without an analyzer the variables in them are assumed to be at least 1. A predicate ``i0 * 8 + i1 < 17``
reduces the extent of the number that its digits form; when no binding contains that number, the predicate is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...conditions import conjuncts
from ...equal import same
from ...expr import GE, GT, LE, LT, Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Min, Mul, Range, Sub, Var, const
from ...sizes import product
from ...walk import pre_order
from ..analyzer import Analyzer
from .mixed_radix import IterMap, IterMark, IterSplit, IterSum


def detect_iter_map(
    bindings: Sequence[Expr],
    loops: Mapping[Var, Range],
    predicate: Expr | None = None,
    analyzer: Analyzer | None = None,
    keep_unit: bool = False,
    as_written: bool = False,
) -> IterMap:
    """Split the bindings of block axes into digits of the loops; the module's docstring explains the result.

    With ``keep_unit`` loops of one iteration are digits like others; else they are replaced by their only value.
    ``as_written`` does not simplify the bindings first, so that the digits show how they were made.

    >>> from tilewright.tir.expr import Var, Range
    >>> f = Var("f")
    >>> found = detect_iter_map([f // 8, f % 8], {f: Range.from_extent(128)})
    >>> found.bijective, [int(e) for e in found.extents]
    (True, [16, 8])
    >>> detect_iter_map([f // 8, f % 4], {f: Range.from_extent(128)}).bijective
    False
    """
    an = analyzer
    if an is None:
        an = Analyzer()
        for r in loops.values():
            for n in (*pre_order(r.min), *pre_order(r.extent)):
                if isinstance(n, Var):
                    an.bind(n, (1, None))
    for v, r in loops.items():
        unit = keep_unit and an.can_prove_equal(r.extent, 1)
        an.bind(v, (r.min, r.min + 1) if unit else r)  # one iteration more, so that simplifying keeps the variable
    simple = list(bindings) if as_written else [an.simplify(b) for b in bindings]
    found = _split_bindings(simple, loops, predicate, an, keep_unit, as_written)
    if found.errors and predicate is not None and not as_written:
        # the bindings may be digits of a number with a predicate: loops that were fused, then split with a remainder
        other = _split_bindings(simple, loops, predicate, an, keep_unit, True)
        return found if other.errors else other
    return found


def _split_bindings(
    simple: Sequence[Expr],
    loops: Mapping[Var, Range],
    predicate: Expr | None,
    an: Analyzer,
    keep_unit: bool,
    predicate_first: bool,
) -> IterMap:
    """Return the digits of the bindings.

    With ``predicate_first`` they are digits of the numbers in the predicate, else the predicate has digits of theirs.
    """
    finder = _Finder(an, loops, keep_unit)
    constraints = [] if predicate is None else finder.constraints(predicate)
    if predicate_first:
        finder.install(constraints, None)
    with an.constraint(predicate if predicate is not None else IntImm(1, "bool")):
        parsed: list[IterSum | None] = []
        for b in simple:
            try:
                parsed.append(finder.parse(b))
            except _NotAffine as error:
                finder.errors.append(f"{b} is not affine in the loops: {error}")
                parsed.append(None)
    if not predicate_first:
        finder.install(constraints, [p for p in parsed if p is not None])
    sums = [IterSum((), b) if p is None else finder.whole(b, p) for b, p in zip(simple, parsed, strict=True)]
    return finder.check(sums)


class _NotAffine(Exception):
    """Raised with the reason why an expression is not quasi-affine."""


@dataclass(slots=True)
class _Constraint:
    """States that the digits of ``total`` form a number below ``bound``."""

    text: str
    total: IterSum
    bound: Expr
    mark: IterMark | None = None


class _Finder:
    def __init__(self, an: Analyzer, loops: Mapping[Var, Range], keep_unit: bool) -> None:
        self.an = an
        self.loops = loops
        self.keep_unit = keep_unit
        self.errors: list[str] = []
        self.marks: dict[Var, IterMark] = {v: IterMark(v, r.extent) for v, r in loops.items()}
        self.fused: list[IterMark] = []
        self.active: list[_Constraint] = []

    # -- arithmetic --------------------------------------------------------------------------------------------------

    def _is(self, a: Expr, b: Expr | int) -> bool:
        return self.an.can_prove_equal(a, b)

    def _free(self, e: Expr) -> bool:
        return type(e) is IntImm or not any(type(n) is Var and n in self.loops for n in pre_order(e))

    def _divides(self, c: Expr, e: Expr) -> bool:
        if type(c) is IntImm and type(e) is IntImm:
            return c.value != 0 and e.value % c.value == 0
        return self._is(e % c, 0)

    def _times(self, a: Expr, b: Expr) -> Expr:
        if type(b) is IntImm and b.value == 1:
            return a
        if type(a) is IntImm and a.value == 1:
            return b
        made = product((a, b))
        return made if isinstance(made, IntImm) else self.an.simplify(made)  # type: ignore[no-any-return]

    # -- parsing -----------------------------------------------------------------------------------------------------

    def parse(self, e: Expr) -> IterSum:
        """Return ``e`` as a sum of digits; raise _NotAffine with the reason when it is not one."""
        if isinstance(e, Var) and e in self.loops:
            mark, start = self.marks[e], self.loops[e].min
            if not self.keep_unit and self._is(mark.extent, 1):
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
            raise _NotAffine(f"{e} multiplies loops")
        if isinstance(e, (FloorDiv, FloorMod)):
            if not self._free(e.b):
                raise _NotAffine(f"{e} divides by a loop")
            return self._divided(self.parse(e.a), e)
        if isinstance(e, Cast) and self.an.keeps_value(e):
            return self.parse(e.value)
        raise _NotAffine(f"{e} is not a sum, product, quotient or remainder")

    def _plus(self, a: IterSum, b: IterSum, sign: Expr) -> IterSum:
        args = list(a.args)
        for split in b.args:
            scale = self._times(split.scale, sign)
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
        kept = tuple([s for s in args if not self._is(s.scale, 0)])
        return IterSum(kept, self.an.simplify(a.base + b.base * sign))

    def _scaled(self, a: IterSum, k: Expr) -> IterSum:
        args = tuple([IterSplit(s.mark, s.lower_factor, s.extent, self._times(s.scale, k)) for s in a.args])
        return IterSum(args, self._times(a.base, k))

    def _divided(self, a: IterSum, e: FloorDiv | FloorMod) -> IterSum:
        if isinstance(e.b, IntImm) and e.b.value == 0:
            raise _NotAffine(f"{e} divides by zero")
        if not a.args:
            return IterSum((), self.an.simplify(type(e)(a.base, e.b)))
        digit = self.single(a)
        if digit is None:
            raise _NotAffine(f"{e.a} has digits that leave gaps or overlap")
        c, base, quotient = e.b, a.base, isinstance(e, FloorDiv)
        zero = const(0, e.dtype)
        if not self._divides(c, base):
            raise _NotAffine(f"the constant part of {e.a} is not a multiple of {c}")
        new_base = self.an.simplify(base // c) if quotient else zero
        if self._divides(c, digit.scale):  # the whole digit is a multiple of c
            if not quotient:
                return IterSum((), zero)
            scale = self.an.simplify(digit.scale // c)
            return IterSum((IterSplit(digit.mark, digit.lower_factor, digit.extent, scale),), new_base)
        if not self._divides(digit.scale, c):
            raise _NotAffine(f"{digit.scale} and {c} do not divide each other in {e}")
        step = self.an.simplify(c // digit.scale)
        if self.an.can_prove(digit.extent <= step):
            return IterSum((), new_base) if quotient else IterSum((digit,), zero)
        if quotient:
            extent = self.an.simplify((digit.extent + step - 1) // step)
            split = IterSplit(digit.mark, self._times(digit.lower_factor, step), extent, const(1, e.dtype))
        else:
            split = IterSplit(digit.mark, digit.lower_factor, step, digit.scale)
        return IterSum((split,), new_base)

    # -- putting digits together ---------------------------------------------------------------------------------------

    def single(self, a: IterSum) -> IterSplit | None:
        """Return the digits of ``a`` as one digit of a new mark; None when they leave gaps or overlap."""
        args = self._matched(self._combined(list(a.args)))
        if len(args) == 1:
            return args[0]
        args = args[::-1]  # among digits of the same scale those of one iteration come first, as inner loops
        for start in args:
            chain, rest = [start], [s for s in args if s is not start]
            while rest:
                top = chain[-1]
                wanted = self._times(top.scale, top.extent)
                follower = next((s for s in rest if self._is(s.scale, wanted)), None)
                if follower is None:
                    break
                chain.append(follower)
                rest = [s for s in rest if s is not follower]
            if not rest:
                mark = self._mark(chain, start.scale)
                return IterSplit(mark, const(1, start.scale.dtype), mark.extent, start.scale)
        return None

    def _combined(self, args: list[IterSplit]) -> list[IterSplit]:
        """Return ``args`` with adjacent digits of one number as one digit: ``f // 4 * 4 + f % 4`` is ``f``."""
        for high in args:
            for low in args:
                if (
                    high is not low
                    and high.mark is low.mark
                    and self._is(high.lower_factor, self._times(low.lower_factor, low.extent))
                    and self._is(high.scale, self._times(low.scale, low.extent))
                ):
                    extent, whole = self._times(low.extent, high.extent), low.mark.extent
                    if self.an.can_prove(self._times(low.lower_factor, extent) > whole):  # to its end
                        extent = self.an.simplify((whole + low.lower_factor - 1) // low.lower_factor)
                    both = IterSplit(low.mark, low.lower_factor, extent, low.scale)
                    return self._combined([both if s is high else s for s in args if s is not low])
        return args

    def _mark(self, chain: list[IterSplit], unit: Expr) -> IterMark:
        one = const(1, unit.dtype)
        digits, extent = [], one
        for s in chain:
            scale = s.scale if self._is(unit, 1) else self.an.simplify(s.scale // unit)
            digits.append(IterSplit(s.mark, s.lower_factor, s.extent, scale))
            extent = self._times(extent, s.extent)
        for mark in self.fused:
            if (
                isinstance(mark.source, IterSum)
                and _same_digits(mark.source.args, digits)
                and self._is(mark.extent, extent)
            ):
                return mark
        mark = IterMark(IterSum(tuple(digits), const(0, unit.dtype)), extent)
        self.fused.append(mark)
        return mark

    def _matched(self, args: list[IterSplit]) -> list[IterSplit]:
        """Return ``args`` with the digits of each predicate's number replaced by that number."""
        for c in self.active:
            assert c.mark is not None
            found: list[IterSplit] = []
            factor: Expr | None = None
            for digit in c.total.args:
                for s in args:
                    if _same_digit(s, digit) and all(s is not f for f in found):
                        ratio = (
                            self.an.simplify(s.scale // digit.scale) if self._divides(digit.scale, s.scale) else None
                        )
                        if ratio is not None and (factor is None or self._is(factor, ratio)):
                            factor = ratio
                            found.append(s)
                            break
            if len(found) == len(c.total.args) and factor is not None:
                rest = [s for s in args if all(s is not f for f in found)]
                args = [IterSplit(c.mark, const(1, factor.dtype), c.mark.extent, factor), *rest]
        return args

    # -- predicates ------------------------------------------------------------------------------------------------------

    def constraints(self, predicate: Expr) -> list[_Constraint]:
        """Return the parts of a predicate that do not follow from the ranges of the loops."""
        out: list[_Constraint] = []
        for part in conjuncts(predicate):
            simple = self.an.simplify(part)
            if isinstance(simple, IntImm):
                if not simple.value:
                    self.errors.append(f"the predicate {part} never holds")
                continue
            upper = _upper_bound(part) or _upper_bound(simple)  # as written, so that a digit remains a digit
            if upper is None:
                self.errors.append(f"the predicate {simple} is no upper bound")
                continue
            value, bound = upper
            try:
                total = self.parse(self.an.simplify(value - bound))
            except _NotAffine as error:
                self.errors.append(f"the predicate {simple} is not affine in the loops: {error}")
                continue
            if not total.args:
                continue  # it contains no loop variable
            limit = self.an.simplify(const(0, value.dtype) - total.base)
            out.append(_Constraint(str(simple), IterSum(total.args, const(0, value.dtype)), limit))
        return out

    def install(self, constraints: list[_Constraint], parsed: list[IterSum] | None) -> None:
        """Make a mark for the number of each predicate, from the digits of the bindings where those are known."""
        for c in sorted(constraints, key=lambda c: len(c.total.args)):
            args: list[IterSplit] = []
            for s in c.total.args:
                args.extend([s] if parsed is None else self._refined(s, parsed))
            args = self._matched(args)
            if parsed is not None:
                args, c.bound = self._without_low_digits(args, c.bound, parsed)
            c.total = IterSum(tuple(args), c.total.base)
            digit = self.single(c.total)
            if digit is None or not self._is(digit.scale, 1):
                self.errors.append(f"the predicate {c.text} has digits that leave gaps or overlap")
                continue
            if self.an.can_prove(digit.extent <= c.bound):
                continue  # this follows from the loops and the predicates before it
            extent = c.bound
            if not self.an.can_prove(c.bound <= digit.extent):
                extent = self.an.simplify(Min(c.bound, digit.extent))
            if len(args) == 1:
                c.mark = IterMark(IterSum(tuple(args), c.total.base), extent)
            else:
                c.mark = IterMark(digit.mark.source, extent)
            self.fused.append(c.mark)
            self.active.append(c)

    def _refined(self, split: IterSplit, parsed: list[IterSum]) -> list[IterSplit]:
        """Return the lowest digit of a loop, or the whole loop, as the smaller digits that the bindings use."""
        parts = [s for p in parsed for s in p.args if s.mark is split.mark and not self._is(s.extent, 1)]
        if len(parts) < 2 or not self._is(split.lower_factor, 1):
            return [split]
        out: list[IterSplit] = []
        reached: Expr = const(1, split.scale.dtype)
        while not self._is(reached, split.extent):
            part = next((s for s in parts if self._is(s.lower_factor, reached)), None)
            if part is None:
                return [split]
            out.append(IterSplit(part.mark, part.lower_factor, part.extent, self._times(split.scale, reached)))
            reached = self._times(reached, part.extent)
        return out

    def _without_low_digits(
        self, args: list[IterSplit], bound: Expr, parsed: list[IterSum]
    ) -> tuple[list[IterSplit], Expr]:
        """Return x < b for g*x + y < g*b with 0 <= y < g, when no binding uses x and y together."""
        while len(args) > 1:
            low = next((s for s in args if self._is(s.scale, 1)), None)
            if low is None or not self._divides(low.extent, bound):
                break
            rest = [s for s in args if s is not low]
            together = any(
                any(_same_digit(low, s) for s in p.args) and any(_same_digit(r, s) for r in rest for s in p.args)
                for p in parsed
            )
            if together or not all(self._divides(low.extent, s.scale) for s in rest):
                break
            args = [IterSplit(s.mark, s.lower_factor, s.extent, self.an.simplify(s.scale // low.extent)) for s in rest]
            bound = self.an.simplify(bound // low.extent)
        return args, bound

    # -- the result ------------------------------------------------------------------------------------------------------

    def whole(self, binding: Expr, a: IterSum) -> IterSum:
        """Return the digits of a binding joined into one digit of scale 1."""
        if not a.args:
            return a
        digit = self.single(a)
        if digit is None:
            self.errors.append(f"{binding} has digits that leave gaps or overlap")
            return a
        if not self._is(digit.scale, 1):
            self.errors.append(f"{binding} takes every {digit.scale}th value only")
        return IterSum((digit,), a.base)

    def check(self, sums: list[IterSum]) -> IterMap:
        injective = not any(len(s.args) > 1 for s in sums)
        used: dict[int, list[IterSplit]] = {}
        for s in sums:
            for split in s.args:
                used.setdefault(id(split.mark), []).append(split)
        for mark in [*reversed(self.fused), *self.marks.values()]:
            splits = used.get(id(mark), [])
            if not splits:
                continue
            injective = self._covered(mark, splits) and injective
            if isinstance(mark.source, IterSum):
                for split in mark.source.args:
                    used.setdefault(id(split.mark), []).append(split)
        for v, mark in self.marks.items():
            if id(mark) not in used and not self._is(self.loops[v].extent, 1):
                injective = False
        for c in self.active:
            if id(c.mark) not in used:
                self.errors.append(f"the predicate {c.text} does not limit any binding")
        return IterMap(tuple(sums), tuple(self.errors), injective)

    def _covered(self, mark: IterMark, splits: list[IterSplit]) -> bool:
        """Return whether ``splits`` are all digits of ``mark``; record an error when they overlap."""
        name = mark.source.name if isinstance(mark.source, Var) else "the loops put together"
        rest, complete = list(splits), True
        reached: Expr = const(1, mark.extent.dtype)
        while rest:
            digit = next((s for s in rest if self._is(s.lower_factor, reached)), None)
            if digit is None:
                complete = False
                above = [s for s in rest if self._divides(reached, s.lower_factor) and self._below(reached, s)]
                digit = next((s for s in above if all(self._below(s.lower_factor, o) or o is s for o in above)), None)
                if digit is None:
                    self.errors.append(f"bindings use overlapping parts of {name}")
                    return False
            rest = [s for s in rest if s is not digit]
            top = self._times(digit.lower_factor, digit.extent)
            if not self._is(top, mark.extent) and not rest:
                if not self._divides(top, mark.extent):
                    if len(splits) > 1 or not self._is(digit.lower_factor, 1):
                        self.errors.append(f"{digit.extent} * {digit.lower_factor} does not divide {mark.extent}")
                    complete = complete and self.an.can_prove(top >= mark.extent)
                else:
                    complete = False
            reached = top
        return complete

    def _below(self, reached: Expr, split: IterSplit) -> bool:
        return self.an.can_prove(reached <= split.lower_factor)


def _same_digits(a: Sequence[IterSplit], b: Sequence[IterSplit]) -> bool:
    return len(a) == len(b) and all(_same_digit(x, y) and same(x.scale, y.scale) for x, y in zip(a, b, strict=True))


def _same_digit(a: IterSplit, b: IterSplit) -> bool:
    return a.mark is b.mark and same(a.lower_factor, b.lower_factor) and same(a.extent, b.extent)


def _upper_bound(e: Expr) -> tuple[Expr, Expr] | None:
    """Return (x, b) when ``e`` is the condition x < b, else None."""
    if isinstance(e, LT):
        return e.a, e.b
    if isinstance(e, GT):
        return e.b, e.a
    if isinstance(e, LE):
        return e.a, e.b + 1
    if isinstance(e, GE):
        return e.b, e.a + 1
    return None
