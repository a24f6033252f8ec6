"""This module makes analyzers that know the ranges of the sizes, loops and axes around a statement."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from ..arith import Analyzer
from ..expr import Expr, IntImm, IterVar, Range, conjuncts, is_const_int, logical_not, reads_memory, vars_in
from ..stmt import AssertStmt, Block, BlockRealize, For, IfThenElse, PrimFunc, Stmt
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
