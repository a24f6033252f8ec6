"""Words of messages: the name that was meant, what a number has to be, and short forms of values."""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def near_words(word: str, known: Iterable[str], most: int = 3, likeness: float = 0.5) -> list[str]:
    """Returns the ``most`` words of ``known`` that are spelled like ``word``, the nearest first; ``likeness`` is from 0 to 1.

    Capital and small letters are alike.

    >>> near_words("stirng", ["String", "number"])
    ['String']
    """
    folded = {name.lower(): name for name in known}
    return [folded[n] for n in difflib.get_close_matches(word.lower(), list(folded), most, likeness)]


def did_you_mean(word: str, known: Iterable[str], most: int = 1, prefix: str = "", listed: int = 12) -> str:
    """Returns ``; did you mean a or b?`` with the ``most`` nearest words, or all known words where none is near.

    Nothing where there are more than ``listed`` of them. ``prefix`` stands before each word, such as the dash of an option.

    >>> did_you_mean("stirng", ["string", "number"])
    '; did you mean string?'
    >>> did_you_mean("zzz", ["string", "number"], prefix="-")
    '; there are -string, -number'
    """
    names = list(dict.fromkeys(known))
    if near := near_words(word, names, most):
        return f"; did you mean {' or '.join([prefix + name for name in near])}?"
    return f"; there are {', '.join([prefix + name for name in names])}" if 0 < len(names) <= listed else ""


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


_LONGEST = 160
"""A repr is cut after this many characters."""


def short_repr(*names: str) -> Callable[[Any], str]:
    """Returns a ``__repr__`` that shows the attributes ``names``; without names those fields of a dataclass that differ
    from their defaults. A value with a name shows its name, and others are cut.

    >>> class Pair:
    ...     def __init__(self, left, right):
    ...         self.left, self.right = left, right
    ...     __repr__ = short_repr("left", "right")
    >>> Pair(list(range(1000)), len)
    Pair(left=[0, 1, ...], right=len)
    """

    def text(self: Any) -> str:
        declared = fields(self) if is_dataclass(self) else ()
        shown = names or [f.name for f in declared if f.repr and not _is_default(f, getattr(self, f.name))]
        values = ", ".join([f"{name}={_value_text(getattr(self, name))}" for name in shown])
        return f"{type(self).__name__}({values if len(values) <= _LONGEST else values[:_LONGEST] + '…'})"

    return text


def _is_default(field: Any, value: Any) -> bool:
    made = field.default if field.default_factory is MISSING else field.default_factory()
    return value is made or (type(value) is type(made) and bool(value == made))


def _value_text(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else _SHORT.repr(value)


class _Short(reprlib.Repr):
    """Values inside of a repr: two of many, forty characters of a text, and arrays by type and shape."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 2
        self.maxstring = self.maxother = 40

    def repr_instance(self, x: Any, level: int) -> str:
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        return super().repr_instance(x, level) if dtype is None else f"{dtype}{list(shape or ())}"


_SHORT = _Short()
