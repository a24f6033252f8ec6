"""Converters of loops and branches, whose bodies are graphs of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...graph.scan_operator import add_cond, add_scan, add_while
from .aten_call import AtenCall, op


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
    """Returns the results of the branch that is chosen, when the program is read or when it runs."""
    if not isinstance(chosen, Value):
        return tuple(c.run(first if chosen else second, given))
    return tuple(add_cond(c.builder, chosen, lambda: c.run(first, given), lambda: c.run(second, given)))


def _tensors(c: AtenCall, given: Sequence[Any]) -> list[Value]:
    if not all(isinstance(v, Value) for v in given):
        raise c.error("a loop whose states are numbers of Python is not supported; make tensors of them")
    return list(given)
