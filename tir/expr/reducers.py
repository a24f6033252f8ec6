"""This module has one row per reduction that may be divided: how it combines values, and what it starts from.

To call a reduction one of these is to say that its combination may be applied in any order and grouping. That holds
exactly for integers, minima and maxima. A float sum or product then rounds differently, and an argmax that prefers
either side of a tie may name another of the equal elements. The maximum that ignores NaN, ``x > best ? x : best`` from
the lowest value on, is one too. With the operands exchanged, its result would depend on the order.

``te`` makes its reductions from these rows, ``rfactor`` and other primitives recognize them
(:mod:`.analysis.reduction_updates`), and lowering combines the lanes of a vector by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .base.dtype import DType, max_value, min_value
from .intrinsics import Operation
from .intrinsics.vector_operations import (
    vector_reduce_add,
    vector_reduce_fmax,
    vector_reduce_fmin,
    vector_reduce_max,
    vector_reduce_min,
    vector_reduce_mul,
)
from .nodes.arithmetic import make_binary, match_types
from .nodes.constants import const
from .nodes.expr import (
    GT,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Cast,
    CmpOp,
    Expr,
    FloatImm,
    IntImm,
    Max,
    Min,
    Mul,
    Or,
    Select,
)

Values = tuple[Expr, ...]
Combination = Callable[[Values, Values], Values]


@dataclass(frozen=True)
class Start:
    """Represents what one value of a reduction starts from; all arguments are a number and its data type.

    ``usual`` is what ``te`` writes, as TVM does, ``neutral`` the value that never changes a result, and ``fits`` tells
    whether a reduction may start from a number.
    """

    usual: Callable[[str], float]
    neutral: Callable[[str], float]
    fits: Callable[[float, str], bool]


def _exactly(value: int) -> Start:
    return Start(lambda t: value, lambda t: value, lambda v, t: v == value)


LOWEST = Start(min_value, lambda t: -math.inf if DType(t).is_float else min_value(t), lambda v, t: v <= min_value(t))
HIGHEST = Start(max_value, lambda t: math.inf if DType(t).is_float else max_value(t), lambda v, t: v >= max_value(t))
ANY_INDEX = Start(max_value, max_value, lambda v, t: True)
"""The index of an extreme: any will do, because the first element is better than the start."""


@dataclass(frozen=True)
class Reducer:
    """A ``Reducer`` combines tuples of ``arity`` values by ``combine(lhs, rhs)``, which is associative and commutative.

    ``starts(values)`` returns whether constants are values to start from: combined with any others, they give those.
    ``starts_from`` says what each value starts from, where that is known, ``node`` is the node that combines single
    values (a comparison: the one that chooses), and ``lanes`` the operation that combines the lanes of a vector.
    """

    name: str
    arity: int
    combine: Combination
    starts: Callable[[Values], bool]
    either_way: bool = True
    """True when an update may have the accumulated value on the right."""
    starts_from: tuple[Start, ...] = ()
    node: type[BinaryOp] | None = None
    lanes: Operation | None = None

    def identity(self, dtypes: Sequence[str]) -> Values:
        """Return the usual start values for these data types."""
        return tuple([const(start.usual(t), t) for start, t in zip(self.starts_from, dtypes, strict=True)])


REDUCERS: list[Reducer] = []
"""The known reductions; a program is compared with them in this order."""


def register_reducer(
    name: str, arity: int, combine: Combination, starts: Callable[[Values], bool], either_way: bool = True
) -> Reducer:
    """Register one more reduction for ``rfactor``.

    ``combine`` must be associative and commutative, and ``combine(start, x)`` must be x.
    """
    return _row(Reducer(name, arity, combine, starts, either_way))


def _row(reducer: Reducer) -> Reducer:
    REDUCERS.append(reducer)
    return reducer


def _number(e: Expr) -> float | None:
    if isinstance(e, Cast):
        return _number(e.value)
    return e.value if isinstance(e, (IntImm, FloatImm)) else None


def _fitting(starts_from: tuple[Start, ...]) -> Callable[[Values], bool]:
    """Return whether constants are what a reduction starts from; an index may be any expression."""

    def test(values: Values) -> bool:
        for start, e in zip(starts_from, values, strict=True):
            number = _number(e)
            if start is not ANY_INDEX and (number is None or not start.fits(number, e.dtype)):
                return False
        return True

    return test


def _by_node(name: str, node: type[BinaryOp], start: Start, lanes: Operation | None = None) -> Reducer:
    def combine(x: Values, y: Values) -> Values:
        return (make_binary(node, *match_types(x[0], y[0])),)

    return _row(Reducer(name, 1, combine, _fitting((start,)), starts_from=(start,), node=node, lanes=lanes))


def _without_nan(name: str, better: type[CmpOp], start: Start, lanes: Operation) -> Reducer:
    """Return the extreme that takes a value only when it is better, so that NaN is not taken."""

    def combine(x: Values, y: Values) -> Values:
        return (Select(better(y[0], x[0]), y[0], x[0]),)

    return _row(
        Reducer(name, 1, combine, _fitting((start,)), either_way=False, starts_from=(start,), node=better, lanes=lanes)
    )


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

    infinite = replace(start, usual=start.neutral)  # the first of elements that are all infinite has a position too

    def keeping(index: Callable[[Values, Values], Expr], value: Callable[[Values, Values], Expr]) -> Reducer:
        def combine(x: Values, y: Values) -> Values:
            return Select(index(x, y), x[0], y[0]), Select(value(x, y), x[1], y[1])

        starts_from = (ANY_INDEX, infinite)
        return _row(Reducer(name, 2, combine, _fitting(starts_from), starts_from=starts_from))

    keeping(loose, loose)
    keeping(strict, strict)
    keeping(earlier, loose)
    return keeping(earlier, strict), keeping(first_nan, or_nan)


SUM = _by_node("sum", Add, _exactly(0), vector_reduce_add)
PROD = _by_node("prod", Mul, _exactly(1), vector_reduce_mul)
MAX = _by_node("max", Max, LOWEST, vector_reduce_max)
MIN = _by_node("min", Min, HIGHEST, vector_reduce_min)
LARGEST = _without_nan("largest number", GT, LOWEST, vector_reduce_fmax)
SMALLEST = _without_nan("smallest number", LT, HIGHEST, vector_reduce_fmin)
ANY = _by_node("any", Or, _exactly(0))
ALL = _by_node("all", And, _exactly(1))
ARGMAX, ARGMAX_OR_NAN = _position("argmax", lambda a, b: a > b, lambda a, b: a >= b, LOWEST)
ARGMIN, ARGMIN_OR_NAN = _position("argmin", lambda a, b: a < b, lambda a, b: a <= b, HIGHEST)
