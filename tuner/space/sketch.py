"""A sketch is a recipe for a schedule with numbers left open; it spans a space of rows.

A :class:`Part` schedules one group of blocks; its decisions are integer columns. A :class:`Sketch` is one part per
group and thus a recipe for the whole function: a candidate is a sketch and one row of integers. Costs are computed for
a matrix of rows at once; a schedule is built only for what is measured. Parts run one after the other, so the prior's
seconds of a row are the sum over its parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ...schedule import Schedule
from ..cost.cost_features import Costs, combine, feature_table, prior_seconds
from ..cost.machine_model import MachineModel
from ..rules.schedule_rule import Part
from .row_table import ALL_ROWS, RowTable, cheapest_sums, distinct_rows


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
