"""This pass leaves out what loops carry for nothing: states that never change, and results that nothing reads."""

from __future__ import annotations

from collections.abc import Sequence

from ..builder import SCAN, Builder
from ..graph import Graph, Node, Value, without_unread
from ..kernels import Services


def drop_states(graph: Graph, services: Services = Services()) -> Graph:
    """Leave out of loops the states that no step changes, and the states and rows that no result needs.

    A state that is the same after each step is an input that all steps read, as weights are that a loop passes on.

    Before::

        def step(goes_on, n, h, w):
            return less(n, last), add(n, 1), dense(h, w), w
        goes_on, count, h, w1 = scan(c, 0, h0, w, body=step, states=4, arrays=0)
        return count, w1

    After::

        def step(goes_on, n):
            return less(n, last), add(n, 1)
        goes_on, count = scan(c, 0, body=step, states=2, arrays=0)
        return count, w
    """
    if not any(node.op == SCAN for node in graph.nodes):
        return graph
    graph = without_unread(graph)
    users = graph.users()
    read = {v for v in users if users[v]} | set(graph.outputs)
    builder = Builder.on(graph)
    instead: dict[Value, Value] = {}
    for node in graph.nodes:
        made = Node(
            node.op, tuple([v if v is None else instead.get(v, v) for v in node.inputs]), node.outputs, node.attrs
        )
        made = node if made.inputs == node.inputs else made
        builder.nodes.append(_dropped(builder, made, read, instead) if node.op == SCAN else made)
    if list(graph.nodes) == builder.nodes:
        return graph
    outputs = tuple([instead.get(v, v) for v in graph.outputs])
    return without_unread(graph.replaced(builder.nodes, outputs=outputs, constants=builder.constants))


def _dropped(builder: Builder, node: Node, read: set[Value], instead: dict[Value, Value]) -> Node:
    """Returns the loop with what it needs; ``instead`` then says what the results are that do not change."""
    body = drop_states(node.attrs["body"])
    count, steps, history = node.attrs["states"], node.attrs["steps"], node.attrs.get("history", ())
    ends = _without_copies(body)
    first = 1 if steps is None else 0  # the state that says whether the loop goes on
    still = [k for k in range(first, count) if ends[k] is body.inputs[k]]
    inputs = [*node.given]
    for k in still:
        given = inputs[k]
        if k in history:
            given = builder.op("broadcast_to", given, shape=(steps, *given.shape))
        instead[node.outputs[k]] = given
    wanted = {k for k in range(first) if k < count} | {k for k, v in enumerate(node.outputs) if v in read}
    kept, nodes = _kept(body, wanted - set(still), [k for k in range(count) if k not in still])
    if not kept or (kept == [*range(len(node.outputs))] and body is node.attrs["body"]):
        return node
    return _with_outputs(node, body, nodes, kept, still)


def _without_copies(body: Graph) -> list[Value | None]:
    """Returns what the results of a body are before operators that copy."""
    copied = {n.output: n.inputs[0] for n in body.nodes if n.op == "identity"}
    ends: list[Value | None] = [*body.outputs]
    while any(v in copied for v in ends):
        ends = [copied.get(v, v) if v is not None else v for v in ends]
    return ends


def _kept(body: Graph, wanted: set[int], changing: Sequence[int]) -> tuple[list[int], tuple[Node, ...]]:
    """Returns the results that the ``wanted`` ones need, and the operators that compute them.

    A result of a step needs the states that go into it.
    """
    while True:
        kept = sorted(wanted)
        nodes = without_unread(body.replaced(body.nodes, outputs=tuple([body.outputs[k] for k in kept]))).nodes
        read = {v for n in nodes for v in n.given} | {body.outputs[k] for k in kept}
        wanted = wanted | {k for k in changing if body.inputs[k] in read}
        if len(wanted) == len(kept):
            return kept, nodes


def _with_outputs(node: Node, body: Graph, nodes: tuple[Node, ...], kept: Sequence[int], still: Sequence[int]) -> Node:
    """Returns the loop with the ``kept`` results; the states that are ``still`` are inputs of all steps."""
    count, last = node.attrs["states"], node.attrs["states"] + node.attrs["arrays"]
    outputs = tuple([body.outputs[k] for k in kept])
    read = {v for n in nodes for v in n.given} | set(outputs)
    states = [k for k in kept if k < count]
    arrays = [k for k in range(count, last) if body.inputs[k] in read] or [*range(count, last)][:1]
    others = [k for k in (*still, *range(last, len(body.inputs))) if body.inputs[k] in read]
    given = [*states, *arrays, *others]
    constants = {v: data for v, data in body.constants.items() if v in read}
    inner = Graph(body.name, tuple([body.inputs[k] for k in given]), outputs, nodes, constants)
    history = tuple([n for n, k in enumerate(states) if k in node.attrs.get("history", ())])
    attrs = {**node.attrs, "body": inner, "states": len(states), "arrays": len(arrays), "history": history}
    values = [*node.given]
    return Node(SCAN, tuple([values[k] for k in given]), tuple([node.outputs[k] for k in kept]), attrs)
