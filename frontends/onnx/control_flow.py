"""Branches and loops, whose conditions and trip counts have to be known while the graph is made.

A loop stays a loop where each iteration is like the others; else it is unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import GraphError, Value
from ...graph.scan_operator import add_scan
from ...tir.expr import Expr
from .call import Item, NeedsConstant, OnnxError

LONGEST_LOOP = 1024
"""Loops of more iterations are not unrolled."""

Body = Callable[[Any, Sequence[Any]], list[Any]]
"""Runs a graph of the model on values for its inputs, and returns its outputs."""


def known(builder: Builder, value: Any, what: str, label: str) -> Any:
    """Returns the array of a value; NeedsConstant when it is not known."""
    data = builder.constants.get(value)
    if data is None:
        raise NeedsConstant(f"{label}: {what}, {value.name}, has to be a constant", value)
    return data


def branch(builder: Builder, label: str, attributes: dict[str, Any], condition: Value, run: Body) -> list[Item]:
    """Returns the results of ``If``."""
    holds = bool(np.all(known(builder, condition, "the condition", label)))
    return run(attributes["then_branch" if holds else "else_branch"], ())


def loop(
    builder: Builder, label: str, attributes: dict[str, Any], inputs: Sequence[Item | None], run: Body
) -> list[Item]:
    """Returns the results of ``Loop``: the last values of the variables, and what each iteration adds, stacked."""
    body = attributes["body"]
    limit = LONGEST_LOOP if inputs[0] is None else int(np.ravel(known(builder, inputs[0], "the trip count", label))[0])
    goes_on = inputs[1] is None or bool(np.all(known(builder, inputs[1], "the condition", label)))
    values = [v for v in inputs[2:] if v is not None]
    tensors = [v for v in values if isinstance(v, Value)]
    if inputs[0] is not None and goes_on and limit > 1 and len(tensors) == len(values):
        try:
            return [*_kept_loop(builder, label, body, limit, tensors, run)]
        except (OnnxError, GraphError):
            pass  # iterations differ, in sizes or in what has to be known
    rows: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(values))]
    number = 0
    while goes_on and number < limit:
        if number >= LONGEST_LOOP:
            raise OnnxError(f"{label}: a loop of {limit} iterations is too long to be unrolled")
        outputs = run(body, [builder.constant(number, "c", "int64"), builder.constant(True, "c", "bool"), *values])
        goes_on = bool(np.all(known(builder, outputs[0], "the condition of the next iteration", label)))
        values = outputs[1 : 1 + len(values)]
        for row, v in zip(rows, outputs[1 + len(values) :], strict=True):
            row.append(v)
        number += 1
    if any(not row for row in rows):
        raise OnnxError(f"{label}: a loop without iterations has results of no elements, which are not supported")
    return [*values, *[stacked(builder, row, 0) for row in rows]]


def _kept_loop(builder: Builder, label: str, body: Any, limit: int, values: Sequence[Value], run: Body) -> list[Value]:
    """Returns the results of a loop of ``limit`` iterations; OnnxError or GraphError where iterations differ."""

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        made = run(body, [parts[0], builder.constant(True, "c", "bool"), *states])
        if not np.all(known(builder, made[0], "the condition of the next iteration", label)):
            raise OnnxError(f"{label}: the loop ends before its trip count")
        return made[1 : 1 + len(values)], made[1 + len(values) :]

    ends, rows = add_scan(builder, values, [builder.constant(np.arange(limit), "c", "int64")], step)
    return [*ends, *rows]


def scan(
    builder: Builder, label: str, attributes: dict[str, Any], inputs: Sequence[Value | None], run: Body, opset: int
) -> list[Value]:
    """Returns the results of ``Scan``: the last states, and what each iteration adds, stacked."""
    if opset < 9:
        raise OnnxError(f"{label}: Scan before version 9 is not supported")
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
