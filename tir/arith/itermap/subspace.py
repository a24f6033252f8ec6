"""This module joins the digits of index maps into a normal form, or into an outer and an inner part.

Bindings are split into digits by :func:`~.iter_map.detect_iter_map` and joined again: ``(i0 * 4 + i1) * 8 + i2`` comes
back as ``i0 * 32 + i1 * 8 + i2``, ``i // 4 // 2`` as ``i // 8``. Nothing else is simplified, so that the form of a
binding follows from the splits and fusions that made it. A map that is not quasi-affine and surjective stays as it is.

Most maps are sums of loops, or of digits of fused loops, times constants, as ``split`` and ``fuse`` make them;
:func:`constant_form` does these by integers alone.

Loops are outer or inner. Each binding is written ``outer * inner_extent + inner + base`` with ``outer`` in outer loops
alone and ``inner`` in inner ones; this is TVM's subspace division, after the paper "TensorIR" (Feng et al., ASPLOS
2023). It divides each digit that :func:`detect_iter_map` found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from ...expr import And, Expr, IntImm, Range, Reason, Var, cast, conjuncts, const, is_const_int, product, same
from ..affine import as_difference
from ..analyzer import Analyzer
from ..normal_form.forms import Linear, collect
from .iter_map import IterMap, IterMark, IterSplit, IterSum, detect_iter_map, digit_of, divides_evenly, times


def iter_map_simplify(
    bindings: Sequence[Expr],
    loops: Mapping[Var, Range],
    predicate: Expr | None = None,
    analyzer: Analyzer | None = None,
    keep_unit: bool = True,
) -> list[Expr] | None:
    """Return the bindings in their normal form; None when they have none. ``keep_unit`` is that of
    :func:`detect_iter_map`.

    >>> from tilewright.tir.expr import Var
    >>> from tilewright.tir.expr import Range
    >>> i, j = Var("i"), Var("j")
    >>> [str(e) for e in iter_map_simplify([j + (i * 1 + 0) * 8], {i: Range.from_extent(4), j: Range.from_extent(8)})]
    ['i * 8 + j']
    """
    short = constant_form(bindings, loops, predicate, keep_unit)
    if short is not None:
        return short
    an = Analyzer() if analyzer is None else analyzer
    found = _detect(bindings, loops, predicate, an, keep_unit)
    if not found.surjective and predicate is not None:
        found = _detect(bindings, loops, None, an, keep_unit)
    if not found.surjective:
        return None
    writer = _Writer(an, loops)
    return [writer.sum(s) for s in found.indices]


def _detect(
    bindings: Sequence[Expr], loops: Mapping[Var, Range], predicate: Expr | None, an: Analyzer, keep_unit: bool
) -> IterMap:
    return detect_iter_map(bindings, loops, predicate, an, keep_unit, as_written=True)


class _Writer:
    def __init__(self, an: Analyzer, loops: Mapping[Var, Range]) -> None:
        self.an = an
        self.loops = loops
        self.ranges = Analyzer()
        for var, dom in loops.items():
            self.ranges.bind(var, dom)

    def sum(self, total: IterSum) -> Expr:
        out: Expr = const(0, total.base.dtype)
        for split in reversed(total.args):  # digits are kept lowest first
            out = out + self.split(split)
        return out + total.base

    def split(self, split: IterSplit) -> Expr:
        mark = split.mark
        if isinstance(mark.source, Var):
            source: Expr = mark.source
            start = self.loops[mark.source].min
            if not is_const_int(start, 0):
                source = source - start
        else:
            source = self.sum(mark.source)
        lower, extent = split.lower_factor, split.extent
        if is_const_int(lower, 1) and self.an.can_prove_equal(extent, mark.extent):
            return source * split.scale
        if self.an.can_prove_equal(mark.extent, product((lower, extent))):
            if is_const_int(extent, 1) and not is_const_int(mark.extent, 1):
                return const(0, extent.dtype)
            return source // lower * split.scale
        if self.ranges.can_prove(source < product((lower, extent))):
            return source // lower * split.scale  # a predicate reduced the extent; the loop needs no remainder
        return source % product((lower, extent)) // lower * split.scale


def constant_form(
    bindings: Sequence[Expr], loops: Mapping[Var, Range], predicate: Expr | None, keep_unit: bool
) -> list[Expr] | None:
    """Return the normal form of a surjective map of constant numbers; None for all others.

    Each binding is a constant and a sum of digits with constant ends that no other binding uses. Each part of the
    predicate limits one binding as a whole.
    """

    def term(e: Expr) -> Linear | None:
        digit = digit_of(e, loops)
        return None if digit is None else Linear(0, {digit: 1})

    forms: list[Linear] = []
    for binding in bindings:
        form = collect(binding, term)
        if form is None or len({v for v, _, _ in form.terms}) < len(form.terms):
            return None
        forms.append(form)
    for part in () if predicate is None else conjuncts(predicate):
        gap = as_difference(part)
        limited = None if gap is None else collect(gap, term)
        if limited is None or limited.const >= 0 or all(form.terms != limited.terms for form in forms):
            return None
    spans: dict[Var, list[tuple[int, int]]] = {}
    out: list[Expr] = []
    for binding, form in zip(bindings, forms, strict=True):
        parts: list[Expr] = []
        reached = 1
        for (v, lower, upper), factor in sorted([*form.terms.items()][::-1], key=itemgetter(1)):
            span = _constant_span(lower, upper, loops[v])
            if span is None:
                return None
            if span == (1, 1) and not keep_unit:
                continue
            if factor != reached:
                return None
            reached *= span[1] // lower
            spans.setdefault(v, []).append(span)
            parts.append((v if upper is None else v % upper) // lower * factor)
        out.append(sum(reversed(parts), const(0, binding.dtype)) + form.const)
    overlap = any(low % end for found in spans.values() for (_, end), (low, _) in pairwise(sorted(found)))
    return None if overlap else out


def _constant_span(lower: int, upper: int | None, dom: Range) -> tuple[int, int] | None:
    """Return the places between which a digit of a loop lies; None unless they divide the loop's constant extent."""
    if not is_const_int(dom.min, 0) or not isinstance(dom.extent, IntImm):
        return None
    extent = dom.extent.value
    if upper is None and lower == 1:
        return (1, extent) if extent > 0 else None
    end = extent if upper is None else upper
    fits = end > lower and end % lower == 0 and extent % end == 0 and upper != extent
    return (lower, end) if fits else None


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
