"""Checks the options of torch.compile, and warns once of each thing that does not run as it was asked for."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..codegen.object_cache import cache_directory

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_OF_PYTORCH = ("dynamic", "mode")
"""What torch.compile itself passes on."""


@dataclass(frozen=True)
class CompileOptions:
    """The options for compiling a graph: ``db``, ``strict``, ``target`` and ``tune``. ``db`` is a file with tuning
    records, ``strict`` raises errors, and ``tune`` is the time for tuning each graph, ``"60s"`` or seconds, whose
    records go to ``db``."""

    db: str | os.PathLike[str] | None = None
    strict: bool = False
    target: str | None = None
    tune: float | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> CompileOptions:
        """Returns checked options. ValueError for unknown names, and for a time that is none."""
        names = [f.name for f in fields(CompileOptions)]
        unknown = sorted(set(given) - {*names, *_OF_PYTORCH})
        if unknown:
            raise ValueError(f"there is no option {unknown[0]!r}; there are {', '.join(names)}")
        chosen = {name: given[name] for name in names if name in given}
        if chosen.get("tune") is not None:
            chosen["tune"] = seconds_of(chosen["tune"])
            chosen["db"] = chosen.get("db") or default_db()
        return CompileOptions(**chosen)


def default_db() -> Path:
    """Returns the file for records of graphs that are tuned without the option ``db``."""
    return cache_directory() / "torch-compile.db"


def seconds_of(time: str | float) -> float:
    """Returns a time in seconds: a number, or a text such as ``60s``, ``5min`` or ``1h``. ValueError for others.

    >>> seconds_of("1.5min"), seconds_of(20)
    (90.0, 20.0)
    """
    text = str(time).strip()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text[len(number) :].strip() or "s"
    try:
        seconds = float(number) * _UNITS[unit]
    except (KeyError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"tune={time!r} is not a time above zero, such as '60s' or '5min'")
    return seconds


_said: set[str] = set()


def say(text: str) -> None:
    """Warn of ``text``, unless that was done before."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"tilewright: {text}", stacklevel=2)


def forget() -> None:
    """Let everything be said again."""
    _said.clear()
