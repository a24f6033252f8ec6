"""This pass chooses the order of dimensions in which arrays are stored, over the whole graph, by predicted times.

For one order (NHWC, say) each operator either works on arrays in that order, where a row of :data:`_ROWS` says how,
or on plain ones. An operator has a predicted time in both, and an array that one operator makes in one order and another one
reads in the other order has to be transposed. :func:`chosen_labels` builds this as a flow network, whose minimum cut
(:class:`Network`) is the cheapest choice, and :func:`relabeled` makes the graph of it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.analysis.known_ranges import evaluate, fitting_sizes
from ...tir.expr import Expr, Var, const, vars_in
from ..graph import Graph, GraphError, Node, Value, computed_sizes, without_unread
from ..graph_operators import OPERATORS, attributes_key, axes_of, axes_without_negatives, inverse, moves_only_ones
from ..kernels import Services, kernel_alone, requirements

_CALL = 1e-6
"""The seconds that a kernel of its own takes at least."""

_BANDWIDTH = 8e9
"""Bytes that a transpose moves in a second."""

_TYPICAL = 16
"""What a symbolic size is taken to be where times are predicted, if nothing speaks against it."""


@dataclass(frozen=True)
class LayoutCosts:
    """``seconds(node, axes)`` predicts an operator on stored arrays, or (``axes`` None) on plain ones. ``typical(v)`` is a
    value like ``v`` of known sizes."""

    seconds: Callable[[Node, Axes | None], float]
    typical: Callable[[Value], Value]


def transposing(v: Value, axes: Axes) -> float:
    """Returns the seconds that a transpose of ``v``, whose sizes are known, takes."""
    if moves_only_ones(v.shape, axes):
        return 0.0
    return _CALL + 2 * v.bytes / _BANDWIDTH


def chosen_labels(graph: Graph, axes: Axes, costs: LayoutCosts) -> frozenset[Node]:
    """Returns the operators that work on arrays in the order ``axes``, so that the predicted time is least.

    A transpose is among them when it reads a plain array and makes a stored one.
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


def relabeled(graph: Graph, axes: Axes, stored: Collection[Node]) -> Graph:
    """Returns the graph with the operators of ``stored`` on arrays in the order ``axes``, and transposes where orders
    meet."""
    made = _Relabeled(graph, axes)
    for node in graph.nodes:
        made.add(node, node in stored)
    outputs = tuple([made.plain(v) for v in graph.outputs])
    return without_unread(graph.replaced(made.nodes, outputs=outputs, constants=made.constants))


class _Relabeled:
    """The operators of the new graph so far. Each value of the old graph has a plain array, a stored array, or both."""

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
        """Returns the value that takes the place of the ``n``-th operand of an operator on stored arrays."""
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


Axes = tuple[int, ...]
Row = Callable[[Node, Axes], "Mapping[str, Any] | None"]

_WINDOWS = {3: ("NCW", "NWC"), 4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}


def channels_last(ndim: int) -> Axes:
    """Returns the order with the channels last, of arrays whose second dimension they are."""
    return (0, *range(2, ndim), 1)


def carried(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    """Returns the attributes of ``node`` for operands in the order ``axes``; None when it reads and makes plain ones."""
    data = node.inputs[0]
    if OPERATORS[node.op].kind != "broadcast" and (data is None or data.ndim != len(axes)):
        return None
    row = ROWS.get(node.op)
    return None if row is None else row(node, axes)


def _same(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    return node.attrs


def _broadcast(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    """Operands of fewer dimensions are given further ones in front, and so may stand at any place."""
    return node.attrs if node.output.ndim == len(axes) else None


def _one_axis(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    axis = node.attrs.get("axis", OPERATORS[node.op].defaults.get("axis"))
    named = axes_without_negatives(axis, len(axes))
    if axis is None or len(named) != 1:
        return None
    return {**node.attrs, "axis": inverse(axes)[named[0]]}


def _reduction(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    reduced = axes_without_negatives(node.attrs.get("axis"), len(axes))
    kept = [a for a in axes if a not in reduced]
    if not node.attrs.get("keepdims", False) and kept != sorted(kept):
        return None
    return {**node.attrs, "axis": tuple(sorted([inverse(axes)[a] for a in reduced]))}


def _per_dimension(*keys: str) -> Row:
    def row(node: Node, axes: Axes) -> Mapping[str, Any] | None:
        out = dict(node.attrs)
        for key in keys:
            value = node.attrs.get(key)
            if isinstance(value, (tuple, list)):
                out[key] = tuple([value[a] for a in axes])
            elif value is not None and key != "strides":
                return None
        return out

    return row


def _windows(node: Node, axes: Axes) -> Mapping[str, Any] | None:
    plain, last = _WINDOWS.get(len(axes), ("", ""))
    if axes != channels_last(len(axes)) or node.attrs.get("layout") not in (None, "", plain):
        return None
    return None if node.attrs.get("kernel_layout") else {**node.attrs, "layout": last}


ROWS: dict[str, Row] = {
    **{name: _same for name, row in OPERATORS.items() if row.kind == "elementwise"},
    **{
        name: _broadcast
        for name, row in OPERATORS.items()
        if row.kind == "broadcast" and name not in ("prelu", "broadcast_to")
    },
    **dict.fromkeys(("softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "concatenate", "split",
                     "prelu", "cumsum"), _one_axis),
    **dict.fromkeys(("sum", "prod", "max", "min", "mean"), _reduction),
    "pad": _per_dimension("pad_before", "pad_after"),
    "strided_slice": _per_dimension("begin", "end", "strides"),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "depthwise_conv2d", "max_pool1d", "max_pool2d", "max_pool3d",
                     "avg_pool1d", "avg_pool2d", "avg_pool3d", "global_avg_pool", "global_max_pool",
                     "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
                     "adaptive_max_pool2d", "adaptive_max_pool3d", "depth_to_space", "resize1d", "resize2d", "resize3d"), _windows),
}  # fmt: skip
"""The operators that can work on another order."""

WEIGHTED = {"conv1d", "conv2d", "conv3d", "depthwise_conv2d"}
"""Operators whose second operand is stored in another order as well."""


def weight_order(node: Node) -> Axes:
    """Returns the order of the weights of a convolution on channels that stand last."""
    spatial = tuple(range(2, node.output.ndim))
    return (*spatial, 0, 1) if node.op == "depthwise_conv2d" else (*spatial, 1, 0)


SOURCE, SINK = "source", "sink"
INFINITE = 1e30


class Network:
    """A flow network: edges with capacities. ``sink_side`` returns the nodes on the sink's side of a minimum cut."""

    def __init__(self) -> None:
        self.ends: dict[Hashable, dict[Hashable, float]] = {SOURCE: {}, SINK: {}}

    def edge(self, a: Hashable, b: Hashable, capacity: float) -> None:
        """Add capacity from ``a`` to ``b``."""
        if a != b and capacity > 0:
            self.ends.setdefault(a, {})[b] = self.ends.get(a, {}).get(b, 0.0) + capacity
            self.ends.setdefault(b, {}).setdefault(a, 0.0)

    def sink_side(self) -> frozenset[Hashable]:
        """Returns the smallest part around the sink whose edges from the rest have the least capacity in all."""
        while (levels := self._levels()) is not None:
            iterators: dict[Hashable, Iterator[Hashable]] = {n: iter(list(edges)) for n, edges in self.ends.items()}
            while self._push(levels, iterators):
                pass
        found: set[Hashable] = {SINK}
        waiting: deque[Hashable] = deque([SINK])
        while waiting:
            node = waiting.popleft()
            for other in self.ends[node]:
                if other not in found and self.ends[other].get(node, 0.0) > _EPSILON:
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)

    def _levels(self) -> dict[Hashable, int] | None:
        """Returns each node's distance from the source over edges that are not full; None when the sink has none."""
        levels: dict[Hashable, int] = {SOURCE: 0}
        waiting: deque[Hashable] = deque([SOURCE])
        while waiting:
            node = waiting.popleft()
            for other, left in self.ends[node].items():
                if left > _EPSILON and other not in levels:
                    levels[other] = levels[node] + 1
                    waiting.append(other)
        return levels if SINK in levels else None

    def _push(self, levels: dict[Hashable, int], iterators: dict[Hashable, Iterator[Hashable]]) -> bool:
        """Send flow along one path that goes a level down at each edge; returns whether there was one."""
        path: list[Hashable] = [SOURCE]
        while path[-1] != SINK:
            node = path[-1]
            for other in iterators[node]:
                if self.ends[node][other] > _EPSILON and levels.get(other) == levels[node] + 1:
                    path.append(other)
                    break
            else:
                if len(path) == 1:
                    return False
                levels[path.pop()] = -1
        pairs = list(zip(path, path[1:], strict=False))
        flow = min(self.ends[a][b] for a, b in pairs)
        for a, b in pairs:
            self.ends[a][b] -= flow
            self.ends[b][a] += flow
            iterators[a] = iter(list(self.ends[a]))
        return True


_EPSILON = 1e-15


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
    sizes = (_example_sizes(graph) or {}) if orders else {}
    costs = LayoutCosts(_Predicted(graph, services, sizes).seconds, lambda v: _typical(v, sizes))
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
    moved = [_typical(n.output, sizes) for n in graph.nodes if n.op == "transpose"]
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
            math.prod(_typical(node.output, self.sizes).shape) * per_output / _RATE * (_PLAIN if axes is None else 1.0)
        )
        if self.services.seconds is None:
            return estimate
        inputs, attrs = [None if v is None else _typical(v, self.sizes) for v in node.inputs], node.attrs
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


def _example_sizes(graph: Graph) -> Mapping[Var, int] | None:
    """Returns a number for each symbolic size of the inputs, such that all operators fit; None where none are found."""
    symbols = {n for v in graph.inputs for d in v.shape if isinstance(d, Expr) for n in vars_in(d)}
    symbols |= set(computed_sizes(graph))
    if not symbols:
        return {}
    bounds = {v: graph.bounds[v.name] for v in symbols if v.name in graph.bounds}
    extents = [d for v in graph.values() for d in v.shape if isinstance(d, Expr) and not isinstance(d, Var)]
    conditions = [*[condition for condition, _ in requirements(graph)], *[d >= const(1, d.dtype) for d in extents]]
    return fitting_sizes(conditions, dict.fromkeys(sorted(symbols, key=lambda v: v.name), _TYPICAL), bounds)


def _typical(v: Value, sizes: Mapping[Var, int]) -> Value:
    """Returns a value like ``v`` with numbers for symbolic sizes; ``v`` itself when it has none."""
    if v.is_static:
        return v
    known = [d if isinstance(d, int) else evaluate(d, sizes) for d in v.shape]
    return Value(v.name, v.dtype, tuple([_TYPICAL if d is None else max(d, 0) for d in known]))
