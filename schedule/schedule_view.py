"""Notebooks show a schedule as its program and the steps that made it."""

from __future__ import annotations

from ..pages import card, code_html, folded
from .schedule import Schedule
from .trace import Trace


def schedule_html(sch: Schedule) -> str:
    """Returns the program and, folded, its trace as HTML."""
    text = sch.func.script() if len(sch.mod.functions) == 1 else sch.mod.script()
    count = len(sch.trace)
    steps = folded(f"how it came to be: {count} steps", code_html(sch.trace.as_python(), fold=False)) if count else ""
    return card("Schedule", code_html(text), steps, note=f"{count} steps" if count else "as written")


def trace_html(trace: Trace) -> str:
    """Returns the steps as Python."""
    return card("Trace", code_html(trace.as_python(), fold=False), note=f"{len(trace)} steps")
