"""Rules of conversions between data types."""

from __future__ import annotations

from ...tir.expr import DType
from ..graph import Value
from ..rules import Match, Rule, any_value, op, rule

_x = any_value("x")


@rule(op("cast", _x))
def cast_to_the_same(m: Match) -> Value | None:
    """A conversion to the type that x has is x."""
    return m["x"] if m["x"].dtype == m.out.dtype else None


@rule(op("cast", op("cast", _x, bind="inner")))
def cast_of_cast(m: Match) -> Value | None:
    """Two conversions in a row become one. The type between must hold all values of the first type.

    An integer that is a float in between and then an integer again stays as it is unless the last type holds all values
    of the first one: a conversion from a float ends at the ends of the type, and one from an integer wraps around.
    """
    first, second, last = m["x"].dtype, m.node("inner").output.dtype, m.out.dtype
    if not _holds_all(second, first):
        return None
    if DType(first).is_int and DType(second).is_float and DType(last).is_int and not _holds_all(last, first):
        return None
    return m["x"] if first == m.out.dtype else m.op("cast", m["x"], dtype=m.out.dtype)


def _holds_all(wide: str, narrow: str) -> bool:
    """Returns whether each value of ``narrow`` is one of ``wide``."""
    a, b = DType(wide), DType(narrow)
    if a.is_float and b.is_float:
        return a.bits >= 2 * b.bits or a == b
    if a.kind == b.kind:
        return a.bits >= b.bits
    if a.kind == "int" and b.kind == "uint":
        return a.bits > b.bits
    return a.is_float and b.is_int and {"float32": 16, "float64": 32}.get(str(a), 0) >= b.bits


RULES: tuple[Rule, ...] = (cast_to_the_same, cast_of_cast)
