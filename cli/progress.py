"""This module shows progress on stderr. A terminal has it drawn over again, anything else gets a plain line at the
start and every ten seconds."""

from __future__ import annotations

import math
import sys
import textwrap
import threading
import time
from collections import Counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from ..pages import rate_text, seconds_text, share_text
from .output import clear_sign, moves

if TYPE_CHECKING:
    from ..driver import ModelProgress
    from ..driver.machine_report import Bound
    from ..tuner import Progress as Event
    from ..tuner import TuneResult

_EVERY_SECONDS = 10.0
_WIDEST = 100

_DOING = {
    "SearchStarted": "starting the workers",
    "FinalComparison": "comparing the best once more",
    "SearchEnded": "done",
}
"""What a search does at each of its events."""


class ProgressView:
    """Shows what happens, how far a search is, its best figure, and the time left. It also shows the share of the peak,
    and failures.

    ``total``: trials. ``flops``: operations of one run; ``bound``: the least time that the machine allows. Both may be set
    later. ``doing`` says what happens now.
    """

    def __init__(self, title: str, total: int = 0, flops: float | None = None, bound: Bound | None = None) -> None:
        self.title, self.total, self.flops, self.bound = title, total, flops, bound
        self.done = self.on_record = 0
        self.best: float | None = None
        self.default: float | None = None
        self._default_trace = ""
        self.failures: Counter[str] = Counter()
        self.doing = "starting"
        self._start = time.monotonic()
        self._batch = self._finished = 0
        self._ends = math.inf
        self._live: Any = None
        self._ended = threading.Event()

    def __enter__(self) -> ProgressView:
        if moves(sys.stderr):
            from rich.console import Console  # heavy: only for terminals
            from rich.live import Live

            clear_sign()
            console = Console(stderr=True)
            self._live = Live(
                console=console, transient=True, refresh_per_second=4, get_renderable=lambda: self._drawn(console.width)
            )
            self._live.start()
        else:
            click.echo(f"{self.title}: {self.doing}", err=True)
            threading.Thread(target=self._keep_saying, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._live is not None:
            self._live.stop()
        elif kind is None and self.best is not None:
            self._line(time.monotonic())

    def says(self, doing: str) -> None:
        """Show what happens now."""
        self.doing = doing
        if self._live is not None:
            self._live.refresh()

    def on_event(self, event: Event) -> None:
        """Take over an event of the search."""
        kind = type(event).__name__
        self._ends = time.monotonic() + event.remaining_seconds
        self.on_record = event.on_record
        if kind == "BatchStarted":
            self._batch, self._finished = event.batch, 0
        if kind == "CandidateMeasured":
            self._finished += 1
        if kind in _DOING:
            self.doing = _DOING[kind]
        else:
            self.doing = f"compiling and running candidates, {self._finished} of {self._batch} done"
        for record in event.records:
            if not record.ok:
                self.failures[record.status] += 1
            elif self.default is None and self.done == 0:
                self.default, self._default_trace = record.run_seconds, record.trace
        self.update(event.trials_done, event.best_seconds if event.best_seconds < float("inf") else None)

    def update(self, done: int, best: float | None) -> None:
        """Note that ``done`` trials are finished, and that the best took ``best`` seconds."""
        self.done, self.best = done, best
        if self._live is not None:
            self._live.refresh()

    def settle(self, result: TuneResult) -> None:
        """Take over the figures at the end. The final comparison times the best and the default schedule once more."""
        self.best = result.best.run_seconds if result.best else None
        trace, records = self._default_trace, result.records
        self.default = next((r.run_seconds for r in records if r.ok and r.trace == trace), self.default)

    def figure(self) -> str:
        """Returns a text such as ``best 1.2 ms, 223 GFLOP/s, 85 % of peak``. The share is of the roofline where moving
        data takes longer than computing."""
        if self.best is None:
            return "nothing measured yet"
        parts = [f"best {seconds_text(self.best)}"]
        if self.flops:
            parts.append(rate_text(self.flops / self.best, "FLOP/s"))
        if self.bound is not None and self.bound.seconds:
            limit = "peak" if self.bound.limit == "peak" else f"roofline ({self.bound.limit})"
            parts.append(f"{share_text(self.bound.seconds / self.best)} of {limit}")
        if self.default is not None:
            parts.append(f"default {seconds_text(self.default)}")
        return ", ".join(parts)

    def failed(self) -> str:
        """Returns a text such as ``, 2 crash, 1 timeout``: the trials that failed, by reason."""
        return "".join([f", {count} {status}" for status, count in self.failures.most_common()])

    def told(self, spent: float) -> str:
        """Returns how far the search is after ``spent`` seconds, and how long it may last."""
        known = f"{self.on_record} on record, " if self.on_record else ""
        if not self.done:
            return f"{self.doing}, {f'{known}{self.figure()}, ' if known else ''}{spent:.0f} s"
        left = max(0.0, self._ends - time.monotonic())
        rest = f", {left:.0f} s left" if left < math.inf and self.done < self.total else ""
        return f"{self.done}/{self.total} trials, {known}{self.figure()}{self.failed()}, {spent:.0f} s{rest}"

    def lines(self, width: int) -> list[str]:
        """Returns what a terminal of ``width`` letters shows: title, bar, what happens, figures."""
        width = max(20, min(width, _WIDEST))
        share = min(self.done / self.total, 1.0) if self.total else 0.0
        room = max(8, width - len(f" {self.total}/{self.total}"))
        bar = "━" * round(share * room) + "─" * (room - round(share * room))
        words = textwrap.wrap(self.told(time.monotonic() - self._start), width)
        happens = [] if not self.done else textwrap.wrap(self.doing, width)
        title = self.title if len(self.title) <= width else self.title[: width - 1] + "…"
        return [title, f"{bar} {self.done}/{self.total}" if self.total else "─" * width, *happens, *words]

    def _drawn(self, width: int) -> Any:
        from rich.text import Text

        return Text("\n".join(self.lines(width - 1)), no_wrap=True, overflow="crop")

    def _keep_saying(self) -> None:
        """Print a line whenever ten seconds have passed, whatever happens meanwhile."""
        while not self._ended.wait(_EVERY_SECONDS):
            self._line(time.monotonic())

    def _line(self, now: float) -> None:
        click.echo(f"{self.title}: {self.told(now - self._start)}", err=True)


class ModelSearch(ProgressView):
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
        self.last, self.total, self.doing = progress, progress.kernels, "compiling and running candidates"
        self.update(progress.kernels_done, progress.seconds)

    def figure(self) -> str:
        """Returns a text such as ``17 of 25 kernels measured: 84.1 ms, 121 ms by default; conv2d_add_relu_3``"""
        p = self.last
        if p is None or not p.measured:
            return "nothing measured yet"
        times = f"{seconds_text(p.seconds)}, {seconds_text(p.default_seconds)} by default"
        return f"{p.measured} of {p.kernels} kernels measured: {times}; {p.kernel}"

    def told(self, spent: float) -> str:
        """Returns how far the search is, and what is left of the time limit."""
        if self.last is None:
            return f"{self.doing}, {spent:.0f} s"
        trials = self.last.trials
        rest = "" if self.time_limit is None else f", {max(0.0, self.time_limit - spent):.0f} s left"
        return f"{trials} trials, {self.done} kernels done, {self.figure()}, {spent:.0f} s{rest}"
