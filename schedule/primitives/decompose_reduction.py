"""This module defines decompose_reduction, which gives the init of a reduction a block of its own."""

from __future__ import annotations

from ...tir.analysis.regions import access_regions
from ...tir.analysis.scope import buffers_of
from ...tir.analysis.tree import blocks_below, tree_of, unique_block_name
from ...tir.expr import IterVar, Var, all_, conjuncts
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, For, PrimFunc, Stmt, seq
from ...tir.walk import loads_and_stores, substitute
from ..edit.loop_nests import fresh_variables, in_loops_like
from ..edit.reduction_loops import check_sweep, is_reduce_loop, is_spatial_loop, mentions
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import check_plain_path, check_reduction, loops_of
from ..require.lookup import find_block, find_loop


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
