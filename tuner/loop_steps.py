"""This module has the steps that several recipes take: splits and orders of loops, ends of tiles, unrolling, panels.

:func:`pack` copies an operand into panels: some columns each, in the order in which a reduction reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..schedule import Schedule, ScheduleError, TraceError
from ..tir.analysis.tree import tree_of
from ..tir.expr import BufferLoad, IntImm, Var
from ..tir.stmt import BlockRealize, BufferStore, Stmt, children_of
from ..tir.walk import pre_order, vars_in


def arrange(
    sch: Schedule, block: Any, axes: str, sizes: Mapping[str, Sequence[int | None]], order: str
) -> dict[str, Any]:
    """Split the loops of ``block``, put them in order, and return them by name.

    ``axes`` names the loops from the outermost one. Of one that has ``sizes`` the parts are named with a number:
    ``arrange(sch, "C", "i j k", {"i": [None, 6], "j": [None, 4, 16]}, "j0 i0 k i1 j1 j2")``.
    """
    loops = dict(zip(axes.split(), sch.get_loops(block), strict=True))
    for axis, parts in sizes.items():
        loops.update({f"{axis}{n}": part for n, part in enumerate(sch.split(loops.pop(axis), list(parts)))})
    sch.reorder(*[loops[name] for name in order.split()])
    return loops


def accumulate(sch: Schedule, block: Any, vector: int) -> Any:
    """Let ``block`` write sums of its own, and return the block that takes them to memory. The sums of a vector along
    the axis number ``vector`` are neighbours."""
    result = sch.cache_write(block, 0, "local")
    rank = len(sch.get(result).iter_vars)
    if vector != rank - 1:
        order = [d for d in range(rank) if d != vector] + [vector]
        sch.transform_layout(block, ("write", 0), lambda *index: [index[d] for d in order])
    return result


def finish_tile(sch: Schedule, block: Any, at: Any, axis: int, lanes: int = 0) -> None:
    """Unroll the loops of ``block`` inside the loop ``at`` and make those of its axis number ``axis`` vectors.

    ``lanes``: the elements of a vector, 0 for as many as the loop has.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = loops_within(sch, block, at)
    vector = loops_of_axis(sch, block, loops, axis)
    rest = [loop for loop in loops if all(loop is not other for other in vector)]
    if vector and loops[-1] is not vector[-1]:
        sch.reorder(*rest, *vector)
    if vector and 0 < lanes < extent_of(sch, vector[-1]):
        vector[-1:] = sch.split(vector[-1], [None, lanes])
    for loop in (*rest, *vector[:-1]):
        sch.unroll(loop)
    if vector:
        sch.vectorize(vector[-1])


def realize_of(sch: Schedule, name: str) -> BlockRealize:
    """Returns the realization of the block ``name`` as it is now."""
    return tree_of(sch.func).blocks[name][0]


def loops_within(sch: Schedule, block: Any, outer: Any) -> list[Any]:
    """Returns the loops above ``block`` that lie inside the loop ``outer``; all of them where that is None."""
    loops = sch.get_loops(block)
    if outer is None:
        return list(loops)
    return list(loops[next(n for n, loop in enumerate(loops) if loop is outer) + 1 :])


def loops_of_axis(sch: Schedule, block: Any, loops: Sequence[Var], axis: int) -> list[Any]:
    """Returns the loops among ``loops`` that the block's axis number ``axis`` depends on."""
    used = vars_in(realize_of(sch, block.name).iter_values[axis])
    return [loop for loop in loops if loop in used]


def extent_of(sch: Schedule, loop: Any) -> int:
    """Returns the extent of a loop; 0 when it is not constant."""
    extent = sch.get(loop).extent
    return extent.value if isinstance(extent, IntImm) else 0


def fuse_all(sch: Schedule, loops: Sequence[Any]) -> Any:
    """Returns one loop in place of ``loops``."""
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def unroll_factor(sch: Schedule, loop: Any, factor: int) -> None:
    """Unroll ``loop`` by ``factor``: entirely when that is all of it, with a remainder otherwise."""
    extent = extent_of(sch, loop)
    if factor <= 1 or extent <= 1:
        return
    if extent <= factor:
        sch.unroll(loop)
    else:
        sch.annotate(loop, "pragma_unroll_factor", factor)


def by_lanes(sch: Schedule, block: Any, loop: Any, width: int, place: int) -> Any:
    """Make ``width`` partial results of each result of ``block``, a reduction over ``loop``, and return their block. It
    has the lanes as axis number ``place``."""
    _, lanes = sch.split(loop, [None, width])
    return sch.rfactor(lanes, place)


def copy_ahead(sch: Schedule, loop: Any, versions: int, in_flight: bool = False) -> None:
    """Let the copies to shared memory, which come first in ``loop``, run ahead of its last statement.

    ``versions``: how many versions of the copied tiles there are; fewer where the loop has fewer steps. ``in_flight``: the last
    statement has products of warp groups, which go on during the next step; one of three or more versions is theirs. Copies that
    convert what they read go through registers: they are made ahead as well, by the threads themselves.
    """
    versions = min(versions, extent_of(sch, loop))
    statements = children_of(sch.get(loop).body)
    parts = len(statements)
    if versions > 1 and parts > 1:
        in_flight = in_flight and versions > 2
        last = versions - 1 - in_flight
        sch.annotate(loop, "software_pipeline_stage", [0] * (parts - 1) + [last])
        sch.annotate(loop, "software_pipeline_order", list(range(parts)))
        beside = [*([] if any(_converts(copy) for copy in statements[:-1]) else [0]), *([last] if in_flight else [])]
        if beside:
            sch.annotate(loop, "software_pipeline_async_stages", beside)


def _converts(copy: Stmt) -> bool:
    """Returns whether a copy stores elements of another type than it reads."""
    return any(
        isinstance(load, BufferLoad) and load.dtype.element != store.buffer.dtype.element
        for store in pre_order(copy)
        if isinstance(store, BufferStore)
        for load in pre_order(store.value, lambda n: not isinstance(n, BufferLoad))
    )


@dataclass(frozen=True)
class Panels:
    """The layout of a packed operand.

    ``operand``: the number of the operand among what the block reads, or its name. Its dimension ``column`` is cut into
    panels of ``width``; ``others`` are the dimensions outside the panels, ``inner`` those within, in the order of the
    reduction: ``[others, column // width, inner, column % width]``. With ``steps`` the last one of ``inner`` is cut, too,
    and so many of its steps are neighbours for each column: ``[…, inner // steps, column % width, inner % steps]``.
    ``shared``: the threads share the copying.
    """

    operand: int | str
    column: int
    width: int
    inner: Sequence[int]
    others: Sequence[int] = ()
    steps: int = 1
    shared: bool = False

    def place(self, *index: Any) -> list[Any]:
        """Returns the place of an element in the panels."""
        column, inner, last = index[self.column], [index[d] for d in self.inner], []
        if self.steps > 1:
            inner, last = [*inner[:-1], inner[-1] // self.steps], [inner[-1] % self.steps]
        return [*(index[d] for d in self.others), column // self.width, *inner, column % self.width, *last]


def pack(sch: Schedule, block: Any, panels: Panels, *, whole: bool = True, also: Sequence[Any] = ()) -> Any:
    """Copy the operand of ``block`` into panels and return the copy. With ``whole``, all of it is copied before
    anything else; ``also``: further blocks that read the copy."""
    copy = sch.cache_read(block, panels.operand, "global", consumer_blocks=[block, *also])
    return lay_in_panels(sch, copy, panels, whole=whole)


def lay_in_panels(sch: Schedule, copy: Any, panels: Panels, *, whole: bool = True) -> Any:
    """Let ``copy``, which copies an operand at the root of the program, write panels, and return it. ``whole`` is that of
    :func:`pack`."""
    sch.transform_layout(copy, ("write", 0), panels.place, leave_padding=True)
    if not whole:
        return copy
    loops = sch.get_loops(copy)
    by_steps = panels.steps > 1 and all(extent_of(sch, loop) == 1 for loop in loops[panels.inner[-1] + 1 :])
    over, lanes = sch.split(loops[panels.column], [None, panels.width])
    around, inner = [loops[d] for d in panels.others], [loops[d] for d in panels.inner]
    if panels.steps > 1:
        inner[-1], step = sch.split(inner[-1], [None, panels.steps])
        if by_steps:  # they are contiguous in memory
            return _pack_rows(sch, copy, (*around, over), inner, lanes, step, panels.shared)
        over, near = sch.split(over, [None, _near_panels(extent_of(sch, over), panels.width)])
        sch.reorder(*around, over, *inner, near, step, lanes)
        sch.unroll(step)
        shared = [*around, over, *inner]
    else:
        outer, beside = [*around, over, *inner], []
        if panels.column != len(loops) - 1:  # next to what is contiguous in the operand, squares go through registers
            place = outer.index(loops[-1])
            if isinstance(sch.get(loops[-1]).extent, IntImm):
                beside = [outer.pop(place)]
            else:
                outer[place], row = sch.split(loops[-1], [None, _ALONG_AT_ONCE])
                beside = [row]
        sch.reorder(*outer, *beside, lanes)
        shared = outer[: outer.index(over) + 1]
    sch.vectorize(lanes)
    if panels.shared:
        sch.parallel(fuse_all(sch, shared))
    return copy


_COLUMNS_AT_ONCE = 128
"""Columns of a row that are copied before those of the next row: as many panels as so many columns have are written at a
time. Ends of many panels would be in the same sets of the caches."""


def _near_panels(panels: int, width: int) -> int:
    """Returns how many panels are filled at a time, a divisor of all."""
    return max(n for n in range(1, max(1, _COLUMNS_AT_ONCE // width) + 1) if panels % n == 0)


_ROWS_AT_ONCE = 16
"""Rows of which steps are copied one after the other, before their next steps."""


_ALONG_AT_ONCE = 64
"""Neighbours in an operand of symbolic size that are copied before those of the next panel."""


def _pack_rows(
    sch: Schedule, copy: Any, outer: Sequence[Any], inner: Sequence[Any], lanes: Any, step: Any, shared: bool
) -> Any:
    """Copy an operand whose steps are contiguous: what an instruction takes of each column is a vector."""
    over, rows = sch.split(lanes, [None, _ROWS_AT_ONCE])
    sch.reorder(*outer, over, *inner, rows, step)
    sch.unroll(rows)
    sch.vectorize(step)
    if shared:
        sch.parallel(fuse_all(sch, outer))
    return copy


def pack_within(sch: Schedule, copy: Any, panels: Panels, at: Any) -> None:
    """Make the copy part of the loop ``at``; its rows are read in their order and cut into panels."""
    sch.compute_at(copy, at, preserve_unit_loops=True)
    loops = sch.get_loops(copy)[-(1 + len(panels.inner) + len(panels.others)) :]
    over, lanes = sch.split(loops[panels.column], [None, panels.width])
    if panels.column != len(loops) - 1:
        sch.reorder(over, *(loop for loop in loops if loop is not loops[panels.column]), lanes)
    sch.vectorize(lanes)


def pad_product(sch: Schedule, block: Any, multiples: Sequence[int]) -> tuple[Any, ...]:
    """Pad the axes of a product to ``multiples`` where they are not yet, and return the copies. They pad the operands,
    and the last one takes the result out of the padding; there are none where no padding is needed."""
    extents = [extent_of(sch, loop) for loop in sch.get_loops(block)]
    if all(extent % multiple == 0 for extent, multiple in zip(extents, multiples, strict=True)):
        return ()
    before = [producer.name for producer in sch.get_producers(block)]
    sch.pad_einsum(block, list(multiples))
    made = [producer for producer in sch.get_producers(block) if producer.name not in before]
    return (*made, *sch.get_consumers(block))


def inline_padding(sch: Schedule, block: Any, padding: Sequence[Any]) -> Any:
    """Let the copies that pack operands pad them, too; returns the block that takes the result to memory."""
    if not padding:
        return sch.cache_write(block, 0, "local")
    direct = [producer.name for producer in sch.get_producers(block)]
    for copy in padding[:-1]:
        if copy.name not in direct:
            sch.compute_inline(copy)
    sch.set_scope(block, 0, "local")
    return padding[-1]


def applies_to(sch: Schedule, of: Schedule | None) -> bool:
    """Returns whether the steps apply to ``of`` as well, the function of symbolic sizes whose example this is."""
    if of is not None:
        try:
            sch.trace.apply_to_schedule(of.copy())
        except (ScheduleError, TraceError):
            return False
    return True


def put_last(sch: Schedule, copy: Any, rank: int, place: int) -> None:
    """Lay the buffer of a copy out with its dimension ``place`` last."""
    if place != rank - 1:
        sch.transform_layout(copy, ("write", 0), permutation([*[n for n in range(rank) if n != place], place]))


def permutation(order: Sequence[int]) -> str:
    """Returns the index map that puts dimension ``order[0]`` first, and so on."""
    names = [f"i{n}" for n in range(len(order))]
    return f"lambda {', '.join(names)}: ({', '.join([names[n] for n in order])},)"
