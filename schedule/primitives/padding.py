"""This module defines pad_einsum and pad_reduction, which make padding, and decompose_padding, which takes it apart.

The first rounds the axes of a contraction up to multiples, with padded copies of buffers; the second makes a rectangle of
a triangle of loops; the third gives the constant part of a padding block a block of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.access import opaque_buffers
from ...tir.analysis.footprint import exact_box
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.reductions import find_reducer
from ...tir.analysis.regions import access_regions
from ...tir.analysis.scope import BlockScope
from ...tir.analysis.tree import Tree, tree_of, unique_block_name
from ...tir.arith import Analyzer, eval_interval, linear_coefficients
from ...tir.arith.itermap import without_low_digits
from ...tir.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    BufferLoad,
    Call,
    Cast,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Mul,
    Range,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    all_,
    ceildiv,
    conjuncts,
    const,
    convert,
    is_const_int,
    max_,
)
from ...tir.expr.equal import structural_equal
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, PrimFunc, Stmt, seq
from ...tir.walk import loads_and_stores, pre_order, replace_buffers, substitute, uses_var
from ..edit.loop_nests import allocating, element_block, fresh_variables, in_loops_like, in_own_loops
from ..errors import ScheduleError, bad_argument
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import (
    check_complete,
    check_only_writer,
    check_plain_path,
    find_block,
    find_loop,
    has_trivial_bindings,
    innermost_own_loops,
    loops_of,
    nest_of_its_own,
    ordered_scope,
    own_nest,
    the_store,
)


@primitive
def pad_einsum(func: PrimFunc, block: str, padding: Sequence[int]) -> PrimFunc:
    """Round the extents of a contraction's axes up to multiples of ``padding``, one number per axis.

    What the block reads along a padded axis is first copied into ``A_pad``, with zeros outside. Its results go to
    ``C_pad``, from where the valid part is copied. Symbolic extents are allowed: ``n`` becomes ``(n + 31) // 32 * 32``.

    Applies to a block that reads each buffer at one place, where a padded axis is an index by itself, and whose loops hold
    only this block and are bound to its axes one to one. A padded reduce axis must belong to a sum to which the zeros add nothing.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((16, 13)), B: T.Buffer((16,))):
    ...     for i, k in T.grid(16, 13):
    ...         with T.block("B"):
    ...             vi, vk = T.axis.remap("SR", [i, k])
    ...             with T.init():
    ...                 B[vi] = T.float32(0)
    ...             B[vi] = B[vi] + A[vi, vk]
    ... '''))
    >>> sch.pad_einsum("B", [1, 8])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((16, 13), "float32"), B: T.Buffer((16,), "float32")):
        # with T.block("root"):
        A_pad = T.alloc_buffer((16, 16))
        for i0, i1 in T.grid(16, 16):
            with T.block("A_pad"):
                v0, v1 = T.axis.remap("SS", [i0, i1])
                T.reads(A[v0, v1])
                T.writes(A_pad[v0, v1])
                A_pad[v0, v1] = T.if_then_else(v1 < 13, A[v0, v1], T.float32(0.0))
        for i, k in T.grid(16, 16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A_pad[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0.0)
                B[vi] = B[vi] + A_pad[vi, vk]
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    sizes = _checked_padding(realize, padding)
    check_only_writer(tree, realize)
    check_plain_path(tree, realize)
    analyzer = analyzer_at(tree, realize)
    extents: dict[Var, Expr] = {}
    for iv, pad in zip(realize.block.iter_vars, sizes, strict=True):
        extent = analyzer.simplify(ceildiv(iv.dom.extent, pad) * pad)
        if not analyzer.can_prove_equal(extent, iv.dom.extent):
            extents[iv.var] = extent
    _check_einsum(realize, extents)
    if not extents:
        return func
    _check_outputs(realize, extents)
    loops = _check_loops(tree, realize, extents)
    _check_domains(realize, loops)
    _check_zeros(realize, extents)
    copies = {
        r.buffer: _padded(r, extents) for r in (*realize.block.reads, *realize.block.writes) if _grows(r, extents)
    }
    for region in (*realize.block.reads, *realize.block.writes):
        _check_shape(realize, region, region in realize.block.writes, extents, copies, analyzer)
    return _rewrite(tree, scope, realize, extents, loops, copies, analyzer)


def _checked_padding(realize: BlockRealize, padding: Any) -> list[int]:
    axes = realize.block.iter_vars
    sizes = [p.value if isinstance(p, IntImm) else p for p in padding]
    if len(sizes) != len(axes) or not all(isinstance(p, int) and not isinstance(p, bool) and p > 0 for p in sizes):
        raise bad_argument(
            f"the padding {list(sizes)} is not a list of {len(axes)} positive numbers, one for each axis of block "
            f"{realize.block.name_hint!r}",
            where=realize,
            hint="1 leaves an axis as it is; the axes are " + ", ".join(iv.var.name for iv in axes),
        )
    return sizes


def _check_domains(realize: BlockRealize, loops: Mapping[Var, Expr]) -> None:
    """Raise ScheduleError when the domain of an axis depends on a loop that becomes longer. The axis would leave the
    buffers that it reads."""
    for iv in realize.block.iter_vars:
        if uses_var(iv.dom.min, lambda v: v in loops) or uses_var(iv.dom.extent, lambda v: v in loops):
            raise ScheduleError(
                f"axis {iv.var.name} of block {realize.block.name_hint!r} has the domain {iv.dom}, which depends on a "
                "loop to be padded",
                where=realize,
                hint="pad the other axes only",
            )


def _check_einsum(realize: BlockRealize, extents: Mapping[Var, Expr]) -> None:
    """Raise ScheduleError unless each buffer is accessed at one place, where a padded axis is an index by itself."""
    block = realize.block
    name = block.name_hint
    if opaque_buffers(block) or block.match_buffers or block.alloc_buffers:
        raise ScheduleError(
            f"block {name!r} uses pointers or buffers of its own, so it is not a contraction",
            where=realize,
            hint="do this before tensorize and cache steps inside the block",
        )
    regions = [*block.reads, *block.writes]
    seen: set[Buffer] = set()
    for region in regions:
        if region.buffer in seen:
            raise ScheduleError(
                f"block {name!r} reads and writes {region.buffer.name}, so it is not a contraction", where=realize,
                hint="do this before decompose_reduction",
            )  # fmt: skip
        seen.add(region.buffer)
        for r in region.region:
            inside = not isinstance(r.min, Var) and uses_var(r.min, lambda v: v in extents)
            if not is_const_int(r.extent, 1) or inside:
                raise ScheduleError(
                    f"block {name!r} touches {region}; an axis that is padded has to be an index by itself",
                    where=realize,
                    hint="inline or move what makes the indices first, or leave that axis as it is, with padding 1",
                )
    by_buffer = {r.buffer: r for r in regions}
    for body in (block.init, block.body):
        for access in loads_and_stores(body) if body is not None else ():
            where = by_buffer.get(access.buffer)
            same = where is not None and all(
                i is r.min or structural_equal(i, r.min) for i, r in zip(access.indices, where.region, strict=True)
            )
            if not same or access.predicate is not None:
                raise ScheduleError(
                    f"block {name!r} accesses {access}, in more than one way",
                    where=realize,
                    hint="cache_read the buffer for one of the uses first",
                )
        for n in pre_order(body) if body is not None else ():
            if isinstance(n, (Div, FloorDiv, FloorMod, TruncDiv, TruncMod)) and not n.dtype.is_float:
                if not (isinstance(n.b, IntImm) and n.b.value):
                    raise ScheduleError(
                        f"{n} would divide by the zeros of the padding",
                        where=realize,
                        hint="padded elements are zero; a product or a sum of them is fine",
                    )


def _check_outputs(realize: BlockRealize, extents: Mapping[Var, Expr]) -> None:
    """Raise ScheduleError when a padded spatial axis does not address the output.

    Its new iterations would then write the same elements again.
    """
    for iv in realize.block.iter_vars:
        for region in realize.block.writes:
            if iv.var in extents and iv.kind == IterVar.SPATIAL and all(r.min is not iv.var for r in region.region):
                raise ScheduleError(
                    f"axis {iv.var.name} of block {realize.block.name_hint!r} does not address {region.buffer.name}: more "
                    "of it would repeat what the block does",
                    where=realize,
                    hint="leave it as it is, with padding 1",
                )


def _check_loops(tree: Tree, realize: BlockRealize, extents: Mapping[Var, Expr]) -> dict[Var, Expr]:
    """Return the new extents of loops. Raise ScheduleError unless each padded axis is bound to one loop that no other
    axis uses."""
    name = realize.block.name_hint
    nest_of_its_own(tree, realize)
    loops: dict[Var, Expr] = {}
    above = {lp.loop_var: lp for lp in tree.loops_above(realize)}
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.var not in extents:
            continue
        if not isinstance(value, Var) or value not in above or not is_const_int(above[value].min, 0):
            raise ScheduleError(
                f"axis {iv.var.name} of block {name!r} is bound to {value}, not to a loop from zero", where=realize,
                hint="pad before splitting",
            )  # fmt: skip
        loops[value] = extents[iv.var]
    return loops


def _check_zeros(realize: BlockRealize, extents: Mapping[Var, Expr]) -> None:
    """Raise ScheduleError unless the terms of a padded reduce axis are zero."""
    block = realize.block
    padded = [iv for iv in block.iter_vars if iv.var in extents and iv.kind != IterVar.SPATIAL]
    if not padded:
        return
    store, start = block.body, block.init
    axis = padded[0].var.name
    found = None
    if isinstance(store, BufferStore) and isinstance(start, BufferStore):
        found = find_reducer([start.value], [BufferLoad(store.buffer, store.indices)], [store.value])
    if found is None or found[0].name != "sum":
        raise ScheduleError(
            f"axis {axis} of block {block.name_hint!r} is {padded[0].kind}, and the block is not a sum over it: padding "
            "with zeros would change the result",
            where=realize,
            hint="pad spatial axes only",
        )
    (term,) = found[1]
    for iv in padded:
        if not _vanishes(term, iv.var):
            raise ScheduleError(
                f"where {iv.var.name} is in the padding, {term} is not known to be zero, and would be added to the sum",
                where=realize,
                hint="each factor must be read along the axis, so that zeros meet zeros (0 * inf is not zero)",
            )


def _vanishes(e: Expr, axis: Var) -> bool:
    """Return whether ``e`` is zero where the values that it reads along ``axis`` are zero."""
    if isinstance(e, BufferLoad):
        return axis in e.indices
    if isinstance(e, (IntImm, FloatImm)):
        return e.value == 0
    if isinstance(e, Cast):
        return _vanishes(e.value, axis)
    if isinstance(e, (Add, Sub)):
        return _vanishes(e.a, axis) and _vanishes(e.b, axis)
    if isinstance(e, Mul):
        a, b = _vanishes(e.a, axis), _vanishes(e.b, axis)
        return (a and b) or ((a or b) and (not e.dtype.is_float or _finite(e.b if a else e.a, axis)))
    return False


def _finite(e: Expr, axis: Var) -> bool:
    if isinstance(e, Cast):
        return not e.value.dtype.is_float or _finite(e.value, axis)
    return isinstance(e, FloatImm) and e.value - e.value == 0 or _vanishes(e, axis)


def _grows(region: BufferRegion, extents: Mapping[Var, Expr]) -> bool:
    return any(isinstance(r.min, Var) and r.min in extents for r in region.region)


def _padded(region: BufferRegion, extents: Mapping[Var, Expr]) -> Buffer:
    old = region.buffer
    shape = []
    for r, extent in zip(region.region, old.shape, strict=True):
        if is_const_int(r.min, 0):
            shape.append(const(1, extent.dtype))
        else:
            shape.append(extents.get(r.min, extent) if isinstance(r.min, Var) else extent)
    return Buffer(f"{old.name}_pad", tuple(shape), old.dtype, old.scope)


def _check_shape(
    realize: BlockRealize,
    region: BufferRegion,
    written: bool,
    extents: Mapping[Var, Expr],
    copies: Mapping[Buffer, Buffer],
    analyzer: Analyzer,
) -> None:
    """Raise ScheduleError unless a padded axis covers its dimension, and everything that is copied back was written."""
    buffer = region.buffer
    if buffer not in copies:
        return
    doms = {iv.var: iv.dom for iv in realize.block.iter_vars}
    for d, (r, extent) in enumerate(zip(region.region, buffer.shape, strict=True)):
        if isinstance(r.min, Var) and r.min in doms:  # axes of blocks around are numbers here
            fits = is_const_int(doms[r.min].min, 0) and analyzer.can_prove_equal(doms[r.min].extent, extent)
            if (r.min in extents or written) and not fits:
                raise ScheduleError(
                    f"axis {r.min.name} of block {realize.block.name_hint!r} runs over {doms[r.min].extent} of the "
                    f"{extent} elements in dimension {d} of {buffer.name}",
                    where=realize,
                    hint="the axes of a contraction to pad run over whole dimensions",
                )
        elif written and not is_const_int(extent, 1):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} writes a part of {buffer.name}, and the copy would overwrite the rest",
                where=realize,
                hint="pad blocks that write the whole buffer",
            )


def _rewrite(
    tree: Tree,
    scope: BlockScope,
    realize: BlockRealize,
    extents: Mapping[Var, Expr],
    loops: Mapping[Var, Expr],
    copies: Mapping[Buffer, Buffer],
    analyzer: Analyzer,
) -> PrimFunc:
    block = realize.block
    axes = [
        IterVar(Range(iv.dom.min, extents[iv.var]), iv.var, iv.kind, iv.thread_tag) if iv.var in extents else iv
        for iv in block.iter_vars
    ]
    changed = replace_buffers(block.with_(iter_vars=tuple(axes)), dict(copies))
    new: Stmt = BlockRealize(realize.iter_values, realize.predicate, changed)
    for lp in reversed(tree.loops_above(realize)):
        new = lp.with_(extent=loops.get(lp.loop_var, lp.extent), body=new)
    names: list[str] = []
    before: list[Stmt] = []
    after: list[Stmt] = []
    for region in (*block.reads, *block.writes):
        if region.buffer in copies:
            names.append(unique_block_name(tree.func, copies[region.buffer].name, names))
            if region in block.writes:
                after.append(_copy(copies[region.buffer], region.buffer, names[-1], analyzer, back=True))
            else:
                before.append(_copy(region.buffer, copies[region.buffer], names[-1], analyzer, back=False))
    top = own_nest(tree, realize)
    assert top is not None
    root = scope.root.block
    return tree.replace(
        {top: seq(*before, new, *after)},
        {root: allocating(*copies.values())},
    )


def _copy(source: Buffer, target: Buffer, name: str, analyzer: Analyzer, back: bool) -> Stmt:
    """Return the nest ``target = source`` over the whole of ``target``, with zero outside of ``source``."""
    shape = target.shape
    axes = [IterVar(Range.from_extent(e), Var(f"v{d}", e.dtype)) for d, e in enumerate(shape)]
    at = tuple([iv.var for iv in axes])
    value: Expr = BufferLoad(source, at)
    tests = [v < s for v, s, t in zip(at, source.shape, shape, strict=True) if not analyzer.can_prove_equal(s, t)]
    if tests and not back:
        value = if_then_else(all_(*tests), value, const(0, source.dtype))
    return in_own_loops(element_block(name, axes, BufferStore(target, value, at)), prefix="i")


@primitive
def pad_reduction(func: PrimFunc, block: str) -> PrimFunc:
    """Let the bounds of reduction axes depend on no other axes; a condition takes the place of those bounds.

    What lies outside of the old bounds combines the value that the reduction starts from, which changes nothing.

    Applies to a block that stores one value, whose loops hold only this block and are its axes one to one, and which
    starts from the identity of a known reducer, such as a sum from zero.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((16, 16)), B: T.Buffer((16,))):
    ...     for i in range(16):
    ...         for k in range(i + 1):
    ...             with T.block("B"):
    ...                 vi, vk = T.axis.remap("SR", [i, k])
    ...                 with T.init():
    ...                     B[vi] = T.float32(0)
    ...                 B[vi] = B[vi] + A[vi, vk]
    ... '''))
    >>> sch.pad_reduction("B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
        # with T.block("root"):
        for i, k in T.grid(16, 16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0.0)
                B[vi] = B[vi] + T.if_then_else(vk < vi + 1, A[vi, vk], T.float32(0.0))
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    top = own_nest(tree, realize)
    if top is None or not has_trivial_bindings(tree, realize):
        raise ScheduleError(
            f"the axes of block {block!r} are not its loops one to one, or these hold other blocks too", where=realize,
            hint="do this before other steps on the loops",
        )  # fmt: skip
    loops = tree.loops_above(realize)
    axes = {loop.loop_var: iv.var for loop, iv in zip(loops, realize.block.iter_vars, strict=True)}
    new_loops, new_axes, tests = list(loops), list(realize.block.iter_vars), list[Expr]()
    for n, (loop, iv) in enumerate(zip(loops, realize.block.iter_vars, strict=True)):
        if iv.kind != IterVar.REDUCE or not any(uses_var(e, lambda v: v in axes) for e in (loop.min, loop.extent)):
            continue
        domain, inside = _padded_domain(tree, realize, loop)
        new_loops[n] = loop.with_(min=domain.min, extent=domain.extent)
        new_axes[n] = IterVar(domain, iv.var, iv.kind, iv.thread_tag)
        tests += [substitute(test, axes) for test in inside]
    if all(new is old for new, old in zip(new_loops, loops, strict=True)):
        return func
    body = _only_where(realize, all_(*tests))
    changed = realize.block.with_(
        iter_vars=tuple(new_axes), body=body, reads=access_regions(body, realize.block.init)[0]
    )
    new: Stmt = realize.with_(block=changed)
    for loop in reversed(new_loops):
        new = loop.with_(body=new)
    return tree.replace({top: new})


def _padded_domain(tree: Tree, realize: BlockRealize, loop: For) -> tuple[Range, list[Expr]]:
    """Return a constant or symbolic range around all values of a loop, and the conditions inside it."""
    outside = analyzer_at(tree, loop)
    low, end = outside.simplify(loop.min), outside.simplify(loop.min + loop.extent)
    least, most = outside.const_int_bound(low)[0], outside.const_int_bound(end)[1]
    ends = (least, most) if least is not None and most is not None else _symbolic_ends(tree, loop, low, end)
    reads = any(isinstance(n, (BufferLoad, Call)) for e in (low, end) for n in pre_order(e))
    if reads or ends is None or outside.can_prove(convert(ends[0]) >= ends[1]):
        raise ScheduleError(
            f"loop {loop.loop_var.name} of block {realize.block.name_hint!r} runs over {Range(loop.min, loop.extent)}, "
            "which has no bounds that are the same for all other loops",
            where=(loop, realize),
            hint="bounds are sums of loops and sizes, and read no memory",
        )
    kind = loop.loop_var.dtype
    first, last = convert(ends[0], kind), convert(ends[1], kind)
    domain = Range(first, outside.simplify(max_(last - first, 0)))
    tests = [loop.loop_var >= low, loop.loop_var < end]
    within = analyzer_at(tree, loop)
    within.bind(loop.loop_var, domain)
    return domain, [test for test in map(within.simplify, tests) if not is_const_int(test, 1)]


def _symbolic_ends(tree: Tree, loop: For, low: Expr, end: Expr) -> tuple[Expr, Expr] | None:
    """Return bounds of the values of a loop without the variables of outer loops, or None."""
    first, last = low, end - 1
    for outer in reversed(tree.loops_above(loop)):
        around = {outer.loop_var: Range(outer.min, outer.extent)}
        lower, upper = eval_interval(first, around), eval_interval(last, around)
        if lower is None or upper is None:
            return None
        first, last = lower[0], upper[1]
    return first, last + 1


def _only_where(realize: BlockRealize, condition: Expr) -> BufferStore:
    """Return the update of a reduction that combines the start value where the condition does not hold."""
    store, start = the_store(realize, realize.block.body), the_store(realize, realize.block.init)
    found = find_reducer([start.value], [BufferLoad(store.buffer, store.indices)], [store.value])
    if found is None:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not known to keep its value when it combines {start.value}",
            where=realize,
            hint="reductions are written as C[i] = C[i] + x, from the identity on; register_reducer makes others known",
        )
    reducer, (term,) = found
    old = (BufferLoad(store.buffer, store.indices),)
    (value,) = reducer.combine(old, (if_then_else(condition, term, start.value),))
    return store.with_(value=value)


@primitive
def decompose_padding(func: PrimFunc, block: str, loop: Var) -> tuple[PrimFunc, BlockRV]:
    """Split a padding block into one that writes the constant everywhere, just before ``loop``, and one for the inner
    part.

    Applies to a complete block ``B[...] = if_then_else(inside, value, constant)`` under ``loop``, where ``inside``
    bounds its axes from below and above by constants. Returns the block that writes the constant; the other one keeps
    its name, has axes over the inner part, and shorter loops (from ``loop`` inwards, those that hold nothing else) or a
    predicate.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((16,)), B: T.Buffer((20,))):
    ...     for i in range(20):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(20, i)
    ...             B[vi] = T.if_then_else(2 <= vi and vi < 18, A[vi - 2], T.float32(0))
    ... '''))
    >>> pad = sch.decompose_padding("B", sch.get_loops("B")[0])
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((16,), "float32"), B: T.Buffer((20,), "float32")):
        # with T.block("root"):
        for i in range(20):
            with T.block("B_pad_const"):
                vi = T.axis.spatial(20, i)
                T.reads()
                T.writes(B[vi])
                B[vi] = T.float32(0.0)
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                T.reads(A[vi])
                T.writes(B[vi + 2])
                B[vi + 2] = A[vi]
    """
    tree = tree_of(func)
    realize, target = find_block(tree, block), find_loop(tree, loop)
    _, inner = loops_of(tree, realize, target)
    check_complete(tree, realize)
    check_plain_path(tree, realize)
    padding = _padding(tree, realize)
    _check_others(tree, realize, target)
    name = unique_block_name(func, f"{block}_pad_const")
    own = innermost_own_loops(inner, realize)
    fill = _fill(tree, realize, padding, inner, target, name)
    changed = _inside(tree, realize, padding, own)
    top: Stmt = own[0] if own else realize
    if target is top:
        return tree.replace({target: seq(fill, changed)}), BlockRV(name)
    return tree.replace({top: changed}, {target: lambda lp: seq(fill, lp)}), BlockRV(name)


@dataclass(frozen=True, slots=True)
class _Padding:
    """``_Padding`` describes a padding block: ``value`` on ``box`` (a range per axis) where ``tests`` hold, else
    ``constant``."""

    value: Expr
    constant: Expr
    tests: list[Expr]
    box: list[Range]


def _padding(tree: Tree, realize: BlockRealize) -> _Padding:
    block, name = realize.block, realize.block.name_hint
    store = the_store(realize, block.body, _FORM)
    chosen = store.value
    if not isinstance(chosen, Call) or chosen.op != "tir.if_then_else":
        raise ScheduleError(f"block {name!r} stores {chosen}, which is not an if_then_else", where=realize, hint=_FORM)
    condition, value, constant = chosen.args
    if not isinstance(constant, (IntImm, FloatImm)):
        raise ScheduleError(f"block {name!r} pads with {constant}, which is not a constant", where=realize, hint=_FORM)
    if opaque_buffers(block):
        raise ScheduleError(
            f"block {name!r} uses pointers, so what it does is not known",
            where=realize,
            hint="do this before tensorize and other steps that bring in pointers",
        )
    analyzer = analyzer_at(tree, realize)
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in tree.loops_above(realize)}
    if exact_box(analyzer, realize.iter_values, ranges) is None:
        raise ScheduleError(
            f"the loops are not known to run block {name!r} over a box of its axes without holes", where=realize,
            hint="bindings must be splits and fusions of loops, each loop used by one axis",
        )  # fmt: skip
    analyzer = analyzer_at(tree, block.body)
    tests = [c for c in conjuncts(condition) if not analyzer.can_prove(c)]
    if not tests:
        raise ScheduleError(
            f"block {name!r} never pads: {condition} always holds", where=realize, hint="compute_inline it, or leave it"
        )
    box = _inner_box(realize, tests, analyzer)
    above = tree.loops_above(realize)
    outside = analyzer_at(tree, above[0] if above else realize)  # where the loops may have no iterations
    for iv, inner in zip(realize.block.iter_vars, box, strict=True):
        end = iv.dom.min + iv.dom.extent
        if inner.extent is not iv.dom.extent and not outside.can_prove(inner.min + inner.extent <= end):
            raise ScheduleError(
                f"the part of axis {iv.var.name} of block {name!r} inside the padding ends at {inner.min + inner.extent}, "
                f"which may lie beyond the end of the axis, {end}",
                where=realize,
                hint="say how large the size is at the least, with T.assume or by a number",
            )
    return _Padding(value, constant, tests, box)


_FORM = "its body must be B[...] = T.if_then_else(condition, value, constant)"


def _inner_box(realize: BlockRealize, tests: Sequence[Expr], analyzer: Analyzer) -> list[Range]:
    """Return the values of each axis for which the conditions hold; each condition bounds one axis by a constant."""
    axes = [iv.var for iv in realize.block.iter_vars]
    lows = {iv.var: iv.dom.min for iv in realize.block.iter_vars}
    ends = {iv.var: analyzer.simplify(iv.dom.min + iv.dom.extent) for iv in realize.block.iter_vars}
    for test in tests:
        found = _bound(test, axes)
        if found is None:
            raise ScheduleError(
                f"the condition {test} of block {realize.block.name_hint!r} does not bound one of its axes by a "
                "constant",
                where=realize,
                hint="conditions are like 3 <= v, v < 35",
            )
        axis, limit, from_below = found
        if from_below:
            if analyzer.can_prove(limit > lows[axis]):
                lows[axis] = limit
        elif analyzer.can_prove(limit < ends[axis]):
            ends[axis] = limit
    out = []
    for v in axes:
        extent = analyzer.simplify(ends[v] - lows[v])
        if not analyzer.can_prove(extent >= 1):
            raise ScheduleError(
                f"axis {v.name} of block {realize.block.name_hint!r} has nothing inside the padding",
                where=realize,
                hint="inline the block instead: all it stores is padding",
            )
        out.append(Range(lows[v], extent))
    return out


def _bound(test: Expr, axes: Sequence[Var]) -> tuple[Var, Expr, bool] | None:
    """Return (axis, limit, True) for ``limit <= axis``, or (axis, limit, False) for ``axis < limit``."""
    if not isinstance(test, (LT, LE, GT, GE)):
        return None
    line = linear_coefficients(test.a - test.b, axes)  # sum(c * axis) + rest  <op>  0
    if line is None:
        return None
    used = [(v, c) for v, c in zip(axes, line[0], strict=True) if not is_const_int(c, 0)]
    rest = line[1]
    if len(used) != 1 or not isinstance(rest, IntImm):
        return None
    (axis, factor), below = used[0], isinstance(test, (LT, LE))
    if not (is_const_int(factor, 1) or is_const_int(factor, -1)):
        return None
    k = rest.value
    if is_const_int(factor, -1):  # -axis + k < 0  is  axis > k
        below, k = not below, -k
        strict = isinstance(test, (LT, GT))
    else:
        strict = isinstance(test, (LT, GT))
    # axis + k  <op>  0
    if below:
        return axis, const(-k if strict else -k + 1, axis.dtype), False
    return axis, const(-k + 1 if strict else -k, axis.dtype), True


def _check_others(tree: Tree, realize: BlockRealize, target: For) -> None:
    """Raise ScheduleError when another block accesses the buffer where the constant is now written earlier."""
    scope = ordered_scope(tree, realize)
    buffer = realize.block.writes[0].buffer
    mine = buffer in scope.root.block.alloc_buffers
    for reader in scope.readers.get(buffer, ()):
        if not tree.is_below(reader, target) or (mine and scope.order[reader] > scope.order[realize]):
            continue
        raise ScheduleError(
            f"block {reader.block.name_hint!r} under loop {target.loop_var.name} reads {buffer.name}, which would hold "
            "the constant by then",
            where=(target, reader),
            hint="choose a loop around the padding block alone",
        )


def _fill(tree: Tree, realize: BlockRealize, padding: _Padding, inner: Sequence[For], target: For, name: str) -> Stmt:
    """Return the nest that writes the constant wherever the block ran."""
    block = realize.block
    store = block.body
    assert isinstance(store, BufferStore)
    axes: dict[Var, Expr] = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in block.iter_vars}
    loops = fresh_variables(inner)
    outside = analyzer_at(tree, target)
    indices = tuple([substitute(i, axes) for i in store.indices])
    made = Block(
        tuple([IterVar(iv.dom, axes[iv.var], IterVar.SPATIAL, iv.thread_tag) for iv in block.iter_vars]),  # type: ignore[arg-type]
        (),
        tuple([substitute(r, axes) for r in block.writes]),
        name,
        BufferStore(store.buffer, padding.constant, indices),
    )
    values = tuple([outside.simplify(substitute(v, loops)) for v in realize.iter_values])
    made_there = BlockRealize(values, outside.simplify(substitute(realize.predicate, loops)), made)
    return in_loops_like(inner, loops, made_there, serial=True)


def _inside(tree: Tree, realize: BlockRealize, padding: _Padding, own: Sequence[For]) -> Stmt:
    """Return the inner part, with new axes from zero.

    The loop of an axis becomes shorter where only this block uses it; other axes get conditions.
    """
    block = realize.block
    store = block.body
    assert isinstance(store, BufferStore)
    analyzer = analyzer_at(tree, own[0] if own else realize)
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in own}
    moved: dict[Var, Expr] = {}
    for value, inner in zip(realize.iter_values, padding.box, strict=True):
        if isinstance(value, Var) and value in ranges and is_const_int(ranges[value].min, 0):
            once = sum(uses_var(v, value) for v in realize.iter_values) == 1
            if once and not any(uses_var(lp.min, value) or uses_var(lp.extent, value) for lp in own):
                ranges[value] = Range(const(0, value.dtype), inner.extent)
                moved[value] = value + inner.min if not is_const_int(inner.min, 0) else value
    for v, r in ranges.items():
        analyzer.bind(v, r)
    fresh: dict[Var, Expr] = {}
    axes: list[IterVar] = []
    values: list[Expr] = []
    local = Analyzer()  # knows no ranges: an axis of one value keeps its name
    for iv, value, inner in zip(block.iter_vars, realize.iter_values, padding.box, strict=True):
        var = Var(iv.var.name, iv.var.dtype)
        axes.append(IterVar(Range(const(0, var.dtype), inner.extent), var, IterVar.SPATIAL, iv.thread_tag))
        fresh[iv.var] = var if is_const_int(inner.min, 0) else var + inner.min
        values.append(value if value in moved else analyzer.simplify(value - inner.min))  # type: ignore[comparison-overlap]
    bound = dict(zip([iv.var for iv in block.iter_vars], realize.iter_values, strict=True))
    tests = [substitute(t, bound) for t in padding.tests] + conjuncts(realize.predicate)
    kept = [
        _from_left(without_low_digits(analyzer, c))
        for t in tests
        for c in conjuncts(analyzer.simplify(substitute(t, moved)))
    ]
    made = Block(
        tuple(axes),
        tuple([_tidy(r, fresh, local) for r in block.reads]),
        tuple([_tidy(r, fresh, local) for r in block.writes]),
        block.name_hint,
        BufferStore(
            store.buffer,
            local.simplify(substitute(padding.value, fresh)),
            tuple([local.simplify(substitute(i, fresh)) for i in store.indices]),
        ),
        annotations=block.annotations,
    )
    out: Stmt = BlockRealize(tuple(values), all_(*kept), made)
    for lp in reversed(own):
        out = lp.with_(min=ranges[lp.loop_var].min, extent=ranges[lp.loop_var].extent, body=out)
    return out


def _from_left(test: Expr) -> Expr:
    """Return a lower bound in the form ``3 <= x``."""
    return LE(test.b, test.a) if isinstance(test, GE) and isinstance(test.b, IntImm) else test


def _tidy(region: BufferRegion, fresh: dict[Var, Expr], analyzer: Analyzer) -> BufferRegion:
    return region.map_children(lambda e: analyzer.simplify(substitute(e, fresh)))
