"""Strides of allocations whose rows must not start at multiples of a power of two (``storage_align``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...tir.annotations import ALIGN, alignment_wishes
from ...tir.expr import Expr, IntImm, const
from ...tir.stmt import Block, Buffer

Wish = tuple[int, int, int]
"""Axis, factor and offset."""


def alignments_of(block: Block) -> Mapping[Buffer, list[Wish]]:
    """Returns the requests of a block on the strides of the buffers that it writes: (axis, factor, offset) each. Raises
    ValueError for an annotation with an invalid value."""
    out: dict[Buffer, list[Wish]] = {}
    wishes = alignment_wishes(block.annotations.get(ALIGN, ()))
    if isinstance(wishes, str):
        raise ValueError(f"the annotation {ALIGN} of block {block.name!r} is not followed: {wishes}")
    for index, *wish in wishes:
        if index < len(block.writes):
            axis, factor, offset = wish
            out.setdefault(block.writes[index].buffer, []).append((axis, factor, offset))
    return out


def aligned(buffer: Buffer, wishes: Sequence[Wish]) -> Buffer:
    """Returns ``buffer`` with strides ``k * factor + offset`` where requested, or without strides where these are the
    default ones.

    >>> from tilewright.tir.stmt import decl_buffer
    >>> aligned(decl_buffer((8, 16)), [(0, 16, 1)]).strides
    (17, 1)
    """
    strides: list[Expr] = []
    plain: list[Expr] = []
    stride: Expr = const(1, "int64")
    dense: Expr = const(1, "int64")
    for axis in reversed(range(buffer.ndim)):
        for at, factor, offset in wishes:
            if at == axis:
                stride = stride + (factor + offset - stride % factor) % factor
        strides.insert(0, stride)
        plain.insert(0, dense)
        stride, dense = stride * buffer.shape[axis], dense * buffer.shape[axis]
    if wishes and not _same(strides, plain):
        return buffer.with_(strides=tuple([_narrow(s) for s in strides]))
    if not wishes and buffer.strides and not _same(buffer.strides, plain):
        return buffer
    return buffer.with_(strides=()) if buffer.strides else buffer


def _narrow(stride: Expr) -> Expr:
    """Returns a constant as int32 where that type holds it."""
    return const(stride.value) if isinstance(stride, IntImm) and stride.value < 1 << 31 else stride


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return all(
        isinstance(x, IntImm) and isinstance(y, IntImm) and x.value == y.value for x, y in zip(a, b, strict=True)
    )
