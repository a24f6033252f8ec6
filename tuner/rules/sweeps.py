"""Element-wise stages, transposes, and stages along rows such as softmax, norms and sums: schedules, costs and rules.

:func:`sweep_elements` makes one parallel loop outside and one vector loop inside. Where the innermost axis strides through an
input in which another axis is contiguous (a transpose), the two are tiled, so that all of a cache line is used before it is
evicted. The tile may be copied to scratch memory first: rows of the input that are a large power of two apart share few sets of
the cache, while rows of the scratch memory do not. A plain copy needs no scratch memory: code generation takes it through
registers, a square at a time. :class:`ElementwiseRule` takes all blocks that are left over.

:func:`sweep_rows` computes all stages of some rows while these are in the cache. A reduction in one
variable waits for each step to be done before the next. So each reduction gets the lanes of several vectors as partial results
of their own (rfactor, a fixed order of summation chosen by the schedule), which horizontal operations add up at the end of the
row. Several rows are computed together: while one waits for its horizontal sum, another continues, and memory delivers many
streams faster than one. :class:`RowReductionRule` finds them.

:func:`reduce_columns` computes vectors of results side by side, each through all steps of its reduction. It is for reductions
whose accesses are not affine, of which no tiles can be made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.lane_offsets import NEAR
from ...schedule import Schedule
from ...tir.analysis.access import Access, accesses
from ...tir.analysis.known_ranges import evaluate
from ...tir.expr import LT, BufferLoad, Call, IntImm, Var
from ...tir.expr.dtype import bytes_each
from ...tir.stmt import BufferStore
from ...tir.walk import pre_order, uses_var, vars_in
from ..cost.axis_roles import loads_at, row_group
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.loop_nest import Nest, NestAccess, NestLoop, read_anywhere, shape_of, steps_through, swept_bytes
from ..cost.machine_model import MachineModel, crowding, worth_threads
from ..cost.walker import Walk, WalkedLoop, added, most
from ..loop_steps import by_lanes, extent_of, fuse_all, loops_of_axis, loops_within, realize_of, unroll_factor
from ..program import BlockInfo, ProgramInfo, Use, affine, copies, periods_of
from .multi_level_tiling import outer_sums
from .schedule_rule import Decision, Group, Part, ScheduleRule


@dataclass(frozen=True)
class ElementSweep:
    """The parameters of a sweep over elements.

    ``width`` elements are computed per iteration, as vectors of ``lanes`` elements, 0 for one of all. ``fused``: the loops
    become one first, or the innermost ``together`` of them. ``across`` is the number of the loop that is tiled with the
    innermost one, ``tile`` rows at a time, after as many as ``joined`` loops outside it became one with it;
    ``staged`` names an input whose part for a tile is copied to scratch memory; ``turned`` tells which dimension of the copy
    each axis of the block is, so that the copy lies as the axes do and rows are read in order. ``place``: the number of
    the place that is copied where the block reads the input at several; the copy lies as the axes do. ``shared``: the threads share the loops
    outside the innermost one, and that one, too, where the others have fewer iterations than ``tasks``. ``unrolled``: the
    steps along a row are written out, so that conditions on the innermost axis are known in each.
    """

    width: int
    lanes: int = 0
    fused: bool = False
    together: int = 1
    across: int | None = None
    joined: int = 0
    tile: int = 1
    staged: str = ""
    turned: tuple[int, ...] = ()
    place: int | None = None
    shared: bool = False
    tasks: int = 0
    unrolled: bool = False


def sweep_elements(sch: Schedule, block: Any, sweep: ElementSweep) -> Any:
    """Schedule ``block``; returns the loop over vectors, which lies outside the rows of a tile."""
    block = sch.get_block(block) if isinstance(block, str) else block
    order = list(sch.get_loops(block))
    if sweep.fused:
        order = [fuse_all(sch, order)]
    elif sweep.together > 1:
        order[-sweep.together :] = [fuse_all(sch, order[-sweep.together :])]
    place = next((n for n in reversed(range(len(order))) if extent_of(sch, order[n]) != 1), -1)
    step, lanes = sch.split(order.pop(place), [None, sweep.width])
    within: list[Any] = []
    if sweep.across is not None:
        first = sweep.across - sweep.joined
        order[first : sweep.across + 1] = [fuse_all(sch, order[first : sweep.across + 1])]
        order[first], inside = sch.split(order[first], [None, sweep.tile])
        within = [inside]
    sch.reorder(*order, step, *within, lanes)
    many = True
    if sweep.shared:
        many = bool(order) and math.prod(extent_of(sch, loop) for loop in order) >= sweep.tasks
        shared = fuse_all(sch, order if many else [*order, step])
        sch.parallel(shared)
        step = step if many else shared
    if sweep.unrolled and many:
        sch.unroll(step)
    if sweep.staged:
        if sweep.place is None:
            copy = sch.cache_read(block, sweep.staged, "local", consumer_blocks=[block])
        else:
            copy = sch.reindex(block, sweep.staged, place=sweep.place)
            sch.set_scope(copy, 0, "local")
        if sweep.turned:
            names = [f"i{n}" for n in range(len(sweep.turned))]
            moved = ", ".join([names[n] for n in sweep.turned])
            sch.transform_layout(copy, ("write", 0), f"lambda {', '.join(names)}: ({moved},)")
        sch.compute_at(copy, step)
        if sweep.turned:
            sch.reorder(*_in_order_of(sch, copy, step, sweep.turned))
        sch.vectorize(loops_within(sch, copy, step)[-1])
    if 0 < sweep.lanes < sweep.width:
        vector, lanes = sch.split(lanes, [None, sweep.lanes])
        sch.unroll(vector)
    sch.vectorize(lanes)
    return step


def _in_order_of(sch: Schedule, copy: Any, step: Any, dims: Sequence[int]) -> list[Any]:
    """Returns the loops of a copy inside ``step`` in the order of the dimensions ``dims`` of what it reads."""
    loops = loops_within(sch, copy, step)
    return [loop for d in dims for loop in loops_of_axis(sch, copy, loops, d)]


@dataclass(frozen=True)
class RowSweep:
    """The parameters of a sweep over rows.

    ``rank``: how many leading axes count the rows. ``rows`` are computed together, each with ``accumulators`` vectors of
    partial results of ``lanes`` elements; ``vectors`` of the element-wise stages are computed per iteration; ``unroll``:
    steps of a reduction per iteration. ``rows_inside``: element-wise stages take a vector of all rows after the other,
    so that what all rows share is loaded once. ``shared``: the threads share the rows.
    """

    lanes: int
    rank: int = 1
    rows: int = 1
    accumulators: int = 1
    vectors: int = 1
    unroll: int = 1
    rows_inside: bool = False
    shared: bool = False


@dataclass
class _Stage:
    """A block of the sweep; ``kind``: ``partial``, ``finish`` (what adds partial results up), ``reduce`` or ``map``.

    ``kept``: registers hold the elements of a row that it stores; ``written_out``: its steps along a row are.
    """

    name: str
    kind: str
    block: Any
    kept: bool = False
    written_out: bool = False


def sweep_rows(sch: Schedule, blocks: Sequence[str], sweep: RowSweep, at: Any = None) -> dict[str, Any]:
    """Schedule ``blocks``, in program order, in the loop ``at``. Without one the last block has the loops over rows, in
    which the others are computed.

    Returns, by the names of the blocks, the innermost serial loops over a row, where there are such loops; the loop over
    groups of rows is named ``""``.
    """
    stages = [stage for name in blocks for stage in _stages(sch, name, sweep)]
    last = stages[-1] if at is None else None
    if last is not None:
        at = _groups_of_rows(sch, last.block, sweep)
    if at is not None:
        for stage in reversed(stages):
            if stage is not last:
                # a loop over one vector stays: the row of another size has more of them
                sch.compute_at(stage.block, at, preserve_unit_loops=sweep.rows > 1 or stage.kind == "partial")
    steps = {"": at}
    _keep_short_rows(sch, stages, at, sweep)
    for stage in stages:
        step = _finish(sch, stage, at, sweep, is_last=stage is last)
        if step is not None:
            steps[stage.name] = step
    return steps


_KEPT_VECTORS = 4
"""The vectors of a row up to which registers keep the elements that a stage stores for later ones."""

_FORWARDING = 5.0
"""The cycles from the store of a vector to its use by a load of a later stage of the same short row."""

_KEPT_AT_A_TIME = 16
"""The vectors of all rows at a time up to which registers keep them."""


def _keep_short_rows(sch: Schedule, stages: Sequence[_Stage], at: Any, sweep: RowSweep) -> None:
    """Let registers hold short rows that element-wise stages store for later ones; all short stages are written out."""
    if at is None:
        return
    names = [sch.get(stage.block).name_hint for stage in stages]
    short = dict(zip(names, [_is_short(sch, stage, at, sweep) for stage in stages], strict=True))
    kept = False
    for name, stage in zip(names, stages, strict=True):
        if stage.kind == "map" and stage is not stages[-1] and short[name]:
            readers = [sch.get(block).name_hint for block in sch.get_consumers(stage.block)]
            stage.kept = bool(readers) and all(short.get(reader, False) for reader in readers)
            stage.kept = stage.kept and sch.get(stage.block).writes[0].buffer not in sch.func.buffer_map.values()
            kept |= stage.kept
    for name, stage in zip(names, stages, strict=True):
        stage.written_out = kept and short[name]


def _is_short(sch: Schedule, stage: _Stage, at: Any, sweep: RowSweep) -> bool:
    """Returns whether a row of the stage is a few vectors, and several elements."""
    size = math.prod([extent_of(sch, loop) for loop in loops_within(sch, stage.block, at)]) / sweep.rows
    vectors = math.ceil(size / sweep.lanes)
    few = vectors <= _KEPT_VECTORS and vectors * sweep.rows <= _KEPT_AT_A_TIME
    return size > 0 and few and len(sch.get(stage.block).writes) == 1


def _groups_of_rows(sch: Schedule, block: Any, sweep: RowSweep) -> Any:
    """Returns the loop over groups of rows of ``block``; None when it has no rows."""
    loops = list(sch.get_loops(block)[: sweep.rank])
    if not loops:
        return None
    if sweep.rows > 1:
        loops[-1], _ = sch.split(loops[-1], [None, sweep.rows])
    if not sweep.shared:  # each loop then has checks of its own, on its own variable
        return loops[-1]
    at = fuse_all(sch, loops)
    sch.parallel(at)
    return at


def _stages(sch: Schedule, name: str, sweep: RowSweep) -> list[_Stage]:
    """Returns what runs within a row for a block; partial results come before the stage that adds them up."""
    block = sch.get_block(name)
    info = sch.get(block)
    loops = sch.get_loops(block)[sweep.rank :]
    reduced = [iv.dom.extent for iv in info.iter_vars if iv.kind == "reduce"]
    if not reduced:
        return [_Stage(name, "map", block)]
    extents = [extent.value if isinstance(extent, IntImm) else 0 for extent in reduced]
    size, width = math.prod(extents), sweep.accumulators * sweep.lanes
    reduction = BlockInfo(realize_of(sch, name))
    short = size <= sweep.lanes
    if len(info.writes) > 1 or size * _FEWEST_LANES <= sweep.lanes or (short and _in_a_run(reduction) < len(extents)):
        return [_Stage(name, "reduce", block)]
    extent, last = [(extent, loop) for extent, loop in zip(extents, loops, strict=True) if extent > 1][-1]
    joined = _joined(reduction, extents, width, sweep.lanes)
    if short:  # one vector, of which the row may leave lanes out
        last, extent = fuse_all(sch, loops), 1 << (size - 1).bit_length()
    elif joined > 1:
        last, extent = fuse_all(sch, loops[-joined:]), math.prod(extents[-joined:])
    partial = by_lanes(sch, block, last, min(width, extent), sweep.rank)
    return [_Stage(name, "partial", partial), _Stage(name, "finish", block)]


def _joined(block: BlockInfo, extents: Sequence[int], width: int, lanes: int) -> int:
    """Returns how many of the innermost reduced axes become one, so that vectors stay full where these are short.

    ``width`` are the elements that are added up side by side, and ``extents`` those of the axes; 0 for symbolic ones.
    """
    joined = _in_a_run(block)
    extent, run = next((e for e in reversed(extents) if e > 1), 1), math.prod(extents[-joined:])
    if math.prod(extents) <= lanes:
        return joined
    if not (extent % width and extent < min(2 * width, run)):
        return 1
    if not (run % width == 0 or (extent < lanes and run >= width)):
        return 1
    fixed = width % extent == 0 or (extent < lanes and run <= 4 * width)  # each lane knows its place
    return joined if fixed or not block.computes_with_reduced else 1


def _in_a_run(block: BlockInfo) -> int:
    """Returns how many of the innermost reduced axes lie one within the other in all that a block reads."""
    count = 1
    while count < len(block.reduce) and _lie_in_line(block, block.reduce[-count - 1 :], block.loads):
        count += 1
    return count


def _lie_in_line(block: BlockInfo, axes: Sequence[Var], uses: Sequence[Use]) -> bool:
    """Returns whether the axes of several values lie one within the other in all of ``uses``."""
    over = [axis for axis in axes if block.extents[axis] > 1]
    for use in uses:
        steps = [use.stride(axis) for axis in over]
        for outer, inner, axis in zip(steps, steps[1:], over[1:], strict=False):
            if outer is None or inner is None or outer != inner * block.extents[axis]:
                return False
    return True


_FEWEST_LANES = 4
"""The share of a vector, one of so many, that a row fills at the least where its elements are added up as a vector."""


def _finish(sch: Schedule, stage: _Stage, at: Any, sweep: RowSweep, *, is_last: bool) -> Any:
    """Vectorize a stage; returns its innermost serial loop over a row, or None."""
    block, kind = stage.block, stage.kind
    loops = loops_within(sch, block, at)
    first = int(kind in ("partial", "finish"))  # their axis 0 are the lanes of the partial results
    rows = [loop for axis in range(first, first + sweep.rank) for loop in loops_of_axis(sch, block, loops, axis)]
    inside = [loop for loop in loops if all(loop is not row for row in rows)]
    if kind == "map":
        info = BlockInfo(realize_of(sch, sch.get(block).name_hint))
        along = info.spatial[sweep.rank :]
        apart = len(along) > 1 and info.extents[along[-1]] >= _APART * sweep.lanes
        apart = apart and not _lie_in_line(info, along, (*info.loads, *info.stores))
        step = _vectorize_columns(sch, rows, inside, sweep, apart=apart, written_out=stage.written_out)
        if stage.kept and inside:
            sch.set_scope(block, 0, "local")
        return step
    if kind == "partial":
        return _vectorize_lanes(sch, block, rows, inside, sweep, written_out=stage.written_out)
    if rows and inside:
        sch.reorder(*rows, *inside)
    if is_last and kind == "finish":  # nothing else runs meanwhile
        for row in rows:
            sch.vectorize(row)
    else:
        _unroll_rows(sch, rows, sweep)
    if kind == "finish":
        sch.annotate(inside[-1], "tir.horizontal_reduce", 1)
    elif rows and not is_last:  # a row no longer than a vector
        for loop in inside:
            unroll_factor(sch, loop, sweep.lanes)
    if not is_last:
        sch.set_scope(block, 0, "local")
    return None


def _vectorize_columns(
    sch: Schedule,
    rows: list[Any],
    inside: list[Any],
    sweep: RowSweep,
    *,
    apart: bool = False,
    written_out: bool = False,
) -> Any:
    """Fuse the loops of an element-wise stage within a row and vectorize them; a row of one element stays.

    With ``apart`` the innermost loop alone is vectorized: the others do not lie in line with it in all arrays.
    """
    if not inside:
        _unroll_rows(sch, rows, sweep)
        return None
    columns = fuse_all(sch, inside[-1:] if apart else inside)
    size = extent_of(sch, columns)
    if size <= 1:
        return None
    if apart and rows:
        sch.reorder(*rows, *inside[:-1], columns)
    step, lanes = sch.split(columns, [None, min((1 if written_out else sweep.vectors) * sweep.lanes, size)])
    if written_out:
        if rows and extent_of(sch, step) == 1:
            sch.reorder(step, *rows, lanes)  # the row of another size has more vectors
        _unroll_rows(sch, rows, sweep)
        sch.unroll(step)
        sch.vectorize(lanes)
        return None
    if rows and sweep.rows_inside:
        sch.reorder(step, *rows, lanes)
        _unroll_rows(sch, rows, sweep)
    sch.vectorize(lanes)
    return step


_APART = 2
"""The vectors of an innermost axis from which on it is not joined with others that do not lie in line with it."""


def _unroll_rows(sch: Schedule, rows: Sequence[Any], sweep: RowSweep) -> None:
    """Unroll the rows that are computed at a time. A stage keeps the loop over rows that its consumers read besides."""
    for row in rows:
        if extent_of(sch, row) <= sweep.rows:
            sch.unroll(row)


def _vectorize_lanes(
    sch: Schedule, block: Any, rows: list[Any], inside: list[Any], sweep: RowSweep, *, written_out: bool = False
) -> Any:
    """Put the loops over the row outside, then the rows at hand, unrolled, and the lanes of the partial results."""
    (lanes,) = loops_of_axis(sch, block, inside, 0)
    over = [loop for loop in inside if loop is not lanes]
    steps = [loop for loop in over if extent_of(sch, loop) != 1]
    if steps or (over and sweep.rows > 1):
        sch.reorder(*over, *rows, lanes)
        init = sch.decompose_reduction(block, over[0])
        *around, start = sch.get_loops(init)
        _unroll_rows(sch, [*rows, *around[len(around) - len(rows) :]], sweep)
        if written_out:
            for loop in over:
                sch.unroll(loop)
        else:
            unroll_factor(sch, (steps or over)[-1], sweep.unroll)
        sch.vectorize(start)
    elif over:
        sch.reorder(*over, *rows, lanes)  # the row of another size has more vectors
    sch.vectorize(lanes)
    sch.set_scope(block, 0, "local")
    return (steps or over)[-1] if over and not written_out else None


_WRITTEN_OUT = 128
"""The number of vectors in a row up to which its steps are written out."""


_REST = 8.0
"""The cycles of a part of a row that is less than a step: its masks, and code of its own."""


class ElementwiseRule(ScheduleRule):
    """This rule takes any block by itself. Reductions are only made parallel over their spatial axes."""

    name = "elementwise"
    priority = 90

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        if group.anchor.is_reduction or not group.anchor.spatial:
            return [PlainPart(group.anchor, machine)]
        part = ElementwisePart(group.anchor, machine)
        return [part, ElementwisePart(group.anchor, machine, wide=True)] if part.may_be_wide() else [part]


def _is_flat(block: BlockInfo) -> bool:
    """Returns whether every access is contiguous in the order of the loops."""
    for use in (*block.stores, *block.loads):
        if not use.dims:
            continue
        if not use.fills(block.spatial, block.extents):
            return False
    return True


_IN_LINE = 8
"""The most vectors that short axes make together."""


def _in_line(block: BlockInfo, lanes: int) -> int:
    """Returns how many of the last axes make one that is at least a vector.

    They lie one within the other in all arrays; together they are a few vectors, or whole ones, which are divided evenly.
    """
    uses, count, size = accesses(block.block.body), 1, block.extents[block.spatial[-1]]
    while size < lanes and count < len(block.spatial):
        outer, inner = block.spatial[-count - 1], block.spatial[-1]
        extent = block.extents[outer]
        steps = [(_step_of(use, outer), _step_of(use, inner)) for use in uses]
        fits = size * extent <= _IN_LINE * lanes or size * extent % lanes == 0
        if not fits or any(a is None or b is None or a != b * size for a, b in steps):
            return 1
        count, size = count + 1, size * extent
    return count if size >= lanes else 1


def _step_of(access: Access, axis: Var) -> int | None:
    """Returns how many elements one step of ``axis`` moves, whatever other axes do; None when that is not known."""
    total, stride = 0, 1
    for index, extent in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
        form = affine(index)
        if not isinstance(extent, IntImm) or (form is None and uses_var(index, axis)):
            return None
        total += 0 if form is None else form.terms.get(axis, 0) * stride
        stride *= extent.value
    return total


def _fill_a_vector(block: BlockInfo, lanes: int) -> int:
    """Returns how many of the last axes together have as many elements as a vector, or all of them."""
    size = 1
    for count, axis in enumerate(reversed(block.spatial), 1):
        size *= block.extents[axis]
        if size >= lanes:
            return count
    return len(block.spatial)


def _joins(use: Use, block: BlockInfo, count: int) -> bool:
    """Returns whether the last ``count`` axes lie one within the other, as one contiguous axis, in an array."""
    size = 1
    for axis in reversed(block.spatial[-count:]):
        if block.extents[axis] > 1 and use.step(axis) != size:
            return False
        size *= block.extents[axis]
    return True


def _innermost(block: BlockInfo) -> Var:
    """Returns the last spatial axis that has more than one value; the last one where none has."""
    return next((v for v in reversed(block.spatial) if block.extents[v] != 1), block.spatial[-1])


def _transposed(block: BlockInfo) -> tuple[Var, Use] | None:
    """Returns an input through which the innermost axis strides, and the axis that is contiguous in it."""
    inner = _innermost(block)
    for use in block.loads:
        if (use.step(inner) or 0) > NEAR:
            for axis in block.spatial:
                if axis is not inner and use.step(axis) == 1 and block.extents[axis] > 1:
                    return axis, use
    return None


def _whole_between(block: BlockInfo) -> int:
    """Returns the greatest number that divides all places at which a condition on the innermost axis alone changes.
    Such places are those between the parts of a concatenation. It is 0 where there is no condition, or another one."""
    out, inner = 0, _innermost(block)
    for node in pre_order(block.block.body):
        if isinstance(node, Call) and node.op == "tir.if_then_else":
            e = node.args[0]
            if not isinstance(e, LT) or e.a is not inner or not isinstance(e.b, IntImm):
                return 0
            out = math.gcd(out, int(e.b.value))
    return out


_LONGEST_PERIOD = 16
"""The number of vectors up to which a period of indices is one iteration."""


def _vectors_of_a_period(block: BlockInfo, axes: Sequence[Var], lanes: int) -> int:
    """Returns after how many vectors along neighbouring ``axes`` the lanes of ``i % 3`` or ``i // 3`` repeat.

    In iterations of so many vectors the place of each lane is known. It is 0 where that is too late.
    """
    period, size, periods = lanes, 1, periods_of(block)
    for axis in reversed(axes):
        period = math.lcm(period, *[size * n for n in (1, *periods[block.axes.index(axis)])])
        size *= block.extents[axis]
    return period // lanes if period <= _LONGEST_PERIOD * lanes else 0


_SIDE_BY_SIDE, _CHAINED = 4, 32
"""The vectors that hide how long the operations of an element wait for each other, where there are more of these than 32."""


def _whole_periods(unit: int) -> list[int]:
    """Returns numbers of vectors that an iteration may take, all of which are multiples of ``unit``."""
    return sorted({unit * max(1, n // unit) for n in (1, 2, 4, 8)})


_NEAR_ROW = 4096
"""The bytes of a row in which lanes at any places do not wait for each other's lines."""


class ElementwisePart(Part):
    """This part makes one parallel loop outside and one vector loop inside. Its decision is ``vectors`` per iteration;
    for a transpose also ``tile``, the rows of a tile, and ``staged``, whether it is copied to scratch memory first.

    A row of parts, each of whole vectors, is written out (``apart``), so that no condition is left. With ``wide`` so many
    short axes are joined that they fill a vector, and the arrays in which they do not lie in line are gathered.
    """

    structure = ("vectors", "tile", "staged")

    def __init__(self, block: BlockInfo, machine: MachineModel, *, wide: bool = False) -> None:
        self.block, self.machine, self.wide = block, machine, wide
        self.lanes = machine.lanes(block.itemsize)
        self.parallel = worth_threads(machine, [block])
        self.flat = _is_flat(block)
        found = None if self.flat else _transposed(block)
        self.across: Var | None = None if found is None else found[0]
        self.jumping: Use | None = None if found is None else found[1]
        self.name = ("transpose_" if self.across is not None else "map_wide_" if wide else "map_") + block.name
        self.joined = 0
        self.copies = isinstance(block.block.body, BufferStore) and isinstance(block.block.body.value, BufferLoad)
        self.conditional = any(isinstance(n, Call) and n.op == "tir.if_then_else" for n in pre_order(block.block.body))
        self.together = 1 if self.flat or self.across is not None or self.conditional else _in_line(block, self.lanes)
        if wide:
            self.together = _fill_a_vector(block, self.lanes)
        self.inner = block.spatial_size if self.flat else block.extents[_innermost(block)]
        if self.together > 1:
            self.inner = math.prod(block.extents[v] for v in block.spatial[-self.together :])
        along = block.spatial[-self.together :] if wide else (_innermost(block),)
        self.unit = 1 if self.flat else _vectors_of_a_period(block, along, self.lanes) or 1
        vectors = up_to(math.ceil(self.inner / self.lanes), *_whole_periods(self.unit))
        if (
            self.flat and len(block.spatial) > 1
        ) or self.together > 1:  # without a part that is left, if there are such
            even = tuple([v for v in vectors if self.inner % (v * self.lanes) == 0])
            if self.flat and even and even[-1] < _SIDE_BY_SIDE and block.operations > _CHAINED:
                even = vectors  # a part is left
            vectors = even or (vectors if self.flat else (math.ceil(self.inner / self.lanes),))
        if self.copies and self.across is not None:
            self.joined = self._neighbours(self.across)
        if self.copies and self.across is not None:  # squares leave no part of a vector to another loop
            vectors = tuple(v for v in vectors if v * self.lanes <= self.inner) or vectors[:1]
        between = _whole_between(block)
        whole = tuple(v for v in vectors if between % (v * self.lanes) == 0)
        self.apart = self.conditional and not wide and bool(whole) and between > 0 and self.across is None
        self.apart = self.apart and self.inner <= _WRITTEN_OUT * self.lanes and self.inner % self.lanes == 0
        self.decisions = (Decision("vectors", whole if self.apart else vectors),)
        if self.across is not None:
            place = block.spatial.index(self.across)
            length = math.prod(block.extents[v] for v in block.spatial[place - self.joined : place + 1])
            self.decisions += (Decision("tile", up_to(length, 4, 8, 16, 32, 64)),)
            if self._may_stage():
                self.decisions += (Decision("staged", (0, 1)),)

    def may_be_wide(self) -> bool:
        """Returns whether the innermost axis fills half a vector at most, and others lie in line with it in results."""
        block = self.block
        if self.flat or self.together > 1 or self.across is not None or 2 * self.inner > self.lanes:
            return False
        count = _fill_a_vector(block, self.lanes)
        return (
            count > 1
            and _vectors_of_a_period(block, block.spatial[-count:], self.lanes) > 0
            and all(_joins(use, block, count) for use in block.stores)
        )

    def _neighbours(self, across: Var) -> int:
        """Returns how many axes, with the short one inside them, lie as one axis in all arrays."""
        block, size = self.block, self.block.extents[across]
        place = first = block.spatial.index(across)
        if size >= self.lanes or _innermost(block) in block.spatial[:place]:
            return 0
        uses = (*block.stores, *block.loads)
        while first > 0:
            steps = [(use.stride(block.spatial[first - 1]), use.stride(across)) for use in uses]
            if any(outer is None or inner is None or outer != inner * size for outer, inner in steps):
                break
            first -= 1
            size *= block.extents[block.spatial[first]]
        return place - first

    def _may_stage(self) -> bool:
        """Returns whether each dimension of the input is read by an axis of its own, and may be copied."""
        if self.conditional and self._place is not None:  # it may lie outside of the input
            return False
        return self.joined == 0 and self.jumping is not None and all(len(dim or {}) == 1 for dim in self.jumping.dims)

    @property
    def _place(self) -> int | None:
        """Returns the number of the staged place of an input among those that are read.

        None where the part that is read is copied as it lies: by plain copies, and where that part depends on conditions.
        """
        if self.jumping is None:
            return None
        places = [use for use in self.block.loads if use.buffer is self.jumping.buffer]
        if self.copies or (self.conditional and len(places) == 1):
            return None
        return next(n for n, use in enumerate(places) if use is self.jumping)

    @property
    def _turned(self) -> tuple[int, ...]:
        """Returns the dimensions of the staged input in the order of the block's axes; none where its place is copied."""
        assert self.jumping is not None
        if self.copies or self._place is not None:
            return ()
        axes = [next(iter(dim or {})) for dim in self.jumping.dims]
        return tuple(sorted(range(len(axes)), key=lambda d: self.block.axes.index(axes[d])))

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        if "staged" not in columns:
            return np.ones(rows, dtype=bool)
        scratch = columns["tile"] * columns["vectors"] * self.machine.vector_bytes
        return np.asarray((columns["staged"] == 0) | (scratch <= self.machine.l1_bytes / 2))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        staged = self.jumping.buffer.name if row.get("staged") and self.jumping is not None else ""
        sweep = ElementSweep(
            min(row["vectors"] * self.lanes, self.inner), fused=self.flat, together=self.together, staged=staged, tile=row.get("tile", 1),
            turned=self._turned if staged else (), place=self._place if staged else None,
            across=None if self.across is None else self.block.spatial.index(self.across), joined=self.joined,
            shared=self.parallel, tasks=2 * self.machine.cores, unrolled=self.apart,
        )  # fmt: skip
        sweep_elements(sch, self.block.name, sweep)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, block = self.machine, self.block
        strided = [u for u in block.loads if self._is_strided(u)]
        walk = self._walk(columns, rows, strided)
        counts = walk.counts()
        vectors, around = walk.steps * walk.vectors, block.spatial_size / self.inner
        if self.copies and self.jumping is not None:  # the loops are those over squares
            counts["load_cycles"] = np.zeros(rows)
            counts["loop_cycles"] = 1.5 * walk.steps + np.where(walk.steps > around, 12.0, 4.0) * around
        moved = float(block.array_bytes)
        tile, staged = columns.get("tile", np.ones(rows)), columns.get("staged", np.zeros(rows))
        waiting = np.zeros(rows)
        for use in strided:
            counts["load_cycles"] = counts["load_cycles"] + vectors * self.lanes * self._gathered(use, columns, staged)
        if self.across is not None:
            run = np.ceil(tile * block.itemsize / machine.line_bytes)
            wait = np.maximum(0.0, machine.jump_cycles - run * machine.line_bytes / machine.l3_bytes_per_cycle)
            waiting = waiting + len(strided) * float(moved > machine.l2_bytes) * wait * block.spatial_size / tile
            lines = np.maximum(1.0, 16.0 / tile)
            traffic = {
                name: lines * value
                for name, value in swept_bytes(moved, machine, beyond=block.bytes_from_beyond).items()
            }
        else:
            apart = sum([buffer.num_bytes() or 0 for buffer in {use.buffer for use in strided}])
            traffic = swept_bytes(moved, machine, beyond=block.bytes_from_beyond)
            traffic = added(
                [
                    {name: value * (1 - apart / max(moved, 1.0)) for name, value in traffic.items()},
                    *[self._moved(use, rows) for use in strided],
                ]
            )
            jump = machine.jump_cycles - machine.line_bytes / machine.l3_bytes_per_cycle
            waiting = jump * traffic.pop("jumps", waiting)
        width = np.minimum(columns["vectors"] * self.lanes, self.inner)
        counts["loop_cycles"] = counts["loop_cycles"] + _REST * around * (np.mod(self.inner, width) > 0)
        if self.conditional and not self.apart:  # what the last vector of a row has is not known before
            counts["loop_cycles"] = counts["loop_cycles"] + 15.0 * around * (walk.steps > around)
        tasks = float(max(1, block.spatial_size // max(1, self.inner)))
        return Costs(rows).put(
            **counts, **traffic,
            jump_cycles=waiting,
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            columns=columns["vectors"],
            strided=float(len(strided)),
            tile_a=tile,
            packed=staged,
            tasks=(tasks if tasks >= 2 * machine.cores else np.maximum(1.0, walk.steps)) if self.parallel else 1.0,
            column_extent=float(self.inner),
        )  # fmt: skip

    def _walk(self, columns: Mapping[str, np.ndarray], rows: int, strided: Sequence[Use]) -> Walk:
        """Returns the loops: a vector, the rows of a tile, steps along the innermost axis, and what is outside."""
        inner, width = _innermost(self.block), np.minimum(columns["vectors"] * self.lanes, self.inner)
        tile = columns.get("tile", np.ones(rows))
        loops = [WalkedLoop(inner, width, written_out=True)]
        if self.across is not None:
            loops.append(WalkedLoop(self.across, tile))
        loops.append(WalkedLoop(inner, ceil_div(self.inner, width)))
        outside = [v for v in self.block.spatial if v is not inner]
        loops.append(WalkedLoop(outside[-1] if outside else inner, self.block.spatial_size / self.inner / tile))
        return Walk(
            self.block, self.machine, loops, rows, vector=inner, lanes=self.lanes, periodic=self.unit > 1,
            elsewhere=strided,
        )  # fmt: skip

    def _moved(self, use: Use, rows: int) -> dict[str, np.ndarray]:
        """Returns, by name, the bytes that an input of far lanes moves between caches.

        ``jumps`` are the lines from beyond the second-level cache for which lanes wait. An index that is not affine is
        taken to go evenly through its dimension.
        """
        block, machine, inner = self.block, self.machine, _innermost(self.block)
        shape = shape_of(use.buffer)
        dims = steps_through(use, block.extents, machine.line_bytes // block.itemsize)
        outside = [v for v in reversed(block.spatial) if v is not inner]
        loops = [NestLoop(inner, np.ones(rows) * min(self.lanes, self.inner))]
        loops.append(NestLoop(inner, np.ones(rows) * ceil_div(self.inner, self.lanes)))
        loops += [NestLoop(v, np.ones(rows) * block.extents[v]) for v in outside]
        access = NestAccess(dims, bytes_each(use.buffer.dtype), shape=shape, anywhere=read_anywhere(use))
        nest = Nest(loops, [access], block.extents, rows)
        size = float(use.buffer.num_bytes() or 0)

        def into(cache: float) -> np.ndarray:
            found = nest.traffic(cache)
            return np.minimum(found, size) if size <= cache / 2 else found

        in_a_row = all(not dim.get(inner) for dim in dims[:-1]) and shape[-1] * block.itemsize <= _NEAR_ROW
        late = into(machine.l2_bytes)
        return {
            "l2_bytes": into(machine.l1_bytes), "l3_bytes": late, "memory_bytes": into(machine.l3_bytes),
            "jumps": np.zeros(rows) if in_a_row else late / machine.line_bytes,
        }  # fmt: skip

    def _is_strided(self, use: Use) -> bool:
        """Returns whether the lanes of a vector of ``use`` lie far apart, or at places that are not known."""
        if self.wide:
            together = self.block.spatial[-self.together :]
            return not _joins(use, self.block, self.together) and any(use.step(v) != 0 for v in together)
        step = use.step(_innermost(self.block))
        return step > NEAR if step is not None else self.unit == 1

    def _gathered(self, use: Use, columns: Mapping[str, np.ndarray], staged: np.ndarray) -> np.ndarray:
        """Returns the cycles in which an element of an input with strides is loaded."""
        stride = abs(use.step(_innermost(self.block)) or 1) * self.block.itemsize
        if self.copies and use is self.jumping:  # squares go through registers, and no line is needed twice
            # but squares side by side in the result store to lines that lie in two of them, and may be evicted between
            return np.where(staged > 0, 0.45, 0.3) + 0.06 * (columns["vectors"] - 1)
        crowd = np.minimum(1.0, columns["vectors"] * self.lanes / self.machine.l1_ways)
        return np.where(staged > 0, 0.45, 0.5 + 2.5 * math.gcd(stride, 4096) / 4096 * crowd)


class PlainPart(Part):
    """This part fuses the spatial loops into one parallel loop; it has no decisions."""

    decisions = ()

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.parallel = worth_threads(machine, [block])
        self.name = f"plain_{block.name}"

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        if self.parallel and self.block.spatial:
            loops = sch.get_loops(sch.get_block(self.block.name))
            spatial = [loop for loop, axis in zip(loops, self.block.axes, strict=True) if axis in self.block.spatial]
            if list(loops[: len(spatial)]) == spatial:
                sch.parallel(fuse_all(sch, spatial))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        block = self.block
        loops = [WalkedLoop(v, np.full(rows, float(block.extents[v]))) for v in reversed(block.axes)]
        walk = Walk(block, self.machine, loops, rows, vector=None, lanes=1)
        moved = float(block.array_bytes)
        return Costs(rows).put(
            **walk.counts(),
            **swept_bytes(moved, self.machine, beyond=block.bytes_from_beyond),
            flops=self.block.flops,
            regions=float(self.parallel),
            tasks=float(max(1, self.block.spatial_size)) if self.parallel else 1.0,
        )


class RowReductionRule(ScheduleRule):
    """This rule takes blocks that share their leading axes (the rows), of which at least one reduces the other axes."""

    name = "row_reduction"
    priority = 20

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        members = row_group(program, block, free)
        if members is None:
            return None
        before = [b for b in members if b is not block]
        if members[-1] is block and not any(b.is_reduction or len(b.axes) > len(block.spatial) for b in before):
            members = (block,)  # values of rows alone that are made before are vectors by themselves
        while members[-1] is not block and _is_better_apart(members[-1], block):
            members = members[:-1]
        while members[0] is not block and _fills_few_lanes(members[0], block):
            members = members[1:]
        return Group(block, members)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        parts: list[Part] = [RowPart(group, machine)]
        alone = len(group.blocks) == 1 or _is_copied_out(group)
        if alone and _may_have_columns(group.anchor, machine):
            parts.append(ColumnPart(group, machine))
        return parts


_COSTLY, _MANY_ROWS = 8, 16
"""The operations of a value from which on, and the number of rows for which, vectors of values of rows pay for a loop of their own."""


def _is_better_apart(last: BlockInfo, block: BlockInfo) -> bool:
    """Returns whether what follows the rows of ``block`` makes one costly number of each row: vectors of these are faster."""
    alone = not last.is_reduction and len(last.spatial) == len(block.spatial)
    return alone and last.operations >= _COSTLY and last.spatial_size >= _MANY_ROWS


_HALF_A_VECTOR = 32
"""The bytes of a row up to which the functions of its elements are computed along all rows, and stored."""


def _fills_few_lanes(first: BlockInfo, block: BlockInfo) -> bool:
    """Returns whether costly elements that the rows of ``block`` begin with fill few lanes of a vector in each row."""
    size = math.prod(first.extents[v] for v in first.spatial[len(block.spatial) :])
    costly = not first.is_reduction and first.operations >= _COSTLY and first.spatial_size >= _MANY_ROWS * size
    return costly and size * first.itemsize <= _HALF_A_VECTOR


def _is_copied_out(group: Group) -> bool:
    """Returns whether a reduction is followed by a copy of its results alone, in their order."""
    if len(group.blocks) != 2 or group.blocks[0] is not group.anchor:
        return False
    block, copy = group.blocks
    axes, extents = copy.spatial, [copy.extents[v] for v in copy.spatial]
    return (
        copies(copy)
        and extents == [block.extents[v] for v in block.spatial]
        and block.writes_in_order
        and copy.loads[0].buffer is block.stores[0].buffer
        and copy.loads[0].is_at(axes, copy.extents)
        and copy.stores[0].stride(axes[-1]) == 1
    )


def _may_have_columns(block: BlockInfo, machine: MachineModel) -> bool:
    """Returns whether vectors of results lie side by side in memory, while no tile of them is possible."""
    if not block.spatial or len(block.stores) != 1 or all(use.affine for use in block.loads):
        return False
    inner = _innermost(block)
    if inner is not block.spatial[-1] or 2 * block.extents[inner] <= machine.lanes(block.itemsize):
        return False  # more than half of the vectors would be empty
    return block.stores[0].stride(inner) == 1


_WRITTEN_STEPS = 32
"""The steps of a reduction up to which they are written out."""

_STEPS_TOGETHER = (4, 8, 16)
"""The steps that are added to all results at a time."""


def reduce_columns(
    sch: Schedule, block: Any, rank: int, width: int, lanes: int, *, shared: bool = False, copy: str = ""
) -> None:  # fmt: skip
    """Compute vectors of ``lanes`` results, each through all steps of the reduction.

    ``width`` results of the last of ``rank`` spatial axes are computed at a time. ``copy`` names the block that copies
    the results elsewhere, which is made where there is none.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    (*outer, last), reduced = loops[:rank], loops[rank:]
    if copy:
        result = sch.get_block(copy)
        sch.set_scope(block, 0, "local")
    else:
        result = sch.cache_write(block, 0, "local")
    step, columns = sch.split(last, [None, width])
    vector, columns = sch.split(columns, [None, lanes])
    sch.reorder(*outer, step, *reduced, vector, columns)
    sch.reverse_compute_at(result, step)
    if shared:
        sch.parallel(fuse_all(sch, outer) if outer else step)
    init = sch.decompose_reduction(block, reduced[0])
    if math.prod(extent_of(sch, loop) for loop in reduced) * (width // lanes) <= _WRITTEN_STEPS:
        for loop in reduced:
            sch.unroll(loop)
    sch.unroll(vector)
    sch.vectorize(columns)
    sch.vectorize(sch.get_loops(result)[-1])
    *_, vector, columns = sch.get_loops(init)
    sch.unroll(vector)
    sch.vectorize(columns)


class ColumnPart(Part):
    """This part computes vectors of results side by side, of reductions whose accesses are not affine.

    Its decisions are ``vectors`` per iteration, and ``steps`` of the reduction that are added to all results at a time, so that
    memory is read as it lies: 0 where each result goes through all steps while it is in a register.
    """

    structure = ("vectors", "steps")

    def __init__(self, group: Group, machine: MachineModel) -> None:
        block = self.block = group.anchor
        self.machine = machine
        self.copy = group.blocks[-1].name if len(group.blocks) > 1 else ""
        self.inner = _innermost(block)
        self.lanes = machine.lanes(block.itemsize)
        self.parallel = worth_threads(machine, [block])
        self.name = f"columns_{block.name}"
        self.unit = _vectors_of_a_period(block, (self.inner,), self.lanes) or 1
        vectors = math.ceil(block.extents[self.inner] / self.lanes)
        self.decisions = (Decision("vectors", up_to(vectors, *_whole_periods(self.unit))),)
        if not self.copy and len(block.axes) == len(block.spatial) + 1 and block.axes[-1] in block.reduce:
            self.decisions += (Decision("steps", (0, *[n for n in _STEPS_TOGETHER if 2 * n <= block.reduce_size])),)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Of rows by steps there is one for each number: a vector is computed at a time."""
        return np.ones(rows, dtype=bool) & ((columns.get("steps", 0) == 0) | (columns["vectors"] == self.unit))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        width = row["vectors"] * self.lanes
        if row.get("steps"):
            share = (
                math.ceil(self.block.extents[self.inner] / width / self.machine.cores) * width if self.parallel else 0
            )
            place = self.block.axes.index(self.inner)
            outer_sums(sch, sch.get_block(self.block.name), place, width, row["steps"], share=share)
            return
        reduce_columns(
            sch, self.block.name, len(self.block.spatial), width, self.lanes, shared=self.parallel, copy=self.copy
        )

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, block, inner = self.machine, self.block, self.inner
        taken = columns["vectors"]
        extent = block.extents[inner]
        loops = [WalkedLoop(inner, taken * self.lanes, written_out=True)]
        written, together = block.reduce_size * taken <= _WRITTEN_STEPS, columns.get("steps", np.zeros(rows))
        around = ceil_div(extent, taken * self.lanes)
        for axis in reversed(block.reduce):
            size = block.extents[axis]
            loops.append(
                WalkedLoop(axis, np.where(together > 0, together, np.where(written, size, 1.0)), written_out=True)
            )
            loops.append(WalkedLoop(axis, np.where(written | (together > 0), 1.0, size)))
        loops.append(WalkedLoop(inner, around))
        if "steps" in columns:
            loops.append(
                WalkedLoop(block.reduce[0], np.where(together > 0, ceil_div(size, np.maximum(together, 1.0)), 1.0))
            )
        loops += [WalkedLoop(v, np.full(rows, float(block.extents[v]))) for v in block.spatial if v is not inner]
        walk = Walk(
            block, machine, sorted(loops, key=lambda loop: not loop.written_out), rows, vector=inner, lanes=self.lanes,
            elsewhere=block.loads,
        )  # fmt: skip
        counts = walk.counts()
        loads = sum(self._loads(use) for use in block.loads)
        counts["load_cycles"] = counts["load_cycles"] + walk.steps * walk.instances * loads / machine.loads_per_cycle
        moved = float(block.array_bytes)
        return Costs(rows).put(
            **counts,
            **most([swept_bytes(moved, machine), walk.traffic()]),
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            columns=taken,
            tasks=float(max(1, block.spatial_size // extent)) if self.parallel else 1.0,
            column_extent=float(extent),
        )

    def _loads(self, use: Use) -> float:
        """Returns how many instructions load a vector of a step.

        Lanes at known places are picked out of whole vectors. Those that are read from a table, or far apart, are gathered.
        """
        found = accesses(self.block.block.body, use.buffer)
        steps = [_step_of(access, self.inner) for access in found]
        if None not in steps:  # other axes may move by what is not affine
            loads = max([loads_at(step, self.lanes) for step in steps])
            return loads if loads < self.lanes else 2.0 * loads
        tables = [n for access in found for i in access.indices for n in pre_order(i) if isinstance(n, BufferLoad)]
        looked_up = any(n is self.inner for table in tables for n in pre_order(table))
        if looked_up or not periods_of(self.block)[self.block.axes.index(self.inner)]:
            return 2.0 * self.lanes
        return max(self._loads_at_known_lanes(access) for access in found)

    def _loads_at_known_lanes(self, access: Access) -> float:
        """Returns how many instructions load lanes whose places repeat.

        They are picked out of the one or two vectors that they lie in, or each place is loaded once.
        """
        places = set()
        for lane in range(self.lanes):
            at, stride = 0, 1
            for index, extent in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
                at += (evaluate(index, {**dict.fromkeys(vars_in(index), 0), self.inner: lane}) or 0) * stride
                stride *= extent.value if isinstance(extent, IntImm) else 1
            places.add(at)
        if max(places) - min(places) < 2 * self.lanes:
            return 2.0
        return 2.0 * (len(places) if 2 * len(places) <= self.lanes else self.lanes)


class RowPart(Part):
    """This part computes all stages of some rows together. Its decisions are ``accumulators`` (independent vectors of
    partial sums), ``unroll`` of the loop over the row, ``vectors`` per iteration of the element-wise stages, and
    ``rows`` that are computed together: while one waits for its horizontal sum, another continues."""

    structure = ("accumulators", "vectors", "rows")

    def __init__(self, group: Group, machine: MachineModel) -> None:
        self.group, self.machine = group, machine
        self.anchor = group.anchor
        self.parallel = worth_threads(machine, group.blocks)
        self.rank = len(self.anchor.spatial)
        self.lanes = machine.lanes(self.anchor.itemsize)
        self.name = f"rows_{self.anchor.name}"
        row = math.ceil(max(self._row_size(b) for b in group.blocks) / self.lanes)
        reductions = [b.reduce_size for b in group.blocks if b.is_reduction]
        steps = math.ceil(max(reductions) / self.lanes)
        self.unit = math.lcm(*[self._period(b) for b in group.blocks if b.is_reduction])
        maps = [b for b in group.blocks if not b.is_reduction]
        self.decisions = (
            Decision("accumulators", up_to(steps, *_whole_periods(self.unit))),
            Decision("unroll", up_to(steps, 1, 2, 4)),
            Decision("vectors", up_to(row, *_whole_periods(math.lcm(*[self._period(b) for b in maps])))),
            Decision("rows", tuple(r for r in (1, 2, 4, 8, 16) if self._last_extent() % r == 0)),
        )

    def _period(self, block: BlockInfo) -> int:
        """Returns after how many vectors of a row the lanes of quotients and remainders repeat.

        1 where registers do not hold the partial results of so many vectors.
        """
        along = [v for v in block.axes[self.rank :] if block.extents[v] > 1]
        period = _vectors_of_a_period(block, along[-1:], self.lanes) or 1 if along else 1
        return period if 2 * period <= self.machine.registers else 1

    def _last_extent(self) -> int:
        """Returns the rows along the innermost of their axes; 1 where the recipe cannot compute several rows at a
        time."""
        blocks = self.group.blocks
        simple = all(len(b.reduce) <= 1 and len(b.stores) == 1 for b in blocks)
        return self.anchor.extents[self.anchor.spatial[-1]] if self.anchor.spatial and simple else 1

    def _row_size(self, block: BlockInfo) -> int:
        """Returns the elements of one row that the block goes through."""
        return block.reduce_size * math.prod(block.extents[v] for v in block.spatial[self.rank :])

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        sweep_rows(
            sch,
            [b.name for b in self.group.blocks],
            RowSweep(
                self.lanes,
                self.rank,
                row["rows"],
                row["accumulators"],
                row["vectors"],
                row["unroll"],
                shared=self.parallel,
            ),
        )

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, together = self.machine, columns["rows"]
        count = math.prod(self.anchor.extents[v] for v in self.anchor.spatial)
        counts = added([self._counts(block, columns, rows) for block in self.group.blocks])
        moved = self._bytes()
        row_bytes = max(self._row_size(b) * b.itemsize for b in self.group.blocks)
        if not all(b.is_reduction for b in self.group.blocks):  # lines and pending stores of several rows collide
            crowd = crowding(together, row_bytes, machine)
            counts["loop_cycles"] = counts["loop_cycles"] + 0.3 * counts["load_cycles"] * crowd
        again = (len(self.group.blocks) > 1) * (2 * row_bytes * together > machine.l1_bytes) * moved
        swept = swept_bytes(moved, machine, streams=together, stride=row_bytes)
        swept["l2_bytes"] = swept["l2_bytes"] + again
        reductions = [block for block in self.group.blocks if block.is_reduction]
        walked = [self._walk(block, columns, rows).traffic() for block in reductions]
        return Costs(rows).put(
            **counts,
            **most([swept, *walked]),
            flops=sum(b.flops for b in self.group.blocks),
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            accumulators=columns["accumulators"],
            columns=columns["vectors"],
            unroll=columns["unroll"],
            reduction=float(self.anchor.reduce_size),
            row_extent=float(count),
            column_extent=float(self._row_size(self.anchor)),
            tasks=float(max(1, count)) if self.parallel else 1.0,
            tasks_per_core=float(count) / machine.cores,
            epilogue=float(len(self.group.blocks)),
        )

    def _counts(self, block: BlockInfo, columns: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
        """Returns the cycles of one stage. Registers hold short rows that one stage stores for the next."""
        vectors = math.ceil(max(self._row_size(b) for b in self.group.blocks) / self.lanes)
        held = (vectors <= _KEPT_VECTORS) & (vectors * columns["rows"] <= _KEPT_AT_A_TIME)
        inside = {use.buffer for b in self.group.blocks[:-1] if not b.is_reduction for use in b.stores}
        among = [use for use in block.loads if use.buffer in inside]
        walk = self._walk(block, columns, rows)
        counts = walk.counts()
        if vectors <= _KEPT_VECTORS and among:
            fewer = self._walk(block, columns, rows, among).counts()
            counts["loop_cycles"] = counts["loop_cycles"] + walk.steps * walk.sums * _FORWARDING
            counts = {name: np.where(held, fewer[name], value) for name, value in counts.items()}
        if any(use.buffer in inside for use in block.stores):
            counts["store_cycles"] = np.where(held, 0.0, counts["store_cycles"])
        return counts

    def _in_vectors(self, block: BlockInfo, widths: np.ndarray) -> np.ndarray:
        """Returns how many elements of a row lie along the vectors of a reduction of several axes, for each width."""
        extents = [block.extents[v] for v in block.reduce]
        found = np.ones(len(widths))
        for width in np.unique(widths):
            joined = _joined(block, extents, int(width), self.lanes)
            last = next((extent for extent in reversed(extents) if extent > 1), 1)
            found[widths == width] = last if joined == 1 else math.prod(extents[-joined:])
        return found

    def _walk(self, block: BlockInfo, columns: Mapping[str, np.ndarray], rows: int, among: Sequence[Use] = ()) -> Walk:
        """Returns the loops of one stage: vectors along a row, of a reduction several rows together, and over rows."""
        ones = np.ones(rows)
        along = [v for v in block.axes[self.rank :] if block.extents[v] > 1]
        together = columns["rows"] if block.is_reduction else ones
        loops, size = [], ones * self._row_size(block)
        others = along[:-1] if block.is_reduction else []
        if along:
            width = columns["accumulators" if block.is_reduction else "vectors"] * self.lanes
            inner = self._in_vectors(block, width) if others else size
            loops.append(WalkedLoop(along[-1], np.minimum(width, inner), written_out=True))
        row = block.spatial[self.rank - 1] if self.rank else None
        if row is not None:
            loops.append(WalkedLoop(row, ones * together, written_out=True))
        if along:  # axes that are joined count as the last one, of which there are fewer then
            steps = ceil_div(inner, width) * (size / inner)
            loops.append(WalkedLoop(along[-1], steps / math.prod(block.extents[v] for v in others)))
            loops += [WalkedLoop(v, ones * block.extents[v]) for v in reversed(others)]
        if row is not None:
            loops.append(WalkedLoop(row, block.extents[row] / together))
            loops += [WalkedLoop(v, ones * block.extents[v]) for v in reversed(block.spatial[: self.rank - 1])]
        return Walk(
            block, self.machine, loops, rows, vector=along[-1] if along else None, lanes=self.lanes,
            unroll=columns["unroll"], periodic=self._period(block) > 1, elsewhere=among,
        )  # fmt: skip

    def _bytes(self) -> int:
        inside = {use.buffer for b in self.group.blocks for use in b.stores}
        seen = {use.buffer: use for b in self.group.blocks for use in (*b.loads, *b.stores)}
        outside = [b for b in seen if b not in inside]
        last = {use.buffer for use in self.group.blocks[-1].stores}
        return sum(b.num_bytes() or 0 for b in (*outside, *last))
