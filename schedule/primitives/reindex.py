"""This module defines reindex, which copies a buffer into the layout of the block's own axes."""

from __future__ import annotations

from typing import Any

from ...tir.analysis.known_ranges import analyzer_of
from ...tir.expr import BufferLoad, Expr, IntImm
from ...tir.stmt import PrimFunc
from ..edit.copied_element import (
    accessed_point,
    axes_in,
    check_distinct,
    check_readable,
    check_written_once,
    put_point,
)
from ..edit.copy_place import place_beside
from ..edit.copy_stage import CopyRequest
from ..edit.element_blocks import copying_block, in_own_loops
from ..errors import ScheduleError
from ..handles import BlockRV
from ..index_map import simplify_unless_constant
from ..primitive import primitive
from ..require.block_form import check_spatial_output, check_whole_domain, own_nest
from ..require.block_preconditions import check_plain_path


@primitive
def reindex(func: PrimFunc, block: str, buffer: Any, skip_simplify: bool = False) -> tuple[PrimFunc, BlockRV]:
    """Let a block access a copy of a buffer whose dimensions are the axes that address it. They come in the block's
    order.

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
    request = CopyRequest.of(func, block, buffer, None, "reindex")
    tree, realize, old = request.tree, request.realize, request.old
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
        known = analyzer_of(realize.block.iter_vars)  # an index that becomes constant stays as it is
        indices = tuple([simplify_unless_constant(known, i) for i in indices])
    axes = axes_in(realize.block, indices)
    if written:
        request.writer()
        check_spatial_output(realize, axes)
        check_written_once(tree, realize, old, found)
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
    changed = {realize: put_point(realize, old, copy, inner.indices)}
    return request.inserted(place_beside(tree, top, after=written), stage, changed, copy), BlockRV(request.name)


def _is_zero(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 0
