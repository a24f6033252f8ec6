"""What a converter gets: one node of a model, with its inputs as values. The table of converters.

The package onnx loads when it is needed; its data types are mapped to those of TIR.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import Node, Value, dims
from ...graph.value_dependent import OpenInput
from ...te.ops.arguments import broadcast_extent
from ...tir.expr import Expr, Var, const, convert, vars_in
from ..common.graph_call import C, Converter, GraphCall, entering

LARGEST = 1 << 40
"""The most elements of one tensor."""

LARGEST_TABLE = 1 << 22
"""The most elements of a table that a converter makes."""


class OnnxError(ValueError):
    """Raised for a model that cannot be read: damaged, not supported, or not fitting the shapes that are given."""


def shown(text: Any, quoted: bool = True) -> str:
    """Returns a text of a model as messages show it: on one line, and cut off where it is long."""
    whole = str(text)
    out = repr(whole if len(whole) <= 200 else whole[:200] + "…")
    return out if quoted else out[1:-1]


class NeedsSize(Exception):
    """Raised when a converter has to know whether a size is 1. Reading ends there; it begins again with the answer.

    ``name`` is that of the answer, ``extent`` a formula of the sizes of the model's inputs.
    """

    def __init__(self, name: str, extent: Expr, reason: str) -> None:
        super().__init__(reason)
        self.name, self.extent = name, extent


class NeedsConstant(OnnxError):
    """Raised when a converter needs a value while the graph is made. ``value`` is that value, ``inputs`` are the names of
    the model's inputs from which it is computed. ``nodes`` are the operators that there are when it is asked for."""

    def __init__(
        self, message: str, value: Value | OpenInput, inputs: Sequence[str] = (), nodes: Sequence[Node] = ()
    ) -> None:
        super().__init__(message)
        self.value, self.inputs, self.nodes = value, tuple(inputs), tuple(nodes)


@dataclass(frozen=True, eq=False)
class ValueList:
    """A sequence of a model: its tensors, and the data type that all of them have."""

    items: tuple[Value, ...]
    dtype: str


Item = Value | ValueList
"""What a name of a model stands for."""


class OnnxCall(GraphCall):
    """One node of a model. ``inputs`` are values, None where one is left out; ``opset`` is the version of its domain.

    ``known`` has the numbers of values that are known while the graph is made: constants, and shapes. ``small`` has the
    values of types that the graph has in another one (:data:`HELD_DTYPES`), with their names. ``computes_sizes``: whether a result
    may have a size that a call computes; ``sized`` are the operators for which that matters.
    """

    failure = OnnxError

    def __init__(
        self,
        builder: Builder,
        op_type: str,
        label: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        opset: int,
        outputs: int,
    ) -> None:
        super().__init__(builder, label)
        self.op_type, self.opset = op_type, opset
        self.inputs, self.attributes, self.outputs = list(inputs), attributes, outputs
        self.shapes: Mapping[Value, Any] = {}
        self.sequences: Mapping[int, ValueList] = {}
        self.small: dict[Value, str] = {}
        self.answers: Mapping[str, Any] = {}
        self.computes_sizes, self.sized = True, list[str]()

    def attr(self, name: str, default: Any = None) -> Any:
        """Returns an attribute; texts as ``str``, lists as tuples, tensors as arrays."""
        return self.attributes.get(name, default)

    def input(self, n: int) -> Value:
        """Returns an input that must be there."""
        value = self.optional(n)
        if value is None:
            raise self.error(f"input {n} is missing")
        return value

    def optional(self, n: int) -> Value | None:
        """Returns an input, or None when it is left out."""
        return self.inputs[n] if n < len(self.inputs) else None

    def has(self, n: int) -> bool:
        """Returns whether a tensor is given as input ``n``."""
        return self.optional(n) is not None

    def sequence(self, n: int) -> ValueList:
        """Returns an input that must be a sequence."""
        if n not in self.sequences:
            raise self.error(f"input {n} is not a sequence")
        return self.sequences[n]

    def known(self, n: int) -> Any:
        """Returns the array of an input that is known while the graph is made. None stands for one that is left out."""
        value = self.optional(n)
        if value is None:
            return None
        return self.number(value, f"input {n}, {value.name},")

    def number(self, value: Value, what: str) -> Any:
        """Returns the array of a value, which has to be known while the graph is made; NeedsConstant otherwise."""
        data = self.builder.constants.get(value, self.answers.get(value.name))
        if data is None:
            raise NeedsConstant(f"{self.label}: {what} has to be a constant", value, nodes=self.builder.nodes)
        return data

    def is_one(self, x: Value, d: int) -> bool | None:
        """Returns whether a size of ``x`` is 1. Where inputs tell that at the call, it is asked for; None: nothing tells it."""
        extent = x.shape[d]
        if isinstance(extent, int):
            return extent == 1
        if not vars_in(extent) <= {e for v in self.builder.inputs for e in v.shape if isinstance(e, Var)}:
            return None
        name = unit_size_name(extent.name if isinstance(extent, Var) else f"dimension {d} of {x.name}")
        if name not in self.answers:
            raise NeedsSize(name, extent, f"{self.label}: whether {extent} is 1 has to be known")
        return bool(self.answers[name])

    def ints(self, n: int, attribute: str = "", default: Any = None) -> Any:
        """Returns a tuple of numbers: the attribute of older versions where it is given, else input ``n``."""
        if attribute and attribute in self.attributes:
            given = self.attributes[attribute]
            return tuple(given) if isinstance(given, (tuple, list)) else (given,)
        data = self.known(n)
        return default if data is None else tuple([int(d) for d in np.ravel(data)])

    def dims(self, n: int, attribute: str = "", default: Any = None) -> Any:
        """Returns what :meth:`ints` does, with expressions of symbolic sizes among the numbers."""
        value = self.optional(n)
        if attribute in self.attributes or value is None or value not in self.shapes:
            return self.ints(n, attribute, default)
        return tuple(self.shapes[value].flat)

    def broadcast(self, *values: Value) -> tuple[Any, ...]:
        """Returns the shape to which the values broadcast."""
        out: list[Any] = []
        for d in range(max(v.ndim for v in values)):
            extents = [v.shape[v.ndim - 1 - d] for v in values if d < v.ndim]
            wide = [e for e in extents if e != 1]
            if len({e for e in wide if isinstance(e, int)}) > 1:
                raise self.error(f"the shapes {', '.join(v.type_text for v in values)} do not broadcast")
            out.append(dims([reduce(broadcast_extent, map(convert, wide), const(1))])[0])
        return tuple(reversed(out))

    def axis(self, axis: int, x: Value) -> int:
        """Returns the dimension of ``x`` that a number names; negative ones count from the end. OnnxError for none."""
        if not -x.ndim <= axis < x.ndim:
            raise self.error(f"the axis {axis} of {x.type_text}, which has {x.ndim} dimensions")
        return int(axis) % x.ndim

    def limit(self, shape: Sequence[Any], most: int = LARGEST) -> None:
        """Raise OnnxError for sizes that are not known, negative, or of more elements than ``most``."""
        if not all(isinstance(d, int) and d >= 0 for d in shape) or math.prod(shape) > most:
            raise self.error(f"the shape {tuple(shape)} is not known, or too large")

    # what converters build with

    def like(self, number: float, x: Value) -> Value:
        """Returns a constant scalar of the data type of ``x``."""
        return self.builder.constant(number, "c", x.dtype)


CONVERTERS: dict[tuple[str, str], Converter] = {}
"""All converters by domain (empty for ONNX's own) and operator. They take a :class:`.call.OnnxCall`."""


def register_onnx_operator(name: str, convert: Converter, domain: str = "") -> None:
    """Add a converter: a function of a :class:`.call.OnnxCall` that returns the value of the result, or a tuple of values.

    An operator that is there already is replaced.

    >>> register_onnx_operator("Double", lambda c: c.op("add", c.input(0), c.input(0)), domain="example")
    >>> del CONVERTERS["example", "Double"]
    """
    CONVERTERS[domain, name] = convert


def converter(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a function for operators of ONNX's own domain."""
    return entering(CONVERTERS, *[("", name) for name in names])


def contributed(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a function for operators of ONNX Runtime's own domain."""
    return entering(CONVERTERS, *[("com.microsoft", name) for name in names])


DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn", 19: "float8_e5m2",
}  # fmt: skip
"""The data types that are supported, by ONNX's number."""

STRING = 8
"""ONNX's number of the data type of strings, which is not supported."""

OUTSIDE = "string operators are not supported: tokenize outside of the model"
"""What to do with strings, as messages say it."""

SMALL_DTYPES = {21: "uint4", 22: "int4", 25: "uint2", 26: "int2"}
"""Types of less than a byte, by ONNX's number. The graph has their numbers as uint8 or int8."""


CODED_DTYPES = {18: "float8_e4m3fnuz", 20: "float8_e5m2fnuz", 23: "float4_e2m1fn", 24: "float8_e8m0fnu"}
"""Floats that kernels do not have, by ONNX's number. The graph has their codes as uint8."""

HELD_DTYPES = {**SMALL_DTYPES, **CODED_DTYPES}
"""All types that the graph has in another one."""


def bits_of(held: str) -> int:
    """Returns how many bits a number of a type in :data:`HELD_DTYPES` has."""
    return int(held.removeprefix("float")[0]) if held in CODED_DTYPES.values() else int(held[-1])


def holding(held: str) -> str:
    """Returns the data type in which the graph has the numbers of one in :data:`HELD_DTYPES`, or their codes."""
    return "uint8" if held in CODED_DTYPES.values() else held[:-1] + "8"


def dtype_of(number: int, label: str) -> str:
    """Returns the data type of an ONNX number; OnnxError names ``label`` for one that is not supported."""
    if number not in DTYPES:
        types = load_onnx().TensorProto.DataType
        name = types.Name(number) if number in types.values() else str(number)
        hint = f"; {OUTSIDE}" if number == STRING else ""
        raise OnnxError(f"{label}: the data type {name.lower()} is not supported{hint}")
    return DTYPES[number]


def stored_dtype(number: int, label: str) -> str:
    """Returns the data type in which the graph has a tensor of ONNX's type ``number``."""
    return holding(HELD_DTYPES[number]) if number in HELD_DTYPES else dtype_of(number, label)


def unit_size_name(size: str) -> str:
    """Returns the name of the answer whether a size is 1. No value has such a name."""
    return f"{size} == 1"


def number_of(dtype: str) -> int:
    """Returns ONNX's number of a data type that is supported."""
    return next(number for number, name in DTYPES.items() if name == dtype)


def type_of(onnx: Any, v: Item | None, held: str | None = None) -> Any:
    """Returns ONNX's type of a value, an empty one for None. ``held``: the type that the graph has in another one."""
    if v is None:
        return onnx.TypeProto()
    number = number_of(v.dtype) if held is None else next(n for n, name in HELD_DTYPES.items() if name == held)
    if isinstance(v, ValueList):
        return onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(number, None))
    return onnx.helper.make_tensor_type_proto(number, [d if isinstance(d, int) else None for d in v.shape])


def load_onnx() -> Any:
    """Returns the package onnx; OnnxError with the pip command when it is not installed."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise OnnxError("reading ONNX models needs the package onnx: pip install 'tilewright[onnx]'") from error
