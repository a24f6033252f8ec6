"""Rows of copies from global to shared memory that one thread starts and that run beside the threads:
``cp.async.bulk``.

A loop with the annotation ``bulk_copy`` copies one row. Its bytes arrive at an mbarrier in shared memory, a number of 64 bits that counts
them. ``T.ptx_arrive_barrier_expect_tx(address, bytes)`` says how many bytes a phase of the mbarrier has, and
``T.ptx_wait_barrier(address, parity)`` waits until the phase that this thread is at has all of them; the next phase begins then, with the
other parity. The statement of a row has the attribute ``bulk_scope``, whose value is the address of the mbarrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import prod

import numpy as np

from ...tir.arith.normal_form.forms import Linear, collect
from ...tir.expr import BufferLoad, Call, DType, Expr, IntImm, Var, const, vars_in
from ...tir.expr.node import IRNode
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    children_of,
    seq,
)
from ...tir.walk import loads_and_stores, pre_order, statements, substitute, transform_statements
from .barriers import BULK_SCOPE, BULK_WAIT, MOST, barrier, values_of
from .launch_form import (
    BLOCK_TAGS,
    SWIZZLED,
    THREAD_TAGS,
    GpuError,
    inside_threads,
    is_shared,
    tag_of,
    with_body,
)

BULK = "bulk_copy"
"""The annotation of a loop that copies a row."""
BARRIERS = "shared.barrier"
"""The scope of mbarriers."""
EXPECT = "tir.ptx_arrive_barrier_expect_tx"
PIECE = 16
"""Rows begin at multiples of so many bytes, and have a multiple of them."""


def copies(s: BufferStore, written: Set[Var]) -> bool:
    """Returns whether a store moves an element of global memory that is only read to shared memory."""
    value = s.value
    if not isinstance(value, BufferLoad) or value.dtype.element != s.buffer.dtype.element:
        return False
    return is_shared(s.buffer.scope) and value.buffer.scope == "global" and value.buffer.data not in written


def is_row(s: object) -> bool:
    """Returns whether a statement is a loop that copies a row in bulk."""
    return isinstance(s, For) and BULK in s.annotations


def has_rows(s: Stmt) -> bool:
    """Returns whether rows are copied in bulk anywhere in a statement."""
    return any(is_row(n) for n in statements(s))


def only_rows(s: Stmt) -> bool:
    """Returns whether a statement does nothing else than copying rows in bulk."""
    held = {id(a) for n in statements(s) if is_row(n) for a in loads_and_stores(n)}
    stores = [a for a in loads_and_stores(s) if isinstance(a, BufferStore)]
    return bool(held) and all(id(a) in held for a in stores) and not any(isinstance(n, Evaluate) for n in statements(s))


@dataclass(frozen=True, eq=False)
class Rows:
    """What the copies of a kernel have in common. ``threads``: the extents of the variables of its threads; ``written``: the memory that
    it writes."""

    threads: Mapping[Var, int]
    written: Set[Var]

    @staticmethod
    def of(kernel: Stmt) -> Rows:
        """Return what the copies of a kernel in launch form have in common."""
        loops, _ = inside_threads(kernel)
        threads = [loops[tag] for tag in THREAD_TAGS if tag in loops]
        written = {a.buffer.data for a in loads_and_stores(kernel) if isinstance(a, BufferStore)}
        return Rows({loop.loop_var: int(loop.extent) for loop in threads}, written)  # type: ignore[call-overload]

    def bytes_of(self, s: Stmt, loops: Sequence[For] = (), conditions: Sequence[Expr] = ()) -> int:
        """Return how many bytes the rows in ``s`` have together, over all threads of a block.

        GpuError for a row that is not whole pieces of 16 bytes at such places, and for copies whose number is not known.
        """
        if is_row(s):
            assert isinstance(s, For)
            inner, store = _conditions(s.body)
            return self._row(s, store) * self._times(
                store, loops, [*conditions, *inner, *self.alone(store, (*conditions, *inner))]
            )
        if isinstance(s, For):
            return self.bytes_of(s.body, (*loops, s), conditions)
        if isinstance(s, IfThenElse) and s.else_case is None:
            return self.bytes_of(s.then_case, loops, (*conditions, s.condition))
        return sum(self.bytes_of(child, loops, conditions) for child in children_of(s) if child is not s)

    def alone(self, store: Stmt, conditions: Sequence[Expr]) -> list[Expr]:
        """Return the conditions under which one thread is left of those that would copy the same row."""
        assert isinstance(store, BufferStore)
        used = set().union(*[vars_in(e) for e in (*conditions, *store.indices, store.value)])
        return [
            var.equal(const(0, var.dtype)) for var, extent in self.threads.items() if extent > 1 and var not in used
        ]

    def _row(self, loop: For, store: Stmt) -> int:
        """Return the bytes of one row."""
        if not isinstance(store, BufferStore) or store.predicate is not None or not copies(store, self.written):
            name = store.buffer.name if isinstance(store, BufferStore) else loop.loop_var.name
            raise GpuError(f"{name} cannot be filled by bulk copies, which move elements of global memory that the kernel only reads to "
                           "shared memory as they are")  # fmt: skip
        assert isinstance(store.value, BufferLoad)
        to, size = store.buffer, store.buffer.dtype.bytes
        if to.scope == SWIZZLED:
            raise _refused(to, f"{SWIZZLED} exchanges pieces of a row, which takes tensor maps")
        if not isinstance(loop.extent, IntImm) or not isinstance(loop.min, IntImm):
            raise _refused(to, f"its row has {loop.extent} elements, which is no constant")
        if loop.extent.value * size % PIECE:
            raise _refused(to, f"a row of {loop.extent.value} elements has {loop.extent.value * size} bytes, and bulk copies "
                           f"move multiples of {PIECE}")  # fmt: skip
        for buffer, indices in ((to, store.indices), (store.value.buffer, store.value.indices)):
            why = _misplaced(loop.loop_var, buffer, indices)
            if why:
                raise _refused(to, f"{buffer.name} {why}")
        return loop.extent.value * size

    def _times(self, store: Stmt, loops: Sequence[For], conditions: Sequence[Expr]) -> int:
        """Return how many threads and iterations of ``loops`` meet the conditions together."""
        assert isinstance(store, BufferStore)
        domain = dict(self.threads)
        for loop in loops:
            if not (isinstance(loop.extent, IntImm) and isinstance(loop.min, IntImm)):
                raise _refused(store.buffer, f"the loop {loop.loop_var.name} has no constant extent")
            domain[loop.loop_var] = loop.extent.value
        used = set().union(*[vars_in(c) for c in conditions]) if conditions else set()
        inside = {v: n for v, n in domain.items() if v in used}
        others = prod(n for v, n in domain.items() if v not in used)
        first = {loop.loop_var: int(loop.min) for loop in loops}  # type: ignore[call-overload]
        grids = np.indices(tuple(inside.values()), dtype=np.int64) if inside else np.zeros((0, 1), np.int64)
        values = {v: grids[n].ravel() + first.get(v, 0) for n, v in enumerate(inside)}
        holds = np.ones(prod(inside.values()), bool)
        for condition in conditions:
            found = values_of(condition, values) if len(holds) <= MOST else None
            if found is None:
                raise _refused(store.buffer, f"the number of rows depends on the condition {condition}")
            holds = holds & found
        return int(holds.sum()) * others


def _conditions(s: Stmt) -> tuple[list[Expr], Stmt]:
    """Returns the conditions around a statement, and the statement."""
    out: list[Expr] = []
    while isinstance(s, IfThenElse) and s.else_case is None:
        out.append(s.condition)
        s = s.then_case
    return out, s


def _refused(to: Buffer, why: str) -> GpuError:
    return GpuError(f"{to.name} cannot be filled by bulk copies: {why}")


def _misplaced(row: Var, buffer: Buffer, indices: Sequence[Expr]) -> str:
    """Returns why a row does not lie side by side at a multiple of 16 bytes, or an empty text."""
    total = Linear()
    for index, stride in zip(indices, buffer.element_strides(), strict=True):
        form = collect(index, lambda e: Linear(0, {e: 1}))
        assert form is not None
        if isinstance(stride, IntImm):
            total = total.plus(form.times(stride.value))
        else:
            total = total.plus(Linear(0, {stride: 1}))
    inside = {t: c for t, c in total.terms.items() if row in vars_in(t)}
    if inside != {row: 1}:
        return "does not have the elements of a row side by side"
    pieces = [total.const, *[c for t, c in total.terms.items() if t is not row]]
    if any(c * buffer.dtype.bytes % PIECE for c in pieces):
        return f"has rows that do not all begin at a multiple of {PIECE} bytes"
    return ""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The mbarriers of copies that follow each other: copy number ``n`` arrives at number ``n % slots``."""

    buffer: Buffer
    slots: int

    @staticmethod
    def made(name: str, slots: int) -> Arrivals:
        """Return new mbarriers."""
        return Arrivals(Buffer(name, (const(slots, "int32"),), DType("uint64"), scope=BARRIERS), slots)

    def address(self, n: Expr) -> Expr:
        """Return the address of the mbarrier of a copy."""
        slot = n % const(self.slots, n.dtype) if self.slots > 1 else const(0, n.dtype)
        return Call("tir.address_of", (BufferLoad(self.buffer, (slot,)),), "handle")

    def begun(self, s: Stmt, n: Expr, expected: int, rows: Rows) -> Stmt:
        """Return ``s``, whose rows arrive as copy number ``n``; one thread says before how many bytes, where some are expected."""

        def copy(node: Stmt, around: tuple[Expr, ...]) -> Stmt:
            if isinstance(node, IfThenElse):
                return node.with_(then_case=copy(node.then_case, (*around, node.condition)))
            if not is_row(node):
                return node.map_children(lambda c: copy(c, around) if isinstance(c, Stmt) else c)
            assert isinstance(node, For)
            conditions, store = _conditions(node.body)
            conditions += rows.alone(store, (*around, *conditions))
            notes = {key: value for key, value in node.annotations.items() if key != BULK}
            out: Stmt = AttrStmt(None, BULK_SCOPE, self.address(n), node.with_(body=store, annotations=notes))
            for condition in reversed(conditions):
                out = IfThenElse(condition, out)
            return out

        copied = copy(s, ())
        if not expected:
            return copied
        says = Evaluate(Call(EXPECT, (self.address(n), const(expected, "int32")), "int32"))
        return seq(first_thread(rows.threads, says), copied)

    def awaited(self, n: Expr) -> Stmt:
        """Return the statement that waits for copy number ``n``."""
        phase = n // const(self.slots, n.dtype) if self.slots > 1 else n
        return Evaluate(Call(BULK_WAIT, (self.address(n), phase % const(2, n.dtype)), "int32"))


def first_thread(threads: Mapping[Var, int], s: Stmt) -> Stmt:
    """Returns ``s`` for the first thread of a block alone."""
    for var, extent in threads.items():
        if extent > 1:
            s = IfThenElse(var.equal(const(0, var.dtype)), s)
    return s


def number_of(around: Sequence[Stmt], threads: Mapping[Var, int], dtype: str = "int32") -> Expr:
    """Returns how often a statement ran before. ``around``: the loops and conditions around it in its kernel, outermost first.

    GpuError where that is not known, or differs between threads.
    """
    out: Expr = const(0, dtype)
    own = set(threads)
    for s in around:
        if isinstance(s, For):
            if not (isinstance(s.extent, IntImm) and isinstance(s.min, IntImm)):
                raise GpuError(
                    f"bulk copies in the loop {s.loop_var.name}, whose extent is no constant, cannot be counted"
                )
            own.add(s.loop_var)
            step = s.loop_var if s.min.value == 0 else s.loop_var - s.min
            out = out * s.extent.value + step.astype(dtype)
        elif isinstance(s, IfThenElse):
            reads = any(isinstance(n, BufferLoad) for n in pre_order(s.condition))
            if reads or not vars_in(s.condition).isdisjoint(own):
                raise GpuError(
                    f"bulk copies under the condition {s.condition}, which differs between threads or iterations, cannot be counted"
                )
        elif not isinstance(s, (SeqStmt, AttrStmt, Allocate)):
            raise GpuError(f"bulk copies in a {type(s).__name__} cannot be counted")
    return out


# Starts copies of whole rows (:mod:`.bulk_copies`) outside of pipelines, and makes the mbarriers of all of them ready.

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
            return _CopyingKernel(s).started()
        return s.map_children(lambda c: visit(c) if isinstance(c, Stmt) else c)

    return func.with_body(visit(func.body)) if _wanted(func.body) else func


def _wanted(s: Stmt) -> bool:
    return has_rows(s) or any(isinstance(n, AttrStmt) and n.attr_key == BULK_SCOPE for n in statements(s))


class _CopyingKernel:
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

        def post(n: IRNode) -> Stmt | None:
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


# Makes one instruction of each row that is copied in bulk, for machine code of one thread.

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

    def post(n: IRNode) -> Stmt | None:
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
