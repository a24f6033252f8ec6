"""Adds two neighbouring numbers of 16 bits by one atomic instruction, where a vector loop adds them one by one."""

from __future__ import annotations

from ....tir.arith.normal_form.linear import Linear, collect
from ....tir.expr import BufferLoad, Call, Expr, IntImm, Var, const, vars_in
from ....tir.expr.base.node import Node
from ....tir.expr.intrinsics.atomic_operations import PAIR_TYPES
from ....tir.stmt import Evaluate, For, PrimFunc, Stmt
from ....tir.walk import substitute, transform_statements


def pair_atomics(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with atomic additions of pairs in vector loops.

    Before (``B`` is float16)::

        for j in T.vectorized(4):
            T.atomic_add(T.address_of(B[i * 4 + j]), A[j])

    After::

        for j in range(2):
            T.atomic_add_pair(T.address_of(B[i * 4 + j * 2]), A[j * 2], A[j * 2 + 1])
    """

    def post(n: Node) -> Stmt | None:
        if not isinstance(n, For) or n.kind != "vectorized" or not isinstance(n.extent, IntImm) or n.extent.value % 2:
            return None
        call = n.body.value if isinstance(n.body, Evaluate) else None
        if not isinstance(call, Call) or call.op != "tir.atomic_add" or call.args[1].dtype not in PAIR_TYPES:
            return None
        place = call.args[0].args[0]  # type: ignore[attr-defined]
        if not isinstance(n.min, IntImm) or n.min.value or not _are_neighbours(place, n.loop_var):
            return None
        var = n.loop_var
        first, second = [{var: var * const(2, var.dtype) + k} for k in (0, 1)]
        values = [substitute(call.args[1], where) for where in (first, second)]
        added = Call("tir.atomic_add_pair", (substitute(call.args[0], first), *values), "void")
        return For(var, n.min, const(n.extent.value // 2, n.extent.dtype), "serial", Evaluate(added))

    return transform_statements(func, post)


def _are_neighbours(place: BufferLoad, lane: Var) -> bool:
    """Returns whether elements lie side by side from an even one on, lane by lane."""
    total = Linear()
    for index, stride in zip(place.indices, place.buffer.element_strides(), strict=True):
        form = collect(index, _term)
        if form is None or not isinstance(stride, IntImm):
            return False
        total = total.plus(form.times(stride.value))
    within = {t: c for t, c in total.terms.items() if lane in vars_in(t)}
    others = [total.const, *[c for t, c in total.terms.items() if t is not lane]]
    return within == {lane: 1} and not any(c % 2 for c in others)


def _term(e: Expr) -> Linear:
    return Linear(0, {e: 1})
