"""This module defines what a schedule records of a step, and how it is written as a line of Python."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .primitive import REGISTRY, Primitive
from .trace_data import Const, Formula, Ref, TraceError, refs_in


@dataclass(frozen=True, eq=False)
class Instruction:
    """An ``Instruction`` is one applied primitive.

    ``arguments`` are recorded values by parameter name (see :mod:`.trace_data`), ``outputs`` the name of its output, a
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
