"""This module finds the updates of a reduction in a block's body, and the reducer that they apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from ..expr import Expr, Var, structural_equal, substitute
from ..expr.reducers import REDUCERS, Reducer, Values
from ..stmt import Buffer, BufferStore, IfThenElse, LetStmt, Stmt, children_of, loads_and_stores


@dataclass(frozen=True, slots=True, eq=False)
class Updates:
    """``Updates`` are the ``stores`` of a body, and the ``conditions`` under which they happen.

    All stored values are computed before the first store. Variables of let statements are replaced by their values.
    """

    stores: tuple[BufferStore, ...]
    conditions: tuple[Expr, ...]


def updates_of(stmt: Stmt) -> Updates | str:
    """Return the stores of a body, or the reason why they do not happen at once.

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
    for store in children_of(stmt):
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
