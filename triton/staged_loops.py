"""Lets loads of loops with products run ahead on GPUs: operands lie in ``num_stages`` versions in shared memory.

An operand that is read from global memory as it is, zeros where its mask does not hold, is copied by ``cp.async`` while the threads
multiply what came before. The loop gets TVM's annotations of a software pipeline; the passes for GPUs make the pipeline of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..codegen.lower.compact_buffers import aligned
from ..tir.annotations import ALIGN
from ..tir.expr import BufferLoad, Call, Expr, FloatImm, IntImm, Var
from ..tir.expr.node import IRNode
from ..tir.stmt import Allocate, Buffer, BufferStore, Evaluate, For, LetStmt, SeqStmt, Stmt, loads_and_stores, seq
from ..tir.walk import reads_memory, statements, substitute, transform_statements

STAGES = 3
"""The stages of a loop where neither it nor the launch says how many."""
_NARROWEST = 4
"""The fewest bytes that a thread copies beside its work; several elements of a vector count together."""


@dataclass
class LoopStages:
    """The stages that the loops of a kernel ask for, by their variables, and the buffers that products read.

    ``room``: the bytes of shared memory that a block may take; ``asked``: the loops whose kernel or launch says how many;
    ``fewer``: of each of them that gets fewer, both numbers, and the bytes that all would take.
    """

    room: int
    wanted: dict[Var, int] = field(default_factory=dict)
    asked: set[Var] = field(default_factory=set)
    operands: set[Buffer] = field(default_factory=set)
    fewer: list[tuple[int, int, int]] = field(default_factory=list)

    def applied(self, body: Stmt, written: Collection[Var]) -> Stmt:
        """Return the body of a kernel, which writes the memory ``written``, with its innermost such loops as pipelines."""
        taken = sum(
            _bytes(s.buffer, s.annotations)
            for s in statements(body)
            if isinstance(s, Allocate) and s.buffer.scope == "shared"
        )
        done: set[Var] = set()

        def post(n: IRNode) -> Stmt | None:
            nonlocal taken
            if not isinstance(n, For) or self.wanted.get(n.loop_var, 1) < 2:
                return None
            if any(isinstance(s, For) and s.loop_var in done for s in statements(n.body)):
                return None
            parts = _Parts()
            copied = parts.copied(self.operands, written) if parts.take(n.body, {}) else []
            size = sum(_bytes(b, parts.wishes[b]) for b in {b for s in copied for b in _stored(s)})
            if not size:
                return None
            wanted = self.wanted[n.loop_var]
            stages = min(wanted, 1 + max(0, self.room - taken) // size)
            if stages < wanted and n.loop_var in self.asked:
                self.fewer.append((wanted, stages, taken + (wanted - 1) * size))
            if stages < 2:
                return None
            taken += (stages - 1) * size
            done.add(n.loop_var)
            lags = [0 if s in copied else stages - 1 for s in parts.statements]
            notes = {
                "software_pipeline_stage": lags,
                "software_pipeline_order": list(range(len(lags))),
                "software_pipeline_async_stages": [0],
            }
            out: Stmt = n.with_(body=seq(*parts.statements), annotations={**n.annotations, **notes})
            for buffer in reversed(parts.buffers):
                out = Allocate(buffer, out, parts.wishes[buffer])
            return out

        return transform_statements(body, post)  # type: ignore[no-any-return]


class _Parts:
    """The statements of a loop's body in order, and the memory that it allocates. Names of values stand for the values."""

    def __init__(self) -> None:
        self.statements: list[Stmt] = []
        self.buffers: list[Buffer] = []
        self.wishes: dict[Buffer, Mapping[str, Any]] = {}

    def take(self, s: Stmt, values: Mapping[Var, Expr]) -> bool:
        """Add a statement; return whether that is possible. A name for what memory holds is not moved."""
        if isinstance(s, SeqStmt):
            return all([self.take(child, values) for child in s.seq])
        if isinstance(s, Allocate):
            self.buffers.append(s.buffer)
            self.wishes[s.buffer] = s.annotations
            return self.take(s.body, values)
        if isinstance(s, LetStmt):
            return not reads_memory(s.value) and self.take(s.body, {**values, s.var: substitute(s.value, values)})
        self.statements.append(substitute(s, values) if values else s)
        return True

    def copied(self, operands: Collection[Buffer], written: Collection[Var]) -> list[Stmt]:
        """Return the statements that copy operands from memory, and depend on nothing that the loop changes."""
        changed = {b for s in self.statements for b in _stored(s)}
        return [
            s for s in self.statements
            if _is_copy(s, written)
            and all(b in operands and b in self.buffers for b in _stored(s))
            and not any(b in _stored(other) for b in _stored(s) for other in self.statements if other is not s)
            and not any(a.buffer in changed for a in loads_and_stores(s) if isinstance(a, BufferLoad))
        ]  # fmt: skip


def _stored(s: Stmt) -> set[Buffer]:
    return {a.buffer for a in loads_and_stores(s) if isinstance(a, BufferStore)}


def _bytes(buffer: Buffer, wishes: Mapping[str, Any]) -> int:
    made = aligned(buffer, wishes.get(ALIGN, ()))
    rows, inner = int(made.shape[0]), prod([int(n) for n in made.shape[1:]])  # type: ignore[call-overload]
    return buffer.dtype.bytes * rows * (inner if made.strides is None or not wishes else int(made.strides[0]))  # type: ignore[call-overload]


def _is_copy(s: Stmt, written: Collection[Var]) -> bool:
    """Returns whether a statement only moves elements of memory that is not written to shared memory, or stores zeros there."""
    if any(isinstance(n, Evaluate) for n in statements(s)):
        return False
    together = prod([int(n.extent) for n in statements(s) if isinstance(n, For) and n.kind == "vectorized"])  # type: ignore[call-overload]
    stores = [a for a in loads_and_stores(s) if isinstance(a, BufferStore)]
    return bool(stores) and all(_moves(a, written, together) for a in stores)


def _moves(s: BufferStore, written: Collection[Var], together: int) -> bool:
    value = s.value
    while isinstance(value, Call) and value.op == "tir.if_then_else":
        if not (isinstance(value.args[2], (IntImm, FloatImm)) and value.args[2].value == 0):
            return False
        value = value.args[1]
    return (
        isinstance(value, BufferLoad)
        and value.buffer.scope == "global"
        and value.buffer.data not in written
        and value.dtype == s.buffer.dtype
        and s.buffer.scope == "shared"
        and s.buffer.dtype.bytes * together >= _NARROWEST
    )
