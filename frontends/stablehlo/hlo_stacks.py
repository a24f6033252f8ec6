"""This module follows arrays of which each step of a loop sets one row. The results of ``jax.lax.scan`` are stored like
that.

A loop reads its body with such arrays as stacks. An update of one row makes a :class:`Row` of a stack; any other use of
either says that the array is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import Node, Value
from .known_arrays import Known


class NotStackedError(Exception):
    """Raised for stacks that are more than rows stored one by one."""

    def __init__(self, stacks: Sequence[Stack]) -> None:
        super().__init__(f"values {[s.place for s in stacks]} of a loop are no rows")
        self.stacks = stacks


@dataclass(frozen=True)
class Stack:
    """A stack stands for an array whose rows a loop stores; ``place`` is its number among the values of ``loop``."""

    loop: object
    place: int
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """A row is ``value``, which is stored at the index ``at`` of a stack. The first dimension of the value has extent
    1."""

    stack: Stack
    value: Any
    at: Any


def stacked(name: str, args: Sequence[Any]) -> Row | None:
    """Returns the row that an operation stores, None for one without stacks. NotStackedError for other uses of them."""
    found = stacks_among(args)
    if not found:
        return None
    first, *rest = args
    if name == "stablehlo.dynamic_update_slice" and isinstance(first, Stack) and len(found) == 1:
        new, at, *others = rest
        if new.shape[:1] == (1,) and new.shape[1:] == first.shape[1:] and all(map(_is_zero, others)):
            return Row(first, new, at)
    raise NotStackedError(found)


def stacks_among(args: Sequence[Any]) -> list[Stack]:
    """Returns the stacks among arguments, and those of rows."""
    return [a.stack if isinstance(a, Row) else a for a in args if isinstance(a, (Stack, Row))]


def _is_zero(given: Any) -> bool:
    return isinstance(given, Known) and not given.is_symbolic and not np.any(given.data)


def follows_steps(
    at: Any, counter: Value, builder: Builder, before: int, numbers: Sequence[int], order: Sequence[int]
) -> bool:
    """Returns whether ``at`` is ``order`` in turn when ``counter`` is ``numbers``. It is made by the nodes from ``before`` on."""
    producers = {v: node for node in builder.nodes[before:] for v in node.outputs}
    line = _line(at, counter, producers, builder)
    return line is not None and all(line[0] * n + line[1] == o for n, o in zip(numbers, order, strict=True))


def _line(at: Any, counter: Value, producers: dict[Value, Node], builder: Builder) -> tuple[int, int] | None:
    """Returns a and b of ``a * counter + b``; None for other expressions."""
    if at is counter:
        return 1, 0
    data = at.data if isinstance(at, Known) and not at.is_symbolic else builder.constants.get(at)
    if data is not None:
        return (0, int(data.reshape(-1)[0])) if data.size == 1 else None
    node = producers.get(at)
    if node is None or node.op not in ("add", "subtract", "identity"):
        return None
    parts = [_line(v, counter, producers, builder) for v in node.given]
    if any(p is None for p in parts):
        return None
    (a, b), *rest = [p for p in parts if p is not None]
    sign = -1 if node.op == "subtract" else 1
    return a + sum(sign * p[0] for p in rest), b + sum(sign * p[1] for p in rest)
