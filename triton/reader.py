"""Reads the source of a kernel and gives its statements to a builder; the function itself never runs.

A name stands for a Python value that is known when the kernel is compiled, or for a :class:`.block_values.BlockValue`. Calls of
other ``@jit`` functions are read in place. What a loop changes is carried in one of two ways: an index or a block of pointers
that moves by the same distance in each iteration is a formula of the iteration's number, and everything else is kept in memory.
A loop's body is read first to find that out, and then again.
"""

from __future__ import annotations

import ast
import builtins
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ..tir.analysis.simplify import simplify
from ..tir.expr import BufferLoad, Expr, Var, all_, max_, pre_order, same, transform, vars_in
from ..tir.expr.dtype import BOOL, DType
from ..tir.stmt import Buffer, BufferStore, For, IfThenElse, Stmt, While
from . import language
from .basic_rows import LOOP_HINTS
from .block_values import (
    BlockValue,
    PointerType,
    converted,
    is_index,
    is_not_negative,
    negated,
    of_expression,
    type_of_number,
)
from .carried import CarriedNames, is_alike, parts_of
from .jumps import flag_of, is_unrolled
from .kernel_builder import KEEP_FROM, KernelBuilder, NeedsWideIndices, ProductValue
from .kernel_source import KernelError, KernelSource
from .liveness import names_assigned, names_read
from .memory_rows import WINDOW_MEMBERS, BlockPointer, BlockWindow
from .rows import MEMBERS, TYPE_PARTS, TYPE_TESTS, Builtin, constexpr, whole

_UNARY: dict[type[ast.AST], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_OPERATORS: dict[type[ast.AST], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
}

_CONSTANT_FUNCTIONS = {len: len, float: float, int: int, bool: bool, tuple: tuple}
"""Python's functions that kernels may call on what is known when they are compiled."""


@dataclass
class _Frame:
    """One function that is being read: its source, its names, and those that are needed after the current statement."""

    source: KernelSource
    names: dict[str, Any]
    live: frozenset[str] = frozenset()
    rest: list[frozenset[str]] = field(default_factory=list)
    carried: list[frozenset[str]] = field(default_factory=list)
    spot: ast.AST | None = None


class Outside:
    """A global that a kernel was read with: a ``tl.constexpr``, or a function with ``@jit``."""

    def __init__(self, source: KernelSource, name: str, found: Any) -> None:
        self.source, self.name, self.found = source, name, found
        self.value = found.value if isinstance(found, constexpr) else None

    def is_current(self) -> bool:
        """Return whether the name still stands for the same."""
        now = self.source.global_named(self.name)
        if isinstance(self.found, constexpr):
            return isinstance(now, constexpr) and type(now.value) is type(self.value) and now.value == self.value
        return now is self.found


class KernelReader:
    """Reads kernels for one builder."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder = builder
        self.frames: list[_Frame] = []
        self.held: list[Any] = []
        self.outside: list[Outside] = []
        builder.roots = self.roots
        builder.place = self.place
        builder.apply = self.apply
        builder.in_loop = lambda: any(f.carried for f in self.frames)

    @property
    def frame(self) -> _Frame:
        return self.frames[-1]

    def place(self) -> str:
        """Return where the current statement stands, for messages."""
        return self.frame.source.place(self.frame.spot)

    def roots(self) -> Iterator[BlockValue]:
        """Yield the values that are still needed after the current statement."""
        seen: set[int] = set()
        needed = [v for f in self.frames for name, v in f.names.items() if name in f.live]
        stack = [*self.held, *needed]
        while stack:
            top = stack.pop()
            if isinstance(top, (tuple, BlockPointer)):
                stack += parts_of(top)
            elif isinstance(top, BlockValue) and id(top) not in seen:
                seen.add(id(top))
                yield top

    # -- functions ---------------------------------------------------------------------------------------------------

    def apply(self, function: Any, *args: Any) -> Any:
        """Read a function with ``@jit`` with these arguments; returns what it returns."""
        return self.call(function.kernel_source, function.kernel_source.bound(args, {}))

    def call(self, source: KernelSource, bound: Mapping[str, Any], live: frozenset[str] = frozenset()) -> Any:
        """Read a function with these arguments; returns what it returns."""
        if len(self.frames) > 64:
            raise RecursionError(f"{source.name} calls itself; a kernel has no recursion")
        self.frames.append(_Frame(source, dict(bound), live))
        try:
            done = self.block(source.body)
        finally:
            self.frames.pop()
        return None if done is None else done[0]

    def block(self, stmts: Sequence[ast.stmt]) -> tuple[Any] | None:
        """Read statements in order; returns the value of a ``return`` at their end in a tuple."""
        for stmt in stmts:
            if isinstance(stmt, ast.If):
                self.branch(stmt)
                continue
            frame = self.frame
            frame.spot, frame.live = stmt, frame.source.liveness.after[stmt]
            if isinstance(stmt, ast.Return):
                return (None if stmt.value is None else self.at(stmt.value),)
            rule = _STATEMENTS.get(type(stmt))
            if rule is None:
                raise self.error(stmt, f"{type(stmt).__name__.lower()} statements are not known in kernels")
            self.guard(stmt, rule, self, stmt)
        return None

    def guard(self, node: ast.AST, rule: Callable[..., Any], *args: Any) -> Any:
        """Call ``rule``; what it raises gets the place of ``node`` in the source."""
        try:
            return rule(*args)
        except (KernelError, NeedsWideIndices):
            raise
        except (
            TypeError,
            ValueError,
            AttributeError,
            NotImplementedError,
            AssertionError,
            RecursionError,
            OverflowError,
            ZeroDivisionError,
            IndexError,
        ) as e:
            raise self.error(node, str(e)) from e

    def error(self, node: ast.AST, message: str) -> KernelError:
        return self.frame.source.error(node, message)

    # -- statements --------------------------------------------------------------------------------------------------

    def expression(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.at(s.value)

    def assign(self, s: ast.Assign) -> None:
        value = self.at(s.value)
        for target in s.targets:
            self.bind(target, value, s)

    def assign_typed(self, s: ast.AnnAssign) -> None:
        if s.value is None:
            raise TypeError("a declaration without a value")
        self.bind(s.target, self.at(s.value), s)

    def assign_changed(self, s: ast.AugAssign) -> None:
        if not isinstance(s.target, ast.Name):
            raise TypeError("only names are changed in place")
        old = self.name(ast.copy_location(ast.Name(s.target.id, ast.Load()), s.target))
        with_held = len(self.held)
        self.held.append(old)
        try:
            new = self.at(s.value)
        finally:
            del self.held[with_held:]
        self.bind(s.target, self.operate(type(s.op), old, new), s)

    def bind(self, target: ast.expr, value: Any, s: ast.stmt) -> None:
        """Give names to a value; one that costs something and is read often is kept in memory."""
        if isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise TypeError(f"{len(target.elts)} names for {value!r}")
            for part, item in zip(target.elts, value, strict=True):
                self.bind(part, item, s)
            return
        if not isinstance(target, ast.Name):
            raise TypeError("values are assigned to names only")
        if isinstance(value, BlockValue) and value.pointer is None:
            if not value.shape:
                value = self.builder.named(value, target.id)
            elif value.cost >= KEEP_FROM and self.frame.source.liveness.is_read_often(target.id, s):
                if not self.is_carried_end(target.id):
                    self.builder.keep(value, target.id)
        self.frame.names[target.id] = value

    def is_carried_end(self, name: str) -> bool:
        """Return whether a name is carried by the innermost loop, and not read again before its next iteration."""
        f = self.frame
        return bool(f.carried) and name in f.carried[-1] and bool(f.rest) and name not in f.rest[-1]

    def nothing(self, s: ast.stmt) -> None:
        """Read ``pass``."""

    def assertion(self, s: ast.Assert) -> None:
        test, message = self.at(s.test), "" if s.msg is None else self.at(s.msg)
        check = language.device_assert if isinstance(test, BlockValue) else language.static_assert
        check.meaning(self.builder, test, message)

    # -- branches ----------------------------------------------------------------------------------------------------

    def branch(self, s: ast.If) -> None:
        """Read an ``if``: one branch where its condition is known, else both."""
        frame = self.frame
        frame.spot, frame.live = s, frame.source.liveness.after[s] | names_read(*s.body, *s.orelse)
        test = self.at(s.test)
        if not isinstance(test, BlockValue):
            self.block(s.body if test else s.orelse)
            return
        if test.shape:
            raise self.error(
                s.test, f"if asks a single value, not {test.type_text()}; tl.where chooses element by element"
            )
        self.guard(s, self.choose, s, test)

    def choose(self, s: ast.If, test: BlockValue) -> None:
        builder, frame, body, orelse = self.builder, self.frame, s.body, s.orelse
        condition = builder.named(builder.data(test, BOOL), "holds").scalar
        after = frame.source.liveness.after[s]
        self.settle_before(frame, [*body, *orelse], frozenset(frame.names))
        before = dict(frame.names)
        changed = [n for n in names_assigned([*body, *orelse]) if n in after]
        sides: list[dict[str, Any]] = []
        with self.whole_branch():
            for part in (body, orelse):
                with builder.attempt():
                    frame.names = dict(before)
                    self.block(part)
                    sides.append(frame.names)
            cells: dict[str, Buffer] = {}
            likes: dict[str, BlockValue] = {}
            merged = dict(before)
            carried = CarriedNames(builder.value)
            for name in changed:
                a, b = (side.get(name, _UNSET) for side in sides)
                if isinstance(a, (tuple, BlockPointer)) and a is not b and is_alike(a, b):
                    carried.whole[name] = a
            for side in sides:
                carried.spread(side)
            for name in [*[n for n in changed if n not in carried.whole], *carried.part_names()]:
                a, b = (side.get(name, _UNSET) for side in sides)
                if a is b or (not isinstance(a, BlockValue) and not isinstance(b, BlockValue) and a == b):
                    merged[name] = a
                elif a is _UNSET or b is _UNSET:
                    merged.pop(name, None)
                else:
                    likes[name] = like = self.common(name, a, b)
                    cells[name] = builder.allocated(like.shape, builder.index if like.pointer else like.dtype, name)
            bodies = []
            for part in (body, orelse):
                with builder.scope() as inner:
                    frame.names = dict(before)
                    self.block(part)
                    carried.spread(frame.names)
                    for name, cell in cells.items():
                        builder.fill(cell, self.like(frame.names[name], likes[name]))
                bodies.append(inner.statement())
        frame.names = merged
        for name, cell in cells.items():
            frame.names[name] = builder.read_of(cell, likes[name])
        carried.gather(frame.names)
        builder.emit(IfThenElse(condition, bodies[0], bodies[1] if orelse or cells else None))

    def whole_branch(self) -> _Pushed:
        """Within it, a name at the end of a branch is not at the end of the loop around."""
        return _Pushed(self.frame.carried, frozenset())

    def common(self, name: str, a: Any, b: Any) -> BlockValue:
        """Return a value with the type that two values of one name have; TypeError where they differ."""
        if not isinstance(a, BlockValue) and isinstance(b, BlockValue):
            a, b = b, a
        if not isinstance(a, BlockValue):
            if isinstance(a, bool) and isinstance(b, bool):
                return self.builder.constant(a, BOOL)
            if any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in (a, b)):
                raise TypeError(f"{name} is {a!r} or {b!r} by a condition that is computed")
            return self.builder.constant(a, type_of_number(float(a) if isinstance(b, float) else a))
        b = self.like(b, a)
        if a.shape != b.shape or a.type != b.type or a.pointer is not b.pointer:
            raise TypeError(f"{name} is {a.type_text()} or {b.type_text()} by a condition that is computed")
        return a

    def like(self, value: Any, like: BlockValue) -> BlockValue:
        """Return a number of the source in the type of another value; blocks as they are."""
        return value if isinstance(value, BlockValue) else self.builder.constant(value, like.dtype)

    # -- loops -------------------------------------------------------------------------------------------------------

    def for_loop(self, s: ast.For) -> None:
        if s.orelse:
            raise TypeError("a loop with else")
        if not isinstance(s.iter, ast.Call):
            raise TypeError("a loop runs over range, tl.range or tl.static_range")
        kind = self.at(s.iter.func)
        if not any(kind is known for known in (builtins.range, language.range, language.static_range)):
            raise TypeError("a loop runs over range, tl.range or tl.static_range")
        bounds, hints = self.arguments(s.iter)
        if kind is not language.range and hints:
            raise TypeError(f"{', '.join(hints)}: hints are for tl.range")
        unknown = set(hints) - LOOP_HINTS
        if unknown:
            raise TypeError(f"tl.range has no {', '.join(sorted(unknown))}; there are {', '.join(sorted(LOOP_HINTS))}")
        if not 1 <= len(bounds) <= 3:
            raise TypeError(f"a range of {len(bounds)} numbers")
        start, stop, step = ((0, bounds[0], 1), (*bounds, 1), bounds)[len(bounds) - 1]
        if kind is language.static_range:
            numbers = [whole(n, "a number of static_range") for n in (start, stop, step)]
            flag = flag_of(s)
            for n in range(*numbers):
                self.bind(s.target, n, s)
                self.block(s.body)
                left = False if flag is None else self.frame.names[flag]
                if left is True:
                    break
                if isinstance(left, BlockValue) and not is_unrolled(s):
                    raise TypeError(
                        "break by a condition that is computed stands in a loop over tl.static_range by that name"
                    )
            return
        if not isinstance(s.target, ast.Name):
            raise TypeError("a loop has one variable")
        stages = hints.get("num_stages")
        if stages is not None and (isinstance(stages, bool) or not isinstance(stages, int) or stages < 0):
            raise TypeError(
                f"num_stages={stages!r} of tl.range; it is a whole number that is known when the kernel is compiled"
            )
        first, end, by = [self.index(n) for n in (start, stop, step)]
        self.counted_loop(s, s.target.id, first, end, by, stages)

    def index(self, x: Any) -> Expr:
        """Return a bound of a loop as an index."""
        value = self.builder.value(x)
        if value.shape or value.pointer is not None:
            raise TypeError(f"the bound of a loop is a single integer, not {value.type_text()}")
        return self.builder.named(self.builder.index_value(value)).scalar

    def counted_loop(
        self, s: ast.For, target: str, start: Expr, stop: Expr, step: Expr, stages: int | None = None
    ) -> None:
        builder, frame = self.builder, self.frame
        one = builder.number(1)
        if is_not_negative(step, builder.not_negative):
            count = (
                stop - start
                if simplify(step - one).equal(builder.number(0)) is True
                else (stop - start + step - one) // step
            )
            count = simplify(count)
        elif is_not_negative(builder.number(0) - step, builder.not_negative):
            count = simplify((start - stop - step - one) // (builder.number(0) - step))
        else:
            raise TypeError("the step of a loop is a constant, or an integer argument that is not negative")
        count = builder.named(of_expression(count), "count").scalar
        carried = self.carried_names(s, target)
        self.settle_before(frame, s.body, frozenset(frame.names))
        before = dict(frame.names)
        k = Var(target, builder.index)
        if is_not_negative(start, builder.not_negative):
            builder.not_negative.add(k)
        number = of_expression(simplify(start + k * step), DType("int32"))
        moving = {n: Var(n, builder.index) for n, v in carried.items() if self.may_move(v)}
        distance: dict[str, Expr] = {}
        while True:
            ends = self.tried(s, before, carried, moving, target, number)
            still, distance = self.distances(carried, moving, ends, k)
            if len(still) == len(moving):
                break
            moving = still
        cells = {n: self.cell(n, v) for n, v in carried.items() if n not in moving}
        flag = flag_of(s)
        turns = None if flag is None else Turns(builder, k, count)
        with builder.scope() as inner:
            if turns is not None:
                turns.begin()
            frame.names = {**before, target: number}
            for n, v in carried.items():
                frame.names[n] = (
                    self.moved(v, k * distance[n]) if n in moving else builder.read_of(cells[n], v, changes=True)
                )
            self.carried_body(s, carried)
            self.carry(carried, cells, frame.names)
            if turns is not None and flag is not None:
                turns.end(cells[flag])
        if turns is None:
            builder.stage(k, stages)
            builder.emit(For(k, builder.number(0), count, "serial", inner.statement()))
            passes = max_(count, builder.number(0))
        else:
            passes = turns.loop(inner.statement())
        gone = set(names_assigned([s]))
        frame.names = {n: v for n, v in before.items() if n not in gone or n in carried}
        for n, v in carried.items():
            frame.names[n] = self.moved(v, passes * distance[n]) if n in moving else builder.read_of(cells[n], v)
        carried.gather(frame.names)

    def carried_names(self, s: ast.For | ast.While, target: str = "") -> CarriedNames:
        """Return the names that a loop changes and reads again, with their values before it."""
        frame, head = self.frame, self.frame.source.liveness.head[s]
        out = CarriedNames(self.builder.value)
        for name in names_assigned(s.body):
            if name != target and name in head and name in frame.names:
                if not isinstance(frame.names[name], (BlockValue, bool, int, float, tuple, BlockPointer)):
                    raise TypeError(f"a loop changes {name}, which is {frame.names[name]!r}")
                out.add(name, frame.names[name])
        return out

    def may_move(self, v: BlockValue) -> bool:
        """Return whether a value may be a formula of the iteration's number: an index, or pointers that read no memory."""
        if v.reads or not (v.pointer is not None or v.dtype in ("int32", "int64")):
            return False
        e = _with_names(v.make(tuple([Var("i", self.builder.index) for _ in v.shape])), [], v.pointer is not None)
        return (
            is_index(e) and e.dtype == self.builder.index and not any(isinstance(n, BufferLoad) for n in pre_order(e))
        )

    def moved(self, v: BlockValue, by: Expr) -> BlockValue:
        return BlockValue(v.shape, v.dtype, lambda lanes: v.make(lanes) + by, v.cost + 1, v.reads, v.pointer)

    def tried(
        self, s: ast.For, before: dict[str, Any], carried: CarriedNames, moving: dict[str, Var], target: str,
        number: BlockValue,
    ) -> dict[str, Any]:  # fmt: skip
        """Read the body once for the values at its end, with a variable for each distance of a name."""
        builder, frame = self.builder, self.frame
        with builder.attempt():
            frame.names = {**before, target: number}
            for n, v in carried.items():
                if n in moving:
                    frame.names[n] = self.moved(v, moving[n])
                else:
                    cell = builder.allocated(v.shape, builder.index if v.pointer else v.dtype, n)
                    frame.names[n] = builder.read_of(cell, v, changes=True)
            self.carried_body(s, carried)
            ends = {n: frame.names[n] for n in carried}
            for n, v in carried.items():
                end = self.like(ends[n], v)
                if end.shape != v.shape or end.type != v.type:
                    raise TypeError(
                        f"{n} is {v.type_text()} before the loop and {end.type_text()} at the end of its body"
                    )
                if end.pointer is not v.pointer:
                    raise NotImplementedError(f"{n} points to another argument after an iteration")
            found = {n: self.step_of(v, self.like(ends[n], v), moving[n]) for n, v in carried.items() if n in moving}
        frame.names = dict(before)
        return found

    def step_of(self, start: BlockValue, end: BlockValue, moved: Var) -> Expr | None:
        """Return the distance between the end of an iteration and its start, None where the elements' distances differ."""
        lanes = tuple([Var("i", self.builder.index) for _ in start.shape])
        known: list[tuple[BufferLoad, Var]] = []
        e, begin = [_with_names(v.make(lanes), known, start.pointer is not None) for v in (end, start)]
        if end.reads or e.dtype != self.builder.index or not is_index(e):
            return None
        step = simplify(e - begin - moved)
        own = {*lanes, *[var for _, var in known]}
        return (
            None
            if not own.isdisjoint(vars_in(step)) or any(isinstance(n, BufferLoad) for n in pre_order(step))
            else step
        )

    def distances(
        self, carried: dict[str, BlockValue], moving: dict[str, Var], steps: dict[str, Any], k: Var
    ) -> tuple[dict[str, Var], dict[str, Expr]]:
        """Return the names that move by the same distance in each iteration, and these distances."""
        inside = {*moving.values(), k}
        known = self.outer_variables()
        good: dict[str, Expr] = {}
        for n, step in steps.items():
            if step is not None and all(v in known and v not in inside for v in vars_in(step)):
                good[n] = step
        return {n: v for n, v in moving.items() if n in good}, good

    def outer_variables(self) -> set[Var]:
        """Return the variables that have a value where the current body stands."""
        named = {item[0] for scope in self.builder.scopes for item in scope.items if isinstance(item, tuple)}
        return named | self.builder.outer

    def cell(self, name: str, v: BlockValue) -> Buffer:
        """Return memory that begins with the value of a name."""
        buffer = self.builder.allocated(v.shape, self.builder.index if v.pointer else v.dtype, name)
        self.builder.fill(buffer, v)
        return buffer

    def carried_body(self, s: ast.For | ast.While, carried: CarriedNames) -> None:
        """Read the body of a loop between the parts that it carries."""
        carried.gather(self.frame.names)
        self.loop_body(s, carried)
        carried.spread(self.frame.names)

    def loop_body(self, s: ast.For | ast.While, carried: Mapping[str, Any]) -> None:
        frame, builder = self.frame, self.builder
        frame.carried.append(frozenset(carried))
        own = (
            {v for v in (frame.names.get(s.target.id),) if isinstance(v, BlockValue)}  # type: ignore[attr-defined]
            if isinstance(s, ast.For)
            else set()
        )
        outer = set(builder.outer)
        for v in own:
            builder.outer |= set(vars_in(v.scalar))
        try:
            for n, stmt in enumerate(s.body):
                frame.rest.append(names_read(*s.body[n + 1 :]) | _changed_in(s.body[n + 1 :]))
                try:
                    self.block([stmt])
                finally:
                    frame.rest.pop()
        finally:
            frame.carried.pop()
            builder.outer = outer

    def carry(self, carried: Mapping[str, BlockValue], cells: Mapping[str, Buffer], names: Mapping[str, Any]) -> None:
        """Store what a loop carries at the end of its body. Each is stored after those that still read what it was."""
        builder = self.builder
        ends = {n: self.like(names[n], carried[n]) for n in cells}
        waiting = {n: v for n, v in ends.items() if v.buffer is not cells[n]}
        while waiting:
            free = [n for n in waiting if not any(cells[n] in v.reads for m, v in waiting.items() if m != n)]
            for n in free or [next(iter(waiting))]:
                value = waiting.pop(n)
                if not free:  # each reads another one
                    for other in waiting.values():
                        if cells[n] in other.reads:
                            builder.keep(other)
                if cells[n] in value.reads and not self.is_in_place(value, cells[n]):
                    builder.keep(value)
                builder.fill(cells[n], value)

    def is_in_place(self, value: BlockValue, cell: Buffer) -> bool:
        """Return whether each element of ``value`` reads no element of ``cell`` but its own."""
        if isinstance(value, ProductValue):
            return value.added is None or self.is_in_place(value.added, cell)
        lanes = tuple([Var("i", self.builder.index) for _ in value.shape])
        own = self.builder.place_of(lanes)
        reads = [n for n in pre_order(value.make(lanes)) if isinstance(n, BufferLoad) and n.buffer is cell]
        return all(all(a is b for a, b in zip(n.indices, own, strict=True)) for n in reads) or not value.shape

    def while_loop(self, s: ast.While) -> None:
        if s.orelse:
            raise TypeError("a loop with else")
        builder, frame = self.builder, self.frame
        carried = self.carried_names(s)
        self.settle_before(frame, s.body, frozenset(frame.names))
        before = dict(frame.names)
        self.tried_while(s, before, carried)
        cells = {n: self.cell(n, v) for n, v in carried.items()}
        inside = {n: builder.read_of(cells[n], v, changes=True) for n, v in carried.items()}
        goes = builder.allocated((), BOOL, "goes")
        frame.names = {**before, **inside}
        carried.gather(frame.names)
        self.ask(s.test, goes)
        with builder.scope() as inner:
            frame.names = {**before, **inside}
            self.carried_body(s, carried)
            self.carry(carried, cells, frame.names)
            frame.names = {**before, **inside}
            carried.gather(frame.names)
            flag = flag_of(s)
            if flag is None:
                self.ask(s.test, goes)
            else:  # after a break the condition is not asked
                zero = builder.number(0)
                builder.emit(BufferStore(goes, negated(BufferLoad(cells[flag], (zero,))), (zero,)))
                with builder.scope() as asked:
                    self.ask(s.test, goes)
                builder.emit(IfThenElse(BufferLoad(goes, (zero,)), asked.statement()))
        builder.emit(While(BufferLoad(goes, (builder.number(0),)), inner.statement()))
        gone = set(names_assigned(s.body))
        frame.names = {n: v for n, v in before.items() if n not in gone or n in carried}
        for n, v in carried.items():
            frame.names[n] = builder.read_of(cells[n], v)
        carried.gather(frame.names)

    def tried_while(self, s: ast.While, before: dict[str, Any], carried: CarriedNames) -> None:
        builder, frame = self.builder, self.frame
        with builder.attempt():
            frame.names = dict(before)
            for n, v in carried.items():
                cell = builder.allocated(v.shape, builder.index if v.pointer else v.dtype, n)
                frame.names[n] = builder.read_of(cell, v, changes=True)
            self.carried_body(s, carried)
            for n, v in carried.items():
                end = self.like(frame.names[n], v)
                if end.shape != v.shape or end.type != v.type or end.pointer is not v.pointer:
                    raise TypeError(
                        f"{n} is {v.type_text()} before the loop and {end.type_text()} at the end of its body"
                    )

    def ask(self, test: ast.expr, goes: Buffer) -> None:
        """Store whether a loop goes on."""
        value = self.builder.value(self.at(test))
        if value.shape:
            raise TypeError(f"while asks a single value, not {value.type_text()}")
        self.builder.emit(
            BufferStore(goes, converted(self.builder.data(value, BOOL).scalar, BOOL), (self.builder.number(0),))
        )

    def settle_before(self, frame: _Frame, stmts: Sequence[ast.stmt], names: frozenset[str]) -> None:
        """Keep what reads arguments before statements that may write them: inside it would be kept for one part only."""
        if any(isinstance(n, ast.Call) and self.may_write(n.func) for stmt in stmts for n in ast.walk(stmt)):
            old, frame.live = frame.live, frame.live | names
            try:
                self.builder.settle({b for v in self.roots() for b in v.reads if b.scope == "global"})
            finally:
                frame.live = old

    def may_write(self, function: ast.expr) -> bool:
        """Return whether a called function may write arguments, by its name."""
        word = (
            function.attr
            if isinstance(function, ast.Attribute)
            else function.id
            if isinstance(function, ast.Name)
            else ""
        )
        if "store" in word or "atomic" in word:
            return True
        found = self.frame.source.global_named(word) if isinstance(function, ast.Name) else None
        return isinstance(getattr(found, "kernel_source", None), KernelSource)

    # -- expressions -------------------------------------------------------------------------------------------------

    def at(self, node: ast.expr) -> Any:
        """Return the value of an expression."""
        rule = _EXPRESSIONS.get(type(node))
        if rule is None:
            raise self.error(node, f"{type(node).__name__} expressions are not known in kernels")
        return self.guard(node, rule, self, node)

    def name(self, node: ast.Name) -> Any:
        frame = self.frame
        if node.id in frame.names:
            return frame.names[node.id]
        found = frame.source.global_named(node.id, _UNSET)
        if found is _UNSET:
            if node.id == frame.source.result:
                raise NameError_(
                    "a return of a value in a loop whose iterations are not known when the kernel is compiled; "
                    "keep it in a name that has a value before the loop, and return that after it"
                )
            if node.id in names_assigned(frame.source.body):
                raise NameError_(f"{node.id} has no value here: it is assigned in a loop or in one branch only")
            raise NameError_(f"{node.id} is not defined")
        if isinstance(found, constexpr) or hasattr(found, "kernel_source"):
            self.outside.append(Outside(frame.source, node.id, found))
        return self.from_outside(node.id, found)

    def from_outside(self, name: str, found: Any) -> Any:
        """Return a global that a kernel may name; TypeError for one that is not known to stay the same."""
        if isinstance(found, constexpr):
            return found.value
        if isinstance(found, (Builtin, DType, ModuleType, PointerType, language.PropagateNan)):
            return found
        if hasattr(found, "kernel_source") or hasattr(found, "constant_function"):
            return found
        if callable(found) and (found in _CONSTANT_FUNCTIONS or found in _NAMED_ALIKE):
            return found
        if isinstance(found, type) and issubclass(found, (constexpr, PointerType, language.PropagateNan)):
            return found
        raise TypeError(
            f"kernels name no global but tl.constexpr values and @triton.jit functions; {name} is {found!r}: write {name} = tl.constexpr(…)"
        )

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def sequence(self, node: ast.Tuple | ast.List) -> Any:
        return tuple([self.at(e) for e in node.elts])

    def joined(self, node: ast.JoinedStr) -> str:
        return "".join(
            [
                str(self.at(v.value)) if isinstance(v, ast.FormattedValue) else str(v.value)  # type: ignore[attr-defined]
                for v in node.values
            ]
        )

    def binary(self, node: ast.BinOp) -> Any:
        left = self.at(node.left)
        held = len(self.held)
        self.held.append(left)
        try:
            right = self.at(node.right)
        finally:
            del self.held[held:]
        return self.operate(type(node.op), left, right)

    def operate(self, kind: type[ast.AST], a: Any, b: Any) -> Any:
        if kind not in _OPERATORS:
            raise TypeError(f"the operator {kind.__name__} is not known in kernels")
        symbol, python = _OPERATORS[kind]
        if not isinstance(a, BlockValue) and not isinstance(b, BlockValue):
            return python(a, b)
        if symbol == "**":
            raise TypeError("** of what is computed; write x * x, or tl.exp2 and tl.log2")
        return self.builder.binary(symbol, a, b)

    def unary(self, node: ast.UnaryOp) -> Any:
        x = self.at(node.operand)
        if not isinstance(x, BlockValue):
            return _UNARY[type(node.op)](x)
        if isinstance(node.op, ast.UAdd):
            return x
        if isinstance(node.op, ast.USub):
            return self.builder.binary("*", x, -1)
        if isinstance(node.op, ast.Not):
            if x.shape:
                raise TypeError(f"not asks a single value, and this is {x.type_text()}; ~ negates each element")
            return self.builder.binary("==", x, 0) if not x.dtype.is_bool else self.builder.binary("^", x, True)
        return self.builder.binary("^", x, True if x.dtype.is_bool else -1)

    def comparison(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise TypeError("a chain of comparisons; write them with &")
        left = self.at(node.left)
        right = self.at(node.comparators[0])
        op = node.ops[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return (left is right) == isinstance(op, ast.Is)
        if isinstance(op, (ast.In, ast.NotIn)):
            return (left in right) == isinstance(op, ast.In)
        known = [x for x in (left, right) if not isinstance(x, (BlockValue, bool, int, float))]
        if known:  # types, strings and None are compared as such
            return operator.eq(left, right) if isinstance(op, ast.Eq) else operator.ne(left, right)
        return self.operate(type(op), left, right)

    def connective(self, node: ast.BoolOp) -> Any:
        both = isinstance(node.op, ast.And)
        found: Any = both
        for part in node.values:
            x = self.at(part)
            if isinstance(found, BlockValue) or isinstance(x, BlockValue):
                a, b = (self.builder.data(self.builder.value(v), BOOL) for v in (found, x))
                found = self.builder.binary("&" if both else "|", a, b)
            else:
                found = x
                if bool(x) != both:
                    return x
        return found

    def choice(self, node: ast.IfExp) -> Any:
        test = self.at(node.test)
        if not isinstance(test, BlockValue):
            return self.at(node.body if test else node.orelse)
        if test.shape:
            raise TypeError(f"if asks a single value, not {test.type_text()}; tl.where chooses element by element")
        return self.builder.where(test, self.at(node.body), self.at(node.orelse))

    def subscript(self, node: ast.Subscript) -> Any:
        value = self.at(node.value)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(value, BlockValue):
            new: list[int] = []
            for n, part in enumerate(parts):
                if isinstance(part, ast.Slice) and part.lower is part.upper is part.step is None:
                    continue
                if isinstance(part, ast.Constant) and part.value is None:
                    new.append(n)
                else:
                    raise TypeError("blocks have the subscripts : and None only")
            if len(parts) - len(new) != len(value.shape):
                raise TypeError(f"{len(parts) - len(new)} times : for {value.type_text()}")
            return language.expand_dims.meaning(self.builder, value, tuple(new)) if new else value
        index = self.at(node.slice)
        if isinstance(index, BlockValue):
            raise TypeError("a tuple has constant subscripts")
        return value[index]

    def attribute(self, node: ast.Attribute) -> Any:
        value = self.at(node.value)
        name = node.attr
        if isinstance(value, BlockValue):
            if name == "T":
                return language.trans.meaning(self.builder, value)
            if name in ("dtype", "type"):
                return value.type
            if name == "shape":
                return value.shape
            if name in MEMBERS:
                return _Bound(MEMBERS[name], value)
            raise AttributeError(
                f"a block has no {name}; there are {', '.join(sorted([*MEMBERS, 'T', 'dtype', 'shape']))}"
            )
        if isinstance(value, BlockPointer):
            if name in ("dtype", "type"):
                return PointerType(value.window.dtype)
            if name == "advance":
                return _Bound(language.advance, value)
            raise AttributeError(f"a block pointer has no {name}; there are advance, dtype and type")
        if isinstance(value, BlockWindow) and name in WINDOW_MEMBERS:
            return _Bound(WINDOW_MEMBERS[name], value)
        if isinstance(value, ModuleType):
            found = getattr(value, name)
            return found if isinstance(found, ModuleType) else self.from_outside(f"{value.__name__}.{name}", found)
        if isinstance(value, (DType, PointerType)):
            return self.of_type(value, name)
        if name == "value":
            return value
        if isinstance(value, (int, float)) and name == "to":
            return _Bound(MEMBERS["to"], self.builder.value(value))
        return getattr(value, name)

    def of_type(self, t: DType | PointerType, name: str) -> Any:
        """Return what a kernel reads or asks of a type: ``.element_ty`` of a pointer's, ``.is_fp16()``."""
        if name == "is_ptr":
            return _Known(isinstance(t, PointerType))
        if isinstance(t, PointerType):
            if name == "element_ty":
                return t.element_ty
        elif name in TYPE_TESTS:
            return _Known(TYPE_TESTS[name](t))
        elif name in TYPE_PARTS:
            return TYPE_PARTS[name](t)
        known = ["element_ty", "is_ptr"] if isinstance(t, PointerType) else ["is_ptr", *TYPE_TESTS, *TYPE_PARTS]
        raise AttributeError(f"the type {t} has no {name}; there are {', '.join(sorted(known))}")

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call; those that are read first are needed until all are."""
        held = len(self.held)
        args: list[Any] = []
        named: dict[str, Any] = {}
        try:
            for part in node.args:
                value = self.at(part.value) if isinstance(part, ast.Starred) else self.at(part)
                args += value if isinstance(part, ast.Starred) else [value]
                self.held.append(value)
            for keyword in node.keywords:
                if keyword.arg is None:
                    raise TypeError("** in a call")
                named[keyword.arg] = self.at(keyword.value)
                self.held.append(named[keyword.arg])
        finally:
            del self.held[held:]
        return args, named

    def called(self, node: ast.Call) -> Any:
        function = self.at(node.func)
        args, named = self.arguments(node)
        if isinstance(function, _Bound):
            args, function = [function.value, *args], function.row
        if isinstance(function, _Known) and not args and not named:
            return function.answer
        if any(isinstance(x, BlockValue) for x in args) and function in _NAMED_ALIKE:
            if function in (min, max) and len(args) > 2 and not named:  # of more than two, one after another
                return functools.reduce(functools.partial(_NAMED_ALIKE[function].meaning, self.builder), args)
            function = _NAMED_ALIKE[function]
        if isinstance(function, Builtin):
            return function.meaning(self.builder, *args, **named)
        source = getattr(function, "kernel_source", None)
        if isinstance(source, KernelSource):
            return self.call(source, source.bound(args, named))
        if function is constexpr:
            return args[0]
        if function is PointerType:
            return PointerType(*args)
        if any(isinstance(x, BlockValue) for x in (*args, *named.values())):
            row = getattr(function, "constant_function", None)
            if isinstance(row, Builtin):
                return row.meaning(self.builder, *args, **named)
            raise TypeError(f"{getattr(function, '__name__', function)} of what is computed in a kernel")
        if function in _CONSTANT_FUNCTIONS or function in _NAMED_ALIKE or hasattr(function, "constant_function"):
            return function(*args, **named)
        raise TypeError(f"{function!r} is not called in kernels")


def _with_names(e: Expr, known: list[tuple[BufferLoad, Var]], pointers: bool) -> Expr:
    """Returns an index of ``pointers`` with variables for loads of kept memory, the same where they are ``known``."""

    def post(n: Any) -> Var | None:
        if not pointers or not isinstance(n, BufferLoad) or n.buffer.scope != "local" or not n.dtype.is_int:
            return None
        for load, var in known:
            if load.buffer is n.buffer and all(same(a, b) for a, b in zip(load.indices, n.indices, strict=True)):
                return var
        known.append((n, Var("kept", n.dtype)))
        return known[-1][1]

    out: Expr = transform(e, post=post)
    return out


class NameError_(ValueError):
    """Raised for a name without a value."""


class Turns:
    """The iterations of a counted loop that may end early: their number is counted in memory."""

    def __init__(self, builder: KernelBuilder, number: Var, count: Expr) -> None:
        self.builder, self.number, self.count = builder, number, count
        self.zero = (builder.number(0),)
        self.turn = builder.allocated((), builder.index, "turn")
        self.goes = builder.allocated((), BOOL, "goes")
        builder.emit(BufferStore(self.turn, builder.number(0), self.zero))
        builder.emit(BufferStore(self.goes, builder.number(0) < count, self.zero))

    def begin(self) -> None:
        """Name the number of the iteration, at the head of the body."""
        self.builder.emit((self.number, BufferLoad(self.turn, self.zero)))

    def end(self, flag: Buffer) -> None:
        """Count the iteration, at the end of the body. The loop ends by its count, or when the flag is set."""
        after = self.number + self.builder.number(1)
        self.builder.emit(BufferStore(self.turn, after, self.zero))
        goes = all_(negated(BufferLoad(flag, self.zero)), after < self.count)
        self.builder.emit(BufferStore(self.goes, goes, self.zero))

    def loop(self, body: Stmt) -> Expr:
        """Add the loop, and return how many iterations there were."""
        self.builder.emit(While(BufferLoad(self.goes, self.zero), body))
        passes = Var("passes", self.builder.index)
        self.builder.emit((passes, BufferLoad(self.turn, self.zero)))
        self.builder.not_negative.add(passes)
        return passes


class _Pushed:
    """Holds one more entry at the end of a list."""

    def __init__(self, stack: list[Any], entry: Any) -> None:
        self.stack, self.entry = stack, entry

    def __enter__(self) -> None:
        self.stack.append(self.entry)

    def __exit__(self, *_: object) -> None:
        self.stack.pop()


@dataclass(frozen=True)
class _Bound:
    """A method of a block, a window or a block pointer."""

    row: Builtin
    value: BlockValue | BlockWindow | BlockPointer


@dataclass(frozen=True)
class _Known:
    """A method without arguments whose answer is known when the kernel is compiled."""

    answer: bool


_UNSET = object()
_NAMED_ALIKE: dict[Any, Any] = {
    min: language.minimum,
    max: language.maximum,
    abs: language.abs,
    builtins.range: language.range,
}
"""Python's functions that are those of ``tl`` for blocks."""


def _changed_in(stmts: Sequence[ast.stmt]) -> frozenset[str]:
    """Returns the names that are changed in place, and so read, by statements."""
    return frozenset(
        n.target.id
        for s in stmts
        for n in ast.walk(s)
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    )


_STATEMENTS: dict[type[ast.stmt], Callable[[KernelReader, Any], None]] = {
    ast.AnnAssign: KernelReader.assign_typed,
    ast.Assert: KernelReader.assertion,
    ast.Assign: KernelReader.assign,
    ast.AugAssign: KernelReader.assign_changed,
    ast.Expr: KernelReader.expression,
    ast.For: KernelReader.for_loop,
    ast.Pass: KernelReader.nothing,
    ast.While: KernelReader.while_loop,
}

_EXPRESSIONS: dict[type[ast.expr], Callable[[KernelReader, Any], Any]] = {
    ast.Attribute: KernelReader.attribute,
    ast.BinOp: KernelReader.binary,
    ast.BoolOp: KernelReader.connective,
    ast.Call: KernelReader.called,
    ast.Compare: KernelReader.comparison,
    ast.Constant: KernelReader.constant,
    ast.IfExp: KernelReader.choice,
    ast.JoinedStr: KernelReader.joined,
    ast.List: KernelReader.sequence,
    ast.Name: KernelReader.name,
    ast.Subscript: KernelReader.subscript,
    ast.Tuple: KernelReader.sequence,
    ast.UnaryOp: KernelReader.unary,
}
