"""This module reads what a report shows: everything that was tried for a workload on a target."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...tuning_db import Database

_TRIALS = (
    "SELECT id, workload, target, session, trial, status, run_seconds, predicted_seconds, sketch, created, "
    "length(times) - length(replace(times, ',', '')) + 1 AS samples FROM records "
    "ORDER BY id"
)
_PAIRS = (
    "SELECT DISTINCT r.workload AS workload, r.target AS target, w.spec AS spec, w.name AS name, w.flops AS flops, "
    "w.bytes AS bytes, w.shapes AS shapes, t.text AS target_text, t.cpu AS cpu FROM records AS r JOIN workloads AS w ON w.key = r.workload "
    "JOIN targets AS t ON t.key = r.target"
)


@dataclass
class SearchHistory:
    """The trials of a workload on a target in order. It also has the sessions that made them and what is known of the
    machine.

    ``trials`` are rows of the table records without times and traces; ``sessions`` rows of the table sessions;
    ``baselines`` seconds of other contenders by name.
    """

    facts: Mapping[str, Any]
    trials: list[Mapping[str, Any]] = field(default_factory=list)
    sessions: list[Mapping[str, Any]] = field(default_factory=list)
    baselines: dict[str, float] = field(default_factory=dict)

    @cached_property
    def title(self) -> str:
        """Returns what the workload is called."""
        return str(self.facts["spec"] or self.facts["name"] or self.facts["workload"][:12])

    @property
    def is_kernel(self) -> bool:
        """Returns whether it has no spec, as a kernel of a model or a function of a program."""
        return not self.facts["spec"]

    @property
    def shapes(self) -> str:
        """Returns the shapes of a kernel's arguments, the results last, as ``1x56x56x64, 3x3x64x64``."""
        found = json.loads(self.facts["shapes"] or "[]") if self.is_kernel else []
        return ", ".join(["x".join(map(str, argument["shape"])) or "scalar" for argument in found])

    @cached_property
    def seconds(self) -> list[float | None]:
        """Returns the seconds of each trial, None for a failed one."""
        return [t["run_seconds"] if t["status"] == "ok" else None for t in self.trials]

    @cached_property
    def best(self) -> Mapping[str, Any] | None:
        """Returns the fastest correct trial."""
        good = [t for t in self.trials if t["status"] == "ok"]
        return min(good, key=lambda t: t["run_seconds"], default=None)

    @cached_property
    def default(self) -> Mapping[str, Any] | None:
        """Returns the default schedule's trial, the first of a search; None when it failed or is not there. Some files give
        it the number 1."""
        first = next((t for t in self.trials if t["trial"] in (0, 1)), None)
        return first if first is not None and first["status"] == "ok" else None

    @cached_property
    def roofline(self) -> float | None:
        """Returns the least seconds that the machine allows, as its last session knew them."""
        known = [s["roofline_seconds"] for s in self.sessions if s["roofline_seconds"]]
        return known[-1] if known else None

    @cached_property
    def failures(self) -> Counter[str]:
        """Returns how many trials failed, by status."""
        return Counter(t["status"] for t in self.trials if t["status"] != "ok")

    def levels(self) -> dict[str, float | None]:
        """Returns the times to compare with, by name."""
        default = self.default["run_seconds"] if self.default else None
        return {"default": default, **self.baselines, "roofline": self.roofline}

    def is_certain(self, name: str) -> bool:
        """Returns whether a factor between the best time and the one of that name may be given. Both were taken more than
        once."""
        compared = [self.best, *([self.default] if name == "default" else [])]
        return all(trial is not None and trial["samples"] > 1 for trial in compared)

    @cached_property
    def session_starts(self) -> list[int]:
        """Returns the numbers of the trials, from 0, with which sessions began."""
        ids = [t["session"] for t in self.trials]
        return [n for n, one in enumerate(ids) if n == 0 or one != ids[n - 1]]

    @cached_property
    def elapsed(self) -> list[float]:
        """Returns for each trial the seconds spent until then; the time between two sessions does not count."""
        started = {s["id"]: _moment(s["started"]) for s in self.sessions}
        out: list[float] = []
        before = last = 0.0
        current: object = self
        for trial in self.trials:
            at = _moment(trial["created"])
            if trial["session"] != current:
                current, before, begin = trial["session"], last, started.get(trial["session"], at)
            last = max(last, before + max(at - begin, 0.0))
            out.append(last)
        return out


def search_histories(db: Database) -> list[SearchHistory]:
    """Returns what ``db`` holds by workload and target. Those where nothing worked come first, then workloads by name,
    then the kernels of models, the slowest first."""
    found = {(row["workload"], row["target"]): SearchHistory(row) for row in db.query(_PAIRS)}
    for row in db.query(_TRIALS):
        found[row["workload"], row["target"]].trials.append(row)
    for row in db.query("SELECT * FROM sessions ORDER BY started, id"):
        if (row["workload"], row["target"]) in found:
            found[row["workload"], row["target"]].sessions.append(row)
    for row in db.query("SELECT * FROM baselines"):
        if (row["workload"], row["target"]) in found:
            found[row["workload"], row["target"]].baselines[row["name"]] = row["seconds"]

    def place(h: SearchHistory) -> tuple[Any, ...]:
        seconds = h.best["run_seconds"] if h.best is not None and h.is_kernel else 0.0
        return h.best is not None, h.is_kernel, -seconds, h.title, h.facts["target_text"]

    return sorted(found.values(), key=place)


def best_five(db: Database, history: SearchHistory) -> list[dict[str, Any]]:
    """Returns the five fastest trials with their decisions and traces."""
    rows = db.query(
        "SELECT id, run_seconds, sketch, decisions, trace FROM records WHERE workload = ? AND target = ? AND "
        "status = 'ok' ORDER BY run_seconds, id LIMIT 5",
        [history.facts["workload"], history.facts["target"]],
    )
    return [{**row, "decisions": _decisions(row["decisions"])} for row in rows]


def examples(db: Database, history: SearchHistory) -> Sequence[Mapping[str, Any]]:
    """Returns status, number and an example of the failures, the most frequent first."""
    return db.query(
        "SELECT status, sum(records) AS n, min(example) AS example FROM failures_by_reason WHERE workload = ? AND "
        "target = ? GROUP BY status ORDER BY n DESC",
        [history.facts["workload"], history.facts["target"]],
    )


def _decisions(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def _moment(text: str) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
