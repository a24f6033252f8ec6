"""Moves bounds checks out of inner loops: a main version without them, and another version for the edge.

Loops whose last iterations do nothing become shorter.

A tile that does not divide its extent leaves checks like ``i0 * 8 + i1 < 255`` in the innermost loops. For all but the
last ``i0`` the check holds for every ``i1``. This pass splits the iterations of ``i0`` into those where the check
always holds and the rest. Where the rest is one iteration, it replaces ``i0`` by its value, so that unrolled rows
beyond the edge vanish and vector checks become constant masks. It is index-set splitting (Banerjee 1979) driven by
conditions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...tir.analysis.reductions import find_reducer
from ...tir.arith import Analyzer, eval_interval, linear_coefficients
from ...tir.arith.affine import as_difference
from ...tir.expr import (
    Add,
    And,
    BufferLoad,
    Call,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Select,
    Var,
    conjuncts,
    const,
    index_like,
    is_const_int,
    op,
    reads_memory,
    structural_equal,
)
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, For, IfThenElse, LetStmt, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import LEAVES, all_nodes, fresh_copy, substitute, transform, transform_statements, uses_var, vars_in
from .edge_parts import edge_in_parts
from .loop_annotations import HORIZONTAL, TAIL, plain_value
from .scoped_transform import ScopedTransform

Domains = dict[Var, tuple[Expr, Expr] | None]
"""Loop variables with their constant ranges, None for those whose range is not constant."""


def inner_domains(body: Stmt) -> Domains:
    """Returns the variables of the loops inside ``body`` with their ranges."""
    out: Domains = {}
    for n in all_nodes(body):
        if type(n) is For:
            constant = isinstance(n.min, IntImm) and isinstance(n.extent, IntImm)
            out[n.loop_var] = (n.min, n.min + n.extent - 1) if constant else None
        elif type(n) is LetStmt or type(n) is Let:
            out[n.var] = None
    return out


@dataclass(frozen=True, slots=True)
class LinearGap:
    """A linear function of a variable that is negative exactly where a check holds. It is ``value = slope * var +
    base``."""

    value: Expr
    slope: int
    base: Expr


def linear_gap(term: Expr, var: Var, inner: Domains, analyzer: Analyzer, *, always: bool) -> LinearGap | None:
    """Returns where ``term`` holds in all iterations of the loops inside (with ``always``), or in at least one.

    None is returned for checks that are no linear function of ``var``.
    """
    gap = as_difference(term)
    used = vars_in(term)
    inside = used & inner.keys()
    if gap is None or var not in used or any(inner[v] is None for v in inside):
        return None
    span = eval_interval(gap, {v: inner[v] for v in inside})  # type: ignore[misc]
    if span is None:
        return None
    end = analyzer.simplify(span[int(always)])
    linear = None if vars_in(end) & inner.keys() else linear_coefficients(end, [var])
    if linear is None:
        return None
    (slope,), base = linear
    return LinearGap(end, slope.value, analyzer.simplify(base)) if isinstance(slope, IntImm) else None


def cut_idle_iterations(func: PrimFunc) -> PrimFunc:
    """Leave out the last iterations of loops in which no check around the work can hold.

    Before, where a loop of 16 was split by ``[1000, 4]``::

        for i0, i1 in T.grid(1000, 4):
            if i0 * 4 + i1 < 16: f(i0 * 4 + i1)

    After::

        for i0, i1 in T.grid(4, 4):
            if i0 * 4 + i1 < 16: f(i0 * 4 + i1)

    Where the factors of a split exceed the extent by less than one outer iteration, nothing is cut, because some checks
    hold in the last iteration.

    A reduction that combines its identity does nothing either. So a sum over ``r <= i`` ends with the tile, here of 8
    rows, in which ``i`` lies. Before::

        for r in range(256):
            for i1 in T.unroll(8): C[i1] = C[i1] + T.if_then_else(r <= i0 * 8 + i1, A[i0 * 8 + i1, r], 0)

    After::

        for r in range(i0 * 8 + 8):
            for i1 in T.unroll(8): C[i1] = C[i1] + T.if_then_else(r <= i0 * 8 + i1, A[i0 * 8 + i1, r], 0)
    """
    return _IdleCutter(func).function(func)


_FEW = 4
"""The number of iterations up to which a loop keeps a constant extent."""


class _IdleCutter(ScopedTransform):
    """The walk that shortens loops. ``unsigned`` are the buffers inside the function that never hold -0.0."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__({For: self.loop})
        self.unsigned = _without_negative_zero(func)

    def loop(self, loop: For, _: ScopedTransform) -> Stmt | None:
        """Return ``loop`` up to the iteration from which it does nothing, or an empty result when no iteration does
        anything."""
        if loop.kind not in ("serial", "parallel") or not (isinstance(loop.min, IntImm) and loop.min.value == 0):
            return None
        updates = _idle_without(loop.body, self.unsigned)
        guards = _guards_around(loop.body) if isinstance(loop.extent, IntImm) else []
        if not guards and not updates:
            return None
        inner = inner_domains(loop.body)
        gaps = [linear_gap(t, loop.loop_var, inner, self.analyzer, always=False) for t in (*updates, *guards)]
        shorter = loop
        if isinstance(loop.extent, IntImm):
            ends = [e for gap in gaps if gap and (e := _last_end(gap, self.analyzer)) is not None]
            end = min([loop.extent.value, *ends])
            if end <= 0:
                return seq()
            if end < loop.extent.value:
                shorter = loop.with_(extent=const(end, loop.loop_var.dtype))
        if loop.kind == "serial" and HORIZONTAL not in loop.annotations:
            first, last = self.within_tile([gap for gap in gaps[: len(updates)] if gap], shorter.extent)
            if first is not None or last is not None:
                return self.below(self.between(loop, first, shorter.extent if last is None else last))
        return None if shorter is loop else self.below(shorter)

    def within_tile(self, gaps: Sequence[LinearGap], extent: Expr) -> tuple[Expr | None, Expr | None]:
        """Return where a loop of ``extent`` begins and ends, expressions of the variables of outer loops.

        None stands for an end that does not depend on them, or that never lies far inside.
        """
        first, last = None, None
        size = extent.value if isinstance(extent, IntImm) else None
        outer = {loop.loop_var for loop in self.loops}
        if size is not None and size <= _FEW:
            return None, None
        for gap in gaps:
            if not vars_in(gap.base) & outer:
                continue
            if gap.slope > 0:
                end = self.analyzer.simplify((gap.slope - 1 - gap.base) // gap.slope)
                least = self.analyzer.const_int_bound(end)[0]
                if size is None or (least is not None and least * 2 <= size):
                    last = self.analyzer.simplify(op.max_(op.min_(end, extent), 0))
            elif gap.slope < 0:
                start = self.analyzer.simplify(gap.base // -gap.slope + 1)
                most = self.analyzer.const_int_bound(start)[1]
                if size is None or (most is not None and most * 2 >= size):
                    first = self.analyzer.simplify(op.max_(op.min_(start, extent), 0))
        return first, last

    def between(self, loop: For, first: Expr | None, last: Expr) -> For:
        """Return the iterations of ``loop`` from ``first`` to ``last``."""
        if first is None:
            return loop.with_(extent=last)
        body = substitute(loop.body, {loop.loop_var: loop.loop_var + first})
        return loop.with_(extent=self.analyzer.simplify(op.max_(last - first, 0)), body=body)


def end_loops_at_guards(func: PrimFunc) -> PrimFunc:
    """Let loops end where the check around their work ends, so that no iteration has to check.

    Before, rows at the edge of a tile::

        for i1 in range(32):
            if i0 * 32 + i1 < n: f(i0 * 32 + i1)

    After::

        for i1 in range(T.max(T.min(n - i0 * 32, 32), 0)): f(i0 * 32 + i1)

    Loops of at most 4 iterations keep their extent: they are written out.
    """

    def shorter(loop: For, scope: ScopedTransform) -> Stmt | None:
        if loop.kind != "serial" or HORIZONTAL in loop.annotations or not is_const_int(loop.min, 0):
            return None
        if not isinstance(loop.extent, IntImm) or loop.extent.value <= _FEW:
            return None
        inner, ends, held = inner_domains(loop.body), [], []
        for term in _guards_around(loop.body):
            gap = None if reads_memory(term) or vars_in(term) & inner.keys() else as_difference(term)
            linear = None if gap is None else linear_coefficients(gap, [loop.loop_var])
            if linear is not None and is_const_int(linear[0][0], 1) and not isinstance(linear[1], IntImm):
                ends.append(scope.analyzer.simplify(-linear[1]))
                held.append(term)
        if not ends:
            return None
        extent: Expr = loop.extent
        for end in ends:
            extent = op.min_(end, extent)
        return scope.below(loop.with_(extent=op.max_(extent, 0), body=_assume(loop.body, held)))

    return ScopedTransform({For: shorter}).function(func)


def _guards_around(body: Stmt) -> list[Expr]:
    """Return the checks around ``body`` that must hold for it to do anything."""
    if isinstance(body, (For, LetStmt, AttrStmt, Allocate)):
        return _guards_around(body.body)
    if isinstance(body, IfThenElse):
        return [] if body.else_case is not None else [*conjuncts(body.condition), *_guards_around(body.then_case)]
    return _in_all([_guards_around(part) for part in body.seq]) if isinstance(body, SeqStmt) else []


def _in_all(lists: Sequence[list[Expr]]) -> list[Expr]:
    """Return the expressions that each list holds."""
    first, *others = lists
    return [t for t in first if all(any(structural_equal(t, other) for other in o) for o in others)]


def _idle_without(body: Stmt, unsigned: Collection[Buffer]) -> list[Expr]:
    """Return the conditions without which all updates of reductions in ``body`` combine an identity."""
    if isinstance(body, (For, LetStmt, AttrStmt)):
        return _idle_without(body.body, unsigned)
    if isinstance(body, IfThenElse):
        return [] if body.else_case is not None else _idle_without(body.then_case, unsigned)
    if isinstance(body, SeqStmt):
        return _in_all([_idle_without(part, unsigned) for part in body.seq])
    return _checks_of_update(body, unsigned) if isinstance(body, BufferStore) else []


def _checks_of_update(store: BufferStore, unsigned: Collection[Buffer]) -> list[Expr]:
    """Return the checks without which a store combines what it stores to with the identity of a reducer.

    For sums of floats that is 0.0, which changes nothing but -0.0.
    """
    if not any(isinstance(e, Call) and e.op == "tir.if_then_else" for e in store.value.children()):
        return []
    found = find_reducer(None, [BufferLoad(store.buffer, store.indices)], [store.value])
    if found is None or not found[0].starts_from or store.value.dtype.lanes > 1:
        return []
    reducer, (term,) = found
    (neutral,) = reducer.identity([str(store.value.dtype)])
    if reducer.name == "sum" and store.value.dtype.is_float and store.buffer not in unsigned:
        return []
    checks: list[Expr] = []
    while isinstance(term, Call) and term.op == "tir.if_then_else" and structural_equal(term.args[2], neutral):
        checks += conjuncts(term.args[0])
        term = term.args[1]
    return checks


def _without_negative_zero(func: PrimFunc) -> set[Buffer]:
    """Return the buffers allocated inside the function that only hold positive constants, zeros, and sums with elements
    of their own. A sum is -0.0 only if both its operands are."""
    good: dict[Buffer, bool] = {}
    for n in all_nodes(func.body):
        if isinstance(n, BufferStore):
            good[n.buffer] = good.get(n.buffer, True) and _keeps_sign(n)
    inside = {b.data for b in func.buffer_map.values()}
    return {buffer for buffer, is_good in good.items() if is_good and buffer.data not in inside}


def _keeps_sign(store: BufferStore) -> bool:
    value = store.value
    if isinstance(value, FloatImm):
        return value.value >= 0 and math.copysign(1.0, value.value) > 0
    return isinstance(value, Add) and any(
        isinstance(e, BufferLoad) and e.buffer is store.buffer for e in (value.a, value.b)
    )


def _last_end(gap: LinearGap, analyzer: Analyzer) -> int | None:
    """Return the value of the variable from which on the check never holds, whatever the variables outside are."""
    if gap.slope <= 0:
        return None
    least = analyzer.const_int_bound(gap.base)[0]
    return None if least is None else max(-(least // gap.slope), 0)  # slope * var + least >= 0


_MAX_COPIES = 12

_FEWEST_WITHOUT = 2
"""The fewest iterations without a choice that become a loop of their own."""


def name_quotients(func: PrimFunc) -> PrimFunc:
    """Give names to the quotients and remainders of a fused loop's variable, so that checks are affine in plain
    variables.

    Before::

        for f in T.parallel(60):
            ... f // 6 * 8 + i < 77 ...

    After::

        for f in T.parallel(60):
            f_0: T.int32 = f // 6
            ... f_0 * 8 + i < 77 ...
    """

    known: _Known = {}

    def named(n: IRNode) -> Stmt | None:
        if not isinstance(n, For) or n.kind in ("vectorized", "unrolled"):
            return None
        names: list[tuple[Expr, Var]] = []

        def name_of(e: IRNode) -> Var | None:
            if not isinstance(e, (FloorDiv, FloorMod)):
                return None
            return next((name for part, name in names if structural_equal(e, part)), None)

        for cond in _conditions(n.body, known):
            for part in _maximal_quotients(cond, n.loop_var):
                if name_of(part) is None:
                    names.append((part, Var(f"{n.loop_var.name}_{len(names)}", part.dtype)))
        body = transform(n.body, name_of) if names else n.body
        for part, name in reversed(names):
            body = LetStmt(name, part, body)
        return n.with_(body=body) if names else None

    return transform_statements(func, named)


def hoist_guards(func: PrimFunc) -> PrimFunc:
    """Split loops (and named quotients) where inner checks no longer hold for all iterations.

    Before::

        for i0 in range(32):
            for i1 in T.unroll(8):
                if i0 * 8 + i1 < 255: f(i0 * 8 + i1)

    After::

        for i0 in range(31):
            for i1 in T.unroll(8): f(i0 * 8 + i1)
        for i1 in T.unroll(8):
            if 248 + i1 < 255: f(248 + i1)

    The same loop of a symbolic size ``n`` becomes::

        for i0 in range(n // 8):
            for i1 in T.unroll(8): f(i0 * 8 + i1)
        if n // 8 < (n + 7) // 8:
            for i1 in T.unroll(8):
                if n // 8 * 8 + i1 < n: f(n // 8 * 8 + i1)

    Where some check fails in each iteration, as in the two tiles of a padded image, the first iterations and the last ones
    are apart, too: with the value of ``i0``, checks on unrolled rows are known.

    A choice, such as that between the parts of a concatenation, splits a loop as well where it always falls on its second
    value: of 25 vectors of ``T.if_then_else(i < 67, A[i], B[i - 67])`` only the ninth chooses.

    A loop with ``pragma_tail = "mask"`` stays whole: its checks become masks of vectors, computed in every iteration.
    That is smaller, and faster for loops of few iterations.
    """
    return _Splitter(func).function(func)


class _Splitter(ScopedTransform):
    """The walk that splits loops. ``copies``: how often the statement at hand stands in the result."""

    def __init__(self, func: PrimFunc) -> None:
        super().__init__({For: self.loop, LetStmt: self.let})
        self.copies = 1
        self.conditions: _Known = {}
        self.func = func

    @cached_property
    def unsigned(self) -> set[Buffer]:
        """The buffers inside the function that never hold -0.0."""
        return _without_negative_zero(self.func)

    def idle(self, body: Stmt) -> list[Expr]:
        """Return the checks without any of which ``body`` combines an identity."""
        return _idle_without(body, self.unsigned)

    def loop(self, loop: For, _: ScopedTransform) -> Stmt | None:
        """Return the parts of a loop, or None where it stays whole."""
        if loop.kind not in ("serial", "parallel") or not _has_edge_code(loop):
            return None
        if not (isinstance(loop.min, IntImm) and loop.min.value == 0) or self.copies * 2 > _MAX_COPIES:
            return None
        self.know(loop)
        plan = _plan(loop.loop_var, loop.body, self.analyzer, self.conditions)
        if plan is None:
            return self.without_choices(loop)
        if plan.low is not None and plan.rest is not None and _tiles_inside(loop, plan.terms):
            return None
        var, extent = loop.loop_var, loop.extent.value if isinstance(loop.extent, IntImm) else None
        in_parts = loop.kind == "serial" and HORIZONTAL not in loop.annotations
        if in_parts and plan.ends and not any(reads_memory(e) for e in (loop.extent, *plan.ends)):
            alone = plan.low is None and plan.high is None
            if alone or (plan.low is None and (plan.high or 0) > 0 and _chooses(loop.body, plan)):
                return self.until(loop, plan.of_ends(), _assume(loop.body, plan.late), again=not alone)
        main = _assume(loop.body, plan.terms)
        if in_parts and extent is None and plan.low is None and plan.rest is None and _chooses(loop.body, plan):
            assert plan.high is not None  # what else limits the loop
            if plan.high <= 0:
                return self.without_choices(loop)
            return self.parts(_shortened(loop, 0, plan.high, main), _edge(loop, plan.high, None))
        if plan.rest is not None or extent is None:
            condition = _full_condition(var, plan.low, plan.high, plan.rest)
            edge = self.edge(var, loop.body, plan)
            if (
                plan.low == 1 and plan.high is None and plan.rest is not None
            ):  # the first tile, whole but for what stands before it
                first = fresh_copy(_assume(loop.body, plan.late), {var: const(0, var.dtype)})
                edge = IfThenElse(plan.rest, first, edge)
            return self.versions(loop.with_(body=IfThenElse(condition, main, edge)))
        low, high = max(0, plan.low or 0), extent if plan.high is None else min(extent, plan.high)
        if high <= low:
            return self.ends(loop, max(0, high), min(low, extent), extent) or self.without_choices(loop)
        if loop.kind == "serial":
            return self.parts(_edge(loop, 0, low), _shortened(loop, low, high, main), _edge(loop, high, extent))
        tail = _edge_value(low, high, extent)
        edge = fresh_copy(loop.body, {} if tail is None else {var: const(tail, var.dtype)})
        condition = _full_condition(var, low or None, high if high < extent else None, None)
        return self.versions(loop.with_(body=IfThenElse(condition, main, edge)))

    def ends(self, loop: For, high: int, low: int, extent: int) -> Stmt | None:
        """Return a loop in parts where no iteration has all checks.

        Some fail before ``low``, others from ``high`` on. None where that makes no parts, or where they do not follow one
        another.
        """
        if loop.kind != "serial" or max(high, low - high, extent - low) == extent:
            return None
        return self.parts(_edge(loop, 0, high), _edge(loop, high, low), _edge(loop, low, extent))

    def until(self, loop: For, plan: _Plan, main: Stmt, *, again: bool) -> Stmt:
        """Return the iterations in which all checks hold, and those behind them: a branch where that is one.

        ``again``: the first ones are divided by other checks.
        """
        var, end = loop.loop_var, loop.extent
        for limit in plan.ends:
            if not self.analyzer.can_prove(end <= limit):
                end = limit if self.analyzer.can_prove(limit <= end) else op.min_(limit, end)
        end = self.analyzer.simplify(op.max_(end, 0))
        inside = loop.with_(extent=end, body=main)
        whole = (inside,) if again else ()
        left = self.analyzer.simplify(loop.extent - end)
        edge = self.edge(var, loop.body, plan)
        if self.analyzer.can_prove(left <= 1):
            return self.parts(inside, IfThenElse(end < loop.extent, substitute(edge, {var: end})), again=whole)
        at = Var(var.name, var.dtype)
        behind = loop.with_(loop_var=at, extent=left, body=substitute(edge, {var: at + end}))
        return self.parts(inside, behind, again=whole)

    def without_choices(self, loop: For) -> Stmt | None:
        """Return a loop in parts, one of which always takes the second value of a choice, or None."""
        if loop.kind != "serial" or self.copies * 2 > _MAX_COPIES:
            return None
        inner, extent = inner_domains(loop.body), loop.extent.value if isinstance(loop.extent, IntImm) else None
        for term in _choices(loop.body):
            used = uses_var(term, loop.loop_var) and vars_in(term) & inner.keys()
            gap = linear_gap(term, loop.loop_var, inner, self.analyzer, always=False) if used else None
            if gap is None or gap.slope == 0 or not isinstance(gap.base, IntImm):
                continue
            if extent is None:
                if gap.slope > 0 and gap.base.value >= 0:  # the check holds nowhere
                    return self.parts(loop.with_(body=_assume(loop.body, [term], holds=False)))
                continue
            if gap.slope > 0:  # the check holds nowhere from there on
                low, high = max(0, -(gap.base.value // gap.slope)), extent
            else:
                low, high = 0, min(extent, gap.base.value // -gap.slope + 1)
            if high - low >= _FEWEST_WITHOUT:
                other = _shortened(loop, low, high, _assume(loop.body, [term], holds=False))
                return self.parts(_edge(loop, 0, low), other, _edge(loop, high, extent))
        return None

    def let(self, let: LetStmt, _: ScopedTransform) -> Stmt | None:
        """Return a let around two versions of its body, or None where one is enough."""
        if not let.value.dtype.is_int or self.copies * 2 > _MAX_COPIES:
            return None
        first, last = self.analyzer.const_int_bound(let.value)
        if first is None or last is None:
            return None
        self.know(let)
        plan = _plan(let.var, let.body, self.analyzer, self.conditions, first)
        if plan is None:
            return None
        low, high, values = plan.low, plan.high, {}
        if plan.rest is None:
            low = first if low is None else max(first, low)
            high = last + 1 if high is None else min(last + 1, high)
            if high <= low:
                return None
            tail = _edge_value(low - first, high - first, last + 1 - first)
            if tail is not None:
                values = {let.var: const(tail + first, let.var.dtype)}
        condition = _full_condition(
            let.var, None if low == first else low, None if high == last + 1 else high, plan.rest
        )
        edge = self.edge(let.var, let.body, plan) if plan.rest is not None else fresh_copy(let.body, values)
        branches = IfThenElse(condition, _assume(let.body, plan.terms), edge)
        return self.versions(LetStmt(let.var, let.value, branches))

    def edge(self, var: Var, body: Stmt, plan: _Plan) -> Stmt:
        """Return what is done where the checks do not all hold."""
        in_parts = edge_in_parts(var, body, plan.terms, _assume, self.idle, self.analyzer)
        return fresh_copy(body) if in_parts is None else in_parts

    def versions(self, split: For | LetStmt) -> Stmt:
        """Return a loop or let around two versions of its body, with the insides rewritten."""
        self.copies *= 2
        out = self.below(split)
        self.copies //= 2
        return out

    def parts(self, *parts: Stmt | None, again: Collection[Stmt] | None = None) -> Stmt:
        """Return the loops that one was split into, with the insides rewritten.

        A single iteration stands as its body in a sequence of its own. ``again``: those that are split where checks are left,
        None for all.
        """
        kept = [part for part in parts if part is not None]
        self.copies *= len(kept)
        out = [
            (self.loop(part, self) if isinstance(part, For) and (again is None or part in again) else None)
            or self.below(part)
            for part in kept
        ]
        self.copies //= len(kept)
        return seq(*out)


def _has_edge_code(loop: For) -> bool:
    """Returns whether the edge of a loop gets code of its own. ValueError for an unknown value of the annotation."""
    wish = plain_value(loop.annotations.get(TAIL, "peel"))
    if wish not in ("peel", "mask"):
        raise ValueError(f'{TAIL} of loop {loop.loop_var.name} is {wish!r}; it is "peel" or "mask"')
    return bool(wish == "peel")


def _tiles_inside(loop: For, terms: Sequence[Expr]) -> bool:
    """Returns whether an inner loop divides the iterations of ``loop`` into tiles that the checks are about."""
    for inner in all_nodes(loop.body):
        if type(inner) is not For or inner.kind != "serial" or not isinstance(inner.extent, IntImm):
            continue
        for gap in [as_difference(term) for term in terms if uses_var(term, inner.loop_var)]:
            linear = None if gap is None else linear_coefficients(gap, [loop.loop_var, inner.loop_var])
            steps = [abs(c.value) for c in linear[0] if isinstance(c, IntImm)] if linear is not None else []
            if len(steps) == 2 and steps[1] > 1 and steps[0] == steps[1] * inner.extent.value:
                return True
    return False


def _edge_value(low: int, high: int, extent: int) -> int | None:
    """Returns the only value of ``[0, extent)`` outside ``[low, high)``, or None when there is not exactly one."""
    if low == 0 and high == extent - 1:
        return high
    if low == 1 and high == extent:
        return 0
    return None


def _full_condition(var: Var, low: int | None, high: int | None, rest: Expr | None) -> Expr:
    tests: list[Expr] = []
    if low is not None:
        tests.append(var >= low)
    if high is not None:
        tests.append(var < high)
    if rest is not None:
        tests.append(rest)
    return op.all_(*tests)


def _shortened(loop: For, low: int, high: int | None, body: Stmt) -> For:
    """Returns the iterations of ``loop`` from ``low`` to ``high``, or to its end."""
    if not isinstance(loop.extent, IntImm):
        end = loop.extent if high is None else op.min_(high, loop.extent)
        extent: Expr = op.max_(end - low, 0) if low else end
    else:
        extent = const((loop.extent.value if high is None else high) - low, loop.loop_var.dtype)
    if low:
        body = substitute(body, {loop.loop_var: loop.loop_var + low})
    return loop.with_(extent=extent, body=body)


def _edge(loop: For, low: int, high: int | None) -> Stmt | None:
    """Returns a copy of the iterations from ``low`` to ``high``, or to the loop's end; None when there are none."""
    if high is not None and high <= low:
        return None
    if high is not None and high - low == 1:
        body = fresh_copy(loop.body, {loop.loop_var: const(low, loop.loop_var.dtype)})
        return body if isinstance(body, SeqStmt) else SeqStmt((body,))
    copy = fresh_copy(loop)
    return _shortened(copy, low, high, copy.body)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checks that splitting at a variable decides.

    All of them hold where ``low <= var < high`` and ``rest``, a condition on variables from outside; None for no limit.
    ``ends``: what ``rest`` says, where that are ends of the variable alone, which is less than all of them. ``late``: the
    checks of ``rest``.
    """

    terms: list[Expr]
    low: int | None
    high: int | None
    rest: Expr | None
    ends: list[Expr]
    late: list[Expr]

    def of_ends(self) -> _Plan:
        """Return the plan that decides the checks of ``rest`` alone."""
        return _Plan(self.late, None, None, self.rest, self.ends, self.late)


def _chooses(body: Stmt, plan: _Plan) -> bool:
    """Returns whether a check with a constant limit chooses between two values, each of which has its iterations."""
    constant = [term for term in plan.terms if all(term is not late for late in plan.late)]
    return any(structural_equal(term, other) for term in constant for other in _choices(body))


def _plan(var: Var, body: Stmt, analyzer: Analyzer, known: _Known, first: int = 0) -> _Plan | None:
    """Returns the checks in ``body`` that splitting at ``var`` decides, or None when there are none.

    A check that holds from ``first`` on, the least value of ``var``, in no iteration as a whole is left as it is.
    """
    checks = [term for cond in _conditions(body, known) for term in conjuncts(cond) if uses_var(term, var)]
    if not checks:
        return None
    inner = inner_domains(body)
    terms: list[Expr] = []
    lows: list[int] = []
    highs: list[int] = []
    rest: list[Expr] = []
    ends: list[Expr] = []
    late: list[Expr] = []
    for term in checks:
        if not vars_in(term) & inner.keys() or any(structural_equal(term, t) for t in terms):
            continue
        gap = linear_gap(term, var, inner, analyzer, always=True)
        if gap is None or gap.slope == 0:
            continue
        if isinstance(gap.base, IntImm) and gap.slope > 0 and gap.slope * first + gap.base.value >= 0:
            continue
        if not isinstance(gap.base, IntImm):
            late.append(term)
            if not any(structural_equal(gap.value < 0, other) for other in rest):
                rest.append(gap.value < 0)
            if gap.slope > 0:
                ends.append(analyzer.simplify((gap.slope - 1 - gap.base) // gap.slope))
        elif gap.slope > 0:  # slope * var + base < 0
            highs.append(-(gap.base.value // gap.slope))  # ceil(-base / slope)
        else:
            lows.append(gap.base.value // -gap.slope + 1)
        terms.append(term)
    if not terms:
        return None
    low, high = max(lows, default=None), min(highs, default=None)
    return _Plan(terms, low, high, op.all_(*rest) if rest else None, ends if len(ends) == len(late) else [], late)


def _condition(n: IRNode) -> Expr | None:
    """Returns what decides between the other children of ``n``, of which the first is the usual one."""
    kind = type(n)
    if kind is IfThenElse or kind is Select or (kind is Call and n.op == "tir.if_then_else"):  # type: ignore[attr-defined]
        return n.children()[0]
    return None


_Known = dict[IRNode, tuple[Expr, ...]]
"""The conditions in each node that was asked about: a pass asks once for every loop around them."""


def _conditions(n: IRNode, known: _Known) -> tuple[Expr, ...]:
    """Returns the conditions in ``n``, outer ones first."""
    if n not in known:
        own = _condition(n)
        found: tuple[Expr, ...] = () if own is None else (own,)
        for child in n.children():
            if type(child) not in LEAVES:
                found += known[child] if child in known else _conditions(child, known)
        known[n] = found
    return known[n]


def _maximal_quotients(e: Expr, var: Var) -> Iterator[Expr]:
    if isinstance(e, (FloorDiv, FloorMod)) and index_like(e) and vars_in(e) == {var}:
        yield e
        return
    for child in e.children():
        yield from _maximal_quotients(child, var)  # type: ignore[arg-type]


def _choices(body: Stmt) -> Iterator[Expr]:
    """Returns the checks that choose between two values or statements, outer ones first."""
    for n in all_nodes(body):
        condition = _condition(n)
        if condition is not None and len(n.children()) > 2:
            yield from conjuncts(condition)


def _assume(body: Stmt, terms: list[Expr], holds: bool = True) -> Stmt:
    """Returns ``body`` with the given checks taken as true, or as false where they do not hold."""

    def strip(cond: Expr) -> Expr:
        if isinstance(cond, And):
            a, b = strip(cond.a), strip(cond.b)
            if _is_false(a) or _is_false(b):
                return IntImm(0, "bool")
            if _is_true(a):
                return b
            if _is_true(b):
                return a
            return cond if a is cond.a and b is cond.b else And(a, b)
        return IntImm(int(holds), "bool") if any(cond is t or structural_equal(cond, t) for t in terms) else cond

    def post(n: IRNode) -> IRNode | None:
        old = _condition(n)
        new = None if old is None else strip(old)
        if new is None or new is old:
            return None
        if _is_false(new) and len(n.children()) > 2:
            return n.children()[2]
        return n.children()[1] if _is_true(new) else n.map_children(lambda c: new if c is old else c)

    return transform(body, post=post)


def _is_false(e: Expr) -> bool:
    return isinstance(e, IntImm) and not e.value


def _is_true(e: Expr) -> bool:
    return isinstance(e, IntImm) and bool(e.value)
