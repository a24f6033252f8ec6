"""The kernels of a function in launch form. It says what each takes, and how many blocks, threads and shared bytes its launch has.

Every text that kernels are printed as begins with :func:`kernels_in`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...codegen.backend.emitter import CACHE_LINE, constant_elements
from ...codegen.lowered import LoweredFunc, Param, written_data
from ...codegen.machine.target import STATIC_SHARED
from ...tir.expr import Call, Expr
from ...tir.stmt import Allocate, Buffer, BufferStore, Evaluate, For, PrimFunc, Stmt, statements_in
from ...tir.walk import free_vars, loads_and_stores, statements
from .launch_form import (
    BLOCK_TAGS,
    SWIZZLED,
    SWIZZLED_ALIGNMENT,
    THREAD_TAGS,
    GpuError,
    inside_threads,
    is_shared,
    tag_of,
)


@dataclass(frozen=True, eq=False)
class GpuKernel:
    """One kernel of a function. ``grid``: the blocks along x, y, z; ``block``: the threads along x, y, z;
    ``shared_bytes``: the shared memory that its buffers take; ``dynamic_shared``: what of it the launch has to give."""

    name: str
    loop: For
    params: tuple[Param, ...]
    grid: tuple[Expr | int, ...]
    block: tuple[int, ...]
    shared_bytes: int

    @property
    def dynamic_shared(self) -> int:
        """The bytes of shared memory that the launch gives, or 0."""
        return self.shared_bytes if self.shared_bytes > STATIC_SHARED else 0


def kernels_in(lowered: LoweredFunc) -> list[GpuKernel]:
    """Returns the kernels of a function in launch form, in the order of the program."""
    out: list[GpuKernel] = []
    outer: dict[Buffer, None] = {}

    def visit(s: Stmt) -> None:
        if tag_of(s):
            assert isinstance(s, For)
            out.append(_kernel(f"{lowered.name}_kernel{len(out)}", s, lowered, outer))
            return
        if isinstance(s, (BufferStore, Evaluate)) and not _does_nothing(s):
            raise GpuError(f"{lowered.name} does something outside of its kernels: {s}".split("\n")[0])
        if isinstance(s, Allocate):
            outer[s.buffer] = None
        for child in statements_in(s):
            visit(child)

    visit(lowered.func.body)
    return out


def kernel_problem(lowered: LoweredFunc, partly: bool = False) -> str:
    """Returns why the kernels of a function cannot be launched; nothing where they can. The memory of threads and blocks needs
    sizes that are constants. ``partly``: what happens outside of kernels is no reason."""
    kernels = (
        [s for s in statements(lowered.func.body) if tag_of(s)] if partly else [k.loop for k in kernels_in(lowered)]
    )
    for kernel in kernels:
        for s in statements(kernel):
            if isinstance(s, Allocate) and constant_elements(s.buffer) is None:
                return f"the size of {s.buffer.name} in {s.buffer.scope} memory is not a constant"
    return ""


def _does_nothing(s: Stmt) -> bool:
    return isinstance(s, Evaluate) and not isinstance(s.value, Call)


def _kernel(name: str, loop: For, lowered: LoweredFunc, outer: Mapping[Buffer, None]) -> GpuKernel:
    loops, _ = inside_threads(loop)
    used = {a.buffer.data for a in loads_and_stores(loop)}
    stored = written_data(PrimFunc((), loop, {}))
    params = [
        Param("buffer", p.var, p.dtype, p.buffer, p.buffer.data in stored) if p.buffer is not None else p
        for p in lowered.params
        if p.buffer is None or p.buffer.data in used
    ]
    params += [Param("buffer", b.data, b.dtype, b, b.data in stored) for b in outer if b.data in used]
    known = {p.var for p in params} | {p.buffer.data for p in params if p.buffer is not None}
    params += [Param("scalar", v, v.dtype) for v in free_vars(loop) if v not in known and v.dtype != "handle"]
    # the tags stand in the order z, y, x, and a launch takes x, y, z
    grid = tuple([loops[tag].extent if tag in loops else 1 for tag in reversed(BLOCK_TAGS)])
    block = tuple([int(loops[tag].extent) if tag in loops else 1 for tag in reversed(THREAD_TAGS)])  # type: ignore[call-overload]
    return GpuKernel(name, loop, tuple(params), grid, block, shared_bytes(loop))


# memory that the threads of a block share


PLACE = "shared_place"
"""The annotation of an allocation for the byte at which a shared buffer begins."""


def shared_places(loop: Stmt) -> dict[Buffer, int]:
    """Returns the byte at which each shared buffer of a kernel begins: where its allocation says, or behind those before."""
    out: dict[Buffer, int] = {}
    end = 0
    for s in statements(loop):
        if isinstance(s, Allocate) and is_shared(s.buffer.scope):
            out[s.buffer] = s.annotations[PLACE] if PLACE in s.annotations else placed(s.buffer, end)
            end = max(end, out[s.buffer] + shared_size(s.buffer))
    return out


def shared_bytes(loop: Stmt) -> int:
    """Returns the bytes of shared memory that a kernel needs."""
    return max([place + shared_size(buffer) for buffer, place in shared_places(loop).items()], default=0)


def placed(buffer: Buffer, room: int) -> int:
    """Returns where a shared buffer begins behind ``room`` bytes of others."""
    step = shared_alignment(buffer)
    return -(-room // step) * step


def shared_size(buffer: Buffer) -> int:
    """Returns the bytes of a shared buffer, rounded up to its alignment; GpuError when its size is not a constant."""
    elements = constant_elements(buffer)
    if elements is None:
        raise GpuError(f"the size of the shared buffer {buffer.name} is not a constant")
    step = shared_alignment(buffer)
    return -(-elements * buffer.dtype.bytes // step) * step


def shared_alignment(buffer: Buffer) -> int:
    """Returns where a shared buffer begins: at a multiple of so many bytes."""
    return SWIZZLED_ALIGNMENT if buffer.scope == SWIZZLED else CACHE_LINE
