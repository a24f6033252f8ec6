"""Notebooks show a compiled module as its signatures, where its schedule came from, and its share of the roofline."""

from __future__ import annotations

from ..codegen import Module
from ..pages import card, code_html, folded, seconds_text, share_text, shown_in_notebooks, table
from .machine_report import known_report
from .planning import Plan
from .roofline import bound_for


@shown_in_notebooks(Plan)
def plan_html(plan: Plan) -> str:
    """Returns where a schedule comes from, its time beside the roofline's, and the schedule, as HTML."""
    return _plan_card(plan)


def _plan_card(plan: Plan, *before: str) -> str:
    rows = [("schedule", plan.origin), ("target", str(plan.target)), *_share(plan)]
    steps = code_html(plan.trace.as_python(), fold=False) if plan.trace is not None else ""
    program = folded("the scheduled program", code_html(plan.scheduled.script()))
    parts = [*before, table(("", ""), rows), program, folded("its steps", steps)]
    return card(plan.request.func.name, *parts, note=plan.kind)


@shown_in_notebooks(Module)
def module_html(module: Module) -> str:
    """Returns the functions of a module and its plan, where that is known, as HTML."""
    calls = table(("call",), [(module[name].signature,) for name in module])
    if isinstance(module.plan, Plan):
        return _plan_card(module.plan, calls)
    return card(", ".join(module), calls, note=f"for {module.target}. {module.origin}")


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
