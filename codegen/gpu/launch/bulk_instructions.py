"""Makes one instruction of each row that is copied in bulk, for machine code of one thread."""

from __future__ import annotations

from ....tir.expr import BufferLoad, Call, IntImm, const
from ....tir.expr.base.node import Node
from ....tir.stmt import AttrStmt, BufferStore, Evaluate, For, PrimFunc, Stmt
from ....tir.walk import substitute, transform_statements
from .asynchronous_copies import BULK_SCOPE

COPY = "tir.ptx_cp_async_bulk"


def bulk_instructions(func: PrimFunc) -> PrimFunc:
    """Return ``func`` with instructions in place of rows.

    Before::

        with T.attr(None, "bulk_scope", T.address_of(arrivals[0])):
            for c in range(64):
                S[r, c] = A[r, c]

    After::

        T.ptx_cp_async_bulk(T.address_of(S[r, 0]), T.address_of(A[r, 0]), 256, T.address_of(arrivals[0]))
    """

    def post(n: Node) -> Stmt | None:
        if not isinstance(n, AttrStmt) or n.attr_key != BULK_SCOPE:
            return None
        loop = n.body
        assert isinstance(loop, For) and isinstance(loop.extent, IntImm) and isinstance(loop.body, BufferStore)
        store = substitute(loop.body, {loop.loop_var: loop.min})
        assert isinstance(store.value, BufferLoad)
        ends = [BufferLoad(store.buffer, store.indices), store.value]
        size = const(loop.extent.value * store.buffer.dtype.bytes, "int32")
        to, of = [Call("tir.address_of", (end,), "handle") for end in ends]
        return Evaluate(Call(COPY, (to, of, size, n.value), "int32"))

    return transform_statements(func, post)
