"""Tiles that a warp of the simulated GPU holds together: a value has a row of 256 numbers for each warp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ....tir.arith import Analyzer
from ....tir.expr import Broadcast, BufferLoad, Call, Expr
from ....tir.expr.intrinsics.warp_matrix_operations import SIDE, dot_of_tiles
from ....tir.stmt import Buffer
from ..launch.thread_axes import WARP, GpuError
from .lane_values import Mask, evaluate, held_type
from .watched_memory import Lanes, WatchedArray


class WarpMemory(Protocol):
    """What tiles need of a simulation."""

    values: Any
    lanes: Lanes
    epoch: int

    def _memory(self, buffer: Buffer) -> WatchedArray: ...


def whole_warps(sim: WarpMemory, mask: Mask) -> None:
    """Raise GpuError unless all threads of all warps take part."""
    if sim.lanes.count % WARP or not (mask is True or np.all(mask)):
        raise GpuError("not all threads of a warp take part in an operation on tiles; threadIdx.x has to be 32 long")


def tile_value(e: Expr, sim: Any, mask: Mask) -> Any:
    """Returns the tile ``e`` of each warp."""
    whole_warps(sim, mask)
    if isinstance(e, Broadcast):
        value = np.asarray(evaluate(e.value, sim, mask)).astype(held_type(e.dtype.element))
        return np.full((sim.lanes.count // WARP, SIDE * SIDE), value)
    if isinstance(e, BufferLoad):
        memory, place = _fragment(sim, e.buffer, e.indices, mask)
        return memory.array[place].reshape(-1, SIDE * SIDE).astype(held_type(e.dtype.element))
    if isinstance(e, Call) and e.op == "tir.wmma_dot":
        c, a, b = [tile_value(x, sim, mask) for x in e.args]
        narrow = np.float32 if c.dtype.kind == "f" else np.int32
        return dot_of_tiles(c.astype(narrow), a, b).astype(c.dtype)
    if isinstance(e, Call) and e.op in ("tir.wmma_load_a", "tir.wmma_load_b"):
        memory, indices, lanes = _in_memory(sim, e, mask)
        return memory.load(indices, True, lanes, sim.epoch).reshape(-1, SIDE * SIDE)
    raise GpuError(f"the simulated GPU cannot evaluate {e}")


def store_fragment(sim: Any, buffer: Buffer, indices: Sequence[Expr], value: Any, mask: Mask) -> None:
    """Write a tile to the registers of each warp."""
    memory, place = _fragment(sim, buffer, indices, mask)
    memory.array[place] = value.reshape(-1, SIDE, SIDE)


def store_tile(sim: Any, e: Call, mask: Mask) -> None:
    """Write a tile of each warp to memory that threads share."""
    memory, indices, lanes = _in_memory(sim, e, mask)
    memory.store(tile_value(e.args[2], sim, mask).reshape(-1), indices, True, lanes, sim.epoch)


def _fragment(sim: Any, buffer: Buffer, indices: Sequence[Expr], mask: Mask) -> tuple[WatchedArray, Any]:
    if not buffer.scope.startswith("wmma."):
        raise GpuError(f"buffer {buffer.name} of scope {buffer.scope} holds no tiles of warps")
    warps = sim.lanes.count // WARP
    lead = [np.broadcast_to(evaluate(i, sim, mask), (sim.lanes.count,))[::WARP] for i in indices[:-2]]
    return sim._memory(buffer), (np.arange(warps), *lead)


def _in_memory(sim: Any, e: Call, mask: Mask) -> tuple[WatchedArray, list[Any], Lanes]:
    """Return the elements of a tile in memory: 256 places for each warp, as accesses of its first thread."""
    whole_warps(sim, mask)
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    buffer, count = first.buffer, sim.lanes.count
    rows = row_dimension(buffer, e.args[1])
    r, c = np.divmod(np.tile(np.arange(SIDE * SIDE), count // WARP), SIDE)
    indices = []
    for d, index in enumerate(first.indices):
        start = np.broadcast_to(evaluate(index, sim, mask), (count,))
        if np.any(start.reshape(-1, WARP) != start.reshape(-1, WARP)[:, :1]):
            raise GpuError(f"the threads of a warp name different tiles of {buffer.name}")
        here = np.repeat(start[::WARP], SIDE * SIDE)
        indices.append(here + (r if d == rows else c if d == len(first.indices) - 1 else 0))
    every = [np.repeat(x[::WARP], SIDE * SIDE) for x in (sim.lanes.block, sim.lanes.thread)]
    axes = {tag: np.repeat(x[::WARP], SIDE * SIDE) for tag, x in sim.lanes.axes.items()}
    return sim._memory(buffer), indices, Lanes(every[0], every[1], sim.lanes.first, axes, sim.lanes.threads)


def row_dimension(buffer: Buffer, stride: Expr) -> int:
    """Returns the dimension along which the rows of a tile lie, ``stride`` elements apart."""
    analyzer = Analyzer()
    strides = buffer.element_strides()
    for d in reversed(range(len(strides) - 1)):
        if analyzer.can_prove_equal(strides[d], stride.astype(strides[d].dtype)):
            return d
    raise GpuError(f"no dimension of {buffer.name} has rows {stride} elements apart")
