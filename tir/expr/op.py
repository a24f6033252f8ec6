"""This module builds expressions: constants, ranges and axes, arithmetic, choices, divisions, extremes, conditions.

It says what Python's operators between expressions build.

A product is computed in 64 bits where int32 does not hold it.

It also recognizes index arithmetic (:func:`index_like`), which never overflows and reads no memory, and may therefore be moved,
and computed in more bits.

It also takes conditions apart and negates them. The operations that a :class:`Call` names are in
:mod:`tilewright.tir.expr.intrinsics`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from functools import partial
from math import prod
from typing import Any

from .dtype import INDEX, INT64, DType, max_value, min_value, promote
from .node import NodePart, apart, binds, counts, holds, node, nodes
from .nodes import (
    BUILDERS,
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
    ExprLike,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Operators,
    Or,
    Select,
    StringImm,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)


def is_const_int(e: object, value: int | None = None) -> bool:
    """Return whether ``e`` is an integer constant (and equals ``value``, when given)."""
    return type(e) is IntImm and (value is None or e.value == value)


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """Return a constant; a vector type gives a :class:`Broadcast`.

    Without ``dtype`` the type is int32, float32 or bool, and int64 for an integer that int32 does not hold. ValueError
    for an integer that int64 does not hold either.
    """
    if type(value) is int and (dtype is None or dtype == INDEX) and -0x80000000 <= value <= 0x7FFFFFFF:
        return IntImm(value)
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else int_type(value) if isinstance(value, int) else "float32"
    kind = DType(dtype)
    if kind.lanes > 1:
        return Broadcast(const(value, kind.element), kind.lanes)
    if kind.is_float:
        return FloatImm(float(value), kind)
    if kind.is_bool:
        return IntImm(int(bool(value)), kind)
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        raise ValueError(f"{value!r} is not a constant of type {dtype}")
    return IntImm(int(value), kind)


def int_type(value: int) -> DType:
    """Return the type of an integer for which no type is given."""
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return INDEX
    if -(1 << 63) <= value < 1 << 63:
        return INT64
    raise ValueError(f"{value} does not fit in 64 bits; constants are at most {(1 << 63) - 1}")


def convert(x: Any, dtype: str | None = None) -> Expr:
    """Return a Python number, a string, an axis or an expression as an expression; TypeError for anything else."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, (bool, int, float)):
        return const(x, dtype)
    if isinstance(x, str):
        return StringImm(x)
    if hasattr(x, "__tir_expr__"):  # an axis, a te tensor of rank 0
        return convert(x.__tir_expr__())
    if hasattr(x, "item") and not hasattr(x, "__len__"):  # NumPy scalars
        return convert(x.item(), dtype if dtype is not None else str(x.dtype))
    raise TypeError(f"cannot make an expression of {x!r} ({type(x).__name__})")


def cast(dtype: str, value: ExprLike) -> Expr:
    """Return ``value`` converted to ``dtype``, with the same lanes; a constant gives a constant."""
    e = convert(value)
    to = DType(dtype).with_lanes(e.dtype.lanes)
    if e.dtype == to:
        return e
    if isinstance(e, IntImm) and (to.is_int or to.is_float) and not e.dtype.is_bool:
        return const(wrap(e.value, to) if to.is_int else e.value, to)
    if isinstance(e, FloatImm) and to.is_float:
        if e.dtype.bits >= to.bits:
            return const(e.value, to)
        if e.dtype == "float32" and abs(e.value) < 3.4e38:  # the value that float32 holds is widened
            return const(struct.unpack("f", struct.pack("f", e.value))[0], to)
    return Cast(to, e)


def wrap(value: int, dtype: DType) -> int:
    """Return the number of an integer type that has the same low bits as ``value``."""
    if dtype == INDEX and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    bits = dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


def as_exprs(items: Sequence[Any]) -> tuple[Expr, ...]:
    """Return each item as an expression."""
    return tuple([convert(item) for item in items])


WIDE = "int64"
"""The data type of indices that int32 does not hold."""


_LARGEST = max_value(INDEX)


def index_dtype(sizes: Iterable[Expr]) -> str:
    """Return the type in which the sizes and their product are computed.

    It is int64 when one of them is int64, or when int32 does not hold the product of the constants among them; else
    int32.
    """
    constant, wide = 1, False
    for e in sizes:
        wide = wide or e.dtype == WIDE
        if isinstance(e, IntImm):
            constant *= e.value
            wide = wide or abs(e.value) > _LARGEST
    return WIDE if wide or abs(constant) > _LARGEST else INDEX


def product(factors: Iterable[Expr]) -> Expr:
    """Return the product of sizes, in the type that :func:`index_dtype` finds.

    >>> product([const(50000), const(50000)])
    T.int64(2500000000)
    """
    sizes = list(factors)
    dtype = index_dtype(sizes)
    if all([isinstance(e, IntImm) for e in sizes]):
        return const(prod([e.value for e in sizes]), dtype)  # type: ignore[attr-defined]
    out: Expr = const(1, dtype)
    for e in sizes:
        out = out * cast(dtype, e)
    return out


def shape_text(shape: Iterable[Expr]) -> str:
    """Return the sizes as text for a message; constants are plain numbers, whatever their type."""
    return ", ".join(str(e.value if isinstance(e, IntImm) else e) for e in shape)


@node
class Range(NodePart):
    """Represents the half-open interval ``[min, min + extent)``."""

    min: Expr
    extent: Expr

    parts = counts("min", "extent")

    @staticmethod
    def from_extent(extent: ExprLike) -> Range:
        """Return the range ``[0, extent)``."""
        extent = convert(extent)
        return Range(const(0, extent.dtype), extent)

    @staticmethod
    def from_min_extent(minimum: ExprLike, extent: ExprLike) -> Range:
        """Return the range ``[minimum, minimum + extent)``."""
        return Range(convert(minimum), convert(extent))


@node
class IterVar(Operators, NodePart):
    """Represents an axis: a variable, its domain, and its kind (spatial, reduce, opaque, scan or thread)."""

    dom: Range
    var: Var
    kind: str = "spatial"
    thread_tag: str = ""

    parts = holds("dom") + binds("var")

    SPATIAL = "spatial"
    REDUCE = "reduce"
    OPAQUE = "opaque"
    SCAN = "scan"
    THREAD = "thread"

    def __tir_expr__(self) -> Var:
        """Return the variable, for which the axis may stand, as in TVM's te: ``A[i, k]`` with ``k`` a reduce_axis."""
        return self.var


@node
class CommReducer(NodePart):
    """Represents a commutative, associative operation on tuples: ``result`` of ``lhs`` and ``rhs``, and its identity
    element."""

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity_element: tuple[Expr, ...]

    parts = binds("lhs", "rhs") + nodes("result", "identity_element")


@node
class Reduce(Expr):
    """Represents a reduction inside a te expression; ``create_prim_func`` turns it into a block with an init.

    ``source`` is a tuple (one element for a plain reduction); the value of the expression is the result number
    ``value_index``.
    """

    combiner: CommReducer
    source: tuple[Expr, ...]
    axis: tuple[IterVar, ...]
    condition: Expr
    value_index: int = 0
    init: tuple[Expr, ...] = ()

    parts = apart("combiner", "axis") + nodes("source", "condition", "init")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.source[self.value_index].dtype


def _negate(x: Any, _: Any) -> Expr:
    e = convert(x)
    if isinstance(e, FloatImm):
        return FloatImm(-e.value, e.dtype)
    if e.dtype.is_storage:
        raise refuse_storage(e.dtype, "`-`")
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


def refuse_storage(dtype: DType, what: str) -> TypeError:
    """Return the error for an operation ``what`` on values of a type that only keeps them."""
    wide = "float32" if dtype.is_float else "int32"
    return TypeError(f'{what} of {dtype}, which only keeps numbers; write .astype("{wide}"), and compute on that')


FOLDED = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max))
"""The operations whose integer constants :func:`make_binary` computes."""


def make_binary(cls: type[BinaryOp], a: Expr, b: Expr) -> Expr:
    """Return a binary node over operands of one type. Constants of integers are simplified, such as ``x + 0`` and ``x *
    1``."""
    if a.dtype.is_storage:
        raise refuse_storage(a.dtype, f"`{cls.symbol or cls.__name__}`")
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
    if cls in (FloorDiv, FloorMod) and a.dtype.is_float and not a.dtype.is_storage:
        floored = Call("tir.floor", (Div(a, b),), a.dtype)
        return floored if cls is FloorDiv else Sub(a, Mul(floored, b))
    return make_binary(cls, a, b)


def _compare(cls: type[CmpOp], a: Any, b: Any) -> Expr:
    try:
        a, b = match_types(a, b)
    except TypeError:
        return NotImplemented  # type: ignore[return-value]
    if a.dtype.is_storage:
        raise refuse_storage(a.dtype, f"`{cls.symbol}`")
    return cls(a, b)


def _equality(cls: type[CmpOp], a: Any, b: Any) -> Any:
    if type(a) is Var and type(b) is Var and a.dtype is b.dtype:  # what containers ask most
        return cls(a, b)
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
    if a.dtype.is_storage:
        raise refuse_storage(a.dtype, op)
    if not a.dtype.is_int:
        raise TypeError(f"{op} needs integers, got {a.dtype} and {b.dtype}")
    return Call(op, (a, b), a.dtype)


def _invert(x: Any, _: Any) -> Expr:
    e = convert(x)
    if e.dtype.is_storage:
        raise refuse_storage(e.dtype, "`~`")
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


_SIGNIFICANT = {"float8_e5m2": 3, "float8_e4m3fn": 4, "bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""The significant bits of floats."""


def holds_all(wide: DType, narrow: DType) -> bool:
    """Return whether each number of type ``narrow`` is one of type ``wide``, of NaN and infinities as well.

    >>> holds_all(DType("float16"), DType("float8_e4m3fn")), holds_all(DType("float16"), DType("bfloat16"))
    (True, False)
    """
    numbers = all(t.is_int or t.element in _SIGNIFICANT for t in (wide, narrow))
    if not numbers or wide.lanes != narrow.lanes or (wide.is_int and not narrow.is_int):
        return False
    if min_value(wide) > min_value(narrow) or max_value(wide) < max_value(narrow):
        return False
    digits = narrow.bits - (narrow.kind == "int") if narrow.is_int else _SIGNIFICANT[narrow.element]
    infinite = wide.element != "float8_e4m3fn" or narrow.is_int or narrow.element == wide.element
    return wide.is_int or (digits <= _SIGNIFICANT[wide.element] and infinite)


def select(cond: Any, t: Any, f: Any) -> Expr:
    """Return ``t`` where ``cond`` holds, else ``f``; both sides are evaluated."""
    c = convert(cond)
    if not c.dtype.is_bool:
        raise TypeError(f"select: the condition is {c.dtype}, not bool")
    a, b = match_types(t, f)
    return Select(c, a, b)


def max_(a: Any, b: Any) -> Expr:
    """Return the larger operand."""
    return make_binary(Max, *match_types(a, b))


def min_(a: Any, b: Any) -> Expr:
    """Return the smaller operand."""
    return make_binary(Min, *match_types(a, b))


def div(a: Any, b: Any) -> Expr:
    """Return ``a / b``; for integers rounded towards zero."""
    out: Expr = convert(a) / b
    return out


def floordiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards minus infinity."""
    return make_binary(FloorDiv, *match_types(a, b))


def floormod(a: Any, b: Any) -> Expr:
    """Return the remainder of :func:`floordiv`."""
    return make_binary(FloorMod, *match_types(a, b))


def truncdiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards zero."""
    return make_binary(TruncDiv, *match_types(a, b))


def truncmod(a: Any, b: Any) -> Expr:
    """Return the remainder of :func:`truncdiv`."""
    return make_binary(TruncMod, *match_types(a, b))


def ceildiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards plus infinity."""
    x, y = match_types(a, b)
    return (x + (y - 1)) // y


def all_(*conds: Any) -> Expr:
    """Return whether every condition holds."""
    return _chain(And, True, conds)


def any_(*conds: Any) -> Expr:
    """Return whether some condition holds."""
    return _chain(Or, False, conds)


def _chain(cls: Any, empty: bool, conds: tuple[Any, ...]) -> Expr:
    out: Expr | None = None
    for c in conds:
        e = convert(c)
        if not e.dtype.is_bool:
            raise TypeError(f"a condition is {e.dtype}, not bool")
        out = e if out is None else cls(out, e)
    return const(empty, "bool") if out is None else out


def not_(x: Any) -> Expr:
    """Return the negation of a condition."""
    return Not(convert(x))


def infinity(dtype: str = "float32") -> Expr:
    """Return plus infinity."""
    return const(float("inf"), dtype)


def max_value_of(dtype: str) -> Expr:
    """Return the largest finite value of ``dtype``."""
    return const(max_value(dtype), dtype)


def min_value_of(dtype: str) -> Expr:
    """Return the smallest finite value of ``dtype``."""
    return const(min_value(dtype), dtype)


_OPPOSITE: dict[type, type[CmpOp]] = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the conditions that ``condition`` joins by "and"; none when it is the constant true."""
    if isinstance(condition, And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    if isinstance(condition, IntImm) and condition.value:
        return []
    if isinstance(condition, Call) and condition.op == "tir.likely":
        return conjuncts(condition.args[0])
    return [condition]


def negate(e: Expr) -> Expr | None:
    """Return the opposite of a comparison of integers, as a comparison; None where there is none.

    ``not a < b`` is ``b <= a`` for integers, but not for floats, because of NaN.
    """
    if isinstance(e, CmpOp) and not e.a.dtype.is_float:
        return _OPPOSITE[type(e)](e.a, e.b)
    if isinstance(e, Not):
        return e.a
    return const(not e.value, "bool") if isinstance(e, IntImm) else None


def logical_not(e: Expr) -> Expr:
    """Return a condition that holds exactly when ``e`` does not."""
    simple = negate(e)
    return Not(e) if simple is None else simple
