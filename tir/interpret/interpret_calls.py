"""This module interprets calls of functions from outside, pointers, assumptions, and calls that other steps define.

It adds its rows to the table of :mod:`.interpret_expr`.
"""

from __future__ import annotations

import numpy as np

from ..expr import Broadcast, BufferLoad, Call, IntImm, Ramp, StringImm
from ..expr.intrinsics.fixed_point import FIXED_POINT, fixed_point_steps
from .interpret_expr import CALL_WRITERS, ExprCompiler, raiser
from .interpret_llvm import llvm_evaluator


def _address(c: ExprCompiler, e: Call, depth: int) -> str:
    load = e.args[0]
    if not isinstance(load, BufferLoad) or c.locator is None:
        return c.applied(None, e, depth)
    first = [i.base if isinstance(i, Ramp) else i.value if isinstance(i, Broadcast) else i for i in load.indices]
    return f"{c.name(c.locator(load.buffer))}({', '.join(c.text(i, depth) for i in first)})"


def _assumption(c: ExprCompiler, e: Call, depth: int) -> str:
    broken = raiser(f"an assumption does not hold: {e.args[0]}")
    return f"({c.text(e.args[0], depth)} or {c.name(broken)}())"


def _place(c: ExprCompiler, e: Call, depth: int) -> str:
    return f"{c.text(e.args[1], depth)}[{c.text(e.args[2], depth)}:]"


def _extern(c: ExprCompiler, e: Call, depth: int) -> str:
    name = e.args[0]
    return c.applied(c.externs.get(name.value) if isinstance(name, StringImm) else None, e, depth, 1)


def _llvm(c: ExprCompiler, e: Call, depth: int) -> str:
    name, types = e.args[0], tuple([a.dtype for a in e.args])
    skip = 2 if len(e.args) > 1 and isinstance(e.args[1], IntImm) and types[1] == "uint32" else 1
    found = llvm_evaluator(name.value, e.dtype, types[skip:]) if isinstance(name, StringImm) else None
    return c.applied(found, e, depth, skip)


def _misaligned(there: np.ndarray, size: int) -> int:
    return int(there.__array_interface__["data"][0] % size)


CALL_WRITERS.update(
    {
        "tir.address_of": _address,
        "tir.assume": _assumption,
        "tir.call_extern": _extern,
        "tir.call_pure_extern": _extern,
        "tir.call_llvm_intrin": _llvm,
        "tir.call_llvm_pure_intrin": _llvm,
        "tir.misaligned": lambda c, e, depth: c.applied(_misaligned, e, depth),
        "tir.prefetch": lambda c, e, depth: "0",
        "tir.tvm_access_ptr": _place,
        "tir.type_annotation": lambda c, e, depth: "None",
        **dict.fromkeys(FIXED_POINT, lambda c, e, depth: c.text(fixed_point_steps(e), depth)),
    }
)
