"""This module defines traces: the applied primitives with their arguments and decisions, as Python, JSON and replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..tir.expr import const
from .errors import ScheduleError
from .handles import Handle
from .instruction import Instruction, python_lines
from .trace_data import Const, Formula, Ref, TraceError, formula_value, refs_in
from .trace_json import steps_as_json, steps_from_json

if TYPE_CHECKING:
    from .schedule import Schedule

_POSTPROC = "enter_postproc"


@dataclass(eq=False, init=False)
class Trace:
    """A ``Trace`` is a sequence of instructions: plain data, independent of the function it was recorded on.

    ``sch.trace`` returns a new trace each time; appending to it or popping from it does not change the schedule.

    >>> Trace.from_json({"format": 1, "insts": [{"name": "get_block", "args": {"name": "C"}, "out": "b0"}]})
    b0 = sch.get_block(name='C')
    """

    insts: Sequence[Instruction]

    def __init__(self, insts: Sequence[Instruction] = (), decisions: Mapping[Instruction, Any] | None = None) -> None:
        """Keep the instructions; ``decisions`` replace those of the instructions that they are for, as in TVM."""
        known = decisions or {}
        for inst in known:
            if not any(inst is i for i in insts):
                raise ValueError(f"the instruction {inst.name} is not part of this trace")
        self.insts = tuple([replace(i, decision=known[i]) if i in known else i for i in insts]) if known else insts

    def _repr_html_(self) -> str:
        from .schedule_view import trace_html

        return trace_html(self)

    def __len__(self) -> int:
        return len(self.insts)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self.insts)

    @property
    def decisions(self) -> dict[Instruction, Any]:
        """Return the decision of each sampling instruction."""
        return {inst: inst.decision for inst in self.insts if inst.decision is not None}

    def get_decision(self, inst: Instruction | int) -> Any:
        """Return the decision of an instruction, or of the one with this number; None when there is none."""
        return self.insts[self._index(inst)].decision

    def append(self, inst: Instruction, decision: Any = None) -> None:
        """Add an instruction at the end, with ``decision`` where one is given."""
        self.insts = (*self.insts, inst if decision is None else replace(inst, decision=decision))

    def pop(self) -> Instruction | None:
        """Remove and return the last instruction; None when there is none."""
        if not self.insts:
            return None
        last = self.insts[-1]
        self.insts = tuple(self.insts[:-1])
        return last

    def _index(self, inst: Instruction | int, insts: Sequence[Instruction] | None = None) -> int:
        if isinstance(inst, int):
            return inst
        for number, known in enumerate(self.insts if insts is None else insts):
            if known is inst:
                return number
        raise ValueError(f"the instruction {inst.name} is not part of this trace")

    def with_decision(self, inst: Instruction | int, decision: Any, remove_postproc: bool = False) -> Trace:
        """Returns this trace with another decision for ``inst`` (an instruction of it, or its number)."""
        insts = list(self._before_postproc() if remove_postproc else self.insts)
        index = self._index(inst, insts)
        if insts[index].primitive.kind != "sample":
            raise ValueError(f"with_decision: {insts[index].name} decides nothing")
        insts[index] = replace(insts[index], decision=decision)
        return Trace(tuple(insts))

    def simplified(self, remove_postproc: bool = False) -> Trace:
        """Return this trace without queries and samples whose outputs are not used."""
        used: set[str] = set()
        kept: list[Instruction] = []
        for inst in reversed(self._before_postproc() if remove_postproc else list(self.insts)):
            if inst.primitive.kind != "rewrite" and not used.intersection(inst.output_names):
                continue
            for value in inst.arguments.values():
                used.update(refs_in(value))
            used.update(refs_in(inst.decision))
            kept.append(inst)
        return Trace(tuple(reversed(kept)))

    def _before_postproc(self) -> list[Instruction]:
        out: list[Instruction] = []
        for inst in self.insts:
            if inst.name == _POSTPROC:
                break
            out.append(inst)
        return out

    def apply_to_schedule(
        self,
        sch: Schedule,
        remove_postproc: bool = False,
        decision_provider: Callable[[Instruction, dict[str, Any], Any], Any] | None = None,
    ) -> dict[str, Handle | Any]:
        """Replay the trace on ``sch``, and return the outputs by their names in this trace.

        ``decision_provider(instruction, arguments, decision)`` may replace the decision of each sampling instruction.
        ScheduleError is raised when a step does not apply, TraceError when the trace is malformed. In both cases
        ``sch`` is left unchanged.
        """
        before = sch.snapshot()
        handles: dict[str, Any] = {}
        try:
            for number, inst in enumerate(self._before_postproc() if remove_postproc else self.insts):
                apply_instruction(sch, inst, number, handles, decision_provider)
        except BaseException:
            sch.restore(before)
            raise
        return handles

    def as_json(self) -> dict[str, Any]:
        """Return the trace as JSON data: ``{"format": 1, "insts": [{"name", "args", "out", "decision"}]}``."""
        return steps_as_json(self.insts)

    def dumps(self) -> str:
        """:meth:`as_json` as text."""
        return json.dumps(self.as_json(), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(data: Any) -> Trace:
        """Return the trace that :meth:`as_json` (or, as text, :meth:`dumps`) wrote.

        It is safe on foreign data: TraceError is raised for another format, for unknown primitives, and for arguments
        other than numbers, texts and lists.
        """
        return Trace(steps_from_json(data))

    @staticmethod
    def apply_json_to_schedule(data: Any, sch: Schedule) -> dict[str, Handle | Any]:
        """Replay a trace given as JSON: :meth:`from_json` and :meth:`apply_to_schedule` in one."""
        return Trace.from_json(data).apply_to_schedule(sch)

    def as_python(self) -> str:
        """Return the trace as Python code that applies it to a Schedule named ``sch``."""
        return "\n".join(python_lines(self.insts))

    __str__ = as_python
    __repr__ = as_python

    def show(self) -> None:
        """Print :meth:`as_python`."""
        print(self.as_python())


def apply_instruction(
    sch: Schedule,
    inst: Instruction,
    number: int,
    handles: dict[str, Any],
    provider: Callable[..., Any] | None = None,
) -> None:
    """Apply the ``number``-th instruction of a trace, and add its outputs to ``handles`` by their names in the
    trace."""
    step = inst.primitive
    where = f"instruction {number}, {inst.name}"

    def lookup(name: str) -> Any:
        try:
            return handles[name]
        except KeyError:
            raise TraceError(f"{where}: {name} is not an output of an earlier instruction") from None

    def decode(value: Any) -> Any:
        if isinstance(value, Ref):
            return lookup(value.name)
        if isinstance(value, Formula):
            return formula_value(value, lookup)
        if isinstance(value, Const):
            return const(value.value, value.dtype)
        if isinstance(value, list):
            return [decode(item) for item in value]
        if isinstance(value, Mapping):
            return {k: decode(v) for k, v in value.items()}
        return value

    arguments = {name: decode(value) for name, value in inst.arguments.items()}
    if step.kind == "sample":
        decision = decode(inst.decision)
        arguments["decision"] = provider(inst, arguments, decision) if provider else decision
    try:
        outputs = sch.apply_named(step, arguments)
    except ScheduleError:
        raise
    except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as err:
        raise TraceError(f"{where}: {err}") from err
    made = [] if outputs is None else list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    names = inst.output_names
    if inst.outputs is not None and len(made) != len(names):
        raise ScheduleError(
            f"{where}, gives {len(made)} outputs here, {len(names)} when it was recorded",
            primitive="apply_to_schedule",
            hint="the trace was recorded on a function of another form",
        )
    handles.update(zip(names, made, strict=False))
