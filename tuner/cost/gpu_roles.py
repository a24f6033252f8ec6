"""This module says which axes of a block have which role on a GPU, and what accesses of threads move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...codegen.machine.gpu_figures import SECTOR
from ...tir.expr import Add, BufferLoad, Call, Cast, Mul, Var
from ...tir.stmt import BufferStore
from ..program import BlockInfo, Program, Use, pads


@dataclass(frozen=True, eq=False)
class GpuProduct:
    """A product with its axes of rows and columns, and the stages around it. One stage each may pad an operand, and one
    takes the result."""

    block: BlockInfo
    row: Var
    column: Var
    padding: tuple[BlockInfo, ...] = ()
    epilogue: BlockInfo | None = None

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """Returns the blocks that are scheduled together, in program order."""
        return (*self.padding, self.block, *([self.epilogue] if self.epilogue is not None else []))


def gpu_product(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> GpuProduct | None:
    """Returns the roles in a product, with neighbours among the blocks of ``free``; None for other blocks."""
    axes = product_axes(block)
    if axes is None:
        return None
    padding = [b for b in program.producers(block) if b in free and is_padding(b) and program.consumers(b) == [block]]
    return GpuProduct(block, *axes, tuple(padding), epilogue_of(program, block, free))


def product_axes(block: BlockInfo) -> tuple[Var, Var] | None:
    """Returns the axes of rows and columns of a product: those that one operand has and another one has not."""
    if not block.is_reduction or block.block.init is None or len(block.stores) != 1 or len(block.loads) != 2:
        return None
    if not all(use.affine for use in block.loads) or block.axes != (*block.spatial, *block.reduce):
        return None
    first, second = [use.axes() for use in block.loads]
    if not all(set(block.reduce) <= axes for axes in (first, second)):
        return None
    spatial = [v for v in block.spatial if block.extents[v] > 1]
    one, other = [v for v in spatial if v not in second], [v for v in spatial if v not in first]
    if not one or not other:
        return None
    column = max((one[-1], other[-1]), key=block.spatial.index)
    row = max(one if column in other else other, key=lambda v: block.extents[v])
    return row, column


def epilogue_of(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> BlockInfo | None:
    """Returns the element-wise stage among ``free`` that alone reads the result of ``block``, or None. It reads each
    element where it writes one."""
    after = program.consumers(block)
    if len(after) != 1 or after[0] not in free or after[0].is_reduction or program.is_output(block):
        return None
    written, known = block.stores[0].buffer, after[0]
    fits = known.writes_in_order and all(use.buffer is not written or use.is_at(known.spatial) for use in known.loads)
    return known if fits and len(known.spatial) == len(block.spatial) else None


def is_padding(block: BlockInfo) -> bool:
    """Returns whether a block pads: each thread that needs an element can compute it."""
    return pads(block) and not block.is_reduction and block.writes_in_order


def multiplied(block: BlockInfo, sums: str) -> tuple[Use, Use] | None:
    """Returns the operands of ``C[i, j] += A[i, k] * B[k, j]``, or None for other blocks. Each is converted to the type
    of the sums."""
    body = block.block.body
    added = body.value if isinstance(body, BufferStore) else None
    product = added.b if isinstance(added, Add) and isinstance(added.a, BufferLoad) else None
    if not isinstance(product, Mul) or len(block.spatial) != 2 or len(block.reduce) != 1 or not block.writes_in_order:
        return None
    loads = [_converted(x, sums) for x in (product.a, product.b)]
    uses = [use for load in loads if load is not None for use in block.loads if use.buffer is load.buffer]
    if len(uses) != 2 or uses[0].buffer is uses[1].buffer:
        return None
    (i, j), (k,) = block.spatial, block.reduce
    return (uses[0], uses[1]) if uses[0].is_at((i, k)) and uses[1].is_at((k, j)) else None


def _converted(e: object, sums: str) -> BufferLoad | None:
    if isinstance(e, Cast) and e.dtype == sums and isinstance(e.value, BufferLoad):
        return e.value
    if isinstance(e, Call) and e.op == "tir.round_tf32" and isinstance(e.args[0], BufferLoad):
        return e.args[0]
    return None


def tile_elements(use: Use, tile: Mapping[Var, np.ndarray | float]) -> np.ndarray:
    """Returns how many elements a load touches in a tile; ``tile`` has the steps of each axis."""
    out: np.ndarray = np.ones(1)
    for dim in use.dims:
        reach: np.ndarray = np.ones(1)
        for axis, factor in (dim or {}).items():
            reach = reach + abs(factor) * (np.asarray(tile.get(axis, 1.0)) - 1)
        out = out * reach
    return out


def sectors_used(use: Use, fast: Var | None, lanes: np.ndarray | float = 1.0) -> np.ndarray:
    """Returns the share of the bytes moved that is used when neighbouring threads are neighbours along ``fast``. Each
    thread takes ``lanes`` elements."""
    size = use.buffer.dtype.bytes
    stride = None if fast is None else _distance(use, fast)
    if stride == 0:
        return np.ones(1)
    if stride is None:
        return np.full(1, size / SECTOR)
    return np.asarray(
        np.minimum(1.0, np.maximum(size * np.asarray(lanes), size) / np.minimum(abs(stride) * size, SECTOR))
    )


def share_used(block: BlockInfo, fast: Var | None, lanes: np.ndarray | float = 1.0) -> np.ndarray:
    """Returns the share of the bytes moved by a block that is used, the mean over its loads and stores."""
    shares = [np.atleast_1d(sectors_used(use, fast, lanes)) for use in (*block.loads, *block.stores) if use.dims]
    return np.asarray(len(shares) / sum(1 / s for s in shares)) if shares else np.ones(1)


def _distance(use: Use, axis: Var) -> int | None:
    """Returns how far a step of ``axis`` moves; where other indices come from memory, the last one alone is known."""
    if use.affine:
        return use.stride(axis)
    last = use.dims[-1] if use.dims else None
    return 1 if last is not None and dict(last) == {axis: 1} else None


def touched_bytes(blocks: Sequence[BlockInfo]) -> float:
    """Returns the bytes of the buffers that blocks read from outside and write for others or as results."""
    inside = {use.buffer for b in blocks[:-1] for use in b.stores}
    seen = {use.buffer for b in blocks for use in (*b.loads, *b.stores)} - inside
    return float(sum(b.num_bytes() or 0 for b in seen))


def special_operations(block: BlockInfo) -> float:
    """Returns about how many of a block's operations are those of functions such as exp."""
    return max(0.0, block.operations - 6.0) / 8
