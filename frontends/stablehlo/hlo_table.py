"""This module holds the table of converters by the names of StableHLO's operations."""

from __future__ import annotations

from collections.abc import Callable

from ..converter_table import C, Converter, entering

CONVERTERS: dict[str, Converter] = {}
"""All converters by the operation's full name, such as ``stablehlo.add``; custom calls as ``custom_call @target``. They take
an :class:`.hlo_call.HloCall`, and may return known arrays."""


def op(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a converter under the full names of operations.

    >>> @op("custom_call @twice")
    ... def twice(c):
    ...     return c.op("add", c.x, c.x)
    >>> del CONVERTERS["custom_call @twice"]
    """
    return entering(CONVERTERS, *names)


def hlo(*names: str) -> Callable[[C], C]:
    """Returns :func:`op` for names of ``stablehlo``."""
    return op(*[f"stablehlo.{name}" for name in names])
