"""This pass rewrites the bodies of loops like graphs of their own, with the constants that they are given."""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Graph, Node, Value
from ..rewrite import without_unread


def rewritten_bodies(graph: Graph, rewrite: Callable[[Graph], Graph]) -> Graph:
    """Returns the graph with ``rewrite`` applied to the body of each loop, in which inputs that are constants are constants.

    Before::

        w = constant()
        def step(h, x_t, r):
            return add(dense(h, r), x_t)
        last = scan(h0, x, w, body=step, states=1, arrays=1, steps=7)

    After::

        def step(h, x_t):
            r = constant()
            return add(dense(h, r), x_t)
        last = scan(h0, x, body=step, states=1, arrays=1, steps=7)
    """
    new = {node: _with_body(graph, node, node.body, rewrite) for node in graph.nodes if node.body is not None}
    return without_unread(graph.replaced([new.get(n, n) for n in graph.nodes])) if new else graph


def _with_body(graph: Graph, node: Node, body: Graph, rewrite: Callable[[Graph], Graph]) -> Node:
    first = node.attrs["states"] + node.attrs["arrays"]
    given: list[Value] = list(node.given)
    known = {n for n, v in enumerate(given) if n >= first and v in graph.constants}
    constants = {**body.constants, **{body.inputs[n]: graph.constants[given[n]] for n in known}}
    inputs = tuple([v for n, v in enumerate(body.inputs) if n not in known])
    made = rewrite(Graph(body.name, inputs, body.outputs, body.nodes, constants))
    kept = tuple([v for n, v in enumerate(given) if n not in known])
    return Node(node.op, kept, node.outputs, {**node.attrs, "body": made})
