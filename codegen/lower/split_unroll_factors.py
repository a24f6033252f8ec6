"""Splits loops by the factors by which they are to be unrolled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tir.expr import IntImm, Var, const
from ...tir.expr.node import Node
from ...tir.stmt import For, PrimFunc, Stmt, seq
from ...tir.walk import fresh_copy, substitute, transform_statements
from .loop_annotations import PREFETCH_DISTANCE, UNROLL_FACTOR, steps_number, without


def split_unroll_factors(func: PrimFunc) -> PrimFunc:
    """Split serial loops with ``pragma_unroll_factor = u``: u copies of the body per iteration, and a loop for the
    remainder.

    Before::

        for k in T.serial(10, annotations={"pragma_unroll_factor": 4}): f(k)

    After::

        for k_o in range(2):
            for k_i in T.unroll(4): f(k_o * 4 + k_i)
        for k_r in T.unroll(2): f(8 + k_r)
    """

    def post(n: Node) -> Stmt | None:
        if not (isinstance(n, For) and UNROLL_FACTOR in n.annotations):
            return None
        factor = steps_number(n.annotations[UNROLL_FACTOR], UNROLL_FACTOR, f"loop {n.loop_var.name}")
        loop = without(n, UNROLL_FACTOR)
        if PREFETCH_DISTANCE in loop.annotations and factor > 1:
            distance = _unrolled_distance(loop.annotations[PREFETCH_DISTANCE], factor)
            loop = loop.with_(annotations={**loop.annotations, PREFETCH_DISTANCE: distance})
        if factor <= 1 or n.kind != "serial":
            return loop
        if isinstance(n.extent, IntImm) and n.extent.value <= factor:
            return loop.with_(kind="unrolled")
        dtype = n.loop_var.dtype
        outer, inner = Var(f"{n.loop_var.name}_o", dtype), Var(f"{n.loop_var.name}_i", dtype)
        trip_count, left = n.extent // factor, n.extent % factor
        at = n.min + outer * factor + inner
        body = For(inner, const(0, dtype), const(factor, dtype), "unrolled", substitute(n.body, {n.loop_var: at}))
        main = For(outer, const(0, dtype), trip_count, "serial", body, None, loop.annotations)
        if isinstance(left, IntImm) and left.value == 0:
            return main
        over = Var(f"{n.loop_var.name}_r", dtype)
        tail_body = fresh_copy(substitute(n.body, {n.loop_var: n.min + trip_count * factor + over}))
        kind = "unrolled" if isinstance(left, IntImm) else "serial"
        return seq(main, For(over, const(0, dtype), left, kind, tail_body))

    return transform_statements(func, post)


def _unrolled_distance(wanted: Any, factor: int) -> Any:
    """Returns a prefetch distance in iterations of a loop that was unrolled by ``factor``."""
    if isinstance(wanted, Mapping):
        return {name: _unrolled_distance(d, factor) for name, d in wanted.items()}
    return -(-steps_number(wanted, PREFETCH_DISTANCE, "an unrolled loop") // factor)
