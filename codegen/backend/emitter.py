"""The base of back ends: it dispatches on the types of nodes, and keeps what is in scope.

A target adds the words that it has to say. Scratch buffers live in register values, on the stack, or in the runtime's
memory.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...tir import stmt as S
from ...tir.arith import Analyzer
from ...tir.expr import Call, Cast, DType, Expr, IntImm, Let, Shuffle, Var, conjuncts, index_like, same
from ...tir.expr import nodes as E
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.stmt import Allocate, AssertStmt, Buffer, For, IfThenElse, Stmt, While
from ...tir.walk import nodes_by_type
from ..lane_offsets import LaneOffsets, lane_offsets
from ..lowered import REGISTER_SCOPE, LoweredFunc, Param, writes_through_pointers

CACHE_LINE = 64
"""Scratch memory, on the stack and from the runtime, begins at a multiple of so many bytes."""

_LARGEST = 32 << 10
_TOGETHER = 256 << 10
"""Threads of some systems have a stack of 512 KiB."""


def stack_buffers(allocations: Iterable[Allocate]) -> frozenset[Buffer]:
    """Returns the buffers of constant size, of those allocated, that are small enough for the stack.

    These are buffers up to 32 KiB each and, in the order of the program, 256 KiB in total.

    All other buffers get memory that the runtime keeps between calls.
    """
    out: set[Buffer] = set()
    room = _TOGETHER
    for n in allocations:
        if n.buffer.scope != REGISTER_SCOPE:
            elements = constant_elements(n.buffer)
            if elements is None:
                continue
            size = elements * n.buffer.dtype.bytes
            if size <= _LARGEST and size <= room:
                room -= size
                out.add(n.buffer)
    return frozenset(out)


def elements_of(buffer: Buffer) -> Expr:
    """Returns the number of elements from the buffer's first to its last, including gaps between rows."""
    total: Expr = IntImm(1, "int64")
    if not buffer.strides:
        for extent in buffer.shape:
            total = total * extent
        return total
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        total = total + (extent - 1) * stride
    return total


def constant_elements(buffer: Buffer) -> int | None:
    """Returns :func:`elements_of` when shape and strides are constants, else None."""
    shape = [e.value for e in buffer.shape if isinstance(e, IntImm)]
    strides = [e.value for e in buffer.strides if isinstance(e, IntImm)]
    if len(shape) < len(buffer.shape) or len(strides) < len(buffer.strides):
        return None
    if not strides or 0 in shape:
        return math.prod(shape)
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


V = TypeVar("V")
"""What stands for a value: a text in C and LLVM IR, a net in circuits."""


class EmitError(ValueError):
    """Raised for a construct in the lowered function that the target cannot say. The message is for the developer of a
    pass."""


@dataclass(frozen=True)
class EmitterTables:
    """The functions that emit nodes, by the type of the node, and calls, by the operation's name without ``tir.``.

    Each takes the emitter and the node. Those of :data:`STATEMENTS` and :data:`EXPRESSIONS` are the usual ones; a target
    replaces some.
    """

    statements: Mapping[type, Callable[[Any, Any], None]]
    expressions: Mapping[type, Callable[[Any, Any], Any]]
    calls: Mapping[str, Callable[[Any, Any], Any]]


def power_of_two(e: E.Expr) -> int | None:
    """Returns ``n`` for the constant ``2**n``, else None."""
    c = e.value if isinstance(e, E.IntImm) else 0
    return c.bit_length() - 1 if c > 0 and c & (c - 1) == 0 else None


class Unit:
    """What all emitters of one lowered function share."""

    def __init__(self, lowered: LoweredFunc, tables: EmitterTables) -> None:
        self.target, self.name, self.tables = lowered.target, lowered.name, tables
        body = lowered.func.body
        nodes = nodes_by_type(body)
        self.on_stack = stack_buffers(nodes.get(Allocate, ()))
        """Scratch buffers on the stack."""
        self.assertions = {id(found): number for number, found in enumerate(nodes.get(AssertStmt, ()), 1)}
        """Numbers of the assertions by identity, in the order of the text: what a function returns when one fails."""
        self._strides: dict[Buffer, tuple[E.Expr, ...]] = {}
        self.calls_out = writes_through_pointers(nodes)
        """Whether some call may write memory in a way that the emitter cannot see."""

    def strides(self, buffer: Buffer) -> tuple[E.Expr, ...]:
        """Return the strides of a buffer in elements, which are computed once."""
        known = self._strides.get(buffer)
        if known is None:
            known = self._strides[buffer] = buffer.element_strides()
        return known


class Emitter(ABC, Generic[V]):
    """An emitter of one function, or of a part that became a function of its own.

    A value ``V`` is what the target computes with: a text (a name or a literal) where code is text, a net where it is a
    circuit. The abstract methods are the words of a target. They receive the values of operands, with their data types;
    those that receive a node emit its parts themselves.
    """

    form = "machine"
    """What the target's text is called in messages."""
    error: type[EmitError] = EmitError

    def __init__(self, unit: Unit) -> None:
        self.unit, self.target = unit, unit.target
        self.analyzer = Analyzer()
        self.vars: dict[E.Var, V] = {}
        """Values of variables: 64-bit integers for those in ``indices``, else of their own type."""
        self.indices: set[E.Var] = set()
        self.meanings: dict[E.Var, E.Expr] = {}
        """The values of the integer variables of data, from which their ranges follow."""
        self.bases: dict[E.Var, Any] = {}
        """Addresses of the buffers in scope, by their data pointers."""
        self.registers: dict[Buffer, V] = {}
        """Values of the buffers that are never in memory."""
        self.scratch: list[Any] = []
        """The runtime's memory in use here, given back when the function ends early."""
        self.in_parallel = False
        self._expressions = unit.tables.expressions
        self._statements = unit.tables.statements

    # -- dispatch --------------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        """Emit a statement."""
        if type(s) not in self._statements:
            raise self.error(f"{type(s).__name__} must be lowered before {self.form} code is emitted")
        self._statements[type(s)](self, s)

    def value(self, e: E.Expr) -> V:
        """Return the value of an expression, emitted where it needs instructions."""
        if type(e) not in self._expressions:
            raise self.error(f"no {self.form} form for {type(e).__name__}: {e}")
        return self._expressions[type(e)](self, e)

    def call(self, e: E.Call) -> V:
        """Return the value of a call: by the table, or of the C library's function of that meaning."""
        emit = self.unit.tables.calls.get(e.op.removeprefix("tir."))
        if emit is not None:
            return emit(self, e)
        row = OPERATIONS.get(e.op)
        if row is not None and row.c_name and e.dtype.bits in (32, 64):
            return self.library_call(row.c_name + ("f" if e.dtype.bits == 32 else ""), e)
        raise self.error(f"no {self.form} form for the call {e.op} of {e.dtype}")

    # -- scopes ----------------------------------------------------------------------------------------------------

    def bind_parameters(self, params: tuple[Param, ...], names: list[Any]) -> None:
        """Bring the parameters of the function into scope."""
        for p, name in zip(params, names, strict=True):
            if p.buffer is not None:
                self.bases[p.buffer.data] = name
            elif p.kind == "size":
                self.vars[p.var] = name
                self.indices.add(p.var)
                self.analyzer.bind(p.var, (0, None))
            else:
                self.vars[p.var] = self.parameter(p, name)

    def lookup(self, var: E.Var) -> V:
        """Return the value of a variable as it is kept."""
        try:
            return self.vars[var]
        except KeyError:
            raise self.error(f"variable {var.name} is not defined here") from None

    def base(self, buffer: Buffer) -> Any:
        """Return the address of a buffer's data."""
        try:
            return self.bases[buffer.data]
        except KeyError:
            raise self.error(
                f"buffer {buffer.name} has no memory here: it is neither parameter nor allocated"
            ) from None

    def define(self, var: E.Var, value: E.Expr) -> None:
        """Bind a variable to its value."""
        is_index = index_like(var) and index_like(value)
        self.vars[var] = self.named(var, value, is_index)
        if is_index:
            self.indices.add(var)
            self.analyzer.bind(var, value)
        elif var.dtype.is_int:
            self.meanings[var] = value

    def parameter(self, p: Param, name: V) -> V:
        """Return the value of a scalar parameter, converted from its form in calls."""
        return name

    def lane_offsets(self, buffer: Buffer, indices: tuple[E.Expr, ...]) -> LaneOffsets:
        """Return where the lanes of an access lie."""
        return lane_offsets(buffer, indices, self.unit.strides(buffer))

    # -- indices: 64-bit integers ----------------------------------------------------------------------------------

    def computes_index(self, e: E.Expr) -> bool:
        """Return whether index arithmetic on scalars is computed in 64 bits here."""
        return True

    def index(self, e: E.Expr) -> V:
        """Return a scalar integer in 64 bits."""
        if isinstance(e, E.IntImm):
            return self.index_constant(e.value)
        if isinstance(e, E.Var):
            value = self.lookup(e)
            return value if e in self.indices or e.dtype == "int64" else self.widened(value, e.dtype)
        if isinstance(e, E.Broadcast):
            return self.index(e.value)
        if not index_like(e):
            return self.widened(self.value(e), e.dtype)
        if isinstance(e, E.Cast):
            return self.index(e.value)
        assert isinstance(e, E.BinaryOp)
        a, bits = self.index(e.a), power_of_two(e.b)
        if bits is not None and isinstance(e, E.FloorDiv):
            return self.index_operation(">>", a, self.index_constant(bits))
        if bits is not None and isinstance(e, E.FloorMod):
            return self.index_operation("&", a, self.index_constant((1 << bits) - 1))
        operation = e.symbol or ("min" if isinstance(e, E.Min) else "max")
        return self.index_operation(operation, a, self.index(e.b))

    def index_constant(self, value: int) -> V:
        """Return a constant of index arithmetic."""
        return self.integer(value, DType("int64"))

    def index_value(self, e: E.Expr) -> V:
        """Return index arithmetic as a value of its own type."""
        return self.index(e)

    @abstractmethod
    def widened(self, value: V, dtype: DType) -> V:
        """Return an integer that is data in 64 bits."""

    @abstractmethod
    def index_operation(self, operation: str, a: V, b: V) -> V:
        """Return ``+ - * // % >> & min max`` of 64-bit integers; ``//`` and ``%`` round down."""

    # -- the words of a target: values -------------------------------------------------------------------------------

    @abstractmethod
    def integer(self, value: int, dtype: DType) -> V:
        """Return a constant of an integer type or bool."""

    @abstractmethod
    def floating(self, value: float, dtype: DType) -> V:
        """Return a constant of a floating-point type."""

    def variable(self, var: E.Var) -> V:
        """Return the value of a variable in its own type; of a buffer's pointer, the address."""
        return self.bases[var] if var in self.bases else self.lookup(var)

    @abstractmethod
    def arithmetic(self, op: type, a: V, b: V, dtype: DType) -> V:
        """Return a sum, difference, product, or quotient of floats. Integers wrap."""

    @abstractmethod
    def quotient(self, e: Any, a: V, b: V, dtype: DType) -> V:
        """Return a quotient or remainder of integers as the type of ``e`` says."""

    @abstractmethod
    def extreme(self, e: Any) -> V:
        """Return a Min or Max; of floats, NaN when either is NaN."""

    @abstractmethod
    def comparison(self, op: type, a: V, b: V, dtype: DType) -> V:
        """Return a comparison of operands of type ``dtype``."""

    @abstractmethod
    def logical(self, e: Any) -> V:
        """Return an And or Or; the second operand of scalars that reads memory is evaluated only when it decides."""

    @abstractmethod
    def negation(self, a: V, dtype: DType) -> V:
        """Return the opposite of a bool, or of a vector of them."""

    @abstractmethod
    def choice(self, test: V, yes: V, no: V, dtype: DType, tested: DType) -> V:
        """Return one of two values, lane by lane where the test's type ``tested`` is a vector."""

    @abstractmethod
    def splat(self, value: V, dtype: DType, lanes: int) -> V:
        """Return a vector with a scalar of type ``dtype`` in every lane."""

    @abstractmethod
    def ramp(self, e: Any) -> V:
        """Return a vector of evenly spaced values as data."""

    @abstractmethod
    def shuffle(self, e: E.Shuffle) -> V:
        """Return lanes picked from vectors."""

    @abstractmethod
    def conversion(self, e: E.Expr, to: DType) -> V:
        """Return ``e`` converted: integers are truncated or extended by their own sign, floats rounded to nearest even."""

    def let(self, e: E.Let) -> V:
        """Return an expression that names a part of itself."""
        self.define(e.var, e.value)
        return self.value(e.body)

    def library_call(self, symbol: str, e: E.Call) -> V:
        """Return the results of a function of the C library, lane by lane."""
        raise self.error("no functions of the C library here")

    @abstractmethod
    def load(self, e: E.BufferLoad) -> V:
        """Return what a load reads from memory."""

    # -- the words of a target: statements ---------------------------------------------------------------------------

    @abstractmethod
    def named(self, var: E.Var, value: E.Expr, is_index: bool) -> V:
        """Return what stands for a variable from here on. Index arithmetic is 64 bits wide."""

    @abstractmethod
    def store(
        self, buffer: Buffer, indices: tuple[E.Expr, ...], value: V, dtype: DType, predicate: E.Expr | None
    ) -> None:
        """Write a value of type ``dtype``, in the lanes of the predicate when there is one."""

    def set_register(self, buffer: Buffer, value: V) -> None:
        """Give a register value its next value."""
        self.registers[buffer] = value

    @abstractmethod
    def new_register(self, buffer: Buffer) -> V:
        """Return the first value of a register value, which is arbitrary."""

    @abstractmethod
    def stack_memory(self, buffer: Buffer, elements: int) -> Any:
        """Return the address of memory on the stack."""

    def scratch_memory(self, buffer: Buffer, elements: int | None) -> Any:
        """Return the address of the runtime's memory; None: the number of elements is not a constant."""
        raise self.error("no scratch memory here")

    def free(self, pointer: Any) -> None:
        """Give the runtime's memory back."""
        raise self.error("no scratch memory here")

    @abstractmethod
    def serial_loop(self, s: For) -> None:
        """Emit a loop whose iterations run in order."""

    def parallel_loop(self, s: For) -> None:
        """Emit a loop whose iterations are distributed to threads; a target without threads runs them in order."""
        self.serial_loop(s)

    def while_loop(self, s: While) -> None:
        """Emit a loop that tests its condition before each iteration."""
        raise self.error("no while loops here")

    @abstractmethod
    def branch(self, s: IfThenElse) -> None:
        """Emit an if."""

    def assertion(self, holds: V, s: AssertStmt, number: int) -> None:
        """Emit code that ends the function with the number of the assertion unless the condition holds."""
        raise self.error("no assertions here")

    def evaluated(self, value: V) -> None:  # noqa: B027 -- nothing is left to do where values are instructions
        """Emit a value as a statement, for its effects."""


# Emits expressions: what each type of node asks of a target, and which integers are computed in 64 bits.


def constant_of(e: E.Expr) -> int | float | None:
    """Returns the number that a constant has in every lane, or None for other expressions."""
    if isinstance(e, E.Broadcast):
        e = e.value
    return e.value if isinstance(e, (E.IntImm, E.FloatImm)) else None


def arithmetic(em: Emitter[V], e: E.BinaryOp) -> V:
    """Returns a sum, difference, product, quotient or remainder."""
    dtype = e.dtype
    if dtype.is_float:
        if type(e) not in (E.Add, E.Sub, E.Mul, E.Div):
            raise em.error(f"{type(e).__name__} of {dtype}")
        return em.arithmetic(type(e), em.value(e.a), em.value(e.b), dtype)
    if dtype.lanes == 1 and dtype.is_signed and index_like(e) and em.computes_index(e):
        return em.index_value(e)
    if type(e) in (E.Add, E.Sub, E.Mul):
        return em.arithmetic(type(e), em.value(e.a), em.value(e.b), dtype)
    return em.quotient(e, em.value(e.a), em.value(e.b), dtype)


def comparison(em: Emitter[V], e: E.CmpOp) -> V:
    """Returns a comparison; index arithmetic is compared in 64 bits."""
    dtype = e.a.dtype
    if dtype.lanes == 1 and dtype.is_int and index_like(e.a) and index_like(e.b):
        return em.comparison(type(e), em.index(e.a), em.index(e.b), DType("int64"))
    return em.comparison(type(e), em.value(e.a), em.value(e.b), dtype)


def _load(em: Emitter[V], e: E.BufferLoad) -> V:
    return em.registers[e.buffer] if e.buffer in em.registers else em.load(e)


def _cast(em: Emitter[V], e: E.Cast) -> V:
    return em.value(e.value) if e.value.dtype == e.dtype else em.conversion(e.value, e.dtype)


def _select(em: Emitter[V], e: E.Select) -> V:
    if _is_zero(e.false_value) and _zero_unless(e.true_value, e.condition):
        return em.value(e.true_value)
    yes, no = em.value(e.true_value), em.value(e.false_value)
    return em.choice(em.value(e.condition), yes, no, e.dtype, e.condition.dtype)


def _zero_unless(e: Expr, condition: Expr) -> bool:
    """Returns whether ``e`` is zero in the lanes in which ``condition`` does not hold. It is a load then, under a mask
    that includes the condition."""
    while isinstance(e, E.Select) and _is_zero(e.false_value):
        e = e.true_value
    if not isinstance(e, E.BufferLoad) or e.predicate is None or e.buffer.scope == REGISTER_SCOPE:
        return False
    return any(same(condition, part) for part in conjuncts(e.predicate))


def _is_zero(e: Expr) -> bool:
    """Returns whether all bits of a constant are 0."""
    value = constant_of(e)
    return value == 0 and math.copysign(1.0, value) > 0


EXPRESSIONS: dict[type, Callable[[Any, Any], Any]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Div, E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod), arithmetic),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), comparison),
    E.And: lambda em, e: em.logical(e),
    E.Broadcast: lambda em, e: em.splat(em.value(e.value), e.value.dtype, e.lanes),
    E.BufferLoad: _load,
    E.Call: lambda em, e: em.call(e),
    E.Cast: _cast,
    E.FloatImm: lambda em, e: em.floating(e.value, e.dtype),
    E.IntImm: lambda em, e: em.integer(e.value, e.dtype),
    E.Let: lambda em, e: em.let(e),
    E.Max: lambda em, e: em.extreme(e),
    E.Min: lambda em, e: em.extreme(e),
    E.Not: lambda em, e: em.negation(em.value(e.a), e.dtype),
    E.Or: lambda em, e: em.logical(e),
    E.Ramp: lambda em, e: em.ramp(e),
    E.Select: _select,
    E.Shuffle: lambda em, e: em.shuffle(e),
    E.Var: lambda em, e: em.variable(e),
}
"""The usual emitters by the type of expression."""


# Expands dot products into plain arithmetic on parts of the vectors, for machines without an instruction for them.


def expand_dot(e: Call) -> Expr:
    """Return a dot product such as ``dot4_u8i8`` (see :mod:`tilewright.tir.expr.intrinsics`) as casts, products and sums.

    Before::

        T.dot2_bf16(c, a, b)

    After, with ``a`` and ``b`` named::

        c + T.Cast("float32x8", odd(a)) * T.Cast("float32x8", odd(b)) + T.Cast(…, even(a)) * T.Cast(…, even(b))
    """
    c, a, b = e.args
    lanes = e.dtype.lanes
    width = a.dtype.lanes // lanes
    left, right = Var("a", a.dtype), Var("b", b.dtype)
    total = c
    for n in reversed(range(width)):
        x, y = (Cast(e.dtype, part(v, range(n, width * lanes, width))) for v in (left, right))
        total = total + x * y
    return Let(left, a, Let(right, b, total))


def part(vector: Expr, which: range) -> Expr:
    """Returns some lanes of a vector, as a scalar when it is a single lane."""
    if len(which) == vector.dtype.lanes and which.step == 1:
        return vector
    picked = Shuffle((vector,), tuple(which))
    assert picked.dtype == vector.dtype.with_lanes(len(which))
    return picked


# Emits statements: what each type of node asks of a target.


def _sequence(em: Emitter[Any], s: S.SeqStmt) -> None:
    for child in s.seq:
        em.stmt(child)


def _attribute(em: Emitter[Any], s: S.AttrStmt) -> None:
    em.stmt(s.body)


def _evaluate(em: Emitter[Any], s: S.Evaluate) -> None:
    if not isinstance(s.value, IntImm):
        em.evaluated(em.value(s.value))


def _let(em: Emitter[Any], s: S.LetStmt) -> None:
    em.define(s.var, s.value)
    em.stmt(s.body)


def _store(em: Emitter[Any], s: S.BufferStore) -> None:
    value = em.value(s.value)
    if s.buffer.scope == REGISTER_SCOPE:
        em.set_register(s.buffer, value)
        return
    lanes = max([i.dtype.lanes for i in s.indices], default=1)
    if lanes > 1 and s.value.dtype.lanes == 1:
        value = em.splat(value, s.value.dtype, lanes)
    em.store(
        s.buffer, s.indices, value, s.buffer.dtype if lanes == 1 else s.buffer.dtype.with_lanes(lanes), s.predicate
    )


def _allocate(em: Emitter[Any], s: S.Allocate) -> None:
    buffer = s.buffer
    if buffer.scope == REGISTER_SCOPE:
        em.registers[buffer] = em.new_register(buffer)
        em.stmt(s.body)
        del em.registers[buffer]
        return
    size = constant_elements(buffer)
    if buffer in em.unit.on_stack:
        em.bases[buffer.data] = em.stack_memory(buffer, max(size or 0, 1) * buffer.dtype.lanes)
        em.stmt(s.body)
        return
    pointer = em.bases[buffer.data] = em.scratch_memory(buffer, size)
    em.scratch.append(pointer)
    em.stmt(s.body)
    em.scratch.pop()
    em.free(pointer)


def _loop(em: Emitter[Any], s: S.For) -> None:
    if s.kind == "parallel" and not em.in_parallel and em.target.num_cores > 1:
        if not (isinstance(s.extent, IntImm) and s.extent.value <= 1):
            em.parallel_loop(s)
            return
    em.serial_loop(s)


def _assertion(em: Emitter[Any], s: S.AssertStmt) -> None:
    em.assertion(em.value(s.condition), s, em.unit.assertions[id(s)])
    em.stmt(s.body)


STATEMENTS: dict[type, Callable[[Any, Any], None]] = {
    S.Allocate: _allocate,
    S.AssertStmt: _assertion,
    S.AttrStmt: _attribute,
    S.BufferStore: _store,
    S.Evaluate: _evaluate,
    S.For: _loop,
    S.IfThenElse: lambda em, s: em.branch(s),
    S.LetStmt: _let,
    S.SeqStmt: _sequence,
    S.While: lambda em, s: em.while_loop(s),
}
"""The usual emitters by the type of statement."""
