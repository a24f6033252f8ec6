"""The rows of ``tl`` for programs, memory, elements, shapes, reductions by name and products."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from enum import Enum
from typing import Any, NoReturn

from ..tir.expr import Select, const
from ..tir.expr.dtype import DType
from ..tir.expr.intrinsics import operation_named
from ..tir.expr.intrinsics.number_operations import abs_
from .block_values import (
    BlockValue,
    PointerType,
    broadcast,
    broadcast_make,
    broadcast_shape,
    converted,
    of_expression,
    promoted,
)
from .kernel_builder import FLOAT32, KernelBuilder
from .rows import Builtin, axis_of, builtin, float32, int32, member, shape_of, type_of, uint32, whole

# -- programs and blocks of one value ----------------------------------------------------------------------------------


@builtin
def program_id(k: KernelBuilder, axis: int) -> BlockValue:
    """Return the index of this program along an axis of the grid."""
    return of_expression(k.programs[_grid_axis(axis)], int32)


@builtin
def num_programs(k: KernelBuilder, axis: int) -> BlockValue:
    """Return the number of programs along an axis of the grid."""
    return of_expression(k.grid[_grid_axis(axis)], int32)


def _grid_axis(axis: Any) -> int:
    n = whole(axis, "the axis of the grid")
    if n not in (0, 1, 2):
        raise ValueError(f"a grid has the axes 0, 1 and 2, not {n}")
    return n


@builtin
def swizzle2d(k: KernelBuilder, i: Any, j: Any, size_i: Any, size_j: Any, size_g: Any) -> tuple[BlockValue, BlockValue]:
    """Return the place of (i, j) in an order that goes down the columns of each group of ``size_g`` rows."""
    flat = k.binary("+", k.binary("*", i, size_j), j)
    in_group = k.binary("*", size_g, size_j)
    first = k.binary("*", k.binary("//", flat, in_group), size_g)
    rows = k.binary("minimum", k.binary("-", size_i, first), size_g)
    place = k.binary("%", flat, in_group)
    return k.binary("+", first, k.binary("%", place, rows)), k.binary("//", place, rows)


@builtin
def arange(k: KernelBuilder, start: int, end: int) -> BlockValue:
    """Return the integers from ``start`` to ``end`` - 1 as a block; their number is a power of two."""
    low, high = whole(start, "the start of arange"), whole(end, "the end of arange")
    size = high - low
    if size < 1 or size & (size - 1):
        raise ValueError(
            f"arange's range must be a power of 2, and from {low} to {high} there are {builtins.max(size, 0)} numbers"
        )
    return BlockValue((size,), int32, lambda lanes: lanes[0] + k.number(low) if low else lanes[0])


@builtin
def full(k: KernelBuilder, shape: Sequence[int], value: Any, dtype: DType) -> BlockValue:
    """Return a block of one value."""
    number = k.value(value) if isinstance(value, BlockValue) else k.constant(value, type_of(dtype))
    return broadcast(k.cast(number, type_of(dtype)), shape_of([shape]))


@builtin
def zeros(k: KernelBuilder, shape: Sequence[int], dtype: DType) -> BlockValue:
    """Return a block of zeros."""
    return broadcast(k.constant(0, type_of(dtype)), shape_of([shape]))


@builtin
def zeros_like(k: KernelBuilder, input: BlockValue) -> BlockValue:
    """Return a block of zeros with the shape and the type of another one."""
    return broadcast(k.constant(0, input.dtype), input.shape)


# -- element-wise ------------------------------------------------------------------------------------------------------


class PropagateNan(Enum):
    """What the larger or smaller one of a number and NaN is: the number (``NONE``), or NaN (``ALL``)."""

    NONE = 0
    ALL = 0xFFFF


def _of_nan(propagate_nan: Any) -> str:
    """Returns the end of an operator's name that says what it makes of NaN."""
    if not isinstance(propagate_nan, PropagateNan):
        raise TypeError(f"propagate_nan is tl.PropagateNan.NONE or ALL, not {propagate_nan!r}")
    return " or nan" if propagate_nan is PropagateNan.ALL else ""


@builtin
def where(k: KernelBuilder, condition: Any, x: Any, y: Any) -> BlockValue:
    """Return ``x`` where the condition holds, else ``y``; both are computed."""
    return k.where(condition, x, y)


@builtin
def maximum(k: KernelBuilder, x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> BlockValue:
    """Return the larger element of two blocks; of a number and NaN the number, unless ``propagate_nan`` is ``ALL``."""
    return k.binary("maximum" + _of_nan(propagate_nan), x, y)


@builtin
def minimum(k: KernelBuilder, x: Any, y: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> BlockValue:
    """Return the smaller element of two blocks; of a number and NaN the number, unless ``propagate_nan`` is ``ALL``."""
    return k.binary("minimum" + _of_nan(propagate_nan), x, y)


@builtin
def add(k: KernelBuilder, x: Any, y: Any, sanitize_overflow: bool = True) -> BlockValue:
    """Return the sum of two blocks, as x + y."""
    return k.binary("+", x, y)


@builtin
def sub(k: KernelBuilder, x: Any, y: Any, sanitize_overflow: bool = True) -> BlockValue:
    """Return the difference of two blocks, as x - y."""
    return k.binary("-", x, y)


@builtin
def mul(k: KernelBuilder, x: Any, y: Any, sanitize_overflow: bool = True) -> BlockValue:
    """Return the product of two blocks, as x * y."""
    return k.binary("*", x, y)


@builtin
def clamp(k: KernelBuilder, x: Any, min: Any, max: Any, propagate_nan: PropagateNan = PropagateNan.NONE) -> BlockValue:
    """Return each element, but at least ``min`` and at most ``max``; NaN is ``min``, unless ``propagate_nan`` is ``ALL``."""
    how = _of_nan(propagate_nan)
    return k.binary("minimum" + how, k.binary("maximum" + how, x, min), max)


@member
def abs(k: KernelBuilder, x: Any) -> BlockValue:
    """Return the magnitude of each element."""
    value = k.value(x)
    exact = k.data(value, value.dtype)
    return BlockValue(value.shape, value.dtype, lambda lanes: abs_(exact.make(lanes)), value.cost + 1, value.reads)


def _function(name: str, meaning: str, operation: str = "") -> Builtin:
    """Returns the row of an operation of one float."""

    def compute(k: KernelBuilder, x: Any) -> BlockValue:
        return k.elementwise(operation or name, k.value(x))

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"Return {meaning} of each element; integers are converted to float32."
    return member(compute)


exp = _function("exp", "e to the power")
exp2 = _function("exp2", "2 to the power")
log = _function("log", "the natural logarithm")
log2 = _function("log2", "the logarithm to base 2")
sqrt = _function("sqrt", "the square root")
sqrt_rn = _function("sqrt_rn", "the square root, rounded to nearest,", "sqrt")
rsqrt = _function("rsqrt", "1 / the square root")
sin = _function("sin", "the sine")
cos = _function("cos", "the cosine")
erf = _function("erf", "the error function")
floor = _function("floor", "the largest whole number not above it,")
ceil = _function("ceil", "the smallest whole number not below it,")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x))")


@builtin
def fma(k: KernelBuilder, x: Any, y: Any, z: Any) -> BlockValue:
    """Return x * y + z of floats, rounded once."""
    a, b, c = k.value(x), k.value(y), k.value(z)
    weak = [isinstance(v, (bool, int, float)) for v in (x, y, z)]
    dtype = promoted(promoted(a.dtype, b.dtype, weak[0], weak[1]), c.dtype, weak[0] and weak[1], weak[2])
    if not dtype.is_float:
        raise TypeError(f"fma is for floats, not {a.type_text()}, {b.type_text()} and {c.type_text()}")
    shape = broadcast_shape(a.shape, b.shape, c.shape)
    makes = [broadcast_make(k.cast_data(v, dtype), shape) for v in (a, b, c)]
    row = operation_named("fma")
    return BlockValue(
        shape, dtype, lambda lanes: row(*[make(lanes) for make in makes]), a.cost + b.cost + c.cost + 1,
        a.reads | b.reads | c.reads,
    )  # fmt: skip


def _quotient(k: KernelBuilder, x: Any, y: Any) -> BlockValue:
    for v in (k.value(x), k.value(y)):
        if not v.dtype.is_float:
            raise TypeError(f"this quotient is for floats, not {v.type_text()}; x / y converts integers")
    return k.binary("/", x, y)


@builtin
def fdiv(k: KernelBuilder, x: Any, y: Any, ieee_rounding: bool = False) -> BlockValue:
    """Return the quotient of floats, correctly rounded."""
    return _quotient(k, x, y)


@builtin
def div_rn(k: KernelBuilder, x: Any, y: Any) -> BlockValue:
    """Return the quotient of floats, correctly rounded."""
    return _quotient(k, x, y)


@member
def cdiv(k: KernelBuilder, x: Any, div: Any) -> Any:
    """Return the quotient rounded up."""
    if isinstance(x, int) and isinstance(div, int):
        return -(-x // div)
    return k.binary("//", k.binary("-", k.binary("+", x, div), 1), div)


@member
def to(
    k: KernelBuilder, x: Any, dtype: DType, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> BlockValue:
    """Return the elements converted to a type, or with ``bitcast`` their bits as that type."""
    value = k.value(x)
    if fp_downcast_rounding not in (None, "rtne"):
        raise ValueError(
            f"fp_downcast_rounding {fp_downcast_rounding!r}; floats are rounded to nearest, ties to even ('rtne')"
        )
    if isinstance(dtype, PointerType):
        raise NotImplementedError(
            "an integer becomes no pointer: nothing says where the array at an address ends; give the kernel the array, and offsets of its parts"
        )
    if not bitcast:
        return k.cast(value, type_of(dtype))
    if value.dtype.bits != type_of(dtype).bits:
        raise TypeError(f"bitcast of {value.type_text()} to {dtype}, which has another number of bits")
    exact = k.data(value, value.dtype)
    row = operation_named("reinterpret")
    return BlockValue(
        value.shape, dtype, lambda lanes: row(exact.make(lanes), dtype=dtype), value.cost + 1, value.reads
    )


@member
def cast(
    k: KernelBuilder, x: Any, dtype: DType, fp_downcast_rounding: str | None = None, bitcast: bool = False
) -> BlockValue:
    """Return the elements converted to a type, or with ``bitcast`` their bits as that type."""
    result: BlockValue = to.meaning(k, x, dtype, fp_downcast_rounding, bitcast)
    return result


# -- promises and checks -----------------------------------------------------------------------------------------------


def _promise(name: str, meaning: str) -> Builtin:
    def keep(k: KernelBuilder, input: Any, values: Any) -> Any:
        return input

    keep.__name__ = keep.__qualname__ = name
    keep.__doc__ = f"Return the block; the kernel promises that {meaning}. Processors need no such promise."
    return builtin(keep)


multiple_of = _promise("multiple_of", "its elements are multiples of ``values``")
max_contiguous = _promise("max_contiguous", "its elements are contiguous in groups of ``values``")
max_constancy = _promise("max_constancy", "its elements are equal in groups of ``values``")


@builtin
def assume(k: KernelBuilder, cond: Any) -> None:
    """Promise that a condition holds; processors need no such promise."""


@builtin
def debug_barrier(k: KernelBuilder) -> None:
    """Wait for the threads of this program; on a processor it has one."""
    k.barrier()


@builtin
def static_assert(k: KernelBuilder, cond: Any, msg: str = "") -> None:
    """Stop compiling unless a condition holds that is known by then."""
    if isinstance(cond, BlockValue):
        raise TypeError("static_assert is for what is known when the kernel is compiled")
    if not cond:
        raise AssertionError(msg or "static_assert does not hold")


@builtin
def static_print(k: KernelBuilder, *values: Any) -> None:
    """Print values when the kernel is compiled."""
    if not k.trial:
        print(*[v.type_text() if isinstance(v, BlockValue) else v for v in values])


# -- shapes ------------------------------------------------------------------------------------------------------------


def _cheap(k: KernelBuilder, value: BlockValue) -> BlockValue:
    """Returns a value whose elements may be repeated: one that costs something is computed before."""
    if value.cost >= 6 and value.pointer is None:
        k.keep(value)
    return value


@member
def expand_dims(k: KernelBuilder, input: BlockValue, axis: Any) -> BlockValue:
    """Return the block with a new dimension of size 1 at each axis."""
    value = _cheap(k, k.value(input))
    k.spread(value)
    axes = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    rank = len(value.shape) + len(axes)
    new = sorted(whole(a, "the axis") % rank for a in axes)
    kept = [n for n in builtins.range(rank) if n not in new]
    shape = [1] * rank
    for n, size in zip(kept, value.shape, strict=True):
        shape[n] = size
    return value.derived(shape, lambda lanes: value.make(tuple([lanes[n] for n in kept])))


@builtin
def unsqueeze(k: KernelBuilder, x: BlockValue, dim: Any) -> BlockValue:
    """Return the block with a new dimension of size 1."""
    result: BlockValue = expand_dims.meaning(k, x, dim)
    return result


@builtin
def squeeze(k: KernelBuilder, x: BlockValue, dim: Any) -> BlockValue:
    """Return the block without a dimension of size 1."""
    value = k.value(x)
    n = axis_of(value, dim)
    if value.shape[n] != 1:
        raise ValueError(
            f"squeeze leaves out a dimension of size 1, and dimension {n} of {value.type_text()} is larger"
        )
    zero = k.number(0)
    return value.derived(
        (*value.shape[:n], *value.shape[n + 1 :]), lambda lanes: value.make((*lanes[:n], zero, *lanes[n:]))
    )


@member
def broadcast_to(k: KernelBuilder, input: BlockValue, *shape: Any) -> BlockValue:
    """Return the block repeated to a larger shape."""
    value, sizes = k.value(input), shape_of(shape)
    if broadcast_shape(value.shape, sizes) != sizes:
        raise ValueError(f"{value.type_text()} does not fit into the shape {list(sizes)}")
    return broadcast(value, sizes)


@member
def permute(k: KernelBuilder, input: BlockValue, *dims: Any) -> BlockValue:
    """Return the block with its dimensions in another order."""
    order = [axis_of(input, d) for d in (dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims)]
    if sorted(order) != list(builtins.range(len(input.shape))):
        raise ValueError(f"{order} is no order of the dimensions of {input.type_text()}")
    place = [order.index(n) for n in builtins.range(len(order))]
    return input.derived([input.shape[d] for d in order], lambda lanes: input.make(tuple([lanes[n] for n in place])))


@member
def trans(k: KernelBuilder, input: BlockValue, *dims: Any) -> BlockValue:
    """Return the block with its last two dimensions exchanged, or in the order of ``dims``."""
    rank = len(input.shape)
    if not dims and rank < 2:
        raise ValueError(f"trans of {input.type_text()}, which has fewer than two dimensions")
    result: BlockValue = permute.meaning(k, input, *(dims or (*builtins.range(rank - 2), rank - 1, rank - 2)))
    return result


@member
def reshape(k: KernelBuilder, input: BlockValue, *shape: Any, can_reorder: bool = False) -> BlockValue:
    """Return the elements in another shape, in row-major order."""
    value, sizes = k.value(input), shape_of(shape)
    total = 1
    for n in value.shape:
        total *= n
    wanted = 1
    for n in sizes:
        wanted *= n
    if total != wanted:
        raise ValueError(f"{value.type_text()} has {total} elements, and the shape {list(sizes)} has {wanted}")

    def make(lanes: tuple[Any, ...]) -> Any:
        flat = k.number(0)
        for e, n in zip(lanes, sizes, strict=True):
            flat = flat * k.number(n) + e
        out: list[Any] = []
        for n in reversed(value.shape):
            out.insert(0, flat % k.number(n))
            flat = flat // k.number(n)
        return value.make(tuple(out))

    return value.derived(sizes, make)


@member
def view(k: KernelBuilder, input: BlockValue, *shape: Any) -> BlockValue:
    """Return the elements in another shape, in row-major order."""
    result: BlockValue = reshape.meaning(k, input, *shape)
    return result


@member
def ravel(k: KernelBuilder, x: BlockValue, can_reorder: bool = False) -> BlockValue:
    """Return the elements in one dimension, in row-major order."""
    total = 1
    for n in x.shape:
        total *= n
    result: BlockValue = reshape.meaning(k, x, (total,))
    return result


# -- reductions and products -------------------------------------------------------------------------------------------


def _reduced(k: KernelBuilder, value: BlockValue, axis: Any, keep_dims: bool, op: str) -> BlockValue:
    if value.pointer is not None:
        raise TypeError(f"{value.type_text()} holds pointers, not numbers")
    if axis is not None:
        return k.reduce(value, axis_of(value, axis), op, keep_dims)
    for n in reversed(builtins.range(len(value.shape))):
        value = k.reduce(value, n, op, keep_dims)
    return value


def _summable(t: DType) -> DType:
    """Returns the type of a sum by Triton's rules: integers of fewer than 32 bits have 32."""
    if t.is_bool or (t.is_int and t.bits < 32):
        return int32 if t.is_bool or t.is_signed else uint32
    return float32 if t == "bfloat16" or t.is_storage else t


def _comparable(t: DType) -> DType:
    """Returns the type of a maximum by Triton's rules: numbers of fewer than 32 bits have 32."""
    return float32 if t.is_float and t.bits < 32 else int32 if t.is_bool or (t.is_int and t.bits < 32) else t


@member
def sum(
    k: KernelBuilder, input: Any, axis: Any = None, keep_dims: bool = False, dtype: DType | None = None
) -> BlockValue:
    """Return the sum along an axis, or of all elements."""
    value = k.value(input)
    wanted = _summable(value.dtype) if dtype is None else type_of(dtype)
    return _reduced(k, k.cast(value, wanted), axis, keep_dims, "sum")


@member
def max(
    k: KernelBuilder, input: Any, axis: Any = None, return_indices: bool = False,
    return_indices_tie_break_left: bool = True, keep_dims: bool = False,
) -> Any:  # fmt: skip
    """Return the largest element along an axis, or of all; with ``return_indices`` also its index."""
    return _extreme(k, input, axis, return_indices, return_indices_tie_break_left, keep_dims, "max")


@member
def min(
    k: KernelBuilder, input: Any, axis: Any = None, return_indices: bool = False,
    return_indices_tie_break_left: bool = True, keep_dims: bool = False,
) -> Any:  # fmt: skip
    """Return the smallest element along an axis, or of all; with ``return_indices`` also its index."""
    return _extreme(k, input, axis, return_indices, return_indices_tie_break_left, keep_dims, "min")


def _extreme(k: KernelBuilder, input: Any, axis: Any, indices: bool, left: bool, keep_dims: bool, op: str) -> Any:
    value = k.value(input)
    value = k.cast(value, _comparable(value.dtype))
    if not indices:
        return _reduced(k, value, axis, keep_dims, op)
    if axis is None:
        raise ValueError("the index of the largest or smallest element is that along an axis")
    n = axis_of(value, axis)
    if value.cost > 1:
        k.keep(value)
    best = k.reduce(value, n, op, keep_dims=True)
    size = value.shape[n]
    found = broadcast_make(best, value.shape)
    other = const(size, int32)

    def make(lanes: tuple[Any, ...]) -> Any:
        x, b = converted(value.make(lanes), value.dtype), converted(found(lanes), value.dtype)
        here = x.equal(b)
        return (here, converted(lanes[n], int32), other if left else const(-1, int32))

    places = BlockValue(value.shape, int32, lambda lanes: Select(*make(lanes)), 2, value.reads)
    place = k.reduce(places, n, "min" if left else "max", keep_dims)
    bounded = k.binary("maximum", k.binary("minimum", place, size - 1), 0)  # only NaN has no place
    if not keep_dims:
        dropped = best.derived(place.shape, lambda lanes: best.make((*lanes[:n], k.number(0), *lanes[n:])))
        return dropped, bounded
    return best, bounded


@member
def argmax(k: KernelBuilder, input: Any, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> BlockValue:
    """Return the index of the largest element along an axis, the first one of equal ones."""
    result: BlockValue = _extreme(k, input, axis, True, tie_break_left, keep_dims, "max")[1]
    return result


@member
def argmin(k: KernelBuilder, input: Any, axis: Any, tie_break_left: bool = True, keep_dims: bool = False) -> BlockValue:
    """Return the index of the smallest element along an axis, the first one of equal ones."""
    result: BlockValue = _extreme(k, input, axis, True, tie_break_left, keep_dims, "min")[1]
    return result


@member
def xor_sum(k: KernelBuilder, input: Any, axis: Any = None, keep_dims: bool = False) -> BlockValue:
    """Return the exclusive or of integers along an axis, or of all."""
    value = k.value(input)
    if not value.dtype.is_int:
        raise TypeError(f"xor_sum is for integers, not {value.type_text()}")
    return _reduced(k, value, axis, keep_dims, "xor_sum")


@member
def reduce_or(k: KernelBuilder, input: Any, axis: Any, keep_dims: bool = False) -> BlockValue:
    """Return the bits that any integer along an axis has."""
    value = k.value(input)
    if not value.dtype.is_int:
        raise TypeError(f"reduce_or is for integers, not {value.type_text()}")
    return _reduced(k, value, axis, keep_dims, "or")


@member
def softmax(
    k: KernelBuilder, x: BlockValue, dim: Any = None, keep_dims: Any = None, ieee_rounding: bool = False
) -> BlockValue:
    """Return exp(x) divided by its sum along an axis, the first one unless given."""
    n = axis_of(x, 0 if dim is None else dim)
    if x.cost > 4:
        k.keep(x)
    powers = k.elementwise("exp", k.binary("-", x, k.reduce(x, n, "max", keep_dims=True)))
    k.keep(powers)
    return k.binary("/", powers, k.reduce(powers, n, "sum", keep_dims=True))


@builtin
def dot(
    k: KernelBuilder, input: BlockValue, other: BlockValue, acc: Any = None, input_precision: str | None = None,
    allow_tf32: bool | None = None, max_num_imprecise_acc: int | None = None, out_dtype: DType | None = FLOAT32,
) -> BlockValue:  # fmt: skip
    """Return the matrix product of two blocks plus ``acc``; sums are exact float32 sums, int32 for int8."""
    if input_precision not in (None, "tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"):
        raise ValueError(f"input_precision {input_precision!r}; there are tf32, tf32x3, ieee, bf16x3 and bf16x6")
    whole = k.value(input).dtype.is_int or k.value(input).dtype == "float64"
    return k.dot(k.value(input), k.value(other), acc, None if whole and out_dtype == float32 else out_dtype)


# -- loops -------------------------------------------------------------------------------------------------------------

LOOP_HINTS = {
    "num_stages", "loop_unroll_factor", "disallow_acc_multi_buffer", "flatten", "warp_specialize", "disable_licm",
}  # fmt: skip
"""What ``tl.range`` says to GPUs; none of it changes a value."""


@builtin
def range(k: KernelBuilder, *bounds: Any, **hints: Any) -> NoReturn:
    """Return the numbers of a loop, as Python's ``range``; the hints are for GPUs."""
    raise TypeError("tl.range stands in a for loop")


@builtin
def static_range(k: KernelBuilder, *bounds: Any) -> NoReturn:
    """Return the numbers of a loop that is written out when the kernel is compiled."""
    raise TypeError("tl.static_range stands in a for loop")
