"""This module has the operations of control and memory: choices, remarks, returns, addresses, atomic additions, foreign calls.

Operations on addresses are places, prefetches and alignment; the interpreter evaluates them itself, as it does those that
choose, remark or return.

With ``atomic_add(address, value)`` threads of all blocks of a GPU add to the element at an address (``T.address_of(C[i])``). It
returns nothing. Sums of floats come out in the order of the threads' arrival, which differs from run to run.
``atomic_add_pair(address, first, second)`` adds to an element at a multiple of four bytes and to the next one, each for itself:
two numbers of 16 bits by one instruction.

``atomic_fetch_add(address, value)`` and its relatives (:data:`CHANGES`) change the element and return what it was. They also order
memory: what a thread wrote before is seen by a thread that reads the element later.

Operations of other machines (:data:`UNSUPPORTED`) can be printed, parsed and scheduled, but no code generator supports them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtype import DType
from ..nodes import Call, Expr, IntImm
from ..op import convert, match_types
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


ATOMIC_TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32")
"""What can be added."""
PAIR_TYPES = ("float16", "bfloat16")
"""What can be added in pairs."""


def _added(args: Sequence[Expr], dtype: str | None) -> str:
    address, value = args
    if not (isinstance(address, Call) and address.op == "tir.address_of"):
        raise TypeError(f"takes T.address_of(an element), not {address}")
    if value.dtype not in ATOMIC_TYPES:
        raise TypeError(f"adds {', '.join(ATOMIC_TYPES)}, not {value.dtype}")
    if address.args[0].dtype != value.dtype:
        raise TypeError(f"adds {value.dtype} to an element of type {address.args[0].dtype}; cast the value")
    return "void"


def _added_pair(args: Sequence[Expr], dtype: str | None) -> str:
    for value in args[1:]:
        _added((args[0], value), dtype)
        if value.dtype not in PAIR_TYPES:
            raise TypeError(f"adds pairs of {', '.join(PAIR_TYPES)}, not {value.dtype}")
    return "void"


def _add(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    def run(there: np.ndarray, value: Any) -> None:
        there[:1] += np.asarray(value, there.dtype)

    return run


atomic_add = Operation(
    "atomic_add", ("address", "value"), "add to the element at an address at once, whichever threads do so meanwhile",
    _added, evaluate=_add, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip


def _add_pair(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    def run(there: np.ndarray, first: Any, second: Any) -> None:
        there[:2] += np.asarray([first, second], there.dtype)

    return run


atomic_add_pair = Operation(
    "atomic_add_pair", ("address", "first", "second"), "add to two neighbouring elements, to each of them at once",
    _added_pair, evaluate=_add_pair, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip


def _changed(*names: str) -> Callable[[Sequence[Expr], str | None], str]:
    """Returns the type rule of an operation that changes elements of types whose names begin with one of ``names``."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        place = args[0]
        if not (isinstance(place, Call) and place.op == "tir.address_of"):
            raise TypeError(f"takes T.address_of(an element), not {place}")
        kept = place.args[0].dtype
        if not kept.startswith(names) or kept.lanes > 1:
            raise TypeError(f"changes elements of the types {', '.join(names)}, not {kept}")
        for value in args[1:]:
            if value.dtype != kept:
                raise TypeError(f"changes an element of type {kept} by {value.dtype}; cast the value")
        return kept

    return rule


def _change(
    name: str, meaning: str, new: Callable[..., Any], parameters: Sequence[str] = ("value",), floats: bool = True
) -> Operation:
    """Returns the row of an operation that changes an element and returns what it was."""

    def evaluate(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
        def run(there: np.ndarray, *values: Any) -> Any:
            old = there[0].copy()
            there[0] = new(old, *[np.asarray(v, there.dtype)[()] for v in values])
            return old

        return run

    kinds = ("int32", "int64", "uint32", "uint64", *(("float32", "float64") if floats else ()))
    return Operation(
        name, ("address", *parameters), f"the element at an address, which becomes {meaning} at once", _changed(*kinds),
        evaluate=evaluate, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
    )  # fmt: skip


atomic_fetch_add = _change("atomic_fetch_add", "its sum with the value", np.add)
atomic_fetch_max = _change("atomic_fetch_max", "the larger one of both", np.maximum)
atomic_fetch_min = _change("atomic_fetch_min", "the smaller one of both", np.minimum)
atomic_fetch_and = _change("atomic_fetch_and", "the bits that both have", np.bitwise_and, floats=False)
atomic_fetch_or = _change("atomic_fetch_or", "the bits of both", np.bitwise_or, floats=False)
atomic_fetch_xor = _change("atomic_fetch_xor", "the bits that one of both has", np.bitwise_xor, floats=False)
atomic_exchange = _change("atomic_exchange", "the value", lambda old, value: value)
atomic_compare_exchange = _change(
    "atomic_compare_exchange", "the value where it equals what is expected",
    lambda old, expected, value: value if old == expected else old, ("expected", "value"),
)  # fmt: skip

CHANGES = (
    atomic_fetch_add, atomic_fetch_max, atomic_fetch_min, atomic_fetch_and, atomic_fetch_or, atomic_fetch_xor, atomic_exchange,
    atomic_compare_exchange,
)  # fmt: skip
"""The operations that change an element at once and return what it was."""


def _foreign(name: str, meaning: str, effect: Effect, lanes: Lanes, name_first: bool = True) -> Operation:
    return Operation(
        name, ("name", "*arguments"), meaning, stated(name_first=name_first), effect=effect, lanes=lanes,
        spelling=Spelling.TYPED,
    )  # fmt: skip


call_extern = _foreign("call_extern", "a call of a C function", Effect.WRITES, Lanes.IN_ORDER)
call_pure_extern = _foreign(
    "call_pure_extern", "a call of a C function without side effects", Effect.READS, Lanes.ONE_BY_ONE
)
call_llvm_intrin = _foreign(
    "call_llvm_intrin", "a call of an intrinsic of LLVM by its full name", Effect.WRITES, Lanes.IN_ORDER, False
)
call_llvm_pure_intrin = _foreign(
    "call_llvm_pure_intrin",
    "a call of an intrinsic of LLVM without side effects",
    Effect.READS,
    Lanes.ONE_BY_ONE,
    False,
)
call_intrin = _foreign(
    "call_intrin", "a call of an operation that is unknown here", Effect.WRITES, Lanes.IN_ORDER, False
)


def _unsupported(name: str, dtype: str) -> Operation:
    return Operation(
        name, ("*arguments",), "an operation of another machine, of which only its arguments are known",
        stated(dtype), effect=Effect.WRITES, lanes=Lanes.NEVER,
    )  # fmt: skip


UNSUPPORTED = [
    *[_unsupported(name, "handle") for name in (
        "tvm_bmma_sync", "tvm_fill_fragment", "tvm_load_matrix_sync", "tvm_mma_sync", "tvm_stack_alloca",
        "tvm_stack_make_array", "tvm_stack_make_shape", "tvm_store_matrix_sync", "tvm_tuple",
    )],
    *[_unsupported(name, "int32") for name in (
        "call_cpacked", "call_packed", "dp4a", "ptx_arrive_barrier_expect_tx", "ptx_commit_group", "ptx_cp_async_bulk",
        "ptx_init_barrier_thread_count", "ptx_wait_barrier", "ptx_wait_group", "tvm_call_cpacked", "tvm_call_packed", "tvm_storage_sync", "tvm_thread_allreduce",
        "vscale",
    )],
]  # fmt: skip
"""Operations that no code generator supports."""
