"""This module defines call_blas, which computes a matrix product by a call of a BLAS library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.reductions import find_reducer
from ...tir.analysis.tree import tree_of
from ...tir.arith import Analyzer, linear_coefficients
from ...tir.blas_calls import TYPES, product_call
from ...tir.expr import (
    BufferLoad,
    Call,
    Expr,
    IntImm,
    IterVar,
    Mul,
    Range,
    Var,
    cast,
    const,
    is_const_int,
)
from ...tir.stmt import BlockRealize, Buffer, BufferRegion, BufferStore, Evaluate, PrimFunc
from ...tir.walk import substitute
from ..edit.loop_nests import nest
from ..errors import ScheduleError
from ..primitive import primitive
from ..require.block_preconditions import check_from_zero, check_plain_path, find_block, nest_of_its_own


@primitive
def call_blas(func: PrimFunc, block: str) -> PrimFunc:
    """Compute a matrix product by a call of the BLAS library that the target names.

    The block is a sum of products of float32 or float64. Axes that all three arrays have, and such as do not lie in line
    with others, become loops around the call. Operands may be transposed: one of the two axes of each matrix is contiguous.
    Sums have the library's order, so that results differ by rounding.

    Applies to a block that is alone in its loops, which run once on each point of its axes.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((2, 8, 16)), B: T.Buffer((4, 16)), C: T.Buffer((2, 8, 4))):
    ...     for b, i, j, k in T.grid(2, 8, 4, 16):
    ...         with T.block("C"):
    ...             vb, vi, vj, vk = T.axis.remap("SSSR", [b, i, j, k])
    ...             with T.init():
    ...                 C[vb, vi, vj] = T.float32(0)
    ...             C[vb, vi, vj] = C[vb, vi, vj] + A[vb, vi, vk] * B[vj, vk]
    ... '''))
    >>> sch.call_blas("C")
    >>> "tw_cblas_sgemm" in sch.func.script(), len(sch.get_loops("C"))
    (True, 0)
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    check_plain_path(tree, realize)
    check_from_zero(realize, realize.block.iter_vars)
    top = nest_of_its_own(tree, realize)
    found = blas_product(realize, analyzer_at(tree, realize))
    if isinstance(found, str):
        raise ScheduleError(
            f"block {block!r} is no matrix product that BLAS computes: {found}", where=realize,
            hint="it takes C[…, i, j] += A[…, i, k] * B[…, k, j] of float32 or float64, either operand transposed",
        )  # fmt: skip
    return tree.replace({top: found.statement()})


@dataclass(frozen=True, eq=False)
class _Operand:
    """An array of the product: how far one step of each axis moves, and where its first element lies.

    ``moving`` are the axes in its indices; their steps are 0 where the array is empty.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    steps: Mapping[Var, Expr]
    start: Expr
    moving: frozenset[Var]

    def moves(self, axis: Var) -> bool:
        return axis in self.moving


@dataclass(frozen=True, eq=False)
class _Line:
    """Axes in line, as one: their ``size`` together, and how many elements a step of it moves in each array."""

    axes: tuple[Var, ...]
    size: Expr
    steps: Mapping[Buffer, Expr]


@dataclass(frozen=True, eq=False)
class BlasProduct:
    """A matrix product in a block, as the arguments of a call.

    ``outer`` are the axes of loops around the call.
    """

    realize: BlockRealize
    operands: tuple[_Operand, _Operand, _Operand]
    outer: tuple[IterVar, ...]
    sizes: tuple[Expr, Expr, Expr]
    transposed: tuple[bool, bool]
    distances: tuple[Expr, Expr, Expr]
    swapped: bool
    """Whether the call computes the transposed result, of the second operand and the first one."""

    def statement(self) -> BlockRealize:
        """Returns the call in a block of the same name, with its loops around it."""
        block = self.realize.block
        a, b, c = self.operands
        accumulate = block.init is None
        loops = [(Var(iv.var.name.removeprefix("v") or "b", iv.var.dtype), iv.dom.extent) for iv in self.outer]
        axes = [IterVar(iv.dom, Var(iv.var.name, iv.var.dtype), "spatial") for iv in self.outer]
        renamed: dict[Var, Expr] = {iv.var: axis.var for iv, axis in zip(self.outer, axes, strict=True)}
        inner = {iv.var: iv.dom.extent for iv in block.iter_vars if iv.var not in renamed}
        a_part, b_part, c_part = [_region(o, inner, renamed) for o in self.operands]
        first, second = (b, a) if self.swapped else (a, b)
        places = [
            _address(o, mask, renamed, inner) for o, mask in ((first, 1), (second, 1), (c, 3 if accumulate else 2))
        ]
        wide = [cast("int64", d) for d in self.distances]
        sizes = [cast("int64", n) for n in self.sizes]
        call = product_call(c.buffer.dtype, self.transposed, sizes, list(zip(places, wide, strict=True)), accumulate)
        made = block.with_(
            iter_vars=tuple(axes), reads=(*([c_part] if accumulate else []), a_part, b_part), writes=(c_part,),
            init=None, body=Evaluate(call),
        )  # fmt: skip
        return nest(loops, BlockRealize(tuple([v for v, _ in loops]), const(True, "bool"), made))  # type: ignore[return-value]


def _region(operand: _Operand, inner: Mapping[Var, Expr], renamed: Mapping[Var, Expr]) -> BufferRegion:
    """Returns the box that one call accesses."""
    ranges = []
    for index in operand.indices:
        found = linear_coefficients(index, list(inner))
        assert found is not None
        factors, base = found
        extent = const(1, index.dtype)
        moving = [(f, n) for f, n in zip(factors, inner.values(), strict=True) if not is_const_int(f, 0)]
        if len(moving) == 1 and is_const_int(moving[0][0], 1):
            extent = cast(index.dtype, moving[0][1])
        else:
            for factor, n in moving:
                extent = extent + factor * (cast(index.dtype, n) - 1)
        ranges.append(Range(substitute(base, renamed), Analyzer().simplify(extent)))
    return BufferRegion(operand.buffer, tuple(ranges))


def _address(operand: _Operand, mask: int, renamed: Mapping[Var, Expr], inner: Mapping[Var, Expr]) -> Expr:
    """Returns the address of the first element that one call accesses."""
    buffer = operand.buffer
    zero: dict[Var, Expr] = {v: const(0, v.dtype) for v in inner}
    offset = Analyzer().simplify(substitute(operand.start, {**renamed, **zero}))
    for axis, step in operand.steps.items():
        if axis in renamed and not is_const_int(step, 0):
            offset = offset + renamed[axis] * step
    total: Expr = const(1, offset.dtype)
    for size in buffer.shape:
        total = total * size
    kind = Call("tir.type_annotation", (), buffer.dtype)
    return Call(
        "tir.tvm_access_ptr", (kind, buffer.data, buffer.elem_offset + offset, total - offset, const(mask, "int32")),
        "handle",
    )  # fmt: skip


def blas_product(realize: BlockRealize, analyzer: Analyzer | None = None) -> BlasProduct | str:
    """Returns the matrix product that a block computes, or why BLAS does not compute it."""
    analyzer = Analyzer() if analyzer is None else analyzer
    read = _read_product(realize)
    if isinstance(read, str):
        return read
    axes = list(realize.block.iter_vars)
    operands = []
    for access in read:
        operand = _operand(access, axes)
        if isinstance(operand, str):
            return operand
        operands.append(operand)
    a, b, c = operands
    rows: list[IterVar] = []
    columns: list[IterVar] = []
    reduced: list[IterVar] = []
    outer: list[IterVar] = []
    for iv in axes:
        v = iv.var
        if is_const_int(iv.dom.extent, 1):
            continue
        if iv.kind == IterVar.REDUCE:
            if not (a.moves(v) and b.moves(v)):
                return f"only one operand depends on the reduced axis {v.name}"
            reduced.append(iv)
        elif not c.moves(v):
            return f"the axis {v.name} does not address the result"
        elif a.moves(v) != b.moves(v):
            (rows if a.moves(v) else columns).append(iv)
        else:
            outer.append(iv)
    m, n, k = [
        _longest_line(some, arrays, analyzer) for some, arrays in ((rows, (a, c)), (columns, (b, c)), (reduced, (a, b)))
    ]
    if len(k.axes) < len(reduced):
        return "its reduced axes do not lie in line in both operands"
    taken = {*m.axes, *n.axes, *k.axes}
    outer = [iv for iv in axes if iv in outer or (iv in rows or iv in columns) and iv.var not in taken]
    left, right, out = [
        (one.size, two.size, one.steps.get(o.buffer), two.steps.get(o.buffer))
        for o, one, two in ((a, m, k), (b, k, n), (c, m, n))
    ]
    stored = [_stored(*matrix, analyzer) for matrix in (left, right, out)]
    names = [o.buffer.name for o in operands]
    for name, matrix in zip(names, stored, strict=True):
        if matrix is None:
            return f"neither axis of the matrix in {name} is contiguous, or its rows overlap"
    (ta, lda), (tb, ldb), (tc, ldc) = stored  # type: ignore[misc]
    sizes = (m.size, n.size, k.size)
    if tc:  # the transposed result is row-major: Cᵀ = Bᵀ Aᵀ
        return BlasProduct(
            realize, (a, b, c), tuple(outer), (n.size, m.size, k.size), (not tb, not ta), (ldb, lda, ldc), True
        )
    return BlasProduct(realize, (a, b, c), tuple(outer), sizes, (ta, tb), (lda, ldb, ldc), False)


def _read_product(realize: BlockRealize) -> tuple[BufferLoad, BufferLoad, BufferStore] | str:
    """Returns the loads of both operands and the store, or why the block computes something else."""
    block = realize.block
    store, start = block.body, block.init
    if not isinstance(store, BufferStore):
        return "its body is not one store"
    if start is not None and not isinstance(start, BufferStore):
        return "its init is not one store"
    if not is_const_int(realize.predicate, 1):
        return f"it runs only where {realize.predicate}"
    dtype = store.buffer.dtype
    if dtype not in TYPES:
        return f"its results are {dtype}"
    if any(iv.kind not in (IterVar.SPATIAL, IterVar.REDUCE) for iv in block.iter_vars):
        return "it has axes that are neither spatial nor reduced"
    own = BufferLoad(store.buffer, store.indices)
    found = find_reducer(None if start is None else [start.value], [own], [store.value])
    if found is None or found[0].name != "sum":
        return "it is no sum"
    (product,) = found[1]
    if not isinstance(product, Mul):
        return "what it adds is no product"
    loads: list[BufferLoad] = []
    for load in (product.a, product.b):
        if not isinstance(load, BufferLoad) or load.buffer.dtype != dtype or load.dtype != dtype:
            return f"a factor is no element of an array of {dtype}"
        if load.buffer is store.buffer:
            return "it reads its own result"
        loads.append(load)
    if store.predicate is not None or any(load.predicate is not None for load in loads):
        return "an access is masked"
    return loads[0], loads[1], store


def _operand(access: BufferLoad | BufferStore, axes: Sequence[IterVar]) -> _Operand | str:
    buffer, variables = access.buffer, [iv.var for iv in axes]
    if buffer.scope != "global":
        return f"{buffer.name} is in {buffer.scope} memory"
    steps: dict[Var, Expr] = {}
    start: Expr = const(0, access.indices[0].dtype if access.indices else "int32")
    for index, stride in zip(access.indices, buffer.element_strides(), strict=True):
        found = linear_coefficients(index, variables)
        if found is None:
            return f"the index {index} of {buffer.name} is not linear in its axes"
        factors, base = found
        for v, factor in zip(variables, factors, strict=True):
            if isinstance(factor, IntImm) and factor.value < 0:
                return f"the index {index} of {buffer.name} runs backwards"
            if not is_const_int(factor, 0):
                step = cast(start.dtype, factor) * cast(start.dtype, stride)
                steps[v] = steps[v] + step if v in steps else step
        start = start + cast(start.dtype, base) * cast(start.dtype, stride)
    simple = Analyzer().simplify
    every = {v: simple(steps[v]) if v in steps else const(0, start.dtype) for v in variables}
    return _Operand(buffer, access.indices, every, start, frozenset(steps))


def _longest_line(axes: Sequence[IterVar], arrays: Sequence[_Operand], analyzer: Analyzer) -> _Line:
    """Returns axes that lie in line in all arrays, as one axis of as many values as possible.

    Axes lie in line where a step of the outer one is as long as all steps of the inner one together.
    """
    best = _Line((), const(1, "int32"), {})
    for last in reversed(axes):
        steps = {o.buffer: o.steps[last.var] for o in arrays}
        line = _Line((last.var,), last.dom.extent, steps)
        rest = [iv for iv in axes if iv is not last]
        while True:
            outer = next(
                (
                    iv
                    for iv in rest
                    if all(_same(analyzer, o.steps[iv.var], steps[o.buffer] * line.size) for o in arrays)
                ),
                None,
            )
            if outer is None:
                break
            rest.remove(outer)
            line = _Line((outer.var, *line.axes), analyzer.simplify(outer.dom.extent * line.size), steps)
        if not best.axes or _rank(line) > _rank(best):
            best = line
    return best


def _rank(line: _Line) -> tuple[int, float]:
    """Returns how good a line is: a symbolic size counts as large."""
    return len(line.axes), float(line.size.value) if isinstance(line.size, IntImm) else math.inf


def _same(analyzer: Analyzer, a: Expr, b: Expr) -> bool:
    return analyzer.can_prove_equal(a, cast(a.dtype, b))


def _stored(
    rows: Expr, columns: Expr, row_step: Expr | None, column_step: Expr | None, analyzer: Analyzer
) -> tuple[bool, Expr] | None:
    """Returns whether a matrix is stored transposed, and the elements between its rows then; None: neither way."""
    if row_step is None and column_step is None:
        return False, const(1, "int32")
    if is_const_int(rows, 0) or is_const_int(columns, 0):
        return False, columns
    for transposed, (n, far, near) in enumerate(((columns, row_step, column_step), (rows, column_step, row_step))):
        if near is not None and not is_const_int(near, 1):
            continue
        if far is None:  # one row alone
            return bool(transposed), n
        width = const(1, far.dtype) if near is None else cast(far.dtype, n)
        if analyzer.can_prove(far >= width):
            return bool(transposed), far
    return None
