"""This module defines cache_index, which stores computations that depend on a block's axes alone in tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.known_ranges import sized_analyzer
from ...tir.analysis.scope import bindings
from ...tir.analysis.tree import Tree, symbols_of, tree_of, unique_block_name
from ...tir.arith import Analyzer, eval_interval
from ...tir.expr import (
    Broadcast,
    BufferLoad,
    Call,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Let,
    Ramp,
    Range,
    StringImm,
    TruncDiv,
    TruncMod,
    Var,
    const,
    is_const_int,
    structural_equal,
)
from ...tir.expr.intrinsics import OPERATIONS, Effect, Lanes
from ...tir.stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    below_assertions,
    seq,
)
from ...tir.walk import post_order, pre_order, reads_memory, substitute, transform, uses_var
from ..edit.buffers import check_storage_scope
from ..edit.loop_nests import allocating, element_block, in_loops_like, insert_in, point
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import check_leaf, find_block, ordered_scope


@primitive
def cache_index(func: PrimFunc, block: str, storage_scope: str, cse_thresh: int = 0) -> tuple[PrimFunc, list[BlockRV]]:
    """Compute the expressions of a block that depend on its axes alone once, and look them up.

    Examples are indices and the weights of a resize. The largest such expressions become tables. One that occurs less
    than ``cse_thresh`` times is divided into its parts, which count together with those of others. Returns the blocks
    ``index_0``, ``index_1`` … that fill the tables ``index_var_0`` …, the costliest first. They run before the
    statement that holds the block.

    Applies to leaf blocks. Expressions that load, or whose divisor is not a constant, are left unchanged.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 4)), B: T.Buffer((8, 8))):
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj * 3 % 8 // 2]
    ... '''))
    >>> tables = sch.cache_index("B", "global")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        index_var_0 = T.alloc_buffer((8,), "int32", strides=(1,))
        for ax0 in range(8):
            with T.block("index_0"):
                v0 = T.axis.spatial(8, ax0)
                T.reads()
                T.writes(index_var_0[v0])
                index_var_0[v0] = v0 * 3 % 8 // 2
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj * 3 % 8 // 2], index_var_0[vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, index_var_0[vj]]
    """
    storage_scope = check_storage_scope(storage_scope)
    if not isinstance(cse_thresh, int) or cse_thresh < 0:
        raise ScheduleError(
            f"cse_thresh is a number of occurrences, not {cse_thresh!r}",
            hint="an expression that occurs less often is taken apart; 0 takes each as it is",
        )
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    check_leaf(realize)
    chosen = _choose(func, realize.block, cse_thresh)
    if not chosen:
        return func, []
    names: list[str] = []
    tables: list[tuple[_Candidate, Buffer, list[Var]]] = []
    stages: list[Stmt] = []
    for n, candidate in enumerate(chosen):
        names.append(unique_block_name(func, f"index_{n}", names))
        stage, table, axes = _table(tree, realize, candidate.expr, f"index_var_{n}", names[-1], storage_scope)
        stages.append(stage)
        tables.append((candidate, table, axes))
    new = _looked_up(realize, tables)
    body = below_assertions(scope.root.block.body)
    position = body.seq.index(tree.child_of(body, realize)) if isinstance(body, SeqStmt) else 0
    allocated = [table for _, table, _ in tables]
    changed = tree.replace(
        {realize: new},
        {
            body: lambda s: insert_in(s, position, seq(*stages)),
            scope.root.block: allocating(*allocated),
        },
    )
    return changed, [BlockRV(name) for name in names]


# -- which expressions ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Candidate:
    """A ``_Candidate`` is an expression, the number of times it is computed, and its simplified form for
    comparisons."""

    expr: Expr
    key: Expr
    count: int
    size: int


class _Candidates:
    """This class collects the candidates of one block, largest first."""

    def __init__(self, axes: Iterable[Var], sizes: Iterable[Var]) -> None:
        self.axes, self.known = set(axes), {*axes, *sizes}
        self.analyzer = Analyzer()
        self.found: list[_Candidate] = []

    def eligible(self, e: Expr) -> bool:
        """Return whether ``e`` may be computed anywhere: it is pure and safe, and uses only axes and sizes."""
        if isinstance(e, (Var, IntImm, FloatImm, StringImm)) or e.dtype.lanes != 1:
            return False
        some = False
        for n in pre_order(e):
            if isinstance(n, Var):
                if n not in self.known:
                    return False
                some = some or n in self.axes
            elif isinstance(n, (BufferLoad, Ramp, Broadcast, Let, StringImm)):
                return False
            elif isinstance(n, Call) and not _elementwise(n):
                return False
            elif isinstance(n, (FloorDiv, FloorMod, TruncDiv, TruncMod)) and n.dtype.is_int:
                if not isinstance(n.b, IntImm) or is_const_int(n.b, 0):
                    return False
        return some

    def largest(self, node: Any) -> Iterator[Expr]:
        """Return the largest eligible expressions in ``node``."""
        if isinstance(node, Expr) and self.eligible(node):
            yield node
            return
        for child in node.children():
            yield from self.largest(child)

    def find(self, e: Expr) -> _Candidate | None:
        key = self.analyzer.simplify(e)
        return next((c for c in self.found if c.expr is e or structural_equal(c.key, key)), None)

    def add(self, e: Expr, count: int) -> None:
        known = self.find(e)
        if known is not None:
            known.count += count
            return
        size = sum(1 for _ in pre_order(e))
        at = next((i for i, c in enumerate(self.found) if c.size < size), len(self.found))
        self.found.insert(at, _Candidate(e, self.analyzer.simplify(e), count, size))

    def divide_rare(self, least: int) -> None:
        """Add the parts of each expression that occurs less than ``least`` times."""
        for c in self.found:  # which grows behind the place: parts are smaller
            parts = [part for child in c.expr.children() for part in self.largest(child)] if c.count < least else []
            for part in parts:
                self.add(part, c.count)


def _choose(func: PrimFunc, block: Block, least: int) -> list[_Candidate]:
    """Return the expressions that become tables, largest first, and in order of evaluation among those of one size."""
    chosen: list[_Candidate] = []
    stmts = [part for part in (block.init, block.body) if part is not None]
    for store in (n for part in stmts for n in pre_order(part) if isinstance(n, BufferStore)):
        all_of_it = _Candidates([iv.var for iv in block.iter_vars], symbols_of(func))
        for e in all_of_it.largest(store):
            all_of_it.add(e, 1)
        all_of_it.divide_rare(least)
        for n in post_order(store.value):
            c_or_none = all_of_it.find(n) if isinstance(n, Expr) and all_of_it.eligible(n) else None
            if c_or_none is None or c_or_none.count < least:
                continue
            if not any(structural_equal(c_or_none.key, other.key) for other in chosen):
                chosen.append(c_or_none)
    return sorted(chosen, key=lambda c: -c.size)


# -- tables --------------------------------------------------------------------------------------------------------------


def _table(
    tree: Tree, realize: BlockRealize, e: Expr, name: str, block: str, storage_scope: str
) -> tuple[Stmt, Buffer, list[Var]]:
    """Return the nest that fills a table with ``e``, the table, and the axes that address it."""
    domains = {iv.var: iv.dom for iv in realize.block.iter_vars}
    used = list(dict.fromkeys(n for n in post_order(e) if isinstance(n, Var) and n in domains))
    bound = bindings(realize)
    mine = _by_use(tree.loops_above(realize), [bound[v] for v in used])
    fresh: dict[Var, Expr] = {lp.loop_var: Var(f"ax{n}", lp.loop_var.dtype) for n, lp in enumerate(mine)}
    inner = {lp.loop_var for lp in tree.loops_above(realize)}  # which the table, filled in front of them, cannot see
    if any(uses_var(x, lambda v: v in inner) for lp in mine for x in (lp.min, lp.extent)):
        raise ScheduleError("the range of a loop depends on another loop", where=mine, hint="do this before compute_at")
    analyzer = sized_analyzer(tree.func)
    analyzer.learn_nonempty(*[lp.extent for lp in mine])
    sizes = set(symbols_of(tree.func))
    ranges = {lp.loop_var: (lp.min, lp.min + lp.extent - 1) for lp in mine}
    shape: list[Expr] = []
    for v in used:
        ends = eval_interval(bound[v], ranges, analyzer)
        if ends is not None and not analyzer.can_prove(ends[0] >= 0):
            raise ScheduleError(
                f"axis {v.name} of block {realize.block.name_hint!r} may be negative",
                where=realize,
                hint="indices have to be at least 0",
            )
        end = None if ends is None else analyzer.simplify(ends[1] + 1)
        if end is None or uses_var(end, lambda n: n not in sizes):
            end = domains[v].min + domains[v].extent
            if uses_var(end, lambda n: n not in sizes) or not is_const_int(realize.predicate, 1):
                raise ScheduleError(
                    f"axis {v.name} of block {realize.block.name_hint!r} has no known largest value",
                    where=realize,
                    hint="do this before compute_at and before splits that do not divide",
                )
        shape.append(end)
    axes = [
        IterVar(Range.from_extent(s), Var(f"v{n}", v.dtype)) for n, (v, s) in enumerate(zip(used, shape, strict=True))
    ]
    strides = (const(1),) if len(axes) == 1 else ()
    table = Buffer(name, tuple(shape), e.dtype, storage_scope, strides)
    at = tuple([iv.var for iv in axes])
    store = BufferStore(table, substitute(e, dict(zip(used, at, strict=True))), at)
    values = tuple([substitute(bound[v], fresh) for v in used])
    filled = BlockRealize(values, const(True, "bool"), element_block(block, axes, store))
    stage = in_loops_like(mine, fresh, filled, serial=True)
    return stage, table, used


def _by_use(loops: Iterable[For], values: Iterable[Expr]) -> list[For]:
    """Return the loops that the values use, in order of use."""
    of = {lp.loop_var: lp for lp in loops}
    found: dict[For, None] = {}
    for value in values:
        found.update({of[n]: None for n in post_order(value) if isinstance(n, Var) and n in of})
    return list(found)


def _looked_up(realize: BlockRealize, tables: list[tuple[_Candidate, Buffer, list[Var]]]) -> BlockRealize:
    """Return the block with each occurrence of a tabled expression replaced by a load, the largest first."""
    analyzer = Analyzer()
    used: dict[Buffer, list[Var]] = {}

    def replaced(part: Stmt | None) -> Stmt | None:
        if part is None:
            return None
        for candidate, table, axes in tables:

            def pre(n: Any, c: _Candidate = candidate, t: Buffer = table, at: list[Var] = axes) -> Any:
                if not isinstance(n, Expr) or isinstance(n, (Var, IntImm, FloatImm)) or n.dtype != c.expr.dtype:
                    return None
                if n is c.expr or (not reads_memory(n) and structural_equal(analyzer.simplify(n), c.key)):
                    used[t] = at
                    return BufferLoad(t, tuple(at))
                return None

            part = transform(part, pre)
        return part

    block = realize.block
    new = block.with_(init=replaced(block.init), body=replaced(block.body))
    regions: list[BufferRegion] = [point(t, used[t]) for _, t, _ in tables if t in used]
    return BlockRealize(realize.iter_values, realize.predicate, new.with_(reads=(*block.reads, *regions)))


def _elementwise(call: Call) -> bool:
    row = OPERATIONS.get(call.op)
    return row is not None and row.effect is Effect.NONE and row.lanes in (Lanes.EACH, Lanes.FIRST)
