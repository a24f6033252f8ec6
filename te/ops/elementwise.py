"""This module has activations and other functions of each element of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tir.expr import Expr, cast, const, max_, min_, select
from ...tir.expr.intrinsics import Operation
from ...tir.expr.intrinsics import float_operations as operations
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.float_operations import abs_
from ...tir.expr.intrinsics.integer_operations import reinterpret as as_bits
from ..compute import compute
from ..operation import Requirement
from ..tensor import Tensor
from .blocks.operator_arguments import BROADCAST, ELEMWISE, check_tensor, normalize_axis, require_same


def elementwise(x: Tensor, f: Callable[[Expr], Any], name: str) -> Tensor:
    """Returns a stage ``name`` whose elements are ``f`` of those of ``x``."""
    check_tensor(name, x)
    out: Tensor = compute(x.shape, lambda *i: f(x(*i)), name=name, tag=ELEMWISE)
    return out


def in_float32(x: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """Returns ``f(x)``, computed in float32 when ``x`` is a narrower float or an integer; narrow floats are converted
    back."""
    if x.dtype.is_float and x.dtype.bits >= 32:
        return f(x)
    out = f(cast("float32", x))
    return cast(x.dtype, out) if x.dtype.is_float else out


def _function(row: Operation) -> Callable[..., Tensor]:
    def function(x: Tensor, name: str = f"T_{row.name}") -> Tensor:
        return elementwise(x, lambda e: in_float32(e, row), name)

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = f"Computes {row.meaning}, element by element."
    return function


def _rounding(row: Operation) -> Callable[..., Tensor]:
    def function(x: Tensor, name: str = f"T_{row.name}") -> Tensor:
        return elementwise(x, lambda e: e if e.dtype.is_int else in_float32(e, row), name)

    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = f"Computes {row.meaning}, element by element."
    return function


exp = _function(operations.exp)
log = _function(operations.log)
sqrt = _function(operations.sqrt)
rsqrt = _function(operations.rsqrt)
tanh = _function(operations.tanh)
exp2 = _function(operations.exp2)
expm1 = _function(operations.expm1)
log2 = _function(operations.log2)
log10 = _function(operations.log10)
log1p = _function(operations.log1p)
sin = _function(operations.sin)
cos = _function(operations.cos)
tan = _function(operations.tan)
asin = _function(operations.asin)
acos = _function(operations.acos)
atan = _function(operations.atan)
sinh = _function(operations.sinh)
cosh = _function(operations.cosh)
asinh = _function(operations.asinh)
acosh = _function(operations.acosh)
atanh = _function(operations.atanh)
sigmoid = _function(operations.sigmoid)
erf = _function(operations.erf)
floor = _rounding(operations.floor)
ceil = _rounding(operations.ceil)
round = _rounding(operations.round_)
trunc = _rounding(operations.trunc)


def identity(x: Tensor, name: str = "T_identity") -> Tensor:
    """Returns a copy."""
    return elementwise(x, lambda e: e, name)


def cast_to(x: Tensor, dtype: str, name: str = "T_cast") -> Tensor:
    """Returns the elements converted to ``dtype``; ``te.ops.cast``."""
    return elementwise(x, lambda e: cast(dtype, e), name)


def reinterpret(x: Tensor, dtype: str, name: str = "T_reinterpret") -> Tensor:
    """Returns the bits of the elements as another data type of the same width."""
    return elementwise(x, lambda e: e if e.dtype == dtype else as_bits(dtype, e), name)


def abs(x: Tensor, name: str = "T_abs") -> Tensor:
    """Returns the absolute value."""
    return elementwise(x, abs_, name)


def negative(x: Tensor, name: str = "T_negative") -> Tensor:
    """Returns the element times -1."""
    return elementwise(x, lambda e: -e, name)


def sign(x: Tensor, name: str = "T_sign") -> Tensor:
    """Returns -1, 0 or 1; NaN stays NaN."""

    def f(e: Expr) -> Expr:
        one, zero = const(1, e.dtype), const(0, e.dtype)
        return select(e > zero, one, select(e < zero, zero - one, e))

    return elementwise(x, f, name)


def square(x: Tensor, name: str = "T_square") -> Tensor:
    """Returns the element times itself."""
    return elementwise(x, lambda e: e * e, name)


def clip(x: Tensor, low: float, high: float, name: str = "T_clip") -> Tensor:
    """Returns the element, but at least ``low`` and at most ``high``."""
    if low > high:
        raise ValueError(f"clip: the lower bound {low} is above the upper bound {high}")
    return elementwise(x, lambda e: min_(max_(e, const(low, e.dtype)), const(high, e.dtype)), name)


def relu(x: Tensor, name: str = "T_relu") -> Tensor:
    """Returns max(x, 0)."""
    return elementwise(x, lambda e: max_(e, const(0, e.dtype)), name)


def relu6(x: Tensor, name: str = "T_relu6") -> Tensor:
    """Returns min(max(x, 0), 6)."""
    return clip(x, 0, 6, name)


def leaky_relu(x: Tensor, alpha: float = 0.01, name: str = "T_leaky_relu") -> Tensor:
    """Returns ``x`` where positive, else ``alpha * x``."""
    return elementwise(x, lambda e: select(e > const(0, e.dtype), e, e * const(alpha, e.dtype)), name)


def prelu(x: Tensor, slope: Tensor, axis: int = 1, name: str = "T_prelu") -> Tensor:
    """Returns ``x`` where positive, else ``slope * x`` with one slope per index along ``axis``."""
    check_tensor("prelu", x)
    check_tensor("prelu", slope, 1, "the slope")
    axis = normalize_axis("prelu", axis, x.ndim)
    requires = require_same("prelu", f"axis {axis}", x.shape[axis], slope.shape[0], x, slope)
    out: Tensor = compute(
        x.shape,
        lambda *i: select(x(*i) > const(0, x.dtype), x(*i), x(*i) * slope(i[axis])),
        name=name,
        tag=BROADCAST,
        requires=requires,
    )
    return out


def elu(x: Tensor, alpha: float = 1.0, name: str = "T_elu") -> Tensor:
    """Returns ``x`` where positive, else ``alpha * (exp(x) - 1)``."""

    def f(e: Expr) -> Expr:
        return select(e > 0.0, e, (operations.exp(min_(e, const(0.0, e.dtype))) - 1.0) * const(alpha, e.dtype))

    return elementwise(x, lambda e: in_float32(e, f), name)


def gelu(x: Tensor, approximate: str = "none", name: str = "T_gelu") -> Tensor:
    """Returns x times the normal distribution function of x (Hendrycks and Gimpel, 2016).

    ``approximate="none"``: x/2 (1 + erf(x/√2)); ``"tanh"``: x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate={approximate!r}; there are 'none' and 'tanh'")

    def exact(e: Expr) -> Expr:
        return e * 0.5 * (operations.erf(e * math.sqrt(0.5)) + 1.0)

    def rough(e: Expr) -> Expr:
        inner = (e + e * e * e * 0.044715) * math.sqrt(2.0 / math.pi)
        return e * 0.5 * (operations.tanh(inner) + 1.0)

    return elementwise(x, lambda e: in_float32(e, exact if approximate == "none" else rough), name)


def silu(x: Tensor, name: str = "T_silu") -> Tensor:
    """Returns x · sigmoid(x), also called swish."""
    return elementwise(x, lambda e: in_float32(e, lambda v: v * operations.sigmoid(v)), name)


def softplus(x: Tensor, name: str = "T_softplus") -> Tensor:
    """Returns log(1 + exp(x)), without overflow."""

    def f(e: Expr) -> Expr:
        return max_(e, const(0.0, e.dtype)) + operations.log1p(operations.exp(-abs_(e)))

    return elementwise(x, lambda e: in_float32(e, f), name)


def mish(x: Tensor, name: str = "T_mish") -> Tensor:
    """Returns x · tanh(softplus(x))."""

    def f(e: Expr) -> Expr:
        return e * operations.tanh(max_(e, const(0.0, e.dtype)) + operations.log1p(operations.exp(-abs_(e))))

    return elementwise(x, lambda e: in_float32(e, f), name)


def hardsigmoid(x: Tensor, name: str = "T_hardsigmoid") -> Tensor:
    """Returns x/6 + 1/2 between 0 and 1."""
    return elementwise(x, lambda e: in_float32(e, _hard), name)


def hardswish(x: Tensor, name: str = "T_hardswish") -> Tensor:
    """Returns x · hardsigmoid(x)."""
    return elementwise(x, lambda e: in_float32(e, lambda v: v * _hard(v)), name)


def _hard(e: Expr) -> Expr:
    return min_(max_(e + 3.0, const(0.0, e.dtype)), const(6.0, e.dtype)) * (1.0 / 6.0)


def where(condition: Tensor, x: Tensor, y: Tensor, name: str = "T_where") -> Tensor:
    """Returns ``x`` where ``condition`` (bool, or not zero), else ``y``; one shape for all three."""
    requires: list[Requirement] = []
    for t in (condition, x, y):
        check_tensor("where", t, condition.ndim)
        for a, b in zip(condition.shape, t.shape, strict=True):
            requires += require_same("where", "a dimension", a, b, condition, t)

    def f(*i: Expr) -> Expr:
        c = condition(*i)
        return if_then_else(c if c.dtype == "bool" else c != 0, x(*i), y(*i))

    out: Tensor = compute(x.shape, f, name=name, tag=ELEMWISE, requires=requires)
    return out


def swiglu(gate: Tensor, up: Tensor, name: str = "T_swiglu") -> Tensor:
    """Returns silu(gate) · up, element by element (Shazeer, 2020); both have one shape and data type."""
    op = "swiglu"
    check_tensor(op, gate)
    check_tensor(op, up, gate.ndim)
    requires: list[Requirement] = []
    for a, b in zip(gate.shape, up.shape, strict=True):
        requires += require_same(op, "a dimension", a, b, gate, up)
    if gate.dtype != up.dtype:
        raise TypeError(f"{op}: the data types {gate.dtype} and {up.dtype} differ")

    def f(*i: Expr) -> Expr:
        return in_float32(gate(*i), lambda v: v * operations.sigmoid(v)) * up(*i)

    out: Tensor = compute(gate.shape, f, name=name, tag=BROADCAST, requires=requires)
    return out
