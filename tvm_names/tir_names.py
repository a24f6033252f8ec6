"""Names that programs for TVM look for in ``tvm.tir``, and that live in upper layers here."""

from __future__ import annotations

from typing import Any

from .. import te
from ..schedule import Schedule, ScheduleError, TensorIntrin
from . import stmt_functor

_NAMES = {
    "Schedule": Schedule,
    "ScheduleError": ScheduleError,
    "TensorIntrin": TensorIntrin,
    "stmt_functor": stmt_functor,
}

_ELSEWHERE = {
    "transform": "the passes are those of tilewright.codegen.lower; a function on PrimFuncs needs no pass around it",
    "ir_builder": "programs are written as te.compute or @T.prim_func",
    "call_packed": "a stage of your own is te.extern with statements, or te.extern_primfunc",
    "call_extern": "a stage of your own is te.extern with statements, or te.extern_primfunc",
    "call_pure_extern": "functions of your own are tir.intrinsics.register_operation's",
}


def word(name: str) -> Any:
    """Returns what ``tvm.tir.NAME`` is here; AttributeError says where to look otherwise."""
    if name in _NAMES:
        return _NAMES[name]
    if name in te.__all__:
        return getattr(te, name)
    if name in _ELSEWHERE:
        raise AttributeError(f"module 'tilewright.tir' has no attribute {name!r}: {_ELSEWHERE[name]}")
    raise AttributeError(f"module 'tilewright.tir' has no attribute {name!r}")
