"""Passes over graphs: each maps a graph to a graph that computes the same.

:data:`PASSES` holds them in order, :func:`prepare` runs them, :func:`register_pass` adds one, and :func:`register_rule` adds a
rewrite rule to the pass ``patterns``.
"""

from .pass_order import PASSES, GraphPass, PassTimes, prepare, register_pass, register_rule

__all__ = ["PASSES", "GraphPass", "PassTimes", "prepare", "register_pass", "register_rule"]
