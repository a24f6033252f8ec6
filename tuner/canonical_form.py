"""This module brings a function into the form that schedule rules look for, by steps of a schedule.

An axis that is used as ``h // 4`` and ``h % 4`` becomes two, ``h = 4 * h0 + h1``, and the accesses become affine. What else
is not affine in a reduction, such as ``A[t[i], r]`` or ``A[(i + y) // 2]``, is copied before, where it is read often. A
reduction over a triangle, such as ``r`` in ``range(i + 1)``, becomes one over a rectangle, under a condition. The
buffers of the function that the axis counts through get two dimensions in its place, and the other stages of these
buffers are split alike. The steps are recorded as all steps are, so that a trace replays on the function as written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..codegen.lane_offsets import NEAR
from ..schedule import Schedule, ScheduleError, TraceError
from ..schedule.index_map import IndexMap
from ..tir.analysis.access import accesses
from ..tir.analysis.known_ranges import evaluate
from ..tir.expr import (
    BufferLoad,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Var,
    floordiv,
    floormod,
    is_const_int,
    reads_memory,
)
from ..tir.expr.op import holds_all
from ..tir.stmt import Buffer, BufferStore, PrimFunc, Stmt
from ..tir.walk import blocks_of, pre_order, vars_in
from .cost.axis_roles import dot_factors, product_axes, reuses
from .dot_layouts import take_dot_form
from .example_sizes import ODD, at_example, example_numbers, example_of, without_example
from .loop_steps import applies_to, permutation, put_last
from .program import BlockInfo, ProgramInfo, Use, divisors_of, factors_of
from .rules.stages_to_inline import blocks_to_inline

_Place = tuple[BlockInfo | Buffer, int]
"""An axis of a block or a dimension of a buffer, by its number."""


def bring_into_canonical_form(
    sch: Schedule,
    of: Schedule | None = None,
    multiplied: Callable[[BlockInfo], bool | str] = lambda block: False,
    turned: list[str] | None = None,
    undivided: list[Schedule] | None = None,
) -> ProgramInfo:
    """Make reductions rectangular, and their accesses affine; returns the program that results.

    Axes are split where that applies to ``of`` as well, the function of symbolic sizes whose example this is. Products of
    numbers of 16 bits read float32 copies, but for those that are ``multiplied`` as they are: these read what stages only widened
    before, and copies of other types where it names a type that holds all values. Products of bytes take the form in which they are
    ``multiplied`` (:mod:`.dot_layouts`). Where a list is given, reductions
    read copies of inputs that lie across others, and ``turned`` gets their names; else they gather such inputs. A list
    ``undivided`` gets the schedule before axes were split, if reductions alone divide any.
    """
    compute_once(sch, of)
    before = sch.copy()
    _split_divided_axes(sch, _by_numbers, of)
    if undivided is not None and len(sch.trace.insts) > len(before.trace.insts):
        undivided += [before] if all(b.is_reduction for b in _to_split(ProgramInfo(before.func))) else []
    _copy_what_is_gathered(sch, turned, of)
    _widen_where_multiplied(sch, multiplied)
    take_dot_form(sch, multiplied, of)
    _convert_once(sch, multiplied)
    return ProgramInfo(sch.func)


def compute_once(sch: Schedule, of: Schedule | None = None) -> None:
    """Make reductions rectangular, and leave out what they compute several times.

    They count upwards where that applies to ``of`` as well, the function of symbolic sizes whose example this is.
    """
    _pad_triangles(sch)
    _reduce_where_read(sch, of)
    _drop_unit_axes(sch)
    reduce_once(sch)
    _drop_equal_steps(sch)
    _turn_reversed_axes(sch, of)


_LARGER = 2
"""How many times as large as the longest of its rows the rectangle around a triangle of loops may be."""


def _pad_triangles(sch: Schedule) -> None:
    """Give reductions constant bounds where these depend on other axes, unless they are a narrow band of a rectangle."""
    for block in ProgramInfo(sch.func).blocks:
        if not block.is_reduction or all(isinstance(loop.extent, IntImm) for loop in block.loops):
            continue
        before = sch.copy()
        try:
            sch.pad_reduction(block.name)
        except ScheduleError:
            sch.restore(before)
            continue
        padded = next(b for b in ProgramInfo(sch.func).blocks if b.name == block.name)
        if padded.reduce_size > _LARGER * block.reduce_size:
            sch.restore(before)


def _reduce_where_read(sch: Schedule, of: Schedule | None) -> None:
    """Compute results of reductions only where another stage reads them, if that is at most half of them.

    Such are a diagonal, every second result, and the last row. What the readers leave out counts, so these come first.
    That has to apply to ``of`` as well, the function of symbolic sizes.
    """
    for name in [b.name for b in reversed(ProgramInfo(sch.func).blocks) if b.is_reduction]:
        program = ProgramInfo(sch.func)
        block = next(b for b in program.blocks if b.name == name)
        readers = program.consumers(block)
        if block.keeps_order or block.obstacle is not None or block.block.annotations:
            continue
        if program.is_output(block) or len(readers) != 1 or len(block.stores) != 1:
            continue
        (reader,), buffer = readers, block.stores[0].buffer
        uses = [use for use in reader.loads if use.buffer is buffer]
        axes = {v for use in uses for v in (*use.axes(), *(v for some in use.unknown for v in some))}
        if _FEWER * math.prod(reader.extents[v] for v in axes) > block.spatial_size:
            continue
        before = sch.copy()
        try:
            body = reader.block.body
            if not (isinstance(body, BufferStore) and isinstance(body.value, BufferLoad)) or len(axes) < len(
                reader.axes
            ):
                copy = sch.reindex(reader.name, ("read", buffer.name))
                _in_order_of(sch, copy, [v for v in reader.axes if v in axes], uses[0])
            sch.reduce_where_copied(block.name)
        except ScheduleError:
            sch.restore(before)
            continue
        if not applies_to(sch, of):
            sch.restore(before)


def _drop_unit_axes(sch: Schedule) -> None:
    """Leave out axes of one step that a product of int8 or bfloat16 adds to others in indices.

    A convolution whose window is one element is a product then, for which there are instructions. Tiles of other types
    take windows of any size.
    """
    for block in ProgramInfo(sch.func).blocks:
        unit = {v for v in block.reduce if block.extents[v] == 1}
        sums = [dim for use in block.loads for dim in use.dims if dim is not None and len(dim) > 1]
        if (
            dot_factors(block.block.body) is None
            or block.block.annotations  # another rule knows the axes of such a block
            or block.keeps_order
            or not any(unit & set(dim) for dim in sums)
            or unit >= set(block.reduce)
        ):
            continue
        kept = IndexMap(block.axes, tuple([v for v in block.axes if v not in unit]))
        try:
            sch.transform_block_layout(block.name, kept)
        except ScheduleError:
            continue


_FEWER = 2
"""How many times as many results as there are different ones pay for a copy."""


def reduce_once(sch: Schedule) -> None:
    """Compute results of reductions once that are the same along axes, as those of ``A[i, h // 3, r]`` are along ``h``."""
    for block in ProgramInfo(sch.func).blocks:
        used = {v for use in block.loads for v in use.axes()}
        same = [v for v in block.spatial if v not in used and block.extents[v] > 1]
        if (
            not same
            or not block.is_reduction
            or block.keeps_order
            or block.obstacle is not None
            or block.block.annotations
        ):
            continue
        before = sch.copy()
        try:
            sch.reduce_once(block.name)
        except ScheduleError:
            continue
        after = next(b for b in ProgramInfo(sch.func).blocks if b.name == block.name)
        if after.spatial_size * _FEWER > block.spatial_size:
            sch.restore(before)


def _drop_equal_steps(sch: Schedule) -> None:
    """Leave out the steps of sums and extremes that come again, as those of ``A[i, r % 16]`` for ``r`` in ``range(64)``."""
    for block in ProgramInfo(sch.func).blocks:
        used = {v for use in block.loads if use.affine for v in use.axes()}
        if (
            any(block.extents[v] > 1 and v not in used for v in block.reduce)
            and not block.keeps_order
            and block.obstacle is None
            and not block.block.annotations
        ):
            try:
                sch.drop_equal_steps(block.name)
            except ScheduleError:
                continue


def _turn_reversed_axes(sch: Schedule, of: Schedule | None) -> None:
    """Let reductions count upwards through what they read backwards, as ``A[i, n - 1 - r]`` for each ``r``.

    So do element-wise stages along the rows of what they transpose: ``C[n - 1 - i, j] = A[j, i]`` in place of
    ``C[i, j] = A[j, n - 1 - i]``. Then vectors of ``A`` are loaded and transposed as they lie.
    """
    for block in ProgramInfo(sch.func).blocks:
        turned = {
            v for v in (block.reduce if block.is_reduction else _across_results(block))
            if block.extents[v] > 1 and _is_read_backwards(block, v)
        }  # fmt: skip
        if not turned or block.keeps_order or block.obstacle is not None or block.block.annotations:
            continue
        indices = {v: Var(f"i{n}") for n, v in enumerate(block.axes)}
        moved = [block.extents[v] - 1 - i if v in turned else i for v, i in indices.items()]
        before = sch.copy()
        try:
            sch.transform_block_layout(block.name, IndexMap(tuple(indices.values()), tuple(moved)))
        except ScheduleError:
            continue
        if not applies_to(sch, of):
            sch.restore(before)


def _across_results(block: BlockInfo) -> list[Var]:
    """Returns the axes of an element-wise stage along which what it reads is contiguous, and its results are not."""
    return [
        v for v in block.spatial
        if any(abs(use.step(v) or 0) == 1 for use in block.loads) and not any(abs(use.step(v) or 0) == 1 for use in block.stores)
    ]  # fmt: skip


def _is_read_backwards(block: BlockInfo, axis: Var) -> bool:
    """Returns whether all indices with an axis consist of it alone, and become smaller along it."""
    dims = [dim for use in block.loads for dim in use.dims if dim and dim.get(axis)]
    hidden = any(axis in variables for use in block.loads for variables in use.unknown)
    return bool(dims) and all(len(dim) == 1 and dim[axis] < 0 for dim in dims) and not hidden


_REUSE = 8
"""How often a reduction reads an element at the least so that a copy of it pays."""

_REUSE_TURNED = 4
"""The same for a copy of a whole array that is turned: without it vectors of its elements are gathered."""


def _copy_what_is_gathered(sch: Schedule, turned: list[str] | None, of: Schedule | None) -> None:
    """Let reductions read a copy of what they read at indices that are not affine.

    It is laid out by the axes. Where that would be too large, the whole array is copied instead, with the dimension of the
    contiguous results last. So is an input that lies across another one, unless ``turned`` is None: the blocks that read
    such copies are added to it.
    """
    for block in ProgramInfo(sch.func).blocks:
        if not block.is_reduction or block.keeps_order or block.obstacle is not None:
            continue
        last = block.stores[0].dims[-1] if block.stores[0].dims else None
        work = math.prod(block.extents.values())
        across = None if turned is None else _against(block)
        if turned is not None and across is not None:
            before = sch.copy()
            try:
                copy = sch.cache_read(block.name, across[0].buffer.name, "global")
                put_last(sch, copy, len(across[0].dims), across[1])
                block = next(b for b in ProgramInfo(sch.func).blocks if b.name == block.name)
                turned.append(block.name)
            except ScheduleError:
                sch.restore(before)
        rows = _is_read_in_rows(block)
        for use in block.with_chosen_as_own.loads:
            if use.affine:
                continue
            axes = [v for v in block.axes if v in _axes_of(block, use.buffer)]
            near = next((v for v in axes if last is not None and last.get(v) == 1), None)
            far = next((n for n, dim in enumerate(use.dims[:-1]) if dim is not None and dim == {near: 1}), None)
            elements = math.prod(getattr(extent, "value", 0) for extent in use.buffer.shape)
            if rows and all(use.step(v) in (0, 1) for v in block.reduce):
                continue  # read once for each row, or along it
            before = sch.copy()
            try:
                if axes and math.prod(block.extents[v] for v in axes) * _REUSE <= work:
                    copy = sch.reindex(block.name, ("read", use.buffer.name))
                    put_last(sch, copy, len(axes), axes.index(near) if near is not None else len(axes) - 1)
                elif far is not None and not rows and 0 < elements * _REUSE_TURNED <= work:
                    copy = sch.cache_read(block.name, use.buffer.name, "global")
                    put_last(sch, copy, len(use.dims), far)
            except ScheduleError:
                sch.restore(before)
        if turned is not None and across is None:
            again = next(b for b in ProgramInfo(sch.func).blocks if b.name == block.name)
            _copy_what_is_far(sch, again, turned, of)


def _copy_what_is_far(sch: Schedule, block: BlockInfo, turned: list[str], of: Schedule | None) -> None:
    """Let a reduction read copies, in the order of its axes, of inputs that vectors of results would gather.

    That has to apply to ``of`` as well, the function of symbolic sizes, whose axes of one value are not left out.
    """
    near = _nearest(block)
    if near is None:
        return
    for use in _far_from_results(block, near):
        axes = [v for v in block.axes if v in use.axes()]
        before = sch.copy()
        try:
            copy = sch.reindex(block.name, ("read", use.buffer.name))
            put_last(sch, copy, len(axes), axes.index(near))
        except ScheduleError:
            sch.restore(before)
            continue
        if applies_to(sch, of):
            turned.append(block.name)
        else:
            sch.restore(before)


_REUSE_CONVERTED = 16
"""How often a product reads a number of 16 bits at the least so that a copy pays in which it is float32: the conversion
takes as long as the multiplication, and the copy has twice the bytes."""

_REUSE_SCALARS = 4
"""The same for an operand that is the same along the last axis of the results: vectors are made of these, and its numbers are
converted one by one."""


def _widen_where_multiplied(sch: Schedule, multiplied: Callable[[BlockInfo], bool | str]) -> None:
    """Let products read the numbers that stages only widen for them, where the target multiplies these as they are."""
    program = ProgramInfo(sch.func)
    for block in program.blocks:
        body = block.block.body
        readers = program.consumers(block)
        if not isinstance(body, BufferStore) or block.is_reduction or block.keeps_order or block.obstacle is not None:
            continue
        if not _only_widens(body.value) or not any(product_axes(reader) is not None for reader in readers):
            continue
        before = sch.copy()
        try:
            sch.compute_inline(block.name)
        except ScheduleError:
            continue
        named = {reader.name for reader in readers}
        after = [b for b in ProgramInfo(sch.func).blocks if b.name in named]
        if not all(product_axes(b) is not None and multiplied(b) for b in after):
            sch.restore(before)


def _only_widens(value: Expr) -> bool:
    """Returns whether an element is a number from memory in a type that holds all numbers of its own type."""
    if not isinstance(value, Cast) or not isinstance(value.value, BufferLoad):
        return False
    narrow, wide = value.value.dtype, value.dtype
    return wide.bits > narrow.bits and holds_all(wide, narrow)


def _convert_once(sch: Schedule, multiplied: Callable[[BlockInfo], bool | str]) -> None:
    """Let products read float32 copies of float16 and bfloat16 numbers that they convert, where each is read often.

    Where the target multiplies a type that holds them all, copies of numbers of 8 bits have that type.
    """
    for block in ProgramInfo(sch.func).blocks:
        several = len(block.loads) > 1
        if not block.is_reduction or not several or block.keeps_order or block.obstacle is not None:
            continue
        if as_they_are := multiplied(block):
            if isinstance(as_they_are, str):
                _copy_as(sch, block, as_they_are)
            continue
        for use in {use.buffer: use for use in block.loads}.values():
            dtype = use.buffer.dtype
            size = block.elements_of(use)
            work = math.prod(block.extents.values())
            reuse = _REUSE_CONVERTED if block.spatial[-1:] and block.spatial[-1] in use.axes() else _REUSE_SCALARS
            if not dtype.is_float or dtype.bits != 16 or not use.affine or size * reuse > work:
                continue
            before = sch.copy()
            try:
                sch.cache_read(block.name, use.buffer.name, "global", consumer_blocks=[block.name], dtype="float32")
            except ScheduleError:
                sch.restore(before)


def _copy_as(sch: Schedule, block: BlockInfo, dtype: str) -> None:
    """Let a product read copies of ``dtype`` of what it reads in other types."""
    for buffer in {use.buffer: use for use in block.loads}:
        if buffer.dtype != dtype:
            sch.cache_read(block.name, buffer.name, "global", consumer_blocks=[block.name], dtype=dtype)


def _is_read_in_rows(block: BlockInfo) -> bool:
    """Returns whether vectors are made of steps: no input lies along the results, and one holds rows for them."""
    moving = _moving(block)
    results = [v for v in block.spatial if block.extents[v] > 1]
    along = next((v for v in reversed(block.reduce) if block.extents[v] > 1), None)
    if along is None or any(0 < (use.step(v) or 0) <= NEAR for v in results[-1:] for use in moving):
        return False
    return any(
        use.step(along) in (1, None) and (len(moving) == 1 or all(use.step(v) not in (0, None) for v in results))
        for use in moving
    )


def _moving(block: BlockInfo) -> list[Use]:
    """Returns the loads of a reduction that are not the same in all its steps."""
    return [use for use in block.loads if any(use.step(v) != 0 for v in block.reduce)]


def _against(block: BlockInfo) -> tuple[Use, int] | None:
    """Returns an input that lies across another one, and the dimension in which it would lie along it.

    ``A[r, i] * B[i, r]``, summed over ``r`` for each ``i``: whatever vectors are made of, one of the two is gathered.
    """
    near = _nearest(block)
    if near is None:
        return None
    for along in block.loads:
        for across in block.loads if along.step(near) == 1 else ():
            axis = next((v for v in block.reduce if _lies_along(block, across, v) and block.extents[v] > NEAR), None)
            if axis is None or min(along.step(axis) or 0, across.step(near) or 0) <= NEAR:
                continue
            either = [(across, across.dim_of(near)), (along, along.dim_of(axis))]
            use, far = min(either, key=lambda choice: choice[0].buffer.num_bytes() or 0)
            if far is not None and sum(other.buffer is use.buffer for other in block.loads) == 1:
                return use, far
    return None


def _nearest(block: BlockInfo) -> Var | None:
    """Returns the axis along which results are neighbours in memory, where it is their last one of several values."""
    near = next((v for v in reversed(block.spatial) if block.extents[v] > 1), None)
    return near if near is not None and block.stores[0].stride(near) == 1 else None


def _far_from_results(block: BlockInfo, near: Var) -> list[Use]:
    """Returns the inputs that are read often, and far apart by neighbouring results, those along ``near``.

    ``A[i, r, b] * B[b, j, r]`` summed over ``r`` for each ``i, j, b``: vectors of results gather B. A single one that is read as it
    lies is packed by tiles, which costs less than a copy of all of it.
    """
    moving = [use for use in block.loads if use.step(near) != 0]
    far = [use for use in moving if use.step(near) is None or abs(use.step(near) or 0) > NEAR]
    if not far or not all(use.affine for use in far) or (len(moving) == 1 and _is_straight(far[0])):
        return []
    work = math.prod(block.extents.values())
    places = [sum(other.buffer is use.buffer for other in block.loads) for use in far]
    sizes = [block.elements_of(use) for use in far]
    return far if all(n == 1 and size * _REUSE_TURNED <= work for n, size in zip(places, sizes, strict=True)) else []


def _is_straight(use: Use) -> bool:
    """Returns whether each index counts one axis upwards, or is a constant."""
    return all(dim is not None and len(dim) <= 1 and set(dim.values()) <= {1} for dim in use.dims)


def turn_results(sch: Schedule, of: Schedule | None = None) -> bool:
    """Let reductions that gather along neighbouring results compute these in another order, in which they read what lies in line.

    Another stage brings the results into their order. Returns whether there are such reductions.
    """
    found = False
    for block in ProgramInfo(sch.func).blocks:
        if not block.is_reduction or block.keeps_order or block.obstacle is not None or not block.writes_in_order:
            continue
        near = _nearest(block)
        if near is None or not _far_from_results(block, near):
            continue
        along = _axis_along_inputs(block, near)
        if along is None or block.axes != (*block.spatial, *block.reduce):
            continue
        spatial = [*[v for v in block.spatial if v is not along], along]
        places = [block.spatial.index(v) for v in spatial]
        before = sch.copy()
        try:
            copy = sch.cache_write(block.name, 0, "global")
            sch.transform_layout(block.name, ("write", 0), permutation(places))
            sch.transform_block_layout(block.name, IndexMap(block.axes, (*spatial, *block.reduce)))
            if sch.get(copy).writes[0].buffer not in sch.func.buffer_map.values():
                sch.compute_inline(copy)
            found = True
        except ScheduleError:
            sch.restore(before)
    return found and applies_to(sch, of)


def join_short_rows(sch: Schedule, lanes: int, of: Schedule | None = None) -> bool:
    """Let reductions whose last axis is short compute it and the one before as one axis.

    All that they access has to be in line along both. Windows over images of three channels in their last dimension are
    such: neighbours along (column, channel) are neighbours in memory. The results are written to a copy in which the two
    are one dimension, which a tile then brings to its place. ``lanes``: those of a vector; ``of``: the function of symbolic
    sizes whose example this is. Returns whether there are such reductions.
    """
    found = False
    for block in ProgramInfo(sch.func).blocks:
        if not block.is_reduction or block.keeps_order or block.obstacle is not None or not block.writes_in_order:
            continue
        if len(block.spatial) < 2 or block.axes != (*block.spatial, *block.reduce) or dot_factors(block.block.body):
            continue
        *outer, row, last = block.spatial
        if not 1 < block.extents[last] < min(lanes, block.extents[row] * block.extents[last]):
            continue
        if not all(_is_in_line(block, use, row, last) for use in (*block.loads, *block.stores)):
            continue
        before = sch.copy()
        try:
            size = block.extents[last]
            copy = sch.cache_write(block.name, 0, "global")
            index = tuple([Var(f"i{n}", "int64") for n in range(len(block.spatial))])
            joined = IndexMap(index, (*index[:-2], index[-2] * size + index[-1]))
            sch.transform_layout(block.name, ("write", 0), joined)
            sch.transform_block_layout(copy, joined)
            sch.transform_block_layout(block.name, IndexMap(block.axes, (*outer, row * size + last, *block.reduce)))
            found = True
        except ScheduleError:
            sch.restore(before)
    return found and applies_to(sch, of)


def _is_in_line(block: BlockInfo, use: Use, row: Var, last: Var) -> bool:
    """Returns whether elements are in line along two axes, or the same for all of them."""
    if not use.affine:
        return False
    places = [n for n, dim in enumerate(use.dims) if dim and (dim.get(row) or dim.get(last))]
    if not places:
        return True
    if len(places) != 2 or places[1] != places[0] + 1 or use.joined:
        return False
    (first, inner), size = (use.dims[places[0]], use.dims[places[1]]), use.buffer.shape[places[1]]
    assert first is not None and inner is not None
    whole = dict(inner) == {last: 1} and not use.offsets[places[1]] and is_const_int(size, block.extents[last])
    return whole and first.get(row) == 1 and not first.get(last)


def _axis_along_inputs(block: BlockInfo, near: Var) -> Var | None:
    """Returns the axis of results along which most of what is read often lies in line, or None.

    Where all inputs depend on ``near``, as in products of matrices that are the last axis of their results, nothing is read
    often along it; then any axis of a single input serves.
    """
    moving = _moving(block)
    wide = [v for v in reversed(block.spatial) if block.extents[v] > NEAR and v is not near]

    def in_line(axis: Var) -> int:
        uses = [use for use in block.loads if use.step(axis) == 1 and reuses(block, use)]
        return sum(map(block.elements_of, uses))

    best = max(wide, key=in_line, default=None)
    if best is not None and in_line(best):
        return best
    if len(moving) < 2 or any(near not in use.axes() for use in moving):
        return None
    alone = [v for v in wide if sum(v in use.axes() for use in moving) == 1]
    return max(alone, key=lambda v: block.extents[v], default=None)


def _lies_along(block: BlockInfo, use: Use, axis: Var) -> bool:
    """Returns whether neighbours along ``axis`` are neighbours in memory, or one element, as those of ``A[i, r // 3]`` are."""
    if use.step(axis) is not None:
        return use.step(axis) == 1
    *outer, inner = use.unknown
    alone = inner == {axis} and all(axis not in variables for variables in outer)
    looked_up = any(
        reads_memory(index) for access in accesses(block.block.body, use.buffer) for index in access.indices
    )
    return alone and not looked_up and bool(divisors_of(block)[block.axes.index(axis)])


def write_in_order(sch: Schedule, of: Schedule | None = None) -> ProgramInfo:
    """Let element-wise stages run through their results as these lie in memory; returns the program that results.

    Copies that are laid out anew for a reduction are written across their loops until then.
    """
    written_across, changed = sch.copy(), False
    for block in ProgramInfo(sch.func).blocks:
        if block.is_reduction or block.keeps_order or block.obstacle is not None or len(block.stores) != 1:
            continue
        lone = [next(iter(dim)) for dim in block.stores[0].dims if dim is not None and list(dim.values()) == [1]]
        if len(lone) < len(block.stores[0].dims) or len(set(lone)) < len(lone):
            continue
        order = tuple([*[v for v in block.axes if v not in lone], *lone])
        if order == block.axes:
            continue
        before = sch.copy()
        try:
            sch.transform_block_layout(block.name, IndexMap(block.axes, order))
            changed = True
        except ScheduleError:
            sch.restore(before)
    if changed and not applies_to(sch, of):
        sch.restore(written_across)
    return ProgramInfo(sch.func)


def _in_order_of(sch: Schedule, copy: Any, axes: Sequence[Var], use: Use) -> None:
    """Lay the buffer of a copy, with a dimension for each of ``axes``, out in the order of ``use``."""
    read = [set(dim or ()) | use.unknown[n] for n, dim in enumerate(use.dims)]
    order = sorted(range(len(axes)), key=lambda n: next(d for d, found in enumerate(read) if axes[n] in found))
    if order != sorted(order):
        sch.transform_layout(copy, ("write", 0), permutation(order))
        sch.transform_block_layout(copy, permutation(order))


def _axes_of(block: BlockInfo, buffer: Buffer) -> set[Var]:
    """Returns the axes that the places of a buffer depend on, those of indices that are read from memory included."""
    places = [index for access in accesses(block.block.body, buffer) for index in access.indices]
    return {n for index in places for n in pre_order(index) if isinstance(n, Var) and n in block.extents}


def split_axes_by_sizes(sch: Schedule) -> None:
    """Split the axes that blocks divide by symbolic sizes, as in ``A[i % n]`` for ``i`` in ``range(4 * n)``.

    The function of example sizes has the number in place of the size, and what is split there would fit no other size.
    It only shows which axes and buffers belong together; each step is proved for all sizes.
    """
    if divides_by_sizes(sch.func):
        _inline_what_divides(sch)
        _split_divided_axes(sch, _by_sizes)


def _inline_what_divides(sch: Schedule) -> None:
    """Inline the stages that divide by symbolic sizes where others are inlined, so that their readers' axes are split.

    Whether it pays is found at example sizes, as is which axes count downwards.
    """
    usual = without_example(sch.func)
    example = example_of(usual, ODD)
    if example is None:
        return
    divides = {r.block.name_hint for r in blocks_of(sch.func) if _is_divided_by_sizes(r.block.body)}
    names = [name for name in blocks_to_inline(ProgramInfo(example)) if name in divides]
    before, known = sch.copy(), Schedule(example)
    try:
        for name in names:
            known.compute_inline(name)
            compute_once(known, sch)
        if names:
            known.trace.apply_to_schedule(sch)
    except (ScheduleError, TraceError):
        sch.restore(before)


def divides_by_sizes(func: PrimFunc) -> bool:
    """Returns whether a block reads or writes at a place that is divided by a symbolic size."""
    return any(_is_divided_by_sizes(realize.block.body) for realize in blocks_of(func))


def _is_divided_by_sizes(body: Stmt) -> bool:
    """Returns whether an index in a block's body is divided by what is no number."""
    return any(
        isinstance(node, (FloorDiv, FloorMod)) and not isinstance(node.b, IntImm)
        for access in accesses(body)
        for index in access.indices
        for node in pre_order(index)
    )


def split_at_example(func: PrimFunc) -> tuple[Schedule, PrimFunc]:
    """Returns ``func`` with its axes split by symbolic sizes, and that function at the example sizes of its attribute.

    Candidates are made of the second one; their steps are performed on the first. ValueError for a size without an example.
    """
    split = Schedule(func)
    split_axes_by_sizes(split)
    return split, at_example(split.func)


@dataclass(frozen=True)
class _Divisors:
    """The blocks of a function, and by what reductions divide each axis: the divisors by their numbers.

    A divisor is the number itself, or a symbolic size whose example the number is.
    """

    program: ProgramInfo
    of: Mapping[BlockInfo, Sequence[Mapping[int, int | Expr]]]


def _by_numbers(func: PrimFunc) -> _Divisors:
    """Returns the numbers by which reductions and element-wise stages of long rows divide axes."""
    program = ProgramInfo(func)
    return _Divisors(program, {b: [{d: d for d in each} for each in divisors_of(b)] for b in _to_split(program)})


def _to_split(program: ProgramInfo) -> list[BlockInfo]:
    """Returns the blocks whose axes are split: reductions and element-wise stages of long rows, which are not affine.

    Stages that are inlined divide their consumers' axes then, if any.
    """
    found = _not_affine_reductions(program)
    for b in program.blocks:
        if b.is_reduction or b.keeps_order or b.obstacle is not None or all(use.affine for use in b.loads):
            continue
        inner = next((n for n in reversed(range(len(b.axes))) if b.extents[b.axes[n]] > 1), 0)
        if b.axes and (by := divisors_of(b)[inner]) and min(by) >= _LONG_ROW:
            found.append(b)
    inlined = set(blocks_to_inline(program)) if len(found) > len(_not_affine_reductions(program)) else ()
    return [b for b in found if b.name not in inlined]


_LONG_ROW = 32
"""The divisors of the innermost axis from which on an element-wise stage gets an axis for the remainder: it fills
vectors. Shorter remainders are lanes of the stage as it is."""


def _by_sizes(func: PrimFunc) -> _Divisors:
    """Returns the symbolic sizes by which they divide axes; the blocks are those of the function of example sizes."""
    usual = without_example(func)  # an example of 1 or 2 divides differently
    example, numbers = example_of(usual, ODD), example_numbers(usual, ODD)
    if example is None or not numbers:
        return _Divisors(ProgramInfo(func), {})
    program, found = ProgramInfo(example), {}
    named = {realize.block.name_hint: realize.block for realize in blocks_of(func)}
    for b in _to_split(program):
        block = named[b.name]
        sizes = _sizes_dividing(block.iter_vars, block.body)
        found[b] = [
            {d: size for size in sizes.get(iv.var, ()) if (d := evaluate(size, numbers))} for iv in block.iter_vars
        ]
    return _Divisors(program, found)


def _sizes_dividing(iter_vars: Iterable[IterVar], body: Stmt) -> dict[Var, list[Expr]]:
    """Returns for axes the symbolic sizes that they are divided by in indices."""
    axes = {iv.var for iv in iter_vars}
    found: dict[Var, list[Expr]] = {}
    for node in [n for access in accesses(body) for index in access.indices for n in pre_order(index)]:
        if isinstance(node, (FloorDiv, FloorMod)) and isinstance(node.a, Var) and node.a in axes:
            size = node.b.value if isinstance(node.b, Cast) else node.b
            if not isinstance(size, IntImm) and not reads_memory(size) and not vars_in(size) & axes:
                found.setdefault(node.a, []).append(size)
    return found


def _not_affine_reductions(program: ProgramInfo) -> list[BlockInfo]:
    """Returns the reductions that read at an index that is not affine."""
    return [
        b for b in program.blocks if not b.keeps_order and b.is_reduction and not all(use.affine for use in b.loads)
    ]


def _split_divided_axes(
    sch: Schedule, divisors: Callable[[PrimFunc], _Divisors], of: Schedule | None = None
) -> None:  # fmt: skip
    """Split the axes that reductions divide, where that makes accesses affine."""
    known = divisors(sch.func)
    refused: set[frozenset[str]] = set()
    while True:
        found = next((group for group in _divided_axes(known) if group.blocks not in refused), None)
        if found is None:
            return
        before = sch.copy()
        try:
            found.split(sch)
            if of is not None:
                sch.trace.apply_to_schedule(of.copy())
        except (ScheduleError, TraceError):
            sch.restore(before)
        after = divisors(sch.func)
        if _not_affine(after.program) < _not_affine(known.program) and (
            len(after.program.left) <= len(known.program.left)
        ):
            known = after
        else:
            sch.restore(before)
            refused.add(found.blocks)


def _not_affine(program: ProgramInfo) -> int:
    """Returns how many indices of the blocks that rules may schedule are not affine."""
    return sum(dim is None for b in program.blocks for use in (*b.stores, *b.loads) for dim in use.dims)


@dataclass(frozen=True)
class _Divided:
    """Axes that count through the same values, with the dimensions of buffers inside the function that they go through.

    ``factors`` are the extents of the new axes without the outermost one. Each buffer comes with the block that writes
    it.
    """

    factors: tuple[int | Expr, ...]
    axes: dict[BlockInfo, list[int]]
    dims: dict[Buffer, list[int]]
    writers: dict[Buffer, BlockInfo]

    @property
    def blocks(self) -> frozenset[str]:
        """Returns the names of the blocks whose axes are split."""
        return frozenset([block.name for block in self.axes])

    def split(self, sch: Schedule) -> None:
        """Split the axes and dimensions; ScheduleError where a step does not apply."""
        nests = [(block.name, numbers, len(block.axes)) for block, numbers in self.axes.items()]
        for block, numbers in self.axes.items():
            places = [block.spatial.index(block.axes[n]) for n in numbers if block.axes[n] in block.spatial]
            if block.is_reduction and block.writes_in_order and places and block.stores[0].buffer not in self.dims:
                # the buffer stays as it is: the sums go through one that has the new axes
                copy = sch.cache_write(block.name, 0, "global")
                sch.transform_layout(block.name, ("write", 0), self._map(len(block.spatial), places))
                nests.append((copy.name, places, len(block.spatial)))
        for buffer, numbers in self.dims.items():
            writer = self.writers[buffer]
            place = next(n for n, region in enumerate(writer.block.writes) if region.buffer is buffer)
            sch.transform_layout(writer.name, ("write", place), self._map(buffer.ndim, numbers))
        for name, numbers, rank in nests:
            sch.transform_block_layout(name, self._map(rank, numbers))

    def _map(self, rank: int, numbers: Sequence[int]) -> IndexMap:
        """Returns the index map that splits the indices of these ``numbers``."""
        indices = [Var(f"i{n}") for n in range(rank)]
        new = [part for n, i in enumerate(indices) for part in (_digits(i, self.factors) if n in numbers else [i])]
        return IndexMap(tuple(indices), tuple(new))


_NARROW, _FEW_STEPS = 8, 8
"""The results side by side that are too few lanes, and the steps up to which a reduction needs no tiles."""

_NARROW_STEPS = 16
"""The steps side by side that are too few lanes where vectors are made of steps."""


def _would_be_narrow(block: BlockInfo, numbers: Sequence[int], divisors: Mapping[int, int | Expr]) -> bool:
    """Returns whether a reduction would lose its vectors.

    Those of results of a short one end at the remainders. One that reads rows has vectors of its steps: they become
    shorter, or other axes are divided that matter little. Only a symbolic size has to divide them, for the steps of an
    example to apply to all sizes.
    """
    if not block.is_reduction:
        return False
    least = min(divisors, default=_NARROW_STEPS)
    if _is_read_in_rows(block) and all(isinstance(d, int) for d in divisors.values()):
        along = next(v for v in reversed(block.reduce) if block.extents[v] > 1)
        return least < _NARROW_STEPS or block.axes.index(along) not in numbers
    across = next((v for v in reversed(block.spatial) if block.extents[v] > 1), None)
    narrow = across is not None and block.axes.index(across) in numbers and least < _NARROW
    return narrow and block.reduce_size <= _FEW_STEPS


def _digits(index: Expr, factors: Sequence[int | Expr]) -> list[Expr]:
    """Returns the digits of an index, the outermost one first.

    >>> _digits(Var("h"), (2, 4))
    [h // 8, h // 4 % 2, h % 4]
    """
    out: list[Expr] = []
    below: int | Expr | None = None
    for factor in reversed(factors):
        out.append(floormod(index if below is None else floordiv(index, below), factor))
        below = factor if below is None else below * factor
    return [index if below is None else floordiv(index, below), *reversed(out)]


def _divided_axes(divisors: _Divisors) -> Iterator[_Divided]:
    """Returns the groups of axes that reductions divide, with the dimensions that they count through."""
    program = divisors.program
    if not any(map(any, divisors.of.values())):
        return
    free = [b for b in program.blocks if not b.keeps_order]
    dims = _counted_dims(program, free)
    together: dict[_Place, list[_Place]] = {(block, n): [(block, n)] for block in free for n in range(len(block.axes))}
    together.update({(buffer, d): [(buffer, d)] for buffer, numbers in dims.items() for d in numbers})
    for block in free:
        for use in (*block.stores, *block.loads):
            for d in dims.get(use.buffer, ()):
                along = use.dims[d]
                assert along is not None  # what counted dimensions are
                (axis,) = along
                one, other = together[block, block.axes.index(axis)], together[use.buffer, d]
                if one is not other:
                    one += other
                    together.update(dict.fromkeys(other, one))
    for places in {id(places): places for places in together.values()}.values():
        axes: dict[BlockInfo, list[int]] = {}
        counted: dict[Buffer, list[int]] = {}
        for what, n in places:
            if isinstance(what, BlockInfo):
                axes.setdefault(what, []).append(n)
            else:
                counted.setdefault(what, []).append(n)
        by = {
            d: divisor
            for block, numbers in axes.items()
            if block in divisors.of
            for n in numbers
            for d, divisor in divisors.of[block][n].items()
        }
        if any(_would_be_narrow(b, numbers, by) for b, numbers in axes.items() if b in divisors.of):
            continue
        factors = factors_of(by, {block.extents[block.axes[n]] for block, numbers in axes.items() for n in numbers})
        if factors:
            named = tuple([by.get(f, f) for f in factors])
            yield _Divided(named, axes, counted, {buffer: program.writer[buffer] for buffer in counted})


def _counted_dims(program: ProgramInfo, free: Collection[BlockInfo]) -> dict[Buffer, list[int]]:
    """Returns for each buffer inside the function the dimensions that each access goes through by an axis of its own."""
    touched: dict[Buffer, list[tuple[BlockInfo, Use]]] = {}
    for block in program.blocks:
        for use in (*block.stores, *block.loads):
            touched.setdefault(use.buffer, []).append((block, use))
    out = {}
    for buffer, uses in touched.items():
        writer = program.writer.get(buffer)
        if writer is None or program.is_output(writer) or not all(block in free for block, _ in uses):
            continue
        found = [d for d in range(buffer.ndim) if all(_goes_through(block, use, d) for block, use in uses)]
        if found:
            out[buffer] = found
    return out


def _goes_through(block: BlockInfo, use: Use, d: int) -> bool:
    """Returns whether the index of a dimension is an axis that has its extent."""
    size, dim = use.buffer.shape[d], use.dims[d]
    if dim is None or len(dim) != 1 or use.offsets[d] or not isinstance(size, IntImm):
        return False
    ((axis, factor),) = dim.items()
    return factor == 1 and block.extents.get(axis) == size.value
