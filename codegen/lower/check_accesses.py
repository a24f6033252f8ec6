"""Proves that every access lies inside its buffer, or puts assertions of it at the start of the function.

Intervals of integers decide most accesses, and the analyzer most others. What is left has one of four ends:

- All bounds are constants: the points are counted. One outside the buffer is an IndexError.
- The ends follow from sizes and scalars: an assertion compares them, once per call.
- Conditions, or indices that are not linear, hide the ends: where a sufficient condition fails, loops at the start of
  the function walk the indices.
- An index, a loop bound or a condition reads memory, or the index is computed in floating point: nothing is checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import Any

import numpy as np

from ...tir.analysis.simplify import loop_values, simplify
from ...tir.arith import Analyzer, eval_interval, lies_between, linear_coefficients
from ...tir.arith.affine import as_bound
from ...tir.arith.normal_form.forms import EVERYTHING, Interval, interval_of
from ...tir.expr import (
    GE,
    INDEX_TYPES,
    LE,
    LT,
    Add,
    And,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    conjuncts,
    const,
    logical_not,
    same,
    shape_text,
)
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.intrinsics import Effect, effect_of
from ...tir.expr.node import marked_text
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ...tir.walk import pre_order, substitute, vars_in
from ..backend.emitter import elements_of

log = logging.getLogger("tilewright")

_MOST_POINTS = 1 << 22
"""The most points of loops with constant bounds that are counted when a function is built."""

_LEAVES = frozenset((Var, IntImm))
_NOTHING = Evaluate(IntImm(0))


class _NotComputed(Exception):
    """Raised for an expression whose value at given points is not computed here."""


class _Enclosing:
    """One loop, condition, or let variable around accesses, and the scope around it. The outermost has none of them."""

    def __init__(self, around: _Enclosing | None, loop: tuple[Var, Range] | None = None, guard: Expr | None = None,
                 let: tuple[Var, Expr] | None = None, same_run: bool = True) -> None:  # fmt: skip
        self.around, self.loop, self.guard, self.let = around, loop, guard, let
        self.always = same_run
        self.seen: set[Expr] = set()
        self.known = ExitStack()

    @cached_property
    def path(self) -> list[_Enclosing]:
        """The scopes from the outermost to this one."""
        return [self] if self.around is None else [*self.around.path, self]


class _Open:
    """What is known of an access that is not proven: its loops, its conditions and its index."""

    def __init__(self, scope: _Enclosing, index: Expr, extent: Expr) -> None:
        lets: dict[Var, Expr] = {}
        loops: dict[Var, Range] = {}
        guards: list[Expr] = []
        self.always = True
        for s in scope.path:
            self.always = self.always and s.always
            if s.let is not None:
                lets[s.let[0]] = substitute(s.let[1], lets)
            elif s.loop is not None:
                v, r = s.loop
                loops[v] = Range(substitute(r.min, lets), substitute(r.extent, lets))
            elif s.guard is not None:
                guards += conjuncts(substitute(s.guard, lets))
        self.index, self.extent = substitute(index, lets), substitute(extent, lets)
        needed = {v for e in (self.index, self.extent, *guards) for v in vars_in(e)}
        for v, r in reversed(loops.items()):
            if v in needed or not isinstance(r.extent, IntImm):
                needed |= {v} | vars_in(r.min) | vars_in(r.extent)
        self.never = any(isinstance(r.extent, IntImm) and r.extent.value <= 0 for r in loops.values())
        self.loops = {v: r for v, r in loops.items() if v in needed}
        self.guards = guards
        self.sizes = needed - loops.keys()

    @property
    def parts(self) -> list[Expr]:
        """The expressions that decide which indices there are."""
        bounds = [e for r in self.loops.values() for e in (r.min, r.extent)]
        return [self.index, self.extent, *self.guards, *bounds]


def check_accesses(func: PrimFunc) -> PrimFunc:
    """Return the function after assertions of what is not proven about its accesses; the same one when all is proven.

    IndexError for a function that accesses a place outside of a buffer.
    """
    checks = _Checks(func)
    checks.run()
    body = func.body
    if checks.walks:
        body = seq(*checks.walks, body)
    for condition, message in reversed(checks.asserted):
        body = AssertStmt(condition, message, body)
    return func.with_body(body)


class _Checks:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.fixed = {*func.params, *[v for b in func.buffers for e in b.shape for v in vars_in(e)]}
        self.ranges: dict[Var, Interval] = {}
        self.loops: dict[Var, Range] = {}
        self.memo: dict[Expr, Interval] = {}
        self.asserted: list[tuple[Expr, str]] = []
        self.walks: list[Stmt] = []
        self.analyzers: dict[_Enclosing, Analyzer] = {}
        self.memory: dict[Var, Buffer] = {b.data: b for b in func.buffers}
        self.sized: set[Buffer] = set(func.buffers)
        self.kept = ExitStack()
        self.spot: Stmt = func.body
        sizes = [e for b in func.buffers for e in b.shape if isinstance(e, Var)]
        self.ranges.update(dict.fromkeys(sizes, Interval(0, None)))

    @with_room
    def run(self) -> None:
        self.stmt(self.func.body, _Enclosing(None))

    # -- the walk -----------------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt, scope: _Enclosing) -> None:
        outer, self.spot = self.spot, s
        rule = _STATEMENTS.get(type(s), _Checks.other)
        rule(self, s, scope)
        self.spot = outer

    def other(self, s: Stmt, scope: _Enclosing) -> None:
        for child in s.children():
            if isinstance(child, Stmt):
                self.stmt(child, scope)
            elif type(child) not in _LEAVES:
                self.expr(child, scope)

    def loop(self, s: For, scope: _Enclosing) -> None:
        self.expr(s.min, scope)
        self.expr(s.extent, scope)
        values = loop_values(s)
        if isinstance(values, Range):
            self.stmt(s.body, self.inside_loop(s.loop_var, values, scope))
        else:  # a bound changes while the loop runs
            self.stmt(s.body, _Enclosing(scope, same_run=False))

    def inside_loop(self, var: Var, values: Range, scope: _Enclosing) -> _Enclosing:
        low, extent = self.interval(values.min), self.interval(values.extent)
        self.ranges[var] = Interval(low.lo, low.plus(extent).plus(Interval(-1, -1)).hi)
        self.loops[var] = values
        return _Enclosing(scope, loop=(var, values))

    def sequence(self, s: SeqStmt, scope: _Enclosing) -> None:
        for item in s.seq:
            self.stmt(item, scope)

    def store(self, s: BufferStore, scope: _Enclosing) -> None:
        self.expr(s.value, scope)
        self.access(s, s.predicate, True, scope)

    def branch(self, s: IfThenElse, scope: _Enclosing) -> None:
        self.expr(s.condition, scope)
        self.stmt(s.then_case, _Enclosing(scope, guard=s.condition))
        if s.else_case is not None:
            self.stmt(s.else_case, _Enclosing(scope, guard=logical_not(s.condition)))

    def assertion(self, s: AssertStmt, scope: _Enclosing) -> None:
        self.expr(s.condition, scope)
        self.stmt(s.body, _Enclosing(scope, guard=s.condition))

    def repeated(self, s: While, scope: _Enclosing) -> None:
        inner = _Enclosing(scope, same_run=False)
        self.expr(s.condition, inner)
        self.stmt(s.body, inner)

    def let(self, s: LetStmt, scope: _Enclosing) -> None:
        self.expr(s.value, scope)
        self.ranges[s.var] = self.interval(s.value)
        self.stmt(s.body, _Enclosing(scope, let=(s.var, s.value)))

    def attribute(self, s: AttrStmt, scope: _Enclosing) -> None:
        self.expr(s.value, scope)
        if isinstance(s.node, IterVar) and s.attr_key in ("thread_extent", "virtual_thread"):
            scope = self.inside_loop(s.node.var, Range(const(0, s.value.dtype), s.value), scope)
        self.stmt(s.body, scope)

    def allocate(self, s: Allocate, scope: _Enclosing) -> None:
        self.memory[s.buffer.data] = s.buffer
        self.sized.add(s.buffer)
        self.stmt(s.body, scope)

    def expr(self, e: Any, scope: _Enclosing) -> None:
        if type(e) in _LEAVES or e in scope.seen:
            return
        scope.seen.add(e)
        if isinstance(e, BufferLoad):
            self.access(e, e.predicate, False, scope)
        elif isinstance(e, (And, Or)) and e.dtype == "bool":
            self.expr(e.a, scope)
            self.expr(e.b, _Enclosing(scope, guard=e.a if isinstance(e, And) else logical_not(e.a)))
        elif isinstance(e, Let):
            self.expr(e.value, scope)
            self.ranges[e.var] = self.interval(e.value)
            self.expr(e.body, _Enclosing(scope, let=(e.var, e.value)))
        elif isinstance(e, Call) and e.op == "tir.if_then_else":
            self.expr(e.args[0], scope)
            self.expr(e.args[1], _Enclosing(scope, guard=e.args[0]))
            self.expr(e.args[2], _Enclosing(scope, guard=logical_not(e.args[0])))
        else:
            place = e.args[0] if isinstance(e, Call) and e.op == "tir.address_of" else None
            parts = place.indices if isinstance(place, BufferLoad) else e.children()  # the place need not be accessed
            for part in parts:
                if isinstance(part, Expr):
                    self.expr(part, scope)

    # -- one access ---------------------------------------------------------------------------------------------------

    def access(self, n: BufferLoad | BufferStore, predicate: Expr | None, is_store: bool, scope: _Enclosing) -> None:
        buffer = n.buffer
        if buffer not in self.sized:
            self.view(n)
        if predicate is not None:
            self.expr(predicate, scope)
        for d, (index, extent) in enumerate(zip(n.indices, buffer.shape, strict=True)):
            self.expr(index, scope)
            lanes = max(index.dtype.lanes, 1 if predicate is None else predicate.dtype.lanes)
            if lanes == 1 and predicate is None:
                self.place(n, d, index, extent, scope)
            elif predicate is None and isinstance(index, (Ramp, Broadcast)):
                for k in (0, lanes - 1) if isinstance(index, Ramp) else (0,):
                    self.place(n, d, _lane(index, k), extent, scope)
            elif predicate is not None or not self.within(index, extent):
                for k in range(lanes):
                    masked = scope if predicate is None else _Enclosing(scope, guard=_lane(predicate, k))
                    self.place(n, d, _lane(index, k), extent, masked)

    def within(self, index: Expr, extent: Expr) -> bool:
        """Return whether constant ends of an index, or of all of its lanes together, lie within the extent."""
        have, size = self.interval(index), self.interval(extent)
        return (
            have.lo is not None and have.lo >= 0 and have.hi is not None and size.lo is not None and have.hi < size.lo
        )

    def place(self, n: Any, d: int, index: Expr, extent: Expr, scope: _Enclosing) -> None:
        """Decide one index in one dimension."""
        if self.within(index, extent):
            return
        have = self.interval(index)
        low = have.lo is not None and have.lo >= 0
        if low and isinstance(index, Var):  # the loop runs over the dimension
            r = self.loops.get(index)
            if r is not None and isinstance(r.min, IntImm) and r.min.value == 0 and same(r.extent, extent):
                return
        analyzer = self.analyzer(scope)
        index, extent = _alike(index, extent)
        below = LT(index, extent)
        if (low or analyzer.can_prove(GE(index, const(0, index.dtype)))) and analyzer.can_prove(below):
            return
        if lies_between(index, const(0, index.dtype), extent - 1, analyzer.const_int_bound):
            return
        self.undecided(n, d, _Open(scope, index, extent))

    def undecided(self, n: Any, d: int, what: _Open) -> None:
        if what.never:
            return
        if not what.always or not what.sizes <= self.fixed or not all(map(_computable, what.parts)):
            log.info("%s: whether the index is inside is not checked", self.words(n, d))
            return
        if not what.sizes:
            found = _point_outside(what)
            if found is not None and not found:
                return
            if found is not None:
                at = ", ".join(f"{v.name} = {value}" for v, value in found.items() if v in vars_in(what.index))
                value = int(_value(what.index, found))
                raise self.outside(n, d, f"the index is {value} at {at or 'the only element'}, which is outside")
        inside, exact, ends = self.sufficient(what)
        if exact and inside is not None:
            if isinstance(inside, IntImm) and not inside.value:
                raise self.outside(n, d, f"the indices {ends} are outside")
            if not isinstance(inside, IntImm) and not any(same(inside, old) for old, _ in self.asserted):
                last = simplify(n.buffer.shape[d] - 1)
                self.asserted.append((inside, f"{self.words(n, d)}: the indices {ends} have to lie within 0 … {last}"))
                self.analyzers.clear()
            return
        self.walk(n, d, what, inside, ends)

    def outside(self, n: Any, d: int, what: str) -> IndexError:
        text = marked_text(self.func, {self.spot: "here"})
        return IndexError(f"{self.words(n, d)}: {what} 0 … {simplify(n.buffer.shape[d] - 1)}\n{text}")

    def words(self, n: Any, d: int) -> str:
        verb = "writes" if isinstance(n, BufferStore) else "reads"
        place = BufferLoad(n.buffer, n.indices)
        return f"{self.func.name} {verb} {place} of shape ({shape_text(n.buffer.shape)}), dimension {d}"

    def view(self, n: Any) -> None:
        """Compare the size of a view with that of the memory that it shows."""
        view, memory = n.buffer, self.memory.get(n.buffer.data)
        self.sized.add(view)
        if memory is None:
            return
        have = elements_of(memory) * memory.dtype.bytes
        need = (view.elem_offset + elements_of(view)) * view.dtype.bytes
        fits = Analyzer().simplify(LE(*_alike(need, have)))
        if isinstance(fits, IntImm) and not fits.value:
            text = marked_text(self.func, {self.spot: "here"})
            raise IndexError(
                f"{self.func.name}: {view.name} of shape ({shape_text(view.shape)}) shows {shape_text([need])} bytes of "
                f"{memory.name}, which has {shape_text([have])}\n{text}"
            )
        if not isinstance(fits, IntImm) and vars_in(fits) <= self.fixed:
            self.asserted.append((fits, f"{self.func.name}: {view.name} shows more bytes than {memory.name} has"))

    # -- what is known ------------------------------------------------------------------------------------------------

    def interval(self, e: Expr) -> Interval:
        """Return constant ends of an integer expression, from those of the variables; of a vector, those of all lanes."""
        if type(e) is IntImm:
            return Interval(e.value, e.value)
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._interval(e)
        return found

    def _interval(self, e: Expr) -> Interval:
        if isinstance(e, Var):
            return self.ranges.get(e, EVERYTHING)
        if isinstance(e, Ramp):
            return self.interval(_lane(e, 0)).union(self.interval(_lane(e, e.dtype.lanes - 1)))
        if isinstance(e, Broadcast):
            return self.interval(e.value)
        rule, kind = _INTERVALS.get(type(e)), e.dtype.element
        if rule is not None:
            found = rule(self.interval(e.a), self.interval(e.b))  # type: ignore[attr-defined]
            return found if kind in INDEX_TYPES else found.unless_wrapped(kind) if kind.is_int else EVERYTHING
        if isinstance(e, Cast) and e.dtype.is_int and e.dtype.lanes == 1:
            inner = self.interval(e.value) if e.value.dtype.is_int else EVERYTHING
            return inner if inner.fits(e.dtype) or e.dtype in INDEX_TYPES else interval_of(e.dtype)
        if isinstance(e, Select):
            return self.interval(e.true_value).union(self.interval(e.false_value))
        if isinstance(e, Call) and e.op == "tir.if_then_else":
            return self.interval(e.args[1]).union(self.interval(e.args[2]))
        if isinstance(e, Let):
            self.ranges[e.var] = self.interval(e.value)
            return self.interval(e.body)
        short = e.dtype.is_int and e.dtype.lanes == 1 and e.dtype.bits <= 16
        return interval_of(e.dtype) if short else EVERYTHING

    def analyzer(self, scope: _Enclosing) -> Analyzer:
        """Return an analyzer that knows what holds in a scope: in loops, that they have an iteration."""
        found = self.analyzers.get(scope)
        if found is not None:
            return found
        found = self.analyzers[scope] = self.outermost()
        bound: list[Range] = []
        for s in scope.path:
            if s.loop is not None:
                found.bind(*s.loop)
                bound.append(s.loop[1])
            elif s.let is not None:
                found.bind(*s.let)
        for r in bound:
            if not isinstance(r.extent, IntImm):
                scope.known.enter_context(found.nonempty(r.extent))
        for condition in [c for c, _ in self.asserted] + [s.guard for s in scope.path if s.guard is not None]:
            scope.known.enter_context(found.constraint(condition))
            if isinstance(condition, Or):  # a part of it may be false here
                scope.known.enter_context(found.constraint(found.simplify(condition)))
        return found

    def outermost(self) -> Analyzer:
        """Return an analyzer that knows that sizes of arrays are not negative."""
        analyzer = Analyzer()
        composite: list[Expr] = []
        for buffer in self.func.buffers:
            for e in buffer.shape:
                if isinstance(e, Var):
                    analyzer.bind(e, (0, None))
                elif not isinstance(e, IntImm):
                    composite.append(e)
        for e in composite:
            self.kept.enter_context(analyzer.constraint(GE(e, const(0, e.dtype))))
        return analyzer

    # -- conditions at the call ---------------------------------------------------------------------------------------

    def sufficient(self, what: _Open) -> tuple[Expr | None, bool, str]:
        """Return a condition on sizes and scalars that suffices, whether it is necessary as well, and the ends as text.

        The condition is None where none is found.
        """
        analyzer = self.outermost()
        names = list(what.loops)
        exact = linear_coefficients(what.index, names) is not None
        exact = exact and not any(vars_in(r.extent) & what.loops.keys() for r in what.loops.values())
        own = [g for g in what.guards if not vars_in(g) & what.loops.keys()]
        exact = exact and len(own) == len(what.guards)
        zero = const(0, what.index.dtype)
        low: Expr | None = analyzer.simplify(what.index)
        high: Expr | None = low
        for v, r in reversed(what.loops.items()):
            low, high = (None if e is None else _end(e, k, v, r, analyzer) for k, e in enumerate((low, high)))
        below = [LT(*_alike(high, what.extent))] if high is not None else []
        above = [GE(low, zero)] if low is not None else []
        for g in what.guards:
            found = as_bound(g)
            if found is None or not found[0].dtype.is_int or vars_in(found[1]) & what.loops.keys():
                continue
            e, end, is_upper = found
            apart = analyzer.simplify(_alike(what.index, e)[0] - _alike(what.index, e)[1])
            if vars_in(apart) & what.loops.keys():
                continue
            most = analyzer.simplify(end + apart)
            if is_upper:
                below.append(LT(*_alike(most, what.extent)))
                high = most
            else:
                above.append(GE(most, const(0, most.dtype)))
                low = most
        text = f"{low} … {high}"
        if not below or not above:
            return None, False, text
        inside: Expr = And(_any(above), _any(below))
        for r in what.loops.values():
            if not isinstance(r.extent, IntImm) and not vars_in(r.extent) & what.loops.keys():
                inside = Or(inside, LE(r.extent, const(0, r.extent.dtype)))
        for g in own:
            inside = Or(inside, logical_not(g))
        return analyzer.simplify(inside), exact, text

    def walk(self, n: Any, d: int, what: _Open, enough: Expr | None, ends: str) -> None:
        """Add loops over the indices to the start of the function, which run unless ``enough`` holds."""
        if isinstance(enough, IntImm) and enough.value:
            return
        inside = And(GE(what.index, const(0, what.index.dtype)), LT(what.index, what.extent))
        message = f"{self.words(n, d)}: an index of {ends} is outside 0 … {simplify(n.buffer.shape[d] - 1)}"
        fresh = {v: Var(v.name, v.dtype) for v in what.loops}
        body: Stmt = AssertStmt(substitute(inside, fresh), message, _NOTHING)
        for g in reversed(what.guards):
            body = IfThenElse(substitute(g, fresh), body)
        for v, r in reversed(what.loops.items()):
            body = For(fresh[v], substitute(r.min, fresh), substitute(r.extent, fresh), "serial", body)
        if enough is not None and not isinstance(enough, IntImm):
            body = IfThenElse(logical_not(enough), body)
        log.info("%s: each call walks the indices", self.words(n, d))
        self.walks.append(body)


def _end(e: Expr, which: int, v: Var, r: Range, analyzer: Analyzer) -> Expr | None:
    """Return the least (0) or the greatest (1) value of ``e`` over one loop. It is in terms of what is outside of the loop."""
    if v not in vars_in(e):
        return e
    ends = eval_interval(e, {v: r}, analyzer)
    return None if ends is None or v in vars_in(ends[which]) else ends[which]


def _any(conditions: Sequence[Expr]) -> Expr:
    out = conditions[0]
    for one in conditions[1:]:
        out = Or(out, one)
    return out


def _alike(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return both in the wider of their types."""
    wide = max(a.dtype, b.dtype, key=lambda t: t.bits)
    return a.astype(wide), b.astype(wide)


def _lane(e: Expr, k: int) -> Expr:
    """Return one lane of a vector."""
    if e.dtype.lanes == 1:
        return e
    if isinstance(e, Ramp):
        return e.base + e.stride * const(k, e.base.dtype)
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, (*_INTERVALS, CmpOp, And, Or)):
        return type(e)(_lane(e.a, k), _lane(e.b, k))  # type: ignore[call-arg, attr-defined]
    if isinstance(e, Not):
        return Not(_lane(e.a, k))
    if isinstance(e, Cast):
        return Cast(e.dtype.element, _lane(e.value, k))
    return Var("lane", e.dtype.element)  # it is not known


# -- points ------------------------------------------------------------------------------------------------------------


def _computable(e: Expr) -> bool:
    """Return whether sizes, scalars and loops alone decide an integer expression or a condition."""
    return not any(
        isinstance(n, (BufferLoad, Let))
        or n.dtype.is_float
        or (isinstance(n, Call) and n.op != "tir.if_then_else" and effect_of(n) is not Effect.NONE)
        for n in pre_order(e)
        if isinstance(n, Expr)
    )


def _point_outside(what: _Open) -> dict[Var, int] | None:
    """Return the loops' values at an access outside, an empty mapping when there is none; None: too many to count."""
    at: dict[Var, Any] = {}
    count = 1
    try:
        for v, r in what.loops.items():
            low, extent = (np.broadcast_to(_value(e, at), count) for e in (r.min, r.extent))
            extent = np.maximum(extent, 0)
            total = int(extent.sum())
            if total > _MOST_POINTS:
                return None
            which = np.repeat(np.arange(count), extent)
            at = {w: x[which] for w, x in at.items()}
            at[v] = low[which] + np.arange(total) - np.repeat(np.cumsum(extent) - extent, extent)
            count = total
        wrong = np.ones(count, bool)
        for g in what.guards:
            wrong &= _value(g, at)
        index = _value(what.index, at)
        wrong &= (index < 0) | (index >= _value(what.extent, at))
    except _NotComputed:
        return None
    if not wrong.any():
        return {}
    last = int(np.flatnonzero(wrong)[-1])
    return {v: int(x[last]) for v, x in at.items()} or {Var("none"): 0}


def _value(e: Expr, at: Mapping[Var, Any]) -> Any:
    """Return the value of an integer expression or a condition at each point."""
    if isinstance(e, IntImm):
        return np.int64(e.value) if e.dtype != "bool" else np.bool_(e.value)
    if isinstance(e, Var) and e in at:
        return at[e]
    rule = _VALUES.get(type(e))
    if rule is not None:
        return rule(_value(e.a, at), _value(e.b, at))  # type: ignore[attr-defined]
    if isinstance(e, CmpOp):
        return e.compute(_value(e.a, at), _value(e.b, at))
    if isinstance(e, Not):
        return ~_value(e.a, at)
    if isinstance(e, Cast) and e.dtype in INDEX_TYPES and e.value.dtype in INDEX_TYPES:
        return _value(e.value, at)
    if isinstance(e, Select) or (isinstance(e, Call) and e.op == "tir.if_then_else"):
        return np.where(*[_value(c, at) for c in e.children()])  # type: ignore[arg-type]
    if isinstance(e, Call) and e.op == "tir.likely":
        return _value(e.args[0], at)
    raise _NotComputed


def _quotient(divide: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def rule(a: Any, b: Any) -> Any:
        if np.any(b == 0):
            raise _NotComputed
        return divide(a, b)

    return rule


_VALUES: dict[type, Callable[[Any, Any], Any]] = {
    Add: np.add,
    Sub: np.subtract,
    Mul: np.multiply,
    FloorDiv: _quotient(np.floor_divide),
    FloorMod: _quotient(np.mod),
    Min: np.minimum,
    Max: np.maximum,
    And: np.logical_and,
    Or: np.logical_or,
}

_INTERVALS: dict[type, Callable[[Interval, Interval], Interval]] = {
    Add: Interval.plus,
    Sub: Interval.minus,
    Mul: Interval.times,
    FloorDiv: Interval.divided,
    FloorMod: Interval.remainder,
    Min: Interval.minimum,
    Max: Interval.maximum,
}

_STATEMENTS: dict[type, Callable[[_Checks, Any, _Enclosing], None]] = {
    Allocate: _Checks.allocate,
    AssertStmt: _Checks.assertion,
    AttrStmt: _Checks.attribute,
    BufferStore: _Checks.store,
    For: _Checks.loop,
    IfThenElse: _Checks.branch,
    LetStmt: _Checks.let,
    SeqStmt: _Checks.sequence,
    While: _Checks.repeated,
}
