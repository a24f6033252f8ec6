"""A recorded space has only candidates that were measured, so that a search of it needs no clock."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright import Target
from tilewright.driver import parse_spec
from tilewright.tuner import Candidate, Sketch, Space
from tilewright.tuner.space.sketch import row_keys

from .recording import Recording


class RecordedSketch(Sketch):
    """A sketch whose only sensible rows are recorded ones."""

    def __init__(self, sketch: Sketch, rows: np.ndarray, seconds: np.ndarray) -> None:
        super().__init__(sketch.parts, sketch.machine, sketch.base, "", sketch.tables)
        self.name = sketch.name
        self.recorded, self.seconds = rows, seconds
        self._times = dict(zip(map(tuple, rows.tolist()), seconds.tolist(), strict=True))
        self.__dict__["listable"] = True

    @property
    def sensible(self) -> int:
        return len(self.recorded)

    def time_of(self, row: Sequence[int]) -> float:
        """Returns the recorded seconds."""
        return self._times[tuple(row)]

    def all_rows(self) -> np.ndarray:
        return self.recorded

    def mask(self, rows: np.ndarray) -> np.ndarray:
        return np.isin(row_keys(rows), row_keys(self.recorded))

    def sample(self, count: int, rng: np.random.Generator, *, near_best: bool = False) -> np.ndarray:
        return self.recorded[rng.permutation(len(self.recorded))[:count]]

    def best_rows(self, count: int) -> np.ndarray:
        return self.recorded[np.argsort(self.score(self.recorded)[1], kind="stable")[:count]]


class RecordedSpace:
    """The sketches of a recording, as far as the space still has them; ``lost`` counts the rows that it has not."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.func = parse_spec(recording.about["spec"]).func
        self.target = Target(recording.about["target"])
        space = Space(self.func, self.target)
        self.sketches: list[RecordedSketch] = []
        self.lost = 0
        for name, rows in recording.rows.items():
            sketch = space.sketch(name)
            names = recording.about["decisions"][name]
            if sketch is None or list(sketch.column_names) != names:
                self.lost += len(rows)
                continue
            keep = sketch.mask(rows) & np.array(
                [sketch.row_of(dict(zip(names, row, strict=True))) is not None for row in rows.tolist()], bool
            )
            self.lost += int((~keep).sum())
            if keep.any():
                self.sketches.append(RecordedSketch(sketch, rows[keep], recording.seconds[name][keep]))

    @property
    def best(self) -> float:
        """Returns the least recorded seconds."""
        return min(float(s.seconds.min()) for s in self.sketches)

    def time_of(self, candidate: Candidate) -> float:
        """Returns the recorded seconds of a candidate."""
        assert isinstance(candidate.sketch, RecordedSketch)
        return candidate.sketch.time_of(candidate.row)
