"""This module defines transform_layout, which stores a buffer's elements in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.analysis.access_regions import access_regions
from ...tir.analysis.known_ranges import sized_analyzer
from ...tir.analysis.scope import region_of
from ...tir.analysis.tree import symbols_of, tree_of
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Expr, Range, Var, max_value, shape_text
from ...tir.stmt import Block, Buffer, BufferRegion, BufferStore, For, PrimFunc, Stmt
from ...tir.walk import memory_in
from ..edit.buffer_arguments import home_of, named_buffer
from ..edit.buffer_replacement import separated
from ..edit.index_map_arguments import as_recorded, block_name
from ..edit.layout_padding import Padding, fill_padding, pad_of
from ..errors import ScheduleError
from ..index_map import IndexMap
from ..primitive import primitive
from ..require.block_form import check_no_pointers
from ..require.lookup import find_block


def _rank(func: PrimFunc, block: Any, buffer: Any) -> int:
    """Return the rank of the named buffer, for maps that take ``*indices``."""
    realize = find_block(tree_of(func), block_name(block))
    if buffer is None:
        return len(realize.block.iter_vars)
    return named_buffer(realize, buffer).ndim


def _prepare_layout(func: PrimFunc, block: Any, buffer: Any, index_map: Any, **rest: Any) -> dict[str, Any]:
    out = {"index_map": as_recorded(func, index_map, _rank(func, block, buffer))}
    if callable(rest.get("pad_value")) or isinstance(rest.get("pad_value"), (IndexMap, list)):
        final = IndexMap.of(out["index_map"], None, symbols_of(func)).final_indices
        out["pad_value"] = as_recorded(func, rest["pad_value"], len(final))
    return out


@primitive(prepare=_prepare_layout)
def transform_layout(
    func: PrimFunc,
    block: str,
    buffer: Any,
    index_map: Any,
    pad_value: Any = None,
    *,
    assume_injective_transform: bool = False,
    leave_padding: bool = False,
) -> PrimFunc:
    """Store the elements of a buffer at the places that ``index_map`` gives, in all accesses.

    ``buffer`` is ``("read", i)`` or ``("write", i)`` of the block, a buffer or its name. ``index_map`` is a function
    from old indices to a tuple of new ones (or an :class:`IndexMap`, or its text). It may use sizes and scalar
    parameters of the function; its divisors must be known to be at least 1 where the buffer has elements, as its own
    sizes are.

    When the shape does not fit the map (100 rows in tiles of 16), the new buffer is larger; ``pad_value``, a constant
    or a function of the new indices, gives the value of its padding. A block that stores one element in each iteration
    of a nest of its own then runs over the padding as well, and stores
    ``T.if_then_else(<padding>, pad_value, <value>)``. Otherwise a new block ``<block>_pad_<buffer>`` after it fills the
    padding. For a buffer that the function only reads, a block with a ``T.assume`` states the value of the padding.
    With ``leave_padding`` the padding is neither written nor read.

    When the buffer is a parameter, the function's signature changes: the caller has to pass the new layout.
    ``assume_injective_transform`` without ``pad_value`` is trusted, as in TVM, that no two elements share a place and
    that divisors are at least 1: the caller may then not pass 0 for what divides. Padding is then
    neither written nor read.

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
    >>> sch.transform_layout("B", ("write", 0), lambda i, j: (i // 4, j, i % 4))
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((2, 8, 4))
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B[vi // 4, vj, vi % 4])
                B[vi // 4, vj, vi % 4] = A[vi, vj] * T.float32(2.0)
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(B[vi // 4, vj, vi % 4])
                T.writes(C[vi, vj])
                C[vi, vj] = B[vi // 4, vj, vi % 4] + T.float32(1.0)
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    old = named_buffer(realize, buffer)
    mapping = IndexMap.of(index_map, old.ndim, symbols_of(func))
    root = home_of(tree, realize, old)
    if all(a is b for a, b in zip(mapping.initial_indices, mapping.final_indices, strict=False)) and (
        len(mapping.initial_indices) == len(mapping.final_indices) == old.ndim
    ):
        return separated(func, old, mapping.axis_separators)
    check_no_pointers(func.body, [old], "which needs its layout", realize)
    if old.strides:
        raise ScheduleError(
            f"buffer {old.name} has strides of its own",
            where=realize,
            hint="cache_read or cache_write it, and change the copy",
        )
    analyzer = sized_analyzer(func)
    trusted = assume_injective_transform and pad_value is None
    for size in mapping.divisors() if trusted else ():
        if isinstance(size, Var):
            analyzer.bind(size, (1, max_value(size.dtype)))
    shape = mapping.map_shape(old.shape, analyzer)
    places = [Var(f"v{i}", e.dtype) for i, e in enumerate(shape)]
    for v, e in zip(places, shape, strict=True):
        analyzer.learn_nonempty(e)
        analyzer.bind(v, Range.from_extent(e))
    back, tests = ((), []) if trusted else mapping.inverse(old.shape, places, analyzer)
    new = old.with_(shape=shape, axis_separators=mapping.axis_separators)
    if tests and pad_value is None and not leave_padding:
        raise ScheduleError(
            f"the index map {mapping} sends buffer {old.name} of shape ({shape_text(old.shape)}) to the larger "
            f"shape ({shape_text(shape)}), and it is not said what the padding holds",
            where=realize,
            hint="give pad_value, or leave_padding=True when nothing reads it",
        )
    if pad_value is not None:
        pad_value = pad_of(func, old, places, pad_value)
    if pad_value is not None and tests:
        func = fill_padding(func, realize, Padding(old, new, back, tests, places, pad_value), root)
    return _rewrite(func, old, new, mapping, fits=not tests)


def _rewrite(func: PrimFunc, old: Buffer, new: Buffer, mapping: IndexMap, fits: bool) -> PrimFunc:
    """Return the function with all accesses to ``old`` replaced by accesses to ``new``; those to ``new`` stay."""
    stack: list[Analyzer] = [sized_analyzer(func)]

    def walk(n: Any) -> Any:
        if isinstance(n, Stmt) and old not in memory_in(n):
            return n
        if isinstance(n, Block):
            stack.append(sized_analyzer(func))
            for iv in n.iter_vars:
                stack[-1].bind(iv.var, iv.dom)
            out = n.map_children(walk)
            stack.pop()
            touched = any(r.buffer is old for r in (*n.reads, *n.writes))
            if any(b is old for b in n.alloc_buffers):
                out = out.with_(alloc_buffers=tuple([new if b is old else b for b in n.alloc_buffers]))
            if touched:
                reads, writes = access_regions(out.body, out.init)
                whole = new.full_region()

                def renewed(rs: Sequence[BufferRegion], found: Sequence[BufferRegion]) -> tuple[BufferRegion, ...]:
                    return tuple([(region_of(found, new) or whole) if r.buffer is old else r for r in rs])

                everything = (*reads, *writes)  # a reduction's own output is found among its writes alone
                out = out.with_(reads=renewed(out.reads, everything), writes=renewed(out.writes, writes))
            return out
        if isinstance(n, For):
            stack[-1].bind(n.loop_var, Range(n.min, n.extent))
            return n.map_children(walk)
        out = n.map_children(walk)
        if isinstance(n, BufferLoad) and n.buffer is old:
            return BufferLoad(new, there(out.indices), out.predicate)
        if isinstance(n, BufferStore) and n.buffer is old:
            return BufferStore(new, out.value, there(out.indices), out.predicate)
        return out

    def there(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return where they go: simplified with the ranges of the axes when the map fits the shape, without them
        else."""
        if not fits:
            return mapping.map_indices(indices)
        with stack[-1].nonempty(*old.shape):  # an element is accessed
            return mapping.map_indices(indices, stack[-1], keep_constants=False)

    body = walk(func.body)
    buffers = {p: new if b is old else b for p, b in func.buffer_map.items()}
    return PrimFunc(func.params, body, buffers, func.attrs)
