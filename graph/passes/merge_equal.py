"""This pass computes equal expressions once, and removes what nothing reads."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..attribute_keys import attributes_key
from ..graph import Graph, Node, Value
from ..rewrite import substituted, with_replaced
from ..services import Services


def merge_equal(graph: Graph, services: Services = Services()) -> Graph:
    """Replace operators that equal an earlier one, and constants with the same data.

    Before::

        a = exp(x)
        b = exp(x)
        y = add(a, b)

    After::

        a = exp(x)
        y = add(a, a)
    """
    mapping: dict[Value, Value] = {}
    seen: dict[Any, Any] = {}
    for v, data in graph.constants.items():
        key = (v.dtype, v.shape, hash(data.tobytes()) if data.nbytes <= 1 << 16 else id(data))
        first = seen.setdefault(key, v)
        if first is not v and np.array_equal(graph.constants[first], data, equal_nan=data.dtype.kind == "f"):
            mapping[v] = first
    nodes: list[Node] = []
    for old in graph.nodes:
        node = substituted(old, mapping)
        applied = (node.op, node.inputs, attributes_key(node.attrs))
        earlier = seen.setdefault(applied, node)
        if earlier is node:
            nodes.append(node)
        else:
            mapping.update(zip(node.outputs, earlier.outputs, strict=True))
    return with_replaced(graph, nodes, mapping) if mapping else with_replaced(graph, graph.nodes, {})
