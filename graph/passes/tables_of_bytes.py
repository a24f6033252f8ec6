"""This pass replaces costly functions of one number of 8 bits by tables of their 256 results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ...tir.expr import to_numpy
from ..builder import Builder
from ..graph import COMPUTED_SIZE, Graph, Node, Value, same_shape, without_unread
from ..graph_operators import operator
from ..kernels import Services
from ..reference import evaluate

_COSTLY = frozenset(
    "acos acosh asin asinh atan atanh celu cos cosh elu erf exp exp2 expm1 gelu log log10 log1p log2 mish power selu sigmoid "
    "silu sin sinh softplus tan tanh".split()
)
"""Operators that take longer than a lookup."""

_CHEAP_ROUNDINGS = 1
"""A function that rounds more often has several quantizations in it, which take longer than a lookup, too."""


def tables_of_bytes(graph: Graph, services: Services = Services()) -> Graph:
    """Replace costly element-wise functions from one array of 8 bits to another by lookups in a table.

    Before::

        a = cast(x, dtype="float32")
        b = multiply(a, scale)
        s = sigmoid(b)
        t = multiply(b, s)
        u = multiply(t, 255.0)
        y = cast(u, dtype="uint8")

    After::

        y = take(table, x, axis=0, mode="fast")

    All other operands are constants of one element. What is between may be of 8 bits as well, and have other readers, as long as
    these do not need the costly part of it.
    """
    source_of = _sources(graph)
    tables = _worth_it(graph, source_of)
    return _with_tables(graph, {v: source_of[v] for v in tables}) if tables else graph


def _sources(graph: Graph) -> dict[Value, Value]:
    """Returns the first array of 8 bits that each result is a function of, element by element."""
    found: dict[Value, Value] = {}
    for node in graph.nodes:
        if not _is_of_elements(node):
            continue
        given = [v for v in node.given if v not in graph.constants or graph.constants[v].size != 1]
        sources = {found.get(v, v if _is_byte(v) and v not in graph.constants else None) for v in given}
        if len(sources) == 1:
            (source,) = sources
            if source is not None and same_shape(source.shape, node.output.shape):
                found[node.output] = source
    return found


def _is_byte(value: Value) -> bool:
    return value.dtype in ("uint8", "int8")


def _is_of_elements(node: Node) -> bool:
    """Returns whether each element is computed from those at its place, which may be single numbers."""
    return operator(node.op).kind in ("elementwise", "broadcast") and node.op not in ("broadcast_to", "prelu")


def _worth_it(graph: Graph, source_of: Mapping[Value, Value]) -> set[Value]:
    """Returns the results of 8 bits that something reads, and in whose place a table leaves a costly part unread."""
    producers = graph.producers()
    chosen = {v for v in source_of if _is_byte(v)}
    while True:
        read = _read(graph, source_of, chosen)
        left = {v for v in chosen if v not in read or _is_costly(v, producers, source_of, read)}
        if left == chosen:
            return chosen & read
        chosen = left


def _read(graph: Graph, source_of: Mapping[Value, Value], tables: Collection[Value]) -> set[Value]:
    """Returns the values that are needed when ``tables`` are looked up by their sources."""
    read = set(graph.outputs)
    for node in reversed(graph.nodes):
        if node.op == COMPUTED_SIZE or any(v in read for v in node.outputs):
            read.update([source_of[node.output]] if node.outputs[0] in tables else node.given)
    return read


def _is_costly(
    value: Value, producers: Mapping[Value, Node], source_of: Mapping[Value, Value], read: Collection[Value]
) -> bool:
    """Returns whether the steps to a value from what is computed anyway take longer than a lookup."""
    steps = {value}
    pending = [value]
    counts: Counter[str] = Counter()
    while pending:
        node = producers[pending.pop()]
        counts[node.op] += 1
        more = [v for v in dict.fromkeys(node.given) if v in source_of and v not in read and v not in steps]
        steps.update(more)
        pending += more
    return counts["round"] > _CHEAP_ROUNDINGS or not _COSTLY.isdisjoint(counts)


def _with_tables(graph: Graph, source_of: Mapping[Value, Value]) -> Graph:
    """Returns the graph in which each value is looked up by its source."""
    tables = _tables(graph, source_of)
    b = Builder.on(graph)
    indices: dict[Value, Value] = {}
    for node in graph.nodes:
        source = source_of.get(node.outputs[0])
        if source is None:
            b.nodes.append(node)
            continue
        if source not in indices:
            indices[source] = source if source.dtype == "uint8" else b.op("reinterpret", source, dtype="uint8")
        table = b.constant(tables[node.output], "table", node.output.dtype)
        b.nodes.append(Node("take", (table, indices[source]), node.outputs, {"axis": 0, "mode": "fast"}))
    return without_unread(b.graph(graph.outputs))


def _tables(graph: Graph, source_of: Mapping[Value, Value]) -> dict[Value, np.ndarray[Any, Any]]:
    """Returns the results of each value for the 256 numbers of its source, in the order of their bits."""
    b = Builder("tables")
    every = np.arange(256, dtype=np.uint8)
    made = {
        source: b.constant(every.view(to_numpy(source.dtype)), "every", source.dtype)
        for source in set(source_of.values())
    }
    needed = set(source_of)
    for node in reversed(graph.nodes):
        if node.outputs[0] in needed and node.output not in made:
            needed.update(node.given)
    for node in graph.nodes:
        if node.outputs[0] in needed and node.output not in made:
            for v in node.given:
                if v not in made:  # a number
                    made[v] = b.constant(graph.constants[v].reshape(()), "c", v.dtype)
            made[node.output] = b.op(node.op, *[v and made[v] for v in node.inputs], **node.attrs)
    with np.errstate(all="ignore"):
        return dict(zip(source_of, evaluate(b.graph([made[v] for v in source_of])), strict=True))
