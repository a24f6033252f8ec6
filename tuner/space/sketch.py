"""A sketch is a recipe for a schedule with numbers left open; it spans a space of rows.

A :class:`Part` schedules one group of blocks; its decisions are integer columns. A :class:`Sketch` is one part per
group and thus a recipe for the whole function: a candidate is a sketch and one row of integers. Costs are computed for
a matrix of rows at once; a schedule is built only for what is measured. Parts run one after the other, so the prior's
seconds of a row are the sum over its parts.

A row is called *sensible* when its part's mask allows it. Each constraint of a sketch concerns one part, so the
sensible rows of a sketch are all combinations of the sensible rows of its parts. To find them part by part takes time
in proportion to the number of parts, however many combinations there are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property

import numpy as np

from ...schedule import Schedule
from ..cost.cost_features import Costs, combine, feature_table, prior_seconds
from ..cost.machine_model import MachineModel
from ..rules.schedule_rule import Part


class Sketch:
    """A sketch is a recipe for a whole function: parts applied in order. A row has the parts' decisions one after the
    other.

    ``base`` is what the parts are applied to (the function with some stages inlined); ``suffix`` distinguishes the
    names of sketches with the same parts on different bases. ``tables`` are the parts' rows, when the caller has them
    already.
    """

    def __init__(
        self, parts: Sequence[Part], machine: MachineModel, base: Schedule | None = None, suffix: str = "",
        tables: Sequence[RowTable] | None = None,
    ) -> None:  # fmt: skip
        self.parts = tuple(parts)
        self.machine = machine
        self.base = base
        self.tables = tuple(tables) if tables is not None else tuple([RowTable(part, machine) for part in self.parts])
        self.name = ("+".join(part.name for part in self.parts) or "as_is") + suffix
        self.decisions = tuple(d for part in self.parts for d in part.decisions)
        ends = list(itertools.accumulate(len(part.decisions) for part in self.parts))
        self._places = tuple(slice(end - len(part.decisions), end) for part, end in zip(self.parts, ends, strict=True))

    def __repr__(self) -> str:
        return f"Sketch({self.name}: {', '.join(d.name for d in self.decisions)}; {self.size} rows)"

    @cached_property
    def size(self) -> int:
        """Returns the number of rows, sensible or not."""
        return math.prod(table.size for table in self.tables)

    @cached_property
    def listable(self) -> bool:
        """Returns whether the sensible rows are few enough for :meth:`all_rows` to list them."""
        return all(table.complete for table in self.tables) and self.sensible <= ALL_ROWS

    @property
    def sensible(self) -> int:
        """Returns the number of sensible rows; of parts with more rows than are listed, those in the sample."""
        return math.prod(len(table.rows) for table in self.tables)

    def steps(self, row: Sequence[int]) -> list[tuple[RowTable, dict[str, int]]]:
        """Returns the parts in order, each with its decisions in ``row``."""
        return [(table, table.decisions(row[place])) for table, place in self._placed()]

    def score(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns ``(features, prior seconds)`` of the rows."""
        costs = [t.part.costs(t.columns(rows[:, place]), len(rows)) for t, place in self._placed()]
        if not costs:
            costs = [Costs(len(rows))]
        seconds = np.sum([prior_seconds(c, self.machine) for c in costs], axis=0)
        return feature_table(combine(costs, self.machine), self.machine, seconds), seconds

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Returns a bool array: which rows are sensible."""
        keep = np.ones(len(rows), dtype=bool)
        for table, place in self._placed():
            keep &= table.mask(rows[:, place])
        return keep

    def all_rows(self) -> np.ndarray:
        """Returns every sensible row, ``N x P`` int64, in lexicographic order of the candidates. ValueError when there
        are too many to list (:attr:`listable`)."""
        if not self.listable:
            raise ValueError(f"{self.name} has {self.size} rows, too many to list; draw a sample")
        grids = np.indices([len(table.rows) for table in self.tables]).reshape(len(self.tables), -1)
        return self._joined([t.rows[numbers] for t, numbers in zip(self.tables, grids, strict=True)], self.sensible)

    def sample(self, count: int, rng: np.random.Generator, *, near_best: bool = False) -> np.ndarray:
        """Returns up to ``count`` distinct sensible rows, drawn evenly; or mostly from each part's best rows."""
        if self.sensible == 0:
            return np.zeros((0, len(self.decisions)), np.int64)
        return distinct_rows(self._joined([t.draw(count, rng, near_best) for t in self.tables], count))

    def best_rows(self, count: int) -> np.ndarray:
        """Returns the ``count`` sensible rows that the analytic prior thinks best, best first. The time to find them
        grows with the number of parts, not with the number of rows."""
        if self.sensible == 0:
            return np.zeros((0, len(self.decisions)), np.int64)
        chosen = cheapest_sums([table.seconds for table in self.tables], count)
        return self._joined([t.rows[numbers] for t, numbers in zip(self.tables, chosen.T, strict=True)], len(chosen))

    def mended(self, rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Returns ``rows`` without parts that violate their constraints. Such a part becomes that of the sensible row
        in ``others``."""
        out = rows.copy()
        for table, place in self._placed():
            wrong = ~table.mask(rows[:, place])
            out[wrong, place] = others[wrong, place]
        return out

    def structure(self, rows: np.ndarray) -> np.ndarray:
        """Returns the columns of the decisions that the parts call their structure, ``N x Q``."""
        named = [d.name in part.structure for part in self.parts for d in part.decisions]
        return rows[:, np.array(named, dtype=bool)]

    def row_of(self, decisions: Mapping[str, int]) -> tuple[int, ...] | None:
        """Returns the row that :meth:`decisions_of` described, or None when it does not belong to this sketch."""
        keys = self.column_names
        if set(keys) != set(decisions):
            return None
        row = tuple(int(decisions[key]) for key in keys)
        inside = all(value in d.candidates for value, d in zip(row, self.decisions, strict=True))
        return row if inside else None

    def decisions_of(self, row: Sequence[int]) -> dict[str, int]:
        """Returns a row with names; with several parts the names begin with the part's number."""
        return dict(zip(self.column_names, map(int, row), strict=True))

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """Returns the names of a row's columns, unique."""
        if len(self.parts) == 1:
            return tuple(d.name for d in self.decisions)
        return tuple(f"{n}.{d.name}" for n, part in enumerate(self.parts) for d in part.decisions)

    def _placed(self) -> list[tuple[RowTable, slice]]:
        """Returns each part's rows, and which columns are its own."""
        return list(zip(self.tables, self._places, strict=True))

    @staticmethod
    def _joined(columns: Sequence[np.ndarray], count: int) -> np.ndarray:
        return np.concatenate(columns, axis=1) if columns else np.zeros((count, 0), np.int64)


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

    def under(self, rule: str) -> RowTable:
        """Returns the same table as one of another rule's parts."""
        if rule == self.rule:
            return self
        same = copy(self)
        same.rule = rule
        return same

    def take(self, other: RowTable) -> None:
        """Take the rows and the seconds of a table whose part is alike and has the same decisions."""
        self.rows = other.rows
        if len(self.rows):
            self.seconds = other.seconds

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
