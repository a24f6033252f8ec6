"""Parts: recipes for one group of blocks with numbers left open. What schedule rules make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..schedule import Schedule
from .cost_features import Costs


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
        """Returns the costs of ``rows`` candidates whose decisions are ``columns`` (float64 arrays by name)."""

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns which of the candidates are sensible, as a bool array; all of them unless overridden."""
        return np.ones(rows, dtype=bool)
