"""The annotations of loops that passes read, and what becomes of them when a loop is unrolled or removed."""

from __future__ import annotations

from typing import Any

from ...tir.expr import const
from ...tir.stmt import AttrStmt, For, Stmt

HORIZONTAL = "tir.horizontal_reduce"
NONTEMPORAL = "pragma_nontemporal_store"
PREFETCH_DISTANCE = "pragma_prefetch_distance"
PREFETCH_NEXT = "pragma_prefetch_next"
TAIL = "pragma_tail"
UNROLL_EXPLICIT = "pragma_unroll_explicit"
UNROLL_FACTOR = "pragma_unroll_factor"
UNROLL_STEPS = "pragma_auto_unroll_max_step"


def plain_value(value: Any) -> Any:
    """Returns the value of an annotation, which a program that was parsed holds as a constant."""
    return getattr(value, "value", value)


def without(loop: For, key: str) -> For:
    """Returns ``loop`` without one of its annotations."""
    return loop.with_(annotations={k: v for k, v in loop.annotations.items() if k != key})


def steps_number(value: Any, key: str, place: str) -> int:
    """Returns the number that a pragma gives. ValueError where it is not a whole number of at least 0;
    ``place`` names the statement."""
    number = plain_value(value)
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{key} of {place} is {number!r}; it is a whole number of at least 0")
    return int(number)


def with_pragmas_of(loop: For, body: Stmt) -> Stmt:
    """Returns ``body`` with the pragmas of ``loop`` that concern everything inside it, for use when the loop itself is
    removed."""
    for key in (UNROLL_STEPS, UNROLL_EXPLICIT):
        if key in loop.annotations:
            number = steps_number(loop.annotations[key], key, f"loop {loop.loop_var.name}")
            body = AttrStmt(None, key, const(number), body)
    return body
