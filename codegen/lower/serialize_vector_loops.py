"""Makes vector loops plain loops for targets whose text has no vectors."""

from __future__ import annotations

from ...tir.expr.node import Node
from ...tir.stmt import For, PrimFunc, Stmt
from ...tir.walk import transform_statements
from ..machine.target import Target
from .loop_annotations import HORIZONTAL, NONTEMPORAL, PREFETCH_DISTANCE, PREFETCH_NEXT, TAIL, without

_OF_VECTORS = (HORIZONTAL, NONTEMPORAL, PREFETCH_DISTANCE, PREFETCH_NEXT, TAIL)


def serialize_vector_loops(func: PrimFunc, target: Target) -> PrimFunc:
    """Replace vector loops by serial ones for strict C, and remove the pragmas that name a machine's abilities.

    The compiler of the text vectorizes such loops itself. Vectors that a program writes out remain.
    """
    if not target.is_portable_c:
        return func

    def post(n: Node) -> Stmt | None:
        if not isinstance(n, For):
            return None
        loop = n.with_(kind="serial") if n.kind == "vectorized" else n
        for key in _OF_VECTORS:
            if key in loop.annotations:
                loop = without(loop, key)
        return None if loop is n else loop

    return transform_statements(func, post)
