"""The rule for products of int8 into int32 where the machine multiplies and adds four of them in each lane at once.

Four steps of the reduction and 16 columns become one ``vpdpbusd`` of AVX-512 VNNI (:mod:`tilewright.schedule.intrin`); the
operand with the columns is packed into panels ``[panel, k // 4, column, k % 4]``. Signed by signed takes a second
instruction per result and one per vector of columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...schedule import Schedule
from ...schedule.intrin import VNNI_DOT_16x4_INTRIN, VNNI_DOT_16x4_SIGNED_INTRIN
from ...tir.expr import Add, BufferLoad, Cast, Expr, Mul, Var
from ...tir.stmt import BufferStore
from ..features import Costs
from ..machine import MachineModel
from ..program import BlockInfo, Program, Use
from ..sketch import Decision, Part
from .base import Group, ScheduleRule, register_rule
from .helpers import ceil_div, fuse_all, loops_within, unroll_factor, up_to, worth_threads

__all__ = ["DotPart", "DotRule"]

_WIDTH, _LANES = 4, 16


@dataclass(frozen=True)
class _Dot:
    """The roles in ``C[.., row, .., column] += A[row, k] * B[k, column]``."""

    row: Var | None
    column: Var
    others: tuple[Var, ...]
    k: Var
    right: int
    signed: bool


class DotRule(ScheduleRule):
    """A sum of products of uint8 or int8 by int8, whose columns 64 divides and whose steps 4 divides."""

    name = "int8_dots"
    priority = 5

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return None if _roles(block) is None else Group(block, (block,))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        roles = _roles(group.anchor)
        return [DotPart(group.anchor, roles, machine)] if machine.int8_dots and roles is not None else []


def _roles(block: BlockInfo) -> _Dot | None:
    if len(block.reduce) != 1 or not block.spatial or not block.writes_in_order or block.block.init is None:
        return None
    operands = _operands(block.block.body)
    if operands is None:
        return None
    (k,), column = block.reduce, block.spatial[-1]
    uses = [use for load in operands for use in block.loads if use.buffer is load.buffer]
    if len(uses) != 2 or uses[0].buffer is uses[1].buffer or not all(use.affine for use in uses):
        return None
    if block.extents[k] % _WIDTH or block.extents[column] % (4 * _LANES):
        return None
    right = [n for n, use in enumerate(uses) if column in use.axes()]
    if len(right) != 1:
        return None
    left, moving = uses[1 - right[0]], uses[right[0]]
    if not _plain(moving) or moving.dim_of(column) is None or left.stride(k) != 1 or left.dim_of(k) is None:
        return None
    if moving.axes() - {k, column} or k not in moving.axes() or moving.buffer.dtype != "int8":
        return None
    rows = [v for v in reversed(block.spatial) if v in left.axes() and block.extents[v] > 1]
    row = rows[0] if rows else None
    others = tuple(v for v in block.spatial if v is not column and v is not row)
    place = next(n for n, use in enumerate(block.loads) if use is moving)
    return _Dot(row, column, others, k, place, left.buffer.dtype == "int8")


def _plain(use: Use) -> bool:
    return len(use.dims) == 2 and all(
        dim is not None and set(dim.values()) == {1} and len(dim) == 1 for dim in use.dims
    )


def _operands(body: object) -> tuple[BufferLoad, BufferLoad] | None:
    """The factors of ``C = C + int32(A) * int32(B)``, in the order in which they are written."""
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add) or body.value.dtype != "int32":
        return None
    product = body.value.b
    if not isinstance(product, Mul) or not isinstance(body.value.a, BufferLoad):
        return None
    a, b = _widened(product.a), _widened(product.b)
    return None if a is None or b is None else (a, b)


def _widened(e: Expr) -> BufferLoad | None:
    wide = isinstance(e, Cast) and isinstance(e.value, BufferLoad) and e.value.dtype in ("int8", "uint8")
    return e.value if wide else None  # type: ignore[attr-defined,no-any-return]


class DotPart(Part):
    """Decisions: ``rows`` and ``vectors`` of the tile, ``unroll`` of the steps, ``outer`` (1: panels outermost)."""

    structure = ("rows", "vectors")

    def __init__(self, block: BlockInfo, roles: _Dot, machine: MachineModel) -> None:
        self.block, self.roles, self.machine = block, roles, machine
        self.name = f"dots_{block.name}"
        self.parallel = worth_threads(machine, [block])
        self.steps = block.extents[roles.k] // _WIDTH
        height = block.extents[roles.row] if roles.row is not None else 1
        self.decisions = (
            Decision("rows", up_to(height, *range(1, 15))),
            Decision("vectors", tuple(v for v in (1, 2, 4) if block.extents[roles.column] % (v * _LANES) == 0)),
            Decision("unroll", up_to(self.steps, 1, 2, 4, 8, 16)),
            Decision("outer", (0, 1)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles, width = self.roles, row["vectors"] * _LANES
        block = sch.get_block(self.block.name)
        packed = sch.cache_read(block, self.roles.right, "global")
        use = self.block.loads[roles.right]
        at_k, at_column = use.dim_of(roles.k), use.dim_of(roles.column)
        assert at_k is not None and at_column is not None
        sch.transform_layout(
            block,
            ("read", roles.right),
            lambda *i: (i[at_column] // width, i[at_k] // _WIDTH, i[at_column] % width, i[at_k] % _WIDTH),
        )
        loops = sch.get_loops(packed)
        k0, k1 = sch.split(loops[at_k], [None, _WIDTH])
        part, column = sch.split(loops[at_column], [None, width])
        sch.reorder(part, k0, column, k1)
        sch.unroll(k1)
        result = sch.cache_write(block, 0, "local")
        loop = dict(zip(self.block.axes, sch.get_loops(block), strict=True))
        panel, vector, lanes = sch.split(loop[roles.column], [None, row["vectors"], _LANES])
        k0, k1 = sch.split(loop[roles.k], [None, _WIDTH])
        outer = [loop[v] for v in roles.others]
        inside = []
        if roles.row is not None:
            tiles, within = sch.split(loop[roles.row], [None, row["rows"]])
            outer.append(tiles)
            inside.append(within)
        nest = [panel, *outer] if row["outer"] else [*outer, panel]
        sch.reorder(*nest, k0, *inside, vector, lanes, k1)
        if self.parallel:
            sch.parallel(part)
            nest = [fuse_all(sch, nest)]
            sch.parallel(nest[0])
        sch.reverse_compute_at(result, nest[-1], preserve_unit_loops=True)
        init = sch.decompose_reduction(block, k0)
        sch.vectorize(sch.get_loops(init)[-1])
        *rows, columns = loops_within(sch, result, nest[-1])
        over, lane = sch.split(columns, [None, _LANES])
        for other in (*rows, over, *inside, vector):
            sch.unroll(other)
        sch.vectorize(lane)
        unroll_factor(sch, k0, row["unroll"])
        sch.tensorize(lanes, VNNI_DOT_16x4_SIGNED_INTRIN if roles.signed else VNNI_DOT_16x4_INTRIN)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        tile = columns["rows"] * columns["vectors"]
        return np.asarray(tile + columns["vectors"] + 1 <= self.machine.registers)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, roles, extents = self.machine, self.roles, self.block.extents
        height, width = columns["rows"], columns["vectors"] * _LANES
        tile = height * columns["vectors"]
        panels = extents[roles.column] / width
        bands = ceil_div(extents[roles.row] if roles.row is not None else 1, height)
        bands = bands * math.prod(extents[v] for v in roles.others)
        tiles = bands * panels
        extra = tile + height + columns["vectors"] if roles.signed else np.zeros(rows)
        latency = np.maximum(1.0, 10.0 / tile)
        loads = height + columns["vectors"]
        packed = extents[roles.column] * extents[roles.k]
        outermost = columns["outer"] > 0
        panel_bytes = width * extents[roles.k]
        again = np.where(outermost & (panel_bytes < machine.l1_bytes), 0.3, 1.0)
        return Costs(rows).put(
            core_cycles=tiles * self.steps * (tile * latency + extra) / machine.fma_pipes,
            load_cycles=tiles * self.steps * loads / machine.loads_per_cycle,
            store_cycles=tiles * tile * 4,
            jump_cycles=np.where(outermost, 60.0 * height, 0.0) * tiles,  # each row of the result is another page
            loop_cycles=tiles * (40.0 + self.steps * 0.5 / columns["unroll"]),
            l2_bytes=tiles * panel_bytes * again + tiles * height * extents[roles.k],
            l3_bytes=np.where(outermost, packed, bands * packed) * float(packed > machine.l2_bytes),
            pack_bytes=4.0 * packed,
            flops=self.block.flops,
            regions=2.0 * self.parallel,
            lanes_used=float(_LANES), rows=height, columns=columns["vectors"], accumulators=tile,
            registers=tile + columns["vectors"] + 1, loads_per_fma=loads / tile, latency_bound=latency,
            unroll=columns["unroll"], body_size=columns["unroll"] * (tile + loads), reduction=float(extents[roles.k]),
            inner_trips=float(self.steps), panel_bytes=panel_bytes, packed=1.0, variant=columns["outer"],
            tasks=np.maximum(1.0, tiles) if self.parallel else 1.0,
        )  # fmt: skip


register_rule(DotRule())
