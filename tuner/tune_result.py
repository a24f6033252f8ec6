"""A tuning session reports its progress and returns a result."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..codegen.machine.target import Target
from ..schedule import Schedule, Trace
from ..tir.stmt import PrimFunc
from ..tuning_db import TuningRecord
from .search.warm_start import replay


@dataclass(frozen=True)
class Progress:
    """The progress of a session, which callbacks receive.

    ``trials_done`` of ``trials_total``; ``failures`` among them; ``best_seconds`` (infinity before the first success)
    and ``best_gflops``; ``elapsed_seconds`` and the estimated ``remaining_seconds``; ``records`` are the latest batch.
    """

    trials_done: int
    trials_total: int
    failures: int
    best_seconds: float
    best_gflops: float
    elapsed_seconds: float
    remaining_seconds: float
    records: tuple[TuningRecord, ...] = ()


@dataclass(frozen=True)
class TuneResult:
    """The result of a session.

    ``best`` is the fastest correct record (of this session, or of an earlier one on the same workload and target); None
    when nothing could be measured. ``records`` are this session's, in order. ``stopped``: ``trials`` (budget used),
    ``time``, ``exhausted`` (every candidate tried), ``converged`` (no further gain expected) or ``interrupted``.
    ``problem`` says why there is no ``best``, and is empty when there is one.
    """

    func: PrimFunc
    target: Target
    best: TuningRecord | None
    records: tuple[TuningRecord, ...]
    stopped: str
    elapsed_seconds: float
    flops: float
    session: str | None = None
    failures: dict[str, int] = field(default_factory=dict)
    problem: str = ""

    @property
    def best_seconds(self) -> float:
        """Returns the best time, infinity without one."""
        seconds = None if self.best is None else self.best.run_seconds
        return float("inf") if seconds is None else seconds

    @property
    def best_gflops(self) -> float:
        """Billions of operations per second at the best time; 0 without one."""
        return self.flops / self.best_seconds / 1e9

    @property
    def best_schedule(self) -> Schedule | None:
        """Returns the schedule of the best record, None without one."""
        if self.best is None:
            return None
        return replay(self.func, Trace.from_json(self.best.trace))

    def history(self) -> list[tuple[int, float]]:
        """``(trial, best seconds so far)`` after each trial of the session."""
        out, best = [], float("inf")
        for number, record in enumerate(self.records, start=1):
            best = min(best, record.run_seconds if record.ok and record.run_seconds else best)
            out.append((number, best))
        return out
