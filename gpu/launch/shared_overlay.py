"""Gives shared buffers of different times one place, as the sums and the operands of a product."""

from __future__ import annotations

from collections.abc import Mapping

from ...codegen.machine.target import OVERLAID_SHARED
from ...tir.expr import Var
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, AttrStmt, Buffer, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import pre_order, statements, transform_statements
from .barriers import barrier
from .bulk_copies import BARRIERS
from .kernels import PLACE, placed, shared_bytes, shared_size
from .launch_form import inside_threads, is_shared, tag_of, with_body


def overlay_shared(func: PrimFunc) -> PrimFunc:
    """Return ``func``, in launch form, whose large kernels keep shared buffers of different times at one place.

    Before (with buffers of 64 KiB)::

        S[t] = A[t]
        L[0] = S[7 - t]
        R[t] = L[0]
        B[t] = R[7 - t]

    After, where both allocations say that they begin at 0::

        S[t] = A[t]
        L[0] = S[7 - t]
        T.tvm_storage_sync("shared")
        R[t] = L[0]
        B[t] = R[7 - t]

    Other barriers are placed later. A kernel whose buffers take less than 96 KiB together stays as it is: several blocks run on a
    multiprocessor then, and separate places let compilers exchange accesses.
    """

    def visit(s: Stmt) -> Stmt:
        if tag_of(s):
            return _overlaid(s) if shared_bytes(s) > OVERLAID_SHARED else s
        return s.map_children(lambda c: visit(c) if isinstance(c, Stmt) else c)

    return func.with_body(visit(func.body))


def _overlaid(kernel: Stmt) -> Stmt:
    _, body = inside_threads(kernel)
    spans = _spans(kernel, body)
    found = [s.buffer for s in statements(kernel) if isinstance(s, Allocate) and is_shared(s.buffer.scope)]
    always = (0, len(_steps(body)))
    lives = {b: always if b.scope == BARRIERS else spans.get(b.data, always) for b in found}
    places: dict[Buffer, int] = {}
    waits: set[int] = set()
    for buffer in sorted(found, key=lambda b: (lives[b][0], -shared_size(b))):
        room, earlier = 0, False
        for other, start in sorted(places.items(), key=lambda item: item[1]):
            if lives[other][1] >= lives[buffer][0] and placed(buffer, room) + shared_size(buffer) > start:
                room = max(room, start + shared_size(other))
        places[buffer] = placed(buffer, room)
        end = places[buffer] + shared_size(buffer)
        for other, start in places.items():
            if other is not buffer and start < end and places[buffer] < start + shared_size(other):
                earlier = True
        if earlier:
            waits.add(lives[buffer][0])
    if not waits:
        return kernel
    body = _with_waits(body, waits)

    def post(n: IRNode) -> Stmt | None:
        if isinstance(n, Allocate) and n.buffer in places:
            return Allocate(n.buffer, n.body, {**n.annotations, PLACE: places[n.buffer]})
        return None

    return transform_statements(with_body(kernel, body), post)


def _steps(s: Stmt) -> list[Stmt]:
    """Return the statements that run one after the other."""
    if isinstance(s, SeqStmt):
        return [step for child in s.seq for step in _steps(child)]
    return _steps(s.body) if isinstance(s, (Allocate, AttrStmt)) else [s]


def _spans(kernel: Stmt, body: Stmt) -> Mapping[Var, tuple[int, int]]:
    """Return for memory its first and its last step that names it."""
    out: dict[Var, tuple[int, int]] = {}
    for n, step in enumerate(_steps(body)):
        for node in pre_order(step):
            data = node if isinstance(node, Var) else getattr(getattr(node, "buffer", None), "data", None)
            if isinstance(data, Var):
                out[data] = (out.get(data, (n, n))[0], n)
    return out


def _with_waits(body: Stmt, waits: set[int]) -> Stmt:
    """Return ``body`` with a barrier in front of each of these steps."""
    count = -1

    def visit(s: Stmt) -> Stmt:
        nonlocal count
        if isinstance(s, SeqStmt):
            return seq(*[visit(child) for child in s.seq])
        if isinstance(s, (Allocate, AttrStmt)):
            return s.with_(body=visit(s.body))
        count += 1
        return seq(barrier(), s) if count in waits else s

    return visit(body)
