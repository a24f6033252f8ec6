"""This module knows the reductions that may be divided: their combination and their identity.

To call a reduction one of these is to say that its combination may be applied in any order and grouping. That holds
exactly for integers, minima and maxima. A float sum or product then rounds differently, and an argmax that prefers
either side of a tie may name another of the equal elements. The maximum that ignores NaN, ``x > best ? x : best`` from
the lowest value on, is one too. With the operands exchanged, its result would depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from ..tir.buffer import Buffer
from ..tir.dtype import max_value, min_value
from ..tir.equal import structural_equal
from ..tir.expr import Add, And, Cast, Expr, FloatImm, IntImm, Max, Min, Mul, Or, Select, Var
from ..tir.stmt import BufferStore, IfThenElse, LetStmt, SeqStmt, Stmt
from ..tir.walk import loads_and_stores, substitute

Values = tuple[Expr, ...]


@dataclass(frozen=True)
class Reducer:
    """A ``Reducer`` combines tuples of ``arity`` values by ``combine(lhs, rhs)``; ``starts`` tells its identity.

    ``starts(values)`` returns whether constants are values to start from.
    """

    name: str
    arity: int
    combine: Callable[[Values, Values], Values]
    starts: Callable[[Values], bool]
    either_way: bool = True
    """True when an update may have the accumulated value on the right."""


REDUCERS: list[Reducer] = []


def register_reducer(
    name: str,
    arity: int,
    combine: Callable[[Values, Values], Values],
    starts: Callable[[Values], bool],
    either_way: bool = True,
) -> Reducer:
    """Register one more reduction for ``rfactor``.

    ``combine`` must be associative and commutative, and ``combine(start, x)`` must be x.
    """
    reducer = Reducer(name, arity, combine, starts, either_way)
    REDUCERS.append(reducer)
    return reducer


def _number(e: Expr) -> float | int | None:
    if isinstance(e, Cast):
        return _number(e.value)
    return e.value if isinstance(e, (IntImm, FloatImm)) else None


def _is(value: float) -> Callable[[Values], bool]:
    return lambda start: _number(start[0]) == value


def _lowest(position: int) -> Callable[[Values], bool]:
    def test(start: Values) -> bool:
        value = _number(start[position])
        return value is not None and value <= min_value(start[position].dtype)

    return test


def _highest(position: int) -> Callable[[Values], bool]:
    def test(start: Values) -> bool:
        value = _number(start[position])
        return value is not None and value >= max_value(start[position].dtype)

    return test


def _first_where(keep: Callable[[Any, Any], Expr], keep_value: Callable[[Any, Any], Expr]) -> Any:
    """Return the combination of (index, value) pairs that keeps the left one where ``keep`` says so."""

    def combine(x: Values, y: Values) -> Values:
        return Select(keep(x, y), x[0], y[0]), Select(keep_value(x, y), x[1], y[1])

    return combine


register_reducer("sum", 1, lambda x, y: (Add(x[0], y[0]),), _is(0))
register_reducer("prod", 1, lambda x, y: (Mul(x[0], y[0]),), _is(1))
register_reducer("max", 1, lambda x, y: (Max(x[0], y[0]),), _lowest(0))
register_reducer("min", 1, lambda x, y: (Min(x[0], y[0]),), _highest(0))
register_reducer("largest number", 1, lambda x, y: (Select(y[0] > x[0], y[0], x[0]),), _lowest(0), either_way=False)
register_reducer("smallest number", 1, lambda x, y: (Select(y[0] < x[0], y[0], x[0]),), _highest(0), either_way=False)
register_reducer("any", 1, lambda x, y: (Or(x[0], y[0]),), _is(0))
register_reducer("all", 1, lambda x, y: (And(x[0], y[0]),), _is(1))
for _name, _side, _start in (("argmax", "GE", _lowest(1)), ("argmin", "LE", _highest(1))):
    if _side == "GE":
        _or_equal, _strict = (lambda x, y: x[1] >= y[1]), (lambda x, y: x[1] > y[1])
    else:
        _or_equal, _strict = (lambda x, y: x[1] <= y[1]), (lambda x, y: x[1] < y[1])

    def _lexicographic(x: Values, y: Values, strict: Any = _strict) -> Expr:
        return Or(strict(x, y), And(x[1].equal(y[1]), x[0] < y[0]))

    for _keep, _value in (
        (_or_equal, _or_equal),
        (_strict, _strict),
        (_lexicographic, _or_equal),
        (_lexicographic, _strict),
    ):
        register_reducer(_name, 2, _first_where(_keep, _value), _start)


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """``Updates`` are the ``stores`` of a body, and the ``conditions`` under which they happen.

    All stored values are computed before the first store. Variables of let statements are replaced by their values.
    """

    stores: tuple[BufferStore, ...]
    conditions: tuple[Expr, ...]


def updates_of(stmt: Stmt) -> Updates | str:
    """Return the stores of a body, or the reason why it is not a set of stores that happen at once.

    The body is one store or a sequence of stores, under let statements and conditions without an else.
    """
    lets: dict[Var, Expr] = {}
    conditions: list[Expr] = []
    while isinstance(stmt, LetStmt) or (isinstance(stmt, IfThenElse) and stmt.else_case is None):
        if isinstance(stmt, LetStmt):
            lets[stmt.var] = substitute(stmt.value, lets)
            stmt = stmt.body
        else:
            conditions.append(substitute(stmt.condition, lets))
            stmt = stmt.then_case
    written: set[Buffer] = set()
    stores: list[BufferStore] = []
    for store in stmt.seq if isinstance(stmt, SeqStmt) else (stmt,):
        if not isinstance(store, BufferStore) or store.predicate is not None:
            return "it holds more than plain stores"
        if store.buffer in written:
            return f"it stores to {store.buffer.name} twice"
        late = next(
            (a.buffer for e in (store.value, *store.indices) for a in loads_and_stores(e) if a.buffer in written), None
        )
        if late is not None:  # a let statement around the stores would have read it earlier
            return f"its store to {store.buffer.name} reads {late.name} after the store to {late.name}"
        written.add(store.buffer)
        stores.append(substitute(store, lets) if lets else store)
    return Updates(tuple(stores), tuple(conditions))


def find_reducer(
    identity: Sequence[Expr] | None, left: Sequence[Expr], updates: Sequence[Expr]
) -> tuple[Reducer, Values] | None:
    """Return the reducer with ``updates == combine(left, right)``, and that ``right``.

    The reducer starts from ``identity``, or from any value when that is None. The values of a tuple may come in any
    order; the returned reducer takes them in this order.
    """
    for reducer in REDUCERS:
        if reducer.arity != len(updates):
            continue
        for order in permutations(range(reducer.arity)):
            ordered = reducer if order == tuple(range(reducer.arity)) else _in_order(reducer, order)
            right = _right_side(ordered, left, updates)
            if right is not None and (identity is None or ordered.starts(tuple(identity))):
                return ordered, right
    return None


def _in_order(reducer: Reducer, order: Sequence[int]) -> Reducer:
    """Return the reducer over tuples whose value ``n`` is value ``order[n]`` of ``reducer``."""
    back = [order.index(n) for n in range(len(order))]

    def own(values: Values) -> Values:
        return tuple([values[n] for n in back])

    def combine(x: Values, y: Values) -> Values:
        found = reducer.combine(own(x), own(y))
        return tuple([found[n] for n in order])

    return replace(reducer, combine=combine, starts=lambda values: reducer.starts(own(values)))


def _right_side(reducer: Reducer, left: Sequence[Expr], updates: Sequence[Expr]) -> Values | None:
    """Return the values with which ``updates`` combine ``left``; None when the updates have another form."""
    holes = tuple([Var(f"rhs_{i}", e.dtype) for i, e in enumerate(left)])
    sides = [reducer.combine(tuple(left), holes)]
    if reducer.arity == 1 and reducer.either_way:
        sides.append(reducer.combine(holes, tuple(left)))
    for pattern in sides:
        found: dict[Var, Expr] = {}
        if all(_match(p, e, set(holes), found) for p, e in zip(pattern, updates, strict=True)) and len(found) == len(
            holes
        ):
            return tuple([found[h] for h in holes])
    return None


def _match(pattern: Expr, e: Expr, holes: set[Var], found: dict[Var, Expr]) -> bool:
    if isinstance(pattern, Var) and pattern in holes:
        if pattern in found:
            return structural_equal(found[pattern], e)
        found[pattern] = e
        return bool(pattern.dtype == e.dtype)
    if not any(n in holes for n in _leaves(pattern)):
        return structural_equal(pattern, e)
    if type(pattern) is not type(e):
        return False
    mine, theirs = list(pattern.children()), list(e.children())
    return len(mine) == len(theirs) and all(_match(p, c, holes, found) for p, c in zip(mine, theirs, strict=True))  # type: ignore[arg-type]


def _leaves(e: Any) -> Any:
    below = list(e.children())
    if not below:
        yield e
    for child in below:
        yield from _leaves(child)
