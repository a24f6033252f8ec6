"""This module counts the operations and the bytes of an unscheduled function; all printed rates refer to these counts.

One operation is one ``+ - * /``, min, max or math function on values (a fused multiply-add is two); arithmetic on
indices and conditions is free, as is the initial value of a reduction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .expr import (
    Add,
    BinaryOp,
    BufferLoad,
    Call,
    CmpOp,
    Div,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    LogicalOp,
    Max,
    Min,
    Mul,
    Not,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    reads_memory,
)
from .expr.deep_recursion import with_room
from .expr.intrinsics import OPERATIONS
from .expr.node import IRNode
from .stmt import Block, BlockRealize, Buffer, BufferStore, For, IfThenElse, PrimFunc, SeqStmt, While

_ARITHMETIC = (Add, Sub, Mul, Div, FloorDiv, FloorMod, TruncDiv, TruncMod, Min, Max)


class _NotConstant(Exception):
    """Raised for an extent that is not a constant, and for a loop that a condition ends."""


@with_room
def count_flops(func: PrimFunc) -> float | None:
    """Return the number of operations of one run; None when an extent is symbolic or a ``while``
    computes something.

    The number is the same for every schedule that computes each value once. Call this on the function before
    scheduling.
    """
    try:
        return float(_stmt(func.body))
    except _NotConstant:
        return None


@with_room
def count_bytes(func: PrimFunc) -> float | None:
    """Return the bytes of all buffer arguments, the least that one run must move; None when a shape is symbolic."""
    sizes = [buffer.num_bytes() for buffer in func.buffers]
    known = [size for size in sizes if size is not None]
    return float(sum(known)) if len(known) == len(sizes) else None


def _stmt(stmt: IRNode) -> int:
    if isinstance(stmt, For):
        below = _stmt(stmt.body)
        if below == 0:
            return 0
        if not isinstance(stmt.extent, IntImm):
            raise _NotConstant
        return max(stmt.extent.value, 0) * below
    if isinstance(stmt, While):
        if _stmt(stmt.body):
            raise _NotConstant
        return 0
    if isinstance(stmt, BlockRealize):
        return _stmt(stmt.block.body)
    if isinstance(stmt, BufferStore):
        return _expr(stmt.value)
    if isinstance(stmt, IfThenElse):
        return max(_stmt(stmt.then_case), 0 if stmt.else_case is None else _stmt(stmt.else_case))
    if isinstance(stmt, (SeqStmt, Block)):
        return sum([_stmt(child) for child in stmt.seq]) if isinstance(stmt, SeqStmt) else _stmt(stmt.body)
    return sum([_expr(n) if isinstance(n, Expr) else _stmt(n) for n in stmt.children()])


def _expr(e: IRNode) -> int:
    if isinstance(e, (BufferLoad, CmpOp, LogicalOp, Not)):
        return 0
    if isinstance(e, Select):
        return max(_expr(e.true_value), _expr(e.false_value))
    if isinstance(e, Call):
        if e.op == "tir.if_then_else":
            return max(_expr(e.args[1]), _expr(e.args[2]))
        row = OPERATIONS.get(e.op)
        return (1 if row is None else row.flops) + sum(map(_expr, e.args))
    return isinstance(e, _ARITHMETIC) + sum(map(_expr, e.children()))


def instructions_of(node: Expr) -> int:
    """Returns the instructions of one node of a value, without those of its operands."""
    if isinstance(node, Call):
        row = OPERATIONS.get(node.op)
        return 1 if row is None else row.instructions
    if isinstance(node, CmpOp):
        return int(reads_memory(node))
    if isinstance(node, BinaryOp) and not isinstance(node, LogicalOp):
        return 12 if isinstance(node, Div) else 1
    return 0


Length = tuple[int, int]
"""The number of nodes of an element's expression: ``(own, per)`` means ``own + per * (nodes of the index that is
read)``."""


def inlined_length(e: Expr, axes: Collection[Var], known: Mapping[Buffer, Length]) -> Length:
    """Return a bound of the length of ``e`` after each load of a ``known`` buffer is replaced by an expression. These
    expressions have the lengths given there.

    The result depends on the lengths of the indices that take the place of ``axes``.
    """
    if isinstance(e, Var):
        return (0, 1) if e in axes else (1, 0)
    parts = [inlined_length(child, axes, known) for child in e.children() if isinstance(child, Expr)]
    if isinstance(e, BufferLoad) and e.buffer in known:
        base, factor = known[e.buffer]
        own, per = (max((p[n] for p in parts), default=0) for n in range(2))  # of the longest index, for each axis
        return base + factor * own, factor * per
    return sum(p[0] for p in parts) + 1, sum(p[1] for p in parts)
