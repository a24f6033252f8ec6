"""This module defines expressions: immutable trees with a data type, and what Python's operators mean between them.

The semantics: ``//`` and ``%`` round towards minus infinity (:class:`FloorDiv`, :class:`FloorMod`); integer arithmetic
on indices never overflows, and no index is divided by zero; arithmetic on data wraps, and there a quotient and a
remainder by zero are 0 (:mod:`.dtype` tells indices from data); each operation on floats rounds to its type (compiled
code may join a product and a sum of float32 or float64, which then round once); reading outside a buffer is an error;
``Select`` evaluates both sides, ``Call("tir.if_then_else")`` only the chosen one. Operators build nodes and fold
constants (:mod:`.op`); ``==`` builds an :class:`EQ`, whose truth value is identity, so that containers work.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Union

import numpy as np

from .dtype import INDEX, DType
from .node import IRNode, binds, counts, node, nodes, uses

if TYPE_CHECKING:
    from ..stmt import Buffer


_NUMPY_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=", "negative": "negative", "invert": "~",
}  # fmt: skip
"""Python's operators by NumPy's names for them."""

_SPELLED = {
    "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "absolute": "abs", "fabs": "abs", "fmod": "truncmod",
    "rint": "round", "logical_and": "all", "logical_or": "any", "square": "power", "float_power": "power", "arctan2": "atan2",
}  # fmt: skip
"""What te calls NumPy's functions, where the names differ."""


def _as_object(e: Any) -> np.ndarray:
    """Returns an array of no dimensions that holds an expression, to which NumPy applies Python's operators."""
    out = np.empty((), object)
    out[()] = e
    return out


BUILDERS: dict[str, Callable[[Any, Any], Any]] = {}
"""What builds the node of an operator from two operands."""


class Operators:
    """The base class of what may stand in arithmetic: expressions, and axes in place of their variables.

    Operands are expressions, axes and Python's numbers. ``==`` builds a node as well, whose truth value is identity, so
    that containers work.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply an operator between NumPy's numbers or arrays and expressions; TypeError for NumPy's functions."""
        name = ufunc.__name__
        if name not in _NUMPY_OPERATORS or method != "__call__":
            there = _SPELLED.get(name, name.replace("arc", "a"))
            raise TypeError(f"np.{name} computes on arrays, and {self} is an expression; te.{there} is for expressions")
        inputs = tuple(
            [x[()] if isinstance(x, np.ndarray) else x for x in inputs]
        )  # numbers, of arrays without dimensions
        if any(isinstance(x, np.ndarray) for x in inputs):
            return ufunc(*[_as_object(x) if isinstance(x, Operators) else x for x in inputs], **options)
        return BUILDERS[_NUMPY_OPERATORS[name]](inputs[0], inputs[-1])

    def __add__(self, other: Any) -> Expr:
        return BUILDERS["+"](self, other)

    def __radd__(self, other: Any) -> Expr:
        return BUILDERS["+"](other, self)

    def __sub__(self, other: Any) -> Expr:
        return BUILDERS["-"](self, other)

    def __rsub__(self, other: Any) -> Expr:
        return BUILDERS["-"](other, self)

    def __mul__(self, other: Any) -> Expr:
        return BUILDERS["*"](self, other)

    def __rmul__(self, other: Any) -> Expr:
        return BUILDERS["*"](other, self)

    def __truediv__(self, other: Any) -> Expr:
        return BUILDERS["/"](self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return BUILDERS["/"](other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return BUILDERS["//"](self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return BUILDERS["//"](other, self)

    def __mod__(self, other: Any) -> Expr:
        return BUILDERS["%"](self, other)

    def __rmod__(self, other: Any) -> Expr:
        return BUILDERS["%"](other, self)

    def __and__(self, other: Any) -> Expr:
        return BUILDERS["&"](self, other)

    def __rand__(self, other: Any) -> Expr:
        return BUILDERS["&"](other, self)

    def __or__(self, other: Any) -> Expr:
        return BUILDERS["|"](self, other)

    def __ror__(self, other: Any) -> Expr:
        return BUILDERS["|"](other, self)

    def __xor__(self, other: Any) -> Expr:
        return BUILDERS["^"](self, other)

    def __lshift__(self, other: Any) -> Expr:
        return BUILDERS["<<"](self, other)

    def __rshift__(self, other: Any) -> Expr:
        return BUILDERS[">>"](self, other)

    def __lt__(self, other: Any) -> Expr:
        return BUILDERS["<"](self, other)

    def __le__(self, other: Any) -> Expr:
        return BUILDERS["<="](self, other)

    def __gt__(self, other: Any) -> Expr:
        return BUILDERS[">"](self, other)

    def __ge__(self, other: Any) -> Expr:
        return BUILDERS[">="](self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return BUILDERS["=="](self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return BUILDERS["!="](self, other)

    def __neg__(self) -> Expr:
        return BUILDERS["negative"](self, self)

    def __invert__(self) -> Expr:
        return BUILDERS["~"](self, self)

    def astype(self, dtype: str) -> Expr:
        """Return the value converted to ``dtype``, with the same lanes; the same object when it has the type
        already."""
        return BUILDERS["astype"](self, dtype)

    def equal(self, other: Any) -> Expr:
        """Return the expression ``self == other``."""
        return BUILDERS["equal"](self, other)


ExprLike = Union["Expr", int, float, bool]


class Expr(Operators, IRNode):
    """The base class of all expressions; ``dtype`` is the type of the value."""

    __slots__ = ()
    dtype: DType

    def __bool__(self) -> bool:
        raise ValueError(
            f"`{self}` is an expression, its truth is not known while the program is being built; "
            "use te.if_then_else / te.all / te.any, or tir.Select, in place of Python's if / and / or / not"
        )


PrimExpr = Expr


class TypedByParts(Expr):
    """The base class of expressions whose data type follows from their parts; it is found once, when they are made."""

    __slots__ = ("dtype",)
    typed: ClassVar[str]
    """The type, in terms of the fields, as Python source for the constructor."""


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
class BinaryOp(TypedByParts):
    """The base class of operations on two operands of one data type, which is also the type of the result.

    ``symbol`` is the operator of Python that builds it, "" where there is none. :meth:`compute` does not wrap integers,
    and fails for a division by zero.
    """

    a: Expr
    b: Expr

    parts = nodes("a", "b")
    typed = "a.dtype"
    symbol = ""

    @staticmethod
    def compute(a: Any, b: Any, /) -> Any:
        """Return the value for two Python numbers."""
        raise NotImplementedError


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


@node
class CmpOp(BinaryOp):
    """The base class of comparisons. The result is bool, with the lanes of the operands."""

    typed = "BOOL.wide[a.dtype.lanes]"


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
class Not(TypedByParts):
    """Represents ``not a``."""

    a: Expr

    parts = nodes("a")
    typed = "a.dtype"


@node
class Select(TypedByParts):
    """Gives ``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""

    condition: Expr
    true_value: Expr
    false_value: Expr

    parts = nodes("condition", "true_value", "false_value")
    typed = "true_value.dtype"


@node
class Cast(Expr):
    """Converts the value to ``dtype``. To an integer it truncates; to a narrower float it rounds to nearest even.

    A float beyond the range of an integer type gives the end of the range that is nearer, and NaN gives 0 (as Rust's
    ``as``, WebAssembly's ``trunc_sat`` and AArch64's ``fcvtzs``). Integers wrap; what is not 0, NaN too, is true.
    """

    dtype: DType
    value: Expr

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, dtype: str, value: Expr) -> None: ...

    parts = nodes("value")


@node
class Ramp(TypedByParts):
    """Represents the vector ``base, base + stride, …`` of ``lanes`` elements."""

    base: Expr
    stride: Expr
    lanes: int

    parts = nodes("base", "stride")
    typed = "base.dtype.wide[lanes]"


@node
class Broadcast(TypedByParts):
    """Represents a vector with one scalar in every lane."""

    value: Expr
    lanes: int

    parts = nodes("value")
    typed = "value.dtype.wide[lanes]"


@node
class Shuffle(TypedByParts):
    """Picks lanes from the concatenation of ``vectors`` by constant ``indices``; one index gives a scalar."""

    vectors: tuple[Expr, ...]
    indices: tuple[int, ...]

    parts = nodes("vectors")
    typed = "vectors[0].dtype.wide[len(indices)]"


@node
class Call(Expr):
    """Represents a named operation, e.g. ``tir.exp``; :mod:`tilewright.tir.expr.intrinsics` lists the names and their meaning."""

    op: str
    args: tuple[Expr, ...]
    dtype: DType

    if TYPE_CHECKING:  # a data type may be given as a text

        def __init__(self, op: str, args: tuple[Expr, ...], dtype: str) -> None: ...

    parts = nodes("args")


@node
class Let(TypedByParts):
    """Gives ``body``, in which ``var`` has the value ``value``; that is evaluated once."""

    var: Var
    value: Expr
    body: Expr

    parts = nodes("value") + binds("var") + nodes("body")
    typed = "body.dtype"


@node
class BufferLoad(TypedByParts):
    """Reads an element of a buffer, or a vector of elements when an index is a vector.

    Lane i of the result is read at lane i of each vector index; scalar indices hold for all lanes.

    ``predicate``, a bool vector, marks the lanes to read; the others are zero and access no memory.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None = None

    parts = uses("buffer") + counts("indices") + nodes("predicate")
    typed = "accessed_type(buffer.dtype, indices) if indices else buffer.dtype"


def _identical(a: Expr, b: Expr) -> bool:
    if isinstance(a, (IntImm, FloatImm)) and isinstance(b, (IntImm, FloatImm)):
        return a.value == b.value
    return a is b
