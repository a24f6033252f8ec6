"""This module has what passes share: substitution of values, removal of what nothing reads, sizes filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..tir.expr import Expr, Var, convert
from ..tir.walk import substitute
from .graph import Graph, Node, Value, dims


def substituted(node: Node, mapping: Mapping[Value, Value]) -> Node:
    """Returns the operator with other inputs; the same object when none of them is in ``mapping``."""
    if not any(v in mapping for v in node.given):
        return node
    inputs = tuple([v if v is None else mapping.get(v, v) for v in node.inputs])
    return Node(node.op, inputs, node.outputs, node.attrs)


def with_replaced(graph: Graph, nodes: Sequence[Node], mapping: Mapping[Value, Value]) -> Graph:
    """Returns the graph of ``nodes`` in which ``mapping`` replaces values; chains of replacements are followed."""
    final: dict[Value, Value] = {}
    for v in mapping:
        target = mapping[v]
        while target in mapping:
            target = mapping[target]
        final[v] = target
    return without_unread(
        graph.replaced([substituted(n, final) for n in nodes], outputs=tuple([final.get(v, v) for v in graph.outputs]))
    )


def without_unread(graph: Graph) -> Graph:
    """Returns the graph without operators and constants that no output needs."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.given)
            kept.append(node)
    constants = {v: data for v, data in graph.constants.items() if v in needed}
    if len(kept) == len(graph.nodes) and len(constants) == len(graph.constants):
        return graph
    return graph.replaced(tuple(reversed(kept)), constants=constants)


def specialize(graph: Graph, sizes: Mapping[Var, int]) -> Graph:
    """Returns the graph with numbers in place of symbolic sizes."""
    numbers = {var: convert(size) for var, size in sizes.items()}

    def filled(value: Any) -> Any:
        if isinstance(value, Expr):
            return dims([substitute(value, numbers)])[0]
        if isinstance(value, Graph):
            return specialize(value, sizes)
        return tuple([filled(v) for v in value]) if isinstance(value, (tuple, list)) else value

    new: dict[Value, Value] = {}

    def of(v: Value) -> Value:
        if v.is_static:
            return v
        if v not in new:
            new[v] = Value(v.name, v.dtype, dims([filled(d) for d in v.shape]))
        return new[v]

    nodes = [
        Node(
            node.op,
            tuple([None if v is None else of(v) for v in node.inputs]),
            tuple([of(v) for v in node.outputs]),
            {key: filled(value) for key, value in node.attrs.items()},
        )
        for node in graph.nodes
    ]
    inputs, outputs = tuple([of(v) for v in graph.inputs]), tuple([of(v) for v in graph.outputs])
    return Graph(graph.name, inputs, outputs, tuple(nodes), graph.constants)


def with_output_names(graph: Graph, names: Sequence[str]) -> Graph:
    """Returns the graph whose outputs have these names; other values that have them get others.

    Names of inputs stay those of inputs, and a value that leaves twice has its first name.
    """
    new: dict[Value, Value] = {}
    taken = {v.name for v in graph.values()} | set(names)
    wanted: dict[str, Value] = {}
    owned, given = {*graph.inputs, *graph.constants}, {v.name for v in graph.inputs}
    for v, name in zip(graph.outputs, names, strict=True):
        if v not in owned and v not in wanted.values() and name not in given:
            wanted.setdefault(name, v)
    for name, v in wanted.items():
        if v.name != name:
            new[v] = Value(name, v.dtype, v.shape)
    if not new:
        return graph
    for v in graph.values():
        if v.name in wanted and wanted[v.name] is not v:
            if v in new or v in graph.inputs:
                continue
            number = next(n for n in range(len(taken) + 1) if f"{v.name}_{n}" not in taken)
            taken.add(f"{v.name}_{number}")
            new[v] = Value(f"{v.name}_{number}", v.dtype, v.shape)
    nodes = [
        Node(n.op, substituted(n, new).inputs, tuple([new.get(v, v) for v in n.outputs]), n.attrs) for n in graph.nodes
    ]
    constants = {new.get(v, v): data for v, data in graph.constants.items()}
    return graph.replaced(nodes, outputs=tuple([new.get(v, v) for v in graph.outputs]), constants=constants)
