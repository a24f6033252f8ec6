"""This module defines the words that make expressions; they are functions inside and outside TIR functions.

The names of node classes (``T.Add``, ``T.Select``, ``T.Cast`` …) build exactly that node; functions in lower case fold
constants and match the operands' types like the operators.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..expr import as_exprs, convert, match_types
from ..expr import cast as converted
from ..expr.intrinsics import OPERATIONS, foreign_calls
from ..expr.intrinsics.float_operations import abs_, pow_
from ..expr.nodes import expr as E
from ..expr.nodes import op


def _raw(cls: type[E.BinaryOp]) -> Callable[[Any, Any], E.Expr]:
    def build(a: Any, b: Any) -> E.Expr:
        return cls(*match_types(a, b))

    build.__name__, build.__doc__ = cls.__name__, f"The node {cls.__name__}(a, b); nothing is folded."
    return build


def Not(a: Any) -> E.Expr:
    """Return the node Not(a)."""
    return E.Not(convert(a))


def Select(condition: Any, true_value: Any, false_value: Any) -> E.Expr:
    """Return ``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""
    return op.select(condition, true_value, false_value)


def Cast(dtype: str, value: Any) -> E.Expr:
    """Return the node Cast(dtype, value); :func:`cast` returns a value that has the type already as it is."""
    return E.Cast(dtype, convert(value))


def cast(value: Any, dtype: str) -> E.Expr:
    """Return ``value`` converted to ``dtype``."""
    return converted(dtype, value)


def _whole(value: Any, word: str) -> int:
    """Returns an integer argument of a word; TypeError for other numbers, which are not rounded."""
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"T.{word} takes an integer, not {value!r}") from None


def Ramp(base: Any, stride: Any, lanes: Any) -> E.Expr:
    """Return the vector base, base + stride, …"""
    b = convert(base)
    return E.Ramp(b, convert(stride, b.dtype), _whole(lanes, "Ramp"))


def Broadcast(value: Any, lanes: Any) -> E.Expr:
    """Return a vector with one scalar in every lane."""
    return E.Broadcast(convert(value), _whole(lanes, "Broadcast"))


def Shuffle(vectors: Any, indices: Any) -> E.Expr:
    """Return lanes picked from the concatenation of vectors."""
    return E.Shuffle(as_exprs(vectors), tuple(_whole(i, "Shuffle") for i in indices))


def call(name: str, *args: Any, dtype: str) -> E.Expr:
    """Return a call of any operation, as in ``T.call("tir.exp", x, dtype="float32")``."""
    return E.Call(name, as_exprs(args), dtype)


def call_intrin(*args: Any, dtype: str | None = None) -> E.Expr:
    """Return a call of an operation by its name, as in ``T.call_intrin("float32", "tir.exp", x)``."""
    call = foreign_calls.call_intrin(*args, dtype=dtype)
    assert isinstance(call, E.Call)
    name = call.args[0].value if isinstance(call.args[0], E.StringImm) else ""
    return E.Call(name, call.args[1:], call.dtype) if name in OPERATIONS else call


def llvm_lookup_intrinsic_id(name: str) -> str:
    """Return the name itself, because intrinsics of LLVM are called by name here."""
    return name


def _infinity(dtype: str = "float32") -> E.Expr:
    return op.infinity(dtype)


_NODES = (
    E.Add, E.Sub, E.Mul, E.Div, E.TruncDiv, E.TruncMod, E.FloorDiv, E.FloorMod, E.Min, E.Max,
    E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or,
)  # fmt: skip

TYPED = {"call", "cast", "Cast", "infinity", "max_value", "min_value"}
"""Functions with a ``dtype`` parameter; for others TVM's ``dtype=`` only repeats the type of the result."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{cls.__name__: _raw(cls) for cls in _NODES},
    **{row.name: row for row in OPERATIONS.values()},
    **{f.__name__: f for f in (
        Not, Select, Cast, cast, Ramp, Broadcast, Shuffle, call, call_intrin, llvm_lookup_intrinsic_id,
        op.ceildiv, op.floordiv, op.floormod, op.truncdiv, op.truncmod,
    )},
    "abs": abs_, "all": op.all_, "any": op.any_, "broadcast": Broadcast, "infinity": _infinity, "max": op.max_,
    "max_value": op.max_value_of, "min": op.min_, "min_value": op.min_value_of, "power": pow_, "ramp": Ramp,
    "select": Select,
}  # fmt: skip
"""The functions, by the name after ``T.``."""
