"""This module computes a graph slowly and simply: operator by operator, in tensor expressions, by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..tir.expr import Var, to_numpy
from ..tir.interpret import interpret
from .graph import Graph, GraphError
from .kernels import LoopKernel, unfused
from .rewrite import specialize
from .verify_graph import verify


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
