"""The functions silu, hardsigmoid and hardswish, written out.

For all types of floats, NaN and the infinities among the values. x · clip(x + 3, 0, 6) overflows in the steps beyond a
sixth of the type's range, where hardswish is right. Float16 and bfloat16 are rounded once, at the end.
"""

from __future__ import annotations

from ..graph import Value
from ..rules import Match, any_value, either, number, op, rule

_x = any_value("x")
_SIXTH = number(1.0 / 6.0, near=True)
_ramp = op("clip", _x + number(3.0), low=0.0, high=6.0)


@rule(_x * op("sigmoid", _x))
def silu(m: Match) -> Value | None:
    """x · sigmoid(x)"""
    return m.op("silu", m["x"]) if m.fits(m["x"]) else None


@rule(
    either(
        op("clip", _x * _SIXTH + number(0.5), low=0.0, high=1.0), op("clip", _x / number(6.0) + number(0.5), low=0.0, high=1.0),
        _ramp / number(6.0), _ramp * _SIXTH,
    )
)  # fmt: skip
def hardsigmoid(m: Match) -> Value | None:
    """clip(x/6 + ½, 0, 1), and clip(x + 3, 0, 6)/6"""
    return m.op("hardsigmoid", m["x"]) if m.fits(m["x"]) else None


@rule(either(_x * op("hardsigmoid", _x), op("multiply", _x, _ramp, _SIXTH), op("multiply", _x, _ramp) / number(6.0)))
def hardswish(m: Match) -> Value | None:
    """x · hardsigmoid(x)"""
    return m.op("hardswish", m["x"]) if m.fits(m["x"]) else None


RULES = (silu, hardsigmoid, hardswish)
