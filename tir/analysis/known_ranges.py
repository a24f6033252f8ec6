"""This module makes analyzers that know the ranges of the sizes, loops and axes around a statement.

It also evaluates expressions of symbolic sizes, and finds sizes that meet conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from ..arith import Analyzer
from ..expr import (
    And,
    BinaryOp,
    Cast,
    Expr,
    IntImm,
    IterVar,
    Not,
    Or,
    Range,
    Select,
    Var,
    conjuncts,
    is_const_int,
    logical_not,
    reads_memory,
    vars_in,
)
from ..stmt import AssertStmt, Block, BlockRealize, For, IfThenElse, PrimFunc, Stmt
from ..walk import free_vars, pre_order
from .simplify import bind_sizes
from .tree import Tree, symbols_of


def analyzer_at(tree: Tree, stmt: Stmt, keep_unit: bool = False, maybe_empty: Collection[For] = ()) -> Analyzer:
    """Return an analyzer that knows the ranges of the sizes, loops and block axes around ``stmt``.

    A symbolic size is at least 0. It is at least 1 inside a loop or a block over it, and where a condition around
    ``stmt`` says so. That loops of ``maybe_empty`` have iterations is not concluded from; their ranges are known. With
    ``keep_unit`` a loop of one iteration is treated as a longer one, so that simplification keeps its variable.
    """
    analyzer = sized_analyzer(tree.func)
    skipped = set(maybe_empty)
    for up, below in pairwise(tree.path(stmt)):
        if type(up) is For:
            bind_loop(analyzer, up, keep_unit, nonempty=up not in skipped)
        elif type(up) is Block:
            _bind_axes(analyzer, up.iter_vars)
        else:
            _learn_sizes(analyzer, tree.func, _holding(up, below))
    return analyzer


def _holding(stmt: Stmt, below: Stmt) -> Expr | None:
    """Return the condition of ``stmt`` that holds in ``below``, directly under it."""
    if type(stmt) is AssertStmt:
        return stmt.condition
    if type(stmt) is BlockRealize:
        return stmt.predicate
    if type(stmt) is IfThenElse:
        return stmt.condition if below is stmt.then_case else logical_not(stmt.condition)
    return None


def _learn_sizes(analyzer: Analyzer, func: PrimFunc, condition: Expr | None) -> None:
    """Tell the analyzer what a condition says of the sizes, which never change."""
    if condition is None or isinstance(condition, IntImm):
        return
    sizes = set(symbols_of(func))
    for part in conjuncts(condition):
        if vars_in(part) <= sizes and not reads_memory(part):
            analyzer.learn(part)


def bind_loop(analyzer: Analyzer, loop: For, keep_unit: bool = False, nonempty: bool = True) -> None:
    """Tell the analyzer the range of one loop, and with ``nonempty`` what holds where it has iterations.

    See :func:`analyzer_at` for ``keep_unit``.
    """
    if nonempty:
        analyzer.learn_nonempty(loop.extent)
    if keep_unit and is_const_int(loop.extent, 1):
        analyzer.bind(loop.loop_var, (loop.min, loop.min + 1))
    else:
        analyzer.bind(loop.loop_var, Range(loop.min, loop.extent))


def bind_loops(analyzer: Analyzer, loops: Iterable[For], nonempty: bool = True) -> None:
    """Tell the analyzer the ranges of loops, outermost first; see :func:`bind_loop`."""
    for loop in loops:
        bind_loop(analyzer, loop, nonempty=nonempty)


def analyzer_of(axes: Iterable[IterVar]) -> Analyzer:
    """Return an analyzer that knows the domains of these axes, and nothing else."""
    return _bind_axes(Analyzer(), axes)


def _bind_axes(analyzer: Analyzer, axes: Iterable[IterVar]) -> Analyzer:
    for axis in axes:
        analyzer.learn_nonempty(axis.dom.extent)
        analyzer.bind(axis.var, axis.dom)
    return analyzer


def sized_analyzer(func: PrimFunc) -> Analyzer:
    """Return an analyzer that knows the facts on sizes that hold everywhere in a function.

    Sizes are not negative, and meet the conditions that the function asserts before anything else.
    """
    analyzer = Analyzer()
    bind_sizes(analyzer, func)
    stmt: Stmt = func.body
    while isinstance(stmt, (AssertStmt, BlockRealize, Block)):
        if isinstance(stmt, AssertStmt):
            _learn_sizes(analyzer, func, stmt.condition)
        stmt = stmt.block if isinstance(stmt, BlockRealize) else stmt.body
    return analyzer


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
            for size in _candidates(sizes, missed, (bounds or {}).get(var, _LARGEST)):
                found = len(unmet({**sizes, var: size})), abs(size - sizes[var])
                if size != sizes[var] and (best is None or found < best[:2]):
                    best = (*found, var, size)
        if best is None or best[0] >= len(missed) and len(missed) == len(tested) == 1:
            return None
        sizes[best[2]] = best[3]
        missed = unmet(sizes)
    return None


def _candidates(sizes: Mapping[Var, int], conditions: Sequence[Expr], bound: int) -> Iterator[int]:
    """Yields the sizes to try for ``var``: small ones, powers of two, and those around the numbers in the conditions."""
    numbers = {n.value for c in conditions for n in pre_order(c) if isinstance(n, IntImm)} | set(sizes.values())
    products = {a * b for a in numbers for b in numbers if 0 < a * b <= bound}
    around = {n + d for n in numbers for d in (-1, 0, 1)} | products
    powers = {1 << n for n in range(13)}
    yield from sorted(s for s in {*range(1, 65), *powers, *around, bound} if 1 <= s <= bound)


def asserted_sizes(func: PrimFunc) -> Iterator[tuple[Expr, str]]:
    """Yields the assertions of a function that are about sizes alone."""
    sizes = {v for b in func.buffers for e in b.shape for v in vars_in(e)} | set(func.params)
    for n in pre_order(func.body):
        if isinstance(n, AssertStmt) and not reads_memory(n.condition) and free_vars(n.condition) <= sizes:
            yield n.condition, n.message
