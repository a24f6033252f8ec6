"""Converters of branches and loops, of tokens and tuples, and of calls that say something about the program only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.builder import Builder, add_cond, add_scan, add_while
from ...graph.graph import Node, Value
from .hlo_call import Given, HloCall, KnownArray, elements, hlo, known, op

# Converters of operations between devices, in programs for one device: each is alone in its group.


@hlo("replica_id", "partition_id")
def alone(c: HloCall) -> Given:
    return known(0, c.dtype)


def _require_one(c: HloCall) -> None:
    if list(c.operation.attributes["replica_groups"].type.shape) != [1, 1]:
        raise c.error("programs for several devices are not supported; this one has groups of them")


@hlo("all_reduce", "all_gather", "all_to_all", "collective_broadcast", "cross-replica-sum", "reduce_scatter")
def of_one_device(c: HloCall) -> tuple[Value, ...]:
    """Returns the operands: what a group of one reduces, gathers or exchanges."""
    _require_one(c)
    return tuple(c.op("identity", v) for v in c.values)


@hlo("collective_permute")
def permuted(c: HloCall) -> Value:
    """Returns the operand where the device sends to itself, else zeros."""
    given = c.operation.attributes["source_target_pairs"]
    pairs = np.broadcast_to(elements(given), tuple(given.type.shape)).tolist()
    if pairs not in ([], [[0, 0]]):
        raise c.error("programs for several devices are not supported; this one sends between them")
    return c.op("identity", c.x) if pairs else c.full(c.x.shape, 0, c.x.dtype)


LONGEST_LOOP = 4096
"""Loops of more iterations are not written out."""
LONGEST_WRITTEN_OUT = 32
"""Loops of more iterations become loops of the graph where only a counter says how many there are."""
MOST_STEPS = 1 << 16
"""Loops of the graph have at most so many steps."""


@hlo("while")
def loop(c: HloCall) -> tuple[Given, ...]:
    """Returns the results of a loop. Loops of many steps, and of as many as data say, become loops of the graph; others
    are written out."""
    counter = _counter(c)
    if counter is not None:
        place, numbers = counter
        if len(numbers) > LONGEST_WRITTEN_OUT:
            return _counted(c, place, numbers, _stacks(c, len(numbers) - 1))
    condition, body = c.regions
    values = list(c.args)
    for _ in range(LONGEST_LOOP):
        (goes_on,) = c.run(condition, *values)
        if not isinstance(goes_on, KnownArray):
            return _open(c, values)
        if not goes_on.data.item():
            return tuple(values)
        values = c.run(body, *values)
    raise c.error(f"a loop of more than {LONGEST_LOOP} iterations is too long to be written out")


def _open(c: HloCall, values: Sequence[Given]) -> tuple[Given, ...]:
    """Returns the results of a loop that goes on as long as its condition holds for data. What it leaves alone are no
    states."""
    condition, body = c.regions
    fixed = _left_alone(body.blocks[0])
    moving = [n for n in range(len(values)) if n not in fixed]

    def every(states: Sequence[Value]) -> list[Given]:
        inside = dict(zip(moving, states, strict=True))
        return [inside.get(n, given) for n, given in enumerate(values)]

    def goes_on(states: Sequence[Value]) -> Value:
        return c.value(c.run(condition, *every(states))[0])

    def step(states: Sequence[Value]) -> list[Value]:
        made = c.run(body, *every(states))
        return [c.value(made[n]) for n in moving]

    ends = add_while(c.builder, [c.value(values[n]) for n in moving], goes_on, step)
    after = dict(zip(moving, ends, strict=True))
    return tuple([after.get(n, given) for n, given in enumerate(values)])


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
    fixed = _left_alone(body)
    counting = [n for n in places if n not in fixed]
    if len(counting) != 1 or not all(isinstance(c.args[n], KnownArray) for n in places):
        return None
    (place,) = counting
    step = _added(body, place)
    start = c.args[place]
    if step is None or not isinstance(start, KnownArray) or start.is_symbolic:
        return None
    numbers, values = [int(start.data.item())], list(c.args)
    while len(numbers) <= MOST_STEPS:
        values[place] = known(numbers[-1], start.dtype)
        (goes_on,) = c.run(c.regions[0], *values)
        if not isinstance(goes_on, KnownArray) or goes_on.is_symbolic:
            return None
        if not goes_on.data.item():
            return place, numbers
        numbers.append(numbers[-1] + step)
    return None


def _left_alone(body: Any) -> list[int]:
    """Returns which values the body of a loop returns as they were."""
    return [n for n, v in enumerate(_results(body)) if v == body.arguments[n]]


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


def _stacks(c: HloCall, steps: int) -> list[int]:
    """Returns which values may be rows that the steps store one by one."""
    fixed = _left_alone(c.regions[1].blocks[0])
    return [n for n, v in enumerate(c.args) if n not in fixed and v.shape[:1] == (steps,)]


def _counted(c: HloCall, place: int, numbers: list[int], stacks: Sequence[int]) -> tuple[Given, ...]:
    """Returns the results of a loop whose steps are those of a scan. Values that the body leaves alone are no states.

    Values in ``stacks`` are rows, of which each step sets its own, when the body does nothing else with them.
    """
    for reverse in (False, True):
        left = list(stacks)
        while left:
            try:
                return _scanned(c, place, numbers, left, reverse)
            except NotStackedError as error:
                own = [s.place for s in error.stacks if s.loop is c]
                if not own:
                    raise  # those of a loop around this one
                left = [n for n in left if n not in own]
    return _scanned(c, place, numbers, [], False)


def _scanned(c: HloCall, place: int, numbers: list[int], stacks: Sequence[int], reverse: bool) -> tuple[Given, ...]:
    fixed = _left_alone(c.regions[1].blocks[0])
    moving = [n for n in range(len(c.args)) if n not in (*fixed, *stacks, place)]
    dtype = c.args[place].dtype

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        before = len(c.builder.nodes)
        inside: dict[int, Any] = dict(zip(moving, states, strict=True)) | {place: parts[0]}
        inside |= {n: Stack(c, n, c.args[n].shape) for n in stacks}
        made: list[Any] = c.run(c.regions[1], *[inside.get(n, given) for n, given in enumerate(c.args)])
        count = len(numbers) - 1
        order = range(count)[:: -1 if reverse else 1]
        wrong = [
            inside[n] for n in stacks
            if not isinstance(made[n], Row)
            or made[n].stack is not inside[n]
            or not follows_steps(made[n].at, parts[0], c.builder, before, numbers[:-1], order)
        ] + stacks_among([made[n] for n in moving])  # fmt: skip
        if wrong:
            raise NotStackedError(wrong)
        rows = [c.op("reshape", c.value(made[n].value), shape=tuple(c.args[n].shape[1:])) for n in stacks]
        return [c.value(made[n]) for n in moving], rows

    told = np.array(numbers[:-1])[:: -1 if reverse else 1]
    counted = c.constant(np.asarray(told, order="C"), dtype)
    ends, rows = add_scan(c.builder, [c.value(n) for n in moving], [counted], step, reverse=reverse)
    after: dict[int, Given] = {**dict(zip(moving, ends, strict=True)), **dict(zip(stacks, rows, strict=True))}
    after[place] = known(numbers[-1], dtype)
    return tuple([after.get(n, given) for n, given in enumerate(c.args)])


@hlo("if", "case")
def branch(c: HloCall) -> tuple[Given, ...]:
    """Returns the results of the branch that is chosen, when the program is read or when it runs."""
    chosen, regions = c.args[0], c.regions
    if isinstance(chosen, KnownArray):
        number = int(chosen.data.item())
        if c.name == "if":
            return tuple(c.run(regions[0 if number else 1]))
        return tuple(c.run(regions[number if 0 <= number < len(regions) else -1]))

    def results(n: int) -> list[Value]:
        return [c.value(v) for v in c.run(regions[n])]

    def one_of(n: int) -> list[Value]:
        """Returns the results of region ``n`` or one behind it."""
        if n == len(regions) - 1:
            return results(n)
        here = chosen if c.name == "if" else c.op("equal", chosen, c.constant(n, chosen.dtype))
        return add_cond(c.builder, here, lambda: results(n), lambda: one_of(n + 1))

    return tuple(one_of(0))


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


# This module follows arrays of which each step of a loop sets one row. The results of ``jax.lax.scan`` are stored like
# that.
#
# A loop reads its body with such arrays as stacks. An update of one row makes a :class:`Row` of a stack; any other use of
# either says that the array is an ordinary one.


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
    return isinstance(given, KnownArray) and not given.is_symbolic and not np.any(given.data)


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
    data = at.data if isinstance(at, KnownArray) and not at.is_symbolic else builder.constants.get(at)
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
