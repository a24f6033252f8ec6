"""Networks whose graph depends on values that only a call has: axes, sizes and counts among the inputs, conditions.

A size is such a value, too, where a dimension is left out if it is 1.

A reader that needs such a value makes a :class:`Question` of it, with the graph that computes the value. Once it is
answered, the rest is read with the answer as a constant, up to the next question, or to the end: then it is a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..pages.messages import short_repr
from ..tir.analysis.known_ranges import evaluate
from ..tir.expr import Expr, Var
from .graph import Graph, Value

LARGEST_ANSWER = 1 << 16
"""The most elements of a value that decides a graph."""

Answers = Mapping[str, Any]
"""Arrays by the names of the values that they answer; bfloat16 and float8 are their bits. A :data:`Layout` for an
:class:`OpenInput`, a truth value for a :class:`UnitSize`."""

Layout = tuple[Any, ...] | None
"""What an open input is in a call: None, ``("tensor", shape)``, or ``("list", shape, shape, …)``."""


@dataclass(frozen=True, eq=False)
class OpenInput:
    """An input that is a list of arrays, or may be left out, which decides the graph."""

    name: str
    kind: str

    def __repr__(self) -> str:
        return f"{self.name}: {self.kind}"


@dataclass(frozen=True, eq=False)
class UnitSize:
    """Whether a size is 1 in a call. ``places``: by the symbolic sizes in it the inputs and dimensions that have them."""

    name: str
    extent: Expr
    places: Mapping[Var, tuple[str, int]]

    __repr__ = short_repr("name")

    def holds(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Returns whether the size is 1 for inputs of these shapes."""
        sizes = {var: shapes[name][d] for var, (name, d) in self.places.items()}
        return bool(evaluate(self.extent, sizes) == 1)


def item_name(name: str, n: int) -> str:
    """Returns the name of the input of a graph that is the item ``n`` of a list."""
    return f"{name}_item{n}"


@dataclass(frozen=True, eq=False)
class Question:
    """A value that has to be known before a network is read further.

    The answer goes under ``name``. ``graph`` computes it of the network's inputs; None says that ``value`` is one of them.
    ``inputs`` are the names of those on which it depends, ``reason`` says which operator asks.
    """

    name: str
    value: Value | OpenInput | UnitSize
    inputs: tuple[str, ...]
    reason: str
    graph: Graph | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class ValueDependentGraph:
    """A network whose graph depends on values of its inputs: a call has them, and :func:`tilewright.build` takes it.

    ``read`` returns the graph for answers, or the next question; ``question`` is the first one.
    """

    name: str
    inputs: tuple[Value | OpenInput, ...]
    question: Question
    read: Callable[[Answers], Graph | Question] = field(repr=False)

    __repr__ = short_repr("name", "inputs")

    def refusal(self) -> str:
        """Returns why this is no graph yet, and what makes it one."""
        if isinstance(self.question.value, OpenInput):
            return f"the graph of {self.name} depends on what a call gives as {self.question.value}"
        given = ", ".join([f"{name!r}: …" for name in self.question.inputs])
        if isinstance(self.question.value, UnitSize):
            return f"the graph of {self.name} depends on sizes of a call: {self.question.reason}; shapes={{{given}}} gives them ahead"
        return (
            f"the graph of {self.name} depends on values of its inputs: {self.question.reason}; "
            f"constants={{{given}}} gives them ahead"
        )

    def __getattr__(self, name: str) -> Any:
        if name in Graph.__dataclass_fields__ or hasattr(Graph, name):
            raise AttributeError(self.refusal())
        raise AttributeError(f"a ValueDependentGraph has no {name}")
