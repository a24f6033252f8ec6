"""This module builds graphs operator by operator; types are inferred, names are made unique."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..pages.short_repr import short_repr
from ..tir.expr import to_numpy
from ..tir.expr.dtype import bfloat16_to_bits
from .graph import Graph, GraphError, Node, Value, bodies, dims
from .graph_operators import infer

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
        """Add a constant; a Python number becomes float32 or int64. Data of bfloat16 is its bits, or numbers to round."""
        if dtype is None and isinstance(data, (int, float)) and not isinstance(data, bool):
            dtype = "float32" if isinstance(data, float) else "int64"
        if dtype == "bfloat16" and np.asarray(data).dtype != np.uint16:
            data = bfloat16_to_bits(np.asarray(data, np.float32))
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
