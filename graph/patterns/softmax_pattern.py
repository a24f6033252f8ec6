"""Softmax written out: exponentials over their sum, with the row's maximum taken off or not."""

from __future__ import annotations

from ..graph import Value
from ..reduced_axes import reduced_axes
from ..rules import Match, any_value, either, op, rule

_x = any_value("x")
_exp = either(op("exp", _x - op("max", _x, bind="max"), bind="exp"), op("exp", _x, bind="exp"))


@rule(_exp / op("sum", _exp, bind="sum"))
def softmax(m: Match) -> Value | None:
    """exp(x - max x) / Σ exp(x - max x) along one axis"""
    axes = [reduced_axes(m.node(n)) for n in ("sum", "max") if n in m]
    if any(a != axes[0] for a in axes) or axes[0] is None or len(axes[0]) != 1:
        return None
    return m.op("softmax", m["x"], axis=axes[0][0])


RULES = (softmax,)
