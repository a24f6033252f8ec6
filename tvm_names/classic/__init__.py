"""TVM's classic schedules of tensor expressions, which ``te`` hands out: ``s = te.create_schedule(C.op)``, ``s[C].split(…)``.

:mod:`.stage` records the steps on an operation's loops, and :mod:`.create_schedule` applies them to a block schedule.
"""

from .create_schedule import Schedule, create_schedule
from .stage import Stage

__all__ = ["Schedule", "Stage", "create_schedule"]
