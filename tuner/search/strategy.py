"""Search strategies propose candidates (``ask``) and learn from their measured times (``tell``).

:class:`ModelGuidedSearch` scores whole matrices of candidates at once. A small space is scored completely. Of a large
one a sample is scored, which evolves: the best rows are mutated and combined, and their offspring are scored too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...pages.messages import short_repr
from ..cost.cost_model import CostModel
from ..space.search_space import Space
from ..space.sketch import Sketch, distinct_rows, row_keys


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


_SAMPLE = 40_000
_BEST = 256
"""The number of rows in a sample, and how many of them are the prior's best rows."""


@dataclass
class _Pool:
    """The rows of one sketch that may be proposed, with their scores."""

    sketch: Sketch
    rows: np.ndarray
    features: np.ndarray
    prior: np.ndarray
    complete: bool


def _pools(sketches: Sequence[Sketch], rng: np.random.Generator) -> list[_Pool]:
    """Returns all rows of each sketch, or a sample of too many rows. The sample has the prior's best, rows near the
    parts' best, and random ones. The large sketches share the size of the sample, because scoring takes time for every
    part of a row."""
    large = sum(len(sketch.parts) for sketch in sketches if not sketch.listable)
    count = _SAMPLE * 8 // max(8, large)
    pools = []
    for sketch in sketches:
        if sketch.listable:
            rows = sketch.all_rows()
        else:
            drawn = [sketch.sample(count // 2, rng), sketch.sample(count // 2, rng, near_best=True)]
            rows = distinct_rows(np.concatenate([sketch.best_rows(_BEST), *drawn]))
        pools.append(_Pool(sketch, rows, *sketch.score(rows), sketch.listable))
    return pools


class ModelGuidedSearch(SearchStrategy):
    """This strategy proposes the candidates that a cost model predicts to be fast. Of a batch 70 % are predicted best
    (with different register tiles), 20 % are promising ones of which the model is uncertain, and 10 % are random. In
    the last third of the trials it proposes neighbours of the three best instead.

    Records of other workloads may be handed over with :meth:`warm_start`; they count less than this one's.
    """

    def __init__(self, space: Space, rng: np.random.Generator, model: CostModel) -> None:
        super().__init__(space, rng)
        self.model = model
        self.pools = _pools(space.sketches, rng)
        self.seen: set[tuple[str, tuple[int, ...]]] = set()
        self.results: list[tuple[Candidate, float]] = []
        self.foreign: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        self.total = 0
        self._fitted = True

    def warm_start(self, features: np.ndarray, prior: np.ndarray, seconds: np.ndarray) -> None:
        """Learn from measurements of other workloads on the same target."""
        self.foreign = (features, prior, seconds)
        self._fitted = False

    def tell(self, candidates: Sequence[Candidate], seconds: Sequence[float]) -> None:
        for candidate, value in zip(candidates, seconds, strict=True):
            self.seen.add(candidate.key)
            self.results.append((candidate, float(value)))
        self._fitted = False

    def ask(self, count: int, remaining: int) -> list[Candidate]:
        self.total = max(self.total, remaining)
        if not self._fitted:
            self._fit()
        finished = [r for r in self.results if np.isfinite(r[1])]
        late = bool(finished) and remaining <= self.total / 3
        self._evolve(finished)
        scored = [(pool, *self.model.predict(pool.features, pool.prior)) for pool in self.pools if len(pool.rows)]
        if not scored:
            return []
        chosen: list[Candidate] = []
        if late:
            chosen += self._neighbours(finished, max(1, count * 2 // 3))
        rest = count - len(chosen)
        first = not self.results
        best = rest if first else max(0, round(0.7 * rest))
        unsure = 0 if first else round(0.2 * rest)
        ranks = self._merge(scored)
        if first:  # the first batch has the best rows of every sketch, with different register tiles
            share = -(-best // len(scored))
            for pool, mean, deviation in scored:
                ranks_of = self._merge([(pool, mean, deviation)])
                chosen += self._take(ranks_of, min(share, best - len(chosen)), spread=1, chosen=chosen)
        chosen += self._take(ranks, best - len(chosen) if first else best, spread=max(2, count // 3), chosen=chosen)
        if unsure:
            promising = ranks[: max(64, len(ranks) // 20)]
            doubtful = sorted(promising, key=lambda item: item[1] - 1.5 * item[2])
            chosen += self._take(doubtful, unsure, spread=count, chosen=chosen)
        chosen += self._random(count - len(chosen), chosen)
        if len(chosen) < count:
            chosen += self._take(ranks, count - len(chosen), spread=count, chosen=chosen)
        self.seen.update(c.key for c in chosen)
        return chosen

    def promise(self) -> float | None:
        if not self._fitted:
            self._fit()
        best: float | None = None
        for pool in self.pools:
            if len(pool.rows) == 0:
                continue
            mean, _ = self.model.predict(pool.features, pool.prior)
            order = np.argsort(mean, kind="stable")[: len(self.seen) + 1]
            fresh = (n for n in order if (pool.sketch.name, tuple(map(int, pool.rows[n]))) not in self.seen)
            first = next(fresh, None)
            if first is not None:
                best = min(float(2.0 ** mean[first]), best if best is not None else float("inf"))
        return best

    # -- learning --------------------------------------------------------------------------------------------------

    def _fit(self) -> None:
        self._fitted = True
        rows = [(c, s) for c, s in self.results if np.isfinite(s)]
        features, prior, seconds, weights = [], [], [], []
        for sketch in self.space.sketches:
            mine = [(c.row, s) for c, s in rows if c.sketch is sketch]
            if mine:
                f, p = sketch.score(np.array([row for row, _ in mine], dtype=np.int64).reshape(len(mine), -1))
                features.append(f)
                prior.append(p)
                seconds.append(np.array([s for _, s in mine]))
        own = sum(len(s) for s in seconds)
        weights.append(np.ones(own))
        if self.foreign is not None and len(self.foreign[2]):
            features.append(self.foreign[0])
            prior.append(self.foreign[1])
            seconds.append(self.foreign[2])
            weights.append(np.full(len(self.foreign[2]), 0.2))
        if seconds:
            self.model.fit(
                np.concatenate(features), np.concatenate(prior), np.concatenate(seconds), np.concatenate(weights)
            )

    def _evolve(self, finished: Sequence[tuple[Candidate, float]]) -> None:
        """Add offspring of the best rows to the pools that are samples only."""
        growing = [pool for pool in self.pools if not pool.complete and len(pool.rows)]
        for pool in growing:
            mean, _ = self.model.predict(pool.features, pool.prior)
            parents = pool.rows[np.argsort(mean, kind="stable")[:256]]
            measured = sorted((s, c.row) for c, s in finished if c.sketch is pool.sketch)[:32]
            if measured:
                parents = np.concatenate([np.array([row for _, row in measured], dtype=np.int64), parents])
            children = self._offspring(pool.sketch, parents, max(512, 4096 // len(growing)))
            fresh = children[~np.isin(row_keys(children), row_keys(pool.rows))]
            if len(fresh):
                features, prior = pool.sketch.score(fresh)
                pool.rows = np.concatenate([pool.rows, fresh])
                pool.features = np.concatenate([pool.features, features])
                pool.prior = np.concatenate([pool.prior, prior])

    def _offspring(self, sketch: Sketch, parents: np.ndarray, count: int) -> np.ndarray:
        """Returns the rows crossed from two parents each, one or two decisions changed at random. Each part of a row
        comes from one parent. A part that a change would make violate its constraints stays as it was."""
        first = parents[self.rng.integers(len(parents), size=count)]
        second = parents[self.rng.integers(len(parents), size=count)]
        widths = [len(part.decisions) for part in sketch.parts] if len(sketch.parts) > 1 else [1] * first.shape[1]
        from_first = np.repeat(self.rng.random((count, len(widths))) < 0.7, widths, axis=1)
        children = np.where(from_first, first, second)
        for number, decision in enumerate(sketch.decisions):
            change = self.rng.random(count) < 1.5 / len(sketch.decisions)
            children[change, number] = self.rng.choice(np.asarray(decision.candidates), size=int(change.sum()))
        return distinct_rows(sketch.mended(children, first))

    # -- choosing --------------------------------------------------------------------------------------------------

    def _merge(self, scored: Sequence[tuple[_Pool, np.ndarray, np.ndarray]]) -> list[tuple[Candidate, float, float]]:
        """Returns the most promising candidates of all pools, best first, with mean and deviation."""
        out: list[tuple[Candidate, float, float]] = []
        for pool, mean, deviation in scored:
            for index in np.argsort(mean, kind="stable")[: 2000 + len(self.seen)]:
                candidate = Candidate(pool.sketch, tuple(map(int, pool.rows[index])), float(2.0 ** mean[index]))
                if candidate.key not in self.seen:
                    out.append((candidate, float(mean[index]), float(deviation[index])))
        out.sort(key=lambda item: item[1])
        return out

    def _take(
        self, ranked: Sequence[tuple[Candidate, float, float]], count: int, *, spread: int, chosen: Sequence[Candidate]
    ) -> list[Candidate]:
        """Returns the first ``count``, at most ``spread`` with one structure."""
        taken: list[Candidate] = []
        have = {c.key for c in chosen}
        used: dict[tuple[object, ...], int] = {}
        for candidate, _, _ in ranked:
            if len(taken) >= count:
                break
            if candidate.key in have:
                continue
            row = np.array([candidate.row], dtype=np.int64)
            kind = (candidate.sketch.name, tuple(candidate.sketch.structure(row)[0]))
            if used.get(kind, 0) < spread:
                used[kind] = used.get(kind, 0) + 1
                taken.append(candidate)
        return taken

    def _random(self, count: int, chosen: Sequence[Candidate]) -> list[Candidate]:
        have = {c.key for c in chosen} | self.seen
        pools = [pool for pool in self.pools if len(pool.rows)]
        out: list[Candidate] = []
        for _ in range(10 * count):
            if len(out) >= count:
                break
            pool = pools[int(self.rng.integers(len(pools)))]
            row = pool.rows[int(self.rng.integers(len(pool.rows)))]
            candidate = Candidate(pool.sketch, tuple(map(int, row)))
            if candidate.key not in have:
                have.add(candidate.key)
                out.append(candidate)
        return out

    def _neighbours(self, finished: Sequence[tuple[Candidate, float]], count: int) -> list[Candidate]:
        """Returns the rows that differ from one of the three best in one decision, best predicted first. They differ by
        a step or two."""
        best = sorted(finished, key=lambda item: item[1])[:3]
        found: list[tuple[float, Candidate]] = []
        for candidate, _ in best:
            sketch = candidate.sketch
            rows = _one_step_away(sketch, candidate.row)
            rows = rows[sketch.mask(rows)] if len(rows) else rows
            if len(rows) == 0:
                continue
            mean, _ = self.model.predict(*sketch.score(rows))
            for row, value in zip(rows, mean, strict=True):
                neighbour = Candidate(sketch, tuple(map(int, row)), float(2.0**value))
                if neighbour.key not in self.seen:
                    found.append((float(value), neighbour))
        found.sort(key=lambda item: item[0])
        return list({c.key: c for _, c in found}.values())[:count]


def _one_step_away(sketch: Sketch, row: Sequence[int]) -> np.ndarray:
    rows = []
    for number, decision in enumerate(sketch.decisions):
        place = decision.candidates.index(row[number])
        for step in (-2, -1, 1, 2):
            if 0 <= place + step < len(decision.candidates):
                changed = list(row)
                changed[number] = decision.candidates[place + step]
                rows.append(changed)
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(sketch.decisions))
