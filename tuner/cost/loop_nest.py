"""This module computes the cache traffic of a loop nest in closed form, for all candidates at once.

A nest is a sequence of loops from the innermost to the outermost, each over one axis with a trip count per candidate,
and the accesses under them as affine maps. For every depth the footprint of each access is a closed formula; the
deepest level of the nest whose footprints fit a cache determines how many bytes must be moved into it (the model of Low
et al., "Analytical modeling is enough for high-performance BLIS", TOMS 2016, generalized to any affine nest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_FILL = 0.75
"""The share of a cache that a working set may take before it counts as too large."""


@dataclass(frozen=True)
class Access:
    """The accesses to one buffer: for each dimension ``{axis: coefficient}``. The last dimension is contiguous in
    memory.

    ``contiguous``: all elements that the access covers are contiguous in memory (a packed operand).
    """

    dims: tuple[Mapping[str, int], ...]
    itemsize: int
    contiguous: bool = False
    write: bool = False

    def axes(self) -> set[str]:
        """Returns the axes that the access's indices depend on."""
        return {axis for dim in self.dims for axis, factor in dim.items() if factor}


@dataclass(frozen=True)
class Loop:
    """A loop over ``axis`` with ``trips`` iterations, one number per candidate."""

    axis: str
    trips: np.ndarray


def blended(levels: Sequence[np.ndarray], sizes: Sequence[np.ndarray], cache_bytes: float) -> np.ndarray:
    """Returns the bytes that cross into a cache: of ``levels``, those of the deepest one whose working set (``sizes``)
    fits. Between the last one that fits and the next the result is blended by a logistic in the logarithm of the working
    set."""
    total = levels[0]
    for level, size in zip(levels[1:], sizes[1:], strict=True):
        ratio = np.log2(np.maximum(size, 1.0) / (_FILL * cache_bytes))
        fits = 1.0 / (1.0 + np.exp2(np.clip(6.0 * ratio, -60, 60)))
        total = np.minimum(total, fits * level + (1.0 - fits) * total)
    return total


class Nest:
    """Loops (innermost first), accesses, and the full extents of the axes; ``rows`` candidates at once."""

    def __init__(
        self, loops: Sequence[Loop], accesses: Sequence[Access], extents: Mapping[str, int], rows: int
    ) -> None:
        self.loops = tuple(loops)
        self.accesses = tuple(accesses)
        ones = np.ones(rows)
        cover: dict[str, np.ndarray] = {axis: ones for axis in extents}
        self.lines: list[list[np.ndarray]] = [[self._lines(a, cover, ones) for a in self.accesses]]
        for loop in self.loops:
            cover = {**cover, loop.axis: np.minimum(cover[loop.axis] * loop.trips, extents[loop.axis])}
            self.lines.append([self._lines(a, cover, ones) for a in self.accesses])
        self.working_set = [64.0 * np.sum(level, axis=0) for level in self.lines]
        trips = [loop.trips.astype(np.float64) for loop in self.loops]
        self.outside = [np.prod([ones, *trips[d:]], axis=0) for d in range(len(trips) + 1)]

    @staticmethod
    def _lines(access: Access, cover: Mapping[str, np.ndarray], ones: np.ndarray) -> np.ndarray:
        """Cache lines under the access when each axis covers ``cover`` values."""
        spans = [ones + sum((abs(c) * (cover[axis] - 1) for axis, c in dim.items()), 0.0 * ones) for dim in access.dims]
        if not spans:
            return ones
        if access.contiguous:
            return np.ceil(np.prod(spans, axis=0) * access.itemsize / 64)
        outer = np.prod([ones, *spans[:-1]], axis=0)
        return outer * np.ceil(spans[-1] * access.itemsize / 64)

    def traffic(self, cache_bytes: float, weights: Sequence[np.ndarray | float] | None = None) -> np.ndarray:
        """Bytes that cross into a cache of ``cache_bytes`` from the level behind it while the whole nest runs.

        Between the last depth that fits and the next the result is blended by a logistic in the logarithm of the
        working set, so that the result has no jumps. When the data of the whole nest fit, the traffic is 0: they are in
        the cache from the run before. ``weights`` (one per access) multiply each access's bytes.
        """
        shares = weights if weights is not None else [1.0] * len(self.accesses)
        levels = [self._traffic_at(d, shares) for d in range(len(self.loops) + 1)]
        levels.append(np.zeros_like(levels[-1]))
        return blended(levels, [*self.working_set, self.working_set[-1]], cache_bytes)

    def _traffic_at(self, depth: int, weights: Sequence[np.ndarray | float]) -> np.ndarray:
        """Bytes moved when the data of the innermost ``depth`` loops stay in the cache, and no others do.

        What an iteration of the next loop shares with the one before it is still there: the rows of a window that slides,
        and the rest of a line.
        """
        total = np.zeros_like(self.outside[depth])
        outer = self.loops[depth:]
        for number, access in enumerate(self.accesses):
            axes = access.axes()
            at = depth + 1 if outer else depth
            moved = 64.0 * self.lines[at][number] * self.outside[at] * weights[number]
            if outer and outer[0].axis not in axes:
                for loop in outer[1:]:
                    if loop.axis in axes:
                        break
                    moved = moved / loop.trips
            total = total + moved * (2.0 if access.write else 1.0)
        return total

    def reuse_gap(self, cache_bytes: float) -> np.ndarray:
        """log2 of the smallest working set that does not fit over the size of the cache; 0 when everything fits."""
        gap = np.zeros_like(self.outside[0])
        for level in reversed(self.working_set):
            ratio = np.log2(np.maximum(level, 1.0) / cache_bytes)
            gap = np.where(ratio > 0, ratio, gap)
        return gap
