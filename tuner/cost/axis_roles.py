"""This module says which axes of a block have which role: rows, columns and steps of a product, and vectors.

The axes that become vectors are chosen by the strides of the block's accesses. :func:`row_group` finds the stages of a row:
blocks that share their leading axes, of which one reduces the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...codegen.lane_offsets import NEAR
from ...tir.expr import Add, BufferLoad, Call, Cast, DType, Expr, Mul, Var
from ...tir.expr.dtype import bytes_each
from ...tir.stmt import BufferStore
from ...tir.walk import pre_order
from ..loop_steps import Panels
from ..program import BlockInfo, ProgramInfo, Use
from .dot_forms import DotForm
from .machine_model import MachineModel


@dataclass(frozen=True)
class TileAxes:
    """The roles of a block's axes in a register tile; ``rows2`` are further rows, ``others`` lie outside the tile."""

    vector: Var
    rows: Var | None
    rows2: Var | None
    others: tuple[Var, ...]
    reduce: tuple[Var, ...]


_FEWEST_TRANSPOSED = 4
"""Rows of a tile from which on it is transposed in registers on its way to memory."""

_SHORT_SUM = 16
"""Steps of a reduction up to which storing the result takes longer than loading an operand again for each row."""


def tile_axes(block: BlockInfo, vector: Var) -> TileAxes:
    """Returns the roles of the axes when ``vector`` becomes vectors."""
    moving = [use for use in block.loads if vector in use.axes()]
    candidates = [v for v in reversed(block.spatial) if v is not vector and block.extents[v] > 1]
    # rows that do not move the vector operand reuse its loads; without any, rows only hide the latency
    shared = [v for v in candidates if not any(v in use.axes() for use in moving)]
    ordered = shared + [v for v in candidates if v not in shared]
    # a result whose rows are contiguous is transposed in registers, where elements would be stored one by one
    store = block.stores[0]
    near = [v for v in candidates if store.stride(v) == 1 and block.extents[v] >= _FEWEST_TRANSPOSED]
    if store.stride(vector) != 1 and (block.reduce_size <= _SHORT_SUM or set(near) <= set(shared)):
        ordered = near + [v for v in ordered if v not in near]
    rows = ordered[0] if ordered else None
    rows2 = shared[1] if len(shared) > 1 and rows is not None and block.extents[rows] < 16 else None
    others = _small_operands_inside(
        block, [v for v in block.spatial if v is not vector and v is not rows and v is not rows2]
    )
    broadcast = [use for use in block.loads if vector not in use.axes()] or list(block.loads)

    def step(axis: Var) -> int:
        return -max((abs(use.stride(axis) or 0) for use in broadcast), default=0)

    return TileAxes(vector, rows, rows2, others, tuple(sorted(block.reduce, key=step)))


_FAR_LARGER = 4
"""How many times larger what one loop passes over has to be than what another one does, so that it is the outer loop."""


def _small_operands_inside(block: BlockInfo, axes: Sequence[Var]) -> tuple[Var, ...]:
    """Returns ``axes``, outermost first, with those inside that pass over small inputs.

    Parts of large inputs stay in the cache meanwhile. ``A[j, h, r, v] * B[i, r, v]`` with a small B goes through ``i`` inside ``j``; axes whose inputs are as large keep their order.
    """
    out: list[Var] = []

    def passed(axis: Var, other: Var) -> int:
        uses = [use for use in block.loads if axis in use.axes() and other not in use.axes()]
        return sum(map(block.elements_of, uses))

    for axis in axes:
        place = len(out)
        while place and passed(axis, out[place - 1]) > _FAR_LARGER * passed(out[place - 1], axis) > 0:
            place -= 1
        out.insert(place, axis)
    return tuple(out)


@dataclass(frozen=True)
class TiledBlock:
    """A block that is computed in register tiles: its axes, the stage that consumes it, the operand that is packed."""

    block: BlockInfo
    axes: TileAxes
    epilogue: BlockInfo | None
    packed: Use | None
    lanes: int
    """Elements in a vector register."""
    parallel: bool
    """Whether threads share the work."""

    @cached_property
    def conditional(self) -> bool:
        """Returns whether elements are read under a condition, as padding is: masks are made for each load."""
        return any(isinstance(n, Call) and n.op == "tir.if_then_else" for n in pre_order(self.block.block.body))

    @property
    def passing(self) -> list[Use]:
        """Returns the loads that do not depend on the vector axis."""
        return [use for use in self.block.loads if self.axes.vector not in use.axes()]

    def bytes_of(self, use: Use) -> float:
        """Returns the bytes of the elements that a load goes through."""
        return bytes_each(use.buffer.dtype) * self.block.elements_of(use)


@dataclass(frozen=True)
class Dot:
    """The roles in ``C[.., row, .., column] += A[row + window, k] * B[window, k, column]``, a product of int8 or bfloat16."""

    row: Var | None
    column: Var
    others: tuple[Var, ...]
    k: Var
    window: tuple[Var, ...]
    """The other axes of the reduction."""
    left: int
    right: int
    """The numbers of the operands among the loads of the block."""
    types: tuple[str, str]
    """The types of the left and the right factor."""

    @property
    def dtype(self) -> str:
        """The type of the factors, ``"int8"`` for uint8, too."""
        return "bfloat16" if self.types[0] == "bfloat16" else "int8"

    @property
    def word(self) -> int:
        """The steps of the reduction in four bytes."""
        return 2 if self.dtype == "bfloat16" else 4

    def panels(self, block: BlockInfo, width: int, steps: int, *, shared: bool) -> Panels:
        """Returns the layout of the right factor in panels of ``width`` columns. The ``steps`` of an instruction lie
        side by side; ``shared``: the threads share the packing."""
        use = block.loads[self.right]
        k, column = (next(n for n, dim in enumerate(use.dims) if dim and axis in dim) for axis in (self.k, self.column))
        outer = [n for n, dim in enumerate(use.dims) if dim and set(dim) <= set(self.others)]
        around = [n for n in range(len(use.dims)) if n not in (k, column, *outer)]
        return Panels(self.right, column, width, [*around, k], outer, steps=steps, shared=shared)


@dataclass(frozen=True, eq=False)
class ProductRoles:
    """The axes of a product as those of ``C[batch, rows, columns] += A[batch, rows, reduce] * B[batch, reduce, columns]``.

    Columns are the side that has the last axis of the result. ``left`` is the operand with the rows.
    """

    batch: tuple[Var, ...]
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    left: Use
    right: Use

    def sizes(self, block: BlockInfo) -> tuple[int, int, int, int]:
        """Returns the extents of the batch, the rows, the columns and the steps."""
        sides = (self.batch, self.rows, self.columns)
        batch, rows, columns = [math.prod(block.extents[v] for v in axes) for axes in sides]
        return batch, rows, columns, block.reduce_size

    def side(self, use: Use) -> tuple[Var, ...]:
        """Returns the rows, or the columns, which an operand has."""
        return self.rows if use is self.left else self.columns

    def by_step(self, use: Use) -> bool:
        """Returns whether the steps of an operand are neighbours in memory, not its rows or columns."""
        return not any(use.stride(v) == 1 for v in self.side(use))


def product_axes(block: BlockInfo) -> ProductRoles | None:
    """Returns the roles of the axes of a product, or None for other blocks. Rows and columns are those that one operand has and the other one has not."""
    if not block.is_reduction or block.block.init is None or len(block.stores) != 1 or len(block.loads) != 2:
        return None
    if block.is_joined:
        return None
    if not all(use.affine for use in block.loads) or block.axes != (*block.spatial, *block.reduce):
        return None
    uses = tuple(block.loads)
    first, second = [use.axes() for use in uses]
    if not all(set(block.reduce) <= axes for axes in (first, second)):
        return None
    long = [v for v in block.spatial if block.extents[v] > 1]
    one, other = [v for v in long if v not in second], [v for v in long if v not in first]
    if not one or not other or set(one) & set(other):
        return None
    batch = tuple([v for v in long if v in first and v in second])
    if one[-1] is max((one[-1], other[-1]), key=block.spatial.index):
        return ProductRoles(batch, tuple(other), tuple(one), uses[1], uses[0])
    return ProductRoles(batch, tuple(one), tuple(other), uses[0], uses[1])


def element_epilogue(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> BlockInfo | None:
    """Returns the element-wise stage among ``free`` that alone reads the result of ``block``, or None. It reads each
    element where it writes one, and nothing that is computed later than ``block``."""
    after = program.consumers(block)
    if len(after) != 1 or after[0] not in free or after[0].is_reduction or program.is_output(block):
        return None
    written, known = block.stores[0].buffer, after[0]
    fits = known.writes_in_order and all(
        use.buffer is not written or use.is_at(known.spatial, known.extents) for use in known.loads
    )
    computed = all(p is block or program.comes_before(p, block) for p in program.producers(known))
    return known if fits and computed and len(known.spatial) == len(block.spatial) else None


def dot_roles(block: BlockInfo) -> Dot | None:
    """Returns the roles of the axes and loads in a product of int8 or bfloat16; None for other blocks."""
    if not block.reduce or not block.spatial or not block.writes_in_order or block.block.init is None:
        return None
    if block.is_joined:
        return None
    operands = dot_factors(block.block.body)
    if operands is None:
        return None
    column = block.spatial[-1]
    uses = [use for load in operands for use in block.loads if use.buffer is load.buffer]
    if len(uses) != 2 or uses[0].buffer is uses[1].buffer or not all(use.affine for use in uses):
        return None
    right = [n for n, use in enumerate(uses) if column in use.axes()]
    if len(right) != 1:
        return None
    left, moving = uses[1 - right[0]], uses[right[0]]
    steps = [v for v in block.reduce if left.stride(v) == 1 and left.dim_of(v) is not None]
    if len(steps) != 1 or not one_axis_each(moving) or moving.axes() - {*block.axes}:
        return None
    (k,) = steps
    if k not in moving.axes():
        return None
    rows = [v for v in reversed(block.spatial) if v in left.axes() and block.extents[v] > 1]
    row = rows[0] if rows else None
    return Dot(
        row, column, _without(block.spatial, column, row), k, _without(block.reduce, k),
        left=next(n for n, use in enumerate(block.loads) if use is left),
        right=next(n for n, use in enumerate(block.loads) if use is moving),
        types=(str(left.buffer.dtype), str(moving.buffer.dtype)),
    )  # fmt: skip


def dot_form(block: BlockInfo, roles: Dot, machine: MachineModel) -> DotForm | None:
    """Returns the way in which the machine computes such a product by instructions for dot products, or None.

    At least half of the lanes have columns.
    """
    form = machine.dot(*roles.types)
    return None if form is None or 2 * block.extents[roles.column] < form.lanes else form


def pays_packing(block: BlockInfo, roles: Dot) -> bool:
    """Returns whether each element of the right factor is read often enough that instructions for dot products pay.

    It is packed before, unless that was done ahead of the call. One result for each element takes the time of reading it.
    """
    use = block.loads[roles.right]
    reads = math.prod(block.extents[v] for v in block.spatial if v not in use.axes())
    least = 2 if use.stride(roles.k) == 1 else 4  # where steps are contiguous, packing takes the less time
    return use.buffer in block.packed_ahead or reads >= least * use.buffer.dtype.bits // 8


TILE, TILE_BYTES = 16, 64
"""Rows of a tile of a matrix unit, and columns of the sums; bytes of a row of a tile."""

_PADDED = 2.5
"""How many times as many multiplications tiles of a matrix unit may take as the product has."""


@dataclass(frozen=True, eq=False)
class TileProduct:
    """A product of int8 or bfloat16 that tiles of a matrix unit multiply, with the roles of its axes."""

    block: BlockInfo
    dot: Dot
    roles: ProductRoles

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The extents of the batch, the rows, the columns and the steps."""
        return self.roles.sizes(self.block)

    @property
    def dtype(self) -> str:
        """The type of the factors, ``"int8"`` for uint8, too."""
        return self.dot.dtype

    @property
    def left(self) -> int:
        """The number of the operand with the rows."""
        return self.dot.left

    @property
    def turned(self) -> bool:
        """Returns whether the steps of the right factor are neighbours in memory, not its columns."""
        return self.roles.by_step(self.roles.right)

    @property
    def in_place(self) -> bool:
        """Returns whether rows and steps of the left factor are one axis each, so that its tiles lie in memory."""
        return len(self.roles.rows) == 1 and len(self.block.reduce) == 1 and self.roles.left.plain

    def run(self, steps: int) -> int:
        """Returns how many of the ``steps`` of a tile are copied at once. They are neighbours in memory, and lie in the
        padding together or not at all; those of a single axis are copied under a mask."""
        return steps if len(self.block.reduce) == 1 else math.gcd(self.block.extents[self.dot.k], steps)


def tile_product(block: BlockInfo) -> TileProduct | None:
    """Returns the roles in a product that tiles of a matrix unit multiply; None for other blocks.

    Padding with zeros may take as much again as the product itself.
    """
    dot, roles = dot_roles(block), product_axes(block)
    if dot is None or roles is None:
        return None
    if block.loads[dot.right] is not roles.right or block.reduce[-1] is not dot.k:
        return None
    product = TileProduct(block, dot, roles)
    _, *sizes = product.sizes
    multiples = (TILE, TILE, TILE_BYTES * dot.word // 4)
    padded = math.prod(up_to_multiple(n, m) for n, m in zip(sizes, multiples, strict=True))
    return None if padded > _PADDED * math.prod(sizes) else product


def up_to_multiple(n: int, m: int) -> int:
    """Returns the least multiple of ``m`` that is not below ``n``."""
    return -(-n // m) * m


def one_axis_each(use: Use) -> bool:
    """Returns whether each index is one axis, or a constant, and each axis one index."""
    axes = [v for dim in use.dims for v in dim or ()]
    return (
        len(set(axes)) == len(axes)
        and all(dim is not None and len(dim) <= 1 for dim in use.dims)
        and (all(step == 1 for dim in use.dims for step in (dim or {}).values()))
    )


def _without(axes: Sequence[Var], *some: Var | None) -> tuple[Var, ...]:
    return tuple(v for v in axes if not any(v is other for other in some))


def dot_factors(body: object) -> tuple[BufferLoad, BufferLoad] | None:
    """Returns the factors of ``C = C + int32(A) * int32(B)`` of int8 and uint8, or of ``C + float32(A) * float32(B)`` of bfloat16.

    They are in the order in which they are written; None for other sums.
    """
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return None
    types, product = _DOT_FACTORS.get(body.value.dtype, ()), body.value.b
    if not isinstance(product, Mul) or not isinstance(body.value.a, BufferLoad):
        return None
    a, b = _widened(product.a, types), _widened(product.b, types)
    return None if a is None or b is None else (a, b)


_DOT_FACTORS = {DType("int32"): ("int8", "uint8"), DType("float32"): ("bfloat16",)}
"""The types of the factors that instructions multiply several of, by the type of the sum."""


def _widened(e: Expr, types: Sequence[str]) -> BufferLoad | None:
    if isinstance(e, Cast) and isinstance(e.value, BufferLoad) and e.value.dtype in types:
        return e.value
    return None


def vector_axes(block: BlockInfo) -> list[Var]:
    """Returns the spatial axes worth a vector, best first. They are contiguous in the result, or contiguous after
    packing and not in the result's innermost place. None of them when every load would have to gather and cannot be
    packed."""
    out: list[Var] = []
    near: list[Var] = []
    wide = [axis for axis in block.spatial if block.extents[axis] > 1]
    for axis in reversed(wide):
        moving = [use for use in block.loads if axis in use.axes()]
        alone = [use for use in moving if use.dim_of(axis) is not None]
        last = axis is wide[-1]
        if (
            last
            and moving
            and (
                (len(moving_loads(block, axis)) == 1 and packable(block, axis))
                or not _reads_rows(block, axis, max([_distance(use, axis) for use in moving]))
            )
        ):
            out.append(axis)
        elif not last and len(moving) == 1 and alone and reuses(block, moving[0]):
            (near if _distance(moving[0], axis) == 1 else out).append(axis)
    last_axis = [axis for axis in out if axis is wide[-1]]
    return [*last_axis, *near, *[axis for axis in out if axis is not wide[-1]]][:2]


def lane_loads(use: Use, vector: Var, lanes: int) -> float:
    """Returns how many instructions it takes to load ``lanes`` elements along the axis ``vector``."""
    return loads_at(use.stride(vector), lanes)


def loads_at(stride: int | None, lanes: int) -> float:
    """Returns how many instructions it takes to load ``lanes`` elements that are ``stride`` elements apart.

    Lanes a few elements apart are picked out of whole vectors, and farther ones are loaded one by one.
    """
    if stride == 0:
        return 1.0
    return float(lanes) if stride is None or abs(stride) > NEAR else 2.0 * abs(stride) - (stride > 0)


def _distance(use: Use, axis: Var) -> float:
    """Returns how many elements neighbours along ``axis`` are apart, in either direction.

    It is infinity where that is not known. Code generation picks lanes out of whole vectors up to a distance of
    :data:`NEAR`.
    """
    stride = use.stride(axis)
    return math.inf if stride is None else float(abs(stride))


_SHORT_ROW = 6
"""Elements of a row from which on it is added up as a vector, in place of vectors across rows."""


def _reads_rows(block: BlockInfo, across: Var, distance: float) -> bool:
    """Returns whether elements along a reduction axis are near one another, and nearer than ``distance``, those along ``across``.

    The axis is at least as long as a vector; less is enough where rows, and what is the same along them, are all that is
    read. No more loads are far apart along it than along ``across``.
    """
    over = [axis for axis in block.reduce if block.extents[axis] > 1]
    limit = min(distance, NEAR + 1)
    rows = len(over) == 1 and all(_distance(use, over[0]) < limit for use in block.loads)
    least = _SHORT_ROW if rows else 16
    gathered = _gathered(block, across)
    return any(
        0 < _distance(use, axis) < limit and _run(block, use, axis) >= least and _gathered(block, axis) <= gathered
        for use in block.loads
        for axis in over
    )


def _gathered(block: BlockInfo, axis: Var) -> int:
    """Returns how many loads have neighbours along ``axis`` that are far apart."""
    return sum(_distance(use, axis) > NEAR for use in block.loads)


def _run(block: BlockInfo, use: Use, axis: Var) -> int:
    """Returns the elements that a reduction reads evenly spaced, along ``axis`` and axes that go on behind its end."""
    run, step = block.extents[axis], _distance(use, axis)
    others = [v for v in block.reduce if v is not axis and block.extents[v] > 1]
    while longer := [v for v in others if _distance(use, v) == step * run]:
        run *= block.extents[longer[0]]
        others.remove(longer[0])
    return run


def reuses(block: BlockInfo, use: Use) -> bool:
    """Returns whether the same element is read for several outputs."""
    return any(block.extents[v] > 1 for v in block.spatial if v not in use.axes())


def moving_loads(block: BlockInfo, vector: Var) -> list[Use]:
    """Returns the loads that depend on ``vector`` and move with the reduction. Others, such as scales of columns, are
    loaded once for a tile."""
    return [use for use in block.loads if vector in use.axes() and not use.axes().isdisjoint(block.reduce)]


def packable(block: BlockInfo, vector: Var) -> list[Use]:
    """Returns the one load that depends on ``vector`` and moves, when each of its indices is a single axis."""
    moving = moving_loads(block, vector)
    if len(moving) != 1 or not (reuses(block, moving[0]) or moving[0].buffer in block.packed_ahead):
        return []
    use = moving[0]
    return [use] if use.plain and sum(1 for other in block.loads if other.buffer is use.buffer) == 1 else []


def loads_fit(block: BlockInfo, vector: Var) -> bool:
    """Returns whether vectors can be loaded without packing."""
    moving = [use for use in block.loads if vector in use.axes()]
    return all(use.stride(vector) == 1 for use in moving) or not packable(block, vector)


def row_group(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> tuple[BlockInfo, ...] | None:
    """Returns the blocks among ``free`` that are computed with ``block``, a reduction, row by row, in program order.

    Only the last one may be read by others, or be a result. None when ``block`` is not such a reduction.
    """
    if not block.is_reduction or block.block.init is None or block.is_joined or not _in_order(block):
        return None
    members = _grow(program, block, free)
    while members:
        last = members[-1]
        inner = [b for b in members if b is not last]
        stray = [b for b in inner if program.is_output(b) or not set(program.consumers(b)) <= set(members)]
        if not stray:
            return tuple(members)
        if block in stray:
            members = [block] if len(members) > 1 else []
        else:
            members = [b for b in members if b not in stray]
    return None


def rows_agree(members: Sequence[BlockInfo], last: BlockInfo, rank: int) -> bool:
    """Returns whether all of ``members`` have the first ``rank`` axes of ``last``, and read each other's rows alone."""
    rows = [last.extents[v] for v in last.spatial[:rank]]
    shared = all(_in_order(b) and [b.extents[v] for v in b.spatial[:rank]] == rows for b in members)
    return shared and _row_by_row(set(members), rank)


def _grow(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> list[BlockInfo]:
    rows = [block.extents[v] for v in block.spatial]
    members = {block}
    grown = True
    while grown:
        grown = False
        for other in free:
            near = any(other in program.producers(m) or other in program.consumers(m) for m in members)
            if other not in members and near and _fits(other, rows) and _row_by_row(members | {other}, len(rows)):
                members.add(other)
                grown = True
    return [b for b in program.blocks if b in members]


def _in_order(block: BlockInfo) -> bool:
    """Returns whether every buffer it writes is written at its spatial axes, in order, and they stand before the
    others."""
    if block.axes != (*block.spatial, *block.reduce):
        return False
    return block.fills_in_order or all(use.is_at(block.spatial, block.extents) for use in block.stores)


def _fits(block: BlockInfo, rows: Sequence[int]) -> bool:
    if not _in_order(block) or not block.axes:  # what follows one element has its own loops, and threads to share them
        return False
    extents = [block.extents[v] for v in block.spatial]
    if block.is_reduction:
        return extents == list(rows) and block.block.init is not None
    return extents[: len(rows)] == list(rows)


def _row_by_row(members: set[BlockInfo], rank: int) -> bool:
    """Returns whether what one member reads of another lies in the same row."""
    written = {use.buffer for b in members for use in b.stores}
    return all(
        [dict(d or {}) for d in use.dims[:rank]] == [{v: 1} for v in b.spatial[:rank]] and not any(use.offsets[:rank])
        for b in members for use in b.loads if use.buffer in written
    )  # fmt: skip
