"""This module has the type rules of operations: which arguments fit, and what type the result has.

A rule is called with the arguments and with the type that the program states, or None. It raises TypeError when the
arguments do not fit. A rule whose arguments do not determine the result returns the stated type when that is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.dtype import DType
from ..nodes.expr import BufferLoad, Expr, FloatImm, IntImm, StringImm
from .operation import TypeRule


def same(fits: Callable[[DType], bool], what: str) -> TypeRule:
    """Return the rule that all arguments and the result have one type, which ``fits``; ``what`` describes it."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        first = args[0].dtype
        for a in args:
            if a.dtype != first:
                break
        else:
            if fits(first):
                return first
        raise TypeError(f"takes {what}, not {_types(args)}")

    return rule


def _types(args: Sequence[Expr]) -> str:
    return ", ".join([a.dtype for a in args])


def _int_or_bool(dtype: DType) -> bool:
    return dtype.is_int or dtype.is_bool


floats = same(lambda t: t.is_float, "floats of one type")
integers = same(lambda t: t.is_int, "integers of one type")
bits = same(_int_or_bool, "integers or bools of one type")
numbers = same(lambda t: t.is_int or t.is_float, "numbers")
condition = same(lambda t: t.is_bool, "a bool")
anything = same(lambda dtype: True, "values of one type")


def test_of_float(args: Sequence[Expr], dtype: str | None) -> str:
    """Return bool, with the lanes of one float."""
    return DType("bool").with_lanes(DType(floats(args, dtype)).lanes)


def choice(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type that both values have; the first argument is a bool, with one lane or with as many as they."""
    cond, yes, no = [a.dtype for a in args]
    if not cond.is_bool:
        raise TypeError(f"the condition is {cond}, not bool")
    if yes != no:
        raise TypeError(f"the values are {yes} and {no}, of two types")
    if cond.lanes not in (1, yes.lanes):
        raise TypeError(f"the condition is {cond}, the values are {yes}")
    return yes


def combined_lanes(fits: Callable[[DType], bool], what: str) -> TypeRule:
    """Return the rule of a reduction of lanes; r lanes of a stated result combine each of r equal parts."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        (have,) = [a.dtype for a in args]
        if not fits(have):
            raise TypeError(f"takes a vector of {what}, not {have}")
        whole = have.element
        if dtype and DType(dtype).element == whole and have.lanes % DType(dtype).lanes == 0:
            return dtype
        return whole

    return rule


def half_the_lanes(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type of one vector with half as many lanes."""
    (have,) = [a.dtype for a in args]
    if have.lanes % 2:
        raise TypeError(f"takes a vector of an even number of lanes, not {have}")
    return have.with_lanes(have.lanes // 2)


def same_bits(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the stated type, which has as many bits as the argument; a handle becomes any type of 64 bits."""
    (have,) = [a.dtype for a in args]
    if not dtype or DType(dtype).bits * DType(dtype).lanes != have.bits * have.lanes:
        raise TypeError(f"{have} has not as many bits as {dtype or 'the result'}")
    return dtype


def stated(default: str | None = None, name_first: bool = False) -> TypeRule:
    """Return the rule that the program states the type, or it is ``default``.

    ``name_first``: the first argument is a text, the name of a function.
    """

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        if name_first and not isinstance(args[0], StringImm):
            raise TypeError(f"the first argument is the name of a function, not {args[0]}")
        if dtype is None and default is None:
            raise TypeError("state the type of the result")
        return default if dtype is None else dtype or "void"  # type: ignore[return-value]

    return rule


def address(args: Sequence[Expr], dtype: str | None) -> str:
    """Return handle; the argument is an element of a buffer."""
    if not isinstance(args[0], BufferLoad):
        raise TypeError(f"takes an element of a buffer, not {args[0]}")
    return "handle"


def place_in_memory(args: Sequence[Expr], dtype: str | None) -> str:
    """Return handle; the arguments are a type annotation, a pointer, and three integers."""
    if args[1].dtype != "handle" or not all(a.dtype.is_int for a in args[2:]):
        raise TypeError(f"takes a type, a handle and three integers, not {_types(args)}")
    return "handle"


def remainder_of_address(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the stated integer type, or int32; the arguments are a pointer and a constant power of two."""
    size = args[1]
    if args[0].dtype != "handle" or not isinstance(size, IntImm) or size.value < 1 or size.value & (size.value - 1):
        raise TypeError(f"takes a handle and a power of two, not {args[0].dtype} and {size}")
    return dtype if dtype and DType(dtype).is_int else "int32"


def table_element(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type of the constants after an int32, with its lanes.

    There are 2, 4, 8 … constants, all float32 or all float64. ValueError for another number of them.
    """
    number, *table = args
    count, kind = len(table), table[0].dtype if table else ""
    if count < 2 or count & (count - 1):
        raise ValueError(f"a table has 2, 4, 8 … values, not {count}")
    if kind not in ("float32", "float64") or any(not isinstance(v, FloatImm) or v.dtype != kind for v in table):
        raise TypeError("the values are constants, all float32 or all float64, like T.float32(0.5)")
    if number.dtype.element != "int32":
        raise TypeError(f"the number is an int32, not {number.dtype}; cast it")
    return DType(kind).with_lanes(number.dtype.lanes)


def dot_product(width: int, *kinds: str) -> TypeRule:
    """Return the rule of a dot product of ``width`` numbers per lane: the sum, and two vectors of ``kinds``."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        lanes = args[0].dtype.lanes
        wanted = [DType(kinds[0]).with_lanes(lanes), *[DType(k).with_lanes(width * lanes) for k in kinds[1:]]]
        if [a.dtype for a in args] != wanted:
            raise TypeError(f"takes {', '.join(wanted)}, not {_types(args)}")
        return wanted[0]

    return rule


def one_of_each(*choices: tuple[str, ...]) -> TypeRule:
    """Return the rule that each argument has one of the types listed for it, and the result that of the first."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        if not all(a.dtype in allowed for a, allowed in zip(args, choices, strict=True)):
            takes = ", ".join(" or ".join(allowed) for allowed in choices)
            raise TypeError(f"takes {takes}, not {_types(args)}")
        return args[0].dtype

    return rule


def fixed_point_product(args: Sequence[Expr], dtype: str | None) -> str:
    """Return int32 with the most lanes of an argument; two int32 are multiplied, the others are shifts."""
    lanes = max([a.dtype.lanes for a in args])
    if any(a.dtype.lanes not in (1, lanes) for a in args):
        raise TypeError(f"the lanes of {_types(args)} differ")
    for a in args[:2]:
        if a.dtype.element != "int32":
            raise TypeError(f"multiplies int32 numbers, not {a.dtype}")
    for a in args[2:]:
        if not _int_or_bool(a.dtype):
            raise TypeError(f"shifts by integers, not {a.dtype}")
    return DType("int32").with_lanes(lanes)
