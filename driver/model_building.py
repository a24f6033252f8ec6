"""This module builds graphs: each distinct kernel is planned and compiled once, and one function calls them all."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen import LoweredFunc, Module, Target, compile, lower
from ..codegen.packing import split_packing
from ..graph.entry import Blob, entry_function, place
from ..graph.fuse import fuse
from ..graph.graph import Graph, Value, dims
from ..graph.kernel_order import order_kernels
from ..graph.kernels import Division, Kernel
from ..graph.memory_plan import ALIGNMENT, plan_memory
from ..graph.passes import prepare
from ..tir.expr import DType, to_numpy
from ..tir.program_key import workload_key
from ..tir.stmt import PrimFunc
from ..tuning_db import Database
from .building import Plan, open_database, plan
from .graph_services import graph_services
from .request import Request


@dataclass(frozen=True, eq=False)
class KernelPlan:
    """A distinct kernel: its plan, its C symbol, and the functions that bring its weights into its layout."""

    plan: Plan
    symbol: str
    main: PrimFunc
    packs: Mapping[int, PrimFunc]


class Model:
    """A compiled graph. Calling it takes the inputs in order and returns the outputs, a tuple where there are several.

    ``out=``: arrays to write instead of new ones. The workspace belongs to the model, so one thread at a time may call
    it; ``copy()`` shares code and constants and has a workspace of its own.
    """

    def __init__(
        self, graph: Graph, module: Module, constants: Any, workspace: int, origins: Mapping[str, str]
    ) -> None:
        self.graph, self.module, self.origins = graph, module, dict(origins)
        self._constants, self._size = constants, workspace
        self._workspace = _aligned(workspace)
        self._entry = module[graph.name]

    def __repr__(self) -> str:
        return f"<Model {self.graph.name}: {len(self.module) - 1} functions for {self.module.target}>"

    def __call__(self, *inputs: Any, out: Any = None) -> Any:
        if len(inputs) != len(self.graph.inputs):
            names = ", ".join(map(repr, self.graph.inputs))
            raise TypeError(f"{self.graph.name} takes {len(self.graph.inputs)} inputs ({names}), not {len(inputs)}")
        if out is None:
            outs = [np.empty(v.shape, to_numpy(v.dtype)) for v in self.graph.outputs]
        else:
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
        self._entry(*inputs, *outs, self._constants, self._workspace)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def copy(self) -> Model:
        """Returns a model that another thread may call at the same time."""
        return Model(self.graph, self.module, self._constants, self._size, self.origins)


def build_graph(
    graph: Graph, target: str | Target = "native", *, db: Database | str | os.PathLike[str] | None = None
) -> Model:
    """Returns the compiled graph; kernels that ``db`` has records of get their fastest schedules."""
    machine = target if isinstance(target, Target) else Target(target)
    prepared = prepare(graph, services=graph_services(machine))
    division = order_kernels(fuse(prepared))
    with open_database(db, readonly=True) if db is not None else nullcontext() as opened:
        chosen = _plans(division, machine, opened)
    return _compiled(division, chosen, machine)


def _plans(division: Division, machine: Target, db: Database | None) -> dict[Kernel, KernelPlan]:
    """Returns the plan of each kernel; kernels of one structure share it."""
    distinct: dict[tuple[str, str], KernelPlan] = {}
    out: dict[Kernel, KernelPlan] = {}
    for kernel in division.kernels:
        key = (workload_key(kernel.func), str(kernel.func.attrs.get("layout_free_buffers", "")))
        if key not in distinct:
            made = plan(Request(kernel.func), target=machine, db=db)
            symbol = f"{division.graph.name}_{kernel.name}"
            split = split_packing(made.scheduled.with_attr("global_symbol", symbol))
            distinct[key] = KernelPlan(made, symbol, split.main, split.packs)
        out[kernel] = distinct[key]
    return out


def _compiled(division: Division, plans: Mapping[Kernel, KernelPlan], machine: Target) -> Model:
    graph, memory = division.graph, plan_memory(division)
    functions: dict[str, LoweredFunc] = {}
    for p in dict.fromkeys(plans.values()):
        functions[p.symbol] = lower(p.main, machine, p.symbol)
        for index, pack in p.packs.items():
            functions[f"{p.symbol}_pack{index}"] = lower(pack, machine, f"{p.symbol}_pack{index}")
    arguments = {k: _arguments(k, plans[k]) for k in division.kernels}
    sizes: dict[object, int] = {}
    for kernel in division.kernels:
        for a in arguments[kernel]:
            root = division.root(a) if isinstance(a, Value) else a
            if isinstance(root, _Packed):
                sizes[root] = root.size
            elif isinstance(root, Value) and root in graph.constants:
                sizes[root] = graph.constants[root].nbytes
    blob = place(sizes)
    entry = entry_function(graph.name, division, memory, {k: p.symbol for k, p in plans.items()}, blob, arguments)
    lowered = lower(entry, machine, graph.name)
    count = len(graph.inputs)
    params = [
        replace(p, writes=False) if n < count or p.name == "constants" else p for n, p in enumerate(lowered.params)
    ]
    functions = {graph.name: replace(lowered, params=tuple(params)), **functions}
    module = compile(functions, machine)
    constants = _filled(graph, module, blob)
    origins = {p.symbol: p.plan.origin for p in plans.values()}
    return Model(graph, module, constants, max(memory.size, 1), origins)


@dataclass(frozen=True)
class _Packed:
    """A constant in the layout of a kernel: ``function`` makes it of ``value``."""

    value: Value
    function: str
    size: int


def _arguments(kernel: Kernel, p: KernelPlan) -> list[object]:
    out: list[object] = []
    for n, v in enumerate((*kernel.inputs, *kernel.outputs)):
        if n in p.packs:
            buffer = p.packs[n].buffer_map[p.packs[n].params[1]]
            size = math.prod(dims(buffer.shape)) * DType(buffer.dtype).bytes
            out.append(_Packed(v, f"{p.symbol}_pack{n}", size))
        else:
            out.append(v)
    return out


def _filled(graph: Graph, module: Module, blob: Blob) -> Any:
    """Returns the constants' bytes: packed weights by their functions, others as they are."""
    data = _aligned(max(blob.size, 1))
    for key, at in blob.offsets.items():
        if isinstance(key, _Packed):
            function = module[key.function]
            buffer = function.params[1].buffer
            assert buffer is not None
            shape = dims(buffer.shape)
            target = data[at : at + key.size].view(to_numpy(buffer.dtype)).reshape(shape)
            function(np.ascontiguousarray(graph.constants[key.value]), target)
        elif isinstance(key, Value):
            array = graph.constants[key]
            data[at : at + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return data


def _aligned(size: int) -> Any:
    room = np.empty(size + ALIGNMENT, np.uint8)
    return room[-room.ctypes.data % ALIGNMENT :][:size]
