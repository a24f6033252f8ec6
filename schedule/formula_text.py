"""This module reads and writes the formulas of traces as programs are read and written, and registers itself for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tir.expr import Expr, Var
from ..tir.parser import ParseError, parse_expression
from ..tir.printer.printer_expr import ExprPrinter
from .trace_data import TraceError, no_formula, set_formula_text


class _ProgramText:
    def read(self, text: str, names: Mapping[str, Any]) -> Any:
        try:
            return parse_expression(text, names)
        except ParseError as err:
            if isinstance(err.__context__, ZeroDivisionError):
                raise TraceError("a formula divides by zero") from None
            raise no_formula(text, err.message) from None

    def write(self, e: Expr, names: Mapping[Var, str]) -> str:
        printer = ExprPrinter(typed=False)
        for var, name in names.items():
            printer.names.alias(var, name)
        return printer.text(e)


set_formula_text(_ProgramText())
