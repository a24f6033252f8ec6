"""This module has the table of operators that work on texts. Their functions get one node of a model.

A row has a function of arrays, the data types that it takes and gives, and the shapes that it gives. Texts are arrays of
Python's ``str``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....graph.host_graph import TEXT
from ..call import OnnxError

Shape = tuple[Any, ...]
"""Extents: numbers, and names of sizes that the data tell."""


@dataclass(frozen=True)
class TextCall:
    """One node. ``constants`` are the inputs that are known while the model is read, None for others."""

    op: str
    label: str
    attributes: Mapping[str, Any]
    constants: Sequence[Any]
    outputs: Sequence[str]

    def attr(self, name: str, default: Any = None) -> Any:
        """Returns an attribute; texts as ``str``, lists as tuples, tensors as arrays."""
        return self.attributes.get(name, default)

    def error(self, message: str) -> OnnxError:
        """Returns an error that names the node."""
        return OnnxError(f"{self.label}: {message}")

    def ints(self, n: int, attribute: str = "") -> tuple[int, ...]:
        """Returns numbers that the attribute of older versions says, or a constant that is input ``n``."""
        found = self.attr(attribute)
        data = self.constants[n] if found is None and n < len(self.constants) else found
        if data is None:
            raise self.error(f"input {n} has to be a constant")
        return tuple([int(d) for d in np.ravel(data)])

    def size(self, output: int, axis: int) -> str:
        """Returns the name of a size that only the data tell."""
        return f"{self.outputs[output]}_{axis}"


@dataclass(frozen=True)
class TextOperator:
    """A row of the table.

    ``run(call, *arrays)`` returns an array, or a tuple of arrays. ``takes`` has a letter for each input, the last one for
    all that follow: ``t`` texts, ``n`` numbers, ``.`` both. ``gives``: the data types of the results, or a function of
    the call. ``shapes(call, *shapes)`` returns the shape of each result. ``always``: also without texts.
    """

    run: Callable[..., Any]
    takes: str
    gives: Sequence[str] | Callable[[TextCall], Sequence[str]]
    shapes: Callable[..., Sequence[Shape]]
    always: bool

    def dtypes(self, call: TextCall) -> Sequence[str]:
        """Returns the data types of the results."""
        return self.gives(call) if callable(self.gives) else self.gives

    def check(self, call: TextCall, names: Sequence[str | None], dtypes: Sequence[str | None]) -> None:
        """Raise OnnxError when an input has a data type that the operator does not take."""
        for n, (name, dtype) in enumerate(zip(names, dtypes, strict=True)):
            want = self.takes[min(n, len(self.takes) - 1)]
            fits = dtype == TEXT if want == "t" else dtype != "bfloat16" and (want == "." or dtype != TEXT)
            if name is not None and not fits:
                kind = {"t": "texts", "n": "numbers", ".": "texts or numbers"}[want]
                raise call.error(f"input {n}, {name}, is of the data type {dtype}; here it takes {kind}")


TEXT_OPERATORS: dict[tuple[str, str], TextOperator] = {}
"""The operators that work on texts, by domain and name."""


def same_shape(call: TextCall, *shapes: Shape) -> Sequence[Shape]:
    """Returns the shape of the first input, for each result."""
    return [shapes[0]] * len(call.outputs)


def broadcast_shape(call: TextCall, *shapes: Shape) -> Sequence[Shape]:
    """Returns the shape to which all inputs broadcast."""
    out: list[Any] = []
    for axis in range(1, max(map(len, shapes)) + 1):
        extents = [s[-axis] for s in shapes if len(s) >= axis and s[-axis] != 1]
        if len({e for e in extents if isinstance(e, int)}) > 1:
            raise call.error(f"the shapes {', '.join(map(str, shapes))} do not broadcast")
        numbers = [e for e in extents if isinstance(e, int)]
        out.insert(0, (numbers or extents or [1])[0])
    return [tuple(out)]


def text_operator(
    name: str,
    takes: str = "t",
    gives: Sequence[str] | Callable[[TextCall], Sequence[str]] = (TEXT,),
    shapes: Callable[..., Sequence[Shape]] = same_shape,
    *,
    domain: str = "",
    always: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that enters a function as the row of an operator."""

    def enter(run: Callable[..., Any]) -> Callable[..., Any]:
        TEXT_OPERATORS[domain, name] = TextOperator(run, takes, gives, shapes, always)
        return run

    return enter


def mapped(function: Callable[[Any], Any], data: Any, dtype: str) -> Any:
    """Returns ``function`` of each element, as an array of the data type."""
    out = np.empty(data.shape, object if dtype == TEXT else dtype)
    out.reshape(-1)[:] = [function(one) for one in data.reshape(-1).tolist()]
    return out
