"""Room for programs that nest deeply."""

from __future__ import annotations

import sys

from .expr import Expr
from .node import Node
from .stmt import Allocate, Block
from .walk import pre_order

__all__ = ["make_room"]

_USUAL = 1000
_FRAMES = 24
"""Calls of Python that a pass, or the code generator, spends on a statement inside another."""


def make_room(node: Node) -> None:
    """Let Python recurse as deep as the buffers of ``node`` nest once each has a scope of its own.

    The limit is only ever raised: another thread may be deep in a program of its own.
    """
    buffers = 0
    for n in pre_order(node, lambda n: not isinstance(n, Expr)):
        if isinstance(n, Block):
            buffers += len(n.alloc_buffers)
        elif isinstance(n, Allocate):
            buffers += 1
    wanted = _USUAL + _FRAMES * buffers
    if sys.getrecursionlimit() < wanted:
        sys.setrecursionlimit(wanted)
