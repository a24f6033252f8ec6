"""This module schedules any function for a GPU, without measurements: each group of blocks by the recipe that fits it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...schedule import Schedule
from ...tir.expr import Add, BufferLoad, Call, Cast, Mul, Var
from ...tir.stmt import BufferStore, PrimFunc
from ..program import BlockInfo, Program
from ..recipes.gpu_elements import spread_elements
from ..recipes.gpu_product import ThreadTiles, threaded_product
from ..recipes.gpu_rows import ROW_BYTES, block_rows
from ..recipes.gpu_transpose import staged_transpose
from ..recipes.gpu_warp_product import TILE, WORDS, WarpTiles, warp_product
from ..rules.row_reductions import RowReductionRule
from ..rules.stages_to_inline import blocks_to_inline

LONG = 32
"""A reduction of at least so many steps is divided among threads, unless its result has enough elements."""
MANY = 1 << 15
"""So many elements keep a GPU busy without dividing reductions."""


VERSIONS = 3
"""So many versions of tiles in shared memory let copies run two steps ahead of products."""


@dataclass
class GpuSchedule:
    """A schedule for a GPU: ``recipes`` has the name of the recipe of each anchor, ``left`` what stays as written."""

    schedule: Schedule
    recipes: dict[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Returns a sentence that says where the schedule comes from."""
        words = ", ".join(f"{name}: {recipe}" for name, recipe in self.recipes.items())
        return f"recipes for GPUs, not tuned ({words})" + (f"; left as written: {self.left[0]}" if self.left else "")


def default_gpu_schedule(func: PrimFunc) -> GpuSchedule:
    """Returns ``func`` with each of its blocks on blocks and threads of a GPU."""
    sch = Schedule(func)
    for name in blocks_to_inline(Program(func)):
        sch.compute_inline(name)
    program = Program(sch.func)
    made = GpuSchedule(sch, left=tuple(program.left))
    free = list(program.blocks)
    for block in program.blocks:
        axes = product_axes(block)
        if block in free and axes is not None:
            _product(made, program, block, axes, free)
    for block in program.blocks:
        group = RowReductionRule().match(program, block, free) if block in free and _long(block) else None
        if group is not None:
            _rows(made, group.blocks, len(block.spatial))
            free = [b for b in free if b not in group.blocks]
    for block in free:
        if _pads(block) and len(program.consumers(block)) == 1 and program.consumers(block)[0] in free:
            sch.compute_inline(block.name)  # each thread reads few elements of it
        else:
            _elements(made, block)
    return made


def product_axes(block: BlockInfo) -> tuple[Var, Var] | None:
    """Returns the axes of rows and columns of a product: those that one operand has and another one has not."""
    if not block.is_reduction or block.block.init is None or len(block.stores) != 1 or len(block.loads) != 2:
        return None
    if not all(use.affine for use in block.loads) or block.axes != (*block.spatial, *block.reduce):
        return None
    first, second = [use.axes() for use in block.loads]
    if not all(set(block.reduce) <= axes for axes in (first, second)):
        return None
    spatial = [v for v in block.spatial if block.extents[v] > 1]
    one, other = [v for v in spatial if v not in second], [v for v in spatial if v not in first]
    if not one or not other:
        return None
    column = max((one[-1], other[-1]), key=block.spatial.index)
    row = max(one if column in other else other, key=lambda v: block.extents[v])
    return row, column


def _product(
    made: GpuSchedule, program: Program, block: BlockInfo, axes: tuple[Var, Var], free: list[BlockInfo]
) -> None:
    row, column = axes
    warps = _warp_tiles(program, block)
    if warps is not None:
        warp_product(made.schedule, block.name, warps)
        made.recipes[block.name] = "product on matrix units"
        free.remove(block)
        return
    tiles = ThreadTiles(
        block.spatial.index(row),
        block.spatial.index(column),
        _cut(block.extents[row]),
        _cut(block.extents[column]),
        min(8, block.extents[block.reduce[0]]),
        4 if block.itemsize == 4 and block.loads[0].buffer.dtype.bits == 32 else 1,
        VERSIONS,
    )
    paddings = [b for b in program.producers(block) if b in free and _pads(b) and program.consumers(b) == [block]]
    after = program.consumers(block)
    fits = len(after) == 1 and after[0] in free and not after[0].is_reduction and not program.is_output(block)
    written = block.stores[0].buffer
    fits = fits and after[0].writes_in_order and all(
        use.buffer is not written or use.is_at(after[0].spatial) for use in after[0].loads
    )  # fmt: skip
    epilogue = after[0] if fits else None
    names = [b.name for b in paddings]
    threaded_product(made.schedule, block.name, len(block.spatial), tiles, epilogue and epilogue.name, names)
    made.recipes[block.name] = "product in shared memory"
    for done in (block, *paddings, *([epilogue] if epilogue is not None else [])):
        free.remove(done)


def _warp_tiles(program: Program, block: BlockInfo) -> WarpTiles | None:
    """Returns the tiles of a product for matrix units; None when types or sizes do not fit."""
    dtype = str(block.loads[0].buffer.dtype)
    if dtype not in WORDS or len(block.spatial) != 2 or len(block.reduce) != 1 or not block.writes_in_order:
        return None
    (i, j), (k,) = block.spatial, block.reduce
    sums = "int32" if dtype == "int8" else "float32"
    operands = [use for use in block.loads if use.buffer.dtype == dtype]
    if len(operands) != 2 or block.stores[0].buffer.dtype != sums or not program.is_output(block):
        return None
    if not (operands[0].is_at((i, k)) and operands[1].is_at((k, j))) or not _multiplies(block, sums):
        return None
    m, n, steps = block.extents[i], block.extents[j], block.extents[k]
    for warps, tiles in (((2, 2), (4, 4)), ((2, 2), (2, 2)), ((1, 1), (2, 2)), ((1, 1), (1, 1))):
        if m % (warps[0] * tiles[0] * TILE) == 0 and n % (warps[1] * tiles[1] * TILE) == 0 and steps % TILE == 0:
            together = 2 if steps % (2 * TILE) == 0 else 1
            return WarpTiles(dtype, warps, tiles, together, 16 if dtype == "int8" and together == 2 else 8, VERSIONS)
    return None


def _multiplies(block: BlockInfo, sums: str) -> bool:
    """Returns whether the block adds the product of its two operands, each converted to the type of the sums."""
    body = block.block.body
    added = body.value if isinstance(body, BufferStore) else None
    product = added.b if isinstance(added, Add) and isinstance(added.a, BufferLoad) else None
    return isinstance(product, Mul) and all(
        isinstance(x, Cast) and x.dtype == sums and isinstance(x.value, BufferLoad) for x in (product.a, product.b)
    )


def _cut(extent: int) -> tuple[int, int, int]:
    """Returns the virtual threads, the threads and the elements of a thread along an axis."""
    if extent >= 64:
        return (2, 16, 2) if extent < 128 else (2, 16, 4)
    threads = 1 << max(0, min(4, (extent - 1).bit_length() - 1))
    return (1, threads, 2) if extent > threads else (1, threads, 1)


def _pads(block: BlockInfo) -> bool:
    body = block.block.body
    chooses = isinstance(body, BufferStore) and isinstance(body.value, Call) and body.value.op == "tir.if_then_else"
    return chooses and not block.is_reduction and block.writes_in_order


def _long(block: BlockInfo) -> bool:
    return block.is_reduction and block.reduce_size >= LONG and block.spatial_size < MANY


def _rows(made: GpuSchedule, blocks: Sequence[BlockInfo], rank: int) -> None:
    row = max([b.reduce_size * b.spatial_size // max(1, blocks[0].spatial_size) for b in blocks], default=1)
    longest = max(b.reduce_size for b in blocks)
    threads = 32 if longest <= 128 else 128 if longest <= 1024 else 256
    kept = [b.name for b in blocks[:-1] if len(b.spatial) == rank or row * b.itemsize <= ROW_BYTES]
    block_rows(made.schedule, [b.name for b in blocks], rank, threads, kept)
    made.recipes[blocks[-1].name] = "rows"


def _elements(made: GpuSchedule, block: BlockInfo) -> None:
    across = _across(block)
    if across is not None:
        staged_transpose(made.schedule, block.name, across)
        made.recipes[block.name] = "transpose in shared memory"
        return
    total = block.spatial_size
    lanes = 4 if not block.is_reduction and _flat(block) and total % 4 == 0 and total >= MANY else 1
    sch = made.schedule
    if block.is_reduction and block.axes != (*block.spatial, *block.reduce):
        loops = dict(zip(block.axes, sch.get_loops(block.name), strict=True))
        sch.reorder(*[loops[v] for v in (*block.spatial, *block.reduce)])
    spread_elements(sch, block.name, len(block.reduce), lanes=lanes)
    made.recipes[block.name] = "elements"


def _across(block: BlockInfo) -> int | None:
    """Returns the number of the loop along which the only input of a copy is contiguous, when it is not the last one."""
    if block.is_reduction or len(block.loads) != 1 or not block.loads[0].affine or len(block.spatial) < 2:
        return None
    use, last = block.loads[0], block.spatial[-1]
    found = [n for n, v in enumerate(block.spatial[:-1]) if use.stride(v) == 1 and block.extents[v] >= LONG]
    if not found or (use.stride(last) or 0) < LONG or block.extents[last] < LONG or not use.plain:
        return None
    return found[0]


def _flat(block: BlockInfo) -> bool:
    shape = [block.extents[v] for v in block.spatial]
    return all(
        use.is_at(block.spatial) and [getattr(e, "value", 0) for e in use.buffer.shape] == shape
        for use in (*block.stores, *block.loads)
    ) and math.prod(shape) > 0  # fmt: skip
