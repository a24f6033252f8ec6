"""This module defines what the converters of all front ends get: a call in a foreign program, and a builder."""

from __future__ import annotations

from typing import Any, ClassVar

from ..graph.builder import Builder
from ..graph.graph import Value


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
