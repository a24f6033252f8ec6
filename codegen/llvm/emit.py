"""Emits the LLVM IR text of a lowered function."""

from __future__ import annotations

from ...tir.deep_recursion import with_room
from ...tir.dtype import is_bool, is_int, is_signed
from ...tir.expr import Call
from ...tir.stmt import AssertStmt
from ...tir.walk import distinct
from ..lowered import LoweredFunc
from ..machine.cpu_features import TargetError
from .function_builder import FunctionBuilder
from .llvm_expr import EmitError, ModuleParts
from .llvm_stmt import StmtEmitter
from .llvm_types import llvm_type
from .loop_invariants import NO_LOOP_INVARIANTS, has_no_loop_invariants
from .stack_allocation import stack_buffers

NO_TILES = -2
"""The return value when the operating system does not permit the use of tile registers."""


@with_room
def emit(lowered: LoweredFunc) -> str:
    """Return the LLVM IR module of ``lowered``: one exported function ``int32_t NAME(…)`` and the bodies of its
    parallel loops.

    The function returns 0 for success and n when the n-th assertion failed. It refers to ``tw_parallel_for``,
    ``tw_alloc``, ``tw_free`` and ``tw_tiles``.
    """
    target = lowered.target
    params = []
    for n, p in enumerate(lowered.params):
        if p.kind == "buffer":
            params.append(f"ptr noalias{'' if p.writes else ' readonly'} %a{n}")
        else:
            params.append(f"{p.llvm_type} %a{n}")
    fn = FunctionBuilder(f"define i32 @{lowered.name}({', '.join(params)}) nounwind {target.llvm_attributes}")
    parts = ModuleParts()
    parts.on_stack = stack_buffers(lowered.func.body)
    for node in distinct(lowered.func.body):
        if isinstance(node, AssertStmt):
            parts.assertions.setdefault(id(node), len(parts.assertions) + 1)
        elif isinstance(node, Call) and node.op in ("tir.call_extern", "tir.address_of"):
            parts.calls_out = True
    em = StmtEmitter(fn, parts, target, lowered.name)
    for n, p in enumerate(lowered.params):
        if p.kind == "buffer":
            assert p.buffer is not None
            em.bases[p.buffer.data] = f"%a{n}"
        elif p.kind == "size":
            em.vars[p.var] = f"%a{n}"
            em.indices.add(p.var)
            em.analyzer.bind(p.var, (0, None))
        elif is_int(p.dtype) and is_signed(p.dtype):
            wide = f"%a{n}" if p.dtype == "int64" else fn.emit(f"sext {llvm_type(p.dtype)} %a{n} to i64")
            em.vars[p.var] = wide
            em.indices.add(p.var)
        elif is_bool(p.dtype):
            em.vars[p.var] = fn.emit(f"icmp ne i8 %a{n}, 0")
        elif llvm_type(p.dtype) != p.llvm_type:  # float16 is passed as its bits
            em.vars[p.var] = fn.emit(f"bitcast {p.llvm_type} %a{n} to {llvm_type(p.dtype)}")
        else:
            em.vars[p.var] = f"%a{n}"
    em.stmt(lowered.func.body)
    em.order_nontemporal_stores()
    fn.do("ret i32 0")
    guard = _with_tile_request(fn, lowered, params, parts) if parts.tiles else []
    if not target.has_runtime and any(name.startswith("tw_") for name in parts.declarations):
        what = "threads" if "tw_parallel_for" in parts.declarations else "scratch memory that does not fit the stack"
        raise TargetError(
            f"{lowered.name} uses {what}, which the runtime offers on POSIX systems with 64 bits of address, not for "
            f"{target.triple}; build it with -num-cores=1 and smaller intermediate buffers, or print it as C"
        )
    if lowered.name in parts.declarations:
        raise EmitError(
            f"function {lowered.name!r} is named like the library function that it calls; give it another name"
        )
    pieces = [
        f"; ModuleID = '{lowered.name}'",
        *([NO_LOOP_INVARIANTS] if has_no_loop_invariants(lowered.func.body) else []),
        f'source_filename = "{lowered.name}"',
        f'target triple = "{target.triple}"',
        "",
        *sorted(parts.declarations.values()),
        "",
        *guard,
        fn.text(),
        *parts.functions,
        *[f"!{n} = {text}" for n, text in enumerate(parts.metadata.values())],
    ]
    return "\n".join(pieces) + "\n"


def _with_tile_request(fn: FunctionBuilder, lowered: LoweredFunc, params: list[str], parts: ModuleParts) -> list[str]:
    """Returns an exported function that requests the tile registers and then calls the function that ``fn`` becomes.

    The two functions are separate so that no instruction for tiles can execute before the request.
    """
    name, attributes = f"{lowered.name}_tiles", lowered.target.llvm_attributes
    fn.header = f"define internal i32 @{name}({', '.join(params)}) noinline nounwind {attributes}"
    parts.declarations["tw_tiles"] = "declare i32 @tw_tiles()"
    outer = FunctionBuilder(f"define i32 @{lowered.name}({', '.join(params)}) nounwind {attributes}")
    allowed, refused = outer.new_label("allowed"), outer.new_label("refused")
    outer.branch_if(outer.emit(f"icmp eq i32 {outer.emit('call i32 @tw_tiles()')}, 0"), allowed, refused)
    outer.label(refused)
    outer.do(f"ret i32 {NO_TILES}")
    outer.label(allowed)
    outer.do(f"ret i32 {outer.emit(f'call i32 @{name}({_plain(params)})')}")
    return [outer.text()]


def _plain(params: list[str]) -> str:
    """Returns parameters as arguments: types and names."""
    return ", ".join(f"{p.split()[0]} {p.split()[-1]}" for p in params)
