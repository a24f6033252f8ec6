"""This module brings a function into the form that schedule rules look for, by steps of a schedule.

An axis that is used as ``h // 4`` and ``h % 4`` becomes two, ``h = 4 * h0 + h1``, and the accesses become affine. What else
is not affine in a reduction, such as ``A[t[i], r]`` or ``A[(i + y) // 2]``, is copied before, where it is read often. A
reduction over a triangle, such as ``r`` in ``range(i + 1)``, becomes one over a rectangle, under a condition. The
buffers of the function that the axis counts through get two dimensions in its place, and the other stages of these
buffers are split alike. The steps are recorded as all steps are, so that a trace replays on the function as written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..schedule import Schedule, ScheduleError
from ..tir.analysis.access import accesses
from ..tir.expr import IntImm, Var
from ..tir.stmt import Buffer
from ..tir.walk import pre_order
from .program import BlockInfo, ProgramInfo, Use, divisors_of

_Place = tuple[BlockInfo | Buffer, int]
"""An axis of a block or a dimension of a buffer, by its number."""


def bring_into_canonical_form(sch: Schedule) -> ProgramInfo:
    """Make reductions rectangular, and their accesses affine; returns the program that results."""
    _pad_triangles(sch)
    _split_divided_axes(sch)
    _copy_what_is_gathered(sch)
    return ProgramInfo(sch.func)


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


_REUSE = 8
"""How often a reduction reads an element at the least so that a copy of it pays."""


def _copy_what_is_gathered(sch: Schedule) -> None:
    """Let reductions read a copy, laid out by their axes, of what they read at indices that are not affine."""
    for block in ProgramInfo(sch.func).blocks:
        if not block.is_reduction or block.keeps_order or block.obstacle is not None:
            continue
        for use in block.loads:
            if use.affine:
                continue
            axes = [v for v in block.axes if v in _axes_of(block, use.buffer)]
            work = math.prod(block.extents.values())
            size = math.prod(block.extents[v] for v in axes)
            if not axes or size * _REUSE > work:
                continue
            before = sch.copy()
            try:
                copy = sch.reindex(block.name, ("read", use.buffer.name))
                last = block.stores[0].dims[-1] if block.stores[0].dims else None
                near = next((v for v in axes if last is not None and last.get(v) == 1), axes[-1])
                order = [n for n, v in enumerate(axes) if v is not near] + [axes.index(near)]
                if order != sorted(order):
                    names = [f"i{n}" for n in range(len(axes))]
                    moved = ", ".join([names[n] for n in order])
                    sch.transform_layout(copy, ("write", 0), f"lambda {', '.join(names)}: ({moved},)")
            except ScheduleError:
                sch.restore(before)


def _axes_of(block: BlockInfo, buffer: Buffer) -> set[Var]:
    """Returns the axes that the places of a buffer depend on, those of indices that are read from memory included."""
    places = [index for access in accesses(block.block.body, buffer) for index in access.indices]
    return {n for index in places for n in pre_order(index) if isinstance(n, Var) and n in block.extents}


def _split_divided_axes(sch: Schedule) -> None:
    """Split the axes that reductions divide, where that makes accesses affine."""
    program = ProgramInfo(sch.func)
    refused: set[frozenset[str]] = set()
    while True:
        found = next((group for group in _divided_axes(program) if group.blocks not in refused), None)
        if found is None:
            return
        before = sch.copy()
        try:
            found.split(sch)
        except ScheduleError:
            sch.restore(before)
        after = ProgramInfo(sch.func)
        if _not_affine(after) < _not_affine(program) and len(after.left) <= len(program.left):
            program = after
        else:
            sch.restore(before)
            refused.add(found.blocks)


def _not_affine(program: ProgramInfo) -> int:
    """Returns how many accesses of the blocks that rules may schedule are not affine."""
    return sum(not use.affine for b in program.blocks for use in (*b.stores, *b.loads))


@dataclass(frozen=True)
class _Divided:
    """Axes that count through the same values, with the dimensions of buffers inside the function that they go through.

    ``factors`` are the extents of the new axes without the outermost one. Each buffer comes with the block that writes
    it.
    """

    factors: tuple[int, ...]
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

    def _map(self, rank: int, numbers: Sequence[int]) -> str:
        """Returns the text of the index map that splits the indices of these ``numbers``."""
        names = [f"i{n}" for n in range(rank)]
        new = [
            part for n, name in enumerate(names) for part in (_digits(name, self.factors) if n in numbers else [name])
        ]
        return f"lambda {', '.join(names)}: ({', '.join(new)},)"


def _digits(name: str, factors: Sequence[int]) -> list[str]:
    """Returns the digits of an index, the outermost one first.

    >>> _digits("h", (2, 4))
    ['h // 8', 'h // 4 % 2', 'h % 4']
    """
    out, below = [], 1
    for factor in reversed(factors):
        out.append(f"{name} // {below} % {factor}" if below > 1 else f"{name} % {factor}")
        below *= factor
    return [f"{name} // {below}", *reversed(out)]


def _divided_axes(program: ProgramInfo) -> Iterator[_Divided]:
    """Returns the groups of axes that reductions divide, with the dimensions that they count through."""
    free = [b for b in program.blocks if not b.keeps_order]
    divisors = {b: divisors_of(b) for b in free if b.is_reduction and not all(use.affine for use in b.loads)}
    if not any(map(any, divisors.values())):
        return
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
        by = {d for block, numbers in axes.items() if block in divisors for n in numbers for d in divisors[block][n]}
        factors = _chain(by, {block.extents[block.axes[n]] for block, numbers in axes.items() for n in numbers})
        if factors:
            yield _Divided(factors, axes, counted, {buffer: program.writer[buffer] for buffer in counted})


def _chain(divisors: Iterable[int], extents: Collection[int]) -> tuple[int, ...]:
    """Returns the factors of axes of one extent that are divided by these numbers. None where one does not divide the
    next.

    >>> _chain({4, 8}, {64}), _chain({4, 6}, {24}), _chain({4}, {30})
    ((2, 4), (), ())
    """
    (extent,) = extents if len(extents) == 1 else (0,)
    below, out = 1, list[int]()
    for divisor in [*sorted(d for d in divisors if d != extent), extent]:
        if divisor <= below or divisor % below:
            return ()
        out.append(divisor // below)
        below = divisor
    return tuple(reversed(out[:-1]))


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
