"""Stages of a random program on integers as machines have them: wrapping, divisions, bits, narrowing, casts of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.tir.expr import NE, DType, max_value, min_value

from .elementwise_stages import LIMITS, Maker, Stage, full_bound, one_of

_TYPES = tuple([t for t in LIMITS if DType(t).is_int])


def _number(rng: np.random.Generator, dtype: str) -> Any:
    """A constant: small, or near an end of the type."""
    low, high = int(min_value(dtype)), int(max_value(dtype))
    small = int(rng.integers(max(low, -5), 8))
    return te.const(one_of(rng, (small, small, small, low, high, high - 1)), dtype)


def _wrap(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Arithmetic that may leave the range of the type, and comes back into it."""
    if not s.dtype.is_int:
        return None
    a, b, kind = _number(rng, s.dtype), _number(rng, s.dtype), int(rng.integers(4))

    def at(*i: Any) -> Any:
        x = s.tensor[i]
        return (x * a + b, x * x - b, a - x, te.max(x - a, b))[kind]

    return s.made(s.dims, at, name, full_bound(s.dtype))


def _divide(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A quotient or remainder by a constant or, where it is not 0, by another element; or one of another one, moved."""
    fitting = [o for o in stages if o.dtype == s.dtype and o.dims == s.dims]
    if not s.dtype.is_int or not fitting:
        return None
    f = one_of(rng, (te.floordiv, te.floormod, te.truncdiv, te.truncmod))
    o, by, kind = one_of(rng, fitting), one_of(rng, (1, 2, 3, 5, 7, 8, 100)), int(rng.integers(6))
    by = te.const(-by if s.dtype.startswith("int") and rng.random() < 0.3 else by, s.dtype)
    zero, one = te.const(0, s.dtype), te.const(1, s.dtype)
    g, moved, large = one_of(rng, (te.floordiv, te.floormod)), _number(rng, s.dtype), _number(rng, s.dtype)
    outer = te.max(large, one) if rng.random() < 0.5 else te.const(int(rng.integers(1, 9)), s.dtype)

    def at(*i: Any) -> Any:
        x, y = s.tensor[i], o.tensor[i]
        if kind > 3:
            return g((f(x, by) if kind == 4 else te.max(x, zero)) + moved, outer)
        if kind < 2:
            return f(x, by)
        if kind == 2:
            return te.if_then_else(y != zero, f(x, y), zero)
        return f(x, te.max(y, one))

    return s.made(s.dims, at, name, full_bound(s.dtype))


def _bits(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Bitwise operations and shifts."""
    if not s.dtype.is_int:
        return None
    mask, by, kind = _number(rng, s.dtype), te.const(int(rng.integers(0, 8)), s.dtype), int(rng.integers(6))

    def at(*i: Any) -> Any:
        x = s.tensor[i]
        return (x & mask, x | mask, x ^ mask, te.bitwise_not(x), te.shift_left(x, by), te.shift_right(x, by))[kind]

    return s.made(s.dims, at, name, full_bound(s.dtype))


def _narrow(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A cast to another integer type, which cuts off what does not fit."""
    if not s.dtype.is_int:
        return None
    to = one_of(rng, [t for t in _TYPES if t != s.dtype])
    return s.made(s.dims, lambda *i: te.cast(to, s.tensor[i]), name, full_bound(to))


def _of_index(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """The place of an element as a value, also where the type is too narrow for it or has no sign."""
    if not s.dims:
        return None
    to = one_of(rng, ("float32", *_TYPES))
    d, a, b = int(rng.integers(len(s.dims))), int(rng.integers(1, 20)), int(rng.integers(-9, 10))
    least, add = int(rng.integers(3)), int(rng.integers(2))

    def at(*i: Any) -> Any:
        place = te.cast(to, i[d] * a + b)
        if least:  # a sum of such without a sign is compared without one
            place = (te.max if least == 1 else te.min)(place - te.const(5, to), te.const(2, to))
        return place + s.tensor[i] if add and s.dtype == to else place

    reach = s.shape[d] * a + 20
    bound = reach + s.bound if to == "float32" else full_bound(to)
    return s.made(s.dims, at, name, bound) if to != "float32" or bound <= LIMITS[to] else None


def _by_data(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """An element whose place is computed from data, by arithmetic that may wrap."""
    fitting = [o for o in stages if o.dtype in ("int32", "int64") and o.dims == s.dims]
    if not s.dims or not fitting or 0 in s.shape:
        return None
    o, d = one_of(rng, fitting), int(rng.integers(len(s.dims)))
    a, b, kind = _number(rng, o.dtype), _number(rng, o.dtype), int(rng.integers(3))
    last = te.const(s.shape[d] - 1, o.dtype)

    def at(*i: Any) -> Any:
        x = o.tensor[i]
        place = (x * a + b, x - b * a, a - x)[kind]
        return s.tensor[(*i[:d], te.max(te.min(place, last), te.const(0, o.dtype)), *i[d + 1 :])]

    return s.made(s.dims, at, name, s.bound)


def _wrapped_sum(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A sum, or a product, that may wrap: in any order it is the same."""
    if not s.dtype.is_int or not s.dims:
        return None
    d, reduce = int(rng.integers(len(s.dims))), one_of(rng, (te.sum, te.sum, te.prod))
    r = te.reduce_axis((0, s.dims[d]), name="k")
    dims = [e for k, e in enumerate(s.dims) if k != d]
    return s.made(dims, lambda *i: reduce(s.tensor[(*i[:d], r, *i[d:])], axis=r), name, full_bound(s.dtype))


def _beside_index(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """A choice by how the place of an element, moved by a constant, compares with data, which may be at an end of its
    type."""
    if not s.dims or not s.dtype.is_int:
        return None
    d, a, b = int(rng.integers(len(s.dims))), int(rng.integers(1, 4)), int(rng.integers(-9, 10))
    kind, wide, other = int(rng.integers(6)), one_of(rng, (s.dtype, "int32", "int64")), _number(rng, s.dtype)

    def at(*i: Any) -> Any:
        x, place = te.cast(wide, s.tensor[i]), te.cast(wide, i[d] * a + b)
        holds = (place < x, place <= x, place > x, place >= x, place.equal(x), NE(place, x))[kind]
        return te.if_then_else(holds, s.tensor[i], other)

    return s.made(s.dims, at, name, full_bound(s.dtype))


def _mixed(rng: np.random.Generator, name: str, s: Stage, stages: list[Stage]) -> Stage | None:
    """Two stages of different types in a third one: a product, sum, extreme or choice."""
    fitting = [o for o in stages if o.dtype.is_int and o.dtype != s.dtype and o.dims == s.dims]
    if not s.dtype.is_int or not fitting:
        return None
    o, to, kind = one_of(rng, fitting), one_of(rng, _TYPES), int(rng.integers(5))

    def at(*i: Any) -> Any:
        x, y = te.cast(to, s.tensor[i]), te.cast(to, o.tensor[i])
        if kind == 4:
            return te.if_then_else(te.cast("int64", s.tensor[i]) < te.cast("int64", o.tensor[i]), x, y)
        return (x * y, x + y, te.max(x, y), x - y)[kind]

    return s.made(s.dims, at, name, full_bound(to))


INTEGERS: tuple[Maker, ...] = (
    _wrap, _wrap, _divide, _divide, _bits, _narrow, _narrow, _of_index, _of_index, _by_data, _wrapped_sum,
    _beside_index, _mixed,
)  # fmt: skip
"""For programs of integers of any width."""
