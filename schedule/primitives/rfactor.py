"""rfactor: partial results side by side, and their reduction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.buffer import Buffer, BufferRegion
from ...tir.equal import structural_equal
from ...tir.expr import BufferLoad, Expr, IterVar, Range, Var, is_const_int
from ...tir.function import PrimFunc
from ...tir.regions import access_regions
from ...tir.stmt import Block, BlockRealize, BufferStore, For, LetStmt, SeqStmt, Stmt, seq
from ...tir.walk import loads_and_stores, pre_order, substitute, transform, uses_var
from ..analysis import all_of, check_plain_path, check_reduction, conjuncts
from ..boxes import analyzer_at
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..reducers import REDUCERS, Reducer, find_reducer
from ..tree import Tree, blocks_below, tree_of, unique_block_name
from ._moving import rebuild
from ._reducing import check_sweep, is_reduce_loop, mentions

__all__ = ["rfactor"]


def _stores(stmt: Stmt) -> tuple[list[BufferStore], dict[Var, Expr], list[Var]] | None:
    """The stores of a body that is a sequence of them, under let statements; the values of these, and their order."""
    lets: dict[Var, Expr] = {}
    order: list[Var] = []
    while isinstance(stmt, LetStmt):
        lets[stmt.var] = substitute(stmt.value, lets)
        order.append(stmt.var)
        stmt = stmt.body
    stores = list(stmt.seq) if isinstance(stmt, SeqStmt) else [stmt]
    if not all(isinstance(s, BufferStore) and s.predicate is None for s in stores):
        return None
    return stores, lets, order  # type: ignore[return-value]


def _reducer_of(realize: BlockRealize) -> tuple[Reducer, list[BufferStore], list[BufferStore], tuple[Expr, ...]]:
    """The reducer of the block, its updates, its init stores in the same order, and the right-hand side."""
    block = realize.block
    hint = f"known reductions: {', '.join(dict.fromkeys(r.name for r in REDUCERS))}; register_reducer adds one"
    parts, starts = _stores(block.body), _stores(block.init)  # type: ignore[arg-type]
    if parts is None or starts is None or starts[1]:
        raise ScheduleError(
            f"block {block.name_hint!r} has a body or an init other than stores", where=realize, hint=hint
        )
    updates, lets, _ = parts
    by_buffer = {s.buffer: s for s in starts[0]}
    if len({s.buffer for s in updates}) != len(updates) or by_buffer.keys() != {s.buffer for s in updates}:
        raise ScheduleError(f"block {block.name_hint!r} does not init what it updates", where=realize, hint=hint)
    if len(updates) > 1 and not lets:
        raise ScheduleError(
            f"block {block.name_hint!r} updates several buffers one after the other, so later values see earlier ones",
            where=realize,
            hint="compute the new values first, in let statements",
        )
    first = updates[0].indices
    for store in (*updates, *starts[0]):
        if len(store.indices) != len(first) or not all(map(structural_equal, first, store.indices)):
            raise ScheduleError(
                f"block {block.name_hint!r} stores its outputs at unlike indices",
                where=realize,
                hint="the outputs of one reduction go to the same indices",
            )
    left = [BufferLoad(s.buffer, s.indices) for s in updates]
    values = [substitute(s.value, lets) for s in updates]
    init = [by_buffer[s.buffer] for s in updates]
    found = find_reducer([s.value for s in init], left, values)
    if found is None:
        raise ScheduleError(
            f"block {block.name_hint!r} is no known reduction: init {', '.join(str(s.value) for s in init)}, update "
            + ", ".join(str(v) for v in values),
            where=realize,
            hint=hint,
        )
    reducer, right = found
    written = {s.buffer for s in updates}
    if any(a.buffer in written for e in right for a in loads_and_stores(e)):
        raise ScheduleError(
            f"block {block.name_hint!r} reads its own output beyond accumulating into it",
            where=realize,
            hint="a reduction uses its old value once: C[i] = C[i] + ...",
        )
    return reducer, updates, init, right


@primitive
def rfactor(func: PrimFunc, loop: Var, factor_axis: int) -> tuple[PrimFunc, BlockRV]:
    """Reduce into as many partial results as ``loop`` has turns, then reduce those.

    ``factor_axis`` is the place of the new dimension in ``B_rf`` (negative: from the end). Returns the block ``B_rf``;
    the loops of ``B`` keep their variables, those of ``B_rf`` are new.

    Applies to a reduction block that is alone under its reduction loops, whose reduction is a known one (see
    :mod:`tilewright.schedule.reducers`, also for what reordering means), and when each partial result has an element:
    under a predicate such as ``k0 * 16 + k1 < n`` the first turn of the other reduction loops must be complete.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 16)), B: T.Buffer((8,))):
    ...     for i, k0, k1 in T.grid(8, 4, 4):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(8, i)
    ...             vk = T.axis.reduce(16, k0 * 4 + k1)
    ...             with T.init():
    ...                 B[vi] = T.float32(0)
    ...             B[vi] = B[vi] + A[vi, vk]
    ... '''))
    >>> i, k0, k1 = sch.get_loops("B")
    >>> partial = sch.rfactor(k1, 0)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32")):
        # with T.block("root"):
        B_rf = T.alloc_buffer((4, 8))
        for i, k0, k1 in T.grid(8, 4, 4):
            with T.block("B_rf"):
                vk1, vi, vk0 = T.axis.remap("SSR", [k1, i, k0])
                T.reads(A[vi, vk0 * 4 + vk1])
                T.writes(B_rf[vk1, vi])
                with T.init():
                    B_rf[vk1, vi] = T.float32(0.0)
                B_rf[vk1, vi] = B_rf[vk1, vi] + A[vi, vk0 * 4 + vk1]
        for i, k1 in T.grid(8, 4):
            with T.block("B"):
                vk1, vi = T.axis.remap("RS", [k1, i])
                T.reads(B_rf[vk1, vi])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0.0)
                B[vi] = B[vi] + B_rf[vk1, vi]
    """
    tree = tree_of(func)
    target = tree.loop(loop)
    below = list(blocks_below(target.body))
    if len(below) != 1:
        raise ScheduleError(
            f"loop {loop.name} has {len(below)} blocks under it, rfactor works on one",
            where=(target, *below),
            hint="choose a loop with one block under it",
        )
    realize = below[0]
    name = realize.block.name_hint
    check_reduction(tree, realize)
    check_plain_path(tree, realize)
    loops = tree.loops_above(realize)
    if not is_reduce_loop(realize, target):
        raise ScheduleError(
            f"loop {loop.name} does not carry the reduction of block {name!r}", where=(target, realize),
            hint="its reduction loops: "
            + (", ".join(lp.loop_var.name for lp in loops if is_reduce_loop(realize, lp)) or "none"),
        )  # fmt: skip
    if target.kind not in ("serial", "unrolled"):
        raise ScheduleError(f"loop {loop.name} is {target.kind} already", where=target, hint="rfactor first")
    if not is_const_int(target.min, 0):
        raise ScheduleError(
            f"loop {loop.name} starts at {target.min}, not at 0", where=target, hint="let the loop start at 0"
        )
    own = _own_loops(tree, realize, loops)
    check_sweep(tree, realize, own, loops[: len(loops) - len(own)])
    reducer, updates, inits, right = _reducer_of(realize)
    rank = len(updates[0].indices)
    if not -rank - 1 <= factor_axis <= rank:
        raise ScheduleError(
            f"factor_axis {factor_axis} is no place in the {rank + 1} dimensions of the partial results",
            where=realize,
            hint=f"from {-rank - 1} to {rank}",
        )
    axis = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
    _check_first_turn(tree, realize, own, target)

    rf_name = unique_block_name(func, f"{name}_rf")
    partial = [
        Buffer(f"{s.buffer.name}_rf", (*s.buffer.shape[:axis], target.extent, *s.buffer.shape[axis:]), s.buffer.dtype,
               s.buffer.scope)
        for s in updates
    ]  # fmt: skip
    rf_nest = _partial_nest(realize, own, target, rf_name, updates, inits, right, partial, axis)
    final = _final_realize(realize, own, target, reducer, updates, partial, axis)
    outermost = own[0]
    final_nest: Stmt = final
    for lp in reversed(own):
        if lp is target or not is_reduce_loop(realize, lp):
            final_nest = lp.with_(body=final_nest)
    scope = tree.scope(realize).block
    new = rebuild(
        tree,
        {outermost: seq(rf_nest, final_nest)},
        {scope: lambda b: b.with_(alloc_buffers=(*b.alloc_buffers, *partial))},
    )
    return new, BlockRV(rf_name)


def _own_loops(tree: Tree, realize: BlockRealize, loops: Sequence[For]) -> list[For]:
    """The innermost loops that hold nothing but the block."""
    own: list[For] = []
    here: Stmt = realize
    for lp in reversed(loops):
        if lp.body is not here:
            break
        own.insert(0, lp)
        here = lp
    for lp in loops[: len(loops) - len(own)]:
        if is_reduce_loop(realize, lp):
            raise ScheduleError(
                f"loop {lp.loop_var.name} carries the reduction of block {realize.block.name_hint!r} and has other "
                "statements in it",
                where=(lp, realize),
                hint="rfactor before moving other blocks into the reduction loops",
            )
    return own


def _check_first_turn(tree: Tree, realize: BlockRealize, own: Sequence[For], target: For) -> None:
    """Each partial result starts in the first turn of the other reduction loops: no condition may cut that short."""
    others = {lp.loop_var: lp.min for lp in own if lp is not target and is_reduce_loop(realize, lp)}
    analyzer = analyzer_at(tree, realize)
    for c in conjuncts(realize.predicate):
        if (uses_var(c, target.loop_var) or uses_var(c, lambda v: v in others)) and not analyzer.can_prove(
            substitute(c, others)
        ):
            raise ScheduleError(
                f"under {c} some of the {target.extent} partial results have no element, so they would never start",
                where=(target, realize),
                hint=f"split so that {target.loop_var.name} has no more turns than the reduction has elements",
            )


def _widened(indices: Sequence[Expr], axis: int, at: Expr) -> tuple[Expr, ...]:
    return (*indices[:axis], at, *indices[axis:])


def _partial_nest(
    realize: BlockRealize,
    own: Sequence[For],
    target: For,
    name: str,
    updates: Sequence[BufferStore],
    inits: Sequence[BufferStore],
    right: Sequence[Expr],
    partial: Sequence[Buffer],
    axis: int,
) -> Stmt:
    """The loops and the block that compute the partial results. Where each is made of one element, it is just that."""
    block = realize.block
    by_loop: dict[Var, IterVar] = {
        target.loop_var: IterVar(
            Range.from_extent(target.extent), Var(f"v{target.loop_var.name}", target.loop_var.dtype)
        )
    }
    factor = by_loop[target.loop_var]
    axes: list[IterVar] = [factor]
    values: list[Expr] = [target.loop_var]
    rename: dict[Var, Expr] = {}
    loops = {lp.loop_var: lp for lp in own}
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == IterVar.REDUCE and uses_var(value, target.loop_var):
            for n in pre_order(value):
                if isinstance(n, Var) and n in loops and n not in by_loop:
                    r = Range(loops[n].min, loops[n].extent)
                    by_loop[n] = IterVar(r, Var(f"v{n.name}", n.dtype), IterVar.REDUCE)
                    axes.append(by_loop[n])
                    values.append(n)
            rename[iv.var] = substitute(value, {v: a.var for v, a in by_loop.items()})
        else:
            own_axis = IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.kind, iv.thread_tag)
            rename[iv.var] = own_axis.var
            axes.append(own_axis)
            values.append(value)
    to = {s.buffer: b for s, b in zip(updates, partial, strict=True)}

    def widen(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer in to:
            return BufferLoad(to[n.buffer], _widened(n.indices, axis, factor.var))
        if isinstance(n, BufferStore) and n.buffer in to:
            return BufferStore(to[n.buffer], n.value, _widened(n.indices, axis, factor.var))
        return None

    body: Stmt
    init: Stmt | None = None
    if any(iv.kind == IterVar.REDUCE for iv in axes):
        body = block.body
        init = transform(substitute(seq(*inits), rename), post=widen)
    else:
        body = seq(*[BufferStore(s.buffer, e, s.indices) for s, e in zip(updates, right, strict=True)])
    body = transform(substitute(body, rename), post=widen)
    reads, writes = access_regions(body, init)
    copies = {lp.loop_var: Var(lp.loop_var.name, lp.loop_var.dtype) for lp in own}
    nest: Stmt = BlockRealize(
        tuple([substitute(v, copies) for v in values]),
        substitute(realize.predicate, copies),
        Block(tuple(axes), reads, writes, name, body, init, annotations=block.annotations),
    )
    for lp in reversed(own):
        nest = lp.with_(loop_var=copies[lp.loop_var], min=substitute(lp.min, copies),
                        extent=substitute(lp.extent, copies), body=nest)  # fmt: skip
    return nest


def _final_realize(
    realize: BlockRealize,
    own: Sequence[For],
    target: For,
    reducer: Reducer,
    updates: Sequence[BufferStore],
    partial: Sequence[Buffer],
    axis: int,
) -> BlockRealize:
    """The block that reduces the partial results into the buffers of the old one."""
    block = realize.block
    loop = target.loop_var
    factor = IterVar(Range.from_extent(target.extent), Var(f"v{loop.name}", loop.dtype), IterVar.REDUCE)
    axes, values = [factor], [loop]
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.kind != IterVar.REDUCE:
            axes.append(iv)
            values.append(value)  # type: ignore[arg-type]
    left = tuple([BufferLoad(s.buffer, s.indices) for s in updates])
    right = tuple([BufferLoad(b, _widened(s.indices, axis, factor.var)) for s, b in zip(updates, partial, strict=True)])
    results = reducer.combine(left, right)
    body: Stmt
    if len(updates) == 1:
        body = BufferStore(updates[0].buffer, results[0], updates[0].indices)
    else:
        names = [Var(f"v_{s.buffer.name}", s.buffer.dtype) for s in updates]
        body = seq(*[BufferStore(s.buffer, v, s.indices) for s, v in zip(updates, names, strict=True)])
        for v, result in reversed(list(zip(names, results, strict=True))):
            body = LetStmt(v, result, body)
    gone = [lp for lp in own if is_reduce_loop(realize, lp)]
    kept = [c for c in conjuncts(realize.predicate) if not mentions(c, gone)]
    reads, _ = access_regions(body, block.init)
    writes: tuple[BufferRegion, ...] = block.writes
    return BlockRealize(
        tuple(values), all_of(kept), Block(tuple(axes), reads, writes, block.name_hint, body, block.init,
                                           annotations=block.annotations)
    )  # fmt: skip
