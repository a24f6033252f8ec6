"""Builds the loops of a kernel: where values are kept, how memory is read and written, reductions and products.

A value becomes a loop nest when it is kept (:meth:`KernelBuilder.kept`), stored, reduced or multiplied. The nest runs over the
value's dimensions; the dimension along which memory is contiguous becomes vectors.

Each access of an argument is guarded by the argument's extent, so that a wrong index cannot touch other memory. Beside it stands
a check: where the ends of all indices of a block lie inside it costs two comparisons, else the elements are looked at one by one.
A wrong one is noted in ``faults``, one number for each access of the source, and the launch reports it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

from ..tir.analysis.simplify import simplify
from ..tir.arith import Analyzer, linear_coefficients
from ..tir.expr import (
    Add,
    BufferLoad,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Ramp,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    all_,
    any_,
    const,
    is_const_int,
    max_,
    max_identity,
    min_,
    min_identity,
    pre_order,
    same,
    transform,
    vars_in,
)
from ..tir.expr.dtype import BOOL, DType, max_value, min_value
from ..tir.expr.intrinsics import operation_named
from ..tir.stmt import (
    Allocate,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    loads_and_stores,
    seq,
)
from .block_values import (
    ARITHMETIC,
    COMPARISONS,
    BlockValue,
    PointerArgument,
    broadcast,
    broadcast_make,
    broadcast_shape,
    computed_once,
    converted,
    element,
    guarded,
    is_index,
    is_not_negative,
    larger_number,
    of_expression,
    promoted,
    quotient,
    remainder,
    smaller_number,
    type_of_number,
)

Lanes = tuple[Expr, ...]
FLOAT32 = DType("float32")
KEEP_FROM = 6
"""A value that is used several times is kept in memory when an element costs so many instructions."""


LOAD_COST = 4
"""The instructions that a load counts as."""


class NeedsWideIndices(Exception):
    """Raised where the kernel asks for indices of 64 bits while those of the launch have 32."""


@dataclass
class _Scope:
    """The statements of one body, and what was changed for it alone."""

    items: list[Stmt | Buffer | tuple[Var, Expr]] = field(default_factory=list)
    kept: list[tuple[BlockValue, tuple[Any, ...]]] = field(default_factory=list)
    wishes: dict[Buffer, dict[str, Any]] = field(default_factory=dict)
    """The annotations of allocations."""

    def statement(self) -> Stmt:
        body: Stmt = Evaluate(IntImm(0))
        after: list[Stmt] = []
        for item in reversed(self.items):
            if isinstance(item, Stmt):
                after.insert(0, item)
                continue
            body = seq(*after)
            made = Allocate(item, body, self.wishes.get(item, {})) if isinstance(item, Buffer) else LetStmt(*item, body)
            after = [made]
        return seq(*after) if after else body


class ProductValue(BlockValue):
    """The matrix product of two blocks in memory, and ``added`` to it. It is computed where its value is needed."""

    __slots__ = ("a", "added", "b", "builder")

    def __init__(
        self, builder: KernelBuilder, a: Buffer, b: Buffer, added: BlockValue | None, dtype: DType, shape: tuple[int, ...]
    ) -> None:  # fmt: skip
        super().__init__(shape, dtype, self._made, KEEP_FROM, () if added is None else added.reads)
        self.builder, self.a, self.b, self.added = builder, a, b, added

    def _made(self, lanes: Lanes) -> Expr:
        self.builder.keep(self)
        return self.make(lanes)


ASSERTS = "asserts"
"""What a site does that is an assertion."""


@dataclass(frozen=True)
class AccessSite:
    """One access or assertion of the source: what it does, the argument or message, and the place."""

    verb: str
    argument: str
    place: str


class KernelBuilder:
    """Builds the body of one kernel."""

    def __init__(self, index: DType, faults: Buffer, known: set[Var], lanes: int) -> None:
        self.index = index
        self.faults = faults
        self.not_negative = known
        self.register_lanes = lanes
        self.sites: list[AccessSite] = []
        self.place: Callable[[], str] = str
        self.scopes: list[_Scope] = [_Scope()]
        self.roots: Callable[[], Iterator[BlockValue]] = lambda: iter(())
        self.outer: set[Var] = set()
        self.programs: tuple[Expr, ...] = ()
        self.grid: tuple[Expr, ...] = ()
        self.trial = False
        self.programs_in_order = False
        """Whether programs run one after another: each sees what those before it left."""
        self.apply: Callable[..., Any] = _no_function
        self.in_loop: Callable[[], bool] = bool
        self.extremes_asked: list[tuple[Expr, Expr]] = []
        """The ends of kept blocks that the bounds of the last index were made of."""

    # -- scopes ------------------------------------------------------------------------------------------------------

    def emit(self, item: Stmt | Buffer | tuple[Var, Expr]) -> None:
        """Add a statement, an allocation or a named value to the current body."""
        self.scopes[-1].items.append(item)

    @contextmanager
    def scope(self) -> Iterator[_Scope]:
        """Collect statements in a body of their own. What is kept in memory inside is not known outside."""
        inner = _Scope()
        self.scopes.append(inner)
        try:
            yield inner
        finally:
            self.scopes.pop()
            for value, old in reversed(inner.kept):
                value.make, value.cost, value.reads, value.buffer = old

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Read a body to learn its types: what it emits is dropped."""
        outer, sites = self.trial, len(self.sites)
        self.trial = True
        try:
            with self.scope():
                yield
        finally:
            self.trial = outer
            del self.sites[sites:]

    def number(self, value: int) -> Expr:
        """Return a constant index."""
        return const(value, self.index)

    def allocated(self, shape: Sequence[int], dtype: DType, name: str) -> Buffer:
        """Return new memory of the current body. A value without dimensions takes one element."""
        buffer = Buffer(name, tuple(map(self.number, shape or (1,))), dtype, "local")
        self.emit(buffer)
        return buffer

    def place_of(self, lanes: Lanes) -> Lanes:
        """Return the indices in :meth:`allocated` memory of the element at ``lanes``."""
        return lanes or (self.number(0),)

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, x: Any) -> BlockValue:
        """Return a Python number as a value; TypeError for anything else that is none."""
        if isinstance(x, BlockValue):
            return x
        if isinstance(x, (bool, int, float)):
            return self.constant(x, type_of_number(x))
        raise TypeError(f"a block or a number is needed here, not {x!r}")

    def constant(self, x: bool | int | float, dtype: DType) -> BlockValue:
        """Return a number of a type as a value."""
        if dtype.is_bool:
            e: Expr = IntImm(int(bool(x)), BOOL)
        elif dtype.is_float:
            e = const(float(x), dtype)
        else:
            if isinstance(x, float) and not x.is_integer():
                raise TypeError(f"{x} is no {dtype}")
            e = const(int(x), self.index if dtype in ("int32", "int64") and abs(int(x)) < 2**31 else dtype)
        return of_expression(e, dtype)

    def index_value(self, value: BlockValue) -> BlockValue:
        """Return integers as indices; a single one that is data gets a name first."""
        if not value.dtype.is_int and not value.dtype.is_bool:
            raise TypeError(f"an index is an integer, not {value.type_text()}")
        if not value.shape and not is_index(value.scalar):
            return self.named(of_expression(converted(value.scalar, self.index), value.dtype))
        return BlockValue(
            value.shape, value.dtype, lambda lanes: converted(value.make(lanes), self.index), value.cost, value.reads
        )

    def named(self, value: BlockValue, name: str = "n") -> BlockValue:
        """Return a value without dimensions, computed once."""
        e = value.scalar
        if isinstance(e, (Var, IntImm)):
            return of_expression(e, value.dtype)
        if (
            not value.dtype.is_float
            and not is_index(e)
            and value.dtype in ("int32", "int64")
            and e.dtype == value.dtype
        ):
            return self.kept(value, name)  # data stays in memory: a variable would be an index
        var = Var(name, e.dtype)
        if is_index(e) and is_not_negative(e, self.not_negative):
            self.not_negative.add(var)
        self.emit((var, e))
        return of_expression(var, value.dtype)

    def data(self, value: BlockValue, dtype: DType) -> BlockValue:
        """Return the elements as data of a type."""
        if value.pointer is not None:
            raise TypeError(f"{value.type_text()} holds pointers, not numbers")
        return BlockValue(
            value.shape,
            dtype,
            lambda lanes: converted(value.make(lanes), dtype),
            value.cost + (dtype != value.dtype),
            value.reads,
        )

    def cast(self, value: BlockValue, dtype: DType) -> BlockValue:
        """Return the elements converted to a type; indices stay indices where the type holds them."""
        if value.pointer is not None:
            raise TypeError("pointers are not converted")
        if dtype == value.dtype:
            return value
        if dtype in ("int32", "int64"):
            if dtype == "int64" and self.index == "int32":
                raise NeedsWideIndices

            def make(lanes: Lanes) -> Expr:
                e = value.make(lanes)
                return e if is_index(e) and e.dtype == self.index else converted(e, dtype)

            return BlockValue(value.shape, dtype, make, value.cost, value.reads)
        exact = self.data(value, value.dtype)
        return BlockValue(
            value.shape, dtype, lambda lanes: converted(exact.make(lanes), dtype), value.cost + 1, value.reads
        )

    def binary(self, op: str, left: Any, right: Any) -> BlockValue:
        """Return an operator of Python, ``minimum`` or ``maximum`` on two blocks, by Triton's rules of types."""
        a, b = self.value(left), self.value(right)
        if a.pointer is not None or b.pointer is not None:
            return self.moved(op, a, b)
        division = op in ("/", "//", "%")
        weak = [isinstance(x, (bool, int, float)) for x in (left, right)]
        dtype = promoted(a.dtype, b.dtype, weak[0], weak[1], division)
        if dtype.is_storage:
            raise TypeError(f"{op} of {a.type_text()}, which is only kept; convert it with .to(tl.float32) first")
        if op == "/" and not dtype.is_float:
            dtype = FLOAT32
        if op == "//" and dtype.is_float:
            raise TypeError(f"// is a quotient of integers, and this is {a.type_text()} // {b.type_text()}")
        if op in ("&", "|", "^", "<<", ">>") and dtype.is_float:
            raise TypeError(f"{op} is for integers, and this is {a.type_text()} {op} {b.type_text()}")
        if op == "+":
            joined = self.with_product(a, b, dtype)
            if joined is not None:
                return joined
        shape = broadcast_shape(a.shape, b.shape)
        for v in (a, b):
            if v.shape != shape and self.divides(v, op in ("<<", ">>")):
                self.spread(v, divided=True)
        ma, mb = broadcast_make(a, shape), broadcast_make(b, shape)
        kind = self.operation(op)
        compared = op in COMPARISONS

        def make(lanes: Lanes) -> Expr:
            x, y = ma(lanes), mb(lanes)
            if (
                op not in ("/", "&", "|", "^", "<<", ">>")
                and dtype.is_int
                and dtype.is_signed
                and is_index(x)
                and is_index(y)
            ):
                return kind(converted(x, self.index), converted(y, self.index))
            return kind(converted(converted(x, a.dtype), dtype), converted(converted(y, b.dtype), dtype))

        return BlockValue(shape, BOOL if compared else dtype, make, a.cost + b.cost + 1, a.reads | b.reads)

    def operation(self, op: str) -> Callable[[Expr, Expr], Expr]:
        """Return what builds the expression of an operator."""
        if op == "//":
            return lambda x, y: quotient(x, y, self.not_negative)
        if op == "%":
            return lambda x, y: remainder(x, y, self.not_negative)
        return COMPARISONS[op] if op in COMPARISONS else ARITHMETIC[op]

    def moved(self, op: str, a: BlockValue, b: BlockValue) -> BlockValue:
        """Return pointers moved by integers."""
        if a.pointer is not None and b.pointer is not None:
            raise TypeError(f"{op} of two blocks of pointers")
        if op not in ("+", "-") or (op == "-" and a.pointer is None):
            raise TypeError(f"{op} of {a.type_text()} and {b.type_text()}; pointers are moved by + and -")
        pointer, distance = (a, b) if a.pointer is not None else (b, a)
        distance = self.index_value(distance)
        shape = broadcast_shape(a.shape, b.shape)
        if distance.shape != shape and self.divides(distance, False):
            self.spread(distance, divided=True)
        mp, md = broadcast_make(pointer, shape), broadcast_make(distance, shape)
        kind = ARITHMETIC[op]
        return BlockValue(
            shape,
            pointer.dtype,
            lambda lanes: kind(mp(lanes), md(lanes)),
            pointer.cost + distance.cost + 1,
            pointer.reads | distance.reads,
            pointer.pointer,
        )

    def elementwise(self, name: str, value: BlockValue) -> BlockValue:
        """Return an operation of one number, such as ``exp``, of each element. Integers are converted to float32; floats of
        fewer bits are computed in float32."""
        dtype = value.dtype if value.dtype.is_float else FLOAT32
        if dtype.is_storage:
            raise TypeError(f"{name} of {value.type_text()}, which is only kept; convert it with .to(tl.float32) first")
        inner = FLOAT32 if dtype.bits < 32 else dtype
        row = operation_named(name)
        exact = self.data(self.data(value, value.dtype), inner)
        return BlockValue(
            value.shape, dtype, lambda lanes: converted(row(exact.make(lanes)), dtype), value.cost + 20, value.reads
        )

    def where(self, condition: Any, x: Any, y: Any) -> BlockValue:
        """Return ``x`` where the condition holds, else ``y``; both are computed."""
        c, a, b = self.value(condition), self.value(x), self.value(y)
        weak = [isinstance(v, (bool, int, float)) for v in (x, y)]
        dtype = promoted(a.dtype, b.dtype, *weak)
        shape = broadcast_shape(c.shape, a.shape, b.shape)
        mc = broadcast_make(self.data(c, BOOL), shape)
        ma, mb = broadcast_make(self.cast_data(a, dtype), shape), broadcast_make(self.cast_data(b, dtype), shape)
        return BlockValue(
            shape, dtype, lambda lanes: Select(mc(lanes), ma(lanes), mb(lanes)), a.cost + b.cost + c.cost + 1,
            a.reads | b.reads | c.reads,
        )  # fmt: skip

    def cast_data(self, value: BlockValue, dtype: DType) -> BlockValue:
        """Return the elements, computed in their own type, as data of another type."""
        return self.data(self.data(value, value.dtype), dtype)

    # -- loop nests --------------------------------------------------------------------------------------------------

    def nest(self, shape: Sequence[int], body: Callable[[Lanes], Stmt], bits: int = 32) -> Stmt:
        """Return ``body`` for all elements of a shape: vectors along the dimension in which most accesses are contiguous.

        Remainders that change no index of this block are left out: one comparison of the ends decides for the whole nest.
        """
        lanes = [Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)]
        found = body(tuple(lanes))
        sizes = {v: n for v, n in zip(lanes, shape, strict=True) if isinstance(v, Var)}
        axis = self.contiguous_axis(found, lanes)
        loops = self.loops(shape, body, axis, bits)
        idle = self.idle_remainders(found, sizes)
        if not idle:
            return loops

        def without(at: Lanes) -> Stmt:
            varying = {v for e in at for v in vars_in(e)}
            return transform(body(at), post=_without_remainders(self.index, varying))

        plain = self.loops(shape, without, axis, bits)
        return IfThenElse(all_(*idle), plain, loops)

    def contiguous_axis(self, found: Stmt, lanes: Sequence[Expr]) -> int | None:
        """Return the dimension along which most accesses are contiguous, the last one where several are; None for a scalar."""
        axes = [n for n, v in enumerate(lanes) if isinstance(v, Var)]
        if len(axes) < 2:
            return axes[0] if axes else None
        variables: list[Var] = [lanes[n] for n in axes]  # type: ignore[misc]
        analyzer = Analyzer()
        votes = dict.fromkeys(axes, 0)
        seen: list[BufferLoad | BufferStore] = []
        for access in loads_and_stores(found):
            if isinstance(access, BufferLoad):  # one that stands in several places is one
                if any(access.buffer is a.buffer and all(map(same, access.indices, a.indices)) for a in seen):
                    continue
                seen.append(access)
            last = transform(access.indices[-1], post=_without_remainders(self.index, variables))
            linear = linear_coefficients(last, variables, analyzer)
            for n, c in zip(axes, linear[0] if linear else (), strict=False):
                weight = 2 if access.buffer.scope == "global" else 1
                votes[n] += weight if is_const_int(c, 1) else 0
        return max(axes, key=lambda n: (votes[n], n))

    def loops(self, shape: Sequence[int], body: Callable[[Lanes], Stmt], axis: int | None, bits: int = 32) -> Stmt:
        """Return loops over a shape, the one of ``axis`` innermost and in vectors."""
        lanes: list[Expr] = [self.number(0)] * len(shape)
        around: list[tuple[Var, int, str]] = []
        for n, size in enumerate(shape):
            if n != axis and size > 1:
                lanes[n] = Var(f"i{n}", self.index)
                around.append((lanes[n], size, "serial"))  # type: ignore[arg-type]
        if axis is not None:
            size = shape[axis]
            width = min(size, 2 * self.register_lanes * 32 // max(bits, 32))
            inner = Var(f"i{axis}", self.index)
            lanes[axis] = inner
            if size > width:
                outer = Var(f"o{axis}", self.index)
                lanes[axis] = outer * self.number(width) + inner
                around.append((outer, size // width, "serial"))
            around.append((inner, width, "vectorized"))
        out = body(tuple(lanes))
        for var, size, kind in reversed(around):
            out = For(var, self.number(0), self.number(size), kind, out)
        return out

    def idle_remainders(self, found: Stmt, sizes: dict[Var, int]) -> list[Expr]:
        """Return the conditions under which the remainders of indices that differ by element change nothing.

        There are none where these are not known of all of them.
        """
        out: list[Expr] = []
        n: Any
        for n in pre_order(found):
            if _is_remainder(n, self.index, sizes.keys()):
                ends = self.ends(n.a, sizes)
                if ends is None or any(isinstance(e, BufferLoad) for e in pre_order(n.b)):
                    return []
                for test in (simplify(ends[0]) >= self.number(0), simplify(ends[1]) < n.b):
                    if not any(same(test, other) for other in out):
                        out.append(test)
        return out

    def ends(self, e: Expr, sizes: dict[Var, int]) -> tuple[Expr, Expr] | None:
        """Return bounds of an index over all elements, in terms of what all elements share; None where none are known."""
        if isinstance(e, Var) and e in sizes:
            return self.number(0), self.number(sizes[e] - 1)
        if sizes.keys().isdisjoint(vars_in(e)):
            return (
                None if any(isinstance(n, BufferLoad) and n.buffer.scope == "global" for n in pre_order(e)) else (e, e)
            )
        if isinstance(e, (FloorMod, TruncMod)) and sizes.keys().isdisjoint(vars_in(e.b)):
            zero, one = self.number(0), self.number(1)
            positive = is_not_negative(e.b, self.not_negative)
            most = max_((e.b if positive else max_(e.b, zero - e.b)) - one, zero)
            if positive and isinstance(e, FloorMod):
                return zero, most
            of = None if isinstance(e, FloorMod) else self.ends(e.a, sizes)
            if of is None:
                return zero - most, most
            return max_(min_(of[0], zero), zero - most), min_(
                max_(of[1], zero), most
            )  # the sign is that of the dividend
        if isinstance(e, Cast):
            inner = self.ends(e.value, sizes) if e.value.dtype.is_int else None
            return (
                None
                if inner is None or e.dtype != self.index
                else (converted(inner[0], e.dtype), converted(inner[1], e.dtype))
            )
        if isinstance(e, BufferLoad) and e.buffer.scope == "local" and self.is_whole(e, sizes):
            return self.extremes(e.buffer)
        if not isinstance(e, (Add, Sub, Mul, FloorDiv, TruncDiv, Min, Max)):
            return None
        a, b = self.ends(e.a, sizes), self.ends(e.b, sizes)
        if a is None or b is None:
            return None
        if isinstance(e, Add):
            return a[0] + b[0], a[1] + b[1]
        if isinstance(e, Sub):
            return a[0] - b[1], a[1] - b[0]
        if isinstance(e, Min):
            return min_(a[0], b[0]), min_(a[1], b[1])
        if isinstance(e, Max):
            return max_(a[0], b[0]), max_(a[1], b[1])
        if isinstance(e, (FloorDiv, TruncDiv)):
            positive = is_not_negative(e.b, self.not_negative)
            return (type(e)(a[0], e.b), type(e)(a[1], e.b)) if positive else None
        if a[0] is a[1]:
            a, b = b, a
        if b[0] is not b[1]:
            return None
        low, high = a[0] * b[0], a[1] * b[0]
        return (low, high) if is_not_negative(b[0], self.not_negative) else (min_(low, high), max_(low, high))

    def is_whole(self, load: BufferLoad, sizes: dict[Var, int]) -> bool:
        """Return whether all elements of a kept block of integers are read, each at its place."""
        shape = tuple([int(n) for n in load.buffer.shape])  # type: ignore[call-overload]
        return load.dtype == self.index and all(
            (isinstance(i, Var) and sizes.get(i) == n) or (n == 1 and is_const_int(i, 0))
            for i, n in zip(load.indices, shape, strict=True)
        )

    def extremes(self, buffer: Buffer) -> tuple[Expr, Expr]:
        """Return the smallest and the largest element of a kept block of integers."""
        shape = tuple([int(n) for n in buffer.shape])  # type: ignore[call-overload]
        out: list[Expr] = []
        for name, first, kind in (("low", max_value, min_), ("high", min_value, max_)):
            cell = Buffer(name, (self.number(1),), buffer.dtype, "local")
            self.emit(cell)
            at = (self.number(0),)
            self.emit(BufferStore(cell, const(int(first(buffer.dtype)), buffer.dtype), at))

            def joined(lanes: Lanes, cell: Buffer = cell, kind: Callable[[Expr, Expr], Expr] = kind) -> Stmt:
                return BufferStore(
                    cell, kind(element(cell, (self.number(0),)), element(buffer, lanes)), (self.number(0),)
                )

            self.emit(KernelBuilder.scalar_nest(self, shape, joined))
            out.append(element(cell, at))
        self.extremes_asked.append((out[0], out[1]))
        return out[0], out[1]

    # -- kept values -------------------------------------------------------------------------------------------------

    def kept(self, value: BlockValue, name: str = "kept") -> BlockValue:
        """Return the value from memory of its own: it is computed now."""
        buffer = self.allocated(value.shape, value.dtype, name)
        self.fill(buffer, value)
        return self.read_of(buffer, value)

    def read_of(self, buffer: Buffer, like: BlockValue, changes: bool = False) -> BlockValue:
        """Return the block in a buffer. ``changes``: the buffer is written again later."""
        pointer = like.pointer
        return BlockValue(
            like.shape,
            like.dtype,
            lambda lanes: element(buffer, self.place_of(lanes)),
            0,
            (buffer,) if changes else (),
            pointer,
            buffer,
        )

    def keep(self, value: BlockValue, name: str = "kept") -> None:
        """Keep a value in memory from now on, in the current body."""
        old = (value.make, value.cost, value.reads, value.buffer)
        buffer = self.allocated(value.shape, value.dtype if value.pointer is None else self.index, name)
        self.fill(buffer, value)
        value.make = lambda lanes: element(buffer, self.place_of(lanes))
        value.cost, value.reads, value.buffer = 0, frozenset(), buffer
        self.scopes[-1].kept.append((value, old))

    def fill(self, buffer: Buffer, value: BlockValue) -> None:
        """Store a value to memory of its shape."""
        if isinstance(value, ProductValue) and value.buffer is None:
            zero = self.constant(0, value.dtype)
            self.fill(buffer, broadcast(zero if value.added is None else value.added, value.shape))
            self.multiply(buffer, value.a, value.b)
            return
        if not value.shape:
            self.emit(BufferStore(buffer, converted(value.scalar, buffer.dtype), (self.number(0),)))
            return
        if value.buffer is buffer:
            return
        dtype = buffer.dtype

        def body(lanes: Lanes) -> Stmt:
            return BufferStore(buffer, converted(value.make(lanes), dtype), lanes)

        self.emit(self.nest(value.shape, body, dtype.bits))

    def divides(self, value: BlockValue, remainders: bool) -> bool:
        """Return whether each element divides its place by a number of the launch. ``remainders``: whether those count, too; as indices
        they do not, because most of them change nothing (:meth:`idle_remainders`)."""
        kinds = (FloorDiv, TruncDiv, FloorMod, TruncMod) if remainders else (FloorDiv, TruncDiv)
        lanes = [Var("i", self.index) if size > 1 else self.number(0) for size in value.shape]
        places = {v for v in lanes if isinstance(v, Var)}
        return bool(places) and any(
            isinstance(n, kinds) and not isinstance(n.b, IntImm) and not places.isdisjoint(vars_in(n.a))
            for n in pre_order(value.make(tuple(lanes)))
        )

    def spread(self, value: BlockValue, divided: bool = False) -> None:
        """Keep a block that a larger one repeats, so that it is loaded, or ``divided``, once."""
        loaded = value.cost >= LOAD_COST and any(b.scope == "global" for b in value.reads)
        if value.shape and value.buffer is None and value.pointer is None and (divided or loaded):
            self.keep(value)

    def settle(self, written: Iterable[Buffer], besides: Iterable[BlockValue] = ()) -> None:
        """Keep the values that are still needed and read memory that is about to be written."""
        buffers = frozenset(written)
        done = list(besides)
        for value in self.roots():
            if not buffers.isdisjoint(value.reads) and not any(value is v for v in done):
                self.keep(value)

    # -- memory ------------------------------------------------------------------------------------------------------

    def new_site(self, verb: str, what: str) -> int:
        """Return the number of an access or an assertion of the source."""
        self.sites.append(AccessSite(verb, what, self.place()))
        return len(self.sites) - 1

    def check_condition(self, condition: BlockValue, mask: BlockValue | None, message: str) -> None:
        """Note that a condition is false for an element, where the mask holds."""
        site = self.new_site(ASSERTS, message)
        parts = [self.data(v, BOOL) for v in (condition, mask) if v is not None]
        shape = broadcast_shape(*[v.shape for v in parts])
        makes = [broadcast_make(v, shape) for v in parts]

        def note(lanes: Lanes) -> Stmt:
            wrong, *where = [make(lanes) for make in makes]
            return IfThenElse(all_(*where, Not(wrong)), self.noted(site, const(1, DType("int64"))))

        self.emit(self.scalar_nest(shape, note))

    def noted(self, site: int, number: Expr) -> Stmt:
        """Return the statement that notes a number for an access or an assertion."""
        return BufferStore(self.faults, number, (const(site, self.faults.shape[0].dtype),))

    def scalar_nest(self, shape: Sequence[int], body: Callable[[Lanes], Stmt]) -> Stmt:
        """Return ``body`` for all elements of a shape, one after another."""
        lanes = [Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)]
        out = body(tuple(lanes))
        for var, size in reversed(list(zip(lanes, shape, strict=True))):
            if isinstance(var, Var):
                out = For(var, self.number(0), self.number(size), "serial", out)
        return out

    def fault(self, offset: Expr, extent: Expr, allowed: Expr | None) -> tuple[Expr, Expr]:
        """Return whether an element lies outside of its argument, where the mask holds, and the number that says which."""
        wrong = any_(offset < self.number(0), offset >= extent)
        place = converted(offset, DType("int64"))
        noted = Select(offset < self.number(0), place, place + const(1, DType("int64")))  # below 0, or 1 and more
        return wrong if allowed is None else all_(allowed, wrong), noted

    def check(self, verb: str, pointer: BlockValue, mask: BlockValue | None) -> None:
        """Note the access of an element outside of its argument, where the mask holds."""
        argument = pointer.pointer
        assert argument is not None
        site = self.new_site(verb, argument.name)
        shape = pointer.shape if mask is None else broadcast_shape(pointer.shape, mask.shape)
        make = broadcast_make(pointer, shape)
        masked = None if mask is None else broadcast_make(mask, shape)
        extent = argument.buffer.shape[0]
        lanes = tuple([Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)])
        sizes = {v: n for v, n in zip(lanes, shape, strict=True) if isinstance(v, Var)}
        offset = make(lanes)
        wrong, noted = self.fault(offset, extent, None if masked is None else masked(lanes))
        note: Stmt = IfThenElse(wrong, self.noted(site, noted))
        for var, size in reversed(sizes.items()):
            note = For(var, self.number(0), self.number(size), "serial", note)
        self.extremes_asked = []
        ends = self.ends(offset, sizes)
        if ends is not None:
            # products of numbers from memory that are no places of this argument may wrap around
            both = [(simplify(ends[0]), simplify(ends[1])), *self.extremes_asked]
            beyond = [test for low, high in both for test in (low < self.number(0), high >= extent)]
            note = IfThenElse(any_(*beyond), note) if sizes else note
        self.emit(note)

    def inside(self, offset: Expr, argument: PointerArgument, mask: Expr | None) -> Expr:
        """Return the condition of an access: the mask, and that the element lies in the argument."""
        tests = [self.number(0) <= offset, offset < argument.buffer.shape[0]]
        return all_(*([] if mask is None else [mask]), *tests)

    def load(self, pointer: BlockValue, mask: Any, other: Any) -> BlockValue:
        """Return what pointers point to; ``other`` (0 unless given) where the mask does not hold."""
        argument = pointer.pointer
        if argument is None:
            raise TypeError(f"load reads through pointers, not {pointer.type_text()}")
        if other is not None and mask is None:
            raise ValueError("other= is for what mask= leaves out, and there is no mask")
        allowed = None if mask is None else self.data(self.value(mask), BOOL)
        dtype = argument.element
        rest = self.cast_data(self.value(0 if other is None else other), dtype)
        shape = broadcast_shape(pointer.shape, *[v.shape for v in (allowed,) if v is not None])
        if shape != pointer.shape or broadcast_shape(shape, rest.shape) != shape:
            raise ValueError(f"the mask or other= is larger than the pointers, which are {pointer.type_text()}")
        self.check("reads", pointer, allowed)
        mp, mo = broadcast_make(pointer, shape), broadcast_make(rest, shape)
        mm = None if allowed is None else broadcast_make(allowed, shape)

        def make(lanes: Lanes) -> Expr:
            offset = mp(lanes)
            inside = self.inside(offset, argument, None if mm is None else mm(lanes))
            return guarded(inside, element(argument.buffer, (offset,)), mo(lanes))

        reads = pointer.reads | rest.reads | (frozenset() if allowed is None else allowed.reads) | {argument.buffer}
        return BlockValue(shape, dtype, make, LOAD_COST, reads)

    def store(self, pointer: BlockValue, value: Any, mask: Any) -> None:
        """Write a block through pointers, where the mask holds."""
        argument = pointer.pointer
        if argument is None:
            raise TypeError(f"store writes through pointers, not {pointer.type_text()}")
        stored = self.cast_data(self.value(value), argument.element)
        allowed = None if mask is None else self.data(self.value(mask), BOOL)
        shape = broadcast_shape(pointer.shape, *[v.shape for v in (allowed,) if v is not None])
        if shape != pointer.shape or broadcast_shape(shape, stored.shape) != shape:
            raise ValueError(
                f"the mask or the value {stored.type_text()} is larger than the pointers, which are {pointer.type_text()}"
            )
        self.check("writes", pointer, allowed)
        # all elements are read before one is written
        parts = [v for v in (pointer, stored, allowed) if v is not None]
        parts = [self.kept(v) if argument.buffer in v.reads and v.pointer is None else v for v in parts]
        pointer, stored, allowed = parts[0], parts[1], parts[2] if allowed is not None else None
        if argument.buffer in pointer.reads:
            self.keep(pointer)
        self.settle([argument.buffer])
        self.wrote(argument)
        mp, mv = broadcast_make(pointer, shape), broadcast_make(stored, shape)
        mm = None if allowed is None else broadcast_make(allowed, shape)

        def body(lanes: Lanes) -> Stmt:
            offset = mp(lanes)
            inside = self.inside(offset, argument, None if mm is None else mm(lanes))
            return IfThenElse(inside, BufferStore(argument.buffer, mv(lanes), (offset,)))

        self.emit(self.nest(shape, body, argument.element.bits))

    def wrote(self, argument: PointerArgument) -> None:
        """Note a store to an argument. On processors a program's statements run one after another."""

    def barrier(self) -> None:
        """Let the threads of the program wait for each other; on a processor it has one."""

    def stage(self, loop: Var, stages: int | None) -> None:
        """Note the stages that a loop asks for. On processors its iterations run one after another."""

    def change(
        self, pointer: BlockValue, given: Sequence[BlockValue], allowed: BlockValue | None, new: Callable[..., Expr],
        operation: str,
    ) -> BlockValue:  # fmt: skip
        """Return what pointers point to, after changing one element after another where the mask holds; zero elsewhere.

        ``new``: what an element and the values ``given`` make of it; ``operation``: the operation of TIR that does so at once.
        """
        argument, shape = pointer.pointer, pointer.shape
        assert argument is not None
        old = self.allocated(shape, argument.element, "old")
        lanes = tuple([Var(f"i{n}", self.index) if size > 1 else self.number(0) for n, size in enumerate(shape)])
        place = self.place_of(lanes)
        offset = pointer.make(lanes)
        there = element(argument.buffer, (offset,))
        changed = new(element(old, place), *[broadcast_make(v, shape)(lanes) for v in given])
        inside = self.inside(offset, argument, None if allowed is None else broadcast_make(allowed, shape)(lanes))
        written = seq(BufferStore(old, there, place), BufferStore(argument.buffer, changed, (offset,)))
        body: Stmt = IfThenElse(inside, written, BufferStore(old, const(0, argument.element), place))
        for var, size in reversed(list(zip(lanes, shape, strict=True))):
            if isinstance(var, Var):
                body = For(var, self.number(0), self.number(size), "serial", body)
        self.emit(body)
        return self.read_of(old, BlockValue(shape, argument.element, pointer.make))

    # -- reductions --------------------------------------------------------------------------------------------------

    def reduce(self, value: BlockValue, axis: int, op: str, keep_dims: bool = False) -> BlockValue:
        """Return the sum, product, maximum, minimum or exclusive or along one dimension. Sums of float16 are in float32."""
        dtype = value.dtype
        inner = inner_type(dtype)
        exact = self.cast_data(value, inner)
        kind, first, across = reduction_of(op, inner)
        start = const(first, inner)
        kept_shape = tuple(n for d, n in enumerate(value.shape) if d != axis)
        out = self.allocated(kept_shape, inner, "reduced")
        size = value.shape[axis]

        def at(rows: Lanes, k: Expr) -> Expr:
            return exact.make((*rows[:axis], k, *rows[axis:]))

        if axis == len(value.shape) - 1 and size > 1:
            width = min(size, 2 * self.register_lanes)
            steps = size // width
            rows = tuple(
                [Var(f"i{n}", self.index) if n_size > 1 else self.number(0) for n, n_size in enumerate(kept_shape)]
            )
            lane, step = Var("lane", self.index), Var("step", self.index)
            partial = Buffer("partial", (self.number(width),), inner, "local")
            without_nan = NAN_FREE.get(across)
            beyond = start if without_nan is None else const(without_nan[1], inner)
            k = lane if steps == 1 else step * self.number(width) + lane
            clear = For(lane, self.number(0), self.number(width), "vectorized", BufferStore(partial, beyond, (lane,)))
            v = Var("lane", self.index)
            k = v if steps == 1 else step * self.number(width) + v
            step_kind = kind if without_nan is None else without_nan[0]
            joined = BufferStore(partial, step_kind(element(partial, (v,)), at(rows, k)), (v,))
            each: Stmt = For(v, self.number(0), self.number(width), "vectorized", joined)
            if steps > 1:
                each = For(step, self.number(0), self.number(steps), "serial", each)
            place = self.place_of(rows)
            if across:
                whole = BufferLoad(partial, (Ramp(self.number(0), self.number(1), width),))
                end: Stmt = BufferStore(out, operation_named(across)(whole), place)
                if without_nan is not None:  # no number was better: whether there was any
                    n = Var("n", self.index)
                    joined = BufferStore(out, kind(element(out, place), at(rows, n)), place)
                    again = For(n, self.number(0), self.number(size), "serial", joined)
                    end = seq(
                        end, IfThenElse(element(out, place).equal(beyond), seq(BufferStore(out, start, place), again))
                    )
            else:
                n = Var("n", self.index)
                end = seq(
                    BufferStore(out, start, place),
                    For(n, self.number(0), self.number(width), "serial",
                        BufferStore(out, kind(element(out, place), element(partial, (n,))), place)),
                )  # fmt: skip
            body: Stmt = Allocate(partial, seq(clear, each, end))
            for var, n_size in reversed(list(zip(rows, kept_shape, strict=True))):
                if isinstance(var, Var):
                    body = For(var, self.number(0), self.number(n_size), "serial", body)
            self.emit(body)
        else:
            self.emit(self.nest(kept_shape, lambda rows: BufferStore(out, start, self.place_of(rows)), inner.bits))
            k = Var("k", self.index)

            def step_of(rows: Lanes) -> Stmt:
                place = self.place_of(rows)
                return BufferStore(out, kind(element(out, place), at(rows, k)), place)

            axes = [d for d, n in enumerate(kept_shape) if n > 1]
            rows_nest = self.loops(kept_shape, step_of, axes[-1] if axes else None, inner.bits)
            self.emit(For(k, self.number(0), self.number(size), "serial", rows_nest))
        found = BlockValue(kept_shape, inner, lambda lanes: element(out, self.place_of(lanes)), buffer=out)
        found = found if inner == dtype else self.data(found, dtype)
        if keep_dims:
            return found.derived(
                tuple(1 if d == axis else n for d, n in enumerate(value.shape)),
                lambda lanes: found.make((*lanes[:axis], *lanes[axis + 1 :])),
            )
        return found

    # -- products ----------------------------------------------------------------------------------------------------

    def operand(self, value: BlockValue, dtype: DType, name: str) -> Buffer:
        """Return a factor of a product in memory, in the type of the sum."""
        held = value.buffer
        if held is not None and held.dtype == dtype and held.scope != "global" and not value.reads:
            lanes = tuple([Var("i", self.index) for _ in value.shape])
            e = value.make(lanes)
            if isinstance(e, BufferLoad) and e.indices == lanes:
                return held
        buffer = self.allocated(value.shape, dtype, name)
        exact = self.data(value, value.dtype)
        self.fill(buffer, BlockValue(value.shape, value.dtype, exact.make, value.cost, value.reads))
        return buffer

    def dot(self, a: BlockValue, b: BlockValue, acc: Any, dtype: DType | None) -> BlockValue:
        """Return the matrix product of two blocks, plus ``acc``."""
        rank = len(a.shape)
        if rank not in (2, 3) or len(b.shape) != rank or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
            raise ValueError(
                f"dot of {a.type_text()} and {b.type_text()}: the columns of the first are the rows of the second, with two "
                "dimensions, or three of which the first is a batch"
            )
        if a.dtype != b.dtype and not (a.dtype.is_storage and b.dtype.is_storage):
            raise TypeError(f"dot of {a.type_text()} and {b.type_text()}: both have one type")
        if not a.dtype.is_float and a.dtype not in ("int8", "uint8"):
            raise TypeError(f"dot of {a.type_text()}; it multiplies floats and integers of 8 bits")
        total = DType("int32") if a.dtype.is_int else a.dtype if a.dtype == "float64" else FLOAT32
        added = None
        if acc is not None:
            added = self.value(acc)
            if added.shape != (*a.shape[:-1], b.shape[-1]):
                raise ValueError(
                    f"dot adds to {added.type_text()}, and the product has the shape {[*a.shape[:-1], b.shape[-1]]}"
                )
            dtype = added.dtype if dtype is None else dtype
            added = added if added.dtype == total else self.cast_data(added, total)
        shape = (*a.shape[:-1], b.shape[-1])
        placed = self.operands_of_units(a, b)
        largest = max(abs(int(min_value(a.dtype))), int(max_value(a.dtype))) if total.is_int else 0
        product: BlockValue
        if placed is not None:
            product = ProductValue(self, *placed, added, total, shape)
        elif (
            total.is_int and largest**2 * a.shape[-1] <= 2**24
        ):  # float32 holds each sum exactly, and multiplies faster
            left, right = self.operand(a, FLOAT32, "left"), self.operand(b, FLOAT32, "right")
            exact = self.cast_data(ProductValue(self, left, right, None, FLOAT32, shape), total)
            product = exact if added is None else self.binary("+", exact, added)
        else:
            left, right = self.operand(a, total, "left"), self.operand(b, total, "right")
            product = ProductValue(self, left, right, added, total, shape)
        return product if dtype in (None, total) else self.cast_data(product, dtype)  # type: ignore[arg-type]

    def operands_of_units(self, a: BlockValue, b: BlockValue) -> tuple[Buffer, Buffer] | None:
        """Return the factors of a product in memory as matrix units take them, None where it is computed without."""
        return None

    def with_product(self, a: BlockValue, b: BlockValue, dtype: DType) -> BlockValue | None:
        """Return a sum with a product as one product that adds to the other operand, else None."""
        for product, other in ((b, a), (a, b)):
            if (
                isinstance(product, ProductValue)
                and product.added is None
                and product.buffer is None
                and dtype == product.dtype == other.dtype
                and other.shape == product.shape
            ):
                return ProductValue(self, product.a, product.b, other, dtype, product.shape)
        return None

    def multiply(self, out: Buffer, a: Buffer, b: Buffer) -> None:
        """Add the product of two blocks in memory to a third. Tiles of the result stay in registers along the sum."""
        rows, inner, columns = [int(n) for n in (*a.shape[-2:], b.shape[-1])]  # type: ignore[call-overload]
        lanes = max(1, self.register_lanes * 32 // max(32, out.dtype.bits))
        width = min(columns, 2 * lanes)
        height = min(rows, 8 if self.register_lanes >= 16 else 4)
        i0, j0, k, i1, j1 = (Var(name, self.index) for name in ("i0", "j0", "k", "i1", "j1"))
        i, j = i0 * self.number(height) + i1, j0 * self.number(width) + j1
        batch = Var("g", self.index)
        lead: Lanes = (batch,) if a.ndim == 3 else ()
        at, left, right = (*lead, i, j), (*lead, i, k), (*lead, k, j)
        body: Stmt = BufferStore(out, element(out, at) + element(a, left) * element(b, right), at)
        loops = ((i0, rows // height, "serial"), (j0, columns // width, "serial"), (k, inner, "serial"),
                 (i1, height, "unrolled"), (j1, width, "vectorized"))  # fmt: skip
        for var, size, kind in reversed(loops):
            body = For(var, self.number(0), self.number(size), kind, body)
        self.emit(For(batch, self.number(0), a.shape[0], "serial", body) if lead else body)


def inner_type(dtype: DType) -> DType:
    """Return the type in which elements are summed and compared."""
    return FLOAT32 if dtype.is_float and dtype.bits < 32 else dtype


def _no_function(*_: Any) -> Any:
    raise AssertionError("a builder without a reader calls no functions")


def _if_better(better: Callable[[Any, Any], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Returns the function that takes a value over another one where it is better. NaN never is."""
    return lambda old, e: computed_once(e, lambda x: Select(better(x, old), x, old))


NAN_FREE: dict[str, tuple[Callable[[Expr, Expr], Expr], float]] = {
    "vector_reduce_fmax": (_if_better(operator.gt), -inf),
    "vector_reduce_fmin": (_if_better(operator.lt), inf),
}
"""How the lanes of a vector collect the extreme of the numbers, so that none of them is NaN: how, and from which value on."""

Combination = tuple[Callable[[Expr, Expr], Expr], Any, str]


def reduction_of(op: str, dtype: DType) -> Combination:
    """Return how a reduction combines two values, the value of none, and the operation across the lanes of a vector.

    The extreme of floats is that of the numbers, and NaN where there is none.
    """
    if dtype.is_float and op in ("max", "min"):
        largest = op == "max"
        kind = larger_number if largest else smaller_number
        return kind, nan, "vector_reduce_fmax" if largest else "vector_reduce_fmin"
    rows: dict[str, Combination] = {
        "sum": (operator.add, 0, "vector_reduce_add"),
        "max": (max_, max_identity(dtype), "vector_reduce_max"),
        "min": (min_, min_identity(dtype), "vector_reduce_min"),
        "xor_sum": (operator.xor, 0, ""),
        "or": (operator.or_, 0, ""),
    }
    return rows[op]


def _is_remainder(n: Any, index: DType, lanes: Container[Var]) -> bool:
    """Returns whether ``n`` is the remainder of an index that differs by element, by what all elements share."""
    if not isinstance(n, (FloorMod, TruncMod)) or n.dtype != index:
        return False
    return any(v in lanes for v in vars_in(n.a)) and not any(v in lanes for v in vars_in(n.b))


def _without_remainders(index: DType, lanes: Container[Var]) -> Callable[[Any], Any]:
    """Returns a rewriting that leaves out the remainders of :func:`_is_remainder`."""
    return lambda n: n.a if _is_remainder(n, index, lanes) else None
