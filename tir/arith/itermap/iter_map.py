"""This module finds which index maps are one to one; these are numbers in a mixed radix.

A :class:`Digit` is one digit as an expression has it; :func:`radix_of` finds the radix that several digits share. The
other classes are the parts of an analyzed map.

Loops that were split and fused bind axes with expressions like ``i0 * 8 + i1``, ``f // 8`` and ``f % 8``. Such an
expression represents a number in a mixed radix. An :class:`IterMark` is a whole number in ``[0, extent)`` (a loop
variable counted from zero, or the sum of several digits), an :class:`IterSplit` is one digit of it,
``(mark // lower_factor) % extent * scale``, and an :class:`IterSum` is a sum of digits and a constant. The theory is
that of TVM's iter_affine_map, after the paper "TensorIR" (Feng et al., ASPLOS 2023).

A map is *surjective* here when every combination of the values is reached, so that the values form a box and the axes
are independent; it is *injective* when no two iterations give the same values, *bijective* when both hold. Extents may
be symbolic; without an analyzer the variables in them are assumed not to be negative. What is said holds where all
loops have iterations: a loop over a size says there that the size is at least 1. A predicate ``i0 * 8 + i1 < 17``
reduces the extent of the number that its digits form; when no binding contains that number, the predicate is an error.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...expr import (
    Add,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Min,
    Mul,
    Range,
    Sub,
    Var,
    conjuncts,
    const,
    pre_order,
    product,
    same,
    uses_var,
)
from ..affine import as_difference
from ..analyzer import Analyzer


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """Represents ``number % upper // lower``; an ``upper`` of None stands for no remainder."""

    number: Expr
    lower: Expr
    upper: Expr | None

    @property
    def constant(self) -> bool:
        """Returns whether both ends are constants."""
        return isinstance(self.lower, IntImm) and (self.upper is None or isinstance(self.upper, IntImm))


def read_digit(e: Any) -> Digit | None:
    """Return the digit that a quotient, a remainder or both are; None for anything else and for divisors below 1.

    >>> d = read_digit(Var("x") // 4 % 8); str(d.lower), str(d.upper)
    ('4', '32')
    """
    if not isinstance(e, (FloorDiv, FloorMod)) or (isinstance(e.b, IntImm) and e.b.value < 1):
        return None
    inner = e.a
    both = isinstance(inner, (FloorDiv, FloorMod)) and type(inner) is not type(e)
    if not both or (isinstance(inner.b, IntImm) and inner.b.value < 1):  # type: ignore[attr-defined]
        if isinstance(e, FloorDiv):
            return Digit(inner, e.b, None)
        return Digit(inner, const(1, e.dtype), e.b)
    assert isinstance(inner, (FloorDiv, FloorMod))
    if isinstance(e, FloorDiv):
        return Digit(inner.a, e.b, inner.b)
    return Digit(inner.a, inner.b, inner.b * e.b)


def digit_of(e: Expr, known: Container[Var]) -> tuple[Var, int, int | None] | None:
    """Return (v, lower, upper) when ``e`` is a digit with constant ends of a known variable.

    ``v`` alone has lower 1 and upper None.
    """
    if isinstance(e, Var):
        return (e, 1, None) if e in known else None
    digit = constant_digit(e)
    return digit if digit is not None and isinstance(digit[0], Var) and digit[0] in known else None  # type: ignore[return-value]


def constant_digit(e: Any) -> tuple[Expr, int, int | None] | None:
    """Return (number, lower, upper) when ``e`` is a digit with constant ends, else None."""
    digit = read_digit(e)
    if digit is None or not digit.constant:
        return None
    upper = None if digit.upper is None else digit.upper.value  # type: ignore[attr-defined]
    return digit.number, digit.lower.value, upper  # type: ignore[attr-defined]


def radix_of(analyzer: Analyzer, cuts: Iterable[Expr]) -> list[Expr] | None:
    """Return the places of a mixed radix that has all ``cuts``: 1 and each different cut, least first.

    The result is None when one place is not known to be positive and to divide the next one.
    """
    cuts = list(cuts)
    places: list[Expr] = [const(1, cuts[0].dtype if cuts else "int32")]
    left: list[Expr] = []
    for cut in cuts:
        if not any(analyzer.can_prove_equal(cut, known) for known in (*places, *left)):
            left.append(cut)
    if all(isinstance(cut, IntImm) for cut in left):
        left.sort(key=lambda cut: cut.value)  # type: ignore[attr-defined]
    while left:  # the next place is the one that divides all others
        found = next((w for w in left if all(divides(analyzer, w, other) for other in left)), None)
        if found is None or not divides(analyzer, places[-1], found):
            return None
        left = [w for w in left if w is not found]
        places.append(found)
    return places


def place_in(analyzer: Analyzer, cut: Expr, places: Iterable[Expr]) -> int:
    """Return the index of ``cut`` among ``places``, which :func:`radix_of` returned."""
    return next(n for n, place in enumerate(places) if analyzer.can_prove_equal(cut, place))


def divides(analyzer: Analyzer, a: Expr, b: Expr) -> bool:
    """Return whether both are known to be positive and ``b`` to be a multiple of ``a``."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return a.value > 0 and b.value > 0 and b.value % a.value == 0
    return analyzer.can_prove(a >= 1) and analyzer.can_prove(b >= 1) and analyzer.can_prove_equal((b // a) * a, b)


def divides_evenly(analyzer: Analyzer, c: Expr, e: Expr) -> bool:
    """Return whether ``e % c`` is known to be 0; neither needs to be positive."""
    if type(c) is IntImm and type(e) is IntImm:
        return c.value != 0 and e.value % c.value == 0
    return analyzer.can_prove_equal(e % c, 0)


def times(analyzer: Analyzer, a: Expr, b: Expr) -> Expr:
    """Return the product of two sizes, simplified."""
    if type(b) is IntImm and b.value == 1:
        return a
    if type(a) is IntImm and a.value == 1:
        return b
    made = product((a, b))
    return made if isinstance(made, IntImm) else analyzer.simplify(made)


@dataclass(frozen=True, slots=True, eq=False)
class IterMark:
    """Represents a number in ``[0, extent)``: a loop variable minus its start, or a sum of digits."""

    source: Var | IterSum
    extent: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSplit:
    """Represents a digit: ``mark // lower_factor % extent * scale``."""

    mark: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterSum:
    """Represents the sum of the digits ``args`` and of ``base``, which contains no loop variable."""

    args: tuple[IterSplit, ...]
    base: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IterMap:
    """Represents an analyzed index map.

    Binding i is ``indices[i]``, which has one digit at most after joining; it takes ``extents[i]`` values from
    ``mins[i]`` on. ``errors`` are texts; there are none when the map is quasi-affine and surjective.
    """

    indices: tuple[IterSum, ...]
    errors: tuple[str, ...]
    injective: bool

    @property
    def surjective(self) -> bool:
        """Returns whether the values form a box in which every combination is reached."""
        return not self.errors

    @property
    def bijective(self) -> bool:
        """Returns whether each combination of values is reached by exactly one iteration."""
        return not self.errors and self.injective

    @property
    def extents(self) -> tuple[Expr, ...]:
        """Returns how many values each binding takes."""
        return tuple([s.args[0].extent if s.args else IntImm(1, s.base.dtype) for s in self.indices])

    @property
    def mins(self) -> tuple[Expr, ...]:
        """The least value of each binding."""
        return tuple([s.base for s in self.indices])


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

    >>> from tilewright.tir.expr import Var
    >>> from tilewright.tir.expr import Range
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
                    an.bind(n, (0, None))
    with an.nonempty(*[r.extent for r in loops.values()]):
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
    sums = DigitSums(an, loops, keep_unit)
    errors: list[str] = []
    constraints = [] if predicate is None else constraints_of(sums, predicate, errors)
    if predicate_first:
        install(sums, constraints, None, errors)
    with an.constraint(predicate if predicate is not None else IntImm(1, "bool")):
        parsed: list[IterSum | None] = []
        for b in simple:
            try:
                parsed.append(sums.parse(b))
            except NotAffine as error:
                errors.append(f"{b} is not affine in the loops: {error}")
                parsed.append(None)
    if not predicate_first:
        install(sums, constraints, [p for p in parsed if p is not None], errors)
    indices = [IterSum((), b) if p is None else _whole(sums, b, p, errors) for b, p in zip(simple, parsed, strict=True)]
    return _check(sums, indices, errors)


def _whole(sums: DigitSums, binding: Expr, a: IterSum, errors: list[str]) -> IterSum:
    """Return the digits of a binding joined into one digit of scale 1."""
    if not a.args:
        return a
    digit = sums.single(a)
    if digit is None:
        errors.append(f"{binding} has digits that leave gaps or overlap")
        return a
    if not sums.equal(digit.scale, 1):
        errors.append(f"{binding} takes every {digit.scale}th value only")
    return IterSum((digit,), a.base)


def _check(sums: DigitSums, indices: list[IterSum], errors: list[str]) -> IterMap:
    injective = not any(len(s.args) > 1 for s in indices)
    used: dict[int, list[IterSplit]] = {}
    for s in indices:
        for split in s.args:
            used.setdefault(id(split.mark), []).append(split)
    for mark in [*reversed(sums.fused), *sums.marks.values()]:
        splits = used.get(id(mark), [])
        if not splits:
            continue
        injective = _covered(sums, mark, splits, errors) and injective
        if isinstance(mark.source, IterSum):
            for split in mark.source.args:
                used.setdefault(id(split.mark), []).append(split)
    for v, mark in sums.marks.items():
        if id(mark) not in used and not sums.equal(sums.loops[v].extent, 1):
            injective = False
    for c in sums.active:
        if id(c.mark) not in used:
            errors.append(f"the predicate {c.condition} does not limit any binding")
    return IterMap(tuple(indices), tuple(errors), injective)


def _covered(sums: DigitSums, mark: IterMark, splits: list[IterSplit], errors: list[str]) -> bool:
    """Return whether ``splits`` are all digits of ``mark``; record an error when they overlap."""
    name = mark.source.name if isinstance(mark.source, Var) else "the loops put together"
    rest, complete = list(splits), True
    reached: Expr = const(1, mark.extent.dtype)
    while rest:
        digit = next((s for s in rest if sums.equal(s.lower_factor, reached)), None)
        if digit is None:
            complete = False
            above = [s for s in rest if sums.divides(reached, s.lower_factor) and _below(sums, reached, s)]
            digit = next((s for s in above if all(_below(sums, s.lower_factor, o) or o is s for o in above)), None)
            if digit is None:
                errors.append(f"bindings use overlapping parts of {name}")
                return False
        rest = [s for s in rest if s is not digit]
        top = sums.times(digit.lower_factor, digit.extent)
        if not sums.equal(top, mark.extent) and not rest:
            if not sums.divides(top, mark.extent):
                if len(splits) > 1 or not sums.equal(digit.lower_factor, 1):
                    errors.append(f"{digit.extent} * {digit.lower_factor} does not divide {mark.extent}")
                complete = complete and sums.an.can_prove(top >= mark.extent)
            else:
                complete = False
        reached = top
    return complete


def _below(sums: DigitSums, reached: Expr, split: IterSplit) -> bool:
    return sums.an.can_prove(reached <= split.lower_factor)


def constraints_of(sums: DigitSums, predicate: Expr, errors: list[str]) -> list[Constraint]:
    """Return the parts of a predicate that do not follow from the ranges of the loops."""
    out: list[Constraint] = []
    for part in conjuncts(predicate):
        simple = sums.an.simplify(part)
        if isinstance(simple, IntImm):
            if not simple.value:
                errors.append(f"the predicate {part} never holds")
            continue
        gap = as_difference(part)  # as written, so that a digit remains a digit
        gap = as_difference(simple) if gap is None else gap
        if gap is None:
            errors.append(f"the predicate {simple} is not an upper bound")
            continue
        try:
            total = sums.parse(sums.an.simplify(gap))
        except NotAffine as error:
            errors.append(f"the predicate {simple} is not affine in the loops: {error}")
            continue
        if not total.args:
            continue  # it contains no loop variable
        limit = sums.an.simplify(const(0, gap.dtype) - total.base)
        out.append(Constraint(simple, IterSum(total.args, const(0, gap.dtype)), limit))
    return out


def install(sums: DigitSums, constraints: list[Constraint], parsed: list[IterSum] | None, errors: list[str]) -> None:
    """Make a mark for the number of each predicate, from the digits of the bindings where those are known."""
    for c in sorted(constraints, key=lambda c: len(c.total.args)):
        args: list[IterSplit] = []
        for s in c.total.args:
            args.extend([s] if parsed is None else _refined(sums, s, parsed))
        args = sums.matched(args)
        if parsed is not None:
            args, c.bound = _without_low_digits(sums, args, c.bound, parsed)
        c.total = IterSum(tuple(args), c.total.base)
        digit = sums.single(c.total)
        if digit is None or not sums.equal(digit.scale, 1):
            errors.append(f"the predicate {c.condition} has digits that leave gaps or overlap")
            continue
        if sums.an.can_prove(digit.extent <= c.bound):
            continue  # this follows from the loops and the predicates before it
        extent = c.bound
        if not sums.an.can_prove(c.bound <= digit.extent):
            extent = sums.an.simplify(Min(c.bound, digit.extent))
        if len(args) == 1:
            c.mark = IterMark(IterSum(tuple(args), c.total.base), extent)
        else:
            c.mark = IterMark(digit.mark.source, extent)
        sums.fused.append(c.mark)
        sums.active.append(c)


def _refined(sums: DigitSums, split: IterSplit, parsed: list[IterSum]) -> list[IterSplit]:
    """Return the lowest digit of a loop, or the whole loop, as the smaller digits that the bindings use."""
    parts = [s for p in parsed for s in p.args if s.mark is split.mark and not sums.equal(s.extent, 1)]
    if len(parts) < 2 or not sums.equal(split.lower_factor, 1):
        return [split]
    out: list[IterSplit] = []
    reached: Expr = const(1, split.scale.dtype)
    while not sums.equal(reached, split.extent):
        part = next((s for s in parts if sums.equal(s.lower_factor, reached)), None)
        if part is None:
            return [split]
        out.append(IterSplit(part.mark, part.lower_factor, part.extent, sums.times(split.scale, reached)))
        reached = sums.times(reached, part.extent)
    return out


def _without_low_digits(
    sums: DigitSums, args: list[IterSplit], bound: Expr, parsed: list[IterSum]
) -> tuple[list[IterSplit], Expr]:
    """Return x < b for g*x + y < g*b with 0 <= y < g. No binding may use x and y together."""
    while len(args) > 1:
        low = next((s for s in args if sums.equal(s.scale, 1)), None)
        if low is None or not sums.divides(low.extent, bound):
            break
        rest = [s for s in args if s is not low]
        together = any(
            any(same_digit(low, s) for s in p.args) and any(same_digit(r, s) for r in rest for s in p.args)
            for p in parsed
        )
        if together or not all(sums.divides(low.extent, s.scale) for s in rest):
            break
        args = [IterSplit(s.mark, s.lower_factor, s.extent, sums.an.simplify(s.scale // low.extent)) for s in rest]
        bound = sums.an.simplify(bound // low.extent)
    return args, bound


class NotAffine(Exception):
    """Raised with the reason why an expression is not quasi-affine."""


@dataclass(slots=True)
class Constraint:
    """States that the digits of ``total`` form a number below ``bound``. ``mark`` is the mark of that number, once it is made."""

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
