"""This module reads the formulas of traces with the parser of programs, and registers itself for that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..tir.parser import ParseError, parse_expression
from .trace_data import TraceError, no_formula, set_formula_reader


def read_formula(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of a formula over ``names``: a number or an expression. TraceError when the text cannot be read."""
    try:
        return parse_expression(text, names)
    except ParseError as err:
        if isinstance(err.__context__, ZeroDivisionError):
            raise TraceError("a formula divides by zero") from None
        raise no_formula(text, err.message) from None


set_formula_reader(read_formula)
