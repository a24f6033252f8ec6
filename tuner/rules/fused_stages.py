"""This rule computes producers in tiles of their consumers. Examples are stencils, image pipelines, reductions that
share an input, products in a row.

It takes any stages with affine accesses, each of which writes one buffer at its spatial axes. From the last stage it
grows upwards: a producer joins when only members read it, and when a tile of the last stage needs a small part of it.
The recipe is :mod:`..recipes.fused_tiles`; :mod:`..cost.fused_costs` says what it costs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from ...schedule import Schedule
from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..cost.cost_features import Costs, up_to
from ..cost.fused_costs import (
    FusedCosts,
    FusedStages,
    Region,
    StageRole,
    needed_region,
    same_region,
    stage_role,
    whole_region,
)
from ..cost.machine_model import MachineModel, worth_threads
from ..program import BlockInfo, ProgramInfo, copies, pads
from ..recipes.fused_tiles import TileStage, fused_tiles
from ..recipes.loop_steps import Panels
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule

_TILED = 3
"""The number of axes that are cut into tiles: the innermost ones of those that all stages share."""


class FusedStagesRule(ScheduleRule):
    """This rule takes two stages or more, the last of which anchors them. Its option ``depth`` is how many follow each
    other; with ``siblings``, results of the same extents that read the same are computed in the same tiles."""

    priority = 80
    fuses = True

    def __init__(self, name: str, depth: int, *, siblings: bool = False) -> None:
        self.name, self.depth, self.siblings = name, depth, siblings

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return _groups(program, tuple(free), self.depth, self.siblings).get(block)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [FusedPart(program, group, machine)]


@lru_cache(maxsize=4)
def _groups(
    program: ProgramInfo, free: tuple[BlockInfo, ...], depth: int, siblings: bool
) -> dict[BlockInfo, Group]:  # fmt: skip
    """Returns the groups of two stages or more that compute something by their last stage. The last stages of the program
    choose first."""
    left, groups = set(free), {}
    for root in reversed(program.blocks):
        if root in left and _is_stage(root) and root.spatial:
            members = fused_regions(program, root, left, depth, siblings_of(program, root, left) if siblings else ())
            left -= set(members)
            if sum(1 for b in members if not (copies(b) or b.operations < 2 and pads(b))) > 1:
                groups[root] = Group(root, tuple([b for b in program.blocks if b in members]))
    return groups


def _is_stage(block: BlockInfo) -> bool:
    """Returns whether the block writes one buffer at its spatial axes, and reduces from a start value if it does."""
    return (
        block.fills_in_order
        and len(block.stores) == 1
        and block.axes == (*block.spatial, *block.reduce)
        and not block.keeps_order
        and (block.block.init is not None or not block.is_reduction)
    )


def siblings_of(program: ProgramInfo, root: BlockInfo, free: Collection[BlockInfo]) -> list[BlockInfo]:
    """Returns the results of the program before ``root`` that can share its tiles. They have its extents, are made of a
    buffer that it is made of, and are read by no stage."""
    if not program.is_output(root):
        return []
    results = [b for b in program.blocks[: program.blocks.index(root)] if b in free and program.is_output(b)]
    shape, read = [root.extents[v] for v in root.spatial], _sources(program, root)
    return [
        b for b in results
        if _is_stage(b) and not program.consumers(b) and [b.extents[v] for v in b.spatial] == shape
        and read & _sources(program, b)
    ]  # fmt: skip


def _sources(program: ProgramInfo, block: BlockInfo) -> set[Buffer]:
    """Returns the buffers that a block reads, and those that they are computed of."""
    found, left = set[Buffer](), [block]
    while left:
        read = {use.buffer for use in left.pop().loads} - found
        found |= read
        left += [b for b in program.blocks if any(use.buffer in read for use in b.stores)]
    return found


def fused_regions(
    program: ProgramInfo, root: BlockInfo, free: Collection[BlockInfo], depth: int, siblings: Sequence[BlockInfo] = ()
) -> dict[BlockInfo, Region]:  # fmt: skip
    """Returns ``root`` and the producers that are computed in its tiles, with the regions that a tile needs. With
    ``siblings``, whose tiles are the same, their producers are included as well."""
    regions: dict[BlockInfo, Region] = {root: whole_region(root)}
    regions.update({block: same_region(block, root) for block in siblings})
    level = dict.fromkeys(regions, 1)
    for block in reversed(program.blocks[: program.blocks.index(root)]):
        consumers = program.consumers(block)
        if block in regions or block not in free or not consumers or not set(consumers) <= set(regions):
            continue
        level[block] = 1 + max(level[c] for c in consumers)
        if level[block] > depth or not _is_stage(block) or not block.writes_in_order or program.is_output(block):
            continue
        region = needed_region(block, {c: regions[c] for c in consumers})
        if region is not None and _small(block, {**regions, block: region}):
            regions[block] = region
    return regions


_SMALL = 1 << 18
"""The bytes of a stage that the smallest tile may need."""


def _small(block: BlockInfo, regions: Mapping[BlockInfo, Region]) -> bool:
    """Returns whether the smallest tile of the last stage needs a small part of the block's results."""
    root = next(iter(regions))
    shared = {*shared_axes(root, regions)}
    if not shared:
        return False
    tile = {v: np.ones(1) * (1 if v in shared else root.extents[v]) for v in root.spatial}
    count = math.prod(float(regions[block][v].size(tile, 1)[0]) for v in block.spatial)
    return count * block.itemsize <= _SMALL and count < block.spatial_size


def shared_axes(root: BlockInfo, regions: Mapping[BlockInfo, Region]) -> list[Var]:
    """Returns the axes of the last stage that the place of every stage depends on, outermost first."""
    used = [{v for span in region.values() for v in span.factors} for region in regions.values()]
    return [v for v in root.spatial if root.extents[v] > 1 and all(v in axes for axes in used)]


class FusedPart(Part):
    """This part has the decisions of fused stages. They are ``tile0``, …: the tiles of the last stage's axes, outermost
    first; ``vectors`` per iteration of element-wise stages; for the reduction of stage n ``vectors<n>`` and ``rows<n>``
    of its register tile; ``rolled`` (1: rows that the next tile needs again are kept in circular buffers), for chains
    of stencils."""

    def __init__(self, program: ProgramInfo, group: Group, machine: MachineModel) -> None:
        self.group, self.machine = group, machine
        root = group.anchor
        siblings = siblings_of(program, root, group.blocks)
        regions = fused_regions(program, root, group.blocks, len(group.blocks), siblings)
        lanes = machine.lanes(max(b.itemsize for b in group.blocks))
        inside = [b.stores[0].buffer for b in group.blocks]
        roles = tuple([stage_role(b, lanes, inside) for b in group.blocks])
        shared = shared_axes(root, regions)[-_TILED:]
        threads = worth_threads(machine, group.blocks)
        self.stages = FusedStages(roles, regions, tuple(shared), lanes, threads, tuple(siblings))
        self.name = f"fused_{root.name}"
        self.decisions = tuple([*self._tiles(), *self._steps()])
        self.structure = tuple([d.name for d in self.decisions if d.name.startswith(("tile", "rolled"))])

    def _tiles(self) -> list[Decision]:
        root, lanes, out = self.group.anchor, self.stages.lanes, []
        for n, axis in enumerate(self.stages.tiled):
            extent = root.extents[axis]
            if axis is root.spatial[-1]:
                sizes = up_to(extent, lanes, 4 * lanes, 8 * lanes, 16 * lanes, 32 * lanes, 64 * lanes, 1 << 30)
            else:
                sizes = up_to(extent, 1, 2, 4, 8, 16, 32, 64, 128, 256)
            out.append(Decision(f"tile{n}", sizes))
        return out

    def _steps(self) -> list[Decision]:
        out = []
        if any(role.kind == "map" for role in self.stages.roles):
            out.append(Decision("vectors", (1, 2, 4)))
        for n, role in enumerate(self.stages.roles):
            block, lanes = role.block, self.stages.lanes
            if role.kind == "lanes":
                out.append(Decision(f"vectors{n}", up_to(-(-block.extents[block.axes[-1]] // lanes), 1, 2, 4)))
            if role.kind == "tile" and role.vector is not None:
                out.append(Decision(f"vectors{n}", up_to(-(-block.extents[role.vector] // lanes), 1, 2, 4)))
                extent = 1 if role.row is None else block.extents[role.row]
                out.append(Decision(f"rows{n}", up_to(extent, 1, 2, 4, 6, 8, 12)))
        if self.stages.rolling:
            out.append(Decision("rolled", (0, 1)))
        return out

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        root = self.group.anchor
        ends = self.stages.siblings
        rolling = self.stages.rolling if row.get("rolled") else ()
        stages = [
            replace(self._stage(n, r, row), end=r.block in ends, rolls=self.stages.lanes * (r.block in rolling))
            for n, r in enumerate(self.stages.roles)
        ]
        tiles = {root.spatial.index(axis): row[f"tile{n}"] for n, axis in enumerate(self.stages.tiled)}
        fused_tiles(sch, stages, tiles, shared=self.stages.parallel)

    def _stage(self, n: int, role: StageRole, row: Mapping[str, int]) -> TileStage:
        block, lanes = role.block, self.stages.lanes
        if role.kind == "plain":
            return TileStage(block.name, "plain")
        if role.kind == "lanes":
            width = min(row[f"vectors{n}"] * lanes, block.extents[block.axes[-1]])
            return TileStage(block.name, "lanes", width=width)
        assert role.vector is not None
        vector = block.axes.index(role.vector)
        if role.kind == "map":
            return TileStage(block.name, "map", vector, row["vectors"] * lanes)
        width = min(row[f"vectors{n}"] * lanes, block.extents[role.vector])
        place = None if role.row is None else block.axes.index(role.row)
        panels = self._panels(role, width)
        return TileStage(block.name, "tile", vector, width, place, row[f"rows{n}"], packed=panels)

    def _panels(self, role: StageRole, width: int) -> Panels | None:
        use, block = role.packed, role.block
        if use is None or role.vector is None:
            return None
        dims = {axis: d for d, dim in enumerate(use.dims) for axis in dim or {}}
        inner = [dims[v] for v in block.reduce if v in dims]
        others = [d for d in range(len(use.dims)) if d != dims[role.vector] and d not in inner]
        return Panels(use.buffer.name, dims[role.vector], width, inner, others, shared=self.stages.parallel)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        return FusedCosts(self.stages, self.machine, columns, rows).mask()

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        return FusedCosts(self.stages, self.machine, columns, rows).costs()


register_rule(FusedStagesRule("fused_stages", 1 << 30))
register_rule(FusedStagesRule("fused_pairs", 2))
register_rule(FusedStagesRule("fused_siblings", 1 << 30, siblings=True))
