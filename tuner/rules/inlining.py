"""Which stages are computed where they are used instead of being stored."""

from __future__ import annotations

from ...tir.expr import BufferLoad, Call
from ...tir.stmt import BufferStore
from ..program import BlockInfo, Program

__all__ = ["blocks_to_inline", "paddings_to_inline"]

_CHEAP = 8
"""Operations up to which an element may be computed more than once."""

_FEW = 16
"""Reads of an element up to which a padded copy may not be worth storing."""


def blocks_to_inline(program: Program) -> list[str]:
    """The names of the stages to inline, producers first.

    An element-wise stage goes into its consumers when that repeats no costly work: always when a single element-wise
    stage consumes it; into several, or into a reduction that reads each element once, when it is cheap; into a
    reduction that reads elements many times only when it merely moves data without a condition.
    """
    return [block.name for block in program.blocks if _inline(program, block)]


def paddings_to_inline(program: Program) -> list[str]:
    """The names of padded copies (stages that choose between a load and a constant) that a reduction reads few times
    per element, as pooling and depthwise convolutions do: masking the reduction's own loads may cost less than storing
    the copy. Whether it does is for the tuner to measure."""
    out = []
    for block in program.blocks:
        consumers = program.consumers(block)
        if block.is_reduction or len(consumers) != 1 or program.is_output(block) or not block.writes_in_order:
            continue
        consumer = consumers[0]
        reads = consumer.spatial_size * consumer.reduce_size * _reads_of(consumer, block)
        if consumer.is_reduction and _chooses(block) and reads <= _FEW * block.spatial_size:
            out.append(block.name)
    return out


def _chooses(block: BlockInfo) -> bool:
    body = block.block.body
    return isinstance(body, BufferStore) and isinstance(body.value, Call) and body.value.op == "tir.if_then_else"


def _inline(program: Program, block: BlockInfo) -> bool:
    consumers = program.consumers(block)
    if block.is_reduction or not consumers or program.is_output(block) or not block.writes_in_order:
        return False
    if len(program.writer) and sum(1 for b in program.blocks if {u.buffer for u in b.stores} & {
        u.buffer for u in block.stores
    }) > 1:  # fmt: skip
        return False
    if _moves_data(block):
        return all(_reads_plainly(c, block) for c in consumers)
    for consumer in consumers:
        reads = consumer.spatial_size * consumer.reduce_size * _reads_of(consumer, block)
        repeated = reads > block.spatial_size
        if consumer.is_reduction and repeated:
            return False
        if repeated and block.operations > _CHEAP:
            return False
    return len(consumers) == 1 or block.operations <= _CHEAP


def _reads_of(consumer: BlockInfo, block: BlockInfo) -> int:
    written = {use.buffer for use in block.stores}
    return max(1, sum(1 for use in consumer.loads if use.buffer in written))


def _moves_data(block: BlockInfo) -> bool:
    """Whether each element is a copy of another one (transpose, reshape, broadcast), under no condition."""
    body = block.block.body
    return isinstance(body, BufferStore) and isinstance(body.value, BufferLoad)


def _reads_plainly(consumer: BlockInfo, block: BlockInfo) -> bool:
    """Whether the consumer's reads stay affine when the copy is inlined."""
    return all(use.affine for use in block.loads)
