"""This module chooses the stages that are computed where they are used instead of being stored."""

from __future__ import annotations

from collections.abc import Mapping

from ...tir.annotations import WINOGRAD
from ...tir.expr_length import Length, inlined_length
from ...tir.stmt import Buffer, BufferStore
from ...tir.walk import pre_order
from ..program import BlockInfo, Program, copies, pads

_CHEAP = 8
"""The number of operations of an element up to which it may be computed more than once."""

_FEW = 16
"""The number of reads per element up to which a padded copy may also be inlined."""


_MUCH = 32
"""The same limit with the operations of the stages that were inlined into it."""

_REPEATED = 48
"""The number of operations that all reads of a stage in one element of its consumer may take together."""

_ROWS = 16
"""The number of rows of a product up to which its narrow operand is decoded where it is multiplied: the rows of a tile
share what is decoded."""

_GATHER = 4
"""The number of operations that a gather (a load at an index from memory) counts as."""

_LONG = 256
"""The number of nodes that an expression may have after inlining that more than doubles it. A chain of cheap stages is
stored after so many: a store takes little beside them, and the time to build is in proportion to the number of stages."""


def blocks_to_inline(program: Program, *, repeated: bool = True) -> list[str]:
    """Returns the names of the stages to inline, producers first.

    An element-wise stage goes into its consumers when that repeats no costly work: always when a single element-wise
    stage consumes it; into several, or into a reduction that reads each element once, when it is cheap; into a
    reduction that reads elements many times only when it merely moves data without a condition. The stages that are
    inlined already count: each level of stages that are read at several places doubles the work, and the length of the
    expression. Without ``repeated`` only stages of which each element is computed once, and copies.
    """
    out: list[str] = []
    work: dict[Buffer, int] = {}  # operations of an element of what is inlined
    text: dict[Buffer, Length] = {}  # how long its expression is
    bits: dict[Buffer, int] = {}  # and what of each element it reads
    for block in program.blocks:
        mine = block.operations + sum(work.get(u.buffer, 0 if u.affine else _GATHER) for u in block.loads)
        if not repeated and not copies(block) and _times_read(program, block) > 1:
            continue
        read = sum([bits.get(u.buffer, u.buffer.dtype.bits) for u in block.loads if u.axes() == set(block.spatial)])
        decodes = (
            0 < 2 * read <= block.stores[0].buffer.dtype.bits and len(block.spatial) > 1 if block.stores else False
        )
        if _inline(program, block, decodes) and isinstance(block.block.body, BufferStore):
            added = {use.buffer: inlined_length(block.block.body.value, set(block.axes), text) for use in block.stores}
            if _stays_small(program, block, mine, text, {**text, **added}):
                out.append(block.name)
                work.update({use.buffer: mine for use in block.stores})
                bits.update({use.buffer: read for use in block.stores})
                text.update(added)
    return out


def _stays_small(
    program: Program,
    block: BlockInfo,
    work: int,
    before: Mapping[Buffer, Length],
    after: Mapping[Buffer, Length],
) -> bool:
    """Returns whether the block can be inlined without much more work or long expressions. ``work`` is its number of
    operations per element."""
    for consumer in program.consumers(block):
        reads = _reads_of(consumer, block)
        if reads > 1 and (work > _MUCH or reads * work > _REPEATED):
            return False
        old, new = (sum(map(sum, _lengths(consumer, known))) for known in (before, after))
        if new > max(_LONG, 2 * old):
            return False
    return True


def _lengths(block: BlockInfo, known: Mapping[Buffer, Length]) -> list[Length]:
    return [
        inlined_length(n.value, block.axes, known) for n in pre_order(block.block.body) if isinstance(n, BufferStore)
    ]


def paddings_to_inline(program: Program) -> list[str]:
    """Returns the names of padded copies that a reduction reads few times per element. A padded copy is a stage that
    chooses between a load and a constant; pooling and depthwise convolutions read such copies. To mask the loads of the
    reduction may take less time than to store the copy, which the tuner measures."""
    out = []
    for block in program.blocks:
        consumers = program.consumers(block)
        if block.is_reduction or len(consumers) != 1 or program.is_output(block) or not block.writes_in_order:
            continue
        consumer = consumers[0]
        reads = consumer.spatial_size * consumer.reduce_size * _reads_of(consumer, block)
        if consumer.is_reduction and pads(block) and reads <= _FEW * block.spatial_size:
            out.append(block.name)
    return out


def _inline(program: Program, block: BlockInfo, decodes: bool) -> bool:
    """Returns whether to inline a stage. ``decodes``: it widens what it reads element by element, as weights of 8 bits
    are; to store it takes several times the traffic of what it reads."""
    consumers = program.consumers(block)
    if block.is_reduction or not consumers or program.is_output(block) or not block.writes_in_order:
        return False
    if WINOGRAD in block.block.annotations:  # one rule computes the stages together, and reads the tiles of the result
        return bool(block.block.annotations[WINOGRAD] == "taken")
    if program.other_writers(block):
        return False
    if copies(block):
        return all(_reads_plainly(c, block) for c in consumers)
    for consumer in consumers:
        reads = consumer.spatial_size * consumer.reduce_size * _reads_of(consumer, block)
        repeated = reads > block.spatial_size
        if consumer.is_reduction and repeated and not (decodes and reads <= _ROWS * block.spatial_size):
            return False
        if repeated and block.operations > _CHEAP:
            return False
    return len(consumers) == 1 or block.operations <= _CHEAP


def _times_read(program: Program, block: BlockInfo) -> float:
    reads = sum(c.spatial_size * c.reduce_size * _reads_of(c, block) for c in program.consumers(block))
    return reads / block.spatial_size


def _reads_of(consumer: BlockInfo, block: BlockInfo) -> int:
    written = {use.buffer for use in block.stores}
    return max(1, sum(1 for use in consumer.loads if use.buffer in written))


def _reads_plainly(consumer: BlockInfo, block: BlockInfo) -> bool:
    """Returns whether the consumer's reads stay affine when the copy is inlined."""
    return all(use.affine for use in block.loads)
