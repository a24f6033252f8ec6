"""Writes the LLVM IR of a lowered function, and says what the whole module needs and has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...tir.blas_calls import ROUTINES, blas_calls
from ...tir.expr import EQ, GE, GT, LE, LT, NE, BufferLoad, DType, Expr, Let, Mul, Var
from ...tir.expr.deep_recursion import with_room
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.node import IRNode
from ...tir.stmt import AttrStmt, Buffer, BufferStore, For, IfThenElse, LetStmt, SeqStmt, Stmt, While, statements_in
from ...tir.walk import LEAVES
from ..backend.analyses import divisor_range
from ..backend.emitter import EXPRESSIONS, STATEMENTS, EmitError, EmitterTables
from ..lowered import REGISTER_SCOPE, LoweredFunc, Param
from ..machine.blas import called_library, product_ir
from ..machine.target_text import TargetError
from . import llvm_expr, llvm_stmt, loads_stores
from .function_builder import float_constant, llvm_type
from .jit import NO_LOOP_INVARIANTS
from .llvm_calls import (
    BIT_CALLS,
    EXP2_CALLS,
    EXTERNAL_CALLS,
    MACHINE_CALLS,
    MATH_CALLS,
    PLAIN_CALLS,
    emit_lookup,
    if_then_else,
    library_call,
    likely_choices,
)
from .llvm_expr import LANE_REDUCTIONS, converted, divide, emit_cast, half_conversion
from .llvm_scope import LlvmScope, LlvmUnit
from .llvm_stmt import assertion, check, check_arrays, free, parallel_loop, scratch_memory, while_loop
from .llvm_tiles import TILE_CALLS, tile_request
from .loads_stores import picked


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


TABLES = EmitterTables(
    {**STATEMENTS, AttrStmt: llvm_stmt.attribute, SeqStmt: llvm_stmt.sequence},
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

ENTRIES = [tile_request]
"""What may put another function in front of the exported one, as its entry; each returns such functions."""


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
    ``tw_alloc``, ``tw_free`` and ``tw_tiles``, and to a BLAS library where it calls one.
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
    products = blas_functions(lowered, unit.declarations)
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
        *products,
        *unit.named_metadata(),
        *[f"!{n} = {text}" for text, n in unit.metadata.items()],
    ]
    return "\n".join(pieces) + "\n"


def blas_functions(lowered: LoweredFunc, declarations: dict[str, str]) -> list[str]:
    """Return the definitions of the matrix products that the code calls, and declare what they call in place of them."""
    calls = blas_calls(lowered.func.body)
    if not calls:
        return []
    library = called_library(lowered.target, lowered.name, calls)
    texts = []
    for symbol in sorted(ROUTINES.keys() & declarations):
        del declarations[symbol]
        needed, text = product_ir(library, ROUTINES[symbol], symbol, lowered.target.num_cores)
        texts.append(text)
        for line in needed:
            declarations.setdefault(line.split("@", 1)[1].split("(", 1)[0], line)
    return texts


# Refuses code that calls functions which its target does not have.

_MEMORY = frozenset(("tw_alloc", "tw_free"))
_RUNTIME = _MEMORY | {"tw_parallel_for", "tw_tiles", *ROUTINES}
"""The runtime's functions that code may call; a module of WebAssembly has its own memory."""

_LIBRARY = {row.c_name + end for row in OPERATIONS.values() if row.c_name for end in ("", "f")}
"""The functions of C's mathematical library."""


def check_needed_functions(lowered: LoweredFunc, called: Collection[str]) -> None:
    """Raise an error when the target has no runtime for what the code calls. A function that calls its own name is an
    error as well."""
    target = lowered.target
    needed = _RUNTIME - (_MEMORY if target.is_wasm else frozenset())
    if target.kind != "c" and not target.has_runtime and not needed.isdisjoint(called):
        what = "threads" if "tw_parallel_for" in called else "scratch memory that does not fit the stack"
        raise TargetError(
            f"{lowered.name} uses {what}, which the runtime offers on POSIX systems with 64 bits of address, not for "
            f"{target.triple}; build it with -num-cores=1 and smaller intermediate buffers, or print it as C"
        )
    absent = [name for name in called if name in _LIBRARY] if target.is_wasm else []
    if absent:
        raise TargetError(
            f"{lowered.name} calls {', '.join(absent)} of the mathematical library, which a module for {target.triple} "
            "does not have; compute it from other operations"
        )
    if lowered.name in called:
        raise EmitError(
            f"function {lowered.name!r} is named like the library function that it calls; give it another name"
        )


# Finds functions whose innermost loops have no invariant accesses and conditions: a few of LLVM's passes are enough.
#
# Most of the time of LLVM's pipeline goes into moving invariant loads and conditions out of loops, and memory into
# registers. Code that was tiled, vectorized and promoted to register values has none of these, and the emitter writes
# each address once. A few clean-up passes are enough for such code, and take a fifth of the time. What does not change in an
# outer loop may stay there: to move it gains little, and takes registers that the inner loop needs.


def has_no_loop_invariants(body: Stmt) -> bool:
    """Returns whether every memory access and every condition inside an innermost loop depends on its variable. The
    changes in a ``while`` loop are unknown, so that a body with one counts as having loop-invariant accesses."""
    loops = _innermost_loops(body)
    return loops is not None and all([_depends(n.body, _Iterations(frozenset((n.loop_var,)))) for n in loops])


def _innermost_loops(body: Stmt) -> list[For] | None:
    """Returns the loops without another one inside them; None when there is a ``while`` loop."""
    found: dict[For, None] = {}
    stack: list[tuple[Stmt, For | None]] = [(body, None)]
    while stack:
        s, around = stack.pop()
        if isinstance(s, While):
            return None
        if isinstance(s, For):
            if around is not None:
                found.pop(around, None)
            found[s], around = None, s
        stack += [(child, around) for child in statements_in(s) if type(child) is not BufferStore]
    return list(found)


def _depends(s: Stmt, inside: _Iterations) -> bool:
    """Returns whether the accesses and conditions of ``s``, which holds no loop, differ between iterations."""
    if isinstance(s, BufferStore):
        if s.buffer.scope != REGISTER_SCOPE and not inside.decides(s.indices):
            return False
    elif isinstance(s, IfThenElse):
        if not inside.decides((s.condition,)):
            return False
    elif isinstance(s, LetStmt) and inside.decides((s.value,)):
        return inside.changes(s.value) and _depends(s.body, inside.with_var(s.var))
    for c in s.children():
        if type(c) in LEAVES:
            continue
        if not (inside.changes(c) if isinstance(c, Expr) else _depends(c, inside)):
            return False
    return True


class _Iterations:
    """Tells which expressions differ between the iterations of a loop: those with one of the variables ``moving``."""

    def __init__(self, moving: frozenset[Var]) -> None:
        self.moving = moving
        self._uses: dict[IRNode, bool] = {}
        self._changes: dict[IRNode, bool] = {}

    def with_var(self, var: Var) -> _Iterations:
        """Returns the same where ``var`` differs as well."""
        return _Iterations(self.moving | {var})

    def decides(self, parts: tuple[Expr, ...]) -> bool:
        """Returns whether one of the variables is in one of the expressions."""
        return any(map(self.uses, parts))

    def uses(self, e: IRNode) -> bool:
        """Returns whether one of the variables is in ``e``."""
        if type(e) in LEAVES:
            return e in self.moving
        if e not in self._uses:
            self._uses[e] = self.decides(e.children())
        return self._uses[e]

    def changes(self, e: IRNode) -> bool:
        """Returns whether every load from memory in ``e`` depends on one of the variables."""
        if type(e) in LEAVES:
            return True
        if e in self._changes:
            return self._changes[e]
        inside = self.with_var(e.var) if isinstance(e, Let) and self.uses(e.value) else self
        known = True
        for c in e.children():
            if type(c) not in LEAVES and not inside.changes(c):
                known = False
        if known and type(e) is BufferLoad and e.buffer.scope != REGISTER_SCOPE:
            known = self.decides(e.indices)
        self._changes[e] = known
        return known


CHECKS = [check_needed_functions]
"""What refuses functions that their target cannot run, by the functions that they call."""

REMARKS = {NO_LOOP_INVARIANTS: has_no_loop_invariants}
"""The lines at the head of a module that tell LLVM's pipeline about it, and the tests of the function's body."""
