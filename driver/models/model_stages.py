"""This module prints a model at a stage: as it was read, divided into kernels, placed in memory, or scheduled."""

from __future__ import annotations

import os

from ...codegen import Target, compile
from ...graph.graph import Graph
from ...graph.kernels import Division, fuse
from ...graph.memory_plan import order_kernels, plan_memory
from ...tir.cost import count_flops
from ...tir.parser import parse
from ...tir.stmt import PrimFunc
from ...tuning_db import Database
from ..example_sizes import Bounds
from ..graph_services import prepared
from ..mlir_programs import to_mlir
from ..planning import BuildError, Plan, Request
from .model import Version
from .model_building import bounds_of, build_graph, representatives

_CODE = ("scheduled", "lowered", "mlir", "ll", "asm", "c")
STAGES = ("graph", "fused", "kernels", "memory", "tir", "linalg", *_CODE)
"""The stages: the graph as read, and after the passes; the kernels in order; the memory plan; the distinct kernels before
and after scheduling, lowered, and as code."""


def model_text(
    graph: Graph,
    stage: str,
    target: Target,
    db: Database | str | os.PathLike[str] | None = None,
    bounds: Bounds | None = None,
) -> str:
    """Returns the text of a model at one of :data:`STAGES`. ``bounds``: the largest values of symbolic sizes."""
    if stage == "graph":
        return str(graph)
    if stage in _CODE:
        steps = reversed(build_graph(graph, target, db=db, bounds=bounds or {}).steps)
        built = {v.built.symbol: (step.name, v) for step in steps for v in reversed(step.versions)}
        return "\n".join([_code(name, version, stage, target) for name, version in reversed(built.values())])
    after = prepared(graph, target)
    if stage == "fused":
        return str(after)
    division = order_kernels(fuse(after))
    if stage == "linalg":
        return str(to_mlir(after))
    if stage == "memory":
        return plan_memory(division, bounds_of(graph, {**graph.bounds, **(bounds or {})})).describe()
    if stage == "tir":
        return "\n".join([k.func.script() for k in dict.fromkeys(representatives(division).values())])
    return _kernels(division)


def kernel_plan(
    graph: Graph,
    name: str | None,
    target: Target,
    db: Database | str | os.PathLike[str] | None = None,
    bounds: Bounds | None = None,
) -> Plan:
    """Returns how a kernel of the model is computed, by its name in the stage ``kernels``. None asks for the one with
    the most arithmetic. BuildError lists the names for another one."""
    steps = build_graph(graph, target, db=db, bounds=bounds or {}).steps
    chosen = [step for step in steps if name in (None, step.name, step.built.symbol)]
    if not chosen:
        raise BuildError(f"{graph.name} has no kernel {name!r}; there are {', '.join([step.name for step in steps])}")
    step = max(chosen, key=lambda one: count_flops(one.func) or 0)
    scheduled = parse(step.built.scheduled)
    assert isinstance(scheduled, PrimFunc)
    origin = f"{step.name} of {graph.name}: {step.built.origin}"
    origin += "; the model packs weights ahead of the call, this page inside of it" if step.built.packs else ""
    func = step.func.with_attr("global_symbol", step.name)
    return Plan(Request(func), target, step.built.kind, origin, scheduled)


def _code(name: str, version: Version, stage: str, target: Target) -> str:
    """Returns a kernel at a stage after scheduling, under a line that says where its schedule comes from."""
    text = version.built.scheduled
    if stage != "scheduled":
        func = parse(text)
        assert isinstance(func, PrimFunc)
        text = compile(func, target, version.built.symbol).get_source(stage)
    comment = {"ll": ";", "c": "//"}.get(stage, "#")
    return f"{comment} {name}: {version.built.origin}\n{text}"


def _kernels(division: Division) -> str:
    """Returns a line for each kernel: its name, its operators, what it reads and writes, and its first equal."""
    lines = []
    for kernel, first in representatives(division).items():
        reads, writes = ", ".join(map(str, kernel.inputs)), ", ".join(map(str, kernel.outputs))
        like = f"  (as {first.name})" if first is not kernel else ""
        lines.append(f"{kernel.name}({reads}) -> {writes}{like}")
    return "\n".join(lines)
