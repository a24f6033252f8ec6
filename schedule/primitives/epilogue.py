"""This module defines fuse_reduction_epilogue, which makes an operation after a reduction the reduction's start
value."""

from __future__ import annotations

from ...tir.analysis.reductions import find_reducer
from ...tir.analysis.region_cover import reduces_once
from ...tir.analysis.regions import redeclared
from ...tir.analysis.scope import BlockScope, is_output_block
from ...tir.analysis.tree import Tree, tree_of
from ...tir.expr import Add, BufferLoad, Expr, Max, Min, Mul, Range, Var, same
from ...tir.stmt import BlockRealize, BufferStore, PrimFunc
from ...tir.walk import loads_and_stores, pre_order, substitute
from ..errors import ScheduleError
from ..primitive import primitive
from ..require.block_preconditions import (
    check_complete,
    check_no_pointers,
    check_only_writer,
    check_plain_path,
    check_reduction,
    check_whole_domain,
    check_writes_first,
    find_block,
    ordered_scope,
    scope_around,
    the_store,
)
from ..require.loop_preconditions import check_loops_above


@primitive
def fuse_reduction_epilogue(func: PrimFunc, reduction_block: str, epilogue_block: str) -> PrimFunc:
    """Start a reduction from the operand that its epilogue adds, and write to the epilogue's buffer.

    Applies when the epilogue is ``D[i, j] = temp[i, j] + e`` with ``temp`` the result of a sum (likewise
    ``max(temp, e)`` for a maximum, ``min`` for a minimum, ``temp * e`` for a product), is the only reader of ``temp``,
    and both blocks run over the same whole domain. A float sum then rounds differently, as with ``rfactor``.

    Other epilogues are refused, such as a ReLU or a clip of a sum, because they would be applied in each step.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 16)), C: T.Buffer((8,)), D: T.Buffer((8,))):
    ...     temp = T.alloc_buffer((8,))
    ...     for i, k in T.grid(8, 16):
    ...         with T.block("temp"):
    ...             vi, vk = T.axis.remap("SR", [i, k])
    ...             with T.init():
    ...                 temp[vi] = T.float32(0)
    ...             temp[vi] = temp[vi] + A[vi, vk]
    ...     for i in range(8):
    ...         with T.block("D"):
    ...             vi = T.axis.spatial(8, i)
    ...             D[vi] = temp[vi] + C[vi]
    ... '''))
    >>> sch.fuse_reduction_epilogue("temp", "D")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 16), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        # with T.block("root"):
        temp = T.alloc_buffer((8,))
        for i, k in T.grid(8, 16):
            with T.block("temp"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(C[vi], A[vi, vk])
                T.writes(D[vi])
                with T.init():
                    D[vi] = C[vi]
                D[vi] = D[vi] + A[vi, vk]
    """
    tree = tree_of(func)
    reduction, epilogue = find_block(tree, reduction_block), find_block(tree, epilogue_block)
    scope = ordered_scope(tree, reduction)
    if scope_around(tree, epilogue) is not scope_around(tree, reduction):
        raise ScheduleError(
            f"blocks {reduction_block!r} and {epilogue_block!r} are in different scopes",
            where=(reduction, epilogue),
            hint="choose blocks of one scope",
        )
    check_reduction(tree, reduction)
    check_complete(tree, epilogue)
    for realize in (reduction, epilogue):
        check_plain_path(tree, realize)
    hint = "split the block into one per store first"
    update, start = [the_store(reduction, s, hint) for s in (reduction.block.body, reduction.block.init)]
    last = the_store(epilogue, epilogue.block.body, hint)
    temp = update.buffer
    _check_dataflow(tree, scope, reduction, epilogue, update, last)
    combine, term, bias = _pattern(reduction, epilogue, update, start, last)
    axes = _same_point(reduction, epilogue, update, last)
    for realize in (reduction, epilogue):
        check_whole_domain(tree, realize, "", "do this before moving or splitting the blocks", realize is reduction)
    if not reduces_once(tree, reduction):
        raise ScheduleError(
            f"block {reduction_block!r} is not known to bring each point of its reduction once",
            where=reduction,
            hint="do this before the reduction's loops are split unevenly or moved",
        )
    at = tuple([substitute(i, axes) for i in last.indices])
    value = substitute(bias, axes)
    first = (
        value if combine in (Add, Mul) else combine(start.value, value)
    )  # 0 + e is e, 1 * e is e; the start of a maximum or minimum may matter
    init = BufferStore(last.buffer, first, at)
    here = BufferLoad(last.buffer, at)
    left = isinstance(update.value, combine) and _loads(update.value.a, temp)  # type: ignore[attr-defined]
    body = BufferStore(last.buffer, combine(here, term) if left else combine(term, here), at)
    block = redeclared(reduction.block.with_(body=body, init=init))
    new = tree.replace({
        reduction: BlockRealize(reduction.iter_values, reduction.predicate, block),
        epilogue: None,
    })  # fmt: skip
    after = tree_of(new)
    check_loops_above(after, find_block(after, reduction_block))
    return new


def _check_dataflow(
    tree: Tree,
    scope: BlockScope,
    reduction: BlockRealize,
    epilogue: BlockRealize,
    update: BufferStore,
    last: BufferStore,
) -> None:
    """Raise ScheduleError when other blocks need the result, or when operands of the epilogue are not final before."""
    temp, target, name = update.buffer, last.buffer, epilogue.block.name_hint
    first, end = scope.order[reduction], scope.order[epilogue]
    regions = (*reduction.block.reads, *reduction.block.writes, *epilogue.block.reads, *epilogue.block.writes)
    check_no_pointers(scope.root.block, [r.buffer for r in regions], "which cannot be followed", epilogue)
    if first > end or is_output_block(tree, reduction) or temp not in scope.root.block.alloc_buffers:
        raise ScheduleError(
            f"block {reduction.block.name_hint!r} does not make a buffer of its scope for block {name!r}",
            where=(reduction, epilogue),
            hint="name the reduction that the second block reads",
        )
    readers = [r for r in scope.readers.get(temp, ()) if r not in (reduction, epilogue)]
    if readers:
        raise ScheduleError(
            f"{temp.name} is also read by {', '.join(repr(r.block.name_hint) for r in readers)}, and would not be "
            "computed any more",
            where=(epilogue, *readers),
            hint="only the one reader of a reduction can be fused into it",
        )
    check_only_writer(tree, epilogue)
    check_writes_first(scope, epilogue, [r for r in scope.readers.get(target, ()) if r is not epilogue], target)
    for region in epilogue.block.reads:
        for writer in scope.writers.get(region.buffer, ()):
            if region.buffer is not temp and scope.order[writer] >= first:
                raise ScheduleError(
                    f"block {writer.block.name_hint!r} writes {region.buffer.name}, which block {name!r} reads, not "
                    f"before block {reduction.block.name_hint!r}",
                    where=(reduction, writer),
                    hint=f"what {name!r} adds must be known when the reduction starts",
                )
    around = {lp.loop_var for lp in tree.loops_above(reduction)}
    if any(lp.loop_var in around for lp in tree.loops_above(epilogue)):
        raise ScheduleError(
            f"blocks {reduction.block.name_hint!r} and {name!r} share loops", where=(reduction, epilogue),
            hint="do this before computing one at the other",
        )  # fmt: skip


def _loads(e: Expr, buffer: object) -> bool:
    return isinstance(e, BufferLoad) and e.buffer is buffer


def _pattern(
    reduction: BlockRealize, epilogue: BlockRealize, update: BufferStore, start: BufferStore, last: BufferStore
) -> tuple[type, Expr, Expr]:
    """Return the operation, the operand of the reduction in each step, and the operand of the epilogue."""
    temp, name = update.buffer, epilogue.block.name_hint
    found = find_reducer([start.value], [BufferLoad(temp, update.indices)], [update.value])
    combine = None if found is None else found[0].node
    if found is None or combine is None or combine not in (Add, Mul, Max, Min):
        raise ScheduleError(
            f"block {reduction.block.name_hint!r} is not a sum, product, maximum or minimum from its start value",
            where=reduction,
            hint="known reductions start from their identity and combine one value per step",
        )
    kind = found[0].name
    uses = sum(_loads(a, temp) for a in loads_and_stores(last.value))  # type: ignore[arg-type]
    if uses != 1:
        raise ScheduleError(
            f"block {name!r} uses {temp.name} {uses} times in {last.value}; it can start the reduction from something "
            "when it uses the result once",
            where=epilogue,
            hint="put what uses it again into a block of its own",
        )
    value = last.value
    if type(value) is not combine or not (_loads(value.a, temp) or _loads(value.b, temp)):  # type: ignore[attr-defined]
        symbol = {"sum": "+ e", "prod": "* e", "max": "max e", "min": "min e"}[kind]
        raise ScheduleError(
            f"block {name!r} computes {value} from the {kind} {temp.name}: only {temp.name} {symbol} may be done before "
            "the reduction instead of after it",
            where=(reduction, epilogue),
            hint="reverse_compute_at keeps the epilogue as a block under the reduction's loops",
        )
    bias = value.b if _loads(value.a, temp) else value.a  # type: ignore[attr-defined]
    return combine, found[1][0], bias


def _same_point(
    reduction: BlockRealize, epilogue: BlockRealize, update: BufferStore, last: BufferStore
) -> dict[Var, Expr]:
    """Return the epilogue's axes in terms of the reduction's, so that it reads ``temp`` where the reduction writes
    it."""
    temp = update.buffer
    load = next(a for a in loads_and_stores(last.value) if _loads(a, temp))  # type: ignore[arg-type]
    doms = {iv.var: iv.dom for iv in (*reduction.block.iter_vars, *epilogue.block.iter_vars)}
    axes: dict[Var, Expr] = {}
    for mine, theirs in zip(update.indices, load.indices, strict=True):
        if (
            not (isinstance(mine, Var) and isinstance(theirs, Var))
            or not (mine in doms and theirs in doms)
            or theirs in axes
            or mine in axes.values()
            or not _equal(doms[mine], doms[theirs])
        ):
            raise ScheduleError(
                f"block {epilogue.block.name_hint!r} reads {load}, block {reduction.block.name_hint!r} writes "
                f"{BufferLoad(temp, update.indices)}: these are not axes of both, over the same domains",
                where=(reduction, epilogue),
                hint="address both by the same axes, without offsets",
            )
        axes[theirs] = mine  # type: ignore[index]
    used = {n for e in (last.value, *last.indices) for n in pre_order(e) if isinstance(n, Var)}
    missing = [iv.var.name for iv in epilogue.block.iter_vars if iv.var not in axes and iv.var in used]
    if missing or len(axes) != len(epilogue.block.iter_vars):
        raise ScheduleError(
            f"block {epilogue.block.name_hint!r} has axes of its own beside those of {temp.name}",
            where=epilogue,
            hint="the block has to go over the elements of the reduction's result, and no more",
        )
    return axes


def _equal(a: Range, b: Range) -> bool:
    return same(a.min, b.min) and same(a.extent, b.extent)
