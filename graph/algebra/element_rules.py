"""Rules of arithmetic on single elements: neutral elements, constants that meet, bounds, functions spelled out."""

from __future__ import annotations

import numpy as np

from ...tir.expr import DType
from ..graph import Value, same_shape
from ..rules import Match, Rule, any_value, constant, either, number, op, rule

_x, _y, _c, _d = any_value("x"), any_value("y"), constant("c"), constant("d")


def _if_same(m: Match, v: Value) -> Value | None:
    """Returns ``v`` when it has the type of the result, so that nothing was broadcast."""
    return v if v.dtype == m.out.dtype and same_shape(v.shape, m.out.shape) else None


@rule(
    either(
        op("add", _x, number(0.0)), op("subtract", _x, number(0.0)), op("multiply", _x, number(1.0)),
        op("divide", _x, number(1.0)), op("power", _x, number(1.0)), op("identity", _x),
    )
)  # fmt: skip
def neutral_element(m: Match) -> Value | None:
    """x + 0, x - 0, x · 1, x / 1, x¹ and copies are x. (-0.0 + 0.0 is 0.0; the sign of a zero may be lost.)"""
    return _if_same(m, m["x"])


@rule(op("negative", op("negative", _x)))
def negative_of_negative(m: Match) -> Value | None:
    """-(-x) is x."""
    return m["x"]


@rule(op("relu abs", op("relu", _x), bind="outer"))
def relu_of_relu(m: Match) -> Value | None:
    """relu(relu(x)) and |relu(x)| are relu(x)."""
    return m.op("relu", m["x"])


@rule(either(op("multiply", _x, number(-1.0)), op("divide", _x, number(-1.0)), op("subtract", number(0.0), _x)))
def negated(m: Match) -> Value | None:
    """x · -1 and 0 - x are -x."""
    v = _if_same(m, m["x"])
    return None if v is None or not DType(v.dtype).is_float else m.op("negative", v)


@rule(op("add", _x, op("negative", _y)))
def sum_with_negative(m: Match) -> Value | None:
    """x + (-y) is x - y."""
    return m.op("subtract", m["x"], m["y"])


@rule(op("maximum", _x, number(0.0)))
def maximum_with_zero(m: Match) -> Value | None:
    """max(x, 0) is relu(x)."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("relu", v)


@rule(op("minimum", either(op("maximum", _x, _c), op("relu", _x)), _d))
def between_bounds(m: Match) -> Value | None:
    """min(max(x, a), b) of numbers is clip(x, a, b)."""
    low = _number(m.array("c")) if "c" in m else 0.0
    high = _number(m.array("d"))
    if low is None or high is None or low > high or not DType(m.out.dtype).is_float:
        return None
    v = _if_same(m, m["x"])
    return None if v is None else m.op("clip", v, low=low, high=high)


@rule(op("clip", op("clip", _x, bind="inner"), bind="outer"))
def clip_of_clip(m: Match) -> Value | None:
    """clip(clip(x, a, b), c, d) is one clip when the bounds are nested."""
    inner, outer = m.node("inner").attrs, m.node("outer").attrs
    low, high = max(inner["low"], outer["low"]), min(inner["high"], outer["high"])
    return m.op("clip", m["x"], low=low, high=high) if low <= high else None


@rule(either(op("add", op("add", _x, _c), _d), op("multiply", op("multiply", _x, _c), _d)))
def constants_meet(m: Match) -> Value | None:
    """Constants of two sums or of two products in a row are combined. (x + c) + d is x + (c + d), and (x · c) · d is x
    · (c · d)."""
    c, d = m.array("c"), m.array("d")
    both = np.broadcast_shapes(c.shape, d.shape)
    if np.prod(both) > max(c.size, d.size) or not DType(m.out.dtype).is_float:
        return None
    if m.data(m["x"]) is not None:
        return None
    total = (c + d) if m.root.op == "add" else (c * d)
    return m.op(m.root.op, m["x"], m.constant(total.astype(c.dtype), m["c"].dtype))


@rule(op("divide", _x, _c))
def division_by_power_of_two(m: Match) -> Value | None:
    """x / 2ⁿ is x · 2⁻ⁿ, exactly."""
    data = m.array("c")
    if data.dtype.kind != "f" or not data.size or data.dtype.itemsize < 4:
        return None
    mantissa, exponent = np.frexp(data)
    if not np.all(np.abs(mantissa) == 0.5) or np.max(np.abs(exponent)) > 100:
        return None
    return m.op("multiply", m["x"], m.constant((1.0 / data).astype(data.dtype), m["c"].dtype))


@rule(either(op("divide", number(1.0), op("sqrt", _x)), op("power", _x, number(-0.5))))
def reciprocal_of_root(m: Match) -> Value | None:
    """1 / √x is rsqrt(x)."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("rsqrt", v)


@rule(either(op("power", _x, number(2.0)), op("multiply", _x, _x)))
def product_with_itself(m: Match) -> Value | None:
    """x · x is x²."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("square", v)


@rule(op("divide", _x, op("sqrt", _y)))
def division_by_root(m: Match) -> Value | None:
    """x / √y is x · rsqrt(y), where √y has fewer elements: one division for each of those."""
    if m["y"].shape == m.out.shape or m["y"].dtype != "float32":
        return None
    return m.op("multiply", m["x"], m.op("rsqrt", m["y"]))


@rule(op("add subtract multiply divide maximum minimum", op("broadcast_to", _x), _y, bind="outer"))
def broadcast_twice(m: Match) -> Value | None:
    """An operator that broadcasts its operands needs no broadcast before it."""
    first = m.root.inputs[0] is not m["y"] or m.root.inputs[0] is m.root.inputs[1]
    inputs = (m["x"], m["y"]) if first else (m["y"], m["x"])
    return _if_same(m, m.op(m.root.op, *inputs))


@rule(op("broadcast_to", _x))
def broadcast_of_nothing(m: Match) -> Value | None:
    """broadcast_to(x) to the shape that x has is x."""
    return _if_same(m, m["x"])


def _number(data: np.ndarray) -> float | None:
    """Returns the number that all elements are."""
    if not data.size or data.dtype.kind not in "fiu" or np.any(data != data.reshape(-1)[0]):
        return None
    return float(data.reshape(-1)[0])


@rule(op("where", either(_c, op("broadcast_to", _c)), _x, _y))
def known_choice(m: Match) -> Value | None:
    """where(c, x, y) is x or y when the condition is known and the same everywhere."""
    data = m.array("c")
    return None if data.any() and not data.all() else _if_same(m, m["x"] if data.any() else m["y"])


RULES: tuple[Rule, ...] = (
    neutral_element, negative_of_negative, relu_of_relu, negated, sum_with_negative, maximum_with_zero, between_bounds,
    clip_of_clip, constants_meet, division_by_power_of_two, reciprocal_of_root, product_with_itself, division_by_root,
    broadcast_twice, broadcast_of_nothing, known_choice,
)  # fmt: skip
