"""Branches, loops and sequences. What is known while the model is read is decided then, the rest when the graph runs.

A loop with a trip count that is known, or a formula of sizes, stays a loop where each iteration is like the others. Others
are unrolled where their conditions are known, and go on as long as these hold for data where they are not.

A graph has no sequences: a sequence is a list of values while the model is read, so that positions and lengths have to be
known, and only tensors go into and out of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.builder import Builder, add_cond, add_scan, add_while
from ...graph.graph import GraphError, Value
from ...te.ops.arguments import same
from ...tir.expr import Expr, convert
from .call import LARGEST_TABLE, Item, NeedsConstant, OnnxCall, OnnxError, ValueList, converter, dtype_of

LONGEST_LOOP = 1024
"""Loops of more iterations are not unrolled."""

Body = Callable[[Any, Sequence[Any]], list[Any]]
"""Runs a graph of the model on values for its inputs, and returns its outputs."""


def known(builder: Builder, value: Any, what: str, label: str) -> Any:
    """Returns the array of a value; NeedsConstant when it is not known."""
    data = builder.constants.get(value)
    if data is None:
        raise NeedsConstant(f"{label}: {what}, {value.name}, has to be a constant", value, nodes=builder.nodes)
    return data


def branch(builder: Builder, label: str, attributes: dict[str, Any], condition: Value, run: Body) -> list[Item]:
    """Returns the results of ``If``. They are those of one branch where the condition is known, else of the one that data choose."""
    data = builder.constants.get(condition)
    if data is not None:
        return run(attributes["then_branch" if np.all(data) else "else_branch"], ())

    def side(name: str) -> list[Value]:
        return _tensors(run(attributes[name], ()), label)

    asked, first = _size_that_is_one(builder, condition), attributes["then_branch"].node
    if asked is not None and first and first[-1].op_type == "Squeeze":
        before = len(builder.nodes)
        made, last = side("then_branch"), builder.nodes[-1]
        if last.op == "squeeze" and any(
            same(convert(d), asked) for value in last.inputs[:1] if value is not None for d in value.shape
        ):
            return [*made]  # the branches differ in dimensions; a call with another size than 1 is refused
        del builder.nodes[before:]
    try:
        return [*add_cond(builder, condition, lambda: side("then_branch"), lambda: side("else_branch"))]
    except NeedsConstant:
        raise
    except OnnxError as error:
        raise NeedsConstant(
            f"{error}; or the condition of {label}, {condition.name}, has to be a constant",
            condition,
            nodes=builder.nodes,
        ) from error
    except GraphError as error:
        what = f"{label}: {error}; so the condition, {condition.name}, has to be a constant"
        raise NeedsConstant(what, condition, nodes=builder.nodes) from error


def _size_that_is_one(builder: Builder, condition: Value) -> Expr | None:
    """Returns the size, which the call knows, that a condition compares with 1; None for another condition."""
    made = {v: node for node in builder.nodes for v in node.outputs}
    if condition not in made or made[condition].op != "equal":
        return None
    ones = [v for v in made[condition].given if np.all(builder.constants.get(v, 0) == 1)]
    sizes = [made[v] for v in made[condition].given if v in made and made[v].op == "size_number"]
    number = sizes[0].attrs["number"] if len(ones) == len(sizes) == 1 else None
    (number,) = number if isinstance(number, tuple) and len(number) == 1 else (number,)
    return number if isinstance(number, Expr) else None


def _tensors(items: Sequence[Item], label: str) -> list[Value]:
    """Returns the items; OnnxError for a sequence among them."""
    if any(isinstance(v, ValueList) for v in items):
        raise OnnxError(f"{label}: a result is a sequence, which has to be known while the model is read")
    return [v for v in items if isinstance(v, Value)]


def loop(
    builder: Builder,
    label: str,
    attributes: dict[str, Any],
    inputs: Sequence[Item | None],
    run: Body,
    count: Any,
    wanted: Sequence[bool],
    number_of_rows: Callable[[Value, Any], Any],
) -> list[Item | None]:
    """Returns the results of ``Loop``: the last values of the variables, and what each iteration adds, stacked.

    ``count`` is the trip count where it is a formula of sizes. ``wanted`` says which results something reads.
    ``number_of_rows`` makes a size of a number of iterations that data say, and of the most that there can be.
    """
    body, trips, condition = attributes["body"], inputs[0], inputs[1]
    values = [v for v in inputs[2:] if v is not None]
    tensors = [v for v in values if isinstance(v, Value)]
    limit: Any = LONGEST_LOOP + 1 if trips is None else count
    if limit is None and trips in builder.constants:
        limit = int(np.ravel(known(builder, trips, "the trip count", label))[0])
    starts = np.True_ if condition is None else builder.constants.get(condition)  # type: ignore[arg-type]
    goes_on = starts is None or bool(np.all(starts))
    before = len(builder.nodes)
    reason: Exception | None = None
    counted = limit is not None and trips is not None and (not isinstance(limit, int) or 1 < limit <= LARGEST_TABLE)
    if starts is not None and goes_on and counted and len(tensors) == len(values):
        try:
            return [*_kept_loop(builder, label, body, limit, tensors, run)]
        except (OnnxError, GraphError):
            del builder.nodes[before:]  # iterations differ, in sizes or in what has to be known
    if starts is not None and isinstance(limit, int):
        try:
            number, made = _unrolled(builder, label, body, limit, goes_on, values, run)
            if number > 1 and not counted and len(tensors) == len(values):
                return _rolled_up(builder, label, body, number, tensors, run, made, before)
            return made
        except OnnxError as error:
            del builder.nodes[before:]
            if not isinstance(error, (NeedsConstant, TooLongError)):
                raise
            reason = error
    unknown = next((v for v in (trips, condition) if isinstance(v, Value) and v not in builder.constants), None)
    if len(tensors) != len(values):
        what = f"{label}: a loop as long as data say cannot change a sequence"
        if reason is None and unknown is not None:
            raise NeedsConstant(what, unknown, nodes=builder.nodes)
        raise reason or OnnxError(what)
    try:
        if any(wanted[len(tensors) : len(body.output) - 1]):
            return _counted_loop(builder, label, body, inputs, limit, tensors, run, wanted, number_of_rows)
        ends = _open_loop(builder, label, body, trips, condition, tensors, run)[1:]
        return [*ends, *[None] * (len(body.output) - 1 - len(ends))]
    except (OnnxError, GraphError) as error:
        if unknown is None:  # written out, it asks for a value that is known before the loop
            raise reason or error from None
        del builder.nodes[before:]
        what = f"{label}: data say how often it runs, and its iterations differ ({error})"
        raise NeedsConstant(what, unknown, nodes=builder.nodes) from error


def _counted_loop(
    builder: Builder,
    label: str,
    body: Any,
    inputs: Sequence[Item | None],
    limit: Any,
    tensors: Sequence[Value],
    run: Body,
    wanted: Sequence[bool],
    number_of_rows: Callable[[Value, Any], Any],
) -> list[Item | None]:
    """Returns the results of a loop that stacks as many rows as data say.

    A first loop finds how often it runs, a second one stacks that many. The last states are those of the second one, so
    that the first one computes what its condition needs.
    """
    trips, condition = inputs[:2]
    if limit is None:
        (name, *_) = [o.name for o, used in zip(body.output[1:], wanted, strict=False) if used][len(tensors) :]
        raise OnnxError(f"data say how often it runs at most, so how many rows of {name} there are is not known")
    bounded = trips is not None and (not isinstance(limit, int) or limit <= LARGEST_TABLE)
    runs = _open_loop(builder, label, body, trips, condition, tensors, run)[0]
    rows = number_of_rows(runs, limit if bounded else LONGEST_LOOP)
    return [*_kept_loop(builder, label, body, rows, tensors, run, goes_on=True)]


class TooLongError(OnnxError):
    """Raised for a loop of too many iterations to be unrolled."""


def _unrolled(
    builder: Builder, label: str, body: Any, limit: int, goes_on: bool, values: Sequence[Item], run: Body
) -> tuple[int, list[Item | None]]:
    """Returns how many iterations there are, and the results of the loop, written out iteration by iteration."""
    rows: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(values))]
    number = 0
    while goes_on and number < limit:
        if number >= LONGEST_LOOP:
            raise TooLongError(f"{label}: a loop of {limit} iterations is too long to be unrolled")
        outputs = run(body, [builder.constant(number, "c", "int64"), builder.constant(True, "c", "bool"), *values])
        goes_on = bool(np.all(known(builder, outputs[0], "the condition of the next iteration", label)))
        values = outputs[1 : 1 + len(values)]
        for row, v in zip(rows, outputs[1 + len(values) :], strict=True):
            row.append(v)
        number += 1
    if rows and not number:
        return number, [*values, *_no_rows(builder, label, body, values, run)]
    return number, [*values, *[stacked(builder, row, 0) for row in rows]]


def _rolled_up(
    builder: Builder,
    label: str,
    body: Any,
    number: int,
    values: Sequence[Value],
    run: Body,
    written: list[Item | None],
    before: int,
) -> list[Item | None]:
    """Returns the results of a loop of ``number`` iterations that are ``written`` out behind operator ``before``.

    They become a loop again where they are alike. Results that are known stay so.
    """
    nodes = builder.nodes[before:]
    del builder.nodes[before:]
    try:
        made = _kept_loop(builder, label, body, number, values, run, goes_on=True)
        return [old if old in builder.constants else new for old, new in zip(written, made, strict=True)]
    except (OnnxError, GraphError):  # iterations differ, in sizes or in what has to be known
        builder.nodes[before:] = nodes
        return written


def _no_rows(builder: Builder, label: str, body: Any, values: Sequence[Item], run: Body) -> list[Value]:
    """Returns the stacked rows of a loop without iterations, which have no elements."""
    before = len(builder.nodes)
    made = run(body, [builder.constant(0, "c", "int64"), builder.constant(True, "c", "bool"), *values])
    del builder.nodes[before:]
    rows = _tensors(made[1 + len(values) :], label)
    return [builder.op("broadcast_to", builder.constant(0, "c", v.dtype), shape=(0, *v.shape)) for v in rows]


def _kept_loop(
    builder: Builder, label: str, body: Any, limit: Any, values: Sequence[Value], run: Body, *, goes_on: bool = False
) -> list[Value]:
    """Returns the results of a loop of ``limit`` iterations; OnnxError or GraphError where iterations differ. Its condition
    has to hold in all of them; ``goes_on`` says that it does."""

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        made = run(body, [parts[0], builder.constant(True, "c", "bool"), *states])
        if not goes_on and not np.all(known(builder, made[0], "the condition of the next iteration", label)):
            raise OnnxError(f"{label}: the loop ends before its trip count")
        tensors = _tensors(made, label)
        return tensors[1 : 1 + len(values)], tensors[1 + len(values) :]

    if isinstance(limit, int):
        numbers = builder.constant(np.arange(limit), "c", "int64")
    else:
        empty = builder.op("broadcast_to", builder.constant(0, "c", "int64"), shape=(limit,))
        numbers = builder.op("places", empty, axis=0, dtype="int64")
    ends, rows = add_scan(builder, values, [numbers], step)
    return [*ends, *rows]


def _open_loop(
    builder: Builder,
    label: str,
    body: Any,
    trips: Item | None,
    condition: Item | None,
    values: Sequence[Value],
    run: Body,
) -> list[Value]:
    """Returns how often a loop runs, as long as its condition holds and its trip count says, and its variables."""

    def scalar(v: Item | None, otherwise: Any, dtype: str) -> Value:
        if not isinstance(v, Value):
            return builder.constant(otherwise, "c", dtype)
        return builder.op("reshape", v, shape=()) if v.ndim else v

    most = scalar(trips, np.iinfo(np.int64).max, "int64")

    def goes_on(states: Sequence[Value]) -> Value:
        return builder.op("logical_and", states[1], builder.op("less", states[0], most))

    def step(states: Sequence[Value]) -> Sequence[Value]:
        made = _tensors(run(body, [states[0], states[1], *states[2:]]), label)
        after = builder.op("add", states[0], builder.constant(1, "c", "int64"))
        return [after, scalar(made[0], True, "bool"), *made[1 : 1 + len(values)]]

    first = [builder.constant(0, "c", "int64"), scalar(condition, True, "bool"), *values]
    count, _, *ends = add_while(builder, first, goes_on, step)
    return [count, *ends]


def scan(
    builder: Builder, label: str, attributes: dict[str, Any], inputs: Sequence[Value | None], run: Body, opset: int
) -> list[Value]:
    """Returns the results of ``Scan``: the last states, and what each iteration adds, stacked."""
    if opset < 9:
        return _scan_of_batches(builder, label, attributes, inputs, run)
    body, count = attributes["body"], attributes["num_scan_inputs"]
    given = [v for v in inputs if v is not None]
    states, scanned = given[: len(given) - count], given[len(given) - count :]
    axes = attributes.get("scan_input_axes", (0,) * count)
    backwards = attributes.get("scan_input_directions", (0,) * count)
    outs = len(body.output) - len(states)
    out_axes = attributes.get("scan_output_axes", (0,) * outs)
    out_backwards = attributes.get("scan_output_directions", (0,) * outs)
    steps = scanned[0].shape[axes[0]]
    if isinstance(steps, Expr) or steps > 1:
        turns = [bool(d) for d in (*backwards, *out_backwards)]
        moved = [_to_front(builder, v, a) for v, a in zip(scanned, axes, strict=True)]
        try:
            ends, stacks = _kept_scan(builder, states, moved, turns, lambda s, parts: run(body, [*s, *parts]))
            return [*ends, *[_from_front(builder, v, a) for v, a in zip(stacks, out_axes, strict=True)]]
        except (OnnxError, GraphError):
            pass  # something in the body has to be known for each iteration
    if not isinstance(steps, int) or not 0 < steps <= LONGEST_LOOP:
        raise OnnxError(f"{label}: a scan of {steps} iterations cannot be unrolled")
    rows: list[list[Value]] = [[] for _ in range(outs)]
    for t in range(steps):
        parts = [
            sliced(builder, v, a, steps - 1 - t if back else t)
            for v, a, back in zip(scanned, axes, backwards, strict=True)
        ]
        outputs = run(body, [*states, *parts])
        states = outputs[: len(states)]
        for row, v, back in zip(rows, outputs[len(states) :], out_backwards, strict=True):
            row.insert(0, v) if back else row.append(v)
    return [*states, *[stacked(builder, row, a) for row, a in zip(rows, out_axes, strict=True)]]


def _scan_of_batches(
    builder: Builder, label: str, attributes: dict[str, Any], inputs: Sequence[Value | None], run: Body
) -> list[Value]:
    """Returns the results of ``Scan`` of version 8, whose arrays have a dimension of batches in front.

    A scan over the batches has one over the steps inside. Where lengths of the batches are given, states stay as they are
    from there on, and a batch that goes backwards begins at its own last step. Rows behind are those of the last states.
    """
    body, count = attributes["body"], attributes["num_scan_inputs"]
    lengths, given = inputs[0], [v for v in inputs[1:] if v is not None]
    ends = len(given) - count
    backwards = attributes.get("directions", (0,) * count)
    longest = given[ends].shape[1]

    def one(states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        before, scanned = [*parts[:ends]], [*parts[ends : len(given)]]
        if lengths is None:
            inner = {"body": body, "num_scan_inputs": count, "scan_input_directions": backwards}
            return [], scan(builder, label, inner, [*before, *scanned], run, 9)
        length = parts[-1]
        empty = builder.op("broadcast_to", builder.constant(0, "c", "int64"), shape=(longest,))
        steps = builder.op("places", empty, axis=0, dtype="int64")
        lasts = builder.op("subtract", builder.op("subtract", length, builder.constant(1, "c", "int64")), steps)
        order = builder.op("where", builder.op("less", steps, length), lasts, steps)
        scanned = [
            builder.op("take", v, order, axis=0) if back else v for v, back in zip(scanned, backwards, strict=True)
        ]

        def step(old: Sequence[Value], now: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
            made = _tensors(run(body, [*old, *now[:-1]]), label)
            goes_on = builder.op("less", now[-1], length)
            return [builder.op("where", goes_on, a, b) for a, b in zip(made, old, strict=False)], made[ends:]

        last, rows = add_scan(builder, before, [*scanned, steps], step)
        return [], [*last, *rows]

    arrays = [*given, *([] if lengths is None else [lengths])]
    return add_scan(builder, [], arrays, one)[1]


def _kept_scan(
    builder: Builder, states: Sequence[Value], scanned: Sequence[Value], turns: Sequence[bool], run: Body
) -> tuple[list[Value], list[Value]]:
    """Returns the last states and the stacked rows; ``turns``: which arrays, and then which rows, go backwards."""
    reverse = all(turns)

    def turned(v: Value, back: bool) -> Value:
        return builder.op("flip", v, axis=0) if back and not reverse else v

    def step(before: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        made = run(before, parts)
        return made[: len(states)], made[len(states) :]

    arrays = [turned(v, back) for v, back in zip(scanned, turns, strict=False)]
    ends, rows = add_scan(builder, states, arrays, step, reverse=reverse)
    return ends, [turned(v, back) for v, back in zip(rows, turns[len(scanned) :], strict=True)]


def _to_front(builder: Builder, v: Value, axis: int) -> Value:
    """Returns the array with a dimension moved to the front."""
    axis %= v.ndim
    order = (axis, *[d for d in range(v.ndim) if d != axis])
    return builder.op("transpose", v, axes=order) if axis else v


def _from_front(builder: Builder, v: Value, axis: int) -> Value:
    """Returns the array with its first dimension moved to ``axis``."""
    axis %= v.ndim
    order = [*range(1, v.ndim)]
    order.insert(axis, 0)
    return builder.op("transpose", v, axes=tuple(order)) if axis else v


def sliced(builder: Builder, v: Value, axis: int, at: int) -> Value:
    """Returns the part of ``v`` at one index along ``axis``, without this dimension."""
    axis %= v.ndim
    begin, end = [0] * v.ndim, list(v.shape)
    begin[axis], end[axis] = at, at + 1
    return builder.op("squeeze", builder.op("strided_slice", v, begin=tuple(begin), end=tuple(end)), axis=axis)


def stacked(builder: Builder, rows: Sequence[Value], axis: int) -> Value:
    """Returns the values along a new dimension."""
    wide = [builder.op("expand_dims", v, axis=axis) for v in rows]
    return wide[0] if len(wide) == 1 else builder.op("concatenate", *wide, axis=axis % wide[0].ndim)


SEQUENCE_OPERATORS = (
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "SplitToSequence",
)  # fmt: skip
"""The operators that take or give a sequence."""


def _position(c: OnnxCall, n: int, length: int) -> int:
    """Returns the position that input ``n`` says; negative ones count from the end."""
    if c.input(n).dtype not in ("int32", "int64"):
        raise c.error(f"the position is {c.input(n).dtype}, not int32 or int64")
    at = int(np.ravel(c.known(n))[0])
    if not -length <= at < length:
        raise c.error(f"position {at} is outside of a sequence of {length}")
    return at % length


@converter("SequenceConstruct")
def construct(c: OnnxCall) -> ValueList:
    given = [c.input(n) for n in range(len(c.inputs))]
    if len({v.dtype for v in given}) != 1:
        raise c.error("the tensors of a sequence have one data type")
    return ValueList(tuple(given), given[0].dtype)


@converter("SequenceEmpty")
def empty(c: OnnxCall) -> ValueList:
    return ValueList((), dtype_of(c.attr("dtype", 1), c.label))


@converter("SequenceLength")
def length(c: OnnxCall) -> Value:
    return c.constant(np.int64(len(c.sequence(0).items)), "int64")


@converter("SequenceAt")
def at(c: OnnxCall) -> Value:
    items = c.sequence(0).items
    return c.op("identity", items[_position(c, 1, len(items))])


@converter("SequenceErase")
def erase(c: OnnxCall) -> ValueList:
    given = c.sequence(0)
    gone = _position(c, 1, len(given.items)) if c.has(1) else len(given.items) - 1
    if not given.items:
        raise c.error("an empty sequence has nothing to erase")
    return ValueList((*given.items[:gone], *given.items[gone + 1 :]), given.dtype)


@converter("SequenceInsert")
def insert(c: OnnxCall) -> ValueList:
    given, new = c.sequence(0), c.input(1)
    if new.dtype != given.dtype:
        raise c.error(f"a tensor of {new.dtype} does not fit a sequence of {given.dtype}")
    places = len(given.items) + 1  # behind the last one as well
    place = int(np.ravel(c.known(2))[0]) if c.has(2) else places - 1
    if not -places < place < places:
        raise c.error(f"position {place} is outside of a sequence of {places - 1}")
    if place < 0:
        place += places - 1
    return ValueList((*given.items[:place], new, *given.items[place:]), given.dtype)


@converter("OptionalHasElement")
def has_element(c: OnnxCall) -> Value:
    return c.constant(np.bool_(c.has(0) or 0 in c.sequences), "bool")


@converter("ConcatFromSequence")
def concat_from(c: OnnxCall) -> Value:
    items, axis = c.sequence(0).items, c.attr("axis")
    if not items:
        raise c.error("an empty sequence cannot be joined")
    if c.attr("new_axis", 0):
        return stacked(c.builder, items, axis)
    return c.op("concatenate", *items, axis=axis) if len(items) > 1 else c.op("identity", items[0])


@converter("SplitToSequence")
def split_to(c: OnnxCall) -> ValueList:
    x = c.input(0)
    axis = c.attr("axis", 0) % max(x.ndim, 1)
    c.limit((x.shape[axis],), LARGEST_TABLE)
    sizes = _part_sizes(c, int(x.shape[axis]))
    begins = [int(e) for e in np.cumsum(sizes)[:-1]]
    parts = c.several("split", x, sections=tuple(begins), axis=axis) if begins else (c.op("identity", x),)
    if not c.has(1) and not c.attr("keepdims", 1):
        parts = tuple([c.op("squeeze", p, axis=axis) for p in parts])
    return ValueList(parts, x.dtype)


def _part_sizes(c: OnnxCall, extent: int) -> list[int]:
    split: Any = c.known(1) if c.has(1) else np.array(1)
    if np.ndim(split) == 0:
        each = int(split)
        if each < 1:
            raise c.error(f"parts of {each} elements")
        return [each] * (extent // each) + [extent % each] * (extent % each > 0)
    sizes = [int(e) for e in split]
    if min(sizes, default=0) < 0 or sum(sizes) != extent:
        raise c.error(f"parts of {sizes} elements do not make {extent}")
    return sizes
