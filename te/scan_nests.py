"""This module makes the loop nests of recurrences: the first steps are copied, and a loop runs the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tir.expr import IterVar, Reduce, Var
from ..tir.stmt import For, Stmt, seq
from .operation import ComputeOp, Operation
from .scan import ScanOp, copy_of
from .tensor import Tensor

if TYPE_CHECKING:
    from .create_prim_func import NestBuilder


def _accumulates_apart(update: Tensor, state: Tensor) -> bool:
    """Returns whether a reduction reads the state that it updates. The value that it adds then needs a buffer of its
    own."""
    return isinstance(update.op.body[0], Reduce) and state in update.op.input_tensors  # type: ignore[attr-defined]


def place_first_steps(builder: NestBuilder, op: ScanOp, ops: Sequence[Operation]) -> None:
    """Let first steps that only the recurrence reads be computed in the buffers of its results, as in TVM.

    A reduction is not: it accumulates in a buffer that nothing else writes.
    """
    for init, out in zip(op.init, op.outputs, strict=True):
        made, used = init.op, sum(init is t for o in ops for t in o.input_tensors) + sum(init is t for t in op.init)
        plain = type(made) is ComputeOp and made.num_outputs == 1 and not isinstance(made.body[0], Reduce)
        if plain and used == 2 and init not in builder.buffers and init.dtype == out.dtype:
            if out not in builder.buffers:
                builder.allocated.append(builder.new_buffer(out))
            builder.buffers[init] = builder.buffers[out]


def recurrence(builder: NestBuilder, op: ScanOp) -> list[Stmt]:
    """Returns the first steps copied, and the loop over the others; all write the buffers of the results."""
    nests: list[Stmt] = []
    copies: list[tuple[Tensor, Tensor]] = []
    for init, out, update, state in zip(op.init, op.outputs, op.update, op.state_placeholder, strict=True):
        builder.buffers[state] = builder.buffers[out]
        if _accumulates_apart(update, state):
            copies.append((update, out))
        else:
            builder.buffers[update] = builder.buffers[out]
        if builder.buffers.get(init) is builder.buffers[out]:
            continue
        first = copy_of(init, f"{out.name}_init")
        builder.buffers[first.output(0)] = builder.buffers[out]
        nests.append(builder.compute(first))
        builder.blocks.setdefault(op, []).extend(builder.blocks.pop(first))
    step = Var(op.body[-1].axis[0].var.name, op.scan_axis.var.dtype)
    steps: list[Stmt] = []
    for inner in op.body:
        builder.require(inner.requires)
        for t in inner.outputs:
            if t not in builder.buffers:
                builder.allocated.append(builder.new_buffer(t))
        updates = any(builder.buffers[t] is builder.buffers[out] for t in inner.outputs for out in op.outputs)
        steps.append(_one_step(builder, op, inner, inner.outputs, step, updates))
    for update, out in copies:
        steps.append(_one_step(builder, op, copy_of(update, f"{out.name}_update"), (out,), step, True))
    dom = op.scan_axis.dom
    return [*nests, For(step, dom.min, dom.extent, "serial", seq(*steps))]


def _one_step(
    builder: NestBuilder, op: ScanOp, inner: ComputeOp, into: Sequence[Tensor], step: Var, updates: bool
) -> Stmt:
    """Returns the nest of ``inner`` within one step of a recurrence, storing to the buffers of ``into``."""
    kind = IterVar.SCAN if updates else IterVar.SPATIAL
    axis = (IterVar(op.scan_axis.dom, inner.axis[0].var, kind), *inner.axis[1:])
    moved = ComputeOp(inner.name, axis, inner.body, inner.tag, inner.attrs, inner.requires)
    builder.buffers.update({new: builder.buffers[t] for new, t in zip(moved.outputs, into, strict=True)})
    nest = builder.compute(moved, step)
    builder.blocks.setdefault(inner if inner in op.body else op, []).extend(builder.blocks.pop(moved))
    return nest
