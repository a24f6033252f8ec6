"""This module packs an operand into panels. These are copies of some columns each, in the order in which a reduction
reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import extent_of, fuse_all


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
    sch.transform_layout(copy, ("write", 0), panels.place, leave_padding=True)
    if not whole:
        return copy
    loops = sch.get_loops(copy)
    over, lanes = sch.split(loops[panels.column], [None, panels.width])
    around, inner = [loops[d] for d in panels.others], [loops[d] for d in panels.inner]
    if panels.steps > 1:
        inner[-1], step = sch.split(inner[-1], [None, panels.steps])
        sch.reorder(*around, *inner, over, step, lanes)
        sch.unroll(step)
        shared = [*around, *inner]
    else:
        sch.reorder(*around, over, *inner, lanes)
        shared = [*around, over]
    sch.vectorize(lanes)
    if panels.shared:
        sch.parallel(fuse_all(sch, shared))
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
