"""This module brings index maps of constant numbers to their normal form by integers alone.

Most maps are sums of loops, or of digits of fused loops, times constants, as ``split`` and ``fuse`` make them. Where this
module does not decide, :mod:`.iter_map` may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

from ...expr import Expr, IntImm, Range, Var, conjuncts, const, is_const_int
from ..inequality import as_difference
from ..normal_form.linear import Linear, collect
from .mixed_radix import digit_of


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
