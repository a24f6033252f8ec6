"""The analytic model's constants of a machine: vector width, registers, caches, and bytes per cycle between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...codegen.machine.target import Target
from ..program import BlockInfo


@dataclass(frozen=True)
class MachineModel:
    """A machine model holds the constants of the roofline model. Widths in bytes, rates per core and cycle.

    The rates are typical of server cores since 2019 (two FMA pipes of four cycles' latency, two loads and one store a
    cycle); the model only ranks candidates, so ratios matter and errors of a few percent do not.
    """

    vector_bytes: int
    registers: int
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    fma_pipes: float = 2.0
    fma_latency: float = 4.0
    loads_per_cycle: float = 2.0
    stores_per_cycle: float = 1.0
    issue_width: float = 4.0
    l2_bytes_per_cycle: float = 48.0
    l3_bytes_per_cycle: float = 9.0
    memory_bytes_per_cycle: float = 4.0
    cycles_per_second: float = 3.0e9
    fork_join_cycles: float = 15_000.0
    l1_ways: int = 12
    line_bytes: int = 64
    jump_cycles: float = 18.0
    int8_dots: bool = False
    """Whether one instruction multiplies and adds four int8 in each lane of a 512-bit register."""
    int8_tiles: bool = False
    """Whether one instruction multiplies tiles of int8."""

    @staticmethod
    def of(target: Target | str) -> MachineModel:
        """Returns the model of ``target``."""
        target = Target.of(target)
        return MachineModel(
            vector_bytes=target.vector_bits // 8,
            registers=target.num_vector_registers,
            cores=max(1, target.num_cores),
            l1_bytes=target.l1_bytes,
            l2_bytes=target.l2_bytes,
            l3_bytes=max(target.l3_bytes, target.l2_bytes),
            int8_dots=target.has_vnni and target.vector_bits == 512,
            int8_tiles=target.has_amx_int8,
        )

    def lanes(self, itemsize: int) -> int:
        """Returns how many elements of ``itemsize`` bytes fit in one vector register."""
        return max(1, self.vector_bytes // itemsize)


def crowding(lines: np.ndarray, stride: int, machine: MachineModel) -> np.ndarray:
    """Returns how likely lines that are ``stride`` bytes apart evict each other from the first-level cache, 0 to 1: those
    a multiple of 4 KiB apart share the ways of one set."""
    room = machine.l1_ways * 4096 / math.gcd(stride, 4096)
    return np.asarray(1.0 / (1.0 + np.exp2(np.clip(2.5 - 14.0 * np.log2(lines / room), -60, 60))))


def worth_threads(machine: MachineModel, blocks: Sequence[BlockInfo]) -> bool:
    """Returns whether the blocks have enough work for several threads: twice what a fork and a join cost."""
    if machine.cores < 2:
        return False
    cycles = sum(b.flops / machine.lanes(b.itemsize) / machine.fma_pipes for b in blocks)
    moved = sum(use.buffer.num_bytes() or 0 for b in blocks for use in (*b.loads, *b.stores))
    return max(cycles, moved / machine.l2_bytes_per_cycle) > 2 * machine.fork_join_cycles
