"""Keeps small scratch in registers: an array whose every access has a constant place becomes separate values.

After unrolling and vectorizing, a register tile ``acc[8, 48]`` is read and written at constant places only, a vector
at a time. Each such place becomes a buffer of shape ``()`` and scope ``register``; the emitter carries those through
loops as SSA values (phi nodes), so nothing depends on a later optimizer promoting memory.
"""

from __future__ import annotations

from collections import defaultdict

from ...tir.buffer import Buffer
from ...tir.dtype import bytes_of, with_lanes
from ...tir.equal import structural_equal
from ...tir.expr import BufferLoad, Call, Expr, IntImm, Ramp, Select, Shuffle, Var, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import Allocate, BufferStore, For, Stmt
from ...tir.walk import transform

__all__ = ["REGISTER_SCOPE", "promote_registers"]

REGISTER_SCOPE = "register"
_MAX_BYTES = 16384
Slot = tuple[int, int]


def promote_registers(func: PrimFunc) -> PrimFunc:
    """Split every allocation with constant accesses only into register values.

    Before::

        acc = T.decl_buffer((2, 8), scope="local")
        acc[0, 0:8] = ...
        acc[1, 0:8] = acc[1, 0:8] + ...

    After::

        acc_0 = T.decl_buffer((), "float32x8", scope="register")
        acc_8 = T.decl_buffer((), "float32x8", scope="register")
        acc_0[()] = ...
        acc_8[()] = acc_8[()] + ...

    Arrays that are indexed by a variable, cross a parallel loop, or whose accesses overlap without being equal stay in
    memory. A store under a mask becomes a ``Select`` with the old value, or a plain one where no lane outside the mask
    is ever looked at.
    """

    def post(n: Node) -> Stmt | None:
        if isinstance(n, Allocate) and n.buffer.scope != REGISTER_SCOPE:
            return _promote(n)
        return None

    return transform(func, post=post)  # type: ignore[no-any-return]


def _promote(alloc: Allocate) -> Stmt | None:
    buffer = alloc.buffer
    size = buffer.num_bytes()
    if size is None or size > _MAX_BYTES or buffer.strides:
        return None
    accesses = _accesses(alloc.body, buffer)
    if accesses is None:
        return None
    shape = _row_padded(accesses, buffer)
    slots: set[Slot] = set()
    for access in accesses:
        slot = _slot(access.indices, shape)
        if slot is None:
            return None
        slots.add(slot)
    parents = _containers(slots)
    if parents is None:
        return None
    values: dict[Slot, Buffer] = {}
    for start, lanes in sorted(set(parents.values())):
        dtype = with_lanes(buffer.dtype, lanes)
        values[start, lanes] = Buffer(f"{buffer.name}_{start}", (), dtype, REGISTER_SCOPE)
    if sum(bytes_of(v.dtype) for v in values.values()) > _MAX_BYTES:
        return None
    stored = {_slot(a.indices, shape) for a in accesses if isinstance(a, BufferStore)}
    if any(parents[s] != s for s in stored if s is not None):
        return None  # a part of a vector is written: keep it in memory
    free = _unmasked_stores(accesses, shape, parents)

    def read(slot: Slot) -> Expr:
        home = parents[slot]
        whole = BufferLoad(values[home], ())
        if home == slot:
            return whole
        first = slot[0] - home[0]
        return Shuffle((whole,), tuple(range(first, first + slot[1])))

    def post(n: Node) -> Node | None:
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            slot = _slot(n.indices, shape)
            assert slot is not None
            value = read(slot)
            if n.predicate is None or slot in free:
                return value
            return Select(n.predicate, value, const(0, value.dtype))
        if isinstance(n, BufferStore) and n.buffer is buffer:
            slot = _slot(n.indices, shape)
            assert slot is not None
            value = n.value
            if n.predicate is not None and slot not in free:
                value = Select(n.predicate, value, BufferLoad(values[slot], ()))
            return BufferStore(values[slot], value, ())
        return None

    body: Stmt = transform(alloc.body, post=post, shared=True)
    for value in reversed(list(values.values())):
        body = Allocate(value, body)
    return body


def _accesses(body: Stmt, buffer: Buffer) -> list[BufferLoad | BufferStore] | None:
    """All accesses; None when the buffer crosses a parallel loop or its address is taken.

    Expressions that several statements share are looked at once.
    """
    out: list[BufferLoad | BufferStore] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(body, False)]
    while stack:
        n, parallel = stack.pop()
        if isinstance(n, Expr):
            if id(n) in seen:
                continue
            seen.add(id(n))
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer is buffer:
            if parallel:
                return None
            out.append(n)
        elif isinstance(n, Call):
            if any(a is buffer.data for a in n.args):
                return None
            if n.op == "tir.address_of" and any(isinstance(a, BufferLoad) and a.buffer is buffer for a in n.args):
                return None
        inside = parallel or (isinstance(n, For) and n.kind == "parallel")
        stack += [(c, inside) for c in n.children() if not isinstance(c, (IntImm, Var))]
    return out


def _row_padded(accesses: list[BufferLoad | BufferStore], buffer: Buffer) -> tuple[Expr, ...]:
    """The shape with rows as long as the accesses reach: a masked vector at the end of a row must not overlap the next
    one, since its lanes beyond the row are never looked at."""
    if not buffer.shape or not isinstance(buffer.shape[-1], IntImm):
        return buffer.shape
    reach = buffer.shape[-1].value
    for access in accesses:
        last = access.indices[-1]
        if access.predicate is not None and isinstance(last, Ramp) and isinstance(last.base, IntImm):
            reach = max(reach, last.base.value + last.lanes)
    return (*buffer.shape[:-1], IntImm(reach))


def _slot(indices: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Slot | None:
    """The first element and the number of lanes of an access; None when it is not constant or not contiguous."""
    offset, lanes, stride = 0, 1, 1
    for index, extent in zip(indices, shape, strict=True):
        if not isinstance(extent, IntImm):
            return None
        offset *= extent.value
        stride_scale = extent.value
        if lanes > 1:
            stride *= stride_scale
        if isinstance(index, Ramp):
            if lanes > 1 or not isinstance(index.stride, IntImm):
                return None
            lanes, stride = index.lanes, index.stride.value
            index = index.base
        if not isinstance(index, IntImm):
            return None
        offset += index.value
    if lanes > 1 and stride != 1:
        return None
    return offset, lanes


def _containers(slots: set[Slot]) -> dict[Slot, Slot] | None:
    """For each slot the largest slot that holds it; None when two overlap and neither holds the other."""
    by_size = sorted(slots, key=lambda s: (-s[1], s[0]))
    homes: list[Slot] = []
    out: dict[Slot, Slot] = {}
    owner: dict[int, Slot] = {}
    for slot in by_size:
        start, lanes = slot
        owners = {owner.get(i) for i in range(start, start + lanes)}
        if owners == {None}:
            homes.append(slot)
            out[slot] = slot
            for i in range(start, start + lanes):
                owner[i] = slot
        elif len(owners) == 1:
            home = owners.pop()
            assert home is not None
            out[slot] = home
        else:
            return None
    return out


def _unmasked_stores(
    accesses: list[BufferLoad | BufferStore], shape: tuple[Expr, ...], parents: dict[Slot, Slot]
) -> set[Slot]:
    """Slots whose masks may be ignored: no load looks at a lane that some masked store leaves out.

    That is so when all masks of a slot are the same one, and every load of it is under that mask.
    """
    masks: dict[Slot, list[Expr]] = defaultdict(list)
    bare_loads: set[Slot] = set()
    for access in accesses:
        slot = _slot(access.indices, shape)
        assert slot is not None
        if access.predicate is not None:
            masks[slot].append(access.predicate)
        elif isinstance(access, BufferLoad) or parents[slot] != slot:
            bare_loads.add(parents[slot])
    out: set[Slot] = set()
    for slot, found in masks.items():
        if slot in bare_loads or parents[slot] != slot:
            continue
        if all(m is found[0] or structural_equal(m, found[0], map_free_vars=False) for m in found[1:]):
            out.add(slot)
    return out
