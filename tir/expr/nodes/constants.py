"""This module makes expressions of Python's numbers, converts constants, and computes products of sizes.

A product is computed in 64 bits where int32 does not hold it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from ..base.dtype import INDEX, INT64, DType, max_value
from .expr import Broadcast, Cast, Expr, ExprLike, FloatImm, IntImm, StringImm


def is_const_int(e: object, value: int | None = None) -> bool:
    """Return whether ``e`` is an integer constant (and equals ``value``, when given)."""
    return type(e) is IntImm and (value is None or e.value == value)


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """Return a constant; a vector type gives a :class:`Broadcast`.

    Without ``dtype`` the type is int32, float32 or bool, and int64 for an integer that int32 does not hold. ValueError
    for an integer that int64 does not hold either.
    """
    if type(value) is int and (dtype is None or dtype == INDEX) and -0x80000000 <= value <= 0x7FFFFFFF:
        return IntImm(value)
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else int_type(value) if isinstance(value, int) else "float32"
    kind = DType(dtype)
    if kind.lanes > 1:
        return Broadcast(const(value, kind.element), kind.lanes)
    if kind.is_float:
        return FloatImm(float(value), kind)
    if kind.is_bool:
        return IntImm(int(bool(value)), kind)
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        raise ValueError(f"{value!r} is not a constant of type {dtype}")
    return IntImm(int(value), kind)


def int_type(value: int) -> DType:
    """Return the type of an integer for which no type is given."""
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return INDEX
    if -(1 << 63) <= value < 1 << 63:
        return INT64
    raise ValueError(f"{value} does not fit in 64 bits; constants are at most {(1 << 63) - 1}")


def convert(x: Any, dtype: str | None = None) -> Expr:
    """Return a Python number, a string, an axis or an expression as an expression; TypeError for anything else."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, (bool, int, float)):
        return const(x, dtype)
    if isinstance(x, str):
        return StringImm(x)
    if hasattr(x, "__tir_expr__"):  # an axis, a te tensor of rank 0
        return convert(x.__tir_expr__())
    if hasattr(x, "item") and not hasattr(x, "__len__"):  # NumPy scalars
        return convert(x.item(), dtype if dtype is not None else str(x.dtype))
    raise TypeError(f"cannot make an expression of {x!r} ({type(x).__name__})")


def cast(dtype: str, value: ExprLike) -> Expr:
    """Return ``value`` converted to ``dtype``, with the same lanes; a constant gives a constant."""
    e = convert(value)
    to = DType(dtype).with_lanes(e.dtype.lanes)
    if e.dtype == to:
        return e
    if isinstance(e, IntImm) and (to.is_int or to.is_float) and not e.dtype.is_bool:
        return const(wrap(e.value, to) if to.is_int else e.value, to)
    if isinstance(e, FloatImm) and to.is_float:
        if e.dtype.bits >= to.bits:
            return const(e.value, to)
        if e.dtype == "float32" and abs(e.value) < 3.4e38:  # the value that float32 holds is widened
            return const(struct.unpack("f", struct.pack("f", e.value))[0], to)
    return Cast(to, e)


def wrap(value: int, dtype: DType) -> int:
    """Return the number of an integer type that has the same low bits as ``value``."""
    if dtype == INDEX and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    bits = dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


def as_exprs(items: Sequence[Any]) -> tuple[Expr, ...]:
    """Return each item as an expression."""
    return tuple([convert(item) for item in items])


WIDE = "int64"
"""The data type of indices that int32 does not hold."""


_LARGEST = max_value(INDEX)


def index_dtype(sizes: Iterable[Expr]) -> str:
    """Return the type in which the sizes and their product are computed.

    It is int64 when one of them is int64, or when int32 does not hold the product of the constants among them; else
    int32.
    """
    constant, wide = 1, False
    for e in sizes:
        wide = wide or e.dtype == WIDE
        if isinstance(e, IntImm):
            constant *= e.value
            wide = wide or abs(e.value) > _LARGEST
    return WIDE if wide or abs(constant) > _LARGEST else INDEX


def product(factors: Iterable[Expr]) -> Expr:
    """Return the product of sizes, in the type that :func:`index_dtype` finds.

    >>> product([const(50000), const(50000)])
    T.int64(2500000000)
    """
    sizes = list(factors)
    dtype = index_dtype(sizes)
    if all([isinstance(e, IntImm) for e in sizes]):
        return const(prod([e.value for e in sizes]), dtype)  # type: ignore[attr-defined]
    out: Expr = const(1, dtype)
    for e in sizes:
        out = out * cast(dtype, e)
    return out


def shape_text(shape: Iterable[Expr]) -> str:
    """Return the sizes as text for a message; constants are plain numbers, whatever their type."""
    return ", ".join(str(e.value if isinstance(e, IntImm) else e) for e in shape)
