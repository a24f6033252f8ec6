"""Products of warp groups on the simulated GPU: which are on their way, and what may not be touched meanwhile.

A product is computed where it begins. Until ``wgmma_wait`` it counts as not done: using its sums, and writing its operands, are
errors. So is a product on sums that something else changed since ``wgmma_fence``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....tir.expr import BufferLoad, Call, Expr
from ....tir.expr.intrinsics.group_matrix_operations import GROUP_ROWS, GROUP_STEPS, group_columns
from ....tir.stmt import Buffer
from ..launch.thread_axes import GpuError
from .kernel_counts import KernelCounts
from .watched_memory import RaceError, WatchedArray

_OWN = ("tir.wgmma_fence", "tir.wgmma_dot", "tir.wgmma_wait")


class GroupProducts:
    """The products that began. ``closed``: how many groups of them there are; ``busy``: the group whose products change the sums of
    a buffer; ``unfenced``: buffers that something else changed; ``operands``: elements that products read, with their group."""

    def __init__(self) -> None:
        self.closed = 0
        self.busy: dict[Buffer, int] = {}
        self.unfenced: set[Buffer] = set()
        self.operands: list[tuple[int, WatchedArray]] = []

    def commit(self) -> None:
        """Close a group."""
        self.closed += 1

    def reads(self, memory: WatchedArray, place: tuple[Any, ...]) -> None:
        """Remember the elements that a product of the next group reads."""
        if memory.reading is None:
            memory.reading = np.zeros(memory.array.shape, np.int64)
        memory.reading[place] = self.closed + 1
        self.operands.append((self.closed + 1, memory))

    def begins(self, buffer: Buffer) -> None:
        """Remember that a product changes the sums of a buffer; GpuError where there is no fence."""
        if buffer in self.unfenced:
            raise GpuError(f"a product begins on {buffer.name}, which changed since the last T.wgmma_fence")
        self.busy[buffer] = self.closed + 1

    def waits(self, groups: int) -> None:
        """End all products but those of the last ``groups`` groups."""
        done = self.closed - groups
        self.busy = {buffer: group for buffer, group in self.busy.items() if group > done}
        for group, memory in self.operands:
            if group <= done and memory.reading is not None:
                memory.reading[memory.reading <= done] = 0
        self.operands = [one for one in self.operands if one[0] > done]

    def uses(self, buffer: Buffer) -> None:
        """Raise RaceError where products still change the sums of a buffer."""
        if buffer in self.busy:
            raise RaceError(f"uses {buffer.name}, which a product still changes; T.wgmma_wait ends products")

    def changed(self, buffer: Buffer, value: Expr) -> None:
        """Note what was written to sums: by a product and its like, or by something else."""
        if not buffer.scope.startswith("wgmma."):
            return
        if not isinstance(value, Call) or value.op not in _OWN:
            self.uses(buffer)
            self.unfenced.add(buffer)
        elif value.op == "tir.wgmma_fence":
            self.unfenced.discard(buffer)


def sums_of(e: Call) -> Buffer:
    """Returns the buffer of the sums that an operation changes; GpuError where they are no load."""
    if not isinstance(e.args[0], BufferLoad):
        raise GpuError(f"{e.op.removeprefix('tir.')} takes sums from their buffer, not {e.args[0]}")
    return e.args[0].buffer


def count_product(counts: KernelCounts, value: Expr, warps: float) -> None:
    """Count a product of warp groups; nothing for other values."""
    if isinstance(value, Call) and value.op == "tir.wgmma_dot":
        columns = group_columns(value.dtype)
        counts.group_product(GROUP_ROWS, columns, GROUP_STEPS, value.args[1].dtype.element.bytes, warps)
