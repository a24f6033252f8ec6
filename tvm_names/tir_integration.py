"""``tvm.meta_schedule.tir_integration``: tuning a function, and its best schedule."""

from __future__ import annotations

import os
from typing import Any

from .. import tuner
from ..codegen import Target
from ..driver import tune
from ..driver.request import request
from ..schedule import Schedule
from ..tuning_db import Database

FILE = "tuning.db"


def tune_tir(
    mod: Any, target: str | Target, work_dir: str | os.PathLike[str], max_trials_global: int, **options: Any
) -> Database:
    """Tune the function of ``mod`` with at most ``max_trials_global`` trials; returns the open database
    ``work_dir/tuning.db``. NotImplementedError names an option that there is not."""
    known = {"num_trials_per_iter": "batch", "seed": "seed"}
    for name in options:
        if name not in known:
            raise NotImplementedError(
                f"tune_tir: no {name}; there are {', '.join(known)}, and tilewright.tune has more"
            )
    os.makedirs(work_dir, exist_ok=True)
    path = os.path.join(work_dir, FILE)
    tune(mod, target, trials=max_trials_global, db=path, **{known[name]: value for name, value in options.items()})
    return Database(path)


def compile_tir(database: Database, mod: Any, target: str | Target) -> Schedule | None:
    """Returns the best schedule of the function of ``mod`` that the database has; None without one."""
    func = request(mod).func
    record = database.best(func, Target.of(target))
    return None if record is None else tuner.replay(func, tuner.trace_for(database, record, func))
