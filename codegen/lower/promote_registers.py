"""Keeps small scratch arrays in registers: an array whose accesses all have constant indices becomes separate values.

After unrolling and vectorizing, a register tile ``acc[8, 48]`` is read and written at constant places only, a vector
at a time. Each such place becomes a buffer of shape ``()`` and scope ``register``; the emitter carries those through
loops as SSA values (phi nodes), so nothing depends on a later optimizer promoting memory.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...tir.expr import (
    Broadcast,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    Ramp,
    Select,
    Shuffle,
    Var,
    const,
    structural_equal,
)
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Buffer, BufferStore, For, LetStmt, PrimFunc, Stmt, seq
from ...tir.walk import LEAVES, pre_order
from ..lane_offsets import constant_run, known_mask
from ..lowered import REGISTER_SCOPE
from .lanes import keeps_lanes

_MAX_BYTES = 16384
Access = BufferLoad | BufferStore


def promote_registers(func: PrimFunc) -> PrimFunc:
    """Split every allocation that has only constant accesses into register values.

    Before::

        acc = T.decl_buffer((2, 8), scope="local")
        acc[0, 0:8] = ...
        acc[1, 0:8] = acc[1, 0:8] + ...

    After::

        acc_0 = T.decl_buffer((), "float32x8", scope="register")
        acc_8 = T.decl_buffer((), "float32x8", scope="register")
        acc_0[()] = ...
        acc_8[()] = acc_8[()] + ...

    Arrays that are indexed by a variable or cross a parallel loop stay in memory, as do those whose accesses overlap in
    parts of different lengths (:func:`partition_accesses`). A store under a mask becomes a
    ``Select`` with the old value, or a plain one where no lane outside the mask is ever read.
    """
    found = _Accesses()
    found.visit(func.body, 0)
    tiles = {}
    for buffer, accesses in found.of.items():
        tile = None if buffer in found.lost else _tile(buffer, accesses, found.lives[buffer])
        if tile is not None:
            tiles[buffer] = tile
    return func.with_body(_Rewriting(tiles, found.touched).visit(func.body)) if tiles else func


class _Accesses:
    """The accesses ``of`` every array that is allocated, and ``lives``, the statement around them.

    ``lost``: arrays that cross a parallel loop, whose address is taken, or that are also accessed through another
    buffer. ``touched``: the nodes that hold allocations or accesses of arrays.
    """

    def __init__(self) -> None:
        self.of: dict[Buffer, list[Access]] = {}
        self.lives: dict[Buffer, Stmt] = {}
        self.lost: set[Buffer] = set()
        self.touched: dict[IRNode, bool] = {}
        self._level: dict[Buffer, int] = {}
        self._owner: dict[Var, Buffer] = {}
        self._seen: defaultdict[int, dict[IRNode, bool]] = defaultdict(dict)

    def visit(self, n: Any, parallel: int) -> bool:
        """Find the accesses below ``n``, which stands in so many parallel loops, and return whether there are any.

        Expressions that several statements share are visited once inside a parallel loop and once outside.
        """
        kind, seen = type(n), self._seen[parallel]
        touched = False
        if kind is BufferLoad or kind is BufferStore:
            own = self._owner[n.buffer.data] if n.buffer.data in self._owner else None
            if own is not None:
                touched = True
                if own is not n.buffer or self._level[own] != parallel:
                    self.lost.add(own)
                else:
                    self.of[own].append(n)
        elif kind is Allocate:
            touched = self.allocate(n, parallel)
        elif kind is Call:
            self.call(n)
        elif kind is For and n.kind == "parallel":
            parallel += 1
        inside = self._seen[parallel]
        for c in n.args if kind is Call else n.children():
            if type(c) in LEAVES:
                continue
            if inside[c] if c in inside else self.visit(c, parallel):
                touched = True
        seen[n] = touched
        if touched:
            self.touched[n] = True
        return touched

    def allocate(self, n: Allocate, parallel: int) -> bool:
        if n.buffer.scope != REGISTER_SCOPE:
            self.of[n.buffer], self.lives[n.buffer] = [], n.body
            self._level[n.buffer], self._owner[n.buffer.data] = parallel, n.buffer
        return True

    def call(self, n: Call) -> None:
        for a in n.args:
            taken = self._owner.get(a) if type(a) is Var else None
            if n.op == "tir.address_of" and isinstance(a, BufferLoad):
                taken = self._owner.get(a.buffer.data)
            if taken is not None:
                self.lost.add(taken)


class _Rewriting:
    """The walk that puts register values in place of arrays. It visits only the nodes ``touched``."""

    def __init__(self, tiles: Mapping[Buffer, _RegisterArray], touched: Container[IRNode]) -> None:
        self.tiles = tiles
        self.touched = touched
        self.done: dict[IRNode, Any] = {}
        self.stored: Expr | None = None
        """The mask of the store whose value is rewritten: other lanes of it may be anything."""

    def visit(self, n: Any) -> Any:
        """Return ``n`` rewritten. An expression that several statements share is rewritten once; a statement that stands in
        several places is not, because it may bind a variable."""
        if n not in self.touched:
            return n
        if not isinstance(n, Expr):
            return self.rewritten(n)
        if n not in self.done:
            self.done[n] = self.rewritten(n)
        return self.done[n]

    def rewritten(self, n: Any) -> Any:
        """Return what replaces ``n``, a node that is touched."""
        kind, tiles = type(n), self.tiles
        if kind is Call:
            return Call(n.op, tuple([self.visit(a) if a in self.touched else a for a in n.args]), n.dtype)
        if (kind is BufferLoad or kind is BufferStore) and n.buffer in tiles:  # its indices are constant
            predicate = None if n.predicate is None else self.visit(n.predicate)
            if kind is BufferLoad:
                if self.stored is not None and predicate is not None and structural_equal(n.predicate, self.stored):
                    predicate = None
                return tiles[n.buffer].load(predicate, tiles[n.buffer].places[n])
            return tiles[n.buffer].store(self.value(n), predicate, tiles[n.buffer].places[n])
        if kind is BufferStore and n.predicate is not None:
            n = n.with_(value=self.value(n))
        new = n.map_children(self.visit)
        if kind is Allocate and n.buffer in tiles:
            new = new.body
            for value in reversed(tiles[n.buffer].values.values()):
                new = Allocate(value, new)
        return new

    def value(self, store: BufferStore) -> Any:
        """Return the value of a store rewritten. Lanes that its mask leaves out are loaded without it."""
        if store.predicate is None or store.value not in self.touched or not keeps_lanes(store.value):
            return self.visit(store.value)
        done, self.done, self.stored = self.done, {}, store.predicate
        value = self.visit(store.value)
        self.done, self.stored = done, None
        return value


@dataclass(slots=True)
class _RegisterArray:
    """An array that becomes register values. ``homes``: the parts that each slot consists of, or the larger one that
    holds it; ``free``: slots whose masks do not matter; ``places``: the slot of each access."""

    places: dict[Access, Slot]
    homes: dict[Slot, tuple[Slot, ...]]
    values: dict[Slot, Buffer]
    free: set[Slot]

    def load(self, predicate: Expr | None, slot: Slot) -> Expr:
        """Return the value that replaces a load of ``slot``."""
        parts: list[Expr] = [BufferLoad(self.values[home], ()) for home in self.homes[slot]]
        value = _joined(parts)
        if len(parts) == 1 and self.homes[slot] != (slot,):
            first = slot[0] - self.homes[slot][0][0]
            value = Shuffle((value,), tuple(range(first, first + slot[1])))
        if predicate is None or slot in self.free:
            return value
        return Select(predicate, value, const(0, value.dtype))

    def store(self, value: Expr, predicate: Expr | None, slot: Slot) -> Stmt:
        """Return the statement that replaces a store to ``slot``."""
        homes = self.homes[slot]
        if len(homes) == 1:
            home = self.values[slot]
            if predicate is not None and slot not in self.free:
                value = Select(predicate, value, BufferLoad(home, ()))
            return BufferStore(home, value, ())
        if isinstance(value, Broadcast):
            return seq(*[BufferStore(self.values[h], _broadcast(value.value, h[1]), ()) for h in homes])
        whole = Var("piece", value.dtype)
        parts = [
            BufferStore(self.values[h], Shuffle((whole,), tuple(range(h[0] - slot[0], h[0] - slot[0] + h[1]))), ())
            for h in homes
        ]
        return LetStmt(whole, value, seq(*parts))


def _broadcast(value: Expr, lanes: int) -> Expr:
    return value if lanes == 1 else Broadcast(value, lanes)


def _joined(parts: list[Expr]) -> Expr:
    """Returns the vector of all lanes, put together two at a time (single lanes at once)."""
    if len(parts) > 1 and parts[0].dtype.lanes == 1:
        return Shuffle(tuple(parts), tuple(range(len(parts))))
    while len(parts) > 1:
        lanes = 2 * parts[0].dtype.lanes
        parts = [Shuffle((a, b), tuple(range(lanes))) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _statements(n: IRNode) -> bool:
    return not isinstance(n, Expr)


def _tile(buffer: Buffer, accesses: list[Access], life: Stmt) -> _RegisterArray | None:
    """Returns how ``buffer``, which ``life`` uses, becomes register values, or None when it cannot."""
    size = buffer.num_bytes()
    if size is None or size > _MAX_BYTES or buffer.strides:
        return None
    strides = _row_major(_row_padded(accesses, buffer))
    if strides is None:
        return None
    runs = {indices: constant_run(indices, strides) for indices in dict.fromkeys([a.indices for a in accesses])}
    if None in runs.values():
        return None
    places: dict[Access, Any] = {access: runs[access.indices] for access in accesses}
    stores = [access for access in accesses if type(access) is BufferStore]
    masked = {places[store] for store in stores if store.predicate is not None}
    homes = partition_accesses(set(places.values()), {places[store] for store in stores})
    if homes is None or any(len(homes[s]) > 1 for s in masked):
        return None
    values = {}
    for home in sorted({h for found in homes.values() for h in found}):
        values[home] = Buffer(f"{buffer.name}_{home[0]}", (), buffer.dtype.with_lanes(home[1]), REGISTER_SCOPE)
    if sum(v.dtype.bytes for v in values.values()) > _MAX_BYTES:
        return None
    return _RegisterArray(places, homes, values, _unmasked_stores(accesses, places, homes, life))


def _row_padded(accesses: list[Access], buffer: Buffer) -> tuple[Expr, ...]:
    """Returns the shape with rows as long as the accesses reach.

    A masked vector at the end of a row must not overlap the next row, since its lanes beyond the row are never read.
    """
    if not buffer.shape or not isinstance(buffer.shape[-1], IntImm):
        return buffer.shape
    reach = buffer.shape[-1].value
    for access in accesses:
        last = access.indices[-1]
        if access.predicate is not None and isinstance(last, Ramp) and isinstance(last.base, IntImm):
            reach = max(reach, last.base.value + last.lanes)
    return (*buffer.shape[:-1], IntImm(reach))


def _row_major(shape: tuple[Expr, ...]) -> list[int] | None:
    """Returns the strides of an array without gaps, or None unless its shape is constant."""
    sizes = [e.value for e in shape if isinstance(e, IntImm)]
    if len(sizes) < len(shape):
        return None
    return [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]


def _unmasked_stores(
    accesses: list[Access], places: dict[Access, Slot], homes: dict[Slot, tuple[Slot, ...]], life: Stmt
) -> set[Slot]:
    """Returns the slots whose masks may be ignored, because no load reads a lane that a masked store leaves out.

    That is so when all masks of a slot are the same one, whose value stays the same as long as the array is in use, and
    every load of the slot, or of a part of it, is under that mask. It is also so where the lanes are known: none that is
    loaded, of the slot or of a part of it, is left out by one of its stores.
    """
    masks: dict[Slot, list[Expr]] = defaultdict(list)
    bare: set[Slot] = set()
    for access in accesses:
        slot = places[access]
        if homes[slot] != (slot,):
            bare.update(homes[slot])
        elif access.predicate is not None:
            masks[slot].append(access.predicate)
        elif type(access) is BufferLoad:
            bare.add(slot)
    if not masks:
        return set()
    changing = {n.loop_var if isinstance(n, For) else n.var for n in pre_order(life, _statements)
                if isinstance(n, (For, LetStmt))}  # fmt: skip
    out: set[Slot] = set()
    for slot, found in masks.items():
        varies = any(isinstance(n, BufferLoad) or n in changing for n in pre_order(found[0]))
        if slot in bare or varies:
            continue
        if all(m is found[0] or structural_equal(m, found[0], map_free_vars=False) for m in found[1:]):
            out.add(slot)
    return out | _by_known_lanes(accesses, places, homes)


def _by_known_lanes(
    accesses: list[Access], places: dict[Access, Slot], homes: dict[Slot, tuple[Slot, ...]]
) -> set[Slot]:
    """Returns the slots of which no lane is loaded that a store leaves out. The lanes of all masks are known."""
    loaded: dict[Slot, set[int]] = defaultdict(set)
    stored: dict[Slot, set[int]] = {}
    unknown: set[Slot] = set()
    for access in accesses:
        slot = places[access]
        mask = [True] * slot[1] if access.predicate is None else known_mask(access.predicate)
        active = None if mask is None else {slot[0] + n for n, held in enumerate(mask) if held}
        for home in homes[slot]:
            own = range(home[0], home[0] + home[1])
            if active is None:
                unknown.add(home)
            elif type(access) is BufferLoad:
                loaded[home] |= active & set(own)
            elif access.predicate is not None:
                stored[home] = stored.get(home, set(own)) & active
    return {home for home, lanes in stored.items() if home not in unknown and loaded[home] <= lanes}


# Partitions a register tile into values, according to the elements at which it is read and written.

Slot = tuple[int, int]
"""The first element of an access and its number of lanes."""
_MOST_PIECES = 8


def partition_accesses(slots: Iterable[Slot], stored: set[Slot]) -> dict[Slot, tuple[Slot, ...]] | None:
    """Returns, for each slot, the value that holds it or the values that it consists of, or None.

    A vector whose parts are only read is one value:

    >>> partition_accesses([(0, 16), (8, 4)], {(0, 16)})
    {(0, 16): ((0, 16),), (8, 4): ((0, 16),)}

    A vector that is written in parts is one value for each part, all of equal length:

    >>> partition_accesses([(0, 32), (0, 16), (16, 16)], {(0, 16), (16, 16)})
    {(0, 32): ((0, 16), (16, 16)), (0, 16): ((0, 16),), (16, 16): ((16, 16),)}

    The result is None when the parts have different lengths:

    >>> partition_accesses([(0, 32), (8, 16)], {(8, 16)}) is None
    True
    """
    ordered = sorted(slots, key=lambda s: (s[0], -s[1]))
    out: dict[Slot, tuple[Slot, ...]] = {}
    start = 0
    while start < len(ordered):
        end, reach = start + 1, ordered[start][0] + ordered[start][1]
        while end < len(ordered) and ordered[end][0] < reach:
            reach = max(reach, ordered[end][0] + ordered[end][1])
            end += 1
        found = _partition_overlapping(ordered[start:end], reach, stored)
        if found is None:
            return None
        out.update(found)
        start = end
    return out


def _partition_overlapping(slots: list[Slot], reach: int, stored: set[Slot]) -> dict[Slot, tuple[Slot, ...]] | None:
    """Returns :func:`partition_accesses` for slots that overlap one another."""
    whole = slots[0]  # the longest of the slots with the least start
    if whole[0] + whole[1] == reach and all(s == whole or s not in stored for s in slots):
        return dict.fromkeys(slots, (whole,))
    begin = whole[0]
    cuts = sorted({s[0] for s in slots} | {s[0] + s[1] for s in slots})
    step = cuts[1] - begin
    if cuts != list(range(begin, reach + 1, step)) or step & (step - 1):
        return None
    out: dict[Slot, tuple[Slot, ...]] = {}
    for first, lanes in slots:
        pieces = lanes // step
        if pieces > _MOST_PIECES or pieces & (pieces - 1):
            return None
        out[first, lanes] = tuple([(at, step) for at in range(first, first + lanes, step)])
    return out
