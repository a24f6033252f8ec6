"""This module describes a block's reduction as a known reducer applied to the old and the new values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.analysis.reduction_updates import find_reducer, updates_of
from ...tir.expr import BufferLoad, Expr, Var, structural_equal
from ...tir.expr.reducers import REDUCERS, Reducer
from ...tir.stmt import BlockRealize, BufferStore, LetStmt, Stmt, seq
from ...tir.walk import loads_and_stores
from ..errors import ScheduleError


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """A ``Reduction`` holds the updates of a reduction block and their init stores, in the same order.

    It also holds the values that the updates combine with the old ones, and the conditions under which they do.
    """

    reducer: Reducer
    updates: tuple[BufferStore, ...]
    inits: tuple[BufferStore, ...]
    right: tuple[Expr, ...]
    conditions: tuple[Expr, ...]


def reduction_of(realize: BlockRealize) -> Reduction:
    """Return the block's reduction; ScheduleError when it is not a known one."""
    block = realize.block
    name = block.name_hint
    hint = f"known reductions: {', '.join(dict.fromkeys(r.name for r in REDUCERS))}; register_reducer adds one"
    assert block.init is not None
    parts, starts = updates_of(block.body), updates_of(block.init)
    if isinstance(parts, str):
        raise ScheduleError(
            f"the body of block {name!r} does not update its outputs at once: {parts}",
            where=realize,
            hint="compute the new values first, in let statements; " + hint,
        )
    if isinstance(starts, str) or starts.conditions:
        why = starts if isinstance(starts, str) else "it depends on a condition"
        raise ScheduleError(
            f"the init of block {name!r} does not set its outputs at once: {why}", where=realize, hint=hint
        )
    updates = parts.stores
    by_buffer = {s.buffer: s for s in starts.stores}
    if by_buffer.keys() != {s.buffer for s in updates}:
        raise ScheduleError(f"block {name!r} does not init what it updates", where=realize, hint=hint)
    first = updates[0].indices
    for store in (*updates, *starts.stores):
        if len(store.indices) != len(first) or not all(map(structural_equal, first, store.indices)):
            raise ScheduleError(
                f"block {name!r} stores its outputs at unlike indices",
                where=realize,
                hint="the outputs of one reduction go to the same indices",
            )
    inits = tuple([by_buffer[s.buffer] for s in updates])
    left = [BufferLoad(s.buffer, s.indices) for s in updates]
    found = find_reducer([s.value for s in inits], left, [s.value for s in updates])
    if found is None:
        raise ScheduleError(
            f"block {name!r} is not a known reduction: init {', '.join(str(s.value) for s in inits)}, update "
            + ", ".join(str(s.value) for s in updates),
            where=realize,
            hint=hint,
        )
    reducer, right = found
    if any(a.buffer in by_buffer for e in (*right, *parts.conditions) for a in loads_and_stores(e)):
        raise ScheduleError(
            f"block {name!r} reads its own output beyond accumulating into it",
            where=realize,
            hint="a reduction uses its old value once: C[i] = C[i] + ...",
        )
    return Reduction(reducer, updates, inits, right, parts.conditions)


def stores_of(updates: Sequence[BufferStore], values: Sequence[Expr]) -> Stmt:
    """Return stores of the values, one after the other, to the places of ``updates``."""
    return seq(*[BufferStore(s.buffer, e, s.indices) for s, e in zip(updates, values, strict=True)])


def combined(reducer: Reducer, updates: Sequence[BufferStore], right: tuple[Expr, ...]) -> Stmt:
    """Return the stores of the old values combined with ``right``.

    The stores of a tuple compute all values before the first store.
    """
    results = reducer.combine(tuple([BufferLoad(s.buffer, s.indices) for s in updates]), right)
    if len(updates) == 1:
        return stores_of(updates, results)
    names = [Var(f"v_{s.buffer.name}", s.buffer.dtype) for s in updates]
    body = stores_of(updates, names)
    for v, result in reversed(list(zip(names, results, strict=True))):
        body = LetStmt(v, result, body)
    return body
