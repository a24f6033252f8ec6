"""Chooses the scratch buffers of a function that are allocated on its stack."""

from __future__ import annotations

from ...tir.buffer import Buffer
from ...tir.dtype import bytes_of
from ...tir.expr import Expr
from ...tir.stmt import Allocate, Stmt
from ...tir.walk import pre_order
from .loads_stores import constant_elements

REGISTER = "register"
"""The scope of values that are never in memory."""

_LARGEST = 32 << 10
_TOGETHER = 256 << 10
"""Threads of some systems have a stack of 512 KiB."""


def stack_buffers(body: Stmt) -> frozenset[Buffer]:
    """Returns the buffers of constant size that are small enough for the stack.

    These are buffers up to 32 KiB each and, in the order of the program, 256 KiB in total.

    All other buffers get memory that the runtime keeps between calls.
    """
    out: set[Buffer] = set()
    room = _TOGETHER
    for n in pre_order(body, lambda n: not isinstance(n, Expr)):
        if isinstance(n, Allocate) and n.buffer.scope != REGISTER:
            elements = constant_elements(n.buffer)
            if elements is None:
                continue
            size = elements * bytes_of(n.buffer.dtype)
            if size <= _LARGEST and size <= room:
                room -= size
                out.add(n.buffer)
    return frozenset(out)
