"""This module defines the data of a trace: plain values, references to earlier outputs, formulas and typed constants.

A recorded argument is one of: None, bool, int, float, str, a list or a str-keyed dict of recorded arguments,
:class:`Ref`, :class:`Formula`, :class:`Const`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..tir.expr import Expr, FloatImm, IntImm, Var
from ..tir.expr.base.slot import Slot


class TraceError(ValueError):
    """Raised for a trace that cannot be read or replayed: unknown format, unknown primitive, or arguments that make no sense."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A ``Ref`` is the output of an earlier instruction, by its name in the trace: ``b0``, ``l1``, ``v2``."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A ``Const`` is a constant whose type matters."""

    dtype: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Formula:
    """A ``Formula`` is integer arithmetic over references, as text: ``v1 * 2``, ``T.min(v1, 8)``."""

    text: str

    def names(self) -> list[str]:
        """Return the names of the references that it uses."""
        return [name for name in dict.fromkeys(_WORD.findall(self.text)) if name not in ("T", "min", "max")]


_WORD = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)


def _no_formulas(e: Expr, name_of: Callable[[Var], str]) -> Formula:
    raise TraceError("a trace with formulas needs the parser and the printer of programs")


FORMULA_OF: Slot[Callable[[Expr, Callable[[Var], str]], Formula]] = Slot(_no_formulas)
"""Returns the formula of an expression; TypeError when it has nodes other than integer arithmetic over variables.
:mod:`.formula_text` sets it."""


def constant(e: Expr) -> Any:
    """Return an IntImm or FloatImm as recorded: int32, float32 and bool as plain values, others with their type."""
    if isinstance(e, IntImm):
        return bool(e.value) if e.dtype == "bool" else e.value if e.dtype == "int32" else Const(e.dtype, e.value)
    assert isinstance(e, FloatImm)
    return Const(e.dtype, e.value)


def refs_in(value: Any) -> Iterator[str]:
    """Return the names of all references in a recorded value."""
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, Formula):
        yield from value.names()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from refs_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from refs_in(item)
