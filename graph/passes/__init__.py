"""The passes over graphs, in order: each maps a graph to a graph that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..graph import Graph
from ..verify_graph import verify
from .distinct_outputs import distinct_outputs
from .merge_equal import merge_equal


@dataclass(frozen=True)
class GraphPass:
    """A named pass."""

    name: str
    run: Callable[[Graph], Graph]


PASSES: tuple[GraphPass, ...] = (
    GraphPass("merge_equal", merge_equal),
    GraphPass("distinct_outputs", distinct_outputs),
)


def prepare(
    graph: Graph, passes: Sequence[GraphPass] = PASSES, *, show: Callable[[str, Graph], None] | None = None
) -> Graph:
    """Returns the graph after all ``passes``, verified before the first one and after each that changes it."""
    verify(graph)
    for step in passes:
        after = step.run(graph)
        if after is not graph:
            verify(after)
        graph = after
        if show is not None:
            show(step.name, graph)
    return graph
