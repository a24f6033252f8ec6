"""This module defines pad_before_offset, which lets a stage pad narrow integers before a zero point is taken from them."""

from __future__ import annotations

from typing import cast

from ...tir.analysis.access import opaque_buffers
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import tree_of, unique_block_name
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Call, Cast, DType, Expr, IntImm, IterVar, Sub, Var, const, is_const_int, pre_order
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.op import holds_all
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, PrimFunc, seq
from ...tir.walk import substitute
from ..edit.loop_nests import allocating, element_block, in_own_loops, point
from ..edit.sums_of_products import element_with_offset
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import check_plain_path, find_block, nest_of_its_own, ordered_scope

_FORM = (
    "its body must be P[...] = if_then_else(c, cast(X[...]) - z, 0), in integers, with a z that no axis in c changes"
)


@primitive
def pad_before_offset(func: PrimFunc, block: str) -> tuple[PrimFunc, BlockRV]:
    """Pad narrow integers with the zero point that a stage takes from them, and take it after.

    The stage pads with zero what is left of elements less a zero point z. Elements padded with z, less z, are the same. They are padded
    by a new block, which is returned, in the type in which they are stored; that block is a copy of bytes, and the difference can be
    computed where it is read.

    Applies to a block that is alone in its loops and whose body is ``P[...] = if_then_else(c, cast(X[...]) - z, 0)``. z has to be a
    constant that the type of ``X`` holds, or a number of such a type in memory.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(X: T.Buffer((8,), "uint8"), P: T.Buffer((10,), "int32")):
    ...     for i in range(10):
    ...         with T.block("P"):
    ...             vi = T.axis.remap("S", [i])
    ...             P[vi] = T.if_then_else(1 <= vi and vi < 9, T.cast(X[vi - 1], "int32") - 7, 0)
    ... '''))
    >>> padded = sch.pad_before_offset("P")
    >>> print(sch.get(padded).body)
    P_narrow[vi] = T.if_then_else(1 <= vi and vi < 9, X[vi - 1], T.uint8(7))
    >>> print(sch.get(sch.get_block("P")).body)
    P[vi] = T.Cast("int32", P_narrow[vi]) - 7
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    check_plain_path(tree, realize)
    store, own = realize.block.body, realize.block
    plain = not (opaque_buffers(own) or own.match_buffers or own.alloc_buffers or own.init)
    spatial = all(iv.kind == IterVar.SPATIAL for iv in own.iter_vars)
    chosen = store.value if isinstance(store, BufferStore) and store.predicate is None and plain and spatial else None
    if (
        not isinstance(store, BufferStore)
        or not isinstance(chosen, Call)
        or chosen.op != "tir.if_then_else"
        or not is_const_int(chosen.args[2], 0)
    ):
        raise ScheduleError(f"block {block!r} does not pad with zeros", where=realize, hint=_FORM)
    condition, inside, _ = chosen.args
    axes = [n for n in pre_order(condition) if isinstance(n, Var)]
    element = element_with_offset(inside, axes, realize, _FORM)
    narrow, wide = element.load.dtype, store.buffer.dtype
    if not holds_all(wide, narrow) or narrow == wide:
        raise ScheduleError(f"{wide} does not hold more than all numbers of {narrow}", where=realize, hint=_FORM)
    used = [n.buffer for n in pre_order(chosen) if isinstance(n, BufferLoad)]
    if store.buffer in used:
        raise ScheduleError(f"block {block!r} reads what it writes", where=realize, hint=_FORM)
    zero = _padding(element.offset, narrow, analyzer_at(tree, store))
    if zero is None:
        raise ScheduleError(
            f"{element.offset}, which is added, is not less any number of {narrow} that can be read everywhere", where=realize, hint=_FORM
        )  # fmt: skip
    top = nest_of_its_own(tree, realize)
    name = unique_block_name(func, f"{own.name_hint}_narrow")
    padded = Buffer(name, store.buffer.shape, narrow)
    fresh = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in own.iter_vars}
    value = if_then_else(condition, element.load, zero)
    written = BufferStore(
        padded, substitute(value, fresh), tuple([substitute(i, fresh) for i in store.indices])
    )  # fmt: skip
    before = in_own_loops(element_block(name, [IterVar(iv.dom, fresh[iv.var]) for iv in own.iter_vars], written))
    wider = Cast(wide, BufferLoad(padded, store.indices))
    less = wider - _negated(element.offset)
    reads = [point(padded, store.indices), *[point(n.buffer, n.indices) for n in _loads(element.offset)]]
    changed = Block(
        own.iter_vars, tuple(reads), own.writes, own.name_hint, BufferStore(store.buffer, less, store.indices),
        annotations=own.annotations,
    )  # fmt: skip
    new = tree.replace(
        {realize: BlockRealize(realize.iter_values, realize.predicate, changed)},
        {top: lambda loops: seq(before, loops), scope.root.block: allocating(padded)},
    )
    return new, BlockRV(name)


def _negated(offset: Expr) -> Expr:
    """Return the zero point that an offset takes away: a constant, or what is subtracted from 0."""
    return const(-offset.value, offset.dtype) if isinstance(offset, IntImm) else cast(Sub, offset).b


def _padding(offset: Expr, narrow: DType, analyzer: Analyzer) -> Expr | None:
    """Return the zero point that an offset takes away, in the narrow type; None where that may not hold it."""
    if isinstance(offset, IntImm):
        lowest = -(1 << (narrow.bits - 1)) if narrow.kind == "int" else 0
        return const(-offset.value, narrow) if 0 <= -offset.value - lowest < 1 << narrow.bits else None
    if not isinstance(offset, Sub) or not is_const_int(offset.a, 0) or not isinstance(offset.b, Cast):
        return None
    load = offset.b.value
    if not isinstance(load, BufferLoad) or not holds_all(narrow, load.dtype) or load.predicate is not None:
        return None
    inside = all(
        analyzer.can_prove(i >= 0) and analyzer.can_prove(i < extent)
        for n in _loads(load)
        for i, extent in zip(n.indices, n.buffer.shape, strict=True)
    )
    if not inside:
        return None
    return load if load.dtype == narrow else Cast(narrow, load)


def _loads(e: Expr) -> list[BufferLoad]:
    """Return the loads in an expression."""
    return [n for n in pre_order(e) if isinstance(n, BufferLoad)]
