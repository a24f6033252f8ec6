"""This module defines shift_operand, which changes the signedness of a factor and corrects the sum of products."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.access import opaque_buffers
from ...tir.analysis.reductions import find_reducer
from ...tir.analysis.tree import tree_of, unique_block_name
from ...tir.expr import BufferLoad, Cast, DType, Expr, IterVar, Mul, Range, Var, const
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, PrimFunc, Stmt, seq
from ...tir.walk import loads_and_stores, replace_buffers, substitute, uses_var
from ..edit.buffers import pick_buffer
from ..edit.loop_nests import allocating, element_block, in_own_loops, point
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import (
    check_from_zero,
    check_plain_path,
    check_reduction,
    find_block,
    nest_of_its_own,
    ordered_scope,
)


@primitive
def shift_operand(func: PrimFunc, block: str, read_buffer_index: int | str) -> tuple[PrimFunc, list[BlockRV]]:
    """Turn an int8 factor of a sum of products into uint8, or a uint8 one into int8. It adds 128, or subtracts 128.

    It is meant for machines whose multiply-add takes one signed and one unsigned factor: A·B = A·(B + 128) - 128·ΣA,
    where the sum on the right does not depend on B's own axes. The result is exact, as sums of integers wrap. int16 and
    uint16 factors are shifted by 2¹⁵. Returns three blocks: the one that shifts the buffer, the one that sums the other
    factor, and the one that subtracts the sums; the block itself writes to a new buffer.

    Applies to a reduction whose loops hold only this block and run once over its domain, and whose body is
    ``C[...] = C[...] + cast(A[...]) * cast(B[...])`` from zero, in wider integers. The buffer must not be both factors.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((3, 8), "int8"), B: T.Buffer((8, 5), "int8"), C: T.Buffer((3, 5), "int32")):
    ...     for i, j, k in T.grid(3, 5, 8):
    ...         with T.block("C"):
    ...             vi, vj, vk = T.axis.remap("SSR", [i, j, k])
    ...             with T.init():
    ...                 C[vi, vj] = 0
    ...             C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "int32") * T.cast(B[vk, vj], "int32")
    ... '''))
    >>> shifted, sums, result = sch.shift_operand("C", "B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((3, 8), "int8"), B: T.Buffer((8, 5), "int8"), C: T.Buffer((3, 5), "int32")):
        # with T.block("root"):
        B_shifted = T.alloc_buffer((8, 5), "uint8")
        A_sums = T.alloc_buffer((3,), "int32")
        C_shifted = T.alloc_buffer((3, 5), "int32")
        for ax0, ax1 in T.grid(8, 5):
            with T.block("B_shifted"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(B[v0, v1])
                T.writes(B_shifted[v0, v1])
                B_shifted[v0, v1] = T.Cast("uint8", T.Cast("int32", B[v0, v1]) + 128)
        for ax0, ax1 in T.grid(3, 8):
            with T.block("A_sums"):
                vi, vk = T.axis.remap("SR", [ax0, ax1])
                T.reads(A[vi, vk])
                T.writes(A_sums[vi])
                with T.init():
                    A_sums[vi] = 0
                A_sums[vi] = A_sums[vi] + T.Cast("int32", A[vi, vk])
        for i, j, k in T.grid(3, 5, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B_shifted[vk, vj])
                T.writes(C_shifted[vi, vj])
                with T.init():
                    C_shifted[vi, vj] = 0
                C_shifted[vi, vj] = C_shifted[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B_shifted[vk, vj])
        for ax0, ax1 in T.grid(3, 5):
            with T.block("C_unshifted"):
                vi, vj = T.axis.remap("SS", [ax0, ax1])
                T.reads(C_shifted[vi, vj], A_sums[vi])
                T.writes(C[vi, vj])
                C[vi, vj] = C_shifted[vi, vj] - A_sums[vi] * 128
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    buffer = pick_buffer(realize, read_buffer_index, "read")
    if scope.root is not func.body:
        raise ScheduleError(
            f"block {block!r} stands inside block {scope.root.block.name_hint!r}, which may run often", where=realize,
            hint="do this before blockize and tensorize",
        )  # fmt: skip
    check_plain_path(tree, realize)
    check_reduction(tree, realize)
    other, total = _factors(realize, buffer)
    top = nest_of_its_own(tree, realize)
    axes = realize.block.iter_vars
    check_from_zero(realize, axes)
    narrow = buffer.dtype
    amount = 1 << (narrow.bits - 1)
    signed = narrow.kind == "int"
    moved = Buffer(f"{buffer.name}_shifted", buffer.shape, DType(f"{'uint' if signed else 'int'}{narrow.bits}"))
    raw = Buffer(f"{total.buffer.name}_shifted", total.buffer.shape, total.dtype)
    kept = [iv for iv in axes if iv.kind == IterVar.SPATIAL and any(uses_var(i, iv.var) for i in other.indices)]
    sums = Buffer(f"{other.buffer.name}_sums", tuple([iv.dom.extent for iv in kept]), total.dtype)
    names: list[str] = []
    for wish in (moved.name, sums.name, f"{block}_unshifted"):
        names.append(unique_block_name(func, wish, names))

    changed = replace_buffers(realize.block, {buffer: moved, total.buffer: raw})
    before = [
        _shift(buffer, moved, total.dtype, amount if signed else -amount, names[0]),
        _sum(axes, kept, other, sums, names[1]),
    ]
    after = _correct(axes, kept, total, raw, sums, -amount if signed else amount, names[2])
    new = tree.replace(
        {realize: BlockRealize(realize.iter_values, realize.predicate, changed)},
        {
            top: lambda loops: seq(*before, loops, after),
            scope.root.block: allocating(moved, sums, raw),
        },
    )
    return new, [BlockRV(name) for name in names]


def _factors(realize: BlockRealize, buffer: Buffer) -> tuple[BufferLoad, BufferLoad]:
    """Return the factor that is not from ``buffer``, and the element to which the products are added."""
    block = realize.block
    store, start = block.body, block.init
    found = None
    if isinstance(store, BufferStore) and isinstance(start, BufferStore) and not _hides(block):
        total = BufferLoad(store.buffer, store.indices)
        found = find_reducer([start.value], [total], [store.value])
    if found is None or found[0].name != "sum" or not isinstance(found[1][0], Mul):
        raise ScheduleError(f"block {block.name_hint!r} is not a sum of products from zero", where=realize, hint=_FORM)
    product = found[1][0]
    loads = [_widened(e) for e in (product.a, product.b)]
    if any(load is None for load in loads) or total.dtype.kind != "int":
        raise ScheduleError(
            f"{product} is not a product of narrow integers, made wider", where=realize, hint=_FORM
        )  # fmt: skip
    mine = [load for load in loads if load is not None and load.buffer is buffer]
    others = [load for load in loads if load is not None and load.buffer is not buffer]
    uses = [n for n in loads_and_stores(store) if n.buffer is buffer]
    if len(mine) != 1 or len(others) != 1 or len(uses) != 1:
        raise ScheduleError(
            f"{buffer.name} is not one of the two factors of {product} and nothing else", where=realize,
            hint="a buffer that is read twice needs a copy for one of the uses first",
        )  # fmt: skip
    return others[0], total


def _hides(block: Block) -> bool:
    """Return whether the block uses memory in other ways than by plain loads and stores."""
    return bool(opaque_buffers(block) or block.match_buffers or block.alloc_buffers)


_FORM = "its body must be C[...] = C[...] + cast(A[...]) * cast(B[...]), with A and B of 8 or 16 bits"


def _widened(e: Expr) -> BufferLoad | None:
    """Return the load that a cast widens, where it is of 8 or 16 bits; else None."""
    if not isinstance(e, Cast) or not isinstance(e.value, BufferLoad) or e.value.predicate is not None:
        return None
    narrow, wide = e.value.dtype, e.dtype
    fits = narrow.kind in ("int", "uint") and narrow.bits in (8, 16) and wide.kind == "int" and wide.bits >= 32
    return e.value if fits and narrow.lanes == 1 else None


def _shift(source: Buffer, target: Buffer, wide: str, amount: int, name: str) -> Stmt:
    """Return the nest ``target = source + amount`` over the whole buffer."""
    at = tuple([Var(f"v{d}", e.dtype) for d, e in enumerate(source.shape)])
    value = Cast(target.dtype, Cast(wide, BufferLoad(source, at)) + const(amount, wide))
    axes = [IterVar(Range.from_extent(e), v) for v, e in zip(at, source.shape, strict=True)]
    return in_own_loops(element_block(name, axes, BufferStore(target, value, at)))


def _sum(axes: Sequence[IterVar], kept: Sequence[IterVar], factor: BufferLoad, target: Buffer, name: str) -> Stmt:
    """Return the nest that sums the factor over the reduction's axes."""
    own = [*kept, *(iv for iv in axes if iv.kind != IterVar.SPATIAL)]
    fresh = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in own}
    at = tuple([fresh[iv.var] for iv in kept])
    read = BufferLoad(factor.buffer, tuple([substitute(i, fresh) for i in factor.indices]))
    step = BufferStore(target, BufferLoad(target, at) + Cast(target.dtype, read), at)
    start = BufferStore(target, const(0, target.dtype), at)
    made = [IterVar(iv.dom, fresh[iv.var], iv.kind) for iv in own]
    return in_own_loops(element_block(name, made, step, [point(read.buffer, read.indices)], start))


def _correct(
    axes: Sequence[IterVar],
    kept: Sequence[IterVar],
    total: BufferLoad,
    raw: Buffer,
    sums: Buffer,
    factor: int,
    name: str,
) -> Stmt:
    """Return the nest that adds ``raw`` and ``factor`` times the sums."""
    own = [iv for iv in axes if iv.kind == IterVar.SPATIAL]
    fresh = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in own}
    at = tuple([substitute(i, fresh) for i in total.indices])
    where = tuple([fresh[iv.var] for iv in kept])
    term = BufferLoad(sums, where) * const(abs(factor), total.dtype)
    found = BufferLoad(raw, at)
    store = BufferStore(total.buffer, found + term if factor > 0 else found - term, at)
    made = [IterVar(iv.dom, fresh[iv.var]) for iv in own]
    return in_own_loops(element_block(name, made, store))
