"""The text of targets: kinds, options with values, and flags."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping
from typing import Any

OPTIONS = ("mtriple", "mcpu", "mattr", "num-cores", "vector-width", "winograd")
FLAGS = ("openmp", "vector-extensions", "hls")
"""The options without a value, which the kind ``c`` takes."""


class TargetError(ValueError):
    """Raised when the text does not describe a target, or the target cannot do what was requested."""


def nearest(word: str, known: Any, prefix: str = "") -> str:
    """Returns the end of an error message: the most similar known word, or all of them when they are few."""
    close = difflib.get_close_matches(word, list(known), 1, 0.5)
    if close:
        return f"; did you mean {prefix}{close[0]}?"
    names = sorted(known)
    return f"; there are {', '.join(prefix + n for n in names)}" if len(names) <= 12 else ""


def spelled(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options with the names that texts have."""
    return {str(name).lstrip("-").replace("_", "-"): value for name, value in options.items()}


def split(text: str) -> dict[str, Any]:
    """Returns the kind and options of a target's text."""
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise TargetError(f"target {text!r}: {e}") from None
    if not words:
        raise TargetError("an empty target; write 'native' or 'llvm -mcpu=…'")
    out: dict[str, Any] = {"kind": words.pop(0)}
    while words:
        word = words.pop(0)
        match = re.fullmatch(r"--?([A-Za-z][\w-]*)(?:=(.*))?", word)
        if match is None:
            raise TargetError(f"target {text!r}: {word!r} is not an option; options look like -mcpu=skylake")
        name, value = match[1].replace("_", "-"), match[2]
        if name in FLAGS and value is None:
            out[name] = True
            continue
        if value is None and words and not words[0].startswith("-"):
            value = words.pop(0)
        if not value:
            raise TargetError(f"target {text!r}: option -{name} has no value{nearest(name, OPTIONS, '-')}")
        out[name] = value
    return out


def positive(value: Any, name: str) -> int:
    """Returns a number of at least 1; TargetError names the option."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise TargetError(f"{name}={value}: a whole number of at least 1 is needed")
    return number
