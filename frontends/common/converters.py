"""Tables of converters, by the names of what they convert, and errors for names that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from ...pages.near_words import near_words

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


_SHOWN = 20


class UnsupportedOperators(ValueError):
    """Raised when operators have no converter; ``operators`` has the places of their uses by operator. ``adder`` names the
    function that registers a converter, ``otherwise`` and ``hint`` say what else can be done. Each front end derives an error
    of its own."""

    what, adder, otherwise = "program", "", ""

    def __init__(self, operators: Mapping[str, Sequence[str]], hint: str = "") -> None:
        self.operators = {name: list(places) for name, places in operators.items()}
        lines = [f"{name}: {len(places)} (first: {places[0]})" for name, places in self.operators.items()]
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        super().__init__(
            f"the {self.what} uses operators that are not supported: {'; '.join([*lines[:_SHOWN], *more])}. "
            f"{self.adder} adds one{self.otherwise}{hint}"
        )


def require_inputs(option: str, given: Iterable[str], inputs: Iterable[str], failure: type[ValueError]) -> None:
    """Raise ``failure`` for a name in ``given`` that is none of ``inputs``, with the name that was probably meant."""
    names = list(inputs)
    for name in given:
        if name not in names:
            near = near_words(str(name), names, 1)
            listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            raise failure(
                f"{option} names {str(name)!r}, which is no input{f'; did you mean {near[0]!r}?' if near else ''} "
                f"(there are: {listed or 'none'})"
            )
