"""This module divides bindings into an outer and an inner part, which blockize needs.

Loops are outer or inner. Each binding is written ``outer * inner_extent + inner + base`` with ``outer`` in outer loops
alone and ``inner`` in inner ones; this is TVM's subspace division, after the paper "TensorIR" (Feng et al., ASPLOS
2023). It divides each digit that :func:`detect_iter_map` found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...expr import And, Expr, Range, Reason, Var, cast, const, is_const_int, same
from ..analyzer import Analyzer
from .iter_map import detect_iter_map
from .mixed_radix import IterMap, IterMark, IterSplit, IterSum, divides_evenly, times


@dataclass(frozen=True, slots=True, eq=False)
class DivisionForm:
    """Represents ``outer * inner_extent + inner + base``; ``outer`` is in ``[0, outer_extent)``, ``inner`` likewise."""

    outer: Expr
    outer_extent: Expr
    inner: Expr
    inner_extent: Expr
    base: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """Represents a division of each binding, and the remaining predicate on each side (None when there is none)."""

    divisions: tuple[DivisionForm, ...]
    outer_predicate: Expr | None
    inner_predicate: Expr | None


def divide_subspace(
    bindings: Sequence[Expr],
    loops: Mapping[Var, Range],
    inner: Collection[Var],
    predicate: Expr | None = None,
    analyzer: Analyzer | None = None,
    keep_unit: bool = False,
) -> Subspace | Reason:
    """Divide ``bindings`` over ``loops``, of which ``inner`` are the inner ones; a reason says why that is impossible.

    ``keep_unit`` keeps loops of one iteration in the results. ``analyzer`` has the ranges of variables that are not
    loops; those of the loops are bound here.

    >>> from tilewright.tir.expr import Range
    >>> from tilewright.tir.expr import Var
    >>> i, j = Var("i"), Var("j")
    >>> found = divide_subspace([i * 16 + j], {i: Range.from_extent(8), j: Range.from_extent(16)}, [j])
    >>> d = found.divisions[0]; str(d.outer), str(d.outer_extent), str(d.inner), str(d.inner_extent)
    ('i', '8', 'j', '16')
    """
    an = Analyzer() if analyzer is None else analyzer
    found = detect_iter_map(bindings, loops, predicate, an, keep_unit=keep_unit)
    if found.errors:
        return Reason(found.errors[0])
    divider = _Divider(an, loops, set(inner), found)
    try:
        divisions = tuple([divider.binding(s, b.dtype) for s, b in zip(found.indices, bindings, strict=True)])
    except _Indivisible as error:
        return Reason(str(error))
    return Subspace(divisions, divider.outer_predicate, divider.inner_predicate)


class _Indivisible(Exception):
    """Raised with the reason why a binding cannot be divided."""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Represents ``outer * inner_extent + inner``; a missing side has the extent 1 and the value 0."""

    outer: Expr | None
    outer_extent: Expr
    inner: Expr | None
    inner_extent: Expr


class _Divider:
    def __init__(self, an: Analyzer, loops: Mapping[Var, Range], inner: set[Var], found: IterMap) -> None:
        self.an, self.loops, self.inner = an, loops, inner
        self.splits: dict[IterMark, list[IterSplit]] = {}
        self.marks: dict[IterMark, _Part] = {}
        self.outer_predicate: Expr | None = None
        self.inner_predicate: Expr | None = None
        for index in found.indices:
            self._collect(index)

    def _collect(self, index: IterSum) -> None:
        for split in index.args:
            known = self.splits.get(split.mark)
            if known is None:
                known = self.splits[split.mark] = []
                if isinstance(split.mark.source, IterSum):
                    self._collect(split.mark.source)
            known.append(split)

    def binding(self, index: IterSum, dtype: str) -> DivisionForm:
        """Return the division of a whole binding, which has one digit at most and a base, in its type ``dtype``."""
        zero, one, base = const(0, dtype), const(1, dtype), cast(dtype, index.base)
        if not index.args:
            return DivisionForm(zero, one, zero, one, base)
        part = self.split(index.args[0])
        outer = zero if part.outer is None else cast(dtype, part.outer)
        inner = zero if part.inner is None else cast(dtype, part.inner)
        return DivisionForm(outer, cast(dtype, part.outer_extent), inner, cast(dtype, part.inner_extent), base)

    def split(self, split: IterSplit) -> _Part:
        """Return the division of one digit of a mark."""
        mark = split.mark
        part = self.mark(mark)
        one = const(1, mark.extent.dtype)
        if self._is(split.lower_factor, 1) and self._is(split.extent, mark.extent):
            return part
        if part.inner is None:
            assert part.outer is not None
            return _Part(self._digit(part.outer, split, part.outer_extent), split.extent, None, one)
        if part.outer is None:
            return _Part(None, one, self._digit(part.inner, split, part.inner_extent), split.extent)
        low, high = split.lower_factor, times(self.an, split.lower_factor, split.extent)
        edge = part.inner_extent
        if self.an.can_prove_equal(high, edge) or divides_evenly(self.an, high, edge):
            return _Part(None, one, self._digit(part.inner, split, edge), split.extent)
        if divides_evenly(self.an, edge, low):
            above = IterSplit(mark, self.an.simplify(low // edge), split.extent, split.scale)
            return _Part(self._digit(part.outer, above, part.outer_extent), split.extent, None, one)
        raise _Indivisible(f"the digit from {low} to {high} lies across the boundary {edge} of inner and outer loops")

    def mark(self, mark: IterMark) -> _Part:
        """Return the division of a mark."""
        known = self.marks.get(mark)
        if known is None:
            known = self.marks[mark] = self._sum(mark) if isinstance(mark.source, IterSum) else self._loop(mark)
        return known

    def _loop(self, mark: IterMark) -> _Part:
        var = mark.source
        assert isinstance(var, Var)
        start, one = self.loops[var].min, const(1, var.dtype)
        value = var if self._is(start, 0) else var - start
        if var in self.inner:
            return _Part(None, one, value, mark.extent)
        return _Part(value, mark.extent, None, one)

    def _sum(self, mark: IterMark) -> _Part:
        """Return the division of a sum of digits into outer and inner ones. Low ones are inner, high ones outer, and
        one in between may be both."""
        assert isinstance(mark.source, IterSum)
        args = self._lowest_first(mark.source.args)
        one = const(1, mark.extent.dtype)
        highs: list[Expr] = []
        lows: list[Expr] = []
        outer_extent = inner_extent = one
        for split in args:
            part = self.split(split)
            if part.inner is not None:
                if highs:
                    raise _Indivisible(f"the inner part {part.inner} has a larger scale than the outer part {highs[0]}")
                lows.append(part.inner * inner_extent)
                inner_extent = times(self.an, inner_extent, part.inner_extent)
            if part.outer is not None:
                highs.append(part.outer * outer_extent)
                outer_extent = times(self.an, outer_extent, part.outer_extent)
        outer, inner = _total(highs), _total(lows)
        if not self._is(times(self.an, outer_extent, inner_extent), mark.extent):  # a predicate reduces the extent
            if inner is None:
                assert outer is not None
                self.outer_predicate = _both(self.outer_predicate, outer < mark.extent)
                return _Part(outer, mark.extent, None, one)
            if outer is None:
                self.inner_predicate = _both(self.inner_predicate, inner < mark.extent)
                return _Part(None, one, inner, mark.extent)
            raise _Indivisible(f"the predicate that keeps it below {mark.extent} joins outer and inner loops")
        return _Part(outer, outer_extent, inner, inner_extent)

    def _lowest_first(self, args: Sequence[IterSplit]) -> list[IterSplit]:
        out = list(args)
        if len(out) > 1 and self._is(out[-1].scale, 1) and not self._is(out[0].scale, 1):
            out.reverse()
        return out

    def _digit(self, value: Expr, split: IterSplit, extent: Expr) -> Expr:
        low, high = split.lower_factor, times(self.an, split.lower_factor, split.extent)
        if not self.an.can_prove(high >= extent):
            value = value % high
        return value if self._is(low, 1) else value // low

    def _is(self, a: Expr, b: Expr | int) -> bool:
        if isinstance(b, int):
            return is_const_int(a, b) or (not is_const_int(a) and self.an.can_prove_equal(a, b))
        return same(a, b) or self.an.can_prove_equal(a, b)


def _total(terms: list[Expr]) -> Expr | None:
    """Return the sum of the terms, starting with the last one; None for no terms."""
    out: Expr | None = None
    for term in reversed(terms):
        out = term if out is None else out + term
    return out


def _both(a: Expr | None, b: Expr) -> Expr:
    return b if a is None else And(a, b)
