"""This module shows progress on stderr: a bar on a terminal, elsewhere a plain line every ten seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from ..pages import seconds_text
from .output import moves

if TYPE_CHECKING:
    from ..driver import ModelProgress
    from ..driver.roofline import Bound

_EVERY_SECONDS = 10.0


class Progress:
    """Shows how far a search is, its best figure, the share of the peak, and the time left.

    ``total``: trials. ``flops``: operations of one run; ``bound``: the least time that the machine allows.
    """

    def __init__(self, title: str, total: int, flops: float | None = None, bound: Bound | None = None) -> None:
        self.title, self.total, self.flops, self.bound = title, total, flops, bound
        self.done = 0
        self.best: float | None = None
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if moves(sys.stderr):
            from rich.console import Console  # heavy: only for terminals
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figure]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, figure="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif kind is None and self.best is not None:
            self._line(time.monotonic())

    def update(self, done: int, best: float | None) -> None:
        """``done`` trials are finished; the best took ``best`` seconds."""
        self.done, self.best = done, best
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=self.total, figure=self.figure())
            return
        now = time.monotonic()
        if now - self._last >= _EVERY_SECONDS:
            self._line(now)

    def figure(self) -> str:
        """``best 1.2 ms, 223 GFLOP/s, 85% of peak``; the share is of the roofline where moving data takes longer than
        computing."""
        if self.best is None:
            return "nothing measured yet"
        parts = [f"best {seconds_text(self.best)}"]
        if self.flops:
            parts.append(f"{self.flops / self.best / 1e9:.1f} GFLOP/s")
        if self.bound is not None and self.bound.seconds:
            limit = "peak" if self.bound.limit == "peak" else f"roofline ({self.bound.limit})"
            parts.append(f"{self.bound.seconds / self.best:.0%} of {limit}")
        return ", ".join(parts)

    def told(self, spent: float) -> str:
        """Returns how far the search is after ``spent`` seconds, and how long it may last."""
        left = spent / self.done * (self.total - self.done) if self.done else None
        rest = f", {left:.0f} s left" if left and self.done < self.total else ""
        return f"{self.done}/{self.total} trials, {self.figure()}, {spent:.0f} s{rest}"

    def _line(self, now: float) -> None:
        self._last = now
        click.echo(f"{self.title}: {self.told(now - self._start)}", err=True)


class ModelSearch(Progress):
    """Shows how far the search for a model's kernels is: their trials, and the predicted time of a run."""

    def __init__(self, title: str, kernels: int, time_limit: float | None) -> None:
        super().__init__(title, kernels)
        self.time_limit = time_limit
        self.last: ModelProgress | None = None

    def __enter__(self) -> ModelSearch:
        super().__enter__()
        return self

    def show(self, progress: ModelProgress) -> None:
        """Take over the progress of the search."""
        self.last, self.total = progress, progress.kernels
        self.update(progress.kernels_done, progress.seconds)

    def figure(self) -> str:
        """``17 of 25 kernels measured: 84.1 ms, 121 ms by default; conv2d_add_relu_3``"""
        p = self.last
        if p is None or not p.measured:
            return "nothing measured yet"
        times = f"{seconds_text(p.seconds)}, {seconds_text(p.default_seconds)} by default"
        return f"{p.measured} of {p.kernels} kernels measured: {times}; {p.kernel}"

    def told(self, spent: float) -> str:
        """Returns how far the search is, and what is left of the time limit."""
        trials = 0 if self.last is None else self.last.trials
        rest = "" if self.time_limit is None else f", {max(0.0, self.time_limit - spent):.0f} s left"
        return f"{trials} trials, {self.done} kernels done, {self.figure()}, {spent:.0f} s{rest}"
