"""This rule schedules convolutions by Winograd's method, all stages of one together.

The recipe is :mod:`..recipes.winograd_tiles`; :mod:`..cost.winograd_costs` finds the stages and says what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.step_sizes import up_to
from ..cost.winograd_costs import WinogradCosts, WinogradRoles, winograd_roles
from ..program import BlockInfo, Program
from ..recipes.winograd_tiles import WinogradBlocks, WinogradStages, winograd_tiles
from .schedule_rule import Group, ScheduleRule, register_rule
from .sketch_part import Decision, Part


class WinogradRule(ScheduleRule):
    """This rule takes the stages that :func:`tilewright.te.ops.winograd_conv2d` makes, with the stage that takes its result."""

    name = "winograd"
    priority = 4
    gpu = False

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        roles = winograd_roles(program, block)
        return None if roles is None else Group(block, roles.blocks)

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        roles = winograd_roles(program, group.anchor)
        return [] if roles is None else [WinogradPart(roles, machine)]


class WinogradPart(Part):
    """This part has the decisions of Winograd's method. They are ``high`` and ``wide``, the rows and columns of tiles
    of a block, ``panels`` of channels at a time, ``rows2``, ``rows`` and ``vectors`` of the register tile, ``unroll``
    of the sum, and ``parts`` of the channels, each of which is a task of its own."""

    structure = ("rows", "rows2", "vectors")

    def __init__(self, roles: WinogradRoles, machine: MachineModel) -> None:
        self.roles, self.machine = roles, machine
        self.name = f"winograd_{roles.products.name}"
        self.lanes = machine.lanes(roles.products.itemsize)
        self.parallel = worth_threads(machine, [roles.products])
        _, _, height, width, outputs = roles.sizes
        vectors = math.ceil(outputs / self.lanes)
        self.decisions = (
            Decision("high", up_to(height, 1, 2, 4, 8)),
            Decision("wide", up_to(width, 4, 8, 16, 32, 1 << 30)),
            Decision("panels", up_to(vectors, 1, 2, 4, 8, 1 << 30)),
            Decision("rows", up_to(width, *range(1, 17))),
            Decision("rows2", up_to(height, 1, 2, 4)),
            Decision("vectors", up_to(vectors, 1, 2, 3, 4)),
            Decision("unroll", up_to(roles.depth, 1, 2)),
            Decision("parts", up_to(vectors, 1, machine.cores) if self.parallel else (1,)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles = self.roles
        edge = roles.sizes[0]
        names = WinogradStages(
            "" if roles.padding is None else roles.padding.name, roles.data_rows.name, roles.data.name,
            roles.products.name, roles.result_rows.name, roles.results.name, roles.last.name, self._weight(),
        )  # fmt: skip
        width = row["vectors"] * self.lanes
        sizes = WinogradBlocks(
            edge - 2, row["high"], row["wide"], row["panels"] * width, row["rows"], row["rows2"], width, self.lanes,
            row["parts"], row["unroll"], self.parallel,
        )  # fmt: skip
        winograd_tiles(sch, names, sizes)

    def _weight(self) -> str:
        made = {use.buffer for use in self.roles.data.stores}
        return next(use.buffer.name for use in self.roles.products.loads if use.buffer not in made)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        return WinogradCosts(self.roles, self.machine, columns, rows, self.parallel).mask()

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        return WinogradCosts(self.roles, self.machine, columns, rows, self.parallel).costs()


register_rule(WinogradRule())
