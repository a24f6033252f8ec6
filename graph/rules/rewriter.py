"""This module applies rules to a graph until none of them fits any more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.expr import DType, to_numpy
from ...tir.expr.base.rounding import bfloat16_to_bits
from ..graph import Graph, GraphError, Node, Value, same_shape
from ..graph_operators import infer
from ..rewrite import substituted, without_unread
from .pattern import Bindings, Known, Pattern, numbers_of, roots

_ROUNDS = 50
"""The most sweeps over a graph; more mean that rules undo each other."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A pattern, and a function that returns the value that replaces what fits, or None to leave it."""

    name: str
    pattern: Pattern
    replace: Callable[[Match], Value | None]


def rule(pattern: Pattern) -> Callable[[Callable[[Match], Value | None]], Rule]:
    """Returns a decorator that makes a rule of the function that replaces ``pattern``."""
    return lambda replace: Rule(getattr(replace, "__name__", "rule"), pattern, replace)


@dataclass(frozen=True)
class Match:
    """What a pattern fits. ``match[name]`` is the value that a part of it stands for; ``op`` and ``constant`` make the
    replacement."""

    bound: Bindings
    root: Node
    _sweep: _Sweep
    rule: str = "a rule"

    def __getitem__(self, name: str) -> Value:
        found: Value = self._named(name)
        return found

    def _named(self, name: str) -> Any:
        if name not in self.bound:
            known = ", ".join(map(repr, self.bound)) or "nothing"
            raise GraphError(f"the rule {self.rule} asks for {name!r}; what fits its pattern here names {known}")
        return self.bound[name]

    def __contains__(self, name: str) -> bool:
        return name in self.bound

    def node(self, name: str) -> Node:
        """Returns the operator that ``bind`` has named."""
        found: Node = self._named(name)
        return found

    @property
    def out(self) -> Value:
        """Returns the value that is replaced."""
        return self.root.output

    def fits(self, value: Value) -> bool:
        """Returns whether a value has the type and the shape of what is replaced: no operand was broadcast or widened."""
        return value.dtype == self.out.dtype and same_shape(value.shape, self.out.shape)

    def data(self, value: Value) -> np.ndarray[Any, Any] | None:
        """Returns the data of a constant; None for any other value."""
        return self._sweep.constants.get(value)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Returns the data of the constant that a part of the pattern stands for: bits, where it is bfloat16."""
        return self._sweep.constants[self[name]]

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """Returns the numbers of the constant that a part of the pattern stands for; those of bfloat16 as float32."""
        return numbers_of(self.array(name), self[name].dtype)

    def producer(self, value: Value) -> Node | None:
        """Returns the operator that computes a value."""
        return self._sweep.producers.get(value)

    def readers(self, value: Value) -> int:
        """Returns how many operators read a value, at most; an output of the graph counts as one more."""
        return self._sweep.readers[value]

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Returns the result of a new operator."""
        ((dtype, shape),) = infer(op, inputs, attrs)
        out = Value(self._sweep.fresh(op), dtype, shape)
        self._sweep.append(Node(op, inputs, (out,), attrs))
        return out

    def constant(self, data: Any, dtype: str | None = None) -> Value:
        """Returns a new constant. Data of bfloat16 is its bits, or numbers to round."""
        if dtype is not None and DType(dtype).kind == "bfloat" and np.asarray(data).dtype != np.uint16:
            data = bfloat16_to_bits(np.asarray(data, np.float32))
        array = np.asarray(data, None if dtype is None else to_numpy(dtype), order="C")
        v = Value(self._sweep.fresh("c"), dtype or array.dtype.name, tuple(array.shape))
        self._sweep.constants[v] = array
        return v


class _Sweep:
    """One walk over the operators of a graph, in order. It keeps what has been emitted so far, and what stands for
    what."""

    def __init__(self, graph: Graph, names: set[str]) -> None:
        self.graph, self.names = graph, names
        self.producers: dict[Value, Node] = {}
        self.constants = dict(graph.constants)
        self.nodes: list[Node] = []
        self.mapping: dict[Value, Value] = {}
        self.applied: dict[str, str] = {}
        """What each rule did last, by its name."""
        self.readers: Counter[Value] = Counter(graph.outputs)
        for node in graph.nodes:
            self.readers.update(node.given)

    def fresh(self, name: str) -> str:
        out, n = name, 0
        while out in self.names:
            n += 1
            out = f"{name}_{n}"
        self.names.add(out)
        return out

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        for v in node.outputs:
            self.producers[v] = node

    def run(self, rules: Mapping[str, Sequence[Rule]]) -> Graph:
        for old in self.graph.nodes:
            node = substituted(old, self.mapping)
            new = self.replaced(node, rules.get(node.op, ())) if len(node.outputs) == 1 else None
            if new is None:
                self.append(node)
                continue
            self.mapping[old.output] = new
            self.readers[new] += self.readers[old.output]
        if not self.mapping:
            return self.graph
        outputs = tuple([self.mapping.get(v, v) for v in self.graph.outputs])
        return without_unread(self.graph.replaced(self.nodes, outputs=outputs, constants=self.constants))

    def replaced(self, node: Node, rules: Sequence[Rule]) -> Value | None:
        """Returns what the first rule that fits puts in place of the operator."""
        self.producers[node.output] = node
        for r in rules:
            for bound in r.pattern.match(node.output, Known(self.producers, self.constants), {}):
                new = r.replace(Match(bound, node, self, r.name))
                if new is None:
                    continue
                self.applied[r.name] = f"{_said(node)} becomes {_said(self.producers.get(new)) or new.name}"
                if new.dtype != node.output.dtype or not same_shape(new.shape, node.output.shape):
                    raise GraphError(f"the rule {r.name} puts {new} in place of {node.output}")
                return new
        return None


def rewritten(graph: Graph, rules: Iterable[Rule]) -> Graph:
    """Returns the graph after sweeps of the rules, first come first served, until none fits; unread operators are gone.

    GraphError for rules whose replacement has another type, and for rules that do not come to an end.
    """
    by_op: dict[str, list[Rule]] = {}
    for r in rules:
        found = roots(r.pattern)
        if not found:
            raise GraphError(f"the pattern of the rule {r.name} does not begin with an operator")
        for op in found:
            by_op.setdefault(op, []).append(r)
    names = {v.name for v in graph.values()}
    for _ in range(_ROUNDS):
        sweep = _Sweep(graph, names)
        after = sweep.run(by_op)
        if after is graph:
            return graph
        graph = after
    steps = "; ".join([f"{name}: {said}" for name, said in sorted(sweep.applied.items())])
    raise GraphError(
        f"after {_ROUNDS} sweeps there is still something to replace; the last one: {steps}. A rule must not fit what it "
        "makes, nor make what another rule turns back"
    )


def _said(node: Node | None) -> str:
    """Returns an operator and its operands, ``add(x, y)``; empty for none."""
    return "" if node is None else f"{node.op}({', '.join(['None' if v is None else v.name for v in node.inputs])})"
