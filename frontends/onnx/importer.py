"""This module reads a model: node by node, each by its converter, by its value where that is known, or by its body.

Nodes whose inputs are all known while the graph is made (constants, and what is computed from shapes) are evaluated by
ONNX's own reference implementation. An operator without a converter that ONNX defines as a function is replaced by the
body of that function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ... import te
from ...graph.builder import Builder
from ...graph.graph import Graph, GraphError, Value
from ...graph.rewrite import without_unread
from ...graph.verify_graph import verify
from ...tir.expr import to_numpy
from . import control_flow, pooling, products, quantized, recurrent, reductions, shapes, single_elements
from .call import Call, NeedsConstant, OnnxError
from .known_values import computed_dims, evaluate
from .package import load_onnx
from .table import CONVERTERS
from .types import dtype_of

TABLES = (pooling, products, quantized, recurrent, reductions, shapes, single_elements)
"""The modules whose converters are in the table."""

_DEFAULT_DOMAINS = ("", "ai.onnx")
_LARGEST_KNOWN = 1 << 28
"""A constant of more elements than that is not computed while the graph is made."""


class UnsupportedOperators(OnnxError):
    """Raised when operators have no converter; ``operators`` has the names of their nodes by domain and operator."""

    def __init__(self, operators: Mapping[str, Sequence[str]]) -> None:
        self.operators = {name: list(nodes) for name, nodes in operators.items()}
        lines = [f"{name}: {len(nodes)} (first: {nodes[0]})" for name, nodes in self.operators.items()]
        super().__init__(
            "the model uses operators that are not supported: " + "; ".join(lines) + ". "
            "tilewright.frontends.onnx.register_onnx_operator adds one"
        )


def from_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
    name: str = "",
) -> Graph:
    """Returns the graph of an ONNX model: a path, the bytes of a file, or a model in memory.

    ``shapes`` gives inputs another shape than the model says (numbers, or names of symbolic sizes); dimensions that the
    model only names are symbolic. ``constants`` gives inputs a value that is built in. OnnxError for a model that cannot
    be read; :class:`UnsupportedOperators` lists all operators that are missing.
    """
    onnx = load_onnx()
    proto = _loaded(onnx, model)
    reader = _Reader(onnx, proto, dict(shapes or {}), dict(constants or {}), name)
    try:
        return reader.graph()
    except NeedsConstant as error:
        names = reader.sources(error.value)
        hint = f"; it depends on the inputs {', '.join(names)}, which constants= can give" if names else ""
        raise NeedsConstant(f"{error}{hint}", error.value, names) from error
    except GraphError as error:
        raise OnnxError(str(error)) from error


def _loaded(onnx: Any, model: Any) -> Any:
    if isinstance(model, onnx.ModelProto):
        return model
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        path = Path(model)
        if not path.is_file():
            raise OnnxError(f"there is no file {path}")
        return onnx.load(str(path))
    except OnnxError:
        raise
    except Exception as error:  # protobuf's and onnx's own errors have no common class
        raise OnnxError(
            f"{model if not isinstance(model, bytes) else 'the model'} is not a readable ONNX model: {error}"
        ) from error


class _Reader:
    """Reads the nodes of one model into a builder."""

    def __init__(
        self, onnx: Any, proto: Any, given: dict[str, Sequence[Any]], constants: dict[str, Any], name: str
    ) -> None:
        self.onnx, self.proto, self.given, self.constants = onnx, proto, given, constants
        self.opsets = {"" if o.domain in _DEFAULT_DOMAINS else o.domain: o.version for o in proto.opset_import}
        self.builder = Builder(Builder().fresh(name or proto.graph.name or "model"))
        self.functions = {(f.domain, f.name): f for f in proto.functions}
        self.sizes: dict[str, Any] = {}
        self.shapes: dict[Value, list[Any]] = {}  # what is known of values that hold shapes with symbolic sizes
        self.inputs: dict[str, Value] = {}

    def graph(self) -> Graph:
        body = self.proto.graph
        scope: dict[str, Value] = {}
        for tensor in body.initializer:
            scope[tensor.name] = self.constant(tensor, tensor.name)
        if body.sparse_initializer:
            raise OnnxError("sparse initializers are not supported")
        for item in body.input:
            if item.name in self.constants:
                data = np.asarray(self.constants[item.name])
                scope[item.name] = self.builder.constant(data, item.name, data.dtype.name)
            elif item.name not in scope:
                scope[item.name] = self.inputs[item.name] = self.input(item)
        self.count_missing(body.node)
        self.nodes(body.node, scope, self.opsets)
        absent = [o.name for o in body.output if o.name not in scope]
        if absent:
            raise OnnxError(f"the output {absent[0]} is not computed by the model")
        made = without_unread(self.builder.graph([scope[o.name] for o in body.output]))
        verify(made)
        return made

    def sources(self, value: Value) -> list[str]:
        """Returns the names of the model's inputs from which a value is computed."""
        producers = {v: node for node in self.builder.nodes for v in node.outputs}
        found: set[Value] = set()
        waiting = [value]
        while waiting:
            v = waiting.pop()
            if v not in found:
                found.add(v)
                waiting += list(producers[v].given) if v in producers else []
        return [name for name, v in self.inputs.items() if v in found]

    # inputs and constants

    def input(self, item: Any) -> Value:
        if not item.type.HasField("tensor_type"):
            raise OnnxError(f"the input {item.name} is a {item.type.WhichOneof('value')}; only tensors are supported")
        tensor = item.type.tensor_type
        dims = self.given.get(item.name)
        if dims is None:
            if not tensor.HasField("shape"):
                raise OnnxError(f"the input {item.name} has no shape; give one with shapes={{{item.name!r}: …}}")
            dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or f"{item.name}_{n}" for n, d in enumerate(tensor.shape.dim)]  # fmt: skip
        shape = [self.size(d) if isinstance(d, str) else int(d) for d in dims]
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise OnnxError(f"the input {item.name} has a negative size")
        return self.builder.input(self.builder_name(item.name), shape, dtype_of(tensor.elem_type, f"input {item.name}"))

    def builder_name(self, name: str) -> str:
        """Returns a name that the builder accepts for an input, and has not given away."""
        probe = Builder().fresh(name)
        taken = {v.name for v in (*self.builder.inputs, *self.builder.constants)}
        out, n = probe, 0
        while out in taken:
            n += 1
            out = f"{probe}_{n}"
        return out

    def size(self, name: str) -> Any:
        """Returns the symbolic size of that name, one per model."""
        plain = Builder().fresh(name)
        return self.sizes.setdefault(plain, te.var(plain))

    def constant(self, tensor: Any, name: str) -> Value:
        label = f"tensor {name}"
        dtype = dtype_of(tensor.data_type, label)
        try:
            data = self.onnx.numpy_helper.to_array(tensor)
        except Exception as error:  # damaged or hostile data
            raise OnnxError(f"{label} cannot be read: {error}") from error
        return self.builder.constant(data.view(to_numpy(dtype)) if dtype == "bfloat16" else data, name, dtype)

    # nodes

    def count_missing(self, nodes: Any) -> None:
        """Raise UnsupportedOperators for all operators of the model that have neither converter nor body."""
        missing: dict[str, list[str]] = {}
        for node in nodes:
            if not self.is_known(node):
                domain = "" if node.domain in _DEFAULT_DOMAINS else node.domain + "."
                missing.setdefault(domain + node.op_type, []).append(_label(node))
        if missing:
            raise UnsupportedOperators(missing)

    def is_known(self, node: Any) -> bool:
        domain = "" if node.domain in _DEFAULT_DOMAINS else node.domain
        if (
            (domain, node.op_type) in CONVERTERS
            or node.op_type in _SPECIAL
            or (node.domain, node.op_type) in self.functions
        ):
            return True
        schema = self.schema(node)
        return schema is not None and (domain == "" or schema.has_function or schema.has_context_dependent_function)

    def schema(self, node: Any) -> Any:
        domain = "" if node.domain in _DEFAULT_DOMAINS else node.domain
        try:
            return self.onnx.defs.get_schema(node.op_type, self.opsets.get(domain, 1), domain)
        except self.onnx.defs.SchemaError:
            return None

    def nodes(self, nodes: Any, scope: dict[str, Value], opsets: Mapping[str, int]) -> None:
        for node in nodes:
            for name in node.input:
                if name and name not in scope:
                    raise OnnxError(f"{_label(node)} reads {name!r}, which nothing before it provides")
            inputs = [scope[name] if name else None for name in node.input]
            results = self.node(node, inputs, scope, opsets)
            names = [name for name in node.output]
            if len([n for n in names if n]) > len(results):
                raise OnnxError(f"{_label(node)} has {len(names)} outputs, of which {len(results)} are supported")
            for name, value in zip(names, results, strict=False):
                if name:
                    scope[name] = value

    def node(
        self, node: Any, inputs: list[Value | None], scope: dict[str, Value], opsets: Mapping[str, int]
    ) -> Sequence[Value]:
        domain = "" if node.domain in _DEFAULT_DOMAINS else node.domain
        label = _label(node)
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return self.body(node, function, inputs, {o.domain: o.version for o in function.opset_import})
        if domain == "" and node.op_type in _SPECIAL:
            return self.special(node, inputs, scope, opsets)
        known = self.known(node, inputs, opsets)
        if known is not None:
            return known
        opset = opsets.get(domain, opsets.get("ai.onnx", 1))
        convert = CONVERTERS.get((domain, node.op_type))
        if convert is None:
            return self.expanded(node, inputs, opset, label)
        call = Call(self.builder, node.op_type, label, inputs, self.attributes(node), opset, len(node.output))
        call.shapes = self.shapes
        before = len(self.builder.nodes)
        try:
            made = convert(call)
        except NeedsConstant:
            raise
        except OnnxError:
            if not self.has_body(node):
                raise
            del self.builder.nodes[before:]
            return self.expanded(node, inputs, opset, label)
        except GraphError as error:
            raise OnnxError(f"{label}: {error}") from error
        return made if isinstance(made, tuple) else (made,)

    def special(
        self, node: Any, inputs: list[Value | None], scope: dict[str, Value], opsets: Mapping[str, int]
    ) -> Sequence[Value]:
        """Returns the results of operators that have to do with the model itself: constants, shapes, branches."""
        if node.op_type == "Constant":
            return [self.constant_node(node)]
        x = next(v for v in inputs if v is not None)
        if node.op_type in ("Shape", "Size"):
            return [self.shape_of(node, x)]
        attributes = self.attributes(node)

        def run(body: Any, given: Sequence[Value]) -> list[Value]:
            inner = dict(scope)
            for tensor in body.initializer:
                inner[tensor.name] = self.constant(tensor, tensor.name)
            inner.update(zip([i.name for i in body.input], given, strict=True))
            self.nodes(body.node, inner, opsets)
            return [inner[o.name] for o in body.output]

        label = _label(node)
        if node.op_type == "If":
            return control_flow.branch(self.builder, label, attributes, x, run)
        if node.op_type == "Loop":
            return control_flow.loop(self.builder, label, attributes, inputs, run)
        return control_flow.scan(self.builder, label, attributes, inputs, run, opsets.get("", 9))

    def constant_node(self, node: Any) -> Value:
        (attribute,) = node.attribute
        name = node.output[0]
        if attribute.name == "value":
            return self.constant(attribute.t, name)
        data = self.onnx.helper.get_attribute_value(attribute)
        dtype = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}.get(attribute.name)  # fmt: skip
        if dtype is None:
            raise OnnxError(f"{_label(node)}: a constant of the kind {attribute.name} is not supported")
        return self.builder.constant(np.asarray(data), name, dtype)

    def shape_of(self, node: Any, x: Value) -> Value:
        attributes = self.attributes(node)
        dims = list(x.shape)[attributes.get("start", 0) : attributes.get("end")]
        if node.op_type == "Size":
            total: Any = 1
            for d in x.shape:
                total = d * total
            dims = [total]
        if all(isinstance(d, int) for d in dims):
            shape = np.array(dims[0] if node.op_type == "Size" else dims, np.int64)
            return self.builder.constant(shape, node.output[0], "int64")
        value = self.builder.constant(np.full((len(dims),), -1, np.int64), node.output[0], "int64")
        self.shapes[value] = dims
        return value

    def known(self, node: Any, inputs: list[Value | None], opsets: Mapping[str, int]) -> Sequence[Value] | None:
        """Returns the results of a node whose inputs are known, or None."""
        if any(v is not None and v not in self.builder.constants for v in inputs):
            return None
        if any(a.type in (self.onnx.AttributeProto.GRAPH, self.onnx.AttributeProto.GRAPHS) for a in node.attribute):
            return None
        if any(v in self.shapes for v in inputs if v is not None):
            dims = computed_dims(node.op_type, inputs, self.shapes, self.builder.constants, self.attributes(node))
            if dims is None:
                return None
            value = self.builder.constant(np.full((len(dims),), -1, np.int64), node.output[0], "int64")
            self.shapes[value] = dims
            return [value]
        data = [None if v is None else self.builder.constants[v] for v in inputs]
        if node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial"):
            return None
        if (
            node.op_type == "DequantizeLinear" and data[0] is not None and data[0].ndim > 1
        ):  # passes want narrow weights
            return None
        results = evaluate(self.onnx, node, data, opsets)
        if results is None or any(r.size > _LARGEST_KNOWN for r in results):
            return None
        return [
            self.builder.constant(r, name or "c", r.dtype.name) for r, name in zip(results, node.output, strict=False)
        ]

    def attributes(self, node: Any) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for a in node.attribute:
            value = self.onnx.helper.get_attribute_value(a)
            if isinstance(value, bytes):
                value = value.decode("utf-8", "replace")
            elif a.type == self.onnx.AttributeProto.GRAPH:
                pass
            elif a.type == self.onnx.AttributeProto.TENSOR:
                value = self.onnx.numpy_helper.to_array(value)
            elif isinstance(value, (list, tuple)) or a.type in (
                self.onnx.AttributeProto.INTS,
                self.onnx.AttributeProto.FLOATS,
            ):
                value = tuple([v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in value])
            out[a.name] = value
        return out

    # functions

    def has_body(self, node: Any) -> bool:
        schema = self.schema(node)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def expanded(self, node: Any, inputs: list[Value | None], opset: int, label: str) -> Sequence[Value]:
        """Returns the results by the body that ONNX gives for the operator."""
        schema = self.schema(node)
        if schema is None or not (schema.has_function or schema.has_context_dependent_function):
            name = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
            raise UnsupportedOperators({name: [label]})
        if schema.has_context_dependent_function:
            types = [self.type_of(v).SerializeToString() for v in inputs]
            body = self.onnx.FunctionProto()
            body.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), types))
        else:
            body = schema.function_body
        versions = {"" if o.domain in _DEFAULT_DOMAINS else o.domain: o.version for o in body.opset_import} or {
            "": opset
        }
        return self.body(node, body, inputs, versions, schema)

    def type_of(self, v: Value | None) -> Any:
        if v is None:
            return self.onnx.TypeProto()
        number = self.onnx.helper.np_dtype_to_tensor_dtype(to_numpy(v.dtype))
        return self.onnx.helper.make_tensor_type_proto(number, [d if isinstance(d, int) else None for d in v.shape])

    def body(
        self, node: Any, function: Any, inputs: list[Value | None], opsets: Mapping[str, int], schema: Any = None
    ) -> Sequence[Value]:
        """Returns the results of a function's body; its attributes get the node's, or their defaults."""
        given = {a.name: a for a in node.attribute}
        for a in function.attribute_proto:
            given.setdefault(a.name, a)
        if schema is not None:
            for name, a in schema.attributes.items():
                if a.default_value.type:
                    given.setdefault(name, a.default_value)
        scope = {name: v for name, v in zip(function.input, inputs, strict=False) if v is not None}
        for inner in function.node:
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            self.bind(copy, given)
            for n, name in enumerate(copy.input):
                if name and name not in scope and name in function.input:
                    copy.input[n] = ""
            self.nodes([copy], scope, opsets)
        return [scope[name] for name in function.output if name in scope]

    def bind(self, node: Any, given: Mapping[str, Any]) -> None:
        """Put the function's attributes in the place of references to them."""
        kept = []
        for a in node.attribute:
            if a.ref_attr_name:
                if a.ref_attr_name not in given:
                    continue
                actual = self.onnx.AttributeProto()
                actual.CopyFrom(given[a.ref_attr_name])
                actual.name = a.name
                a = actual
            kept.append(a)
        copies = [type(a).FromString(a.SerializeToString()) for a in kept]
        for a in copies:
            if a.type == self.onnx.AttributeProto.GRAPH:
                for inner in a.g.node:
                    self.bind(inner, given)
        del node.attribute[:]
        node.attribute.extend(copies)


_SPECIAL = ("Constant", "Shape", "Size", "If", "Loop", "Scan")


def _label(node: Any) -> str:
    """Returns the node as it is called in messages: its operator, and its name or its output's."""
    return f"{node.op_type} {node.name or (node.output[0] if node.output else '')!r}"
