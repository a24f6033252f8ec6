"""This module computes a consumer inside its producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.analysis.access import accesses
from ...tir.analysis.declared_regions import hidden_reads, redeclared
from ...tir.analysis.known_ranges import analyzer_at, analyzer_of
from ...tir.analysis.region_cover import covers_domain, domain_text, why_not_covered
from ...tir.analysis.scope import Scope, bindings, is_output_block
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Analyzer
from ...tir.arith.itermap import invert
from ...tir.expr import BufferLoad, Expr, Reason, Var, all_, cast, conjuncts, structural_equal
from ...tir.expr.nodes.index_types import index_like
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, PrimFunc, Stmt
from ...tir.walk import loads_and_stores, pre_order, substitute, transform, uses_var
from ..errors import ScheduleError, require
from ..require.block_preconditions import (
    check_complete,
    check_only_writer,
    check_plain_path,
    check_reads_stay,
    check_reduction,
    check_writes_first,
    ordered_scope,
)
from ..require.lookup import find_block
from .buffer_replacement import moved_accesses
from .inlined_places import as_data, may_wrap
from .single_store import axes_of_store, check_pointers, defined_in, single_store, with_regions
from .statement_edits import freeing


def inlined_into_producer(func: PrimFunc, block: str) -> PrimFunc:
    """Return the function with ``block`` computed where its only producer computes its input."""
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    store = single_store(realize)
    check_complete(tree, realize)
    check_plain_path(tree, realize)
    producer = _only_producer(scope, realize)
    copy = producer.block.init is not None
    made = _accumulated(tree, producer, realize, store) if copy else single_store(producer)
    if not copy:
        check_complete(tree, producer)
    buffer = made.buffer
    _check_producer(tree, scope, producer, realize, buffer)
    guarded = any(a.guards for a in accesses(realize.block.body, buffer))
    for which in (producer, realize):
        if not covers_domain(tree, which) and (
            which is realize or guarded or why_not_covered(tree, producer, realize, buffer) is not None
        ):
            raise ScheduleError(
                f"block {which.block.name_hint!r} is not known to run on the whole domain of its axes: {domain_text(which)}; "
                "the condition would be lost",
                where=(which, realize),
                hint="let both blocks run on their whole domains, with T.if_then_else in the value in place of T.where",
            )
    analyzer = analyzer_of((*realize.block.iter_vars, *producer.block.iter_vars))
    read = _read_once(analyzer, realize, producer, store, buffer)
    if guarded:
        raise ScheduleError(
            f"block {block!r} reads {buffer.name} under a condition; where that does not hold, no iteration of the "
            "producer corresponds to one of the block",
            where=realize,
            hint=f"compute_inline({producer.block.name_hint!r}) goes the other way",
        )
    _check_between(scope, producer, realize)
    require(why_not_covered(tree, producer, realize, buffer))

    axes, tests = _axes_from(analyzer, realize, read.indices, made.indices)
    axes = {v: cast(v.dtype, e) for v, e in axes.items()}
    indices = tuple([substitute(i, axes) for i in store.indices])
    if copy:
        block_now = _moved(producer.block, buffer, store, indices)
    else:
        block_now = producer.block.with_(
            body=_with_value(BufferStore(store.buffer, substitute(store.value, axes), indices), made, analyzer)
        )
    block_now = with_regions(block_now, [substitute(r, axes) for r in hidden_reads(realize.block)])
    local, bound = analyzer_at(tree, producer), bindings(producer)
    more = [c for t in tests for c in conjuncts(local.simplify(substitute(t, bound)))]
    more += _conditions_of_both(tree, producer, realize)
    predicate = all_(*conjuncts(producer.predicate), *more) if more else producer.predicate
    merged = BlockRealize(producer.iter_values, predicate, block_now)
    return tree.replace({realize: None, producer: merged}, {scope.root.block: freeing([buffer])})


def _conditions_of_both(tree: Tree, producer: BlockRealize, realize: BlockRealize) -> list[Expr]:
    """Return the conditions of ``realize`` on loops around both blocks that ``producer`` does not have. In iterations where
    one fails, the producer's input may be what memory happens to hold."""
    own = conjuncts(producer.predicate)
    both = {lp.loop_var for lp in tree.loops_above(producer)} & {lp.loop_var for lp in tree.loops_above(realize)}
    return [
        c
        for c in conjuncts(realize.predicate)
        if uses_var(c, lambda n: n in both)
        and not uses_var(c, lambda n: n not in both)
        and not any(structural_equal(c, o) for o in own)
    ]


def _with_value(last: BufferStore, made: BufferStore, analyzer: Analyzer) -> Stmt:
    """Return ``last`` with the value of ``made`` in the stead of loads of what that stores."""

    def value_of(load: BufferLoad) -> Expr | None:
        return made.value if load.buffer is made.buffer else None

    value = as_data(made.value) if index_like(made.value) and may_wrap(analyzer, last, value_of) else made.value

    def post(n: Any) -> Any:
        return value if isinstance(n, BufferLoad) and n.buffer is made.buffer else None

    done: Stmt = transform(last, post=post)
    return done


def _only_producer(scope: Scope, realize: BlockRealize) -> BlockRealize:
    """Return the only producer of a block; ScheduleError when there are none or several."""
    producers = scope.producers(realize)
    if len(producers) != 1:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} has {len(producers)} producers "
            f"({', '.join(repr(p.block.name_hint) for p in producers)}), it can be put into one only",
            where=(realize, *producers),
            hint="compute_inline one of the producers first",
        )
    return producers[0]


def _check_producer(tree: Tree, scope: Scope, producer: BlockRealize, realize: BlockRealize, buffer: Buffer) -> None:
    """Raise ScheduleError unless the producer alone writes ``buffer``, for the block alone."""
    check_plain_path(tree, producer)
    check_only_writer(tree, producer)
    if is_output_block(tree, producer):
        raise ScheduleError(
            f"{buffer.name}, which block {producer.block.name_hint!r} writes, is an output of the scope and has to stay",
            where=producer,
            hint="inline the other way round, or cache_write first",
        )
    check_pointers(scope, buffer)
    others = [r for r in scope.readers.get(buffer, ()) if r is not realize]
    if others:
        raise ScheduleError(
            f"{buffer.name} is also read by {', '.join(repr(r.block.name_hint) for r in others)}",
            where=(realize, *others),
            hint="only the one reader of a buffer can go into its producer",
        )


def _read_once(
    analyzer: Analyzer, realize: BlockRealize, producer: BlockRealize, store: BufferStore, buffer: Buffer
) -> BufferLoad:
    """Return the load of ``buffer`` in the block's store; ScheduleError unless all its loads read one element."""
    loads = [n for n in pre_order(store) if isinstance(n, BufferLoad) and n.buffer is buffer]
    if not loads:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} declares that it reads {buffer.name}, and its value does not",
            where=realize,
            hint=f"nothing needs block {producer.block.name_hint!r} here",
        )
    for load in loads[1:]:
        if not all(map(analyzer.can_prove_equal, loads[0].indices, load.indices)):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} reads {buffer.name} at several places",
                where=realize,
                hint="reverse_compute_inline takes a consumer that reads one element; compute_inline its producer",
            )
    return loads[0]


def _accumulated(tree: Tree, producer: BlockRealize, realize: BlockRealize, store: BufferStore) -> BufferStore:
    """Return the store of a reduction block whose result the block only copies; ScheduleError otherwise."""
    check_reduction(tree, producer)
    block = producer.block
    assert block.init is not None
    found = [a for part in (block.init, block.body) for a in loads_and_stores(part)]
    stores = [a for a in found if isinstance(a, BufferStore)]
    made = stores[0].buffer
    name = block.name_hint
    copies = isinstance(store.value, BufferLoad) and store.value.buffer is made
    if any(a.buffer is not made for a in stores) or not copies:
        raise ScheduleError(
            f"block {name!r} does more than store one value: it is a reduction, and block "
            f"{realize.block.name_hint!r} more than a copy of its result",
            where=(producer, realize),
            hint="fuse_reduction_epilogue starts a sum from a bias; reverse_compute_at moves the block under a loop",
        )
    places = [a.indices for a in found if a.buffer is made]
    inside = defined_in(block.init) | defined_in(block.body)
    if any(not all(map(structural_equal, places[0], place)) for place in places) or any(
        uses_var(i, lambda v: v in inside) for i in places[0]
    ):
        raise ScheduleError(
            f"block {name!r} accesses {made.name} at several places", where=producer,
            hint="a reduction reads and writes one element at a time, at a place that its axes give",
        )  # fmt: skip
    axes_of_store(tree, realize, store)  # else two sums would accumulate in one element
    return stores[0]


def _moved(block: Block, old: Buffer, store: BufferStore, indices: tuple[Expr, ...]) -> Block:
    """Return the reduction block, accumulating in the buffer to which its result was copied."""

    def post(n: Any) -> Any:  # the parts of a block of blocks declare what they access, too
        if isinstance(n, Block) and any(r.buffer is old for r in (*n.reads, *n.writes)):
            return redeclared(n)
        return None

    def moved(stmt: Stmt) -> Any:
        return transform(moved_accesses(stmt, old, store.buffer, lambda _: indices), post=post)

    assert block.init is not None
    return block.with_(body=moved(block.body), init=moved(block.init))


def _check_between(scope: Scope, producer: BlockRealize, consumer: BlockRealize) -> None:
    """Raise ScheduleError unless the consumer may run at its producer.

    Its inputs must be written by then, and no block between the two may use its output.
    """
    first, last = scope.order[producer], scope.order[consumer]
    for region in consumer.block.reads:
        for writer in scope.writers.get(region.buffer, ()):
            if first < scope.order[writer] < last:
                raise ScheduleError(
                    f"block {writer.block.name_hint!r} writes {region.buffer.name} after the producer ran",
                    where=(producer, writer),
                    hint="the value at the later place would be another one; cache_read the buffer first",
                )
    for region in consumer.block.writes:
        readers = [r for r in scope.readers.get(region.buffer, ()) if r is not consumer]
        check_writes_first(scope, consumer, readers, region.buffer, "the blocks have to be in another order")
    check_reads_stay(scope, consumer, len(scope.blocks), "let the consumer read a copy of it: cache_read first")


def _axes_from(
    analyzer: Analyzer, realize: BlockRealize, indices: Sequence[Expr], values: Sequence[Expr]
) -> tuple[dict[Var, Expr], list[Expr]]:
    """Return the axes of the block from the equations ``indices == values``, and the conditions under which they
    exist."""
    found = invert(analyzer, {iv.var: iv.dom for iv in realize.block.iter_vars}, indices, values)
    if isinstance(found, Reason):
        raise ScheduleError(
            f"block {realize.block.name_hint!r} reads its input at {', '.join(map(str, indices))}, from which its axes "
            f"do not follow (see {found.nodes[0]})",
            where=realize,
            hint="the indices must be its axes, or splits and fusions of them, each used once",
        )
    return found
