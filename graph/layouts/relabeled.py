"""This module makes the graph in which chosen operators work on arrays in another order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ..graph import Graph, Node, Value
from ..permutations import axes_of, inverse, moves_only_ones
from ..rewrite import without_unread
from .carried_attributes import WEIGHTED, Axes, carried, weight_order


def relabeled(graph: Graph, axes: Axes, stored: Collection[Node]) -> Graph:
    """Returns the graph with the operators of ``stored`` on arrays in the order ``axes``, and transposes where orders
    meet."""
    made = _Relabeled(graph, axes)
    for node in graph.nodes:
        made.add(node, node in stored)
    outputs = tuple([made.plain(v) for v in graph.outputs])
    return without_unread(graph.replaced(made.nodes, outputs=outputs, constants=made.constants))


class _Relabeled:
    """The operators so far, and the plain and the stored form of each value of the old graph."""

    def __init__(self, graph: Graph, axes: Axes) -> None:
        self.axes, self.back = axes, inverse(axes)
        self.nodes: list[Node] = []
        self.constants = dict(graph.constants)
        self.names = {v.name for v in graph.values()}
        self.plains: dict[Value, Value] = {v: v for v in (*graph.inputs, *graph.constants)}
        self.stored_forms: dict[Value, Value] = {}

    def add(self, node: Node, stored: bool) -> None:
        is_transpose = node.op == "transpose" and node.output.ndim == len(self.axes)
        if is_transpose and stored:
            self.stored_forms[node.output] = self.plain(_only(node))
        elif is_transpose and axes_of(node) == self.axes and self._is_stored(_only(node)):
            self.plains[node.output] = self.stored(_only(node))
        elif stored:
            self._add_stored(node)
        else:
            self.nodes.append(
                Node(node.op, tuple([v and self.plain(v) for v in node.inputs]), node.outputs, node.attrs)
            )
            self.plains.update({v: v for v in node.outputs})

    def _is_stored(self, v: Value) -> bool:
        return v in self.stored_forms

    def _add_stored(self, node: Node) -> None:
        attrs = carried(node, self.axes)
        assert attrs is not None
        inputs = [None if v is None else self._operand(node, n, v) for n, v in enumerate(node.inputs)]
        outputs = []
        for v in node.outputs:
            if v.ndim != len(self.axes):
                self.plains[v] = v
                outputs.append(v)
                continue
            self.stored_forms[v] = Value(v.name, v.dtype, _in_order(v.shape, self.axes))
            outputs.append(self.stored_forms[v])
        self.nodes.append(Node(node.op, tuple(inputs), tuple(outputs), dict(attrs)))

    def _operand(self, node: Node, n: int, v: Value) -> Value:
        """Returns what the ``n``-th operand becomes."""
        if node.op in WEIGHTED and n == 1:
            return self._constant(v, np.transpose(self.constants[v], weight_order(node)))
        if v.ndim == len(self.axes):
            return self.stored(v)
        from_front = node.op in ("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "layer_norm", "rms_norm",
                                 "batch_norm", "prelu")  # fmt: skip
        if from_front or v.ndim == 0 or v not in self.constants:
            return self.plain(v)
        data = self.constants[v]
        data = data.reshape((1,) * (len(self.axes) - data.ndim) + data.shape)
        return self._constant(v, np.transpose(data, self.axes))

    def _constant(self, like: Value, data: np.ndarray[Any, Any]) -> Value:
        array = np.asarray(data, order="C")
        v = Value(self._fresh(like.name), like.dtype, tuple(array.shape))
        self.constants[v] = array
        return v

    def plain(self, v: Value) -> Value:
        if v not in self.plains:
            self.plains[v] = self._moved(self.stored_forms[v], self.back)
        return self.plains[v]

    def stored(self, v: Value) -> Value:
        if v not in self.stored_forms:
            if v in self.constants:
                self.stored_forms[v] = self._constant(v, np.transpose(self.constants[v], self.axes))
            else:
                self.stored_forms[v] = self._moved(self.plains[v], self.axes)
        return self.stored_forms[v]

    def _moved(self, v: Value, axes: Axes) -> Value:
        shape = _in_order(v.shape, axes)
        out = Value(self._fresh(v.name), v.dtype, shape)
        if moves_only_ones(v.shape, axes):
            self.nodes.append(Node("reshape", (v,), (out,), {"shape": shape}))
        else:
            self.nodes.append(Node("transpose", (v,), (out,), {"axes": axes}))
        return out

    def _fresh(self, name: str) -> str:
        number = 1
        while f"{name}_{number}" in self.names:
            number += 1
        self.names.add(f"{name}_{number}")
        return f"{name}_{number}"


def _in_order(shape: Sequence[Any], axes: Axes) -> tuple[Any, ...]:
    return tuple([shape[a] for a in axes])


def _only(node: Node) -> Value:
    (v,) = node.given
    return v
