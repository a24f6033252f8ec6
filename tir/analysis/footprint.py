"""This module computes footprints: the boxes of elements that accesses cover while loops run.

Proofs need the exact footprint: :func:`exact_box` returns the elements that are certainly accessed, or nothing when the
loops do not cover a box without holes. Making loops needs an upper bound: :func:`bounding_box`. Both accept symbolic
extents.

The values of ``c1*x1 + c2*x2 + ...`` form an interval without holes when, with the variables sorted by coefficient,
each coefficient is at most one more than the largest value that the smaller terms reach together. Each value is taken
once when each coefficient is exactly that (the mixed-radix condition of quasi-affine iteration maps).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from ..arith import Analyzer, Ends, eval_interval, lies_between, linear_coefficients
from ..arith.affine import as_bound, as_difference, linear_form
from ..arith.itermap import value_count, with_digit_variables
from ..arith.normal_form.canonical import minimum
from ..arith.normal_form.forms import Poly, add, const_of, constant
from ..expr import (
    INDEX_TYPES,
    BufferLoad,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Range,
    Var,
    const,
    is_const_int,
    max_,
    min_,
)
from ..expr.traversal import pre_order, substitute, uses_var
from ..stmt import BlockRealize, For
from .access import Access
from .known_ranges import bind_loops


@dataclass(frozen=True, slots=True)
class Box:
    """A ``Box`` holds one interval per dimension, and the ``conditions`` on outer variables under which it is accessed.

    Unless ``complete``, elements outside the box may be accessed as well.
    """

    ends: tuple[Ends, ...]
    conditions: tuple[Expr, ...] = ()
    complete: bool = True


# -- exactly -------------------------------------------------------------------------------------------------------------


def exact_box(
    analyzer: Analyzer,
    indices: Sequence[Expr],
    ranges: Mapping[Var, Range],
    conditions: Iterable[Expr] = (),
    once: bool = False,
) -> Box | None:
    """Return the box that ``indices`` cover without holes while the variables of ``ranges`` run; None when that is not
    proven.

    ``analyzer`` knows all variables. With ``once`` the result is also None when an element may be accessed more than
    once.
    """
    tests = list(conditions)
    return _constant_box(analyzer, indices, ranges, tests, once) or _general_box(analyzer, indices, ranges, tests, once)


def _general_box(
    analyzer: Analyzer,
    indices: Sequence[Expr],
    ranges: Mapping[Var, Range],
    conditions: Iterable[Expr],
    once: bool,
) -> Box | None:
    once_only = {v for v, r in ranges.items() if is_const_int(analyzer.simplify(r.extent), 1)}
    own = {v: r for v, r in ranges.items() if v not in once_only}
    if any([uses_var(e, ranges.__contains__) for r in own.values() for e in (r.min, r.extent)]):
        return None  # the footprint is not a box
    if any(isinstance(n, BufferLoad) or _divides_by_zero(n) for e in indices for n in pre_order(e)):
        return None  # indices from memory have no known footprint
    fixed = {v: ranges[v].min for v in once_only}
    written = [substitute(i, fixed) for i in indices]
    exprs = [analyzer.simplify(e) for e in written]
    tests = [analyzer.simplify(substitute(c, fixed)) for c in conditions]
    taken_apart = with_digit_variables(analyzer, exprs, tests, own, once)
    if (
        taken_apart is None
    ):  # simplified, (i * 4 + j) // 196 is i // 49, while (i * 4 + j) % 14 stays a digit of both loops
        taken_apart = with_digit_variables(analyzer, written, tests, own, once)
    if taken_apart is None:
        return None
    exprs, tests, mine = taken_apart
    names = list(mine)
    used: set[Var] = set()
    lines: list[tuple[dict[Var, Expr], Expr]] = []
    ends: list[Ends] = []
    for e in exprs:
        line = linear_coefficients(e, names, analyzer)
        if line is None:
            return None
        factors = {v: c for v, c in zip(names, line[0], strict=True) if not is_const_int(c, 0)}
        if used & factors.keys():
            return None
        used |= factors.keys()
        down = {v for v, c in factors.items() if isinstance(c, IntImm) and c.value < 0}
        reach = value_count(analyzer, {v: 0 - c if v in down else c for v, c in factors.items()}, mine, once)
        if reach is None:
            return None
        first = line[1]
        for v, c in factors.items():
            first = first + c * (mine[v].min + mine[v].extent - 1 if v in down else mine[v].min)
        lines.append((factors, line[1]))
        ends.append((analyzer.simplify(first), analyzer.simplify(first + reach - 1)))
    unused = [v for v in mine if v not in used]
    if once and unused:
        return None
    if not all(analyzer.can_prove(mine[v].extent >= 1) for v in unused):
        return None  # a loop may have no iteration, and the bounds do not express that
    outer: list[Expr] = []
    complete = True
    repeat = {v: mine[v].min for v in unused}
    for test in tests:
        if uses_var(test, repeat.__contains__):  # loops that repeat the same elements: take their first iteration
            test = analyzer.simplify(substitute(test, repeat))
            if analyzer.can_prove(test):
                continue
            complete = False
        if not _apply(analyzer, test, mine, own, lines, ends, outer):
            return None
    return Box(tuple(ends), tuple(outer), complete)


def _constant_box(
    analyzer: Analyzer, indices: Sequence[Expr], ranges: Mapping[Var, Range], conditions: Iterable[Expr], once: bool
) -> Box | None:
    """Return :func:`exact_box` for sums of loops from 0 with constant extents, else None. Each condition must be an
    upper bound of one index.

    Integers alone decide them.
    """
    left: dict[int, int] = {}
    for v, r in ranges.items():
        if not is_const_int(r.min, 0) or not isinstance(r.extent, IntImm) or r.extent.value < 1:
            return None
        left[analyzer.var_atom(v)] = r.extent.value
    numbers = set(left)
    found: list[tuple[dict[int, Poly], Poly]] = []
    ends: list[Poly] = []
    for e in indices:
        form = _form(analyzer, e, numbers)
        if form is None or not form[0].keys() <= left.keys():
            return None
        reach = 1
        for factor, count in sorted([(const_of(c) or 0, left.pop(a)) for a, c in form[0].items()]):
            if count > 1 and not (factor == reach if once else 0 < factor <= reach):
                return None
            reach += factor * (count - 1)
        found.append(form)
        ends.append(add(form[1], constant(reach - 1)))
    if once and any([count > 1 for count in left.values()]):
        return None
    for condition in conditions:
        gap = as_difference(condition)
        form = None if gap is None else _form(analyzer, gap, numbers)
        if form is None or not form[0] or form[0] not in [factors for factors, _ in found]:
            return None
        d = [factors for factors, _ in found].index(form[0])
        limit = add(add(found[d][1], form[1], -1), constant(-1))  # index - base + rest < 0
        ends[d] = minimum(analyzer, ends[d], limit, indices[d].dtype)
    pairs = zip(indices, found, ends, strict=True)
    return Box(
        tuple([(analyzer.to_expr(first, e.dtype), analyzer.to_expr(last, e.dtype)) for e, (_, first), last in pairs])
    )


def _form(analyzer: Analyzer, e: Expr, numbers: set[int]) -> tuple[dict[int, Poly], Poly] | None:
    """Return :func:`linear_form` of an index that does not come from memory, else None."""
    p = analyzer.poly(e) if e.dtype in INDEX_TYPES else None
    return None if p is None or analyzer.data(p) else linear_form(analyzer, p, numbers)


def whole_box(
    analyzer: Analyzer, outside: Analyzer, access: Access, loops: Iterable[For], blocks: Iterable[BlockRealize] = ()
) -> list[Ends] | None:
    """Return the box that an access covers without holes and unconditionally, while the loops run. None stands for no
    proof.

    ``analyzer`` knows that the loops have iterations, ``outside`` only their ranges. ``blocks`` are those around the
    access that are not in it.
    """
    own = [*loops, *access.loops]
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in own}
    box = exact_box(analyzer, access.indices, ranges, access.guards)
    if box is None or not box.complete or not all(analyzer.can_prove(c) for c in box.conditions):
        return None
    around = [*blocks, *access.around.blocks]
    needed = [lp for lp in own if not any(only_reduces(realize, lp) for realize in around)]
    if not all_run(outside, needed, [last - first + 1 for first, last in box.ends]):
        return None
    return list(box.ends)


def only_reduces(realize: BlockRealize, loop: For) -> bool:
    """Return whether the block writes its init where the loop has no iterations, as a loop over reduce axes alone."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    kinds = {iv.kind for iv, value in pairs if uses_var(value, loop.loop_var)}
    return realize.block.init is not None and kinds == {IterVar.REDUCE}


def all_run(outside: Analyzer, loops: Iterable[For], extents: Iterable[Expr]) -> bool:
    """Return whether all loops have iterations where a box of these extents has elements."""
    unknown = [lp.extent for lp in loops if not isinstance(lp.extent, IntImm) or lp.extent.value < 1]
    extents = [outside.simplify(e) for e in extents] if unknown else []
    if not unknown or any(isinstance(e, IntImm) and e.value < 1 for e in extents):
        return True
    with outside.nonempty(*extents):
        return all(outside.can_prove(extent >= 1) for extent in unknown)


def _apply(
    analyzer: Analyzer,
    test: Expr,
    mine: Mapping[Var, Range],
    own: Mapping[Var, Range],
    lines: list[tuple[dict[Var, Expr], Expr]],
    ends: list[Ends],
    outer: list[Expr],
) -> bool:
    """Restrict the box to a condition; return False when the remaining elements are not known to form a box."""
    if isinstance(test, IntImm):
        return bool(test.value)
    inside = {n for n in pre_order(test) if isinstance(n, Var) and (n in mine or n in own)}
    if not inside:
        outer.append(test)
        return True
    parts = as_bound(test)
    if parts is None:
        return False
    e, bound, below = parts
    line = linear_coefficients(analyzer.simplify(e - bound), list(mine), analyzer)
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
    for d, (mine_factors, base) in enumerate(lines):
        high = _high_digits(factors, mine_factors, mine)
        if high is not None:  # index = base + step * (e - rest) + low, low from 0 to step - 1
            step, low = high
            first, last = ends[d]
            edge = base + low - step * line[1]
            if below:
                ends[d] = (first, analyzer.simplify(min_(last, edge + (step - 1))))
            else:
                ends[d] = (analyzer.simplify(max_(first, edge)), last)
            return True
    return False


def _high_digits(
    factors: dict[Var, Expr], whole: dict[Var, Expr], ranges: Mapping[Var, Range]
) -> tuple[int, int] | None:
    """Return (step, low) when ``factors`` times ``step`` are the high digits of ``whole``.

    The other digits take the values from ``low`` to ``low + step - 1``.
    """
    if not factors or not factors.keys() < whole.keys():
        return None
    steps: set[int] = set()
    for v, c in factors.items():
        f = whole[v]
        if not isinstance(c, IntImm) or not isinstance(f, IntImm) or c.value == 0 or f.value % c.value:
            return None
        steps.add(f.value // c.value)
    reach, low = 1, 0
    for v in whole.keys() - factors.keys():
        f, r = whole[v], ranges[v]
        if not (isinstance(f, IntImm) and isinstance(r.min, IntImm) and isinstance(r.extent, IntImm)) or f.value < 0:
            return None
        reach += f.value * (r.extent.value - 1)
        low += f.value * r.min.value
    step = steps.pop()
    return (step, low) if not steps and step == reach else None


# -- at most -------------------------------------------------------------------------------------------------------------


def _divides_by_zero(e: object) -> bool:
    """Return whether ``e`` is ``x // 0`` or ``x % 0``. That is the value of an axis of a fused loop that never runs."""
    return isinstance(e, (FloorDiv, FloorMod)) and is_const_int(e.b, 0)


def bounding_box(
    analyzer: Analyzer, access: Access, loops: Sequence[For], values: Mapping[Var, Expr]
) -> list[Ends | None]:
    """Return the bounds of each index of ``access`` while ``loops`` and the access's own loops run.

    ``values`` replace variables first (axes by their bindings). An index without known bounds gives None.
    """
    ranges = {loop.loop_var: (loop.min, loop.min + loop.extent - 1) for loop in (*loops, *access.loops)}
    out: list[Ends | None] = []
    for index in access.indices:
        e = analyzer.simplify(substitute(index, values))
        if any(isinstance(n, BufferLoad) or _divides_by_zero(n) for n in pre_order(e)):
            out.append(None)
            continue
        if not uses_var(e, lambda v: v in ranges):
            out.append((e, e))
            continue
        found = eval_interval(e, ranges)
        if found is None or any(uses_var(end, lambda v: v in ranges) for end in found):
            out.append(None)
        elif access.around.in_while and any(isinstance(n, BufferLoad) for end in found for n in pre_order(end)):
            out.append(None)  # bounds of loops that may change from one iteration to the next
        else:
            out.append((analyzer.simplify(found[0]), analyzer.simplify(found[1])))
    return out


def first_outside(analyzer: Analyzer, access: Access, box: Sequence[Ends]) -> Expr | None:
    """Return the first index of ``access`` that is not proven to lie within ``box``; None when all are.

    The conditions of the access are assumed. ``analyzer`` knows all variables but the access's own loops, which are
    added to it.
    """
    bind_loops(analyzer, access.loops)
    with ExitStack() as known:
        for guard in access.guards:
            known.enter_context(analyzer.constraint(guard))
        for index, (low, high) in zip(access.indices, box, strict=True):
            if analyzer.can_prove(index - low >= const(0, index.dtype)) and analyzer.can_prove(index <= high):
                continue
            if not lies_between(index, low, high, analyzer.const_int_bound):
                return index
    return None
