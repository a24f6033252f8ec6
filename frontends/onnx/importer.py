"""How an ONNX file is read: each node by its value where that is known, its converter, or its body.

Nodes whose inputs are all known while the graph is made (constants, and what is computed from shapes) are evaluated by
ONNX's own reference implementation (:mod:`.known_values`); :meth:`_Reader.known` has the exceptions. An operator without a
converter that ONNX defines as a function is replaced by the body of that function.

:func:`from_onnx` reads the file (:mod:`.model_file`; large weights stay in it until the model is built) and makes a
``_Reader``, which goes through the model like this::

    require_known     refuses an opset that is not known and sparse initializers; lists all operators that none of the ways
                      below reads
    require_inputs    refuses shapes= and constants= of what is no input, and a shape that a constant does not have
    graph             the constants and inputs, then the nodes, then the outputs
      nodes           the nodes of the model, of a function or of a branch, no deeper than ``_DEEPEST``
        each          each node in order: looks up its inputs, and enters its results into the scope
          checked     turns whatever goes wrong with a node into an OnnxError that names it
            node      chooses how a node is read, by the first of these that can
              body        the model's own function of that name: its nodes, by ``nodes`` again
              special     Constant, Shape, Size, If, Loop, Scan, which read more than the values of their inputs; a body of
                          If, Loop or Scan is read by ``nodes`` again, in the scope around it (:mod:`.control_flow`)
              known       its value, where all inputs are known
              CONVERTERS  its converter, a function in a module of ``TABLES`` under ``@converter("Name")``: it takes an
                          ``OnnxCall`` (:mod:`.call`), the node's inputs and attributes, and adds operators of the graph
              expanded    the body that ONNX defines for the operator, also where the converter refuses the node (but not
                          where it needs a constant)

Operators of ``SEQUENCE_OPERATORS`` (:mod:`.control_flow`), ``Identity`` and ``Loop`` take sequences
(:class:`~.call.ValueList`); other converters get none. Constants of strings are noted, and refused where an operator reads one.

The result has the model's operators, without those whose values are known or that nothing reads, and is verified; the passes that
make it fast run when it is built. Whatever is wrong with a model is an :class:`~.call.OnnxError`. That of a node names it; where
``shapes=`` or ``constants=`` could help, it says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ... import te
from ...graph.builder import Builder
from ...graph.computed_sizes import add_computed_size
from ...graph.graph import Graph, GraphError, Node, Value, with_output_names, without_unread
from ...graph.reference import verify
from ...graph.value_dependent import Answers, OpenInput, Question, UnitSize, ValueDependentGraph, item_name
from ...tir.expr import Expr, Var, to_numpy, vars_in
from ...tir.expr.dtype import kept_as_bits
from ..common.graph_call import require_inputs
from . import (
    control_flow,
    fused,
    ngrams,
    other_domains,
    products,
    quantized,
    recurrent,
    reductions,
    resizing,
    selecting,
    shapes,
    single_elements,
    trees,
)
from .call import (
    CODED_DTYPES,
    CONVERTERS,
    HELD_DTYPES,
    LARGEST,
    OUTSIDE,
    STRING,
    Item,
    NeedsConstant,
    NeedsSize,
    OnnxCall,
    OnnxError,
    ValueList,
    dtype_of,
    load_onnx,
    shown,
    stored_dtype,
    type_of,
    unit_size_name,
)
from .known_values import Formulas, add_formulas, as_onnx, computed_formulas, evaluate, interpreted, shape_of
from .model_file import (
    STRING_OPERATORS,
    UnsupportedOnnxOperators,
    attributes,
    bind,
    in_order,
    label_of,
    missing_operators,
    read_model,
    require_distinct_names,
    tensor_data,
)

TABLES = (
    control_flow, fused, ngrams, other_domains, products, quantized, recurrent, reductions, resizing, selecting, shapes, single_elements, trees,
)  # fmt: skip
"""The modules whose converters are in the table."""

_DEFAULT_DOMAINS = ("", "ai.onnx")
"""The names of ONNX's own domain; it is called ``""`` here."""

_SPECIAL = {("", name) for name in ("Constant", "Shape", "Size", "If", "Loop", "Scan")}
"""Operators that read more than the values of their inputs, by domain and name."""

_MOVES = ("Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")
"""Operators whose results are numbers of the first input, unchanged."""

_CONVERSIONS = ("Cast", "CastLike", "DequantizeLinear", "QuantizeLinear")
"""The other operators that take numbers of types that kernels do not have."""

_UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What converters raise for attributes and inputs that break the rules of their operator."""

_LONGEST_NAME = 100
"""Names of values are cut after this many characters."""

_DEEPEST = 48
"""How deep branches, loops and functions may stand in each other."""

_MOST_NODES = 100_000
"""The most nodes that are read, those of loops and functions once for each time that they are written out."""


def from_onnx(
    model: Any,
    shapes: Mapping[str, Sequence[Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
    name: str = "",
) -> Graph | ValueDependentGraph:
    """Returns the graph of an ONNX model: a path, the bytes of a file, or a model in memory.

    A :class:`~tilewright.graph.value_dependent.ValueDependentGraph` comes back where axes, sizes or conditions depend on values
    of inputs: built, it makes a graph for each of the values that calls bring. ``constants`` gives them ahead.

    Large weights are mapped from the file, which has to stay as it is until the model is built.

    ``shapes`` gives inputs another shape than the model says (numbers, or names of symbolic sizes); dimensions to which
    the model gives no number are symbolic. ``constants`` gives inputs a value that is built in. OnnxError for a model that
    cannot be read; :class:`UnsupportedOnnxOperators` lists the operators without a converter, a body or a place in ONNX's own
    domain. One of ONNX's own that only known inputs allow is refused where it is met.
    """
    onnx = load_onnx()
    proto, folder = read_model(onnx, model)
    given = Given(dict(shapes or {}), dict(constants or {}), name)

    def read(answers: Answers) -> Graph | Question:
        return _read(onnx, proto, folder, replace(given, answers=answers))[1]

    reader, made = _read(onnx, proto, folder, given)
    if isinstance(made, Graph):
        return made
    return ValueDependentGraph(reader.builder.name, tuple(reader.taken), made, read)


def _read(onnx: Any, proto: Any, folder: Path | None, given: Given) -> tuple[_Reader, Graph | Question]:
    """Returns the graph of a model, or what has to be known before it is read further.

    Where an operator does not take a size that the call computes, or stands in a loop, the values that decide it are asked for.
    """
    reader = _Reader(onnx, proto, folder, given)
    try:
        return reader, _read_by(reader)
    except OnnxError as error:
        if not reader.sized or not given.computes_sizes:
            raise
        known = _Reader(onnx, proto, folder, replace(given, computes_sizes=False))
        try:
            return known, _read_by(known)
        except OnnxError as other:
            if str(other) == str(error):
                raise error from None
            depends = (
                f"{reader.sized[0]}: how many elements it finds depends on data, and what follows does not take that"
            )
            raise OnnxError(f"{depends} ({error})") from error


def _read_by(reader: _Reader) -> Graph | Question:
    """Returns the graph that a reader makes, or what has to be known before it reads further."""
    try:
        reader.require_known()
        reader.require_inputs()
        return reader.graph()
    except NeedsSize as error:
        return reader.size_question(error)
    except NeedsConstant as error:
        names = [error.value.name] if isinstance(error.value, OpenInput) else reader.sources(error.value, error.nodes)
        asked = reader.question(error, names) if names else None
        if asked is not None:
            return asked
        hint = f"; it depends on the inputs {', '.join(names)}, which constants= can give" if names else ""
        raise NeedsConstant(f"{error}{hint}", error.value, names) from error
    except OnnxError:
        raise
    except (RecursionError, MemoryError) as error:
        raise OnnxError(f"the model is too large or nests too deeply: {type(error).__name__}") from error
    except _UNFIT as error:  # a model that breaks rules of the format in a place where no node is read
        raise OnnxError(f"the model is not well-formed: {shown(error)}") from error


@dataclass(frozen=True)
class Given:
    """What the caller says beside the model: shapes and values of inputs by their names, and the graph's name. ``answers``
    are arrays of values that had to be known, by the names that they have in the graph. ``computes_sizes``: whether sizes may be
    computed by a call; else the values that decide them have to be known."""

    shapes: Mapping[str, Sequence[Any]]
    constants: Mapping[str, Any]
    name: str
    answers: Answers = field(default_factory=dict)
    computes_sizes: bool = True


class _Reader:
    """Reads the nodes of one model into a builder."""

    def __init__(self, onnx: Any, proto: Any, folder: Path | None, given: Given) -> None:
        self.onnx, self.proto, self.folder, self.given = onnx, proto, folder, given
        self.opsets = {_domain_of(o): o.version for o in proto.opset_import}
        self.builder = Builder(Builder().fresh((given.name or proto.graph.name or "model")[:_LONGEST_NAME]))
        self.functions = {(f.domain, f.name): f for f in proto.functions}
        self.sizes: dict[str, Any] = {}
        self.shapes: dict[Value, Formulas] = {}  # of values that are computed of symbolic sizes
        self.small: dict[Value, str] = {}  # the types of values whose numbers have less than a byte in the model
        self.inputs: dict[str, Value] = {}
        self.taken: list[Value | OpenInput] = []  # what a call gives, in the model's order
        self.owners: dict[Value, str] = {}  # the inputs of the model whose items values are
        self.strings: set[str] = set()  # constants of strings, which no operator may read
        self.sized: list[str] = []  # operators whose results have sizes that depend on data
        self.read = self.depth = 0

    def require_known(self) -> None:
        """Raise OnnxError for operators that nothing here can read, and for opsets that are not known."""
        newest = self.onnx.defs.onnx_opset_version()
        if not 1 <= self.opsets.get("", 1) <= newest:
            raise OnnxError(f"the opset {self.opsets['']} is not known; the package onnx knows those up to {newest}")
        if self.proto.graph.sparse_initializer:
            raise OnnxError("sparse initializers are not supported")
        missing = missing_operators(self.proto.graph.node, self.functions, self.is_known)
        if missing:
            raise UnsupportedOnnxOperators(missing)

    def require_inputs(self) -> None:
        """Raise OnnxError for a shape or a constant of something that is no input."""
        names = [item.name for item in self.proto.graph.input]
        require_inputs("constants=", self.given.constants, names, OnnxError)
        require_inputs("shapes=", self.given.shapes, names, OnnxError)
        fixed = {t.name: tuple(t.dims) for t in self.proto.graph.initializer}
        fixed.update({name: np.shape(value) for name, value in self.given.constants.items()})
        for name, shape in self.given.shapes.items():
            if name in fixed and tuple(shape) != fixed[name]:
                raise OnnxError(
                    f"shapes= gives {shown(name)} the shape {tuple(shape)}, and its value is a constant of shape {fixed[name]}"
                )

    def graph(self) -> Graph:
        """Returns the graph: inputs and constants first, then the nodes, then the outputs under the model's names."""
        body = self.proto.graph
        require_distinct_names(body)
        scope: dict[str, Item | None] = {}
        self.initializers(body, scope)
        for item in body.input:
            if item.name in self.given.answers and item.type.HasField("tensor_type"):
                self.sizes_of_answer(item)
        free: list[OpenInput] = []
        for item in body.input:
            if item.name in self.given.constants:
                scope[item.name] = self.given_constant(item)
            elif not item.type.HasField("tensor_type") and item.name not in scope:
                opened = self.open_input(item)
                if isinstance(opened, OpenInput):
                    free.append(opened)
                    self.taken.append(opened)
                else:
                    scope[item.name] = opened
            elif item.name in self.given.answers:
                scope[item.name] = self.answered(item)
            elif item.name not in scope:
                scope[item.name] = self.inputs[item.name] = self.input(item)
                self.taken.append(self.inputs[item.name])
        if free:
            raise NeedsConstant(f"the input {free[0]} is not known before a call", free[0])
        self.nodes(body.node, scope, self.opsets)
        absent = [o.name for o in body.output if o.name not in scope]
        if absent:
            problem = f"is of strings; {OUTSIDE}" if absent[0] in self.strings else "is not computed by the model"
            raise OnnxError(f"the output {shown(absent[0])} {problem}")
        results = [(o.name[:_LONGEST_NAME], scope[o.name]) for o in body.output]
        named: list[tuple[str, Value]] = []
        for name, v in results:
            items = v.items if isinstance(v, ValueList) else ()
            named += [(name, v)] if isinstance(v, Value) else [(item_name(name, n), one) for n, one in enumerate(items)]
        if not named:
            raise OnnxError("in this call all outputs are empty sequences or absent, so there is nothing to compute")
        outputs = [v for _, v in named]
        lists = [None if isinstance(v, Value) else len(v.items) if isinstance(v, ValueList) else -1 for _, v in results]
        made = without_unread(self.builder.graph(outputs))
        made = with_output_names(made, [self.builder.fresh(name) for name, _ in named])
        verify(made)
        ends = [*zip(made.inputs, self.builder.inputs, strict=True), *zip(made.outputs, outputs, strict=True)]
        held = {shown.name: self.small[own] for shown, own in ends if own in self.small}
        return replace(made, held=held, lists=tuple(lists) if any(n is not None for n in lists) else ())

    def question(self, error: NeedsConstant, names: Sequence[str]) -> Question | None:
        """Returns what to ask where a value has to be known. None: the inputs do not tell it, as inside a loop."""
        value = error.value
        if isinstance(value, OpenInput):
            return Question(value.name, value, (value.name,), str(error))
        own = next((name for name, v in self.inputs.items() if v is value), None)
        if own is not None:
            return Question(own, value, tuple(names), str(error))
        asked = Graph(
            self.builder.name, tuple(self.builder.inputs), (value,), error.nodes, dict(self.builder.constants)
        )
        asked = without_unread(asked)
        told = {*asked.inputs, *asked.constants}
        for node in asked.nodes:
            if any(v not in told for v in node.given):
                return None
            told.update(node.outputs)
        return Question(value.name, value, tuple(names), str(error), asked) if value in told else None

    def size_question(self, error: NeedsSize) -> Question:
        """Returns what to ask where it has to be known whether a size is 1."""
        places: dict[Var, tuple[str, int]] = {}
        for v in self.builder.inputs:
            for n, d in enumerate(v.shape):
                if isinstance(d, Var):
                    places.setdefault(d, (v.name, n))
        asked = {d: places[d] for d in vars_in(error.extent)}
        names = dict.fromkeys([name for name, _ in asked.values()])
        return Question(error.name, UnitSize(error.name, error.extent, asked), tuple(names), str(error))

    def sources(self, value: Value, nodes: Sequence[Node]) -> list[str]:
        """Returns the names of the model's inputs from which ``nodes`` compute a value."""
        producers = {v: node for node in nodes for v in node.outputs}
        found: set[Value] = set()
        waiting = [value]
        while waiting:
            v = waiting.pop()
            if v not in found:
                found.add(v)
                waiting += list(producers[v].given) if v in producers else []
        return list(dict.fromkeys([self.owners.get(v, name) for name, v in self.inputs.items() if v in found]))

    # inputs and constants

    def open_input(self, item: Any) -> Item | OpenInput | None:
        """Returns the value of an input that is a sequence or may be absent; before an answer, the open input."""
        label, kind = f"the input {shown(item.name)}", item.type.WhichOneof("value")
        inner = item.type.optional_type.elem_type if kind == "optional_type" else item.type
        is_list = inner.HasField("sequence_type")
        element = inner.sequence_type.elem_type if is_list else inner
        if kind not in ("optional_type", "sequence_type") or not element.HasField("tensor_type"):
            raise OnnxError(f"{label} is a {kind}; tensors, sequences of them and optional ones are supported")
        dtype = stored_dtype(element.tensor_type.elem_type, label)
        what = "sequence of tensors" if is_list else "tensor"
        if item.name not in self.given.answers:
            name = self.builder.fresh(item.name[:_LONGEST_NAME])
            return OpenInput(name, f"{'optional ' if kind == 'optional_type' else ''}{what} of {dtype}")
        layout = self.given.answers[item.name]
        if layout is None:
            return None
        made = []
        for n, shape in enumerate(layout[1:]):
            name = item_name(item.name, n) if is_list else item.name
            data = self.given.answers.get(name) if is_list else None
            if data is not None:
                made.append(self.builder.constant(data, name, dtype))
            else:
                made.append(self.builder.input(name, shape, dtype))
                self.inputs[name] = made[-1]
                self.owners[made[-1]] = item.name
        return ValueList(tuple(made), dtype) if is_list else made[0]

    def input(self, item: Any) -> Value:
        """Returns an input of the graph; its shape is the model's, unless the caller gives another one."""
        label = f"the input {shown(item.name)}"
        if not item.type.HasField("tensor_type"):
            raise OnnxError(f"{label} is a {item.type.WhichOneof('value')}; only tensors are supported")
        tensor = item.type.tensor_type
        shape = [self.size(d) if isinstance(d, str) else int(d) for d in self.shape_of_input(item)]
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise OnnxError(f"{label} has a negative size")
        if math.prod([d for d in shape if isinstance(d, int)]) > LARGEST:
            raise OnnxError(f"{label} is too large")
        made = self.builder.input(
            self.builder.unused(item.name[:_LONGEST_NAME]), shape, stored_dtype(tensor.elem_type, label)
        )
        if tensor.elem_type in HELD_DTYPES:
            self.small[made] = HELD_DTYPES[tensor.elem_type]
        return made

    def shape_of_input(self, item: Any) -> Sequence[Any]:
        """Returns the numbers and the names of the sizes of an input: the caller's, or the model's."""
        dims = self.given.shapes.get(item.name)
        if dims is not None:
            return dims
        tensor = item.type.tensor_type
        if not tensor.HasField("shape"):
            label = f"the input {shown(item.name)}"
            raise OnnxError(f"{label} has no shape; give one with shapes={{{shown(item.name)}: …}}")
        return [_size_of(d, f"{item.name}_{n}") for n, d in enumerate(tensor.shape.dim)]

    def given_constant(self, item: Any) -> Value:
        """Returns the value that the caller gives an input, in the data type that the model says."""
        label = f"the input {shown(item.name)}"
        data = np.asarray(self.given.constants[item.name])
        dtype = dtype_of(item.type.tensor_type.elem_type, label) if item.type.tensor_type.elem_type else data.dtype.name
        if data.dtype.name == dtype and kept_as_bits(dtype):
            data = data.view(to_numpy(dtype))
        elif data.dtype.name != dtype and not np.can_cast(data.dtype, to_numpy(dtype), "same_kind"):
            raise OnnxError(f"{label} is {dtype} in the model; constants= gives it {data.dtype}")
        return self.builder.constant(data, item.name[:_LONGEST_NAME], dtype)

    def sizes_of_answer(self, item: Any) -> None:
        """Enter the sizes that the shape of an input tells, whose value is the answer to a question."""
        data = self.given.answers[item.name]
        for d, (n, size) in zip(self.shape_of_input(item), enumerate(data.shape), strict=True):
            if isinstance(d, str):
                self.sizes[_plain(d)] = size
            elif d != size:
                raise OnnxError(f"the input {shown(item.name)} has the size {size} in dimension {n}, not {d}")

    def answered(self, item: Any) -> Value:
        """Returns the value of an input, a question about which is answered, as a constant."""
        number = item.type.tensor_type.elem_type
        dtype = stored_dtype(number, f"the input {shown(item.name)}")
        made = self.builder.constant(self.given.answers[item.name], item.name[:_LONGEST_NAME], dtype)
        if number in HELD_DTYPES:
            self.small[made] = HELD_DTYPES[number]
        return made

    def size(self, name: str) -> Any:
        """Returns the symbolic size of that name: one variable for each name."""
        plain = _plain(name)
        is_one = self.given.answers.get(unit_size_name(plain))
        return self.sizes.setdefault(plain, 1 if is_one else te.var(plain))

    def tensor(self, tensor: Any, label: str) -> tuple[Any, str]:
        return tensor_data(self.onnx, tensor, self.folder, label)

    def initializers(self, body: Any, scope: dict[str, Item | None]) -> None:
        """Enter the constants of a graph into its scope; those of strings are only noted."""
        for tensor in body.initializer:
            if tensor.data_type == STRING:
                self.strings.add(tensor.name)
            else:
                scope[tensor.name] = self.constant(tensor, tensor.name)

    def constant(self, tensor: Any, name: str) -> Value:
        data, dtype = self.tensor(tensor, f"the tensor {shown(name)}")
        value = self.builder.constant(data, name[:_LONGEST_NAME], dtype)
        if tensor.data_type in HELD_DTYPES:
            self.small[value] = HELD_DTYPES[tensor.data_type]
        return value

    # nodes

    def is_known(self, node: Any) -> bool:
        """Returns whether one of the ways to read a node knows its operator."""
        domain = _domain_of(node)
        if (
            (domain, node.op_type) in CONVERTERS
            or (domain, node.op_type) in _SPECIAL
            or (node.domain, node.op_type) in self.functions
        ):
            return True
        if node.op_type in STRING_OPERATORS:
            return False
        schema = self.schema(node)
        return schema is not None and (domain == "" or schema.has_function or schema.has_context_dependent_function)

    def schema(self, node: Any) -> Any:
        """Returns ONNX's definition of a node's operator in the model's opset, or None."""
        domain = _domain_of(node)
        try:
            return self.onnx.defs.get_schema(node.op_type, self.opsets.get(domain, 1), domain)
        except self.onnx.defs.SchemaError:
            return None

    def nodes(self, nodes: Any, scope: dict[str, Item | None], opsets: Mapping[str, int]) -> None:
        """Read the nodes of the model, of a function or of a branch. OnnxError where these nest too deeply."""
        if self.depth >= _DEEPEST:
            raise OnnxError(f"graphs and functions nest more than {_DEEPEST} deep; does a function call itself?")
        self.depth += 1
        try:
            self.each(nodes, scope, opsets)
        finally:
            self.depth -= 1

    def each(self, nodes: Any, scope: dict[str, Item | None], opsets: Mapping[str, int]) -> None:
        """Read each node, and enter its results into ``scope`` by their names."""
        for node in in_order(nodes, scope):
            self.read += 1
            if max(self.read, len(self.builder.nodes)) > _MOST_NODES:
                raise OnnxError(f"{label_of(node)}: with loops and functions written out, there are too many nodes")
            if node.op_type == "Constant" and any(_holds_strings(a) for a in node.attribute):
                self.strings.update(node.output)
                continue
            for name in node.input:
                if name and name not in scope:
                    problem = f"is of strings; {OUTSIDE}" if name in self.strings else "nothing provides"
                    raise OnnxError(f"{label_of(node)} reads {shown(name)}, which {problem}")
            inputs = [scope[name] if name else None for name in node.input]
            results = self.checked(node, inputs, scope, opsets)
            first = inputs[0] if inputs else None
            if node.op_type in _MOVES and isinstance(first, Value) and first in self.small:
                self.small.update((v, self.small[first]) for v in results if isinstance(v, Value))
            made = [*results, *[None] * (len(node.output) - len(results))]
            for n, (name, value) in enumerate(zip(node.output, made, strict=False)):
                if name and value is None:
                    raise OnnxError(f"{label_of(node)}: its output {n}, {shown(name)}, is not supported")
                if name and value is not None:
                    scope[name] = self.known_answer(value)

    def known_answer(self, value: Item) -> Item:
        """Returns the constant that answers a question about a value; the value itself where there was none."""
        data = self.given.answers.get(value.name) if isinstance(value, Value) else None
        if data is None or not isinstance(value, Value):
            return value
        constant = self.builder.constant(data, value.name, value.dtype)
        if value in self.small:
            self.small[constant] = self.small[value]
        return constant

    def checked(
        self, node: Any, inputs: list[Item | None], scope: dict[str, Item | None], opsets: Mapping[str, int]
    ) -> Sequence[Item | None]:
        """Returns the results of a node; whatever goes wrong is an OnnxError that names it."""
        try:
            results = self.node(node, inputs, scope, opsets)
        except OnnxError:
            raise
        except GraphError as error:
            raise OnnxError(
                f"{label_of(node)}: {shown(error, quoted=False)}{_way_out(inputs) or self._given_sizes()}"
            ) from error
        except _UNFIT as error:
            problem = f"{type(error).__name__}: {shown(error, quoted=False)}"
            raise OnnxError(f"{label_of(node)}: its inputs and attributes do not fit it ({problem})") from error
        for v in [v for r in results for v in (r.items if isinstance(r, ValueList) else (r,))]:
            if v is not None and math.prod([d for d in v.shape if isinstance(d, int)]) > LARGEST:
                raise OnnxError(f"{label_of(node)}: its result {shown(v.type_text, quoted=False)} is too large")
        return results

    def _given_sizes(self) -> str:
        """Returns which sizes the caller gave, where an operator does not take a size that it met."""
        given = ", ".join([f"{name} the shape {tuple(shape)}" for name, shape in self.given.shapes.items()])
        return f"; shapes= gives {given}, and the model may fix a size that differs" if given else ""

    def node(
        self, node: Any, inputs: list[Item | None], scope: dict[str, Item | None], opsets: Mapping[str, int]
    ) -> Sequence[Item | None]:
        """Returns the results of a node, by the first way to read it that there is; the module lists them."""
        domain = _domain_of(node)
        label = label_of(node)
        function = self.functions.get((node.domain, node.op_type))
        if function is not None:
            return self.body(node, function, inputs, {o.domain: o.version for o in function.opset_import})
        if (domain, node.op_type) in _SPECIAL:
            return self.special(node, inputs, scope, opsets)
        lists = {n: v for n, v in enumerate(inputs) if isinstance(v, ValueList)}
        if lists and node.op_type == "Identity":
            return inputs
        tensors = [None if isinstance(v, ValueList) else v for v in inputs]
        takes_lists = domain == "" and node.op_type in control_flow.SEQUENCE_OPERATORS
        known = None if takes_lists or lists else self.known(node, tensors, opsets)
        if known is not None:
            return known
        opset = opsets.get(domain, opsets.get("ai.onnx", 1))
        convert = CONVERTERS.get((domain, node.op_type))
        if convert is None:
            return self.expanded(node, inputs, opset, label)
        if lists and not takes_lists:
            raise OnnxError(f"{label}: input {next(iter(lists))} is a sequence; only tensors are supported")
        held = [self.small[v] for v in tensors if v is not None and v in self.small]
        if held and node.op_type not in (*_MOVES, *_CONVERSIONS):
            raise OnnxError(
                f"{label}: it does not compute with {held[0]}; Cast and DequantizeLinear convert such numbers"
            )
        call = OnnxCall(self.builder, node.op_type, label, tensors, self.attributes(node), opset, len(node.output))
        call.shapes, call.sequences, call.small = self.shapes, lists, self.small
        call.answers, call.computes_sizes, call.sized = self.given.answers, self.given.computes_sizes, self.sized
        before = len(self.builder.nodes)
        try:
            made = convert(call)
        except NeedsConstant:
            raise
        except OnnxError as error:
            if not self.has_body(node):
                raise
            del self.builder.nodes[before:]
            try:
                return self.expanded(node, inputs, opset, label)
            except OnnxError:
                raise error from None  # the body has nodes that the file does not have
        return made if isinstance(made, tuple) else (made,)

    def special(
        self, node: Any, inputs: list[Item | None], scope: dict[str, Item | None], opsets: Mapping[str, int]
    ) -> Sequence[Item | None]:
        """Returns the results of an operator that reads more than the values of its inputs.

        Constants read an attribute, ``Shape`` and ``Size`` the sizes of an input, branches and loops their nodes in the scope
        around them.
        """
        if node.op_type == "Constant":
            return [self.constant_node(node)]
        if not any(v is not None for v in inputs):
            raise OnnxError(f"{label_of(node)} has no inputs")
        label, attributes = label_of(node), self.attributes(node)

        def run(body: Any, given: Sequence[Item]) -> list[Item]:
            inner: dict[str, Item | None] = dict(scope)
            self.initializers(body, inner)
            if len(body.input) != len(given):
                raise OnnxError(f"{label_of(node)}: its body takes {len(body.input)} inputs, not {len(given)}")
            inner.update(zip([i.name for i in body.input], given, strict=True))
            self.nodes(body.node, inner, opsets)
            absent = [o.name for o in body.output if o.name not in inner]
            if absent:
                raise OnnxError(f"{label_of(node)}: its body does not compute {shown(absent[0])}")
            results = [inner[o.name] for o in body.output]
            if any(v is None for v in results):
                raise OnnxError(f"{label_of(node)}: a result of its body is absent, which is not supported")
            return [v for v in results if v is not None]

        if node.op_type == "Loop":
            trips = inputs[0]
            count = self.shapes[trips].flat[0] if isinstance(trips, Value) and trips in self.shapes else None
            wanted = [bool(name) for name in node.output]

            def rows(number: Value, most: Any) -> Any:
                if self.given.computes_sizes:
                    self.sized.append(label)
                    return add_computed_size(self.builder, number, most)
                answer = self.known_answer(number)
                return int(control_flow.known(self.builder, answer, "the number of iterations", label))

            return control_flow.loop(self.builder, label, attributes, inputs, run, count, wanted, rows)
        tensors = [v for v in inputs if isinstance(v, Value)]
        if any(isinstance(v, ValueList) for v in inputs):
            raise OnnxError(f"{label}: one of its inputs is a sequence; only tensors are supported")
        if node.op_type == "If":
            return control_flow.branch(self.builder, label, attributes, tensors[0], run)
        if node.op_type == "Scan":
            given = [v if isinstance(v, Value) else None for v in inputs]
            return [*control_flow.scan(self.builder, label, attributes, given, run, opsets.get("", 9))]
        return [shape_of(self.builder, self.shapes, node, attributes, tensors[0])]

    def constant_node(self, node: Any) -> Value:
        """Returns the value of a ``Constant``, which one of its attributes gives."""
        (attribute,) = node.attribute
        name = node.output[0]
        if attribute.name == "value":
            return self.constant(attribute.t, name)
        data = self.onnx.helper.get_attribute_value(attribute)
        dtype = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}.get(attribute.name)  # fmt: skip
        if dtype is None:
            raise OnnxError(f"{label_of(node)}: a constant of the kind {attribute.name} is not supported")
        return self.builder.constant(np.asarray(data), name, dtype)

    def known(self, node: Any, inputs: list[Value | None], opsets: Mapping[str, int]) -> Sequence[Value] | None:
        """Returns the results of a node whose inputs are known, or None: it then becomes operators.

        Results that depend on symbolic sizes are kept as formulas (:func:`.computed_formulas`). What ONNX's reference cannot
        compute, the node's converter and the interpreter may (:meth:`computed`). These become operators though their
        inputs are known: nodes with bodies; ``DequantizeLinear`` of inputs with two or more dimensions; most operators on
        types of less than 8 bits; and what neither can compute, or not in reasonable time.
        """
        if any(v is not None and v not in self.builder.constants and v not in self.shapes for v in inputs):
            return None
        if any(a.type in (self.onnx.AttributeProto.GRAPH, self.onnx.AttributeProto.GRAPHS) for a in node.attribute):
            return None
        if any(v in self.shapes for v in inputs if v is not None):
            found = computed_formulas(node.op_type, inputs, self.shapes, self.builder.constants, self.attributes(node))
            return None if found is None else [add_formulas(self.builder, self.shapes, *found, node.output[0])]
        if node.op_type == "DequantizeLinear" and inputs[0] is not None and inputs[0].ndim > 1:
            return None  # passes want narrow weights
        held = [self.small[v] for v in inputs if v is not None and v in self.small]
        if node.op_type in ("Cast", "CastLike", "QuantizeLinear") and (held or self.makes_held(node)):
            return None
        coded = any(name in CODED_DTYPES.values() for name in held)
        if held and node.op_type not in (*_MOVES, *(() if coded else ("DequantizeLinear",))):
            return None  # the reference would take them for numbers of 8 bits
        data = [None if v is None else (self.builder.constants[v], v.dtype) for v in inputs]
        results = evaluate(self.onnx, node, data, opsets)
        if results is None:
            results = self.computed(node, inputs, opsets)
        if results is None:
            return None
        return [self.builder.constant(r, name or "c", t) for (r, t), name in zip(results, node.output, strict=False)]

    def makes_held(self, node: Any) -> bool:
        """Returns whether an attribute asks for a result of a type that the graph has in another one."""
        return any(a.name in ("to", "output_dtype") and a.i in HELD_DTYPES for a in node.attribute)

    def computed(
        self, node: Any, inputs: list[Value | None], opsets: Mapping[str, int]
    ) -> list[tuple[Any, str]] | None:
        """Returns the results of a node with known inputs by its converter and the interpreter, or None."""
        domain = _domain_of(node)
        convert = CONVERTERS.get((domain, node.op_type))
        if convert is None:
            return None
        builder, attrs = Builder(), self.attributes(node)
        builder.constants.update({v: self.builder.constants[v] for v in inputs if v is not None})
        opset = opsets.get(domain, 1)
        return interpreted(
            convert, OnnxCall(builder, node.op_type, label_of(node), inputs, attrs, opset, len(node.output))
        )

    def attributes(self, node: Any) -> dict[str, Any]:
        return attributes(self.onnx, node, lambda t: as_onnx(self.onnx, *self.tensor(t, label_of(node))))

    # functions

    def has_body(self, node: Any) -> bool:
        """Returns whether ONNX defines the operator as a function."""
        schema = self.schema(node)
        return schema is not None and (schema.has_function or schema.has_context_dependent_function)

    def expanded(self, node: Any, inputs: list[Item | None], opset: int, label: str) -> Sequence[Item | None]:
        """Returns the results by the body that ONNX gives for the operator."""
        schema = self.schema(node)
        if schema is None or not (schema.has_function or schema.has_context_dependent_function):
            name = node.op_type if not node.domain else f"{node.domain}.{node.op_type}"
            raise UnsupportedOnnxOperators({name: [label]})
        if schema.has_context_dependent_function:
            types = [type_of(self.onnx, v, self.small.get(v)).SerializeToString() for v in inputs]  # type: ignore[arg-type]
            body = self.onnx.FunctionProto()
            body.ParseFromString(schema.get_context_dependent_function(node.SerializeToString(), types))
        else:
            body = schema.function_body
        versions = {_domain_of(o): o.version for o in body.opset_import} or {"": opset}
        return self.body(node, body, inputs, versions, schema)

    def body(
        self, node: Any, function: Any, inputs: list[Item | None], opsets: Mapping[str, int], schema: Any = None
    ) -> Sequence[Item | None]:
        """Returns the results of a function's body; its attributes get the node's, or their defaults."""
        if len(inputs) > len(function.input):
            raise OnnxError(f"{label_of(node)}: {len(inputs)} inputs for a function of {len(function.input)}")
        given = {a.name: a for a in node.attribute}
        for a in function.attribute_proto:
            given.setdefault(a.name, a)
        if schema is not None:
            for name, a in schema.attributes.items():
                if a.default_value.type:
                    given.setdefault(name, a.default_value)
        scope: dict[str, Item | None] = {
            name: v for name, v in zip(function.input, inputs, strict=False) if v is not None
        }
        for inner in in_order(function.node, scope):
            copy = self.onnx.NodeProto()
            copy.CopyFrom(inner)
            bind(self.onnx, copy, given)
            for n, name in enumerate(copy.input):
                if name and name not in scope and name in function.input:
                    copy.input[n] = ""
            self.nodes([copy], scope, opsets)
        return [scope.get(name) for name in function.output]


def _domain_of(node: Any) -> str:
    """Returns the domain of a node, or of an import of operators; empty for ONNX's own."""
    return "" if node.domain in _DEFAULT_DOMAINS else str(node.domain)


def _plain(name: str) -> str:
    """Returns the name of a symbolic size as an identifier."""
    return Builder().fresh(name[:_LONGEST_NAME])


def _size_of(dimension: Any, otherwise: str) -> int | str:
    """Returns the number or the name of a dimension of an input. ``otherwise`` names one that can have any size: exporters
    leave it out, or write -1 or ``?``."""
    if dimension.HasField("dim_value") and dimension.dim_value >= 0:
        return int(dimension.dim_value)
    named = any(letter.isalpha() for letter in dimension.dim_param)
    return str(dimension.dim_param) if named else otherwise


def _holds_strings(attribute: Any) -> bool:
    """Returns whether an attribute of a Constant gives it strings."""
    return attribute.name in ("value_string", "value_strings") or attribute.t.data_type == STRING


def _way_out(inputs: Sequence[Item | None]) -> str:
    """Returns what to try where an operator needs sizes that only the call knows, else nothing."""
    free = {var.name: None for v in inputs if isinstance(v, Value) for d in v.shape if isinstance(d, Expr) for var in vars_in(d)}  # fmt: skip
    return f"; shapes= can give {', '.join(free)} as numbers" if free else ""
