"""What earlier sessions measured, as candidates and features: a session goes on where the last one stopped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..codegen.target import Target
from ..tir.function import PrimFunc
from ..tir.parser import parse
from ..tuning_db import Database, TuningRecord
from .search import Candidate
from .space import Space

__all__ = ["Measured", "other_workloads", "own_records"]

Measured = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Features, the prior's seconds, measured seconds."""


def own_records(space: Space, records: Sequence[TuningRecord]) -> list[tuple[Candidate, float]]:
    """The records that are candidates of ``space``, with their seconds (infinity for failures)."""
    out: list[tuple[Candidate, float]] = []
    sketches = {sketch.name: sketch for sketch in space.sketches}
    for record in records:
        sketch = sketches.get(record.sketch)
        row = None if sketch is None else sketch.row_of(record.decisions)
        if sketch is not None and row is not None:
            out.append(
                (Candidate(sketch, row), record.run_seconds if record.ok and record.run_seconds else float("inf"))
            )
    return out


def other_workloads(db: Database, func: PrimFunc, target: Target, *, limit: int = 2000) -> Measured | None:
    """Measurements of other workloads on the same target as training data; None when there are none.

    The features of a workload are relative to nothing, but the label is the prior's error, which workloads share.
    """
    records = [r for r in db.records(not_workload=func, target=target, status="ok", limit=limit) if r.run_seconds]
    by_workload: dict[str, list[TuningRecord]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(record)
    features, prior, seconds = [], [], []
    for key, group in by_workload.items():
        stored = db.workload(key)
        other = None if stored is None else parse(stored.text)
        if not isinstance(other, PrimFunc):
            continue
        candidates = own_records(Space(other, target), group)
        for sketch in dict.fromkeys(c.sketch for c, _ in candidates):
            mine = [(c.row, s) for c, s in candidates if c.sketch is sketch and np.isfinite(s)]
            if mine:
                f, p = sketch.score(np.array([row for row, _ in mine], dtype=np.int64).reshape(len(mine), -1))
                features.append(f)
                prior.append(p)
                seconds.append(np.array([s for _, s in mine]))
    if not features:
        return None
    return np.concatenate(features), np.concatenate(prior), np.concatenate(seconds)
