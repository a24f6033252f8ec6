"""Shrinks shared memory to what the threads of a block use of it at a time.

Shared memory stands around the threads, so that the box of its accesses spans all iterations of the loops inside. Where a
block allocates it inside a loop, what one iteration uses is enough: the box of all threads, in that iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...codegen.lower.compact_buffers import compact_buffers
from ...tir.annotations import ALIGN
from ...tir.expr import Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, AttrStmt, For, PrimFunc, Stmt
from ...tir.walk import statements, substitute, transform_statements
from .launch_form import SCOPE_ATTR, THREAD_TAGS, inside_threads, is_shared, tag_of, with_body

_ROOM = "gpu.room_of"
"""The annotation of the loops over all threads inside an allocation."""


def narrow_shared(func: PrimFunc) -> PrimFunc:
    """Return ``func``, in launch form, with shared buffers of the shape that is in use at a time.

    Before::

        S = T.decl_buffer((16, 64), scope="shared")
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for k in range(8):
                for i in range(8): S[t, k * 8 + i] = ...
                ...

    After::

        S = T.decl_buffer((16, 8), scope="shared")
        for t in T.thread_binding(16, thread="threadIdx.x"):
            for k in range(8):
                for i in range(8): S[t, i] = ...
                ...
    """
    if not any(isinstance(s, AttrStmt) and s.attr_key == SCOPE_ATTR for s in statements(func.body)):
        return func
    return _kernels(compact_buffers(_kernels(func, _sink)), _raise)


def _kernels(func: PrimFunc, rewrite: object) -> PrimFunc:
    def visit(s: Stmt) -> Stmt:
        if tag_of(s):
            return rewrite(s)  # type: ignore[operator]
        return s.map_children(lambda c: visit(c) if isinstance(c, Stmt) else c)

    return func.with_body(visit(func.body))


def _sink(kernel: Stmt) -> Stmt:
    """Return a kernel with each shared buffer allocated where its block did, around loops over all threads."""
    loops, _ = inside_threads(kernel)
    threads = [loops[tag] for tag in THREAD_TAGS if tag in loops]
    allocs = {s.annotations[SCOPE_ATTR]: s for s in statements(kernel) if isinstance(s, Allocate) and _numbered(s)}

    def post(n: IRNode) -> Stmt | None:
        if _numbered(n):
            return n.body  # type: ignore[attr-defined]
        if not (isinstance(n, AttrStmt) and n.attr_key == SCOPE_ATTR):
            return None
        alloc = allocs[n.value.value]  # type: ignore[attr-defined]
        out = n.body
        for loop in reversed(threads):
            var = Var(loop.loop_var.name, loop.loop_var.dtype)
            body = substitute(out, {loop.loop_var: var})
            out = For(var, const(0, var.dtype), loop.extent, "serial", body, None, {_ROOM: loop.thread_binding})
        wishes = {ALIGN: alloc.annotations["gpu.align"]} if "gpu.align" in alloc.annotations else {}
        return Allocate(alloc.buffer, out, wishes)

    return transform_statements(kernel, post)


def _numbered(n: object) -> bool:
    return isinstance(n, Allocate) and SCOPE_ATTR in n.annotations


def _raise(kernel: Stmt) -> Stmt:
    """Return a kernel with its shared buffers around the threads again."""
    loops, body = inside_threads(kernel)
    shared: list[Allocate] = []

    def post(n: IRNode) -> Stmt | None:
        if isinstance(n, For) and _ROOM in n.annotations:
            return substitute(n.body, {n.loop_var: loops[n.annotations[_ROOM]].loop_var})
        if isinstance(n, Allocate) and is_shared(n.buffer.scope):
            shared.append(n)
            return n.body
        return None

    body = transform_statements(body, post)
    first = next((loops[tag] for tag in THREAD_TAGS if tag in loops), None)
    if first is None:  # one thread, whose body they stand around
        return with_body(kernel, _allocating(shared, body))

    def around(n: IRNode) -> Stmt | None:
        return _allocating(shared, n) if isinstance(n, For) and n.loop_var is first.loop_var else None

    return transform_statements(with_body(kernel, body), around)


def _allocating(shared: Sequence[Allocate], body: Stmt) -> Stmt:
    for alloc in shared:
        body = Allocate(alloc.buffer, body)
    return body
