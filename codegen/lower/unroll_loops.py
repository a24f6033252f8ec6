"""Unrolls loops: each iteration becomes statements of its own, without the branches and masks that its values decide.

Factors are split off, and annotations that name a number of steps choose their loops, before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from ...tir.arith import Analyzer
from ...tir.arith.affine import shifted_sums
from ...tir.arith.normal_form.forms import Linear, collect
from ...tir.expr import (
    INDEX_TYPES,
    And,
    Broadcast,
    BufferLoad,
    Call,
    CmpOp,
    Expr,
    FloatImm,
    IntImm,
    Let,
    Ramp,
    Shuffle,
    Var,
    const,
)
from ...tir.expr.node import IRNode
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    While,
    seq,
    statements_in,
)
from ...tir.walk import LEAVES, fresh_copy, loads_and_stores, substitute, transform_statements
from .lanes import all_lanes
from .loop_annotations import PREFETCH_DISTANCE, UNROLL_EXPLICIT, UNROLL_FACTOR, UNROLL_STEPS, steps_number, without


def split_unroll_factors(func: PrimFunc) -> PrimFunc:
    """Split serial loops with ``pragma_unroll_factor = u``: u copies of the body per iteration, and a loop for the
    remainder.

    Before::

        for k in T.serial(10, annotations={"pragma_unroll_factor": 4}): f(k)

    After::

        for k_o in range(2):
            for k_i in T.unroll(4): f(k_o * 4 + k_i)
        for k_r in T.unroll(2): f(8 + k_r)
    """

    def post(n: IRNode) -> Stmt | None:
        if not (isinstance(n, For) and UNROLL_FACTOR in n.annotations):
            return None
        factor = steps_number(n.annotations[UNROLL_FACTOR], UNROLL_FACTOR, f"loop {n.loop_var.name}")
        loop = without(n, UNROLL_FACTOR)
        if PREFETCH_DISTANCE in loop.annotations and factor > 1:
            distance = _unrolled_distance(loop.annotations[PREFETCH_DISTANCE], factor)
            loop = loop.with_(annotations={**loop.annotations, PREFETCH_DISTANCE: distance})
        if factor <= 1 or n.kind != "serial":
            return loop
        if isinstance(n.extent, IntImm) and n.extent.value <= factor:
            return loop.with_(kind="unrolled")
        dtype = n.loop_var.dtype
        outer, inner = Var(f"{n.loop_var.name}_o", dtype), Var(f"{n.loop_var.name}_i", dtype)
        trip_count, left = n.extent // factor, n.extent % factor
        at = n.min + outer * factor + inner
        body = For(inner, const(0, dtype), const(factor, dtype), "unrolled", substitute(n.body, {n.loop_var: at}))
        main = For(outer, const(0, dtype), trip_count, "serial", body, None, loop.annotations)
        if isinstance(left, IntImm) and left.value == 0:
            return main
        over = Var(f"{n.loop_var.name}_r", dtype)
        tail_body = fresh_copy(substitute(n.body, {n.loop_var: n.min + trip_count * factor + over}))
        kind = "unrolled" if isinstance(left, IntImm) else "serial"
        return seq(main, For(over, const(0, dtype), left, kind, tail_body))

    return transform_statements(func, post)


def _unrolled_distance(wanted: Any, factor: int) -> Any:
    """Returns a prefetch distance in iterations of a loop that was unrolled by ``factor``."""
    if isinstance(wanted, Mapping):
        return {name: _unrolled_distance(d, factor) for name, d in wanted.items()}
    return -(-steps_number(wanted, PREFETCH_DISTANCE, "an unrolled loop") // factor)


_DEEPEST = 8
"""The greatest depth of nested loops that are chosen, TVM's ``auto_max_depth``."""


def choose_unrolled(func: PrimFunc) -> PrimFunc:
    """Mark loops as unrolled where ``pragma_auto_unroll_max_step = n`` on a loop or a block around them allows it.

    A serial loop that holds no loops other than unrolled ones is unrolled when that makes at most n stores and calls.
    The innermost pragma counts.

    Before::

        for i in T.serial(64, annotations={"pragma_auto_unroll_max_step": 16}):
            for j, k in T.grid(4, 3): B[i, j] = B[i, j] + A[i, j, k]

    After::

        for i in range(64):
            for j in T.unroll(4):
                for k in T.unroll(3): B[i, j] = B[i, j] + A[i, j, k]

    A vector loop counts as one of its iterations. With ``pragma_unroll_explicit = 0``, loops that would be unrolled
    stay loops. TVM leaves such loops to the compiler of the code that it prints; here LLVM gets no hint.
    """
    return func.with_body(_Chooser(0, True).visit(func.body)[0])


@dataclass(slots=True)
class _Size:
    """The size of a statement: its stores and calls, the loops that remain around them, and the unrolled loops."""

    steps: int = 0
    loops: int = 0
    unrolled: int = 0


@dataclass(frozen=True, slots=True)
class _Chooser:
    """The walk that chooses loops, with the pragmas in force."""

    most: int
    explicit: bool

    def visit(self, s: Stmt) -> tuple[Stmt, _Size]:
        """Return ``s`` with its loops chosen, and its size."""
        if isinstance(s, AttrStmt) and s.attr_key in (UNROLL_STEPS, UNROLL_EXPLICIT):
            return self.under({s.attr_key: s.value}, s.attr_key).visit(s.body)
        if isinstance(s, For):
            if UNROLL_STEPS in s.annotations or UNROLL_EXPLICIT in s.annotations:
                rest = {k: v for k, v in s.annotations.items() if k not in (UNROLL_STEPS, UNROLL_EXPLICIT)}
                return self.under(s.annotations, f"loop {s.loop_var.name}").loop(s.with_(annotations=rest))
            return self.loop(s)
        size = _Size(int(isinstance(s, (BufferStore, Evaluate))))

        def child(c: Any) -> Any:
            if not isinstance(c, Stmt):
                return c
            new, part = self.visit(c)
            size.steps += part.steps
            size.loops, size.unrolled = max(size.loops, part.loops), max(size.unrolled, part.unrolled)
            return new

        new = s.map_children(child)
        size.loops += isinstance(s, While)
        return new, size  # type: ignore[return-value]

    def under(self, pragmas: Mapping[str, Any], place: str) -> _Chooser:
        """Return the pragmas in force inside a statement that has some of its own."""
        most = steps_number(pragmas.get(UNROLL_STEPS, self.most), UNROLL_STEPS, place)
        return _Chooser(
            most, bool(steps_number(pragmas.get(UNROLL_EXPLICIT, int(self.explicit)), UNROLL_EXPLICIT, place))
        )

    def loop(self, s: For) -> tuple[Stmt, _Size]:
        """Return a loop, unrolled where its size allows it, and its size."""
        body, size = self.visit(s.body)
        s = s if body is s.body else s.with_(body=body)
        if s.kind == "vectorized":
            return s, size
        trip_count = s.extent.value if isinstance(s.extent, IntImm) else -1
        fits = self.most and s.kind == "serial" and trip_count >= 0 and not size.loops and size.unrolled <= _DEEPEST
        if s.kind == "unrolled" or (fits and trip_count * size.steps <= self.most):
            kind = "unrolled" if self.explicit else "serial"
            return s if s.kind == kind else s.with_(kind=kind), _Size(
                trip_count * size.steps, size.loops, size.unrolled + 1
            )
        return s, _Size(size.steps, size.loops + 1, size.unrolled)


MAX_STATEMENTS = 8192
"""Loops that would grow a function beyond this many stores stay loops."""
Env = dict[Var | Buffer, Any]
"""The values of unrolled variables, and what replaces the variables and buffers that each copy has for itself; None for
those that are as they were."""


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Write out every loop marked ``unrolled`` whose extent is constant, and fold masks whose lanes are known.

    Before::

        for i in T.unroll(2):
            C.vstore([T.Ramp(i * 8, 1, 8)], x, predicate=T.Ramp(i * 8, 1, 8) < T.Broadcast(13, 8))

    After::

        C[0:8] = x
        C.vstore([T.Ramp(8, 1, 8)], x, predicate=T.Ramp(8, 1, 8) < T.Broadcast(13, 8))

    A store whose mask holds in no lane is removed; such a load gives 0.
    """
    varying: Env = {}
    _find_varying(func.body, False, varying)
    return func.with_body(_Unroller(varying).visit(func.body, [varying], 1)[0])


def _find_varying(s: Stmt, unrolled: bool, found: Env) -> None:
    """Adds the variables and buffers that differ between the copies that unrolling makes."""
    if isinstance(s, For):
        unrolled = unrolled or s.kind == "unrolled"
        if unrolled:
            found[s.loop_var] = None
    elif isinstance(s, LetStmt) and unrolled:
        found[s.var] = None
    elif isinstance(s, Allocate) and unrolled:
        found[s.buffer.data] = None
        found.update(dict.fromkeys([a.buffer for a in loads_and_stores(s.body) if a.buffer.data is s.buffer.data]))
    for child in statements_in(s):
        _find_varying(child, unrolled, found)


class _Uses(NamedTuple):
    """What unrolling has to know of an expression: names, values and kinds of parts. It is the names that differ by
    copy, what gets their values from an environment (None without names), whether the expression binds variables,
    whether it has masks to fold, and whether it reads memory."""

    names: tuple[Var | Buffer, ...]
    values: Callable[[Env], Any] | None
    binds: bool
    folds: bool
    reads: bool


class _Unroller:
    """A walk that makes all copies of a statement or of an expression at once.

    ``envs`` has the values of the unrolled variables in each copy. All of them have values for the same names. Copies in
    which the variables of an expression have the same values share the result, which is remembered by these values: an
    index that does not depend on the innermost unrolled loop is rewritten once for all its iterations. An expression
    that binds variables (``Let``) is made anew for each copy, because a variable is bound once in a function.
    """

    def __init__(self, varying: Env) -> None:
        self.varying = varying
        self.analyzer = Analyzer()
        self.used: dict[Expr, _Uses] = {}
        self.done: dict[Expr, dict[Any, Any]] = {}
        self.constants: dict[tuple[int, str], Expr] = {}
        self.masks: dict[Expr, bool | None] = {}
        self.stores: dict[Stmt, int] = {}
        self.copies = 1

    # -- statements --------------------------------------------------------------------------------------------------

    def visit(self, n: Any, envs: list[Env], copies: int) -> list[Any]:
        """Return the statement ``n`` with the values of each of ``envs``; it stands ``copies`` times in the result."""
        self.copies = copies
        if not envs:
            return []
        if type(n) in _STATEMENTS:
            return _STATEMENTS[type(n)](self, n, envs, copies)
        parts = [self.visit(c, envs, copies) if isinstance(c, Stmt) else self.exprs(c, envs) for c in n.children()]
        return [_with_children(n, row) for row in zip(*parts, strict=True)]

    def loop(self, n: For, envs: list[Env], copies: int) -> list[Stmt]:
        lows, extents = self.exprs(n.min, envs), self.exprs(n.extent, envs)
        if n.kind == "unrolled":
            if len({*lows}) > 1 or len({*extents}) > 1:
                return [self.visit(n, [env], copies)[0] for env in envs]
            values = self.iterations(n, lows[0], extents[0], copies)
            if values is not None:
                inner = [{**env, n.loop_var: value} for env in envs for value in values]
                made, each = self.visit(n.body, inner, copies * len(values)), len(values)
                return [seq(*made[k * each : (k + 1) * each]) for k in range(len(envs))]
        kind = "serial" if n.kind == "unrolled" else n.kind
        loop_vars, inner = self.own(n.loop_var, envs, copies)
        bodies = self.visit(n.body, inner, copies)
        return [
            n
            if kind == n.kind and var is n.loop_var and low is n.min and extent is n.extent and body is n.body
            else For(var, low, extent, kind, body, n.thread_binding, n.annotations)
            for var, low, extent, body in zip(loop_vars, lows, extents, bodies, strict=True)
        ]

    def iterations(self, n: For, low: Expr, extent: Expr, copies: int) -> list[Expr] | None:
        """Return the values of the variable of a loop, or None for a loop that stays."""
        if not (isinstance(low, IntImm) and isinstance(extent, IntImm)):
            return None
        count = extent.value
        if count != 1 and copies * count * max(1, self.count_stores(n.body)) > MAX_STATEMENTS:
            return None
        return [self.constant(low.value + t, n.loop_var.dtype) for t in range(count)]

    def count_stores(self, s: Stmt) -> int:
        """Return the number of stores of ``s`` after unrolling."""
        if s not in self.stores:
            unrolled = isinstance(s, For) and s.kind == "unrolled" and isinstance(s.extent, IntImm)
            times = s.extent.value if unrolled else 1  # type: ignore[attr-defined]
            inside = sum([self.count_stores(c) for c in s.children() if isinstance(c, Stmt)])
            self.stores[s] = 1 if isinstance(s, BufferStore) else times * inside
        return self.stores[s]

    def let(self, n: LetStmt, envs: list[Env], copies: int) -> list[Stmt]:
        values, (names, inner) = self.exprs(n.value, envs), self.own(n.var, envs, copies)
        made = zip(names, values, self.visit(n.body, inner, copies), strict=True)
        return [
            n if var is n.var and value is n.value and body is n.body else LetStmt(var, value, body)
            for var, value, body in made
        ]

    def own(self, var: Var, envs: list[Env], copies: int) -> tuple[list[Var], list[Env]]:
        """Return the variables of the copies in place of ``var``, and the values inside."""
        if copies == 1:
            return [var], envs
        names = [Var(var.name, var.dtype) for _ in envs]
        return names, [{**env, var: name} for env, name in zip(envs, names, strict=True)]

    def branch(self, n: IfThenElse, envs: list[Env], copies: int) -> list[Stmt]:
        conditions = self.exprs(n.condition, envs)
        if len(envs) > 1 and any([isinstance(c, IntImm) for c in conditions]):
            return [self.visit(n, [env], copies)[0] for env in envs]
        known = conditions[0]
        if isinstance(known, IntImm):
            case = n.then_case if known.value else n.else_case
            return [seq()] if case is None else self.visit(case, envs, copies)
        others = [None] * len(envs) if n.else_case is None else self.visit(n.else_case, envs, copies)
        return [
            n
            if condition is n.condition and then is n.then_case and other is n.else_case
            else IfThenElse(condition, then, other)
            for condition, then, other in zip(conditions, self.visit(n.then_case, envs, copies), others, strict=True)
        ]

    def store(self, n: BufferStore, envs: list[Env], copies: int) -> list[Stmt]:
        places = self.accesses(n, envs)
        if None in places:
            rest = iter(self.visit(n, [env for env, place in zip(envs, places, strict=True) if place], copies))
            return [seq() if place is None else next(rest) for place in places]
        return [
            n
            if value is n.value and place[2] is n.predicate and place[0] is n.buffer and place[1] is n.indices
            else BufferStore(place[0], value, place[1], place[2])
            for place, value in zip(places, self.exprs(n.value, envs), strict=True)
        ]

    def allocate(self, n: Allocate, envs: list[Env], copies: int) -> list[Stmt]:
        """Return an allocation of its own for each copy."""
        if copies == 1:
            (body,) = self.visit(n.body, envs, copies)
            return [n if body is n.body else Allocate(n.buffer, body, n.annotations)]
        buffers = [n.buffer.map_children(lambda e, env=env: self.exprs(e, [env])[0]) for env in envs]  # type: ignore[misc]
        buffers = [new if new is not n.buffer else n.buffer.with_() for new in buffers]
        views = {a.buffer for a in loads_and_stores(n.body) if a.buffer.data is n.buffer.data} - {n.buffer}
        inner = [
            {**env, n.buffer.data: new.data, n.buffer: new, **{view: view.with_(data=new.data) for view in views}}
            for env, new in zip(envs, buffers, strict=True)
        ]
        made = zip(buffers, self.visit(n.body, inner, copies), strict=True)
        return [Allocate(new, body, n.annotations) for new, body in made]

    # -- expressions -------------------------------------------------------------------------------------------------

    def constant(self, value: int, dtype: str) -> Expr:
        """Return the one constant of this value, by which results are remembered."""
        key = (value, dtype)
        if key not in self.constants:
            self.constants[key] = const(value, dtype)
        return self.constants[key]

    def held(self, mask: Expr) -> bool | None:
        """Return whether a mask holds in all lanes (True) or in none (False)."""
        if mask not in self.masks:
            self.masks[mask] = all_lanes(mask, self.analyzer)
        return self.masks[mask]

    def uses(self, e: Any) -> _Uses:
        """Return what the result for ``e`` depends on."""
        if e in self.used:
            return self.used[e]
        kind = type(e)
        names: dict[Var | Buffer, None] = {}
        binds, folds, reads = kind is Let, False, kind is BufferLoad
        if kind is Let:
            self.varying[e.var] = None
        elif kind is BufferLoad:
            if e.buffer in self.varying:
                names[e.buffer] = None
            folds = e.predicate is not None
        elif kind is Call:
            folds = e.op == "tir.if_then_else"
        for child in e.children():
            if type(child) is Var:
                if child in self.varying:
                    names[child] = None
            elif type(child) not in _CONSTANT:
                below = self.used[child] if child in self.used else self.uses(child)
                if below.names:
                    names.update(dict.fromkeys(below.names))
                binds, folds, reads = binds or below.binds, folds or below.folds, reads or below.reads
        if kind is Let:
            names.pop(e.var, None)
        values = itemgetter(*names) if names else None
        self.used[e] = _Uses(tuple(names), values, binds, folds, reads)
        return self.used[e]

    def exprs(self, e: Any, envs: list[Env]) -> list[Any]:
        """Return ``e`` with the values of each of ``envs``, integers simplified and masks folded."""
        kind = type(e)
        if kind is Var and e in self.varying:
            return [e if e not in env or env[e] is None else env[e] for env in envs]
        if kind in LEAVES:
            return [e] * len(envs)
        uses = self.used[e] if e in self.used else self.uses(e)
        live = any([envs[0][name] is not None for name in uses.names])
        if uses.binds and self.copies > 1:
            return self.rewrite(e, envs, uses, True)
        if not live and not uses.folds:
            return [e] * len(envs)
        done = self.done.setdefault(e, {})
        keys = [None] * len(envs) if uses.values is None else [uses.values(env) for env in envs]
        new = {key: env for key, env in zip(keys, envs, strict=True) if key not in done}
        if new:
            done.update(zip(new, self.rewrite(e, [*new.values()], uses, live), strict=True))
        return [done[key] for key in keys]

    def rows(self, exprs: tuple[Expr, ...], envs: list[Env]) -> list[tuple[Expr, ...]]:
        """Return :meth:`exprs` of several expressions, for each copy; the same tuple where nothing changes."""
        made = [self.exprs(e, envs) for e in exprs]
        same = all([column[0] is e for column, e in zip(made, exprs, strict=True)])
        return [exprs] * len(envs) if same else list(zip(*made, strict=True))

    def rewrite(self, x: Any, envs: list[Env], uses: _Uses, live: bool) -> list[Any]:
        """Return :meth:`exprs` when it may change something. ``live``: a name in ``x`` has a value."""
        kind = type(x)
        if kind is BufferLoad:
            return self.loads(x, envs)
        if kind is Let:
            return self.lets(x, envs)
        if live and kind not in _VECTORS and not uses.reads and not uses.binds and x.dtype in _SIMPLIFIED:
            return self.scalars(x, envs, uses)
        parts = x.children()
        rows = self.rows(parts, envs)
        if rows[0] is parts:
            new = [x] * len(envs)
        elif kind is Call:
            new = [Call(x.op, row, x.dtype) for row in rows]
        else:
            new = [_with_children(x, row) for row in rows]
        simple = self.analyzer.simplify if live and x.dtype == "bool" else lambda n: n
        if kind is Call and x.op == "tir.if_then_else":
            return [_chosen(n) if isinstance(n.args[0], IntImm) else simple(n) for n in new]
        return [simple(n) for n in new] if x.dtype == "bool" else new

    def scalars(self, x: Expr, envs: list[Env], uses: _Uses) -> list[Expr]:
        """Return scalar arithmetic with values for its variables, simplified; a linear form is found once for all."""
        if type(x) is And:
            return self.conjunctions(x, envs, uses)
        if isinstance(x, CmpOp):
            return self.comparisons(x, envs, uses)
        sums = self.sums(x, envs)
        out: Sequence[Expr | None] = [None] * len(envs)
        if sums is not None:
            out = shifted_sums(*sums, x.dtype, self.analyzer)
        return [
            self.scalar(x, env, uses) if made is None or made.dtype is not x.dtype else made
            for made, env in zip(out, envs, strict=True)
        ]

    def sums(self, x: Expr, envs: list[Env]) -> tuple[dict[Var, int], list[int]] | None:
        """Return a linear index as a sum over the variables without values, and the number besides it in each copy."""
        if x.dtype not in INDEX_TYPES:
            return None
        form = collect(x, lambda v: Linear(0, {v: 1}) if type(v) is Var else None)
        if form is None:
            return None
        bound = [v for v in form.terms if v in envs[0] and envs[0][v] is not None]
        if not all([type(env[v]) is IntImm for v in bound for env in envs]):
            return None
        rest = {v: c for v, c in form.terms.items() if v not in envs[0] or envs[0][v] is None}
        return rest, [form.const + sum([form.terms[v] * env[v].value for v in bound]) for env in envs]

    def comparisons(self, x: CmpOp, envs: list[Env], uses: _Uses) -> list[Expr]:
        """Return a comparison in each copy; those of the same numbers share the result."""
        sides = self.sums(x.a, envs), self.sums(x.b, envs)
        if sides[0] is None or sides[1] is None:
            return [self.scalar(x, env, uses) for env in envs]
        keys = [*zip(sides[0][1], sides[1][1], strict=True)]
        first = {key: env for key, env in zip(keys[::-1], envs[::-1], strict=True)}
        done = {key: self.scalar(x, env, uses) for key, env in first.items()}
        return [done[key] for key in keys]

    def scalar(self, x: Expr, env: Env, uses: _Uses) -> Expr:
        """Return scalar arithmetic with the values of one copy, simplified."""
        values = {v: env[v] for v in uses.names if isinstance(v, Var) and env[v] is not None}
        return self.analyzer.simplify(substitute(x, values))

    def conjunctions(self, x: And, envs: list[Env], uses: _Uses) -> list[Expr]:
        """Return ``a and b`` in each copy. Copies in which both sides are the same share the result: a window's condition
        on its rows and columns has few values of each."""
        done: dict[tuple[Expr, Expr], Expr] = {}
        out = []
        for a, b, env in zip(self.exprs(x.a, envs), self.exprs(x.b, envs), envs, strict=True):
            if type(a) is IntImm or type(b) is IntImm:
                known, other = (a, b) if type(a) is IntImm else (b, a)
                made = self.analyzer.simplify(other) if known.value else known
            elif (a, b) in done:
                made = done[a, b]
            else:
                made = done[a, b] = self.scalar(x, env, uses)
            out.append(self.constant(made.value, made.dtype) if type(made) is IntImm else made)
        return out

    def lets(self, x: Let, envs: list[Env]) -> list[Expr]:
        """Return an expression that binds a variable, with a variable of its own in each copy."""
        names, inner = self.own(x.var, envs, self.copies)
        inner = inner if inner is not envs else [{**envs[0], x.var: x.var}]
        made = zip(names, self.exprs(x.value, envs), self.exprs(x.body, inner), strict=True)
        return [
            x if v is x.var and value is x.value and body is x.body else Let(v, value, body) for v, value, body in made
        ]

    def accesses(self, x: BufferLoad | BufferStore, envs: list[Env]) -> list[Any]:
        """Return the buffer, the indices and the mask of an access in each copy; None where no lane is accessed."""
        masks: list[Any] = [None] * len(envs)
        if x.predicate is not None:
            column = self.exprs(x.predicate, envs)
            known = {mask: self.held(mask) for mask in dict.fromkeys(column)}
            masks = [False if known[mask] is False else None if known[mask] else mask for mask in column]
        own = x.buffer in self.varying and envs[0][x.buffer] is not None
        rows = zip(self.rows(x.indices, envs), masks, envs, strict=True)
        return [
            None if mask is False else (env[x.buffer] if own else x.buffer, indices, mask)
            for indices, mask, env in rows
        ]

    def loads(self, x: BufferLoad, envs: list[Env]) -> list[Expr]:
        places = self.accesses(x, envs)
        return [
            const(0, x.dtype)
            if place is None
            else x
            if place[2] is x.predicate and place[0] is x.buffer and place[1] is x.indices
            else BufferLoad(*place)
            for place in places
        ]


def _chosen(n: Call) -> Expr:
    """Returns the argument that an ``if_then_else`` with a known condition gives."""
    return n.args[1] if n.args[0].value else n.args[2]  # type: ignore[attr-defined]


def _with_children(n: Any, parts: tuple[Any, ...]) -> Any:
    """Returns ``n`` with ``parts`` in place of its children."""
    if type(n) in _VECTORS and type(n) is not Shuffle:
        return type(n)(*parts, n.lanes)
    rest = iter(parts)
    return n.map_children(lambda _: next(rest))


_STATEMENTS: dict[type, Callable[[_Unroller, Any, list[Env], int], list[Stmt]]] = {
    Allocate: _Unroller.allocate,
    BufferStore: _Unroller.store,
    For: _Unroller.loop,
    IfThenElse: _Unroller.branch,
    LetStmt: _Unroller.let,
}
_CONSTANT = frozenset((IntImm, FloatImm))
_SIMPLIFIED = ("bool", *INDEX_TYPES)
_VECTORS = frozenset((Broadcast, Ramp, Shuffle))
