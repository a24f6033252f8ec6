"""These passes apply rewrite rules: those of :mod:`..algebra`, and those that find operators written out in parts."""

from __future__ import annotations

from ..algebra import RULES as ALGEBRA
from ..graph import Graph
from ..patterns import RULES as PATTERNS
from ..rules import Rule, rewritten
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
    return rewritten(graph, ALGEBRA)


def recognize(graph: Graph, services: Services = Services()) -> Graph:
    """Apply the rules of :mod:`..patterns`, and those that users have added.

    Before::

        s = sigmoid(x)
        y = multiply(x, s)

    After::

        y = silu(x)
    """
    return rewritten(graph, PATTERNS)


def register_rule(added: Rule) -> Rule:
    """Add a rewrite rule, made by the decorator :func:`..rules.rule`."""
    PATTERNS.append(added)
    return added
