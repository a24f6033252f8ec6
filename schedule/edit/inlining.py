"""This module computes stages inside their readers, and a consumer inside its producer.

Both replace a load of a buffer by the value that the other block stores there. They share the description of a block
with one store, whose axes are functions of the stored place, and the rules that keep the results of
arithmetic: a load is data, whose arithmetic wraps around in its type; arithmetic of places (of axes, loops and constants)
never wraps (``tir/expr/op.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.access import accesses
from ...tir.analysis.known_ranges import analyzer_at, analyzer_of
from ...tir.analysis.region_cover import covers_domain, domain_text, why_not_covered
from ...tir.analysis.regions import hidden_reads, redeclared
from ...tir.analysis.scope import BlockScope, bare_loads, bindings, is_output_block
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Analyzer
from ...tir.arith.itermap import inverse, invert
from ...tir.cost import inlined_length
from ...tir.expr import (
    INDEX_TYPES,
    Add,
    BufferLoad,
    Expr,
    Let,
    Mul,
    Reason,
    Sub,
    Var,
    all_,
    cast,
    conjuncts,
    is_const_int,
    max_value,
    min_value,
    structural_equal,
)
from ...tir.expr.node import IRNode
from ...tir.expr.op import index_like
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, LetStmt, PrimFunc, Stmt
from ...tir.walk import loads_and_stores, pre_order, substitute, transform, uses_var
from ..errors import ScheduleError, require
from ..require.block_preconditions import (
    check_complete,
    check_no_pointers,
    check_only_writer,
    check_plain_path,
    check_read_by_blocks_alone,
    check_reads_stay,
    check_reduction,
    check_writes_first,
    find_block,
    ordered_scope,
    scope_around,
    the_store,
)
from .buffers import moved_accesses
from .loop_nests import freeing

_LONGEST = 1 << 14
"""The largest number of operations of a block after an inlining that more than doubles it."""


@dataclass(frozen=True)
class _Value:
    """The value that replaces loads of an inlined buffer: that of ``store`` in ``writer``. ``axes`` gives the writer's axes in
    terms of the load's indices ``places``. ``hidden`` are reads of the value through pointers."""

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
    tree: Tree, scope: BlockScope, realize: BlockRealize, now: BlockRealize, left: int
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


def _reading_outside(scope: BlockScope, realize: BlockRealize, buffer: Buffer) -> list[BlockRealize]:
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
    """Return ``last`` with the value that ``made`` stores in the place of loads of its buffer."""

    def value_of(load: BufferLoad) -> Expr | None:
        return made.value if load.buffer is made.buffer else None

    value = as_data(made.value) if index_like(made.value) and may_wrap(analyzer, last, value_of) else made.value

    def post(n: Any) -> Any:
        return value if isinstance(n, BufferLoad) and n.buffer is made.buffer else None

    done: Stmt = transform(last, post=post)
    return done


def _only_producer(scope: BlockScope, realize: BlockRealize) -> BlockRealize:
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


def _check_producer(
    tree: Tree, scope: BlockScope, producer: BlockRealize, realize: BlockRealize, buffer: Buffer
) -> None:
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


def _check_between(scope: BlockScope, producer: BlockRealize, consumer: BlockRealize) -> None:
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


def single_store(realize: BlockRealize) -> BufferStore:
    """Return the only store of a block without init; ScheduleError otherwise."""
    return the_store(realize, realize.block.body if realize.block.init is None else None)


def check_pointers(scope: BlockScope, buffer: Buffer) -> None:
    """Raise ScheduleError when the buffer has to exist: for pointers, or for bounds and conditions outside of blocks."""
    check_read_by_blocks_alone(scope, buffer)
    check_no_pointers(scope.root.block, [buffer], "so it has to exist", scope.root)


def axes_of_store(tree: Tree, realize: BlockRealize, store: BufferStore) -> tuple[list[Var], dict[Var, Expr]]:
    """Return a variable for each index of the store, and the block's axes as expressions of these variables."""
    doms = {iv.var: iv.dom for iv in realize.block.iter_vars}
    analyzer = analyzer_at(tree, realize.block.body)
    found = inverse(analyzer, doms, store.indices)
    if isinstance(found, Reason):
        where = f"{store.buffer.name}[{', '.join(map(str, store.indices))}]"
        raise ScheduleError(
            f"block {realize.block.name_hint!r} stores at {where}, from which its axes do not follow (see {found.nodes[0]})",
            where=realize,
            hint="the indices must be its axes, or splits and fusions of them, each used once",
        )
    return found


def with_regions(block: Block, more: Sequence[BufferRegion]) -> Block:
    """Return the block with regions computed anew, and ``more`` added to its reads.

    Loads in the indices of the old regions come first, as in TVM.
    """
    ends = [e for old in (*block.reads, *block.writes) for r in old.region for e in (r.min, r.extent)]
    indexing = [n.buffer for e in ends for n in pre_order(e) if isinstance(n, BufferLoad)]
    first = {b: n for n, b in enumerate(dict.fromkeys(indexing))}
    new = redeclared(block, more)
    return new.with_(reads=tuple(sorted(new.reads, key=lambda r: first.get(r.buffer, len(first)))))


def defined_in(stmt: Stmt) -> set[Var]:
    """Return the variables of loops, let statements and block axes below ``stmt``."""
    out: set[Var] = set()
    for n in pre_order(stmt):
        if isinstance(n, For):
            out.add(n.loop_var)
        elif isinstance(n, Block):
            out.update(iv.var for iv in n.iter_vars)
        elif isinstance(n, (LetStmt, Let)):
            out.add(n.var)
    return out


def as_data(value: Expr) -> Expr:
    """Return a value whose arithmetic wraps around in its type, as that of a load of it does."""
    return cast(value.dtype, cast(f"u{value.dtype}", value))


def may_wrap(analyzer: Analyzer, reader: IRNode, value_of: Callable[[BufferLoad], Expr | None]) -> bool:
    """Return whether arithmetic of data in ``reader`` becomes arithmetic of places that may leave its type.

    ``value_of`` gives the value in the stead of a load, or None; ``analyzer`` knows the ranges of the variables in it.
    """

    def post(n: Any) -> Any:
        return value_of(n) if isinstance(n, BufferLoad) else None

    for n in pre_order(reader):
        if isinstance(n, (Add, Sub, Mul)) and n.dtype in INDEX_TYPES and not index_like(n):
            new = transform(n, post=post)
            if index_like(new):
                low, high = analyzer.const_int_bound(new)
                if low is None or high is None or low < min_value(n.dtype) or high > max_value(n.dtype):
                    return True
    return False
