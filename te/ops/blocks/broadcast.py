"""This module combines two tensors, or a tensor and a number, element by element; shapes broadcast as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....tir.expr import (
    And,
    DType,
    Expr,
    IntImm,
    Or,
    cast,
    const,
    convert,
    floordiv,
    floormod,
    max_,
    min_,
    promote,
    select,
)
from ....tir.expr.intrinsics.float_operations import copysign, floor, fmod, pow_
from ...compute import as_shape, compute
from ...tensor import BROADCAST_OPERATORS, Tensor
from .operator_arguments import BROADCAST, ELEMWISE, check_tensor, same, shape_text


def broadcast_shape(op: str, a: Sequence[Expr], b: Sequence[Expr]) -> tuple[Expr, ...]:
    """Returns the common shape: aligned at the end, extents equal or 1; ValueError shows both."""
    out: list[Expr] = []
    for i in range(1, max(len(a), len(b)) + 1):
        x = a[-i] if i <= len(a) else const(1)
        y = b[-i] if i <= len(b) else const(1)
        if same(x, y) or _is_one(y):
            out.append(x)
        elif _is_one(x):
            out.append(y)
        elif isinstance(x, IntImm) and isinstance(y, IntImm):
            raise ValueError(
                f"{op}: the shapes {shape_text(a)} and {shape_text(b)} do not broadcast: {x.value} against {y.value} "
                f"in dimension {-i}"
            )
        else:
            out.append(x if isinstance(x, IntImm) else y)  # symbolic: taken to agree
    return tuple(reversed(out))


def element(t: Tensor, i: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Returns the element of ``t`` that broadcasts to the index ``i`` of ``shape``."""
    lead = len(shape) - t.ndim
    index = [
        const(0, e.dtype) if _is_one(extent) and not _is_one(shape[lead + d]) else i[lead + d]
        for d, (extent, e) in enumerate(zip(t.shape, i[lead:], strict=True))
    ]
    return t(*index)


def _is_one(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 1


def combine(op: str, f: Callable[[Expr, Expr], Any], a: Any, b: Any, name: str) -> Any:
    """Returns ``f`` over two tensors or numbers; of two expressions it is just ``f``."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return f(convert(a), convert(b))
    if (isinstance(a, Expr) or isinstance(b, Expr)) and (a if isinstance(a, Tensor) else b).ndim == 0:
        return f(convert(a), convert(b))  # a tensor of rank 0 inside an expression
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        shape = broadcast_shape(op, a.shape, b.shape)
        out = compute(shape, lambda *i: f(element(a, i, shape), element(b, i, shape)), name=name, tag=BROADCAST)
    elif isinstance(a, Tensor):
        out = compute(a.shape, lambda *i: f(a(*i), _scalar(b, a.dtype)), name=name, tag=ELEMWISE)
    else:
        out = compute(b.shape, lambda *i: f(_scalar(a, b.dtype), b(*i)), name=name, tag=ELEMWISE)
    return out


def _scalar(value: Any, dtype: str) -> Expr:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return const(value, dtype if DType(dtype).is_float or isinstance(value, int) else "float32")
    return convert(value)


def broadcasting(op: str, f: Callable[[Expr, Expr], Any], meaning: str) -> Callable[..., Any]:
    """Returns the operator ``op``: ``f`` over two tensors or numbers, documented as ``meaning``."""

    def function(a: Any, b: Any, name: str = f"T_{op}") -> Any:
        return combine(op, f, a, b, name)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Returns {meaning[0].lower()}{meaning[1:]}; tensors or numbers, shapes broadcast as in NumPy."
    return function


def _divide(x: Expr, y: Expr) -> Expr:
    if x.dtype.is_float or y.dtype.is_float:
        return x / y
    return cast("float32", x) / cast("float32", y)


def _float_division(x: Expr, y: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    """The operands in the type to compute in, C's fmod of them, and whether that has another sign than ``y``."""
    dtype = promote(x.dtype, y.dtype)
    wide = dtype if dtype.bits >= 32 else "float32"
    a, b = cast(wide, x), cast(wide, y)
    rest, zero = fmod(a, b), const(0.0, wide)
    return a, b, rest, Or(And(rest < zero, b > zero), And(rest > zero, b < zero))


def _floor_mod(x: Expr, y: Expr) -> Expr:
    """Returns the remainder with the sign of ``y``, exact for floats. It is that of C's fmod, moved by ``y`` where the
    signs differ."""
    if not (x.dtype.is_float or y.dtype.is_float):
        return floormod(x, y)
    _, b, rest, differs = _float_division(x, y)
    return cast(promote(x.dtype, y.dtype), select(differs, rest + b, rest))


def _floor_divide(x: Expr, y: Expr) -> Expr:
    """The quotient that fits :func:`_floor_mod`; a quotient by zero or of an infinity is that of ``/``, as in NumPy."""
    if not (x.dtype.is_float or y.dtype.is_float):
        return floordiv(x, y)
    a, b, rest, differs = _float_division(x, y)
    near = (a - rest) / b  # a whole number, or next to one
    whole = floor(near) + cast(a.dtype, near - floor(near) > const(0.5, a.dtype)) - cast(a.dtype, differs)
    zero = const(0.0, b.dtype)
    signed = select(whole.equal(zero), copysign(zero, a / b), whole)
    return cast(promote(x.dtype, y.dtype), select(b.equal(zero), a / b, signed))


add = broadcasting("add", lambda x, y: x + y, "a + b")
subtract = broadcasting("subtract", lambda x, y: x - y, "a - b")
multiply = broadcasting("multiply", lambda x, y: x * y, "a · b")
divide = broadcasting("divide", _divide, "a / b, in float32 when both are integers")
floor_divide = broadcasting("floor_divide", _floor_divide, "a // b rounded towards minus infinity")
floor_mod = broadcasting("floor_mod", _floor_mod, "The remainder of floor_divide")
maximum = broadcasting("maximum", max_, "The larger, NaN if either is")
minimum = broadcasting("minimum", min_, "The smaller, NaN if either is")
power = broadcasting("power", pow_, "a to the power b")
equal = broadcasting("equal", lambda x, y: x.equal(y), "Whether a equals b")
not_equal = broadcasting("not_equal", lambda x, y: ~x.equal(y), "Whether a differs from b")
less = broadcasting("less", lambda x, y: x < y, "Whether a < b")
less_equal = broadcasting("less_equal", lambda x, y: x <= y, "Whether a <= b")
greater = broadcasting("greater", lambda x, y: x > y, "Whether a > b")
greater_equal = broadcasting("greater_equal", lambda x, y: x >= y, "Whether a >= b")


def broadcast_to(x: Tensor, shape: Any, name: str = "T_broadcast_to") -> Tensor:
    """Returns ``x`` repeated along new dimensions and along those of extent 1."""
    check_tensor("broadcast_to", x)
    dims = as_shape(shape, "broadcast_to")
    common = broadcast_shape("broadcast_to", x.shape, dims)
    if len(common) != len(dims) or not all(same(a, b) for a, b in zip(common, dims, strict=True)):
        raise ValueError(f"broadcast_to: {shape_text(x)} does not broadcast to {shape_text(dims)}")
    out: Tensor = compute(dims, lambda *i: element(x, i, dims), name=name, tag=BROADCAST)
    return out


for _symbol, _build in (("+", add), ("-", subtract), ("*", multiply), ("/", divide)):
    BROADCAST_OPERATORS[_symbol].set(_build)
