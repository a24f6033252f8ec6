"""This module defines loop_partition, which divides a loop into consecutive ones, and merge, which combines such loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ...tir.analysis.access import opaque_buffers
from ...tir.analysis.dependence import accessed_boxes_below, conflicts
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.regions import access_regions
from ...tir.analysis.scope import bare_loads, region_of
from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.arith import Analyzer, eval_interval
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Range, Var, const
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import fresh_copy, pre_order, reads_memory, substitute, transform, uses_var, vars_in
from ..errors import ScheduleError, bad_argument, require
from ..primitive import primitive
from ..require.block_preconditions import find_loop, scope_around
from ..require.loop_preconditions import check_at_zero, check_plain


@primitive
def merge(func: PrimFunc, *loops: Var) -> tuple[PrimFunc, Var]:
    """Run the bodies of consecutive loops, one after the other, in one loop; returns its variable.

    Loops of the nests between the given loops and the place where the nests meet are merged as well. The nests directly
    follow each other; their loops start at 0, have the same extents, hold nothing but each other, and have neither
    annotations nor thread bindings. No iteration of a later loop may access an element that a different iteration of an
    earlier one writes, or write one that it accesses.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8,)), B: T.Buffer((8,)), C: T.Buffer((8,))):
    ...     for i in range(8):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(8, i)
    ...             B[vi] = A[vi] * T.float32(2)
    ...     for i in range(8):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(8, i)
    ...             C[vi] = B[vi] + T.float32(1)
    ... '''))
    >>> i = sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        # with T.block("root"):
        for i_m in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i_m)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = A[vi] * T.float32(2.0)
            with T.block("C"):
                vi = T.axis.spatial(8, i_m)
                T.reads(B[vi])
                T.writes(C[vi])
                C[vi] = B[vi] + T.float32(1.0)
    """
    tree = tree_of(func)
    targets = [find_loop(tree, v) for v in loops]
    if len(targets) < 2 or len(set(targets)) < len(targets):
        raise bad_argument("merge takes two loops or more, all different", where=targets, hint="name each loop once")
    meet, nests = _nests(tree, targets)
    nests.sort(key=lambda nest: meet.seq.index(nest[0]))
    _check_nests(tree, meet, nests)
    new_vars = [Var(f"{lp.loop_var.name}_m", lp.loop_var.dtype) for lp in nests[0]]
    bodies: list[Stmt] = []
    for nest in nests:
        change: dict[Var, Expr] = {
            lp.loop_var: v.astype(lp.loop_var.dtype) for lp, v in zip(nest, new_vars, strict=True)
        }
        bodies.append(substitute(nest[-1].body, change))
    chain: list[For] = []
    new: Stmt = seq(*bodies)
    first_vars = {lp.loop_var: v for lp, v in zip(nests[0], new_vars, strict=True)}
    for var, lp in zip(reversed(new_vars), reversed(nests[0]), strict=True):
        new = For(var, const(0, var.dtype), substitute(lp.extent, first_vars), "serial", new)
        chain.insert(0, new)
    _check_order(tree, nests, bodies, chain)
    first = meet.seq.index(nests[0][0])
    out = seq(*meet.seq[:first], new, *meet.seq[first + len(nests) :])
    return tree.replace({meet: out}), new_vars[-1]


def _nests(tree: Tree, targets: Sequence[For]) -> tuple[SeqStmt, list[list[For]]]:
    """Return the sequence where the nests meet, and for each loop the loops from there down to it."""
    paths = [tree.path(lp) for lp in targets]
    depth = 0
    while all(depth < len(p) for p in paths) and all(p[depth] is paths[0][depth] for p in paths):
        depth += 1
    meet = paths[0][depth - 1]
    scopes = {scope_around(tree, lp) for lp in targets}
    if not isinstance(meet, SeqStmt) or len(scopes) > 1:
        raise ScheduleError(
            f"the loops {_names(targets)} are not in one scope, one after the other", where=targets,
            hint="merge joins loops that stand side by side",
        )  # fmt: skip
    nests: list[list[For]] = []
    for path in paths:
        nest = [s for s in path[depth:] if isinstance(s, For)]
        for outer, inner in zip(path[depth:], path[depth + 1 :], strict=False):
            if not isinstance(outer, For) or outer.body is not inner:
                raise ScheduleError(
                    f"loop {nest[-1].loop_var.name} does not stand alone in the loops around it", where=path[depth:],
                    hint="up to where the loops meet, each holds the next and nothing else",
                )  # fmt: skip
        nests.append(nest)
    return meet, nests


def _names(loops: Sequence[For]) -> str:
    return ", ".join(lp.loop_var.name for lp in loops)


def _check_nests(tree: Tree, meet: SeqStmt, nests: Sequence[Sequence[For]]) -> None:
    first = meet.seq.index(nests[0][0])
    for number, nest in enumerate(nests):
        if meet.seq[first + number] is not nest[0]:
            raise ScheduleError(
                f"something stands between loop {nests[0][0].loop_var.name} and loop {nest[0].loop_var.name}",
                where=(nests[0][0], nest[0]),
                hint="name the loops in between as well, or move what is there",
            )
        if len(nest) != len(nests[0]):
            raise ScheduleError(
                f"loop {nests[0][-1].loop_var.name} is {len(nests[0])} loops deep, loop {nest[-1].loop_var.name} "
                f"{len(nest)}",
                where=(nests[0][-1], nest[-1]),
                hint="choose loops of the same depth",
            )
        analyzer = analyzer_at(tree, nest[0])
        for lp, other in zip(nest, nests[0], strict=True):
            check_plain(lp, "merge")
            check_at_zero(lp, analyzer)
            extent = substitute(lp.extent, {a.loop_var: b.loop_var for a, b in zip(nest, nests[0], strict=True)})
            if not analyzer.can_prove_equal(extent, other.extent):
                raise ScheduleError(
                    f"loop {other.loop_var.name} has {other.extent} iterations, loop {lp.loop_var.name} {lp.extent}",
                    where=(other, lp),
                    hint="only loops of the same extent merge",
                )


def _check_order(tree: Tree, nests: Sequence[Sequence[For]], bodies: Sequence[Stmt], chain: Sequence[For]) -> None:
    """Raise ScheduleError when different iterations of different loops may access one element that either writes.

    The order of such iterations would change.
    """
    touches = [require(accessed_boxes_below(body)) for body in bodies]
    origin = {t: number for number, found in enumerate(touches) for t in found}
    together = [t for found in touches for t in found]
    if any(t.realize is None for t in together):
        raise ScheduleError(
            f"the loops {_names([nest[-1] for nest in nests])} hold loads or stores outside blocks",
            where=[nest[-1] for nest in nests],
            hint="blocks say what they touch; put the statements into some",
        )
    for conflict in conflicts(analyzer_at(tree, nests[0][0]), chain, together):
        a, b = origin[conflict.store], origin[conflict.other]
        if a != b:
            first, second = nests[min(a, b)][-1], nests[max(a, b)][-1]
            raise ScheduleError(
                f"different iterations of loop {first.loop_var.name} and loop {second.loop_var.name} may share elements "
                f"of buffer {conflict.store.buffer.name}: {conflict.text()}",
                where=[first, second, *[t.realize for t in (conflict.store, conflict.other) if t.realize is not None]],
                hint="each iteration may only use what the same iteration of the earlier loop made",
            )


@primitive
def loop_partition(
    func: PrimFunc, loop: Var, factors: Sequence[int | None], preserve_unit_iters: bool = True
) -> tuple[PrimFunc, list[Var]]:
    """Run a loop as consecutive loops of ``factors`` iterations each; returns their variables.

    At most one factor is ``None``, which stands for the iterations that the others leave. Iterations that all factors
    leave make one more part. Each part has its own blocks, named after the part, inside a block ``B_i0_partition``;
    ``B_i_common`` holds the parts. The order of execution does not change.

    The loop has a constant range, and neither annotations nor a thread binding. A reduction over it must have been
    decomposed, because its init would run in each part.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((17,)), B: T.Buffer((17,))):
    ...     for i in range(17):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(17, i)
    ...             B[vi] = A[vi] * T.float32(2)
    ... '''))
    >>> i0, i1 = sch.loop_partition(sch.get_loops("B")[0], [16, None])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((17,), "float32"), B: T.Buffer((17,), "float32")):
        with T.block("root"):
            T.reads()
            T.writes()
            with T.block("B_i_common"):
                T.reads()
                T.writes()
                with T.block("B_i0_partition"):
                    T.reads()
                    T.writes()
                    for i0 in range(16):
                        with T.block("B_i0"):
                            vi = T.axis.spatial(16, i0)
                            T.reads(A[0:16])
                            T.writes(B[0:16])
                            B[vi] = A[vi] * T.float32(2.0)
                with T.block("B_i1_partition"):
                    T.reads()
                    T.writes()
                    for i1 in range(16, 17):
                        with T.block("B_i1"):
                            vi = T.axis.spatial((16, 17), i1)
                            T.reads(A[16])
                            T.writes(B[16])
                            B[vi] = A[vi] * T.float32(2.0)
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    check_plain(target, "loop_partition")
    first = next(blocks_below(target.body), None)
    if first is None:
        raise ScheduleError(f"loop {loop.name} holds no block", where=target, hint="choose a loop around a block")
    sizes = _sizes(target, factors)
    _check_blocks_alone(target)
    _check_reductions(target, loop, {lp.loop_var for lp in tree.loops_above(target)})
    wish = f"{first.block.name_hint}_{loop.name}"
    taken: list[str] = []

    def name(base: str) -> str:
        taken.append(unique_block_name(func, base, taken))
        return taken[-1]

    common = name(f"{wish}_common")
    assert isinstance(target.min, IntImm)
    start = target.min.value
    outside = _known_around(tree, target)
    parts: list[Stmt] = []
    new_vars: list[Var] = []
    for number, size in enumerate(sizes):
        var = Var(f"{loop.name}{number}", loop.dtype)
        part = name(f"{wish}{number}_partition")
        body = fresh_copy(target.body, {loop: var}, lambda old, n=var.name: name(f"{old}_{n}"), outside)  # type: ignore[misc]
        low, extent = const(start, loop.dtype), const(size, loop.dtype)
        body = _narrowed(
            body, var, Range(low, extent), [up.loop_var for up in tree.above(target) if isinstance(up, For)]
        )
        parts.append(_opaque(part, For(var, low, extent, "serial", body)))
        new_vars.append(var)
        start += size
    return tree.replace({target: _opaque(common, seq(*parts))}), new_vars


def _known_around(tree: Tree, loop: For) -> set[Var]:
    """Return the variables that are defined around the loop, and its own variable."""
    known = {*tree.func.params, loop.loop_var}
    buffers = list(tree.func.buffers)
    for up in tree.above(loop):
        if isinstance(up, For):
            known.add(up.loop_var)
        elif isinstance(up, Block):
            known.update(iv.var for iv in up.iter_vars)
            buffers += [m.buffer for m in up.match_buffers]
    for b in buffers:
        for e in (*b.shape, *b.strides, b.elem_offset):
            known |= vars_in(e)
    return known


def _opaque(name: str, body: Stmt) -> BlockRealize:
    return BlockRealize((), IntImm(1, "bool"), Block((), (), (), name, body))


def _sizes(loop: For, factors: Any) -> list[int]:
    """Return the number of iterations of each part."""
    name = loop.loop_var.name
    if not isinstance(loop.extent, IntImm) or not isinstance(loop.min, IntImm):
        raise ScheduleError(
            f"loop {name} runs over [{loop.min}, {loop.min} + {loop.extent}), which is not constant", where=loop,
            hint="loops of constant range can be partitioned; split this one",
        )  # fmt: skip
    sizes = [f.value if isinstance(f, IntImm) else f for f in factors]
    text = "[" + ", ".join(map(str, sizes)) + "]"
    if not sizes or sum(s is None for s in sizes) > 1:
        raise bad_argument(
            f"the factors {text} are not a list of sizes with at most one None", where=loop, hint="write e.g. [4, None]"
        )
    for s in sizes:
        if isinstance(s, bool) or not (s is None or (isinstance(s, int) and s > 0)):
            raise bad_argument(
                f"factor {s} of loop {name} is not a positive number", where=loop, hint="sizes are at least 1"
            )
    left = loop.extent.value - sum(s for s in sizes if s is not None)
    if left <= 0:
        raise bad_argument(
            f"the factors {text} leave {left} of the {loop.extent} iterations of loop {name}", where=loop,
            hint="together they are less than the extent: the rest is a part of its own, or the one that is None",
        )  # fmt: skip
    if None in sizes:
        return [left if s is None else s for s in sizes]
    return [*sizes, left]


def _check_blocks_alone(loop: For) -> None:
    """ScheduleError when something is read or written outside of the blocks below: the parts declare nothing."""
    statements = pre_order(loop.body, lambda n: not isinstance(n, (Expr, Block)))
    stores: Iterator[tuple[Stmt, BufferLoad | BufferStore]] = ((n, n) for n in statements if isinstance(n, BufferStore))
    found = next(chain(bare_loads(loop.body), stores), None)
    if found is not None:
        stmt, access = found
        raise ScheduleError(
            f"loop {loop.loop_var.name} holds an access of buffer {access.buffer.name} outside of blocks, which a part of "
            "the loop could not declare",
            where=(loop, stmt),
            hint="put it into a block, or partition a loop further in",
        )


def _check_reductions(loop: For, var: Var, around: set[Var]) -> None:
    for realize in blocks_below(loop.body):
        if realize.block.init is None:
            continue
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if iv.kind != IterVar.SPATIAL and uses_var(value, lambda v: v in around):
                raise ScheduleError(
                    f"a loop around loop {var.name} carries the reduction of block {realize.block.name_hint!r} (axis "
                    f"{iv.var.name}), so that a part would not be a whole computation",
                    where=(loop, realize),
                    hint="decompose_reduction first, or put the loops of the reduction inside",
                )
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if iv.kind != IterVar.SPATIAL and uses_var(value, var):
                raise ScheduleError(
                    f"loop {var.name} carries the reduction of block {realize.block.name_hint!r} (axis {iv.var.name}), "
                    "which would start anew in each part",
                    where=(loop, realize),
                    hint="decompose_reduction first, and partition the update",
                )


def _narrowed(body: Stmt, var: Var, part: Range, around: Sequence[Var]) -> Stmt:
    """Return the body with the axes that are bound to the loop limited to its part.

    As in TVM, regions of buffers that a block accesses at plain axes cover the whole domain of those axes.
    ``around`` are all loops outside of the one with ``var``, also those around groups of earlier partitions.
    """
    loops = {var, *around, *[n.loop_var for n in pre_order(body) if isinstance(n, For)]}

    def post(n: Any) -> Any:
        if not isinstance(n, BlockRealize) or var not in n.iter_values:
            return None
        at = n.iter_values.index(var)
        axes = tuple([
            IterVar(part, iv.var, iv.kind, iv.thread_tag) if k == at else iv for k, iv in enumerate(n.block.iter_vars)
        ])  # fmt: skip
        # a domain may depend on loops, which a region can name only as the axes that they are bound to
        bound = {value: iv.var for iv, value in zip(axes, n.iter_values, strict=True) if isinstance(value, Var)}
        doms = {iv.var: Range(substitute(iv.dom.min, bound), substitute(iv.dom.extent, bound)) for iv in axes}
        reads, writes = _regions_over(n.block, doms, loops)
        return BlockRealize(n.iter_values, n.predicate, n.block.with_(iter_vars=axes, reads=reads, writes=writes))

    return transform(body, post=post)


def _regions_over(block: Block, doms: Mapping[Var, Range], loops: set[Var]) -> list[tuple[BufferRegion, ...]]:
    """Return the reads and the writes of a block whose axes run over ``doms``.

    Regions that an earlier partition declared do not depend on the axes any more. Therefore regions are computed from
    the accesses, unless ``annotate_buffer_access`` set them or there are accesses through pointers.
    """
    plain, analyzer = _plain_buffers(block.body, doms), Analyzer()
    pointers = opaque_buffers(block)
    out = []
    declared = (("read", block.reads), ("write", block.writes))
    for (kind, regions), found in zip(declared, access_regions(block.body, block.init), strict=True):
        explicit = block.annotations.get(f"explicit_{kind}_region", ())
        wide = []
        for number, region in enumerate(regions):
            if region.buffer not in plain:
                wide.append(region)
                continue
            fixed = number in explicit or region.buffer.data in pointers
            accessed = None if fixed else region_of(found, region.buffer)
            wide.append(_widened(accessed or region, doms, loops, analyzer))
        out.append(tuple(wide))
    return out


def _plain_buffers(body: Stmt, axes: Collection[Var]) -> set[Buffer]:
    return {
        n.buffer
        for n in pre_order(body)
        if isinstance(n, (BufferLoad, BufferStore)) and all(isinstance(i, Var) and i in axes for i in n.indices)
    }


def _widened(region: BufferRegion, axes: Mapping[Var, Range], loops: set[Var], analyzer: Analyzer) -> BufferRegion:
    """Return the region over the whole domain of the axes. A dimension that depends on one of ``loops`` is taken
    whole."""
    doms = {v: (dom.min, dom.min + dom.extent - 1) for v, dom in axes.items()}
    out: list[Range] = []
    for r, extent in zip(region.region, region.buffer.shape, strict=True):
        first, last = eval_interval(r.min, doms), eval_interval(r.min + r.extent - 1, doms)
        if (
            first is None
            or last is None
            or reads_memory(r.min)
            or any(uses_var(e, lambda v: v in loops) for e in (first[0], last[1]))
        ):
            out.append(Range(const(0, extent.dtype), extent))
        else:
            low = analyzer.simplify(first[0])
            out.append(Range(low, analyzer.simplify(last[1] - low + 1)))
    return BufferRegion(region.buffer, tuple(out))
