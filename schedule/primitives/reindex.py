"""This module defines reindex, reindex_cache_read and reindex_cache_write, which copy a buffer into another layout.

They deal with blocks that access one element of the buffer for each value of their axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.access import Access, accesses, opaque_buffers
from ...tir.analysis.known_ranges import analyzer_at, analyzer_of, sized_analyzer
from ...tir.analysis.region_cover import covers_domain
from ...tir.analysis.regions import access_regions
from ...tir.analysis.scope import bindings
from ...tir.analysis.tree import Tree, symbols_of
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Range, Var, all_, conjuncts, same
from ...tir.stmt import Block, BlockRealize, Buffer, PrimFunc, Stmt
from ...tir.walk import pre_order, substitute, transform, uses_var
from ..edit.buffers import CopyRequest, dependents, moved_accesses, place_beside, place_between
from ..edit.loop_nests import copying_block, fresh_variables, in_loops_like, in_own_loops, point
from ..errors import ScheduleError
from ..handles import BlockRV
from ..index_map import IndexMap, simplify_unless_constant
from ..primitive import prepared_map, primitive
from ..require.block_preconditions import (
    check_from_zero,
    check_leaf,
    check_no_carried_reader,
    check_not_accumulating,
    check_only_writer,
    check_plain_path,
    check_spatial_output,
    check_whole_domain,
    check_writes_first,
    own_nest,
)


@primitive
def reindex(
    func: PrimFunc, block: str, buffer: Any, skip_simplify: bool = False, place: int | None = None
) -> tuple[PrimFunc, BlockRV]:
    """Let a block access a copy of a buffer whose dimensions are the axes that address it. They come in the block's
    order.

    ``buffer`` is ``("read", i)`` or ``("write", i)`` of the block, a buffer or its name (the written one, when the
    block reads and writes it). A read buffer is copied before the block's loops, a written one after them. Indices of
    a read may come from memory that the block does not write, as in ``A[t[i], j]``. Indices are
    simplified first, unless ``skip_simplify``, so that an axis without influence gives no dimension. Returns the
    copying block, ``<buffer>_reindex``. ``place``: the number of the place that is copied where the block reads the
    buffer at several, in the order of its body; it reads the others as before.

    Applies to a leaf block alone in its loops that accesses the buffer at one place, or names one. For reading, the block must not
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
    request = CopyRequest.of(func, block, buffer, None, "reindex")
    tree, realize, old = request.tree, request.realize, request.old
    written = any(r.buffer is old for r in realize.block.writes)
    if isinstance(buffer, (list, tuple)) and buffer[0] == "read" and written:
        raise ScheduleError(
            f"block {block!r} writes buffer {old.name}, which it reads: a copy made before it runs would be out of date",
            where=realize,
            hint='say ("write", i) to reindex what it writes',
        )
    if place is not None and written:
        raise ScheduleError(
            f"block {block!r} writes buffer {old.name}, of which place {place} shall be copied", where=realize,
            hint="places are numbered in buffers that the block reads; leave place out",
        )  # fmt: skip
    check_plain_path(tree, realize)
    indices, found = accessed_point(realize, old, from_memory=not written, place=place)
    top = own_nest(tree, realize)
    if top is None:
        raise ScheduleError(
            f"block {block!r} is not alone in the loops around it", where=realize,
            hint="do this before moving blocks into its loops",
        )  # fmt: skip
    if not skip_simplify:
        known = analyzer_of(realize.block.iter_vars)  # an index that becomes constant stays as it is
        indices = tuple([simplify_unless_constant(known, i) for i in indices])
    axes = axes_in(realize.block, indices)
    if written:
        request.writer()
        check_spatial_output(realize, axes)
        check_written_once(realize, old, found)
        so = f", so copying all of {old.name} back could overwrite other elements"
        check_whole_domain(tree, realize, so, "do this before the block is split unevenly or masked")
        check_distinct(func, realize, axes, indices)
    else:
        check_readable(tree, realize, old, indices, found)
    shape = tuple([iv.dom.extent if _is_zero(iv.dom.min) else iv.dom.min + iv.dom.extent for iv in axes])
    copy = request.new_buffer(shape)
    inner, outer = BufferLoad(copy, tuple([iv.var for iv in axes])), BufferLoad(old, indices)
    source, target = (inner, outer) if written else (outer, inner)
    stage = in_own_loops(copying_block(request.name, axes, source, target, names="v"))
    if place is None:
        changed = {realize: put_point(realize, old, copy, inner.indices)}
    else:
        changed = {realize: _put_there(realize, found, inner)}
    return request.inserted(place_beside(tree, top, after=written), stage, changed, copy), BlockRV(request.name)


def _put_there(realize: BlockRealize, found: Sequence[Access], load: BufferLoad) -> BlockRealize:
    """Return the block with the accesses ``found`` replaced by ``load``."""
    block, nodes = realize.block, {access.node for access in found}
    body = transform(block.body, lambda n: load if n in nodes else None)
    return realize.with_(block=block.with_(body=body, reads=access_regions(body, block.init)[0]))


def _is_zero(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 0


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
    check_written_once(realize, old, found)
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
    """Return a function that puts a block over ``axes`` into copies of the loops below ``outside`` that bind these axes.

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


def accessed_point(
    realize: BlockRealize, buffer: Buffer, from_memory: bool = False, place: int | None = None
) -> tuple[tuple[Expr, ...], list[Access]]:
    """Return the indices at which a block accesses ``buffer``, the same in all accesses, and these accesses.

    With ``place`` there may be several such indices, of which those of this number are returned. ``from_memory``: indices may be read from memory that the block does not write.

    ScheduleError is raised when the indices differ, when they depend on a loop inside the block, when the block holds
    other blocks, and when it uses the buffer through a pointer or a match_buffer.
    """
    block = realize.block
    name = block.name_hint
    check_leaf(realize)
    if buffer.data in opaque_buffers(block):
        raise ScheduleError(
            f"block {name!r} uses buffer {buffer.name} through a pointer or a match_buffer", where=realize,
            hint="do this before tensorize",
        )  # fmt: skip
    ranged = next((iv for iv in block.iter_vars for e in (iv.dom.min, iv.dom.extent) for n in pre_order(e)
                   if isinstance(n, BufferLoad) and n.buffer is buffer), None)  # fmt: skip
    if ranged is not None:
        raise ScheduleError(
            f"the range of axis {ranged.var.name} of block {name!r} is read from buffer {buffer.name}",
            where=realize,
            hint="choose a buffer that only the block's body accesses",
        )
    found = accesses(block.body, buffer)
    if block.init is not None:
        found += accesses(block.init, buffer)
    if not found:
        raise ScheduleError(
            f"block {name!r} does not access buffer {buffer.name}",
            where=realize,
            hint="choose a buffer that the block reads or writes",
        )
    analyzer = analyzer_of(block.iter_vars)
    places = _places(analyzer, found)
    if place is not None:
        if not 0 <= place < len(places):
            raise ScheduleError(
                f"block {name!r} reads buffer {buffer.name} at {len(places)} places, of which none has the number {place}",
                where=realize,
                hint="the first one in its body has the number 0",
            )
        places = [places[place]]
        (found,) = places
    indices = found[0].indices
    written = {region.buffer for region in block.writes}
    looked_up = [n.buffer for i in indices for n in pre_order(i) if isinstance(n, BufferLoad)]
    if looked_up and not (from_memory and written.isdisjoint(looked_up)):
        raise ScheduleError(
            f"block {name!r} accesses {found[0].node} at indices from memory, which are not a function of its axes",
            where=realize,
            hint="such indices cannot be turned into axes",
        )
    if len(places) > 1:
        raise ScheduleError(
            f"block {name!r} accesses buffer {buffer.name} at more than one place: {_shown(buffer, indices)} and "
            f"{_shown(buffer, places[1][0].indices)}",
            where=realize,
            hint="each axis value has to stand for one element",
        )
    inside = {lp.loop_var for a in found for lp in a.loops}
    if any(isinstance(n, Var) and n in inside for i in indices for n in pre_order(i)):
        raise ScheduleError(
            f"{_shown(buffer, indices)} in block {name!r} moves with a loop inside the block", where=realize,
        hint="choose the block inside that loop")  # fmt: skip
    return indices, found


def _places(analyzer: Analyzer, found: Iterable[Access]) -> list[list[Access]]:
    """Return the accesses of a buffer, those to equal indices together."""
    places: list[list[Access]] = []
    for access in found:
        for same_place in places:
            first = same_place[0].indices
            if all(analyzer.can_prove_equal(a, b) for a, b in zip(first, access.indices, strict=True)):
                same_place.append(access)
                break
        else:
            places.append([access])
    return places


def _shown(buffer: Buffer, indices: Iterable[Expr]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices))}]"


def axes_in(block: Block, indices: Iterable[Expr]) -> list[IterVar]:
    """Return the block's axes that occur in the indices, in the block's order."""
    used = {n for i in indices for n in pre_order(i) if isinstance(n, Var)}
    return [iv for iv in block.iter_vars if iv.var in used]


def bounds_within(analyzer: Analyzer, buffer: Buffer, indices: Sequence[Expr]) -> bool:
    """Return whether the indices are within the buffer for all values that ``analyzer`` allows."""
    return all(
        analyzer.can_prove(i >= 0) and analyzer.can_prove(i < extent)
        for i, extent in zip(indices, buffer.shape, strict=True)
    )


def check_readable(
    tree: Tree, realize: BlockRealize, buffer: Buffer, indices: Sequence[Expr], found: Sequence[Access]
) -> None:
    """Raise ScheduleError unless the elements exist for all values of the axes.

    Either the indices are within the buffer, or the block itself reads all these elements unconditionally.
    """
    if bounds_within(analyzer_at(tree, realize.block.body), buffer, indices):
        return
    if all(not a.guards for a in found) and covers_domain(tree, realize):
        return
    raise ScheduleError(
        f"block {realize.block.name_hint!r} reads {_shown(buffer, indices)} under a condition, and a copy made for all "
        "values of its axes would read outside the buffer",
        where=realize,
        hint="pad the buffer in a block of its own first",
    )


def check_written_once(realize: BlockRealize, buffer: Buffer, found: Sequence[Access]) -> None:
    """Raise ScheduleError unless the block stores the element for all values of its axes and reads no old contents."""
    block = realize.block
    check_not_accumulating(realize, buffer, found)
    if any(a.is_store and a.guards for a in found):
        raise ScheduleError(
            f"block {block.name_hint!r} stores into {buffer.name} under a condition, so copying all back could overwrite "
            "other elements",
            where=realize,
            hint="do this before the block is split unevenly or masked",
        )


def check_distinct(func: PrimFunc, realize: BlockRealize, axes: Sequence[IterVar], indices: Sequence[Expr]) -> None:
    """Raise ScheduleError unless different values of ``axes`` are known to give different ``indices``."""
    analyzer = sized_analyzer(func)
    places = [Var(f"p{n}", i.dtype) for n, i in enumerate(indices)]
    check_from_zero(realize, axes)
    mapping = IndexMap(tuple([iv.var for iv in axes]), tuple(indices))
    try:
        mapping.inverse([iv.dom.extent for iv in axes], places, analyzer)
    except ScheduleError:
        raise ScheduleError(
            f"two values of the axes of block {realize.block.name_hint!r} may meet at [{', '.join(map(str, indices))}]",
            where=realize,
            hint="use indices made of splits, fusions and a reordering of the axes",
        ) from None


def put_point(realize: BlockRealize, old: Buffer, new: Buffer, indices: Sequence[Expr]) -> BlockRealize:
    """Return the block with its accesses to ``old`` replaced by accesses to ``new[indices]``."""
    at = tuple(indices)
    block = moved_accesses(realize.block, old, new, lambda _: at, lambda _: point(new, at))
    return BlockRealize(realize.iter_values, realize.predicate, block)
