"""This module defines what a schedule records of a step; :mod:`.trace` makes traces of these, and registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..tir.expr.base.slot import Slot
from .primitive import REGISTRY, Primitive
from .trace_data import TraceError, refs_in

if TYPE_CHECKING:
    from .trace import Trace


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
        return STEP_TEXT.value(self)


def _no_traces(steps: Sequence[Instruction]) -> Trace:
    raise NotImplementedError("nothing here makes traces of steps")


TRACE_OF: Slot[Callable[[Sequence[Instruction]], Trace]] = Slot(_no_traces)
"""Makes a trace of steps; :mod:`.trace` sets it."""

STEP_TEXT: Slot[Callable[[Instruction], str]] = Slot(lambda step: step.name)
"""Writes a step as a line of Python; :mod:`.trace_python` sets it."""
