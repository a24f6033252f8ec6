"""These checks refuse options that lie outside of their range, before anything is measured."""

from __future__ import annotations

import math
from typing import Any


def require_whole(name: str, value: Any, least: int) -> None:
    """Raise TypeError or ValueError where ``value`` is no whole number of at least ``least``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} is at least {least}, not {value}")


def require_seconds(name: str, value: Any, *, zero: bool = False) -> None:
    """Raise TypeError or ValueError where ``value`` is no finite number of seconds above zero (``zero``: or zero)."""
    least = "zero or more" if zero else "above zero"
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a number of seconds {least}, not {value!r}")
    if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
        raise ValueError(f"{name} is a number of seconds {least}, not {value!r}")


def require_share(name: str, value: Any, of: str) -> None:
    """Raise TypeError or ValueError where ``value`` is no share of ``of``, a number above 0 and at most 1."""
    if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} is a share of {of}, a number above 0 and at most 1, not {value!r}")
    if not 0 < value <= 1:
        percent = f"; {value:g} % is {name}={value / 100:g}" if 1 < value <= 100 else ""
        raise ValueError(f"{name} is a share of {of}, a number above 0 and at most 1, not {value!r}{percent}")
