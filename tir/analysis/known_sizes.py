"""This module evaluates expressions of symbolic sizes, and finds sizes that meet conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..expr import And, BinaryOp, Cast, Expr, IntImm, Not, Or, Select, Var, vars_in
from ..walk import pre_order

_LARGEST = 4096
"""The largest size that is tried, where no bound says less."""

_ROUNDS = 64
"""How many sizes are changed before the search gives up."""


def evaluate(expr: Expr, known: Mapping[Var, int]) -> int | None:
    """Returns the value of an integer or bool expression, or None when it has an unknown symbol."""
    if isinstance(expr, IntImm):
        return expr.value
    if isinstance(expr, Var):
        return known.get(expr)
    if isinstance(expr, Cast):
        return evaluate(expr.value, known)
    if isinstance(expr, Select):
        condition = evaluate(expr.condition, known)
        return None if condition is None else evaluate(expr.true_value if condition else expr.false_value, known)
    if isinstance(expr, Not):
        holds = evaluate(expr.a, known)
        return None if holds is None else int(not holds)
    if isinstance(expr, (And, Or)):
        first = evaluate(expr.a, known)
        if first is None or bool(first) == isinstance(expr, Or):
            return first
        return evaluate(expr.b, known)
    if isinstance(expr, BinaryOp):
        a, b = evaluate(expr.a, known), evaluate(expr.b, known)
        try:
            return None if a is None or b is None else expr.compute(a, b)
        except ZeroDivisionError:
            return None
    return None


def fitting_sizes(
    conditions: Sequence[Expr], first: Mapping[Var, int], bounds: Mapping[Var, int] | None = None
) -> dict[Var, int] | None:
    """Returns sizes near ``first`` that meet all conditions, or None when none are found.

    Where the first ones do not, one size after the other is changed to what leaves the fewest conditions unmet. ``bounds``:
    the largest values of sizes. Conditions with other variables are left out.

    >>> from tilewright.tir.expr import Var
    >>> n, m = Var("n"), Var("m")
    >>> [*fitting_sizes([n >= 100, (m * 2).equal(n)], {n: 16, m: 16}).values()]
    [100, 50]
    """
    sizes = dict(first)
    tested = [c for c in conditions if (free := vars_in(c)) and free <= set(sizes)]

    def unmet(at: Mapping[Var, int]) -> list[Expr]:
        return [c for c in tested if not evaluate(c, at)]

    missed = unmet(sizes)
    for _ in range(_ROUNDS):
        if not missed:
            return sizes
        best: tuple[int, int, Var, int] | None = None
        for var in dict.fromkeys(n for c in missed for n in pre_order(c) if isinstance(n, Var) and n in sizes):
            for size in _candidates(var, sizes, missed, (bounds or {}).get(var, _LARGEST)):
                found = len(unmet({**sizes, var: size})), abs(size - sizes[var])
                if size != sizes[var] and (best is None or found < best[:2]):
                    best = (*found, var, size)
        if best is None or best[0] >= len(missed) and len(missed) == len(tested) == 1:
            return None
        sizes[best[2]] = best[3]
        missed = unmet(sizes)
    return None


def _candidates(var: Var, sizes: Mapping[Var, int], conditions: Sequence[Expr], bound: int) -> Iterator[int]:
    """Yields the sizes to try for ``var``: small ones, powers of two, and those around the numbers in the conditions."""
    numbers = {n.value for c in conditions for n in pre_order(c) if isinstance(n, IntImm)} | set(sizes.values())
    products = {a * b for a in numbers for b in numbers if 0 < a * b <= bound}
    around = {n + d for n in numbers for d in (-1, 0, 1)} | products
    powers = {1 << n for n in range(13)}
    yield from sorted(s for s in {*range(1, 65), *powers, *around, bound} if 1 <= s <= bound)
