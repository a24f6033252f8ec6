"""Converters of loops and branches, whose bodies are graphs of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...graph.scan_operator import add_scan, add_while
from .aten_call import AtenCall
from .aten_table import op


@op("while_loop")
def while_loop(c: AtenCall, condition: Any, body: Any, states: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    given = _tensors(c, states)
    return tuple(
        add_while(c.builder, given, lambda s: c.run(condition, [*s, *others])[0], lambda s: c.run(body, [*s, *others]))
    )


@op("scan")
def scan(c: AtenCall, body: Any, states: Sequence[Any], arrays: Sequence[Any], others: Sequence[Any] = ()) -> Any:
    given, count = _tensors(c, states), len(states)

    def step(before: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        made = c.run(body, [*before, *parts, *others])
        return made[:count], made[count:]

    ends, rows = add_scan(c.builder, given, _tensors(c, arrays), step)
    return (*ends, *rows)


@op("cond")
def branch(c: AtenCall, chosen: Any, first: Any, second: Any, given: Sequence[Any] = ()) -> Any:
    """Returns the results of one branch where the choice is known; else both are computed, and one is selected."""
    if not isinstance(chosen, Value):
        return tuple(c.run(first if chosen else second, given))
    flag = c.op("reshape", c.cast(chosen, "bool"), shape=())
    out = []
    for a, b in zip(c.run(first, given), c.run(second, given), strict=True):
        out.append(c.op("where", c.op("broadcast_to", flag, shape=a.shape) if a.ndim else flag, a, b))
    return tuple(out)


def _tensors(c: AtenCall, given: Sequence[Any]) -> list[Value]:
    if not all(isinstance(v, Value) for v in given):
        raise c.error("a loop whose states are numbers of Python is not supported; make tensors of them")
    return list(given)
