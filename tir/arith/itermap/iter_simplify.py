"""This module brings index maps to a normal form through their digits, like TVM's IterMapSimplify.

Bindings are split into digits by :func:`~.iter_map.detect_iter_map` and joined again: ``(i0 * 4 + i1) * 8 + i2`` comes
back as ``i0 * 32 + i1 * 8 + i2``, ``i // 4 // 2`` as ``i // 8``. Nothing else is simplified, so that the form of a
binding follows from the splits and fusions that made it. A map that is not quasi-affine and surjective stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...expr import Expr, Range, Var, const, is_const_int, product
from ..analyzer import Analyzer
from .constant_numbers import constant_form
from .iter_map import detect_iter_map
from .mixed_radix import IterMap, IterSplit, IterSum


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
