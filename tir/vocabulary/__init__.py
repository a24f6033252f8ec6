"""This package defines the words of ``T``.

They make statements (:mod:`.statement_words`), types (:mod:`.type_words`) and expressions (:mod:`.expression_words`).

The parser looks words up here; :mod:`tilewright.tir.script` offers them to Python programs.
"""

from __future__ import annotations

from typing import Any

from ..expr.intrinsics import OPERATIONS
from .expression_words import FUNCTIONS
from .statement_words import WORDS, Axis, BufferWord, Word
from .type_words import TypeWord, type_word

__all__ = ["FUNCTIONS", "WORDS", "Axis", "BufferWord", "TypeWord", "Word", "type_word", "word_named"]


def word_named(name: str) -> Any:
    """Return the word ``T.<name>``; AttributeError when there is none."""
    if name == "axis":
        return Axis
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in WORDS and "." not in name:
        return WORDS[name]
    if f"tir.{name}" in OPERATIONS:
        return OPERATIONS[f"tir.{name}"]
    return type_word(name)
