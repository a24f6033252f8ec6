"""Softmax written out: exponentials over their sum, with the row's maximum taken off.

For all types of floats; a row with NaN, with +inf, or of nothing but -inf is NaN either way. Without the maximum an element
of +inf makes one NaN and zeros, not a row of NaN, and large elements overflow: that stays as it is written. Float16 and
bfloat16 are rounded once, at the end.
"""

from __future__ import annotations

from ..graph import Value
from ..reduced_axes import reduced_axes
from ..rules import Match, any_value, op, rule

_x = any_value("x")
_exp = op("exp", _x - op("max", _x, bind="max"), bind="exp")


@rule(_exp / op("sum", _exp, bind="sum"))
def softmax(m: Match) -> Value | None:
    """exp(x - max x) / Σ exp(x - max x) along one axis"""
    axes = reduced_axes(m.node("sum"))
    if m.node("max").attrs.get("initial") is not None:
        return None
    if axes is None or axes != reduced_axes(m.node("max")) or len(axes) != 1 or not m.fits(m["x"]):
        return None
    return m.op("softmax", m["x"], axis=axes[0])


RULES = (softmax,)
