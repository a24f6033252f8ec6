"""A search in a notebook shows its progress in the cell, drawn over again as candidates are measured."""

from __future__ import annotations

import sys
import time
from typing import Any

from ..pages import card, search_chart, seconds_text
from ..tuner import FinalComparison, Progress, SearchEnded, SearchStarted
from ..tuning_db import TuningRecord

_EVERY_SECONDS = 0.3


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return bool(shell) and "IPKernelApp" in getattr(shell, "config", {})


class NotebookProgress:
    """A callback of a search that draws its progress in the cell of a notebook. It shows trials, the best so far and
    the time left.

    ``title`` is what is tuned. It needs IPython alone, no widgets.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.records: list[TuningRecord] = []
        self._handle: Any = None
        self._last = 0.0

    def __call__(self, event: Progress) -> None:
        """Draw an event, at most three times a second; the last one always."""
        self.records += event.records
        now = time.monotonic()
        if now - self._last < _EVERY_SECONDS and not isinstance(event, (SearchStarted, FinalComparison, SearchEnded)):
            return
        self._last = now
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(self.html(event)), display_id=True)
        else:
            self._handle.update(HTML(self.html(event)))

    def html(self, event: Progress) -> str:
        """Returns what the cell shows at an event."""
        share = event.trials_done / max(event.trials_total, 1)
        bar = f'<progress value="{share:.3f}" style="width:16em"></progress>'
        words = [f"{event.trials_done} of {event.trials_total} trials", _doing(event)]
        if event.best_seconds < float("inf"):
            words.append(f"best {seconds_text(event.best_seconds)}")
        if event.failures:
            words.append(f"{event.failures} failed")
        if event.remaining_seconds < float("inf") and not isinstance(event, SearchEnded):
            words.append(f"{event.remaining_seconds:.0f} s left")
        times = [r.run_seconds if r.ok else None for r in self.records]
        return card(self.title, f"<div>{bar} {', '.join(words)}</div>", search_chart(times))


def _doing(event: Progress) -> str:
    if isinstance(event, SearchStarted):
        return "starting the workers"
    if isinstance(event, FinalComparison):
        return "comparing the best once more"
    return "done" if isinstance(event, SearchEnded) else "measuring"
