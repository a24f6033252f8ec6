"""Gives loops the forms that a target has: vector extents, plain loops for text without vectors, no single iterations."""

from __future__ import annotations

import math

from ...tir.expr import BufferLoad, FloorDiv, FloorMod, IntImm, Var, const, op
from ...tir.expr.node import IRNode
from ...tir.stmt import BufferStore, For, IfThenElse, PrimFunc, Stmt, seq
from ...tir.walk import all_nodes, statements, substitute, transform_statements, uses_var, vars_in
from ..lowered import size_vars
from ..machine.target import Target
from .loop_annotations import (
    HLS_UNROLL,
    HORIZONTAL,
    NONTEMPORAL,
    PREFETCH_DISTANCE,
    PREFETCH_NEXT,
    TAIL,
    UNROLL_FACTOR,
    steps_number,
    with_pragmas_of,
    without,
)


def loops_for_hls(func: PrimFunc, target: Target) -> PrimFunc:
    """Return ``func`` with unrolled and vector loops as serial ones for targets with ``-hls``.

    Before::

        for k in T.unroll(4): f(k)

    After::

        for k in T.serial(4, annotations={"pragma_hls_unroll": 0}): f(k)

    0 stands for all iterations; ``pragma_unroll_factor`` gives another number.
    """
    if not target.is_hls:
        return func

    def post(n: IRNode) -> Stmt | None:
        if not isinstance(n, For):
            return None
        if n.kind in ("unrolled", "vectorized"):
            return n.with_(kind="serial", annotations={**n.annotations, HLS_UNROLL: 0})
        if UNROLL_FACTOR in n.annotations:
            factor = steps_number(n.annotations[UNROLL_FACTOR], UNROLL_FACTOR, f"loop {n.loop_var.name}")
            loop = without(n, UNROLL_FACTOR)
            return loop.with_(annotations={**loop.annotations, HLS_UNROLL: factor})
        return None

    return transform_statements(func, post)


_OF_VECTORS = (HORIZONTAL, NONTEMPORAL, PREFETCH_DISTANCE, PREFETCH_NEXT, TAIL)


def serialize_vector_loops(func: PrimFunc, target: Target) -> PrimFunc:
    """Replace vector loops by serial ones for strict C, and remove the pragmas that name a machine's abilities.

    The compiler of the text vectorizes such loops itself. Vectors that a program writes out remain.
    """
    if not target.is_portable_c:
        return func

    def post(n: IRNode) -> Stmt | None:
        if not isinstance(n, For):
            return None
        loop = n.with_(kind="serial") if n.kind == "vectorized" else n
        for key in _OF_VECTORS:
            if key in loop.annotations:
                loop = without(loop, key)
        return None if loop is n else loop

    return transform_statements(func, post)


_MAX_VECTORS_AT_ONCE = 4

_MOST_VECTORS, _MOST_WITH_PERIODS = 8, 32
"""The most vectors of a loop that are written out; more where an index has a period that is not made of whole vectors."""


def remove_unit_loops(func: PrimFunc) -> PrimFunc:
    """Replace loops of one iteration by their bodies, and remove loops without iterations.

    An unrolled loop that is as long as a size says is a serial one, which is split where its checks end.
    """

    def post(n: IRNode) -> Stmt | None:
        if isinstance(n, For) and isinstance(n.extent, IntImm) and n.kind != "thread_binding":
            if n.extent.value == 1:
                return with_pragmas_of(n, substitute(n.body, {n.loop_var: n.min}))
            if n.extent.value <= 0:
                return seq()
        if isinstance(n, For) and n.kind == "unrolled" and (used := vars_in(n.extent)) and not used - sizes:
            return n.with_(kind="serial")
        return None

    sizes = {*func.params, *size_vars(func)}
    return transform_statements(func, post)


def legalize_vector_loops(func: PrimFunc, target: Target) -> PrimFunc:
    """Give vector loops extents that are powers of two and fill a few registers.

    Other extents become a loop over full vectors, the last one guarded (and masked later)::

        for v in T.vectorized(23): f(v)            # eight lanes

        for v_o in T.unroll(3):
            for v_i in T.vectorized(8):
                if v_o * 8 + v_i < 23: f(v_o * 8 + v_i)

    Vectors of several registers are taken apart where an index such as ``v % 96`` begins again between these. A vector loop around another one, which has no vector form, becomes serial here, so that its body is not repeated.
    """

    def post(n: IRNode) -> Stmt | None:
        if not (isinstance(n, For) and n.kind == "vectorized"):
            return None
        if any([type(m) is For and m.kind == "vectorized" for m in statements(n.body)]):
            return n.with_(kind="serial")
        lanes = _lanes(n.body, target)
        extent = n.extent.value if isinstance(n.extent, IntImm) else None
        if extent is not None and extent & (extent - 1) == 0 and extent <= _MAX_VECTORS_AT_ONCE * lanes:
            whole = _within_periods(n, extent, lanes)
            if whole == extent:
                return None
            lanes = whole
        if extent is not None and extent < lanes:
            lanes = 1 << (extent - 1).bit_length()
        dtype = n.loop_var.dtype
        outer, inner = Var(f"{n.loop_var.name}_o", dtype), Var(f"{n.loop_var.name}_i", dtype)
        step = outer * lanes + inner
        body = substitute(n.body, {n.loop_var: n.min + step})
        if extent is None or extent % lanes:
            body = IfThenElse(step < n.extent, body)
        vector = For(inner, const(0, dtype), const(lanes, dtype), "vectorized", body, None, n.annotations)
        trip_count = op.ceildiv(n.extent, lanes)
        # where an index begins again within a vector, its lanes are known if the vector's number is
        most = _MOST_WITH_PERIODS if any(p % lanes for p in _periods(n)) else _MOST_VECTORS
        few = isinstance(trip_count, IntImm) and trip_count.value <= most
        return For(outer, const(0, dtype), trip_count, "unrolled" if few else "serial", vector)

    return transform_statements(func, post)


def _periods(loop: For) -> set[int]:
    """Returns the numbers by which indices divide the iterations, as in ``v % 96`` and ``v // 4``."""
    return {
        n.b.value
        for n in all_nodes(loop.body)
        if (type(n) is FloorDiv or type(n) is FloorMod) and isinstance(n.b, IntImm) and uses_var(n.a, loop.loop_var)
    }


def _within_periods(loop: For, extent: int, lanes: int) -> int:
    """Returns how many iterations lie in one period of each index whose period is made of whole registers."""
    return math.gcd(extent, *[period for period in _periods(loop) if period % lanes == 0])


def _lanes(body: Stmt, target: Target) -> int:
    """Returns the lanes of one register for the widest element type that the body uses."""
    widest = 8
    for n in all_nodes(body):
        if (type(n) is BufferLoad or type(n) is BufferStore) and not n.buffer.dtype.is_bool:
            widest = max(widest, 32 if n.buffer.dtype.bits == 16 else n.buffer.dtype.bits)
    return max(1, target.vector_bits // widest)
