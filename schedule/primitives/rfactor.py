"""This module defines rfactor and decompose_reduction, which divide a reduction.

``rfactor`` makes partial results and their reduction, and ``decompose_reduction`` gives the init a block of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.reductions import find_reducer, start_in_front, updates_of
from ...tir.analysis.regions import access_regions, redeclared
from ...tir.analysis.scope import buffers_of
from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.expr import (
    BufferLoad,
    Expr,
    IterVar,
    Range,
    Var,
    all_,
    conjuncts,
    is_const_int,
    structural_equal,
)
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.reducers import REDUCERS, Reducer
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, LetStmt, PrimFunc, Stmt, seq
from ...tir.walk import loads_and_stores, pre_order, substitute, transform, uses_var
from ..edit.loop_nests import allocating, fresh_variables, in_loops, in_loops_like
from ..errors import ScheduleError, bad_argument
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import (
    check_plain_path,
    check_reduction,
    find_block,
    find_loop,
    innermost_own_loops,
    loops_of,
    scope_around,
)
from ..require.loop_preconditions import check_sweep, is_reduce_loop, is_spatial_loop, mentions


@primitive
def decompose_reduction(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, BlockRV, dict[str, str]]:
    """Move the init of a reduction into a block and loops of its own, just before ``loop``.

    Returns the init block. The other block is renamed to ``C_update``, and handles of ``C`` refer to it from now on.

    Applies to a reduction block under ``loop``, when no loop around ``loop`` carries the reduction.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 16)), B: T.Buffer((8,))):
    ...     for i, k in T.grid(8, 16):
    ...         with T.block("B"):
    ...             vi, vk = T.axis.remap("SR", [i, k])
    ...             with T.init():
    ...                 B[vi] = T.float32(0)
    ...             B[vi] = B[vi] + A[vi, vk]
    ... '''))
    >>> i, k = sch.get_loops("B")
    >>> init = sch.decompose_reduction("B", k)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32")):
        # with T.block("root"):
        for i in range(8):
            with T.block("B_init"):
                vi_init = T.axis.spatial(8, i)
                T.reads()
                T.writes(B[vi_init])
                B[vi_init] = T.float32(0.0)
            for k in range(16):
                with T.block("B_update"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.reads(B[vi], A[vi, vk])
                    T.writes(B[vi])
                    B[vi] = B[vi] + A[vi, vk]
    """
    tree = tree_of(func)
    realize, target = find_block(tree, block), find_loop(tree, loop)
    check_reduction(tree, realize)
    check_plain_path(tree, realize)
    outer, inner = loops_of(tree, realize, target)
    check_sweep(tree, realize, inner, outer)

    old = realize.block
    spatial = [(iv, v) for iv, v in zip(old.iter_vars, realize.iter_values, strict=True) if iv.kind != IterVar.REDUCE]
    copied = [
        lp
        for lp in inner
        if is_spatial_loop(realize, lp) or (not is_reduce_loop(realize, lp) and mentions(realize.predicate, [lp]))
    ]  # a loop that only a predicate uses comes from a split: its condition must stay
    fresh = fresh_variables(copied, "_init")
    left_out = [lp for lp in inner if lp not in copied]
    kept = [c for c in conjuncts(realize.predicate) if not mentions(c, left_out)]
    axes = {iv.var: Var(f"{iv.var.name}_init", iv.var.dtype) for iv, _ in spatial}
    assert old.init is not None
    held, shared = _scratch_of_init(realize)
    init_body = substitute(old.init, axes)
    init_reads = tuple([r for r in access_regions(init_body)[0] if r.buffer not in held])
    _check_known_before(target, realize, init_reads)
    init_name = unique_block_name(func, f"{block}_init")
    update_name = unique_block_name(func, f"{block}_update", [init_name])
    init = Block(
        tuple([IterVar(iv.dom, axes[iv.var], iv.kind, iv.thread_tag) for iv, _ in spatial]),
        init_reads,
        tuple([substitute(r, axes) for r in old.writes]),
        init_name,
        init_body,
        alloc_buffers=held,
        annotations=old.annotations,
    )
    nest: Stmt = BlockRealize(tuple([substitute(v, fresh) for _, v in spatial]), substitute(all_(*kept), fresh), init)
    nest = in_loops_like(copied, fresh, nest)
    read = {r.buffer for r in old.reads}
    reads = (*[w for w in old.writes if w.buffer not in read], *old.reads)
    update = BlockRealize(
        realize.iter_values,
        realize.predicate,
        old.with_(name_hint=update_name, init=None, reads=reads, alloc_buffers=shared),
    )
    new = tree.replace({realize: update}, {target: lambda lp: seq(nest, lp)})
    return new, BlockRV(init_name), {block: update_name}


def _scratch_of_init(realize: BlockRealize) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Return the buffers that the block allocates for its init, and the others; ScheduleError when one is used for
    both."""
    block = realize.block
    assert block.init is not None
    init = {access.buffer for access in loads_and_stores(block.init)}
    body = {access.buffer for access in loads_and_stores(block.body)}
    aliases = {m.buffer for m in block.match_buffers}
    both = next((b for b in (*block.alloc_buffers, *aliases) if b in init and (b in body or b in aliases)), None)
    if both is not None:
        raise ScheduleError(
            f"{both.name} lives in block {block.name_hint!r}, and its init uses it", where=realize,
            hint="decompose_reduction first, then stage or tensorize",
        )  # fmt: skip
    held = tuple([b for b in block.alloc_buffers if b in init])
    return held, tuple([b for b in block.alloc_buffers if b not in init])


def _check_known_before(target: For, realize: BlockRealize, reads: tuple[BufferRegion, ...]) -> None:
    for other in blocks_below(target.body):
        made = buffers_of(other.block)[1]
        for region in reads:
            if region.buffer in made and other is not realize:
                raise ScheduleError(
                    f"the init of block {realize.block.name_hint!r} reads {region.buffer.name}, which block "
                    f"{other.block.name_hint!r} writes inside loop {target.loop_var.name}",
                    where=(target, other, realize),
                    hint="choose an inner loop, behind that block",
                )


@primitive
def rfactor(func: PrimFunc, loop: Var, factor_axis: int) -> tuple[PrimFunc, BlockRV]:
    """Reduce into one partial result per iteration of ``loop``, then reduce the partial results.

    ``factor_axis`` is the position of the new dimension in ``B_rf`` (negative: from the end). Returns the block
    ``B_rf``; the loops of ``B`` keep their variables, those of ``B_rf`` are new.

    Applies to a reduction block that is alone under its reduction loops, whose reduction is a known one (see
    :mod:`tilewright.tir.expr.reducers`, also for the effects of reordering). ``loop`` may also be a loop of one
    iteration that no axis uses. Under a predicate such as ``k0 * 16 + k1 < n`` a partial result may have no element,
    unless the first iteration of the other reduction loops is complete. Then the element is replaced by
    ``T.if_then_else(k0 * 16 + k1 < n, element, identity)``, so that each partial result has a start value.

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
    target = find_loop(tree, loop)
    realize = _reduced_block(tree, target)
    name, loops = realize.block.name_hint, tree.loops_above(realize)
    own = _own_loops(realize, loops)
    if target not in own:
        raise ScheduleError(
            f"loop {loop.name} has other statements than block {name!r} in it", where=(target, realize),
            hint="rfactor before moving other blocks into the loops",
        )  # fmt: skip
    check_sweep(tree, realize, own, loops[: len(loops) - len(own)])
    reduction = reduction_of(realize)
    updates = reduction.updates
    rank = len(updates[0].indices)
    if not -rank - 1 <= factor_axis <= rank:
        raise bad_argument(
            f"factor_axis {factor_axis} is not a place in the {rank + 1} dimensions of the partial results",
            where=realize,
            hint=f"from {-rank - 1} to {rank}",
        )
    axis = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
    tail = _tail(tree, realize, own, target)

    rf_name = unique_block_name(func, f"{name}_rf")
    partial = [
        Buffer(f"{s.buffer.name}_rf", (*s.buffer.shape[:axis], target.extent, *s.buffer.shape[axis:]), s.buffer.dtype,
               s.buffer.scope)
        for s in updates
    ]  # fmt: skip
    to = _Partial({s.buffer: b for s, b in zip(updates, partial, strict=True)}, axis)
    new = _axes_of_partial(realize, loops, own, target)
    guards = [(c, _in_axes(c, new, loops, realize, target)) for c in tail]
    rf_nest = _partial_nest(realize, own, new, rf_name, reduction, guards, to)
    if tail:
        _check_partial_starts(tree, realize, own, target, rf_nest)
    final = _final_realize(realize, own, target, reduction, to)
    outermost = own[0]
    final_nest = in_loops([lp for lp in own if lp is target or not is_reduce_loop(realize, lp)], final)
    scope = scope_around(tree, realize).block
    divided = tree.replace(
        {outermost: seq(rf_nest, final_nest)},
        {scope: allocating(*partial)},
    )
    return divided, BlockRV(rf_name)


def _reduced_block(tree: Tree, target: For) -> BlockRealize:
    """Return the only block under a loop that carries its reduction; ScheduleError for another loop."""
    loop = target.loop_var
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
    unit = is_const_int(target.extent, 1) and not any(uses_var(v, loop) for v in realize.iter_values)
    if not unit and not is_reduce_loop(realize, target):
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
    around = {lp.loop_var for lp in loops}
    if any(isinstance(n, BufferLoad) or (isinstance(n, Var) and n in around) for n in pre_order(target.extent)):
        raise ScheduleError(
            f"the extent {target.extent} of loop {loop.name} changes, so that no buffer of one size holds its partial results",
            where=target,
            hint="split the loop by a constant factor, and rfactor the inner loop",
        )
    return realize


def _own_loops(realize: BlockRealize, loops: Sequence[For]) -> list[For]:
    """Return the innermost loops that hold nothing but the block."""
    own = innermost_own_loops(loops, realize)
    for lp in loops[: len(loops) - len(own)]:
        if is_reduce_loop(realize, lp):
            raise ScheduleError(
                f"loop {lp.loop_var.name} carries the reduction of block {realize.block.name_hint!r} and has other "
                "statements in it",
                where=(lp, realize),
                hint="rfactor before moving other blocks into the reduction loops",
            )
    return own


def _tail(tree: Tree, realize: BlockRealize, own: Sequence[For], target: For) -> list[Expr]:
    """Return the conditions under which a partial result may have no first element.

    These are the conditions not known to hold in the first iteration of the other reduction loops. A loop of one
    iteration that no axis uses divides nothing: its conditions say where the block runs at all.
    """
    if not is_reduce_loop(realize, target):
        return []
    others = {lp.loop_var: lp.min for lp in own if lp is not target and is_reduce_loop(realize, lp)}
    analyzer = analyzer_at(tree, realize)
    return [
        c
        for c in conjuncts(realize.predicate)
        if (uses_var(c, target.loop_var) or uses_var(c, lambda v: v in others))
        and not analyzer.can_prove(substitute(c, others))
    ]


def _check_partial_starts(tree: Tree, realize: BlockRealize, own: Sequence[For], target: For, partial: Stmt) -> None:
    """Raise ScheduleError where partial results may never start.

    The other reduction loops may have no iteration, and the init cannot stand in front of them.
    """
    analyzer = analyzer_at(tree, realize, maybe_empty=own)
    lp = next(
        (
            lp
            for lp in own
            if lp is not target and is_reduce_loop(realize, lp) and not analyzer.can_prove(lp.extent >= 1)
        ),
        None,
    )
    if lp is None:
        return
    path = [n for n in list(tree.above(realize))[::-1] if n not in own]
    while isinstance(partial, For):
        path.append(partial)
        partial = partial.body
    assert isinstance(partial, BlockRealize)
    if partial.block.init is None or start_in_front(partial, path) is None:
        raise ScheduleError(
            f"loop {lp.loop_var.name} runs {lp.extent} times, which may be none, so the {target.extent} partial "
            "results would never start",
            where=(lp, realize),
            hint="a size of the function's buffers is at least 1; reduce over such a size",
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Partial:
    """``_Partial`` holds the buffers of partial results by the old block's buffers, and the position of the new
    dimension."""

    buffers: dict[Buffer, Buffer]
    axis: int

    def at(self, access: BufferLoad | BufferStore, factor: Expr) -> tuple[Buffer, tuple[Expr, ...]]:
        """Return the buffer and the indices that replace an access of the old buffer in iteration ``factor``."""
        i = access.indices
        return self.buffers[access.buffer], (*i[: self.axis], factor, *i[self.axis :])


@dataclass(frozen=True, slots=True, eq=False)
class _FactorAxes:
    """``_FactorAxes`` holds axes and values of the partial block, and the old axes and loops in terms of these."""

    factor: IterVar
    axes: list[IterVar]
    values: list[Expr]
    rename: dict[Var, Expr]
    by_loop: dict[Var, Expr]


def _axes_of_partial(realize: BlockRealize, above: Sequence[For], own: Sequence[For], target: For) -> _FactorAxes:
    loop = target.loop_var
    factor = IterVar(Range.from_extent(target.extent), Var(f"v{loop.name}", loop.dtype))
    out = _FactorAxes(factor, [factor], [loop], {}, {loop: factor.var})
    loops = {lp.loop_var: lp for lp in own}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == IterVar.REDUCE and uses_var(value, loop):
            for n in pre_order(value):
                if isinstance(n, Var) and n in loops and n not in out.by_loop:
                    r = Range(loops[n].min, loops[n].extent)
                    axis = IterVar(r, Var(f"v{n.name}", n.dtype), IterVar.REDUCE)
                    out.by_loop[n] = axis.var
                    out.axes.append(axis)
                    out.values.append(n)
            out.rename[iv.var] = substitute(value, out.by_loop)
        else:
            own_axis = IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), iv.kind, iv.thread_tag)
            out.rename[iv.var] = own_axis.var
            out.axes.append(own_axis)
            out.values.append(value)
            if isinstance(value, Var):
                out.by_loop.setdefault(value, own_axis.var)
    for lp in above:  # a condition may use a loop of one iteration that no axis uses
        if is_const_int(lp.extent, 1):
            out.by_loop.setdefault(lp.loop_var, lp.min)
    return out


def _partial_nest(
    realize: BlockRealize,
    own: Sequence[For],
    new: _FactorAxes,
    name: str,
    reduction: KnownReduction,
    tail: Sequence[tuple[Expr, Expr]],
    to: _Partial,
) -> Stmt:
    """Return the loops and the block that compute the partial results.

    Where a partial result has only one element, the block just stores that. ``tail`` has conditions on loops, each
    with the same condition on axes.
    """
    block = realize.block
    alone = all(iv.kind != IterVar.REDUCE for iv in new.axes)

    def widen(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer in to.buffers:
            return BufferLoad(*to.at(n, new.factor.var))
        if isinstance(n, BufferStore) and n.buffer in to.buffers:
            buffer, indices = to.at(n, new.factor.var)
            return BufferStore(buffer, n.value, indices)
        return None

    guards = [on_axes for _, on_axes in tail]
    body: Stmt = substitute(block.body, new.rename)
    if alone or guards:
        guards += [substitute(c, new.rename) for c in reduction.conditions]
        right = tuple([substitute(e, new.rename) for e in reduction.right])
        if guards:
            starts = [substitute(s.value, new.rename) for s in reduction.inits]
            right = tuple([if_then_else(all_(*guards), e, s) for e, s in zip(right, starts, strict=True)])
        updates = [substitute(s, new.rename) for s in reduction.updates]
        body = stores_of(updates, right) if alone else combined(reduction.reducer, updates, right)
    init = None if alone else transform(substitute(seq(*reduction.inits), new.rename), post=widen)
    body = transform(body, post=widen)
    declared = tuple([substitute(r, new.rename) for r in block.reads])
    copies = fresh_variables(own)
    moved = [on_loops for on_loops, _ in tail]
    predicate = all_(*[c for c in conjuncts(realize.predicate) if c not in moved])
    axes = tuple([  # a domain may depend on loops
        IterVar(
            Range(substitute(iv.dom.min, copies), substitute(iv.dom.extent, copies)), iv.var, iv.kind, iv.thread_tag
        )
        for iv in new.axes
    ])  # fmt: skip
    nest: Stmt = BlockRealize(
        tuple([substitute(v, copies) for v in new.values]),
        substitute(predicate, copies),
        redeclared(Block(axes, declared, (), name, body, init, annotations=block.annotations)),
    )
    return in_loops_like(own, copies, nest)


def _in_axes(condition: Expr, new: _FactorAxes, above: Sequence[For], realize: BlockRealize, target: For) -> Expr:
    """Return a condition on loops as one on the axes of the partial block; ScheduleError when it uses other loops."""
    found: Expr = substitute(condition, new.by_loop)
    axes = {iv.var for iv in new.axes}
    mine = {lp.loop_var for lp in above}
    left = next((n for n in pre_order(found) if isinstance(n, Var) and n in mine and n not in axes), None)
    if left is not None:
        raise ScheduleError(
            f"under {condition} some of the {target.extent} partial results have no element, so they would never start, "
            f"and no axis of block {realize.block.name_hint!r} is {left.name} alone",
            where=(target, realize),
            hint=f"split so that {target.loop_var.name} has no more iterations than the reduction has elements",
        )
    return found


def _final_realize(
    realize: BlockRealize, own: Sequence[For], target: For, reduction: KnownReduction, to: _Partial
) -> BlockRealize:
    """Return the block that reduces the partial results into the buffers of the old one."""
    block = realize.block
    loop = target.loop_var
    factor = IterVar(Range.from_extent(target.extent), Var(f"v{loop.name}", loop.dtype), IterVar.REDUCE)
    axes, values = [factor], [loop]
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.kind != IterVar.REDUCE:
            axes.append(iv)
            values.append(value)  # type: ignore[arg-type]
    right = tuple([BufferLoad(*to.at(s, factor.var)) for s in reduction.updates])
    body = combined(reduction.reducer, reduction.updates, right)
    gone = [lp for lp in own if is_reduce_loop(realize, lp)]
    kept = [c for c in conjuncts(realize.predicate) if not mentions(c, gone)]
    reads, _ = access_regions(body, block.init)
    writes: tuple[BufferRegion, ...] = block.writes
    return BlockRealize(
        tuple(values), all_(*kept), Block(tuple(axes), reads, writes, block.name_hint, body, block.init,
                                           annotations=block.annotations)
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class KnownReduction:
    """A ``KnownReduction`` holds the updates of a reduction block and their init stores, in the same order.

    It also holds the values that the updates combine with the old ones, and the conditions under which they do.
    """

    reducer: Reducer
    updates: tuple[BufferStore, ...]
    inits: tuple[BufferStore, ...]
    right: tuple[Expr, ...]
    conditions: tuple[Expr, ...]


def reduction_of(realize: BlockRealize) -> KnownReduction:
    """Return the block's reduction; ScheduleError when it is not a known one."""
    block = realize.block
    name = block.name_hint
    hint = f"known reductions: {', '.join(dict.fromkeys(r.name for r in REDUCERS))}; register_reducer adds one"
    assert block.init is not None
    parts, starts = updates_of(block.body), updates_of(block.init)
    if isinstance(parts, str):
        raise ScheduleError(
            f"the body of block {name!r} does not update its outputs at once: {parts}",
            where=realize,
            hint="compute the new values first, in let statements; " + hint,
        )
    if isinstance(starts, str) or starts.conditions:
        why = starts if isinstance(starts, str) else "it depends on a condition"
        raise ScheduleError(
            f"the init of block {name!r} does not set its outputs at once: {why}", where=realize, hint=hint
        )
    updates = parts.stores
    by_buffer = {s.buffer: s for s in starts.stores}
    if by_buffer.keys() != {s.buffer for s in updates}:
        raise ScheduleError(f"block {name!r} does not init what it updates", where=realize, hint=hint)
    first = updates[0].indices
    for store in (*updates, *starts.stores):
        if len(store.indices) != len(first) or not all(map(structural_equal, first, store.indices)):
            raise ScheduleError(
                f"block {name!r} stores its outputs at unlike indices",
                where=realize,
                hint="the outputs of one reduction go to the same indices",
            )
    inits = tuple([by_buffer[s.buffer] for s in updates])
    left = [BufferLoad(s.buffer, s.indices) for s in updates]
    found = find_reducer([s.value for s in inits], left, [s.value for s in updates])
    if found is None:
        raise ScheduleError(
            f"block {name!r} is not a known reduction: init {', '.join(str(s.value) for s in inits)}, update "
            + ", ".join(str(s.value) for s in updates),
            where=realize,
            hint=hint,
        )
    reducer, right = found
    if any(a.buffer in by_buffer for e in (*right, *parts.conditions) for a in loads_and_stores(e)):
        raise ScheduleError(
            f"block {name!r} reads its own output beyond accumulating into it",
            where=realize,
            hint="a reduction uses its old value once: C[i] = C[i] + ...",
        )
    return KnownReduction(reducer, updates, inits, right, parts.conditions)


def stores_of(updates: Sequence[BufferStore], values: Sequence[Expr]) -> Stmt:
    """Return stores of the values, one after the other, to the places of ``updates``."""
    return seq(*[BufferStore(s.buffer, e, s.indices) for s, e in zip(updates, values, strict=True)])


def combined(reducer: Reducer, updates: Sequence[BufferStore], right: tuple[Expr, ...]) -> Stmt:
    """Return the stores of the old values combined with ``right``.

    The stores of a tuple compute all values before the first store.
    """
    results = reducer.combine(tuple([BufferLoad(s.buffer, s.indices) for s in updates]), right)
    if len(updates) == 1:
        return stores_of(updates, results)
    names = [Var(f"v_{s.buffer.name}", s.buffer.dtype) for s in updates]
    body = stores_of(updates, names)
    for v, result in reversed(list(zip(names, results, strict=True))):
        body = LetStmt(v, result, body)
    return body
