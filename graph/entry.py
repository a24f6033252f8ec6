"""This module makes the function that runs a graph: it calls the kernels one after the other on planned memory.

The function is a PrimFunc like any other, so that it can be printed, and compiled by any back end. Its parameters are the
inputs, the outputs, the constants (bytes) and the workspace (bytes) in which intermediate results lie; the symbolic
sizes follow them. Sizes that kernels compute are read when these have run (:mod:`.computed_sizes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..te.tensor import Requirement
from ..tir.expr import (
    NE,
    BufferLoad,
    Call,
    Cast,
    DType,
    Expr,
    IntImm,
    StringImm,
    Var,
    all_,
    const,
    floordiv,
    floormod,
    vars_in,
)
from ..tir.stmt import (
    AssertStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    While,
    decl_buffer,
    seq,
)
from .computed_sizes import limits, room
from .graph import GraphError, Value, computed_sizes
from .kernels import Division, Kernel, LoopKernel
from .memory_plan import ALIGNMENT, MemoryPlan


@dataclass(frozen=True)
class Blob:
    """The places of constants in one block of bytes: offsets, and the size of the block."""

    offsets: Mapping[object, int]
    size: int


def place(sizes: Mapping[object, int]) -> Blob:
    """Returns places for constants of these sizes in bytes, one after the other, aligned."""
    offsets: dict[object, int] = {}
    at = 0
    for key, size in sizes.items():
        offsets[key] = at
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return Blob(offsets, at)


@dataclass(frozen=True)
class KernelCall:
    """The call of a kernel: its C symbol, and its arguments in order.

    An argument is a value of the graph, a key of the constants (weights in the layout of the kernel), or an expression
    (a symbolic size). ``beyond`` is called in its place when one of the sizes is larger than in ``up_to``. ``failures``
    says what the values mean that the kernel returns when it fails.
    """

    kernel: Kernel
    symbol: str
    arguments: Sequence[object]
    up_to: Mapping[Var, int] = field(default_factory=dict)
    beyond: KernelCall | None = None
    failures: Mapping[int, str] = field(default_factory=dict)

    @property
    def every(self) -> list[KernelCall]:
        """Returns this call and those beyond it."""
        return [self, *(self.beyond.every if self.beyond is not None else ())]


def entry_function(
    division: Division,
    memory: MemoryPlan,
    calls: Sequence[KernelCall],
    constants: Blob,
    clock: str = "",
    requires: Sequence[Requirement] = (),
) -> PrimFunc:
    """Returns the function, named as the graph, that makes ``calls`` in order.

    ``calls`` has one entry for each kernel, also of those in loops. A kernel that fails fails the function, with a message
    that names it; a symbolic size outside its bounds, and sizes that do not meet ``requires``, do so before the first call. ``clock`` is the C symbol of a function
    that returns the time as an int64: then the times that the calls take are added to a further parameter ``times``, one
    number for each of ``calls``, and two more for the time of the last two readings.
    """
    scope = _Outermost(division, memory, constants)
    numbers = {one.kernel: n for n, one in enumerate(calls)}
    times = scope.declare("times", (len(calls) + 2,), "int64") if clock else None
    computed = {node.output: size for size, node in computed_sizes(division.graph).items()}
    unknown = set(computed.values())
    waiting = list(requires)
    body: list[Stmt] = [
        AssertStmt((var >= 0) & (var <= bound), f"{var.name} must be in 0..{bound}", _NOTHING)
        for var, bound in memory.bounds.items()
        if var not in unknown
    ]

    def met() -> list[Stmt]:
        """Returns the checks of those conditions whose sizes are all known now."""
        now = [one for one in waiting if not vars_in(one[0]) & unknown]
        waiting[:] = [one for one in waiting if one not in now]
        return [AssertStmt(condition, message, _NOTHING) for condition, message in now]

    def at_most(size: Var) -> list[Stmt]:
        most = scope.most[size]
        return [AssertStmt((size >= 0) & (size <= most), f"{size.name} must be in 0..{most}", _NOTHING)]

    body += met()
    if times is not None:
        body.append(_read_clock(times, len(calls), clock))

    def statements(inner: _Addresses, kernels: Sequence[Kernel | LoopKernel] | None = None) -> list[Stmt]:
        out: list[Stmt] = []
        for kernel in inner.division.kernels if kernels is None else kernels:
            if isinstance(kernel, LoopKernel):
                out += loop(inner, kernel)
            else:
                out += call(kernel, lambda one: [inner.argument(a) for a in one.arguments])
        return out

    def call(kernel: Kernel, arguments: Callable[[KernelCall], Sequence[Expr]]) -> list[Stmt]:
        after = [] if times is None else _noted(times, numbers[kernel], len(calls), clock)
        return [_called(calls[numbers[kernel]], arguments), *after]

    def unchanged(inner: _Addresses, kernel: LoopKernel) -> list[Stmt]:
        """Returns calls that copy the first values of states to where those after the last step are."""
        out: list[Stmt] = []
        for k, copy in enumerate(kernel.copies):
            places = [inner.address(v, const(0, "int64")) for v in (kernel.inputs[k], kernel.outputs[k])]
            out += call(copy, lambda one, places=places: [*places, *[inner.argument(a) for a in one.arguments[2:]]])  # type: ignore[misc]
        return out

    def loop(inner: _Addresses, kernel: LoopKernel) -> list[Stmt]:
        t = Var("t", "int64")
        if kernel.steps is not None:
            every = seq(*statements(_InLoop(inner, kernel, t)))
            counted = For(t, const(0, "int64"), _whole(kernel.steps), "serial", every)
            if not kernel.copies:
                return [counted]
            return [counted, IfThenElse(_whole(kernel.steps).equal(0), seq(*unchanged(inner, kernel)))]
        inside = _InLoop(inner, kernel, const(0, "int64"))
        first: list[Stmt] = []
        after: list[Stmt] = []
        for k, copy in enumerate(kernel.copies):
            place = inside.state(k)
            source = inner.argument(kernel.inputs[k])
            result = inside.result(k, inside.t, const(0, "int64"))

            def of(start: Expr, place: Expr = place) -> Callable[[KernelCall], Sequence[Expr]]:
                return lambda one: [start, place, *[inner.argument(a) for a in one.arguments[2:]]]

            first += call(copy, of(source))
            after += call(copy, of(result))
        return [*first, While(inside.goes_on, seq(*statements(inside), *after))]

    after: list[tuple[Var, Expr, list[Stmt]]] = []
    for kernel in division.kernels:
        (after[-1][2] if after else body).extend(statements(scope, [kernel]))
        for v in kernel.outputs:
            if v in computed:
                unknown.discard(computed[v])
                after.append((computed[v], scope.number(v, computed[v].dtype), [*at_most(computed[v]), *met()]))
    while after:
        size, number, then = after.pop()
        (after[-1][2] if after else body).append(LetStmt(size, number, seq(*then) if then else _NOTHING))
    attrs = {"global_symbol": division.graph.name, "tir.noalias": True}
    return PrimFunc(tuple(scope.params), seq(*body) if body else _NOTHING, scope.buffers, attrs)


_NOTHING = Evaluate(const(0))


def _called(one: KernelCall, arguments: Callable[[KernelCall], Sequence[Expr]]) -> Stmt:
    """Returns the call of a kernel, which fails the function when it fails."""
    call = Call("tir.call_extern", (StringImm(one.symbol), *arguments(one)), "int32")
    made: Stmt = AssertStmt(call.equal(0), f"the kernel {one.kernel.name} failed", _NOTHING)
    if one.failures:
        code = Var("code", "int32")
        asserts: Stmt = AssertStmt(code.equal(0), f"the kernel {one.kernel.name} failed", _NOTHING)
        for value, meaning in reversed(list(one.failures.items())):
            asserts = seq(
                AssertStmt(NE(code, const(value, "int32")), f"the kernel {one.kernel.name}: {meaning}", _NOTHING),
                asserts,
            )
        made = LetStmt(code, call, IfThenElse(NE(code, const(0, "int32")), asserts))
    if one.beyond is None:
        return made
    small = all_(*[var <= const(end, var.dtype) for var, end in one.up_to.items()])
    return IfThenElse(small, made, _called(one.beyond, arguments))


def _whole(size: Any) -> Expr:
    """Returns an extent as an int64."""
    if isinstance(size, int):
        return const(size, "int64")
    made: Expr = size if size.dtype == "int64" else Cast("int64", size)
    return made


def _read_clock(times: Buffer, at: int, clock: str) -> Stmt:
    return BufferStore(times, Call("tir.call_extern", (StringImm(clock),), "int64"), (const(at),))


def _noted(times: Buffer, index: int, last: int, clock: str) -> list[Stmt]:
    """Returns statements that add the time since the last reading, at ``last``, to the time of kernel ``index``."""

    def at(n: int) -> Expr:
        return BufferLoad(times, (const(n),))

    added = BufferStore(times, at(index) + at(last + 1) - at(last), (const(index),))
    return [_read_clock(times, last + 1, clock), added, BufferStore(times, at(last + 1), (const(last),))]


class _Addresses:
    """A division, and the addresses of its values; ``address(value, n)`` is that of the element ``n`` in order."""

    def __init__(self, division: Division, memory: MemoryPlan, outermost: _Outermost, base: int) -> None:
        self.division, self.memory, self.outermost, self.base = division, memory, outermost, base

    def argument(self, argument: object) -> Expr:
        """Returns the expression that is passed to a kernel for an argument."""
        if isinstance(argument, Expr):
            return _whole(argument)
        return self.address(argument, const(0, "int64"))

    def address(self, key: object, n: Expr) -> Expr:
        root = self.division.root(key) if isinstance(key, Value) else key
        found = self.outside(root, n) if isinstance(root, Value) else None
        if found is not None:
            return found
        if root in self.outermost.constants.offsets:
            offset = self.outermost.constants.offsets[root]
            return _address_in(self.outermost.blob, offset, n, root)
        assert isinstance(root, Value)
        return _address_in(self.outermost.workspace, self.base + self.memory.offsets[root], n, root)

    def outside(self, value: Value, n: Expr) -> Expr | None:
        """Returns the address of a value that lies outside of this division's memory; None for others."""
        raise NotImplementedError


class _Outermost(_Addresses):
    """The parameters of the function, in which inputs and outputs lie."""

    def __init__(self, division: Division, memory: MemoryPlan, constants: Blob) -> None:
        super().__init__(division, memory, self, 0)
        self.constants = constants
        self.params: list[Var] = []
        self.buffers: dict[Var, Buffer] = {}
        graph = division.graph
        self.given: dict[Value, Buffer] = {v: self.declare(v.name, v.shape, v.dtype) for v in graph.inputs}
        self.most = limits(graph)
        for v in graph.outputs:
            shape = room(v.shape, self.most, memory.bounds)
            self.given.setdefault(division.root(v), self.declare(v.name, shape, v.dtype))
        self.blob = self.declare("constants", (max(constants.size, 1),), "uint8")
        self.workspace = self.declare("workspace", (max(memory.size, 1),), "uint8")

    def declare(self, name: str, shape: Sequence[object], dtype: str) -> Buffer:
        buffer = decl_buffer(tuple(shape), dtype, name)
        handle = Var(name, "handle")
        self.params.append(handle)
        self.buffers[handle] = buffer
        return buffer

    def number(self, value: Value, dtype: DType) -> Expr:
        """Returns a scalar that leaves the function, as its kernel has written it."""
        return Cast(dtype, BufferLoad(self.given[value], ()))

    def outside(self, value: Value, n: Expr) -> Expr | None:
        if value not in self.given:
            return None
        buffer, indices = self.given[value], []
        if isinstance(n, IntImm) and n.value == 0:
            return _address(buffer, [n] * buffer.ndim)
        for extent in reversed(buffer.shape[1:]):
            indices.append(floormod(n, _whole(extent)))
            n = floordiv(n, _whole(extent))
        return _address(buffer, [n, *reversed(indices)])


class _InLoop(_Addresses):
    """The body of a loop at the step ``t``: states are read where the step before wrote them."""

    def __init__(self, around: _Addresses, loop: LoopKernel, t: Expr) -> None:
        inner = around.memory.loops[loop]
        super().__init__(loop.body, inner, around.outermost, around.base + around.memory.offsets[loop])
        self.around, self.loop, self.t = around, loop, t
        attrs, graph = loop.node.attrs, loop.body.graph
        self.states, self.arrays = attrs["states"], attrs["arrays"]
        self.read = {v: k for k, v in reversed(list(enumerate(graph.inputs)))}
        self.written = {loop.body.root(v): k for k, v in enumerate(graph.outputs)}
        if len(self.written) < len(graph.outputs) or any(v in self.read or v in graph.constants for v in self.written):
            raise GraphError(f"{loop.name}: the results of its body share memory; prepare the graph first")
        self.reverse, self.history = bool(attrs.get("reverse")), attrs.get("history", ())

    def outside(self, value: Value, n: Expr) -> Expr | None:
        if value in self.written:
            return self.result(self.written[value], self.t, n)
        k = self.read.get(value)
        if k is None:
            return None
        given = self.loop.inputs[k]
        if k >= self.states + self.arrays:
            return self.around.address(given, n)
        if k >= self.states:
            return self.row(given, self.t, n)
        if self.loop.steps is None:
            return self.around.address(self.loop.outputs[k], n)
        before = self.result(k, self.t - 1, n)
        return _chosen(self.t.equal(0), self.around.address(given, n), before)

    def result(self, k: int, t: Expr, n: Expr) -> Expr:
        """Returns the address of the result ``k`` of the step ``t``."""
        v = self.loop.outputs[k]
        if k >= self.states or k in self.history:
            return self.row(v, t, n)
        at = self.base + self.around.memory.second[v]
        other = _address_in(self.outermost.workspace, at, n, v)
        if self.loop.steps is None:
            return other
        return _chosen(floormod(self.last - t, const(2, "int64")).equal(0), self.around.address(v, n), other)

    def state(self, k: int) -> Expr:
        """Returns the address at which a loop without a number of steps has the state ``k`` between its steps."""
        return self.around.address(self.loop.outputs[k], const(0, "int64"))

    @property
    def goes_on(self) -> Expr:
        """Returns whether the first state holds, by the byte at its place."""
        place = self.state(0)
        if not isinstance(place, Call) or not isinstance(place.args[0], BufferLoad):
            raise GraphError(f"{self.loop.name}: whether it goes on is a result of the loop around it")
        load = place.args[0]
        return load if load.dtype == "bool" else load > 0

    def row(self, value: Value, t: Expr, n: Expr) -> Expr:
        size: Expr = const(1, "int64")
        for extent in value.shape[1:]:
            size = size * _whole(extent)
        return self.around.address(value, (self.last - t if self.reverse else t) * size + n)

    @property
    def last(self) -> Expr:
        assert self.loop.steps is not None
        return _whole(self.loop.steps) - 1


def _chosen(condition: Expr, a: Expr, b: Expr) -> Expr:
    return Call("tir.if_then_else", (condition, a, b), "handle")


def _address_in(block: Buffer, offset: int, n: Expr, value: object) -> Expr:
    """Returns the address of an element of what lies at ``offset`` bytes in a block."""
    size = DType(value.dtype).bytes if isinstance(value, Value) else 1
    return _address(block, [const(offset, "int64") + n * size])


def _address(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    return Call("tir.address_of", (BufferLoad(buffer, tuple(indices)),), "handle")
