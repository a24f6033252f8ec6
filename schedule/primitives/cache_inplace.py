"""This module defines cache_inplace, which lets a block update a copy of a buffer."""

from __future__ import annotations

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.scope import bindings, region_of
from ...tir.analysis.tree import tree_of, unique_block_name
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Expr, IterVar, Range, Var, cast
from ...tir.stmt import BlockRealize, Buffer, BufferRegion, BufferStore, PrimFunc, Stmt, seq
from ...tir.walk import substitute
from ..edit.buffers import renewed_buffers
from ..edit.copy_stage import CopyRequest
from ..edit.loop_nests import allocating, element_block, nest
from ..errors import ScheduleError
from ..handles import BlockRV
from ..index_map import simplify_unless_constant
from ..primitive import primitive
from ..require.block_preconditions import check_plain_path
from ..require.lookup import find_block
from ..require.loop_preconditions import check_loops_above


@primitive
def cache_inplace(
    func: PrimFunc, block: str, read_buffer_index: int | str, storage_scope: str
) -> tuple[PrimFunc, list[BlockRV]]:
    """Let a block that reads and writes a buffer work on a copy of the declared region.

    The region is copied directly before the block, and back directly after it; pointers that the block passes on then
    point into the copy. ``read_buffer_index`` is the buffer's number among the block's reads, or its name. Returns the
    block that copies in and the one that copies back.

    Applies when what the block declares to write is part of what it declares to read, all inside the buffer.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8,), "int32")):
    ...     for i in range(1):
    ...         with T.block("call"):
    ...             T.reads(A[0:8])
    ...             T.writes(A[0:8])
    ...             T.evaluate(T.call_extern("int32", "work", A.data))
    ... '''))
    >>> copies = sch.cache_inplace("call", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8,), "int32")):
        # with T.block("root"):
        A_local = T.alloc_buffer((8,), "int32", scope="local")
        for i in range(1):
            for ax0 in range(8):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, ax0)
                    T.reads(A[v0])
                    T.writes(A_local[v0])
                    A_local[v0] = A[v0]
            with T.block("call"):
                T.reads(A_local[0:8])
                T.writes(A_local[0:8])
                T.evaluate(T.call_extern("int32", "work", A_local.data))
            for ax0 in range(8):
                with T.block("A_local_1"):
                    v0 = T.axis.spatial(8, ax0)
                    T.reads(A_local[v0])
                    T.writes(A[v0])
                    A[v0] = A_local[v0]
    """
    request = CopyRequest.of(func, block, ("read", read_buffer_index), storage_scope)
    tree, realize, buffer = request.tree, request.realize, request.old
    read = region_of(realize.block.reads, buffer)
    write = region_of(realize.block.writes, buffer)
    if read is None or write is None:
        raise ScheduleError(
            f"block {block!r} reads buffer {buffer.name} and does not write it", where=realize, hint="use cache_read"
        )
    check_plain_path(tree, realize)
    bound = bindings(realize)
    analyzer = analyzer_at(tree, realize)
    taken, given = [
        _inside(r.map_children(lambda e: simplify_unless_constant(analyzer, substitute(e, bound))), realize, analyzer)
        for r in (read, write)
    ]
    for a, b in zip(given.region, taken.region, strict=True):
        if not (analyzer.can_prove(b.min <= a.min) and analyzer.can_prove(a.min + a.extent <= b.min + b.extent)):
            raise ScheduleError(
                f"block {block!r} writes {write}, which is not known to be part of what it reads, {read}: elements that "
                "it leaves alone would be lost",
                where=realize,
                hint="declare in T.reads all of what may be written",
            )
    second = unique_block_name(func, f"{buffer.name}_{request.storage_scope}", (request.name,))
    copy = request.new_buffer(strides=buffer.strides)
    into = _copies(request.name, buffer, copy, taken, realize.predicate)
    back = _copies(second, copy, buffer, given, realize.predicate)
    there = renewed_buffers(realize, {buffer: copy}, lambda b: b.with_(scope=request.storage_scope))
    new = tree.replace({realize: seq(into, there, back)}, {request.scope.root.block: allocating(copy)})
    check_loops_above(tree_of(new), find_block(tree_of(new), request.name))
    return new, [BlockRV(request.name), BlockRV(second)]


def _inside(region: BufferRegion, realize: BlockRealize, analyzer: Analyzer) -> BufferRegion:
    buffer = region.buffer
    for r, extent in zip(region.region, buffer.shape, strict=True):
        if not (analyzer.can_prove(r.min >= 0) and analyzer.can_prove(r.min + r.extent <= extent)):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} touches {region}, which is not known to lie inside buffer {buffer.name}",
                where=realize,
                hint="pad the buffer, or split so that the tile fits",
            )
    return region


def _copies(name: str, source: Buffer, target: Buffer, region: BufferRegion, predicate: Expr) -> Stmt:
    """Return loops that copy a region: ``target[v0, ...] = source[v0, ...]``."""
    axes = [IterVar(Range.from_extent(e), Var(f"v{n}", e.dtype)) for n, e in enumerate(source.shape)]
    at = tuple([iv.var for iv in axes])
    loops = [
        (Var(f"ax{n}", e.dtype), cast(e.dtype, r.extent))
        for n, (r, e) in enumerate(zip(region.region, source.shape, strict=True))
    ]
    values = tuple([cast(v.dtype, r.min) + v for r, (v, _) in zip(region.region, loops, strict=True)])
    block = element_block(name, axes, BufferStore(target, BufferLoad(source, at), at))
    return nest(loops, BlockRealize(values, predicate, block))
