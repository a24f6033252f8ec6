"""This module divides a model that works on texts: steps that Python computes, a model of numbers, steps after it.

A node with texts belongs to the steps before the model of numbers when it needs nothing that this computes, otherwise
to those after it. A node of numbers that needs a result of the latter is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ....graph.graph import Graph, Value
from ....graph.host_graph import TEXT, HostGraph, HostStep, as_texts
from ..call import OnnxError, shown
from ..model_file import attributes, in_order, label_of, names_read
from ..types import dtype_of, number_of
from .text_operators import TEXT_OPERATORS, Shape, TextCall, TextOperator

_STRING = 8
"""ONNX's number of the data type of texts."""

Type = tuple[str, Shape]
"""A data type and a shape."""

Tensor = Callable[[Any, str], tuple[Any, str]]
"""Reads a tensor of numbers, which the text names in errors: its array and its data type."""


def row_of(node: Any) -> TextOperator | None:
    """Returns the row of a node's operator; None where texts do not go into it."""
    return TEXT_OPERATORS.get(("" if node.domain == "ai.onnx" else node.domain, node.op_type))


def has_text(graph: Any) -> bool:
    """Returns whether texts go into a model, or it makes some."""
    if any(i.type.tensor_type.elem_type == _STRING for i in (*graph.input, *graph.output)):
        return True
    if any(t.data_type == _STRING for t in graph.initializer):
        return True
    return any(_makes_texts(n) or ((row := row_of(n)) is not None and row.always) for n in graph.node)


def _makes_texts(node: Any) -> bool:
    """Returns whether a node gives texts from what are none: a constant, or a conversion."""
    if node.op_type == "Constant":
        return any(a.name in ("value_string", "value_strings") or a.t.data_type == _STRING for a in node.attribute)
    return node.op_type == "Cast" and any(a.name == "to" and a.i == _STRING for a in node.attribute)


@dataclass(frozen=True)
class TextSplit:
    """The parts of a model: ``numbers`` is the model between the steps, None when Python computes all of it."""

    numbers: Any
    splitter: _Splitter

    def around(self, graph: Graph | None, inputs: Sequence[str]) -> HostGraph:
        """Returns the whole; ``graph`` is what ``numbers`` was read as, with its ``inputs`` by their names there."""
        s = self.splitter
        outputs = () if self.numbers is None else tuple([o.name for o in self.numbers.graph.output])
        if graph is not None:
            s.types.update({n: (v.dtype, v.shape) for n, v in zip(outputs, graph.outputs, strict=True)})
        after = tuple([s.step(node) for node in s.after])
        body = s.proto.graph
        free = [i.name for i in body.input if i.name not in s.constants]
        wanted = {*[name for step in (*s.before, *after) for name in step.inputs], *[o.name for o in body.output]}
        constants = {name: data for name, data in s.constants.items() if name in wanted}
        return HostGraph(
            s.name or body.name or "model", s.values(free), s.values([o.name for o in body.output]), constants,
            tuple(s.before), graph, tuple(inputs), outputs, after,
        )  # fmt: skip


def split_text(onnx: Any, proto: Any, given: Any, tensor: Tensor) -> TextSplit | None:
    """Returns the parts of a model; None when there are no texts. ``given``: the shapes, constants and the name that
    the caller says."""
    if not has_text(proto.graph):
        return None
    splitter = _Splitter(onnx, proto, given, tensor)
    for node in in_order(proto.graph.node, splitter.types):
        splitter.place(node)
    return TextSplit(splitter.numbers(), splitter)


class _Splitter:
    """Goes through the nodes once. ``types`` has what is known of values outside of the model of numbers."""

    def __init__(self, onnx: Any, proto: Any, given: Any, tensor: Tensor) -> None:
        self.onnx, self.proto, self.tensor, self.name, self.shapes = onnx, proto, tensor, given.name, given.shapes
        self.types: dict[str, Type] = {}
        self.texts: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.computed: dict[str, Any] = {}  # what the model of numbers gives, or a step after it: the node
        self.before: list[HostStep] = []
        self.middle: list[Any] = []
        self.after: list[Any] = []
        self.late: set[str] = set()
        body = proto.graph
        declared = [i for i in (*body.value_info, *body.output) if i.type.HasField("tensor_type")]
        self.declared = {i.name: _dims(i) for i in declared}
        for t in body.initializer:
            self.constant(t.name, *self.read(t, f"the tensor {shown(t.name)}"))
        for item in body.input:
            if item.name in given.constants:
                data = np.asarray(given.constants[item.name])
                is_text = item.type.tensor_type.elem_type == _STRING
                self.constant(item.name, as_texts(data) if is_text else data, TEXT if is_text else data.dtype.name)
            elif item.name not in self.constants:
                self.enter(item.name, self.declared_input(item))

    def read(self, tensor: Any, label: str) -> tuple[Any, str]:
        """Returns the array of a tensor, and its data type."""
        if tensor.data_type != _STRING:
            return self.tensor(tensor, label)
        shape = tuple(tensor.dims)
        if any(d < 0 for d in shape) or int(np.prod(shape, dtype=object)) != len(tensor.string_data):
            raise OnnxError(f"{label} of the shape {shape} has {len(tensor.string_data)} texts")
        return as_texts(np.array(list(tensor.string_data), object).reshape(shape)), TEXT

    def constant(self, name: str, data: Any, dtype: str) -> None:
        self.constants[name] = data
        self.enter(name, (dtype, data.shape))

    def enter(self, name: str, kind: Type) -> None:
        self.new(name)
        self.types[name] = kind
        if kind[0] == TEXT:
            self.texts.add(name)

    def new(self, name: str) -> None:
        """Raise OnnxError for a name that a value has already."""
        if name in self.types or name in self.computed:
            raise OnnxError(f"{shown(name)} is provided twice")

    def declared_input(self, item: Any) -> Type:
        label, tensor = f"the input {shown(item.name)}", item.type.tensor_type
        if not item.type.HasField("tensor_type"):
            raise OnnxError(f"{label} is a {item.type.WhichOneof('value')}; only tensors are supported")
        dtype = TEXT if tensor.elem_type == _STRING else dtype_of(tensor.elem_type, label)
        dims = self.shapes.get(item.name) or _dims(item)
        if dims is None:
            raise OnnxError(f"{label} has no shape; give one with shapes={{{shown(item.name)}: …}}")
        return dtype, tuple(dims)

    def place(self, node: Any) -> None:
        """Put a node into its part."""
        reads, row, label = set(names_read(node)), row_of(node), label_of(node)
        absent = [n for n in node.input if n and n not in self.types and n not in self.computed]
        if absent:
            raise OnnxError(f"{label} reads {shown(absent[0])}, which nothing provides")
        if node.op_type == "Constant":
            return self.constant_node(node, label)
        texts = sorted(reads & self.texts)
        if not texts and not _makes_texts(node) and not (row is not None and row.always):
            return self.place_numbers(node, reads, label)
        if row is None:
            raise OnnxError(f"{label} takes the text {shown(texts[0])}; it works on numbers only")
        if reads & self.computed.keys():
            self.after.append(node)
            call = self.call(node)
            results = zip(node.output, row.dtypes(call), strict=False)
            self.compute(node)
            self.late.update(node.output)
            self.texts.update([name for name, dtype in results if dtype == TEXT])
        else:
            self.before.append(self.step(node))
        return None

    def place_numbers(self, node: Any, reads: set[str], label: str) -> None:
        """Put a node of numbers into the model between the steps."""
        late = sorted(reads & self.late)
        if late:
            maker = label_of(self.computed[late[0]])
            raise OnnxError(
                f"{label} reads {shown(late[0])}, which {maker} makes of texts that are computed from numbers; the steps "
                "that work on texts stand before or after all that is compiled"
            )
        self.middle.append(node)
        self.compute(node)

    def compute(self, node: Any) -> None:
        """Note what a node gives whose results' types are known later."""
        for name in filter(None, node.output):
            self.new(name)
            self.computed[name] = node

    def constant_node(self, node: Any, label: str) -> None:
        (name,) = node.output
        (a,) = node.attribute
        if a.name == "value":
            data, dtype = self.read(a.t, label)
        else:
            found = self.onnx.helper.get_attribute_value(a)
            dtype = {"s": TEXT, "f": "float32", "i": "int64"}.get(a.name.removeprefix("value_")[:1], "")
            if not dtype:
                raise OnnxError(f"{label}: a constant of the kind {a.name} is not supported")
            data = as_texts(np.array(found, object)) if dtype == TEXT else np.asarray(found, dtype)
        self.constant(name, data, dtype)
        if dtype != TEXT:
            self.middle.append(node)

    # steps

    def call(self, node: Any) -> TextCall:
        label = label_of(node)
        found = attributes(self.onnx, node, lambda t: self.read(t, label)[0])
        constants = [self.constants.get(name) for name in node.input]
        return TextCall(node.op_type, label, found, constants, [*node.output])

    def step(self, node: Any) -> HostStep:
        """Returns the step of a node whose inputs' types are known; its results' types are noted."""
        call, row = self.call(node), row_of(node)
        assert row is not None
        names = [name or None for name in node.input]
        if not names or names[0] is None:
            raise OnnxError(f"{call.label}: input 0 is missing")
        types = [None if name is None else self.types[name] for name in names]
        row.check(call, names, [None if t is None else t[0] for t in types])
        try:
            made = [*zip(row.dtypes(call), row.shapes(call, *[t[1] for t in types if t is not None]), strict=False)]
        except OnnxError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {shown(error, quoted=False)}"
            raise OnnxError(f"{call.label}: its inputs and attributes do not fit it ({problem})") from error
        for name, (dtype, shape) in zip(node.output, made, strict=False):
            if name in self.late:
                self.types[name] = dtype, self.told(name, shape)
            elif name:
                self.enter(name, (dtype, self.told(name, shape)))
        return HostStep(
            call.label, call.op, tuple(names), tuple(node.output), call.attributes, partial(_run, row, call)
        )

    def told(self, name: str, shape: Shape) -> Shape:
        """Returns a shape with the sizes that the model says of the value, where the data alone tell them."""
        said = self.shapes.get(name) or self.declared.get(name) or ()
        if len(said) != len(shape):
            return shape
        return tuple([b if isinstance(a, str) else a for a, b in zip(shape, said, strict=True)])

    # the model of numbers

    def numbers(self) -> Any:
        """Returns the model between the steps, or None."""
        body, onnx = self.proto.graph, self.onnx
        wanted = [*[n for node in self.after for n in node.input], *[o.name for o in body.output]]
        absent = [o.name for o in body.output if o.name not in self.types and o.name not in self.computed]
        if absent:
            raise OnnxError(f"the output {shown(absent[0])} is not computed by the model")
        results = [n for n in dict.fromkeys(wanted) if n in self.computed and n not in self.late]
        if not results:
            return None
        reads = {name for node in self.middle for name in names_read(node)}
        part = onnx.ModelProto()
        part.CopyFrom(self.proto)
        for field in (part.graph.node, part.graph.input, part.graph.output, part.graph.initializer):
            del field[:]
        part.graph.node.extend(self.middle)
        part.graph.initializer.extend([t for t in body.initializer if t.data_type != _STRING and t.name in reads])
        part.graph.input.extend([i for i in body.input if i.name in reads and i.name not in self.constants])
        made = {name for step in self.before for name in step.outputs}
        part.graph.input.extend([self.number_input(name) for name in sorted(reads & made)])
        given = [n for n in reads if n in self.constants and any(i.name == n for i in body.input)]
        part.graph.input.extend([self.number_input(name) for name in given])
        part.graph.output.extend([onnx.helper.make_empty_tensor_value_info(name) for name in results])
        return part

    def number_input(self, name: str) -> Any:
        dtype, shape = self.types[name]
        return self.onnx.helper.make_tensor_value_info(name, number_of(dtype), shape)

    def values(self, names: Sequence[str]) -> tuple[Value, ...]:
        return tuple([Value(name, *self.types[name]) for name in names])


def _run(row: TextOperator, call: TextCall, *arrays: Any) -> Sequence[Any]:
    made = row.run(call, *arrays)
    return [np.asarray(m, object) if isinstance(m, str) else m for m in (made if isinstance(made, tuple) else (made,))]


def _dims(item: Any) -> tuple[Any, ...] | None:
    """Returns the shape that a model declares for a value: numbers and names; None where it says none."""
    tensor = item.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return tuple([d.dim_value if d.HasField("dim_value") else d.dim_param or f"{item.name}_{n}" for n, d in enumerate(tensor.shape.dim)])  # fmt: skip
