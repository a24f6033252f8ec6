"""Other forms of products for GPUs, each one more variant of a space.

They compete with the program as it is. A product of few results and many steps occupies few multiprocessors. :func:`in_parts` adds up parts of its steps side by side, and the parts
afterwards. Matrix units multiply numbers of 8 bits of one signedness, without
zero points: :func:`of_plain_bytes` moves the others by 128, takes zero points out, and corrects the sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...schedule import Schedule, ScheduleError
from ...schedule.index_map import IndexMap
from ...tir.expr import IterVar
from ..cost.axis_roles import product_axes
from ..cost.cost_features import ceil_div
from ..cost.gpu_model import GpuModel, gpu_product, is_padding
from ..dot_layouts import inline_zero_points, may_sum_bytes
from ..program import BlockInfo, ProgramInfo

_TILE = 64
"""The rows and columns of results that a block computes at the least where there are many."""
_FEWEST_STEPS = 256
"""The steps of a part at the least: what a block reads for it takes longer than to launch the addition of the parts."""
_FEWEST_PARTS = 4
"""With fewer parts, smaller tiles occupy the multiprocessors as well."""
_WHOLE_STEPS = 16
"""The steps that matrix units take at once."""


def in_parts(sch: Schedule, machine: GpuModel) -> bool:
    """Let products of few results add up parts of their steps side by side; returns whether there are any."""
    program, found = ProgramInfo(sch.func), False
    for block in program.blocks:
        if block.keeps_order or block.obstacle is not None or gpu_product(program, block, program.blocks) is None:
            continue
        parts = _parts_of(block, machine)
        if parts == 1:
            continue
        before = sch.copy()
        try:
            axis = block.axes.index(max(block.reduce, key=lambda v: block.extents[v]))
            outer, _ = sch.split(sch.get_loops(block.name)[axis], [parts, None])
            for part in (sch.rfactor(outer, 0), block.name):
                loops = sch.get_loops(part)
                sch.reorder(loops[axis], *loops[:axis])  # the part is the first axis of both blocks
            _results_first(sch, block.name)
            found = True
        except ScheduleError:
            sch.restore(before)
    return found


def _results_first(sch: Schedule, block: str) -> None:
    """Let a block run over the axes of its results first."""
    axes = sch.get(sch.get_block(block)).iter_vars
    order = sorted(axes, key=lambda iv: iv.kind != IterVar.SPATIAL)
    sch.transform_block_layout(block, IndexMap(tuple([iv.var for iv in axes]), tuple([iv.var for iv in order])))


def _parts_of(block: BlockInfo, machine: GpuModel) -> int:
    """Returns the number of parts of a product's steps with which the blocks occupy the multiprocessors."""
    roles = product_axes(block)
    assert roles is not None
    batch, rows, columns, _ = roles.sizes(block)
    blocks = batch * int(ceil_div(rows, _TILE)) * int(ceil_div(columns, _TILE))
    longest = max(block.extents[v] for v in block.reduce)
    most = min(machine.cores // max(1, blocks), longest // _FEWEST_STEPS)
    return max([n for n in range(_FEWEST_PARTS, most + 1) if longest % (n * _WHOLE_STEPS) == 0], default=1)


def of_plain_bytes(sch: Schedule, machine: GpuModel) -> str:
    """Let products of bytes that have zero points, or one sign and none, multiply bytes alone of one signedness.

    Returns what a name of the variant ends with; nothing where there are no such products.
    """
    said: set[str] = set()
    if not machine.matrix_flops:
        return ""
    for block in ProgramInfo(sch.func).blocks:
        if not may_sum_bytes(block):
            continue
        before = sch.copy()
        try:
            said.add(_multiply_plain_bytes(sch, block.name, machine))
        except ScheduleError:
            sch.restore(before)
    return "".join(sorted(said))


def _multiply_plain_bytes(sch: Schedule, name: str, machine: GpuModel) -> str:
    """Let a block multiply plain bytes; ScheduleError where it sums no products of bytes, or they are plain already."""
    inline_zero_points(sch, name)
    block = _named(ProgramInfo(sch.func), name)
    factors = [use.buffer for use in block.loads if use.axes() & set(block.reduce)]
    signed, unsigned = ([b for b in factors if b.dtype == dtype] for dtype in ("int8", "uint8"))
    mixed = len(signed) == len(unsigned) == 1 and "int8" in machine.matrix_types
    shifted = None
    if mixed:
        shifted, *_, corrected = sch.shift_operand(name, unsigned[0].name)
    else:
        *_, corrected = sch.expand_offsets(name)
    program = ProgramInfo(sch.func)
    product = _named(program, name)
    if product_axes(product) is None or any(use.buffer.dtype.bits != 8 for use in product.loads):
        raise ScheduleError(f"block {name!r} is no product of bytes")
    made = [] if shifted is None else program.producers(_named(program, shifted.name))
    padded = [p.name for p in made if is_padding(p) and len(program.consumers(p)) == 1]
    _inline_where_possible(
        sch, [*padded, *([] if program.is_output(_named(program, corrected.name)) else [corrected.name])]
    )
    return "_signed" if mixed else "_expanded"


def _named(program: ProgramInfo, name: str) -> BlockInfo:
    return next(b for b in program.blocks if b.name == name)


def _inline_where_possible(sch: Schedule, blocks: Sequence[str]) -> None:
    """Inline each of the blocks that can be."""
    for name in blocks:
        before = sch.copy()
        try:
            sch.compute_inline(name)
        except ScheduleError:
            sch.restore(before)
