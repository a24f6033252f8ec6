"""This module has one row per reduction that may be divided: how it combines values, and what it starts from.

To call a reduction one of these is to say that its combination may be applied in any order and grouping. That holds
exactly for integers, minima and maxima. A float sum or product then rounds differently, and an argmax that prefers
either side of a tie may name another of the equal elements. The maximum that ignores NaN, ``x > best ? x : best`` from
the lowest value on, is one too. With the operands exchanged, its result would depend on the order.

``te`` makes its reductions from these rows, ``rfactor`` and other primitives recognize them
(:mod:`..analysis.reductions`), and lowering combines the lanes of a vector by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .dtype import max_identity, max_value, min_identity, min_value
from .nodes import GT, LT, NE, Add, And, BinaryOp, Cast, CmpOp, Expr, FloatImm, IntImm, Max, Min, Mul, Or, Select
from .op import const, make_binary, match_types

Values = tuple[Expr, ...]
Combination = Callable[[Values, Values], Values]


@dataclass(frozen=True)
class StartValue:
    """Represents what one value of a reduction starts from; all arguments are a number and its data type.

    ``identity`` is the value that never changes a result: ``te`` writes it, and a lane that takes no part holds it.
    ``fits`` tells whether a program's reduction may start from a number; a maximum may start from the lowest finite
    number too, as TVM's does. A row of nothing but -inf then gives that number, whatever the order.
    """

    identity: Callable[[str], float]
    fits: Callable[[float, str], bool]


def _exactly(value: int) -> StartValue:
    return StartValue(lambda t: value, lambda v, t: v == value)


LOWEST = StartValue(max_identity, lambda v, t: v <= min_value(t))
HIGHEST = StartValue(min_identity, lambda v, t: v >= max_value(t))


@dataclass(frozen=True)
class Reducer:
    """A ``Reducer`` combines tuples of ``arity`` values by ``combine(lhs, rhs)``, which is associative and commutative.

    ``starts(values)`` returns whether constants are values to start from: combined with any others, they give those.
    ``starts_from`` says what each value starts from, where that is known, ``node`` is the node that combines single
    values (a comparison: the one that chooses), and ``lanes`` names the operation that combines the
    lanes of a vector.
    """

    name: str
    arity: int
    combine: Combination
    starts: Callable[[Values], bool]
    either_way: bool = True
    """True when an update may have the accumulated value on the right."""
    starts_from: tuple[StartValue, ...] = ()
    node: type[BinaryOp] | None = None
    lanes: str = ""

    def identity(self, dtypes: Sequence[str]) -> Values:
        """Return the values to start from for these data types."""
        return tuple([const(start.identity(t), t) for start, t in zip(self.starts_from, dtypes, strict=True)])


REDUCERS: list[Reducer] = []
"""The known reductions; a program is compared with them in this order."""


def register_reducer(
    name: str, arity: int, combine: Combination, starts: Callable[[Values], bool], either_way: bool = True
) -> Reducer:
    """Register one more reduction for ``rfactor``.

    ``combine`` must be associative and commutative, and ``combine(start, x)`` must be x.
    """
    return add_reducer(Reducer(name, arity, combine, starts, either_way))


def add_reducer(reducer: Reducer) -> Reducer:
    """Add a row to :data:`REDUCERS`, and return it."""
    REDUCERS.append(reducer)
    return reducer


def _number(e: Expr) -> float | None:
    if isinstance(e, Cast):
        return _number(e.value)
    return e.value if isinstance(e, (IntImm, FloatImm)) else None


def starts_from_constant(start: StartValue, which: int = 0) -> Callable[[Values], bool]:
    """Return the test whether one of the values is a constant that a reduction may start from."""

    def test(values: Values) -> bool:
        number = _number(values[which])
        return number is not None and start.fits(number, values[which].dtype)

    return test


def _by_node(name: str, node: type[BinaryOp], start: StartValue, lanes: str = "") -> Reducer:
    def combine(x: Values, y: Values) -> Values:
        return (make_binary(node, *match_types(x[0], y[0])),)

    return add_reducer(
        Reducer(name, 1, combine, starts_from_constant(start), starts_from=(start,), node=node, lanes=lanes)
    )


def _without_nan(name: str, better: type[CmpOp], start: StartValue, lanes: str) -> Reducer:
    """Return the extreme that takes a value only when it is better, so that NaN is not taken."""

    def combine(x: Values, y: Values) -> Values:
        return (Select(better(y[0], x[0]), y[0], x[0]),)

    return add_reducer(
        Reducer(
            name,
            1,
            combine,
            starts_from_constant(start),
            either_way=False,
            starts_from=(start,),
            node=better,
            lanes=lanes,
        )
    )


SUM = _by_node("sum", Add, _exactly(0), "vector_reduce_add")
PROD = _by_node("prod", Mul, _exactly(1), "vector_reduce_mul")
MAX = _by_node("max", Max, LOWEST, "vector_reduce_max")
MIN = _by_node("min", Min, HIGHEST, "vector_reduce_min")
LARGEST = _without_nan("largest number", GT, LOWEST, "vector_reduce_fmax")
SMALLEST = _without_nan("smallest number", LT, HIGHEST, "vector_reduce_fmin")
ANY = _by_node("any", Or, _exactly(0))
ALL = _by_node("all", And, _exactly(1))


# -- reductions that find an extreme with its position, by what they do with ties and NaN --

_ANY_INDEX = StartValue(max_value, lambda v, t: True)
"""The index of an extreme: any will do, because the first element is better than the start."""


def _position(
    name: str, better: Callable[[Expr, Expr], Expr], as_good: Callable[[Expr, Expr], Expr], start: StartValue
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
