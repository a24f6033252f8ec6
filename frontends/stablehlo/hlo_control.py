"""Converters of branches and loops, of tokens and tuples, and of calls that say something about the program only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...graph.scan_operator import add_scan
from .hlo_call import Given, HloCall
from .hlo_table import hlo, op
from .jaxlib_package import elements
from .known_arrays import Known, known

LONGEST_LOOP = 4096
"""Loops of more iterations are not written out."""
LONGEST_WRITTEN_OUT = 32
"""Loops of more iterations become loops of the graph where only a counter says how many there are."""
MOST_STEPS = 1 << 16
"""Loops of the graph have at most so many steps."""


@hlo("while")
def loop(c: HloCall) -> tuple[Given, ...]:
    """Returns the results of a loop of the graph for many steps that are counted; other loops are written out."""
    counter = _counter(c)
    if counter is not None:
        place, numbers = counter
        if len(numbers) > LONGEST_WRITTEN_OUT:
            return _counted(c, place, numbers)
    condition, body = c.regions
    values = list(c.args)
    for _ in range(LONGEST_LOOP):
        (goes_on,) = c.run(condition, *values)
        if not isinstance(goes_on, Known):
            raise c.error("the condition of a loop has to be known while the program is read: loops are written out")
        if not goes_on.data.item():
            return tuple(values)
        values = c.run(body, *values)
    raise c.error(f"a loop of more than {LONGEST_LOOP} iterations is too long to be written out")


def _counter(c: HloCall) -> tuple[int, list[int]] | None:
    """Returns which value counts the steps, and its values, the last one behind the loop; None for other loops.

    The condition compares it with a number, and the body adds a number to it.
    """
    condition, body = [region.blocks[0] for region in c.regions]
    *tests, _ = [item.operation for item in condition.operations]
    names = [t.name for t in tests]
    if names.count("stablehlo.compare") != 1 or set(names) - {"stablehlo.compare", "stablehlo.constant"}:
        return None
    used = [v for v in tests[names.index("stablehlo.compare")].operands if v in list(condition.arguments)]
    places = [list(condition.arguments).index(v) for v in used]
    fixed = [n for n, v in enumerate(_results(body)) if v == body.arguments[n]]
    counting = [n for n in places if n not in fixed]
    if len(counting) != 1 or not all(isinstance(c.args[n], Known) for n in places):
        return None
    (place,) = counting
    step = _added(body, place)
    start = c.args[place]
    if step is None or not isinstance(start, Known) or start.is_symbolic:
        return None
    numbers, values = [int(start.data.item())], list(c.args)
    while len(numbers) <= MOST_STEPS:
        values[place] = known(numbers[-1], start.dtype)
        (goes_on,) = c.run(c.regions[0], *values)
        if not isinstance(goes_on, Known) or goes_on.is_symbolic:
            return None
        if not goes_on.data.item():
            return place, numbers
        numbers.append(numbers[-1] + step)
    return None


def _results(block: Any) -> list[Any]:
    """Returns what a block returns."""
    return list(list(block.operations)[-1].operation.operands)


def _added(body: Any, place: int) -> int | None:
    """Returns the constant that the body adds to an argument, None where it does something else with it."""
    made = _maker(_results(body)[place])
    if made is None or made.name != "stablehlo.add":
        return None
    others = [_maker(v) for v in made.operands if v != body.arguments[place]]
    if len(others) != 1 or others[0] is None or others[0].name != "stablehlo.constant":
        return None
    return int(elements(others[0].attributes["value"]).reshape(-1)[0])


def _maker(value: Any) -> Any:
    """Returns the operation that makes a value; None for the argument of a block."""
    owner = getattr(value.owner, "operation", value.owner)
    return owner if hasattr(owner, "operands") else None


def _counted(c: HloCall, place: int, numbers: list[int]) -> tuple[Given, ...]:
    """Returns the results of a loop whose steps are those of a scan. Values that the body leaves alone are no states."""
    body = c.regions[1].blocks[0]
    fixed = [n for n, v in enumerate(_results(body)) if v == body.arguments[n]]
    moving = [n for n in range(len(c.args)) if n not in (*fixed, place)]
    dtype = c.args[place].dtype

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        inside = dict(zip(moving, states, strict=True)) | {place: parts[0]}
        made = c.run(c.regions[1], *[inside.get(n, given) for n, given in enumerate(c.args)])
        return [c.value(made[n]) for n in moving], []

    counted = c.constant(np.array(numbers[:-1]), dtype)
    ends, _ = add_scan(c.builder, [c.value(n) for n in moving], [counted], step)
    after = dict(zip(moving, ends, strict=True)) | {place: known(numbers[-1], dtype)}
    return tuple([after.get(n, given) for n, given in enumerate(c.args)])


@hlo("if", "case")
def branch(c: HloCall) -> tuple[Given, ...]:
    """Returns the results of one branch where the choice is known; else all are computed, and one is selected."""
    chosen, regions = c.args[0], c.regions
    if isinstance(chosen, Known):
        number = int(chosen.data.item())
        if c.name == "if":
            return tuple(c.run(regions[0 if number else 1]))
        return tuple(c.run(regions[number if 0 <= number < len(regions) else -1]))
    if c.name == "if":
        first, second = [[c.value(v) for v in c.run(r)] for r in regions]
        return tuple(c.where(c.broadcast(chosen, a.shape), a, b) for a, b in zip(first, second, strict=True))
    every = [[c.value(v) for v in c.run(r)] for r in regions]
    out = every[-1]
    for n, values in enumerate(every[:-1]):
        here = c.op("equal", chosen, c.constant(n, chosen.dtype))
        out = [c.where(c.broadcast(here, a.shape), a, b) for a, b in zip(values, out, strict=True)]
    return tuple(out)


@hlo("optimization_barrier")
def passed(c: HloCall) -> tuple[Given, ...]:
    return tuple(c.args)


@op("custom_call @Sharding", "custom_call @annotate_device_placement")
def annotated(c: HloCall) -> Given:
    return c.args[0]


@op("custom_call @shape_assertion")
def asserted(c: HloCall) -> tuple[Given, ...]:
    return ()


@hlo("after_all", "create_token")
def token(c: HloCall) -> Given:
    return known(np.zeros((), bool), "bool")


@hlo("tuple")
def together(c: HloCall) -> list[Given]:
    return c.args


@hlo("get_tuple_element")
def element(c: HloCall) -> Any:
    return c.args[0][c.attribute("index")]  # type: ignore[index]


@hlo("constant")
def constant(c: HloCall) -> Given:
    return c.literal()


@hlo("get_dimension_size")
def size(c: HloCall) -> Given:
    return known(c.args[0].shape[c.attribute("dimension")], c.dtype)
