"""This module makes the function that runs a graph: it calls the kernels one after the other on planned memory.

The function is a PrimFunc like any other, so that it can be printed, and compiled by any back end. Its parameters are the
inputs, the outputs, the constants (bytes) and the workspace (bytes) in which intermediate results lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..tir.expr import BufferLoad, Call, Expr, IntImm, StringImm, Var, const
from ..tir.stmt import AssertStmt, Buffer, Evaluate, PrimFunc, Stmt, decl_buffer
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


def entry_function(
    name: str,
    division: Division,
    memory: MemoryPlan,
    symbols: Mapping[Kernel, str],
    constants: Blob,
    arguments: Mapping[Kernel, Sequence[object]],
) -> PrimFunc:
    """Returns the function that calls ``symbols[kernel]`` for each kernel of ``division``.

    ``arguments`` has the arguments of each kernel in order: values of the graph, or keys of ``constants`` for weights in
    the layout of the kernel. A kernel that fails fails the function, with a message that names it.
    """
    graph = division.graph
    params: list[Var] = []
    buffers: dict[Var, Buffer] = {}
    base: dict[Value, Buffer] = {}

    def declare(name: str, shape: Sequence[object], dtype: str) -> Buffer:
        buffer = decl_buffer(tuple(shape), dtype, name)
        handle = Var(name, "handle")
        params.append(handle)
        buffers[handle] = buffer
        return buffer

    for v in graph.inputs:
        base[v] = declare(v.name, v.shape, v.dtype)
    for v in graph.outputs:
        base.setdefault(division.root(v), declare(v.name, v.shape, v.dtype))
    blob = declare("constants", (max(constants.size, 1),), "uint8")
    workspace = declare("workspace", (max(memory.size, 1),), "uint8")

    def address(argument: object) -> Expr:
        key = division.root(argument) if isinstance(argument, Value) else argument
        if key in base:
            assert isinstance(key, Value)
            return _address(base[key], [const(0)] * base[key].ndim)
        if key in constants.offsets:
            return _address(blob, [const(constants.offsets[key], "int64")])
        assert isinstance(key, Value)
        return _address(workspace, [const(memory.offsets[key], "int64")])

    body: Stmt = Evaluate(IntImm(0))
    for kernel in reversed(division.kernels):
        call = Call("tir.call_extern", (StringImm(symbols[kernel]), *[address(a) for a in arguments[kernel]]), "int32")
        body = AssertStmt(call.equal(0), f"the kernel {kernel.name} failed", body)
    return PrimFunc(tuple(params), body, buffers, {"global_symbol": name, "tir.noalias": True})


def _address(buffer: Buffer, indices: Sequence[Expr]) -> Expr:
    return Call("tir.address_of", (BufferLoad(buffer, tuple(indices)),), "handle")
