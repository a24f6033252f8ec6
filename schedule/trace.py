"""This module defines traces: what a schedule records of each step, as Python, JSON and replay.

A recorded argument is one of: None, bool, int, float, str, a list or a str-keyed dict of recorded arguments,
:class:`Ref`, :class:`Formula`, :class:`Const`. Formulas are read and written as programs are.

In JSON a reference is a string ``"%l3"`` (a string that begins with ``%`` gets a second one), a formula ``{"expr": "v1 * 2"}``, a
constant ``{"const": ["float32", "0.0"]}``, a dict ``{"dict": {...}}``. Nothing else is accepted, so that a foreign trace
can name numbers and texts and no more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..pages import card, code_html
from ..tir.expr import Add, DType, Expr, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var, const, convert
from ..tir.parser import ParseError, parse_expression
from ..tir.printer_expr import ExprPrinter
from ..tir.walk import pre_order
from .errors import ScheduleError
from .handles import Handle
from .primitive import REGISTRY, Primitive

if TYPE_CHECKING:
    from .schedule import Schedule


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


FORMAT = 1
"""The version of the JSON form; it grows when an old reader would misread the data."""

_MAX_INSTRUCTIONS = 10_000
_MAX_DEPTH = 16


def steps_as_json(steps: Iterable[Instruction]) -> dict[str, Any]:
    """Return the steps as JSON data: ``{"format": 1, "insts": [{"name", "args", "out", "decision"}]}``."""
    insts: list[dict[str, Any]] = []
    for inst in steps:
        entry: dict[str, Any] = {"name": inst.name, "args": {k: _to_json(v) for k, v in inst.arguments.items()}}
        if inst.outputs is not None:
            entry["out"] = inst.outputs
        if inst.decision is not None:
            entry["decision"] = _to_json(inst.decision)
        insts.append(entry)
    return {"format": FORMAT, "insts": insts}


def steps_from_json(data: Any) -> tuple[Instruction, ...]:
    """Return the steps that :func:`steps_as_json` wrote, given as data or as its text.

    TraceError for another format, unknown primitives, and arguments other than numbers, texts and lists.
    """
    if isinstance(data, (str, bytes)):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as err:
            raise TraceError(f"the trace is no JSON: {err}") from None
    if _is_tvm(data):
        raise TraceError(
            "this trace is in TVM's JSON form, [[kind, inputs, attributes, outputs], ...]; record it anew here, or "
            "paste the Python text that TVM prints for it"
        )
    if not isinstance(data, dict) or "format" not in data:
        raise TraceError("this is not a trace: an object with 'format' and 'insts' is expected")
    if data["format"] != FORMAT:
        raise TraceError(
            f"the trace has format {str(data['format'])[:20]}; this version reads format {FORMAT}. There is no way "
            "from one to the other: record the trace anew"
        )
    insts = data.get("insts")
    if not isinstance(insts, list) or len(insts) > _MAX_INSTRUCTIONS:
        raise TraceError(f"'insts' is a list of at most {_MAX_INSTRUCTIONS} instructions")
    return tuple(_instruction(number, entry) for number, entry in enumerate(insts))


def _is_tvm(data: Any) -> bool:
    """Return whether this is ``[instructions, decisions]``, each instruction a list that begins with its kind."""
    if not isinstance(data, list) or len(data) != 2 or not all(isinstance(part, list) for part in data):
        return False
    return all(isinstance(inst, list) and len(inst) == 4 and isinstance(inst[0], str) for inst in data[0])


def _instruction(number: int, entry: Any) -> Instruction:
    where = f"instruction {number}"
    if not isinstance(entry, dict) or not {"name", "args"} <= entry.keys() <= {"name", "args", "out", "decision"}:
        raise TraceError(f"{where}: an object with 'name', 'args', and maybe 'out' and 'decision' is expected")
    name, args, out = entry["name"], entry["args"], entry.get("out")
    if not isinstance(name, str) or name not in REGISTRY:
        raise TraceError(f"{where}: {str(name)[:40]!r} is not a schedule primitive")
    parameters = [p for p in REGISTRY[name].signature.parameters if p != "decision"]
    if not isinstance(args, dict) or not args.keys() <= set(parameters):
        raise TraceError(
            f"{where}: {name} has the arguments {', '.join(parameters)}, not {str(list(args) if isinstance(args, dict) else args)[:80]}"
        )
    names = [] if out is None else [out] if isinstance(out, str) else out
    if not isinstance(names, list) or not all(isinstance(n, str) and n.isidentifier() and n.isascii() for n in names):
        raise TraceError(f"{where}: 'out' is a name or a list of names")
    arguments = {key: _from_json(value) for key, value in args.items()}
    for key, parameter in REGISTRY[name].signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL and not isinstance(arguments.get(key, []), list):
            raise TraceError(f"{where}: the arguments *{key} of {name} are a list")
    return Instruction(name, arguments, out, _from_json(entry.get("decision")))


def _to_json(value: Any) -> Any:
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
        return [_to_json(item) for item in value]
    if isinstance(value, Mapping):
        return {"dict": {str(k): _to_json(v) for k, v in value.items()}}
    raise TypeError(f"a trace cannot hold {value!r} ({type(value).__name__})")


def _from_json(data: Any, depth: int = 0) -> Any:
    """Return the recorded value that :func:`_to_json` wrote; TraceError for anything else."""
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
        return [_from_json(item, depth + 1) for item in data]
    if isinstance(data, dict) and len(data) == 1:
        key, inner = next(iter(data.items()))
        if key == "expr" and isinstance(inner, str):
            formula_value(Formula(inner), lambda name: Var(_name(name)))  # reads as a formula, or raises
            return Formula(inner)
        if key == "dict" and isinstance(inner, dict) and all(isinstance(k, str) for k in inner):
            return {k: _from_json(v, depth + 1) for k, v in inner.items()}
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


def trace_html(trace: Trace) -> str:
    """Returns the steps as Python."""
    return card("Trace", code_html(trace.as_python(), fold=False), note=f"{len(trace)} steps")
