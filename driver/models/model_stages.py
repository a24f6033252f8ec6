"""This module prints a model at a stage of its way: as it was read, divided into kernels, placed in memory, scheduled."""

from __future__ import annotations

import os

from ...codegen import Target
from ...graph.fuse import fuse
from ...graph.graph import Graph
from ...graph.kernel_order import order_kernels
from ...graph.kernels import Division
from ...graph.memory_plan import plan_memory
from ...graph.passes import prepare
from ...tuning_db import Database
from ..graph_services import graph_services
from .model_building import build_graph, representatives

STAGES = ("graph", "fused", "kernels", "memory", "tir", "scheduled")
"""The stages: the graph as read, and after the passes; the kernels in order; the memory plan; the functions of the distinct
kernels before and after scheduling."""


def model_text(graph: Graph, stage: str, target: Target, db: Database | str | os.PathLike[str] | None = None) -> str:
    """Returns the text of a model at one of :data:`STAGES`."""
    if stage == "graph":
        return str(graph)
    if stage == "scheduled":
        built = {step.built.symbol: step for step in reversed(build_graph(graph, target, db=db).steps)}
        texts = [f"# {step.name}: {step.built.origin}\n{step.built.scheduled}" for step in reversed(built.values())]
        return "\n".join(texts)
    prepared = prepare(graph, services=graph_services(target))
    if stage == "fused":
        return str(prepared)
    division = order_kernels(fuse(prepared))
    if stage == "memory":
        return plan_memory(division).describe()
    if stage == "tir":
        return "\n".join([k.func.script() for k in dict.fromkeys(representatives(division).values())])
    return _kernels(division)


def _kernels(division: Division) -> str:
    """Returns a line for each kernel: its name, its operators, what it reads and writes, and the first one equal to it."""
    lines = []
    for kernel, first in representatives(division).items():
        reads, writes = ", ".join(map(str, kernel.inputs)), ", ".join(map(str, kernel.outputs))
        like = f"  (as {first.name})" if first is not kernel else ""
        lines.append(f"{kernel.name}({reads}) -> {writes}{like}")
    return "\n".join(lines)
