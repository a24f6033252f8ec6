"""These passes compute operators of constants, compute equal expressions once, and give each output an array of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...tir.expr import DType, to_numpy
from ..graph import COMPUTED_SIZE, Graph, Node, Value, in_row_order, substituted, with_replaced, without_unread
from ..graph_operators import attributes_key
from ..kernels import VIEWS, Services, unfused
from ..reference import evaluate

_SMALL = 1 << 12
"""Results of so many elements are computed by the interpreter, where nothing else can."""

_GROWTH = 1 << 16
"""A result may have so many bytes more than its inputs; larger ones are not worth their memory."""

Array = np.ndarray[Any, Any]

MOVES: dict[str, Callable[..., Array]] = {
    "reshape": lambda x, shape: x.reshape(shape),
    "expand_dims": lambda x, axis: np.expand_dims(x, axis),
    "squeeze": lambda x, axis=None: np.squeeze(x, axis),
    "transpose": lambda x, axes=None: np.transpose(x, axes),
    "concatenate": lambda *xs, axis=0: np.concatenate(xs, axis),
    "broadcast_to": lambda x, shape: np.broadcast_to(x, shape),
    "identity": lambda x: x,
}
"""NumPy's name for operators that only move elements: of weights, which may be large."""


def fold_narrow(graph: Graph, services: Services = Services()) -> Graph:
    """Fold as :func:`fold_constants` does, but for weights of 8 bits that are widened: patterns look for those first."""
    return _folded(graph, services, widen=False)


def fold_constants(graph: Graph, services: Services = Services()) -> Graph:
    """Replace operators of constants by their results.

    Before::

        t = transpose(w)
        y = matmul(x, t)

    After::

        t = constant()
        y = matmul(x, t)

    Results much larger than what they are made of stay operators, and so do large ones that only a compiled function
    could compute when none is provided.
    """
    return _folded(graph, services, widen=True)


def _folded(graph: Graph, services: Services, widen: bool) -> Graph:
    constants = dict(graph.constants)
    nodes: list[Node] = []
    for node in graph.nodes:
        known = all(v in constants for v in node.given) and (widen or not widens(node))
        results = _results(node, constants, services) if known else None
        if results is None:
            nodes.append(node)
        else:
            constants.update(zip(node.outputs, results, strict=True))
    return graph if len(nodes) == len(graph.nodes) else without_unread(graph.replaced(nodes, constants=constants))


def widens(node: Node) -> bool:
    """Returns whether a conversion makes weights of 8 bits wider: arrays, and no vectors of zero points."""
    long = [d for d in node.outputs[0].shape if d != 1]
    return node.op == "cast" and len(long) > 1 and all(DType(v.dtype).bits == 8 for v in node.given)


def _results(node: Node, constants: dict[Value, Array], services: Services) -> list[Array] | None:
    if node.body is not None or node.op == COMPUTED_SIZE or not all(v.is_static for v in node.outputs):
        return None
    given = {v: constants[v] for v in node.given}
    if sum(v.bytes for v in node.outputs) > sum(d.nbytes for d in given.values()) + _GROWTH:
        return None
    move = MOVES.get(node.op)
    if move is not None:
        data = move(*[given[v] for v in node.given], **node.attrs)
        return [np.asarray(data, to_numpy(node.output.dtype)).reshape(node.output.shape)]
    small = max(math.prod(v.shape) for v in (*given, *node.outputs)) <= _SMALL
    if not small and services.run is None:
        return None
    alone = Graph("folded", (), node.outputs, (node,), given)
    if small:
        return list(evaluate(alone))
    kernel = next(unfused(alone).leaves()).kernel
    outputs = [np.zeros(v.shape, to_numpy(v.dtype)) for v in kernel.outputs]
    assert services.run is not None
    services.run(kernel.func, *[in_row_order(given[v]) for v in kernel.inputs], *outputs)
    return outputs


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
