"""This module holds the table of converters by the names of PyTorch's operators."""

from __future__ import annotations

from collections.abc import Callable

from ..converter_table import C, Converter, entering

CONVERTERS: dict[str, Converter] = {}
"""All converters by the operator's full name, such as ``aten.add.Tensor``. They take an :class:`.aten_call.AtenCall` and the
operator's arguments, with values in place of tensors."""


def op(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a converter under the full names of operators.

    >>> @op("example.twice.default")
    ... def twice(c, x):
    ...     return c.op("add", x, x)
    >>> del CONVERTERS["example.twice.default"]
    """
    return entering(CONVERTERS, *names)


def aten(*names: str) -> Callable[[C], C]:
    """Returns :func:`op` for names of ``aten``, in which the overload ``default`` is left out."""
    return op(*[f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names])
