"""Sketches: recipes for a schedule with numbers left open, and the spaces they span.

A :class:`Part` schedules one group of blocks; its decisions are integer columns. A :class:`Sketch` is one part per
group and thus a recipe for the whole function: a candidate is a sketch and one row of integers. Costs are computed for
a matrix of rows at once; a schedule is built only for what is measured.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..schedule import Schedule
from .features import Costs, combine, feature_table, prior_seconds
from .machine import MachineModel

__all__ = ["Decision", "Part", "Sketch"]


@dataclass(frozen=True)
class Decision:
    """A number to be chosen: its name and the values it may take, in order (neighbours are alike)."""

    name: str
    candidates: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError(f"decision {self.name} has no candidates")


class Part(ABC):
    """How to schedule one group of blocks. Subclasses are what schedule rules make.

    ``name`` says which recipe, ``decisions`` what it leaves open; ``structure`` names the decisions that make two
    candidates different in kind (a register tile, say), so that a batch can be spread over them.
    """

    name: str
    decisions: tuple[Decision, ...]
    structure: tuple[str, ...] = ()

    @abstractmethod
    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        """Perform the primitives on ``sch``; ScheduleError when they do not apply."""

    @abstractmethod
    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        """The costs of ``rows`` candidates whose decisions are ``columns`` (float64 arrays by name)."""

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Which of the candidates are sensible, as a bool array; all of them unless overridden."""
        return np.ones(rows, dtype=bool)


class Sketch:
    """A recipe for a whole function: parts applied in order. A row holds the parts' decisions one after the other.

    ``base`` is what the parts are applied to (the function with some stages inlined); ``suffix`` tells sketches of the
    same parts on different bases apart.
    """

    def __init__(
        self, parts: Sequence[Part], machine: MachineModel, base: Schedule | None = None, suffix: str = ""
    ) -> None:
        self.parts = tuple(parts)
        self.machine = machine
        self.base = base
        self.name = ("+".join(part.name for part in self.parts) or "as_is") + suffix
        self.decisions = tuple(d for part in self.parts for d in part.decisions)

    def __repr__(self) -> str:
        return f"Sketch({self.name}: {', '.join(d.name for d in self.decisions)}; {self.size} rows)"

    @cached_property
    def size(self) -> int:
        """How many rows there are, sensible or not."""
        size = 1
        for decision in self.decisions:
            size *= len(decision.candidates)
        return size

    def apply(self, sch: Schedule, row: Sequence[int]) -> None:
        """Schedule ``sch`` as ``row`` says."""
        start = 0
        for part in self.parts:
            stop = start + len(part.decisions)
            part.apply(sch, {d.name: int(v) for d, v in zip(part.decisions, row[start:stop], strict=True)})
            start = stop

    def costs(self, rows: np.ndarray) -> Costs:
        """The costs of a ``N x P`` matrix of rows."""
        parts = [part.costs(columns, len(rows)) for part, columns in self._split(rows)]
        return combine(parts, self.machine) if parts else Costs(len(rows))

    def features(self, rows: np.ndarray) -> np.ndarray:
        """The features of a ``N x P`` matrix of rows, ``N x F`` float32."""
        return feature_table(self.costs(rows), self.machine)

    def score(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``(features, prior seconds)`` of the rows."""
        costs = self.costs(rows)
        return feature_table(costs, self.machine), prior_seconds(costs, self.machine)

    def mask(self, rows: np.ndarray) -> np.ndarray:
        """Which rows are sensible."""
        keep = np.ones(len(rows), dtype=bool)
        for part, columns in self._split(rows):
            keep &= part.mask(columns, len(rows))
        return keep

    def all_rows(self) -> np.ndarray:
        """Every sensible row, ``N x P`` int64, in lexicographic order of the candidates."""
        if not self.decisions:
            return np.zeros((1, 0), np.int64)
        grids = np.indices([len(d.candidates) for d in self.decisions]).reshape(len(self.decisions), -1)
        columns = [np.asarray(d.candidates, dtype=np.int64)[g] for d, g in zip(self.decisions, grids, strict=True)]
        rows = np.stack(columns, axis=1)
        return rows[self.mask(rows)]

    def sample(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Up to ``count`` distinct sensible rows, drawn evenly."""
        if not self.decisions:
            return np.zeros((1, 0), np.int64)
        columns = [rng.choice(np.asarray(d.candidates, dtype=np.int64), size=count) for d in self.decisions]
        rows = np.unique(np.stack(columns, axis=1), axis=0)
        return rows[self.mask(rows)]

    def structure(self, rows: np.ndarray) -> np.ndarray:
        """The columns that make rows different in kind, ``N x Q``."""
        names: list[int] = []
        start = 0
        for part in self.parts:
            names += [start + i for i, d in enumerate(part.decisions) if d.name in part.structure]
            start += len(part.decisions)
        return rows[:, names]

    def row_of(self, decisions: Mapping[str, int]) -> tuple[int, ...] | None:
        """The row that :meth:`decisions_of` described, or None when it does not belong to this sketch."""
        keys = self.column_names
        if set(keys) != set(decisions):
            return None
        row = tuple(int(decisions[key]) for key in keys)
        inside = all(value in d.candidates for value, d in zip(row, self.decisions, strict=True))
        return row if inside else None

    def decisions_of(self, row: Sequence[int]) -> dict[str, int]:
        """A row with names; with several parts the names begin with the part's number."""
        return dict(zip(self.column_names, map(int, row), strict=True))

    @cached_property
    def column_names(self) -> tuple[str, ...]:
        """The names of a row's columns, unique."""
        if len(self.parts) == 1:
            return tuple(d.name for d in self.decisions)
        return tuple(f"{n}.{d.name}" for n, part in enumerate(self.parts) for d in part.decisions)

    def _split(self, rows: np.ndarray) -> list[tuple[Part, dict[str, np.ndarray]]]:
        out: list[tuple[Part, dict[str, np.ndarray]]] = []
        start = 0
        for part in self.parts:
            columns = {d.name: rows[:, start + i].astype(np.float64) for i, d in enumerate(part.decisions)}
            out.append((part, columns))
            start += len(part.decisions)
        return out
