"""From a lowered function to LLVM IR text."""

from __future__ import annotations

from ...tir.dtype import is_bool, is_int, is_signed
from ...tir.expr import Call
from ...tir.stmt import AssertStmt
from ...tir.walk import distinct
from ..lowered import LoweredFunc
from .builder import FunctionBuilder
from .expr import EmitError, ModuleParts
from .settled import SETTLED, settled
from .stmt import StmtEmitter
from .types import llvm_type

__all__ = ["emit"]


def emit(lowered: LoweredFunc) -> str:
    """The LLVM IR module of ``lowered``: one exported function ``int32_t NAME(…)`` (0: success, n: the n-th assertion
    failed) and the bodies of its parallel loops. It refers to ``tw_parallel_for``, ``tw_alloc`` and ``tw_free``.
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
        elif llvm_type(p.dtype) != p.llvm_type:  # float16 travels as its bits
            em.vars[p.var] = fn.emit(f"bitcast {p.llvm_type} %a{n} to {llvm_type(p.dtype)}")
        else:
            em.vars[p.var] = f"%a{n}"
    em.stmt(lowered.func.body)
    em.settle_streams()
    fn.do("ret i32 0")
    if lowered.name in parts.declarations:
        raise EmitError(
            f"function {lowered.name!r} is named like the library function that it calls; give it another name"
        )
    pieces = [
        f"; ModuleID = '{lowered.name}'",
        *([SETTLED] if settled(lowered.func.body) else []),
        f'source_filename = "{lowered.name}"',
        f'target triple = "{target.triple}"',
        "",
        *sorted(parts.declarations.values()),
        "",
        fn.text(),
        *parts.functions,
        *[f"!{n} = {text}" for n, text in enumerate(parts.metadata.values())],
    ]
    return "\n".join(pieces) + "\n"
