"""These passes bring weights of 8 bits to products, through moves of their elements and into loops.

Weights of quantized networks are constants of 8 bits that are decoded element by element. Rules for products find them where
nothing stands between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..builder import SCAN, Builder
from ..graph import Graph, Node, Value, substituted, without_unread
from ..kernels import Services
from .fold_constants import MOVES, widens

_DECODING = ("cast", "subtract", "multiply")

Array = np.ndarray[Any, Any]


def move_narrow_weights(graph: Graph, services: Services = Services()) -> Graph:
    """Move elements of weights before they are decoded.

    Before::

        t = multiply(cast(w, dtype="float32"), scale)
        r = squeeze(t, axis=0)

    After::

        v = constant()
        r = multiply(cast(v, dtype="float32"), scale_1)
    """
    decoded = _decoded(graph)
    if not any(n.op in _MOVES and n.inputs[0] in decoded for n in graph.nodes):
        return graph
    b, made = Builder.on(graph), dict[Value, Value]()

    def moved(v: Value, move: Callable[[Array], Array], shape: tuple[Any, ...]) -> Value:
        """Returns ``v``, which broadcasts to ``shape``, with its elements at other places."""
        node = decoded.get(v)
        if node is not None:
            return b.op(node.op, *[moved(i, move, v.shape) for i in node.given], **node.attrs)
        data = b.constants[v]
        after = move(np.broadcast_to(data, shape))
        for axis in range(after.ndim) if data.size < math.prod(shape) else ():
            first = after.take([0], axis)
            after = first if (after == first).all() else after
        return b.constant(np.asarray(after, order="C"), v.name, v.dtype)

    for old in graph.nodes:
        node = substituted(old, made)
        x = node.inputs[0] if node.inputs else None
        if x is None or node.op not in _MOVES or x not in decoded or math.prod(x.shape) == 0:
            b.nodes.append(node)
            continue
        attrs, move = node.attrs, _MOVES[node.op]
        before = len(b.nodes)
        made[node.output] = moved(x, lambda data: move(data, **attrs), x.shape)  # noqa: B023 (called at once)
        for n in b.nodes[before:]:
            decoded[n.output] = n
    outputs = tuple([made.get(v, v) for v in graph.outputs])
    return without_unread(b.graph(outputs))


def _decoded(graph: Graph) -> dict[Value, Node]:
    """Returns the operators of values that are decoded weights of 8 bits.

    These are weights in a wider type, and what is computed of them and of constants."""
    found: dict[Value, Node] = {}
    for n in graph.nodes:
        if n.op not in _DECODING or not n.output.is_static:
            continue
        wide = [v for v in n.given if v in found]
        known = all(v in found or v in graph.constants for v in n.given)
        if known and (len(wide) == 1 and wide[0].shape == n.output.shape or widens(n)):
            found[n.output] = n
    return found


def _sliced(x: Array, begin: Any, end: Any, strides: Any = 1, slice_mode: str = "end") -> Array:
    steps = strides if isinstance(strides, (tuple, list)) else [strides] * x.ndim
    if slice_mode == "size":
        end = [a + n for a, n in zip(begin, end, strict=True)]
    return x[tuple([slice(a, b, s) for a, b, s in zip(begin, end, steps, strict=True)])]


_MOVES: dict[str, Callable[..., Array]] = {
    **{name: MOVES[name] for name in ("reshape", "expand_dims", "squeeze", "transpose")},
    "strided_slice": _sliced,
}
"""NumPy's name for operators of one array that move elements, or take a part of them."""


def narrow_into_loops(graph: Graph, services: Services = Services()) -> Graph:
    """Decode the weights of products in loops there, where the passes of the body find them.

    Before::

        t = multiply(cast(w, dtype="float32"), scale)
        def step(h, r):
            return dense(h, r)
        last = scan(h0, t, body=step, states=1, arrays=0, steps=7)

    After::

        def step(h):
            w = constant()
            return dense(h, multiply(cast(w, dtype="float32"), scale))
        last = scan(h0, body=step, states=1, arrays=0, steps=7)

    What stays in the body moves out again (:func:`constants_out_of_loops`).
    """
    decoded = _decoded(graph)
    nodes = [_with_decoding(graph, n, decoded) if n.op == SCAN else n for n in graph.nodes]
    return graph if nodes == list(graph.nodes) else without_unread(graph.replaced(nodes))


def _with_decoding(graph: Graph, node: Node, decoded: dict[Value, Node]) -> Node:
    body, given = node.attrs["body"], list(node.given)
    first = node.attrs["states"] + node.attrs["arrays"]
    weights = {n.inputs[1] for n in body.nodes if n.op in ("dense", "matmul")}
    chosen = [k for k in range(first, len(given)) if given[k] in decoded and body.inputs[k] in weights]
    if not chosen:
        return node
    b = Builder.on(body)

    def inside(v: Value) -> Value:
        made = decoded.get(v)
        if made is None:
            return b.constant(graph.constants[v], v.name, v.dtype)
        return b.op(made.op, *[inside(i) for i in made.given], **made.attrs)

    mapping = {body.inputs[k]: inside(given[k]) for k in chosen}
    b.nodes += [substituted(n, mapping) for n in body.nodes]
    b.inputs = [v for v in body.inputs if v not in mapping]
    after = b.graph([mapping.get(v, v) for v in body.outputs])
    kept = tuple([v for k, v in enumerate(given) if k not in chosen])
    return Node(node.op, kept, node.outputs, {**node.attrs, "body": after})


def constants_out_of_loops(graph: Graph, services: Services = Services()) -> Graph:
    """Compute what loops make of constants alone once, before them.

    Before::

        def step(h):
            w = constant()
            return dense(h, cast(w, dtype="float32"))
        last = scan(h0, body=step, states=1, arrays=0, steps=7)

    After::

        t = cast(w, dtype="float32")
        def step(h, t):
            return dense(h, t)
        last = scan(h0, t, body=step, states=1, arrays=0, steps=7)
    """
    b, changed = Builder.on(graph), False
    for node in graph.nodes:
        after = _without_constant_parts(b, node) if node.op == SCAN else node
        changed = changed or after is not node
        b.nodes.append(after)
    return without_unread(b.graph(graph.outputs)) if changed else graph


def _without_constant_parts(b: Builder, node: Node) -> Node:
    body = node.attrs["body"]
    outside: dict[Value, Value] = {}
    parts: list[Node] = []

    def out(v: Value) -> Value:
        if v not in outside:
            outside[v] = b.constant(body.constants[v], v.name, v.dtype)
        return outside[v]

    results = set(body.outputs)  # each step stores them in memory of their own
    for n in body.nodes:
        if not n.inputs or n.body is not None or not results.isdisjoint(n.outputs):
            continue
        if all(v in outside or v in body.constants for v in n.given):
            inputs = [None if v is None else out(v) for v in n.inputs]
            made = b.several(n.op, *inputs, names=[v.name for v in n.outputs], **n.attrs)
            outside.update(zip(n.outputs, made, strict=True))
            parts.append(n)
    if not parts:
        return node
    moved = set(parts)
    nodes = tuple([n for n in body.nodes if n not in moved])
    read = {v for n in nodes for v in n.given}
    passed = [v for n in parts for v in n.outputs if v in read]
    inner = without_unread(body.replaced(nodes, inputs=(*body.inputs, *passed)))
    given = (*node.given, *[outside[v] for v in passed])
    return Node(node.op, given, node.outputs, {**node.attrs, "body": inner})
