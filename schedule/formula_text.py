"""This module reads and writes the formulas of traces as programs are read and written, and registers itself for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tir.expr import Add, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, convert
from ..tir.parser import ParseError, parse_expression
from ..tir.printer.printer_expr import ExprPrinter
from ..tir.walk import pre_order
from .trace_data import FORMULA_OF, Formula, TraceError

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


def _written(e: Expr, name_of: Callable[[Var], str]) -> Formula:
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


FORMULA_OF.set(_written)
