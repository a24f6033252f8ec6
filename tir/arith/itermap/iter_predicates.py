"""This module finds the numbers that a predicate limits. For example, ``i0 * 8 + i1 < 17`` says how far the number of
its digits goes."""

from __future__ import annotations

from ...expr import Expr, IntImm, Min, conjuncts, const
from ..inequality import as_difference
from .iter_sums import Constraint, DigitSums, NotAffine, same_digit
from .mixed_radix import IterMark, IterSplit, IterSum


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
