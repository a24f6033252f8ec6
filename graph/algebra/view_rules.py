"""Rules of operators whose result has the same elements in another shape."""

from __future__ import annotations

from ..graph import Value, same_shape
from ..rules import Match, Rule, any_value, op, rule

_x = any_value("x")
_VIEW = "reshape flatten squeeze expand_dims"


@rule(op(_VIEW, _x))
def view_of_the_same_shape(m: Match) -> Value | None:
    """A view in the shape that x has is x."""
    return m["x"] if same_shape(m["x"].shape, m.out.shape) else None


@rule(op(_VIEW, op(_VIEW, _x)))
def view_of_view(m: Match) -> Value | None:
    """A view of a view is one reshape."""
    return m.op("reshape", m["x"], shape=m.out.shape) if m["x"].is_static and m.out.is_static else None


@rule(op("flatten squeeze expand_dims", _x))
def one_kind_of_view(m: Match) -> Value | None:
    """All views of known sizes are reshapes, so that other rules have one kind to look for."""
    return m.op("reshape", m["x"], shape=m.out.shape) if m["x"].is_static and m.out.is_static else None


RULES: tuple[Rule, ...] = (view_of_the_same_shape, view_of_view, one_kind_of_view)
