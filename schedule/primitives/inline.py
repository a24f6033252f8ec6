"""compute_inline and reverse_compute_inline: a stage disappears into the ones around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.arith import Analyzer
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Expr, Var, cast, is_const_int
from ...tir.function import PrimFunc
from ...tir.regions import access_regions
from ...tir.stmt import Block, BlockRealize, BufferStore, Stmt
from ...tir.walk import pre_order, substitute, transform
from ..analysis import (
    Scope,
    accesses,
    all_of,
    check_complete,
    check_only_writer,
    check_plain_path,
    conjuncts,
    is_output_block,
    opaque_buffers,
    scope_of,
)
from ..boxes import analyzer_at
from ..errors import ScheduleError
from ..invert import NotInvertible, inverse, invert
from ..primitive import primitive
from ..regions import check_cover, covers_domain, domain_text
from ..tree import Tree, tree_of
from ._moving import rebuild

__all__ = ["compute_inline", "reverse_compute_inline"]


def _single_store(realize: BlockRealize) -> BufferStore:
    body = realize.block.body
    if not isinstance(body, BufferStore) or body.predicate is not None or realize.block.init is not None:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} does more than store one value",
            where=realize,
            hint="its body must be a single B[...] = value",
        )
    return body


def _check_pointers(scope: Scope, buffer: Buffer) -> None:
    if buffer.data in opaque_buffers(scope.root.block):
        raise ScheduleError(
            f"buffer {buffer.name} is accessed through a pointer or a match_buffer, so it has to exist",
            where=scope.root,
            hint="do this before tensorize and other steps that bring in pointers",
        )


def _check_inputs_stay(scope: Scope, realize: BlockRealize, until: Sequence[BlockRealize]) -> None:
    """Nothing that the block reads may change between it and its last consumer."""
    first = scope.order[realize]
    last = max([scope.order[u] for u in until], default=first)
    for region in realize.block.reads:
        for writer in scope.writers.get(region.buffer, ()):
            if first < scope.order[writer] <= last:
                raise ScheduleError(
                    f"block {realize.block.name_hint!r} reads {region.buffer.name}, which block "
                    f"{writer.block.name_hint!r} overwrites before its value is used",
                    where=(realize, writer),
                    hint="move the consumers before that block first",
                )


@primitive
def compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Compute what ``block`` computes where it is read, and drop the block and its buffer.

    Applies to a complete block that stores one value, at a place from which its axes follow (axes, also counted down
    or shifted, digits such as ``v // 16, v % 16``, or sums of these), into a buffer that does not live on after the scope.
    Its readers read what it has written; a block that nothing reads just goes.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    ...     B = T.alloc_buffer((8, 8))
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("C"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             C[vi, vj] = B[vi, vj] + T.float32(1)
    ... '''))
    >>> sch.compute_inline("B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)
    """
    tree = tree_of(func)
    realize = tree.block(block)
    scope = scope_of(tree, realize)
    store = _single_store(realize)
    check_complete(tree, realize)
    check_plain_path(tree, realize)
    buffer = store.buffer
    if is_output_block(tree, realize):
        raise ScheduleError(
            f"block {block!r} writes {buffer.name}, an output of its scope, which has to be computed", where=realize,
            hint="reverse_compute_inline puts it into its producer",
        )  # fmt: skip
    _check_pointers(scope, buffer)
    places, axes = _axes_of_store(tree, realize, store)
    readers = [r for r in scope.readers.get(buffer, ()) if r is not realize]
    for reader in readers:
        if scope.order[reader] < scope.order[realize]:
            raise ScheduleError(
                f"block {reader.block.name_hint!r} reads {buffer.name} before block {block!r} writes it",
                where=(reader, realize),
                hint="only what comes after the block can take its value",
            )
    if len(scope.blocks) == 1:
        raise ScheduleError(
            f"block {block!r} is the only one of its scope, which cannot be left empty", where=realize,
            hint=f"nothing reads {buffer.name}; return it, or drop the function",
        )  # fmt: skip
    _check_inputs_stay(scope, realize, readers)
    _check_reads_exist(tree, realize, readers, store)

    def value_at(load: BufferLoad) -> Expr:
        at = {v: cast(v.dtype, i) for v, i in zip(places, load.indices, strict=True)}
        return substitute(store.value, {v: substitute(e, at) for v, e in axes.items()})  # type: ignore[no-any-return]

    changes: dict[Stmt, Stmt | None] = {realize: None}
    for reader in readers:
        changes[reader] = _inlined(reader, buffer, value_at)
    new = tree.replace(changes)
    tree = tree_of(new)
    root = tree.block(scope.root.block.name_hint).block
    kept = tuple([b for b in root.alloc_buffers if b is not buffer])
    return tree.replace({root: root.with_(alloc_buffers=kept)})


def _axes_of_store(tree: Tree, realize: BlockRealize, store: BufferStore) -> tuple[list[Var], dict[Var, Expr]]:
    """A variable for each index of the store, and the block's axes as expressions of them."""
    doms = {iv.var: iv.dom for iv in realize.block.iter_vars}
    analyzer = analyzer_at(tree, realize)
    for v, dom in doms.items():
        analyzer.bind(v, dom)
    try:
        return inverse(analyzer, doms, store.indices)
    except NotInvertible as e:
        where = f"{store.buffer.name}[{', '.join(map(str, store.indices))}]"
        raise ScheduleError(
            f"block {realize.block.name_hint!r} stores at {where}, from which its axes do not follow (see {e.index})",
            where=realize,
            hint="the indices must be its axes, or splits and fusions of them, each used once",
        ) from None


def _check_reads_exist(tree: Tree, realize: BlockRealize, readers: Sequence[BlockRealize], store: BufferStore) -> None:
    """A reader must mean an element that the block has computed, in the same turn of the loops they share: elsewhere
    the block's own reads may leave their buffers."""
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
    if not (apart and whole and covers_domain(tree, realize)):
        for reader in readers:
            check_cover(tree, realize, reader, store.buffer)


def _inlined(reader: BlockRealize, buffer: Buffer, value_at: Any) -> BlockRealize:
    """The block with loads of ``buffer`` replaced, and its regions found anew."""

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            return value_at(n)
        if isinstance(n, Block) and any(r.buffer is buffer for r in n.reads):
            return _with_regions(n)
        return None

    return transform(reader, post=post)  # type: ignore[no-any-return]


def _with_regions(block: Block) -> Block:
    """The regions found anew; what the indices of the old ones read comes first, as in TVM."""
    own = {*block.alloc_buffers, *[m.buffer for m in block.match_buffers]}
    reads, writes = [[r for r in found if r.buffer not in own] for found in access_regions(block.body, block.init)]
    ends = [e for old in (*block.reads, *block.writes) for r in old.region for e in (r.min, r.extent)]
    indexing = [n.buffer for e in ends for n in pre_order(e) if isinstance(n, BufferLoad)]
    first = {b: n for n, b in enumerate(dict.fromkeys(indexing))}
    reads.sort(key=lambda r: first.get(r.buffer, len(first)))
    return block.with_(reads=tuple(reads), writes=tuple(writes))


# -- the other way ------------------------------------------------------------------------------------------------------------


@primitive
def reverse_compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Compute what ``block`` computes right where its only producer makes its input, and drop the block.

    Applies to a complete block that stores one value and reads its producer's buffer at one place, from which its axes
    follow (axes, or digits such as ``v // 16, v % 16``); it must be the buffer's only reader, and the producer a
    complete block that stores one value, runs on the whole domain of its axes and has no other condition. When the
    producer makes more than the block reads, the rest is left out by a predicate.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    ...     B = T.alloc_buffer((8, 8))
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("C"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             C[vi, vj] = B[vi, vj] + T.float32(1)
    ... '''))
    >>> sch.reverse_compute_inline("C")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)
    """
    tree = tree_of(func)
    realize = tree.block(block)
    scope = scope_of(tree, realize)
    store = _single_store(realize)
    check_complete(tree, realize)
    check_plain_path(tree, realize)
    producers = scope.producers(realize)
    if len(producers) != 1:
        raise ScheduleError(
            f"block {block!r} has {len(producers)} producers "
            f"({', '.join(repr(p.block.name_hint) for p in producers)}), it can be put into one only",
            where=(realize, *producers),
            hint="compute_inline one of the producers first",
        )
    producer = producers[0]
    made = _single_store(producer)
    check_complete(tree, producer)
    check_plain_path(tree, producer)
    check_only_writer(tree, producer)
    buffer = made.buffer
    name = producer.block.name_hint
    if is_output_block(tree, producer):
        raise ScheduleError(
            f"{buffer.name}, which block {name!r} writes, is an output of the scope and has to stay",
            where=producer,
            hint="inline the other way round, or cache_write first",
        )
    _check_pointers(scope, buffer)
    others = [r for r in scope.readers.get(buffer, ()) if r is not realize]
    if others:
        raise ScheduleError(
            f"{buffer.name} is also read by {', '.join(repr(r.block.name_hint) for r in others)}",
            where=(realize, *others),
            hint="only the one reader of a buffer can go into its producer",
        )
    for which in (producer, realize):
        if not covers_domain(tree, which):
            raise ScheduleError(
                f"block {which.block.name_hint!r} is not known to run on the whole domain of its axes: {domain_text(which)}; "
                "the condition would be lost",
                where=(which, realize),
                hint="let both blocks run on their whole domains, with T.if_then_else in the value in place of T.where",
            )
    loads = [n for n in pre_order(store) if isinstance(n, BufferLoad) and n.buffer is buffer]
    if not loads:
        raise ScheduleError(
            f"block {block!r} declares that it reads {buffer.name}, and its value does not", where=realize,
            hint=f"nothing needs block {name!r} here",
        )  # fmt: skip
    first = loads[0]
    analyzer = Analyzer()
    for iv in (*realize.block.iter_vars, *producer.block.iter_vars):
        analyzer.bind(iv.var, iv.dom)
    for load in loads[1:]:
        if not all(analyzer.can_prove_equal(a, b) for a, b in zip(first.indices, load.indices, strict=True)):
            raise ScheduleError(
                f"block {block!r} reads {buffer.name} at several places",
                where=realize,
                hint="reverse_compute_inline takes a consumer that reads one element; compute_inline its producer",
            )
    if any(a.guards for a in accesses(realize.block.body, buffer)):
        raise ScheduleError(
            f"block {block!r} reads {buffer.name} under a condition; where that does not hold no producer's turn "
            "stands for the block's",
            where=realize,
            hint=f"compute_inline({name!r}) goes the other way",
        )
    _check_between(scope, producer, realize)
    check_cover(tree, producer, realize, buffer)

    axes, tests = _axes_from(analyzer, realize, first.indices, made.indices)
    axes = {v: cast(v.dtype, e) for v, e in axes.items()}

    def post(n: Any) -> Any:
        return made.value if isinstance(n, BufferLoad) and n.buffer is buffer else None

    value = transform(substitute(store.value, axes), post=post)
    indices = tuple([transform(substitute(i, axes), post=post) for i in store.indices])
    body = BufferStore(store.buffer, value, indices)
    block_now = _with_regions(producer.block.with_(body=body))
    bound = {iv.var: v for iv, v in zip(producer.block.iter_vars, producer.iter_values, strict=True)}
    predicate = producer.predicate
    local = analyzer_at(tree, producer)
    more = [c for t in tests for c in conjuncts(local.simplify(substitute(t, bound)))]
    if more:
        predicate = all_of([*conjuncts(predicate), *more])
    new = tree.replace({realize: None, producer: BlockRealize(producer.iter_values, predicate, block_now)})
    root = scope.root.block
    here = tree_of(new).block(root.name_hint).block
    kept = tuple([b for b in here.alloc_buffers if b is not buffer])
    return rebuild(tree_of(new), {}, {here: lambda b: b.with_(alloc_buffers=kept)})


def _check_between(scope: Scope, producer: BlockRealize, consumer: BlockRealize) -> None:
    """The consumer moves up to its producer: what it reads must be there already, what it writes not be in use."""
    first, last = scope.order[producer], scope.order[consumer]
    for between in scope.blocks[first : last + 1]:
        if between is consumer or between is producer:
            continue
        theirs = {r.buffer for r in between.block.writes}
        for region in consumer.block.reads:
            if region.buffer in theirs:
                raise ScheduleError(
                    f"block {between.block.name_hint!r} writes {region.buffer.name} after the producer ran",
                    where=(producer, between),
                    hint="the value at the later place would be another one; cache_read the buffer first",
                )
    for region in consumer.block.writes:
        for reader in scope.readers.get(region.buffer, ()):
            if scope.order[reader] < last:
                raise ScheduleError(
                    f"block {reader.block.name_hint!r} reads {region.buffer.name} before it is written",
                    where=(reader, consumer),
                    hint="the blocks have to be in another order",
                )
    for region in consumer.block.reads:
        for writer in scope.writers.get(region.buffer, ()):
            if scope.order[writer] > last:
                raise ScheduleError(
                    f"block {writer.block.name_hint!r} overwrites {region.buffer.name} later",
                    where=(writer, consumer),
                    hint="let the consumer read a copy of it: cache_read first",
                )


def _axes_from(
    analyzer: Analyzer, realize: BlockRealize, indices: Sequence[Expr], values: Sequence[Expr]
) -> tuple[dict[Var, Expr], list[Expr]]:
    """The axes of the block from the equations ``indices == values``, and the conditions under which they exist."""
    try:
        return invert(analyzer, {iv.var: iv.dom for iv in realize.block.iter_vars}, indices, values)
    except NotInvertible as e:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} reads its input at {', '.join(map(str, indices))}, from which its axes "
            f"do not follow (see {e.index})",
            where=realize,
            hint="the indices must be its axes, or splits and fusions of them, each used once",
        ) from None
