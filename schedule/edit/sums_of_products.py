"""Sums of products of integers: what is added to an element in each factor is taken out of the sum.

Σ(A + a)(B + b) = ΣAB + a·ΣB + b·ΣA + K·a·b for K products, as sums of integers wrap. a and b are the same for all products of a sum. With
A + s in place of A in the products it is Σ(A + s)B + (a - s)·ΣB + b·ΣA + K·a·b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul

from ...tir.analysis.access import opaque_buffers
from ...tir.analysis.reductions import find_reducer
from ...tir.analysis.tree import Tree, tree_of, unique_block_name
from ...tir.expr import Add, BufferLoad, Cast, DType, Expr, IntImm, IterVar, Mul, Range, Sub, Var, const, is_const_int
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, PrimFunc, Stmt, seq
from ...tir.walk import substitute, uses_var
from ..errors import ScheduleError
from ..handles import BlockRV
from ..require.block_preconditions import (
    check_from_zero,
    check_plain_path,
    check_reduction,
    find_block,
    nest_of_its_own,
    ordered_scope,
)
from .loop_nests import allocating, element_block, in_own_loops, point


@dataclass(frozen=True)
class OffsetFactor:
    """A factor: ``load`` in the sum's type, plus ``offset``. The offset is the same for all products of a sum."""

    load: BufferLoad
    offset: Expr


OFFSETS_FORM = "its body must be C[...] = C[...] + (cast(A[...]) - a) * (cast(B[...]) - b), in integers, with a and b that no reduced axis changes"


def product_alone(func: PrimFunc, block: str) -> tuple[Tree, BlockRealize]:
    """Return a function's tree and a reduction in it whose loops hold only it; ScheduleError where it is none."""
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    if scope.root is not func.body:
        raise ScheduleError(
            f"block {block!r} stands inside block {scope.root.block.name_hint!r}, which may run often", where=realize,
            hint="do this before blockize and tensorize",
        )  # fmt: skip
    check_plain_path(tree, realize)
    check_reduction(tree, realize)
    return tree, realize


def factors_with_offsets(realize: BlockRealize, form: str) -> tuple[BufferLoad, tuple[OffsetFactor, OffsetFactor]]:
    """Return the element to which a block adds products from zero, and their factors; ``form`` is what errors ask for."""
    block = realize.block
    store, start = block.body, block.init
    found = None
    if isinstance(store, BufferStore) and isinstance(start, BufferStore) and not _hides(block):
        total = BufferLoad(store.buffer, store.indices)
        found = find_reducer([start.value], [total], [store.value])
    if found is None or found[0].name != "sum" or not isinstance(found[1][0], Mul):
        raise ScheduleError(f"block {block.name_hint!r} is not a sum of products from zero", where=realize, hint=form)
    reduced = [iv.var for iv in block.iter_vars if iv.kind != IterVar.SPATIAL]
    product = found[1][0]
    return total, (
        element_with_offset(product.a, reduced, realize, form),
        element_with_offset(product.b, reduced, realize, form),
    )


def _hides(block: Block) -> bool:
    """Return whether the block uses memory in other ways than by plain loads and stores."""
    return bool(opaque_buffers(block) or block.match_buffers or block.alloc_buffers)


def element_with_offset(e: Expr, reduced: Sequence[Var], realize: BlockRealize, form: str) -> OffsetFactor:
    """Return an element and what is added to it, which none of the variables ``reduced`` changes."""
    offset: Expr = const(0, e.dtype)
    while isinstance(e, (Add, Sub)):
        free = [not any(uses_var(side, v) for v in reduced) for side in (e.a, e.b)]
        if free[1]:
            offset = offset + e.b if isinstance(e, Add) else offset - e.b
            e = e.a
        elif free[0] and isinstance(e, Add):
            offset, e = offset + e.a, e.b
        else:
            break
    load = e.value if isinstance(e, Cast) else e
    if not isinstance(load, BufferLoad) or load.predicate is not None or load.dtype.kind not in ("int", "uint"):
        raise ScheduleError(f"{e} is no element of an array of integers", where=realize, hint=form)
    return OffsetFactor(load, offset)


def expanded(
    func: PrimFunc, tree: Tree, realize: BlockRealize, total: BufferLoad, factors: Sequence[OffsetFactor], shifted: Buffer | None,
    suffixes: tuple[str, str],
) -> tuple[PrimFunc, list[BlockRV]]:  # fmt: skip
    """Return the function with sums of products of elements alone, and its new blocks, the correction last.

    The elements of ``shifted`` are moved by half of their range to the other signedness first. ``suffixes``: of the names of the sums
    of products, and of the block that corrects them.
    """
    axes = realize.block.iter_vars
    check_from_zero(realize, axes)
    top, scope = nest_of_its_own(tree, realize), ordered_scope(tree, realize)
    raw = Buffer(f"{total.buffer.name}_{suffixes[0]}", total.buffer.shape, total.dtype)
    names: list[str] = []
    before: list[Stmt] = []
    made: list[Buffer] = []
    plain = list(factors)
    if shifted is not None:
        narrow = shifted.dtype
        amount = (1 << (narrow.bits - 1)) * (1 if narrow.kind == "int" else -1)
        other_sign = DType(f"{'uint' if narrow.kind == 'int' else 'int'}{narrow.bits}")
        made.append(Buffer(f"{shifted.name}_shifted", shifted.shape, other_sign))
        names.append(unique_block_name(func, made[0].name, names))
        before.append(_shift(shifted, made[0], total.dtype, amount, names[0]))
        plain = [
            OffsetFactor(BufferLoad(made[0], f.load.indices), f.offset - const(amount, total.dtype))
            if f.load.buffer is shifted
            else f
            for f in factors
        ]
    terms: list[tuple[Expr, Buffer, list[IterVar]]] = []
    for n, factor in enumerate(plain):
        other = factors[1 - n].load
        if is_const_int(factor.offset, 0):
            continue
        names.append(unique_block_name(func, f"{other.buffer.name}_sums", names))
        kept = [iv for iv in axes if iv.kind == IterVar.SPATIAL and any(uses_var(i, iv.var) for i in other.indices)]
        made.append(Buffer(names[-1], tuple([iv.dom.extent for iv in kept]), total.dtype))
        before.append(_sum(axes, kept, other, made[-1], names[-1]))
        terms.append((factor.offset, made[-1], kept))
    names.append(unique_block_name(func, f"{realize.block.name_hint}_{suffixes[1]}", names))
    wide = [f.load if f.load.dtype == total.dtype else Cast(total.dtype, f.load) for f in plain]
    at, own = BufferLoad(raw, total.indices), realize.block
    changed = Block(
        axes, tuple([point(f.load.buffer, f.load.indices) for f in plain]), (point(raw, total.indices),), own.name_hint,
        BufferStore(raw, at + wide[0] * wide[1], total.indices), BufferStore(raw, const(0, total.dtype), total.indices),
        annotations=own.annotations,
    )  # fmt: skip
    after = _correct(axes, total, raw, factors, terms, names[-1])
    new = tree.replace(
        {realize: BlockRealize(realize.iter_values, realize.predicate, changed)},
        {top: lambda loops: seq(*before, loops, after), scope.root.block: allocating(*made, raw)},
    )
    return new, [BlockRV(name) for name in names]


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
    axes: Sequence[IterVar], total: BufferLoad, raw: Buffer, factors: Sequence[OffsetFactor],
    terms: Sequence[tuple[Expr, Buffer, list[IterVar]]], name: str,
) -> Stmt:  # fmt: skip
    """Return the nest that adds to each sum of products the sums of factors times the offsets of the others."""
    own = [iv for iv in axes if iv.kind == IterVar.SPATIAL]
    fresh = {iv.var: Var(iv.var.name, iv.var.dtype) for iv in own}
    at = tuple([substitute(i, fresh) for i in total.indices])
    value: Expr = BufferLoad(raw, at)
    for offset, sums, kept in terms:
        value = _added(value, substitute(offset, fresh), BufferLoad(sums, tuple([fresh[iv.var] for iv in kept])))
    if not any(is_const_int(f.offset, 0) for f in factors):
        count = [iv.dom.extent.astype(total.dtype) for iv in axes if iv.kind != IterVar.SPATIAL]
        offsets = [substitute(f.offset, fresh) for f in factors]
        value = value + reduce(mul, [*count, *offsets])
    made = [IterVar(iv.dom, fresh[iv.var]) for iv in own]
    return in_own_loops(element_block(name, made, BufferStore(total.buffer, value, at)))


def _added(value: Expr, offset: Expr, sums: Expr) -> Expr:
    """Return ``value + offset * sums``, with a minus where the offset has one."""
    if isinstance(offset, IntImm):
        term = sums * const(abs(offset.value), sums.dtype)
        return value - term if offset.value < 0 else value + term
    if isinstance(offset, Sub) and is_const_int(offset.a, 0):
        return value - offset.b * sums
    return value + offset * sums
