"""This module replaces loop variables by expressions, and brings the bindings of blocks back into normal form."""

from __future__ import annotations

from collections.abc import Mapping

from ...tir.analysis.known_ranges import bind_loop
from ...tir.analysis.tree import Tree, blocks_below
from ...tir.arith import Analyzer, iter_map_simplify
from ...tir.expr import And, Expr, IntImm, Range, Var, cast, is_const_int
from ...tir.stmt import BlockRealize, For, IfThenElse, SeqStmt, Stmt
from ...tir.walk import substitute


def conjoin(a: Expr, b: Expr) -> Expr:
    """Return the conjunction of both conditions; a constant true is left out."""
    if isinstance(a, IntImm):
        return b if a.value else a
    return And(a, b)


def rebind(
    tree: Tree,
    body: Stmt,
    changes: dict[Var, Expr],
    above: Mapping[Var, Range],
    analyzer: Analyzer,
    *,
    predicate: Expr | None = None,
    keep_unit: bool = True,
) -> Stmt:
    """Return ``body`` with loop variables replaced and, where ``predicate`` is given, guarded by it.

    ``above`` are the loops around the new body, within its block. Bindings of the outermost blocks are brought into
    normal form (:func:`~tilewright.tir.arith.iter_map_simplify`). The guard is added to the predicates of those blocks.
    A statement that contains no block, or that may read memory before it reaches one, gets an ``if``.
    """
    return _Rebinding(analyzer, dict(above), keep_unit).visit(substitute(body, changes), predicate)


class _Rebinding:
    def __init__(self, analyzer: Analyzer, ranges: dict[Var, Range], keep_unit: bool) -> None:
        self.analyzer, self.ranges, self.keep_unit = analyzer, ranges, keep_unit

    def visit(self, stmt: Stmt, guard: Expr | None) -> Stmt:
        if isinstance(stmt, BlockRealize):
            test = stmt.predicate if guard is None else conjoin(stmt.predicate, guard)
            values, block = stmt.iter_values, stmt.block
            if not values:
                block = block.with_(body=self.visit(block.body, None))
            elif not _distinct_loops(values, self.ranges, self.keep_unit):
                values = tidy_bindings(self.analyzer, values, self.ranges, test, self.keep_unit)
            return BlockRealize(values, test, block)
        if isinstance(stmt, For):
            bind_loop(self.analyzer, stmt, self.keep_unit)
            self.ranges[stmt.loop_var] = Range(stmt.min, stmt.extent)
        if guard is not None and (not isinstance(stmt, (For, SeqStmt)) or next(blocks_below(stmt), None) is None):
            return IfThenElse(guard, self.visit(stmt, None))
        return stmt.map_children(lambda n: self.visit(n, guard) if isinstance(n, Stmt) else n)


def _distinct_loops(values: tuple[Expr, ...], ranges: Mapping[Var, Range], keep_unit: bool) -> bool:
    """Return whether each value is a constant or a loop variable that stays as it is."""
    met: set[Expr] = set()
    for value in values:
        if isinstance(value, IntImm):
            continue
        dom = ranges.get(value) if isinstance(value, Var) else None
        if dom is None or value in met or not is_const_int(dom.min, 0) or (is_const_int(dom.extent, 1) > keep_unit):
            return False
        met.add(value)
    return True


def tidy_bindings(
    analyzer: Analyzer,
    values: tuple[Expr, ...],
    ranges: Mapping[Var, Range],
    predicate: Expr,
    keep_unit: bool,
) -> tuple[Expr, ...]:
    """Return the bindings in normal form where they have one."""
    test = None if isinstance(predicate, IntImm) else predicate
    new = iter_map_simplify(values, ranges, test, analyzer, keep_unit)
    return values if new is None else tuple([cast(v.dtype, n) for v, n in zip(values, new, strict=True)])
