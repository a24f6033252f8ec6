"""This pass moves out of loops what each step computes alike, and products that no state goes into."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..builder import SCAN, Builder
from ..graph import Graph, Node, Value, without_unread
from ..graph_operators import operator
from ..kernels import Services
from .fold_constants import widens

_PRODUCTS = ("dense", "matmul")


def hoist_from_loops(graph: Graph, services: Services = Services()) -> Graph:
    """Compute outside of a loop what does not depend on its states.

    What depends on nothing that changes is computed once. Products of the parts of an array become one product of the
    array, together with the element-wise operators before and after them.

    Before::

        def step(h, x_t, w, r):
            return tanh(add(dense(x_t, w), dense(h, r)))
        last = scan(h0, x, w, r, body=step, states=1, arrays=1, steps=7)

    After::

        y = dense(x, w)
        def step(h, y_t, r):
            return tanh(add(y_t, dense(h, r)))
        last = scan(h0, y, r, body=step, states=1, arrays=1, steps=7)
    """
    if not any(node.op == SCAN for node in graph.nodes):
        return graph
    builder = Builder.on(graph)
    for node in graph.nodes:
        if node.op == SCAN:
            node = _Hoisting(builder, node).run()
        builder.nodes.append(node)
    after = graph.replaced(builder.nodes, constants=builder.constants)
    return graph if list(graph.nodes) == builder.nodes else without_unread(after)


class _Hoisting:
    """The values that move out of one loop.

    ``whole`` maps each value of the body that is the same at every step to the value outside. ``stacked`` maps each value that
    differs from step to step to the array outside whose first dimension is the step."""

    def __init__(self, builder: Builder, node: Node) -> None:
        self.builder, self.node, self.attrs = builder, node, node.attrs
        self.body: Graph = node.attrs["body"]
        self.given = list(node.given)
        first, last = self.attrs["states"], self.attrs["states"] + self.attrs["arrays"]
        self.states, self.inputs = first, self.body.inputs
        self.stacked = dict(zip(self.inputs[first:last], self.given[first:last], strict=True))
        self.whole = dict(zip(self.inputs[last:], self.given[last:], strict=True))
        self.constants = self.body.constants

    def run(self) -> Node:
        """Returns the loop with what is left in it; what was moved out is in the builder."""
        left, alike = [], set()
        for n in self.body.nodes:
            same = all(v in self.whole or v in self.constants for v in n.given) and any(
                v in self.whole for v in n.given
            )
            if same and not self._widens_weights(n):
                self._emit(n, [None if v is None else self._outside(v) for v in n.inputs], self.whole)
                alike.add(n)
            else:
                left.append(n)
        moved = self._products(left)
        for n in left:
            if n in moved:
                self._emit_at_once(n)
        if not alike and not moved:
            return self.node
        return self._without({*alike, *moved})

    def _widens_weights(self, n: Node) -> bool:
        """Returns whether constants of 8 bits are widened: patterns of the body look for them first."""
        return widens(n) and all(self.whole.get(v) in self.builder.constants for v in n.given)

    def _emit(self, n: Node, inputs: Sequence[Value | None], known: dict[Value, Value]) -> None:
        made = self.builder.several(n.op, *inputs, names=[v.name for v in n.outputs], **n.attrs)
        known.update(zip(n.outputs, made, strict=True))

    def _outside(self, v: Value) -> Value:
        if v not in self.whole:
            self.whole[v] = self.builder.constant(self.constants[v], v.name, v.dtype)
        return self.whole[v]

    def _products(self, nodes: Sequence[Node]) -> set[Node]:
        """Returns the operators that can work on all steps at once, and make or use a product that can."""
        able: dict[Value, Node | None] = dict.fromkeys(self.stacked)
        for n in nodes:
            if self._is_able(n, able):
                able[n.output] = n
        chosen: set[Node] = set()
        for n in [n for n in able.values() if n is not None]:  # what follows a product
            if n.op in _PRODUCTS or any(able.get(v) in chosen for v in n.given):
                chosen.add(n)
        for n in reversed(nodes):  # what goes into one
            if n in chosen:
                chosen.update(m for v in n.given if (m := able.get(v)) is not None)
        return chosen

    def _is_able(self, n: Node, able: dict[Value, Node | None]) -> bool:
        parts = [v for v in n.given if v in able]
        others = [v for v in n.given if v not in able]
        if not parts or len(n.outputs) != 1 or any(v not in self.whole and v not in self.constants for v in others):
            return False
        if n.op in _PRODUCTS:
            x, w = n.inputs[:2]
            if x not in able or w is None or w in able:
                return False
            return parts[0].ndim > 1 and w.ndim == 2 and not n.attrs.get("transpose_a")
        if n.op in ("broadcast_to", "prelu") or operator(n.op).kind not in ("elementwise", "broadcast"):
            return False
        return all(v.ndim == n.output.ndim for v in parts) and all(v.ndim <= n.output.ndim for v in others)

    def _emit_at_once(self, n: Node) -> None:
        inputs = [v if v is None else self.stacked[v] if v in self.stacked else self._outside(v) for v in n.inputs]
        first = inputs[0]
        if n.op not in _PRODUCTS or first is None or not first.is_static:
            self._emit(n, inputs, self.stacked)
            return
        rows = self.builder.op("reshape", first, shape=(math.prod(first.shape[:-1]), first.shape[-1]))
        made = self.builder.op(n.op, rows, *inputs[1:], **n.attrs)
        shape = (first.shape[0], *n.output.shape)
        self.stacked[n.output] = self.builder.op("reshape", made, shape=shape, name=n.output.name)

    def _without(self, moved: set[Node]) -> Node:
        """Returns the loop without the operators that were moved; their results are further inputs."""
        nodes = tuple([n for n in self.body.nodes if n not in moved])
        read = dict.fromkeys([v for n in nodes for v in n.given] + list(self.body.outputs))
        arrays = [v for v in self.stacked if v in read] or list(self.stacked)[:1]
        others = [v for v in self.whole if v in read]
        constants = {v: data for v, data in self.constants.items() if v in read}
        inputs = (*self.inputs[: self.states], *arrays, *others)
        body = Graph(self.body.name, inputs, self.body.outputs, nodes, constants)
        given = (*self.given[: self.states], *[self.stacked[v] for v in arrays], *[self.whole[v] for v in others])
        return Node(SCAN, given, self.node.outputs, {**self.attrs, "body": body, "arrays": len(arrays)})
