"""This pass chooses the order of dimensions in which arrays are stored, over the whole graph, by predicted times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ...tir.expr import Var
from ..axes import axes_of, inverse
from ..graph import Graph, GraphError, Node, Value
from ..graph_operators import attributes_key
from ..kernels import kernel_alone
from ..layouts import WEIGHTED, LayoutCosts, carried, channels_last, chosen_labels, relabeled, weight_order
from ..services import Services
from ..symbolic_sizes import example_sizes, typical

_RATE = 5e10
"""Multiply-adds in a second, where nothing better is known."""

_PLAIN = 1.2
"""How many times as long a convolution takes with the channels in front, where nothing better is known."""

_JUMPS = 1.5
"""How many times as long as predicted a convolution with strides takes with the channels in front: vectors of columns that
lie apart have to be shuffled together."""


def choose_layouts(graph: Graph, services: Services = Services()) -> Graph:
    """Let operators work on arrays in another order where that is predicted to be faster, transposes counted.

    Before::

        a = conv2d(x, w)
        b = relu(a)
        y = conv2d(b, v)

    After::

        x_1 = transpose(x, axes=(0, 2, 3, 1))
        a = conv2d(x_1, w_1, layout="NHWC")
        b = relu(a)
        y = conv2d(b, v_1, layout="NHWC")
        y_1 = transpose(y, axes=(0, 3, 1, 2))

    The orders are those of the transposes in the graph, which so cancel or meet, and channels last for convolutions.
    """
    orders = _orders(graph)
    sizes = (example_sizes(graph) or {}) if orders else {}
    costs = LayoutCosts(_Predicted(graph, services, sizes).seconds, lambda v: typical(v, sizes))
    for axes in orders:
        stored = chosen_labels(graph, axes, costs)
        changed = relabeled(graph, axes, stored) if stored else graph
        if _transposed(changed, sizes) < _transposed(graph, sizes) or any(n.op in WEIGHTED for n in stored):
            graph = changed
    return graph


def _orders(graph: Graph) -> list[tuple[int, ...]]:
    """Returns the orders to try: channels last first, then those of transposes and their inverses."""
    found = [channels_last(n.output.ndim) for n in graph.nodes if n.op in WEIGHTED]
    transposes = [axes_of(n) for n in graph.nodes if n.op == "transpose"]
    return list(dict.fromkeys([*found, *transposes, *map(inverse, transposes)]))


def _transposed(graph: Graph, sizes: Mapping[Var, int]) -> int:
    """Returns how many bytes transposes move at example sizes."""
    moved = [typical(n.output, sizes) for n in graph.nodes if n.op == "transpose"]
    return sum(v.bytes + 1 for v in moved)


class _Predicted:
    """Predicted times of convolutions at example sizes, each distinct one once."""

    def __init__(self, graph: Graph, services: Services, sizes: Mapping[Var, int]) -> None:
        self.sizes = sizes
        self.constants, self.services = frozenset(graph.constants), services
        self.known: dict[Any, float] = {}

    def seconds(self, node: Node, axes: tuple[int, ...] | None) -> float:
        types = tuple([(v.dtype, v.shape) for v in node.given])
        key = node.op, types, attributes_key(node.attrs), axes
        if key not in self.known:
            self.known[key] = self._predicted(node, axes)
        return self.known[key]

    def _predicted(self, node: Node, axes: tuple[int, ...] | None) -> float:
        weight = node.inputs[1]
        assert weight is not None
        per_output = math.prod(weight.shape) // max(node.output.shape[1], 1)
        estimate = (
            math.prod(typical(node.output, self.sizes).shape) * per_output / _RATE * (_PLAIN if axes is None else 1.0)
        )
        if self.services.seconds is None:
            return estimate
        inputs, attrs = [None if v is None else typical(v, self.sizes) for v in node.inputs], node.attrs
        if axes is not None:
            stored = carried(node, axes)
            assert stored is not None and inputs[0] is not None
            attrs = stored
            inputs[:2] = [_permuted(inputs[0], axes), _permuted(weight, weight_order(node))]
        try:
            found = self.services.seconds(kernel_alone("convolution", node.op, inputs, attrs))
        except GraphError:  # no example sizes fit
            return estimate
        stride = node.attrs.get("stride", 1)
        jumps = axes is None and (max(stride) if isinstance(stride, (tuple, list)) else stride) > 1
        return found * (_JUMPS if jumps else 1.0)


def _permuted(v: Value, axes: tuple[int, ...]) -> Value:
    return Value(v.name, v.dtype, tuple([v.shape[a] for a in axes]))
