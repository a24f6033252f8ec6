"""This module derives the values of a block's axes that access given elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..arith import Analyzer, Ends, eval_interval, linear_coefficients
from ..arith.itermap import digit_of
from ..expr import Expr, IntImm, IterVar, Range, Var, cast, is_const_int, max_, min_, uses_var
from .access import Access

Required = list[tuple[Access, list["Ends | None"]]]
"""Accesses of the moved block, with the bounds of the elements that are required from each."""


def join_ends(analyzer: Analyzer, a: Ends | None, b: Ends | None) -> Ends | None:
    """Return the interval around two intervals; None stands for an unbounded one."""
    if a is None or b is None:
        return None
    return analyzer.simplify(min_(a[0], b[0])), analyzer.simplify(max_(a[1], b[1]))


def join_boxes(analyzer: Analyzer, boxes: Iterable[Sequence[Ends | None]], ndim: int) -> list[Ends | None]:
    """Return the box around boxes of ``ndim`` dimensions; unbounded when there are none."""
    total: list[Ends | None] | None = None
    for box in boxes:
        total = list(box) if total is None else [join_ends(analyzer, a, b) for a, b in zip(total, box, strict=True)]
    return [None] * ndim if total is None else total


def required_domains(analyzer: Analyzer, axes: Sequence[IterVar], required: Required) -> dict[Var, Ends | None]:
    """Return bounds of each axis that include all values which access a required element; None for the whole domain."""
    names = [iv.var for iv in axes]
    out: dict[Var, Ends | None] = {}
    known: set[Var] = set()
    for access, box in required:
        found = _solve_one(analyzer, axes, access, box)
        for v in names:
            if v in known:
                out[v] = join_ends(analyzer, out[v], found.get(v))
            else:
                known.add(v)
                out[v] = found.get(v)
    return {v: out.get(v) for v in names}


def _solve_one(
    analyzer: Analyzer, axes: Sequence[IterVar], access: Access, box: Sequence[Ends | None]
) -> dict[Var, Ends]:
    doms = {iv.var: iv.dom for iv in axes}
    inner = {lp.loop_var: Range(lp.min, lp.extent) for lp in access.loops}
    out: dict[Var, Ends] = {}
    local = Analyzer()
    for v, r in (*doms.items(), *inner.items()):
        unit = v in doms and is_const_int(r.extent, 1)
        local.bind(v, (r.min, r.min + 1) if unit else r)  # treated as longer, so that simplification keeps the axis
    digits: dict[Var, dict[tuple[int, int | None], Ends]] = {}
    for index, ends in zip(access.indices, box, strict=True):
        if ends is None:
            continue
        e = local.simplify(index)
        digit = digit_of(e, doms)
        if digit is not None and digit[1:] != (1, None):
            digits.setdefault(digit[0], {}).setdefault(digit[1:], ends)
            continue
        for v, found in _solve_linear(analyzer, e, ends, doms, inner).items():
            old = out.get(v)
            out[v] = found if old is None else _meet(analyzer, old, found)
    for v, parts in digits.items():
        joined = _join_digits(analyzer, parts, doms[v])
        if joined is not None:
            old = out.get(v)
            out[v] = joined if old is None else _meet(analyzer, old, joined)
    return {v: (cast(v.dtype, lo), cast(v.dtype, hi)) for v, (lo, hi) in out.items()}


def _meet(analyzer: Analyzer, a: Ends, b: Ends) -> Ends:
    """Return one of two intervals that both contain the values.

    It is the one that is known to lie inside the other, else the first.
    """
    if analyzer.can_prove(b[0] >= a[0]) and analyzer.can_prove(b[1] <= a[1]):
        return b
    return a


def _solve_linear(
    analyzer: Analyzer, e: Expr, ends: Ends, doms: Mapping[Var, Range], inner: Mapping[Var, Range]
) -> dict[Var, Ends]:
    """Return bounds of each axis v in ``c*v + rest``, given that the sum lies between ``ends``."""
    movers = {v: r for v, r in {**doms, **inner}.items() if uses_var(e, v)}
    line = linear_coefficients(e, list(movers))
    if line is None:
        return {}
    out: dict[Var, Ends] = {}
    for v, c in zip(movers, line[0], strict=True):
        if v not in doms or not isinstance(c, IntImm) or c.value == 0:
            continue
        others = {w: r for w, r in movers.items() if w is not v}
        rest = eval_interval(e - v * c, others) if others else (line[1], line[1])
        if rest is None:
            continue
        lo, hi = ends[0] - rest[1], ends[1] - rest[0]
        k = c.value
        if k < 0:
            lo, hi, k = 0 - hi, 0 - lo, -k
        if k > 1:
            lo, hi = (lo + (k - 1)) // k, hi // k
        out[v] = (analyzer.simplify(lo), analyzer.simplify(hi))
    return out


def _join_digits(analyzer: Analyzer, parts: Mapping[tuple[int, int | None], Ends], dom: Range) -> Ends | None:
    """Return bounds of the values whose digits lie between the given ends."""
    lo: Expr = IntImm(0)
    hi: Expr = IntImm(0)
    expected = 1
    for (lower, upper), (first, last) in sorted(parts.items(), key=lambda p: p[0][0]):
        if lower > expected and expected == 1:  # the lowest digits are unknown: they may have any value
            hi = hi + (lower - 1)
        elif lower != expected:
            return None
        lo, hi = lo + first * lower, hi + last * lower
        expected = upper if upper is not None else 0
    if expected != 0 and not (is_const_int(dom.extent) and analyzer.can_prove(dom.extent <= expected)):
        return None
    return analyzer.simplify(lo), analyzer.simplify(hi)
