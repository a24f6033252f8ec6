"""This pass puts one operator in place of the several that exporters write for it."""

from __future__ import annotations

from ..graph import Graph
from ..patterns import RULES
from ..rules import Rule, rewritten
from ..services import Services


def recognize(graph: Graph, services: Services = Services()) -> Graph:
    """Apply the rules of :mod:`..patterns`, one file for each operator, and those that users have added.

    Before::

        s = sigmoid(x)
        y = multiply(x, s)

    After::

        y = silu(x)
    """
    return rewritten(graph, RULES)


def register_rule(added: Rule) -> Rule:
    """Add a rewrite rule, made by the decorator :func:`..rules.rule`."""
    RULES.append(added)
    return added
