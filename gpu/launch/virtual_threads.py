"""Runs virtual threads: one thread takes their iterations in turn, statement by statement.

A loop over virtual threads moves inwards to the statements that depend on it. What does not depend on it, such as a copy
into memory that the block shares, then happens once, and no barrier stands inside the loop. A local buffer that differs
from one virtual thread to the next gets one copy for each.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...tir.expr import BufferLoad, Expr, IntImm, Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Buffer, BufferStore, For, IfThenElse, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import loads_and_stores, statements, substitute, transform, transform_statements, uses_var
from .launch_form import GpuError, is_shared, is_virtual


def run_virtual_threads(func: PrimFunc) -> PrimFunc:
    """Replace loops over virtual threads by unrolled loops around the statements that depend on them.

    Before::

        for v in T.thread_binding(2, thread="vthread.x"):
            for k in range(8):
                S[0] = A[k]
                L[0] = L[0] + S[0] * B[v]

    After::

        for k in range(8):
            S[0] = A[k]
            for v in T.unroll(2):
                L[v, 0] = L[v, 0] + S[0] * B[v]
    """

    def post(n: IRNode) -> Stmt | None:
        return _Distribution(n).run() if isinstance(n, For) and is_virtual(n) else None

    return transform_statements(func, post)


class _Distribution:
    """The distribution of one loop. ``own``: local buffers that differ between its iterations, by their wider forms."""

    def __init__(self, loop: For) -> None:
        if not isinstance(loop.extent, IntImm):
            raise GpuError(f"the loop {loop.loop_var.name} has {loop.extent} virtual threads, which is not a constant")
        self.loop = loop
        self.own: dict[Buffer, Buffer] = {}

    def run(self) -> Stmt:
        """Return the body with loops around the statements that depend on the virtual thread."""
        inside = [s.buffer for s in statements(self.loop.body) if isinstance(s, Allocate)]
        private = {b for b in inside if not is_shared(b.scope)}
        stores = [s for s in statements(self.loop.body) if isinstance(s, (BufferStore, IfThenElse, For))]
        grown = True
        while grown:
            found = [b for s in stores if self.depends(s) for b in _written(s) if b in private and b not in self.own]
            grown = bool(found)
            self.own.update({b: self._wider(b) for b in found})
        return self.spread(self.loop.body)

    def _wider(self, buffer: Buffer) -> Buffer:
        lead = const(self.loop.extent.value, buffer.shape[0].dtype if buffer.shape else "int32")  # type: ignore[attr-defined]
        return buffer.with_(shape=(lead, *buffer.shape), strides=())

    def depends(self, s: Stmt) -> bool:
        """Return whether a statement, apart from those inside it, depends on the virtual thread."""
        if isinstance(s, For):
            return self._uses(s.min) or self._uses(s.extent)
        if isinstance(s, IfThenElse):
            return self._uses(s.condition)
        return self._uses(s)

    def _uses(self, part: Expr | Stmt) -> bool:
        if uses_var(part, self.loop.loop_var):
            return True
        return any(access.buffer in self.own for access in loads_and_stores(part))

    def spread(self, s: Stmt) -> Stmt:
        """Return ``s`` for all virtual threads."""
        if isinstance(s, SeqStmt):
            return seq(*[self.spread(child) for child in s.seq])
        if isinstance(s, Allocate):
            return Allocate(self.own.get(s.buffer, s.buffer), self.spread(s.body), s.annotations)
        if isinstance(s, For) and not self.depends(s):
            return s.with_(body=self.spread(s.body))
        if isinstance(s, IfThenElse) and not self.depends(s):
            return IfThenElse(s.condition, self.spread(s.then_case), s.else_case and self.spread(s.else_case))
        if isinstance(s, (For, IfThenElse)) or self._uses(s) or _accumulates(s):
            return self._each(s)
        return s

    def _each(self, s: Stmt) -> Stmt:
        old = self.loop
        var = Var(old.loop_var.name, old.loop_var.dtype)
        body = substitute(_indexed(s, self.own, var), {old.loop_var: var})
        return For(var, old.min, old.extent, "unrolled", body)


def _written(s: Stmt) -> list[Buffer]:
    return [a.buffer for a in loads_and_stores(s) if isinstance(a, BufferStore)]


def _accumulates(s: Stmt) -> bool:
    """Return whether a statement reads memory that it writes. Running it once then differs from running it several
    times."""
    read = {a.buffer for a in loads_and_stores(s) if isinstance(a, BufferLoad)}
    return any(b in read for b in _written(s))


def _indexed(s: Stmt, own: Mapping[Buffer, Buffer], var: Var) -> Stmt:
    """Return ``s`` with its accesses to the buffers of ``own`` in the part of the virtual thread ``var``."""

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer in own:
            lead = var if not n.indices or var.dtype == n.indices[0].dtype else var.astype(n.indices[0].dtype)
            return n.with_(buffer=own[n.buffer], indices=(lead, *n.indices))
        return None

    return transform(s, post=post)
