"""This module chooses which arrays are stored in another order: the minimum cut of a network of predicted times."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..graph import Graph, Node, Value
from ..permutations import axes_of, inverse, moves_only_ones
from .carried_attributes import WEIGHTED, Axes, carried
from .min_cut import INFINITE, SINK, SOURCE, Network

_CALL = 1e-6
"""The seconds that a kernel of its own takes at least."""

_BANDWIDTH = 8e9
"""Bytes that a transpose moves in a second."""


@dataclass(frozen=True)
class Costs:
    """``seconds(node, axes)`` predicts an operator on stored arrays, or (``axes`` None) on plain ones. ``typical(v)`` is a
    value like ``v`` of known sizes."""

    seconds: Callable[[Node, Axes | None], float]
    typical: Callable[[Value], Value]


def transposing(v: Value, axes: Axes) -> float:
    """Returns the seconds that a transpose of ``v``, whose sizes are known, takes."""
    if moves_only_ones(v.shape, axes):
        return 0.0
    return _CALL + 2 * v.bytes / _BANDWIDTH


def chosen_labels(graph: Graph, axes: Axes, costs: Costs) -> frozenset[Node]:
    """Returns the operators that work on arrays in the order ``axes``, so that the predicted time is least.

    Of transposes those are in it that make a stored array of a plain one.
    """
    network, ends = Network(), _ends(graph, axes)
    readers: dict[Value, list[object]] = {}
    for node in graph.nodes:
        reads, _ = ends[node]
        if node.op in WEIGHTED and reads is node:
            network.edge(SOURCE, node, costs.seconds(node, axes))
            network.edge(node, SINK, costs.seconds(node, None))
        for v in node.given:
            if v not in graph.constants and (v is node.inputs[0] or node.op not in WEIGHTED):
                readers.setdefault(v, []).append(reads)
    for v in graph.outputs:
        readers.setdefault(v, []).append(SOURCE)
    makers = {v: ends[node][1] for node in graph.nodes for v in node.outputs}
    for v, found in readers.items():
        if v.ndim == len(axes):
            _cost_of(network, v, makers.get(v, SOURCE), found, transposing(costs.typical(v), axes))
    side = network.sink_side()
    return frozenset(n for n in graph.nodes if n in side or ends[n][1] == SINK)


def _ends(graph: Graph, axes: Axes) -> dict[Node, tuple[object, object]]:
    """Returns the ends of the network for what each operator reads and for what it makes.

    The operator itself stands for "either order", the source for "plain", the sink for "stored". A transpose by
    ``axes`` reads a stored array and makes a plain one at no cost, one by the inverse order the other way round. Where
    both are the same, every other one on the way from the inputs is taken for the second kind.
    """
    out: dict[Node, tuple[object, object]] = {}
    odd: dict[Value, bool] = {}
    for node in graph.nodes:
        passed = any(odd.get(v, False) for v in node.given)
        way: tuple[object, object] = (SOURCE, SOURCE)
        if node.op == "transpose" and axes_of(node) in (axes, inverse(axes)):
            reads_stored = axes_of(node) == axes and (passed or axes != inverse(axes))
            way = (SINK, SOURCE) if reads_stored else (SOURCE, SINK)
            passed = not passed
        elif carried(node, axes) is not None and _operands_fit(node, graph, len(axes)):
            way = (node, node if node.outputs[0].ndim == len(axes) else SOURCE)
        out[node] = way
        odd.update(dict.fromkeys(node.outputs, passed))
    return out


def _operands_fit(node: Node, graph: Graph, ndim: int) -> bool:
    """Returns whether operands of other numbers of dimensions than ``ndim`` are constants or single elements."""
    if node.op in WEIGHTED:
        return node.inputs[1] in graph.constants
    return all(
        v.ndim in (ndim, 0) or v in graph.constants or v.is_static and math.prod(v.shape) == 1 for v in node.given
    ) or (node.op in ("layer_norm", "rms_norm", "batch_norm", "prelu"))


def _cost_of(network: Network, v: Value, maker: object, ends: list[object], seconds: float) -> None:
    """Add the cost of a transpose of ``v``. It is paid once for all that read ``v`` in the order in which it is not
    made."""
    if seconds == 0.0:
        return
    stored, plain = (v, "stored"), (v, "plain")
    network.edge(maker, stored, seconds)
    network.edge(plain, maker, seconds)
    for end in ends:
        network.edge(stored, end, INFINITE)
        network.edge(end, plain, INFINITE)
