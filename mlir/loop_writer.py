"""This module writes loops over memory: ``scf`` for control, ``memref`` and ``vector`` for accesses.

Every variable of a loop is an ``index``. Truth values lie in memory as bytes, because a vector of ``i1`` would be packed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, cf, func, memref, scf, vector
from xdsl.dialects import builtin as B
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from ..tir.expr import Broadcast, BufferLoad, DType, Expr, IntImm, Ramp, Var, const, index_like, is_const_int
from ..tir.stmt import (
    Allocate,
    AssertStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    is_no_op,
)
from . import wider_operations as X
from .mlir_error import MlirError
from .mlir_types import (
    DTYPE,
    INDICES,
    MlirSignature,
    attribute,
    dimensions,
    hint,
    is_unsigned,
    mlir_type,
    sign_attribute,
    text_attribute,
)
from .operation_table import Operations
from .value_writer import INDEX, ValueWriter
from .wider_operations import GatherOp, ScatterOp

LOWERED = "tilewright.lowered"
"""Attribute of a function that was lowered here: its loops are read back as they are, without blocks."""
KIND, ANNOTATIONS, SCOPE, LET, DIMENSIONS = (
    f"tilewright.{word}" for word in ("kind", "annotations", "scope", "let", "dimensions")
)
_ON_STACK = 1 << 16
"""Bytes up to which memory of a known size that is allocated once lies on the stack."""


def stored_type(dtype: DType) -> Attribute:
    """Returns the type of an element in memory."""
    return B.IntegerType(8) if dtype.is_bool else mlir_type(dtype.element)


def memory_type(buffer: Buffer) -> B.MemRefType:
    """Returns the type of a buffer's memory, with its strides where it has some."""
    if not is_const_int(buffer.elem_offset, 0):
        raise MlirError(f"{buffer.name} begins at an offset; a memref begins with its first element")
    if buffer.dtype.lanes > 1:
        raise MlirError(f"the elements of {buffer.name} are vectors, {buffer.dtype}")
    layout: Attribute = B.NoneAttr()
    if buffer.strides:
        layout = B.StridedLayoutAttr([e.value if isinstance(e, IntImm) else None for e in buffer.strides])
    return B.MemRefType(stored_type(buffer.dtype), dimensions(buffer.shape), layout)


def loop_function(prim: PrimFunc) -> func.FuncOp:
    """Returns a lowered function over memory. MlirError names what does not fit."""
    return _LoopWriter(prim).write()


class _LoopWriter:
    """The function that is being written: ``memory`` has the value of each buffer."""

    def __init__(self, prim: PrimFunc) -> None:
        self.prim, self.memory = prim, dict[Buffer, SSAValue]()
        self.depth = 0  # 0 where a statement runs once, and last
        self.where = f"function {prim.name}"

    def write(self) -> func.FuncOp:
        prim, block = self.prim, Block()
        signature = MlirSignature.of(prim, {})
        top = ValueWriter(Operations(block), {}, self.load, self.where)
        for n, param in enumerate(signature.arguments):
            kind = memory_type(param) if isinstance(param, Buffer) else mlir_type(param.dtype)
            value = hint(block.insert_arg(kind, n), param.name)
            if isinstance(param, Buffer):
                self.memory[param] = value
            else:
                top.vars[param] = value
        for var, (buffer, dim) in signature.sizes.items():
            place = top.ops.constant(dim, INDEX)
            top.vars[var] = hint(top.ops.add(memref.DimOp(self.memory[buffer], place)), var.name)
        self.statement(top, prim.body)
        block.add_op(func.ReturnOp())
        kinds = B.FunctionType.from_lists([a.type for a in block.args], [])
        out = func.FuncOp(prim.name, kinds, Region(block))
        signature.describe(out, bools=True)
        out.attributes[LOWERED] = B.UnitAttr()
        return out

    def statement(self, w: ValueWriter, s: Stmt) -> None:
        """Write a statement."""
        rule = _STATEMENTS.get(type(s))
        if rule is None:
            raise MlirError(f"{self.where}: {type(s).__name__} has no counterpart in MLIR: {str(s).splitlines()[-1]}")
        rule(self, w, s)
        w.known.clear()

    def region(self, w: ValueWriter, s: Stmt, end: Operation, var: Var | None = None) -> Region:
        """Returns a block around a statement that ``end`` ends; ``var`` becomes its argument."""
        block = Block(arg_types=[INDEX] if var is not None else [])
        inner = w.inside(block)
        inner.known.clear()
        if var is not None:
            inner.vars[var] = hint(block.args[0], var.name)
        self.depth += var is not None
        self.statement(inner, s)
        self.depth -= var is not None
        block.add_op(end)
        return Region(block)

    # memory

    def place(self, w: ValueWriter, buffer: Buffer) -> SSAValue:
        if buffer not in self.memory:
            raise w.refuse(f"a second view of memory, {buffer.name},")
        return self.memory[buffer]

    def load(self, w: ValueWriter, e: BufferLoad) -> SSAValue:
        """Returns an element, or a vector of elements."""
        source = self.place(w, e.buffer)
        if e.dtype.lanes == 1:
            op = memref.LoadOp.get(source, [w.index(i) for i in e.indices])
            value = w.ops.add(self.typed(op, e.indices))
            return w.ops.add(X.TruncIOp.of(value, B.i1)) if e.dtype.is_bool else value
        kind: Any = B.VectorType(stored_type(e.dtype), [e.dtype.lanes])
        where = self.lanes(w, e.buffer, e.indices)
        value = self.vector(w, source, where, e, kind)
        return w.ops.add(X.TruncIOp.of(value, mlir_type(e.dtype))) if e.dtype.is_bool else value

    def vector(self, w: ValueWriter, source: SSAValue, where: _Lanes, e: BufferLoad, kind: Any) -> SSAValue:
        if where.offsets is None and e.predicate is None:
            return w.ops.add(self.typed(vector.LoadOp(source, where.indices, kind), e.indices))
        zero = w.ops.constant(0 if e.dtype.is_int or e.dtype.is_bool else 0.0, kind)
        mask = self.mask(w, e.predicate, e.dtype.lanes)
        if where.offsets is None:
            return w.ops.add(self.typed(vector.MaskedLoadOp(source, where.indices, mask, zero, kind), e.indices))
        operands = [source, *where.indices, where.offsets, mask, zero]
        op = GatherOp.create(operands=operands, result_types=[kind])
        where.mark(op)
        return w.ops.add(self.typed(op, e.indices))

    def mask(self, w: ValueWriter, predicate: Expr | None, lanes: int) -> SSAValue:
        kind = B.VectorType(B.i1, [lanes])
        return w.ops.constant(1, kind) if predicate is None else w.value(predicate)

    def store(self, w: ValueWriter, s: BufferStore) -> None:
        """Write a store."""
        target, value = self.place(w, s.buffer), w.value(s.value)
        lanes = s.value.dtype.lanes
        if s.buffer.dtype.is_bool:
            kind: Any = B.IntegerType(8) if lanes == 1 else B.VectorType(B.IntegerType(8), [lanes])
            value = w.ops.add(X.ExtUIOp.of(value, kind))
        if lanes == 1 and all(i.dtype.lanes == 1 for i in s.indices):
            op: Operation = memref.StoreOp.get(value, target, [w.index(i) for i in s.indices])
            w.ops.block.add_op(self.typed(op, s.indices))
            return
        where = self.lanes(w, s.buffer, s.indices)
        if where.offsets is None and s.predicate is None:
            w.ops.block.add_op(self.typed(vector.StoreOp(value, target, where.indices), s.indices))
            return
        mask = self.mask(w, s.predicate, lanes)
        if where.offsets is None:
            w.ops.block.add_op(self.typed(vector.MaskedStoreOp(target, where.indices, mask, value), s.indices))
            return
        op = ScatterOp.create(operands=[target, *where.indices, where.offsets, mask, value])
        where.mark(op)
        w.ops.block.add_op(self.typed(op, s.indices))

    def typed(self, op: Operation, indices: Sequence[Expr]) -> Operation:
        """Returns an access, with the types of its indices where constants have others than a reader takes them for."""
        starts = [i.base if isinstance(i, Ramp) else i for i in indices]
        numbers = [e for e in starts if isinstance(e, IntImm)]
        wide = any(e.dtype.element == "int64" for e in starts if not isinstance(e, IntImm))
        if any((e.dtype == "int64") != wide for e in numbers):
            op.attributes[INDICES] = B.ArrayAttr([sign_attribute(e.dtype) for e in starts])
        return op

    def lanes(self, w: ValueWriter, buffer: Buffer, indices: Sequence[Expr]) -> _Lanes:
        """Returns where the lanes of an access lie: behind one element, or at offsets from it."""
        vectors = [n for n, i in enumerate(indices) if i.dtype.lanes > 1]
        last = len(indices) - 1
        first = indices[vectors[0]]
        if vectors == [last] and not buffer.strides:
            if isinstance(first, Ramp) and is_const_int(first.stride, 1):
                return _Lanes([w.index(i) for i in (*indices[:-1], first.base)])
            return _Lanes([*[w.index(i) for i in indices[:-1]], w.index(IntImm(0))], w.value(first))
        steps = buffer.element_strides()
        wide = max([indices[n].dtype.element for n in vectors], key=lambda t: t.bits)
        offsets: SSAValue | None = None
        for n in vectors:
            value, step, dtype = w.value(indices[n]), steps[n], indices[n].dtype
            step = const(step.value, dtype.element) if isinstance(step, IntImm) else step
            scale = w.value(Broadcast(step, dtype.lanes))
            if scale.type != value.type:
                raise w.refuse(f"an access of {buffer.name} whose sizes have another type than its indices")
            term = w.ops.add(arith.MuliOp(value, scale))
            if dtype.element != wide:
                term = w.marked(
                    w.ops.add(X.ExtSIOp.of(term, mlir_type(wide.with_lanes(dtype.lanes)))), widened=B.UnitAttr()
                )
            offsets = term if offsets is None else w.ops.add(arith.AddiOp(offsets, term))
        starts = [w.index(IntImm(0) if k in vectors else i) for k, i in enumerate(indices)]
        return _Lanes(starts, offsets, tuple(vectors))


class _Lanes:
    """Where the lanes of an access lie. ``dims`` are the dimensions whose vector indices, scaled, add up to offsets; without
    them the offsets are the last index."""

    def __init__(self, indices: list[SSAValue], offsets: SSAValue | None = None, dims: tuple[int, ...] = ()) -> None:
        self.indices, self.offsets, self.dims = indices, offsets, dims

    def mark(self, op: Operation) -> None:
        """Add the dimensions to an access."""
        if self.dims:
            op.attributes[DIMENSIONS] = B.DenseArrayBase.from_list(B.i64, list(self.dims))


def _for(f: _LoopWriter, w: ValueWriter, s: For) -> None:
    if s.kind == "thread_binding":
        raise MlirError(
            f"{f.where}: the loop {s.loop_var.name} is bound to {s.thread_binding}; MLIR's loops have no threads"
        )
    low = w.index(s.min)
    high = w.index(s.extent if is_const_int(s.min, 0) else s.min + s.extent)
    step = w.ops.constant(1, INDEX)
    op: Any
    if s.kind == "parallel":
        op = scf.ParallelOp([low], [high], [step], f.region(w, s.body, scf.ReduceOp(), s.loop_var))
    else:
        op = scf.ForOp(low, high, step, [], f.region(w, s.body, scf.YieldOp(), s.loop_var))
        if s.kind != "serial":
            op.attributes[KIND] = B.StringAttr(s.kind)
    if s.annotations:
        op.attributes[ANNOTATIONS] = attribute(s.annotations)
    if s.loop_var.dtype != "int32":
        op.attributes[DTYPE] = sign_attribute(s.loop_var.dtype)
    w.ops.block.add_op(op)


def _if(f: _LoopWriter, w: ValueWriter, s: IfThenElse) -> None:
    test = w.value(s.condition)
    sides = [f.region(w, s.then_case, scf.YieldOp())]
    if s.else_case is not None:
        sides.append(f.region(w, s.else_case, scf.YieldOp()))
    w.ops.block.add_op(scf.IfOp(test, [], *sides))


def _while(f: _LoopWriter, w: ValueWriter, s: While) -> None:
    before = Block()
    inner = w.inside(before)
    inner.known.clear()
    before.add_op(scf.ConditionOp(inner.value(s.condition)))
    w.ops.block.add_op(scf.WhileOp([], [], Region(before), f.region(w, s.body, scf.YieldOp())))


def _let(f: _LoopWriter, w: ValueWriter, s: LetStmt) -> None:
    last = w.ops.block.last_op
    value = w.index(s.value) if index_like(s.value) and s.value.dtype.lanes == 1 else w.value(s.value)
    fresh = isinstance(value.owner, Operation) and last is not w.ops.block.last_op
    if fresh and not isinstance(value.owner, arith.ConstantOp):
        value.owner.attributes[LET] = sign_attribute(s.var.dtype)
        hint(value, s.var.name)
    w.vars[s.var] = value
    w.known.clear()
    f.statement(w, s.body)


def _allocate(f: _LoopWriter, w: ValueWriter, s: Allocate) -> None:
    buffer, kind = s.buffer, memory_type(s.buffer)
    sizes = [w.index(e) for e in buffer.shape if not isinstance(e, IntImm)]
    bytes_ = buffer.num_bytes()
    on_stack = bytes_ is not None and bytes_ <= _ON_STACK and f.depth == 0
    cls: Any = memref.AllocaOp if on_stack else memref.AllocOp
    op = cls.build(
        operands=[sizes, []],
        result_types=[kind],
        properties={"alignment": B.IntegerAttr(buffer.data_alignment, 64)},
    )
    if buffer.scope != "global":
        op.attributes[SCOPE] = B.StringAttr(buffer.scope)
    if s.annotations:
        op.attributes[ANNOTATIONS] = attribute(s.annotations)
    if is_unsigned(buffer.dtype) or buffer.dtype.is_bool:
        op.attributes[DTYPE] = sign_attribute(buffer.dtype)
    f.memory[buffer] = hint(w.ops.add(op), buffer.name)
    f.statement(w, s.body)
    if not on_stack:
        w.ops.block.add_op(memref.DeallocOp.get(f.memory[buffer]))


def _assert(f: _LoopWriter, w: ValueWriter, s: AssertStmt) -> None:
    w.ops.block.add_op(cf.AssertOp(w.value(s.condition), text_attribute(s.message)))
    w.known.clear()
    f.statement(w, s.body)


def _evaluate(f: _LoopWriter, w: ValueWriter, s: Evaluate) -> None:
    if not is_no_op(s):
        raise MlirError(f"{f.where}: `{s.value}` has no counterpart in MLIR")


def _sequence(f: _LoopWriter, w: ValueWriter, s: SeqStmt) -> None:
    f.depth += 1
    for one in s.seq[:-1]:
        f.statement(w, one)
    f.depth -= 1
    f.statement(w, s.seq[-1])


_STATEMENTS: dict[type[Stmt], Callable[[_LoopWriter, ValueWriter, Any], None]] = {
    For: _for,
    SeqStmt: _sequence,
    BufferStore: lambda f, w, s: f.store(w, s),
    IfThenElse: _if,
    While: _while,
    LetStmt: _let,
    Allocate: _allocate,
    AssertStmt: _assert,
    Evaluate: _evaluate,
}
