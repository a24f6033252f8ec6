"""This module computes a stage inside its readers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ..require.lookup import find_block
from .inlined_places import as_data, may_wrap
from .single_store import axes_of_store, defined_in, single_store, with_regions
from .statement_edits import freeing

_LONGEST = 1 << 14
"""The largest number of operations of a block after an inlining that more than doubles it."""


def inlined(func: PrimFunc, block: str) -> PrimFunc:
    """Return the function with the value of ``block`` computed where it is read, and the block and its buffer removed."""
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    store = single_store(realize)
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
    if len(scope.blocks) == 1:
        raise ScheduleError(
            f"block {block!r} is the only one of its scope, which cannot be left empty", where=realize,
            hint=f"nothing reads {buffer.name}; return it, or drop the function",
        )  # fmt: skip
    last = max([scope.order[r] for r in readers], default=0)
    check_reads_stay(scope, realize, last, "move the consumers before that block first")
    if not _reads_exist(tree, realize, readers, store):
        if in_conditions:
            check_read_by_blocks_alone(scope, buffer)
        for reader in readers:
            require(why_not_covered(tree, realize, reader, store.buffer))
    _check_length(realize, readers, store)

    def axes_at(load: BufferLoad) -> dict[Var, Expr]:
        at = {v: cast(v.dtype, i) for v, i in zip(places, load.indices, strict=True)}
        return {v: substitute(e, at) for v, e in axes.items()}

    def value_of(load: BufferLoad) -> Expr | None:
        return substitute(store.value, axes_at(load)) if load.buffer is buffer else None

    changes: dict[Stmt, Stmt | None] = {realize: None}
    for reader in readers:
        analyzer = analyzer_at(tree, reader)
        for iv in reader.block.iter_vars:
            analyzer.bind(iv.var, iv.dom)
        wraps = index_like(store.value) and may_wrap(analyzer, reader, value_of)
        changes[reader] = _with_value(reader, store, axes_at, hidden_reads(realize.block), wraps)
    return tree.replace(changes, {scope.root.block: freeing(buffer)})


def _reading_outside(scope: Scope, realize: BlockRealize, buffer: Buffer) -> list[BlockRealize]:
    """Return the blocks whose conditions or bindings read the buffer. ScheduleError when the buffer has to exist: for
    pointers, for the bounds of loops, and for other conditions outside of blocks."""
    found = [stmt for stmt, load in bare_loads(scope.root.block.body) if load.buffer is buffer]
    if not all(stmt in scope.order and stmt is not realize for stmt in found) or hidden_reads(realize.block):
        check_read_by_blocks_alone(scope, buffer)
    check_no_pointers(scope.root.block, [buffer], "so it has to exist", scope.root)
    return [r for r in scope.blocks if r in found]


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


def _check_length(realize: BlockRealize, readers: Sequence[BlockRealize], store: BufferStore) -> None:
    """Raise ScheduleError when the expressions of a reader would grow beyond the limit.

    Expressions that read each other at several places, also in indices, grow exponentially.
    """
    one = inlined_length(store.value, {iv.var for iv in realize.block.iter_vars}, {})
    for reader in readers:
        values = [n.value for n in pre_order(reader) if isinstance(n, BufferStore)]
        old, new = (sum(sum(inlined_length(e, (), known)) for e in values) for known in ({}, {store.buffer: one}))
        if new > max(_LONGEST, 2 * old):
            raise ScheduleError(
                f"block {reader.block.name_hint!r} would compute expressions of {new} operations, {old} now",
                where=(realize, reader),
                hint="let the block store its values: compute_at puts it near its readers",
            )


def _with_value(
    reader: BlockRealize,
    store: BufferStore,
    axes_at: Callable[[BufferLoad], dict[Var, Expr]],
    hidden: Sequence[BufferRegion],
    wraps: bool,
) -> BlockRealize:
    """Return the block with loads of the store's buffer replaced, and its regions computed anew.

    ``hidden`` are reads of the value through pointers; ``wraps``: the value has to stay data, whose arithmetic wraps.
    """
    seen: list[dict[Var, Expr]] = []

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is store.buffer:
            seen.append(axes_at(n))
            value = substitute(store.value, seen[-1])
            return as_data(value) if wraps else value
        if isinstance(n, Block) and any(r.buffer is store.buffer for r in n.reads):
            return with_regions(n, _carried(n, hidden, seen))
        return None

    return transform(reader, post=post)


def _carried(block: Block, hidden: Sequence[BufferRegion], seen: Sequence[dict[Var, Expr]]) -> list[BufferRegion]:
    """Return the regions ``hidden`` in terms of the reader's axes, for each of the substitutions ``seen``.

    Whole buffers stand for regions that depend on variables defined inside the block.
    """
    inside = defined_in(block.body)
    out = []
    for region in hidden:
        for axes in seen:
            at = substitute(region, axes)
            ends = [e for r in at.region for e in (r.min, r.extent)]
            out.append(region.buffer.full_region() if any(uses_var(e, lambda v: v in inside) for e in ends) else at)
    return out
