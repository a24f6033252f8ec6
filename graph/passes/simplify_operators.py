"""This pass applies the rules of :mod:`..algebra`."""

from __future__ import annotations

from ..algebra import RULES
from ..graph import Graph
from ..rules import rewritten
from ..services import Services


def simplify_operators(graph: Graph, services: Services = Services()) -> Graph:
    """Replace operators by fewer or cheaper ones that compute the same.

    Before::

        t = transpose(x, axes=(1, 0))
        u = transpose(t, axes=(1, 0))
        y = add(u, 0)

    After::

        y = x
    """
    return rewritten(graph, RULES)
