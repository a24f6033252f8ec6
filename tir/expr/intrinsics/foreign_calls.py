"""This module has the calls of functions from outside, and operations of other machines.

Operations of other machines can be printed, parsed and scheduled, but no code generator supports them.
"""

from __future__ import annotations

from .operation_row import Effect, Lanes, Operation, Spelling, stated


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
