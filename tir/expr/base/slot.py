"""This module defines the places where leaves register what lower files ask of them."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    """A ``Slot`` holds one value, mostly a function: its first one, until a leaf sets another.

    >>> spelling = Slot(str.lower)
    >>> spelling.set(str.upper)
    >>> spelling.value("a")
    'A'
    """

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def set(self, value: T) -> None:
        """Put another value in."""
        self.value = value
