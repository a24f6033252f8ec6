"""Keeps the loops that a tool for high-level synthesis is to unroll as loops, with an annotation that says so."""

from __future__ import annotations

from ...tir.expr.node import Node
from ...tir.stmt import For, PrimFunc, Stmt
from ...tir.walk import transform_statements
from ..machine.target import Target
from .loop_annotations import HLS_UNROLL, UNROLL_FACTOR, steps_number, without


def loops_for_hls(func: PrimFunc, target: Target) -> PrimFunc:
    """Return ``func`` with unrolled and vector loops as serial ones for targets with ``-hls``.

    Before::

        for k in T.unroll(4): f(k)

    After::

        for k in T.serial(4, annotations={"pragma_hls_unroll": 0}): f(k)

    0 stands for all iterations; ``pragma_unroll_factor`` gives another number.
    """
    if not target.is_hls:
        return func

    def post(n: Node) -> Stmt | None:
        if not isinstance(n, For):
            return None
        if n.kind in ("unrolled", "vectorized"):
            return n.with_(kind="serial", annotations={**n.annotations, HLS_UNROLL: 0})
        if UNROLL_FACTOR in n.annotations:
            factor = steps_number(n.annotations[UNROLL_FACTOR], UNROLL_FACTOR, f"loop {n.loop_var.name}")
            loop = without(n, UNROLL_FACTOR)
            return loop.with_(annotations={**loop.annotations, HLS_UNROLL: factor})
        return None

    return transform_statements(func, post)
