"""This module times contenders alternately, and selects the runs in which no other process used the core.

A *turn* is one timed run of a contender. A virtual core is often half of a core. Work on the other half takes some of
the clock, of the caches and of the issue slots. A loop of multiply-adds on registers needs two thirds of the issue
slots, so it does not slow down; a kernel that also loads needs all of them, so it does. Therefore a *witness* runs
before and after each turn besides the limit: a product of 64³ whose data stay in the first-level cache. Where it is
slower than its best in this run, another process used the core.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

Times = dict[str, list[float]]
Contender = tuple[str, Callable[[int], float]]

FEW, ENOUGH = 5, 12
"""The number of turns that a median needs, and the number for which it is worth waiting."""
AROUND = ("witness", "limit")
"""The contenders that run directly before and after each turn of ours."""


def take_turns(contenders: Sequence[Contender], rounds: int, round_seconds: float) -> Times:
    """Seconds per call of each, by round. "ours" and "call" have four short runs a round; "limit" and "witness" run before
    and after each of ours, so that the clock is the same, and have two entries for each."""
    runs = dict(contenders)
    around = [name for name in AROUND if name in runs]
    long = [name for name in runs if name not in ("ours", "call", *AROUND)]
    times: Times = {name: [] for name in runs}
    numbers = {}
    for name, run in runs.items():
        run(1)
        numbers[name] = max(1, min(1_000_000, int(round_seconds / 8 / max(run(1), 1e-9))))

    def note(name: str, factor: int = 1) -> None:
        times[name].append(runs[name](factor * numbers[name]))

    for _ in range(rounds):
        for _ in range(4):
            for name in (*around, "ours", *reversed(around), *(["call"] if "call" in runs else [])):
                note(name)
        for name in long:
            note(name, 8)
            if name == "NumPy":
                time.sleep(0.03)  # its threads spin for so long after a product
    return times


class Judge:
    """A judge keeps the best times of the limit and the witness, and selects the turns near both."""

    def __init__(self) -> None:
        self.best: dict[Any, float] = {}

    def look(self, times: Times, key: Any) -> None:
        """Add ``times``; ``key`` identifies the limit, which several kernels may share."""
        for name, place in (("limit", key), ("witness", "witness")):
            if name in times:
                taken = sorted(times[name])
                found = taken[len(taken) // 20]  # but for the odd one
                self.best[place] = min(self.best.get(place, found), found)

    def alone(self, times: Times, key: Any) -> list[tuple[float, float, float]]:
        """Returns the turns (limit before, limit after, ours) with the limit steady and near its best, and so the
        witness."""
        limits = _pairs(times)
        near = [a + b < 2.16 * self.best[key] for a, b, _ in limits]
        if "witness" in times:
            seen, most = times["witness"], 1.05 * self.best["witness"]
            near = [ok and seen[2 * n] < most and seen[2 * n + 1] < most for n, ok in enumerate(near)]
        return [pair for pair, ok in zip(limits, near, strict=True) if ok and _steady(pair)]


def share(times: Times, judge: Judge | None = None, key: Any = "limit") -> tuple[float, int]:
    """Returns the median ratio of the limit's seconds to ours over the selected turns, and their number. Where these
    are too few, the median is over all steady turns, or over all turns, and the number is 0."""
    if judge is None:
        judge = Judge()
        judge.look(times, key)
    found = judge.alone(times, key)
    number = len(found) if len(found) >= FEW else 0
    if not number:
        found = [pair for pair in _pairs(times) if _steady(pair)] or _pairs(times)
    return statistics.median((a + b) / 2 / t for a, b, t in found), number


def native(module: Any, given: list[Any]) -> Callable[[int], float]:
    """Seconds per call of a module, timed in its own code."""
    return lambda n: float(module.time_evaluator(repeat=1, number=n)(*given).results[0])


def _pairs(times: Times) -> list[tuple[float, float, float]]:
    limit = times["limit"]
    return [(limit[2 * n], limit[2 * n + 1], taken) for n, taken in enumerate(times["ours"])]


def _steady(pair: tuple[float, float, float]) -> bool:
    return abs(pair[0] - pair[1]) < 0.03 * pair[0]
