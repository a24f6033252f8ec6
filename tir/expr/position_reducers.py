"""This module has the reductions that find an extreme with its position, by what they do with ties and NaN."""

from __future__ import annotations

from collections.abc import Callable

from .base.dtype import max_value
from .nodes.expr import NE, And, Expr, Or, Select
from .reducers import HIGHEST, LOWEST, Reducer, Start, Values, add_reducer, starts_from_constant

_ANY_INDEX = Start(max_value, lambda v, t: True)
"""The index of an extreme: any will do, because the first element is better than the start."""


def _position(
    name: str, better: Callable[[Expr, Expr], Expr], as_good: Callable[[Expr, Expr], Expr], start: Start
) -> tuple[Reducer, Reducer]:
    """Register the extremes with their positions, by what they do with ties; return the two that keep the first.

    The values are the index and the element. ``better`` compares elements, ``as_good`` also holds for equal ones. The
    first of the two never takes NaN; the second takes the first NaN that there is, as NumPy does.
    """

    def nan(x: Expr) -> Expr:
        return NE(x, x)

    def strict(x: Values, y: Values) -> Expr:
        return better(x[1], y[1])

    def loose(x: Values, y: Values) -> Expr:
        return as_good(x[1], y[1])

    def earlier(x: Values, y: Values) -> Expr:
        return Or(strict(x, y), And(x[1].equal(y[1]), x[0] < y[0]))

    def first_nan(x: Values, y: Values) -> Expr:
        same = Or(x[1].equal(y[1]), nan(x[1]))
        return Or(strict(x, y), Or(And(same, x[0] < y[0]), And(nan(x[1]), y[1].equal(y[1]))))

    def or_nan(x: Values, y: Values) -> Expr:
        return Or(strict(x, y), nan(x[1]))

    def keeping(index: Callable[[Values, Values], Expr], value: Callable[[Values, Values], Expr]) -> Reducer:
        def combine(x: Values, y: Values) -> Values:
            return Select(index(x, y), x[0], y[0]), Select(value(x, y), x[1], y[1])

        starts = starts_from_constant(start, 1)
        return add_reducer(Reducer(name, 2, combine, starts, starts_from=(_ANY_INDEX, start)))

    keeping(loose, loose)
    keeping(strict, strict)
    keeping(earlier, loose)
    return keeping(earlier, strict), keeping(first_nan, or_nan)


ARGMAX, ARGMAX_OR_NAN = _position("argmax", lambda a, b: a > b, lambda a, b: a >= b, LOWEST)
ARGMIN, ARGMIN_OR_NAN = _position("argmin", lambda a, b: a < b, lambda a, b: a <= b, HIGHEST)
