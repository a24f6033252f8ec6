"""This module has one row for each operation. A row has the class of TIR's node or the call's name, and the class of
MLIR.

A writer and a reader use the same rows. What needs several operations of MLIR is a template (:mod:`.templates`).
"""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, math

from ....tir.expr import DType
from ....tir.expr.nodes import expr as E


def kind_of(dtype: DType) -> str:
    """Returns which column of the tables a data type belongs to: float, signed, unsigned or bool."""
    if dtype.is_float:
        return "float"
    return "bool" if dtype.is_bool else "signed" if dtype.is_signed else "unsigned"


_INTEGERS = ("signed", "unsigned")

BINARY: dict[tuple[type[E.BinaryOp], str], type[Any]] = {
    (E.Add, "float"): arith.AddfOp,
    (E.Sub, "float"): arith.SubfOp,
    (E.Mul, "float"): arith.MulfOp,
    (E.Div, "float"): arith.DivfOp,
    (E.Min, "float"): arith.MinimumfOp,
    (E.Max, "float"): arith.MaximumfOp,
    **{(E.Add, k): arith.AddiOp for k in _INTEGERS},
    **{(E.Sub, k): arith.SubiOp for k in _INTEGERS},
    **{(E.Mul, k): arith.MuliOp for k in _INTEGERS},
    (E.Min, "signed"): arith.MinSIOp,
    (E.Max, "signed"): arith.MaxSIOp,
    (E.Min, "unsigned"): arith.MinUIOp,
    (E.Max, "unsigned"): arith.MaxUIOp,
    (E.And, "bool"): arith.AndIOp,
    (E.Or, "bool"): arith.OrIOp,
}
"""Nodes by the kind of their operands, and the operation for them."""

CALLS: dict[str, tuple[type[Any], str]] = {
    **{
        f"tir.{name}": (getattr(math, f"{word}Op"), "float")
        for name, word in {
            "exp": "Exp", "exp2": "Exp2", "expm1": "ExpM1", "log": "Log", "log2": "Log2", "log10": "Log10", "log1p": "Log1p",
            "sqrt": "Sqrt", "rsqrt": "Rsqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos",
            "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh",
            "atanh": "Atanh", "erf": "Erf", "floor": "Floor", "ceil": "Ceil", "trunc": "Trunc", "round": "RoundEven",
            "nearbyint": "RoundEven", "fabs": "AbsF", "pow": "PowF", "atan2": "Atan2", "copysign": "CopySign", "fma": "Fma",
        }.items()
    },
    "tir.clz": (math.CountLeadingZerosOp, "integer"),
    "tir.popcount": (math.CtPopOp, "integer"),
    "tir.bitwise_and": (arith.AndIOp, "integer"),
    "tir.bitwise_or": (arith.OrIOp, "integer"),
    "tir.bitwise_xor": (arith.XOrIOp, "integer"),
}  # fmt: skip
"""Calls, the operation for them, and the kind of their arguments."""

SECOND_NAMES = frozenset({"tir.nearbyint"})
"""Calls that share their operation with another one, whose name is read back where nothing says otherwise."""

NODE_OF: dict[type[Any], tuple[type[E.BinaryOp], str]] = {op: key for key, op in reversed(list(BINARY.items()))}
"""The node of each operation, and its kind."""

CALL_OF: dict[type[Any], str] = {
    op: name for name, (op, _) in CALLS.items() if name not in SECOND_NAMES and op not in NODE_OF
}
"""The call of each operation. Those on bits belong to nodes as well, which :mod:`.value_reader` tells by their types."""

ORDERED = {E.EQ: "oeq", E.NE: "une", E.LT: "olt", E.LE: "ole", E.GT: "ogt", E.GE: "oge"}
SIGNED = {E.EQ: "eq", E.NE: "ne", E.LT: "slt", E.LE: "sle", E.GT: "sgt", E.GE: "sge"}
UNSIGNED = {**SIGNED, E.LT: "ult", E.LE: "ule", E.GT: "ugt", E.GE: "uge"}
"""Comparisons and MLIR's words for them."""
