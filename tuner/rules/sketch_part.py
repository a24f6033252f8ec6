"""A part is a recipe for one group of blocks with numbers left open. Schedule rules make parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...pages.short_repr import short_repr
from ...schedule import Schedule
from ..cost.cost_features import Costs


@dataclass(frozen=True)
class Decision:
    """A decision is a number to be chosen: its name and its possible values, in order (neighbours give similar
    schedules)."""

    name: str
    candidates: tuple[int, ...]

    __repr__ = short_repr()

    def __post_init__(self) -> None:
        if not self.candidates:
            raise ValueError(f"decision {self.name} has no candidates")


class Part(ABC):
    """A part schedules one group of blocks. Schedule rules make instances of subclasses.

    ``name`` names the recipe, ``decisions`` are the numbers that it leaves open. ``structure`` names the decisions with
    the largest influence (a register tile, for example), so that a batch can have candidates with different values of
    them.
    """

    name: str
    decisions: tuple[Decision, ...]
    structure: tuple[str, ...] = ()

    __repr__ = short_repr("name", "decisions")

    @abstractmethod
    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        """Perform the primitives on ``sch``; ScheduleError when they do not apply."""

    @abstractmethod
    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        """Returns the costs of ``rows`` candidates whose decisions are ``columns`` (float64 arrays by name)."""

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns which of the candidates are sensible, as a bool array; all of them unless overridden."""
        return np.ones(rows, dtype=bool)
