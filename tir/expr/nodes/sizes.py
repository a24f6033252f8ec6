"""This module computes products of sizes, in 64 bits where int32 does not hold them."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ..base.dtype import INDEX, max_value
from .constants import cast, const
from .expr import Expr, IntImm

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
