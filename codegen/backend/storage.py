"""Decides where scratch buffers live (register values, the stack, the runtime's memory), and counts their elements."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ...tir.expr import Expr, IntImm
from ...tir.stmt import Allocate, Buffer
from ..lowered import REGISTER_SCOPE

CACHE_LINE = 64
"""Scratch memory, on the stack and from the runtime, begins at a multiple of so many bytes."""

_LARGEST = 32 << 10
_TOGETHER = 256 << 10
"""Threads of some systems have a stack of 512 KiB."""


def stack_buffers(allocations: Iterable[Allocate]) -> frozenset[Buffer]:
    """Returns the buffers of constant size, of those allocated, that are small enough for the stack.

    These are buffers up to 32 KiB each and, in the order of the program, 256 KiB in total.

    All other buffers get memory that the runtime keeps between calls.
    """
    out: set[Buffer] = set()
    room = _TOGETHER
    for n in allocations:
        if n.buffer.scope != REGISTER_SCOPE:
            elements = constant_elements(n.buffer)
            if elements is None:
                continue
            size = elements * n.buffer.dtype.bytes
            if size <= _LARGEST and size <= room:
                room -= size
                out.add(n.buffer)
    return frozenset(out)


def elements_of(buffer: Buffer) -> Expr:
    """Returns the number of elements from the buffer's first to its last, including gaps between rows."""
    total: Expr = IntImm(1, "int64")
    if not buffer.strides:
        for extent in buffer.shape:
            total = total * extent
        return total
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        total = total + (extent - 1) * stride
    return total


def constant_elements(buffer: Buffer) -> int | None:
    """Returns :func:`elements_of` when shape and strides are constants, else None."""
    shape = [e.value for e in buffer.shape if isinstance(e, IntImm)]
    strides = [e.value for e in buffer.strides if isinstance(e, IntImm)]
    if len(shape) < len(buffer.shape) or len(strides) < len(buffer.strides):
        return None
    if not strides or 0 in shape:
        return math.prod(shape)
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
