"""This module defines reindex, which copies a buffer into the layout of the block's own axes."""

from __future__ import annotations

from typing import Any

from ...tir.analysis.access_regions import access_regions
from ...tir.analysis.region_cover import covers_domain
from ...tir.analysis.tree import Tree, tree_of, unique_block_name
from ...tir.arith import Analyzer
from ...tir.buffer import Buffer, BufferRegion
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Var, const
from ...tir.function import PrimFunc
from ...tir.stmt import Block, BlockRealize, BufferStore, For, SeqStmt, Stmt
from ...tir.walk import pre_order, substitute
from ..edit.buffer_arguments import named_buffer
from ..edit.copied_element import (
    accessed_point,
    axes_in,
    check_distinct,
    check_readable,
    check_written_once,
    point,
    put_point,
)
from ..edit.copy_stage import insert_stage
from ..edit.index_map_arguments import own_nest
from ..errors import ScheduleError
from ..handles import BlockRV
from ..index_map import simplify_unless_constant
from ..lookup import find_block
from ..primitive import primitive
from ..require.block_preconditions import check_plain_path, ordered_scope


@primitive
def reindex(func: PrimFunc, block: str, buffer: Any, skip_simplify: bool = False) -> tuple[PrimFunc, BlockRV]:
    """Let a block access a copy of a buffer whose dimensions are the axes that address it, in the block's order.

    ``buffer`` is ``("read", i)`` or ``("write", i)`` of the block, a buffer or its name (the written one, when the
    block reads and writes it). A read buffer is copied before the block's loops, a written one after them. Indices are
    simplified first, unless ``skip_simplify``, so that an axis without influence gives no dimension. Returns the
    copying block, ``<buffer>_reindex``.

    Applies to a leaf block alone in its loops that accesses the buffer at one place. For reading, the block must not
    write the buffer. For writing, it must be the only writer, have an init or not read the buffer, run on its whole
    domain, and store each element for one value of its spatial axes.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 4)), B: T.Buffer((4, 8))):
    ...     for i, j in T.grid(4, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vj, vi] * T.float32(2)
    ... '''))
    >>> copy = sch.reindex("B", ("read", 0))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((4, 8), "float32")):
        # with T.block("root"):
        A_reindex = T.alloc_buffer((4, 8))
        for ax0, ax1 in T.grid(4, 8):
            with T.block("A_reindex"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(A[v1, v0])
                T.writes(A_reindex[v0, v1])
                A_reindex[v0, v1] = A[v1, v0]
        for i, j in T.grid(4, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A_reindex[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A_reindex[vi, vj] * T.float32(2.0)
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    old = named_buffer(realize, buffer)
    written = any(r.buffer is old for r in realize.block.writes)
    if isinstance(buffer, (list, tuple)) and buffer[0] == "read" and written:
        raise ScheduleError(
            f"block {block!r} writes buffer {old.name}, which it reads: a copy made before it runs would be out of date",
            where=realize,
            hint='say ("write", i) to reindex what it writes',
        )
    check_plain_path(tree, realize)
    indices, found = accessed_point(realize, old)
    top = own_nest(tree, realize)
    if top is None:
        raise ScheduleError(
            f"block {block!r} is not alone in the loops around it", where=realize,
            hint="do this before moving blocks into its loops",
        )  # fmt: skip
    if not skip_simplify:
        indices = _simplified(realize, indices)
    axes = axes_in(realize.block, indices)
    if written:
        writers = scope.writers[old]
        if len(writers) > 1:
            raise ScheduleError(
                f"buffer {old.name} is written by {len(writers)} blocks",
                where=writers,
                hint="reindex the reads of one consumer, or merge the writers first",
            )
        if any(iv.kind != IterVar.SPATIAL for iv in axes):
            raise ScheduleError(
                f"the output of block {block!r} is addressed by an axis that is not spatial",
                where=realize,
                hint="decompose or rfactor the reduction first",
            )
        check_written_once(tree, realize, old, found)
        if not covers_domain(tree, realize):
            raise ScheduleError(
                f"the loops of block {block!r} are not known to run it on the whole domain of its axes, so copying all "
                f"of {old.name} back could overwrite other elements",
                where=realize,
                hint="do this before the block is split unevenly or masked",
            )
        check_distinct(func, realize, axes, indices)
    else:
        check_readable(tree, realize, old, indices, found)
    shape = tuple([iv.dom.extent if _is_zero(iv.dom.min) else iv.dom.min + iv.dom.extent for iv in axes])
    name = unique_block_name(func, f"{old.name}_reindex")
    copy = Buffer(name, shape, old.dtype, old.scope, data_alignment=old.data_alignment)
    stage = _stage(name, old, copy, axes, indices, written)
    new_block = put_point(realize, old, copy, [iv.var for iv in axes])
    place = _place(tree, top, written)
    return insert_stage(func, scope, place, stage, {realize: new_block}, copy), BlockRV(name)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


def _simplified(realize: BlockRealize, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Return the indices simplified within the axes' domains; one that becomes constant is left unsimplified."""
    analyzer = Analyzer()
    for iv in realize.block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    return tuple([simplify_unless_constant(analyzer, i) for i in indices])


def _stage(name: str, old: Buffer, copy: Buffer, axes: list[IterVar], indices: tuple[Expr, ...], back: bool) -> Stmt:
    """Return the loops that copy ``old`` to ``copy``, or with ``back`` in the other direction."""
    mine = [IterVar(iv.dom, Var(f"v{n}", iv.var.dtype)) for n, iv in enumerate(axes)]
    at: dict[Var, Expr] = {iv.var: new.var for iv, new in zip(axes, mine, strict=True)}
    there = tuple([substitute(i, at) for i in indices])
    here = tuple([iv.var for iv in mine])
    if back:
        source, target, load_at, store_at = copy, old, here, there
    else:
        source, target, load_at, store_at = old, copy, there, here
    body = BufferStore(target, BufferLoad(source, load_at), store_at)
    reads: tuple[BufferRegion, ...] = (point(source, load_at),)
    if any(isinstance(n, BufferLoad) for i in there for n in pre_order(i)):
        reads = access_regions(body)[0]
    block = Block(tuple(mine), reads, (point(target, store_at),), name, body)
    loops = [Var(f"ax{n}", iv.var.dtype) for n, iv in enumerate(mine)]
    stmt: Stmt = BlockRealize(tuple(loops), const(True, "bool"), block)
    for var, iv in zip(reversed(loops), reversed(mine), strict=True):
        stmt = For(var, iv.dom.min, iv.dom.extent, "serial", stmt)
    return stmt


def _place(tree: Tree, top: Stmt, behind: bool) -> tuple[Stmt, int]:
    """Return where to insert a stage directly before or after the nest ``top``."""
    above = tree.parent[top]
    if isinstance(above, SeqStmt):
        return above, above.seq.index(top) + behind
    return top, int(behind)
