"""This pass gives each output an array of its own: inputs, constants and values that leave twice are copied."""

from __future__ import annotations

from ..graph import Graph, Node, Value
from ..kernels import VIEWS
from ..services import Services


def distinct_outputs(graph: Graph, services: Services = Services()) -> Graph:
    """Copy outputs that are inputs, constants, or outputs already.

    Before::

        y = relu(x)
        return y, x, y

    After::

        y = relu(x)
        copy = identity(x)
        copy_1 = identity(y)
        return y, copy, copy_1
    """
    names = {v.name for v in graph.values()}
    owned = {*graph.inputs, *graph.constants}
    outputs: list[Value] = []
    nodes = list(graph.nodes)
    for v in graph.outputs:
        if v in owned:
            number = 0
            while f"copy_{number}" in names:
                number += 1
            names.add(f"copy_{number}")
            copy = Value(f"copy_{number}", v.dtype, v.shape)
            nodes.append(Node("identity", (v,), (copy,)))
            v = copy
        outputs.append(v)
        owned.add(v)
    return graph if outputs == list(graph.outputs) else graph.replaced(nodes, outputs=tuple(outputs))


assert "identity" not in VIEWS
