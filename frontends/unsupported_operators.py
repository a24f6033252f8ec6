"""This module has what front ends refuse: operators that nothing can read, and names that a program lacks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence

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


def require_inputs(option: str, given: Iterable[str], inputs: Iterable[str], failure: type[ValueError]) -> None:
    """Raise ``failure`` for a name in ``given`` that is none of ``inputs``, with the name that was probably meant."""
    names = list(inputs)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1, 0.5)
            listed = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
            raise failure(
                f"{option} names {str(name)!r}, which is no input{f'; did you mean {near[0]!r}?' if near else ''} "
                f"(there are: {listed or 'none'})"
            )
