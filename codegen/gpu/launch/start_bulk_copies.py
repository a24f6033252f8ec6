"""Starts copies of whole rows (:mod:`.bulk_copies`) outside of pipelines, and makes the mbarriers of all of them ready."""

from __future__ import annotations

from collections.abc import Sequence

from ....tir.expr import Call, const
from ....tir.expr.base.node import Node
from ....tir.stmt import Allocate, AttrStmt, Evaluate, PrimFunc, SeqStmt, Stmt, seq
from ....tir.walk import statements, transform_statements
from .asynchronous_copies import BULK_SCOPE
from .barriers import barrier
from .bulk_copies import BARRIERS, Arrivals, Rows, first_thread, has_rows, number_of, only_rows
from .launch_form import inside_threads, with_body
from .thread_axes import BLOCK_TAGS, tag_of

INIT = "tir.ptx_init_barrier_thread_count"


def start_bulk_copies(func: PrimFunc) -> PrimFunc:
    """Return ``func``, whose kernels are in launch form, with the rows that are copied in bulk.

    Before::

        for k in range(8):
            for c in T.serial(64, annotations={"bulk_copy": 1}):
                if t == 0:
                    S[c] = A[k * 64 + c]
            B[k * 64 + t] = S[63 - t]

    After, with memory for an mbarrier, which is made ready before::

        for k in range(8):
            if t == 0:
                T.ptx_arrive_barrier_expect_tx(T.address_of(arrivals[0]), 256)
            if t == 0:
                with T.attr(None, "bulk_scope", T.address_of(arrivals[0])):
                    for c in range(64):
                        S[c] = A[k * 64 + c]
            T.ptx_wait_barrier(T.address_of(arrivals[0]), k % 2)
            B[k * 64 + t] = S[63 - t]

    GpuError where a row is none for bulk copies, or where it is not known how often the copies run.
    """

    def visit(s: Stmt) -> Stmt:
        if tag_of(s):
            return _Kernel(s).started()
        return s.map_children(lambda c: visit(c) if isinstance(c, Stmt) else c)

    return func.with_body(visit(func.body)) if _wanted(func.body) else func


def _wanted(s: Stmt) -> bool:
    return has_rows(s) or any(isinstance(n, AttrStmt) and n.attr_key == BULK_SCOPE for n in statements(s))


class _Kernel:
    """The copies of one kernel. ``made``: the mbarriers."""

    def __init__(self, kernel: Stmt) -> None:
        self.kernel = kernel
        _, self.body = inside_threads(kernel)
        self.rows = Rows.of(kernel)
        self.threads = self.rows.threads
        self.made: list[Arrivals] = []

    def started(self) -> Stmt:
        """Return the kernel with its copies."""
        if not _wanted(self.kernel):
            return self.kernel
        body = self._hoisted(self.visit(self.body, ()))
        ready = [
            Evaluate(Call(INIT, (one.address(const(n, "int32")), const(1, "int32")), "int32"))
            for one in self.made
            for n in range(one.slots)
        ]
        return self._with_memory(with_body(self.kernel, seq(first_thread(self.threads, seq(*ready)), barrier(), body)))

    def _hoisted(self, body: Stmt) -> Stmt:
        """Return the body without the allocations of mbarriers in it, which are noted."""

        def post(n: Node) -> Stmt | None:
            if not isinstance(n, Allocate) or n.buffer.scope != BARRIERS:
                return None
            self.made.append(Arrivals(n.buffer, int(n.buffer.shape[0])))  # type: ignore[call-overload]
            return n.body

        return transform_statements(body, post)

    def _with_memory(self, s: Stmt) -> Stmt:
        """Return the kernel with the memory of the mbarriers, inside of the loops over blocks."""
        threads = any(tag_of(n) for n in statements(s) if n is not s)
        if tag_of(s) in BLOCK_TAGS or (isinstance(s, Allocate) and threads):
            return s.with_(body=self._with_memory(s.body))  # type: ignore[attr-defined]
        for one in self.made:
            s = Allocate(one.buffer, s, {})
        return s

    def visit(self, s: Stmt, around: tuple[Stmt, ...]) -> Stmt:
        """Return a statement, inside of the loops and conditions ``around``, with its copies."""
        if not has_rows(s):
            return s
        if only_rows(s):
            return self._group([s], around)
        if isinstance(s, SeqStmt):
            return self._sequence(s.seq, around)
        return s.map_children(lambda c: self.visit(c, (*around, s)) if isinstance(c, Stmt) else c)

    def _sequence(self, children: Sequence[Stmt], around: tuple[Stmt, ...]) -> Stmt:
        out: list[Stmt] = []
        together: list[Stmt] = []
        for child in (*children, None):
            if child is not None and only_rows(child):
                together.append(child)
                continue
            if together:
                out.append(self._group(together, around))
                together = []
            if child is not None:
                out.append(self.visit(child, around))
        return seq(*out)

    def _group(self, copies: Sequence[Stmt], around: Sequence[Stmt]) -> Stmt:
        """Return copies that are awaited together."""
        arrivals = Arrivals.made("arrivals", 1)
        self.made.append(arrivals)
        total = sum(self.rows.bytes_of(s) for s in copies)
        n = number_of(around, self.threads)
        begun = [arrivals.begun(s, n, total if s is copies[0] else 0, self.rows) for s in copies]
        return seq(*begun, arrivals.awaited(n))
