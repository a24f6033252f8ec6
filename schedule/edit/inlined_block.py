"""This module computes stages inside their readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.declared_regions import hidden_reads
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.region_cover import covers_domain, why_not_covered
from ...tir.analysis.scope import Scope, bare_loads, is_output_block
from ...tir.analysis.tree import Tree, tree_of
from ...tir.expr import BufferLoad, Expr, Var, cast, is_const_int
from ...tir.expr.nodes.index_types import index_like
from ...tir.expr_length import inlined_length
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, PrimFunc, Stmt
from ...tir.walk import pre_order, substitute, transform, uses_var
from ..errors import ScheduleError, require
from ..require.block_form import check_no_pointers
from ..require.block_preconditions import (
    check_complete,
    check_plain_path,
    check_read_by_blocks_alone,
    check_reads_stay,
    check_writes_first,
    ordered_scope,
)
from ..require.lookup import find_block, scope_around
from .inlined_places import as_data, may_wrap
from .single_store import axes_of_store, defined_in, single_store, with_regions
from .statement_edits import freeing

_LONGEST = 1 << 14
"""The largest number of operations of a block after an inlining that more than doubles it."""


@dataclass(frozen=True)
class _Value:
    """What stands in the stead of a load of an inlined buffer. It is the ``store`` of ``writer``, whose axes are ``axes``
    in terms of the indices ``places``. ``hidden`` are reads of the value through pointers."""

    writer: BlockRealize
    store: BufferStore
    places: Sequence[Var]
    axes: Mapping[Var, Expr]
    hidden: Sequence[BufferRegion]

    def axes_at(self, load: BufferLoad) -> dict[Var, Expr]:
        at = {v: cast(v.dtype, i) for v, i in zip(self.places, load.indices, strict=True)}
        return {v: substitute(e, at) for v, e in self.axes.items()}


def inlined(func: PrimFunc, *blocks: str) -> PrimFunc:
    """Return the function with the values of ``blocks`` computed where they are read, and the blocks removed.

    The blocks of a scope are taken together, in program order: each reader is rewritten once, with the values of all blocks
    that it reads, so that the time is in proportion to the program.
    """
    tree = tree_of(func)
    scopes: dict[BlockRealize, list[str]] = {}
    for name in dict.fromkeys(blocks):
        scopes.setdefault(scope_around(tree, find_block(tree, name)), []).append(name)
    first, *others = scopes.values()
    func = _inlined_in_scope(tree, [find_block(tree, name) for name in first])
    return inlined(func, *[name for names in others for name in names]) if others else func


def _inlined_in_scope(tree: Tree, realizes: Sequence[BlockRealize]) -> PrimFunc:
    """Return the function with blocks of one scope inlined."""
    scope = ordered_scope(tree, realizes[0])
    read: dict[BlockRealize, list[_Value]] = {}  # the values that a block reads
    changes: dict[Stmt, Stmt | None] = {}
    freed: set[Buffer] = set()
    for realize in sorted(realizes, key=scope.order.__getitem__):
        now = _with_values(tree, realize, read.pop(realize, ()))
        value, readers = _value_and_readers(tree, scope, realize, now, len(scope.blocks) - len(freed))
        for reader in readers:
            read.setdefault(reader, []).append(value)
        changes[realize] = None
        freed.add(value.store.buffer)
    changes.update({reader: _with_values(tree, reader, values) for reader, values in read.items()})
    return tree.replace(changes, {scope.root.block: freeing(freed)})


def _value_and_readers(
    tree: Tree, scope: Scope, realize: BlockRealize, now: BlockRealize, left: int
) -> tuple[_Value, list[BlockRealize]]:
    """Return the value of a block that can be inlined, and the blocks that read it; ScheduleError for other blocks.

    ``now`` is the block with the values that it reads itself; ``left`` is the number of blocks of the scope that are left.
    """
    block = realize.block.name_hint
    store = single_store(now)
    check_complete(tree, realize)
    check_plain_path(tree, realize)
    buffer = store.buffer
    if is_output_block(tree, realize):
        raise ScheduleError(
            f"block {block!r} writes {buffer.name}, an output of its scope, which has to be computed", where=realize,
            hint="reverse_compute_inline puts it into its producer",
        )  # fmt: skip
    in_conditions = _reading_outside(scope, realize, buffer)
    places, axes = axes_of_store(tree, realize, store)
    readers = [r for r in scope.readers.get(buffer, ()) if r is not realize]
    readers += [r for r in in_conditions if r not in readers]
    check_writes_first(scope, realize, readers, buffer)
    if left == 1:
        raise ScheduleError(
            f"block {block!r} is the only one of its scope, which cannot be left empty", where=realize,
            hint=f"nothing reads {buffer.name}; return it, or drop the function",
        )  # fmt: skip
    last = max([scope.order[r] for r in readers], default=0)
    check_reads_stay(scope, realize, last, "move the consumers before that block first", now.block.reads)
    if not _reads_exist(tree, realize, readers, store):
        if in_conditions:
            check_read_by_blocks_alone(scope, buffer)
        for reader in readers:
            require(why_not_covered(tree, realize, reader, buffer))
    return _Value(realize, store, places, axes, hidden_reads(now.block)), readers


def _reading_outside(scope: Scope, realize: BlockRealize, buffer: Buffer) -> list[BlockRealize]:
    """Return the blocks whose conditions or bindings read the buffer. ScheduleError when the buffer has to exist: for
    pointers, for the bounds of loops, and for other conditions outside of blocks."""
    found = [stmt for stmt, load in bare_loads(scope.root.block.body) if load.buffer is buffer]
    if not all(stmt in scope.order and stmt is not realize for stmt in found) or hidden_reads(realize.block):
        check_read_by_blocks_alone(scope, buffer)
    check_no_pointers(scope.root.block, [buffer], "so it has to exist", scope.root)
    return [r for r in scope.blocks if r in found] if found else []


def _reads_exist(tree: Tree, realize: BlockRealize, readers: Sequence[BlockRealize], store: BufferStore) -> bool:
    """Return whether the block has computed all elements before its readers run, whichever they read.

    For an element that it has not computed, the block's own reads may be outside of their buffers.
    """
    around = {lp.loop_var for lp in tree.loops_above(realize)}
    apart = not any(lp.loop_var in around for r in readers for lp in tree.loops_above(r))
    doms = {iv.var: iv.dom for iv in realize.block.iter_vars}
    analyzer = analyzer_at(tree, realize)
    whole = all(
        (is_const_int(extent, 1) and is_const_int(i, 0))
        or (
            isinstance(i, Var)
            and i in doms
            and is_const_int(doms[i].min, 0)
            and analyzer.can_prove_equal(doms[i].extent, extent)
        )
        for i, extent in zip(store.indices, store.buffer.shape, strict=True)
    )
    return apart and whole and covers_domain(tree, realize)


def _check_length(reader: BlockRealize, values: Sequence[_Value]) -> None:
    """Raise ScheduleError when the expressions of a reader would grow beyond the limit.

    Expressions that read each other at several places, also in indices, grow exponentially.
    """
    one = {
        v.store.buffer: inlined_length(v.store.value, {iv.var for iv in v.writer.block.iter_vars}, {}) for v in values
    }
    found = [n.value for n in pre_order(reader) if isinstance(n, BufferStore)]
    old, new = (sum(sum(inlined_length(e, (), known)) for e in found) for known in ({}, one))
    if new > max(_LONGEST, 2 * old):
        raise ScheduleError(
            f"block {reader.block.name_hint!r} would compute expressions of {new} operations, {old} now",
            where=(*[v.writer for v in values], reader),
            hint="let the block store its values: compute_at puts it near its readers",
        )


def _with_values(tree: Tree, reader: BlockRealize, values: Sequence[_Value]) -> BlockRealize:
    """Return the block with loads of the buffers of ``values`` replaced, and its regions computed anew."""
    if not values:
        return reader
    _check_length(reader, values)
    known = {v.store.buffer: v for v in values}
    like_index = {b for b, v in known.items() if index_like(v.store.value)}
    if like_index:  # whether these values have to stay data, whose arithmetic wraps
        analyzer = analyzer_at(tree, reader)
        for iv in reader.block.iter_vars:
            analyzer.bind(iv.var, iv.dom)
        if not may_wrap(
            analyzer, reader, lambda load: _value_at(known[load.buffer], load) if load.buffer in known else None
        ):
            like_index = set()
    seen: dict[Buffer, list[dict[Var, Expr]]] = {buffer: [] for buffer in known}

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer in known:
            value = known[n.buffer]
            seen[n.buffer].append(value.axes_at(n))
            new = substitute(value.store.value, seen[n.buffer][-1])
            return as_data(new) if n.buffer in like_index else new
        if isinstance(n, Block) and any(r.buffer in known for r in n.reads):
            return with_regions(n, [region for b, v in known.items() for region in _carried(n, v.hidden, seen[b])])
        return None

    return transform(reader, post=post)


def _value_at(value: _Value, load: BufferLoad) -> Expr:
    return substitute(value.store.value, value.axes_at(load))


def _carried(block: Block, hidden: Sequence[BufferRegion], seen: Sequence[dict[Var, Expr]]) -> list[BufferRegion]:
    """Return the regions ``hidden`` in terms of the reader's axes, for each of the substitutions ``seen``.

    Whole buffers stand for regions that depend on variables defined inside the block.
    """
    if not hidden:
        return []
    inside = defined_in(block.body)
    out = []
    for region in hidden:
        for axes in seen:
            at = substitute(region, axes)
            ends = [e for r in at.region for e in (r.min, r.extent)]
            out.append(region.buffer.full_region() if any(uses_var(e, lambda v: v in inside) for e in ends) else at)
    return out
