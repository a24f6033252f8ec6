"""This module has the error for programs whose operators nothing here can read; it lists all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SHOWN = 20


class UnsupportedOperators(ValueError):
    """Raised when operators have no converter; ``operators`` has the places of their uses by operator. ``adder`` names the
    function that registers a converter. Each front end derives an error of its own from this one."""

    what, adder = "program", ""

    def __init__(self, operators: Mapping[str, Sequence[str]]) -> None:
        self.operators = {name: list(places) for name, places in operators.items()}
        lines = [f"{name}: {len(places)} (first: {places[0]})" for name, places in self.operators.items()]
        more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        super().__init__(
            f"the {self.what} uses operators that are not supported: {'; '.join([*lines[:_SHOWN], *more])}. "
            f"{self.adder} adds one"
        )
