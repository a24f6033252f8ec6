"""This module finds which index maps from loops to block axes are one to one.

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

from collections.abc import Mapping, Sequence

from ...expr import Expr, IntImm, Range, Var, const, pre_order
from ..analyzer import Analyzer
from .iter_predicates import constraints_of, install
from .iter_sums import DigitSums, NotAffine
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
