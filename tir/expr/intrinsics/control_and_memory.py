"""This module has the operations that choose, remark or return, and those on addresses: places, prefetches, alignment.

The interpreter evaluates them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.dtype import DType
from ..nodes.arithmetic import match_types
from ..nodes.constants import convert
from ..nodes.expr import Expr, IntImm
from .operation_row import Effect, Lanes, Operation, Spelling, address, anything, choice, condition, stated, types_text


def _as_choice(args: Sequence[Any]) -> Sequence[Expr]:
    cond = convert(args[0])
    if not cond.dtype.is_bool:
        raise TypeError(f"if_then_else: the condition is {cond.dtype}, not bool")
    return cond, *match_types(args[1], args[2])


if_then_else = Operation(
    "if_then_else", ("cond", "t", "f"),
    "t where cond holds, else f; only the chosen side is evaluated, so that it may guard a read", choice, _as_choice,
)  # fmt: skip
likely = Operation("likely", ("cond",), "cond, which holds most of the time", anything, flops=0)
assume = Operation("assume", ("condition",), "a condition that always holds", condition, effect=Effect.WRITES)
ret = Operation(
    "ret", ("value",), "return from the function with a value", anything, effect=Effect.WRITES, lanes=Lanes.IN_ORDER
)
undef = Operation("undef", (), "an unspecified value", stated(), lanes=Lanes.NEVER, spelling=Spelling.TYPED)
address_of = Operation(
    "address_of", ("load",), "the address of an element", address, effect=Effect.ADDRESS, lanes=Lanes.NEVER
)


def _place_in_memory(args: Sequence[Expr], dtype: str | None) -> str:
    """Return handle; the arguments are a type annotation, a pointer, and three integers."""
    if args[1].dtype != "handle" or not all(a.dtype.is_int for a in args[2:]):
        raise TypeError(f"takes a type, a handle and three integers, not {types_text(args)}")
    return "handle"


def _remainder_of_address(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the stated integer type, or int32; the arguments are a pointer and a constant power of two."""
    size = args[1]
    if args[0].dtype != "handle" or not isinstance(size, IntImm) or size.value < 1 or size.value & (size.value - 1):
        raise TypeError(f"takes a handle and a power of two, not {args[0].dtype} and {size}")
    return dtype if dtype and DType(dtype).is_int else "int32"


type_annotation = Operation(
    "type_annotation", (), "a type as an argument", stated(), lanes=Lanes.NEVER, spelling=Spelling.TYPED
)
tvm_access_ptr = Operation(
    "tvm_access_ptr", ("ptype", "data", "offset", "extent", "rw_mask"),
    "the address of element offset of the memory at data; rw_mask is 1 when it is read, 2 when written, 3 for both",
    _place_in_memory, effect=Effect.ADDRESS, lanes=Lanes.NEVER,
)  # fmt: skip
prefetch = Operation(
    "prefetch", ("address", "*hints"), "fetch memory that is needed later; the hints are rw and locality",
    stated("int32"), effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.CALL,
)  # fmt: skip
misaligned = Operation(
    "misaligned", ("address", "bytes"), "an address modulo a power of two", _remainder_of_address,
    effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.CALL,
)  # fmt: skip
