"""This pass finds the largest and the smallest element of an array in one reading of it."""

from __future__ import annotations

import math

from ..builder import Builder
from ..graph import Graph, Node, Value, without_unread
from ..kernels import Services


def join_extremes(graph: Graph, services: Services = Services()) -> Graph:
    """Join the maximum and the minimum of all elements of an array, which ranges of quantized data are made of.

    Before::

        a = max(x)
        b = min(x)

    After::

        r = reshape(x, shape=(n,))
        e = extremes(r)
        a = take(e, 0, axis=0)
        b = take(e, 1, axis=0)

    A large array is read from memory once then. Extremes along some axes only stay apart.
    """
    found: dict[Value, list[Node]] = {}
    for node in graph.nodes:
        if _is_of_all(node):
            found.setdefault(next(node.given), []).append(node)
    pairs = {x: nodes for x, nodes in found.items() if len({n.op for n in nodes}) == 2}
    if not pairs:
        return graph
    b = Builder.on(graph)
    numbers = {"max": b.constant(0, "largest"), "min": b.constant(1, "smallest")}
    joined: dict[Value, Value] = {}
    for node in graph.nodes:
        x = next(node.given, None)
        if x not in pairs or node not in pairs[x]:
            b.nodes.append(node)
            continue
        if x not in joined:
            joined[x] = b.op("extremes", b.op("reshape", x, shape=(math.prod(x.shape),)))
        b.nodes.append(Node("take", (joined[x], numbers[node.op]), node.outputs, {"axis": 0}))
    return without_unread(b.graph(graph.outputs))


def _is_of_all(node: Node) -> bool:
    """Returns whether the node is an extreme of all elements, and a scalar; sizes are known."""
    if node.op not in ("max", "min") or node.output.ndim:
        return False
    (x,) = node.given
    return x.ndim > 0 and x.is_static
