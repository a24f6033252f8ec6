"""This module combines two tensors, or a tensor and a number, element by element; shapes broadcast as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....tir.expr import (
    EQ,
    And,
    DType,
    Expr,
    IntImm,
    Or,
    Select,
    any_,
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
from ...operation import Requirement
from ...tensor import Tensor
from .operator_arguments import BROADCAST, ELEMWISE, check_tensor, same, shape_text


def broadcast_shape(
    op: str, a: Sequence[Expr], b: Sequence[Expr], tensors: tuple[Tensor, Tensor]
) -> tuple[tuple[Expr, ...], list[Requirement]]:
    """Returns the common shape, and what has to hold of symbolic sizes; ValueError shows both shapes.

    Shapes are aligned at the end, where extents are equal or 1. Of two symbolic sizes that may differ, the call decides
    which is 1. ``tensors`` have the shapes, for messages.
    """
    out: list[Expr] = []
    requires: list[Requirement] = []
    for i in range(1, max(len(a), len(b)) + 1):
        x = a[-i] if i <= len(a) else const(1)
        y = b[-i] if i <= len(b) else const(1)
        out.append(broadcast_extent(x, y))
        if same(x, y) or _is_one(x) or _is_one(y):
            continue
        if isinstance(x, IntImm) and isinstance(y, IntImm):
            raise ValueError(
                f"{op}: the shapes {shape_text(a)} and {shape_text(b)} do not broadcast: {x.value} against {y.value} "
                f"in dimension {-i}"
            )
        ones = [e.equal(1) for e in (x, y) if not isinstance(e, IntImm)]
        requires.append((
            any_(x.equal(y), *ones),
            f"{op}: the shapes {shape_text(a)} of {tensors[0].name} and {shape_text(b)} of {tensors[1].name} have to "
            f"broadcast: {x} against {y} in dimension {-i}",
        ))  # fmt: skip
    return tuple(reversed(out)), requires


def broadcast_extent(x: Expr, y: Expr) -> Expr:
    """Returns what two sizes broadcast to: a number, or the first symbolic size that is not 1.

    Sizes that broadcast to one are collected, each once, so that they do not nest deeper with each operator.
    """
    if same(x, y) or _is_one(y):
        return x
    if _is_one(x):
        return y
    if isinstance(x, IntImm) or isinstance(y, IntImm):
        return x if isinstance(x, IntImm) else y
    mine, theirs = chosen_from(x), chosen_from(y)
    for one, many, others in ((x, mine, theirs), (y, theirs, mine)):
        if all(any(same(a, b) for b in many) for a in others):
            return one
    return first_not_one([*mine, *[e for e in theirs if not any(same(e, known) for known in mine)]])


def first_not_one(sizes: Sequence[Expr]) -> Expr:
    """Returns the first of several sizes that is not 1, as an expression."""
    out = sizes[-1]
    for e in reversed(sizes[:-1]):
        wide = promote(out.dtype, e.dtype)
        out = select(e.equal(1), out.astype(wide), e.astype(wide))
    return out


def chosen_from(size: Expr) -> list[Expr]:
    """Returns the sizes that :func:`broadcast_extent` chooses from; of another size itself."""
    if isinstance(size, Select) and isinstance(size.condition, EQ) and _is_one(size.condition.b):
        first = size.condition.a
        if same(first, size.false_value):
            return [first, *chosen_from(size.true_value)]
    return [size]


def element(t: Tensor, i: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Returns the element of ``t`` that broadcasts to the index ``i`` of ``shape``."""
    lead = len(shape) - t.ndim
    return t(*[_place(e, extent, whole) for e, extent, whole in zip(i[lead:], t.shape, shape[lead:], strict=True)])


def _place(i: Expr, extent: Expr, whole: Expr) -> Expr:
    """Returns the index of a dimension that broadcasts to ``whole`` elements: 0 where it has one."""
    if _is_one(extent) and not _is_one(whole):
        return const(0, i.dtype)
    if same(extent, whole) or isinstance(extent, IntImm):
        return i
    return min_(i, cast(i.dtype, extent) - 1)  # i where the sizes agree


def _is_one(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 1


def combine(op: str, f: Callable[[Expr, Expr], Any], a: Any, b: Any, name: str) -> Any:
    """Returns ``f`` over two tensors or numbers; of two expressions it is just ``f``."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        return f(convert(a), convert(b))
    if (isinstance(a, Expr) or isinstance(b, Expr)) and (a if isinstance(a, Tensor) else b).ndim == 0:
        return f(convert(a), convert(b))  # a tensor of rank 0 inside an expression
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        shape, requires = broadcast_shape(op, a.shape, b.shape, (a, b))
        out = compute(
            shape, lambda *i: f(element(a, i, shape), element(b, i, shape)), name=name, tag=BROADCAST, requires=requires
        )
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
    text = f"{shape_text(x)} does not broadcast to {shape_text(dims)}"
    if x.ndim > len(dims):
        raise ValueError(f"broadcast_to: {text}")
    requires: list[Requirement] = []
    for e, whole in zip(x.shape, dims[len(dims) - x.ndim :], strict=True):
        if isinstance(e, IntImm) and isinstance(whole, IntImm) and e.value not in (1, whole.value):
            raise ValueError(f"broadcast_to: {text}")
        if not _is_one(e) and not same(e, whole):
            fits = e.equal(whole) if isinstance(e, IntImm) else any_(e.equal(1), e.equal(whole))
            requires.append(
                (fits, f"broadcast_to: the shape {text}: {e} has to be 1 or {whole}; the input is {x.name}")
            )
    for whole in dims:  # what broadcasting gave: all sizes that it was chosen from have to fit
        for e in chosen_from(whole) if isinstance(whole, Select) else ():
            requires.append((any_(e.equal(1), e.equal(whole)), f"broadcast_to: {e} has to be 1 or {whole}"))
    out: Tensor = compute(dims, lambda *i: element(x, i, dims), name=name, tag=BROADCAST, requires=requires)
    return out


OF_SYMBOLS = {"+": add, "-": subtract, "*": multiply, "/": divide}
"""What makes ``A + B`` and the like of whole tensors."""
