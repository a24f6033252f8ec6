"""Rules of arithmetic on single elements: neutral elements, constants that meet, bounds, functions, conversions.

Each holds for all types and values, NaN, the infinities and -0.0 among them, unless it says otherwise. Which of two equal
zeros a maximum or minimum gives is open, as in IEEE 754; so is the sign of NaN.
"""

from __future__ import annotations

import numpy as np

from ...te.ops.elements import ELEMENTS
from ...tir.expr import DType, max_value
from ..graph import Value, same_shape
from ..graph_operators import infer
from ..rules import Match, Rule, any_value, constant, either, number, numbers_of, op, rule

_x, _y, _c, _d = any_value("x"), any_value("y"), constant("c"), constant("d")


def _if_same(m: Match, v: Value) -> Value | None:
    """Returns ``v`` when it has the type of the result, so that nothing was broadcast."""
    return v if m.fits(v) else None


@rule(
    either(
        op("add", _x, number(0.0, "zero")), op("add", _x, number(-0.0)), op("subtract", _x, number(0.0)), op("multiply", _x, number(1.0)),
        op("divide", _x, number(1.0)), op("power", _x, number(1.0)), op("identity", _x),
    )
)  # fmt: skip
def neutral_element(m: Match) -> Value | None:
    """x + 0, x - 0, x · 1, x / 1, x¹ and copies are x.

    For floats the zero that is added is -0.0 and the one that is taken off is 0.0: -0.0 + 0.0 is 0.0. Where x is neither
    negative nor -0.0, both zeros go.
    """
    if "zero" in m and DType(m.out.dtype).is_float and not _is_positive(m, m["x"]):
        return None
    return _if_same(m, m["x"])


_POSITIVE = frozenset({"abs", "square", "exp", "exp2", "sigmoid", "softmax"})
_KEEP_SIGN = frozenset({"mean", "sum", "sqrt", "cast", "identity", "add", "multiply", "divide", "maximum", "minimum",
                        "broadcast_to", "reshape", "expand_dims", "squeeze", "flatten", "transpose", "strided_slice"})  # fmt: skip


def _is_positive(m: Match, v: Value, depth: int = 8) -> bool:
    """Returns whether no element of ``v`` is negative or -0.0 for sure; NaN aside."""
    data, node = m.data(v), m.producer(v)
    if not DType(v.dtype).is_float or depth == 0:
        return False
    if data is not None:
        return not np.any(np.signbit(numbers_of(data, v.dtype)))
    if node is None:
        return False
    if node.op == "multiply" and node.inputs[0] is node.inputs[1]:
        return True
    given = list(node.given)
    return node.op in _POSITIVE or node.op in _KEEP_SIGN and all(_is_positive(m, g, depth - 1) for g in given)


@rule(op("negative", op("negative", _x)))
def negative_of_negative(m: Match) -> Value | None:
    """-(-x) is x, for integers as well, as their negation wraps around."""
    return m["x"]


@rule(op("relu", op("relu", _x)))
def relu_of_relu(m: Match) -> Value | None:
    """relu(relu(x)) is relu(x). (|relu(x)| is not: relu(-0.0) may be -0.0.)"""
    return m.op("relu", m["x"])


@rule(either(op("multiply", _x, number(-1.0)), op("divide", _x, number(-1.0)), op("subtract", number(-0.0), _x)))
def negated(m: Match) -> Value | None:
    """x · -1, x / -1 and -0.0 - x are -x. (0.0 - 0.0 is 0.0, and not -0.0.) For floats."""
    v = _if_same(m, m["x"])
    return None if v is None or not DType(v.dtype).is_float else m.op("negative", v)


@rule(op("add", _x, op("negative", _y)))
def sum_with_negative(m: Match) -> Value | None:
    """x + (-y) is x - y, for integers as well, which wrap around in the type of the result."""
    return m.op("subtract", m["x"], m["y"]) if m["y"].dtype == m.out.dtype else None


@rule(op("maximum", _x, number(0.0)))
def maximum_with_zero(m: Match) -> Value | None:
    """max(x, 0) is relu(x); max(x, -0.0), which is -0.0 for negative x, is not."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("relu", v)


@rule(op("minimum", either(op("maximum", _x, _c), op("relu", _x)), _d))
def between_bounds(m: Match) -> Value | None:
    """min(max(x, a), b) of numbers is clip(x, a, b), for floats and a ≤ b; NaN is no such number."""
    low = _number(m.numbers("c")) if "c" in m else 0.0
    high = _number(m.numbers("d"))
    if low is None or high is None or low > high or not DType(m.out.dtype).is_float:
        return None
    v = _if_same(m, m["x"])
    return None if v is None else m.op("clip", v, low=low, high=high)


@rule(op("clip", op("clip", _x, bind="inner"), bind="outer"))
def clip_of_clip(m: Match) -> Value | None:
    """clip(clip(x, a, b), c, d) is one clip when the two ranges meet."""
    inner, outer = m.node("inner").attrs, m.node("outer").attrs
    low, high = max(inner["low"], outer["low"]), min(inner["high"], outer["high"])
    return m.op("clip", m["x"], low=low, high=high) if low <= high else None


@rule(either(op("add", op("add", _x, _c), _d), op("multiply", op("multiply", _x, _c), _d)))
def constants_meet(m: Match) -> Value | None:
    """Constants of two products or of two sums in a row are combined. (x · c) · d is x · (c · d), and (x + c) + d is x
    + (c + d).

    Integers wrap around, so that both are exact. Sums of floats are left: (x + c) + d rounds x to the digits of c. Products
    of floats are combined where both factors are at least 1 or both at most 1 in magnitude, so that x · c neither overflows
    nor loses digits that x · c · d has, and where c · d is a normal number. One rounding of the constant then stands for
    that of x · c; powers of two are exact.
    """
    c, d, dtype = m.numbers("c"), m.numbers("d"), DType(m.out.dtype)
    both = np.broadcast_shapes(c.shape, d.shape)
    if np.prod(both) > max(c.size, d.size) or m.data(m["x"]) is not None:
        return None
    if any(m[name].dtype != m.out.dtype for name in "xcd"):
        return None
    with np.errstate(all="ignore"):
        if dtype.is_int and dtype.bits >= 8:
            total = (c + d) if m.root.op == "add" else (c * d)
        elif dtype in _SMALLEST and m.root.op == "multiply" and _factors_meet(c, d, dtype):
            total = c * d
        else:
            return None
    return m.op(m.root.op, m["x"], m.constant(total, m["c"].dtype))


def _factors_meet(c: np.ndarray, d: np.ndarray, dtype: DType) -> bool:
    """Returns whether x · c · d and x · (c · d) differ by roundings only, for all x of the type."""
    grow, shrink = (abs(c) >= 1) & (abs(d) >= 1), (abs(c) <= 1) & (abs(d) <= 1)
    size = abs(c.astype(np.float64) * d.astype(np.float64))
    normal = (size <= max_value(dtype)) & (size >= _SMALLEST[dtype])
    return bool(np.all((grow | shrink) & (normal | (c == 0) | (d == 0)) & np.isfinite(c) & np.isfinite(d)))


_SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}
"""The smallest normal number of each type of floats."""


@rule(op("divide", _x, _c))
def division_by_power_of_two(m: Match) -> Value | None:
    """x / 2ⁿ is x · 2⁻ⁿ, exactly, for float32 and float64 and -100 < n < 100."""
    data = m.array("c")
    if data.dtype.kind != "f" or not data.size or data.dtype.itemsize < 4:
        return None
    mantissa, exponent = np.frexp(data)
    if not np.all(np.abs(mantissa) == 0.5) or np.max(np.abs(exponent)) > 100:
        return None
    return m.op("multiply", m["x"], m.constant((1.0 / data).astype(data.dtype), m["c"].dtype))


@rule(either(op("divide", number(1.0), op("sqrt", _x)), op("power", _x, number(-0.5), bind="power")))
def reciprocal_of_root(m: Match) -> Value | None:
    """1 / √x is rsqrt(x), to one rounding.

    The power is that only where x is neither negative nor -0.0: of -0.0 it is inf and not -inf, of -inf it is 0 and not NaN.
    """
    if "power" in m and not _is_positive(m, m["x"]):
        return None
    v = _if_same(m, m["x"])
    return None if v is None else m.op("rsqrt", v)


@rule(either(op("power", _x, number(2.0)), op("multiply", _x, _x)))
def product_with_itself(m: Match) -> Value | None:
    """x · x and the second power of x are x², to one rounding; integers wrap around in all of them."""
    v = _if_same(m, m["x"])
    return None if v is None else m.op("square", v)


@rule(op("divide", _x, op("sqrt", _y)))
def division_by_root(m: Match) -> Value | None:
    """x / √y is x · rsqrt(y), where √y has fewer elements: one division for each of those.

    For float32, to two roundings: rsqrt of any float32 is a normal number, or 0, inf or NaN where 1 / √y is.
    """
    if m["y"].shape == m.out.shape or m["y"].dtype != "float32":
        return None
    return m.op("multiply", m["x"], m.op("rsqrt", m["y"]))


_OF_TWO = " ".join([row.name for row in ELEMENTS.values() if row.operands == 2])
_wide = op("broadcast_to", _x)


@rule(
    either(
        op(_OF_TWO, _wide, _y), op(_OF_TWO, _y, _wide), op("where", _wide, _y, any_value("z")),
        op("where", any_value("z"), _wide, _y), op("where", any_value("z"), _y, _wide),
    )
)  # fmt: skip
def broadcast_twice(m: Match) -> Value | None:
    """An operator that broadcasts its operands needs no broadcast before it."""
    for n, v in enumerate(m.root.given):
        node = m.producer(v)
        if node is not None and node.op == "broadcast_to" and node.inputs[0] is m["x"]:
            inputs = [*m.root.inputs[:n], m["x"], *m.root.inputs[n + 1 :]]
            ((dtype, shape),) = infer(m.root.op, inputs, m.root.attrs)
            if dtype == m.out.dtype and same_shape(shape, m.out.shape):
                return m.op(m.root.op, *inputs, **m.root.attrs)
    return None


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
    data = m.numbers("c") != 0
    return None if data.any() and not data.all() else _if_same(m, m["x"] if data.any() else m["y"])


@rule(op("cast", _x))
def cast_to_the_same(m: Match) -> Value | None:
    """A conversion to the type that x has is x."""
    return m["x"] if m["x"].dtype == m.out.dtype else None


@rule(op("cast", op("cast", _x, bind="inner")))
def cast_of_cast(m: Match) -> Value | None:
    """Two conversions in a row become one. The type between must hold all values of the first type.

    An integer that is a float in between and then an integer again stays as it is unless the last type holds all values
    of the first one: a conversion from a float ends at the ends of the type, and one from an integer wraps around.
    """
    first, second, last = m["x"].dtype, m.node("inner").output.dtype, m.out.dtype
    if not _holds_all(second, first):
        return None
    if DType(first).is_int and DType(second).is_float and DType(last).is_int and not _holds_all(last, first):
        return None
    return m["x"] if first == m.out.dtype else m.op("cast", m["x"], dtype=m.out.dtype)


def _holds_all(wide: str, narrow: str) -> bool:
    """Returns whether each value of ``narrow`` is one of ``wide``."""
    a, b = DType(wide), DType(narrow)
    if a.is_float and b.is_float:
        return a.bits >= 2 * b.bits or a == b
    if a.kind == b.kind:
        return a.bits >= b.bits
    if a.kind == "int" and b.kind == "uint":
        return a.bits > b.bits
    return a.is_float and b.is_int and {"float32": 16, "float64": 32}.get(str(a), 0) >= b.bits


RULES: tuple[Rule, ...] = (
    neutral_element,
    negative_of_negative,
    relu_of_relu,
    negated,
    sum_with_negative,
    maximum_with_zero,
    between_bounds,
    clip_of_clip,
    constants_meet,
    division_by_power_of_two,
    reciprocal_of_root,
    product_with_itself,
    division_by_root,
    broadcast_twice,
    broadcast_of_nothing,
    known_choice,
    cast_to_the_same,
    cast_of_cast,
)
