"""This module defines expressions: immutable trees with a data type.

The semantics: ``//`` and ``%`` round towards minus infinity (:class:`FloorDiv`, :class:`FloorMod`); integer arithmetic
on indices never overflows, and no index is divided by zero; arithmetic on data wraps, and there a quotient and a
remainder by zero are 0 (:mod:`.dtype` tells indices from data); each operation on floats rounds to its type (compiled
code may join a product and a sum of float32 or float64, which then round once); reading outside a buffer is an error;
``Select`` evaluates both sides, ``Call("tir.if_then_else")`` only the chosen one. Operators build nodes and fold
constants; ``==`` builds an :class:`EQ`, whose truth value is identity, so that containers work.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Union

from .dtype import BOOL, INDEX, INT64, DType, promote
from .node import Node, Part, apart, binds, holds, node, nodes, uses

if TYPE_CHECKING:
    from .buffer import Buffer

ExprLike = Union["Expr", int, float, bool]


class Expr(Node):
    """The base class of all expressions; ``dtype`` is the type of the value."""

    __slots__ = ()
    dtype: DType
    typed_by_left: ClassVar[bool] = False
    """Whether the data type is that of the left operand."""
    __hash__ = object.__hash__

    def __add__(self, other: ExprLike) -> Expr:
        return _binary(Add, self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return _binary(Add, other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return _binary(Sub, self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return _binary(Sub, other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return _binary(Mul, self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return _binary(Mul, other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return _binary(Div, self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return _binary(Div, other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return _binary(FloorDiv, self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return _binary(FloorDiv, other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return _binary(FloorMod, self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return _binary(FloorMod, other, self)

    def __neg__(self) -> Expr:
        return _negate(self)

    def __lt__(self, other: ExprLike) -> Expr:
        return _compare(LT, self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return _compare(LE, self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return _compare(GT, self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return _compare(GE, self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _equality(EQ, self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _equality(NE, self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.bitwise_and", And, self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.bitwise_and", And, other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.bitwise_or", Or, self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.bitwise_or", Or, other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.bitwise_xor", None, self, other)

    def __lshift__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.shift_left", None, self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return _bitwise("tir.shift_right", None, self, other)

    def __invert__(self) -> Expr:
        return Not(self) if self.dtype.is_bool else Call("tir.bitwise_not", (self,), self.dtype)

    def __bool__(self) -> bool:
        raise ValueError(
            f"`{self}` is an expression, its truth is not known while the program is being built; "
            "use te.if_then_else / te.all / te.any, or tir.Select, in place of Python's if / and / or / not"
        )

    def astype(self, dtype: str) -> Expr:
        """Return the value converted to ``dtype``, with the same lanes; the same object when it has the type
        already."""
        return cast(dtype, self)

    def equal(self, other: ExprLike) -> Expr:
        """Return the expression ``self == other``."""
        return _compare(EQ, self, other)


PrimExpr = Expr


@node
class Var(Expr):
    """Represents a variable. Two variables are the same only if they are the same object, whatever their names."""

    name: str
    dtype: DType = INDEX

    identity = "var"

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, name: str, dtype: str = INDEX) -> None: ...

    @property
    def name_hint(self) -> str:
        """Return ``name``; TVM calls it ``name_hint``."""
        return self.name


@node
class IntImm(Expr):
    """Represents an integer or bool constant."""

    value: int
    dtype: DType = INDEX

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, value: int, dtype: str = INDEX) -> None: ...

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    __index__ = __int__


@node
class FloatImm(Expr):
    """Represents a floating-point constant; infinities and NaN are allowed."""

    value: float
    dtype: DType = DType("float32")

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, value: float, dtype: str = "float32") -> None: ...

    def __float__(self) -> float:
        return self.value


@node
class StringImm(Expr):
    """Represents a string constant, an argument of some calls and attributes."""

    value: str
    dtype: DType = DType("handle")

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, value: str, dtype: str = "handle") -> None: ...


@node
class BinaryOp(Expr):
    """The base class of operations on two operands of one data type, which is also the type of the result.

    ``symbol`` is the operator of Python that builds it, "" where there is none. :meth:`compute` does not wrap integers,
    and fails for a division by zero.
    """

    a: Expr
    b: Expr

    parts = nodes("a", "b")
    typed_by_left = True
    symbol = ""

    @staticmethod
    def compute(a: Any, b: Any, /) -> Any:
        """Return the value for two Python numbers."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        first = self.a
        while first.typed_by_left:  # in a long sum the left operands nest
            first = first.a  # type: ignore[attr-defined]
        return first.dtype


class Add(BinaryOp):
    """a + b"""

    __slots__ = ()
    symbol = "+"
    compute = staticmethod(operator.add)


class Sub(BinaryOp):
    """a - b"""

    __slots__ = ()
    symbol = "-"
    compute = staticmethod(operator.sub)


class Mul(BinaryOp):
    """a * b"""

    __slots__ = ()
    symbol = "*"
    compute = staticmethod(operator.mul)


class Div(BinaryOp):
    """a / b for floats; for integers it rounds towards zero."""

    __slots__ = ()
    symbol = "/"
    compute = staticmethod(operator.truediv)


class TruncDiv(BinaryOp):
    """Divides integers, rounding towards zero, as in C. Division by zero is that of :class:`FloorDiv`."""

    __slots__ = ()
    compute = staticmethod(lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1))


class TruncMod(BinaryOp):
    """Gives the remainder of :class:`TruncDiv`; it has the sign of ``a``, and it is 0 for ``b`` zero."""

    __slots__ = ()
    compute = staticmethod(lambda a, b: abs(a) % abs(b) * (1 if a >= 0 else -1))


class FloorDiv(BinaryOp):
    """Divides integers, rounding towards minus infinity.

    As in NumPy it never fails: ``a // 0`` is 0, and the smallest number divided by -1 wraps to itself.
    """

    __slots__ = ()
    symbol = "//"
    compute = staticmethod(operator.floordiv)


class FloorMod(BinaryOp):
    """Gives the remainder of :class:`FloorDiv`; it has the sign of ``b``, and it is 0 for ``b`` zero."""

    __slots__ = ()
    symbol = "%"
    compute = staticmethod(operator.mod)


class Min(BinaryOp):
    """Gives the smaller operand; for floats NaN in either operand gives NaN."""

    __slots__ = ()
    compute = staticmethod(min)


class Max(BinaryOp):
    """Gives the larger operand; for floats NaN in either operand gives NaN."""

    __slots__ = ()
    compute = staticmethod(max)


class CmpOp(BinaryOp):
    """The base class of comparisons. The result is bool, with the lanes of the operands."""

    __slots__ = ()
    typed_by_left = False

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return BOOL.with_lanes(self.a.dtype.lanes)


class EQ(CmpOp):
    """a == b. Its Python truth value says whether both are one object (constants: equal), so that containers work."""

    __slots__ = ()
    symbol = "=="
    compute = staticmethod(operator.eq)

    def __bool__(self) -> bool:
        return _identical(self.a, self.b)


class NE(CmpOp):
    """a != b. Its Python truth value says whether the operands are two different objects."""

    __slots__ = ()
    symbol = "!="
    compute = staticmethod(operator.ne)

    def __bool__(self) -> bool:
        return not _identical(self.a, self.b)


class LT(CmpOp):
    """a < b"""

    __slots__ = ()
    symbol = "<"
    compute = staticmethod(operator.lt)


class LE(CmpOp):
    """a <= b"""

    __slots__ = ()
    symbol = "<="
    compute = staticmethod(operator.le)


class GT(CmpOp):
    """a > b"""

    __slots__ = ()
    symbol = ">"
    compute = staticmethod(operator.gt)


class GE(CmpOp):
    """a >= b"""

    __slots__ = ()
    symbol = ">="
    compute = staticmethod(operator.ge)


class LogicalOp(BinaryOp):
    """The base class of operations on two truth values."""

    __slots__ = ()


class And(LogicalOp):
    """a and b; ``b`` is not evaluated when ``a`` is false."""

    __slots__ = ()
    symbol = "and"


class Or(LogicalOp):
    """a or b; ``b`` is not evaluated when ``a`` is true."""

    __slots__ = ()
    symbol = "or"


@node
class Not(Expr):
    """not a"""

    a: Expr

    parts = nodes("a")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.a.dtype


@node
class Select(Expr):
    """Gives ``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""

    condition: Expr
    true_value: Expr
    false_value: Expr

    parts = nodes("condition", "true_value", "false_value")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.true_value.dtype


@node
class Cast(Expr):
    """Converts the value to ``dtype``. To an integer it truncates; to a narrower float it rounds to nearest even."""

    dtype: DType
    value: Expr

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, dtype: str, value: Expr) -> None: ...

    parts = nodes("value")


@node
class Ramp(Expr):
    """Represents the vector ``base, base + stride, …`` of ``lanes`` elements."""

    base: Expr
    stride: Expr
    lanes: int

    parts = nodes("base", "stride")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.base.dtype.with_lanes(self.lanes)


@node
class Broadcast(Expr):
    """Represents a vector with one scalar in every lane."""

    value: Expr
    lanes: int

    parts = nodes("value")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.value.dtype.with_lanes(self.lanes)


@node
class Shuffle(Expr):
    """Picks lanes from the concatenation of ``vectors`` by constant ``indices``; one index gives a scalar."""

    vectors: tuple[Expr, ...]
    indices: tuple[int, ...]

    parts = nodes("vectors")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.vectors[0].dtype.with_lanes(len(self.indices))


@node
class Call(Expr):
    """Represents a named operation, e.g. ``tir.exp``; :mod:`tilewright.tir.op` lists the names and their meaning."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, op: str, args: tuple[Expr, ...], dtype: str) -> None: ...

    parts = nodes("args")


@node
class Let(Expr):
    """Gives ``body``, in which ``var`` has the value ``value``; that is evaluated once."""

    var: Var
    value: Expr
    body: Expr

    parts = nodes("value") + binds("var") + nodes("body")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.body.dtype


@node
class BufferLoad(Expr):
    """Reads an element of a buffer, or a vector of elements when an index is a vector.

    Lane i of the result is read at lane i of each vector index; scalar indices hold for all lanes.

    ``predicate``, a bool vector, marks the lanes to read; the others are zero and access no memory.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None = None

    parts = uses("buffer") + nodes("indices", "predicate")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        lanes = max([i.dtype.lanes for i in self.indices], default=1)
        if lanes == 1:
            return self.buffer.dtype
        return self.buffer.dtype.with_lanes(lanes * self.buffer.dtype.lanes)


@node
class Range(Part):
    """Represents the half-open interval ``[min, min + extent)``."""

    min: Expr
    extent: Expr

    parts = nodes("min", "extent")

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
class IterVar(Part):
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

    # An axis may stand wherever its variable may, as in TVM's te: A[i, k] with k a reduce_axis.
    def __add__(self, other: Any) -> Expr:
        return self.var + _value(other)

    def __radd__(self, other: Any) -> Expr:
        return _value(other) + self.var

    def __sub__(self, other: Any) -> Expr:
        return self.var - _value(other)

    def __rsub__(self, other: Any) -> Expr:
        return _value(other) - self.var

    def __mul__(self, other: Any) -> Expr:
        return self.var * _value(other)

    def __rmul__(self, other: Any) -> Expr:
        return _value(other) * self.var

    def __truediv__(self, other: Any) -> Expr:
        return self.var / _value(other)

    def __floordiv__(self, other: Any) -> Expr:
        return self.var // _value(other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return _value(other) // self.var

    def __mod__(self, other: Any) -> Expr:
        return self.var % _value(other)

    def __rmod__(self, other: Any) -> Expr:
        return _value(other) % self.var

    def __neg__(self) -> Expr:
        return -self.var

    def __eq__(self, other: object) -> Any:  # an EQ as for every expression; its truth value compares identity
        return _equality(EQ, self.var, _value(other))

    def __ne__(self, other: object) -> Any:
        return _equality(NE, self.var, _value(other))

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Expr:
        return self.var < _value(other)

    def __le__(self, other: Any) -> Expr:
        return self.var <= _value(other)

    def __gt__(self, other: Any) -> Expr:
        return self.var > _value(other)

    def __ge__(self, other: Any) -> Expr:
        return self.var >= _value(other)

    def astype(self, dtype: str) -> Expr:
        """Return the variable's value converted to ``dtype``."""
        return self.var.astype(dtype)


@node
class CommReducer(Part):
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


def is_const_int(e: object, value: int | None = None) -> bool:
    """Return whether ``e`` is an integer constant (and equals ``value``, when given)."""
    return isinstance(e, IntImm) and (value is None or e.value == value)


def const(value: int | float | bool, dtype: str | None = None) -> Expr:
    """Return a constant; a vector type gives a :class:`Broadcast`.

    Without ``dtype`` the type is int32, float32 or bool, and int64 for an integer that int32 does not hold. ValueError
    for an integer that int64 does not hold either.
    """
    if type(value) is int and (dtype is None or dtype == INDEX) and -0x80000000 <= value <= 0x7FFFFFFF:
        return IntImm(value)
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else _int_type(value) if isinstance(value, int) else "float32"
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


def _int_type(value: int) -> DType:
    """Return the type of an integer for which no type is given."""
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return INDEX
    if -(1 << 63) <= value < 1 << 63:
        return INT64
    raise ValueError(f"{value} does not fit in 64 bits; constants are at most {(1 << 63) - 1}")


def _value(x: Any) -> Any:
    return x.var if isinstance(x, IterVar) else x


def convert(x: Any, dtype: str | None = None) -> Expr:
    """Return a Python number, a string, an axis or an expression as an expression; TypeError for anything else."""
    if isinstance(x, Expr):
        return x
    if isinstance(x, IterVar):
        return x.var
    if isinstance(x, (bool, int, float)):
        return const(x, dtype)
    if isinstance(x, str):
        return StringImm(x)
    if hasattr(x, "__tir_expr__"):  # such as a te tensor of rank 0
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
        return const(_wrap(e.value, to) if to.is_int else e.value, to)
    if isinstance(e, FloatImm) and to.is_float:
        if e.dtype.bits >= to.bits:
            return const(e.value, to)
        if e.dtype == "float32" and abs(e.value) < 3.4e38:  # the value that float32 holds is widened
            return const(struct.unpack("f", struct.pack("f", e.value))[0], to)
    return Cast(to, e)


def _negate(e: Expr) -> Expr:
    if isinstance(e, FloatImm):
        return FloatImm(-e.value, e.dtype)
    if e.dtype.is_signed:
        return _binary(Mul, e, const(-1, e.dtype))
    return Mul(e, const(-1.0, e.dtype)) if e.dtype.is_float else _binary(Sub, const(0, e.dtype), e)


def match_types(a: Any, b: Any) -> tuple[Expr, Expr]:
    """Return both operands as expressions of one data type; constants take the type of the other operand."""
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype == b.dtype:
        return a, b
    if isinstance(a, Expr) and isinstance(b, (int, float)) and not isinstance(a, StringImm):
        b = _like(b, a.dtype)
    elif isinstance(b, Expr) and isinstance(a, (int, float)) and not isinstance(b, StringImm):
        a = _like(a, b.dtype)
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
        wide = _int_type(int(value))  # a number that int32 does not hold makes both operands 64 bits wide
        return const(value, dtype if wide == INDEX and not dtype.is_bool else wide.with_lanes(dtype.lanes))
    return const(value, dtype)


def _widen(e: Expr, lanes: int) -> Expr:
    return Broadcast(e, lanes) if lanes > 1 and e.dtype.lanes == 1 else e


def _wrap(value: int, dtype: DType) -> int:
    if dtype == INDEX and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    bits = dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


FOLDED = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max))
"""The operations whose integer constants :func:`make_binary` computes."""


def make_binary(cls: type[BinaryOp], a: Expr, b: Expr) -> Expr:
    """Return a binary node over operands of one type, simplified where constants allow: ``x + 0``, ``x * 1`` of
    integers."""
    if isinstance(a, IntImm) and isinstance(b, IntImm) and cls in FOLDED and not a.dtype.is_bool:
        if b.value == 0 and cls in (FloorDiv, FloorMod, TruncDiv, TruncMod):
            raise ZeroDivisionError(f"division of {a.value} by zero while building an expression")
        return IntImm(_wrap(int(cls.compute(a.value, b.value)), a.dtype), a.dtype)
    if a.dtype.is_int:
        if isinstance(b, IntImm):
            if b.value == 0 and cls in (Add, Sub):
                return a
            if b.value == 1 and cls in (Mul, FloorDiv, TruncDiv):
                return a
            if (b.value == 0 and cls is Mul) or (b.value == 1 and cls in (FloorMod, TruncMod)):
                return const(0, a.dtype)
        if isinstance(a, IntImm):
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
    if a.dtype.is_bool and not b.dtype.is_bool:  # pragma: no cover - match_types makes both alike
        a = cast(b.dtype, a)
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
    if isinstance(a, (StringImm, Var)) or isinstance(b, (StringImm, Var)):
        # Containers compare variables of different types; that compares identity and never raises.
        b = convert(b)
        if a.dtype != b.dtype and "handle" in (a.dtype, b.dtype):
            return a is b if cls is EQ else a is not b
    return _compare(cls, a, b)


def _identical(a: Expr, b: Expr) -> bool:
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return a.value == b.value
    return a is b


def _bitwise(op: str, logical: type[BinaryOp] | None, a: Any, b: Any) -> Expr:
    a, b = match_types(a, b)
    if a.dtype.is_bool and logical is not None:
        return logical(a, b)
    if not a.dtype.is_int:
        raise TypeError(f"{op} needs integers, got {a.dtype} and {b.dtype}")
    return Call(op, (a, b), a.dtype)


def as_exprs(items: Sequence[Any]) -> tuple[Expr, ...]:
    """Return each item as an expression."""
    return tuple([convert(item) for item in items])
