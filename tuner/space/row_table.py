"""This module finds the rows of one part that satisfy its constraints, and the best combinations over several parts.

A row is called *sensible* when its part's mask allows it. Each constraint of a sketch concerns one part, so the
sensible rows of a sketch are all combinations of the sensible rows of its parts. To find them part by part takes time
in proportion to the number of parts, however many combinations there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ..cost.cost_features import prior_seconds
from ..cost.machine_model import MachineModel
from ..rules.schedule_rule import Part

ALL_ROWS = 200_000
"""The number of rows up to which all are listed; of more rows a sample is drawn."""

_CHUNK = 50_000
_CHUNKS = 100
"""The number of chunks of rows that are searched before a part counts as having no sensible row."""


class RowTable:
    """The sensible rows of ``part``, ``N x P`` int64, and the seconds that the analytic prior expects of each.

    ``complete``: the table has all sensible rows, in lexicographic order of the candidates; otherwise it has a sample.
    ``rule`` is the name of the schedule rule that made the part.
    """

    def __init__(self, part: Part, machine: MachineModel, rule: str = "") -> None:
        self.part, self.machine, self.rule = part, machine, rule
        self._sizes = [len(d.candidates) for d in part.decisions]
        self._values = [np.asarray(d.candidates, dtype=np.int64) for d in part.decisions]
        self.size = math.prod(self._sizes)
        self.complete = self.size <= ALL_ROWS

    @cached_property
    def rows(self) -> np.ndarray:
        """Returns the rows; none when the part's mask excludes everything that was looked at."""
        if self.complete:
            return self._between(0, self.size)
        rng = np.random.default_rng(0)
        found = np.zeros((0, len(self._sizes)), np.int64)
        for _ in range(_CHUNKS):
            found = distinct_rows(np.concatenate([found, self._sensible(self._places(_CHUNK, rng))]))
            if len(found) >= _CHUNK // 10:
                return found
        return found if len(found) else self._first()

    def usable(self) -> bool:
        """Returns whether there is a sensible row, and the part says what it costs."""
        return len(self.rows) > 0 and bool(np.isfinite(self.seconds).any())

    @cached_property
    def seconds(self) -> np.ndarray:
        """Returns the prior's seconds for each row."""
        return prior_seconds(self.part.costs(self.columns(self.rows), len(self.rows)), self.machine)

    @cached_property
    def order(self) -> np.ndarray:
        """Returns the numbers of the rows, best first."""
        return np.argsort(self.seconds, kind="stable")

    def draw(self, count: int, rng: np.random.Generator, near_best: bool = False) -> np.ndarray:
        """Returns ``count`` sensible rows, some of them more than once. They are drawn evenly, or half of them from the
        best few in a hundred."""
        if near_best:
            return self.rows[self.order[(len(self.rows) * rng.random(count) ** 6).astype(np.int64)]]
        if self.complete:
            return self.rows[rng.integers(len(self.rows), size=count)]
        fresh = self._sensible(self._places(count, rng))
        known = self.rows[rng.integers(len(self.rows), size=count - len(fresh))]
        return np.concatenate([fresh, known])[rng.permutation(count)]

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows as the part's methods take them."""
        return {d.name: rows[:, n].astype(np.float64) for n, d in enumerate(self.part.decisions)}

    def decisions(self, row: Sequence[int]) -> dict[str, int]:
        """Returns one row with names."""
        return {d.name: int(v) for d, v in zip(self.part.decisions, row, strict=True)}

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Returns a bool array: which rows are sensible."""
        return np.asarray(self.part.mask(self.columns(rows), len(rows)), dtype=bool)

    def _places(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Returns which candidate of each decision, for ``count`` rows, sensible or not."""
        return np.stack([rng.integers(size, size=count) for size in self._sizes])

    def _first(self) -> np.ndarray:
        """Returns the first sensible rows in lexicographic order, within the first chunks."""
        for start in range(0, min(self.size, _CHUNK * _CHUNKS), _CHUNK):
            rows = self._between(start, min(start + _CHUNK, self.size))
            if len(rows):
                return rows
        return np.zeros((0, len(self._sizes)), np.int64)

    def _between(self, start: int, stop: int) -> np.ndarray:
        places = np.zeros((len(self._sizes), stop - start), np.int64)
        rest = np.arange(start, stop)
        for n in reversed(range(len(self._sizes))):
            rest, places[n] = np.divmod(rest, self._sizes[n])
        return self._sensible(places)

    def _sensible(self, places: np.ndarray) -> np.ndarray:
        columns = [values[at] for values, at in zip(self._values, places, strict=True)]
        rows = np.stack(columns, axis=1) if columns else np.zeros((1, 0), np.int64)
        return rows[self.mask(rows)]


def cheapest_sums(costs: Sequence[np.ndarray], count: int) -> np.ndarray:
    """Returns the ``count`` cheapest choices of one number from each array, ``N x len(costs)`` positions, cheapest sum
    first.

    >>> cheapest_sums([np.array([3.0, 1.0]), np.array([0.0, 1.0, 5.0])], 3).tolist()
    [[1, 0], [1, 1], [0, 0]]
    """
    total, chosen = np.zeros(1), np.zeros((1, 0), np.int64)
    for cost in costs:
        best = np.argsort(cost, kind="stable")[:count]
        sums = (total[:, None] + cost[best][None, :]).reshape(-1)
        kept = np.argsort(sums, kind="stable")[:count]
        total = sums[kept]
        chosen = np.concatenate([chosen[kept // max(1, len(best))], best[kept % max(1, len(best)), None]], axis=1)
    return chosen


def row_keys(rows: np.ndarray) -> np.ndarray:
    """Returns a number for each row, the same for equal rows and for hardly any others. It is a sum with random
    factors, modulo 2^64."""
    factors = np.random.default_rng(0).integers(1 << 62, size=rows.shape[1], dtype=np.uint64) * np.uint64(2)
    return rows.astype(np.uint64) @ (factors + np.uint64(1))


def distinct_rows(rows: np.ndarray) -> np.ndarray:
    """Returns each row once, in an order that depends on the rows alone."""
    return rows[np.unique(row_keys(rows), return_index=True)[1]]
