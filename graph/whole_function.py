"""This module makes one function of a whole graph, without kernels: each operator is a stage of it."""

from __future__ import annotations

from ..tir.stmt import PrimFunc
from .graph import Graph, GraphError
from .kernels import Kernel


def whole_function(graph: Graph) -> PrimFunc:
    """Returns the function of a graph: its parameters are the inputs, the constants, and the outputs. GraphError for an output
    that is an input."""
    given = (*graph.inputs, *graph.constants)
    for v in graph.outputs:
        if v in given:
            raise GraphError(f"the output {v.name} is an input; it needs an operator, such as identity")
    return Kernel(graph.name, graph.nodes, given, graph.outputs).func
