"""This module refuses code that calls functions which its target does not have."""

from __future__ import annotations

from collections.abc import Collection

from ...tir.expr.intrinsics import OPERATIONS
from ..backend.emitter import EmitError
from ..lowered import LoweredFunc
from ..machine.target_text import TargetError

_MEMORY = frozenset(("tw_alloc", "tw_free"))
_RUNTIME = _MEMORY | {"tw_parallel_for", "tw_tiles"}
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
