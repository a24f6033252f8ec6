"""The end of a message about a word that is not known: the word that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
