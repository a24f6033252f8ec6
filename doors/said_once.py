"""This module warns once of each thing that does not run as it was asked for."""

from __future__ import annotations

import warnings

_said: set[str] = set()


def say(text: str) -> None:
    """Warn of ``text``, unless that was done before."""
    if text not in _said:
        _said.add(text)
        warnings.warn(f"tilewright: {text}", stacklevel=2)


def forget() -> None:
    """Let everything be said again."""
    _said.clear()
