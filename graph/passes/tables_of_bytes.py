"""This pass replaces costly functions of one number of 8 bits by tables of their 256 results."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ...tir.expr import to_numpy
from ..builder import Builder
from ..graph import Graph, Node, Value, same_shape
from ..graph_operators import operator
from ..kernels import Services
from ..reference import evaluate
from ..rules import Match, any_value, op, rewritten, rule

_COSTLY = frozenset(
    "acos acosh asin asinh atan atanh celu cos cosh elu erf exp exp2 expm1 gelu log log10 log1p log2 mish power selu sigmoid "
    "silu sin sinh softplus tan tanh".split()
)
"""Operators that take longer than a lookup."""


def tables_of_bytes(graph: Graph, services: Services = Services()) -> Graph:
    """Replace element-wise operators between two arrays of 8 bits, one of them costly, by lookups in a table.

    Before::

        a = cast(x, dtype="float32")
        b = multiply(a, scale)
        s = sigmoid(b)
        t = multiply(s, 255.0)
        y = cast(t, dtype="uint8")

    After::

        y = take(table, x, axis=0, mode="fast")

    All other operands are constants of one element, and nothing else reads what is in between.
    """
    return rewritten(graph, [_table]) if any(n.op in _COSTLY for n in graph.nodes) else graph


@rule(op("cast", any_value("x")))
def _table(m: Match) -> Value | None:
    """A function of one byte has 256 results."""
    found = _steps_from_a_byte(m) if _is_byte(m.out) else None
    if found is None:
        return None
    source, steps = found
    b = Builder("table")
    every = np.arange(256, dtype=np.uint8).view(to_numpy(source.dtype))
    made = {source: b.constant(every, "every", source.dtype)}
    for value in steps:
        node = m.producer(value)
        assert node is not None
        for v in node.given:
            if v not in made:  # a constant
                data = m.data(v)
                assert data is not None
                made[v] = b.constant(data.reshape(()), "c", v.dtype)
        made[value] = b.op(node.op, *[v and made[v] for v in node.inputs], **node.attrs)
    with np.errstate(all="ignore"):
        (table,) = evaluate(b.graph([made[m.out]]))
    index = source if source.dtype == "uint8" else m.op("reinterpret", source, dtype="uint8")
    return m.op("take", m.constant(table, m.out.dtype), index, axis=0, mode="fast")


def _is_byte(value: Value) -> bool:
    return value.dtype in ("uint8", "int8")


def _is_of_elements(node: Node) -> bool:
    """Returns whether each element is computed from those at its place, which may be single numbers."""
    return operator(node.op).kind in ("elementwise", "broadcast") and node.op not in ("broadcast_to", "prelu")


_LONGEST = 64
"""The most operators of a function."""


def _steps_from_a_byte(m: Match) -> tuple[Value, list[Value]] | None:
    """Returns the only array that the result is a function of, and all steps from it; else None."""
    sources: set[Value] = set()
    steps: dict[Value, None] = {}
    reads: Counter[Value] = Counter()

    def is_function(value: Value) -> bool:
        """Enter the steps to a value; False where it is more than a function of bytes."""
        node = m.producer(value)
        if node is None or len(steps) >= _LONGEST or not _is_of_elements(node):
            return False
        for v in node.given:
            data = m.data(v)
            if data is not None and data.size == 1:
                continue
            reads[v] += 1
            if _is_byte(v):
                sources.add(v)
            elif data is not None or (v not in steps and not is_function(v)):
                return False
        steps[value] = None
        return True

    if not is_function(m.out) or len(sources) != 1:
        return None
    (source,) = sources
    ops = {node.op for v in steps if (node := m.producer(v)) is not None}
    alone = all(m.readers(v) == reads[v] for v in steps if v is not m.out)
    return (source, list(steps)) if ops & _COSTLY and alone and same_shape(source.shape, m.out.shape) else None
