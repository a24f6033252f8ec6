"""This module says which values have to be computed where they stand: loads whose memory changes before their use."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import affine, memref, vector
from xdsl.ir import Block, Operation, SSAValue

from ..words.wider_operations import GatherOp, ScatterOp

LOADS = (memref.LoadOp, affine.LoadOp, vector.LoadOp, vector.MaskedLoadOp, GatherOp)
_TARGETS: dict[type[Any], int] = {
    memref.StoreOp: 1, affine.StoreOp: 1, vector.StoreOp: 1, vector.MaskedStoreOp: 0, ScatterOp: 0,
}  # fmt: skip
"""Stores, and which operand is their memory."""


def stored_memory(op: Operation) -> set[SSAValue]:
    """Returns the memory that an operation and those inside it store to."""
    place = _TARGETS.get(type(op))
    found = set() if place is None else {op.operands[place]}
    if isinstance(op, memref.CopyOp):
        found.add(op.destination)
    for region in op.regions:
        for inner in region.walk():
            if type(inner) in _TARGETS:
                found.add(inner.operands[_TARGETS[type(inner)]])
    return found


def is_statement(op: Operation) -> bool:
    """Returns whether an operation does something besides computing a value."""
    if type(op) in _TARGETS or not op.results:
        return True
    return op.name in ("scf.for", "scf.parallel", "scf.while", "affine.for") or bool(stored_memory(op))


def early_loads(block: Block) -> set[Operation]:
    """Returns the loads of a block whose memory is stored to before their last use."""
    ops = list(block.ops)
    place = {op: n for n, op in enumerate(ops)}
    stores = [(n, stored_memory(op)) for n, op in enumerate(ops)]
    stores = [(n, memory) for n, memory in stores if memory]
    last: dict[Operation, int] = {}
    out: set[Operation] = set()
    for op in reversed(ops):
        uses = [_within(use.operation, block) for r in op.results for use in r.uses]
        ends = [place[u] if is_statement(u) or u is op else last.get(u, place[u]) for u in uses if u is not None]
        last[op] = max(ends, default=place[op])
        if isinstance(op, LOADS):
            source = op.operands[0]
            for n, memory in stores:
                inside = n == last[op] and bool(ops[n].regions)
                if source in memory and place[op] < n and (n < last[op] or inside):
                    out.add(op)
    return out


def _within(op: Operation | None, block: Block) -> Operation | None:
    """Returns the operation of ``block`` that is, or holds, another operation."""
    while op is not None and op.parent_block() is not block:
        op = op.parent_op()
    return op
