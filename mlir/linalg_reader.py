"""This module reads functions of ``linalg`` on tensors: each operation becomes the block that te would make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects import builtin as B
from xdsl.dialects import cf, func, tensor
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation, NamedOperation
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import FillOp, IndexOp
from xdsl.ir import Operation, SSAValue

from ..tir.analysis.regions import access_regions
from ..tir.expr import BufferLoad, DType, Expr, FloatImm, IntImm, IterVar, Range, Sub, Var, const, substitute
from ..tir.expr.nodes import BinaryOp
from ..tir.index_width import widened
from ..tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    For,
    LetStmt,
    PrimFunc,
    Stmt,
    root_block,
    seq,
)
from .mlir_error import MlirError
from .mlir_types import (
    DTYPE,
    PARAMETERS,
    dtype_of,
    evaluated,
    is_dynamic,
    plain_dim,
    plain_value,
    signed_like,
    usual_places,
)
from .value_reader import ValueReader, coerced, read_arguments
from .wider_operations import ReduceOp

ANNOTATIONS = "tilewright.annotations"
STARTS = "tilewright.starts"
INIT = "tilewright.init"


@dataclass(frozen=True)
class Empty:
    """A tensor without content, or one with the same value everywhere."""

    shape: tuple[Expr, ...]
    dtype: DType
    value: Expr | None = None


@dataclass(frozen=True)
class InitialTensor:
    """A tensor that only begins a reduction: an element by the axes of the operation that makes it."""

    shape: tuple[Expr, ...]
    dtype: DType
    axes: tuple[Var, ...]
    value: Expr


Content = Any
"""What a tensor is while a function is read: a Buffer, an Empty or an InitialTensor."""


def read_linalg(op: func.FuncOp) -> PrimFunc:
    """Returns a function on tensors as te makes functions. MlirError names what is not supported."""
    return _LinalgReader(op).read()


class _LinalgReader:
    def __init__(self, op: func.FuncOp) -> None:
        self.op = op
        self.sizes = SizeClasses(op)
        self.arguments = read_arguments(op, self.sizes.find)
        self.where = self.arguments.where
        self.index = self.arguments.index
        self.tensors: dict[SSAValue, Content] = dict(self.arguments.found)
        known: dict[SSAValue, Expr] = {v: what for v, what in self.arguments.found.items() if isinstance(what, Var)}
        self.values = ValueReader(known, _rules_of(self), self.index, self.where)
        self.allocated: list[Buffer] = []
        self.checks: list[tuple[Expr, str]] = []
        self.nests: list[Stmt] = []
        self.names: set[str] = {"root"}
        self.results: dict[SSAValue, Buffer] = {}

    def read(self) -> PrimFunc:
        returned = self.op.body.block.last_op
        if not isinstance(returned, func.ReturnOp):
            raise MlirError(f"{self.where} has no return at its end")
        params, buffers = self.parameters(returned)
        for op in self.op.body.block.ops:
            handler = _OPERATIONS.get(type(op))
            if isinstance(op, FillOp):
                self.fill(op)
            elif isinstance(op, LinalgStructuredOperation):
                self.structured(op)
            elif handler is not None:
                handler(self, op)
            elif any(isinstance(r.type, B.TensorType) for r in op.results) or not op.results:
                if op is not returned:
                    raise self.values.refuse(op)
        self.copies(returned)
        body: Stmt = seq(*self.nests)
        for condition, message in reversed(self.checks):
            body = AssertStmt(condition, message, body)
        out = PrimFunc(
            tuple(params), root_block("root", body, tuple(self.allocated)), buffers, self.arguments.attributes()
        )
        return widened(out)

    # parameters

    def parameters(self, returned: func.ReturnOp) -> tuple[list[Var], dict[Var, Buffer]]:
        """Returns the parameters in order, and makes the buffers of results."""
        args, results = list(self.op.body.block.args), list(returned.operands)
        given: Any = self.op.attributes.get(PARAMETERS)
        numbers = None if given is None else [int(n) for n in given.get_values()]
        places = usual_places(len(args), len(results))
        if numbers is not None:
            places = tuple(zip(numbers[::2], numbers[1::2], strict=False))
        if any(not (-1 <= a < len(args) and -1 <= r < len(results)) for a, r in places) or len(places) < len(args):
            raise MlirError(f"{self.where}: {PARAMETERS} does not fit {len(args)} arguments and {len(results)} results")
        params: list[Var] = []
        buffers: dict[Var, Buffer] = {}
        self.outputs: list[tuple[SSAValue, Buffer]] = []
        for a, r in places:
            what: Any = self.tensors[args[a]] if a >= 0 else None
            if a < 0:
                value = results[r]
                what = Buffer(self.arguments.name(value, "out"), self.shape_of(value), self.dtype_of(value))
                if value not in self.results and not self.is_argument(value):
                    self.results[value] = what
                else:
                    self.outputs.append((value, what))
            elif r >= 0:
                self.outputs.append((results[r], what))
            if isinstance(what, Buffer):
                handle = Var(f"var_{what.name}", "handle")
                params.append(handle)
                buffers[handle] = what
            else:
                params.append(what)
        return params, buffers

    def is_argument(self, value: SSAValue) -> bool:
        return value in self.op.body.block.args

    def shape_of(self, value: SSAValue) -> tuple[Expr, ...]:
        """Returns the sizes of a tensor that may not have been read yet."""
        if value in self.tensors:
            return tuple(self.tensors[value].shape)
        kind: Any = value.type
        if not isinstance(kind, B.TensorType):
            raise MlirError(f"{self.where} returns {kind}, which is no tensor with a rank")
        owner: Any = value.owner
        if isinstance(owner, LinalgStructuredOperation):
            return self.shape_of(owner.outputs[list(owner.results).index(value)])
        if isinstance(owner, tensor.EmptyOp):
            return self.sizes_of(kind, owner.dynamic_sizes)
        if any(is_dynamic(s) for s in kind.get_shape()):
            raise MlirError(f"{self.where}: the sizes of a result of type {kind} are not known")
        return tuple([const(s, self.index) for s in kind.get_shape()])

    def sizes_of(self, kind: Any, dynamic: Sequence[SSAValue]) -> tuple[Expr, ...]:
        rest = iter(dynamic)
        return tuple([
            self.values.value(next(rest)) if is_dynamic(s) else const(s, self.index) for s in kind.get_shape()
        ])  # fmt: skip

    def dtype_of(self, value: SSAValue) -> DType:
        """Returns the data type of a tensor's elements, with its sign."""
        kind: Any = value.type
        found = dtype_of(kind.element_type)
        if value in self.tensors:
            return self.tensors[value].dtype
        owner: Any = value.owner
        own: Any = owner.attributes.get(DTYPE) if isinstance(owner, Operation) else None
        if own is None:
            return found
        return signed_like(found, {DTYPE: own.data[list(owner.results).index(value)]})

    def copies(self, returned: func.ReturnOp) -> None:
        """Add copies into results that are arguments, or are returned twice."""
        for value, buffer in self.outputs:
            axes = [IterVar(Range.from_extent(e), Var(f"v{n}", self.index)) for n, e in enumerate(buffer.shape)]
            indices = tuple([a.var for a in axes])
            store = BufferStore(buffer, self.element(value, indices), indices)
            self.nests.append(self.nest(axes, [(f"{buffer.name}_copy", store, None)], {}))

    # tensors

    def content(self, value: SSAValue) -> Content:
        """Returns what a tensor is."""
        if value not in self.tensors:
            raise MlirError(f"{self.where}: a tensor of type {value.type} is read before it is made")
        return self.tensors[value]

    def element(self, value: SSAValue, indices: Sequence[Expr]) -> Expr:
        """Returns an element of a tensor."""
        what = self.content(value)
        if isinstance(what, Buffer):
            return BufferLoad(what, tuple(indices))
        if isinstance(what, InitialTensor):
            return substitute(what.value, dict(zip(what.axes, indices, strict=True)))
        if what.value is None:
            raise MlirError(f"{self.where}: an element of tensor.empty is read")
        return what.value

    def new_buffer(self, result: SSAValue, shape: tuple[Expr, ...], dtype: DType) -> Buffer:
        """Returns the buffer of a result, a parameter where the function returns it."""
        buffer = self.results.get(result)
        if buffer is None:
            buffer = Buffer(self.arguments.name(result, "T"), shape, dtype)
            self.allocated.append(buffer)
        self.tensors[result] = buffer
        return buffer

    def block_name(self, wish: str) -> str:
        out, n = wish, 1
        while out in self.names:
            out, n = f"{wish}_{n}", n + 1
        self.names.add(out)
        return out

    # operations

    def fill(self, op: FillOp) -> None:
        (value,), (out,) = op.inputs, op.outputs
        start = self.content(out)
        dtype = start.dtype if DTYPE not in op.attributes else self.dtype_of(op.results[0])
        number = self.values.value(value)
        if isinstance(number, (IntImm, FloatImm)):
            number = const(number.value, dtype)
        result = op.results[0]
        if result not in self.results and all(_starts(use.operation, result) for use in result.uses):
            self.tensors[result] = Empty(start.shape, dtype, number)
            return
        buffer = self.new_buffer(result, start.shape, dtype)
        axes = [IterVar(Range.from_extent(e), Var(f"v_i{n}", e.dtype)) for n, e in enumerate(start.shape)]
        store = BufferStore(buffer, number, tuple([a.var for a in axes]))
        self.nests.append(self.nest(axes, [(buffer.name, store, None)], self.annotations(op)))

    def annotations(self, op: Operation) -> dict[str, Any]:
        given = op.attributes.get(ANNOTATIONS)
        return {} if given is None else plain_value(given)

    def structured(self, op: Any) -> None:
        reader = _Operation(self, op)
        if INIT in op.attributes:
            axes, value = reader.start()
            out = self.content(op.outputs[0])
            self.tensors[op.results[0]] = InitialTensor(out.shape, out.dtype, axes, value)
            return
        stores = reader.read()
        self.nests.append(self.nest(reader.axes, stores, self.annotations(op)))

    def nest(
        self, axes: list[IterVar], stores: list[tuple[str, Stmt, Stmt | None]], annotations: dict[str, Any]
    ) -> Stmt:
        """Returns the loops over ``axes`` around a block for each of ``stores``: its name, its body and its init."""
        loops = [Var(a.var.name.removeprefix("v_"), a.var.dtype) for a in axes]
        blocks = []
        for n, (name, body, init) in enumerate(stores):
            fresh = {a.var: Var(a.var.name, a.var.dtype) for a in axes} if n else {}
            own = tuple([IterVar(a.dom, fresh.get(a.var, a.var), a.kind) for a in axes])
            body, init = substitute(body, fresh), None if init is None else substitute(init, fresh)
            values: tuple[Expr, ...] = tuple(loops)
            if not own:
                zero = const(0)
                own, values = (IterVar(Range(zero, const(1)), Var("vi")),), (zero,)
            reads, writes = access_regions(body, init)
            block = Block(own, reads, writes, self.block_name(name), body, init, (), (), annotations)
            blocks.append(BlockRealize(values, const(True, "bool"), block))
        out = seq(*blocks)
        for loop, axis in reversed(list(zip(loops, axes, strict=True))):
            out = For(loop, axis.dom.min, axis.dom.extent, "serial", out)
        return out


def _starts(op: Operation, value: SSAValue) -> bool:
    """Returns whether an operation only begins a reduction with a tensor."""
    if not isinstance(op, LinalgStructuredOperation) or isinstance(op, FillOp) or value in op.inputs:
        return False
    return any(t.data is IteratorType.REDUCTION for t in op.get_iterator_types().data)  # type: ignore[attr-defined]


class _Operation:
    """One operation of linalg: its axes, and what its body stores."""

    def __init__(self, function: _LinalgReader, op: Any) -> None:
        self.function, self.op = function, op
        self.maps = [a.data for a in op.get_indexing_maps().data]
        self.kinds = [t.data for t in op.get_iterator_types().data]
        self.operands = [*op.inputs, *op.outputs]
        extents = self.extents()
        starts: Any = op.attributes.get(STARTS)
        self.starts = [0] * len(self.kinds) if starts is None else [int(n) for n in starts.get_values()]
        self.axes: list[IterVar] = []
        names = {i.dim.value.data: i.result.name_hint for i in op.body.block.ops if isinstance(i, IndexOp)}
        for n, (kind, extent, start) in enumerate(zip(self.kinds, extents, self.starts, strict=True)):
            if kind not in (IteratorType.PARALLEL, IteratorType.REDUCTION):
                raise function.values.refuse(op, f"an iterator of the kind {kind.value}")
            what = IterVar.SPATIAL if kind is IteratorType.PARALLEL else IterVar.REDUCE
            var = Var(names.get(n) or f"v_i{n}", extent.dtype)
            self.axes.append(IterVar(Range(const(start, extent.dtype), extent), var, what))
        self.dims: list[Expr] = [
            a.var if start == 0 else Sub(a.var, const(start, a.var.dtype))
            for a, start in zip(self.axes, self.starts, strict=True)
        ]

    def extents(self) -> list[Expr]:
        found: dict[int, Expr] = {}
        outs = len(self.operands) - len(self.op.outputs)
        for n in [*range(outs, len(self.operands)), *range(outs)]:
            if isinstance(self.operands[n].type, B.TensorType):
                shape = self.function.content(self.operands[n]).shape
                for e, size in zip(self.maps[n].results, shape, strict=True):
                    dim = plain_dim(e)
                    if dim is not None:
                        found.setdefault(dim, size)
        missing = [n for n in range(len(self.kinds)) if n not in found]
        if missing:
            raise self.function.values.refuse(self.op, f"no operand says how far loop {missing[0]} runs")
        return [found[n] for n in range(len(self.kinds))]

    def indices(self, n: int) -> tuple[Expr, ...]:
        return evaluated(self.maps[n], self.dims, (), self.function.index)

    def values(self, accumulators: dict[int, Expr]) -> list[Expr]:
        """Returns what the body yields; ``accumulators`` are the results so far, by operand."""
        known = dict(self.function.values.known)
        for n, (arg, operand) in enumerate(zip(self.op.body.block.args, self.operands, strict=True)):
            if not arg.uses:
                continue
            if n in accumulators:
                known[arg] = accumulators[n]
            elif isinstance(operand.type, B.TensorType):
                known[arg] = self.function.element(operand, self.indices(n))
            else:
                known[arg] = self.function.values.value(operand)
        rules = {**self.function.values.rules, IndexOp: lambda r, op: self.dims[op.dim.value.data]}
        reader = ValueReader(known, rules, self.function.index, self.function.where)
        last = self.op.body.block.last_op
        values = [reader.value(v) for v in last.operands]
        hidden = isinstance(self.op, (NamedOperation, ReduceOp))
        return [_result_first(v, set(accumulators.values())) if hidden else v for v in values]

    def start(self) -> tuple[tuple[Var, ...], Expr]:
        return tuple([a.var for a in self.axes]), self.values({})[0]

    def read(self) -> list[tuple[str, Stmt, Stmt | None]]:
        """Returns the blocks of the operation: names, bodies, inits."""
        function, first = self.function, len(self.op.inputs)
        reduces = IteratorType.REDUCTION in self.kinds
        if not self.op.results:
            raise function.values.refuse(self.op, "on memory; read it by loops")
        outs, inits = [], []
        accumulators: dict[int, Expr] = {}
        for n, result in enumerate(self.op.results, first):
            content = function.content(self.operands[n])
            dtype = function.dtype_of(result) if DTYPE in self.op.attributes else content.dtype
            indices = self.indices(n)
            buffer = function.new_buffer(result, tuple(content.shape), dtype)
            outs.append((buffer, indices))
            if reduces:
                accumulators[n] = BufferLoad(buffer, indices)
                starts_from_nothing = isinstance(content, Empty) and content.value is None
                begin = None if starts_from_nothing else self.function.element(self.operands[n], indices)
                inits.append(None if begin is None else BufferStore(buffer, coerced(begin, dtype), indices))
        values = self.values(accumulators)
        values = [v if v.dtype == b.dtype else coerced(v, b.dtype) for v, (b, _) in zip(values, outs, strict=True)]
        stores = [BufferStore(b, v, indices) for v, (b, indices) in zip(values, outs, strict=True)]
        if not reduces:
            return [(b.name, store, None) for store, (b, _) in zip(stores, outs, strict=True)]
        init = None if any(i is None for i in inits) else seq(*inits)
        if len(stores) == 1:
            return [(outs[0][0].name, stores[0], init)]
        temporaries = [Var(f"v_{b.name}", b.dtype) for b, _ in outs]
        body: Stmt = seq(*[s.with_(value=v) for s, v in zip(stores, temporaries, strict=True)])
        for temporary, value in reversed(list(zip(temporaries, values, strict=True))):
            body = LetStmt(temporary, value, body)
        return [(outs[0][0].name, body, init)]


def _result_first(value: Expr, accumulators: set[Expr]) -> Expr:
    """Returns ``result + x`` for ``x + result``, which is how te writes updates. Bodies of named operations have no
    text."""
    if isinstance(value, BinaryOp) and value.b in accumulators and value.a not in accumulators:
        return type(value)(value.b, value.a)
    return value


def _empty(f: _LinalgReader, op: Any) -> None:
    shape = f.sizes_of(op.tensor.type, op.dynamic_sizes)
    f.tensors[op.tensor] = Empty(shape, dtype_of(op.tensor.type.element_type))


def _cast(f: _LinalgReader, op: Any) -> None:
    f.tensors[op.dest] = f.content(op.source)


def _check(f: _LinalgReader, op: Any) -> None:
    f.checks.append((f.values.value(op.arg), op.msg.data))


def _nothing(f: _LinalgReader, op: Any) -> None:
    pass


_OPERATIONS: dict[type[Any], Any] = {
    tensor.EmptyOp: _empty,
    tensor.CastOp: _cast,
    cf.AssertOp: _check,
    func.ReturnOp: _nothing,
}
"""Operations of functions besides those of linalg."""


def _rules_of(f: _LinalgReader) -> dict[type[Any], Any]:
    def size(r: ValueReader, op: Any) -> Expr:
        place = r.read(op.index)
        if not isinstance(place, IntImm):
            raise r.refuse(op, "of a dimension that is not constant")
        return f.content(op.source).shape[place.value]

    def element(r: ValueReader, op: Any) -> Expr:
        return f.element(op.tensor, [r.read(i) for i in op.indices])

    return {tensor.DimOp: size, tensor.ExtractOp: element}


# Finds which sizes of tensors in a function are the same size, from the operations that relate them.
#
# A ``?`` in MLIR's types has no name. An operation of linalg makes sizes equal that one of its loops runs over.

Place = tuple[SSAValue, int]
"""A dimension of a tensor."""


class SizeClasses:
    """The classes of equal sizes in a function: :meth:`find` returns a representative."""

    def __init__(self, function: func.FuncOp) -> None:
        self.parent: dict[Place, Place] = {}
        for op in function.body.block.ops:
            if isinstance(op, LinalgStructuredOperation):
                self._relate(op)
            elif isinstance(op, tensor.EmptyOp):
                self._sources(op)
            elif isinstance(op, tensor.CastOp):
                for n in range(_rank(op.source)):
                    self.join((op.source, n), (op.dest, n))

    def find(self, place: Place) -> Place:
        """Returns the first place of a class."""
        while place in self.parent:
            place = self.parent[place]
        return place

    def join(self, a: Place, b: Place) -> None:
        """Say that two sizes are the same one."""
        first, second = self.find(a), self.find(b)
        if first != second:
            self.parent[second] = first

    def _relate(self, op: LinalgStructuredOperation) -> None:
        maps: Any = op.get_indexing_maps()
        by_dim: dict[int, Place] = {}
        for operand, attr in zip((*op.inputs, *op.outputs), maps.data, strict=False):
            for n, e in enumerate(attr.data.results):
                dim = plain_dim(e)
                if dim is not None and n < _rank(operand):
                    self.join(by_dim.setdefault(dim, (operand, n)), (operand, n))
        for out, result in zip(op.outputs, op.results, strict=False):
            for n in range(_rank(out)):
                self.join((out, n), (result, n))

    def _sources(self, op: tensor.EmptyOp) -> None:
        kind: Any = op.tensor.type
        dynamic = [n for n, size in enumerate(kind.get_shape()) if size == B.DYNAMIC_INDEX]
        for n, size in zip(dynamic, op.dynamic_sizes, strict=False):
            source = size.owner
            if isinstance(source, tensor.DimOp):
                place: Any = getattr(source.index.owner, "value", None)
                if isinstance(place, B.IntegerAttr):
                    self.join((source.source, place.value.data), (op.tensor, n))


def _rank(value: SSAValue) -> int:
    kind = value.type
    return len(kind.get_shape()) if isinstance(kind, B.TensorType) else 0
