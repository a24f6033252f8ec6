"""This module brings index maps to a normal form, like TVM's IterMapSimplify.

Bindings are split into digits by :func:`~.iter_map.detect_iter_map` and joined again: ``(i0 * 4 + i1) * 8 + i2`` comes
back as ``i0 * 32 + i1 * 8 + i2``, ``i // 4 // 2`` as ``i // 8``. Nothing else is simplified, so that the form of a
binding follows from the splits and fusions that made it. A map that is not quasi-affine and surjective stays as it is.

Most maps are sums of loops, or of digits of fused loops, times constants, as ``split`` and ``fuse`` make them;
:func:`constant_form` does these by integers alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from ...expr import Expr, IntImm, Range, Var, conjuncts, const, is_const_int, product
from ..analyzer import Analyzer
from ..inequality import as_difference
from ..normal_form.linear import Linear, collect
from .iter_map import detect_iter_map
from .mixed_radix import IterMap, IterSplit, IterSum, digit_of


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
