"""This rule takes matrix products that a BLAS library computes, where the target names one.

Nothing is known of the library's speed but by measuring, so that its calls are candidates of the tuner and never the analytic
model's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...schedule.primitives.call_blas import BlasProduct, blas_product
from ..cost.cost_features import Costs
from ..cost.loop_nest import swept_bytes
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Group, Part, ScheduleRule


class BlasRule(ScheduleRule):
    """This rule takes a matrix product of float32 or float64 by itself."""

    name = "cblas"
    priority = 5
    measured_only = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,)) if block.is_reduction else None

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        called = machine.blas and isinstance(blas_product(group.anchor.realize), BlasProduct)
        return [BlasPart(group.anchor, machine)] if called else []


_SHARE = 0.8
"""The share of the peak rate that is expected of a library."""


class BlasPart(Part):
    """This part has no decisions: the product is one call, or one for each of its batches."""

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"cblas_{block.name}"
        self.decisions = ()

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        sch.call_blas(self.block.name)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        block, machine = self.block, self.machine
        lanes = machine.lanes(block.itemsize)
        return Costs(rows).put(
            core_cycles=block.flops / (2 * lanes * machine.fma_pipes * _SHARE),
            **swept_bytes(float(block.array_bytes), machine, beyond=block.bytes_from_beyond),
            flops=block.flops, regions=float(machine.cores > 1), lanes_used=float(lanes), tasks=float(machine.cores),
            reduction=float(block.reduce_size), packed=1.0,
        )  # fmt: skip
