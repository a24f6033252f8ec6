"""This module computes the cache traffic of a loop nest in closed form, for all candidates at once.

A nest is a sequence of loops from the innermost to the outermost, each over one axis with a trip count per candidate,
and the accesses under them as affine maps. For every depth the footprint of each access is a closed formula; the
deepest level of the nest whose footprints fit a cache determines how many bytes must be moved into it (the model of Low
et al., "Analytical modeling is enough for high-performance BLIS", TOMS 2016, generalized to any affine nest).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..program import Use
from .machine_model import MachineModel, crowding

_FILL = 0.75
"""The share of a cache that a working set may take before it counts as too large."""

Levels = Sequence[np.ndarray] | np.ndarray
"""A number per candidate for each depth of a nest."""


@dataclass(frozen=True)
class NestAccess:
    """The accesses to one buffer: for each dimension ``{axis: coefficient}``. The last dimension is contiguous in
    memory.

    ``contiguous``: all elements that the access covers are contiguous in memory (a packed operand). ``shape``: the
    extents of the buffer, where they are known: rows that are covered as a whole are contiguous with the next ones.
    """

    dims: tuple[Mapping[Any, float], ...]
    itemsize: float
    contiguous: bool = False
    write: bool = False
    shape: tuple[int, ...] = ()
    anywhere: frozenset[Any] = frozenset()
    """The axes with which an index changes that is read from memory: a step goes to any line, one that was loaded before as well."""

    @property
    def joins(self) -> bool:
        """Returns whether rows end within a cache line, so that it matters that the next one begins there."""
        return len(self.shape) == len(self.dims) > 1 and self.shape[-1] * self.itemsize % 64 > 0

    @cached_property
    def most(self) -> tuple[float, ...]:
        """Returns the elements of each dimension, infinity where they are not known."""
        if len(self.shape) != len(self.dims):
            return (math.inf,) * len(self.dims)
        return tuple([extent if extent > 1 else math.inf for extent in self.shape])

    def axes(self) -> set[Hashable]:
        """Returns the axes that the access's indices depend on."""
        return {axis for dim in self.dims for axis, factor in dim.items() if factor}


@dataclass(frozen=True)
class NestLoop:
    """A loop over ``axis`` with ``trips`` iterations, one number per candidate."""

    axis: Hashable
    trips: np.ndarray


def shape_of(buffer: Buffer) -> tuple[int, ...]:
    """Returns the extents of a buffer, 1 where one is not constant."""
    return tuple([getattr(extent, "value", 1) for extent in buffer.shape])


def steps_through(use: Use, extents: Mapping[Var, int], line: int) -> tuple[dict[Var, float], ...]:
    """Returns for each dimension how far it moves with one step of each axis of a block.

    An index that is not affine is taken to go evenly through its dimension, one that is read from memory to go anywhere: in the
    last dimension to another line, of ``line`` elements. Variables that are no axes count as one value.
    """
    found, shape = [], shape_of(use.buffer)
    for n, (dim, extent) in enumerate(zip(use.dims, shape, strict=True)):
        steps: Mapping[Var, float] = dim or {}
        if dim is None:
            variables = [v for v in use.unknown[n] if v in extents]
            farthest = float(line) if n == len(shape) - 1 else 1.0
            evenly = (extent - 1) / max(1, sum([extents[v] - 1 for v in variables]))
            steps = dict.fromkeys(variables, farthest if use.looked_up[n] else min(farthest, evenly))
        found.append({v: step for v, step in steps.items() if v in extents})
    return tuple(found)


def read_anywhere(use: Use) -> frozenset[Var]:
    """Returns the variables in the indices that are read from memory."""
    return frozenset(
        [v for variables, looked in zip(use.unknown, use.looked_up, strict=True) if looked for v in variables]
    )


def fitting(sizes: Levels, cache_bytes: float) -> np.ndarray:
    """Returns how far working sets of ``sizes`` bytes fit a cache, 0 to 1: a logistic in their logarithm."""
    ratios = np.log2(np.maximum(sizes, 1.0) / (_FILL * cache_bytes))
    return np.asarray(1.0 / (1.0 + np.exp2(np.minimum(np.maximum(6.0 * ratios, -60), 60))))


def blended(levels: Levels, fits: Levels) -> np.ndarray:
    """Returns the bytes that cross into a cache: of ``levels``, those of the deepest one whose working set fits. How far
    that of each level but the first fits (``fits``) says how much of it counts."""
    total = levels[0]
    for level, share in zip(levels[1:], fits, strict=True):
        total = np.minimum(total, share * level + (1.0 - share) * total)
    return total


def _span(dim: Mapping[Any, float], cover: Mapping[Any, np.ndarray], most: float, ones: np.ndarray) -> np.ndarray:
    """Returns how many of ``most`` elements of a dimension are covered when each axis covers ``cover`` values."""
    covered = ones + sum([abs(c) * (cover[axis] - 1) for axis, c in dim.items() if c])
    return np.minimum(covered, most)


class Nest:
    """Loops (innermost first), accesses, and the full extents of the axes; ``rows`` candidates at once."""

    def __init__(
        self, loops: Sequence[NestLoop], accesses: Sequence[NestAccess], extents: Mapping[Any, int], rows: int
    ) -> None:
        self.loops = tuple(loops)
        self.accesses = tuple(accesses)
        self._axes = [access.axes() for access in self.accesses]
        ones = np.ones(rows)
        cover: dict[Hashable, np.ndarray] = dict.fromkeys(extents, ones)
        spans = [
            [_span(dim, cover, most, ones) for dim, most in zip(access.dims, access.most, strict=True)]
            for access in self.accesses
        ]
        lines = self.lines = np.empty((len(self.loops) + 1, len(self.accesses), rows))
        """The cache lines under each access while the loops up to each depth run."""
        for number, access in enumerate(self.accesses):
            lines[0, number] = self._lines(access, spans[number], ones)
        for depth, loop in enumerate(self.loops):
            before = cover[loop.axis]
            cover[loop.axis] = np.minimum(before * loop.trips, extents[loop.axis])
            grows = not np.array_equal(before, cover[loop.axis])
            for number, access in enumerate(self.accesses):
                if grows and loop.axis in self._axes[number]:
                    for n, dim in enumerate(access.dims):
                        if dim.get(loop.axis):
                            spans[number][n] = _span(dim, cover, access.most[n], ones)
                    lines[depth + 1, number] = self._lines(access, spans[number], ones)
                else:
                    lines[depth + 1, number] = lines[depth, number]
        self.working_set = 64.0 * np.sum(lines, axis=1)
        self._fits: dict[float, np.ndarray] = {}
        trips = [loop.trips.astype(np.float64) for loop in self.loops]
        self.outside = np.array([np.prod([ones, *trips[d:]], axis=0) for d in range(len(trips) + 1)])

    @staticmethod
    def _lines(access: NestAccess, spans: Sequence[np.ndarray], ones: np.ndarray) -> np.ndarray:
        """Returns the cache lines under the access when its dimensions cover so many elements."""
        if not spans:
            return ones
        if access.contiguous:
            return np.ceil(math.prod(spans) * access.itemsize / 64)
        if not access.joins:
            return math.prod(spans[:-1]) * np.ceil(spans[-1] * access.itemsize / 64)
        run, around = spans[-1], ones
        whole = run >= access.shape[-1]
        for span, extent in zip(spans[-2::-1], access.shape[-2::-1], strict=True):
            run, around = np.where(whole, run * span, run), np.where(whole, around, around * span)
            whole = whole & (span >= extent)
        return around * np.ceil(run * access.itemsize / 64)

    def traffic(self, cache_bytes: float, only: int | None = None) -> np.ndarray:
        """Returns the bytes that cross into a cache of ``cache_bytes`` from the level behind it while the whole nest
        runs.

        Between the last depth that fits and the next the result is blended by a logistic in the logarithm of the
        working set, so that the result has no jumps. When the data of the whole nest fit, the traffic is 0: they are in
        the cache from the run before. ``only``: the number of the one access that counts.
        """
        levels = self._all_moved if only is None else self._moved[:, only]
        nothing = np.zeros_like(levels[:1])
        if cache_bytes not in self._fits:
            sizes = np.concatenate([self.working_set[1:], self.working_set[-1:]])
            self._fits[cache_bytes] = fitting(sizes, cache_bytes)
        return blended(np.concatenate([levels, nothing]), self._fits[cache_bytes])

    @cached_property
    def _all_moved(self) -> np.ndarray:
        return np.sum(self._moved, axis=1)

    @cached_property
    def _moved(self) -> np.ndarray:
        """Returns the bytes moved for each access when a cache keeps the data of the innermost loops. It keeps those up
        to each depth, and no others.

        What an iteration of the next loop shares with the one before it is still there: the rows of a window that slides,
        and the rest of a line.
        """
        moved = 64.0 * self.lines * self.outside[:, None]
        moved = np.concatenate([moved[1:], moved[-1:]])
        for number, access in enumerate(self.accesses):
            axes = self._axes[number]
            for depth, following in enumerate(self.loops):
                if following.axis in access.anywhere:
                    moved[depth, number] = 64.0 * self.lines[depth, number] * self.outside[depth]
                for loop in self.loops[depth + 1 :] if following.axis not in axes else ():
                    if loop.axis in axes:
                        break
                    moved[depth, number] /= loop.trips
            if access.write:
                moved[:, number] *= 2.0
        return moved

    def reuse_gap(self, cache_bytes: float) -> np.ndarray:
        """Returns log2 of the smallest working set that does not fit over the cache's size, or 0."""
        gap = np.zeros_like(self.outside[0])
        for ratio in np.log2(np.maximum(self.working_set[::-1], 1.0) / cache_bytes):
            gap = np.where(ratio > 0, ratio, gap)
        return gap


_SEVERAL_STREAMS = 0.3
"""How much longer memory takes to deliver several streams than one, as a share (an EPYC of 2023: 0.25 to 0.4; sums of long
rows). From the third-level cache they take as long as one."""


def swept_bytes(
    moved: float,
    machine: MachineModel,
    *,
    beyond: Callable[[float], float] | None = None,
    streams: np.ndarray | float = 1.0,
    stride: int = 0,
) -> dict[str, np.ndarray]:
    """Returns, by name, the bytes that come from caches and memory when data are read and written once.

    ``beyond``: how many bytes a cache of a size does not hold; without it, all where they are more than that size.
    ``streams``: how many places, ``stride`` bytes apart, are read at a time; their lines may share a set.
    """
    collide = 1.0 + (crowding(streams * np.ones(1), stride, machine) if stride else 0.0)
    outside = beyond or (lambda size: moved if moved > size else 0.0)
    several = 1.0 + _SEVERAL_STREAMS * np.minimum(1.0, np.asarray(streams) - 1.0)
    return {
        "l2_bytes": np.asarray(moved),
        "l3_bytes": np.asarray(collide * outside(machine.l2_bytes)),
        "memory_bytes": collide * several * outside(machine.l3_bytes),
    }
