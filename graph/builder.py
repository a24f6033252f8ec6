"""This module builds graphs operator by operator; types are inferred, names are made unique.

A loop over steps is the operator ``scan``, whose body is a graph; :func:`add_scan`, :func:`add_while` and :func:`add_cond` add one.

``scan(*states, *arrays, *others, body=…, states=n, arrays=m, steps=T)`` runs ``body`` T times. The body takes the states, one
part of each array (along its first dimension, of extent T), and the other inputs as they are. It returns the new states and
then rows. The results are the states after the last step, and each row of all steps, stacked along a new first dimension.
A state in ``history`` gives its values after every step instead, stacked like rows. With ``reverse`` the steps go from
the last part to the first one, and rows are stored at the places of the parts.

Where ``steps`` is None, the loop goes on as long as its first state holds, a truth value: it may take no step at all. Such a
loop has neither arrays nor rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import te
from ..pages.messages import short_repr
from ..te.tensor import Tensor
from ..tir.expr import to_numpy
from ..tir.expr.dtype import kept_as_bits, to_bits
from .graph import Dim, Graph, GraphError, Node, Value, bodies, dims, same_shape
from .graph_operators import infer, register_operator

_NOT_IN_NAMES = re.compile(r"\W")


class Builder:
    """Collects inputs, constants and operators, and makes a :class:`Graph` of them.

    >>> b = Builder("net")
    >>> x = b.input("x", (4, 8))
    >>> y = b.op("relu", b.op("multiply", x, b.constant(2.0)))
    >>> print(b.graph([y]))
    def net(x: float32[4, 8]):
        c: float32[()] = constant(2.0)
        multiply: float32[4, 8] = multiply(x, c)
        relu: float32[4, 8] = relu(multiply)
        return relu
    """

    __repr__ = short_repr("name", "inputs", "nodes")

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.nodes: list[Node] = []
        self.constants: dict[Value, np.ndarray[Any, Any]] = {}
        self._taken: set[str] = set()
        self._uses: Counter[str] = Counter()

    @staticmethod
    def on(graph: Graph) -> Builder:
        """Returns a builder with the names, the inputs and the constants of a graph, and none of its operators."""
        made = Builder(graph.name)
        made.inputs, made.constants = list(graph.inputs), dict(graph.constants)
        made._taken.update(v.name for v in graph.values())
        made._taken.update(body.name for body in bodies(graph))
        return made

    def input(self, name: str, shape: Sequence[Any], dtype: str = "float32") -> Value:
        """Add an input; GraphError when the name is taken."""
        if self.fresh(name) != name:
            raise GraphError(f"the name {name!r} of an input is taken, or it is not an identifier")
        value = Value(name, dtype, dims(shape))
        self.inputs.append(value)
        return value

    def constant(self, data: Any, name: str = "c", dtype: str | None = None) -> Value:
        """Add a constant; a Python number becomes float32 or int64.

        Data of bfloat16 and float8 is its bits, or numbers to round.
        """
        if dtype is None and isinstance(data, (int, float)) and not isinstance(data, bool):
            dtype = "float32" if isinstance(data, float) else "int64"
        if dtype is not None and kept_as_bits(dtype) and np.asarray(data).dtype != to_numpy(dtype):
            data = to_bits(data, dtype)
        array = np.asarray(data, None if dtype is None else to_numpy(dtype), order="C").reshape(np.shape(data))
        value = Value(self.fresh(name), dtype or array.dtype.name, tuple(array.shape))
        self.constants[value] = array
        return value

    def op(self, op: str, *inputs: Value | None, name: str = "", **attrs: Any) -> Value:
        """Add an operator of one result, and return it."""
        outputs = self.several(op, *inputs, names=(name,) if name else (), **attrs)
        if len(outputs) != 1:
            raise GraphError(f"{op} has {len(outputs)} results; Builder.several returns all")
        return outputs[0]

    def several(self, op: str, *inputs: Value | None, names: Sequence[str] = (), **attrs: Any) -> tuple[Value, ...]:
        """Add an operator, and return its results."""
        types = infer(op, inputs, attrs)
        chosen = [*names, *[op] * (len(types) - len(names))]
        outputs = tuple([Value(self.fresh(n), *t) for n, t in zip(chosen, types, strict=True)])
        self.nodes.append(Node(op, inputs, outputs, dict(attrs)))
        return outputs

    def fresh(self, name: str) -> str:
        """Returns an identifier like ``name`` that nothing has yet, and takes it."""
        out = self.unused(name)
        self._taken.add(out)
        return out

    def unused(self, name: str) -> str:
        """Returns an identifier like ``name`` that nothing has yet."""
        base = _NOT_IN_NAMES.sub("_", name) or "v"
        base = base if base.isidentifier() and base.isascii() else f"v_{base}" if base.isascii() else "v"
        out = base
        while out in self._taken:
            self._uses[base] += 1
            out = f"{base}_{self._uses[base]}"
        return out

    def graph(self, outputs: Sequence[Value]) -> Graph:
        """Returns the graph that computes ``outputs``."""
        return Graph(self.name, tuple(self.inputs), tuple(outputs), tuple(self.nodes), dict(self.constants))


SCAN = "scan"
"""The operator's name."""


def _types(
    *tensors: Tensor | None, body: Graph, states: int, arrays: int, steps: Any, history: Any = (), reverse: bool = False
) -> tuple[Tensor, ...]:
    """Returns placeholders for the results of a scan; ValueError for inputs that do not fit the body."""
    given = [t for t in tensors if t is not None]
    if len(given) != len(body.inputs) or states + arrays > len(given) or states > len(body.outputs):
        raise ValueError(f"scan: {len(given)} inputs for {len(body.inputs)} of the body, {states} + {arrays} of them")
    if not set(history) <= set(range(states)):
        raise ValueError(f"scan: history={history} names no states; there are {states}")
    if isinstance(steps, int) and steps < 0:
        raise ValueError(f"scan: {steps} steps")
    if history and not (isinstance(steps, int) and steps > 0):
        raise ValueError(f"scan: history={history} for {steps} steps; it needs a known number of them, at least one")
    plain = states and not arrays and not history and len(body.outputs) == states
    if steps is None and not (plain and given[0].dtype == "bool" and not given[0].ndim):
        raise ValueError(
            "scan: a loop without a number of steps has states alone, and the first says whether it goes on"
        )
    count = None if steps is None else dims([steps])[0]
    for n, (tensor, v) in enumerate(zip(given, body.inputs, strict=True)):
        wanted = v.shape if count is None or not states <= n < states + arrays else (count, *v.shape)
        if tensor.dtype != v.dtype or not same_shape(dims(tensor.shape), wanted):
            raise ValueError(f"scan: input {n} does not fit {v.name}, {v.type_text}, of the body for {count} steps")
    for before, after in zip(body.inputs[:states], body.outputs, strict=False):
        if before.dtype != after.dtype or not same_shape(before.shape, after.shape):
            raise ValueError(f"scan: the state {before} becomes {after}")
    made = []
    for n, v in enumerate(body.outputs):
        shape = v.shape if count is None or (n < states and n not in history) else (count, *v.shape)
        made.append(te.placeholder(shape, v.dtype, v.name))
    return tuple(made)


register_operator(SCAN, _types, "opaque")

Step = Callable[[Sequence[Value], Sequence[Value]], tuple[Sequence[Value], Sequence[Value]]]
"""A function of the states and the parts of arrays at one step that returns the new states and the rows."""


def add_scan(
    builder: Builder,
    states: Sequence[Value],
    arrays: Sequence[Value],
    step: Step,
    *,
    steps: Dim | None = None,
    reverse: bool = False,
) -> tuple[list[Value], list[Value]]:
    """Add a loop, and return the states after it and the stacked rows.

    ``step`` adds the operators of one step to ``builder``; values that it takes from outside become inputs of the body, or
    its constants. ``steps``: how many there are, when no array says so.
    """
    count = arrays[0].shape[0] if arrays else steps
    if count is None:
        raise GraphError("scan: how many steps there are is not given")
    taken = [Value(builder.fresh(v.name), v.dtype, v.shape) for v in states]
    parts = [Value(builder.fresh(v.name), v.dtype, v.shape[1:]) for v in arrays]
    before = len(builder.nodes)
    try:
        new, rows = step(taken, parts)
        nodes = builder.nodes[before:]
    finally:
        del builder.nodes[before:]
    body, others = _body(builder, [*taken, *parts], nodes, [*new, *rows])
    told = isinstance(count, int) and count > 0  # the place of the last row
    history = {n: next(k for k, row in enumerate(rows) if row is v) for n, v in enumerate(new) if told and v in rows}
    shown = [k for k in range(len(rows)) if k not in history.values()]
    kept = tuple([v for k, v in enumerate(body.outputs) if k < len(new) or k - len(new) in shown])
    results = builder.several(
        SCAN, *states, *arrays, *others, body=body.replaced(body.nodes, outputs=kept), states=len(states),
        arrays=len(arrays), steps=count, history=tuple(history), reverse=reverse,
    )  # fmt: skip
    whole = dict(zip(shown, results[len(new) :], strict=True)) | {k: results[n] for n, k in history.items()}
    ends = [_end(builder, v, count, reverse) if n in history else v for n, v in enumerate(results[: len(new)])]
    return ends, [whole[k] for k in range(len(rows))]


def add_while(
    builder: Builder,
    states: Sequence[Value],
    condition: Callable[[Sequence[Value]], Value],
    step: Callable[[Sequence[Value]], Sequence[Value]],
) -> list[Value]:
    """Add a loop that goes on as long as ``condition`` holds for its states, and return the states after it.

    Both functions add operators to ``builder``. The condition is asked before each step, also the first one.
    """
    goes_on = condition(states)
    taken = [Value(builder.fresh(v.name), v.dtype, v.shape) for v in (goes_on, *states)]
    before = len(builder.nodes)
    try:
        new = list(step(taken[1:]))
        results = [condition(new), *new]
        nodes = builder.nodes[before:]
    finally:
        del builder.nodes[before:]
    body, others = _body(builder, taken, nodes, results)
    made = builder.several(SCAN, goes_on, *states, *others, body=body, states=len(taken), arrays=0, steps=None)
    return list(made[1:])


def add_cond(
    builder: Builder, chosen: Value, first: Callable[[], Sequence[Value]], second: Callable[[], Sequence[Value]]
) -> list[Value]:
    """Add both branches of a choice that depends on data, and return the results of the one that is chosen.

    ``first`` is the branch for a truth value ``chosen`` of one element that holds; both functions add operators to
    ``builder``. GraphError for branches whose results differ in number, type or shape.

    Branches of few operators are computed both, and their results selected. A branch with a loop inside is a loop of
    one step, or of none where the other branch is chosen.
    """
    flag = chosen if chosen.dtype == "bool" else builder.op("not_equal", chosen, builder.constant(0, "c", chosen.dtype))
    flag = builder.op("reshape", flag, shape=()) if flag.ndim else flag
    before = len(builder.nodes)
    sides = [list(first()), list(second())]
    if len(sides[0]) != len(sides[1]):
        raise GraphError(f"one branch gives {len(sides[0])} results, the other {len(sides[1])}")
    for n, (a, b) in enumerate(zip(*sides, strict=True)):
        if a.dtype != b.dtype or not same_shape(a.shape, b.shape):
            raise GraphError(f"result {n} is {a.type_text} in one branch and {b.type_text} in the other")
    if not any(node.op == SCAN for node in builder.nodes[before:]):
        return [a if a is b else builder.op("where", flag, a, b) for a, b in zip(*sides, strict=True)]
    del builder.nodes[before:]
    results = [builder.op("broadcast_to", builder.constant(0, "c", v.dtype), shape=v.shape) for v in sides[0]]
    no = builder.constant(False, "c", "bool")

    def where(turn: Value, branch: Callable[[], Sequence[Value]], otherwise: Sequence[Value]) -> list[Value]:
        return add_while(builder, [turn, *otherwise], lambda states: states[0], lambda states: [no, *branch()])[1:]

    return where(builder.op("logical_not", flag), second, where(flag, first, results))


def _body(
    builder: Builder, inputs: Sequence[Value], nodes: Sequence[Node], outputs: Sequence[Value]
) -> tuple[Graph, list[Value]]:
    """Returns the body's graph, and the values from outside that are its further inputs."""
    made = {*inputs, *[v for node in nodes for v in node.outputs]}
    read = dict.fromkeys([v for node in nodes for v in node.given] + list(outputs))
    outside = [v for v in read if v not in made]
    constants = {v: builder.constants[v] for v in outside if v in builder.constants}
    others = [v for v in outside if v not in constants]
    return Graph(builder.fresh("step"), (*inputs, *others), tuple(outputs), tuple(nodes), constants), others


def _end(builder: Builder, rows: Value, count: Dim, reverse: bool) -> Value:
    """Returns the row of the last step."""
    return builder.op("take", rows, builder.constant(0 if reverse else count - 1), axis=0)
