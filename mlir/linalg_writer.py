"""This module writes functions as te makes them as ``linalg`` on tensors: one operation for each block.

Reads whose indices are affine become operands with a map; others, and those that a condition guards, become
``tensor.extract`` in the body. A reduction starts from the tensor that its init fills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.dialects import arith, cf, func, tensor
from xdsl.dialects import builtin as B
from xdsl.dialects.linalg import ops as L
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.dialects.linalg.ops import FillOp, GenericOp, IndexOp, YieldOp
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineMap

from ..tir.expr import BufferLoad, Expr, FloatImm, IntImm, IterVar, is_const_int, same
from ..tir.stmt import Buffer, PrimFunc
from ..tir.walk import pre_order
from .block_forms import BlockForm, Result, program_of
from .mlir_error import MlirError
from .mlir_types import (
    DTYPE,
    MlirSignature,
    affine_map,
    attribute,
    dimensions,
    hint,
    is_unsigned,
    mlir_type,
    plain_dim,
    sign_attribute,
    text_attribute,
)
from .operation_table import Operations
from .value_writer import INDEX, ValueWriter
from .wider_operations import BatchMatmulOp, ReduceOp

ANNOTATIONS = "tilewright.annotations"
STARTS = "tilewright.starts"
INIT = "tilewright.init"


def tensor_type(buffer: Buffer) -> B.TensorType:
    """Returns the type of a buffer's tensor."""
    return B.TensorType(mlir_type(buffer.dtype), dimensions(buffer.shape))


def linalg_function(prim: PrimFunc, named: bool = False) -> func.FuncOp:
    """Returns the function on tensors: inputs are arguments, outputs are results. MlirError names what does not fit.

    ``named``: with the named operations of linalg where a block is exactly one.
    """
    return _LinalgWriter(prim, named).write()


class _LinalgWriter:
    """The function that is being written: ``tensors`` has the present value of each buffer."""

    def __init__(self, prim: PrimFunc, named: bool) -> None:
        self.prim, self.named = prim, named
        self.program = program_of(prim)
        self.signature = MlirSignature.of(prim, self._written_first())
        self.tensors: dict[Buffer, SSAValue] = {}
        self.block = Block()
        self.ops = Operations(self.block)
        self.top = ValueWriter(self.ops, {}, self.extract, f"function {prim.name}")

    def _written_first(self) -> dict[Buffer, bool]:
        """Returns for each buffer that is written whether its old content is never needed."""
        read: set[Buffer] = set()
        out: dict[Buffer, bool] = {}
        for form in self.program.blocks:
            loads = [n for e in _expressions(form) for n in pre_order(e) if isinstance(n, BufferLoad)]
            own = {r.buffer for r in form.results if r.init is not None}
            read.update([load.buffer for load in loads if load.buffer not in own])
            for r in form.results:
                out.setdefault(r.buffer, r.buffer not in read)
        return out

    def write(self) -> func.FuncOp:
        sig = self.signature
        for n, param in enumerate(sig.arguments):
            kind = tensor_type(param) if isinstance(param, Buffer) else mlir_type(param.dtype)
            value = hint(self.block.insert_arg(kind, n), param.name)
            if isinstance(param, Buffer):
                self.tensors[param] = value
            else:
                self.top.vars[param] = value
        for var, (buffer, dim) in sig.sizes.items():
            place = self.ops.constant(dim, INDEX)
            self.top.vars[var] = hint(self.ops.add(tensor.DimOp(self.tensors[buffer], place)), var.name)
        for check in self.program.checks:
            self.block.add_op(cf.AssertOp(self.top.value(check.condition), text_attribute(check.message)))
        for form in self.program.blocks:
            self.write_block(form)
        missing = [b.name for b in sig.results if b not in self.tensors]
        if missing:
            raise MlirError(f"function {self.prim.name}: nothing writes {', '.join(missing)}")
        results = [self.tensors[b] for b in sig.results]
        self.block.add_op(func.ReturnOp(*results))
        kinds = B.FunctionType.from_lists([a.type for a in self.block.args], [r.type for r in results])
        out = func.FuncOp(self.prim.name, kinds, Region(self.block))
        sig.describe(out)
        return out

    def extract(self, w: ValueWriter, load: BufferLoad) -> SSAValue:
        """Returns a single element."""
        if load.predicate is not None or load.dtype.lanes > 1:
            raise w.refuse(f"a vector in `{load}`")
        source = self.current(load.buffer, w.where)
        return w.ops.add(tensor.ExtractOp(source, [w.index(i) for i in load.indices], mlir_type(load.dtype)))

    def current(self, buffer: Buffer, where: str) -> SSAValue:
        """Returns the tensor that a buffer holds now."""
        if buffer not in self.tensors:
            raise MlirError(f"{where}: {buffer.name} is read before it is written")
        return self.tensors[buffer]

    def empty(self, shape: Sequence[Expr], kind: Attribute) -> SSAValue:
        """Returns a tensor without content."""
        sizes = [self.top.index(e) for e in shape if not isinstance(e, IntImm)]
        return self.ops.add(tensor.EmptyOp(sizes, B.TensorType(kind, dimensions(tuple(shape)))))

    # blocks

    def write_block(self, form: BlockForm) -> None:
        where = f"block {form.name}"
        for r in form.results:
            self.check_written(r, form, where)
        constant = form.results[0].value
        if len(form.results) == 1 and isinstance(constant, (IntImm, FloatImm)) and form.results[0].init is None:
            r = form.results[0]
            outs = [self.empty(r.buffer.shape, mlir_type(r.buffer.dtype))]
            op = self.fill(r.value, outs[0])
        else:
            outs = [self.start(r, form) for r in form.results]
            op = _Body(self, form, outs).write()
            op = self.in_its_name(op, form)
        if form.annotations:
            op.attributes[ANNOTATIONS] = attribute(form.annotations)
        unsigned = [r.buffer.dtype for r in form.results if is_unsigned(r.buffer.dtype)]
        if unsigned:
            op.attributes[DTYPE] = B.ArrayAttr([sign_attribute(r.buffer.dtype) for r in form.results])
        for r, value in zip(form.results, op.results, strict=True):
            self.tensors[r.buffer] = hint(value, r.buffer.name)

    def in_its_name(self, op: GenericOp, form: BlockForm) -> Any:
        """Returns the named operation in place of a generic one, where it is one that says all of the block."""
        plain = not form.annotations and not any(is_unsigned(r.buffer.dtype) for r in form.results)
        made = named_form(op) if self.named and plain and STARTS not in op.attributes else None
        if made is None:
            return op
        op.detach()
        self.block.add_op(made)
        return made

    def fill(self, value: Expr, into: SSAValue) -> FillOp:
        op = FillOp([self.top.value(value)], [into])
        self.block.add_op(op)
        return op

    def check_written(self, r: Result, form: BlockForm, where: str) -> None:
        """Raise MlirError unless a result is written as a whole, at the spatial axes in order."""
        spatial = [a for a in form.axes if a.kind == IterVar.SPATIAL]
        whole = len(spatial) == len(r.indices) == len(r.buffer.shape) and all(
            index is axis.var and is_const_int(axis.dom.min, 0) and same(axis.dom.extent, extent)
            for index, axis, extent in zip(r.indices, spatial, r.buffer.shape, strict=True)
        )
        if not whole:
            raise MlirError(f"{where} writes parts of {r.buffer.name}; linalg writes whole tensors, form='loops' parts")

    def start(self, r: Result, form: BlockForm) -> SSAValue:
        """Returns the tensor that a result begins with."""
        if r.init is None:
            if r.buffer in self.tensors and _reads(form, r.buffer):
                return self.tensors[r.buffer]
            return self.empty(r.buffer.shape, mlir_type(r.buffer.dtype))
        empty = self.empty(r.buffer.shape, mlir_type(r.buffer.dtype))
        if isinstance(r.init, (IntImm, FloatImm)):
            return self.fill(r.init, empty).results[0]
        spatial = tuple([a for a in form.axes if a.kind == IterVar.SPATIAL])
        first = BlockForm(f"{form.name}'s init", spatial, (), (Result(r.buffer, r.indices, r.init, None),), {})
        op = _Body(self, first, [empty]).write()
        op.attributes[INIT] = B.UnitAttr()
        return op.results[0]


def _expressions(form: BlockForm) -> list[Expr]:
    inits = [r.init for r in form.results if r.init is not None]
    return [*[value for _, value in form.lets], *[r.value for r in form.results], *inits]


def _reads(form: BlockForm, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferLoad) and n.buffer is buffer for e in _expressions(form) for n in pre_order(e))


class _Body:
    """The operation of one block: operands with their maps are added as the body reads them."""

    def __init__(self, function: _LinalgWriter, form: BlockForm, outs: list[SSAValue]) -> None:
        self.function, self.form, self.outs = function, form, outs
        self.dims = [axis.var for axis in form.axes]
        self.inputs: list[SSAValue] = []
        self.maps: list[AffineMap] = []
        self.block = Block(arg_types=[out.type.element_type for out in outs])  # type: ignore[attr-defined]
        self.read: dict[tuple[Buffer, AffineMap], SSAValue] = {}
        self.out_maps = [self.map_of(r.indices) for r in form.results]
        self.accumulators = {r.buffer: arg for r, arg in zip(form.results, self.block.args, strict=True)}
        self.writer = ValueWriter(Operations(self.block), dict(function.top.vars), self.load, f"block {form.name}")
        self.writer.is_free = self.is_free
        for n, axis in enumerate(form.axes):
            index = hint(self.writer.ops.add(IndexOp(n)), axis.var.name)
            if not is_const_int(axis.dom.min, 0):
                start = self.writer.index(axis.dom.min)
                index = self.writer.ops.add(arith.AddiOp(index, start))
            self.writer.vars[axis.var] = index

    def map_of(self, indices: Sequence[Expr]) -> AffineMap:
        found = affine_map(indices, self.dims)
        assert found is not None
        return found

    def write(self) -> GenericOp:
        form = self.form
        for var, value in form.lets:
            self.writer.vars[var] = hint(self.writer.value(value), var.name)
        values = [self.writer.value(r.value) for r in form.results]
        self.block.add_op(YieldOp(*values))
        for op in reversed(list(self.block.ops)):
            if not any(r.has_uses() if hasattr(r, "has_uses") else r.uses for r in op.results) and op.results:
                op.detach()
                op.erase()
        self.cover()
        kinds = {IterVar.SPATIAL: IteratorTypeAttr.parallel(), IterVar.REDUCE: IteratorTypeAttr.reduction()}
        op = GenericOp(
            self.inputs,
            self.outs,
            Region(self.block),
            [B.AffineMapAttr(m) for m in (*self.maps, *self.out_maps)],
            [kinds[a.kind] for a in form.axes],
            [out.type for out in self.outs],
        )
        if any(not is_const_int(a.dom.min, 0) for a in form.axes):
            op.attributes[STARTS] = B.DenseArrayBase.from_list(B.i64, [a.dom.min.value for a in form.axes])  # type: ignore[attr-defined]
        self.function.block.add_op(op)
        return op

    def load(self, w: ValueWriter, load: BufferLoad) -> SSAValue:
        """Returns an element: of the result so far, of an operand, or by itself."""
        own = next((r for r in self.form.results if r.buffer is load.buffer), None)
        if own is not None and all(map(same, load.indices, own.indices)):
            return self.accumulators[load.buffer]
        if own is not None and own.init is not None:
            raise MlirError(f"{w.where} reads {load.buffer.name} elsewhere while it is written; form='loops' writes it")
        found = affine_map(load.indices, self.dims)
        if found is None or load.predicate is not None or not self.fits(found, load.buffer):
            return self.function.extract(w, load)
        key = (load.buffer, found)
        if key not in self.read:
            if w is not self.writer and not self.total(found):
                return self.function.extract(w, load)
            source = self.function.current(load.buffer, w.where)
            arg = self.block.insert_arg(mlir_type(load.dtype), len(self.inputs))
            self.inputs.append(source)
            self.maps.append(found)
            self.read[key] = hint(arg, load.buffer.name)
        return self.read[key]

    def fits(self, found: AffineMap, buffer: Buffer) -> bool:
        """Returns whether an operand has the sizes that linalg asks for: those of the axes that index it alone."""
        for e, extent in zip(found.results, buffer.shape, strict=True):
            dim = plain_dim(e)
            if dim is not None and not (same(self.form.axes[dim].dom.extent, extent) and is_const_int(self.form.axes[dim].dom.min, 0)):  # fmt: skip
                return False
        return all(is_const_int(self.form.axes[d].dom.min, 0) for d in found.used_dims())

    def total(self, found: AffineMap) -> bool:
        """Returns whether a read is inside its tensor at every point: an axis alone, or nothing, indexes each dimension."""
        return all(plain_dim(e) is not None for e in found.results)

    def is_free(self, load: BufferLoad) -> bool:
        """Returns whether a read may be done before it is known that it is needed."""
        if any(r.buffer is load.buffer for r in self.form.results):
            return True
        found = affine_map(load.indices, self.dims)
        return found is not None and self.fits(found, load.buffer) and self.total(found)

    def cover(self) -> None:
        """Add an operand without content whose sizes are the extents that no other operand gives."""
        found = {plain_dim(e) for m in (*self.maps, *self.out_maps) for e in m.results}
        missing = [n for n in range(len(self.dims)) if n not in found]
        if missing:
            shape = [self.form.axes[n].dom.extent for n in missing]
            kind = self.outs[0].type.element_type  # type: ignore[attr-defined]
            self.block.insert_arg(kind, len(self.inputs))
            self.inputs.append(self.function.empty(shape, kind))
            self.maps.append(self.map_of([self.dims[n] for n in missing]))


# Finds the named operation of linalg that means exactly what a ``linalg.generic`` does.
#
# A candidate is built from the operands, and taken when its maps, its loops and its body are those of the generic one.

_COMMUTATIVE = (
    "addi",
    "addf",
    "muli",
    "mulf",
    "maximumf",
    "minimumf",
    "maxsi",
    "minsi",
    "maxui",
    "minui",
    "andi",
    "ori",
)


def named_form(op: L.GenericOp) -> Any:
    """Returns a named operation with the same meaning, not yet in a block, or None."""
    if len(op.outputs) != 1 or not op.inputs:
        return None
    for make in _MAKERS:
        made = make(op)
        if made is not None and _same(made, op):
            return made
    return None


def _same(a: Any, b: L.GenericOp) -> bool:
    if a.get_indexing_maps() != b.get_indexing_maps() or a.get_iterator_types() != b.get_iterator_types():
        return False
    ends = [op.body.block.last_op.operands for op in (a, b)]
    return len(ends[0]) == len(ends[1]) and all(map(_equal, *ends))


def _equal(a: SSAValue, b: SSAValue) -> bool:
    """Returns whether two values of bodies are computed alike; operands of commutative operations in any order."""
    if isinstance(a.owner, Block) or isinstance(b.owner, Block):
        return isinstance(a.owner, Block) and isinstance(b.owner, Block) and a.index == b.index  # type: ignore[attr-defined]
    left, right = a.owner, b.owner
    if left.name != right.name or a.type != b.type or len(left.operands) != len(right.operands):
        return False
    if all(map(_equal, left.operands, right.operands)):
        return True
    swapped = left.name.removeprefix("arith.") in _COMMUTATIVE
    return swapped and all(map(_equal, left.operands, reversed(right.operands)))


def _element_types(op: L.GenericOp) -> set[Any]:
    return {v.type.element_type for v in op.operands if isinstance(v.type, B.TensorType)}


def _product(op: L.GenericOp) -> Any:
    if len(op.inputs) != 2 or len(_element_types(op)) != 1:
        return None
    rank = len(op.iterator_types.data)
    made = {3: L.MatmulOp, 4: BatchMatmulOp}.get(rank)
    return None if made is None else made(list(op.inputs), list(op.outputs))


def _convolution(kind: type[Any], rows: int, window: int, image: int) -> Callable[[L.GenericOp], Any]:
    """Returns the maker of a convolution. ``rows`` and ``window`` are the first of its two loops over places and over
    the kernel, ``image`` the first of the two dimensions of the image."""

    def make(op: L.GenericOp) -> Any:
        if len(op.inputs) != 2 or len(op.iterator_types.data) != 7:
            return None
        read: AffineMap = op.indexing_maps.data[0].data
        if len(read.results) != 4:
            return None
        steps = [_coefficient(read, image + n, rows + n) for n in range(2)]
        apart = [_coefficient(read, image + n, window + n) for n in range(2)]
        if min(*steps, *apart) < 1 or (len(_element_types(op)) > 1 and not _widens(op)):
            return None
        pairs = {"strides": _pair(steps), "dilations": _pair(apart)}
        return kind(list(op.inputs), list(op.outputs), [o.type for o in op.outputs], **pairs)

    return make


def _widens(op: L.GenericOp) -> bool:
    """Returns whether narrow integers of one type are multiplied."""
    kinds = [v.type.element_type for v in op.operands]  # type: ignore[attr-defined]
    return kinds[0] == kinds[1] and all(isinstance(k, B.IntegerType) for k in kinds)


def _coefficient(map_: AffineMap, result: int, dim: int) -> int:
    e = map_.results[result]
    zero, one = [0] * map_.num_dims, [int(n == dim) for n in range(map_.num_dims)]
    return int(e.eval(one, []) - e.eval(zero, []))


def _pair(numbers: list[int]) -> Any:
    return B.DenseIntElementsAttr.from_list(B.TensorType(B.i64, [2]), numbers)


def _transpose(op: L.GenericOp) -> Any:
    if len(op.inputs) != 1 or op.attributes:
        return None
    dims = [plain_dim(e) for e in op.indexing_maps.data[0].data.results]
    if None in dims or sorted(dims) != list(range(len(op.iterator_types.data))) or dims == sorted(dims):  # type: ignore[type-var]
        return None
    order: Any = B.DenseArrayBase.from_list(B.i64, [dims.index(n) for n in range(len(dims))])
    return L.TransposeOp(op.inputs[0], op.outputs[0], order)


def _reduce(op: L.GenericOp) -> Any:
    kinds = list(op.iterator_types.data)
    if len(op.inputs) != 1 or IteratorTypeAttr.reduction() not in kinds or len(_element_types(op)) != 1:
        return None
    dims = [plain_dim(e) for e in op.indexing_maps.data[0].data.results]
    along = [d for d, n in enumerate(dims) if n is not None and kinds[n] == IteratorTypeAttr.reduction()]
    if None in dims or len(along) != kinds.count(IteratorTypeAttr.reduction()) or len(op.body.block.ops) != 2:
        return None
    region: Region = op.body.clone()
    return ReduceOp.of(op.inputs[0], op.outputs[0], along, region)


_MAKERS: tuple[Callable[[L.GenericOp], Any], ...] = (
    _product,
    _convolution(L.Conv2DNchwFchwOp, 2, 5, 2),
    _convolution(L.Conv2DNhwc_HwcfOp, 1, 4, 1),
    _transpose,
    _reduce,
)
"""What makes a candidate of a generic operation, or None where it cannot mean the same."""
