"""Counts what the warps of a simulated kernel do: instructions, sectors of memory, turns of the banks of shared memory.

The names of the counts are those that the tuner's model of GPUs takes; a simulated device has no clock of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...codegen.machine.target import (
    ARITHMETIC_CYCLES,
    BANK_BYTES,
    BANKS,
    BARRIER_CYCLES,
    FETCH_CYCLES,
    GROUP_RATE,
    SECTOR,
    SHARED_CYCLES,
    WARP,
)
from ...tir.expr import BinaryOp, BufferLoad, Call, Expr
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.intrinsics.matrix_operations import WARP_LOADS
from ...tir.expr.node import IRNode
from ...tir.stmt import Buffer
from ...tir.walk import pre_order
from ..launch.launch_form import SWIZZLED


@dataclass
class KernelCounts:
    """The counts of one kernel: ``blocks`` of ``threads``, of which the first ``counted`` ones were looked at (``sampling``). The
    sectors of memory that are touched at all are those of all blocks, because blocks share some of them."""

    blocks: int
    threads: int
    counted: int = 0
    shared_bytes: int = 0
    own_elements: int = 0
    issue_slots: float = 0.0
    matrix_flops: float = 0.0
    wavefronts: float = 0.0
    sectors: float = 0.0
    chain: float = 0.0
    seen: dict[Buffer, np.ndarray] = field(default_factory=dict)
    sampling: bool = True

    def columns(self) -> dict[str, float]:
        """Returns the counts of the whole kernel by the names of the model's columns."""
        scale = self.blocks / max(1, self.counted)
        return {
            "blocks": self.blocks, "threads": self.threads, "shared_bytes": self.shared_bytes, "kernels": 1.0,
            "registers": min(255.0, 24.0 + self.own_elements), "issue_slots": self.issue_slots * scale,
            "matrix_flops": self.matrix_flops * scale, "shared_wavefronts": self.wavefronts * scale,
            "l2_bytes": SECTOR * self.sectors * scale, "chain_cycles": self.chain,
            "memory_bytes": float(SECTOR * sum(int(marks.sum()) for marks in self.seen.values())),
        }  # fmt: skip

    def compute(self, e: Expr, warps: float) -> None:
        """Count the instructions of an expression, besides its loads."""
        slots = _slots(e) * self.sampling
        self.issue_slots += slots * warps
        self.chain += ARITHMETIC_CYCLES * slots

    def barrier(self, warps: float) -> None:
        """Count a barrier."""
        self.issue_slots += warps * self.sampling
        self.chain += BARRIER_CYCLES * self.sampling

    def access(self, buffer: Buffer, kind: str, offsets: np.ndarray, warps: np.ndarray, share: float) -> None:
        """Count an access of some lanes: where each begins, in elements, and the number of its warp. ``kind``: ``global``,
        ``block`` for shared memory, or another word for registers. ``share``: 1 / n where n accesses are one instruction."""
        if kind not in ("global", "block"):
            return
        places = offsets * buffer.dtype.bytes
        if kind == "global" and places.size:
            self._mark(buffer, places // SECTOR)
        if not self.sampling or not places.size:
            return
        self.issue_slots += len(np.unique(warps)) * share
        if kind == "global":
            self.sectors += len(np.unique(_pairs(warps, places // SECTOR))) * share
            self.chain += FETCH_CYCLES * share / 4  # several loads are on their way at a time
            return
        if buffer.scope == SWIZZLED:
            places = places ^ (places >> 3 & 112)
        words = np.unique(_pairs(warps, places // BANK_BYTES))
        who, word = words >> 40, words & ((1 << 40) - 1)
        turns = np.zeros((int(who.max()) + 1, BANKS), np.int64)
        np.add.at(turns, (who, word % BANKS), 1)
        self.wavefronts += float(turns.max(axis=1).sum()) * share
        self.chain += SHARED_CYCLES * share / 4

    def _mark(self, buffer: Buffer, sectors: np.ndarray) -> None:
        """Remember that sectors of a buffer are touched."""
        last, known = int(sectors.max()), self.seen.get(buffer, np.zeros(0, bool))
        if last >= len(known):
            known = self.seen[buffer] = np.concatenate([known, np.zeros(last + 1 + len(known), bool)])[: 2 * last + 2]
        known[sectors] = True

    def rows(self, buffer: Buffer, starts: np.ndarray, count: int) -> None:
        """Count copies of rows of ``count`` elements of global memory, each one instruction."""
        places = (starts[:, None] + np.arange(count)) * buffer.dtype.bytes // SECTOR
        if places.size:
            self._mark(buffer, np.unique(places))
        if self.sampling:
            self.issue_slots += len(starts)
            self.sectors += sum(len(np.unique(row)) for row in places)
            self.wavefronts += len(starts) * count * buffer.dtype.bytes / (BANKS * BANK_BYTES)
            self.chain += FETCH_CYCLES / 4

    def tiles(self, elements: int, size: int, warps: float, multiplied: bool) -> None:
        """Count an operation of matrix units on tiles with so many elements from shared memory."""
        if self.sampling:
            self.issue_slots += 4 * warps
            self.wavefronts += warps * elements * size / 128
            self.matrix_flops += 2.0 * 16**3 * warps * multiplied
            self.chain += SHARED_CYCLES

    def fragment_product(self, flops: float, warps: float) -> None:
        """Count a product of matrix units whose operands lie in registers: so many operations of each warp."""
        if self.sampling:
            self.issue_slots += warps
            self.matrix_flops += flops * warps
            self.chain += ARITHMETIC_CYCLES

    def group_product(self, rows: int, columns: int, steps: int, size: int, warps: float) -> None:
        """Count a product of warp groups, whose operands are read in shared memory."""
        if self.sampling:
            groups = warps / 4
            self.issue_slots += warps
            self.wavefronts += groups * (rows + columns) * steps * size / (BANKS * BANK_BYTES)
            self.matrix_flops += 2.0 * rows * columns * steps * groups / GROUP_RATE
            self.chain += columns / 2


def _pairs(warps: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    return (warps.astype(np.int64) << 40) | numbers.astype(np.int64)


_known: dict[int, tuple[Expr, float]] = {}


def _slots(e: Expr) -> float:
    """Returns how many instructions an expression takes; arithmetic of indices counts little, since loops share it."""
    found = _known.get(id(e))
    if found is not None and found[0] is e:
        return found[1]
    if len(_known) > 4096:
        _known.clear()
    total = 0.0
    for node in pre_order(e, lambda n: not isinstance(n, BufferLoad)):
        if isinstance(node, Call):
            row = OPERATIONS.get(node.op)
            total += 1.0 if row is None else row.instructions
        elif isinstance(node, BinaryOp):
            total += 1.0
    _known[id(e)] = (e, total)
    return total


def tile_operands(e: IRNode) -> list[Any]:
    """Returns the loads of operands in an expression of tiles."""
    return [n for n in pre_order(e) if isinstance(n, Call) and n.op in WARP_LOADS]


def offsets_of(shape: Sequence[int], indices: Sequence[Any], count: int) -> np.ndarray:
    """Returns the element that each of ``count`` lanes accesses, row by row."""
    out: Any = np.int64(0)
    for extent, index in zip(shape, indices, strict=True):
        out = out * extent + index
    return np.broadcast_to(out, (count,))


def warps_of(lanes: Any) -> np.ndarray:
    """Returns the number of each lane's warp."""
    per_block = -(-lanes.threads // WARP)
    return np.asarray((lanes.block - lanes.first) * per_block + lanes.thread // WARP)
