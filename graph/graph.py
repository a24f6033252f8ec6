"""This module defines graphs: values with a data type and a shape, the operators that compute them, and constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ..pages.short_repr import short_repr
from ..tir.analysis.simplify import simplify
from ..tir.expr import Expr, IntImm, Var, array_bytes, same

Dim = Any
"""An extent: an ``int``, or an expression of symbolic sizes (:func:`tilewright.te.var`)."""


class GraphError(ValueError):
    """Raised for a graph that is not well-formed, or an operator that does not fit its inputs."""


def dims(shape: Iterable[Any]) -> tuple[Dim, ...]:
    """Returns extents in their simplest form, with constants as Python numbers."""
    return tuple([_dim(d) for d in shape])


def _dim(extent: Any) -> Dim:
    if isinstance(extent, Expr) and not isinstance(extent, (IntImm, Var)):
        extent = simplify(extent)
    if isinstance(extent, IntImm):
        return int(extent.value)
    return extent if isinstance(extent, Expr) else int(extent)


def same_shape(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> bool:
    """Returns whether two shapes are equal for sure."""
    if len(a) != len(b):
        return False
    return all(x == y if isinstance(x, int) or isinstance(y, int) else same(x, y) for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value is an array that an input, a constant or an operator provides. Values are compared by identity.

    ``shape`` holds numbers, and expressions of symbolic sizes; ``dtype`` is a data type of TIR, as ``float32``.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    @property
    def ndim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Returns whether all extents are numbers."""
        return all(isinstance(d, int) for d in self.shape)

    @property
    def bytes(self) -> int:
        """Returns the size in bytes; the shape has to be static."""
        return array_bytes(self.shape, self.dtype)

    @property
    def type_text(self) -> str:
        """Returns data type and shape as text, ``float32[n, 3]``."""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return f"{self.name}: {self.type_text}"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node is one application of an operator. An optional input that is left out is None."""

    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> Value:
        """Returns the only output."""
        (out,) = self.outputs
        return out

    @property
    def body(self) -> Graph | None:
        """Returns the graph that a loop runs at each step; None for operators that are no loops."""
        found = self.attrs.get("body")
        return found if isinstance(found, Graph) else None

    @property
    def given(self) -> Iterator[Value]:
        """Yields the inputs that are not left out."""
        return (v for v in self.inputs if v is not None)

    def __repr__(self) -> str:
        return f"<{self.op} -> {', '.join(v.name for v in self.outputs)}>"


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph is a network: inputs, operators in an order in which each follows what it reads, outputs, and constants.

    A graph is not changed; passes make new ones. ``str(graph)`` is its text, which :func:`.text.parse` reads.
    ``bounds``: the largest values of symbolic sizes, by name, where the program says them; passes and text leave them out.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[Value, np.ndarray[Any, Any]] = field(default_factory=lambda: MappingProxyType({}))
    bounds: Mapping[str, int] = field(default_factory=dict)

    __repr__ = short_repr("name", "inputs", "outputs", "nodes")

    def producers(self) -> dict[Value, Node]:
        """Returns the operator that computes each value; inputs and constants have none."""
        return {v: node for node in self.nodes for v in node.outputs}

    def users(self) -> dict[Value, list[Node]]:
        """Returns the operators that read each value, one entry per operator."""
        out: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in dict.fromkeys(node.given):
                out.setdefault(v, []).append(node)
        return out

    def values(self) -> Iterator[Value]:
        """Yields the inputs, the constants and the results, each once."""
        yield from self.inputs
        yield from self.constants
        for node in self.nodes:
            yield from node.outputs

    def replaced(self, nodes: Sequence[Node], **changes: Any) -> Graph:
        """Returns the graph with other operators, and other ``outputs`` or ``constants`` where they are given."""
        fields = {"name": self.name, "inputs": self.inputs, "outputs": self.outputs, "constants": self.constants}
        return Graph(nodes=tuple(nodes), **{**fields, **changes})

    def __str__(self) -> str:
        from .text import script  # which makes graphs, too

        return script(self)


def bodies(graph: Graph) -> Iterator[Graph]:
    """Yields the bodies of the loops in a graph."""
    return (node.body for node in graph.nodes if node.body is not None)
