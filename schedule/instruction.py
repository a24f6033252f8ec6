"""This module defines what a schedule records of a step, and how it is written in Python.

A recorded argument is one of: None, bool, int, float, str, a list or a str-keyed dict of recorded arguments,
:class:`Ref`, :class:`Formula`, :class:`Const`. Formulas are read and written as programs are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..tir.expr import Add, Expr, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, convert
from ..tir.parser import ParseError, parse_expression
from ..tir.printer_expr import ExprPrinter
from ..tir.walk import pre_order
from .primitive import REGISTRY, Primitive


@dataclass(frozen=True, eq=False)
class Instruction:
    """An ``Instruction`` is one applied primitive.

    ``arguments`` are recorded values by parameter name, ``outputs`` the name of its output, a
    list of names, or None; ``decision`` is the decision of a sampling primitive.
    """

    name: str
    arguments: Mapping[str, Any] = field(repr=False)
    outputs: str | list[str] | None = None
    decision: Any = None

    @property
    def inputs(self) -> dict[str, Any]:
        """Return the arguments that refer to earlier outputs."""
        return {k: v for k, v in self.arguments.items() if next(refs_in(v), None) is not None}

    @property
    def attrs(self) -> dict[str, Any]:
        """Return the other arguments: plain values."""
        return {k: v for k, v in self.arguments.items() if next(refs_in(v), None) is None}

    @property
    def output_names(self) -> list[str]:
        """Return the names of the outputs as a list."""
        return [] if self.outputs is None else [self.outputs] if isinstance(self.outputs, str) else self.outputs

    @property
    def primitive(self) -> Primitive:
        """Return the primitive that is called; TraceError when none of this name is registered."""
        try:
            return REGISTRY[self.name]
        except KeyError:
            raise TraceError(f"the trace calls {self.name!r}, which is not a schedule primitive") from None

    @property
    def kind(self) -> Primitive:
        """Return the primitive under TVM's name, so that ``inst.kind.name`` is the primitive's name."""
        return self.primitive

    def as_python(self) -> str:
        """Return the call as a line of Python on ``sch``; arguments that have their default value are left out."""
        return _step_text(self)


def python_lines(insts: Iterable[Instruction]) -> list[str]:
    """Return the steps as lines of Python, after an import where they need one."""
    lines, used = [], False
    for inst in insts:
        lines.append(_step_text(inst))
        used = used or any(map(_uses_script, (*inst.arguments.values(), inst.decision)))
    return ["from tilewright.tir import script as T", *lines] if used else lines


def _step_text(inst: Instruction) -> str:
    """Return the call as a line of Python on ``sch``; arguments that have their default value are left out."""
    parts: list[str] = []
    step = REGISTRY.get(inst.name)
    for name, value in inst.arguments.items():
        parameter = step.signature.parameters.get(name) if step else None
        if parameter is not None and parameter.kind is parameter.VAR_POSITIONAL:
            if value:  # what stands before these arguments has no names either
                before = list(inst.arguments.values())[: list(inst.arguments).index(name)]
                parts = [_value_text(item) for item in (*before, *value)]
        elif parameter is None or not _is_default(parameter.default, value):
            parts.append(f"{name}={_value_text(value)}")
    if inst.decision is not None:
        parts.append(f"decision={_value_text(inst.decision)}")
    call = f"sch.{inst.name}({', '.join(parts)})"
    if inst.outputs is None or inst.outputs == []:
        return call
    if isinstance(inst.outputs, str):
        return f"{inst.outputs} = {call}"
    return f"{', '.join(inst.outputs)}{',' if len(inst.outputs) == 1 else ''} = {call}"


def _is_default(default: Any, value: Any) -> bool:
    return type(default) is type(value) and default == value


def _uses_script(value: Any) -> bool:
    """Return whether :func:`_value_text` of a recorded value uses ``T``."""
    if isinstance(value, (list, tuple, Mapping)):
        return any(map(_uses_script, value.values() if isinstance(value, Mapping) else value))
    return isinstance(value, Const) or (isinstance(value, Formula) and "T." in value.text)


def _value_text(value: Any) -> str:
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
        return "[" + ", ".join(_value_text(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_value_text(v)}" for k, v in value.items()) + "}"
    return repr(value)


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
