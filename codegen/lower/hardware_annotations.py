"""The annotations that hardware reads: loops that are pipelines, and buffers divided among memories."""

from __future__ import annotations

from typing import Any

from ...tir.expr.base.node import Node
from ...tir.stmt import For, PrimFunc
from ...tir.walk import statements, transform_statements
from .loop_annotations import plain_value, steps_number

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

    def post(n: Node) -> Node | None:
        if isinstance(n, For) and PARTITION in n.annotations:
            return n.with_(annotations={k: v for k, v in n.annotations.items() if k != PARTITION})
        return None

    return func.with_body(transform_statements(func.body, post))
