"""This module defines the answer of an analysis that cannot do what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Reason:
    """A ``Reason`` says in one clause why an analysis has no result. ``nodes`` are the parts of the program that it
    means.

    ``hint`` says what would help. Analyses return it instead of raising, so that a caller may go on; a primitive makes an error of it.

    >>> str(Reason("the loop has no constant trip count"))
    'the loop has no constant trip count'
    """

    text: str
    nodes: tuple[Any, ...] = ()
    hint: str = ""

    def __str__(self) -> str:
        return self.text
