"""Values of kernels written in blocks: a shape, a type, and an expression of each element's index.

A value is lazy. ``make(lanes)`` gives the expression of the element at ``lanes``, one index expression per dimension, so that
slicing, broadcasting and transposing cost nothing; the builder decides where values are kept in memory.

Integers are of two kinds. What comes from program ids, ``arange``, scalar arguments and constants is an *index*: it is computed
in one index type for the whole kernel, and it must not overflow. Everything else is data, which wraps around.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..tir.expr import (
    Add,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    const,
)
from ..tir.expr.dtype import BOOL, DType, max_value, round_float
from ..tir.expr.intrinsics import operation_named
from ..tir.expr.op import index_like, max_, min_, truncdiv, truncmod
from ..tir.stmt import Buffer

Make = Callable[[tuple[Expr, ...]], Expr]


@dataclass(frozen=True)
class PointerType:
    """The type of pointers to elements of one type."""

    element_ty: DType

    def __repr__(self) -> str:
        return f"pointer<{self.element_ty}>"


@dataclass(eq=False)
class PointerArgument:
    """A tensor argument of a kernel: the elements from its first to its last one, in one dimension."""

    name: str
    buffer: Buffer
    position: Expr
    """Where the argument begins in the buffer; 0 unless arguments overlap."""

    @property
    def element(self) -> DType:
        return self.buffer.dtype


class BlockValue:
    """A block of numbers, or of pointers into one argument: then the elements are distances from its start.

    ``cost`` is about the number of instructions that one element takes, and ``reads`` holds the buffers that are read each
    time. ``buffer`` is the memory that holds the value, if any.
    """

    __slots__ = ("buffer", "cost", "dtype", "make", "pointer", "reads", "shape")

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DType,
        make: Make,
        cost: int = 0,
        reads: Iterable[Buffer] = (),
        pointer: PointerArgument | None = None,
        buffer: Buffer | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.make = make
        self.cost = cost
        self.reads = frozenset(reads)
        self.pointer = pointer
        self.buffer = buffer

    def __repr__(self) -> str:
        return f"BlockValue({self.type_text()})"

    def type_text(self) -> str:
        """Return the type as text for messages: ``float32[64, 32]``, ``pointer<float32>[64]``."""
        kind = str(self.dtype) if self.pointer is None else repr(PointerType(self.pointer.element))
        return f"{kind}[{', '.join(map(str, self.shape))}]" if self.shape else kind

    @property
    def type(self) -> DType | PointerType:
        """The type of the elements."""
        return self.dtype if self.pointer is None else PointerType(self.pointer.element)

    @property
    def scalar(self) -> Expr:
        """The expression of a value without dimensions."""
        return self.make(())

    def derived(self, shape: Sequence[int], make: Make) -> BlockValue:
        """Return a value of the same elements in another order or shape."""
        return BlockValue(shape, self.dtype, make, self.cost, self.reads, self.pointer)


def of_expression(e: Expr, dtype: DType | None = None, cost: int = 0, reads: Iterable[Buffer] = ()) -> BlockValue:
    """Return an expression as a value without dimensions."""
    return BlockValue((), e.dtype if dtype is None else dtype, lambda _: e, cost, reads)


def type_of_number(x: bool | int | float) -> DType:
    """Return the type that Triton gives a Python number."""
    if isinstance(x, bool):
        return BOOL
    if isinstance(x, int):
        for name, low, high in (
            ("int32", -(2**31), 2**31),
            ("uint32", 0, 2**32),
            ("int64", -(2**63), 2**63),
            ("uint64", 0, 2**64),
        ):
            if low <= x < high:
                return DType(name)
        raise ValueError(f"the integer {x} has more than 64 bits")
    size = abs(x)
    fits = size in (0.0, float("inf")) or x != x or 2**-126 <= size <= (2 - 2**-23) * 2**127
    return DType("float32" if fits else "float64")


def _kind(dtype: DType) -> int:
    return 0 if dtype.is_bool else 1 if dtype.is_int else 2


def promoted(a: DType, b: DType, weak_a: bool = False, weak_b: bool = False, division: bool = False) -> DType:
    """Return the type in which an operation on two types is computed, by Triton's rules. Weak types are those of numbers in
    the source."""
    if weak_a != weak_b:
        weak, strong = (a, b) if weak_a else (b, a)
        if _kind(weak) <= _kind(strong):
            a = b = strong
    if a == b and not division:
        return a
    for t in (a, b):
        if t.is_storage:
            raise TypeError(f"{a} and {b} together; convert the {t} with .to(tl.float32) first")
    if "float64" in (a, b):
        return DType("float64")
    if division and (a.is_float or b.is_float):
        return DType("float32")
    if "float32" in (a, b):
        return DType("float32")
    if "float16" in (a, b):
        return DType("float16")
    if a.is_float or b.is_float:
        return a if a == b else DType("float32") if "bfloat16" in (a, b) else DType("float16")
    if a.is_bool or b.is_bool:
        return a if b.is_bool else b
    if division and a.is_signed != b.is_signed:
        raise TypeError(f"division of {a} by {b}, which differ in their sign: convert one of them first")
    if a.is_signed == b.is_signed:
        return a if a.bits >= b.bits else b
    unsigned, signed = (b, a) if a.is_signed else (a, b)
    return unsigned if unsigned.bits >= signed.bits else signed


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that blocks have together; ValueError when they do not fit."""
    rank = max(map(len, shapes))
    wide = [(1,) * (rank - len(s)) + s for s in shapes]
    out = []
    for sizes in zip(*wide, strict=True):
        size = max(sizes)
        if any(n not in (1, size) for n in sizes):
            raise ValueError(f"blocks of shapes {' and '.join(str(list(s)) for s in shapes)} do not fit together")
        out.append(size)
    return tuple(out)


def broadcast_make(value: BlockValue, shape: tuple[int, ...]) -> Make:
    """Return the elements of ``value`` in a larger shape."""
    own = value.shape
    if own == shape:
        return lambda lanes: value.make(lanes)
    skip = len(shape) - len(own)
    zero = [n == 1 for n in own]

    def wider(lanes: tuple[Expr, ...]) -> Expr:
        return value.make(
            tuple([const(0, e.dtype) if z else e for e, z in zip(lanes[skip:], zero, strict=True)]),
        )

    return wider


def broadcast(value: BlockValue, shape: tuple[int, ...]) -> BlockValue:
    """Return ``value`` in a larger shape."""
    return value if value.shape == shape else value.derived(shape, broadcast_make(value, shape))


def converted(e: Expr, dtype: DType) -> Expr:
    """Return an expression as data of a type. What is too large for a float8 becomes its largest number, as on GPUs."""
    if e.dtype == dtype:
        return e
    if isinstance(e, (IntImm, FloatImm)) and dtype.is_float:
        number = float(e.value)
        if dtype.is_storage and number == number:
            number = max(-max_value(dtype), min(number, max_value(dtype)))
        return FloatImm(round_float(number, dtype), dtype)
    if dtype.is_bool:
        return e != const(0, e.dtype) if not isinstance(e, (IntImm, FloatImm)) else IntImm(int(e.value != 0), BOOL)
    if dtype.is_storage and e.dtype.is_float and not e.dtype.is_storage:
        high = FloatImm(max_value(dtype), e.dtype)
        low = FloatImm(-high.value, e.dtype)
        return computed_once(e, lambda x: Select(x > high, high, Select(x < low, low, x)).astype(dtype))
    return e.astype(dtype)


def is_index(e: Expr) -> bool:
    """Return whether an expression is an index, which does not wrap around."""
    return e.dtype.is_int and (index_like(e) or _is_index_quotient(e))


def _is_index_quotient(e: Expr) -> bool:
    if isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max, TruncDiv, TruncMod)):
        return is_index(e.a) and is_index(e.b)
    return isinstance(e, Select) and is_index(e.true_value) and is_index(e.false_value)


def is_not_negative(e: Expr, known: set[Var]) -> bool:
    """Return whether an index is certainly 0 or more, for variables of which ``known`` are."""
    if isinstance(e, IntImm):
        return e.value >= 0
    if isinstance(e, Var):
        return e in known
    if isinstance(e, (Add, Mul, Min, FloorDiv)):
        return is_not_negative(e.a, known) and is_not_negative(e.b, known)
    if isinstance(e, FloorMod):
        return is_not_negative(e.b, known)
    if isinstance(e, Max):
        return is_not_negative(e.a, known) or is_not_negative(e.b, known)
    if isinstance(e, Sub):  # x + n - 1, as in a quotient that is rounded up
        if not isinstance(e.a, Add) or not isinstance(e.a.b, IntImm) or not isinstance(e.b, IntImm):
            return False
        return e.a.b.value >= e.b.value and is_not_negative(e.a.a, known)
    return isinstance(e, Cast) and is_not_negative(e.value, known)


def better_number(
    better: Callable[[Any, Any], Expr], any_nan: Callable[[Any, Any], Expr]
) -> Callable[[Any, Any], Expr]:
    """Return the extreme of two values that is NaN only where both are; of integers it is ``any_nan``'s."""

    def extreme(a: Expr, b: Expr) -> Expr:
        if not a.dtype.is_float:
            return any_nan(a, b)
        if isinstance(b, FloatImm) and b.value == b.value:
            return computed_once(a, lambda x: Select(better(x, b), x, b))
        return computed_once(
            a, lambda x: computed_once(b, lambda y: Select(operation_named("isnan")(y), x, Select(better(x, y), x, y)))
        )

    return extreme


def computed_once(e: Expr, use: Callable[[Expr], Expr]) -> Expr:
    """Returns what ``use`` makes of a value that it names several times."""
    if isinstance(e, (Var, FloatImm)):
        return use(e)
    var = Var("x", e.dtype)
    return Let(var, e, use(var))


larger_number = better_number(operator.gt, max_)
smaller_number = better_number(operator.lt, min_)

ARITHMETIC: dict[str, Callable[[Any, Any], Expr]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "&": operator.and_,
    "|": operator.or_,
    "^": lambda a, b: COMPARISONS["!="](a, b) if a.dtype.is_bool else a ^ b,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "minimum": smaller_number,
    "maximum": larger_number,
    "minimum or nan": min_,
    "maximum or nan": max_,
}
"""The operators whose meaning does not depend on the kind of their operands."""

COMPARISONS: dict[str, Callable[[Any, Any], Expr]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": lambda a, b: a.equal(b),
    "!=": lambda a, b: ~a.equal(b),
}


def quotient(a: Expr, b: Expr, known: set[Var]) -> Expr:
    """Return the quotient of integers, rounded towards zero as in C."""
    if is_not_negative(a, known) and is_not_negative(b, known):
        return a // b
    return truncdiv(a, b)


def remainder(a: Expr, b: Expr, known: set[Var]) -> Expr:
    """Return the remainder of :func:`quotient`."""
    if a.dtype.is_float:
        return operation_named("fmod")(a, b)
    if is_not_negative(a, known) and is_not_negative(b, known):
        return a % b
    return truncmod(a, b)


def negated(e: Expr) -> Expr:
    """Return the logical negation of a condition."""
    return Not(e)


def guarded(condition: Expr, value: Expr, otherwise: Expr) -> Expr:
    """Return ``value``, which is read only where ``condition`` holds, else ``otherwise``."""
    return Call("tir.if_then_else", (condition, value, otherwise), value.dtype)


def element(buffer: Buffer, lanes: Sequence[Expr]) -> BufferLoad:
    """Return an element of a buffer."""
    return BufferLoad(buffer, tuple(lanes))
