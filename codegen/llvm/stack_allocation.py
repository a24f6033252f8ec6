"""Which scratch buffers of a function live on its stack."""

from __future__ import annotations

from ...tir.buffer import Buffer
from ...tir.dtype import bytes_of
from ...tir.expr import Expr
from ...tir.stmt import Allocate, Stmt
from ...tir.walk import pre_order
from .loads_stores import constant_elements

REGISTER = "register"
"""The scope of values that are in no memory at all."""

_LARGEST = 32 << 10
_TOGETHER = 256 << 10
"""Threads of some systems have a stack of 512 KiB."""


def stack_buffers(body: Stmt) -> frozenset[Buffer]:
    """The buffers of constant size up to 32 KiB, the first ones in the program up to 256 KiB together. All others get
    memory that the runtime keeps between calls."""
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
