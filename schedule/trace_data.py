"""This module defines the data of a trace: plain values, references to earlier outputs, formulas and typed constants.

A recorded argument is one of: None, bool, int, float, str, a list or a str-keyed dict of recorded arguments,
:class:`Ref`, :class:`Formula`, :class:`Const`. In JSON a reference is a string ``"%l3"`` (a string that begins with
``%`` gets a second one), a formula ``{"expr": "v1 * 2"}``, a constant ``{"const": ["float32", "0.0"]}``, a dict
``{"dict": {...}}``. Nothing else is accepted, so that a foreign trace can name numbers and texts and no more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..tir.expr import Add, DType, Expr, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, const, convert
from ..tir.walk import pre_order

_MAX_FORMULA = 2000
_MAX_DEPTH = 16


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

    def to_expr(self) -> Expr:
        """Return the constant as a node."""
        return const(self.value, self.dtype)


@dataclass(frozen=True, slots=True)
class Formula:
    """A ``Formula`` is integer arithmetic over references, as text: ``v1 * 2``, ``T.min(v1, 8)``."""

    text: str

    def names(self) -> list[str]:
        """Return the names of the references that it uses."""
        return [name for name in dict.fromkeys(_WORD.findall(self.text)) if name not in ("T", "min", "max")]

    def to_expr(self, lookup: Callable[[str], Any]) -> Expr:
        """Return the expression; ``lookup`` gives the value of a reference. TraceError when the text is not a
        formula."""
        if len(self.text) > _MAX_FORMULA:
            raise TraceError(f"a formula of {len(self.text)} characters is not a formula of a schedule")
        value = _text_form().read(self.text, {name: lookup(name) for name in self.names()})
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise TraceError("a formula gives a number of more than 64 bits")
        if not isinstance(value, (int, Expr)) or not all(isinstance(n, _ARITHMETIC) for n in pre_order(convert(value))):
            raise no_formula(self.text)
        return convert(value)

    @staticmethod
    def of(e: Expr, name_of: Callable[[Var], str]) -> Formula:
        """Return the formula of an expression; TypeError when it has nodes other than integer arithmetic over
        variables."""
        names: dict[Var, str] = {}
        for n in pre_order(e):
            if not isinstance(n, _ARITHMETIC):
                raise TypeError(
                    f"a trace cannot record `{n}`: only + - * // % min max over sampled numbers and constants"
                )
            if isinstance(n, Var):
                names[n] = name_of(n)
        return Formula(_text_form().write(e, names))


_ARITHMETIC = (IntImm, Var, Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)
_PARTS = "anything but + - * // % min max over numbers and references is not part of a formula"
_WORD = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)


class FormulaText(Protocol):
    """Represents what reads and writes formulas as text."""

    def read(self, text: str, names: Mapping[str, Any]) -> Any:
        """Return the value of a formula over ``names``: a number or an expression; TraceError for other texts."""

    def write(self, e: Expr, names: Mapping[Var, str]) -> str:
        """Return the text of an expression with these names of its variables."""


_text: list[FormulaText] = []


def set_formula_text(text: FormulaText) -> None:
    """Set what reads and writes formulas; :mod:`.formula_text` does this once."""
    _text[:] = [text]


def _text_form() -> FormulaText:
    if not _text:
        raise TraceError("a trace with formulas needs the parser and the printer of programs")
    return _text[0]


def no_formula(text: str, why: str = "") -> TraceError:
    """Return the error for a text that is not a formula."""
    return TraceError(f"{text!r} is not a formula{f': {why}' if why else ''}; {_PARTS}")


def constant(e: Expr) -> Any:
    """Return an IntImm or FloatImm as recorded: int32, float32 and bool as plain values, others with their type."""
    if isinstance(e, IntImm):
        return bool(e.value) if e.dtype == "bool" else e.value if e.dtype == "int32" else Const(e.dtype, e.value)
    assert isinstance(e, FloatImm)
    return Const(e.dtype, e.value)


def uses_script(value: Any) -> bool:
    """Return whether :func:`python_text` of a recorded value uses ``T``."""
    if isinstance(value, (list, tuple, Mapping)):
        return any(map(uses_script, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, Const) or (isinstance(value, Formula) and "T." in value.text)


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


def to_json(value: Any) -> Any:
    """Return a recorded value as JSON data."""
    if isinstance(value, Ref):
        return f"%{value.name}"
    if isinstance(value, str):
        return f"%{value}" if value.startswith("%") else value
    if isinstance(value, float) and not math.isfinite(value):
        return {"const": ["float", repr(value)]}
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Formula):
        return {"expr": value.text}
    if isinstance(value, Const):
        return {"const": [value.dtype, repr(value.value)]}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {"dict": {str(k): to_json(v) for k, v in value.items()}}
    raise TypeError(f"a trace cannot hold {value!r} ({type(value).__name__})")


def from_json(data: Any, depth: int = 0) -> Any:
    """Return the recorded value that :func:`to_json` wrote; TraceError for anything else."""
    if depth > _MAX_DEPTH:
        raise TraceError("an argument is nested too deeply")
    if data is None or isinstance(data, (bool, int, float)):
        return data
    if isinstance(data, str):
        if data.startswith("%%"):
            return data[1:]
        if not data.startswith("%"):
            return data
        return Ref(_name(data[1:]))
    if isinstance(data, list):
        return [from_json(item, depth + 1) for item in data]
    if isinstance(data, dict) and len(data) == 1:
        key, inner = next(iter(data.items()))
        if key == "expr" and isinstance(inner, str):
            Formula(inner).to_expr(lambda name: Var(_name(name)))  # reads as a formula, or raises
            return Formula(inner)
        if key == "dict" and isinstance(inner, dict) and all(isinstance(k, str) for k in inner):
            return {k: from_json(v, depth + 1) for k, v in inner.items()}
        if key == "const" and isinstance(inner, list) and len(inner) == 2 and all(isinstance(x, str) for x in inner):
            return _const(*inner)
    raise TraceError(f"{str(data)[:80]!r} is not something a trace may hold")


def _name(text: str) -> str:
    if not text.isidentifier() or not text.isascii() or len(text) > 64:
        raise TraceError(f"{text[:40]!r} is not a name of an output")
    return text


def _const(dtype: str, text: str) -> Any:
    try:
        if dtype == "float":
            return float(text)
        kind = DType(dtype)
        if kind.lanes != 1 or kind.kind in ("handle", "void"):
            raise ValueError(f"{dtype} has no constants here")
        return Const(dtype, float(text) if kind.kind in ("float", "bfloat") else int(text))
    except ValueError as err:
        raise TraceError(f"{dtype} {text[:40]!r} is not a constant: {err}") from None


def python_text(value: Any) -> str:
    """Return a recorded value as Python source."""
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, Formula):
        return value.text
    if isinstance(value, Const):
        shown = (
            repr(value.value)
            if not isinstance(value.value, float) or math.isfinite(value.value)
            else f'"{value.value}"'
        )
        return f"T.{value.dtype}({shown})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(python_text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {python_text(v)}" for k, v in value.items()) + "}"
    return repr(value)
