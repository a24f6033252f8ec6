"""This module defines the steps that move a block to its consumers or producers: under a loop, or into them.

``compute_at`` and ``reverse_compute_at`` move it where the caller says; ``sample_compute_location`` chooses the loop at random.
All of them call :func:`moved_block`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from ...tir.analysis.access import Access, accesses
from ...tir.analysis.footprint import bounding_box
from ...tir.analysis.known_ranges import analyzer_at, bind_loops
from ...tir.analysis.region_cover import (
    Required,
    covers_domain,
    domain_conditions,
    join_boxes,
    reduces_once,
    required_domains,
    why_neighbours_not_covered,
)
from ...tir.analysis.scope import BlockScope, is_output_block
from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.arith import Analyzer, Ends
from ...tir.arith.smt import is_solving
from ...tir.expr import Expr, IterVar, Range, Var, is_const_int, same
from ...tir.stmt import BlockRealize, Buffer, For, PrimFunc, Stmt, children_of
from ...tir.walk import substitute, uses_var
from ..edit.buffers import shared_by_thread
from ..edit.inlining import inlined, inlined_into_producer
from ..edit.loop_nests import insert_in, nest, realize_over, span_within
from ..errors import ScheduleError, bad_argument, require
from ..handles import COMPUTE_INLINE, COMPUTE_ROOT
from ..primitive import primitive
from ..require.block_preconditions import (
    check_complete_or_reduction,
    check_no_pointers,
    check_plain_path,
    check_read_by_blocks_alone,
    check_reads_stay,
    check_writes_first,
    consumers_of,
    find_block,
    find_loop,
    ordered_scope,
    scope_around,
)
from ..require.loop_preconditions import check_kinds_for, check_loops_above


@primitive
def compute_at(func: PrimFunc, block: str, loop: Var, preserve_unit_loops: bool = False, index: int = -1) -> PrimFunc:
    """Move a producer under ``loop``, where it computes the elements that its consumers there need.

    Loops of one iteration are left out unless ``preserve_unit_loops``. ``index`` is the position among the statements
    under the loop: -1 the last possible (just before the first consumer), -2 the first possible.

    The loops of the block are made anew, in the order of its axes, over the elements that its consumers read in one
    iteration of the loop. A predicate excludes values outside of the axes' domains; a condition of the block is kept.

    Applies when the block is complete or a reduction block, writes no buffer that lives on after the scope, and all its
    consumers are under the loop and read nothing that it does not compute there. A block that nothing reads may be
    moved as a whole under any loop after its producers.

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
    >>> i, j = sch.get_loops("C")
    >>> sch.compute_at("B", i)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((8, 8))
        for i in range(8):
            for ax0 in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = B[vi, vj] + T.float32(1.0)
    """
    return moved_block(func, block, loop, preserve_unit_loops, index, forward=True)


@primitive
def reverse_compute_at(
    func: PrimFunc, block: str, loop: Var, preserve_unit_loops: bool = False, index: int = -1
) -> PrimFunc:
    """Move a consumer under ``loop``, where it consumes the elements that its producers there compute.

    Loops of one iteration are left out unless ``preserve_unit_loops``. ``index`` is the position among the statements
    under the loop: -1 the last possible, -2 the first possible (just after the last producer).

    Applies when the block is complete or a reduction block, all its producers are under the loop or done before it
    begins, what it reads is final and complete there in each iteration, and all iterations together run it on the whole
    domain of its axes. A block without producers may be moved as a whole under any loop before its consumers.

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
    >>> i, j = sch.get_loops("B")
    >>> sch.reverse_compute_at("C", i)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((8, 8))
        for i in range(8):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
            for ax0 in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    T.reads(B[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = B[vi, vj] + T.float32(1.0)
    """
    return moved_block(func, block, loop, preserve_unit_loops, index, forward=False)


ROOT, INLINE = -1, -2


@primitive(kind="sample")
def sample_compute_location(
    func: PrimFunc, block: str, decision: int | None = None, *, rng: np.random.Generator
) -> tuple[int, Var]:
    """Choose a place for :func:`compute_at` among the legal ones, all with equal probability.

    The decision is the position of a loop above the block's first consumer, -1 for the present place of the block, or
    -2 for inlining it. The output can be passed to ``compute_at`` as the loop.

    As in TVM, some places are not drawn: loops of one iteration, data-parallel loops inside a loop that reduces, and
    reducing loops without a data-parallel one inside. The last two would only repeat the work of another place.
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    consumers = consumers_of(tree, realize)
    loops = tree.loops_above(consumers[0]) if consumers else []
    if decision is None:
        legal = _legal_places(func, block, is_solving())
        decision = legal[int(rng.integers(len(legal)))]
    if isinstance(decision, bool) or not isinstance(decision, int) or not INLINE <= decision < len(loops):
        raise ScheduleError(
            f"the decision {decision!r} is not a place for block {block!r}: its consumer has {len(loops)} loops",
            where=[realize, *[loop for loop in loops if isinstance(loop, For)]],
            hint="-2 inlines, -1 leaves the block where it is, others count loops from outside",
        )
    if decision == ROOT:
        return decision, COMPUTE_ROOT
    return decision, COMPUTE_INLINE if decision == INLINE else loops[decision].loop_var


@lru_cache(maxsize=64)
def _legal_places(func: PrimFunc, block: str, with_solver: bool) -> tuple[int, ...]:
    """Return the decisions that may be drawn, in order.

    A function never changes, so that its result is cached for all draws (separately with and without the solver, which
    accepts more).
    """
    tree = tree_of(func)
    consumers = consumers_of(tree, find_block(tree, block))
    places = [INLINE] if consumers and _applies(partial(inlined, func, block)) else []
    places.append(ROOT)
    for number, loop in _candidates(tree, consumers):
        if _applies(partial(moved_block, func, block, loop.loop_var, False, -1, True)):
            places.append(number)
    return tuple(places)


def _candidates(tree: Tree, consumers: Sequence[BlockRealize]) -> list[tuple[int, For]]:
    """Return the loops around all consumers that may be drawn, with their positions."""
    if not consumers:
        return []
    loops = tree.loops_above(consumers[0])
    shared = [lp for lp in loops if all(tree.is_below(c, lp) for c in consumers)]
    parallel = [_is_data_parallel(lp) for lp in shared]
    last = max([n for n, p in enumerate(parallel) if p], default=-1)
    out: list[tuple[int, For]] = []
    reduces = False
    for number, loop in enumerate(shared[: last + 1]):
        if is_const_int(loop.extent, 1):
            continue
        if parallel[number] and reduces:
            break
        reduces = reduces or not parallel[number]
        out.append((number, loop))
    return out


def _is_data_parallel(loop: For) -> bool:
    """Return whether all axes below that are bound to the loop are spatial."""
    return all(
        iv.kind == IterVar.SPATIAL or not uses_var(value, loop.loop_var)
        for inner in blocks_below(loop.body)
        for iv, value in zip(inner.block.iter_vars, inner.iter_values, strict=True)
    )


def _applies(step: Callable[[], object]) -> bool:
    try:
        step()
    except ScheduleError:
        return False
    return True


def moved_block(func: PrimFunc, block: str, loop: Var, keep_units: bool, index: int, forward: bool) -> PrimFunc:
    """Return the function with a block under ``loop``, at its consumers (``forward``) or at its producers."""
    if loop is COMPUTE_ROOT:  # sample_compute_location may choose this in place of a loop
        return func
    if loop is COMPUTE_INLINE:
        return inlined(func, block) if forward else inlined_into_producer(func, block)
    tree = tree_of(func)
    realize, target = find_block(tree, block), find_loop(tree, loop)
    scope = ordered_scope(tree, realize)
    own = _check_movable(tree, scope, realize, target, forward)
    partners = scope.consumers(realize) if forward else scope.producers(realize)
    if not forward:
        finished = _finished_before(tree, scope, realize, target, partners)
        partners = [p for p in partners if p not in finished]
    _check_partners(tree, realize, target, partners, forward)
    if not partners:
        _check_free(tree, scope, realize, target)

    without = tree.replace({realize: None})
    tree = tree_of(without)
    target = find_loop(tree, loop)
    position = _position(scope, realize, target, index)

    inner = analyzer_at(tree, target.body)
    required = (
        _needed_by_consumers(tree, inner, scope, realize, target)
        if forward
        else _made_by_producers(tree, inner, scope, realize, target)
    )
    domains = required_domains(inner, realize.block.iter_vars, required)
    spans = [span_within(inner, domains[iv.var], iv.dom) for iv in realize.block.iter_vars]
    new, loops = realize_over(inner, realize.block, spans, keep_units, own)
    moved = tree.replace({target.body: insert_in(target.body, position, nest(loops, new))})

    tree = tree_of(moved)
    if not forward:
        once = realize.block.init is not None or any(iv.kind != IterVar.SPATIAL for iv in realize.block.iter_vars)
        once = once and not (
            realize.block.init is not None and not partners
        )  # then each iteration starts the reduction again
        check_kinds_for(tree, new, tree.loops_above(new))
        if not (_runs_where(tree, new, own) if own else covers_domain(tree, new, once=once)):
            raise ScheduleError(
                f"under loop {loop.name} block {block!r} would not be known to run on the whole domain of its axes"
                + (" exactly once per point" if once else ""),
                where=(realize, *partners),
                hint="choose a loop whose iterations each make a box of the producer's elements, and no loop that "
                "the producer's output does not depend on",
            )
        _check_runs(tree, new)
        _check_starts(tree, new)
    require(why_neighbours_not_covered(tree, new))
    check_loops_above(tree, new)
    return moved


def _runs_where(tree: Tree, realize: BlockRealize, conditions: Sequence[Expr]) -> bool:
    """Return whether the loops run the block on all points of its domain that the conditions on its axes leave."""
    found = domain_conditions(tree, realize)
    return found is not None and all(any(same(c, own) for own in conditions) for c in found)


def _check_runs(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError when a loop that no axis is bound to may have no iteration. The block would then not run."""
    if any(is_const_int(iv.dom.extent, 0) for iv in realize.block.iter_vars):
        return
    analyzer = Analyzer()  # sizes may be 0
    for lp in tree.loops_above(realize):
        analyzer.bind(lp.loop_var, Range(lp.min, lp.extent))
        if not any(uses_var(v, lp.loop_var) for v in realize.iter_values) and not analyzer.can_prove(lp.extent >= 1):
            raise ScheduleError(
                f"loop {lp.loop_var.name} runs {lp.extent} times, which may be none, and block "
                f"{realize.block.name_hint!r} would run with it though no axis of it does",
                where=(lp, realize),
                hint="choose a loop that an axis is bound to, or a loop outside of it",
            )


def _check_starts(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the first iteration of its loops runs a reduction at the start of its axes.

    The init runs there.
    """
    if realize.block.init is None:
        return
    analyzer = analyzer_at(tree, realize)
    first: dict[Var, Expr] = {lp.loop_var: lp.min for lp in tree.loops_above(realize)}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == IterVar.REDUCE and not analyzer.can_prove_equal(substitute(value, first), iv.dom.min):
            raise ScheduleError(
                f"reduce axis {iv.var.name} of block {realize.block.name_hint!r} would be {value}, which does not start "
                f"at {iv.dom.min}, where the init runs",
                where=realize,
                hint="decompose_reduction first",
            )


def _check_movable(tree: Tree, scope: BlockScope, realize: BlockRealize, target: For, forward: bool) -> list[Expr]:
    """Return the conditions on its axes under which the block runs; ScheduleError when it cannot be moved at all."""
    name = realize.block.name_hint
    if tree.is_below(realize, target):
        raise ScheduleError(
            f"block {name!r} is under loop {target.loop_var.name} already", where=(realize, target),
            hint="choose a loop over another block",
        )  # fmt: skip
    if scope_around(tree, target) is not scope.root:
        raise ScheduleError(
            f"loop {target.loop_var.name} is in another scope than block {name!r}", where=(realize, target),
            hint="both must stand directly in the same block",
        )  # fmt: skip
    check_complete_or_reduction(tree, realize)
    check_plain_path(tree, realize)
    around = {lp.loop_var for lp in tree.loops_above(realize)}
    if uses_var(realize.block, lambda v: v in around):  # a block without axes may use the loops around it
        raise ScheduleError(
            f"block {name!r} uses loops around it inside its body, so it cannot leave them", where=realize,
            hint="only blocks that see loops through their axes can move",
        )  # fmt: skip
    if forward and is_output_block(tree, realize):
        raise ScheduleError(
            f"block {name!r} writes {realize.block.writes[0].buffer.name}, an output of its scope, which must be "
            "computed in full",
            where=realize,
            hint="use reverse_compute_at for a consumer, or cache_write first and move that",
        )
    for region in realize.block.writes:
        check_read_by_blocks_alone(scope, region.buffer)
    buffers = [r.buffer for r in (*realize.block.reads, *realize.block.writes)]
    check_no_pointers(scope.root.block, buffers, "so who needs what is not known", realize)
    own = domain_conditions(tree, realize)
    reduces = any(iv.kind != IterVar.SPATIAL for iv in realize.block.iter_vars)
    if own is None or (own and not forward and reduces):
        raise ScheduleError(
            f"block {name!r} is not known to run on the whole domain of its axes, so its loops cannot be made anew",
            where=realize,
            hint="its bindings must be splits and fusions of its loops, its predicate the bounds of its axes",
        )
    if reduces and not reduces_once(tree, realize):
        raise ScheduleError(
            f"the loops around block {name!r} are not known to bring each point of its reduction once",
            where=realize,
            hint="do this before loops that no axis uses are put around it",
        )
    _check_order(scope, realize)
    return own


def _check_order(scope: BlockScope, realize: BlockRealize) -> None:
    """Raise ScheduleError when what the block reads is overwritten later, or what it writes is read before."""
    hint = "do this before the block that overwrites it is there, or let this one read a copy (cache_read)"
    check_reads_stay(scope, realize, len(scope.blocks), hint)
    for region in realize.block.writes:
        readers = [r for r in scope.readers.get(region.buffer, ()) if r is not realize]
        hint = "the reader needs what was there before: leave the block in its place, or read from a copy (cache_read)"
        check_writes_first(scope, realize, readers, region.buffer, hint)


def _finished_before(
    tree: Tree, scope: BlockScope, realize: BlockRealize, target: For, producers: Sequence[BlockRealize]
) -> set[BlockRealize]:
    """Return the producers that are done when the loop begins, where another one is under it.

    They stand before the loop, under loops that hold the block as well, and no producer under the loop writes their
    buffers.
    """
    inside = [p for p in producers if tree.is_below(p, target)]
    if not inside:
        return set()
    made = {region.buffer for p in inside for region in p.block.writes}
    first = min(scope.order[b] for b in scope.blocks if tree.is_below(b, target))
    around = set(tree.above(target))
    return {
        p for p in producers
        if p not in inside and scope.order[p] < first and made.isdisjoint([region.buffer for region in p.block.writes])
        and all(tree.is_below(realize, loop) for loop in tree.loops_above(p) if loop in around)
    }  # fmt: skip


def _check_partners(
    tree: Tree, realize: BlockRealize, target: For, partners: Sequence[BlockRealize], forward: bool
) -> None:
    outside = [p for p in partners if not tree.is_below(p, target)]
    kind = "consumer" if forward else "producer"
    if outside:
        names, all_names = [", ".join([repr(p.block.name_hint) for p in some]) for some in (outside, partners)]
        name, loop = realize.block.name_hint, target.loop_var.name
        raise ScheduleError(
            f"not all {kind}s of block {name!r} are under loop {loop}: {names} "
            + ("reads" if forward else "writes")
            + f" what block {name!r} {'writes' if forward else 'reads'}, outside of it (all {kind}s: {all_names})",
            where=(realize, target, *outside),
            hint=f"choose a loop around all {kind}s, or move those first",
        )
    for partner in partners:
        check_plain_path(tree, partner)


def _check_free(tree: Tree, scope: BlockScope, realize: BlockRealize, target: For) -> None:
    """Raise ScheduleError unless a block without partners stays after what it reads and before what reads it."""
    under = [scope.order[b] for b in scope.blocks if tree.is_below(b, target)]
    name, loop = realize.block.name_hint, target.loop_var.name
    for producer in scope.producers(realize):
        if scope.order[producer] > max(under, default=-1):
            raise ScheduleError(
                f"block {producer.block.name_hint!r} writes what block {name!r} reads, and comes after loop {loop}",
                where=(target, producer, realize),
                hint="choose a loop behind its producers",
            )
    for consumer in scope.consumers(realize):
        if scope.order[consumer] < min(under, default=len(scope.blocks)):
            raise ScheduleError(
                f"block {consumer.block.name_hint!r} reads what block {name!r} writes, and comes before loop {loop}",
                where=(target, consumer, realize),
                hint="choose a loop in front of its consumers",
            )
    for region in realize.block.writes:
        for writer in scope.writers.get(region.buffer, ()):
            if writer is not realize:
                raise ScheduleError(
                    f"block {writer.block.name_hint!r} writes {region.buffer.name} as well, so their order has to stay",
                    where=(realize, writer),
                    hint="do this before decompose_reduction, or merge the writers",
                )


def _position(scope: BlockScope, realize: BlockRealize, target: For, index: int) -> int:
    """Return the position in the loop's body: after the block's producers and before its consumers."""
    producers, consumers = set(scope.producers(realize)), set(scope.consumers(realize))
    statements = children_of(target.body)
    first, last = 0, len(statements)
    for i, s in enumerate(statements):
        below = set(blocks_below(s))
        if below & producers:
            first = i + 1
        if below & consumers and last == len(statements):
            last = i
    if first > last:
        raise ScheduleError(
            f"under loop {target.loop_var.name} a consumer of block {realize.block.name_hint!r} comes before a producer",
            where=target,
            hint="choose an inner or another loop, or move the producer under it first",
        )
    if index == -1:
        return last
    if index == -2:
        return first
    if not first <= index <= last:
        raise bad_argument(
            f"index {index} is not a place for block {realize.block.name_hint!r} under loop {target.loop_var.name}: it may "
            f"stand at {first} to {last}",
            where=target,
            hint="-1 is the last possible place, -2 the first",
        )
    return index


def _needed_by_consumers(
    tree: Tree, analyzer: Analyzer, scope: BlockScope, realize: BlockRealize, target: For
) -> Required:
    """Return, for each store of the block, the box that consumers read in one iteration of the loop. What nobody reads,
    such as the index of an argmax of which only the value is used, asks for nothing where something else is read."""
    readers = {r.buffer: [c for c in scope.readers.get(r.buffer, ()) if c is not realize] for r in realize.block.writes}
    out: Required = []
    for buffer, users in readers.items():
        if users or not any(readers.values()):
            needed = _boxes(tree, analyzer, users, buffer, target, False)
            out.extend([(store, needed) for store in _distinct(realize.block.body, buffer, stores=True)])
    return out


def _made_by_producers(
    tree: Tree, analyzer: Analyzer, scope: BlockScope, realize: BlockRealize, target: For
) -> Required:
    """Return, for each load of the block, the box that producers write in one iteration of the loop."""
    out: Required = []
    written = {r.buffer for r in realize.block.writes}
    for buffer in {r.buffer: None for r in realize.block.reads}:
        writers = [w for w in scope.writers.get(buffer, ()) if w is not realize and tree.is_below(w, target)]
        if not writers or buffer in written:
            continue
        made = _boxes(tree, analyzer, writers, buffer, target, True)
        out.extend([(load, made) for load in _distinct(realize.block.body, buffer, stores=False)])
    return out


def _boxes(
    tree: Tree, analyzer: Analyzer, users: Sequence[BlockRealize], buffer: Buffer, target: For, stores: bool
) -> list[Ends | None]:
    """Return the box around the elements of the buffer that ``users`` access in one iteration of the loop.

    When threads share the buffer, reads of all these threads are included, as in TVM: they load shared memory together.
    """
    boxes: list[list[Ends | None]] = []
    depth = len(tree.loops_above(target)) + 1
    for user in users:
        above = tree.loops_above(user)
        below = above[depth:]
        if not stores:  # the threads of a block read a shared buffer together
            below = [
                *[
                    lp
                    for lp in above[:depth]
                    if lp.thread_binding and shared_by_thread(buffer.scope, lp.thread_binding)
                ],
                *below,
            ]
        local = analyzer_at(tree, user)
        for access in _distinct(user, buffer, stores):
            bind_loops(local, access.loops)
            boxes.append(bounding_box(local, access, below, {}))
    return join_boxes(analyzer, boxes, buffer.ndim)


def _distinct(stmt: Stmt, buffer: Buffer, stores: bool) -> list[Access]:
    """Return the stores of a buffer, or its loads, below ``stmt``. Of those that agree in all but the place, it returns
    one."""
    out: list[Access] = []
    for a in accesses(stmt, buffer):
        alike = (same(a.indices, b.indices) and same(a.guards, b.guards) and a.loops == b.loops for b in out)
        if a.is_store is stores and not any(alike):
            out.append(a)
    return out


@primitive
def compute_inline(func: PrimFunc, block: str, *blocks: str) -> PrimFunc:
    """Compute the value of ``block`` where it is read, and remove the block and its buffer.

    Further blocks, ``blocks``, are inlined in the same step, whose time is in proportion to the program; one step for each
    goes through the whole program every time. What is inlined may read what is inlined.

    Applies to a complete block that stores one value, at a place that determines its axes (axes, also descending or
    shifted, digits such as ``v // 16, v % 16``, or sums of these), into a buffer that does not live on after the scope.
    Its readers read only elements that it has written. A block that nothing reads is removed. The expressions of a
    reader may not grow beyond a fixed limit.

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
    return inlined(func, block, *blocks)


@primitive
def reverse_compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Compute the value of ``block`` directly where its only producer computes its input, and remove the block.

    Applies to a complete block that stores one value and reads its producer's buffer at one place, which determines its
    axes (axes, or digits such as ``v // 16, v % 16``). It must be the only reader of the buffer. The producer must be a
    complete block that stores one value, and computes all that the block reads; elements that it computes beyond those
    are excluded by a predicate. The producer may also be a reduction block when the block just copies its result: it
    then accumulates in the buffer that the block writes.

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
    return inlined_into_producer(func, block)
