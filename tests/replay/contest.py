"""This module replays searches on recorded spaces, and says how soon each finds a good candidate."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.tuner import ModelGuidedSearch, RandomSearch, SearchStrategy, XGBCostModel

from .recorded_space import RecordedSpace
from .rivals import Annealing, CmaSearch, EvolutionarySearch, OptunaSearch

Strategy = Callable[[Any, np.random.Generator], SearchStrategy]

STRATEGIES: dict[str, Strategy] = {
    "ours": lambda space, rng: ModelGuidedSearch(space, rng, XGBCostModel(0)),
    "random": RandomSearch,
    "evolutionary": EvolutionarySearch,
    "annealing": Annealing,
}
if importlib.util.find_spec("optuna") is not None:
    STRATEGIES["tpe"] = OptunaSearch
if importlib.util.find_spec("cma") is not None:
    STRATEGIES["cma-es"] = CmaSearch

GOOD = 0.95
"""The share of the best candidate's speed that counts as good."""


@dataclass(frozen=True)
class Replayed:
    """``trials``: how many were needed until one was good (one more than the budget where none was); ``first``: the share
    of the best speed that the best of the first batch reaches."""

    trials: int
    first: float


def replay(space: RecordedSpace, strategy: Strategy, *, seed: int, trials: int = 64, batch: int = 8) -> Replayed:
    """Run a search on recorded times."""
    search = strategy(space, np.random.default_rng(seed))
    best, done, good, first = float("inf"), 0, trials + 1, 0.0
    while done < trials:
        candidates = search.ask(min(batch, trials - done), trials - done)
        if not candidates:
            break
        seconds = [space.time_of(c) for c in candidates]
        search.tell(candidates, seconds)
        for value in seconds:
            done += 1
            best = min(best, value)
            if good > trials and space.best >= GOOD * best:
                good = done
        first = first or space.best / best
    return Replayed(good, first)


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Returns Spearman's rank correlation.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0])), 3)
    0.5
    """
    ranks = [np.argsort(np.argsort(x, kind="stable"), kind="stable").astype(float) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


def prior_correlation(space: RecordedSpace) -> float:
    """Returns how well the prior ranks the candidates that ran."""
    prior = np.concatenate([s.score(s.recorded)[1] for s in space.sketches])
    seconds = np.concatenate([s.seconds for s in space.sketches])
    ran = np.isfinite(seconds)
    return rank_correlation(prior[ran], seconds[ran])


def model_correlation(space: RecordedSpace, *, seed: int = 0, known: int = 64) -> float:
    """Returns how well the model ranks candidates that it was not told, after ``known`` others."""
    scored = [s.score(s.recorded) for s in space.sketches]
    features, prior = (np.concatenate([pair[n] for pair in scored]) for n in (0, 1))
    seconds = np.concatenate([s.seconds for s in space.sketches])
    ran = np.flatnonzero(np.isfinite(seconds))
    order = np.random.default_rng(seed).permutation(ran)
    told, asked = order[:known], order[known:]
    if len(asked) < 3:
        return float("nan")
    model = XGBCostModel(seed)
    model.fit(features[told], prior[told], seconds[told], np.ones(len(told)))
    return rank_correlation(model.predict(features[asked], prior[asked])[0], seconds[asked])
