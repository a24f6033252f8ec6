"""This module prints results on stdout, and shows progress on stderr.

Results are tables for people, one JSON document for programs. A terminal has progress drawn over again, anything else gets a
plain line at the start and every ten seconds. Here are also the exit codes, and the error that ends a command with one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from ..pages import rate_text, seconds_text, share_text

if TYPE_CHECKING:
    from ..driver import ModelProgress
    from ..driver.machine_report import Bound
    from ..tuner import Progress as Event
    from ..tuner import TuneResult


EXIT_CODES = {
    0: "done",
    1: "a check failed, or the file cannot be used",
    2: "usage: an unknown option, workload or target, a bad value",
    3: "no record in the database under --require-tuned",
    4: "nothing could be measured",
    130: "interrupted (143: terminated); what was measured is saved",
}


class CommandError(Exception):
    """This error ends the command with a message, a hint and an exit code."""

    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def check_results(contenders: Iterable[Any]) -> None:
    """Raise CommandError for the first contender of a benchmark whose result is wrong, which its ``error`` says."""
    for row in contenders:
        if row.error:
            raise CommandError(f"{row.name}: {row.error}", "this may be a bug in Tilewright; please report it")


SCHEMA = 1
"""The version of every JSON document that a command prints."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def echo_json(**content: Any) -> None:
    """Print one JSON document: ``{"schema": 1, …}``."""
    clear_sign()
    click.echo(json.dumps({"schema": SCHEMA, **content}, default=str, indent=2, ensure_ascii=False))


def column(title: str, text: Callable[[Mapping[str, Any]], str], right: bool = False) -> tuple[Any, ...]:
    """Returns a column of :func:`echo_table`."""
    return title, text, right


def echo_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[Any, ...]], empty: str = "nothing") -> None:
    """Print rows as aligned text. On a narrow terminal the texts of the last column are broken into lines, and those of
    others shortened in their middle; where that is not enough, each row becomes lines of its own. Nothing is shortened
    when the output goes elsewhere."""
    clear_sign()
    if not rows:
        click.echo(empty)
        return
    cells = [[text(row) for _, text, _ in columns] for row in rows]
    titles, rights = [title for title, _, _ in columns], [right for _, _, right in columns]
    widths: Sequence[int] | None = [max(len(line[i]) for line in [titles, *cells]) for i in range(len(columns))]
    limit = _width()
    if limit is not None and widths is not None:
        widths = _shortened(widths, rights, limit)
    if widths is None:
        _echo_blocks(titles, cells, limit or 80)
        return
    for number, line in enumerate([titles, *cells]):
        text = "\n".join(_lines(line, widths, rights))
        click.echo(click.style(text, bold=True) if number == 0 and style_ok(sys.stdout) else text)


_SHORTEST = 24
"""A column of texts is not made narrower than this many characters."""


def _shortened(widths: Sequence[int], rights: Sequence[bool], limit: int) -> list[int] | None:
    """Returns widths with which a line fits, the widest columns of texts made narrower; None when that is not enough."""
    out = list(widths)
    while sum(out) + 2 * (len(out) - 1) > limit:
        texts = [n for n, width in enumerate(out) if not rights[n] and width > _SHORTEST]
        if not texts:
            return None
        out[max(texts, key=lambda n: out[n])] -= 1
    return out


def _lines(line: Sequence[str], widths: Sequence[int], rights: Sequence[bool]) -> list[str]:
    """Returns the lines of one row: one, or several where the text of the last column is broken."""
    *cells, last = [
        cell.rjust(width) if right else cell for cell, width, right in zip(line, widths, rights, strict=True)
    ]
    start = "".join([_cut(cell, width).ljust(width) + "  " for cell, width in zip(cells, widths[:-1], strict=True)])
    parts = textwrap.wrap(last, widths[-1], break_on_hyphens=False) if len(last) > widths[-1] else [last]
    return [((start if number == 0 else " " * len(start)) + part).rstrip() for number, part in enumerate(parts)]


def _cut(text: str, width: int) -> str:
    """Returns the text with its middle left out where it is longer than ``width``."""
    if len(text) <= width:
        return text
    end = (width - 1) // 3
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def _echo_blocks(titles: Sequence[str], cells: Sequence[Sequence[str]], limit: int) -> None:
    """Print each row as a block: its first cell, and below it the other cells with their titles. Lines have at most
    ``limit`` characters."""
    for first, *others in cells:
        for line in textwrap.wrap(first, limit, break_on_hyphens=False):
            click.echo(click.style(line, bold=True) if style_ok(sys.stdout) else line)
        told = [f"{title} {cell}".strip() for title, cell in zip(titles[1:], others, strict=True)]
        text = " · ".join([cell.replace(" ", _JOINED) for cell in told])
        lines = textwrap.wrap(text, limit, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        click.echo("\n".join(lines).replace(_JOINED, " "))


_JOINED = "\N{NO-BREAK SPACE}"


def style_ok(stream: Any) -> bool:
    """Returns whether to use colours and bold: on a terminal that has them, without NO_COLOR."""
    return moves(stream) and not os.environ.get("NO_COLOR")


def moves(stream: Any) -> bool:
    """Returns whether the stream is a terminal on which a line can be drawn over again."""
    return stream is not None and bool(stream.isatty()) and os.environ.get("TERM") not in ("dumb", "unknown")


_signs: list[str] = []
"""What :func:`first_sign` shows at the moment."""


def first_sign(text: str, lasting: bool = False) -> None:
    """Show on a terminal at once that a command has begun; :func:`clear_sign` takes it away before the first output.
    Elsewhere a sign that is ``lasting`` is a line, for commands that show progress."""
    if moves(sys.stderr):
        _signs.append(text)
        room = _terminal_width() - 1  # a line that wraps could not be taken away
        sign = f"{text}: loading the compiler"
        sys.stderr.write((sign if len(sign) <= room else f"{sign[: room - 1]}…") + "\r")
        sys.stderr.flush()
    elif lasting:
        click.echo(f"{text}: loading the compiler", err=True)


def clear_sign() -> None:
    """Take away what :func:`first_sign` showed."""
    if _signs:
        _signs.clear()
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _terminal_width() -> int:
    """Returns the letters in a line of the terminal of stderr; 80 where it does not say."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


def _width() -> int | None:
    if os.environ.get("COLUMNS", "").isdigit():
        return max(int(os.environ["COLUMNS"]), 20)
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None


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
