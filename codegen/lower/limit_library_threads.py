"""Lets a library use one thread where it is called from several threads at once."""

from __future__ import annotations

from ...tir.blas_calls import THREADS, blas_calls, routine_of
from ...tir.expr import Call, const
from ...tir.expr.node import IRNode
from ...tir.stmt import For, PrimFunc
from ...tir.walk import transform


def limit_library_threads(func: PrimFunc) -> PrimFunc:
    """Let the calls of matrix products inside parallel loops use one thread.

    Before::

        for b in T.parallel(4):
            T.evaluate(T.call_extern("void", "tw_cblas_sgemm", 0, …))

    After::

        for b in T.parallel(4):
            T.evaluate(T.call_extern("void", "tw_cblas_sgemm", 1, …))
    """

    def inside(n: IRNode) -> IRNode | None:
        if not isinstance(n, Call) or routine_of(n) is None:
            return None
        return n.with_(args=(*n.args[:THREADS], const(1, "int32"), *n.args[THREADS + 1 :]))

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, For) and n.kind == "parallel" and blas_calls(n.body):
            return n.with_(body=transform(n.body, post=inside))
        return None

    return transform(func, post=post)
