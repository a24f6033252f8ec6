"""Sizes that a network computes: how many elements an operator found, of at most so many.

Where the number of results depends on data (NonZero, Unique, the boxes that are left), kernels compute an array with room for
all of them, and how many there are. ``computed_size(count, size=n, most=limit)`` makes that number the symbolic size ``n``, which is
at least 0 and at most ``limit``; the operators after it have ``n`` in their shapes as they have the sizes of inputs, first of all the slice of
the array that is filled::

    places, count = …                                          # int64[12], int64[()]
    size: int64[()] = computed_size(count, size=n, most=12)
    found: int64[n] = strided_slice(places, begin=(0,), end=(n,), strides=(1,))

The function that runs the graph reads ``n`` when that kernel has run, and passes it to the kernels after it. Memory is planned for the
limit. An output whose shape has ``n`` is written to an array with room for the most (:func:`room`), dense from its
beginning; the sizes themselves leave as further outputs (:func:`with_sizes_as_outputs`), by which the caller cuts the arrays off.
Loops have no such sizes in their bodies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import te
from ..te.tensor import Tensor
from ..tir.arith import Analyzer
from ..tir.expr import Expr, Mul, Var, convert, substitute, vars_in
from ..tir.walk import pre_order
from .builder import Builder
from .graph import COMPUTED_SIZE, Dim, Graph, GraphError, Value, computed_sizes, dims
from .graph_operators import register_operator
from .memory_plan import largest_extent


def _computed_size(count: Tensor, *, size: Any, most: Any) -> Tensor:
    """Returns the number of found elements. The function that runs the graph reads it, and checks that it is at most ``most``."""
    if count.ndim or count.dtype != "int64":
        raise ValueError(
            f"{COMPUTED_SIZE}: the count is {count.dtype} with {count.ndim} dimensions, not an int64 scalar"
        )
    return te.compute((), lambda: count(), name="T_computed_size")


register_operator(COMPUTED_SIZE, _computed_size, "opaque")


def add_computed_size(builder: Builder, count: Value, most: Dim) -> Var:
    """Returns a new symbolic size that a call computes: ``count``, an int64 scalar between 0 and ``most``."""
    size = te.var(builder.fresh("count"))
    builder.op(COMPUTED_SIZE, count, size=size, most=most, name="size")
    return size


def limits(graph: Graph) -> dict[Var, Dim]:
    """Returns the most that each computed size can be: a number, or an expression of the sizes of inputs."""
    out: dict[Var, Dim] = {}
    for size, node in computed_sizes(graph).items():
        out[size] = room((node.attrs["most"],), out)[0]
    return out


def bounds_with_computed(graph: Graph, bounds: Mapping[Var, int]) -> dict[Var, int]:
    """Returns the largest values of symbolic sizes, also of computed ones. GraphError where sizes of inputs that limit one
    have no bound."""
    out = dict(bounds)
    for size, limit in limits(graph).items():
        found = limit if isinstance(limit, int) else largest_extent(limit, bounds)
        if found is None:
            free = ", ".join(sorted(v.name for v in vars_in(limit) if v not in bounds))
            raise GraphError(f"the size {size.name} is at most {limit}, and {free} has no bound")
        out[size] = found
    return out


def room(shape: tuple[Dim, ...], limits: Mapping[Var, Dim], bounds: Mapping[Var, int] | None = None) -> tuple[Dim, ...]:
    """Returns a shape with room for the most that computed sizes can be.

    An extent that grows with them has it where they are largest. For another one there is its largest value, which
    ``bounds`` of all sizes tell; GraphError where there is none.
    """
    out: list[Dim] = []
    for extent in shape:
        if isinstance(extent, int) or not vars_in(extent) & set(limits):
            out.append(extent)
        elif _grows(extent):
            out += dims([substitute(extent, {v: convert(limit) for v, limit in limits.items()})])
        else:
            found = largest_extent(extent, bounds or {})
            if found is None:
                raise GraphError(f"the largest value of the size {extent}, which is computed, is not known")
            out.append(found)
    return tuple(out)


def _grows(extent: Expr) -> bool:
    """Returns whether an extent is a sum of products of sizes, with positive factors."""
    analyzer = Analyzer()
    terms = analyzer.poly(extent)
    made = [analyzer.to_expr({sizes: 1}, extent.dtype) for sizes in terms]
    plain = all(isinstance(n, (Var, Mul)) or not vars_in(n) for e in made for n in pre_order(e))
    return plain and all(factor > 0 for factor in terms.values())


def with_sizes_as_outputs(graph: Graph) -> Graph:
    """Returns the graph whose last outputs are its computed sizes, in order; itself when it has none."""
    sizes = tuple([node.output for node in computed_sizes(graph).values()])
    return graph.replaced(graph.nodes, outputs=(*graph.outputs, *sizes)) if sizes else graph
