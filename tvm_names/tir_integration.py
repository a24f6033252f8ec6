"""``tvm.meta_schedule.tir_integration``: tuning a function, and its best schedule."""

from __future__ import annotations

import os
from typing import Any

from .. import tuner
from ..codegen import Target
from ..driver import tune
from ..driver.building import request
from ..schedule import Schedule
from ..tuner import ScheduleRule
from ..tuning_db import Database

FILE = "tuning.db"


def tune_tir(
    mod: Any, target: str | Target, work_dir: str | os.PathLike[str], max_trials_global: int, **options: Any
) -> Database:
    """Tune the function of ``mod`` with at most ``max_trials_global`` trials; returns the open database
    ``work_dir/tuning.db``. ``space`` is that of a schedule function, ``ScheduleFn(f)``. NotImplementedError names an
    option that there is not."""
    space = options.pop("space", "post-order-apply")
    trials = min(max_trials_global, options.pop("max_trials_per_task", None) or max_trials_global)
    known = {"num_trials_per_iter": "batch", "seed": "seed"}
    for name in options:
        if name not in known:
            raise NotImplementedError(
                f"tune_tir: no {name}; there are space, max_trials_per_task, {', '.join(known)}, and tilewright.tune has more"
            )
    if space != "post-order-apply" and not isinstance(space, ScheduleRule):
        raise NotImplementedError(f"tune_tir: no space {space!r}; there is ms.space_generator.ScheduleFn(function)")
    chosen = {known[name]: value for name, value in options.items()}
    if isinstance(space, ScheduleRule):
        chosen["rules"] = [space]
    os.makedirs(work_dir, exist_ok=True)
    path = os.path.join(work_dir, FILE)
    tune(mod, target, trials=trials, db=path, **chosen)
    return Database(path)


def compile_tir(database: Database, mod: Any, target: str | Target) -> Schedule | None:
    """Returns the best schedule of the function of ``mod`` that the database has; None without one."""
    func = request(mod).func
    record = database.best(func, Target.of(target))
    return None if record is None else tuner.replay(func, tuner.trace_for(database, record, func))
