"""This module brings sums of products into the form that instructions for dot products take, by steps of a schedule.

These multiply bytes, several neighbours along the reduction for each of several columns, and add the products to 32-bit sums
(:mod:`.rules.dot_products`); pairs of bfloat16 likewise. Where factors are bytes less zero points, the bytes are multiplied alone, and the
sums are corrected. Where the steps of the reduction do not lie in line, as the channels of ``X[n, c, y, x]``, the operand with the
rows is copied with the steps last; groups of channels become a dimension. The results are computed with the columns last,
and another stage brings them into their order. So a convolution over NCHW is one over NHWC.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from ..schedule import Schedule, ScheduleError
from ..schedule.index_map import IndexMap
from ..tir.expr import Add, Call, Expr, Sub, Var, floordiv, floormod
from ..tir.stmt import BufferStore
from .cost.axis_roles import dot_factors, dot_roles, one_axis_each, product_axes
from .loop_steps import applies_to, permutation, put_last
from .program import BlockInfo, ProgramInfo, Use

Multiplied = Callable[[BlockInfo], bool | str]
"""Returns whether the target multiplies the narrow numbers of a block as they are."""


def take_dot_form(sch: Schedule, multiplied: Multiplied, of: Schedule | None) -> None:
    """Bring sums of products into the form in which they are ``multiplied``, where there is one.

    That has to apply to ``of`` as well, the function of symbolic sizes whose example this is.
    """
    for block in ProgramInfo(sch.func).blocks:
        if not _may_change(block):
            continue
        before = sch.copy()
        if multiplied(block):
            roles = dot_roles(block)
            if roles is not None and block.axes == (*block.spatial, *block.reduce) and block.reduce[-1] is not roles.k:
                _order_axes(sch, block, block.spatial[-1], roles.k)
                if not multiplied(_named(sch, block.name)) or not applies_to(sch, of):
                    sch.restore(before)
            continue
        try:
            if dot_factors(block.block.body) is None:
                if not may_sum_bytes(block):
                    continue
                inline_zero_points(sch, block.name)
                sch.expand_offsets(block.name)
        except ScheduleError:
            sch.restore(before)
            continue
        if not (_is_multiplied(sch, block.name, multiplied) or _lay_out(sch, block.name, multiplied)) or not (
            applies_to(sch, of)
        ):
            sch.restore(before)


def _may_change(block: BlockInfo) -> bool:
    """Returns whether a block is a reduction whose loops may be changed."""
    return block.is_reduction and not block.keeps_order and block.obstacle is None and not block.block.annotations


def _is_multiplied(sch: Schedule, name: str, multiplied: Multiplied) -> bool:
    """Returns whether a block is a product that is multiplied as it is."""
    block = _named(sch, name)
    return product_axes(block) is not None and bool(multiplied(block))


def _named(sch: Schedule, name: str) -> BlockInfo:
    """Returns the block of that name."""
    return next(b for b in ProgramInfo(sch.func).blocks if b.name == name)


def may_sum_bytes(block: BlockInfo) -> bool:
    """Returns whether a block is a reduction in int32 whose loops may be changed."""
    return _may_change(block) and block.stores[0].buffer.dtype == "int32"


def inline_zero_points(sch: Schedule, name: str) -> None:
    """Let a block subtract zero points itself where stages did that for it; ScheduleError where one cannot be inlined.

    Stages that pad what is left with zeros pad the bytes with the zero point instead.
    """
    program = ProgramInfo(sch.func)
    for producer in program.producers(_named(sch, name)):
        body = producer.block.body
        if not isinstance(body, BufferStore) or not _chooses(body.value) or body.value.dtype != "int32":
            continue
        for source in program.producers(producer):
            if _subtracts(source):
                sch.compute_inline(source.name)
        sch.pad_before_offset(producer.name)
    for producer in ProgramInfo(sch.func).producers(_named(sch, name)):
        if _subtracts(producer):
            sch.compute_inline(producer.name)


def _chooses(value: Expr) -> bool:
    """Returns whether an element is one of two values, as in padding."""
    return isinstance(value, Call) and value.op == "tir.if_then_else"


def _subtracts(block: BlockInfo) -> bool:
    """Returns whether a stage makes int32 of bytes and adds or subtracts a number."""
    body = block.block.body
    if block.is_reduction or not isinstance(body, BufferStore) or not isinstance(body.value, (Add, Sub)):
        return False
    return body.value.dtype == "int32" and any(use.buffer.dtype.bits == 8 for use in block.loads)


_REUSE = 4
"""How many results read an element of a copied operand at the least."""

_STEPS = 16
"""The steps up to which bringing results into their order takes longer than is won."""


def _lay_out(sch: Schedule, name: str, multiplied: Multiplied) -> bool:
    """Copy the operands of a product, and turn its results, so that it is multiplied; returns whether that was possible."""
    block = _named(sch, name)
    if not block.writes_in_order or block.axes != (*block.spatial, *block.reduce) or len(block.loads) != 2:
        return False
    start = sch.copy()
    for rows, columns, column, step in _roles(block):
        try:
            _copy_with_last(sch, block, rows, step)
            if not one_axis_each(columns):
                sch.reindex(block.name, ("read", columns.buffer.name))
            elif not {columns.stride(step), columns.stride(column)} & {1, None} and (
                columns.buffer not in block.packed_ahead
            ):
                _copy_with_last(sch, block, columns, step)
            if block.spatial[-1] is not column:
                _turn_results(sch, block, column)
            _order_axes(sch, block, column, step)
        except ScheduleError:
            sch.restore(start)
            continue
        if _is_multiplied(sch, name, multiplied):
            return True
        sch.restore(start)
    return False


def _roles(block: BlockInfo) -> Iterator[tuple[Use, Use, Var, Var]]:
    """Returns the choices of the operand with the rows, that with the columns, the column axis and the step axis.

    An operand has the columns only where it has no windows, so that a copy by the axes is not larger. Choices that leave the results
    as they are come first, then those with many columns and steps.
    """
    found = []
    for rows, columns in (block.loads, block.loads[::-1]):
        if not rows.affine or not columns.affine or rows.buffer is columns.buffer:
            continue
        if _windows(columns) & set(block.reduce) or block.spatial_size < _REUSE * _rows_of(block, rows):
            continue
        for column in [v for v in block.spatial if v in columns.axes() and v not in rows.axes()]:
            for step in block.reduce:
                if step in rows.axes() and step in columns.axes() and _dim_of(block, rows, step) is not None:
                    found.append((rows, columns, column, step))

    def preferred(choice: tuple[Use, Use, Var, Var]) -> tuple[bool, int, int]:
        _, _, column, step = choice
        return column is not block.spatial[-1], -block.extents[step], -block.extents[column]

    return iter(sorted(found, key=preferred))


def _rows_of(block: BlockInfo, use: Use) -> int:
    """Returns how many results read different elements of an operand."""
    return math.prod(block.extents[v] for v in block.spatial if v in use.axes())


def _windows(use: Use) -> set[Var]:
    """Returns the axes that an operand adds to others in an index, digits of an axis excepted."""
    return {v for n, dim in enumerate(use.dims) if dim and len(dim) > 1 for v in dim}


def _dim_of(block: BlockInfo, use: Use, step: Var) -> int | None:
    """Returns the dimension that an axis counts, alone or as the last digit of an index, or None."""
    where = [n for n, dim in enumerate(use.dims) if dim and dim.get(step)]
    if len(where) != 1 or (use.dims[where[0]] or {}).get(step) != 1 or use.offsets[where[0]]:
        return None
    others = [factor for v, factor in (use.dims[where[0]] or {}).items() if v is not step]
    return where[0] if all(factor == block.extents[step] for factor in others) and len(others) < 2 else None


def _copy_with_last(sch: Schedule, block: BlockInfo, use: Use, step: Var) -> None:
    """Copy an operand whole with its steps last, unless they are. Groups of steps become a dimension of their own."""
    place = _dim_of(block, use, step)
    if place is None:
        raise ScheduleError(f"the steps of block {block.name!r} are no dimension of {use.buffer.name}")
    groups = len(use.dims[place] or {}) > 1
    rank = len(use.dims)
    if place == rank - 1 and not groups:
        return
    copy = sch.cache_read(block.name, use.buffer.name, "global")
    if groups:
        index = [Var(f"i{n}", "int64") for n in range(rank)]
        size = block.extents[step]
        split = [floordiv(index[place], size), floormod(index[place], size)]
        parts: list[Expr] = [part for n, i in enumerate(index) for part in (split if n == place else [i])]
        sch.transform_layout(copy, ("write", 0), IndexMap(tuple(index), tuple(parts)))
        rank, place = rank + 1, place + 1
    put_last(sch, copy, rank, place)
    for source in ProgramInfo(sch.func).producers(_named(sch, copy.name)):
        if source.is_reduction or not isinstance(source.block.body, BufferStore):
            continue
        before = sch.copy()
        try:
            sch.compute_inline(source.name)
        except ScheduleError:
            sch.restore(before)


def _turn_results(sch: Schedule, block: BlockInfo, last: Var) -> None:
    """Write results with an axis last; another stage brings them into their order. ScheduleError where there are few steps."""
    if block.reduce_size <= _STEPS:
        raise ScheduleError(f"block {block.name!r} has few steps")
    copy = sch.cache_write(block.name, 0, "global")
    spatial = _with_last(block.spatial, last)
    sch.transform_layout(block.name, ("write", 0), permutation([block.spatial.index(v) for v in spatial]))
    if sch.get(copy).writes[0].buffer not in sch.func.buffer_map.values():
        sch.compute_inline(copy)


def _order_axes(sch: Schedule, block: BlockInfo, column: Var, step: Var) -> None:
    """Put the columns last among the axes of the results, and the steps last among those of the reduction."""
    order = (*_with_last(block.spatial, column), *_with_last(block.reduce, step))
    if order != block.axes:
        sch.transform_block_layout(block.name, IndexMap(block.axes, order))


def _with_last(axes: Sequence[Var], last: Var) -> tuple[Var, ...]:
    """Returns the axes with one of them last."""
    return (*[v for v in axes if v is not last], last)
