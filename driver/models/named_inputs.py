"""This module puts the inputs of a call into the order in which a model takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...graph.graph import Value


def inputs_in_order(name: str, values: Sequence[Value], inputs: Sequence[Any], named: Mapping[str, Any]) -> tuple[Any, ...]:  # fmt: skip
    """Returns the inputs of the model ``name``, which takes ``values``. TypeError when there are too few, too many, or
    unknown ones."""
    names = [v.name for v in values]
    if len(inputs) + len(named) == len(names) and all([n in named for n in names[len(inputs) :]]):
        return (*inputs, *[named[n] for n in names[len(inputs) :]])
    unknown = sorted(set(named) - set(names))
    twice = [n for n in names[: len(inputs)] if n in named]
    absent = [n for n in names[len(inputs) :] if n not in named]
    takes = f"{name} takes {len(names)} inputs ({', '.join(map(repr, values))})"
    if unknown:
        raise TypeError(f"{takes}; none is called {', '.join(unknown)}")
    if twice:
        raise TypeError(f"{takes}; {twice[0]} is given by position and by name")
    if len(inputs) > len(names):
        raise TypeError(f"{takes}, not {len(inputs)}")
    raise TypeError(f"{takes}, not {len(inputs) + len(named)}: {', '.join(absent)} is not given")
