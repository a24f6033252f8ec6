"""Convolutions by Winograd's method, all stages of one together, block by block of the result.

:func:`winograd_tiles` is the schedule:

    for block of tiles (shared by threads):
      copy the rows of the data with their border
      transform the pieces of the data: vectors of channels, both steps in registers
      for some channels of the result:
        for each place in a tile: a product of matrices in register tiles
        transform the products back: vectors of channels, both steps in registers
        the last stage: tiles to rows, bias, activation

A block's transformed pieces and products stay in the second-level cache. Their planes, one for each place in a tile,
lie an odd number of cache lines apart, so that no set of a cache gets them all. Below the rule stand the stages that it finds,
and what they cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...tir.annotations import WINOGRAD
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import chain_factor
from ..loop_steps import (
    Panels,
    accumulate,
    extent_of,
    finish_tile,
    fuse_all,
    loops_of_axis,
    loops_within,
    pack,
    unroll_factor,
)
from ..program import BlockInfo, ProgramInfo, Use
from .schedule_rule import Decision, Group, Part, ScheduleRule

_OF_DATA, _OF_RESULTS = (0, 1), (2, 4)
"""The numbers of the axes within a tile: of the transformed data, and of the results."""

_CHANNEL = 5
"""The number of the axis of channels of all stages within a block."""

_LINE, _SETS = 64, 64
"""The bytes of a cache line, and the number of lines after which the sets of a first-level cache begin again."""

_VECTORS = 4
"""The vectors that copies take in one iteration."""


@dataclass(frozen=True)
class WinogradStages:
    """The blocks of a convolution by Winograd's method, by name. The block ``padding`` is empty where nothing is
    padded, and ``last`` takes the results from their tiles. ``weight`` is the name of the transformed weights'
    buffer."""

    padding: str
    data_rows: str
    data: str
    products: str
    result_rows: str
    results: str
    last: str
    weight: str


@dataclass(frozen=True)
class WinogradBlocks:
    """The sizes of a block of tiles. It has ``high`` rows and ``wide`` columns of tiles of ``tile`` results each;
    ``channels`` of the result at a time; the channels are shared by ``parts`` tasks.

    A register tile has ``rows2`` rows of tiles, ``rows`` tiles of each, and ``width`` channels; ``unroll`` steps of the
    sum are unrolled. ``lanes``: the elements of a vector.
    """

    tile: int
    high: int
    wide: int
    channels: int
    rows: int
    rows2: int
    width: int
    lanes: int
    parts: int = 1
    unroll: int = 1
    shared: bool = False


def winograd_tiles(sch: Schedule, stages: WinogradStages, sizes: WinogradBlocks) -> None:
    """Schedule the stages; the weights are packed into panels."""
    products = sch.get_block(stages.products)
    pack(sch, products, Panels(stages.weight, 3, sizes.width, [2], [0, 1], shared=sizes.shared))
    result = accumulate(sch, products, _CHANNEL)
    block, inner = _blocks(sch, stages.last, sizes)
    for stage in (stages.results, stages.result_rows, result, products):
        sch.compute_at(sch.get_block(stage) if isinstance(stage, str) else stage, inner)
    for name in (stages.data, stages.data_rows, stages.padding):
        if name:
            sch.compute_at(sch.get_block(name), block)
    line = _LINE // sch.get(result).writes[0].buffer.dtype.bytes
    for made in (sch.get_block(stages.data), result):
        sch.storage_align(made, 0, 1, _SETS * line, 5 * line)
    _products(sch, products, result, inner, sizes)
    _transform(sch, stages.data_rows, stages.data, block, _OF_DATA, sizes.lanes)
    _transform(sch, stages.result_rows, stages.results, inner, _OF_RESULTS, sizes.lanes)
    if stages.padding:
        _copy(sch, stages.padding, block, sizes.lanes)


def _blocks(sch: Schedule, last: str, sizes: WinogradBlocks) -> tuple[Any, Any]:
    """Cut the loops of the last stage into blocks. Returns the loop over blocks, and the one over channels in it."""
    n, h, w, k = sch.get_loops(last)
    outer, inner = [n], []
    for loop, size in ((h, sizes.high * sizes.tile), (w, sizes.wide * sizes.tile)):
        if size < extent_of(sch, loop):
            over, loop = sch.split(loop, [None, size])
            outer.append(over)
        inner.append(loop)
    if sizes.parts > 1:
        over, k = sch.split(k, [None, -(-extent_of(sch, k) // (sizes.parts * sizes.channels)) * sizes.channels])
        outer.append(over)
    some = None
    if sizes.channels < extent_of(sch, k):
        some, k = sch.split(k, [None, sizes.channels])
    sch.reorder(*outer, *([] if some is None else [some]), *inner, k)
    block = fuse_all(sch, outer)
    if sizes.shared:
        sch.parallel(block)
    _vectors(sch, k, sizes.lanes)
    return block, block if some is None else some


def _vectors(sch: Schedule, loop: Any, lanes: int) -> None:
    """Make vectors of a loop, some in one iteration."""
    if extent_of(sch, loop) > _VECTORS * lanes:
        loop = sch.split(loop, [None, _VECTORS * lanes])[1]
    sch.vectorize(loop)


def _axes(sch: Schedule, block: Any, at: Any) -> dict[int, Any]:
    """Returns the loop of each axis of ``block`` within ``at``; axes of one iteration have none."""
    loops = loops_within(sch, block, at)
    found = {d: loops_of_axis(sch, block, loops, d) for d in range(len(sch.get(block).iter_vars))}
    return {d: along[0] for d, along in found.items() if along}


def _products(sch: Schedule, products: Any, result: Any, at: Any, sizes: WinogradBlocks) -> None:
    """Put the sum over channels between the loops over register tiles and those within one."""
    axes = _axes(sch, products, at)
    tiles: Mapping[int, int] = {_CHANNEL: sizes.width, 3: sizes.rows2, 4: sizes.rows}
    outer = [axes[d] for d in (0, 1, 2) if d in axes]
    inside: dict[int, Any] = {}
    for d, size in tiles.items():
        if d in axes:
            loop = axes[d]
            if size < extent_of(sch, loop):
                over, loop = sch.split(loop, [None, size])
                outer.append(over)
            inside[d] = loop
    within = [inside[d] for d in sorted(inside)]
    reduce = [axes[6]] if 6 in axes else []
    sch.reorder(*outer, *reduce, *within)
    sch.reverse_compute_at(result, outer[-1])
    parts = [result]
    if reduce:
        parts.append(sch.decompose_reduction(products, reduce[0]))
        unroll_factor(sch, reduce[0], sizes.unroll)
    _straight(sch, within)
    for part in parts:
        finish_tile(sch, part, outer[-1], _CHANNEL)


def _transform(sch: Schedule, first: str, second: str, at: Any, fixed: Sequence[int], lanes: int) -> None:
    """Compute both steps of a transformation for one vector of channels at a time, without loops."""
    block, half = sch.get_block(second), sch.get_block(first)
    axes = _axes(sch, block, at)
    within = [axes.pop(d) for d in fixed if d in axes]
    rest = list(axes.values())
    if _CHANNEL in axes and extent_of(sch, axes[_CHANNEL]) > lanes:
        over, vector = sch.split(rest.pop(), [None, lanes])
        rest, within = [*rest, over], [*within, vector]
    elif _CHANNEL in axes:
        within.append(rest.pop())
    sch.reorder(*rest, *within)
    around = rest[-1] if rest else at
    sch.set_scope(half, 0, "local")
    sch.compute_at(half, around)
    for made in (block, half):
        _straight(sch, loops_within(sch, made, around))


def _straight(sch: Schedule, loops: Sequence[Any]) -> None:
    """Unroll loops, and make vectors of the innermost one."""
    for loop in loops[:-1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])


def _copy(sch: Schedule, name: str, at: Any, lanes: int) -> None:
    _vectors(sch, loops_within(sch, sch.get_block(name), at)[-1], lanes)


class WinogradRule(ScheduleRule):
    """This rule takes the stages that :func:`tilewright.te.ops.winograd_conv2d` makes, with the stage that takes its result."""

    name = "winograd"
    priority = 4
    gpu = False

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        roles = winograd_roles(program, block)
        return None if roles is None else Group(block, roles.blocks)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
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


_SHARED = 0.6
"""The share of a transformation's operations that are left when equal subexpressions are computed once."""


@dataclass(frozen=True)
class WinogradRoles:
    """The stages of a convolution by Winograd's method, and its sizes. There are tiles of ``tile`` results each way,
    ``height`` by ``width`` of them for each of ``batch`` images, and channels of the data and of the result."""

    padding: BlockInfo | None
    data_rows: BlockInfo
    data: BlockInfo
    products: BlockInfo
    result_rows: BlockInfo
    results: BlockInfo
    last: BlockInfo

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """Returns the stages in order."""
        made = (self.padding, self.data_rows, self.data, self.products, self.result_rows, self.results, self.last)
        return tuple([b for b in made if b is not None])

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Returns the edge of a transformed tile, images, rows and columns of tiles, and channels of the result."""
        edge, _, batch, height, width, outputs = [self.products.extents[v] for v in self.products.spatial]
        return edge, batch, height, width, outputs

    @property
    def depth(self) -> int:
        """Returns the number of channels of the data."""
        return self.products.reduce_size


def winograd_roles(program: ProgramInfo, products: BlockInfo) -> WinogradRoles | None:
    """Returns the stages around ``products``, or None when it is no product of Winograd's method. One element-wise
    stage must take its results."""
    if _part(products) != "products":
        return None
    stages: dict[str, BlockInfo] = {"products": products}
    for name, consumer in (("data", "products"), ("data_rows", "data"), ("padding", "data_rows")):
        found = [b for b in program.producers(stages[consumer]) if _part(b) == name]
        if len(found) == 1 and len(program.consumers(found[0])) == 1:
            stages[name] = found[0]
        elif found or name != "padding":
            return None
    for name, producer in (("result_rows", "products"), ("results", "result_rows"), ("", "results")):
        readers = program.consumers(stages[producer])
        if len(readers) != 1 or _part(readers[0]) not in (name, name or "taken") or program.is_output(stages[producer]):
            return None
        stages[name or "last"] = readers[0]
    last = stages["last"]
    outside = all(program.writer.get(use.buffer) in (None, stages["results"]) for use in last.loads)
    if last.is_reduction or not last.writes_in_order or len(last.spatial) != 4 or not outside:
        return None
    return WinogradRoles(
        stages.get("padding"), stages["data_rows"], stages["data"], products, stages["result_rows"], stages["results"], last
    )  # fmt: skip


def _part(block: BlockInfo) -> str:
    return str(block.block.annotations.get(WINOGRAD, ""))


@dataclass(frozen=True)
class WinogradCosts:
    """The costs of candidates whose decisions are ``columns``: sizes of blocks and of register tiles."""

    roles: WinogradRoles
    machine: MachineModel
    columns: Mapping[str, np.ndarray]
    rows: int
    parallel: bool

    def mask(self) -> np.ndarray:
        """Returns which candidates keep their sums in registers, and have blocks that are cut into whole register tiles.

        Parts consist of whole groups of the channels that are computed at a time: where such groups have a rest, the
        regions of the stages in one part are not known to fit each other.
        """
        c = self.columns
        _, _, height, width, outputs = self.roles.sizes
        sums = c["rows"] * c["rows2"] * c["vectors"]
        fits = sums + c["vectors"] + 1 <= self.machine.registers
        for block, tile, extent in (("wide", "rows", width), ("high", "rows2", height)):
            fits &= (c[tile] <= c[block]) & ((c[block] % c[tile] == 0) | (c[block] >= extent))
        group = c["panels"] * c["vectors"] * self.machine.lanes(self.roles.products.itemsize)
        fits &= (c["parts"] == 1) | (outputs % group == 0) | (group >= outputs)
        return np.asarray(fits)

    def costs(self) -> Costs:
        c, m = self.columns, self.machine
        edge, batch, height, width, outputs = self.roles.sizes
        depth, item = self.roles.depth, self.roles.products.itemsize
        lanes = m.lanes(item)
        places = edge * edge
        panels = ceil_div(outputs, c["vectors"] * lanes)
        blocks = batch * ceil_div(height, c["high"]) * ceil_div(width, c["wide"])
        bands = ceil_div(c["high"], c["rows2"]) * ceil_div(c["wide"], c["rows"])
        tiles = places * blocks * bands * panels
        height_of_tile = c["rows"] * c["rows2"]
        sums = height_of_tile * c["vectors"]
        latency = chain_factor(sums, depth * (sums + c["vectors"] + height_of_tile), m)
        some = np.minimum(c["panels"] * c["vectors"] * lanes, panels * c["vectors"] * lanes)  # channels at a time
        count = c["high"] * c["wide"]
        pieces, products = places * count * depth * item, places * count * some * item
        weights, part = places * depth * outputs * item, places * depth * some * item
        over = pieces + products + part > m.l2_bytes
        again = blocks * np.where(over, 2.0 * (pieces + products * ceil_div(outputs, some)), 0.0)
        outside = float(sum(use.buffer.num_bytes() or 0 for use in (*self._read(), *self.roles.last.stores)))
        panel = depth * c["vectors"] * lanes * item
        rereads = np.where(panel > m.l1_bytes / 2, bands, 1.0)
        return Costs(self.rows).put(
            core_cycles=tiles * depth * sums * latency / m.fma_pipes + self._transforms(lanes),
            load_cycles=tiles * depth * (c["vectors"] + height_of_tile) / m.loads_per_cycle,
            store_cycles=tiles * sums / m.stores_per_cycle,
            loop_cycles=tiles * (30.0 + depth / c["unroll"]),
            l2_bytes=blocks * (pieces * (1.0 + panels) + 2.0 * places * count * outputs * item + weights * rereads),
            l3_bytes=again + blocks * weights * (weights + pieces + products > m.l2_bytes) + outside,
            memory_bytes=weights * float(weights > m.l3_bytes),
            flops=self.roles.products.flops,
            regions=float(self.parallel),
            lanes_used=float(lanes), rows=height_of_tile, columns=c["vectors"], accumulators=sums,
            registers=sums + c["vectors"] + 1, loads_per_fma=(c["vectors"] + height_of_tile) / sums,
            latency_bound=latency, unroll=c["unroll"], reduction=float(depth), panel_bytes=panel, packed=1.0,
            tile_a=c["high"], tile_b=c["wide"], tile_c=some,
            tasks=blocks * c["parts"] if self.parallel else 1.0,
        )  # fmt: skip

    def _read(self) -> list[Use]:
        inside = {use.buffer for b in self.roles.blocks for use in b.stores}
        first = self.roles.blocks[0]
        return [use for b in (first, self.roles.last) for use in b.loads if use.buffer not in inside]

    def _transforms(self, lanes: int) -> np.ndarray:
        """Returns the cycles of the stages around the products; each task repeats those of the data."""
        roles, m = self.roles, self.machine
        edge = roles.sizes[0]

        def two_steps(first: BlockInfo, second: BlockInfo, steps: int, loads: int, stores: int) -> float:
            """``steps``: the rows of the matrix, one of which each element takes."""
            arithmetic = _SHARED * (first.flops + second.flops) / steps / lanes / m.fma_pipes
            pieces = second.spatial_size / stores / lanes
            return max(arithmetic, pieces * loads / m.loads_per_cycle, pieces * stores / m.stores_per_cycle)

        data = two_steps(roles.data_rows, roles.data, edge, edge * edge, edge * edge)
        results = two_steps(roles.result_rows, roles.results, edge - 2, edge * edge, (edge - 2) ** 2)
        copies = sum(b.spatial_size for b in (roles.padding, roles.last) if b is not None) / m.stores_per_cycle
        epilogue = roles.last.flops / m.fma_pipes
        return self.columns["parts"] * data + results + (copies + epilogue) / lanes
