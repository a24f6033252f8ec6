"""This module makes the parts of a reduction's block: its axes, its init and its update."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..tir.expr import BufferLoad, Expr, IterVar, Reduce, Var, is_const_int
from ..tir.expr.intrinsics.control_and_memory import if_then_else
from ..tir.stmt import Buffer, BufferStore, LetStmt, Stmt, seq
from ..tir.walk import substitute, vars_in
from .operation import ComputeOp


def axes_of(op: ComputeOp) -> tuple[IterVar, ...]:
    """Returns the axes of the block; a reduction over no elements has only the spatial ones. ValueError when the domain
    of an axis depends on one that comes after it."""
    after: dict[Var, IterVar] = {}
    for iv in reversed(op.reduce_axis):
        after[iv.var] = iv
        for v in (vars_in(iv.dom.min) | vars_in(iv.dom.extent)) & after.keys():
            raise ValueError(
                f"{op.name}: the domain of {iv.var.name}, ({iv.dom.min}, {iv.dom.min + iv.dom.extent}), depends on {v.name}, "
                f"which comes after it; put {v.name} first in axis=[…]"
            )
    empty = any(is_const_int(iv.dom.extent, 0) for iv in op.reduce_axis)
    return op.axis if empty else (*op.axis, *op.reduce_axis)


def init_and_update(
    reduce: Reduce, buffers: Sequence[Buffer], indices: tuple[Expr, ...], lower: Callable[[Expr], Expr]
) -> tuple[Stmt, Stmt]:
    """Returns the init and update of a reduction into ``buffers`` (several: a tuple reduction, through variables
    ``v_…``)."""
    combiner = reduce.combiner
    start = reduce.init or combiner.identity_element
    init = seq(*[BufferStore(b, lower(e), indices) for b, e in zip(buffers, start, strict=True)])
    source = list(reduce.source)
    if not is_const_int(reduce.condition, 1):  # where=: elements where it is false count as the identity
        pairs = zip(source, combiner.identity_element, strict=True)
        source = [if_then_else(reduce.condition, e, neutral) for e, neutral in pairs]
    source = [lower(e) for e in source]
    mapping: dict[Var, Expr] = {v: BufferLoad(b, indices) for v, b in zip(combiner.lhs, buffers, strict=True)}
    mapping.update(zip(combiner.rhs, source, strict=True))
    results = [substitute(e, mapping) for e in combiner.result]
    if len(buffers) == 1:
        return init, BufferStore(buffers[0], results[0], indices)
    temporaries = [Var(f"v_{b.name}", b.dtype) for b in buffers]
    body = seq(*[BufferStore(b, v, indices) for b, v in zip(buffers, temporaries, strict=True)])
    for temporary, result in reversed(list(zip(temporaries, results, strict=True))):
        body = LetStmt(temporary, result, body)
    return init, body
