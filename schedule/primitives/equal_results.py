"""This module defines reduce_once, drop_equal_steps and reduce_where_copied, which leave out what a reduction computes in vain.

``reduce_once`` leaves out axes along which results are the same, ``drop_equal_steps`` axes along which steps are, and
``reduce_where_copied`` results that no block reads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...tir.analysis.known_ranges import sized_analyzer
from ...tir.analysis.regions import redeclared
from ...tir.analysis.tree import Tree, tree_of, unique_block_name
from ...tir.expr import (
    BufferLoad,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Range,
    Var,
    cast,
    const,
    is_const_int,
    reads_memory,
    same,
)
from ...tir.expr.reducers import ALL, ANY, LARGEST, MAX, MIN, SMALLEST, SUM
from ...tir.stmt import BlockRealize, Buffer, BufferStore, PrimFunc, Stmt, seq
from ...tir.walk import pre_order, substitute, transform, uses_var
from ..edit.loop_nests import allocating, copying_block, freeing, in_own_loops, nest
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import (
    check_complete,
    check_from_zero,
    check_no_pointers,
    check_plain_path,
    check_read_by_blocks_alone,
    check_reduction,
    check_writes_first,
    find_block,
    nest_of_its_own,
    ordered_scope,
    scope_around,
    the_store,
)
from .rfactor import combined, reduction_of


@primitive
def reduce_once(func: PrimFunc, block: str) -> tuple[PrimFunc, BlockRV]:
    """Reduce once what is the same along an axis, and copy the results along it afterwards.

    The block then has no axis that its value does not depend on, and in place of an axis that its value uses only as
    ``h // 3``, or only as ``h % 64``, one of as many values. Returns the copying block.

    Applies to a reduction of one store, at its axes, that is alone in its loops.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((4, 16)), B: T.Buffer((12, 5))):
    ...     for i, j, k in T.grid(12, 5, 16):
    ...         with T.block("B"):
    ...             vi, vj, vk = T.axis.remap("SSR", [i, j, k])
    ...             with T.init():
    ...                 B[vi, vj] = T.float32(0)
    ...             B[vi, vj] = B[vi, vj] + A[vi // 3, vk]
    ... '''))
    >>> copy = sch.reduce_once("B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((4, 16), "float32"), B: T.Buffer((12, 5), "float32")):
        # with T.block("root"):
        B_once = T.alloc_buffer((4,))
        for ax0, ax1 in T.grid(4, 16):
            with T.block("B"):
                vi_once, vk = T.axis.remap("SR", [ax0, ax1])
                T.reads(A[vi_once, vk])
                T.writes(B_once[vi_once])
                with T.init():
                    B_once[vi_once] = T.float32(0.0)
                B_once[vi_once] = B_once[vi_once] + A[vi_once, vk]
        for ax0, ax1 in T.grid(12, 5):
            with T.block("B_once"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(B_once[v0 // 3])
                T.writes(B[v0, v1])
                B[v0, v1] = B_once[v0 // 3]
    """
    tree = tree_of(func)
    realize, top = _rectangle(tree, block)
    old = realize.block
    store, start = old.body, old.init
    spatial = [iv for iv in old.iter_vars if iv.kind != IterVar.REDUCE]
    if not isinstance(store, BufferStore) or not isinstance(start, BufferStore):
        raise ScheduleError(
            f"block {block!r} has other statements than a store and its init", where=realize,
            hint="give each result a block of its own",
        )  # fmt: skip
    axes = {iv.var for iv in old.iter_vars}
    plain = [i for i in store.indices if uses_var(i, lambda v: v in axes)]
    if (
        len(set(plain)) < len(plain)
        or {*plain} != {iv.var for iv in spatial}
        or uses_var(start.value, lambda v: v in axes)
    ):
        raise ScheduleError(
            f"block {block!r} does not store at its axes, each in a place of its own, or starts with different values",
            where=realize, hint="store at the axes themselves",
        )  # fmt: skip
    buffer = store.buffer
    value = _in_plain_indices(func, old.iter_vars, store.value)
    forms = {iv.var: _form_of(func, value, iv, buffer, axes) for iv in spatial}
    if all(form is v for v, form in forms.items()):
        raise ScheduleError(
            f"the results of block {block!r} depend on all of its axes", where=realize,
            hint="it applies where an axis is used as h // 3 alone, as h % 64 alone, or not at all",
        )  # fmt: skip
    new_axes: list[IterVar] = []
    place: dict[Var, Var] = {}
    for iv in old.iter_vars:
        form = forms.get(iv.var, iv.var)
        if form is iv.var:
            new_axes.append(iv)
            place[iv.var] = iv.var
        elif isinstance(form, (FloorDiv, FloorMod)):
            extent = form.b if isinstance(form, FloorMod) else (iv.dom.extent + form.b - 1) // form.b
            place[iv.var] = Var(f"{iv.var.name}_once", iv.var.dtype)
            new_axes.append(IterVar(Range.from_extent(sized_analyzer(func).simplify(extent)), place[iv.var], iv.kind))
    kept = [iv.var for iv in spatial if forms[iv.var] is not None]
    once = Buffer(
        f"{buffer.name}_once",
        tuple([a.dom.extent for a in new_axes if a.kind != IterVar.REDUCE]),
        buffer.dtype,
        "global",
    )
    here = tuple([place[v] for v in kept])

    def moved(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            return BufferLoad(once, here)
        if isinstance(n, (FloorDiv, FloorMod)) and isinstance(n.a, Var) and place.get(n.a, n.a) is not n.a:
            return place[n.a]
        return None

    loops = [(Var(f"ax{n}", iv.var.dtype), iv.dom.extent) for n, iv in enumerate(new_axes)]
    made = old.with_(
        iter_vars=tuple(new_axes), reads=(), writes=(), body=BufferStore(once, transform(value, moved), here),
        init=BufferStore(once, start.value, here),
    )  # fmt: skip
    reduced = nest(loops, BlockRealize(tuple([v for v, _ in loops]), const(True, "bool"), redeclared(made)))
    name = unique_block_name(func, f"{block}_once")
    source = BufferLoad(once, tuple([f for v in kept if (f := forms[v]) is not None]))
    copied = in_own_loops(copying_block(name, spatial, source, BufferLoad(buffer, store.indices), names="v"))
    scope = scope_around(tree, realize).block
    return tree.replace({top: seq(reduced, copied)}, {scope: allocating(once)}), BlockRV(name)


_ANY_NUMBER_OF_TIMES = (MAX, MIN, LARGEST, SMALLEST, ANY, ALL)
"""The reductions that give the same however often they combine a value."""


@primitive
def drop_equal_steps(func: PrimFunc, block: str) -> PrimFunc:
    """Leave out the steps of a reduction that combine the value of an earlier step again.

    An axis of the reduction that its value does not depend on becomes one step. One that it uses only as ``k % 16``, or
    only as ``k // 3``, gets as many steps as there are values. A sum multiplies what it adds by how many steps had it.

    Applies to a sum, or an extreme without its position, that is alone in its loops.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((12, 16)), B: T.Buffer((12,))):
    ...     for i, k in T.grid(12, 64):
    ...         with T.block("B"):
    ...             vi, vk = T.axis.remap("SR", [i, k])
    ...             with T.init():
    ...                 B[vi] = T.float32(0)
    ...             B[vi] = B[vi] + A[vi, vk % 16]
    ... '''))
    >>> sch.drop_equal_steps("B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((12, 16), "float32"), B: T.Buffer((12,), "float32")):
        # with T.block("root"):
        for ax0, ax1 in T.grid(12, 16):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [ax0, ax1])
                T.reads(A[vi, vk])
                T.writes(B[vi])
                with T.init():
                    B[vi] = T.float32(0.0)
                B[vi] = B[vi] + A[vi, vk] * T.float32(4.0)
    """
    tree = tree_of(func)
    realize, top = _rectangle(tree, block)
    old = realize.block
    known = reduction_of(realize)
    if known.conditions or (known.reducer is not SUM and known.reducer not in _ANY_NUMBER_OF_TIMES):
        raise ScheduleError(
            f"block {block!r} does not combine values that may come once for many times",
            where=realize,
            hint="it applies to sums and to extremes without their positions, without conditions",
        )
    (update,), value = known.updates, _in_plain_indices(func, old.iter_vars, known.right[0])
    axes = {iv.var for iv in old.iter_vars}
    analyzer = sized_analyzer(func)
    times: Expr = const(1)
    place: dict[Var, Expr] = {}
    kept: list[IterVar] = []
    for iv in old.iter_vars:
        form = _form_of(func, value, iv, update.buffer, axes) if iv.kind == IterVar.REDUCE else iv.var
        fewer = _fewer_values(func, iv, form)
        if fewer is None:
            kept.append(iv)
            continue
        times = analyzer.simplify(times * (analyzer.simplify(iv.dom.extent // fewer) if form is not None else fewer))
        if form is None:
            place[iv.var] = const(0, iv.var.dtype)
        else:
            place[iv.var] = iv.var
            kept.append(iv.with_(dom=Range.from_extent(fewer)))
    if not place or (known.reducer is SUM and not _fits(times, value)):
        raise ScheduleError(
            f"the steps of block {block!r} combine different values", where=realize,
            hint="it applies where an axis of the reduction is used as k // 3 alone, as k % 64 alone, or not at all",
        )  # fmt: skip
    if all(iv.kind != IterVar.REDUCE for iv in kept):  # a reduction has an axis, if of one step
        last = next(iv for iv in reversed(old.iter_vars) if iv.kind == IterVar.REDUCE)
        kept.append(last.with_(dom=Range.from_extent(const(1, last.var.dtype))))

    def moved(n: Any) -> Any:
        if isinstance(n, (FloorDiv, FloorMod)) and isinstance(n.a, Var) and n.a in place:
            return place[n.a]
        return None

    once = transform(value, moved)
    if known.reducer is SUM:
        factor = const(times.value, value.dtype) if isinstance(times, IntImm) else Cast(value.dtype, times)
        once = once * factor
    body = combined(known.reducer, known.updates, (once,))
    loops = [(Var(f"ax{n}", iv.var.dtype), iv.dom.extent) for n, iv in enumerate(kept)]
    made = old.with_(iter_vars=tuple(kept), reads=(), writes=(), body=body)
    return tree.replace(
        {top: nest(loops, BlockRealize(tuple([v for v, _ in loops]), const(True, "bool"), redeclared(made)))}
    )


@primitive
def reduce_where_copied(func: PrimFunc, block: str) -> PrimFunc:
    """Compute the results of a reduction only where the block that copies them reads them, and remove the copy.

    The reduction then writes what the copy wrote. A diagonal, every second result, or rows at indices from memory take
    only their own share of the work; elements that the copy reads several times are computed several times.

    Applies to a reduction of one store, at its axes, that is alone in its loops. Only the copy reads its buffer, at one
    place of the copy's axes; what else is in the indices is not written in the function.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 16)), C: T.Buffer((4,))):
    ...     B = T.alloc_buffer((8,))
    ...     for i, k in T.grid(8, 16):
    ...         with T.block("B"):
    ...             vi, vk = T.axis.remap("SR", [i, k])
    ...             with T.init():
    ...                 B[vi] = T.float32(0)
    ...             B[vi] = B[vi] + A[vi, vk]
    ...     for i in range(4):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(4, i)
    ...             C[vi] = B[vi * 2 + 1]
    ... '''))
    >>> sch.reduce_where_copied("B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 16), "float32"), C: T.Buffer((4,), "float32")):
        # with T.block("root"):
        for ax0, ax1 in T.grid(4, 16):
            with T.block("B"):
                v0, vk = T.axis.remap("SR", [ax0, ax1])
                T.reads(A[v0 * 2 + 1, vk])
                T.writes(C[v0])
                with T.init():
                    C[v0] = T.float32(0.0)
                C[v0] = C[v0] + A[v0 * 2 + 1, vk]
    """
    tree = tree_of(func)
    realize, top = _rectangle(tree, block)
    old, scope = realize.block, ordered_scope(tree, realize)
    store, start = the_store(realize, old.body), the_store(realize, old.init)
    spatial = [iv for iv in old.iter_vars if iv.kind != IterVar.REDUCE]
    buffer = store.buffer
    if len(store.indices) != len(spatial) or {*store.indices} != {iv.var for iv in spatial}:
        raise ScheduleError(
            f"block {block!r} does not store at its axes, each of which is one index", where=realize,
            hint="store at the axes themselves",
        )  # fmt: skip
    readers = [r for r in scope.readers.get(buffer, ()) if r is not realize]
    if len(readers) != 1 or buffer in func.buffer_map.values() or buffer not in scope.root.block.alloc_buffers:
        raise ScheduleError(
            f"the results of block {block!r} are not for one other block alone", where=realize,
            hint="it applies where one block reads them, and that is a copy",
        )  # fmt: skip
    (reader,) = readers
    check_read_by_blocks_alone(scope, buffer)
    check_complete(tree, reader)
    check_plain_path(tree, reader)
    check_writes_first(scope, realize, readers, buffer)
    copy = the_store(reader, reader.block.body)
    copy_top, axes = nest_of_its_own(tree, reader), reader.block.iter_vars
    check_from_zero(reader, axes)
    stored = [i for i in copy.indices if not isinstance(i, IntImm)]
    long = {iv.var for iv in axes if not is_const_int(iv.dom.extent, 1)}
    plain = len({*stored}) == len(stored) and long <= {*stored} <= {iv.var for iv in axes}
    if not plain or not isinstance(copy.value, BufferLoad) or copy.value.buffer is not buffer:
        raise ScheduleError(
            f"block {reader.block.name_hint!r} does more than copy elements of {buffer.name} to places of their own",
            where=reader, hint="let it read a copy first, with reindex",
        )  # fmt: skip
    check_no_pointers(scope.root.block, [buffer, copy.buffer], "so it is not known what is read", realize)
    tables = {n.buffer for i in copy.value.indices for n in pre_order(i) if isinstance(n, BufferLoad)}
    early = [r for r in (*scope.readers.get(copy.buffer, ()), *scope.writers.get(copy.buffer, ())) if r is not reader]
    for other in tables:
        for writer in scope.writers.get(other, ()):
            raise ScheduleError(
                f"block {writer.block.name_hint!r} writes {other.name}, which says what block "
                f"{reader.block.name_hint!r} copies", where=(reader, writer),
                hint="it applies to indices from arguments that the function does not write",
            )  # fmt: skip
    check_writes_first(scope, reader, early, copy.buffer, "the copy has to come before all that use its result")
    mine = [IterVar(iv.dom, Var(f"v{n}", iv.var.dtype)) for n, iv in enumerate(axes)]
    at: dict[Var, Expr] = {iv.var: new.var for iv, new in zip(axes, mine, strict=True)}
    point = [substitute(i, at) for i in copy.value.indices]
    there = tuple([substitute(i, at) for i in copy.indices])
    place = {v: cast(v.dtype, i) for v, i in zip(store.indices, point, strict=True) if isinstance(v, Var)}

    def moved(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            return BufferLoad(copy.buffer, there)
        return place.get(n) if isinstance(n, Var) else None

    made = old.with_(
        iter_vars=(*mine, *[iv for iv in old.iter_vars if iv.kind == IterVar.REDUCE]), reads=(), writes=(),
        body=BufferStore(copy.buffer, _in_plain_indices(func, mine, transform(store.value, moved)), there),
        init=BufferStore(copy.buffer, transform(start.value, moved), there),
    )  # fmt: skip
    reduced = in_own_loops(redeclared(made))
    return tree.replace({top: reduced, copy_top: None}, {scope.root.block: freeing([buffer])})


def _in_plain_indices(func: PrimFunc, axes: Sequence[IterVar], value: Expr) -> Expr:
    """Return ``value`` with the indices of what it reads simplified, as ``2 * i % 8`` to ``i % 4 * 2``."""
    known = sized_analyzer(func)
    for iv in axes:
        known.bind(iv.var, iv.dom)

    def simple(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.indices:
            return BufferLoad(n.buffer, tuple([known.simplify(transform(i, simple)) for i in n.indices]))
        return None

    return transform(value, simple)


def _rectangle(tree: Tree, block: str) -> tuple[BlockRealize, Stmt]:
    """Return a reduction over a rectangle, and the loops that it has for itself; ScheduleError for other blocks."""
    realize = find_block(tree, block)
    check_reduction(tree, realize)
    check_plain_path(tree, realize)
    top, axes = nest_of_its_own(tree, realize), realize.block.iter_vars
    check_from_zero(realize, axes)
    moving = {loop.loop_var for loop in tree.loops_above(realize)} | {iv.var for iv in axes}
    if any(uses_var(e, lambda v: v in moving) for iv in axes for e in (iv.dom.min, iv.dom.extent)):
        raise ScheduleError(
            f"an axis of block {block!r} ends where another one says", where=realize,
            hint="make the reduction a rectangle first, with pad_reduction",
        )  # fmt: skip
    return realize, top


def _fewer_values(func: PrimFunc, axis: IterVar, form: Var | FloorDiv | FloorMod | None) -> Expr | None:
    """Return how many different values an axis of a reduction takes in the expression, where each comes equally often.

    That of an axis without any is the number of its steps, for all of which one is left. None: no fewer than steps.
    """
    extent, known = axis.dom.extent, sized_analyzer(func)
    if form is None:
        return extent if known.can_prove(extent >= 2) else None
    if isinstance(form, Var) or not known.can_prove((extent % form.b).equal(0)):
        return None
    fewer = form.b if isinstance(form, FloorMod) else known.simplify(extent // form.b)
    return None if known.can_prove(fewer >= extent) else fewer


def _fits(times: Expr, value: Expr) -> bool:
    """Return whether a number of times is one of the type of the values."""
    if value.dtype.is_float:
        return not isinstance(times, IntImm) or times.value < 2**11
    return isinstance(times, IntImm) and times.value < 2 ** (value.dtype.bits - 1)


def _form_of(
    func: PrimFunc, value: Expr, axis: IterVar, buffer: Buffer, axes: Collection[Var]
) -> Var | FloorDiv | FloorMod | None:
    """Return the one expression by which ``value`` depends on an axis; None where it does not.

    What it reads of ``buffer``, the partial result, does not count.
    """

    def digit(n: Any) -> bool:
        one = isinstance(n, (FloorDiv, FloorMod)) and n.a is axis.var
        return one and not uses_var(n.b, lambda v: v in axes) and not reads_memory(n.b)

    inside = [
        n for n in pre_order(value, lambda n: not digit(n) and not (isinstance(n, BufferLoad) and n.buffer is buffer))
    ]
    found = [n for n in inside if isinstance(n, (FloorDiv, FloorMod)) and digit(n)]
    if any(n is axis.var for n in inside):
        return axis.var
    if not found:
        return None
    form, extent = found[0], axis.dom.extent
    if not all(type(n) is type(form) and same(n.b, form.b) for n in found):
        return axis.var
    known = sized_analyzer(func)
    known.learn_nonempty(extent)
    if not known.can_prove(form.b >= 1):
        return axis.var
    if isinstance(form, FloorMod):  # where there are fewer values of the axis, those above are not read
        known = sized_analyzer(func)
        known.learn(form.b >= 1)
        if not known.can_prove(extent >= form.b):
            return axis.var
    return form
