"""A recording has the measured times of many candidates of one workload, in a few kilobytes."""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import Target
from tilewright.driver import parse_spec
from tilewright.schedule import ScheduleError
from tilewright.tuner import LocalRunner, Sketch, Space

FOLDER = Path(__file__).parent / "recordings"

WORKLOADS = (
    "matmul:M=256,N=256,K=256", "matmul:M=1024,N=1024,K=1024", "matmul:M=32,N=1024,K=4096", "matmul:M=255,N=255,K=255",
    "matmul:M=256,N=256,K=256,dtype=int8", "matmul_bias_gelu:M=128,N=3072,K=768", "gemv:M=4096,K=4096",
    "batch_matmul:B=12,M=128,N=128,K=64", "conv2d:CI=64,H=56,W=56,CO=64", "conv2d:CI=256,H=14,W=14,CO=256",
    "conv2d:CI=512,H=7,W=7,CO=512", "conv2d:CI=3,H=224,W=224,CO=64,kernel=7,stride=2,padding=3",
    "conv2d:CI=64,H=56,W=56,CO=128,kernel=1,stride=2,padding=0", "depthwise_conv2d:C=512,H=14,W=14",
    "softmax:M=128,N=1024", "layer_norm:M=128,N=768", "sum:M=4096,N=4096", "transpose:M=2048,N=2048",
    "blur:H=2048,W=2048", "attention:heads=12,seq=128,dim=64",
)  # fmt: skip
"""The workloads of ``--record-all``."""


def path_of(spec: str) -> Path:
    """Returns where the recording of a workload is stored."""
    return FOLDER / (re.sub(r"[^A-Za-z0-9]+", "_", spec).strip("_") + ".npz")


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


def record(
    spec: str, path: Path, *, count: int, target: str, quiet: bool, seconds: float = float("inf"),
    say: Callable[[str], None] = print,
) -> Recording:  # fmt: skip
    """Measure ``count`` candidates of a workload, each once, its result compared, and write them to ``path``; as many as
    ``seconds`` allow, in an order drawn at random.

    What was measured is kept beside it at once, so that an interrupted recording goes on where it was. The best sixteen are
    timed once more, together."""
    case, machine, rng = parse_spec(spec), Target(target), np.random.default_rng(0)
    space = Space(case.func, machine)
    rows = chosen_rows(space, count, rng)
    about = {
        "spec": spec, "target": str(machine), "decisions": {s.name: list(s.column_names) for s in space.sketches},
        "cpu": platform.processor() or platform.machine(), "load": os.getloadavg()[0], "quiet_machine": quiet,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip
    kept = _Kept(path.with_suffix(".partial"), [spec, str(machine)])
    wanted = [(s, tuple(row)) for s in space.sketches for row in rows[s.name].tolist()]
    todo = [wanted[n] for n in rng.permutation(len(wanted)) if (wanted[n][0].name, wanted[n][1]) not in kept]
    total, start = len(wanted), time.monotonic()
    with LocalRunner(max_samples=4, race_seconds=0.03) as runner:
        if todo:
            runner.open(case.func, machine)
        for place in range(0, len(todo), _BATCH):
            part = todo[place : place + _BATCH]
            kept.add(part, _measured(space, part, runner, kept.best))
            spent = time.monotonic() - start
            each = spent / (place + len(part))
            left = min(each * (len(todo) - place - len(part)), seconds - spent) / 60
            say(f"{spec}: {len(kept.seconds)}/{total}, {each:.2f} s each, {max(0.0, left):.1f} min left")
            if spent > seconds:
                break
        if todo:
            names = {s.name: s for s in space.sketches}
            best = [(names[name], row) for name, row in sorted(kept.seconds, key=kept.seconds.__getitem__)[:_BATCH]]
            kept.add(best, _measured(space, best, runner))
    made = kept.recording(about, rows)
    made.save(path)
    kept.path.unlink(missing_ok=True)
    return made


_BATCH = 16


class _Kept:
    """The results of a recording that is not at its end: a line of JSON for each batch."""

    def __init__(self, path: Path, about: list[str]) -> None:
        self.path, self.seconds = path, dict[tuple[str, tuple[int, ...]], float]()
        lines = path.read_text().splitlines() if path.exists() else []
        if lines and json.loads(lines[0]) != about:
            raise ValueError(f"{path} is of another recording: {lines[0]}; delete it to begin anew")
        if not lines:
            path.write_text(json.dumps(about) + "\n")
        for line in lines[1:]:
            try:
                self._learn(json.loads(line))
            except ValueError:  # it was killed while it wrote this
                break

    def __contains__(self, key: object) -> bool:
        return key in self.seconds

    @property
    def best(self) -> float:
        """Returns the least seconds so far."""
        return min(self.seconds.values(), default=float("inf"))

    def recording(self, about: dict[str, Any], rows: dict[str, np.ndarray]) -> Recording:
        """Returns what was measured of ``rows``."""
        done = {
            name: np.array([(name, tuple(r)) in self for r in found.tolist()], bool) for name, found in rows.items()
        }
        some = {name: rows[name][keep] for name, keep in done.items() if keep.any()}
        about = {**about, "decisions": {name: about["decisions"][name] for name in some}}
        seconds = {
            name: np.array([self.seconds[name, tuple(r)] for r in found.tolist()]) for name, found in some.items()
        }
        return Recording(about, some, seconds)

    def _learn(self, batch: list[Any]) -> None:
        for name, row, seconds in batch:
            self.seconds[name, tuple(row)] = float("inf") if seconds is None else seconds

    def add(self, part: Sequence[tuple[Sketch, tuple[int, ...]]], seconds: Sequence[float]) -> None:
        """Write the results of a batch."""
        batch = [[s.name, row, t if np.isfinite(t) else None] for (s, row), t in zip(part, seconds, strict=True)]
        self._learn(batch)
        with self.path.open("a") as file:
            file.write(json.dumps(batch) + "\n")


def _measured(
    space: Space, part: Sequence[tuple[Sketch, tuple[int, ...]]], runner: LocalRunner, best: float = float("inf")
) -> list[float]:
    """Returns the seconds of candidates; those that take much longer than ``best`` are run once."""
    programs: dict[int, str] = {}
    for n, (sketch, row) in enumerate(part):
        try:
            programs[n] = space.schedule(sketch, row).func.script()
        except ScheduleError:
            continue
    found = dict(zip(programs, runner.measure(list(programs.values()), best_seconds=best), strict=True))
    return [found[n].run_seconds if n in found and found[n].ok else float("inf") for n in range(len(part))]
