"""A recording has the measured times of many candidates of one workload, in a few kilobytes."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import Target
from tilewright.driver import parse_spec
from tilewright.schedule import ScheduleError
from tilewright.tuner import LocalRunner, Space

FOLDER = Path(__file__).parent / "recordings"


@dataclass(frozen=True)
class Recording:
    """``rows[name]`` are rows of the sketch of that name, ``seconds[name]`` their times (infinity: failed).

    ``about`` has the spec, the target, the names of each sketch's decisions, and how it was measured.
    """

    about: dict[str, Any]
    rows: dict[str, np.ndarray]
    seconds: dict[str, np.ndarray]

    def save(self, path: Path) -> None:
        """Write it: rows as differences from the row before, which compresses well."""
        arrays = {"about": np.frombuffer(json.dumps(self.about).encode(), np.uint8)}
        for n, name in enumerate(self.rows):
            arrays[f"rows{n}"] = np.diff(self.rows[name], axis=0, prepend=0).astype(np.int32)
            arrays[f"seconds{n}"] = self.seconds[name].astype(np.float32)
        np.savez_compressed(path, allow_pickle=False, **arrays)

    @staticmethod
    def load(path: Path) -> Recording:
        """Read it."""
        with np.load(path) as data:
            about = json.loads(bytes(data["about"]))
            names = list(about["decisions"])
            rows = {name: np.cumsum(data[f"rows{n}"], axis=0, dtype=np.int64) for n, name in enumerate(names)}
            seconds = {name: data[f"seconds{n}"].astype(np.float64) for n, name in enumerate(names)}
        return Recording(about, rows, seconds)


def chosen_rows(space: Space, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Returns rows of each sketch: a third those that the prior likes best, the others drawn evenly."""
    share = max(1, count // len(space.sketches))
    out = {}
    for sketch in space.sketches:
        found = np.concatenate([sketch.best_rows(share // 3 + 1), sketch.sample(share, rng)])
        unique = np.unique(found, axis=0)
        out[sketch.name] = unique[rng.permutation(len(unique))[:share]] if len(unique) > share else unique
    return out


def record(spec: str, *, count: int, target: str, quiet: bool, seed: int = 0) -> Recording:
    """Measure ``count`` candidates of a workload; each is measured once, its result compared."""
    case, machine = parse_spec(spec), Target(target)
    space = Space(case.func, machine)
    rows = chosen_rows(space, count, np.random.default_rng(seed))
    about = {
        "spec": spec, "target": str(machine), "decisions": {s.name: list(s.column_names) for s in space.sketches},
        "cpu": platform.processor() or platform.machine(), "load": os.getloadavg()[0], "quiet_machine": quiet,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip
    seconds: dict[str, np.ndarray] = {}
    with LocalRunner() as runner:
        runner.open(case.func, machine)
        for sketch in space.sketches:
            times = []
            for start in range(0, len(rows[sketch.name]), 16):
                times += _measured(space, sketch, rows[sketch.name][start : start + 16], runner)
            seconds[sketch.name] = np.array(times)
    return Recording(about, rows, seconds)


def _measured(space: Space, sketch: Any, rows: np.ndarray, runner: LocalRunner) -> list[float]:
    programs: dict[int, str] = {}
    for n, row in enumerate(rows):
        try:
            programs[n] = space.schedule(sketch, row).func.script()
        except ScheduleError:
            continue
    found = dict(zip(programs, runner.measure(list(programs.values())), strict=True))
    return [found[n].run_seconds if n in found and found[n].ok else float("inf") for n in range(len(rows))]
