"""Places barriers where one thread of a block uses what another one wrote, or writes what another one uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...codegen.lower.tile_accesses import stores_tile, tile_access, tile_spans
from ...tir.expr import BufferLoad, Call, Expr, IntImm, StringImm, Var, const, vars_in
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    children_of,
    seq,
)
from ...tir.walk import loads_and_stores, pre_order, statements
from .asynchronous_copies import BULK_SCOPE, BULK_WAIT
from .launch_form import THREAD_TAGS, GpuError, inside_threads, is_private, tag_of, with_body
from .thread_overlap import Overlaps, ThreadAccess

BARRIER = "tir.tvm_storage_sync"


def barrier() -> Stmt:
    """Returns the statement at which the threads of a block wait for each other."""
    return Evaluate(Call(BARRIER, (StringImm("shared"),), "int32"))


def is_barrier(s: object) -> bool:
    """Returns whether a statement is a barrier."""
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op == BARRIER


def place_barriers(func: PrimFunc) -> PrimFunc:
    """Return ``func``, whose kernels are in launch form, with the barriers that their threads need.

    Before::

        S[t] = A[t]
        B[t] = S[7 - t]

    After::

        S[t] = A[t]
        T.tvm_storage_sync("shared")
        B[t] = S[7 - t]

    Accesses of one element by one thread need none. GpuError where a barrier would stand under a condition that differs
    between threads.
    """

    def visit(s: Stmt) -> Stmt:
        if tag_of(s):
            loops, body = inside_threads(s)
            return with_body(s, _Placement(loops, body).run())
        return s.map_children(lambda c: visit(c) if isinstance(c, Stmt) else c)

    return func.with_body(visit(func.body))


class _Placement:
    """The placement in one kernel. ``pending``: the accesses since the last barrier; ``varying``: variables whose
    values may differ between threads; ``divergent``: the condition under which a barrier cannot stand."""

    def __init__(self, loops: Mapping[str, For], body: Stmt) -> None:
        self.body = body
        threads = {loops[tag].loop_var: int(loops[tag].extent) for tag in THREAD_TAGS if tag in loops}  # type: ignore[call-overload]
        self.overlaps = Overlaps(threads)
        self.varying: set[Var] = set(threads)
        self.pending: list[ThreadAccess] = []
        self.divergent = ""
        self.conditions: tuple[Expr, ...] = ()
        self.alone = all(n <= 1 for n in threads.values())
        found = [a for a in loads_and_stores(body) if not is_private(a.buffer.scope)]
        tiles = [(n.op, tile_access(n)) for n in pre_order(body) if isinstance(n, Call)]
        self.firsts = {first for _, first in tiles if first is not None}
        stored = {a.buffer.data for a in found if isinstance(a, BufferStore)}
        stored |= {first.buffer.data for op, first in tiles if first is not None and op.endswith("_store")}
        read = {a.buffer.data for a in found if isinstance(a, BufferLoad) and a not in self.firsts}
        read |= {first.buffer.data for op, first in tiles if first is not None and not op.endswith("_store")}
        self.watched = stored & read
        bulk = [n for n in statements(body) if isinstance(n, AttrStmt) and n.attr_key == BULK_SCOPE]
        self.beside = {a.indices for n in bulk for a in loads_and_stores(n)}
        """The places of accesses of copies in bulk, which all threads await."""

    def run(self) -> Stmt:
        """Return the body with barriers."""
        return self.body if self.alone or not self.watched else self.visit(self.body, ())

    # -- accesses ----------------------------------------------------------------------------------------------------

    def accesses(self, s: Stmt | Expr, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return all accesses in ``s`` that need watching."""
        if isinstance(s, For):
            return [*self._own(s, loops), *self.accesses(s.body, (*loops, s))]
        if isinstance(s, IfThenElse):
            outer, own = self.conditions, self._own(s, loops)
            self.conditions = (*outer, s.condition)
            then = self.accesses(s.then_case, loops)
            self.conditions = outer
            return [*own, *then, *([] if s.else_case is None else self.accesses(s.else_case, loops))]
        if isinstance(s, Stmt) and any(True for _ in statements(s) if _ is not s):
            below = [a for c in s.children() if isinstance(c, Stmt) for a in self.accesses(c, loops)]
            return [*self._own(s, loops), *below]
        return [*self._tiles(s, loops), *self._single(s, loops)]

    def _single(self, s: Stmt | Expr, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses to single elements."""
        found = [a for a in loads_and_stores(s) if a.buffer.data in self.watched and a not in self.firsts]
        return [self._access(a, loops) for a in found]

    def _tiles(self, s: Stmt | Expr, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses to tiles, each as one of all threads to all of its elements."""
        out = []
        for n in pre_order(s):
            first = tile_access(n)
            if first is None or first.buffer.data not in self.watched:
                continue
            assert isinstance(n, Call)
            at, inner = list(first.indices), []
            spans = tile_spans(n, first.buffer)
            if spans is None:  # somewhere in the buffer
                at, spans = [const(0, i.dtype) for i in at], dict.fromkeys(range(len(at)), 0)
            for d, count in spans.items():
                var = Var("tile", at[d].dtype)
                extent = const(count, var.dtype) if count else first.buffer.shape[d].astype(var.dtype)
                inner.append(For(var, const(0, var.dtype), extent, "serial", seq()))
                at[d] = at[d] + var
            out.append(ThreadAccess(first.buffer, tuple(at), stores_tile(n), (*loops, *inner), self.conditions))
        return out

    def _own(self, s: Stmt, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses of a statement apart from those inside it."""
        parts = [c for c in s.children() if isinstance(c, Expr)]
        return [a for e in parts for a in (*self._tiles(e, loops), *self._single(e, loops))]

    def _access(self, a: BufferLoad | BufferStore, loops: tuple[For, ...]) -> ThreadAccess:
        return ThreadAccess(a.buffer, a.indices, isinstance(a, BufferStore), loops, self.conditions)

    def conflict(
        self, earlier: Sequence[ThreadAccess], later: Sequence[ThreadAccess], repeated: For | None = None
    ) -> Buffer | None:
        """Return a buffer of which two threads may use one element, one of them to write it."""
        for a in earlier:
            for b in later:
                if self.overlaps.conflict(a, b, repeated):
                    return a.buffer
        return None

    # -- statements --------------------------------------------------------------------------------------------------

    def visit(self, s: Stmt, loops: tuple[For, ...]) -> Stmt:
        """Return ``s`` with barriers in it and, where it needs one, in front of it."""
        if is_barrier(s):
            self.pending = []
            return s
        if isinstance(s, (SeqStmt, Allocate, AttrStmt)):
            return self._within(s, loops)
        if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op == BULK_WAIT:
            self.pending = [a for a in self.pending if a.indices not in self.beside]
            return s
        buffer = self.conflict(self.pending, self._first_accesses(s, loops))
        if buffer is None:
            return self._within(s, loops)
        self._need(buffer)
        self.pending = []
        return seq(barrier(), self._within(s, loops))

    def _first_accesses(self, s: Stmt, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses of ``s`` that a barrier in it does not separate from what comes before."""
        if isinstance(s, For) and any(is_barrier(child) for child in children_of(s.body)):
            return [*self._own(s, loops), *self._until_barrier(s.body, (*loops, s))]
        return self.accesses(s, loops)

    def _need(self, buffer: Buffer) -> None:
        if self.divergent:
            raise GpuError(
                f"threads exchange values through {buffer.name} under {self.divergent}, where not all of them arrive "
                "at a barrier; use sizes that divide, so that the condition goes"
            )

    def _within(self, s: Stmt, loops: tuple[For, ...]) -> Stmt:
        if isinstance(s, For):
            return self._loop(s, loops)
        if isinstance(s, IfThenElse):
            return self._branch(s, loops)
        if isinstance(s, LetStmt):
            self.pending.extend(self._own(s, loops))
            if self._varies(s.value):
                self.varying.add(s.var)
            return s.with_(body=self.visit(s.body, loops))
        if isinstance(s, (SeqStmt, Allocate, AttrStmt)):
            return s.map_children(lambda c: self.visit(c, loops) if isinstance(c, Stmt) else c)
        self.pending.extend(self.accesses(s, loops))
        return s

    def _loop(self, s: For, loops: tuple[For, ...]) -> Stmt:
        outer, inner = self.divergent, (*loops, s)
        if self._varies(s.min) or self._varies(s.extent):
            self.divergent = self.divergent or f"the loop {s.loop_var.name}"
        before, self.pending = self.pending, self._own(s, loops)
        body = self.visit(s.body, inner)
        one_iteration = isinstance(s.extent, IntImm) and s.extent.value <= 1
        if not one_iteration:
            head = self._until_barrier(body, inner)
            buffer = self.conflict(self.pending, head, s)
            if buffer is not None:
                self._need(buffer)
                body = seq(body, barrier())
                self.pending = []
        self.pending = [*before, *self.pending]
        self.divergent = outer
        return s if body is s.body else s.with_(body=body)

    def _until_barrier(self, s: Stmt, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses of ``s`` that may happen before its first barrier."""
        out: list[ThreadAccess] = []
        for child in children_of(s):
            if is_barrier(child):
                return out
            if isinstance(child, (Allocate, AttrStmt)) and child is not s:
                return [*out, *self._until_barrier(child.body, loops)]
            out.extend(self.accesses(child, loops))
        return out

    def _branch(self, s: IfThenElse, loops: tuple[For, ...]) -> Stmt:
        outer = self.divergent
        if self._varies(s.condition):
            self.divergent = self.divergent or f"the condition {s.condition}"
        self.pending.extend(self._own(s, loops))
        before, around = list(self.pending), self.conditions
        self.conditions = (*around, s.condition)
        then = self.visit(s.then_case, loops)
        self.conditions, after = around, self.pending
        other = s.else_case
        if other is not None:
            self.pending = before
            other = self.visit(other, loops)
            after = [*after, *self.pending]
        self.pending = [*before, *[a for a in after if a not in before]]
        self.divergent = outer
        if then is s.then_case and other is s.else_case:
            return s
        return IfThenElse(s.condition, then, other)

    def _varies(self, e: Expr) -> bool:
        """Return whether a value may differ between the threads of a block."""
        if not vars_in(e).isdisjoint(self.varying):
            return True
        return any(isinstance(n, BufferLoad) and n.buffer.data in self.watched or
                   isinstance(n, BufferLoad) and is_private(n.buffer.scope) for n in pre_order(e))  # fmt: skip
