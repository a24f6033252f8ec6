"""This module changes how a buffer is stored: its scope, data type, stride alignment and axis separators."""

from __future__ import annotations

from typing import Any

from ...tir.analysis.tree import Tree, tree_of
from ...tir.annotations import ALIGN, alignment_wishes
from ...tir.expr import BufferLoad, Cast, DType, Var, cast
from ...tir.expr.dtype import max_value, min_value
from ...tir.expr.node import IRNode
from ...tir.stmt import BlockRealize, Buffer, BufferStore, PrimFunc
from ...tir.walk import pre_order, replace_buffers, transform
from ..edit.buffers import (
    changed_buffer,
    check_storage_scope,
    home_of,
    matched_buffers,
    named_buffer,
    pick_buffer,
    separated,
)
from ..edit.loop_nests import with_annotation
from ..errors import ScheduleError
from ..primitive import primitive
from ..require.block_preconditions import find_block


def _allocated(tree: Tree, block: str, buffer_index: int | str, what: str) -> tuple[BlockRealize, Buffer]:
    """Return the block and the buffer that it writes; ScheduleError unless the function allocates the buffer."""
    realize = find_block(tree, block)
    buffer = pick_buffer(realize, buffer_index, "write")
    if home_of(tree, realize, buffer) is None:
        raise ScheduleError(
            f"buffer {buffer.name} is a parameter, whose {what} is the caller's", where=realize,
            hint=f"use cache_write and set the {what} of the copy",
        )  # fmt: skip
    return realize, buffer


@primitive
def set_scope(func: PrimFunc, block: str, buffer_index: int | str, storage_scope: str) -> PrimFunc:
    """Move a buffer that ``block`` writes to another storage scope (``global``, ``local``, ``shared`` …).

    Applies to buffers that the function allocates.

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
    >>> sch.set_scope("B", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((8, 8), scope="local")
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi, vj] + T.float32(1.0)
    """
    storage_scope = check_storage_scope(storage_scope)
    tree = tree_of(func)
    _, buffer = _allocated(tree, block, buffer_index, "scope")
    if buffer.scope == storage_scope:
        return func
    return changed_buffer(func, buffer, lambda b: b.with_(scope=storage_scope))


@primitive
def unsafe_set_dtype(func: PrimFunc, block: str, buffer_index: int | str, dtype: str) -> PrimFunc:
    """Store a buffer that ``block`` writes as another data type.

    Values are converted when they are stored and when they are loaded. The step is unsafe because values are rounded or
    truncated to ``dtype``: beside steps that reorder float sums, no other primitive changes results. A wider type of
    integers keeps all values; loads that are converted anyhow are converted from it. Applies to buffers that the
    function allocates and accesses without pointers.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    ...     B = T.alloc_buffer((8,))
    ...     for i in range(8):
    ...         with T.block("B"):
    ...             vi = T.axis.spatial(8, i)
    ...             B[vi] = A[vi] * T.float32(2)
    ...     for i in range(8):
    ...         with T.block("C"):
    ...             vi = T.axis.spatial(8, i)
    ...             C[vi] = B[vi] + T.float32(1)
    ... '''))
    >>> sch.unsafe_set_dtype("B", 0, "float16")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((8,), "float16")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi])
                T.writes(B[vi])
                B[vi] = T.Cast("float16", A[vi] * T.float32(2.0))
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.reads(B[vi])
                T.writes(C[vi])
                C[vi] = T.Cast("float32", B[vi]) + T.float32(1.0)
    """
    try:
        kind = DType(dtype)
    except ValueError as problem:
        raise ScheduleError(str(problem), hint="write it as 'float32', 'int8', 'bfloat16', ...") from None
    tree = tree_of(func)
    realize, old = _allocated(tree, block, buffer_index, "data type")
    if kind.lanes != 1 or kind.kind in ("handle", "void", "bool") or old.dtype.is_bool:
        raise ScheduleError(
            f"a buffer of {old.dtype} cannot be stored as {dtype}", where=realize, hint="choose a type of the same kind"
        )
    if old.dtype == dtype:
        return func
    names = matched_buffers(func, {old: old.with_(dtype=dtype)}, lambda b: b.with_(dtype=dtype))
    pointers = {b.data for b in names}
    if any(n in pointers for n in _pointers(func)):
        raise ScheduleError(
            f"buffer {old.name} is accessed through a pointer, which knows its data type",
            where=realize,
            hint="do this before tensorize",
        )

    stored = set(names.values())
    exact = old.dtype.is_int and kind.is_int and _covers(kind, old.dtype)

    def post(n: IRNode) -> IRNode | None:
        if isinstance(n, BufferLoad) and n.buffer in names:
            return cast(old.dtype, BufferLoad(names[n.buffer], n.indices, n.predicate))
        if isinstance(n, BufferStore) and n.buffer in names:
            return BufferStore(names[n.buffer], cast(dtype, n.value), n.indices, n.predicate)
        if exact and isinstance(n, Cast) and isinstance(n.value, Cast) and n.value.dtype.element == old.dtype:
            load = n.value.value
            return cast(n.dtype, load) if isinstance(load, BufferLoad) and load.buffer in stored else None
        return None

    return replace_buffers(transform(func, post=post), names)


def _covers(wide: DType, narrow: DType) -> bool:
    """Return whether ``wide`` has all values of ``narrow``; both are integers."""
    return min_value(wide) <= min_value(narrow) and max_value(narrow) <= max_value(wide)


def _pointers(func: PrimFunc) -> set[Any]:
    return {n for n in pre_order(func) if isinstance(n, Var) and n.dtype == "handle"}


@primitive
def set_axis_separator(func: PrimFunc, block: str, buffer: Any, axis_separators: list[int] | None) -> PrimFunc:
    """Set between which dimensions of a buffer one physical axis ends and the next begins.

    It is meant for targets whose memory has more than one dimension. ``[1]`` groups the dimensions of a matrix into the
    first and the second.

    ``buffer`` is ``("read", i)`` or ``("write", i)`` of the block, a buffer or its name.

        B = T.alloc_buffer((8, 8))      =>      B = T.alloc_buffer((8, 8), axis_separators=[1])
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    old = named_buffer(realize, buffer)
    new = tuple(axis_separators or ())
    if not all(isinstance(s, int) and 0 <= s <= old.ndim for s in new) or list(new) != sorted(new):
        raise ScheduleError(
            f"{list(new)} are not separators of the {old.ndim} dimensions of buffer {old.name}", where=realize,
            hint=f"increasing numbers from 0 to {old.ndim}",
        )  # fmt: skip
    if old.axis_separators == new:
        return func
    return separated(func, old, new)


@primitive
def storage_align(func: PrimFunc, block: str, buffer_index: int | str, axis: int, factor: int, offset: int) -> PrimFunc:
    """Align the stride of ``axis`` of a buffer to ``k * factor + offset`` elements, for the smallest sufficient k.

    Rows then do not share cache sets or memory banks.

    The step sets the annotation ``buffer_dim_align`` of the block, which the lowering follows; a second call for the
    same axis replaces the first. ``axis`` may be negative, counting from the end. Applies to buffers that the function
    allocates.

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
    ...             C[vi, vj] = B[vj, vi]
    ... '''))
    >>> sch.storage_align("B", 0, axis=0, factor=16, offset=1)
    >>> sch.get(sch.get_block("B")).annotations
    {'buffer_dim_align': [[0, 0, 16, 1]]}
    """
    tree = tree_of(func)
    realize, buffer = _allocated(tree, block, buffer_index, "layout")
    index = next(i for i, r in enumerate(realize.block.writes) if r.buffer is buffer)
    if not isinstance(axis, int) or not -buffer.ndim <= axis < buffer.ndim:
        raise ScheduleError(
            f"buffer {buffer.name} has {buffer.ndim} dimensions, so there is no axis {axis}", where=realize,
            hint=f"axes are numbered from {-buffer.ndim} to {buffer.ndim - 1}",
        )  # fmt: skip
    wish = [index, axis % buffer.ndim, factor, offset]
    asked = alignment_wishes([wish])
    if isinstance(asked, str):
        raise ScheduleError(asked, where=realize, hint="e.g. factor=32, offset=8")
    wishes = alignment_wishes(realize.block.annotations.get(ALIGN, []))
    if isinstance(wishes, str):
        raise ScheduleError(
            f"the annotation {ALIGN} of block {block!r} is {wishes}",
            where=realize,
            hint=f"unannotate(block, {ALIGN!r}) first",
        )
    kept = [list(w) for w in wishes]
    same = next((n for n, w in enumerate(kept) if w[:2] == wish[:2]), None)
    if same is None:
        kept.append(wish)
    else:
        kept[same] = wish
    return with_annotation(func, block, ALIGN, kept)
