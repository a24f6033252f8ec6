"""This module plans functions of symbolic sizes by the analytic model's schedule for examples of the sizes."""

from __future__ import annotations

from .. import tuner
from ..codegen import Target
from ..schedule import ScheduleError, TraceError
from .example_sizes import ODD, example_of, shown_sizes
from .planning import Plan, symbolic_planners
from .request import Request


def plan_by_example(asked: Request, machine: Target, before: str) -> Plan | None:
    """Returns a plan for symbolic sizes: by the analytic model's schedule for examples of them, where that applies."""
    for less in (0, ODD):
        example = None if machine.is_gpu or machine.stays_as_written else example_of(asked.func, less)
        if example is None:
            return None
        trace = tuner.choose_default(tuner.Space(example, machine)).schedule.trace
        try:
            scheduled = tuner.replay(asked.func, trace).func
        except (ScheduleError, TraceError):
            continue
        origin = f"{before}the analytic model's best schedule for {shown_sizes(asked.func, less)}, not tuned"
        return Plan(asked, machine, "default", origin, scheduled, None, trace)
    return None


symbolic_planners.append(plan_by_example)
