"""This module makes analyzers that know the ranges of what stands around a statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from ..arith import Analyzer
from ..expr import Expr, IterVar, Range, Var, is_const_int, pre_order
from ..stmt import Block, For, PrimFunc, Stmt
from .simplify import bind_sizes
from .tree import Tree, symbols_of


def analyzer_at(tree: Tree, stmt: Stmt) -> Analyzer:
    """Return an analyzer that knows the ranges of the sizes, loops and block axes around ``stmt``.

    Symbolic sizes of the function's buffers are at least one, since nothing is computed wrongly on an empty buffer.
    """
    analyzer = Analyzer()
    bind_sizes(analyzer, tree.func.buffer_map.values())
    return _with_ranges_above(analyzer, tree, stmt)


def analyzer_above(tree: Tree, stmt: Stmt, keep_unit: bool = False) -> Analyzer:
    """Return an analyzer that knows the ranges of the loops and axes around ``stmt``, and that sizes are not negative.

    With ``keep_unit`` a loop of one iteration is
    treated as a longer one, so that simplification keeps its variable.
    """
    analyzer = Analyzer()
    bind_symbols(analyzer, tree)
    return _with_ranges_above(analyzer, tree, stmt, keep_unit)


def _with_ranges_above(analyzer: Analyzer, tree: Tree, stmt: Stmt, keep_unit: bool = False) -> Analyzer:
    for up in tree.path(stmt)[:-1]:
        if type(up) is For:
            bind_loop(analyzer, up, keep_unit)
        elif type(up) is Block:
            _bind_axes(analyzer, up.iter_vars)
    return analyzer


def bind_symbols(analyzer: Analyzer, tree: Tree, more: Iterable[Expr] = ()) -> None:
    """Bind sizes of the function to at least zero; other variables in ``more`` to at least one."""
    sizes = symbols_of(tree.func)
    known = {*sizes, *tree.loops}
    for var in [n for e in more for n in pre_order(e) if isinstance(n, Var) and n not in known]:
        analyzer.bind(var, (1, None))
    for size in sizes:
        analyzer.bind(size, (0, None))


def bind_loop(analyzer: Analyzer, loop: For, keep_unit: bool = False) -> None:
    """Tell the analyzer the range of one loop; see :func:`analyzer_above` for ``keep_unit``."""
    if keep_unit and is_const_int(loop.extent, 1):
        analyzer.bind(loop.loop_var, (loop.min, loop.min + 1))
    else:
        analyzer.bind(loop.loop_var, Range(loop.min, loop.extent))


def bind_loops(analyzer: Analyzer, loops: Iterable[For]) -> None:
    """Tell the analyzer the ranges of loops, outermost first."""
    for loop in loops:
        bind_loop(analyzer, loop)


@contextmanager
def assume_iterations(analyzer: Analyzer, loops: Iterable[For]) -> Iterator[None]:
    """Let the analyzer assume, inside the ``with``, that each of the loops has an iteration."""
    with ExitStack() as assumed:
        for loop in loops:
            assumed.enter_context(analyzer.constraint(loop.extent >= 1))
        yield


def analyzer_of(axes: Iterable[IterVar]) -> Analyzer:
    """Return an analyzer that knows the domains of these axes, and nothing else."""
    return _bind_axes(Analyzer(), axes)


def _bind_axes(analyzer: Analyzer, axes: Iterable[IterVar]) -> Analyzer:
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)
    return analyzer


def sized_analyzer(func: PrimFunc) -> Analyzer:
    """Return an analyzer that knows the sizes of the function's buffers, which are at least one."""
    analyzer = Analyzer()
    bind_sizes(analyzer, func.buffer_map.values())
    return analyzer
