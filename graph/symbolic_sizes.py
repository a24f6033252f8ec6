"""This module tells what operators take for granted of symbolic sizes, and finds example sizes that fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..te.operation import Requirement, ordered_operations
from ..tir.analysis.known_ranges import evaluate, fitting_sizes
from ..tir.expr import Expr, Var, const, same, vars_in
from ..tir.stmt import AssertStmt, PrimFunc
from ..tir.walk import free_vars, pre_order, reads_memory, transform_statements
from .graph import Graph, Value, bodies
from .graph_operators import operator, placeholder_for

_TYPICAL = 16
"""What a symbolic size is taken to be where times are predicted, if nothing speaks against it."""


def requirements(graph: Graph) -> list[Requirement]:
    """Returns the conditions on symbolic sizes under which the operators compute what they say, each with a message."""
    found: list[Requirement] = []
    for node in graph.nodes:
        if node.body is None and not all(v.is_static for v in (*node.given, *node.outputs)):
            given = [None if v is None else placeholder_for(v) for v in node.inputs]
            made = operator(node.op).tensors(given, node.attrs)
            found += [r for op in ordered_operations([t.op for t in made]) for r in op.requires]
    for body in bodies(graph):
        found += requirements(body)
    return each_once(found)


def each_once(conditions: list[Requirement]) -> list[Requirement]:
    """Returns conditions without repetitions; the first message stays."""
    by_sizes: dict[frozenset[Var], list[Requirement]] = {}
    for one in conditions:
        alike = by_sizes.setdefault(frozenset(vars_in(one[0])), [])
        if not any(same(one[0], known) for known, _ in alike):
            alike.append(one)
    return [one for alike in by_sizes.values() for one in alike]


def asserted(func: PrimFunc) -> Iterator[Requirement]:
    """Yields the assertions of a function that are about sizes alone."""
    sizes = {v for b in func.buffers for e in b.shape for v in vars_in(e)} | set(func.params)
    for n in pre_order(func.body):
        if isinstance(n, AssertStmt) and not reads_memory(n.condition) and free_vars(n.condition) <= sizes:
            yield n.condition, n.message


def without_assertions(func: PrimFunc) -> PrimFunc:
    """Returns the function without its assertions about sizes; the same object when there are none."""
    checked = {id(condition) for condition, _ in asserted(func)}

    def post(s: Any) -> Any:
        return s.body if isinstance(s, AssertStmt) and id(s.condition) in checked else None

    return func.with_(body=transform_statements(func.body, post)) if checked else func


def example_sizes(graph: Graph) -> Mapping[Var, int] | None:
    """Returns a number for each symbolic size of the inputs, such that all operators fit; None where none are found."""
    symbols = {n for v in graph.inputs for d in v.shape if isinstance(d, Expr) for n in vars_in(d)}
    if not symbols:
        return {}
    extents = [d for v in graph.values() for d in v.shape if isinstance(d, Expr) and not isinstance(d, Var)]
    conditions = [*[condition for condition, _ in requirements(graph)], *[d >= const(1, d.dtype) for d in extents]]
    return fitting_sizes(
        conditions, dict.fromkeys(sorted(symbols, key=lambda v: v.name), _TYPICAL), graph_bounds(graph)
    )


def graph_bounds(graph: Graph) -> dict[Var, int]:
    """Returns the bounds that the graph itself has, by its sizes."""
    symbols = {d for v in graph.inputs for d in v.shape if isinstance(d, Var)}
    return {v: graph.bounds[v.name] for v in symbols if v.name in graph.bounds}


def typical(v: Value, sizes: Mapping[Var, int]) -> Value:
    """Returns a value like ``v`` with numbers for symbolic sizes; ``v`` itself when it has none."""
    if v.is_static:
        return v
    known = [d if isinstance(d, int) else evaluate(d, sizes) for d in v.shape]
    return Value(v.name, v.dtype, tuple([_TYPICAL if d is None else max(d, 0) for d in known]))
