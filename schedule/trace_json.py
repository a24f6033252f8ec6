"""This module writes the steps of a trace as JSON data, and reads them.

A reference is a string ``"%l3"`` (a string that begins with ``%`` gets a second one), a formula ``{"expr": "v1 * 2"}``, a
constant ``{"const": ["float32", "0.0"]}``, a dict ``{"dict": {...}}``. Nothing else is accepted, so that a foreign trace
can name numbers and texts and no more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..tir.expr import DType, Var
from .instruction import Instruction
from .primitive import REGISTRY
from .trace_data import Const, Formula, Ref, TraceError, formula_value

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
