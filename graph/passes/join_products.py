"""This pass computes several products of one operand as one product, where that is predicted to be faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..builder import Builder
from ..graph import Graph, Node, Value, with_replaced
from ..graph_operators import attributes_key, channels_of, operator, per_channel
from ..kernels import VIEWS, Services, kernel_alone

_CALL, _BANDWIDTH = 1e-6, 8e9
"""The seconds that a kernel of its own takes at least, and the bytes that it moves in a second."""


def join_products(graph: Graph, services: Services = Services()) -> Graph:
    """Join products of one operand by constant weights, such as those that make queries, keys and values.

    Before::

        q = add(matmul(x, wq), bq)
        k = add(matmul(x, wk), bk)

    After::

        y = add(matmul(x, w), b)
        q = strided_slice(y, begin=(0, 0), end=(128, 768))
        k = strided_slice(y, begin=(0, 768), end=(128, 1536))

    The parts cost nothing where what reads them moves their elements anyhow. Where an element-wise operator reads a part,
    it could have joined the product, so that a kernel more is counted.
    """
    if services.seconds is None:
        return graph
    found = _Products(graph, services)
    chosen = [group for group in found.groups() if found.pays(group)]
    return found.joined(chosen) if chosen else graph


@dataclass(frozen=True)
class _Product:
    """A product, and the dimension ``axis`` of its weight that is joined. ``end`` is the sum with its bias, or the product
    itself where it has none."""

    node: Node
    axis: int
    end: Node
    bias: Value | None

    @property
    def width(self) -> int:
        return int(self.end.output.shape[-1])


class _Products:
    """The products of a graph by constant weights that nothing else reads."""

    def __init__(self, graph: Graph, services: Services) -> None:
        self.graph, self.services, self.users = graph, services, graph.users()
        self.known: dict[Any, float] = {}

    def groups(self) -> list[list[_Product]]:
        """Returns products that may be joined: of one operand, with the same attributes, all with a bias or none."""
        out: dict[Any, list[_Product]] = {}
        for node in self.graph.nodes:
            made = self._product(node)
            if made is not None:
                w = node.inputs[1]
                types = made.axis, made.bias is None, made.end is node, node.output.dtype, w and w.dtype
                out.setdefault((node.op, node.inputs[0], attributes_key(node.attrs), types), []).append(made)
        return [group for group in out.values() if len(group) > 1]

    def _product(self, node: Node) -> _Product | None:
        w = node.inputs[1] if node.op in ("dense", "matmul") else None
        if w is None or w not in self.graph.constants or len(self.users[w]) > 1 or not node.output.is_static:
            return None
        where = channels_of(node) if w.ndim == 2 else None
        if where is None or node.output.ndim < 2:
            return None
        if len(node.inputs) > 2 and node.inputs[2] is not None:
            known = node.inputs[2] in self.graph.constants
            return _Product(node, where.weight_out[0], node, node.inputs[2]) if known else None
        added = self._bias(node)
        return _Product(node, where.weight_out[0], *((node, None) if added is None else added))

    def _bias(self, node: Node) -> tuple[Node, Value] | None:
        """Returns the addition of a constant vector that alone reads a product, and the vector."""
        readers = self.users.get(node.output, [])
        if node.output in self.graph.outputs or len(readers) != 1 or readers[0].op != "add":
            return None
        for v in readers[0].given:
            data = self.graph.constants.get(v)
            if data is not None and readers[0].output.shape == node.output.shape and v.dtype == node.output.dtype:
                fits = per_channel(data, node.output.ndim, node.output.ndim - 1, node.output.shape[-1])
                return None if fits is None else (readers[0], v)
        return None

    def pays(self, group: Sequence[_Product]) -> bool:
        """Returns whether the one product and its parts are predicted to take less time than the products do."""
        cutting = sum(self._cutting(p.end.output) for p in group)
        first = group[0]
        apart = sum(self._seconds(p.node, p.axis, p.width) for p in group)
        return self._seconds(first.node, first.axis, sum(p.width for p in group)) + cutting < apart

    def _cutting(self, v: Value) -> float:
        """Returns the seconds that it takes to cut out a part, in a kernel that is not there otherwise."""
        readers = self.users.get(v, [])
        while len(readers) == 1 and readers[0].op in VIEWS and v not in self.graph.outputs:
            v = readers[0].output
            readers = self.users.get(v, [])
        moved = bool(readers) and all(r.op not in VIEWS and operator(r.op).kind == "injective" for r in readers)
        if moved and v not in self.graph.outputs:
            return 0.0
        return _CALL + 2 * v.bytes / _BANDWIDTH

    def _seconds(self, node: Node, axis: int, width: int) -> float:
        x, w = node.inputs[:2]
        assert x is not None and w is not None and self.services.seconds is not None
        shape = tuple([width if d == axis else extent for d, extent in enumerate(w.shape)])
        key = node.op, x.dtype, x.shape, w.dtype, shape, attributes_key(node.attrs)
        if key not in self.known:
            wide = Value(w.name, w.dtype, shape)
            self.known[key] = self.services.seconds(kernel_alone("product", node.op, [x, wide], node.attrs))
        return self.known[key]

    def joined(self, groups: Sequence[Sequence[_Product]]) -> Graph:
        """Returns the graph with one product, and parts of it, in place of each group."""
        builder, mapping = Builder.on(self.graph), {}
        firsts = {group[0].node: group for group in groups}
        for node in self.graph.nodes:
            if node in firsts:
                mapping.update(self._join(builder, firsts[node]))
            builder.nodes.append(node)
        after = self.graph.replaced(builder.nodes, constants=builder.constants)
        return with_replaced(after, builder.nodes, mapping)

    def _join(self, builder: Builder, group: Sequence[_Product]) -> dict[Value, Value]:
        node, data = group[0].node, self.graph.constants
        weights = [data[p.node.inputs[1]] for p in group if p.node.inputs[1] is not None]
        w = builder.constant(np.concatenate(weights, group[0].axis), "w", _dtype(node.inputs[1]))
        vectors = [np.broadcast_to(data[p.bias].reshape(-1), p.width) for p in group if p.bias is not None]
        bias = builder.constant(np.concatenate(vectors), "b", _dtype(group[0].bias)) if vectors else None
        inside = bias is not None and group[0].end is node
        y = builder.op(node.op, node.inputs[0], w, *[bias] if inside else [], **node.attrs)
        if bias is not None and not inside:
            y = builder.op("add", y, bias)
        at, out, lead = 0, {}, [0] * (y.ndim - 1)
        for p in group:
            end = (*y.shape[:-1], at + p.width)
            out[p.end.output] = builder.op("strided_slice", y, begin=(*lead, at), end=end)
            at += p.width
        return out


def _dtype(v: Value | None) -> str | None:
    return None if v is None else v.dtype
