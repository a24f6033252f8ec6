"""This module enters converters into the tables of front ends, by the names of what they convert."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

Converter = Callable[..., Any]
"""Takes a :class:`.graph_call.GraphCall`, and further arguments where the front end has some; returns what the call
gives: a value, or a tuple of values."""

C = TypeVar("C", bound=Converter)
Key = TypeVar("Key")


def entering(table: MutableMapping[Key, Converter], *keys: Key) -> Callable[[C], C]:
    """Returns a decorator that enters a converter under keys, in place of those that are there.

    >>> table = {}
    >>> @entering(table, "twice", "double")
    ... def twice(c, x):
    ...     return c.op("add", x, x)
    >>> sorted(table)
    ['double', 'twice']
    """

    def enter(function: C) -> C:
        table.update(dict.fromkeys(keys, function))
        return function

    return enter
