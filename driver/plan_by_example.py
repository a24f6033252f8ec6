"""This module plans functions of symbolic sizes by the analytic model's schedule for examples of the sizes."""

from __future__ import annotations

from .. import tuner
from ..codegen import Target
from ..schedule import ScheduleError, TraceError
from .example_sizes import ODD, example_of, shown_sizes
from .planning import Plan, symbolic_planners
from .request import Request


def plan_by_example(asked: Request, machine: Target, before: str) -> Plan | None:
    """Returns a plan for symbolic sizes: by the analytic model's schedule for examples of them.

    Where that does not apply, the function stays as written, and the origin says why. None: no examples are known.
    """
    failed = ""
    for less in (0, ODD):
        example = None if machine.is_gpu or machine.stays_as_written else example_of(asked.func, less)
        if example is None:
            break
        default = tuner.choose_default(tuner.Space(example, machine))
        trace = default.schedule.trace
        try:
            scheduled = tuner.replay(asked.func, trace).func
        except (ScheduleError, TraceError) as error:
            failed = failed or f"the schedule for {shown_sizes(asked.func, less)} does not apply: {error}"
            continue
        best = "the analytic model's best schedule"
        origin = before + default.origin.replace(best, f"{best} for {shown_sizes(asked.func, less)}", 1)
        return Plan(asked, machine, "default", origin, scheduled, None, trace)
    if not failed:
        return None
    reason = failed.split("\n")[0]
    return Plan(asked, machine, "given", f"{before}not scheduled: {reason}", asked.func)


symbolic_planners.append(plan_by_example)
