"""This module checks graphs: :func:`verify` whether one is well-formed, :func:`evaluate` what one computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..tir.expr import Expr, Var, to_numpy
from ..tir.interpret import interpret
from ..tir.walk import free_vars
from .graph import (
    COMPUTED_SIZE,
    Graph,
    GraphError,
    Node,
    Value,
    bodies,
    computed_sizes,
    same_shape,
    sizes_of,
    specialize,
    without_unread,
)
from .graph_operators import infer
from .kernels import LoopKernel, unfused


def verify(graph: Graph, checked: set[Node] | None = None) -> None:
    """Raise GraphError unless the graph is well-formed. Operators in ``checked`` have their types; the others are added.

    1. Inputs, constants and results are distinct values with distinct names, which are identifiers.
    2. An operator stands in the table, and reads values that inputs, constants or operators before it provide.
    3. The types of its results are those that the table gives for its inputs and attributes.
    4. A constant's data has its data type and shape, which are numbers.
    5. Every output is provided.
    6. Symbolic sizes are those of inputs, or computed before the operator. Bodies of loops compute none.
    7. The body of a loop is a well-formed graph with a name that nothing else beside it has.
    """
    known: dict[Value, None] = {}
    names: set[str] = set()
    for v in graph.values():
        if v in known:
            raise GraphError(f"{v.name} is provided twice")
        if v.name in names or not v.name.isidentifier():
            raise GraphError(f"the name {v.name!r} is taken, or is not an identifier")
        known[v] = None
        names.add(v.name)
    for body in bodies(graph):
        if body.name in names or not body.name.isidentifier():
            raise GraphError(f"the name {body.name!r} is taken, or is not an identifier")
        names.add(body.name)
        if computed_sizes(body):
            raise GraphError(f"{body.name}, the body of a loop, computes a size")
        verify(body, checked)
    _constants(graph)
    sizes = {s for v in graph.inputs for d in v.shape if isinstance(d, Expr) for s in free_vars(d)}
    ready = {*graph.inputs, *graph.constants}
    computed = set(computed_sizes(graph))
    for node in graph.nodes:
        for given in node.given:
            if given not in ready:
                raise GraphError(f"{node.op} reads {given.name}, which nothing before it provides")
        if node.op == COMPUTED_SIZE and isinstance(node.attrs["size"], Var):
            if node.attrs["size"] in sizes:
                raise GraphError(f"the size {node.attrs['size'].name} is computed twice, or is that of an input")
            sizes.add(node.attrs["size"])
        elif computed and not sizes_of(node) & computed <= sizes:
            raise GraphError(f"{node.op} has a size that is computed after it")
        if checked is None or node not in checked:
            _types(node, sizes)
        ready.update(node.outputs)
    if checked is not None:
        checked.update(graph.nodes)
    for v in graph.outputs:
        if v not in ready:
            raise GraphError(f"the output {v.name} is not provided")


def _constants(graph: Graph) -> None:
    for v, data in graph.constants.items():
        if tuple(data.shape) != v.shape or data.dtype != to_numpy(v.dtype):
            raise GraphError(f"the data of {v} is {data.dtype}{list(data.shape)}")


def _types(node: Node, sizes: set[Var]) -> None:
    types = infer(node.op, node.inputs, node.attrs)
    if len(types) != len(node.outputs):
        raise GraphError(f"{node.op} has {len(types)} results, not {len(node.outputs)}")
    for v, (dtype, shape) in zip(node.outputs, types, strict=True):
        if v.dtype != dtype or not same_shape(v.shape, shape):
            raise GraphError(f"{node.op} gives {Value(v.name, dtype, shape).type_text}, not {v.type_text}")
        for d in shape:
            unknown = [] if isinstance(d, int) else [s.name for s in free_vars(d) if s not in sizes]
            if unknown:
                raise GraphError(f"the size {unknown[0]} of {v.name} is not that of an input")


def evaluate(graph: Graph, *inputs: Any, run: Callable[..., Any] = interpret) -> tuple[Any, ...]:
    """Returns the outputs as arrays. ``run(func, *arrays)`` computes one operator; the interpreter does by default.

    Symbolic sizes are those of the inputs. GraphError when an input does not have its data type and shape.
    """
    verify(graph)
    if len(inputs) != len(graph.inputs):
        raise GraphError(f"{graph.name} takes {len(graph.inputs)} inputs, not {len(inputs)}")
    sizes: dict[Var, int] = {}
    for v, data in zip(graph.inputs, inputs, strict=True):
        if data.ndim != v.ndim or data.dtype != to_numpy(v.dtype):
            raise GraphError(f"the input {v} is given as {data.dtype}{list(data.shape)}")
        for d, extent in zip(v.shape, data.shape, strict=True):
            known = sizes.setdefault(d, extent) if isinstance(d, Var) else d
            if isinstance(known, int) and known != extent:
                raise GraphError(f"the input {v} is given as {data.dtype}{list(data.shape)}")
    found = computed_sizes(graph)
    while found:
        size, node = next(iter(found.items()))
        first = without_unread(graph.replaced(graph.nodes[: graph.nodes.index(node) + 1], outputs=(node.output,)))
        (number,) = evaluate(specialize(first, {**sizes, size: 0}), *inputs, run=run)
        sizes[size] = int(number)
        del found[size]
    plain = specialize(graph, sizes)
    values: dict[Any, Any] = {**dict(zip(plain.inputs, inputs, strict=True)), **plain.constants}
    division = unfused(plain)
    kernels = {node: kernel for kernel in division.kernels for node in kernel.nodes}
    for node in plain.nodes:
        if node not in kernels:  # the same elements in another shape
            (source,) = node.given
            values[node.output] = np.asarray(values[source], order="C").reshape(node.output.shape)
            continue
        kernel = kernels[node]
        if isinstance(kernel, LoopKernel):
            given = [np.asarray(values[v]) for v in kernel.inputs]
            values.update(zip(node.outputs, _looped(kernel, given, run), strict=True))
            continue
        for v in kernel.outputs:
            values[v] = np.zeros(v.shape, to_numpy(v.dtype))
        arguments = [np.asarray(values[v], order="C") for v in kernel.inputs]
        run(kernel.func, *arguments, *[values[v] for v in kernel.outputs])
    return tuple([values[v] for v in plain.outputs])


def _looped(loop: LoopKernel, given: list[Any], run: Callable[..., Any]) -> list[Any]:
    """Returns the results of a ``scan``, step by step."""
    attrs, body = loop.node.attrs, loop.node.attrs["body"]
    count, arrays = attrs["states"], given[attrs["states"] : attrs["states"] + attrs["arrays"]]
    states, others = given[:count], given[count + len(arrays) :]
    out = [np.zeros(v.shape, to_numpy(v.dtype)) for v in loop.node.outputs]
    if loop.steps is None:
        while states[0]:
            states = [np.asarray(data) for data in evaluate(body, *states, *others, run=run)]
        return states
    for n in set(range(count)) - set(attrs.get("history", ())):  # a size that says how many steps there are may be 0
        out[n][...] = states[n]
    for t in range(loop.steps)[:: -1 if attrs.get("reverse") else 1]:
        made = evaluate(body, *states, *[a[t] for a in arrays], *others, run=run)
        states = list(made[:count])
        for n, data in enumerate(made):
            out[n][t if n >= count or n in attrs.get("history", ()) else ...] = data
    return out
