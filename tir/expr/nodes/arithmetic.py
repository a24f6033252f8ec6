"""This module builds arithmetic: it brings operands to one type, folds constants, and says what operators build.

It also recognizes index arithmetic (:func:`index_like`), which never overflows and reads no memory, and may therefore be moved,
and computed in more bits.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..base.dtype import INDEX, DType, max_value, min_value, promote
from ..base.operators import BUILDERS
from .constants import cast, const, convert, int_type, wrap
from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
    Call,
    Cast,
    CmpOp,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)
from .ranges import IterVar


def _negate(x: Any, _: Any) -> Expr:
    e = convert(x)
    if isinstance(e, FloatImm):
        return FloatImm(-e.value, e.dtype)
    if e.dtype.is_signed:
        return _binary(Mul, e, const(-1, e.dtype))
    return Mul(e, const(-1.0, e.dtype)) if e.dtype.is_float else _binary(Sub, const(0, e.dtype), e)


def match_types(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Return both operands as expressions of one data type; constants take the type of the other operand."""
    if isinstance(a, Expr):
        if type(b) is int:
            if a.dtype is INDEX and -0x80000000 <= b <= 0x7FFFFFFF:
                return a, IntImm(b)
        elif isinstance(b, Expr) and a.dtype is b.dtype:
            return a, b
    if isinstance(a, Expr) and isinstance(b, (int, float)) and not isinstance(a, StringImm):
        b = _like(b, a.dtype)
    elif isinstance(b, Expr) and isinstance(a, (int, float)) and not isinstance(b, StringImm):
        a = _like(a, b.dtype)
    if isinstance(a, str) or isinstance(b, str):
        text, other = (a, b) if isinstance(a, str) else (b, a)
        raise TypeError(f"cannot combine {other} with the text {text!r}, which is no number")
    a, b = convert(a), convert(b)
    if a.dtype == b.dtype:
        return a, b
    dtype = promote(a.dtype, b.dtype)
    lanes = dtype.lanes
    return _widen(cast(dtype.element, a), lanes), _widen(cast(dtype.element, b), lanes)


def _like(value: int | float, dtype: DType) -> Expr:
    if isinstance(value, bool):
        return const(value, "bool" if dtype.is_bool else dtype)
    if isinstance(value, float) and not dtype.is_float:
        return const(value, DType("float32").with_lanes(dtype.lanes))
    if dtype.is_bool or (isinstance(value, int) and dtype.element in (INDEX, "int64")):
        wide = int_type(int(value))  # a number that int32 does not hold makes both operands 64 bits wide
        return const(value, dtype if wide == INDEX and not dtype.is_bool else wide.with_lanes(dtype.lanes))
    return const(value, dtype)


def _widen(e: Expr, lanes: int) -> Expr:
    return Broadcast(e, lanes) if lanes > 1 and e.dtype.lanes == 1 else e


FOLDED = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max))
"""The operations whose integer constants :func:`make_binary` computes."""


def make_binary(cls: type[BinaryOp], a: Expr, b: Expr) -> Expr:
    """Return a binary node over operands of one type. Constants of integers are simplified, such as ``x + 0`` and ``x *
    1``."""
    if type(a) is IntImm and type(b) is IntImm and cls in FOLDED and not a.dtype.is_bool:
        if b.value == 0 and cls in (FloorDiv, FloorMod, TruncDiv, TruncMod):
            raise ZeroDivisionError(f"division of {a.value} by zero while building an expression")
        return IntImm(wrap(int(cls.compute(a.value, b.value)), a.dtype), a.dtype)
    if (type(a) is IntImm or type(b) is IntImm) and a.dtype.is_int:
        if type(b) is IntImm:
            if b.value == 0 and cls in (Add, Sub):
                return a
            if b.value == 1 and cls in (Mul, FloorDiv, TruncDiv):
                return a
            if (b.value == 0 and cls is Mul) or (b.value == 1 and cls in (FloorMod, TruncMod)):
                return const(0, a.dtype)
        if type(a) is IntImm:
            if a.value == 0 and cls is Add:
                return b
            if a.value == 1 and cls is Mul:
                return b
            if a.value == 0 and cls is Mul:
                return a
    return cls(a, b)


def _binary(cls: type[BinaryOp], a: Any, b: Any) -> Expr:
    try:
        a, b = match_types(a, b)
    except TypeError:
        return NotImplemented  # type: ignore[return-value]
    if cls is Div and a.dtype.is_int:
        cls = TruncDiv
    if cls in (FloorDiv, FloorMod) and a.dtype.is_float:
        floored = Call("tir.floor", (Div(a, b),), a.dtype)
        return floored if cls is FloorDiv else Sub(a, Mul(floored, b))
    return make_binary(cls, a, b)


def _compare(cls: type[CmpOp], a: Any, b: Any) -> Expr:
    try:
        a, b = match_types(a, b)
    except TypeError:
        return NotImplemented  # type: ignore[return-value]
    return cls(a, b)


def _equality(cls: type[CmpOp], a: Any, b: Any) -> Any:
    if not isinstance(b, (Expr, IterVar, int, float)):
        return NotImplemented
    a, b = (x.var if isinstance(x, IterVar) else x for x in (a, b))
    if isinstance(a, (StringImm, Var)) or isinstance(b, (StringImm, Var)):
        # Containers compare variables of different types; that compares identity and never raises.
        b = convert(b)
        if a.dtype != b.dtype and "handle" in (a.dtype, b.dtype):
            return a is b if cls is EQ else a is not b
    return _compare(cls, a, b)


def _bitwise(op: str, logical: type[BinaryOp] | None, a: Any, b: Any) -> Expr:
    a, b = match_types(a, b)
    if a.dtype.is_bool and logical is not None:
        return logical(a, b)
    if not a.dtype.is_int:
        raise TypeError(f"{op} needs integers, got {a.dtype} and {b.dtype}")
    return Call(op, (a, b), a.dtype)


def _invert(x: Any, _: Any) -> Expr:
    e = convert(x)
    return Not(e) if e.dtype.is_bool else Call("tir.bitwise_not", (e,), e.dtype)


BUILDERS.update({cls.symbol: partial(_binary, cls) for cls in (Add, Sub, Mul, Div, FloorDiv, FloorMod)})
BUILDERS.update({cls.symbol: partial(_compare, cls) for cls in (LT, LE, GT, GE)})
BUILDERS.update(
    {
        "equal": partial(_compare, EQ),
        "==": partial(_equality, EQ),
        "!=": partial(_equality, NE),
        "&": partial(_bitwise, "tir.bitwise_and", And),
        "|": partial(_bitwise, "tir.bitwise_or", Or),
        "^": partial(_bitwise, "tir.bitwise_xor", None),
        "<<": partial(_bitwise, "tir.shift_left", None),
        ">>": partial(_bitwise, "tir.shift_right", None),
        "~": _invert,
        "negative": _negate,
        "astype": lambda x, dtype: cast(dtype, x),
    }
)


INDEX_TYPES = frozenset(("int32", "int64"))
"""The data types of indices; integers of other types are data, which wraps around."""


def index_like(e: Expr) -> bool:
    """Return whether ``e`` consists of scalar variables and constants of index types and of operations on indices.

    >>> i = Var("i")
    >>> index_like(i * 3 + 1), index_like((i * 3).astype("int64")), index_like((i * 3).astype("int8"))
    (True, True, False)
    """
    kind = type(e)
    if kind in _ARITHMETIC:  # the type is that of the operands
        return index_like(e.a) and index_like(e.b)  # type: ignore[attr-defined]
    if kind is IntImm or kind is Var:
        return e.dtype in INDEX_TYPES
    return isinstance(e, Cast) and e.dtype in INDEX_TYPES and widens(e) and index_like(e.value)


_ARITHMETIC = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))


def widens(e: Cast) -> bool:
    """Return whether a conversion from integer to integer keeps every value."""
    source, to = e.value.dtype, e.dtype
    return source.is_int and min_value(to) <= min_value(source) and max_value(source) <= max_value(to)
