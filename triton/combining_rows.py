"""The rows of ``tl`` that combine elements by any function of two values, and those that put blocks together.

A reduction combines neighbours until one is left, and a scan combines each element with the one 1, 2, 4, … places before it:
both keep the order of the elements, as a function that is associative but not commutative asks, and each of their steps is a
whole block, that is vectors.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

from ..tir.expr import Expr, Select
from ..tir.expr.dtype import DType
from .basic_rows import _summable, ravel, reshape
from .block_values import BlockValue, broadcast, broadcast_shape, converted, guarded
from .kernel_builder import KernelBuilder
from .rows import axis_of, builtin, float32, member, type_of

Combine = Callable[..., Any]
Lanes = tuple[Expr, ...]


def _values(k: KernelBuilder, input: Any) -> tuple[BlockValue, ...]:
    values = tuple([k.value(x) for x in (input if isinstance(input, tuple) else (input,))])
    for v in values:
        if v.pointer is not None:
            raise TypeError(f"{v.type_text()} holds pointers, not numbers")
        if v.shape != values[0].shape:
            raise ValueError(f"{v.type_text()} and {values[0].type_text()} are combined together and differ in shape")
    return values


def _combined(
    combine: Combine, first: tuple[BlockValue, ...], second: tuple[BlockValue, ...]
) -> tuple[BlockValue, ...]:
    """Returns what ``combine`` makes of two elements, or of two tuples of elements."""
    found = combine(*first, *second)
    out = found if isinstance(found, tuple) else (found,)
    if len(out) != len(first):
        raise TypeError(f"the function combines {len(first)} values with as many, and returns {len(out)}")
    for old, new in zip(first, out, strict=True):
        if not isinstance(new, BlockValue) or new.type != old.type or new.shape != old.shape:
            kind = new.type_text() if isinstance(new, BlockValue) else repr(new)
            raise TypeError(f"the function combines {old.type_text()}, and returns {kind}")
    return out


def _at(value: BlockValue, axis: int, place: Callable[[Expr], Expr], size: int) -> BlockValue:
    """Returns the block whose elements along an axis are those at ``place`` of their index."""
    shape = (*value.shape[:axis], size, *value.shape[axis + 1 :])
    return value.derived(shape, lambda lanes: value.make((*lanes[:axis], place(lanes[axis]), *lanes[axis + 1 :])))


def _reversed(k: KernelBuilder, value: BlockValue, axis: int) -> BlockValue:
    size = value.shape[axis]
    return _at(value, axis, lambda e: k.number(size - 1) - e, size)


def _function(k: KernelBuilder, combine_fn: Any) -> Combine:
    if not hasattr(combine_fn, "kernel_source"):
        raise TypeError(f"elements are combined by a function with @triton.jit, not {combine_fn!r}")
    return functools.partial(k.apply, combine_fn)


@member
def reduce(k: KernelBuilder, input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Return the elements along an axis (of all for None) combined by a function with ``@jit``; tuples of blocks together."""
    values = _values(k, input)
    combine = _function(k, combine_fn)
    rank = len(values[0].shape)
    if axis is None:
        values = tuple([ravel.meaning(k, v) for v in values])
    n = 0 if axis is None else axis_of(values[0], axis)
    size = values[0].shape[n]
    while size > 1:
        size //= 2
        even = tuple([_at(v, n, lambda e: e * k.number(2), size) for v in values])
        odd = tuple([_at(v, n, lambda e: e * k.number(2) + k.number(1), size) for v in values])
        values = _combined(combine, even, odd)
        for v in values:
            k.keep(v)
    out = []
    for v in values:
        if keep_dims:
            out.append(v if axis is not None else reshape.meaning(k, v, (1,) * rank))
        else:
            out.append(v.derived((*v.shape[:n], *v.shape[n + 1 :]), _without(k, v, n)))
    return tuple(out) if isinstance(input, tuple) else out[0]


def _without(k: KernelBuilder, value: BlockValue, axis: int) -> Callable[[Lanes], Expr]:
    return lambda lanes: value.make((*lanes[:axis], k.number(0), *lanes[axis:]))


def _scanned(
    k: KernelBuilder, values: tuple[BlockValue, ...], axis: Any, combine: Combine, reverse: bool
) -> tuple[BlockValue, ...]:
    """Returns each element combined with all before it along an axis, or with all after it."""
    n = axis_of(values[0], axis)
    size = values[0].shape[n]
    if reverse:
        values = tuple([_reversed(k, v, n) for v in values])
    distance = 1
    values = tuple([v.derived(v.shape, v.make) for v in values])
    for v in values:
        k.keep(v)
    while distance < size:
        before = tuple([_earlier(k, v, n, distance) for v in values])
        found = _combined(combine, before, values)
        values = tuple([_from(k, old, new, n, distance) for old, new in zip(values, found, strict=True)])
        for v in values:
            k.keep(v)
        distance *= 2
    return tuple([_reversed(k, v, n) for v in values]) if reverse else values


def _earlier(k: KernelBuilder, value: BlockValue, axis: int, distance: int) -> BlockValue:
    """Returns the elements ``distance`` places before along an axis; the first ones themselves."""
    d = k.number(distance)
    make = value.make

    def moved(lanes: Lanes) -> Expr:
        there = (*lanes[:axis], lanes[axis] - d, *lanes[axis + 1 :])
        return guarded(lanes[axis] >= d, make(there), make(lanes))

    return value.derived(value.shape, moved)


def _from(k: KernelBuilder, old: BlockValue, new: BlockValue, axis: int, distance: int) -> BlockValue:
    """Returns ``new`` from ``distance`` places on along an axis, before that ``old``."""
    make_old, make_new, d = old.make, new.make, k.number(distance)

    def make(lanes: Lanes) -> Expr:
        return Select(lanes[axis] >= d, converted(make_new(lanes), old.dtype), converted(make_old(lanes), old.dtype))

    return BlockValue(old.shape, old.dtype, make, old.cost + new.cost + 1, old.reads | new.reads)


@member
def associative_scan(k: KernelBuilder, input: Any, axis: Any, combine_fn: Any, reverse: bool = False) -> Any:
    """Return each element combined with all before it (after it if ``reverse``) along an axis, by a function with ``@jit``."""
    out = _scanned(k, _values(k, input), axis, _function(k, combine_fn), reverse)
    return out if isinstance(input, tuple) else out[0]


@member
def cumsum(
    k: KernelBuilder, input: Any, axis: Any = 0, reverse: bool = False, dtype: DType | None = None
) -> BlockValue:
    """Return the sums of each element and those before it (after it if ``reverse``) along an axis."""
    (value,) = _values(k, input)
    value = k.cast(value, _summable(value.dtype) if dtype is None else type_of(dtype))
    return _scanned(k, (value,), axis, functools.partial(k.binary, "+"), reverse)[0]


@member
def cumprod(k: KernelBuilder, input: Any, axis: Any = 0, reverse: bool = False) -> BlockValue:
    """Return the products of each element and those before it (after it if ``reverse``) along an axis."""
    (value,) = _values(k, input)
    value = k.cast(value, float32) if value.dtype == "bfloat16" else value
    return _scanned(k, (value,), axis, functools.partial(k.binary, "*"), reverse)[0]


# -- blocks together ---------------------------------------------------------------------------------------------------


@builtin
def broadcast_pair(k: KernelBuilder, input: Any, other: Any) -> tuple[BlockValue, BlockValue]:
    """Return two blocks in the shape that they have together."""
    a, b = k.value(input), k.value(other)
    shape = broadcast_shape(a.shape, b.shape)
    return broadcast(a, shape), broadcast(b, shape)


def _alike(k: KernelBuilder, a: Any, b: Any) -> tuple[BlockValue, BlockValue]:
    first, second = broadcast_pair.meaning(k, a, b)
    if first.type != second.type or first.pointer is not second.pointer:
        raise TypeError(f"{first.type_text()} and {second.type_text()} differ in their type")
    return first, second


def _either(k: KernelBuilder, a: BlockValue, b: BlockValue, shape: tuple[int, ...], choose: Any) -> BlockValue:
    """Returns the block of which ``choose`` says for an index whether it is of ``a``, and the index there."""

    def make(lanes: Lanes) -> Expr:
        of_first, there = choose(lanes)
        first, second = a.make(there), b.make(there)
        if a.pointer is None:
            first, second = converted(first, a.dtype), converted(second, a.dtype)
        return Select(of_first, first, second)

    return BlockValue(shape, a.dtype, make, a.cost + b.cost + 1, a.reads | b.reads, a.pointer)


@member
def join(k: KernelBuilder, a: Any, b: Any) -> BlockValue:
    """Return two blocks along a new last dimension of size 2."""
    first, second = _alike(k, a, b)
    return _either(k, first, second, (*first.shape, 2), lambda lanes: (lanes[-1].equal(k.number(0)), lanes[:-1]))


@member
def split(k: KernelBuilder, a: Any) -> tuple[BlockValue, BlockValue]:
    """Return the two blocks along a last dimension of size 2."""
    value = k.value(a)
    if not value.shape or value.shape[-1] != 2:
        raise ValueError(f"split divides a last dimension of size 2, and this is {value.type_text()}")
    if value.cost >= 6 and value.pointer is None:
        k.keep(value)
    first, second = (
        value.derived(value.shape[:-1], functools.partial(_with_last, value, k.number(n))) for n in builtins.range(2)
    )
    return first, second


def _with_last(value: BlockValue, last: Expr, lanes: Lanes) -> Expr:
    return value.make((*lanes, last))


@builtin
def interleave(k: KernelBuilder, a: Any, b: Any) -> BlockValue:
    """Return the elements of two blocks by turns along their last dimension."""
    joined = join.meaning(k, a, b)
    if len(joined.shape) == 1:
        return joined  # type: ignore[no-any-return]
    result: BlockValue = reshape.meaning(k, joined, (*joined.shape[:-2], 2 * joined.shape[-2]))
    return result


@builtin
def cat(k: KernelBuilder, input: Any, other: Any, can_reorder: bool = False, dim: Any = 0) -> BlockValue:
    """Return two blocks of one shape behind each other along a dimension; they keep their order."""
    first, second = k.value(input), k.value(other)
    if first.shape != second.shape or not first.shape:
        raise ValueError(f"cat of {first.type_text()} and {second.type_text()}; both have one shape with dimensions")
    first, second = _alike(k, first, second)
    n = axis_of(first, dim)
    size = k.number(first.shape[n])

    def choose(lanes: Lanes) -> tuple[Expr, Lanes]:
        return lanes[n] < size, (*lanes[:n], lanes[n] % size, *lanes[n + 1 :])

    shape = (*first.shape[:n], 2 * first.shape[n], *first.shape[n + 1 :])
    return _either(k, first, second, shape, choose)


@member
def flip(k: KernelBuilder, x: Any, dim: Any = None) -> BlockValue:
    """Return the block with the elements along a dimension, the last one unless given, in reverse order."""
    value = k.value(x)
    return _reversed(k, value, axis_of(value, len(value.shape) - 1 if dim is None else dim))
