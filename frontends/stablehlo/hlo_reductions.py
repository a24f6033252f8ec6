"""Converters of reductions, and of batch normalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from ..common import batch_normalized, reduced
from .hlo_call import Given, HloCall, applied, hlo, is_neutral, meaning

_ROWS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


@hlo("reduce")
def reduce(c: HloCall) -> tuple[Value, ...]:
    count = len(c.args) // 2
    axes = tuple(c.attribute("dimensions"))
    (region,) = c.regions
    name = meaning(region)
    if count == 1 and not axes:
        return tuple(_with_start(c, region, name, [c.x], c.args[1:]))
    if count == 1 and name in (*_ROWS, "and", "or"):
        out = _by_row(c, name, c.x, axes)
        if out is not None:
            return tuple(_with_start(c, region, name, [out], c.args[1:]))
    return tuple(folded(c, region, c.values[:count], c.args[count:], axes))


def _by_row(c: HloCall, name: str, x: Value, axes: tuple[int, ...]) -> Value | None:
    """Returns a reduction that the table of operators has; None for others."""
    if x.dtype != "bool":
        return reduced(c, _ROWS[name], x, axes) if name in _ROWS else None
    return reduced(c, "max" if name in ("or", "add", "maximum") else "min", x, axes)


def _with_start(c: HloCall, region: Any, name: str, found: list[Value], starts: Sequence[Given]) -> list[Value]:
    """Returns results combined with the start values, which are left out where they change nothing."""
    if len(found) == 1 and name and is_neutral(c, name, starts[0]):
        return found
    wide = [c.broadcast(c.value(s), v.shape) for s, v in zip(starts, found, strict=True)]
    return applied(c, region, [*wide, *found])


def folded(c: HloCall, region: Any, xs: list[Value], starts: Sequence[Given], axes: tuple[int, ...]) -> list[Value]:
    """Returns a reduction by any function: neighbours are combined, then pairs of neighbours, and so on."""
    others = [d for d in range(xs[0].ndim) if d not in axes]
    count = 1
    for a in axes:
        extent = xs[0].shape[a]
        if not isinstance(extent, int):
            raise c.error("this reduction over a symbolic size is not supported")
        count *= extent
    rest = [xs[0].shape[d] for d in others]
    order = (*axes, *others)
    parts = [c.op("reshape", c.op("transpose", x, axes=order), shape=(count, *rest)) for x in xs]
    if not count:
        return [c.broadcast(c.value(s), rest) for s in starts]
    while count > 1:
        even = count - count % 2
        first = [_every_other(c, p, 0, even) for p in parts]
        second = [_every_other(c, p, 1, even) for p in parts]
        combined = applied(c, region, [*first, *second])
        if count % 2:
            tails = [c.cut(p, [even, *[0] * len(rest)], [count, *rest]) for p in parts]
            combined = [c.op("concatenate", a, b, axis=0) for a, b in zip(combined, tails, strict=True)]
        parts, count = combined, count // 2 + count % 2
    found = [c.op("reshape", p, shape=tuple(rest)) for p in parts]
    return _with_start(c, region, meaning(region), found, starts)


def _every_other(c: HloCall, x: Value, first: int, end: int) -> Value:
    rest = x.shape[1:]
    return c.cut(x, [first, *[0] * len(rest)], [end, *rest], [2, *[1] * len(rest)])


@hlo("map")
def mapped(c: HloCall) -> tuple[Value, ...]:
    return tuple(applied(c, c.regions[0], c.values))


# batch normalization


def _per_channel(c: HloCall, x: Value, v: Value) -> Value:
    axis = c.attribute("feature_index")
    return c.op("reshape", v, shape=tuple(e if d == axis else 1 for d, e in enumerate(x.shape)))


def _axes(c: HloCall, x: Value) -> tuple[int, ...]:
    return tuple(d for d in range(x.ndim) if d != c.attribute("feature_index"))


def _root(c: HloCall, var: Value) -> Value:
    return c.op("sqrt", c.op("add", var, c.constant(c.attribute("epsilon"), var.dtype)))


@hlo("batch_norm_inference")
def batch_norm(c: HloCall) -> Value:
    x, scale, offset, mean, var = c.values
    return c.op("batch_norm", x, scale, offset, mean, var, axis=c.attribute("feature_index"),
                epsilon=float(c.attribute("epsilon")))  # fmt: skip


@hlo("batch_norm_training")
def batch_norm_training(c: HloCall) -> tuple[Value, ...]:
    x, scale, offset = c.values
    return batch_normalized(c, x, scale, offset, c.attribute("epsilon"), c.attribute("feature_index"))[:3]


@hlo("batch_norm_grad")
def batch_norm_gradient(c: HloCall) -> tuple[Value, ...]:
    x, scale, mean, var, given = c.values
    axes = _axes(c, x)
    if not DType(x.dtype).is_float:
        raise c.error("floats are needed")
    root = _per_channel(c, x, _root(c, var))
    normal = c.op("divide", c.op("subtract", x, _per_channel(c, x, mean)), root)
    of_offset = c.op("sum", given, axis=axes)
    of_scale = c.op("sum", c.op("multiply", given, normal), axis=axes)
    count = 1
    for a in axes:
        count = count * x.shape[a]
    part = c.constant(1 / count, x.dtype)
    mean_given = c.op("multiply", _per_channel(c, x, of_offset), part)
    mean_along = c.op("multiply", _per_channel(c, x, of_scale), part)
    inner = c.op("subtract", c.op("subtract", given, mean_given), c.op("multiply", normal, mean_along))
    return c.op("divide", c.op("multiply", inner, _per_channel(c, x, scale)), root), of_scale, of_offset
