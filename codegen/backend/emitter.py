"""The base of back ends dispatches on the types of nodes and keeps what is in scope. A target adds the words that it
has to say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...tir.arith import Analyzer
from ...tir.expr import DType, index_like
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.nodes import expr as E
from ...tir.stmt import Allocate, AssertStmt, Buffer, For, IfThenElse, Stmt, While
from ...tir.walk import nodes_by_type
from ..lowered import LoweredFunc, Param
from .lane_offsets import LaneOffsets, lane_offsets
from .storage import stack_buffers


class EmitError(ValueError):
    """Raised for a construct in the lowered function that the target cannot say. The message is for the developer of a
    pass."""


@dataclass(frozen=True)
class Tables:
    """The functions that emit nodes, by the type of the node, and calls, by the operation's name without ``tir.``.

    Each takes the emitter and the node. Those of :mod:`.statements` and :mod:`.expressions` are the usual ones; a target
    replaces some.
    """

    statements: Mapping[type, Callable[[Any, Any], None]]
    expressions: Mapping[type, Callable[[Any, Any], str]]
    calls: Mapping[str, Callable[[Any, Any], str]]


def power_of_two(e: E.Expr) -> int | None:
    """Returns ``n`` for the constant ``2**n``, else None."""
    c = e.value if isinstance(e, E.IntImm) else 0
    return c.bit_length() - 1 if c > 0 and c & (c - 1) == 0 else None


class Unit:
    """What all emitters of one lowered function share."""

    def __init__(self, lowered: LoweredFunc, tables: Tables) -> None:
        self.target, self.name, self.tables = lowered.target, lowered.name, tables
        body = lowered.func.body
        nodes = nodes_by_type(body)
        self.on_stack = stack_buffers(nodes.get(Allocate, ()))
        """Scratch buffers on the stack."""
        self.assertions = {id(found): number for number, found in enumerate(nodes.get(AssertStmt, ()), 1)}
        """Numbers of the assertions by identity, in the order of the text: what a function returns when one fails."""
        self._strides: dict[Buffer, tuple[E.Expr, ...]] = {}
        self.calls_out = any([call.op in ("tir.call_extern", "tir.address_of") for call in nodes.get(E.Call, ())])
        """Whether some call may write memory in a way that the emitter cannot see."""

    def strides(self, buffer: Buffer) -> tuple[E.Expr, ...]:
        """Return the strides of a buffer in elements, which are computed once."""
        known = self._strides.get(buffer)
        if known is None:
            known = self._strides[buffer] = buffer.element_strides()
        return known


class Emitter(ABC):
    """An emitter of one function, or of a part that became a function of its own.

    A value is a text: a name or a literal of the target. The abstract methods are the words of a target. They receive
    the texts of operands, with their data types; those that receive a node emit its parts themselves.
    """

    form = "machine"
    """What the target's text is called in messages."""
    error: type[EmitError] = EmitError

    def __init__(self, unit: Unit) -> None:
        self.unit, self.target = unit, unit.target
        self.analyzer = Analyzer()
        self.vars: dict[E.Var, str] = {}
        """Values of variables: 64-bit integers for those in ``indices``, else of their own type."""
        self.indices: set[E.Var] = set()
        self.meanings: dict[E.Var, E.Expr] = {}
        """The values of the integer variables of data, from which their ranges follow."""
        self.bases: dict[E.Var, str] = {}
        """Addresses of the buffers in scope, by their data pointers."""
        self.registers: dict[Buffer, str] = {}
        """Values of the buffers that are never in memory."""
        self.scratch: list[str] = []
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

    def value(self, e: E.Expr) -> str:
        """Return the value of an expression, emitted where it needs instructions."""
        if type(e) not in self._expressions:
            raise self.error(f"no {self.form} form for {type(e).__name__}: {e}")
        return self._expressions[type(e)](self, e)

    def call(self, e: E.Call) -> str:
        """Return the value of a call: by the table, or of the C library's function of that meaning."""
        emit = self.unit.tables.calls.get(e.op.removeprefix("tir."))
        if emit is not None:
            return emit(self, e)
        row = OPERATIONS.get(e.op)
        if row is not None and row.c_name and e.dtype.bits in (32, 64):
            return self.library_call(row.c_name + ("f" if e.dtype.bits == 32 else ""), e)
        raise self.error(f"no {self.form} form for the call {e.op} of {e.dtype}")

    # -- scopes ----------------------------------------------------------------------------------------------------

    def bind_parameters(self, params: tuple[Param, ...], names: list[str]) -> None:
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

    def lookup(self, var: E.Var) -> str:
        """Return the value of a variable as it is kept."""
        try:
            return self.vars[var]
        except KeyError:
            raise self.error(f"variable {var.name} is not defined here") from None

    def base(self, buffer: Buffer) -> str:
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

    def parameter(self, p: Param, name: str) -> str:
        """Return the value of a scalar parameter, converted from its form in calls."""
        return name

    def lane_offsets(self, buffer: Buffer, indices: tuple[E.Expr, ...]) -> LaneOffsets:
        """Return where the lanes of an access lie."""
        return lane_offsets(buffer, indices, self.unit.strides(buffer))

    # -- indices: 64-bit integers ----------------------------------------------------------------------------------

    def computes_index(self, e: E.Expr) -> bool:
        """Return whether index arithmetic on scalars is computed in 64 bits here."""
        return True

    def index(self, e: E.Expr) -> str:
        """Return a scalar integer in 64 bits."""
        if isinstance(e, E.IntImm):
            return str(e.value)
        if isinstance(e, E.Var):
            text = self.lookup(e)
            return text if e in self.indices or e.dtype == "int64" else self.widened(text, e.dtype)
        if isinstance(e, E.Broadcast):
            return self.index(e.value)
        if not index_like(e):
            return self.widened(self.value(e), e.dtype)
        if isinstance(e, E.Cast):
            return self.index(e.value)
        assert isinstance(e, E.BinaryOp)
        a, bits = self.index(e.a), power_of_two(e.b)
        if bits is not None and isinstance(e, E.FloorDiv):
            return self.index_operation(">>", a, str(bits))
        if bits is not None and isinstance(e, E.FloorMod):
            return self.index_operation("&", a, str((1 << bits) - 1))
        operation = e.symbol or ("min" if isinstance(e, E.Min) else "max")
        return self.index_operation(operation, a, self.index(e.b))

    def index_value(self, e: E.Expr) -> str:
        """Return index arithmetic as a value of its own type."""
        return self.index(e)

    @abstractmethod
    def widened(self, text: str, dtype: DType) -> str:
        """Return an integer that is data in 64 bits."""

    @abstractmethod
    def index_operation(self, operation: str, a: str, b: str) -> str:
        """Return ``+ - * // % >> & min max`` of 64-bit integers; ``//`` and ``%`` round down."""

    # -- the words of a target: values -------------------------------------------------------------------------------

    @abstractmethod
    def integer(self, value: int, dtype: DType) -> str:
        """Return a constant of an integer type or bool."""

    @abstractmethod
    def floating(self, value: float, dtype: DType) -> str:
        """Return a constant of a floating-point type."""

    def variable(self, var: E.Var) -> str:
        """Return the value of a variable in its own type; of a buffer's pointer, the address."""
        return self.bases[var] if var in self.bases else self.lookup(var)

    @abstractmethod
    def arithmetic(self, op: type, a: str, b: str, dtype: DType) -> str:
        """Return a sum, difference, product, or quotient of floats. Integers wrap."""

    @abstractmethod
    def quotient(self, e: Any, a: str, b: str, dtype: DType) -> str:
        """Return a quotient or remainder of integers as the type of ``e`` says."""

    @abstractmethod
    def extreme(self, e: Any) -> str:
        """Return a Min or Max; of floats, NaN when either is NaN."""

    @abstractmethod
    def comparison(self, op: type, a: str, b: str, dtype: DType) -> str:
        """Return a comparison of operands of type ``dtype``."""

    @abstractmethod
    def logical(self, e: Any) -> str:
        """Return an And or Or; the second operand of scalars that reads memory is evaluated only when it decides."""

    @abstractmethod
    def negation(self, a: str, dtype: DType) -> str:
        """Return the opposite of a bool, or of a vector of them."""

    @abstractmethod
    def choice(self, test: str, yes: str, no: str, dtype: DType, tested: DType) -> str:
        """Return one of two values, lane by lane where the test's type ``tested`` is a vector."""

    @abstractmethod
    def splat(self, text: str, dtype: DType, lanes: int) -> str:
        """Return a vector with a scalar of type ``dtype`` in every lane."""

    @abstractmethod
    def ramp(self, e: Any) -> str:
        """Return a vector of evenly spaced values as data."""

    @abstractmethod
    def shuffle(self, e: E.Shuffle) -> str:
        """Return lanes picked from vectors."""

    @abstractmethod
    def conversion(self, e: E.Expr, to: DType) -> str:
        """Return ``e`` converted: integers are truncated or extended by their own sign, floats rounded to nearest even."""

    def let(self, e: E.Let) -> str:
        """Return an expression that names a part of itself."""
        self.define(e.var, e.value)
        return self.value(e.body)

    def library_call(self, symbol: str, e: E.Call) -> str:
        """Return the results of a function of the C library, lane by lane."""
        raise self.error("no functions of the C library here")

    @abstractmethod
    def load(self, e: E.BufferLoad) -> str:
        """Return what a load reads from memory."""

    # -- the words of a target: statements ---------------------------------------------------------------------------

    @abstractmethod
    def named(self, var: E.Var, value: E.Expr, is_index: bool) -> str:
        """Return what stands for a variable from here on. Index arithmetic is 64 bits wide."""

    @abstractmethod
    def store(
        self, buffer: Buffer, indices: tuple[E.Expr, ...], value: str, dtype: DType, predicate: E.Expr | None
    ) -> None:
        """Write a value of type ``dtype``, in the lanes of the predicate when there is one."""

    def set_register(self, buffer: Buffer, value: str) -> None:
        """Give a register value its next value."""
        self.registers[buffer] = value

    @abstractmethod
    def new_register(self, buffer: Buffer) -> str:
        """Return the first value of a register value, which is arbitrary."""

    @abstractmethod
    def stack_memory(self, buffer: Buffer, elements: int) -> str:
        """Return the address of memory on the stack."""

    def scratch_memory(self, buffer: Buffer, elements: int | None) -> str:
        """Return the address of the runtime's memory; None: the number of elements is not a constant."""
        raise self.error("no scratch memory here")

    def free(self, pointer: str) -> None:
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

    def assertion(self, holds: str, s: AssertStmt, number: int) -> None:
        """Emit code that ends the function with the number of the assertion unless the condition holds."""
        raise self.error("no assertions here")

    def evaluated(self, value: str) -> None:  # noqa: B027 -- nothing is left to do where values are instructions
        """Emit a value as a statement, for its effects."""
