"""Guards schedule rules, which may come from other packages. An exception in one is reported once, and the other rules
are still asked."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from ...schedule import ScheduleError


class RuleGuard:
    """A RuleGuard calls rules and their parts. An exception other than ScheduleError becomes a RuntimeWarning, one for
    each rule."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def ask(self, rule: str, function: Callable[..., Any], *args: Any) -> Any:
        """Returns what ``function`` returns; None when it fails."""
        try:
            return function(*args)
        except Exception as error:
            self._report(rule, error)
            return None

    def apply(self, rule: str, function: Callable[..., Any], *args: Any) -> None:
        """Call ``function``; ScheduleError when it fails, whatever it raised."""
        try:
            function(*args)
        except ScheduleError:
            raise
        except Exception as error:
            raise ScheduleError(self._report(rule, error)) from error

    def _report(self, rule: str, error: Exception) -> str:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(last.filename)}:{last.lineno}: {last.line}"
        what = f"the schedule rule {rule!r} failed: {type(error).__name__}: {error} ({where})"
        if rule not in self._reported:
            self._reported.add(rule)
            warnings.warn(f"{what}; the search goes on without it", RuntimeWarning, stacklevel=2)
        return what
