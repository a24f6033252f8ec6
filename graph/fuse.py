"""This module chooses which operators become one kernel.

An element-wise operator joins the kernel that makes its operand: the result of a product or a convolution is still in
registers or in the first-level cache then. Chains of element-wise and injective operators become one kernel; operators
over rows (softmax, norms) and reductions take the element-wise operators before them as well, when nothing else reads
those. A product takes the operators that widen its weights: they are decoded where they are multiplied. Kernels are
joined only where no way leads from one to the other through a third one.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..tir.expr import DType, Expr, Var, vars_in
from .graph import Graph, Node, Value, same_shape
from .graph_operators import operator
from .kernels import Division, divide, is_view

_LIGHT = ("elementwise", "broadcast")
_PRODUCTS = ("matmul", "dense")
_MEMBERS = 24
"""The most operators of one kernel, so that functions stay short."""


def fuse(graph: Graph) -> Division:
    """Returns the division of the graph into kernels, with operators joined as the module describes."""
    groups = _Groups(graph)
    for node in graph.nodes:
        if is_view(node, graph):
            continue
        groups.add(node)
        kind = operator(node.op).kind
        if kind in _LIGHT:
            groups.join_producer(node)
        elif kind in ("rows", "reduction", "injective"):
            groups.join_light_operands(node)
        elif node.op in _PRODUCTS:
            groups.join_decoded_weight(node)
    return divide(graph, groups.listed(), fuse)


class _Groups:
    """The groups so far. ``of`` is the group of each operator, a list that its members share."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers, self.users = graph.producers(), graph.users()
        self.position = {node: n for n, node in enumerate(graph.nodes)}
        self.of: dict[Node, list[Node]] = {}

    def listed(self) -> list[list[Node]]:
        return list({id(group): group for group in self.of.values()}.values())

    def add(self, node: Node) -> None:
        self.of[node] = [node]

    def join_producer(self, node: Node) -> None:
        """Join the kernels that make the operands of an element-wise operator, where that is possible."""
        ranks = {"anchor": 0, "rows": 1, "reduction": 2}
        producers = [self.producers[v] for v in node.given if v in self.producers]
        producers = [p for p in producers if p in self.of and self._is_read_only_by(p, node)]
        for p in sorted(producers, key=lambda p: min(ranks.get(operator(n.op).kind, 3) for n in self.of[p])):
            heavy = [n for n in self.of[p] if operator(n.op).kind not in (*_LIGHT, "injective")]
            mine = [n for n in self.of[node] if operator(n.op).kind not in (*_LIGHT, "injective")]
            if heavy and mine or any(operator(n.op).kind == "opaque" for n in heavy):
                continue
            if same_shape(p.outputs[0].shape, node.output.shape) or not heavy:
                self._merge(p, node)

    def join_light_operands(self, node: Node) -> None:
        """Take in the element-wise kernels that make the operands, when nothing else reads them."""
        for v in dict.fromkeys(node.given):
            p = self.producers.get(v)
            if p is None or p not in self.of or not self._is_read_only_by(p, node):
                continue
            kinds = {operator(n.op).kind for n in self.of[p]}
            if kinds <= {"elementwise", "broadcast", "injective"}:
                self._merge(p, node)

    def join_decoded_weight(self, node: Node) -> None:
        """Take in the element-wise kernel that widens the second operand of a product, such as weights of int8 with
        scales. The product then reads the narrow numbers, and decodes them in registers."""
        weight = node.inputs[1]
        p = None if weight is None else self.producers.get(weight)
        if weight is None or p is None or p not in self.of or not self._is_read_only_by(p, node):
            return
        members = self.of[p]
        made = {v for n in members for v in n.outputs}
        read = dict.fromkeys([v for n in members for v in n.given if v not in made])
        wide = [v for v in read if same_shape(v.shape, weight.shape)]
        narrow = 2 * sum(DType(v.dtype).bits for v in wide) <= DType(weight.dtype).bits
        if wide and narrow and all(operator(n.op).kind in _LIGHT for n in members):
            self._merge(p, node)

    def _is_read_only_by(self, producer: Node, node: Node) -> bool:
        return len(producer.outputs) == 1 and all(
            v not in self.graph.outputs and self.users.get(v, []) == [node] for v in producer.outputs
        )

    def _merge(self, producer: Node, node: Node) -> None:
        first, second = self.of[producer], self.of[node]
        if first is second or len(first) + len(second) > _MEMBERS:
            return
        both = {*first, *second}
        if self._leaves_and_returns(both) or self._hides_sizes(both):
            return
        joined = sorted(both, key=self.position.__getitem__)
        for member in joined:
            self.of[member] = joined

    def _hides_sizes(self, members: set[Node]) -> bool:
        """Returns whether no argument of the joined kernel would tell a symbolic size that its operators have."""
        made = {v for n in members for v in n.outputs}
        inner = _sizes_of(made)
        if not inner:
            return False
        read = [v for n in members for v in n.given if v not in made]
        shown = [v for v in made if v in self.graph.outputs or any(u not in members for u in self.users.get(v, []))]
        return not inner <= _sizes_of([*read, *shown])

    def _leaves_and_returns(self, members: set[Node]) -> bool:
        """Returns whether a way leads from the members through other operators back to one of them."""
        last = max(self.position[m] for m in members)
        frontier = [u for u in self._users_of(members) if u not in members]
        seen: set[Node] = set()
        while frontier:
            node = frontier.pop()
            if node in seen or self.position[node] > last:
                continue
            seen.add(node)
            group = self.of.get(node, [node])
            for user in self._users_of(group):
                if user in members:
                    return True
                frontier.append(user)
        return False

    def _users_of(self, nodes: Iterable[Node]) -> list[Node]:
        values: list[Value] = [v for n in nodes for v in n.outputs]
        return [u for v in values for u in self.users.get(v, [])]


def _sizes_of(values: Iterable[Value]) -> set[Var]:
    """Returns the symbolic sizes in the shapes of values."""
    return {var for v in values for d in v.shape if isinstance(d, Expr) for var in vars_in(d)}
