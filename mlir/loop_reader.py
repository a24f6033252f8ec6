"""This module reads functions over memory: loops of ``scf`` and ``affine``, accesses of ``memref``, ``affine`` and
``vector``.

A value that is carried from one iteration to the next becomes a buffer of one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import affine, cf, func, memref, scf, vector
from xdsl.ir import Block, Operation, SSAValue

from ..tir.expr import (
    Add,
    Broadcast,
    BufferLoad,
    Cast,
    DType,
    Expr,
    FloorDiv,
    IntImm,
    Mul,
    Ramp,
    Sub,
    Var,
    const,
    is_const_int,
    same,
)
from ..tir.stmt import Allocate, AssertStmt, Buffer, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, While, seq
from .mlir_error import MlirError
from .mlir_types import DTYPE, INDICES, dtype_of, evaluated, is_dynamic, plain_value, signed_like
from .value_reader import ValueReader, coerced, read_arguments
from .wider_operations import GatherOp, ScatterOp

KIND, ANNOTATIONS, SCOPE, LET, DIMENSIONS = (
    f"tilewright.{word}" for word in ("kind", "annotations", "scope", "let", "dimensions")
)


def read_loops(op: func.FuncOp) -> PrimFunc:
    """Returns a function over memory as loops without blocks. MlirError names what is not supported."""
    return _LoopReader(op).read()


class _LoopReader:
    def __init__(self, op: func.FuncOp) -> None:
        self.op = op
        self.arguments = read_arguments(op, lambda place: place)
        self.index = self.arguments.index
        found = self.arguments.found
        self.memory: dict[SSAValue, Buffer] = {v: b for v, b in found.items() if isinstance(b, Buffer)}
        known: dict[SSAValue, Expr] = {v: what for v, what in found.items() if isinstance(what, Var)}
        self.values = ValueReader(known, _rules_of(self), self.index, self.arguments.where)

    def read(self) -> PrimFunc:
        params: list[Var] = []
        buffers: dict[Var, Buffer] = {}
        for value in self.op.body.block.args:
            what = self.arguments.found[value]
            params.append(Var(f"var_{what.name}", "handle") if isinstance(what, Buffer) else what)
            if isinstance(what, Buffer):
                buffers[params[-1]] = what
        if len(self.op.body.blocks) != 1:
            raise MlirError(f"{self.arguments.where} has branches between blocks; only structured loops are read")
        return PrimFunc(tuple(params), self.block(self.op.body.block), buffers, self.arguments.attributes())

    def buffer(self, value: SSAValue) -> Buffer:
        """Returns the buffer of a memref."""
        if value not in self.memory:
            owner = value.owner
            if isinstance(owner, Block):
                raise MlirError(f"{self.arguments.where}: memory of type {value.type} is passed through a loop")
            raise self.values.refuse(owner)
        return self.memory[value]

    def block(self, block: Block, end: Callable[[Sequence[SSAValue]], list[Stmt]] | None = None) -> Stmt:
        """Returns the statements of a block; ``end`` makes those of the values that it yields."""
        return self.rest(list(block.ops), early_loads(block), end)

    def rest(self, ops: list[Operation], early: set[Operation], end: Any) -> Stmt:
        out: list[Stmt] = []
        for n, op in enumerate(ops):

            def following(n: int = n) -> Stmt:
                return self.rest(ops[n + 1 :], early, end)

            if LET in op.attributes or op in early:
                value = self.values.value(op.results[0])
                var = Var(op.results[0].name_hint or "x", value.dtype)
                self.values.known[op.results[0]] = var
                return seq(*out, LetStmt(var, value, following()))
            if isinstance(op, (memref.AllocOp, memref.AllocaOp)):
                buffer = self.allocated(op)
                annotations = plain_value(op.attributes[ANNOTATIONS]) if ANNOTATIONS in op.attributes else {}
                end_of = next((m for m, o in enumerate(ops) if _frees(o, op)), None)
                if end_of is None:
                    return seq(*out, Allocate(buffer, following(), annotations))
                body = self.rest(ops[n + 1 : end_of], early, None)
                return seq(*out, Allocate(buffer, body, annotations), self.rest(ops[end_of + 1 :], early, end))
            if isinstance(op, cf.AssertOp):
                return seq(*out, AssertStmt(self.values.value(op.arg), op.msg.data, following()))
            carried = getattr(op, "iter_args", None) or getattr(op, "inits", None)
            if isinstance(op, (scf.ForOp, affine.ForOp)) and carried:
                return seq(*out, self.reduction(op, list(carried), following))
            if isinstance(op, _ENDS):
                return seq(*out, *(end(op.operands) if end is not None else []))
            rule = _STATEMENTS.get(type(op))
            if rule is not None and is_statement(op):
                out.append(rule(self, op))
            elif is_statement(op) and not isinstance(op, memref.DeallocOp):
                raise self.values.refuse(op)
        return seq(*out)

    def allocated(self, op: Any) -> Buffer:
        kind = op.results[0].type
        rest = iter(op.dynamic_sizes)
        shape = tuple([
            self.values.value(next(rest)) if is_dynamic(s) else const(s, self.index) for s in kind.get_shape()
        ])  # fmt: skip
        scope = plain_value(op.attributes[SCOPE]) if SCOPE in op.attributes else "global"
        given = op.properties.get("alignment")
        alignment = 64 if given is None else plain_value(given)
        dtype = signed_like(dtype_of(kind.element_type), op.attributes)
        buffer = Buffer(self.arguments.name(op.results[0], "T"), shape, dtype, scope, data_alignment=alignment)
        self.memory[op.results[0]] = buffer
        return buffer

    # loops

    def loop(self, op: Any, arg: SSAValue, low: Expr, high: Expr, step: Expr, body: Block, end: Any = None) -> For:
        """Returns a loop from its ends; one that takes larger steps counts them."""
        dtype = signed_like(self.index, op.attributes) if DTYPE in op.attributes else low.dtype
        low, high = coerced(low, dtype), coerced(high, dtype)
        var = Var(arg.name_hint or "i", dtype)
        extent = _distance(low, high)
        if is_const_int(step, 1):
            self.values.known[arg] = var
        else:
            step = coerced(step, dtype)
            extent = FloorDiv(Add(extent, Sub(step, const(1, dtype))), step)
            if isinstance(step, IntImm) and isinstance(low, IntImm) and isinstance(high, IntImm):
                extent = const(-(-(high.value - low.value) // step.value), dtype)
            scaled: Expr = Mul(var, step)
            self.values.known[arg] = scaled if is_const_int(low, 0) else Add(low, scaled)
            low = const(0, dtype)
        kind = plain_value(op.attributes[KIND]) if KIND in op.attributes else "serial"
        annotations = plain_value(op.attributes[ANNOTATIONS]) if ANNOTATIONS in op.attributes else {}
        if isinstance(extent, IntImm) and extent.value < 0:
            extent = const(0, dtype)
        return For(var, low, extent, kind, self.block(body, end), None, annotations)

    def reduction(self, op: Any, starts: list[SSAValue], following: Callable[[], Stmt]) -> Stmt:
        """Returns a loop that carries values, which become buffers of one element, and what follows it."""
        body = op.body.block
        cells, before = [], []
        for arg, start, result in zip(body.args[1:], starts, op.results, strict=True):
            value = self.values.value(start)
            cell = Buffer(self.arguments.name(result, "carried"), (), value.dtype, "local")
            cells.append(cell)
            before.append(BufferStore(cell, value, ()))
            self.values.known[arg] = BufferLoad(cell, ())

        def end(yielded: Sequence[SSAValue]) -> list[Stmt]:
            values = [coerced(self.values.value(v), c.dtype) for v, c in zip(yielded, cells, strict=True)]
            if len(values) == 1:
                return [BufferStore(cells[0], values[0], ())]
            names = [Var(f"next_{c.name}", c.dtype) for c in cells]
            out = seq(*[BufferStore(c, v, ()) for c, v in zip(cells, names, strict=True)])
            for name, value in reversed(list(zip(names, values, strict=True))):
                out = LetStmt(name, value, out)
            return [out]

        loop = _LOOPS[type(op)](self, op, end)
        lets = []
        for result, cell in zip(op.results, cells, strict=True):
            var = Var(result.name_hint or cell.name, cell.dtype)
            self.values.known[result] = var
            lets.append((var, BufferLoad(cell, ())))
        rest = following()
        for var, load in reversed(lets):
            rest = LetStmt(var, load, rest)
        out = seq(*before, loop, rest)
        for cell in reversed(cells):
            out = Allocate(cell, out)
        return out

    # accesses

    def access(
        self, base: SSAValue, indices: Sequence[Expr], offsets: Expr | None, lanes: int, op: Operation
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        """Returns the buffer and the indices of an access of ``lanes`` elements."""
        buffer, found = self.buffer(base), list(indices)
        if offsets is None and lanes > 1:
            found[-1] = Ramp(found[-1], const(1, found[-1].dtype), lanes)
        elif offsets is not None:
            given: Any = op.attributes.get(DIMENSIONS)
            if given is None:
                parts = {len(found) - 1: offsets}
            else:
                dims = [int(n) for n in given.get_values()]
                parts = dict(zip(dims, self.terms(offsets, len(dims), op), strict=True))
            for n, part in parts.items():
                found[n] = part if is_const_int(found[n], 0) else Add(Broadcast(found[n], lanes), part)
        return buffer, tuple(found)

    def terms(self, offsets: Expr, count: int, op: Operation) -> list[Expr]:
        """Returns the indices whose products with strides add up to offsets."""
        out: list[Expr] = []
        for n in range(count):
            last = offsets.b if n < count - 1 and isinstance(offsets, Add) else offsets
            last = last.value if isinstance(last, Cast) else last  # a narrower index was made wider to be added
            if not isinstance(last, Mul):
                raise self.values.refuse(op, f"{DIMENSIONS} without a sum of {count} products")
            out.append(last.a)
            offsets = offsets.a if isinstance(offsets, Add) else offsets
        return out[::-1]

    def indices(self, values: Sequence[SSAValue], op: Operation | None = None) -> list[Expr]:
        """Returns values as indices; constants among them have the type of the others, or that which ``op`` names."""
        found = [self.values.value(v) for v in values]
        given: Any = op.attributes.get(INDICES) if op is not None else None
        if given is not None:
            kinds = [dtype_of(k) for k in given.data]
            return [coerced(e, k) if isinstance(e, IntImm) else e for e, k in zip(found, kinds, strict=True)]
        others = {e.dtype.element for e in found if not isinstance(e, IntImm)}
        return [coerced(e, DType("int64")) if isinstance(e, IntImm) and "int64" in others else e for e in found]

    def mapped(self, op: Any) -> list[Expr]:
        """Returns the indices of an affine access."""
        values, found = self.indices(op.indices, op), op.map.data if op.map is not None else None
        if found is None:
            return values
        return list(evaluated(found, values[: found.num_dims], values[found.num_dims :], self.index))

    def stored(self, buffer: Buffer, value: Expr, indices: Sequence[Expr], mask: Expr | None = None) -> Stmt:
        """Returns a store of a value in the type of the buffer."""
        if buffer.dtype.is_bool and isinstance(value, Cast) and value.value.dtype.is_bool:
            value = value.value
        dtype = buffer.dtype.with_lanes(value.dtype.lanes)
        return BufferStore(buffer, coerced(value, dtype), tuple(indices), mask)


def _frees(op: Operation, memory: Any) -> bool:
    return isinstance(op, memref.DeallocOp) and op.operands[0] is memory.results[0]


def _distance(low: Expr, high: Expr) -> Expr:
    if is_const_int(low, 0):
        return high
    if isinstance(low, IntImm) and isinstance(high, IntImm):
        return const(high.value - low.value, high.dtype)
    if isinstance(high, Add) and same(high.a, low):
        return high.b
    return Sub(high, low)


def _for(f: _LoopReader, op: Any, end: Any = None) -> Stmt:
    low, high, step = f.indices((op.lb, op.ub, op.step))
    return f.loop(op, op.body.block.args[0], low, high, step, op.body.block, end)


def _affine_for(f: _LoopReader, op: Any, end: Any = None) -> Stmt:
    low_map, high_map = op.lowerBoundMap.data, op.upperBoundMap.data
    if len(low_map.results) != 1 or len(high_map.results) != 1:
        raise f.values.refuse(op, "a bound that is a maximum or minimum")
    ends = [
        evaluated(m, f.indices(values)[: m.num_dims], f.indices(values)[m.num_dims :], f.index)[0]
        for m, values in ((low_map, op.lowerBoundOperands), (high_map, op.upperBoundOperands))
    ]
    step = const(op.step.value.data, f.index)
    return f.loop(op, op.body.block.args[0], ends[0], ends[1], step, op.body.block, end)


def _parallel(f: _LoopReader, op: Any) -> Stmt:
    if op.results:
        raise f.values.refuse(op, "with a reduction")
    block = op.body.block
    loops = []
    for arg, low, high, step in zip(block.args, op.lowerBound, op.upperBound, op.step, strict=True):
        empty = Block()
        ends = f.indices((low, high, step))
        made = f.loop(op, arg, ends[0], ends[1], ends[2], empty)
        loops.append(made.with_(kind="parallel"))
    out = f.block(block)
    for loop in reversed(loops):
        out = loop.with_(body=out)
    return out


def _if(f: _LoopReader, op: Any) -> Stmt:
    if op.results:
        raise f.values.refuse(op, "with results, and with stores inside")
    test = f.values.value(op.cond)
    other = f.block(op.false_region.block) if op.false_region.blocks else None
    return IfThenElse(test, f.block(op.true_region.block), other)


def _while(f: _LoopReader, op: Any) -> Stmt:
    if op.arguments or op.results:
        raise f.values.refuse(op, "with values that are carried")
    last = op.before_region.block.last_op
    return While(f.values.value(last.operands[0]), f.block(op.after_region.block))


def _store(f: _LoopReader, op: Any) -> Stmt:
    return f.stored(f.buffer(op.memref), f.values.value(op.value), f.indices(op.indices, op))


def _affine_store(f: _LoopReader, op: Any) -> Stmt:
    return f.stored(f.buffer(op.memref), f.values.value(op.value), f.mapped(op))


def _vector_store(f: _LoopReader, op: Any) -> Stmt:
    value = f.values.value(op.vector)
    return f.stored(*_swap(f.access(op.base, f.indices(op.indices, op), None, value.dtype.lanes, op), value))


def _swap(where: tuple[Buffer, tuple[Expr, ...]], value: Expr) -> tuple[Buffer, Expr, tuple[Expr, ...]]:
    return where[0], value, where[1]


def _masked_store(f: _LoopReader, op: Any) -> Stmt:
    base, *indices, mask, stored = op.operands
    value = f.values.value(stored)
    where = f.access(base, f.indices(indices, op), None, value.dtype.lanes, op)
    return f.stored(*_swap(where, value), f.values.value(mask))


def _scatter(f: _LoopReader, op: Any) -> Stmt:
    base, *indices, offsets, mask, value = op.operands
    read = f.values.value(value)
    where = f.access(base, f.indices(indices, op), f.values.value(offsets), read.dtype.lanes, op)
    return f.stored(*_swap(where, read), _mask(f.values.value(mask)))


def _mask(e: Expr) -> Expr | None:
    return None if isinstance(e, Broadcast) and is_const_int(e.value, 1) else e


def _copy(f: _LoopReader, op: Any) -> Stmt:
    source, target = f.buffer(op.source), f.buffer(op.destination)
    loops = [Var(f"i{n}", f.index) for n in range(len(target.shape))]
    out: Stmt = BufferStore(target, BufferLoad(source, tuple(loops)), tuple(loops))
    for var, extent in reversed(list(zip(loops, target.shape, strict=True))):
        out = For(var, const(0, f.index), extent, "serial", out)
    return out


_ENDS = (func.ReturnOp, memref.AllocaScopeReturnOp, scf.YieldOp, scf.ReduceOp, affine.YieldOp)
_LOOPS: dict[type[Any], Any] = {scf.ForOp: _for, affine.ForOp: _affine_for}
_STATEMENTS: dict[type[Any], Callable[[_LoopReader, Any], Stmt]] = {
    scf.ForOp: _for,
    affine.ForOp: _affine_for,
    scf.ParallelOp: _parallel,
    scf.IfOp: _if,
    scf.WhileOp: _while,
    memref.StoreOp: _store,
    affine.StoreOp: _affine_store,
    vector.StoreOp: _vector_store,
    vector.MaskedStoreOp: _masked_store,
    ScatterOp: _scatter,
    memref.CopyOp: _copy,
    memref.AllocaScopeOp: lambda f, op: f.block(op.regions[0].block),
}


def _rules_of(f: _LoopReader) -> dict[type[Any], Any]:
    """Returns the rules for values that are read from memory."""

    def load(r: ValueReader, op: Any) -> Expr:
        return BufferLoad(f.buffer(op.memref), tuple(f.indices(op.indices, op)))

    def affine_load(r: ValueReader, op: Any) -> Expr:
        return BufferLoad(f.buffer(op.memref), tuple(f.mapped(op)))

    def vector_load(r: ValueReader, op: Any) -> Expr:
        lanes = dtype_of(op.results[0].type).lanes
        return BufferLoad(*f.access(op.base, f.indices(op.indices, op), None, lanes, op))

    def masked_load(r: ValueReader, op: Any) -> Expr:
        lanes = dtype_of(op.results[0].type).lanes
        _zero(r, op.pass_thru, op)
        return BufferLoad(*f.access(op.base, f.indices(op.indices, op), None, lanes, op), r.read(op.mask))

    def gather(r: ValueReader, op: Any) -> Expr:
        base, *indices, offsets, mask, rest = op.operands
        lanes = dtype_of(op.results[0].type).lanes
        _zero(r, rest, op)
        return BufferLoad(*f.access(base, f.indices(indices, op), r.read(offsets), lanes, op), _mask(r.read(mask)))

    def size(r: ValueReader, op: Any) -> Expr:
        place = r.read(op.index)
        if not isinstance(place, IntImm):
            raise r.refuse(op, "of a dimension that is not constant")
        return f.buffer(op.source).shape[place.value]

    return {
        memref.LoadOp: load,
        affine.LoadOp: affine_load,
        vector.LoadOp: vector_load,
        vector.MaskedLoadOp: masked_load,
        GatherOp: gather,
        memref.DimOp: size,
    }


def _zero(r: ValueReader, value: SSAValue, op: Operation) -> None:
    """Check that lanes that are not read are zero, as in TIR."""
    e = r.read(value)
    if not (isinstance(e, Broadcast) and not getattr(e.value, "value", 1)):
        raise r.refuse(op, "with values other than 0 in the lanes that are not read")


# Says which values have to be computed where they stand: loads whose memory changes before their use.

LOADS = (memref.LoadOp, affine.LoadOp, vector.LoadOp, vector.MaskedLoadOp, GatherOp)
_TARGETS: dict[type[Any], int] = {
    memref.StoreOp: 1, affine.StoreOp: 1, vector.StoreOp: 1, vector.MaskedStoreOp: 0, ScatterOp: 0,
}  # fmt: skip
"""Stores, and which operand is their memory."""


def stored_memory(op: Operation) -> set[SSAValue]:
    """Returns the memory that an operation and those inside it store to."""
    place = _TARGETS.get(type(op))
    found = set() if place is None else {op.operands[place]}
    if isinstance(op, memref.CopyOp):
        found.add(op.destination)
    for region in op.regions:
        for inner in region.walk():
            if type(inner) in _TARGETS:
                found.add(inner.operands[_TARGETS[type(inner)]])
    return found


def is_statement(op: Operation) -> bool:
    """Returns whether an operation does something besides computing a value."""
    if type(op) in _TARGETS or not op.results:
        return True
    return op.name in ("scf.for", "scf.parallel", "scf.while", "affine.for") or bool(stored_memory(op))


def early_loads(block: Block) -> set[Operation]:
    """Returns the loads of a block whose memory is stored to before their last use."""
    ops = list(block.ops)
    place = {op: n for n, op in enumerate(ops)}
    stores = [(n, stored_memory(op)) for n, op in enumerate(ops)]
    stores = [(n, memory) for n, memory in stores if memory]
    last: dict[Operation, int] = {}
    out: set[Operation] = set()
    for op in reversed(ops):
        uses = [_within(use.operation, block) for r in op.results for use in r.uses]
        ends = [place[u] if is_statement(u) or u is op else last.get(u, place[u]) for u in uses if u is not None]
        last[op] = max(ends, default=place[op])
        if isinstance(op, LOADS):
            source = op.operands[0]
            for n, memory in stores:
                inside = n == last[op] and bool(ops[n].regions)
                if source in memory and place[op] < n and (n < last[op] or inside):
                    out.add(op)
    return out


def _within(op: Operation | None, block: Block) -> Operation | None:
    """Returns the operation of ``block`` that is, or holds, another operation."""
    while op is not None and op.parent_block() is not block:
        op = op.parent_op()
    return op
