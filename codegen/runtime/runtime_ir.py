"""The runtime as LLVM IR text: thread pool, scratch memory, timing. It needs only libc and pthreads.

One text serves every target: loaded once per process by the JIT, or linked into exported objects (then every symbol is
``linkonce_odr hidden``: several objects in one program share one pool, several libraries do not meet).

============================================  ===================================================================
``void tw_parallel_for(fn, ctx, n, threads)``  ``fn(ctx, begin, end)`` over [0, n), one static chunk per thread
``ptr tw_alloc(i64 bytes)``                    scratch memory aligned to 64 bytes; null when there is none
``void tw_free(ptr)``                          gives it back, to a small cache
``i32 tw_tiles()``                              0 when this process may use AMX's tile registers: it asks for them
``i64 tw_now()``                               nanoseconds of a monotonic clock
``i64 tw_time(packed, args, number)``          nanoseconds of ``number`` calls ``packed(args)``
``i64 tw_time_cold(…, buffer, bytes)``         the same, the caches filled with ``buffer`` before each call, untimed
``void tw_touch(buffer, bytes)``               reads and writes every cache line
============================================  ===================================================================
"""

from __future__ import annotations

from string import Template

from ..machine.target import Target
from .parts.cores_ir import CORES
from .parts.memory_ir import MEMORY
from .parts.pool_ir import POOL
from .parts.tiles_ir import TILES
from .parts.timing_ir import TIMING

PARTS = [CORES, POOL, MEMORY, TIMING, TILES]
"""The parts of the runtime in the order of the text."""

SYMBOLS = tuple(sorted([symbol for part in PARTS for symbol in part.symbols]))
"""The functions of the runtime that generated code and the call path use."""


def runtime_ir(target: Target, exported: bool = False, alone: bool = False) -> str:
    """Return the runtime for ``target`` (POSIX systems). ``exported``: it is to be linked into an exported object
    file; ``alone``: it is an object file of its own in an exported library."""
    linkage = "hidden" if alone else "linkonce_odr hidden" if exported else ""
    words = {"link": linkage, "data": linkage or "internal"}
    for part in PARTS:
        words.update(part.words(target))
    return Template("".join([part.text for part in PARTS])).substitute(words)
