"""Other searches as strategies: they propose candidates and are told their times."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.tuner import Candidate, SearchStrategy, Sketch, XGBCostModel


class _Seen(SearchStrategy):
    """A strategy over spaces whose rows can be listed, that remembers what was asked and told."""

    def __init__(self, space: Any, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self.asked: set[tuple[str, tuple[int, ...]]] = set()
        self.told: list[tuple[float, Candidate]] = []
        self.rows = {sketch.name: sketch.all_rows() for sketch in space.sketches}

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        self.told += [(s, c) for s, c in zip(seconds, candidates, strict=True)]

    def left(self) -> int:
        """Returns how many candidates were not asked yet."""
        return sum(len(rows) for rows in self.rows.values()) - len(self.asked)

    def propose(self, candidate: Candidate, out: list[Candidate]) -> bool:
        """Add a candidate unless it was asked before."""
        if candidate.key in self.asked:
            return False
        self.asked.add(candidate.key)
        out.append(candidate)
        return True

    def random(self) -> Candidate:
        """Returns a candidate, drawn evenly over all rows."""
        sizes = np.array([len(rows) for rows in self.rows.values()], float)
        sketch = self.space.sketches[int(self.rng.choice(len(sizes), p=sizes / sizes.sum()))]
        rows = self.rows[sketch.name]
        return Candidate(sketch, tuple(rows[int(self.rng.integers(len(rows)))].tolist()))

    def nearest(self, sketch: Sketch, wanted: np.ndarray) -> Candidate:
        """Returns the candidate nearest to ``wanted`` that was not asked, by the logarithms of the decisions."""
        rows = self.rows[sketch.name]
        far = np.abs(np.log2(1.0 + rows) - np.log2(1.0 + wanted)).sum(axis=1) + 1e-6 * self.rng.random(len(rows))
        for n in np.argsort(far)[:64]:
            candidate = Candidate(sketch, tuple(rows[n].tolist()))
            if candidate.key not in self.asked:
                return candidate
        return self.random()


class EvolutionarySearch(_Seen):
    """The search of MetaSchedule (Shao et al., "Tensor program optimization with probabilistic programs", NeurIPS 2022):
    a population of random and of the best measured candidates evolves by mutation of one decision, ranked by a model that
    knows no prior; 5 % of a batch are random."""

    population, generations = 256, 4

    def ask(self, count: int, remaining: int) -> list[Candidate]:
        out: list[Candidate] = []
        finite = [(s, c) for s, c in self.told if np.isfinite(s)]
        model = self._model(finite)
        if model is not None:
            ranked = self._evolved(model, [c for _, c in sorted(finite, key=lambda item: item[0])[:64]])
            for candidate in ranked:
                if len(out) < count - max(1, round(0.05 * count)):
                    self.propose(candidate, out)
        for _ in range(50 * count):
            if len(out) >= min(count, len(out) + self.left()):
                break
            self.propose(self.random(), out)
        return out

    def _model(self, finite: list[tuple[float, Candidate]]) -> XGBCostModel | None:
        if len(finite) < 4:
            return None
        model = XGBCostModel(0, members=1, trust_after=1)
        features = np.concatenate([_features(c) for _, c in finite])
        seconds = np.array([s for s, _ in finite])
        model.fit(features, np.ones(len(seconds)), seconds, np.ones(len(seconds)))
        return model

    def _evolved(self, model: XGBCostModel, best: list[Candidate]) -> list[Candidate]:
        people = best + [self.random() for _ in range(self.population - len(best))]
        for _ in range(self.generations):
            people = self._ranked(model, people + [self._mutated(c) for c in people])[: self.population]
        return people

    def _mutated(self, candidate: Candidate) -> Candidate:
        row = np.array(candidate.row)
        if len(row):
            number = int(self.rng.integers(len(row)))
            row[number] = self.rng.choice(candidate.sketch.decisions[number].candidates)
        rows = self.rows[candidate.sketch.name]
        far = np.abs(np.log2(1.0 + rows) - np.log2(1.0 + row)).sum(axis=1)
        return Candidate(candidate.sketch, tuple(rows[int(np.argmin(far))].tolist()))

    def _ranked(self, model: XGBCostModel, people: list[Candidate]) -> list[Candidate]:
        unique = list({c.key: c for c in people}.values())
        scores: dict[tuple[str, tuple[int, ...]], float] = {}
        for sketch in self.space.sketches:
            mine = [c for c in unique if c.sketch is sketch]
            if mine:
                features, _ = sketch.score(np.array([c.row for c in mine], np.int64).reshape(len(mine), -1))
                mean, _ = model.predict(_without_prior(features), np.ones(len(mine)))
                scores.update({c.key: float(m) for c, m in zip(mine, mean, strict=True)})
        return sorted(unique, key=lambda c: scores[c.key])


def _features(candidate: Candidate) -> np.ndarray:
    return _without_prior(candidate.sketch.score(np.array([candidate.row], np.int64))[0])


def _without_prior(features: np.ndarray) -> np.ndarray:
    """Returns the features without the prior, which is the last column."""
    out = features.copy()
    out[:, -1] = 0
    return out


class Annealing(_Seen):
    """Simulated annealing on measured times (Kirkpatrick et al., Science 1983): a step to a neighbour, accepted when it is
    faster, or by chance as long as it is hot."""

    chains = 4

    def __init__(self, space: Any, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self.at: list[tuple[float, Candidate]] = []

    def ask(self, count: int, remaining: int) -> list[Candidate]:
        out: list[Candidate] = []
        heat = 0.5 * remaining / max(1, remaining + len(self.told))
        for seconds, candidate in self.told[-count:] if self.told else []:
            if len(self.at) < self.chains:
                self.at.append((seconds, candidate))
                continue
            n = int(self.rng.integers(self.chains))
            before = self.at[n][0]
            worse = np.log(seconds / before) if np.isfinite(seconds) and np.isfinite(before) else np.inf
            if seconds < before or self.rng.random() < np.exp(-worse / max(heat, 1e-3)):
                self.at[n] = (seconds, candidate)
        for _ in range(20 * count):
            if len(out) >= count or not self.left():
                break
            if len(self.at) < self.chains:
                self.propose(self.random(), out)
                continue
            here = self.at[int(self.rng.integers(self.chains))][1]
            row = np.array(here.row)
            if len(row):
                number = int(self.rng.integers(len(row)))
                row[number] = self.rng.choice(here.sketch.decisions[number].candidates)
            self.propose(self.nearest(here.sketch, row), out)
        return out


class OptunaSearch(_Seen):
    """Optuna's samplers (Akiba et al., "Optuna", KDD 2019) through ask and tell; what they propose is taken to the nearest
    candidate."""

    def __init__(self, space: Any, rng: np.random.Generator, sampler: str = "TPESampler") -> None:
        super().__init__(space, rng)
        self.optuna = importlib.import_module("optuna")
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        made = getattr(self.optuna.samplers, sampler)(seed=int(rng.integers(1 << 30)))
        self.study = self.optuna.create_study(sampler=made)
        self.trials: dict[tuple[str, tuple[int, ...]], Any] = {}

    def ask(self, count: int, remaining: int) -> list[Candidate]:
        out: list[Candidate] = []
        for _ in range(20 * count):
            if len(out) >= count or not self.left():
                break
            trial = self.study.ask()
            names = [s.name for s in self.space.sketches]
            sketch = self.space.sketches[names.index(trial.suggest_categorical("sketch", names))]
            wanted = np.array([
                d.candidates[trial.suggest_int(f"{sketch.name}.{name}", 0, len(d.candidates) - 1)]
                for name, d in zip(sketch.column_names, sketch.decisions, strict=True)
            ])  # fmt: skip
            candidate = self.nearest(sketch, wanted)
            if self.propose(candidate, out):
                self.trials[candidate.key] = trial
        return out

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        super().tell(candidates, seconds)
        for candidate, value in zip(candidates, seconds, strict=True):
            trial = self.trials.pop(candidate.key, None)
            if trial is not None:
                self.study.tell(trial, float(np.log(value)) if np.isfinite(value) else 10.0)


def _cma() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like to plot
        return importlib.import_module("cma")


class CmaSearch(_Seen):
    """CMA-ES (Hansen, "The CMA evolution strategy: a tutorial", 2016) by the package ``cma``: a point of the unit cube has
    a coordinate for each sketch, of which the largest chooses, and one for each decision; what it proposes is taken to
    the nearest candidate."""

    def __init__(self, space: Any, rng: np.random.Generator) -> None:
        super().__init__(space, rng)
        self.sketches = len(space.sketches)
        size = max(2, self.sketches + max(len(s.decisions) for s in space.sketches))
        options = {"seed": int(rng.integers(1, 1 << 30)), "bounds": [0, 1], "verbose": -9}
        self.evolution = _cma().CMAEvolutionStrategy(size * [0.5], 0.3, options)
        self.waiting: list[np.ndarray] = []
        self.points: dict[tuple[str, tuple[int, ...]], np.ndarray] = {}
        self.answered: list[tuple[np.ndarray, float]] = []

    def ask(self, count: int, remaining: int) -> list[Candidate]:
        out: list[Candidate] = []
        while len(out) < count and self.left():
            if not self.waiting:
                if self.points:
                    break  # the population is measured first
                self.waiting = list(self.evolution.ask())
            point = self.waiting.pop()
            candidate = self._candidate(point)
            if self.propose(candidate, out):
                self.points[candidate.key] = point
            else:
                self._answer(point, 10.0)
        return out

    def _candidate(self, point: np.ndarray) -> Candidate:
        sketch = self.space.sketches[int(np.argmax(point[: self.sketches]))]
        places = [min(int(x * len(d.candidates)), len(d.candidates) - 1)
                  for x, d in zip(point[self.sketches :], sketch.decisions, strict=False)]  # fmt: skip
        wanted = np.array([d.candidates[n] for d, n in zip(sketch.decisions, places, strict=True)])
        return self.nearest(sketch, wanted)

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        super().tell(candidates, seconds)
        for candidate, value in zip(candidates, seconds, strict=True):
            point = self.points.pop(candidate.key, None)
            if point is not None:
                self._answer(point, float(np.log(value)) if np.isfinite(value) else 10.0)

    def _answer(self, point: np.ndarray, value: float) -> None:
        self.answered.append((point, value))
        if len(self.answered) >= self.evolution.popsize:
            points, values = zip(*self.answered, strict=True)
            self.answered = []
            self.evolution.tell(list(points), list(values))
