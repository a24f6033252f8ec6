"""What a planted place calls while the tests are recorded: it says which test saw another value there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

__all__ = ["RECORD", "seen"]

RECORD = "TILEWRIGHT_MUTATION_RECORD"
"""The environment variable that names the file of the record."""
_TRIES = 3000
_PLAIN = (bool, int, str, float, type(None))

T = TypeVar("T")
_tried: dict[tuple[int, str], int] = {}
_inside = False


def seen(number: int, old: T, new: Callable[[], object]) -> T:
    """Returns ``old``; the record gets a line the first time that a test arrives here, and when ``new`` gives another value."""
    global _inside
    key = number, os.environ.get("PYTEST_CURRENT_TEST", "")
    tried = _tried.get(key, 0)
    if tried > _TRIES or _inside:
        return old
    _inside = True
    try:
        other = not _same(old, new())
    except Exception:
        other = True
    finally:
        _inside = False
    _tried[key] = _TRIES + 1 if other else tried + 1
    if other or not tried:
        with open(os.environ[RECORD], "a") as file:
            file.write(f"{number}\t{int(other)}\t{key[1]}\n")
    return old


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, _PLAIN) and a == b)
