"""The annotations of loops and buffers that passes read, and what becomes of them when loops change."""

from __future__ import annotations

from typing import Any

from ...tir.expr import const
from ...tir.expr.node import IRNode
from ...tir.stmt import AttrStmt, For, PrimFunc, Stmt
from ...tir.walk import statements, transform_statements

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


# The annotations that hardware reads: loops that are pipelines, and buffers divided among memories.

PIPELINE = "pragma_pipeline"
PARTITION = "pragma_array_partition"
HLS_UNROLL = "pragma_hls_unroll"


def interval_of(loop: For) -> int:
    """Returns the initiation interval that a loop is annotated with; 0 means the smallest one."""
    return steps_number(loop.annotations[PIPELINE], PIPELINE, f"loop {loop.loop_var.name}")


def partition_of(func: PrimFunc) -> dict[str, dict[int, int]]:
    """Returns the factors by dimension of the buffers by name that loops of a function name. ValueError for a value that
    is not a list of [buffer, dimension, factor]."""
    found: dict[str, dict[int, int]] = {}
    for s in statements(func.body):
        if isinstance(s, For) and PARTITION in s.annotations:
            for name, dim, factor in _wishes(s.annotations[PARTITION]):
                found.setdefault(name, {})[dim] = factor
    return found


def _wishes(value: Any) -> list[tuple[str, int, int]]:
    try:
        out = [tuple([plain_value(part) for part in wish]) for wish in value]
        if all([tuple(map(type, wish)) == (str, int, int) for wish in out]):
            return out
    except TypeError:
        pass
    raise ValueError(f"{PARTITION} is {value!r}; it is a list of [name of a buffer, dimension, factor]")


def without_partition(func: PrimFunc) -> PrimFunc:
    """Return the function without its annotations of buffers."""

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, For) and PARTITION in n.annotations:
            return n.with_(annotations={k: v for k, v in n.annotations.items() if k != PARTITION})
        return None

    return func.with_body(transform_statements(func.body, post))
