"""Products on the matrix units of GPUs: schedules, costs and the rule.

A product of any number of axes becomes ``C[b, i, j] += A[b, i, k] * B[b, k, j]`` (:mod:`.product_form`). :func:`warp_product`: tiles
of 16 by 16, sums in registers of warps. :func:`group_product` (``wgmma`` of sm_90a): operands in swizzled shared memory, sums in
registers of warp groups. Both share the steps below them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.machine.target import (
    BARRIER_CYCLES,
    FETCH_CYCLES,
    GROUP_RATE,
    OVERLAID_SHARED,
    SECTOR,
    WARP,
    WARP_GROUP,
)
from ...schedule import Schedule
from ...schedule.intrin import STEPS
from ...tir.expr import Add, BufferLoad, Call, Cast, Mul
from ...tir.expr.intrinsics.matrix_operations import GROUP_ROWS, PANEL
from ...tir.stmt import BufferStore
from ..cost.cost_features import Columns, Costs, ceil_div
from ..cost.gpu_model import GpuModel, GpuProduct, gpu_product, touched_bytes
from ..cost.machine_model import MachineModel
from ..loop_steps import arrange, copy_ahead, extent_of, fuse_all, loops_within
from ..program import BlockInfo, ProgramInfo, Use
from .gpu_products import ThreadTilesPart
from .product_form import (
    OperandOrder,
    ProductAxes,
    axis_of_runs,
    in_product_form,
    length_of_lines,
    pads_around_lines,
)
from .schedule_rule import Decision, Group, Part, ScheduleRule


@dataclass(frozen=True)
class MatrixForm:
    """How the operands of a product lie. ``operands``: the buffers that the block reads, left and right, by their numbers among its
    reads; ``layout``: in the letters of BLAS, ``nn`` for ``A[i, k] * B[k, j]``; ``copies``: the blocks that copy them, where there are
    some already."""

    operands: tuple[int, int] = (0, 1)
    layout: str = "nn"
    copies: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class MatrixProduct:
    """A product that matrix units compute. ``turned``: for each operand, left and right, whether it is stored the other way around than in
    A·B; ``lanes``: how many of its elements are copied at once."""

    product: GpuProduct
    turned: tuple[bool, bool]
    lanes: tuple[int, int]

    @classmethod
    def of(cls, product: GpuProduct) -> MatrixProduct:
        """Returns the product with the layouts of its operands in memory."""
        left, right = product.roles.left, product.roles.right
        turned = (not product.roles.by_step(left), product.roles.by_step(right))
        return cls(product, turned, (_copied_together(product, left), _copied_together(product, right)))

    @property
    def dtype(self) -> str:
        """The type of the operands."""
        return str(self.product.roles.left.buffer.dtype)

    @property
    def layout(self) -> str:
        """Whether each operand is turned, in the letters of BLAS: ``nn``, ``nt``, ``tn`` or ``tt``."""
        return "".join("t" if turned else "n" for turned in self.turned)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The extents of the batch, the rows, the columns and the steps."""
        return self.product.sizes

    @property
    def plain(self) -> bool:
        """Whether the block has the axes and the operands of the form already, with a batch or without."""
        block, roles = self.product.block, self.product.roles
        single = len(roles.rows) == len(roles.columns) == len(block.reduce) == 1 and len(roles.batch) <= 1
        if not single or self.product.padding or block.spatial != (*roles.batch, *roles.rows, *roles.columns):
            return False
        left, right = (*roles.rows, *block.reduce), (*block.reduce, *roles.columns)
        places = [axes[::-1] if turned else axes for axes, turned in zip((left, right), self.turned, strict=True)]
        return roles.left.buffer is not roles.right.buffer and all(
            use.is_at((*roles.batch, *place), block.extents)
            for use, place in zip((roles.left, roles.right), places, strict=True)
        )

    def in_form(self, sch: Schedule, multiples: tuple[int, int, int], read: bool) -> tuple[Any, MatrixForm]:
        """Let the block run over the batch, rows, columns and steps, which become multiples of ``multiples``.

        Returns the stage that takes the sums from shared memory, or None, and how the operands lie. What other stages ``read`` is stored
        by a plain copy, for they cannot be scheduled around an intrinsic's pointers; so is what has other axes.
        """
        info, roles, epilogue = self.product.block, self.product.roles, self.product.epilogue
        block, after = sch.get_block(info.name), None if epilogue is None else sch.get_block(epilogue.name)
        if self.plain and all(n % multiple == 0 for n, multiple in zip(self.sizes[1:], multiples, strict=True)):
            reads = [r.buffer for r in sch.get(block).reads]
            if after is None and read:
                after = sch.cache_write(block, 0, "shared")
            return after, MatrixForm((reads.index(roles.left.buffer), reads.index(roles.right.buffer)), self.layout)
        orders = {
            id(use): OperandOrder(use.buffer.name, use is roles.left, turned == (use is roles.right))
            for use, turned in zip((roles.left, roles.right), self.turned, strict=True)
        }
        copies, out = in_product_form(
            sch, block, ProductAxes.of(info, roles, multiples[2]), [orders[id(use)] for use in info.loads],
            multiples, after, [b.name for b in self.product.padding],
        )  # fmt: skip
        copied = {id(use): copy for use, copy in zip(info.loads, copies, strict=True)}
        return out, MatrixForm(layout=self.layout, copies=(copied[id(roles.left)], copied[id(roles.right)]))


def _copied_together(product: GpuProduct, use: Use) -> int:
    """Returns how many elements of an operand are copied at once: a power of two, at most 16 bytes."""
    block, most, by_step = product.block, 16 // use.buffer.dtype.bytes, product.roles.by_step(use)
    if not pads_around_lines(use, product.padding):
        return 1
    runs = axis_of_runs(block) if by_step else None
    if runs is not None:
        return math.gcd(most, length_of_lines(use, (runs,), block))
    return math.gcd(most, length_of_lines(use, block.reduce if by_step else product.roles.side(use), block))


_PLAIN = MatrixForm()
TILE = 16
WORDS = {
    "float16": ("f16", "f32"),
    "bfloat16": ("bf16", "f32"),
    "float32": ("tf32", "f32"),
    "int8": ("s8", "s32"),
    "uint8": ("u8", "s32"),
}
"""The words of intrinsics for an operand's type, and for the type of its sums."""
SUMS = {"f32": "float32", "s32": "int32"}
"""The types of sums by their words."""


@dataclass(frozen=True)
class WarpTiles:
    """The tiles of a product. ``warps``: of a block, along rows and columns; ``tiles``: of sums that a warp holds along each;
    ``steps``: tiles of the reduction between two copies into shared memory; ``lanes``: elements of each operand that a thread copies at
    once. ``versions``: of the tiles in shared memory; with more than one, copies run ahead of the products by that many steps less one.
    """

    dtype: str
    warps: tuple[int, int] = (2, 2)
    tiles: tuple[int, int] = (2, 2)
    steps: int = 2
    lanes: tuple[int, int] = (8, 8)
    versions: int = 1


def warp_product(sch: Schedule, block: Any, sizes: WarpTiles, epilogue: Any = None, form: MatrixForm = _PLAIN) -> None:
    """Schedule ``block``, ``C[b, i, j] += A[b, i, k] * B[b, k, j]``, with a batch or without, with extents that the tiles divide.

    ``epilogue`` is the element-wise stage that alone reads the result; each warp passes it 16 rows of sums at a time.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    operand, sums = WORDS[sizes.dtype]
    out = sch.cache_write(block, 0, "wmma.accumulator")
    sch.transform_layout(block, ("write", 0), _in_tiles(TILE, TILE))
    cut = {
        "i": [None, sizes.warps[0], sizes.tiles[0], TILE],
        "j": [None, sizes.warps[1], sizes.tiles[1], TILE],
        "k": [None, sizes.steps, TILE],
    }
    order = "i0 j0 i1 j1 k0 k1 i2 j2 i3 j3 k2"
    loops, warp, copies = tiles_on_blocks(sch, block, cut, order, "shared", form)
    for copy, lanes in zip(copies, sizes.lanes, strict=True):
        parts = [None, sizes.warps[0] * sizes.warps[1], 32, lanes]
        _, y, x, lane = sch.split(fuse_all(sch, loops_within(sch, copy, loops["k0"])), parts)
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(lane)
        offset = 16 // sch.get(copy).writes[0].buffer.dtype.bytes  # rows lie 16 bytes beside a multiple of 32
        factor = 2 * offset
        sch.storage_align(copy, 0, -2, factor, offset)
    copy_ahead(sch, loops["k0"], sizes.versions)
    rows = out_at(sch, out, warp, epilogue, TILE, 32)
    init = sch.decompose_reduction(block, loops["k0"])
    sch.tensorize(loops["i3"], f"wmma_16x16x16_{operand}{_suffix(form)}")
    fill = sch.get_loops(init)
    sch.tensorize(fill[-2], f"wmma_fill_16x16_{sums}")
    i0, j0 = store_tiles(sch, out, rows, (TILE, TILE), f"wmma_store_16x16_{sums}")
    for loop in (loops["k1"], loops["i2"], loops["j2"], *fill[-4:-2], i0, j0):
        sch.unroll(loop)


GROUP_WORDS = {"float16": "f16", "bfloat16": "bf16"}
"""The words of intrinsics for an operand's type; sums are float32."""
_PIECE = 8
"""The elements that a thread copies at once: 16 bytes."""


@dataclass(frozen=True)
class GroupTiles:
    """The tiles of a product. ``groups``: warp groups of a block, along rows and columns; ``rows``: tiles of 64 rows of one group;
    ``columns``: of a tile, 64 to 256. ``versions``: of the 64 steps of both operands in shared memory; with more than one, copies run
    ahead of the products by that many less one. ``in_flight``: the products of a step go on during the next one, for which one of three
    or more versions is. ``block_rows``: how many rows of blocks run beside each other, so that they share what they read of both
    operands in the second-level cache.
    """

    dtype: str
    groups: tuple[int, int] = (2, 1)
    rows: int = 1
    columns: int = 128
    versions: int = 1
    in_flight: bool = False
    block_rows: int = 1


def group_product(
    sch: Schedule, block: Any, sizes: GroupTiles, epilogue: Any = None, form: MatrixForm = _PLAIN
) -> None:
    """Schedule ``block``, ``C[b, i, j] += A[b, i, k] * B[b, k, j]``, with a batch or without, on warp groups. The tiles of a block
    divide the extents, and 64 divides k's.

    ``epilogue`` is the element-wise stage that alone reads the result; each group passes it one tile at a time.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    wide = sizes.columns
    out = sch.cache_write(block, 0, "wgmma.accumulator")
    sch.transform_layout(block, ("write", 0), _in_tiles(GROUP_ROWS, wide))
    cut = {
        "i": [None, sizes.groups[0], sizes.rows, GROUP_ROWS],
        "j": [None, sizes.groups[1], wide],
        "k": [None, STEPS],
    }
    order = "i0 j0 i1 j1 k0 i2 i3 j2 k1"
    loops, group, copies = tiles_on_blocks(sch, block, cut, order, "shared.swizzled", form, sizes.block_rows)
    for copy in copies:
        row, column = loops_within(sch, copy, loops["k0"])[-2:]
        panel, piece, lane = sch.split(column, [None, PANEL // _PIECE, _PIECE])
        over, y, line = sch.split(row, [None, sizes.groups[0] * sizes.groups[1], WARP_GROUP * _PIECE // PANEL])
        sch.reorder(panel, over, y, line, piece, lane)
        sch.bind(y, "threadIdx.y")
        sch.bind(sch.fuse(line, piece), "threadIdx.x")
        sch.vectorize(lane)
    copy_ahead(sch, loops["k0"], sizes.versions, sizes.in_flight)
    rows = out_at(sch, out, group, epilogue, GROUP_ROWS, WARP_GROUP)
    init = sch.decompose_reduction(block, loops["k0"])
    for copy, across in zip(copies, (form.layout[0] == "t", form.layout[1] == "n"), strict=True):
        if across:  # rows of steps hold the elements of several panels
            sch.transform_layout(copy, ("write", 0), lambda *v: (*v[:-2], v[-1] // PANEL, v[-2], v[-1] % PANEL))
    sch.tensorize(loops["i3"], f"wgmma_64x{wide}x64_{GROUP_WORDS[sizes.dtype]}{_suffix(form)}")
    fill = sch.get_loops(init)
    sch.tensorize(fill[-2], f"wgmma_fill_64x{wide}")
    i0, j0 = store_tiles(sch, out, rows, (GROUP_ROWS, wide), f"wgmma_store_64x{wide}")
    for loop in (loops["i2"], *fill[-3:-2], i0, j0):
        sch.unroll(loop)


def _in_tiles(rows: int, columns: int) -> Any:
    """Returns the layout of sums in tiles: the tile, then the place in it."""
    return lambda *v: (*v[:-2], v[-2] // rows, v[-1] // columns, v[-2] % rows, v[-1] % columns)


def _suffix(form: MatrixForm) -> str:
    return "" if form.layout == "nn" else f"_{form.layout}"


SUMS_OFFSET = 8
"""How far beside a multiple of 32 elements the rows of sums lie in shared memory: warps store eight rows at a time."""


def tiles_on_blocks(
    sch: Schedule, block: Any, cut: Mapping[str, Sequence[int | None]], order: str, scope: str, form: MatrixForm,
    block_rows: int = 1,
) -> tuple[dict[str, Any], Any, list[Any]]:  # fmt: skip
    """Put tiles of ``block`` on the blocks and warps of a GPU. The block is a product with the loops i, j and k, and one over a batch
    outside where it has four.

    The loops are cut and ordered as :func:`~.loop_steps.arrange` does it: ``i0`` and ``j0`` run on blocks, ``i1`` and ``j1``
    on the warps of a block. Blocks that follow each other take ``block_rows`` rows of a column, then the next column. Both operands are copied into memory of ``scope`` in each iteration of ``k0``. Returns the loops by
    name, the loop of the warps, and the blocks that copy.
    """
    batch = len(sch.get_loops(block)) > len(cut)
    loops = arrange(sch, block, "b i j k" if batch else "i j k", cut, f"b {order}" if batch else order)
    if batch:
        sch.bind(loops["b"], "blockIdx.z")
    if block_rows > 1:
        outer, beside = sch.split(loops["i0"], [None, block_rows])
        sch.reorder(outer, loops["j0"], beside)
        sch.bind(fuse_all(sch, [outer, loops["j0"], beside]), "blockIdx.x")
    else:
        sch.bind(loops["i0"], "blockIdx.y")
        sch.bind(loops["j0"], "blockIdx.x")
    warps = fuse_all(sch, [loops["i1"], loops["j1"]])
    sch.bind(warps, "threadIdx.y")
    for copy in form.copies:
        sch.set_scope(copy, 0, scope)
    copies = list(form.copies) or [sch.cache_read(block, n, scope, sch.get(block).name_hint) for n in form.operands]
    for copy in copies:
        sch.compute_at(copy, loops["k0"])
    return loops, warps, copies


def out_at(sch: Schedule, out: Any, warps: Any, epilogue: Any, tall: int, threads: int) -> Any:
    """Let ``out``, the copy of the sums, run inside the loop of the warps; returns its loop.

    With an ``epilogue``, ``tall`` rows of the sums of each warp are copied to shared memory at a time, where the ``threads`` of a
    warp (or of a group of warps) read them: neighbouring threads take neighbouring elements of a row.
    """
    sch.reverse_compute_at(out, warps, preserve_unit_loops=True)
    if epilogue is None:
        return warps
    after = sch.get_block(epilogue) if isinstance(epilogue, str) else epilogue
    sch.set_scope(out, 0, "shared")
    rows = loops_within(sch, out, warps)[-2]
    tiles = extent_of(sch, rows) // tall
    over, _ = sch.split(rows, [None, tall])
    sch.transform_layout(
        out, ("write", 0), lambda *v: (*v[:-2], v[-2] // (tall * tiles), v[-2] // tall % tiles, v[-2] % tall, v[-1])
    )
    sch.reverse_compute_at(after, over, preserve_unit_loops=True)
    i, j = loops_within(sch, after, over)[-2:]
    lanes = 16 // min(4, sch.get(after).writes[0].buffer.dtype.bytes)
    while lanes > 1 and extent_of(sch, j) * tall % (lanes * threads):
        lanes //= 2
    _, x, lane = sch.split(sch.fuse(i, j), [None, threads, lanes])
    sch.bind(x, "threadIdx.x")
    sch.vectorize(lane)
    sch.unroll(over)
    return over


def store_tiles(sch: Schedule, out: Any, warps: Any, tile: tuple[int, int], intrinsic: str) -> tuple[Any, Any]:
    """Let ``out`` store the sums of each warp in tiles by an intrinsic; returns its loops over tiles."""
    shared = sch.get(out).writes[0].buffer.scope == "shared"
    i, j = loops_within(sch, out, warps)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, tile[0]]), sch.split(j, [None, tile[1]])
    sch.reorder(i0, j0, i1, j1)
    sch.tensorize(i1, intrinsic)
    if shared:
        sch.storage_align(sch.get_child_blocks(j0)[0], 0, -2, 32, SUMS_OFFSET)
    return i0, j0


_RATE = {"float16": 1.0, "bfloat16": 1.0, "float32": 0.5, "int8": 2.0, "uint8": 2.0}
"""How fast matrix units multiply operands of a type, relative to float16."""


class GpuMatrixUnitRule(ScheduleRule):
    """This rule takes products of a type that matrix units of GPUs have, of any number of axes.

    These types are float16, bfloat16, int8, uint8, and float32 rounded to tf32. Convolutions are products, too. The stages that pad an operand
    and the element-wise stage that alone reads the result belong to it."""

    name = "gpu_matrix_units"
    priority = 5
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        product = _for_matrix_units(program, block, free)
        return None if product is None else Group(block, product.product.blocks)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        product = _for_matrix_units(program, group.anchor, group.blocks)
        if product is None or not isinstance(machine, GpuModel):
            return []
        threads = ThreadTilesPart(product.product, machine)
        if not machine.matrix_flops or product.dtype not in machine.matrix_types:
            return [threads]
        groups = machine.warp_groups and _for_groups(product)
        return [
            *([GroupTilesPart(program, group, product, machine)] if groups else []),
            WarpTilesPart(program, group, product, machine),
            *([] if product.plain and not any(n % TILE for n in product.sizes[1:]) else [threads]),
        ]


def _for_matrix_units(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> MatrixProduct | None:
    """Returns the product that a block is, where matrix units compute it."""
    found = gpu_product(program, block, free)
    operands = _operands(block) if found is not None else None
    if found is None or operands is None or not block.writes_in_order:
        return None
    product, sums = MatrixProduct.of(found), str(block.stores[0].buffer.dtype)
    known = product.dtype in WORDS and SUMS[WORDS[product.dtype][1]] == sums
    alike = all(load.buffer.dtype == product.dtype for load in operands)
    return product if known and alike else None


def _operands(block: BlockInfo) -> tuple[BufferLoad, BufferLoad] | None:
    """Returns the loads whose product a block adds up, each converted to the type of the sums."""
    body = block.block.body
    added = body.value if isinstance(body, BufferStore) else None
    if not isinstance(added, Add) or not isinstance(body, BufferStore):
        return None
    of_sum, product = (added.a, added.b) if isinstance(added.a, BufferLoad) else (added.b, added.a)
    if not isinstance(product, Mul) or not isinstance(of_sum, BufferLoad) or of_sum.buffer is not body.buffer:
        return None
    one, other = _converted(product.a, str(of_sum.dtype)), _converted(product.b, str(of_sum.dtype))
    return None if one is None or other is None else (one, other)


def _converted(e: object, sums: str) -> BufferLoad | None:
    if isinstance(e, Cast) and e.dtype == sums and isinstance(e.value, BufferLoad):
        return e.value
    if isinstance(e, Call) and e.op == "tir.round_tf32" and isinstance(e.args[0], BufferLoad):
        return e.args[0]
    return None


def _for_groups(product: MatrixProduct) -> bool:
    """Returns whether warp groups can compute a product that single warps can compute."""
    return product.dtype in GROUP_WORDS and product.lanes == (_PIECE, _PIECE)


def _shared_sums(taken: bool, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | float:
    """Returns the bytes of the sums in shared memory, where another stage takes them."""
    return rows * (columns + SUMS_OFFSET) * 4.0 if taken else 0.0


def _shared_in_turn(operands: np.ndarray, sums: np.ndarray | float) -> np.ndarray:
    """Returns the bytes of shared memory: sums take the place of the operands where both are large."""
    both = operands + sums
    return np.where(both > OVERLAID_SHARED, np.maximum(operands, sums), both)


class GroupTilesPart(Part):
    """This part computes tiles of 64 rows of sums by warp groups of sm_90a. Its decisions are the groups of a block along rows and
    columns, the tiles of a group, their columns, and the ``versions`` of operands in shared memory, 64 steps each."""

    structure = ("row_groups", "column_groups", "row_tiles", "width")

    def __init__(self, program: ProgramInfo, group: Group, product: MatrixProduct, machine: GpuModel) -> None:
        self.group, self.product, self.machine = group, product, machine
        self.read = not program.is_output(group.anchor)
        self.taken = self.read or not product.plain or any(n % TILE for n in product.sizes[1:])
        """Whether a stage takes the sums from shared memory."""
        block = self.block = group.anchor
        self.name = f"groups_{block.name}"
        self.dtype = product.dtype
        self.batch, *sizes = product.sizes
        self.m, self.n, self.k = (-(-n // PANEL) for n in sizes)
        self.decisions = (
            Decision("row_groups", (1, 2)), Decision("column_groups", (1, 2)), Decision("row_tiles", (1, 2)),
            Decision("width", (64, 128, 192, 256)), Decision("versions", (1, 2, 3, 4, 5)), Decision("in_flight", (0, 1)),
            Decision("block_rows", (1, 4, 8, 16)),
        )  # fmt: skip

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        groups = (row["row_groups"], row["column_groups"])
        sizes = GroupTiles(
            self.dtype,
            groups,
            row["row_tiles"],
            row["width"],
            row["versions"],
            bool(row["in_flight"]),
            row["block_rows"],
        )
        multiples = (groups[0] * row["row_tiles"] * GROUP_ROWS, groups[1] * row["width"], STEPS)
        after, form = self.product.in_form(sch, multiples, self.read)
        group_product(sch, self.block.name, sizes, after, form)

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        tall, wide = self._tiles(columns)
        useful = (tall < 2 * self.m) & (wide < 2 * self.n)
        ahead = (columns["versions"] <= self.k) | (columns["versions"] == 1)
        flying = (columns["in_flight"] == 0) | (columns["versions"] > 2)
        beside = (columns["block_rows"] == 1) | (ceil_div(self.m, tall) % columns["block_rows"] == 0)
        fits = self.machine.fits(self._threads(columns), self._shared(columns), self._registers(columns))
        return np.asarray(useful & ahead & flying & beside & fits)

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        (tall, wide), threads = self._tiles(columns), self._threads(columns)
        down, along = ceil_div(self.m, tall), ceil_div(self.n, wide)
        blocks, warps = self.batch * down * along, threads / WARP
        ragged = np.where(
            (self.m % tall == 0) & (self.n % wide == 0), 0.0, 1.0
        )  # tiles at the ends are copied under conditions
        tile_bytes = (tall + wide) * PANEL * STEPS * 2.0
        products = 4.0 * columns["row_tiles"]
        instructions = 3 * products + 4 * tile_bytes / 16 / threads + 20
        flops = 2.0 * tall * wide * PANEL**2 * STEPS
        matrix = flops / machine.matrix_flops / GROUP_RATE
        operands = threads / WARP_GROUP * products * (PANEL + columns["width"]) * 16 * 2.0
        moved = blocks * self.k * tile_bytes * (1 + 0.3 * ragged)
        instructions = instructions * (1 + 0.5 * ragged)
        starting = instructions * np.maximum(1.0, warps / 4) + 2 * BARRIER_CYCLES + 60.0
        busy = np.where(columns["in_flight"] > 0, np.maximum(starting, matrix), starting + matrix)
        ahead = columns["versions"] - 1 - columns["in_flight"]
        fetch = FETCH_CYCLES + tile_bytes * machine.cores / machine.l2_bytes_per_cycle
        waiting = np.where(ahead > 0, np.maximum(0.0, fetch / np.maximum(1.0, ahead) - busy), fetch + 200.0)
        beside = np.where(columns["block_rows"] > 1, columns["block_rows"], machine.cores / along)
        beside = np.clip(beside, 1.0, down)
        across = np.clip(machine.cores / beside, 1.0, along)
        once = blocks / (beside * across) * (beside * tall + across * wide) * PANEL * self.k * STEPS * 2.0
        touched = touched_bytes(self.group.blocks)
        once *= min(1.0, touched / ((self.m + self.n) * PANEL * self.k * STEPS * 2.0 * self.batch))  # windows overlap
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * warps * self.k * instructions,
            matrix_flops=blocks * self.k * flops / GROUP_RATE,
            shared_wavefronts=blocks * self.k * (operands + tile_bytes) / 128,
            l2_bytes=moved + 4.0 * block.spatial_size,
            memory_bytes=np.maximum(touched, once),
            blocks=blocks, threads=threads, registers=self._registers(columns), shared_bytes=self._shared(columns),
            chain_cycles=self.k * (busy + waiting) + 1500.0,
            coalescing=1.0, conflicts=1.0, versions=columns["versions"], rows=columns["row_tiles"],
            columns=columns["width"], step=float(STEPS), steps=float(self.k), reduction=float(block.reduce_size),
            row_extent=float(self.m * PANEL), column_extent=float(self.n * PANEL), variant=2.0,
        )  # fmt: skip

    @staticmethod
    def _tiles(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows and columns of a block, in units of 64."""
        return columns["row_groups"] * columns["row_tiles"], columns["column_groups"] * columns["width"] / PANEL

    @staticmethod
    def _threads(columns: Columns) -> np.ndarray:
        return WARP_GROUP * columns["row_groups"] * columns["column_groups"]

    def _shared(self, columns: Columns) -> np.ndarray:
        tall, wide = self._tiles(columns)
        sums = _shared_sums(self.taken, columns["row_groups"] * PANEL, wide * PANEL)
        return _shared_in_turn((tall + wide) * PANEL * STEPS * 2.0 * columns["versions"], sums) + 1024.0

    def _registers(self, columns: Columns) -> np.ndarray:
        return np.asarray(columns["row_tiles"] * columns["width"] / 2 + 40.0)


class WarpTilesPart(Part):
    """This part computes tiles of 16 by 16 sums by warps. Its decisions are the warps of a block along rows and columns,
    the tiles of a warp, ``steps`` of 16 between two copies into shared memory, and ``versions`` of the copied tiles."""

    structure = ("row_warps", "column_warps", "row_tiles", "column_tiles")

    def __init__(self, program: ProgramInfo, group: Group, product: MatrixProduct, machine: GpuModel) -> None:
        self.group, self.product, self.machine = group, product, machine
        self.read = not program.is_output(group.anchor)
        self.taken = self.read or not product.plain or any(n % TILE for n in product.sizes[1:])
        """Whether a stage takes the sums from shared memory."""
        block = self.block = group.anchor
        self.name = f"warps_{block.name}"
        self.dtype, self.bytes = product.dtype, product.product.roles.left.buffer.dtype.bytes
        self.batch, *sizes = product.sizes
        self.m, self.n, self.k = (-(-n // TILE) for n in sizes)
        self.decisions = (
            Decision("row_warps", (1, 2, 4)), Decision("column_warps", (1, 2, 4)), Decision("row_tiles", (1, 2, 3, 4)),
            Decision("column_tiles", (1, 2, 3, 4)), Decision("steps", (1, 2, 4)), Decision("versions", (1, 2, 3, 4)),
        )  # fmt: skip

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        sizes = WarpTiles(
            self.dtype, (row["row_warps"], row["column_warps"]), (row["row_tiles"], row["column_tiles"]), row["steps"],
            self.product.lanes, row["versions"],
        )  # fmt: skip
        tall, wide = row["row_warps"] * row["row_tiles"], row["column_warps"] * row["column_tiles"]
        after, form = self.product.in_form(sch, (tall * TILE, wide * TILE, row["steps"] * TILE), self.read)
        warp_product(sch, self.block.name, sizes, after, form)

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        tall, wide = self._tiles(columns)
        useful = (tall < 2 * self.m) & (wide < 2 * self.n) & (columns["steps"] < 2 * self.k)
        threads, (left, right) = self._threads(columns), self.product.lanes
        copied = (tall * columns["steps"] * TILE**2 % (threads * left) == 0) & (
            wide * columns["steps"] * TILE**2 % (threads * right) == 0
        )
        ahead = (columns["versions"] <= ceil_div(self.k, columns["steps"])) | (columns["versions"] == 1)
        return np.asarray(
            useful & copied & ahead & self.machine.fits(threads, self._shared(columns), self._registers(columns))
        )

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        (tall, wide), threads = self._tiles(columns), self._threads(columns)
        blocks, warps = self.batch * ceil_div(self.m, tall) * ceil_div(self.n, wide), threads / WARP
        steps = ceil_div(self.k, columns["steps"])
        sums = columns["row_tiles"] * columns["column_tiles"]
        fragments = columns["row_tiles"] + columns["column_tiles"]
        each = TILE * TILE * self.bytes
        tile_bytes = (tall + wide) * columns["steps"] * each
        copies = tile_bytes / 16 / threads
        products = columns["steps"] * sums * 2 / _RATE[self.dtype]
        instructions = products + columns["steps"] * fragments * (each / 128 / 4 + 4) + 6 * copies + 10
        ragged = self._ragged(columns)
        instructions = instructions * (1 + 0.5 * ragged)
        moved = blocks * steps * tile_bytes * (1 + 0.3 * ragged)
        matrix = 2.0 * TILE**3 * sums * columns["steps"] * warps / machine.matrix_flops / _RATE[self.dtype]
        waiting = np.where(columns["versions"] > 1, FETCH_CYCLES / columns["versions"], FETCH_CYCLES + 200.0)
        busy = np.maximum(instructions * np.maximum(1.0, warps / 4), matrix)
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * warps * steps * instructions,
            matrix_flops=2.0 * TILE**3 * sums * columns["steps"] * warps * blocks * steps / _RATE[self.dtype],
            shared_wavefronts=blocks * steps * (warps * columns["steps"] * fragments * each / 128 + tile_bytes / 128),
            l2_bytes=moved + 4.0 * block.spatial_size,
            memory_bytes=machine.memory_bytes(touched_bytes(self.group.blocks), moved, blocks),
            blocks=blocks, threads=threads, registers=self._registers(columns), shared_bytes=self._shared(columns),
            chain_cycles=steps * (busy + 2 * BARRIER_CYCLES + np.maximum(0.0, waiting - busy)) + 1500.0,
            coalescing=np.minimum(1.0, columns["steps"] * TILE * self.bytes / SECTOR), conflicts=1.0,
            versions=columns["versions"], rows=columns["row_tiles"], columns=columns["column_tiles"],
            step=columns["steps"] * TILE, steps=steps, reduction=float(block.reduce_size),
            row_extent=float(self.m * TILE), column_extent=float(self.n * TILE), variant=1.0,
        )  # fmt: skip

    @staticmethod
    def _tiles(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tiles of a block along rows and columns."""
        return columns["row_warps"] * columns["row_tiles"], columns["column_warps"] * columns["column_tiles"]

    @staticmethod
    def _threads(columns: Columns) -> np.ndarray:
        return WARP * columns["row_warps"] * columns["column_warps"]

    def _shared(self, columns: Columns) -> np.ndarray:
        tall, wide = self._tiles(columns)
        left = tall * TILE * (columns["steps"] * TILE * self.bytes + 16)
        right = columns["steps"] * TILE * (wide * TILE * self.bytes + 16)
        sums = _shared_sums(self.taken, columns["row_warps"] * TILE, wide * TILE)
        return _shared_in_turn((left + right) * columns["versions"], sums)

    def _ragged(self, columns: Columns) -> np.ndarray:
        """Returns 1.0 where copies are under conditions or elements are found by digits of fused axes, else 0.0."""
        (tall, wide), plain = self._tiles(columns), self.product.plain
        divides = (self.m % tall == 0) & (self.n % wide == 0) & (self.k % columns["steps"] == 0)
        return np.where(divides & plain & (not any(n % TILE for n in self.product.sizes[1:])), 0.0, 1.0)

    def _registers(self, columns: Columns) -> np.ndarray:
        fragment = 8.0 * self.bytes / 2
        sums = columns["row_tiles"] * columns["column_tiles"]
        (tall, wide), (left, right) = self._tiles(columns), self.product.lanes
        copies = columns["steps"] * TILE**2 * (tall / left + wide / right) / self._threads(columns)
        places = 40.0 + self._ragged(columns) * (
            40.0 + 3.0 * copies
        )  # each copy has an address and a condition of its own
        return 8.0 * sums + fragment * (columns["row_tiles"] + columns["column_tiles"]) + places
