"""Non-temporal stores: loops over contiguous memory are shifted so that full vectors are aligned and bypass the caches.

A store that overwrites whole cache lines need not read them first, when the processor is told that it will not be used
soon (movntps and its kin). Those instructions want addresses that are multiples of the vector's size, and NumPy's large
arrays start 16 bytes after one. So the loop is shifted by the elements that are too many: a masked vector at its start,
full aligned vectors, a masked vector at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from ...tir.arith import Analyzer, constant_coefficients
from ...tir.expr import BufferLoad, Call, Expr, IntImm, Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, AttrStmt, Buffer, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, While, seq
from ...tir.walk import fresh_copy, pre_order, substitute, transform, transform_statements, vars_in
from ..lowered import ALIGNED, NONTEMPORAL_ATTR
from ..machine.target import Target
from .loop_annotations import NONTEMPORAL, plain_value, without
from .scoped_transform import ScopedTransform

_FEWEST_TRIPS = 4


def mark_nontemporal_stores(func: PrimFunc) -> PrimFunc:
    """Turn the loop annotation ``pragma_nontemporal_store`` into an attribute around the loop, as a block has it.

    The attribute remains when loops are unrolled or fused. The value 0 removes it.

    Before::

        for i in T.serial(64, annotations={"pragma_nontemporal_store": 1}): ...

    After::

        with T.attr(None, "nontemporal_store", 1):
            for i in range(64): ...
    """

    def post(n: IRNode) -> Stmt | None:
        if isinstance(n, For) and NONTEMPORAL in n.annotations:
            return _marked(without(n, NONTEMPORAL), n.annotations[NONTEMPORAL])
        if isinstance(n, AttrStmt) and n.attr_key == NONTEMPORAL:
            return _marked(n.body, n.value)
        return None

    return transform_statements(func, post)


def _marked(body: Stmt, value: object) -> Stmt:
    return AttrStmt(None, NONTEMPORAL_ATTR, const(1), body) if plain_value(value) else body


def align_nontemporal_stores(func: PrimFunc, target: Target) -> PrimFunc:
    """Shift marked loops so that their vector stores are aligned.

    Before::

        with T.attr(None, "nontemporal_store", 1):
            for i in range(64):
                for v in T.vectorized(16): B[i * 16 + v] = f(A[i * 16 + v])

    After (``s``: the elements by which ``B[0]`` lies behind a multiple of 64 bytes)::

        s: T.int32 = T.misaligned(T.address_of(B[0]), 64) // 4
        for v in T.vectorized(16):
            if v >= s: B[v - s] = f(A[v - s])
        with T.attr(None, "nontemporal_store", 2):
            for i in range(63):
                for v in T.vectorized(16): B[(i + 1) * 16 + (v - s)] = f(A[(i + 1) * 16 + (v - s)])
        if s > 0:
            for v in T.vectorized(16):
                if v < s: B[1024 + (v - s)] = f(A[1024 + (v - s)])

    It applies to a serial loop over (unrolled loops over) a vector loop without conditions whose only store is
    contiguous and whose body depends on the linear index of the element alone. Elsewhere the mark stays, and only
    stores that the emitter proves to be aligned (in scratch memory) are non-temporal.
    """
    own = {n.buffer.data for n in pre_order(func.body) if isinstance(n, Allocate)}

    def unmarked(s: AttrStmt, scope: ScopedTransform) -> Stmt:
        new = scope.below(s)
        return new.body if new is not s and s.attr_key == NONTEMPORAL_ATTR else new

    def shifted(loop: For, scope: ScopedTransform) -> Stmt | None:
        if loop.kind != "serial":
            return None
        stream = _stream(loop, target, any(_is_mark(s) for s in scope.path))
        return None if stream is None or stream.store.buffer.data in own else _shifted(stream)

    return ScopedTransform({AttrStmt: unmarked, For: shifted}).function(func)


def _is_mark(n: object) -> TypeGuard[AttrStmt]:
    return isinstance(n, AttrStmt) and n.attr_key == NONTEMPORAL_ATTR


@dataclass(frozen=True)
class _Stream:
    """A loop nest to shift. ``loops``: from the serial one to the vector loop; ``body``: the statement below them,
    without marks."""

    loops: tuple[For, ...]
    body: Stmt
    store: BufferStore
    vector_bytes: int


def _stream(outer: For, target: Target, active: bool) -> _Stream | None:
    """Returns the nest at ``outer`` when it can be shifted, else None."""
    loops: list[For] = []
    body: Stmt = outer
    marked = active
    while True:
        if _is_mark(body):
            marked, body = True, body.body
        elif isinstance(body, For) and not (loops and loops[-1].kind == "vectorized"):
            if loops and body.kind not in ("unrolled", "vectorized"):
                return None
            loops.append(body)
            body = body.body
        else:
            break
    if loops[-1].kind != "vectorized" or len(loops) < 2:
        return None
    for loop in loops:
        if not (isinstance(loop.min, IntImm) and loop.min.value == 0):
            return None
        if loop is not outer and not isinstance(loop.extent, IntImm):
            return None

    def strip(n: IRNode) -> Stmt | None:
        nonlocal marked
        if _is_mark(n):
            marked = True
            return n.body
        return None

    body = transform(body, post=strip)
    if not marked:
        return None
    stores = [n for n in pre_order(body) if isinstance(n, BufferStore)]
    inner = [n for n in pre_order(body) if isinstance(n, (For, LetStmt, Allocate, IfThenElse, While))]
    if len(stores) != 1 or inner or stores[0].predicate is not None:
        return None
    store = stores[0]
    if store.value.dtype.lanes != 1 or store.buffer.dtype.lanes != 1:
        return None
    if isinstance(outer.extent, IntImm) and outer.extent.value < _FEWEST_TRIPS:
        return None
    lanes = int(loops[-1].extent)  # type: ignore[call-overload]
    size = min(lanes * store.buffer.dtype.bytes, target.vector_bits // 8)
    if size < 16 or lanes & (lanes - 1):
        return None
    if any(isinstance(n, BufferLoad) and n.buffer.data is store.buffer.data for n in pre_order(body)):
        return None
    radix = _radix(loops)
    variables = [loop.loop_var for loop in loops]
    if not _contiguous(store, variables, radix) or not _depends_on_linear_index(body, variables, radix):
        return None
    return _Stream(tuple(loops), body, store, size)


def _radix(loops: Sequence[For]) -> list[int]:
    """Returns by how much one iteration of each loop advances the linear index of the element."""
    out = [1]
    for loop in reversed(loops[1:]):
        out.insert(0, out[0] * int(loop.extent))  # type: ignore[call-overload]
    return out


def _contiguous(store: BufferStore, variables: Sequence[Var], radix: Sequence[int]) -> bool:
    """Returns whether the linear index is the address in memory. It must be part of the last index and of no other."""
    buffer: Buffer = store.buffer
    if not buffer.shape or (
        buffer.strides and not (isinstance(buffer.strides[-1], IntImm) and int(buffer.strides[-1]) == 1)
    ):
        return False  # fmt: skip
    *lead, last = store.indices
    return constant_coefficients(last, variables) == list(radix) and not any(vars_in(e) & set(variables) for e in lead)


def _depends_on_linear_index(body: Stmt, variables: Sequence[Var], radix: Sequence[int]) -> bool:
    """Returns whether the loop variables occur only as multiples of the linear index."""
    wanted = set(variables)

    def fine(n: IRNode) -> bool:
        if isinstance(n, Expr):
            if not vars_in(n) & wanted:
                return True
            if n.dtype.is_int and n.dtype.lanes == 1 and not isinstance(n, BufferLoad):
                steps = constant_coefficients(n, variables)
                if steps is not None and steps == [steps[-1] * r for r in radix]:
                    return True
        return not isinstance(n, Var) and all(fine(c) for c in n.children())

    return fine(body)


def _shifted(stream: _Stream) -> Stmt:
    """Returns the masked vectors at the start, the shifted loop over aligned vectors, and the masked one at the end."""
    outer, *between, vector = stream.loops
    v, i, zero = vector.loop_var, outer.loop_var, const(0, outer.loop_var.dtype)
    shift = Var(f"{v.name}_shift", v.dtype)
    simplify = Analyzer().simplify
    at_zero: dict[Var, Expr] = {loop.loop_var: const(0, loop.loop_var.dtype) for loop in stream.loops}
    first = tuple([simplify(substitute(e, at_zero)) for e in stream.store.indices])
    address = Call("tir.address_of", (BufferLoad(stream.store.buffer, first),), "handle")
    behind = Call("tir.misaligned", (address, const(stream.vector_bytes)), v.dtype)
    body = substitute(stream.body, {v: v - shift})

    def nest(inner: Stmt) -> Stmt:
        inner = vector.with_(body=inner)
        for loop in reversed(between):
            inner = loop.with_(body=inner)
        return inner

    # of the vectors of the first iteration, only the first one has surplus lanes
    head = fresh_copy(nest(IfThenElse(_number(between, vector) >= shift, body)), {i: zero})
    main = outer.with_(extent=simplify(outer.extent - 1), body=nest(substitute(body, {i: i + 1})))
    tail = fresh_copy(vector.with_(body=IfThenElse(v < shift, body)), {**at_zero, i: outer.extent})
    whole = seq(head, AttrStmt(None, NONTEMPORAL_ATTR, const(ALIGNED), main), IfThenElse(shift > 0, tail))
    if not (isinstance(outer.extent, IntImm) and outer.extent.value > 0):
        whole = IfThenElse(outer.extent > 0, whole)
    return LetStmt(shift, behind // stream.store.buffer.dtype.bytes, whole)


def _number(between: Sequence[For], vector: For) -> Expr:
    """Returns the linear index within one iteration of the serial loop."""
    number: Expr = vector.loop_var
    step = int(vector.extent)  # type: ignore[call-overload]
    for loop in reversed(between):
        number = loop.loop_var * step + number
        step *= int(loop.extent)  # type: ignore[call-overload]
    return number
