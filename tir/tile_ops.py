"""This module builds operations of matrix units on tiles of 16 rows of 64 bytes, like those of x86's AMX.

==========================================  ===========================================================================
``tile_load(dtype, address, stride)``       16 rows of 64 bytes from memory, ``stride`` elements from row to row
``tile_store(address, stride, value)``      16 rows of 64 bytes to memory
``tile_dot4(c, a, b)``                      ``c[i, j] + sum(a[i, 4k + q] * b[k, 4j + q])``, uint8 or int8 by int8 into int32
``tile_dot2_bf16(c, a, b)``                 ``c[i, j] + sum(a[i, 2k + q] * b[k, 2j + q])``, bfloat16 into float32
==========================================  ===========================================================================

A tile is a vector of all its numbers, row by row: ``int32x256`` is 16 rows of 16, ``int8x1024`` 16 rows of 64. The
right operand holds four (two) consecutive terms of the sum side by side for each column, like the dot products of
vectors.
"""

from __future__ import annotations

from typing import Any

from .dtype import bits_of, is_bool, is_int, lanes_of
from .expr import Call, Expr, convert

TILE_ROWS = 16
"""The number of rows of a tile."""
TILE_BYTES = 64
"""The number of bytes in a row of a tile."""
TILE_DOTS = {
    "tir.tile_dot4": (4, (("int32x256",), ("uint8x1024", "int8x1024"), ("int8x1024",))),
    "tir.tile_dot2_bf16": (2, (("float32x256",), ("bfloat16x512",), ("bfloat16x512",))),
}
"""By operation: how many numbers of a row are multiplied and added at once, and the types of each operand."""


def is_tile(dtype: str) -> bool:
    """Return whether values of ``dtype`` are 16 rows of 64 bytes."""
    return not is_bool(dtype) and lanes_of(dtype) > 1 and bits_of(dtype) * lanes_of(dtype) == 8 * TILE_ROWS * TILE_BYTES


def tile_load(dtype: str, address: Any, stride: Any) -> Expr:
    """Return a tile of type ``dtype`` from memory: row r begins ``r * stride`` elements after ``address``.

    ``address`` is an :func:`address_of` an element, ``stride`` an integer. TypeError otherwise, and when ``dtype`` is
    not 16 rows of 64 bytes.
    """
    if not is_tile(dtype):
        raise TypeError(f"tile_load: {dtype} is not a tile of {TILE_ROWS} rows of {TILE_BYTES} bytes")
    return Call("tir.tile_load", _place("tile_load", address, stride), dtype)


def tile_store(address: Any, stride: Any, value: Any) -> Expr:
    """Write a tile to memory in the layout that :func:`tile_load` reads. The call is evaluated as a statement."""
    e = convert(value)
    if not is_tile(e.dtype):
        raise TypeError(f"tile_store: {e.dtype} is not a tile of {TILE_ROWS} rows of {TILE_BYTES} bytes")
    return Call("tir.tile_store", (*_place("tile_store", address, stride), e), "void")


def tile_dot4(c: Any, a: Any, b: Any) -> Expr:
    """Return ``c[i, j] + sum(a[i, 4 * k + q] * b[k, 4 * j + q] for k in range(16) for q in range(4))``.

    The instructions are tdpbusd and tdpbssd. The products are exact; the sum wraps. ``c`` is int32x256, ``a``
    uint8x1024 or int8x1024, ``b`` int8x1024; TypeError otherwise.
    """
    return _dot("tile_dot4", c, a, b)


def tile_dot2_bf16(c: Any, a: Any, b: Any) -> Expr:
    """Return ``c[i, j] + sum(a[i, 2 * k + q] * b[k, 2 * j + q] for k in range(16) for q in range(2))``.

    The instruction is tdpbf16ps. The products are exact in float32; the sums are rounded to nearest even, in an order
    that the machine chooses, and subnormal numbers may count as zero. ``c`` is float32x256, ``a`` and ``b``
    bfloat16x512; TypeError otherwise.
    """
    return _dot("tile_dot2_bf16", c, a, b)


def _dot(name: str, *args: Any) -> Expr:
    operands = tuple([convert(x) for x in args])
    _, wanted = TILE_DOTS[f"tir.{name}"]
    if not all(e.dtype in types for e, types in zip(operands, wanted, strict=True)):
        takes = ", ".join(" or ".join(types) for types in wanted)
        raise TypeError(f"{name} takes {takes}, not {', '.join(e.dtype for e in operands)}")
    return Call(f"tir.{name}", operands, operands[0].dtype)


def _place(name: str, address: Any, stride: Any) -> tuple[Expr, Expr]:
    where, step = convert(address), convert(stride)
    if not (isinstance(where, Call) and where.op == "tir.address_of"):
        raise TypeError(f"{name} takes T.address_of(an element), not {where}")
    if not is_int(step.dtype) or lanes_of(step.dtype) > 1:
        raise TypeError(f"{name}: the stride is {step.dtype}, not an integer")
    return where, step
