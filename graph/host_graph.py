"""This module defines graphs between steps that Python computes, such as those that work on texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..pages.short_repr import short_repr
from ..tir.expr import to_numpy
from .graph import Graph, GraphError, Value

TEXT = "string"
"""The data type of texts: arrays of Python's ``str``, NumPy's type ``object``."""


@dataclass(frozen=True)
class HostStep:
    """A step is a node that Python computes: ``run(*arrays)`` returns its results.

    ``label`` names it in messages; ``inputs`` (None: left out) and ``outputs`` are names of values.
    """

    label: str
    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    run: Callable[..., Sequence[Any]]

    def results(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the results by name; GraphError names the step when the data do not fit it."""
        given = [None if name is None else np.asarray(values[name]) for name in self.inputs]
        try:
            return dict(zip(self.outputs, self.run(*given), strict=False))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise GraphError(f"{self.label}: {error}") from error

    def __str__(self) -> str:
        given = [name or "None" for name in self.inputs] + [f"{k}={v!r}" for k, v in self.attributes.items()]
        return f"{', '.join(self.outputs)} = {self.op}({', '.join(given)})"


@dataclass(frozen=True, eq=False)
class HostGraph:
    """A host graph is a graph with steps before and after it that Python computes. ``graph`` is None where they are all.

    ``graph_inputs`` and ``graph_outputs`` name the values that go into and come out of the graph. Values of texts have
    the data type :data:`TEXT`, and their symbolic sizes are names.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    constants: Mapping[str, Any]
    before: tuple[HostStep, ...]
    graph: Graph | None
    graph_inputs: tuple[str, ...]
    graph_outputs: tuple[str, ...]
    after: tuple[HostStep, ...]

    __repr__ = short_repr("name", "inputs", "outputs", "before", "graph")

    @property
    def steps(self) -> tuple[HostStep, ...]:
        """Returns the steps that Python computes, in order."""
        return (*self.before, *self.after)

    def run(self, inputs: Sequence[Any], compute: Callable[..., Any] | None) -> tuple[Any, ...]:
        """Returns the outputs. ``compute`` takes the inputs of the graph and returns its outputs, one or a tuple.

        GraphError when an input does not have its data type and shape.
        """
        values = {**self.constants, **{v.name: _checked(v, data) for v, data in zip(self.inputs, inputs, strict=True)}}
        for step in self.before:
            values.update(step.results(values))
        if compute is not None:
            made = compute(*[_packed(values[name]) for name in self.graph_inputs])
            values.update(zip(self.graph_outputs, made if isinstance(made, tuple) else (made,), strict=True))
        for step in self.after:
            values.update(step.results(values))
        return tuple([values[v.name].copy() if v.name in self.constants else values[v.name] for v in self.outputs])

    def __str__(self) -> str:
        inside = [] if self.graph is None else str(self.graph).splitlines()
        lines = [*map(str, self.before), *inside, *map(str, self.after), f"return {', '.join(map(repr, self.outputs))}"]
        return "\n".join([f"host {self.name}({', '.join(map(repr, self.inputs))}):", *[f"    {one}" for one in lines]])


def _packed(data: Any) -> Any:
    return np.asarray(data, order="C") if isinstance(data, np.ndarray) else data


def _checked(v: Value, data: Any) -> Any:
    """Returns an input, texts as an array of objects. Arrays of other libraries go to the compiled graph as they are."""
    if v.dtype == TEXT:
        data = _texts(v, np.asarray(data))
    elif isinstance(data, (np.ndarray, np.generic)) and data.dtype != to_numpy(v.dtype):
        raise GraphError(f"the input {v} is given as {data.dtype}{list(data.shape)}")
    shape = tuple(getattr(data, "shape", ()))
    fixed = zip(v.shape, shape, strict=False)
    if len(shape) != v.ndim or any(isinstance(want, int) and want != got for want, got in fixed):
        raise GraphError(f"the input {v} is given with the shape {list(shape)}")
    return data


def _texts(v: Value, data: Any) -> Any:
    kinds = {type(one) for one in data.flat} if data.dtype.kind == "O" else set()
    if data.dtype.kind not in "OUST" or not kinds <= {str, np.str_, bytes}:
        wrong = sorted(kind.__name__ for kind in kinds - {str, np.str_, bytes})
        raise GraphError(f"the input {v} takes an array of texts, not of {', '.join(wrong) or data.dtype}")
    return as_texts(data)


def as_texts(data: Any) -> Any:
    """Returns texts as an array of ``str`` objects; bytes are decoded as UTF-8."""
    out = np.empty(data.shape, object)
    out.reshape(-1)[:] = [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in data.flat]
    return out
