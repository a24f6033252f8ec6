"""Loads the runtime into this process.

It is compiled once, at the first kernel that is loaded, and never unloaded, since the pool's threads run its code until
the process ends.
"""

from __future__ import annotations

import threading
from functools import lru_cache

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
    target = Target("native -num-cores=1")
    loaded = load(optimize_and_compile(runtime_ir(target), target, 2).object, SYMBOLS)
    loaded.keep_forever()
    return {name: loaded.address(name) for name in SYMBOLS}
