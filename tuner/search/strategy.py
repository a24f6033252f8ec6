"""A search strategy proposes candidates and is told their times; the random one is a baseline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...pages.short_repr import short_repr
from ..space.search_space import Space
from ..space.sketch import Sketch


@dataclass(frozen=True)
class Candidate:
    """A candidate is a sketch and a row of its decisions; ``predicted_seconds`` is the model's prediction, if there is
    one."""

    sketch: Sketch
    row: tuple[int, ...]
    predicted_seconds: float = float("nan")

    __repr__ = short_repr()

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        """Returns the key of the candidate: equal keys mean equal candidates."""
        return (self.sketch.name, self.row)


class SearchStrategy(ABC):
    """A search strategy proposes candidates of ``space``; its only source of randomness is ``rng``. Derive from it to
    search in another way."""

    __repr__ = short_repr("space")

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng

    @abstractmethod
    def ask(self, count: int, remaining: int) -> list[Candidate]:
        """Returns up to ``count`` candidates that were not asked before; ``remaining`` trials are left, these included.
        An empty list: there is nothing left to try."""

    @abstractmethod
    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        """Learn how many seconds the candidates took; infinity stands for a failure."""

    def promise(self) -> float | None:
        """Returns the least seconds expected of any candidate not asked for yet; None when the strategy cannot say."""
        return None


class RandomSearch(SearchStrategy):
    """This strategy draws rows uniformly at random; it is a baseline."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self.seen: set[tuple[str, tuple[int, ...]]] = set()

    def ask(self, count: int, remaining: int) -> list[Candidate]:
        out: list[Candidate] = []
        for _ in range(20):
            for sketch in self.space.sketches:
                rows = sketch.sample(4 * count, self.rng)
                out += [c for c in (Candidate(sketch, tuple(map(int, row))) for row in rows) if c.key not in self.seen]
            if len(out) >= count:
                break
        unique = list({c.key: c for c in out}.values())
        chosen = [unique[i] for i in self.rng.permutation(len(unique))[:count]]
        self.seen.update(c.key for c in chosen)
        return chosen

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        self.seen.update(c.key for c in candidates)
