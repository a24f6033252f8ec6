"""``tvm.meta_schedule.space_generator``: spaces of schedules."""

from __future__ import annotations

from ..tuner import ScheduleFunction as ScheduleFn  # noqa: F401
