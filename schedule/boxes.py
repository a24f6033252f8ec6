"""Boxes of elements that loops sweep: exactly, or at most.

*Exactly* is what proofs need: :func:`exact_box` gives the elements that are certainly met, or nothing when the
loops do not sweep a box without holes. *At most* is what making loops needs: :func:`bounding_box`. Both work on
symbolic extents.

Sweeping: ``c1*x1 + c2*x2 + ...`` takes every value of an interval when, variables sorted by coefficient, each
coefficient is at most one more than what the smaller ones reach; it takes each value once when it is exactly that
(the mixed-radix condition of quasi-affine iteration maps).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..tir.arith import Analyzer, bind_sizes, eval_interval, linear_coefficients
from ..tir.expr import GE, GT, LE, LT, Expr, IntImm, Range, Var, const, is_const_int
from ..tir.op import max_, min_
from ..tir.stmt import Block, For, Stmt
from ..tir.walk import pre_order, substitute, uses_var
from .analysis import Access
from .invert import digit_of
from .tree import Tree

__all__ = ["Box", "Ends", "analyzer_at", "bind_loops", "bounding_box", "exact_box"]

Ends = tuple[Expr, Expr]
"""The first and the last value, both included."""


@dataclass(frozen=True, slots=True)
class Box:
    """One interval per dimension, and the ``conditions`` on outer variables under which it is swept at all.

    Without ``complete``, more than the box may be swept.
    """

    ends: tuple[Ends, ...]
    conditions: tuple[Expr, ...] = ()
    complete: bool = True


def bind_loops(analyzer: Analyzer, loops: Iterable[For]) -> None:
    """Tell ``analyzer`` the ranges of loops, outermost first."""
    for loop in loops:
        analyzer.bind(loop.loop_var, Range(loop.min, loop.extent))


def analyzer_at(tree: Tree, stmt: Stmt) -> Analyzer:
    """An analyzer that knows the ranges of everything around ``stmt``: sizes, loops, axes of enclosing blocks.

    Symbolic sizes of the function's buffers are at least one: an empty buffer leaves nothing to compute wrongly. So are
    the open tile sizes of a parametric schedule.
    """
    analyzer = Analyzer()
    for var in tree.tile_symbols:
        analyzer.bind(var, (1, None))
    bind_sizes(analyzer, tree.func.buffer_map.values())
    for symbol in tree.tile_symbols:
        analyzer.bind(symbol, (1, None))
    for up in reversed(list(tree.above(stmt))):
        if isinstance(up, For):
            analyzer.bind(up.loop_var, Range(up.min, up.extent))
        elif isinstance(up, Block):
            for iv in up.iter_vars:
                analyzer.bind(iv.var, iv.dom)
    return analyzer


# -- exactly -------------------------------------------------------------------------------------------------------------


def _less_than(condition: Expr) -> tuple[Expr, Expr, bool] | None:
    """``condition`` as (e, b, True) for ``e <= b`` or (e, b, False) for ``e >= b``; None when it is neither."""
    if isinstance(condition, LT):
        return condition.a, condition.b - 1, True
    if isinstance(condition, LE):
        return condition.a, condition.b, True
    if isinstance(condition, GT):
        return condition.a, condition.b + 1, False
    if isinstance(condition, GE):
        return condition.a, condition.b, False
    return None


def _digits(
    exprs: Sequence[Expr], ranges: dict[Var, Range], analyzer: Analyzer
) -> tuple[list[Expr], dict[Var, Range]] | None:
    """``exprs`` with ``x // a``, ``x % b``, ``x % b // a`` of one loop replaced by variables of their own, where these
    are the digits of x in a mixed radix and so take their values independently."""
    wanted: dict[Var, dict[tuple[int, int | None], list[Expr]]] = {}
    whole: set[Var] = set()
    for e in exprs:
        stack: list[Any] = [e]
        while stack:
            n = stack.pop()
            digit = digit_of(n, ranges)
            if digit is not None and digit[1:] != (1, None):
                x, lower, upper = digit
                wanted.setdefault(x, {}).setdefault((lower, upper), []).append(n)
            elif isinstance(n, Var):
                whole.add(n)
            else:
                stack.extend(n.children())
    if not wanted:
        return list(exprs), ranges
    out_ranges = dict(ranges)
    replaced: dict[Expr, Expr] = {}
    for x, parts in wanted.items():
        extent = ranges[x].extent
        if x in whole or not isinstance(extent, IntImm) or not is_const_int(ranges[x].min, 0):
            return None
        spans = sorted((lower, extent.value if upper is None else min(upper, extent.value)) for lower, upper in parts)
        last = 1
        for lower, upper in spans:
            # the digits must not overlap, and the loop must run over whole periods of each
            if (
                lower < last
                or (upper != extent.value and extent.value % upper)
                or upper % lower
                and upper != extent.value
            ):
                return None
            last = upper
        for (lower, upper), nodes in parts.items():
            top = extent.value if upper is None else min(upper, extent.value)
            digit_var = Var(f"{x.name}_digit", x.dtype)
            out_ranges[digit_var] = Range(const(0, x.dtype), const(-(-top // lower), x.dtype))
            for n in nodes:
                replaced[n] = digit_var
        del out_ranges[x]

    def replace(n: Any) -> Any:
        return replaced[n] if n in replaced else n.map_children(replace)

    return [replace(e) for e in exprs], out_ranges


def exact_box(
    analyzer: Analyzer,
    indices: Sequence[Expr],
    ranges: Mapping[Var, Range],
    conditions: Iterable[Expr] = (),
    once: bool = False,
) -> Box | None:
    """The box that ``indices`` sweep while the variables of ``ranges`` run, without holes; None when that is not shown.

    ``analyzer`` knows all variables. With ``once``, None also when a point may be met more than once.
    """
    once_only = {v for v, r in ranges.items() if is_const_int(analyzer.simplify(r.extent), 1)}
    own = {v: r for v, r in ranges.items() if v not in once_only}
    fixed = {v: ranges[v].min for v in once_only}
    exprs = [analyzer.simplify(substitute(i, fixed)) for i in indices]
    tests = [analyzer.simplify(substitute(c, fixed)) for c in conditions]
    split = _digits([*exprs, *tests], own, analyzer)
    if split is None:
        return None
    exprs, tests, mine = split[0][: len(exprs)], split[0][len(exprs) :], split[1]
    for v, r in mine.items():
        if v not in own:
            analyzer.bind(v, r)
    names = list(mine)
    used: set[Var] = set()
    lines: list[tuple[dict[Var, Expr], Expr]] = []
    ends: list[Ends] = []
    for e in exprs:
        line = linear_coefficients(e, names)
        if line is None:
            return None
        factors = {v: c for v, c in zip(names, line[0], strict=True) if not is_const_int(c, 0)}
        if used & factors.keys():
            return None
        used |= factors.keys()
        reach = _reach(analyzer, factors, mine, once)
        if reach is None:
            return None
        first = line[1]
        for v, c in factors.items():
            first = first + c * mine[v].min
        lines.append((factors, line[1]))
        ends.append((analyzer.simplify(first), analyzer.simplify(first + reach - 1)))
    unused = [v for v in mine if v not in used]
    if once and unused:
        return None
    outer: list[Expr] = []
    complete = True
    repeat = {v: mine[v].min for v in unused}
    for test in tests:
        if uses_var(test, lambda v: v in repeat):  # loops that repeat the same elements: look at their first turn
            test = analyzer.simplify(substitute(test, repeat))
            if analyzer.can_prove(test):
                continue
            complete = False
        if not _apply(analyzer, test, mine, own, lines, ends, outer):
            return None
    return Box(tuple(ends), tuple(outer), complete)


def _reach(analyzer: Analyzer, factors: dict[Var, Expr], ranges: Mapping[Var, Range], once: bool) -> Expr | None:
    """How many values in a row the linear form takes; None when there may be holes."""
    reach: Expr = IntImm(1)
    left = dict(factors)
    while left:
        for v, c in left.items():
            if (is_const_int(c) or analyzer.can_prove(c >= 1)) and (
                analyzer.can_prove_equal(c, reach)
                or (not once and analyzer.can_prove(c >= 1) and analyzer.can_prove(c <= reach))
            ):
                reach = analyzer.simplify(reach + c * (ranges[v].extent - 1))
                del left[v]
                break
        else:
            return None
    return reach


def _apply(
    analyzer: Analyzer,
    test: Expr,
    mine: Mapping[Var, Range],
    own: Mapping[Var, Range],
    lines: list[tuple[dict[Var, Expr], Expr]],
    ends: list[Ends],
    outer: list[Expr],
) -> bool:
    """Cut the box at a condition; False when what is left is not known to be a box."""
    if isinstance(test, IntImm):
        return bool(test.value)
    inside = {n for n in pre_order(test) if isinstance(n, Var) and (n in mine or n in own)}
    if not inside:
        outer.append(test)
        return True
    parts = _less_than(test)
    if parts is None:
        return False
    e, bound, below = parts
    line = linear_coefficients(analyzer.simplify(e - bound), list(mine))
    if line is None:
        return False
    factors = {v: c for v, c in zip(mine, line[0], strict=True) if not is_const_int(c, 0)}
    if not inside <= factors.keys():
        return False
    for d, (mine_factors, base) in enumerate(lines):
        if factors.keys() == mine_factors.keys() and all(
            analyzer.can_prove_equal(c, mine_factors[v]) for v, c in factors.items()
        ):
            limit = analyzer.simplify(base - line[1])  # e <= bound  <=>  index <= base - rest
            first, last = ends[d]
            if below:
                ends[d] = (first, analyzer.simplify(min_(last, limit)))
            else:
                ends[d] = (analyzer.simplify(max_(first, limit)), last)
            return True
    return False


# -- at most -------------------------------------------------------------------------------------------------------------


def bounding_box(
    analyzer: Analyzer, access: Access, loops: Sequence[For], values: Mapping[Var, Expr]
) -> list[Ends | None]:
    """For each index of ``access`` the ends it stays between while ``loops`` and the access's own loops run.

    ``values`` replace variables first (axes by their bindings). None for an index without known ends.
    """
    ranges = {loop.loop_var: (loop.min, loop.min + loop.extent - 1) for loop in (*loops, *access.loops)}
    out: list[Ends | None] = []
    for index in access.indices:
        e = analyzer.simplify(substitute(index, values))
        if not uses_var(e, lambda v: v in ranges):
            out.append((e, e))
            continue
        found = eval_interval(e, ranges)
        if found is None or any(uses_var(end, lambda v: v in ranges) for end in found):
            out.append(None)
        else:
            out.append((analyzer.simplify(found[0]), analyzer.simplify(found[1])))
    return out
