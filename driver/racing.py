"""This module times contenders alternately in one run, so that a machine whose speed drifts treats all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..codegen import Target
from ..pages.short_repr import short_repr
from ..tuner.measure import estimate
from .machine_probes import processor_share

_BLAS_SPINS_SECONDS = 0.03
"""OpenBLAS's threads keep their cores busy for 2**26 cycles after a product, which would slow down the next
contender."""


@dataclass
class BenchRow:
    """A row is one contender. ``times`` are seconds per call, one per round; ``error`` says why there are none, or that
    the result is wrong."""

    name: str
    origin: str
    times: list[float] = field(default_factory=list)
    error: str = ""

    __repr__ = short_repr("name", "seconds", "error")

    @property
    def seconds(self) -> float | None:
        """Returns the figure: the median of the faster half."""
        return estimate(self.times) if self.times else None


Run = tuple[BenchRow, Callable[[int], float]]
"""A contender, and the seconds per call over so many calls."""


def timed(call: Callable[[], object]) -> Callable[[int], float]:
    """Returns the contender that calls a Python function: the seconds per call over so many calls."""

    def run(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return (time.perf_counter() - start) / number

    return run


def race(runs: Sequence[Run], rounds: int, round_seconds: float) -> None:
    """Run the contenders alternately, ``rounds`` times; a slow one runs once per round, a fast one many times."""
    numbers = []
    for _, run in runs:
        time.sleep(_BLAS_SPINS_SECONDS)
        run(1)
        numbers.append(max(1, min(1_000_000, int(round_seconds / max(run(1), 1e-9)))))
    for _ in range(rounds):
        for (row, run), number in zip(runs, numbers, strict=True):
            row.times.append(run(number))
            if row.name == "numpy":
                time.sleep(_BLAS_SPINS_SECONDS)


def shared_race(runs: Sequence[Run], rounds: int, round_seconds: float, target: Target) -> float | None:
    """Run the contenders as :func:`race` does, and return the :func:`processor_share` of ``target``'s threads. It is
    taken before and after, and the smaller one counts. None for a GPU."""
    before = None if target.is_gpu else processor_share(target)
    race(runs, rounds, round_seconds)
    return None if before is None else min(before, processor_share(target))
