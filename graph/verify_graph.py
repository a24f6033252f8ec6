"""This module checks that a graph is well-formed."""

from __future__ import annotations

from ..tir.expr import Expr, Var, to_numpy
from ..tir.walk import free_vars
from .graph import Graph, GraphError, Node, Value, bodies, same_shape
from .graph_operators import infer


def verify(graph: Graph, checked: set[Node] | None = None) -> None:
    """Raise GraphError unless the graph is well-formed. Operators in ``checked`` have their types; the others are added.

    1. Inputs, constants and results are distinct values with distinct names, which are identifiers.
    2. An operator stands in the table, and reads values that inputs, constants or operators before it provide.
    3. The types of its results are those that the table gives for its inputs and attributes.
    4. A constant's data has its data type and shape, which are numbers.
    5. Every output is provided.
    6. Symbolic sizes are those of inputs.
    7. The body of a loop is a well-formed graph with a name that nothing else beside it has.
    """
    known: dict[Value, None] = {}
    names: set[str] = set()
    for v in graph.values():
        if v in known:
            raise GraphError(f"{v.name} is provided twice")
        if v.name in names or not v.name.isidentifier():
            raise GraphError(f"the name {v.name!r} is taken, or is not an identifier")
        known[v] = None
        names.add(v.name)
    for body in bodies(graph):
        if body.name in names or not body.name.isidentifier():
            raise GraphError(f"the name {body.name!r} is taken, or is not an identifier")
        names.add(body.name)
        verify(body, checked)
    _constants(graph)
    sizes = {s for v in graph.inputs for d in v.shape if isinstance(d, Expr) for s in free_vars(d)}
    ready = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        for given in node.given:
            if given not in ready:
                raise GraphError(f"{node.op} reads {given.name}, which nothing before it provides")
        if checked is None or node not in checked:
            _types(node, sizes)
        ready.update(node.outputs)
    if checked is not None:
        checked.update(graph.nodes)
    for v in graph.outputs:
        if v not in ready:
            raise GraphError(f"the output {v.name} is not provided")


def _constants(graph: Graph) -> None:
    for v, data in graph.constants.items():
        if tuple(data.shape) != v.shape or data.dtype != to_numpy(v.dtype):
            raise GraphError(f"the data of {v} is {data.dtype}{list(data.shape)}")


def _types(node: Node, sizes: set[Var]) -> None:
    types = infer(node.op, node.inputs, node.attrs)
    if len(types) != len(node.outputs):
        raise GraphError(f"{node.op} has {len(types)} results, not {len(node.outputs)}")
    for v, (dtype, shape) in zip(node.outputs, types, strict=True):
        if v.dtype != dtype or not same_shape(v.shape, shape):
            raise GraphError(f"{node.op} gives {Value(v.name, dtype, shape).type_text}, not {v.type_text}")
        for d in shape:
            unknown = [] if isinstance(d, int) else [s.name for s in free_vars(d) if s not in sizes]
            if unknown:
                raise GraphError(f"the size {unknown[0]} of {v.name} is not that of an input")
