"""Analyses of programs: the tree of statements, accesses, scopes, regions and dependences.

Each analysis returns a result, None or a :class:`~tilewright.tir.expr.Reason`; what a caller makes of a reason
(an error, a note, another way) is its own matter.
"""
