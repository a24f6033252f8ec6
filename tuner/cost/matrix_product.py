"""Recognizes products of matrices in blocks of any number of axes: ``C[b, i, j] += A[b, i, k] * B[b, k, j]``.

Axes that both operands and the result have are the batch, those of the left operand and the result are the rows, those of the right
one and the result the columns, and the reduced ones the steps. So a Linear layer, heads of attention and a batch of matrices are one
form, however their operands are stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.expr import Add, BufferLoad, Call, Cast, IntImm, Mul, Var
from ...tir.stmt import BufferStore
from ..program import BlockInfo, Use


@dataclass(frozen=True)
class MatrixProduct:
    """A product: its operands and the axes of each role, in the order in which they are fused.

    ``turned``: for each operand, whether it is stored the other way around than in A·B, the left one as ``A[k, i]``, the right one as
    ``B[j, k]``. ``lanes``: for each, how many neighbouring elements are neighbours in memory, at most 16 bytes.
    """

    block: BlockInfo
    left: Use
    right: Use
    batch: tuple[Var, ...]
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    steps: tuple[Var, ...]
    turned: tuple[bool, bool]
    lanes: tuple[int, int]

    @property
    def dtype(self) -> str:
        """The type of the operands."""
        return str(self.left.buffer.dtype)

    def size(self, axes: Sequence[Var]) -> int:
        """Returns the extent of some axes together."""
        return math.prod(self.block.extents[v] for v in axes)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The extents of the batch, the rows, the columns and the steps."""
        return self.size(self.batch), self.size(self.rows), self.size(self.columns), self.size(self.steps)

    @property
    def layout(self) -> str:
        """Whether each operand is turned, in the letters of BLAS: ``nn``, ``nt``, ``tn`` or ``tt``."""
        return "".join("t" if turned else "n" for turned in self.turned)

    @property
    def plain(self) -> bool:
        """Whether the block has one axis for each role, in order, and a batch or none."""
        single = len(self.rows) == len(self.columns) == len(self.steps) == 1 and len(self.batch) <= 1
        return single and self.block.spatial == (*self.batch, *self.rows, *self.columns)

    def stands(self, right: bool) -> bool:
        """Returns whether an operand of a plain product is indexed by its axes alone, batch first."""
        use, (turned, own) = (
            (self.right, (self.turned[1], self.columns)) if right else (self.left, (not self.turned[0], self.rows))
        )
        axes = (*self.batch, *own, *self.steps) if turned else (*self.batch, *self.steps, *own)
        return self.plain and use.is_at(axes, self.block.extents)


def matrix_product(block: BlockInfo) -> MatrixProduct | None:
    """Returns the roles of a block's axes, or None for other blocks. Operands are converted to the type of the sums, and each has an
    axis of its own that is contiguous in memory, or the steps are."""
    loads = _operands(block)
    if loads is None or not block.writes_in_order or block.axes != (*block.spatial, *block.reduce):
        return None
    uses = [use for load in loads for use in block.loads if use.buffer is load.buffer]
    if len(uses) != 2 or uses[0].buffer is uses[1].buffer or not all(use.affine for use in uses):
        return None
    long = [v for v in block.spatial if block.extents[v] > 1]
    if not long or any(not set(block.reduce) <= use.axes() for use in uses):
        return None
    left, right = uses if long[-1] in uses[1].axes() else (uses[1], uses[0])
    batch = tuple([v for v in long if v in left.axes() and v in right.axes()])
    rows = tuple([v for v in long if v in left.axes() and v not in batch])
    columns = tuple([v for v in long if v in right.axes() and v not in batch])
    if not rows or not columns or len(batch) + len(rows) + len(columns) != len(long) or long[-1] not in columns:
        return None
    neighbours = [_neighbour(use) for use in (left, right)]
    inner = {v for v in neighbours if v in block.reduce}
    if None in neighbours or len(inner) > 1:
        return None
    steps = (*[v for v in block.reduce if v not in inner], *inner)
    rows = _last(rows, neighbours[0])
    if neighbours[0] not in (rows[-1], steps[-1]) or neighbours[1] not in (columns[-1], steps[-1]):
        return None
    turned = (neighbours[0] not in steps, neighbours[1] in steps)
    lanes = (_lanes(left, block.extents[neighbours[0]]), _lanes(right, block.extents[neighbours[1]]))  # type: ignore[index]
    return MatrixProduct(block, left, right, batch, rows, columns, steps, turned, lanes)


def _operands(block: BlockInfo) -> tuple[BufferLoad, BufferLoad] | None:
    """Returns the loads whose product a block adds up."""
    body = block.block.body
    added = body.value if isinstance(body, BufferStore) else None
    if not isinstance(added, Add) or not block.reduce or len(block.stores) != 1:
        return None
    of_sum, product = (added.a, added.b) if isinstance(added.a, BufferLoad) else (added.b, added.a)
    if not isinstance(product, Mul) or not isinstance(of_sum, BufferLoad) or of_sum.buffer is not body.buffer:  # type: ignore[attr-defined]
        return None
    sums = str(block.stores[0].buffer.dtype)
    one, other = _converted(product.a, sums), _converted(product.b, sums)
    return None if one is None or other is None else (one, other)


def _converted(e: object, sums: str) -> BufferLoad | None:
    if isinstance(e, Cast) and e.dtype == sums and isinstance(e.value, BufferLoad):
        return e.value
    if isinstance(e, Call) and e.op == "tir.round_tf32" and isinstance(e.args[0], BufferLoad):
        return e.args[0]
    return None


def _last(axes: tuple[Var, ...], last: Var | None) -> tuple[Var, ...]:
    return (*[v for v in axes if v is not last], *[v for v in axes if v is last])


def _neighbour(use: Use) -> Var | None:
    """Returns the axis whose steps are neighbours in memory, where it alone is the last index."""
    last = dict(use.dims[-1] or {}) if use.dims else {}
    axis = next(iter(last), None)
    alone = len(last) == 1 and last[axis] == 1 and not any(axis in (dim or {}) for dim in use.dims[:-1])  # type: ignore[index]
    return axis if alone else None


def _lanes(use: Use, extent: int) -> int:
    """Returns how many neighbouring elements are copied at once. This power of two divides the place where each copy begins."""
    most, shape = 16 // use.buffer.dtype.bytes, use.buffer.shape
    line = shape[-1].value if isinstance(shape[-1], IntImm) else 1
    start = use.offsets[-1] if use.offsets else 0
    return math.gcd(most, extent, line, start) if start else math.gcd(most, extent, line)
