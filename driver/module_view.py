"""Notebooks show a plan as where its schedule came from, its share of the roofline, and the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..pages import card, code_html, folded, seconds_text, share_text, table
from .machine_report import known_report
from .roofline import bound_for

if TYPE_CHECKING:
    from .planning import Plan


def plan_html(plan: Plan, *before: str) -> str:
    """Returns where a schedule comes from, its time beside the roofline's, and the schedule, as HTML after ``before``."""
    rows = [("schedule", plan.origin), ("target", str(plan.target)), *_share(plan)]
    steps = code_html(plan.trace.as_python(), fold=False) if plan.trace is not None else ""
    program = folded("the scheduled program", code_html(plan.scheduled.script()))
    parts = [*before, table(("", ""), rows), program, folded("its steps", steps)]
    return card(plan.request.func.name, *parts, note=plan.kind)


def _share(plan: Plan) -> list[tuple[str, str]]:
    """Returns rows about the time on record and the roofline of a machine that was measured earlier."""
    rows = []
    taken = plan.record.run_seconds if plan.record is not None else None
    if taken:
        rows.append(("measured", seconds_text(taken)))
    report = known_report(plan.target)
    bound = bound_for(report, plan.request.func, plan.target) if report is not None else None
    if bound is not None and bound.seconds:
        share = f"; the record reaches {share_text(bound.seconds / taken)} of it" if taken else ""
        rows.append(("roofline", f"{seconds_text(bound.seconds)}, limited by {bound.limit}{share}"))
    return rows
