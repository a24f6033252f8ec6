"""The function gelu, as PyTorch and TensorFlow export it: by erf, and by tanh.

For all types of floats. NaN and the infinities give what the steps give; x · (1 + …) overflows in the steps beyond half of
the type's range and x³ beyond its cube root, and gelu is right there. Float16 and bfloat16 are rounded once, at the end.
"""

from __future__ import annotations

import math

from ..graph import Value
from ..rules import Match, any_value, either, number, op, rule

_x = any_value("x")
_HALF, _ONE = number(0.5), number(1.0)
_C, _TWO_OVER_PI = number(0.044715, near=True), number(math.sqrt(2.0 / math.pi), near=True)
_over_root = either(_x / number(math.sqrt(2.0), near=True), _x * number(math.sqrt(0.5), near=True))
_cube = either(op("power", _x, number(3.0)), op("multiply", op("square", _x), _x), op("multiply", _x, _x, _x))
_inner = either(
    op("multiply", _TWO_OVER_PI, _x + _C * _cube),
    op("multiply", _TWO_OVER_PI, _x, _ONE + _C * op("square", _x)),
    op("multiply", _TWO_OVER_PI, _x, _ONE + op("multiply", _C, _x, _x)),
)


@rule(op("multiply", _x, _HALF, _ONE + op("erf", _over_root)))
def gelu_by_erf(m: Match) -> Value | None:
    """x · ½ · (1 + erf(x / √2)), in any order."""
    return m.op("gelu", m["x"]) if m.fits(m["x"]) else None


@rule(op("multiply", _x, _HALF, _ONE + op("tanh", _inner)))
def gelu_by_tanh(m: Match) -> Value | None:
    """x · ½ · (1 + tanh(√(2/π) · (x + 0.044715 · x³))), in any order."""
    return m.op("gelu", m["x"], approximate="tanh") if m.fits(m["x"]) else None


RULES = (gelu_by_erf, gelu_by_tanh)
