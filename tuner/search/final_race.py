"""The final race times the best few candidates once more, alternately, and its result decides.  The batches in which
they were timed first are minutes apart, and the speed of the machine drifts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...tuning_db import TuningRecord
from ..measure import MeasureResult
from ..measure.statistics import estimate, interval

_NEAR = 1.05
"""A candidate this close to the best may be the best, however small the spread of its own timings: the speed of the
machine drifts."""

_FEW = 3
"""With so many timings one disturbance does not count."""

_DISQUALIFIED = ("wrong_result", "memory_damaged")


def finalists(records: Sequence[TuningRecord], count: int, default: str | None = None) -> list[TuningRecord]:
    """Returns the best records that noise could have put in the wrong order, at most ``count``, best first. The record
    of the trace ``default`` is among them in any case, so that the winner is not slower. The list is empty when there
    is only one. Of records of the same trace only the fastest."""
    ranked = sorted((r for r in records if r.ok and r.run_seconds), key=lambda r: r.run_seconds or 0.0)
    fastest: dict[str | None, TuningRecord] = {}
    for record in ranked:
        fastest.setdefault(record.trace, record)
    unique = list(fastest.values())
    if not unique:
        return []
    best = unique[0]
    limit = max(_NEAR * (best.run_seconds or 0.0), interval(best.times).high)
    near = [r for r in unique if min(r.run_seconds or 0.0, interval(r.times).low) <= limit][:count]
    if default in fastest and fastest[default] not in near:
        near.append(fastest[default])
    return near if len(near) > 1 else []


def decide(records: Sequence[TuningRecord], results: Sequence[MeasureResult]) -> list[TuningRecord]:
    """Returns the finalists' records after the race, those that could not be run left out.

    The records of the losers get the times of the race, where it took at least as many as the record has or three; where
    the time was up before, they keep all. The winner keeps all of its times and the better of its two
    figures, so that a race on a busy machine does not put it behind candidates that were not in the race. A candidate
    whose result is wrong this time is disqualified.
    """
    ran = [(a, b) for a, b in zip(records, results, strict=True) if b.ok or b.status in _DISQUALIFIED]
    fastest = min((result.run_seconds for _, result in ran if result.ok), default=None)
    out: list[TuningRecord] = []
    for record, result in ran:
        if not result.ok:
            out.append(replace(record, status=result.status, error=result.error, times=(), run_seconds=None))
        elif result.run_seconds == fastest:
            fastest = None  # one winner
            better = min(record.run_seconds or float("inf"), result.run_seconds)
            out.append(replace(record, times=(*record.times, *result.times), run_seconds=better))
        else:
            enough = len(result.times) >= min(_FEW, len(record.times))
            times = result.times if enough else (*record.times, *result.times)
            out.append(replace(record, times=times, run_seconds=estimate(times)))
    return out
