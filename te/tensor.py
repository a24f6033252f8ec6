"""A tensor is an output of an operation, and expressions read its elements.

An operation is a placeholder, a computation, or a hand-written body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..tir.expr import DType, Expr, IntImm, IterVar, Reduce, convert, shape_text
from ..tir.expr.node import node, nodes
from ..tir.printer_expr import register_printer
from ..tir.stmt import Buffer, Stmt
from ..tir.walk import pre_order

if TYPE_CHECKING:

    class Element(Expr):
        """An element of a tensor, or, when indices are missing, a part to be indexed further."""

        def __getitem__(self, key: Any) -> Element: ...


def _operator(symbol: str) -> Callable[[Any, Any], Any]:
    from .ops.elements import OF_SYMBOLS

    return OF_SYMBOLS[symbol]


class Tensor:
    """A tensor is the ``value_index``-th output of ``op``: it has a shape and a data type, but no memory.

    ``A[i, j]`` (or ``A(i, j)``) is the expression of one element; ``A[i]`` of a matrix is a row, to be indexed further.
    Constant indices are checked here, others when the computation that reads them is made (:mod:`.read_bounds`).
    """

    __slots__ = ("dtype", "op", "shape", "value_index")

    op: Operation
    value_index: int
    shape: tuple[Expr, ...]
    dtype: DType

    def __init__(self, op: Operation, value_index: int, shape: tuple[Expr, ...], dtype: str) -> None:
        self.op, self.value_index, self.shape, self.dtype = op, value_index, shape, DType(dtype)

    @property
    def ndim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    @property
    def name(self) -> str:
        """Returns the operation's name; ``NAME_v0``, ``NAME_v1`` … when it has several outputs."""
        return self.op.name if self.op.num_outputs == 1 else f"{self.op.name}_v{self.value_index}"

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """Returns the spatial axes of the operation that computes it."""
        return self.op.axis

    def __getitem__(self, key: Any) -> Element:
        return _index(self, key if isinstance(key, tuple) else (key,))

    def __call__(self, *indices: Any) -> Expr:
        """Returns the element at ``indices``, one per dimension."""
        if len(indices) != self.ndim:
            raise ValueError(f"{_describe(self)} needs {self.ndim} indices, got {len(indices)}")
        element: Expr = _index(self, indices)
        return element

    def __tir_expr__(self) -> Expr:
        if self.shape:
            raise TypeError(f"{_describe(self)} is a whole tensor where one element is expected; index it")
        return ProducerLoad(self, ())

    def __repr__(self) -> str:
        return f"Tensor({self.name}: {self.dtype}[{shape_text(self.shape)}])"

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(f"{_describe(self)} cannot be iterated over; index it with the axes of a te.compute")

    def __add__(self, other: Any) -> Tensor:
        return _operator("+")(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _operator("+")(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _operator("-")(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _operator("-")(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _operator("*")(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _operator("*")(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _operator("/")(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _operator("/")(other, self)

    def __neg__(self) -> Tensor:
        return _operator("*")(self, -1)

    def astype(self, dtype: str) -> Any:
        """Returns the tensor converted to ``dtype``, a stage of its own."""
        from .ops.conversions import cast

        return cast(self, dtype)


class TensorSlice:
    """A tensor slice is a tensor with its first indices given: ``A[i]``, of which ``A[i][j]`` makes an element."""

    __slots__ = ("indices", "tensor")

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor, self.indices = tensor, indices

    def __repr__(self) -> str:
        return f"TensorSlice({self.tensor.name}[{', '.join([str(i) for i in self.indices])}])"

    @property
    def dtype(self) -> DType:
        """Returns the elements' data type."""
        return self.tensor.dtype

    def __getitem__(self, key: Any) -> Any:
        return _index(self.tensor, (*self.indices, *(key if isinstance(key, tuple) else (key,))))

    def __tir_expr__(self, *_: Any) -> Any:
        given = f"{len(self.indices)} indices where an element is expected; it needs {self.tensor.ndim}"
        raise TypeError(f"{_describe(self.tensor)} is indexed with {given}")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __tir_expr__
    __lt__ = __le__ = __gt__ = __ge__ = __neg__ = astype = __tir_expr__


@node
class ProducerLoad(Expr):
    """An element of a tensor; ``create_prim_func`` turns it into a load from the tensor's buffer."""

    producer: Tensor
    indices: tuple[Expr, ...]

    parts = nodes("indices")

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        return self.producer.dtype


def _describe(tensor: Tensor) -> str:
    return f"tensor {tensor.name} of shape ({shape_text(tensor.shape)})"


def _index(tensor: Tensor, items: tuple[Any, ...]) -> Any:
    if len(items) > tensor.ndim:
        raise ValueError(f"{_describe(tensor)} needs {tensor.ndim} indices, got {len(items)}")
    if len(items) < tensor.ndim:
        return TensorSlice(tensor, items)
    indices = tuple([_one_index(tensor, item) for item in items])
    for dim, (index, extent) in enumerate(zip(indices, tensor.shape, strict=True)):
        if isinstance(index, IntImm) and (
            index.value < 0 or (isinstance(extent, IntImm) and index.value >= extent.value)
        ):
            raise IndexError(f"{_describe(tensor)}: index {index.value} is outside dimension {dim}")
    return ProducerLoad(tensor, indices)


def _one_index(tensor: Tensor, item: Any) -> Expr:
    if isinstance(item, slice):
        raise TypeError(f"{_describe(tensor)}: slices do not give an element; index with axes, or use te.ops for parts")
    index = convert(item)
    if not index.dtype.is_int:
        raise TypeError(f"{_describe(tensor)}: an index is {index.dtype}, not an integer")
    return index


register_printer(
    ProducerLoad, lambda e, p: f"{e.producer.name}[{', '.join([p.text(i, 0) for i in e.indices]) or '()'}]"
)


Requirement = tuple[Expr, str]
"""A condition on sizes that has to hold at the call, and what an error says where it does not."""


class Operation:
    """The base class of operations: a name, a tag and attributes for schedules, and the outputs. ``requires``: what an
    operation takes for granted of symbolic sizes, which is checked at the call."""

    __slots__ = ("attrs", "name", "outputs", "requires", "tag")

    name: str
    tag: str
    attrs: Mapping[str, Any]
    outputs: tuple[Tensor, ...]
    requires: tuple[Requirement, ...]

    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()

    def __init__(
        self,
        name: str,
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        requires: Sequence[Requirement] = (),
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"an operation's name is a string, not {name!r}")
        self.name, self.tag, self.attrs, self.requires = name, tag, dict(attrs or {}), tuple(requires)

    @property
    def num_outputs(self) -> int:
        """Returns the number of output tensors."""
        return len(self.outputs)

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that it reads, in the order of first use."""
        return ()

    def output(self, index: int) -> Tensor:
        """Returns the ``index``-th tensor it makes."""
        return self.outputs[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class PlaceholderOp(Operation):
    """This operation is an input of the program."""

    __slots__ = ()

    def __init__(self, name: str, shape: tuple[Expr, ...], dtype: str) -> None:
        Operation.__init__(self, name)
        self.outputs = (Tensor(self, 0, shape, dtype),)


class ComputeOp(Operation):
    """This operation gives elements by expressions over ``axis``; ``body`` has one expression per output.

    When the body is a reduction, every output has the same :class:`Reduce` but for its ``value_index``.
    """

    __slots__ = ("axis", "body", "reduce_axis")

    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: tuple[Expr, ...],
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        requires: Sequence[Requirement] = (),
    ) -> None:
        Operation.__init__(self, name, tag, attrs, requires)
        self.axis, self.body = axis, body
        first = body[0]
        self.reduce_axis = first.axis if isinstance(first, Reduce) else ()
        shape = tuple([iv.dom.extent for iv in axis])
        self.outputs = tuple([Tensor(self, i, shape, e.dtype) for i, e in enumerate(body)])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors that the body reads, in the order of first use."""
        domains = [end for iv in self.reduce_axis for end in (iv.dom.min, iv.dom.extent)]
        return tuple(dict.fromkeys(load.producer for e in (*self.body, *domains) for load in _loads(e)))


class ExternOp(Operation):
    """This operation makes tensors by a hand-written statement over buffers."""

    __slots__ = ("body", "input_placeholders", "inputs", "output_placeholders")

    def __init__(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        input_placeholders: tuple[Buffer, ...],
        output_placeholders: tuple[Buffer, ...],
        body: Stmt,
        tag: str = "",
        attrs: Mapping[str, Any] | None = None,
        requires: Sequence[Requirement] = (),
    ) -> None:
        Operation.__init__(self, name, tag, attrs, requires)
        self.inputs: tuple[Tensor, ...] = inputs
        self.input_placeholders: tuple[Buffer, ...] = input_placeholders
        self.output_placeholders: tuple[Buffer, ...] = output_placeholders
        self.body: Stmt = body
        self.outputs = tuple([Tensor(self, i, b.shape, b.dtype) for i, b in enumerate(output_placeholders)])

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """Returns the tensors whose buffers the body may read."""
        return self.inputs


def _loads(e: Expr) -> Iterator[ProducerLoad]:
    for n in pre_order(e):
        if isinstance(n, ProducerLoad):
            yield n


def ordered_operations(ops: Sequence[Operation], stop: set[Operation] | None = None) -> list[Operation]:
    """Returns ``ops`` and all they depend on, producers first; without operations that those of ``stop`` depend on."""
    placed: dict[Operation, None] = {}
    for op in ops:
        pending = [op]
        while pending:
            inputs = () if stop and pending[-1] in stop else pending[-1].input_tensors
            missing = [t.op for t in inputs if t.op not in placed]
            if missing:
                pending.append(missing[0])
            else:
                placed.setdefault(pending.pop())
    return list(placed)
