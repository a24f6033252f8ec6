"""This module defines reindex_cache_read and reindex_cache_write, which copy a buffer into a layout of choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.known_ranges import analyzer_at, sized_analyzer
from ...tir.analysis.scope import bindings
from ...tir.analysis.tree import Tree, symbols_of
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Expr, IterVar, Range, all_, conjuncts, same
from ...tir.stmt import Block, BlockRealize, Buffer, PrimFunc, Stmt
from ...tir.walk import substitute, uses_var
from ..edit.copied_element import (
    accessed_point,
    axes_in,
    check_distinct,
    check_readable,
    check_written_once,
    put_point,
)
from ..edit.copy_place import dependents, place_between
from ..edit.copy_stage import CopyRequest
from ..edit.element_blocks import copying_block
from ..edit.index_map_arguments import prepared_map
from ..edit.loop_nests import fresh_variables, in_loops_like
from ..errors import ScheduleError
from ..handles import BlockRV
from ..index_map import IndexMap
from ..primitive import primitive
from ..require.block_form import check_from_zero, check_spatial_output
from ..require.block_preconditions import check_only_writer, check_plain_path, check_writes_first
from ..require.copied_values import check_no_carried_reader


@primitive(prepare=prepared_map)
def reindex_cache_read(
    func: PrimFunc, block: str, read_buffer_index: int | str, storage_scope: str, index_map: Any
) -> tuple[PrimFunc, BlockRV]:
    """Copy what ``block`` reads of a buffer into a new one of ``storage_scope``, laid out by ``index_map``.

    ``index_map`` maps the block's axes to indices of the copy; it must use exactly the axes that address the buffer.
    Only this block reads the copy. Returns the copying block, which runs in loops like the block's own, directly after
    the buffer's writer or at the start of the scope.

    Applies when the block reads the buffer at one place and does not write it, at most one block of the scope writes
    it, and ``index_map`` maps different elements to different places.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 4)), B: T.Buffer((8, 4))):
    ...     for i, j in T.grid(8, 4):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> copy = sch.reindex_cache_read("B", 0, "shared", lambda i, j: (j, i // 2, i % 2))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        # with T.block("root"):
        A_shared = T.alloc_buffer((4, 4, 2), scope="shared")
        for i, j in T.grid(8, 4):
            with T.block("A_shared"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(A_shared[vj, vi // 2, vi % 2])
                A_shared[vj, vi // 2, vi % 2] = A[vi, vj]
        for i, j in T.grid(8, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A_shared[vj, vi // 2, vi % 2])
                T.writes(B[vi, vj])
                B[vi, vj] = A_shared[vj, vi // 2, vi % 2] * T.float32(2.0)
    """
    request = CopyRequest.of(func, block, ("read", read_buffer_index), storage_scope)
    tree, realize, old = request.tree, request.realize, request.old
    if any(r.buffer is old for r in realize.block.writes):
        raise ScheduleError(
            f"block {block!r} reads buffer {old.name} and writes it as well", where=realize,
            hint="use reindex_cache_write",
        )  # fmt: skip
    writer = request.writer()
    if writer is not None:
        check_writes_first(request.scope, writer, [realize], old, "choose a place behind the writer")
    check_plain_path(tree, realize)
    _check_single(realize, old, "read")
    indices, found = accessed_point(realize, old)
    layout = _layout(func, realize, indices, index_map)
    place = request.start if writer is None else place_between(tree, request.scope, writer, [realize])
    nest = _nest_like(tree, realize, place.where, layout.axes)
    if any(a.guards for a in found):
        check_readable(tree, realize, old, indices, found)
    if not all(any(same(i, n) for n in layout.indices) for i in indices):
        check_distinct(func, realize, layout.axes, layout.indices)
    copy = request.new_buffer(layout.shape)
    there = BufferLoad(copy, layout.indices)
    stage = nest(copying_block(request.name, layout.axes, BufferLoad(old, indices), there))
    changed = {realize: put_point(realize, old, copy, layout.indices)}
    return request.inserted(place, stage, changed, copy), BlockRV(request.name)


@primitive(prepare=prepared_map)
def reindex_cache_write(
    func: PrimFunc, block: str, write_buffer_index: int | str, storage_scope: str, index_map: Any
) -> tuple[PrimFunc, BlockRV]:
    """Let ``block`` write into a new buffer of ``storage_scope``, laid out by ``index_map``, and copy that back.

    ``index_map`` maps the block's axes to indices of the new buffer; it must use exactly the axes that address the old
    one. Returns the copying block, which runs in loops like the block's own, before the first later reader or at the
    end of the scope.

    Applies when the block is the only writer of the buffer in its scope, has an init or does not read the buffer, and
    stores each element for one value of its spatial axes, unconditionally.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 4)), B: T.Buffer((8, 4))):
    ...     for i, j in T.grid(8, 4):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> copy = sch.reindex_cache_write("B", 0, "shared", lambda i, j: (j, i))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8, 4), "float32")):
        # with T.block("root"):
        B_shared = T.alloc_buffer((4, 8), scope="shared")
        for i, j in T.grid(8, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B_shared[vj, vi])
                B_shared[vj, vi] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(8, 4):
            with T.block("B_shared"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B_shared[vj, vi])
                T.writes(B[vi, vj])
                B[vi, vj] = B_shared[vj, vi]
    """
    request = CopyRequest.of(func, block, ("write", write_buffer_index), storage_scope)
    tree, realize, scope, old = request.tree, request.realize, request.scope, request.old
    check_only_writer(tree, realize)
    check_plain_path(tree, realize)
    _check_single(realize, old, "write")
    indices, found = accessed_point(realize, old)
    layout = _layout(func, realize, indices, index_map)
    check_spatial_output(realize, layout.axes)
    check_written_once(tree, realize, old, found)
    check_distinct(func, realize, layout.axes, indices)
    check_distinct(func, realize, layout.axes, layout.indices)
    check_no_carried_reader(tree, scope, realize, old)
    place = place_between(tree, scope, realize, dependents(scope, realize))
    nest = _nest_like(tree, realize, place.where, layout.axes)
    copy = request.new_buffer(layout.shape)
    here = BufferLoad(copy, layout.indices)
    stage = nest(copying_block(request.name, layout.axes, here, BufferLoad(old, indices)))
    changed = {realize: put_point(realize, old, copy, layout.indices)}
    return request.inserted(place, stage, changed, copy), BlockRV(request.name)


def _check_single(realize: BlockRealize, buffer: Buffer, kind: str) -> None:
    regions = realize.block.reads if kind == "read" else realize.block.writes
    region = next(r for r in regions if r.buffer is buffer)
    analyzer = Analyzer()
    if not all(analyzer.can_prove_equal(r.extent, 1) for r in region.region):
        raise ScheduleError(
            f"block {realize.block.name_hint!r} {kind}s {region}, which is more than one element", where=realize,
            hint="name a block that touches one element for each value of its axes",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Layout:
    """A ``_Layout`` gives the place of an element in the copy: ``indices`` in terms of ``axes``, and the ``shape``."""

    axes: list[IterVar]
    indices: tuple[Expr, ...]
    shape: tuple[Expr, ...]


def _layout(func: PrimFunc, realize: BlockRealize, old: Sequence[Expr], index_map: Any) -> _Layout:
    block = realize.block
    mapping = IndexMap.of(index_map, len(block.iter_vars), symbols_of(func))
    analyzer = sized_analyzer(func)
    check_from_zero(realize, block.iter_vars)
    for iv in block.iter_vars:
        analyzer.bind(iv.var, iv.dom)
    shape = mapping.map_shape([iv.dom.extent for iv in block.iter_vars], analyzer)
    new = mapping.map_indices([iv.var for iv in block.iter_vars])
    axes, mapped = axes_in(block, old), axes_in(block, new)
    for iv in block.iter_vars:
        if (iv in axes) != (iv in mapped):
            has, lacks = ("the buffer", "the index map") if iv in axes else ("the index map", "the buffer")
            raise ScheduleError(
                f"axis {iv.var.name} of block {block.name_hint!r} addresses {has}, but not {lacks}: "
                f"[{', '.join(map(str, old))}] against [{', '.join(map(str, new))}]",
                where=realize,
                hint="use in the index map the axes that address the buffer, and no others",
            )
    return _Layout(axes, new, shape)


def _nest_like(tree: Tree, realize: BlockRealize, outside: Stmt, axes: list[IterVar]) -> Callable[[Block], Stmt]:
    """Return what puts a block over ``axes`` into new loops, like those below ``outside`` that give them their values.

    Conditions of the block on other loops must hold in the first iteration of those. Then the copies run on exactly the
    values of the axes on which the block runs.
    """
    around = {lp.loop_var for lp in tree.loops_above(outside)}
    under = [lp for lp in tree.loops_above(realize) if lp.loop_var not in around]
    bound = bindings(realize)
    kept = [lp for lp in under if any(uses_var(bound[iv.var], lp.loop_var) for iv in axes)]
    first = {lp.loop_var: lp.min for lp in under if lp not in kept}
    fresh = fresh_variables(kept)
    analyzer = analyzer_at(tree, realize)
    for lp in kept:
        lo, extent = substitute(lp.min, fresh), substitute(lp.extent, fresh)
        if any(uses_var(e, lambda v: v in first) for e in (lo, extent)):
            raise ScheduleError(
                f"the range of loop {lp.loop_var.name} depends on a loop that the copy would lack",
                where=lp,
                hint="do this before compute_at",
            )
        analyzer.bind(fresh[lp.loop_var], Range(lo, extent))  # type: ignore[arg-type]
    predicate = []
    for test in conjuncts(realize.predicate):
        if not uses_var(test, lambda v: v in first):
            predicate.append(substitute(test, fresh))
        elif not analyzer.can_prove(substitute(substitute(test, first), fresh)):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} runs where {test}, which looks at loops that the copy would lack",
                where=realize,
                hint="do this before splits that do not divide",
            )
    values = [substitute(bound[iv.var], fresh) for iv in axes]
    with ExitStack() as known:
        for test in predicate:
            known.enter_context(analyzer.constraint(test))
        for iv, value in zip(axes, values, strict=True):
            end = iv.dom.min + iv.dom.extent
            if not (analyzer.can_prove(value >= iv.dom.min) and analyzer.can_prove(value < end)):
                raise ScheduleError(
                    f"axis {iv.var.name} of block {realize.block.name_hint!r} may leave its domain",
                    where=realize,
                    hint="do this before the block is moved",
                )
    return lambda block: in_loops_like(kept, fresh, BlockRealize(tuple(values), all_(*predicate), block), serial=True)
