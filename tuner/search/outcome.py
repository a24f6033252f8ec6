"""This module says what came of a candidate, and in words why a search has no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ...codegen import CODEGEN_VERSION
from ...tuning_db import TuningRecord, utc_now
from ..measure import MeasureResult
from .tune_result import ENDS, Stopped


def problem_of(
    records: Sequence[TuningRecord], left: Sequence[str] | None, stopped: Stopped, limit: float, late: str
) -> str:  # fmt: skip
    """Returns why no record is the best. ``left``: the blocks that no rule takes, where there is no candidate at all."""
    if left is not None and not records:
        return "no schedule rule has a candidate" + "".join(f"; {reason}" for reason in left[:3])
    if not records:
        if stopped == "time":
            return f"no candidate was measured within {limit:g} s" + (f": {late}" if late else "")
        return "every candidate failed in an earlier session" if stopped == "exhausted" else ENDS[stopped]
    failures = Counter(record.status for record in records if not record.ok)
    counts = ", ".join([f"{count} {status}" for status, count in sorted(failures.items())])
    first = next((r for r in records if not r.ok), records[0])
    return f"{counts}; the first: {first.error}".split("\n")[0]


def with_result(record: TuningRecord, result: MeasureResult, session: str | None, trial: int) -> TuningRecord:
    """Returns the record with what was just measured, as this trial of this session."""
    return replace(
        record, id=None, session=session, trial=trial, status=result.status, error=result.error, times=result.times,
        run_seconds=result.run_seconds if result.ok else None, compile_seconds=result.compile_seconds or None,
        codegen_version=CODEGEN_VERSION, created=utc_now(), machine=result.machine,
    )  # fmt: skip
