"""Notebooks show the result of a search as its figures, its curve and the best schedule."""

from __future__ import annotations

from ...pages import card, code_html, folded, rate_text, search_chart, seconds_text, table
from .tune_result import TuneResult


def result_html(result: TuneResult) -> str:
    """Returns the figures, the curve, what failed and the steps of the best schedule as HTML."""
    rows = [("best", f"{seconds_text(result.best_seconds)}" if result.best else result.problem)]
    if result.best and result.flops:
        rows.append(("rate", rate_text(result.flops / result.best_seconds, "FLOP/s")))
    rows += [("trials", f"{len(result.records)} in {result.elapsed_seconds:.1f} s"), ("ended", result.why)]
    if result.failures:
        rows.append(("failed", ", ".join([f"{count} {status}" for status, count in sorted(result.failures.items())])))
    times = [r.run_seconds if r.ok else None for r in result.records]
    schedule = result.best_schedule
    steps = code_html(schedule.trace.as_python(), fold=False) if schedule is not None else ""
    return card(
        result.func.name, table(("", ""), rows), search_chart(times, lambda n: f"trial {n + 1}: {seconds_text(times[n])} {result.records[n].sketch}"), folded("the best schedule", steps),
        note=f"tuned for {result.target}",
    )  # fmt: skip
