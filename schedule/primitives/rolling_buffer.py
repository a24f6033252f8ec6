"""This module defines rolling_buffer, which keeps elements that neighbouring tiles share in a circular buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.access import accesses
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.region_cover import why_none_covers, why_not_covered
from ...tir.analysis.regions import redeclared
from ...tir.analysis.scope import BlockScope, buffers_of, is_output_block
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Analyzer, eval_interval
from ...tir.expr import (
    LE,
    LT,
    Add,
    Expr,
    FloorDiv,
    IntImm,
    IterVar,
    Mul,
    Or,
    Range,
    Sub,
    Var,
    all_,
    conjuncts,
    const,
    is_const_int,
)
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, For, PrimFunc, Stmt
from ...tir.walk import substitute, transform, uses_var
from ..edit.buffers import moved_accesses, pick_buffer
from ..errors import ScheduleError, require
from ..primitive import primitive
from ..require.block_preconditions import (
    check_no_pointers,
    check_not_accumulating,
    check_only_writer,
    check_plain_path,
    check_writes_first,
    find_block,
    ordered_scope,
)
from ..require.loop_preconditions import check_loops_above


@primitive
def rolling_buffer(func: PrimFunc, block: str, write_buffer_index: int | str) -> PrimFunc:
    """Keep elements that a producer computed for the last tile, where the next tile needs them again.

    The producer is under tiled loops of its consumers, where ``compute_at`` puts it, and computes more elements per
    tile than the distance of two tiles. Along the outermost such loop the buffer shrinks to the size of one tile and is
    addressed modulo that size. A predicate leaves out elements that an earlier tile has computed, also along inner
    loops.

    Applies to a block that stores at plain axes into a buffer of its scope, which is read under the shared loops only,
    and only where the same iteration computes it. Each tile starts at ``loop * stride`` or
    ``loop * stride // divisor``, plus constants; the loops from the rolling one inwards run in order.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((14,)), C: T.Buffer((12,))):
    ...     B = T.alloc_buffer((14,))
    ...     for i in range(14):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(14, i)
    ...             B[vi] = A[vi] * T.float32(2)
    ...     for i in range(12):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(12, i)
    ...             C[vi] = B[vi] + B[vi + 2]
    ... '''))
    >>> i0, i1 = sch.split(sch.get_loops("C")[0], [3, 4])
    >>> sch.compute_at("B", i0)
    >>> sch.rolling_buffer("B", 0)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((14,), "float32"), C: T.Buffer((12,), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((6,))
        for i_0 in range(3):
            for ax0 in range(6):
                with T.block("B"):
                    vi = T.axis.opaque(14, i_0 * 4 + ax0)
                    T.where(i_0 < 1 or 2 <= ax0)
                    T.reads(A[vi])
                    T.writes(B[vi % 6])
                    B[vi % 6] = A[vi] * T.float32(2.0)
            for i_1 in range(4):
                with T.block("C"):
                    vi = T.axis.opaque(12, i_0 * 4 + i_1)
                    T.reads(B[0:6])
                    T.writes(C[vi])
                    C[vi] = B[vi % 6] + B[(vi + 2) % 6]
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    buffer = pick_buffer(realize, write_buffer_index, "write")
    readers = _checked_readers(tree, scope, realize, buffer)
    loops = tree.loops_above(realize)
    shared = [lp for lp in loops if all(tree.is_below(r, lp) for r in readers)]
    if not shared:
        raise ScheduleError(
            f"block {block!r} shares no loop with the readers of {buffer.name}", where=(realize, *readers),
            hint="tile the consumer and compute_at the block under a loop of its tiles first",
        )  # fmt: skip
    dims = _tiles(tree, realize, buffer, loops[len(shared) :], shared)
    axis = _rolling(realize, buffer, dims, shared)
    roll = dims[axis]
    assert roll.loop is not None
    inside = shared[[lp.loop_var for lp in shared].index(roll.loop) :]
    _check_earlier_iterations(tree, realize, dims, inside, shared)
    for reader in readers:
        require(why_not_covered(tree, realize, reader, buffer))
    _check_sources(tree, scope, realize, inside)
    new = _rewrite(tree, scope, realize, buffer, dims, axis, inside)
    after = tree_of(new)
    for name in (block, *[r.block.name_hint for r in readers]):
        check_loops_above(after, find_block(after, name))
    return new


@dataclass(frozen=True, slots=True)
class _RolledDimension:
    """A ``_RolledDimension`` describes one dimension, which ``value`` addresses: at most ``extent`` elements per iteration.

    At least ``overlap`` of them are needed by the next iteration of ``loop``, the loop that moves the tile (None when
    tiles do not overlap).
    """

    axis: Var
    value: Expr
    first: Expr
    extent: int | None
    overlap: int = 0
    loop: Var | None = None


def _checked_readers(tree: Tree, scope: BlockScope, realize: BlockRealize, buffer: Buffer) -> list[BlockRealize]:
    name = realize.block.name_hint
    if is_output_block(tree, realize) or buffer not in scope.root.block.alloc_buffers:
        raise ScheduleError(
            f"block {name!r} writes an output of its scope, all of which has to stay", where=realize,
            hint="only a buffer that the scope allocates can roll",
        )  # fmt: skip
    check_only_writer(tree, realize)
    check_plain_path(tree, realize)
    check_no_pointers(scope.root.block, [buffer], "which cannot be followed", realize)
    check_not_accumulating(realize, buffer, accesses(realize.block.body, buffer))
    readers = [r for r in scope.readers.get(buffer, ()) if r is not realize]
    if not readers:
        raise ScheduleError(
            f"no block reads {buffer.name}",
            where=realize,
            hint="its value is used nowhere; choose a block that has consumers",
        )
    check_writes_first(scope, realize, readers, buffer)
    return readers


def _tiles(
    tree: Tree, realize: BlockRealize, buffer: Buffer, inner: Sequence[For], shared: Sequence[For]
) -> list[_RolledDimension]:
    """Return for each dimension of the buffer what one iteration of the shared loops computes."""
    block, name = realize.block, realize.block.name_hint
    values = {iv.var: (iv, e) for iv, e in zip(block.iter_vars, realize.iter_values, strict=True)}
    analyzer = analyzer_at(tree, realize)
    ranges = {lp.loop_var: (lp.min, lp.min + lp.extent - 1) for lp in inner}
    moving = {lp.loop_var for lp in shared}
    for iv, e in values.values():
        if iv.kind == IterVar.REDUCE and uses_var(e, lambda v: v in moving):
            raise ScheduleError(
                f"a shared loop carries the reduction of block {name!r}",
                where=realize,
                hint="compute_at to a loop outside the reduction",
            )
    at: Sequence[Expr] | None = None
    for access in accesses(block, buffer):
        if at is None:
            at = access.indices
        plain = all(a is b and isinstance(a, Var) and a in values and values[a][0].kind != IterVar.REDUCE
                    for a, b in zip(access.indices, at, strict=True))  # fmt: skip
        if not plain or len(set(at)) < len(at):
            raise ScheduleError(
                f"block {name!r} accesses {access.node}, not at axes of its own, each once", where=realize,
                hint="transform_block_layout can change the axes",
            )  # fmt: skip
    assert at is not None
    out: list[_RolledDimension] = []
    for v in at:
        assert isinstance(v, Var)
        value = values[v][1]
        ends = eval_interval(value, ranges)
        if ends is None:
            raise ScheduleError(
                f"axis {v.name} of block {name!r} is bound to {value}, no sum of loops",
                where=realize,
                hint="the tile has to move by whole loops: use compute_at first",
            )
        first = analyzer.simplify(ends[0])
        out.append(_tile(v, value, first, analyzer.const_int_bound(ends[1] - ends[0] + 1), moving))
    return out


def _tile(
    axis: Var, value: Expr, first: Expr, extents: tuple[int | None, int | None], moving: set[Var]
) -> _RolledDimension:
    """Return the tile with its overlap, or unchanged when tiles do not overlap.

    A tile overlaps the next only if it moves by ``loop * stride // divisor``, plus constants, and by less than its
    extent.

    Its extent may lie between the two of ``extents``: windows of ``i // 3`` in tiles of two contain one element or two.
    """
    least, extent = extents
    plain = _RolledDimension(axis, value, first, extent)
    if least is None or extent is None:
        return plain
    e = _without_constant(first)
    divisor = 1
    if isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0:
        divisor, e = e.b.value, _without_constant(e.a)
    stride = 1
    if isinstance(e, Mul) and isinstance(e.b, IntImm):
        stride, e = e.b.value, e.a
    if not isinstance(e, Var) or e not in moving or stride < 1:
        return plain
    overlap = least - -(-stride // divisor)
    return _RolledDimension(axis, value, first, extent, overlap, e) if overlap > 0 else plain


def _without_constant(e: Expr) -> Expr:
    return e.a if isinstance(e, (Add, Sub)) and isinstance(e.b, IntImm) else e


def _rolling(realize: BlockRealize, buffer: Buffer, dims: Sequence[_RolledDimension], shared: Sequence[For]) -> int:
    """Return the dimension to roll: that of the outermost loop whose tiles overlap."""
    for loop in shared:
        for number, tile in enumerate(dims):
            if tile.loop is loop.loop_var:
                return number
    text = ", ".join(f"{t.first}: {t.extent} elements" for t in dims)
    raise ScheduleError(
        f"no dimension of {buffer.name} has tiles that overlap: {text}", where=realize,
        hint="a tile starts at loop * stride and is larger than the stride",
    )  # fmt: skip


def _check_earlier_iterations(
    tree: Tree, realize: BlockRealize, dims: Sequence[_RolledDimension], inside: Sequence[For], shared: Sequence[For]
) -> None:
    """Raise ScheduleError unless elements of an earlier iteration still exist and have the values this one would
    compute."""
    name = realize.block.name_hint
    for loop in inside:
        if loop.kind not in ("serial", "unrolled") or not is_const_int(loop.min, 0):
            raise ScheduleError(
                f"loop {loop.loop_var.name} does not run in order from 0, so its iterations cannot share what block "
                f"{name!r} computes",
                where=(loop, realize),
                hint="use a serial loop from 0",
            )
    for number, tile in enumerate(dims):
        for other, another in enumerate(dims):
            if tile.loop is not None and number != other and uses_var(another.value, tile.loop):
                raise ScheduleError(
                    f"loop {tile.loop.name} moves the tile in dimensions {number} and {other}, so an earlier iteration "
                    "has computed other elements than are needed again",
                    where=realize,
                    hint="roll a buffer whose tile moves along one dimension per loop",
                )
    known = {lp.loop_var for lp in shared}
    for loop in inside:
        if any(uses_var(loop.extent, v) for v in known):
            raise ScheduleError(
                f"the extent {loop.extent} of loop {loop.loop_var.name} changes",
                where=loop,
                hint="roll over a loop inside the one that it depends on, or split by a constant",
            )
    analyzer = analyzer_at(tree, realize)
    values = [(iv, e) for iv, e in zip(realize.block.iter_vars, realize.iter_values, strict=True)]
    for test in conjuncts(realize.predicate):
        if not any(_bounds_domain(analyzer, test, iv, e) for iv, e in values):
            raise ScheduleError(
                f"block {name!r} runs under {test}, so an earlier iteration may have left out what is needed again",
                where=realize,
                hint="only the bounds of its axes may stand there",
            )


def _check_sources(tree: Tree, scope: BlockScope, realize: BlockRealize, inside: Sequence[For]) -> None:
    """Raise ScheduleError unless each iteration finds all direct and indirect inputs written in the same iteration.

    An element that an earlier iteration computed from undefined values would be taken for computed. Producers that
    already roll were checked when they were changed.
    """
    queue, seen = [realize], {realize}
    while queue:
        reader = queue.pop()
        for buffer in buffers_of(reader.block)[0]:
            writers = [w for w in scope.writers.get(buffer, ()) if w is not reader and tree.is_below(w, inside[0])]
            if not writers or reader in scope.writers[buffer] or any(_rolls(w, inside) for w in writers):
                continue
            earlier = [w for w in writers if scope.order[w] < scope.order[reader]]
            if not earlier:
                raise ScheduleError(
                    f"block {reader.block.name_hint!r} reads what an earlier iteration has left in {buffer.name}",
                    where=(reader, *writers),
                    hint="roll the buffer over an outer loop, or not at all",
                )
            require(why_none_covers(tree, earlier, reader, buffer))
            queue += [w for w in writers if w not in seen]
            seen.update(writers)


def _rolls(realize: BlockRealize, inside: Sequence[For]) -> bool:
    """Return whether the block already leaves out elements that an earlier iteration has computed."""
    loops = {lp.loop_var for lp in inside}
    return any(
        isinstance(test, Or) and isinstance(test.a, LT) and test.a.a in loops and is_const_int(test.a.b, 1)
        for test in conjuncts(realize.predicate)
    )


def _bounds_domain(analyzer: Analyzer, test: Expr, axis: IterVar, value: Expr) -> bool:
    """Return whether the condition holds wherever the axis is in its domain."""
    dom = axis.dom
    with analyzer.constraint(value >= dom.min), analyzer.constraint(value < dom.min + dom.extent):
        return analyzer.can_prove(test)


def _rewrite(
    tree: Tree,
    scope: BlockScope,
    realize: BlockRealize,
    buffer: Buffer,
    dims: Sequence[_RolledDimension],
    axis: int,
    inside: Sequence[For],
) -> PrimFunc:
    roll = dims[axis]
    assert roll.extent is not None and roll.loop is not None
    size = const(roll.extent, roll.axis.dtype)
    shape = tuple([size if d == axis else e for d, e in enumerate(buffer.shape)])
    small = buffer.with_(shape=shape, strides=())
    analyzer = analyzer_at(tree, realize)
    tests = conjuncts(realize.predicate)
    for tile in dims:
        if tile.loop is not None:
            offset = analyzer.simplify(substitute(tile.value - tile.first, {tile.loop: const(0, tile.loop.dtype)}))
            if not analyzer.can_prove_equal(tile.value - tile.first, offset):
                raise ScheduleError(
                    f"{tile.value} does not move as a whole with loop {tile.loop.name}",
                    where=realize,
                    hint="the tile's start has to be a multiple of the loop plus what does not change",
                )
            zero, overlap = const(1, tile.loop.dtype), const(tile.overlap, offset.dtype)
            tests.append(Or(LT(tile.loop, zero), LE(overlap, offset)))

    def wrapped(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple([i % size if d == axis else i for d, i in enumerate(indices)])

    def post(n: Any) -> Any:
        if isinstance(n, BlockRealize):
            return _in_order(n, roll.loop)
        if isinstance(n, Block) and any(r.buffer is buffer for r in (*n.reads, *n.writes)):
            new = redeclared(n)
            return new.with_(reads=tuple(map(tidy, new.reads)), writes=tuple(map(tidy, new.writes)))
        return None

    def tidy(region: BufferRegion) -> BufferRegion:
        """Returns the elements before and after the wrap: the whole circle."""
        if region.buffer is not small or isinstance(region.region[axis].extent, IntImm):
            return region
        whole = Range(const(0, size.dtype), size)
        return BufferRegion(small, tuple([whole if d == axis else r for d, r in enumerate(region.region)]))

    changed = transform(moved_accesses(inside[0], buffer, small, wrapped), post=post)

    def guarded(n: Any) -> Any:
        if isinstance(n, BlockRealize) and n.block.name_hint == realize.block.name_hint:
            return BlockRealize(n.iter_values, all_(*tests), n.block)
        return n if isinstance(n, Expr) else None

    changed = transform(changed, guarded)
    root = scope.root.block
    kept = tuple([small if b is buffer else b for b in root.alloc_buffers])
    above: Stmt = inside[0]
    return tree.replace({above: changed}, {root: lambda b: b.with_(alloc_buffers=kept)})


def _in_order(realize: BlockRealize, loop: Any) -> BlockRealize:
    """Return the block with the axes that move with the rolling loop made opaque, so that their order stays."""
    block = realize.block
    axes = tuple([
        IterVar(iv.dom, iv.var, IterVar.OPAQUE, iv.thread_tag)
        if iv.kind == IterVar.SPATIAL and uses_var(value, loop)
        else iv
        for iv, value in zip(block.iter_vars, realize.iter_values, strict=True)
    ])  # fmt: skip
    if all(a is b for a, b in zip(axes, block.iter_vars, strict=True)):
        return realize
    return BlockRealize(realize.iter_values, realize.predicate, block.with_(iter_vars=axes))
