"""This module defines split, fuse and add_unit_loop, and reorder and reorder_block_iter_var.

They replace loop variables by expressions, and bring the bindings of blocks back into normal form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from ...tir.analysis.dependence import (
    accessed_boxes_below,
    accumulates,
    binding_block,
    conflicts,
    only_reduced,
    same_instance,
    why_not_privatizable,
)
from ...tir.analysis.known_ranges import analyzer_at, bind_loop
from ...tir.analysis.scope import bare_loads
from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.arith import Analyzer, iter_map_simplify
from ...tir.expr import (
    INDEX,
    WIDE,
    And,
    Expr,
    IntImm,
    IterVar,
    Range,
    Var,
    cast,
    ceildiv,
    const,
    convert,
    index_dtype,
    is_const_int,
    max_value,
)
from ...tir.stmt import Block, BlockRealize, For, IfThenElse, PrimFunc, SeqStmt, Stmt
from ...tir.walk import substitute, uses_var
from ..errors import ScheduleError, bad_argument, require
from ..primitive import primitive
from ..require.block_preconditions import find_block, find_loop
from ..require.loop_preconditions import check_at_zero, check_blocks_of_nest, check_plain, check_starts_kept

Factor = int | Expr | None


@primitive
def split(
    func: PrimFunc,
    loop: Var,
    factors: Sequence[Factor] | None = None,
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
    *,
    factor: Factor = None,
    nparts: Factor = None,
) -> tuple[PrimFunc, list[Var]]:
    """Split a loop into nested loops with the given extents, outermost first; returns their variables.

    At most one factor is ``None``; it stands for the smallest number that covers the loop. ``factor=8`` means
    ``[None, 8]``, ``nparts=4`` means ``[4, None]``. Where the product is larger than the extent, blocks below get a
    predicate. The new loops count in 64 bits when the old one does, or when int32 does not hold the product.

    The loop has neither annotations nor a thread binding; the new loops start at 0. ``preserve_unit_iters`` keeps loops of one
    iteration in the bindings. ``disable_predication`` leaves out the predicate, and is refused where one is needed.

    >>> from tilewright.tir.parser import parse
    >>> from tilewright.schedule import Schedule
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
    ...     for i in range(100):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(100, i)
    ...             B[vi] = A[vi] * T.float32(2)
    ... '''))
    >>> i, = sch.get_loops(sch.get_block("B"))
    >>> i0, i1 = sch.split(i, [None, 32])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
        # with T.block("root"):
        for i_0, i_1 in T.grid(4, 32):
            with T.block("B"):
                vi = T.axis.spatial(100, i_0 * 32 + i_1)
                T.where(i_0 * 32 + i_1 < 100)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = A[vi] * T.float32(2.0)
    """
    tree = tree_of(func)
    target = find_loop(tree, loop)
    check_plain(target, "split")
    analyzer = analyzer_at(tree, target, keep_unit=preserve_unit_iters)
    extents = _extents(target, analyzer, _as_factors(factors, factor, nparts))
    dtype = extents[0].dtype
    value: Expr = const(0, dtype)
    new_vars: list[Var] = []
    for number, extent in enumerate(extents):
        var = Var(f"{loop.name}_{number}", dtype)
        value = value * extent + var
        if preserve_unit_iters and is_const_int(extent, 1):
            analyzer.bind(var, (0, 1))
        else:
            analyzer.bind(var, Range.from_extent(extent))
        new_vars.append(var)
    predicate = value < target.extent
    if _exactly_covers(analyzer, extents, target.extent) or analyzer.can_prove(predicate):
        predicate = None  # type: ignore[assignment]
    elif disable_predication:
        raise ScheduleError(
            f"the factors {_text(extents)} give more than the {target.extent} iterations of loop {loop.name}, so a "
            "predicate is needed, and disable_predication asks for none",
            where=target,
            hint="choose factors whose product is the extent, or allow the predicate",
        )
    if predicate is not None:
        _check_bounds(target, extents)
    body = rebind(
        target.body,
        {loop: cast(loop.dtype, value) if is_const_int(target.min, 0) else target.min + cast(loop.dtype, value)},
        _ranges(tree, target, zip(new_vars, extents, strict=True)),
        analyzer,
        predicate=predicate,
        keep_unit=preserve_unit_iters,
    )
    for var, extent in zip(reversed(new_vars), reversed(extents), strict=True):
        body = For(var, const(0, dtype), extent, "serial", body)
    new = tree.replace({target: body})
    check_starts_kept(tree, new, target)
    return new, new_vars


def _check_bounds(target: For, extents: Sequence[Expr]) -> None:
    """Raise ScheduleError when loops below would read their bounds from memory in iterations that do not exist."""
    for stmt, load in bare_loads(target.body):
        if uses_var(load, target.loop_var):
            raise ScheduleError(
                f"the factors {_text(extents)} give more than the {target.extent} iterations of loop "
                f"{target.loop_var.name}, and {load} would be read outside of blocks for those that are too many",
                where=(target, stmt),
                hint="choose factors whose product is the extent",
            )


def _ranges(tree: Tree, loop: For, new: Iterable[tuple[Var, Expr]]) -> dict[Var, Range]:
    """Return the ranges of the loops above ``loop`` in its block, and of the ``new`` ones in its place."""
    out = {up.loop_var: Range(up.min, up.extent) for up in tree.loops_above(loop)}
    out.update((var, Range.from_extent(extent)) for var, extent in new)
    return out


def _as_factors(factors: Sequence[Factor] | None, factor: Factor, nparts: Factor) -> list[Factor]:
    given = [x is not None for x in (factors, factor, nparts)]
    if sum(given) != 1:
        raise bad_argument("give either factors, or factor, or nparts", hint="e.g. split(loop, factors=[None, 8])")
    if factors is None:
        return [None, factor] if factor is not None else [nparts, None]
    return list(factors)


def _text(factors: Sequence[Factor]) -> str:
    return "[" + ", ".join(str(f) for f in factors) + "]"


def _extents(loop: For, analyzer: Analyzer, factors: list[Factor]) -> list[Expr]:
    """Return the extents of the new loops, with the factors checked and the open one computed."""
    name, extent = loop.loop_var.name, loop.extent
    if not factors:
        raise bad_argument(f"loop {name} is split into no loops", where=loop, hint="give at least one factor")
    if sum(f is None for f in factors) > 1:
        raise bad_argument(f"the factors {_text(factors)} leave more than one None", where=loop, hint="leave one open")
    dtype = _dtype(loop, factors)
    extent = cast(dtype, extent)
    out: list[Expr | None] = []
    product: Expr = const(1, dtype)
    for f in factors:
        e = None if f is None else const(f, dtype) if isinstance(f, int) else cast(dtype, convert(f))
        if e is not None and not analyzer.can_prove(e >= 1):
            what = "not positive" if isinstance(e, IntImm) else "not known to be positive"
            raise bad_argument(f"factor {e} of loop {name} is {what}", where=loop, hint="factors are at least 1")
        out.append(e)
        if e is not None:
            product = product * e
    if None not in out:
        if not _exactly_covers(analyzer, out, extent) and not analyzer.can_prove(product >= extent):  # type: ignore[arg-type]
            total = analyzer.simplify(product)
            raise ScheduleError(
                f"the factors {_text(factors)} make {total} iterations, loop {name} has {extent}",
                where=loop,
                hint="use None for one factor, and it is worked out",
            )
        return out  # type: ignore[return-value]
    if isinstance(extent, IntImm) and isinstance(product, IntImm):
        open_one: Expr = const(-(-extent.value // product.value), dtype)
    else:
        open_one = analyzer.simplify(ceildiv(extent, product))
    return [open_one if e is None else e for e in out]


def _dtype(loop: For, factors: Sequence[Factor]) -> str:
    """Return the type of the new loops: int64 when int32 does not hold the product of their extents."""
    sizes = [int(f) for f in factors if isinstance(f, (int, IntImm)) and int(f) > 0]
    total = prod(sizes)
    if None in factors and isinstance(loop.extent, IntImm):
        total *= max(-(-loop.extent.value // total), 1)
    if total > max_value(WIDE):
        raise ScheduleError(
            f"the factors {_text(factors)} make {total} iterations of loop {loop.loop_var.name}, more than 64 bits count",
            where=loop,
            hint="choose factors whose product is about the loop's extent",
        )
    return WIDE if total > max_value(loop.loop_var.dtype) else loop.loop_var.dtype


def _exactly_covers(analyzer: Analyzer, extents: Sequence[Expr], extent: Expr) -> bool:
    product: Expr = const(1, extent.dtype)
    for e in extents:
        product = product * e
    return analyzer.can_prove_equal(product, extent)


@primitive
def fuse(func: PrimFunc, *loops: Var, preserve_unit_iters: bool = True) -> tuple[PrimFunc, Var]:
    """Fuse perfectly nested loops, given outermost first, into one; returns its variable.

    Each loop is the only statement of the one before, starts at 0, has an extent that does not depend on the others,
    and has neither annotations nor a thread binding. The order of execution does not change.

        for i, j in T.grid(16, 8):                 for i_j_fused in range(128):
            with T.block("B"):                =>       with T.block("B"):
                vi, vj = remap("SS", [i, j])               vi = T.axis.spatial(16, i_j_fused // 8)
                                                           vj = T.axis.spatial(8, i_j_fused % 8)
    """
    if not loops:
        raise ScheduleError(
            "fuse needs at least one loop", hint="give the loops, outermost first, as get_loops returns them"
        )
    tree = tree_of(func)
    chain = [find_loop(tree, v) for v in loops]
    analyzer = analyzer_at(tree, chain[0], keep_unit=preserve_unit_iters)
    for loop in chain:
        check_plain(loop, "fuse")
        check_at_zero(loop, analyzer)
    for outer, inner in zip(chain, chain[1:], strict=False):
        if outer.body is not inner:
            raise ScheduleError(_not_nested(tree, outer, inner), where=(outer, inner), hint=_FUSE_HINT)
        if any(uses_var(inner.extent, v) for v in loops):
            raise ScheduleError(
                f"the extent {inner.extent} of loop {inner.loop_var.name} depends on an outer loop of those to fuse",
                where=(outer, inner),
                hint="fuse loops that form a rectangle, or only those inside the outer one",
            )
    if len(chain) == 1:
        return func, loops[0]
    _check_signs(tree, chain, analyzer)
    dtype = _fused_dtype(chain, analyzer)
    fused = Var("_".join(v.name for v in loops) + "_fused", dtype)
    changes: dict[Var, Expr] = {}
    lower: Expr = const(1, dtype)
    for loop in reversed(chain):
        extent = cast(dtype, loop.extent)
        if is_const_int(extent, 1):
            value: Expr = const(0, dtype)
        elif loop is chain[0]:
            value = fused // lower
        else:
            value = (fused % (lower * extent)) // lower
        changes[loop.loop_var] = cast(loop.loop_var.dtype, value)
        lower = lower * extent
    total: Expr = const(1, dtype)
    for loop in chain:
        total = total * cast(dtype, loop.extent)
    total = analyzer.simplify(total)
    analyzer.bind(fused, Range.from_extent(total))
    above = _ranges(tree, chain[0], [(fused, total)])
    body = rebind(chain[-1].body, changes, above, analyzer, keep_unit=preserve_unit_iters)
    new = tree.replace({chain[0]: For(fused, const(0, dtype), total, "serial", body)})
    check_starts_kept(tree, new, chain[-1])
    return new, fused


def _fused_dtype(chain: Sequence[For], analyzer: Analyzer) -> str:
    """Return the type of the fused loop. It is int64 when a loop has it, or when int32 does not hold the product of the
    extents."""
    known = [analyzer.const_int_bound(loop.extent)[1] for loop in chain]
    total = prod(abs(n) for n in known if n)
    if total > max_value(WIDE):
        raise ScheduleError(
            f"loops {', '.join(loop.loop_var.name for loop in chain)} make {total} iterations together, more than 64 bits "
            "count",
            where=chain,
            hint="fuse fewer loops",
        )
    return WIDE if total > max_value(INDEX) else index_dtype([loop.loop_var for loop in chain])


def _check_signs(tree: Tree, chain: Sequence[For], analyzer: Analyzer) -> None:
    """Raise ScheduleError when more than one of the extents that change may be negative.

    The product of two negative extents would be positive.
    """
    moving = {up.loop_var for up in tree.above(chain[0]) if isinstance(up, For)}
    moving |= {iv.var for up in tree.above(chain[0]) if isinstance(up, Block) for iv in up.iter_vars}
    below = [
        lp for lp in chain if uses_var(lp.extent, lambda v: v in moving) and not analyzer.can_prove(lp.extent >= 0)
    ]
    if len(below) > 1:
        raise ScheduleError(
            f"the extents {' and '.join(str(lp.extent) for lp in below)} may both be below zero, and their product above",
            where=below,
            hint="fuse loops of which all but one have an extent that is known to be 0 or more",
        )


_FUSE_HINT = "only loops nested directly, one in the other, fuse; reorder first, or move other statements out"


def _not_nested(tree: Tree, outer: For, inner: For) -> str:
    a, b = outer.loop_var.name, inner.loop_var.name
    if outer is inner:
        return f"loop {a} is given twice"
    if tree.is_below(outer, inner):
        return f"loop {a} is inside loop {b}; loops are given outermost first"
    if not tree.is_below(inner, outer):
        return f"loop {b} is not inside loop {a}"
    return f"loop {b} is not the only statement of loop {a}"


@primitive
def add_unit_loop(func: PrimFunc, block_or_loop: str | Var) -> tuple[PrimFunc, Var]:
    """Put a loop of one iteration around a block or a loop; returns its variable."""
    tree = tree_of(func)
    target: Stmt = find_loop(tree, block_or_loop) if isinstance(block_or_loop, Var) else find_block(tree, block_or_loop)
    if target is func.body:
        raise ScheduleError(
            "a loop cannot stand around the root block", where=target, hint="choose a block below the root, or a loop"
        )
    var = Var("u")
    return tree.replace({target: For(var, IntImm(0), IntImm(1), "serial", target)}), var


def conjoin(a: Expr, b: Expr) -> Expr:
    """Return the conjunction of both conditions; a constant true is left out."""
    if isinstance(a, IntImm):
        return b if a.value else a
    return And(a, b)


def rebind(
    body: Stmt,
    changes: dict[Var, Expr],
    above: Mapping[Var, Range],
    analyzer: Analyzer,
    *,
    predicate: Expr | None = None,
    keep_unit: bool = True,
) -> Stmt:
    """Return ``body`` with loop variables replaced and, where ``predicate`` is given, guarded by it.

    ``above`` are the loops around the new body, within its block. Bindings of the outermost blocks are brought into
    normal form (:func:`~tilewright.tir.arith.iter_map_simplify`). The guard is added to the predicates of those blocks.
    A statement that contains no block, or that may read memory before it reaches one, gets an ``if``.
    """
    return _Rebinding(analyzer, dict(above), keep_unit).visit(substitute(body, changes), predicate)


class _Rebinding:
    def __init__(self, analyzer: Analyzer, ranges: dict[Var, Range], keep_unit: bool) -> None:
        self.analyzer, self.ranges, self.keep_unit = analyzer, ranges, keep_unit

    def visit(self, stmt: Stmt, guard: Expr | None) -> Stmt:
        if isinstance(stmt, BlockRealize):
            test = stmt.predicate if guard is None else conjoin(stmt.predicate, guard)
            values, block = stmt.iter_values, stmt.block
            if not values:
                block = block.with_(body=self.visit(block.body, None))
            elif not _distinct_loops(values, self.ranges, self.keep_unit):
                values = tidy_bindings(self.analyzer, values, self.ranges, test, self.keep_unit)
            return BlockRealize(values, test, block)
        if isinstance(stmt, For):
            bind_loop(self.analyzer, stmt, self.keep_unit)
            self.ranges[stmt.loop_var] = Range(stmt.min, stmt.extent)
        if guard is not None and (not isinstance(stmt, (For, SeqStmt)) or next(blocks_below(stmt), None) is None):
            return IfThenElse(guard, self.visit(stmt, None))
        return stmt.map_children(lambda n: self.visit(n, guard) if isinstance(n, Stmt) else n)


def _distinct_loops(values: tuple[Expr, ...], ranges: Mapping[Var, Range], keep_unit: bool) -> bool:
    """Return whether each value is a constant or a loop variable that stays as it is."""
    met: set[Expr] = set()
    for value in values:
        if isinstance(value, IntImm):
            continue
        dom = ranges.get(value) if isinstance(value, Var) else None
        if dom is None or value in met or not is_const_int(dom.min, 0) or (is_const_int(dom.extent, 1) > keep_unit):
            return False
        met.add(value)
    return True


def tidy_bindings(
    analyzer: Analyzer,
    values: tuple[Expr, ...],
    ranges: Mapping[Var, Range],
    predicate: Expr,
    keep_unit: bool,
) -> tuple[Expr, ...]:
    """Return the bindings in normal form where they have one."""
    test = None if isinstance(predicate, IntImm) else predicate
    new = iter_map_simplify(values, ranges, test, analyzer, keep_unit)
    return values if new is None else tuple([cast(v.dtype, n) for v, n in zip(values, new, strict=True)])


@primitive
def reorder(func: PrimFunc, *ordered_loops: Var) -> PrimFunc:
    """Put loops of one nest into the given order; loops that are not named keep their places.

        for i, j, k in T.grid(16, 8, 4): ...   =>   reorder(k, i)   =>   for k, j, i in T.grid(4, 8, 16): ...

    The loops are nested directly, each the only statement of the one above. Extents must not depend on loops that come
    to be inside. Block axes below are spatial or reduce. It is proven that iterations which share an element keep their
    order, or run the same block with equal axes. The order in which a block's own reduce axes accumulate may change,
    and with it the rounding of floats. A block that uses pointers is trusted to have independent spatial axes.
    """
    return _in_order(func, ordered_loops, {IterVar.SPATIAL, IterVar.REDUCE})


@primitive
def interchange(func: PrimFunc, *ordered_loops: Var) -> PrimFunc:
    """Put loops of one nest into the given order as :func:`reorder` does, also those of scan axes.

        for i, t in T.grid(512, 99): s[i, t] = s[i, t - 1] + x[i, t]   =>   for t, i in T.grid(99, 512): ...

    The steps of a recurrence stay in order where each needs earlier ones of its own row alone, which is proven.
    """
    return _in_order(func, ordered_loops, {IterVar.SPATIAL, IterVar.REDUCE, IterVar.SCAN})


def _in_order(func: PrimFunc, ordered_loops: Sequence[Var], kinds: Collection[str]) -> PrimFunc:
    """Returns the function with its loops in order; axes of blocks below have one of these kinds."""
    tree = tree_of(func)
    chosen = [find_loop(tree, v) for v in ordered_loops]
    if not chosen:
        return func
    if len(set(chosen)) != len(chosen):
        twice = next(loop for n, loop in enumerate(chosen) if loop in chosen[:n])
        raise bad_argument(f"loop {twice.loop_var.name} is given twice", where=twice, hint="name each loop once")
    nest = _nest(tree, chosen)
    places = [n for n, loop in enumerate(nest) if loop in chosen]
    new = list(nest)
    for place, loop in zip(places, chosen, strict=True):
        new[place] = loop
    moved = [n for n, (a, b) in enumerate(zip(nest, new, strict=True)) if a is not b]
    if not moved:
        return func
    check_blocks_of_nest(tree, nest, kinds, predicates=True)
    nest, new = nest[moved[0] : moved[-1] + 1], new[moved[0] : moved[-1] + 1]
    for n, loop in enumerate(new):
        for inner in new[n + 1 :]:
            if uses_var(loop.min, inner.loop_var) or uses_var(loop.extent, inner.loop_var):
                raise ScheduleError(
                    f"the bounds of loop {loop.loop_var.name} depend on loop {inner.loop_var.name}, which would come "
                    "to stand inside it",
                    where=(loop, inner),
                    hint="keep these two in this order",
                )
    _check_order(tree, nest, new)
    body: Stmt = nest[-1].body
    for loop in reversed(new):
        body = loop.with_(body=body)
    return tree.replace({nest[0]: body})


def _nest(tree: Tree, chosen: Sequence[For]) -> list[For]:
    """Return the loops from the outermost to the innermost of the chosen ones, each directly in the one before."""
    wanted = set(chosen)
    # the innermost loop is the one that has all others above it
    depth = {loop: len(tree.path(loop)) for loop in chosen}
    bottom = max(chosen, key=depth.__getitem__)
    nest: list[For] = [bottom]
    wanted.discard(bottom)
    here: Stmt = bottom
    while wanted:
        up = tree.parent[here]
        if not isinstance(up, For):
            missing = next(loop for loop in chosen if loop in wanted)
            raise ScheduleError(_why_no_nest(tree, missing, bottom, up), where=(missing, bottom), hint=_NEST_HINT)
        nest.append(up)
        wanted.discard(up)
        here = up
    nest.reverse()
    return nest


_NEST_HINT = "reorder works on loops nested directly, one in the other"


def _why_no_nest(tree: Tree, loop: For, bottom: For, stop: Stmt | None) -> str:
    a, b = loop.loop_var.name, bottom.loop_var.name
    if not tree.is_below(bottom, loop):
        return f"loop {a} is not above loop {b}"
    if isinstance(stop, (Block, BlockRealize)):
        return f"loops {a} and {b} are not in the same block"
    return f"between loop {a} and loop {b} stand other statements ({type(stop).__name__})"


def _check_order(tree: Tree, nest: Sequence[For], new: Sequence[For]) -> None:
    """Raise ScheduleError unless iterations that share an element keep their order."""
    touches = require(accessed_boxes_below(nest[-1].body))
    place = {loop.loop_var: n for n, loop in enumerate(new)}
    for conflict in conflicts(analyzer_at(tree, nest[0]), nest, touches):
        free = conflict.loops
        if [place[v] for v in free] == sorted(place[v] for v in free):
            continue
        block = binding_block(conflict.store, conflict.other, free)
        why: str | None
        if block is not None and same_instance(conflict, block, free):
            continue
        if block is not None and only_reduced(block, free):
            if accumulates(block.block):
                continue
            why = f"block {block.block.name_hint!r} is not a known reduction, so the order of its iterations matters"
        else:
            why = why_not_privatizable(tree, nest[-1], conflict.store.buffer, touches)
        if why is None:
            continue
        names = ", ".join(v.name for v in free)
        raise ScheduleError(
            f"iterations of {names} share elements of buffer {conflict.store.buffer.name}: {conflict.text()}, "
            f"and the new order would run them the other way round ({why})",
            where=[loop for loop in nest if loop.loop_var in free],
            hint=f"keep {names} in this order",
        )


@primitive
def reorder_block_iter_var(func: PrimFunc, block: str, new_order: Sequence[int]) -> PrimFunc:
    """Put the axes of a block into another order: axis ``new_order[n]`` becomes the n-th."""
    tree = tree_of(func)
    realize = find_block(tree, block)
    count = len(realize.block.iter_vars)
    if sorted(new_order) != list(range(count)):
        raise bad_argument(
            f"new_order {list(new_order)} is not a permutation of the {count} axes of block {block!r}",
            where=realize,
            hint=f"name each of 0..{count - 1} once",
        )
    axes = tuple([realize.block.iter_vars[n] for n in new_order])
    values = tuple([realize.iter_values[n] for n in new_order])
    return tree.replace({realize: BlockRealize(values, realize.predicate, realize.block.with_(iter_vars=axes))})
