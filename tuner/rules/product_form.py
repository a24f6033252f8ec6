"""Brings sums of products of any number of axes into one form: ``C[b, i, j] += A[b, i, k] * B[b, k, j]``.

Axes are fused, operands are found by the fused axes in the copies to shared memory, and what tiles are longer than an axis is filled with
zeros there. So convolutions, batches, heads and the layers of networks are scheduled as one product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from ...tir.expr import IntImm, Var
from ..cost.axis_roles import ProductRoles
from ..program import BlockInfo, Use


@dataclass(frozen=True)
class ProductAxes:
    """The axes of a product by their numbers in its block, those of one role in the order of fusing.

    ``inner``: the reduced axis of which ``run`` neighbours are one after the other, before the other reduced axes go on.
    """

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    reduced: tuple[int, ...]
    inner: int = -1
    run: int = 1

    @classmethod
    def of(cls, block: BlockInfo, roles: ProductRoles, step: int) -> ProductAxes:
        """Returns the axes of a product for tiles of ``step`` steps. Axes of one value count as rows."""
        rows = [v for v in block.spatial if v in roles.rows or block.extents[v] == 1]
        batch, own, columns, reduced = [
            tuple([block.axes.index(v) for v in axes]) for axes in (roles.batch, rows, roles.columns, block.reduce)
        ]
        runs = axis_of_runs(block)
        if runs is None:
            return cls(batch, own, columns, reduced)
        return cls(batch, own, columns, reduced, block.axes.index(runs), math.gcd(block.extents[runs], step))


@dataclass(frozen=True)
class OperandOrder:
    """The order in which an operand is copied. ``left``: it has the rows; ``steps_last``: its steps are its last dimension."""

    buffer: str
    left: bool
    steps_last: bool


def in_product_form(
    sch: Schedule, block: Any, axes: ProductAxes, operands: Sequence[OperandOrder], multiples: tuple[int, int, int],
    epilogue: Any = None, padding: Sequence[str] = (),
) -> tuple[list[Any], Any]:  # fmt: skip
    """Let ``block`` run over the axes ``[b,] i, j, k``, whose extents become multiples of ``multiples``.

    ``epilogue`` is the element-wise stage that alone reads the result; ``padding`` names stages that are computed in the copies of
    the operands. Returns the blocks that copy the operands, ``[b, i, k]`` and ``[b, k, j]`` or with the last two exchanged, and the one
    that takes the result: the epilogue, or a copy.
    """
    sizes = [int(axis.dom.extent) for axis in sch.get(block).iter_vars]
    batch = [_Fused.of(axes.batch, sizes)] if axes.batch else []
    i, j = _Fused.of(axes.rows, sizes), _Fused.of(axes.columns, sizes)
    k = _Fused.of(axes.reduced, sizes).with_runs(axes.inner, axes.run)
    copies = []
    for n, operand in enumerate(operands):
        again = any(other.buffer == operand.buffer for other in operands[n + 1 :])
        copies.append(sch.reindex(block, operand.buffer, place=0 if again else None))
    taken = sch.reindex(block, ("write", 0))
    sides = [i if operand.left else j for operand in operands]
    orders = [[*batch, *((side, k) if o.steps_last else (k, side))] for o, side in zip(operands, sides, strict=True)]
    result = [*batch, i, j]
    for copy, order in zip([*copies, taken], [*orders, result], strict=True):
        of_result = copy is taken
        buffer = (sch.get(copy).reads if of_result else sch.get(copy).writes)[0].buffer
        known = sch.get(block)
        (region,) = [r for r in (known.writes if of_result else known.reads) if r.buffer is buffer]
        own = [axis.var for axis in known.iter_vars]
        place = _places(order, [own.index(r.min) for r in region.region])
        sch.transform_layout(copy, ("read" if of_result else "write", 0), place)
        sch.transform_block_layout(copy, place)
    sch.transform_block_layout(block, _places([*result, k], range(len(sizes))))
    for name in padding:
        sch.compute_inline(name)
    out = taken
    if epilogue is not None:
        out = sch.get_block(epilogue) if isinstance(epilogue, str) else epilogue
        sch.compute_inline(taken)
        sch.transform_block_layout(out, _places(result, range(len(sizes) - len(axes.reduced))))
    sch.pad_einsum(block, [*[1 for _ in batch], *multiples])
    for n, copy in enumerate(copies):
        consumers = sch.get_consumers(copy)
        if consumers[0].name != block.name:
            copies[n] = consumers[0]
            sch.compute_inline(copy)
    (consumer,) = sch.get_consumers(block)
    if consumer.name != out.name:
        sch.compute_inline(consumer)
    sch.set_scope(block, 0, "local")
    return copies, out


@dataclass(frozen=True)
class _Fused:
    """An axis made of digits, the first one the most significant. A digit is the number of an axis, and the divisor, the remainder's
    divisor (0: none) and the extent of its values."""

    digits: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def of(cls, axes: Sequence[int], extents: Sequence[int]) -> _Fused:
        """Returns the fusion of axes in their order."""
        return cls(tuple([(n, 1, 0, extents[n]) for n in axes]))

    def with_runs(self, axis: int, run: int) -> _Fused:
        """Returns this axis with the number in a run of ``axis`` as its last digit."""
        if run <= 1:
            return self
        out = [(n, run, 0, size // run) if n == axis else (n, d, m, size) for n, d, m, size in self.digits]
        return _Fused((*out, (axis, 1, run, run)))

    def value(self, at: Mapping[int, Any]) -> Any:
        """Returns the place on this axis by the values of the axes. One that ``at`` lacks has one value, 0."""
        total: Any = 0
        for n, divisor, remainder, size in self.digits:
            digit = at.get(n, 0)
            if n in at and divisor > 1:
                digit = digit // divisor
            if n in at and remainder:
                digit = digit % remainder
            total = total * size + digit
        return total


def _places(order: Sequence[_Fused], numbers: Sequence[int]) -> Callable[..., list[Any]]:
    """Returns the function from values of the axes of these numbers to places on fused ones."""
    return lambda *at: [fused.value(dict(zip(numbers, at, strict=True))) for fused in order]


def length_of_lines(use: Use, axes: Sequence[Var], block: BlockInfo) -> int:
    """Returns a divisor of the lengths of an operand's lines along ``axes``, and of the places where they begin. It is 1
    where steps of the last axis are no neighbours."""
    last = next((v for v in reversed(axes) if block.extents[v] > 1), None)
    if last is None or use.stride(last) != 1:
        return 1
    left = [v for v in block.axes if block.extents[v] > 1 and v is not last]
    start, size = 0, 1
    for offset, extent in zip(reversed(use.offsets), reversed(use.buffer.shape), strict=True):
        if not isinstance(extent, IntImm):
            return 1
        start, size = start + offset * size, size * extent.value
    return math.gcd(block.extents[last], start, *[use.stride(v) or 0 for v in left])


def axis_of_runs(block: BlockInfo) -> Var | None:
    """Returns the reduced axis whose neighbours should follow each other; None stands for the last one. Where that one is a window, it is
    the longest one that is none. The steps of a tile then have one place in the window, which is computed once for a tile."""
    windows = {v for use in block.loads for dim in use.dims if dim and len(dim) > 1 for v in dim}
    others = [v for v in block.reduce if v not in windows and block.extents[v] > 1]
    if block.reduce[-1] not in windows or not others:
        return None
    return max(others, key=lambda v: block.extents[v])


def pads_around_lines(use: Use, padding: Sequence[BlockInfo]) -> bool:
    """Returns whether the stages that pad an operand, if any, leave its last dimension as it is."""
    for load in [load for b in padding for load in b.loads if use.buffer in {s.buffer for s in b.stores}]:
        last, size, padded = load.dims[-1], load.buffer.shape[-1], use.buffer.shape[-1]
        same = isinstance(size, IntImm) and isinstance(padded, IntImm) and size.value == padded.value
        if not last or load.offsets[-1] != 0 or not same:
            return False
    return True
