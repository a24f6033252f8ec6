"""The words of ``T``: statements (:mod:`.words`), types (:mod:`.types`) and expressions (:mod:`.functions`).

The parser looks words up here; :mod:`tilewright.tir.script` offers them to Python programs.
"""

from __future__ import annotations

from typing import Any

from .functions import FUNCTIONS
from .types import TypeWord, type_word
from .words import WORDS, Axis, BufferWord, Word

__all__ = ["FUNCTIONS", "WORDS", "Axis", "BufferWord", "TypeWord", "Word", "lookup", "type_word"]


def lookup(name: str) -> Any:
    """The word ``T.<name>``; AttributeError when there is none."""
    if name == "axis":
        return Axis
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in WORDS and "." not in name:
        return WORDS[name]
    return type_word(name)
