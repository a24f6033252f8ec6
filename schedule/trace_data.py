"""This module defines the data of a trace: plain values, references to earlier outputs, formulas and typed constants.

A recorded argument is one of: None, bool, int, float, str, a list or a str-keyed dict of recorded arguments,
:class:`Ref`, :class:`Formula`, :class:`Const`. Formulas are read and written as programs are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..tir.expr import Add, Expr, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, convert
from ..tir.parser import ParseError, parse_expression
from ..tir.printer.printer_expr import ExprPrinter
from ..tir.walk import pre_order


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


_ARITHMETIC = (IntImm, Var, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)
_PARTS = "anything but + - * // % min max over numbers and references is not part of a formula"
_LONGEST = 2000


def formula_value(formula: Formula, lookup: Callable[[str], Any]) -> Expr:
    """Return the value of a formula; ``lookup`` gives that of a reference. TraceError when the text is not a formula."""
    text = formula.text
    if len(text) > _LONGEST:
        raise TraceError(f"a formula of {len(text)} characters is not a formula of a schedule")
    try:
        value = parse_expression(text, {name: lookup(name) for name in formula.names()})
    except ParseError as err:
        if isinstance(err.__context__, ZeroDivisionError):
            raise TraceError("a formula divides by zero") from None
        raise _no_formula(text, err.message) from None
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise TraceError("a formula gives a number of more than 64 bits")
    if not isinstance(value, (int, Expr)) or not all(isinstance(n, _ARITHMETIC) for n in pre_order(convert(value))):
        raise _no_formula(text)
    return convert(value)


def _no_formula(text: str, why: str = "") -> TraceError:
    return TraceError(f"{text!r} is not a formula{f': {why}' if why else ''}; {_PARTS}")


def formula_of(e: Expr, name_of: Callable[[Var], str]) -> Formula:
    """Return the formula of an expression; TypeError when it has nodes other than integer arithmetic over variables."""
    names: dict[Var, str] = {}
    for n in pre_order(e):
        if not isinstance(n, _ARITHMETIC):
            raise TypeError(f"a trace cannot record `{n}`: only + - * // % min max over sampled numbers and constants")
        if isinstance(n, Var):
            names[n] = name_of(n)
    printer = ExprPrinter(typed=False)
    for var, name in names.items():
        printer.names.alias(var, name)
    return Formula(printer.text(e))
