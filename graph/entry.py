"""This module makes the function that runs a graph: it calls the kernels one after the other on planned memory.

The function is a PrimFunc like any other, so that it can be printed, and compiled by any back end. Its parameters are the
inputs, the outputs, the constants (bytes) and the workspace (bytes) in which intermediate results lie; the symbolic
sizes follow them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..tir.expr import BufferLoad, Call, Cast, Expr, StringImm, Var, const
from ..tir.stmt import AssertStmt, Buffer, BufferStore, Evaluate, PrimFunc, Stmt, decl_buffer, seq
from .graph import Value
from .kernels import Division, Kernel
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
    (a symbolic size).
    """

    kernel: Kernel
    symbol: str
    arguments: Sequence[object]


def entry_function(
    division: Division,
    memory: MemoryPlan,
    calls: Sequence[KernelCall],
    constants: Blob,
    name: str = "",
    clock: str = "",
) -> PrimFunc:
    """Returns the function ``name`` (the graph's name when empty) that makes ``calls`` in order.

    A kernel that fails fails the function, with a message that names it; a symbolic size outside its bounds does so
    before the first call. ``clock`` is the C symbol of a function that returns the time as an int64: it is called before
    the first kernel and after each, and the times are stored in a further parameter ``times``.
    """
    scope = _Scope(division, memory, constants)
    times = scope.declare("times", (len(calls) + 1,), "int64") if clock else None
    body: list[Stmt] = [
        AssertStmt((var >= 1) & (var <= bound), f"{var.name} must be in 1..{bound}", _NOTHING)
        for var, bound in memory.bounds.items()
    ]
    if times is not None:
        body.append(_noted(times, 0, clock))
    for n, one in enumerate(calls):
        call = Call("tir.call_extern", (StringImm(one.symbol), *map(scope.argument, one.arguments)), "int32")
        body.append(AssertStmt(call.equal(0), f"the kernel {one.kernel.name} failed", _NOTHING))
        if times is not None:
            body.append(_noted(times, n + 1, clock))
    attrs = {"global_symbol": name or division.graph.name, "tir.noalias": True}
    return PrimFunc(tuple(scope.params), seq(*body) if body else _NOTHING, scope.buffers, attrs)


_NOTHING = Evaluate(const(0))


def _noted(times: Buffer, index: int, clock: str) -> Stmt:
    return BufferStore(times, Call("tir.call_extern", (StringImm(clock),), "int64"), (const(index),))


class _Scope:
    """The parameters of the function, and the addresses of values in them."""

    def __init__(self, division: Division, memory: MemoryPlan, constants: Blob) -> None:
        self.division, self.memory, self.constants = division, memory, constants
        self.params: list[Var] = []
        self.buffers: dict[Var, Buffer] = {}
        graph = division.graph
        self.base: dict[Value, Buffer] = {v: self.declare(v.name, v.shape, v.dtype) for v in graph.inputs}
        for v in graph.outputs:
            self.base.setdefault(division.root(v), self.declare(v.name, v.shape, v.dtype))
        self.blob = self.declare("constants", (max(constants.size, 1),), "uint8")
        self.workspace = self.declare("workspace", (max(memory.size, 1),), "uint8")

    def declare(self, name: str, shape: Sequence[object], dtype: str) -> Buffer:
        buffer = decl_buffer(tuple(shape), dtype, name)
        handle = Var(name, "handle")
        self.params.append(handle)
        self.buffers[handle] = buffer
        return buffer

    def argument(self, argument: object) -> Expr:
        if isinstance(argument, Expr):
            return argument if argument.dtype == "int64" else Cast("int64", argument)
        key = self.division.root(argument) if isinstance(argument, Value) else argument
        if isinstance(key, Value) and key in self.base:
            return _address(self.base[key], [const(0)] * self.base[key].ndim)
        if key in self.constants.offsets:
            return _address(self.blob, [const(self.constants.offsets[key], "int64")])
        assert isinstance(key, Value)
        return _address(self.workspace, [const(self.memory.offsets[key], "int64")])


def _address(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    return Call("tir.address_of", (BufferLoad(buffer, tuple(indices)),), "handle")
