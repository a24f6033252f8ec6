"""What the converters of all front ends get: a call in a foreign program with a builder. Tables hold the converters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import GraphError, Value
from ...pages.messages import near_words
from ...te.ops.arguments import from_front, sizes_analyzer
from ...te.ops.elements import ElementOperator
from ...tir.expr import Expr, vars_in

Converter = Callable[..., Any]
"""Takes a :class:`GraphCall`, and further arguments where the front end has some; returns what the call
gives: a value, or a tuple of values."""

C = TypeVar("C", bound=Converter)
Key = TypeVar("Key")


def entering(table: MutableMapping[Key, Converter], *keys: Key) -> Callable[[C], C]:
    """Returns a decorator that enters a converter under keys; ValueError for a key that has a converter already.

    >>> table = {}
    >>> @entering(table, "twice", "double")
    ... def twice(c, x):
    ...     return c.op("add", x, x)
    >>> sorted(table)
    ['double', 'twice']
    """

    def enter(function: C) -> C:
        for key in keys:
            if key in table:
                raise ValueError(
                    f"{key!r} has two converters: {_place(table[key])} and {_place(function)}. "
                    "Leave one out; to replace a converter, delete it from the table first"
                )
            table[key] = function
        return function

    return enter


def enter_row(table: MutableMapping[Key, Converter], row: ElementOperator, convert: Converter, *keys: Key) -> None:
    """Enter the converter that a front end has made of a row of the table of element-wise operators."""
    convert.__qualname__ = f"ELEMENTS[{row.name!r}]"
    entering(table, *keys)(convert)


def _place(function: Converter) -> str:
    return f"{function.__module__}.{function.__qualname__}"


_SHOWN = 20


class UnsupportedOperators(ValueError):
    """Raised when operators have no converter; ``operators`` has the places of their uses by operator. ``adder`` names the
    function that registers a converter, ``otherwise`` and ``hint`` say what else can be done. Each front end derives an error
    of its own."""

    what, adder, otherwise = "program", "", ""

    def __init__(self, operators: Mapping[str, Sequence[str]], hint: str = "") -> None:
        self.operators = {name: list(places) for name, places in operators.items()}
        lines = [f"{name}: {len(places)} (first: {places[0]})" for name, places in self.operators.items()]
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        super().__init__(
            f"the {self.what} uses operators that are not supported: {'; '.join([*lines[:_SHOWN], *more])}. "
            f"{self.adder} adds one{self.otherwise}{hint}"
        )


def require_inputs(option: str, given: Iterable[str], inputs: Iterable[str], failure: type[ValueError]) -> None:
    """Raise ``failure`` for a name in ``given`` that is none of ``inputs``, with the name that was probably meant."""
    names = list(inputs)
    for name in given:
        if name not in names:
            near = near_words(str(name), names, 1)
            listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            raise failure(
                f"{option} names {str(name)!r}, which is no input{f'; did you mean {near[0]!r}?' if near else ''} "
                f"(there are: {listed or 'none'})"
            )


LARGEST_PLACES = 1 << 22
"""The most places that become a constant."""


def add_sizes(builder: Builder, numbers: Any, dtype: str, beside: Sequence[Value] = ()) -> Value:
    """Returns an array of numbers of which some are expressions of symbolic sizes, as data that kernels read.

    ``numbers`` is a number, an expression, or an array of them. Sizes are told by inputs of the graph that have them as an
    extent, else by other values. GraphError for a size that no value has.
    """
    data = np.asarray(numbers, object)
    flat = list(data.flat)
    if not any(isinstance(e, Expr) for e in flat):
        return builder.constant(data.astype(np.int64), "c", dtype)
    values = [*builder.inputs, *beside, *[v for node in builder.nodes for v in node.outputs]]
    holders: dict[Value, None] = {}
    for var in dict.fromkeys(v for e in flat if isinstance(e, Expr) for v in sorted(vars_in(e), key=lambda v: v.name)):
        found = next((v for v in values if any(d is var for d in v.shape)), None)
        if found is None:
            raise GraphError(f"the size {var} is data here, and no value has it as an extent")
        holders[found] = None
    number = flat[0] if data.ndim == 0 else tuple(flat)
    out = builder.op("size_number", *holders, number=number, dtype=dtype)
    return out if data.ndim < 2 else builder.op("reshape", out, shape=data.shape)


class GraphCall:
    """One call in a program that is read into a graph. ``label`` names it in messages. Each front end derives a class with
    the call's arguments, and names its error."""

    failure: ClassVar[type[ValueError]] = ValueError

    def __init__(self, builder: Builder, label: str) -> None:
        self.builder, self.label = builder, label

    def error(self, problem: str) -> ValueError:
        """Returns an error that names the call."""
        return self.failure(f"{self.label}: {problem}")

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Add an operator of one result."""
        return self.builder.op(op, *inputs, **attrs)

    def several(self, op: str, *inputs: Value | None, **attrs: Any) -> tuple[Value, ...]:
        """Add an operator of several results."""
        return self.builder.several(op, *inputs, **attrs)

    def constant(self, data: Any, dtype: str | None = None) -> Value:
        """Add a constant; a Python number without a data type becomes float32 or int64."""
        return self.builder.constant(data, "c", dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        """Returns ``x`` converted, floats towards zero; ``x`` itself when it has the data type."""
        if x.dtype == dtype:
            return x
        if dtype == "bool":
            return self.op("not_equal", x, self.constant(0, x.dtype))
        return self.op("cast", x, dtype=dtype)

    def size(self, extent: Any, dtype: str) -> Value:
        """Returns a size as a scalar, or an array of sizes; symbolic ones are what the call says."""
        return add_sizes(self.builder, extent, dtype)

    def places(self, extent: Any, dtype: str = "int64", axis: int = 0, rank: int = 1) -> Value:
        """Returns 0, 1, … up to an extent, which may be symbolic, along one of ``rank`` dimensions; the others have 1."""
        shape: list[Any] = [1] * rank
        shape[axis] = extent
        if isinstance(extent, int) and extent <= LARGEST_PLACES:
            return self.constant(np.arange(extent).reshape(shape), dtype)
        zero = self.op("broadcast_to", self.constant(0, dtype), shape=tuple(shape))
        return self.op("places", zero, axis=axis, dtype=dtype)

    def part(self, x: Value, axis: int, begin: Any, count: Any, step: int = 1) -> Value:
        """Returns ``count`` elements along an axis, from ``begin`` on, which counts from 0; the call checks that they exist."""
        starts, counts, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
        starts[axis], counts[axis], strides[axis] = begin, count, step
        attrs = {"begin": tuple(starts), "end": tuple(counts), "strides": tuple(strides), "slice_mode": "size"}
        return self.op("strided_slice", x, **attrs)

    def place(self, index: Any, extent: Any) -> Any:
        """Returns an index, a number or an expression of sizes, counted from the front of an axis."""
        return from_front(index, extent, sizes_analyzer(index, extent))

    def from_the_start(self, indices: Value, extent: Any) -> Value:
        """Returns indices counted from 0; negative ones count from the end of an axis of ``extent`` elements."""
        data = self.builder.constants.get(indices)
        if data is not None and (isinstance(extent, int) or not (data < 0).any()):
            return self.constant(np.where(data < 0, data + extent, data), indices.dtype) if data.size else indices
        if indices.dtype.startswith("uint"):
            return indices
        wrapped = self.op("add", indices, self.size(extent, indices.dtype))
        return self.op("where", self.op("less", indices, self.constant(0, indices.dtype)), wrapped, indices)
