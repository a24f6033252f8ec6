"""This module says which types the parts of an expression must have, one rule per class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .intrinsics import OPERATIONS
from .nodes.expr import (
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    Expr,
    FloatImm,
    LogicalOp,
    Not,
    Ramp,
    Select,
    Shuffle,
    StringImm,
)


def type_problem(e: Expr) -> str:
    """Return what is wrong with the types of the parts of ``e``; "" when they fit."""
    rule = TYPE_RULES.get(type(e))
    if rule is not None:
        return rule(e)
    return _operands(e) if isinstance(e, BinaryOp) else ""


def _operands(e: BinaryOp) -> str:
    a, b = e.a.dtype, e.b.dtype
    if a != b:
        return f"the operands are {a} and {b}"
    return f"the operands are {a}, not bool" if isinstance(e, LogicalOp) and not a.is_bool else ""


def _select(e: Select) -> str:
    if e.true_value.dtype != e.false_value.dtype:
        return f"the sides are {e.true_value.dtype} and {e.false_value.dtype}"
    lanes = e.condition.dtype.lanes
    if not e.condition.dtype.is_bool or lanes not in (1, e.dtype.lanes):
        return f"the condition is {e.condition.dtype}"
    return ""


def _ramp(e: Ramp) -> str:
    if e.base.dtype != e.stride.dtype or not e.base.dtype.is_int or e.base.dtype.lanes != 1 or e.lanes < 2:
        return f"a ramp of {e.lanes} lanes from {e.base.dtype} in steps of {e.stride.dtype}"
    return ""


def _call(e: Call) -> str:
    if e.op not in OPERATIONS:
        return f"{e.op} is not an operation; register_operation adds one"
    try:
        OPERATIONS[e.op].result_type(e.args, e.dtype)
    except (TypeError, ValueError) as problem:
        return str(problem)
    return ""


def _shuffle(e: Shuffle) -> str:
    if len({v.dtype for v in e.vectors}) != 1:
        return "the vectors have different types"
    count = sum(v.dtype.lanes for v in e.vectors)
    return "" if all(0 <= i < count for i in e.indices) else f"an index is outside of {count} lanes"


TYPE_RULES: dict[type, Callable[[Any], str]] = {
    StringImm: lambda e: "",
    FloatImm: lambda e: "" if e.dtype.is_float and e.dtype.lanes == 1 else f"a fraction of type {e.dtype}",
    Not: lambda e: "" if e.dtype.is_bool else f"`not` of {e.dtype}",
    Select: _select,
    Cast: lambda e: "" if e.dtype.lanes == e.value.dtype.lanes else f"{e.value.dtype} converted to {e.dtype}",
    Ramp: _ramp,
    Broadcast: lambda e: "" if e.value.dtype.lanes == 1 else f"a broadcast of {e.value.dtype}",
    Call: _call,
    Shuffle: _shuffle,
}
"""The rules of the expressions that a program holds, except binary operations, loads, lets, variables and integers."""
