"""The LLVM back end: its words and tables, and the IR text of a lowered function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import EQ, GE, GT, LE, LT, NE, DType, Mul
from ...tir.expr.base.deep_recursion import with_room
from ...tir.stmt import AttrStmt, Buffer
from ..backend.emitter import Tables
from ..backend.expressions import EXPRESSIONS
from ..backend.statements import STATEMENTS
from ..backend.value_ranges import divisor_range
from ..lowered import LoweredFunc, Param
from . import llvm_expr, llvm_stmt, loads_stores
from .bit_calls import BIT_CALLS
from .casts import converted, emit_cast
from .cold_paths import likely_choices
from .exp2_scaling import EXP2_CALLS
from .external_calls import EXTERNAL_CALLS
from .failures import assertion, check, check_arrays, free, scratch_memory
from .half_conversions import half_conversion
from .integer_division import divide
from .jit import NO_LOOP_INVARIANTS
from .lane_reductions import LANE_REDUCTIONS
from .llvm_calls import PLAIN_CALLS, if_then_else
from .llvm_scope import LlvmScope, LlvmUnit
from .llvm_tiles import TILE_CALLS, tile_request
from .llvm_types import float_constant, llvm_type
from .loop_invariants import has_no_loop_invariants
from .math_calls import MATH_CALLS, library_call
from .needed_functions import check_needed_functions
from .parallel_regions import parallel_loop
from .picked_loads import picked
from .table_lookup import emit_lookup
from .target_intrinsics import MACHINE_CALLS
from .while_loops import while_loop


class LlvmEmitter(LlvmScope):
    """An emitter of LLVM IR: SSA values, basic blocks, register values as phi nodes."""

    address = loads_stores.address
    arithmetic = llvm_expr.arithmetic
    assertion = assertion
    branch = llvm_stmt.branch
    check = check
    choice = llvm_expr.choice
    comparison = llvm_expr.comparison
    contiguous_address = loads_stores.contiguous_address
    conversion = emit_cast
    converted = converted
    divisor_range = divisor_range
    extreme = llvm_expr.extreme
    float_extreme = llvm_expr.float_extreme
    free = free
    half_conversion = half_conversion
    integer = llvm_expr.integer
    library_call = library_call
    load = loads_stores.load
    logical = llvm_expr.logical
    named = llvm_expr.named
    negation = llvm_expr.negation
    parallel_loop = parallel_loop
    picked = picked
    ramp = llvm_expr.ramp
    run_loop = llvm_stmt.run_loop
    scratch_memory = scratch_memory
    serial_loop = llvm_stmt.serial_loop
    shuffle = llvm_expr.shuffle
    stack_memory = llvm_stmt.stack_memory
    store = loads_stores.store
    variable = llvm_expr.variable
    while_loop = while_loop

    def floating(self, value: float, dtype: DType) -> str:
        return float_constant(value, dtype)

    def quotient(self, e: Any, a: str, b: str, dtype: DType) -> str:
        return divide(self.fn, e, a, b, dtype, self.divisor_range(e.b))

    def new_register(self, buffer: Buffer) -> str:
        return "poison"

    def parameter(self, p: Param, name: str) -> str:
        type_ = llvm_type(p.dtype)
        if p.dtype.is_int and p.dtype.is_signed:
            self.indices.add(p.var)
            return name if p.dtype == "int64" else self.fn.emit(f"sext {type_} {name} to i64")
        if p.dtype.is_bool:
            return self.fn.emit(f"icmp ne i8 {name}, 0")
        if type_ != p.llvm_type:  # float16 is passed as its bits
            return self.fn.emit(f"bitcast {p.llvm_type} {name} to {type_}")
        return name


TABLES = Tables(
    {**STATEMENTS, AttrStmt: llvm_stmt.attribute},
    {**EXPRESSIONS, **dict.fromkeys((EQ, NE, LT, LE, GT, GE), llvm_expr.compared), Mul: llvm_expr.product},
    {
        **PLAIN_CALLS,
        **MATH_CALLS,
        **EXTERNAL_CALLS,
        **BIT_CALLS,
        **LANE_REDUCTIONS,
        **MACHINE_CALLS,
        **TILE_CALLS,
        **EXP2_CALLS,
        **likely_choices(if_then_else),
        "lookup": emit_lookup,
    },
)

CHECKS = [check_needed_functions]
"""What refuses functions that their target cannot run, by the functions that they call."""

ENTRIES = [tile_request]
"""What may put another function in front of the exported one, as its entry; each returns such functions."""

REMARKS = {NO_LOOP_INVARIANTS: has_no_loop_invariants}
"""The lines at the head of a module that tell LLVM's pipeline about it, and the tests of the function's body."""


def parameter_list(params: Sequence[Param]) -> list[str]:
    """Return the parameters of an LLVM function, ``%a0``, ``%a1``, and so on; no two arrays overlap."""
    return [f"{_parameter_type(p)} %a{n}" for n, p in enumerate(params)]


def _parameter_type(p: Param) -> str:
    if p.kind != "buffer":
        return p.llvm_type
    return "ptr noalias" if p.writes else "ptr noalias readonly"


@with_room
def emit(lowered: LoweredFunc) -> str:
    """Return the LLVM IR module of ``lowered``: one exported function ``int32_t NAME(…)`` and the bodies of its
    parallel loops.

    The function returns 0 for success, n when the n-th assertion failed, and a key of ``FAILURES``. It refers to ``tw_parallel_for``,
    ``tw_alloc``, ``tw_free`` and ``tw_tiles``.
    """
    return module_text(lowered, LlvmUnit(lowered, TABLES), LlvmEmitter)


def module_text(lowered: LoweredFunc, unit: LlvmUnit, emitter: type[LlvmEmitter]) -> str:
    """Return the LLVM IR module of ``lowered``, of which an ``emitter`` writes the body."""
    params = parameter_list(lowered.params)
    header = f"define i32 @{lowered.name}({', '.join(params)}) nounwind {lowered.target.llvm_attributes}"
    fn = unit.builder(header, lowered.name)
    em = emitter(unit, fn)
    em.bind_parameters(lowered.params, [f"%a{n}" for n in range(len(params))])
    check_arrays(em, lowered.params)
    em.stmt(lowered.func.body)
    em.order_nontemporal_stores()
    fn.do("ret i32 0")
    entries = [text for entry in ENTRIES for text in entry(fn, lowered, params)]
    for refuse in CHECKS:
        refuse(lowered, unit.declarations)
    pieces = [
        f"; ModuleID = '{lowered.name}'",
        *[remark for remark, holds in REMARKS.items() if holds(lowered.func.body)],
        f'source_filename = "{lowered.name}"',
        f'target triple = "{lowered.target.triple}"',
        "",
        *sorted(unit.declarations.values()),
        "",
        *entries,
        fn.text(),
        *unit.functions,
        *unit.named_metadata(),
        *[f"!{n} = {text}" for text, n in unit.metadata.items()],
    ]
    return "\n".join(pieces) + "\n"
