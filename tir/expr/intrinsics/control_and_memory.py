"""This module has the operations that choose, remark, address memory, or call functions from outside.

The interpreter evaluates them itself. Operations of other machines can be printed, parsed and scheduled, but no code
generator supports them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..nodes.arithmetic import match_types
from ..nodes.constants import convert
from ..nodes.expr import Expr
from .operation import Effect, Lanes, Operation, Spelling
from .type_rules import address, anything, choice, condition, place_in_memory, remainder_of_address, stated


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
type_annotation = Operation(
    "type_annotation", (), "a type as an argument", stated(), lanes=Lanes.NEVER, spelling=Spelling.TYPED
)
address_of = Operation(
    "address_of", ("load",), "the address of an element", address, effect=Effect.ADDRESS, lanes=Lanes.NEVER
)
tvm_access_ptr = Operation(
    "tvm_access_ptr", ("ptype", "data", "offset", "extent", "rw_mask"),
    "the address of element offset of the memory at data; rw_mask is 1 when it is read, 2 when written, 3 for both",
    place_in_memory, effect=Effect.ADDRESS, lanes=Lanes.NEVER,
)  # fmt: skip
prefetch = Operation(
    "prefetch", ("address", "*hints"), "fetch memory that is needed later; the hints are rw and locality",
    stated("int32"), effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.CALL,
)  # fmt: skip
misaligned = Operation(
    "misaligned", ("address", "bytes"), "an address modulo a power of two", remainder_of_address,
    effect=Effect.READS, lanes=Lanes.NEVER, spelling=Spelling.CALL,
)  # fmt: skip


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
        "call_cpacked", "call_packed", "dp4a", "ptx_commit_group", "ptx_wait_group", "tvm_call_cpacked", "tvm_call_packed", "tvm_storage_sync",
        "tvm_thread_allreduce", "vscale",
    )],
]  # fmt: skip
"""Operations that no code generator supports."""
