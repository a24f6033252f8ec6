"""Loads the runtime into this process.

It is compiled once, at the first kernel that is loaded, and never unloaded, since the pool's threads run its code until
the process ends.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from functools import lru_cache
from typing import Any

from ..llvm.jit import load, optimize_and_compile
from ..machine.target import Target
from .runtime_ir import SYMBOLS, runtime_ir

_lock = threading.Lock()


def runtime_symbols(target: Target | None = None) -> dict[str, int]:
    """Return the addresses of the functions by name which a kernel imports: the runtime's, and those of the target's BLAS."""
    with _lock:
        symbols = dict(_load())
    library = None if target is None else target.blas_library
    return symbols if library is None else {**symbols, **library.addresses()}


@lru_cache(maxsize=1)
def _load() -> dict[str, int]:
    spreads()  # another word than those that there are is an error, and not left aside
    target = Target("native -num-cores=1")
    loaded = load(optimize_and_compile(runtime_ir(target), target, 2).object, SYMBOLS)
    loaded.keep_forever()
    return {name: loaded.address(name) for name in SYMBOLS}


NUMA = "TILEWRIGHT_NUMA"
"""The variable of the environment that says where large blocks and constants lie on a machine of several nodes."""


def spreads() -> bool:
    """Returns whether memory is to be spread over the machine's nodes; ValueError for another word than ``interleave``."""
    word = os.environ.get(NUMA, "").strip()
    if word not in ("", "interleave"):
        raise ValueError(f"{NUMA}={word!r}: it is interleave, or not set")
    return bool(word)


def spread(memory: Any) -> None:
    """Spread an array's pages, which nothing has written yet, over the machine's nodes where the environment says so.

    A warning tells that the system refuses.
    """
    if not spreads() or not memory.nbytes:
        return
    call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)(_load()["tw_spread"])
    if call(memory.ctypes.data, memory.nbytes, 0):
        _warn_refused()


@lru_cache(maxsize=1)
def _warn_refused() -> None:
    warnings.warn(f"{NUMA}=interleave: this system does not let memory be spread over nodes", stacklevel=2)
