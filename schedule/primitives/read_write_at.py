"""This module defines read_at and write_at, which copy what one iteration of a loop reads or writes of a buffer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from ...tir.analysis.access import Access, accesses, opaque_buffers
from ...tir.analysis.footprint import bounding_box, whole_box
from ...tir.analysis.known_ranges import analyzer_at, bind_loops
from ...tir.analysis.region_cover import join_boxes, why_not_covered
from ...tir.analysis.regions import access_regions
from ...tir.analysis.scope import buffers_of
from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.arith import Analyzer, Ends
from ...tir.expr import BufferLoad, IterVar, Range, Var, const, match_types, max_, min_
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, PrimFunc, Stmt, children_of, seq
from ...tir.walk import post_order, replace_buffers, substitute, uses_var
from ..edit.buffers import CopyRequest, shared_by_thread
from ..edit.loop_nests import allocating, nest
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import check_plain_path, find_block, find_loop
from ..require.loop_preconditions import check_loops_above, is_reduce_loop, may_be_empty


@primitive
def read_at(
    func: PrimFunc, loop: Var, block: str, read_buffer_index: int | str, storage_scope: str
) -> tuple[PrimFunc, BlockRV]:
    """Copy in each iteration of ``loop`` all that it reads of a buffer, and read the copy instead.

    ``block`` is under the loop; ``read_buffer_index`` is the buffer's number among its reads, or its name. The copy is
    one block with loops inside, annotated ``auto_copy``, before the first statement of the loop that reads the buffer.
    Memory that threads share (``shared``) receives what all its threads read. Returns the copying block.

    Applies when nothing under the loop writes the buffer once it has been read.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8))):
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> copy = sch.read_at(sch.get_loops("B")[0], "B", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        A_local = T.alloc_buffer((8, 8), scope="local")
        for i in range(8):
            with T.block("A_local"):
                v0 = T.axis.spatial(8, i)
                T.reads(A[v0, 0:8])
                T.writes(A_local[v0, 0:8])
                T.block_attr({"auto_copy": True})
                for ax0, ax1 in T.grid(1, 8):
                    A_local[v0 + ax0, ax1] = A[v0 + ax0, ax1]
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A_local[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A_local[vi, vj] * T.float32(2.0)
    """
    work = _Work(func, loop, block, read_buffer_index, "read", storage_scope)
    readers = [n for n, part in enumerate(work.parts) if work.uses(part, "read")]
    writers = [n for n, part in enumerate(work.parts) if work.uses(part, "write")]
    start = readers[0]
    if writers and writers[-1] >= start:
        raise ScheduleError(
            f"buffer {work.old.name} is written under loop {loop.name} after, or together with, its first read there",
            where=(work.loop, work.realize),
            hint="choose a loop in which it is only read",
        )
    region = work.read()
    parts: list[Stmt] = [*work.parts]
    parts[start:] = [replace_buffers(p, {work.old: work.copy}) for p in parts[start:]]
    parts.insert(start, work.stage(region, work.old, work.copy))
    return work.done(parts)


@primitive
def write_at(
    func: PrimFunc, loop: Var, block: str, write_buffer_index: int | str, storage_scope: str
) -> tuple[PrimFunc, BlockRV]:
    """Let each iteration of ``loop`` write into a new buffer, and copy the written box to the old one.

    ``block`` is under the loop; ``write_buffer_index`` is the buffer's number among its writes, or its name. The copy
    is one block with loops inside, annotated ``auto_copy``, after the last statement of the loop that writes the
    buffer. Memory that threads share (``shared``) holds what all its threads write. Returns the copying block.

    Applies when an iteration fills a box without holes, needs no old contents of the buffer, and does not read the
    buffer after its last write.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8))):
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> copy = sch.write_at(sch.get_loops("B")[0], "B", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B_local = T.alloc_buffer((8, 8), scope="local")
        for i in range(8):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(B_local[vi, vj])
                    B_local[vi, vj] = A[vi, vj] * T.float32(2.0)
            with T.block("B_local"):
                v0 = T.axis.spatial(8, i)
                T.reads(B_local[v0, 0:8])
                T.writes(B[v0, 0:8])
                T.block_attr({"auto_copy": True})
                for ax0, ax1 in T.grid(1, 8):
                    B[v0 + ax0, ax1] = B_local[v0 + ax0, ax1]
    """
    work = _Work(func, loop, block, write_buffer_index, "write", storage_scope)
    readers = [n for n, part in enumerate(work.parts) if work.uses(part, "read")]
    writers = [n for n, part in enumerate(work.parts) if work.uses(part, "write")]
    end = writers[-1] + 1
    if readers and readers[-1] >= end:
        raise ScheduleError(
            f"buffer {work.old.name} is read under loop {loop.name} behind its last write there",
            where=(work.loop, work.realize),
            hint="choose a loop in which it is only written",
        )
    _check_init_leaves(work)
    region = work.written()
    parts = [replace_buffers(p, {work.old: work.copy}) if n < end else p for n, p in enumerate(work.parts)]
    parts.insert(end, work.stage(region, work.copy, work.old))
    return work.done(parts)


def _check_init_leaves(work: _Work) -> None:
    """ScheduleError when the loop reduces and may have no iterations: the init would not be written back."""
    above = work.tree.loops_above(work.loop)
    for realize in blocks_below(work.loop):
        if realize.block.init is None or not any(r.buffer is work.old for r in realize.block.writes):
            continue
        outside = [lp for lp in work.tree.loops_above(realize) if lp is work.loop or lp in above]
        reducing = [lp for lp in outside if is_reduce_loop(realize, lp)]
        if reducing and may_be_empty(work.tree, realize):
            raise ScheduleError(
                f"loop {reducing[-1].loop_var.name} reduces and may have no iterations, in which case the init of "
                f"{realize.block.name_hint} would not be copied back",
                where=(work.loop, realize),
                hint="choose a loop outside of the reduction, or decompose_reduction first",
            )


class _Work:
    """A ``_Work`` holds a loop, the statements in it, the buffer to copy, and the copy."""

    def __init__(self, func: PrimFunc, loop: Var, block: str, which: int | str, kind: str, storage_scope: str) -> None:
        request = CopyRequest.of(func, block, (kind, which), storage_scope)
        self.tree, self.realize, self.scope, self.old = request.tree, request.realize, request.scope, request.old
        self.loop = find_loop(self.tree, loop)
        if self.loop not in self.tree.loops_above(self.realize):
            raise ScheduleError(
                f"block {block!r} does not stand under loop {loop.name}",
                where=(self.loop, self.realize),
                hint="ask get_loops of this block",
            )
        check_plain_path(self.tree, self.realize)
        if self.old.data in opaque_buffers(self.loop):
            raise ScheduleError(
                f"buffer {self.old.name} is accessed through a pointer or a match_buffer under loop {loop.name}",
                where=self.loop,
                hint="do this before tensorize",
            )
        self.parts = children_of(self.loop.body)
        self.above = [*self.tree.loops_above(self.loop), self.loop]
        self.relaxed = [
            lp
            for lp in self.above
            if lp.thread_binding is not None and shared_by_thread(request.storage_scope, lp.thread_binding)
        ]
        self.outside = analyzer_at(self.tree, self.loop.body)
        self.copy = request.new_buffer()

    def uses(self, part: Stmt, kind: str) -> bool:
        """Return whether a block in ``part`` reads (or writes) the buffer."""
        return any(self.old in buffers_of(realize.block)[kind == "write"] for realize in blocks_below(part))

    def analyzer(self, access: Access) -> Analyzer:
        """Return an analyzer with the ranges that hold at the access."""
        analyzer = analyzer_at(self.tree, self.loop.body)
        bind_loops(analyzer, access.loops)
        return analyzer

    def read(self) -> BufferRegion:
        """Return the elements that an iteration reads: those that exist and that a block around may read."""
        loads = accesses(self.loop.body, self.old)
        boxes = [bounding_box(self.analyzer(load), load, self.relaxed, {}) for load in loads]
        total = join_boxes(self.outside, boxes, self.old.ndim)
        an = self.outside
        ends: list[Ends] = []
        everything = tuple([Range(const(0, e.dtype), e) for e in self.old.shape])
        declared = [r.region for r in self.scope.root.block.reads if r.buffer is self.old][:1]  # may exceed the buffer
        for found, *limits in zip(total, everything, *declared, strict=True):
            (first, last), *_ = bounds = [(r.min, an.simplify(r.min + r.extent - 1)) for r in limits]
            lo, hi = found if found is not None and not self._changes(found) else (first, last)
            for first, last in bounds:
                lo = lo if an.can_prove(lo >= first) else an.simplify(max_(lo, first))
                hi = hi if an.can_prove(hi <= last) else an.simplify(min_(hi, last))
            ends.append((lo, hi))
        return self._region(ends)

    def written(self) -> BufferRegion:
        """Return the box that an iteration writes; ScheduleError unless it has no holes and needs no old contents."""
        stores = [a for a in accesses(self.loop.body, self.old) if a.is_store]
        boxes = []
        for store in stores:
            analyzer = self.analyzer(store)
            outside = analyzer_at(self.tree, self.loop.body, maybe_empty=self.relaxed)
            bind_loops(outside, store.loops, nonempty=False)
            box = whole_box(analyzer, outside, store, self.relaxed)
            if box is None or any(map(self._changes, box)):
                raise ScheduleError(
                    f"the elements of {self.old.name} that an iteration of loop {self.loop.loop_var.name} writes are not "
                    "known to be a box without holes, so copying them back could overwrite others",
                    where=(self.loop, self.realize),
                    hint="choose an outer loop, where the box is whole",
                )
            boxes.append(box)
        for whole in boxes:
            if all(self._contains(whole, other) for other in boxes):
                self._check_starts_fresh()
                return self._region(whole)
        raise ScheduleError(
            f"the blocks under loop {self.loop.loop_var.name} write different parts of {self.old.name}",
            where=(self.loop, self.realize),
            hint="choose a loop with one of the blocks under it, or an outer loop",
        )

    def _changes(self, ends: Ends) -> bool:
        """Return whether the ends are read from memory that the loop writes."""
        return any(isinstance(n, BufferLoad) and n.buffer in self.written_here for e in ends for n in post_order(e))

    @cached_property
    def written_here(self) -> set[Buffer]:
        """The buffers that blocks under the loop write."""
        return {r.buffer for realize in blocks_below(self.loop) for r in realize.block.writes}

    def _contains(self, box: Sequence[Ends], other: Sequence[Ends]) -> bool:
        an = self.outside
        return all(an.can_prove(a[0] <= b[0]) and an.can_prove(b[1] <= a[1]) for a, b in zip(box, other, strict=True))

    def _check_starts_fresh(self) -> None:
        """Raise ScheduleError unless each reader under the loop has an init or reads what an earlier block there has
        written."""
        inside = list(blocks_below(self.loop.body))
        writers = [b for b in inside if self.old in buffers_of(b.block)[1]]
        outer = {lp.loop_var for lp in self.above}
        order = {realize: n for n, realize in enumerate(inside)}
        for reader in inside:
            loads = [a for a in accesses(reader, self.old) if not a.is_store]
            if not loads:
                continue
            if reader.block.init is not None and reader in writers:
                others = [w for w in self.scope.writers[self.old] if w is not reader]
                carried = [
                    v
                    for iv, v in zip(reader.block.iter_vars, reader.iter_values, strict=True)
                    if iv.kind != IterVar.SPATIAL and uses_var(v, lambda n: n in outer)
                ]
                if not (carried and others):
                    continue
            elif _covered(self.tree, [w for w in writers if order[w] < order[reader]], reader, self.old):
                continue
            raise ScheduleError(
                f"block {reader.block.name_hint!r} uses what buffer {self.old.name} held before the iteration of loop "
                f"{self.loop.loop_var.name}, which the new buffer would lack",
                where=(self.loop, reader),
                hint="do this before decompose_reduction, or choose a loop around the initialization too",
            )

    def _region(self, ends: Sequence[Ends]) -> BufferRegion:
        simplify = self.outside.simplify
        found = [match_types(simplify(lo), simplify(hi - lo + 1)) for lo, hi in ends]
        return BufferRegion(self.old, tuple([Range(*one) for one in found]))

    def stage(self, region: BufferRegion, source: Buffer, target: Buffer) -> BlockRealize:
        """Return the block that copies ``region``; its axes are the loops on which the region depends."""
        around = [*self.tree.all_loops_above(self.loop), self.loop]  # blocks without axes may use loops of outer scopes
        mine = {lp.loop_var: lp for lp in around}
        exprs = [e for r in region.region for e in (r.min, r.extent)]
        used = list(dict.fromkeys(n for e in exprs for n in post_order(e) if isinstance(n, Var) and n in mine))
        at = {v: Var(f"v{n}", v.dtype) for n, v in enumerate(used)}
        axes = tuple([IterVar(Range(mine[v].min, mine[v].extent), at[v]) for v in used])
        box = tuple([substitute(r, at) for r in region.region])
        loops = [(Var(f"ax{n}", r.extent.dtype), r.extent) for n, r in enumerate(box)]
        indices = tuple([r.min + v for r, (v, _) in zip(box, loops, strict=True)])
        body = nest(loops, BufferStore(target, BufferLoad(source, indices), indices))
        read_too = [r for r in access_regions(body)[0] if r.buffer is not source]  # what the region depends on
        reads, writes = (BufferRegion(source, box), *read_too), (BufferRegion(target, box),)
        block = Block(axes, reads, writes, self.copy.name, body, annotations={"auto_copy": True})
        return BlockRealize(tuple(used), const(True, "bool"), block)

    def done(self, parts: Iterable[Stmt]) -> tuple[PrimFunc, BlockRV]:
        """Return the function with the loop's new statements, and the name of the copying block."""
        root = self.scope.root.block
        new = self.tree.replace(
            {self.loop: self.loop.with_(body=seq(*parts))},
            {root: allocating(self.copy)},
        )
        tree = tree_of(new)
        shared = {lp.loop_var for lp in self.relaxed}  # the threads of these loops fill the copy together
        check_loops_above(tree, find_block(tree, self.copy.name), lambda lp: lp.loop_var not in shared)
        return new, BlockRV(self.copy.name)


def _covered(tree: Tree, writers: Sequence[BlockRealize], reader: BlockRealize, buffer: Buffer) -> bool:
    """Return whether one of the writers has written all that ``reader`` reads, in the same iteration of shared
    loops."""
    return any(why_not_covered(tree, writer, reader, buffer) is None for writer in writers)
