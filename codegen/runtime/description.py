"""Describes the functions of a shared library to whoever loads it, as JSON: names, types, shapes, sizes, errors.

The text is the symbol ``tilewright_description`` of the library. :func:`tilewright.load_module` reads it, and any language
that can look up a symbol may do so.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ... import __version__
from ...exported.library import DESCRIPTION, FORMAT
from ...tir.expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var
from ..lowered import FAILURES, LoweredFunc, Param
from ..machine.target import Target

_OPERATORS: dict[type[Expr], str] = {
    Add: "+", Sub: "-", Mul: "*", FloorDiv: "//", FloorMod: "%", Min: "min", Max: "max",
}  # fmt: skip


def described_function(
    lowered: LoweredFunc,
    params: Sequence[Param],
    name: str,
    *,
    is_packing: bool = False,
    workspace: int | None = None,
    weights: str = "",
) -> dict[str, Any]:
    """Returns what a library says of a function whose C symbol is ``name``.

    ``workspace``: the bytes of a model's intermediate results; its last C parameter is a pointer to them, or NULL. None for
    a kernel. ``weights``: the suffix of the file that ``NAME_load`` maps.
    """
    failures = [*FAILURES.items(), *[(n + 1, one.message) for n, one in enumerate(lowered.assertions())]]
    names: dict[Var, str] = {}
    for one in params:
        if one.buffer is None:  # two sizes may have one name
            taken = sum(one.name == other.name for other in names)
            names[one.var] = f"{one.name}_{taken}" if taken else one.name
    return {
        "name": name,
        "packing": is_packing,
        "params": [_param(one, names) for one in params],
        "workspace": workspace,
        "weights": weights,
        "failures": failures,
    }


def _param(param: Param, names: Mapping[Var, str]) -> dict[str, Any]:
    kind = "array" if param.kind == "buffer" else param.kind
    shown = names.get(param.var, param.name)
    out: dict[str, Any] = {"name": shown, "kind": kind, "dtype": str(param.dtype), "shape": None, "strides": []}
    if param.buffer is not None:
        out["shape"] = [_extent(one, names) for one in param.buffer.shape]
        out["strides"] = [_extent(one, names) for one in param.buffer.strides]
    return {**out, "written": param.writes}


def _extent(extent: Expr | int, names: Mapping[Var, str]) -> Any:
    """Returns an extent as numbers, names and ``[operator, left, right]``; None where it has other operations."""
    if isinstance(extent, int):
        return extent
    if isinstance(extent, IntImm):
        return int(extent.value)
    if isinstance(extent, Var):
        return names.get(extent)
    if isinstance(extent, Cast) and extent.dtype.is_int:
        return _extent(extent.value, names)
    operator = _OPERATORS.get(type(extent))
    if operator is None:
        return None
    left, right = _extent(extent.a, names), _extent(extent.b, names)  # type: ignore[attr-defined]
    return None if left is None or right is None else [operator, left, right]


def description_ir(functions: Collection[dict[str, Any]], target: Target) -> str:
    """Returns the module that defines the description of a library with these functions."""
    text = json.dumps({
        "format": FORMAT,
        "version": __version__,
        "target": str(target),
        "features": sorted(target.describe()["features"]),
        "functions": [*functions],
    })  # fmt: skip
    data = text.encode() + b"\0"
    told = "".join([chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data])
    return f'target triple = "{target.triple}"\n@{DESCRIPTION} = constant [{len(data)} x i8] c"{told}", align 1\n'
