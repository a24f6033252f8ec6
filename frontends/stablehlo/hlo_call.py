"""What a converter gets: one operation of a StableHLO program, with its operands; and the table of converters.

The MLIR of the package jaxlib loads when it is needed; its data types and attributes are mapped to those of TIR.

What is known while the graph is made is computed: counters of loops, and sizes. Arrays of symbolic sizes hold expressions,
on which NumPy's arithmetic works as on numbers.

Reductions, windows, scatters and sorts carry small functions, whose meaning is looked up here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import Value, same_shape
from ...tir.expr import DType, Expr, max_identity, min_identity, to_numpy
from ..common.graph_call import C, Converter, GraphCall, entering


class StableHloError(ValueError):
    """Raised for a StableHLO program that cannot be read."""


def load_jaxlib(module: str) -> Any:
    """Returns a module of jaxlib's MLIR; StableHloError with the pip command when jaxlib is not installed."""
    try:
        return importlib.import_module(f"jaxlib.mlir.{module}")
    except ImportError as error:
        raise StableHloError("reading StableHLO needs the package jaxlib: pip install 'tilewright[jax]'") from error


DTYPES = {
    "i1": "bool", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
    **{f"{letters}{bits}": f"{name}{bits}" for bits in (8, 16, 32, 64)
       for letters, name in (("i", "int"), ("si", "int"), ("ui", "uint"))},
}  # fmt: skip
"""The data types that are supported, by their names in MLIR."""


def dtype_of(element: Any) -> str:
    """Returns an element type of MLIR as TIR names it; StableHloError for one that is not supported."""
    name = str(element)
    if name not in DTYPES:
        raise StableHloError(f"the data type {name} is not supported")
    return DTYPES[name]


def elements(attribute: Any) -> np.ndarray[Any, Any]:
    """Returns the numbers of a dense attribute; those of bfloat16 as float32, one number where all are equal."""
    if getattr(attribute, "is_splat", False):
        number = attribute.get_splat_value().value
        return np.asarray(number)
    try:
        found = np.array(attribute)
    except (TypeError, ValueError):
        found = np.asarray(None)
    if found.dtype != object:
        return found
    if str(attribute.type.element_type) == "bf16":
        return _brain_floats(attribute)
    raise StableHloError(f"a constant of the kind {type(attribute).__name__} is not supported")


def _brain_floats(attribute: Any) -> np.ndarray[Any, Any]:
    """Returns the numbers of an attribute of bfloat16, of which the bindings give single elements only."""
    count = int(np.prod(attribute.type.shape))
    return np.array([attribute[n] for n in range(count)], np.float32).reshape(attribute.type.shape)


def plain(attribute: Any) -> Any:
    """Returns an attribute as a number, a text, a truth value, or a list of them."""
    kind = type(attribute).__name__
    if kind in ("IntegerAttr", "FloatAttr", "StringAttr", "BoolAttr", "FlatSymbolRefAttr"):
        return attribute.value
    if kind == "ArrayAttr":
        return [plain(a) for a in attribute]
    if kind.startswith("Dense") and kind.endswith("ArrayAttr"):
        return list(attribute)
    if kind.startswith("Dense"):
        return np.broadcast_to(elements(attribute), attribute.type.shape).tolist()
    return attribute


LARGEST_KNOWN = 64
"""Results of more elements are left to the graph."""


@dataclass(frozen=True, eq=False)
class KnownArray:
    """An array whose elements are known: numbers, or expressions of symbolic sizes."""

    data: np.ndarray[Any, Any]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape."""
        return self.data.shape

    @property
    def is_symbolic(self) -> bool:
        """Returns whether an element depends on a symbolic size."""
        return self.data.dtype == object

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.data.shape)} {self.data.tolist()}"


def known(data: Any, dtype: str) -> KnownArray:
    """Returns an array of elements that are known; numbers get the data type."""
    array = np.asarray(data)
    if array.dtype != object:
        return KnownArray(array.astype(to_numpy(dtype)), dtype)
    if not any(isinstance(e, Expr) for e in array.flat):
        return KnownArray(array.astype(to_numpy(dtype)), dtype)
    return KnownArray(array, dtype)


def _divided(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        return a // b
    if a.dtype.kind == "f":
        return a / b
    return np.where(b == 0, -1, np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1)))


def _left(a: Any, b: Any) -> Any:
    return a % b if a.dtype == object or b.dtype == object else np.fmod(a, np.where(b == 0, 1, b))


_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divided,
    "remainder": _left,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negate": lambda a: -a,
    "abs": np.abs,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "select": lambda p, a, b: np.where(p, a, b),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}

_ORDER = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}  # fmt: skip

_ON_EXPRESSIONS = ("add", "subtract", "multiply", "divide", "remainder")


def computed(
    name: str, given: Sequence[KnownArray], attributes: dict[str, Any], dtype: str, shape: Any
) -> KnownArray | None:
    """Returns the result of an operation on known arrays; None where it is left to the graph."""
    if any(DType(k.dtype) == "bfloat16" for k in given) or dtype == "bfloat16":
        return None
    data = [k.data for k in given]
    symbolic = any(k.is_symbolic for k in given)
    if any(d is None for d in shape) or np.prod(shape, initial=1) > LARGEST_KNOWN:
        return None
    with np.errstate(all="ignore"):
        if name in _MOVES:
            return known(_MOVES[name](data, attributes, shape), dtype)
        if name == "compare":
            test = _ORDER[attributes["direction"]]
            return None if symbolic else known(test(*data), dtype)
        if name in _NUMBERS and (not symbolic or name in _ON_EXPRESSIONS):
            if DType(dtype).is_bool and name in ("add", "multiply"):
                return known(np.logical_or(*data) if name == "add" else np.logical_and(*data), dtype)
            return known(_NUMBERS[name](*data), dtype)
    return None


def _sliced(data: Any, attributes: dict[str, Any], shape: Any) -> Any:
    spans = zip(attributes["start_indices"], attributes["limit_indices"], attributes["strides"], strict=True)
    return data[0][tuple(slice(a, b, s) for a, b, s in spans)]


def _spread(data: Any, attributes: dict[str, Any], shape: Any) -> Any:
    wide = [1] * len(shape)
    for d, extent in zip(attributes["broadcast_dimensions"], data[0].shape, strict=True):
        wide[d] = extent
    return np.broadcast_to(data[0].reshape(wide), shape)


_MOVES: dict[str, Callable[[Any, dict[str, Any], Any], Any]] = {
    "reshape": lambda data, attributes, shape: data[0].reshape(shape),
    "convert": lambda data, attributes, shape: data[0],
    "concatenate": lambda data, attributes, shape: np.concatenate(data, attributes["dimension"]),
    "slice": _sliced,
    "broadcast_in_dim": _spread,
    "iota": lambda data, attributes, shape: np.broadcast_to(
        np.arange(shape[attributes["iota_dimension"]]).reshape(
            [-1 if d == attributes["iota_dimension"] else 1 for d in range(len(shape))]
        ),
        shape,
    ),
}


Given = Value | KnownArray
"""What an operand is: a value of the graph, or an array that is known."""


class HloCall(GraphCall):
    """One operation. ``args`` are its operands; ``run(region, *args)`` adds a region's operations and returns its
    results; ``narrow`` has values as they were before they were broadcast."""

    failure = StableHloError

    def __init__(
        self,
        operation: Any,
        label: str,
        args: Sequence[Given],
        builder: Builder,
        run: Callable[..., list[Given]],
        narrow: dict[Value, Value],
    ) -> None:
        super().__init__(builder, label)
        self.operation, self.args = operation, list(args)
        self.run, self.narrow = run, narrow

    @property
    def name(self) -> str:
        """Returns the operation's name without its dialect, ``add``."""
        return str(self.operation.name).rpartition(".")[2]

    # types and attributes

    def dtype_of(self, n: int) -> str:
        """Returns the data type of result ``n``."""
        return dtype_of(self.operation.results[n].type.element_type)

    def shape_of(self, n: int) -> tuple[int | None, ...]:
        """Returns the shape of result ``n``, None for sizes that the program leaves open."""
        kind = self.operation.results[n].type
        return tuple(None if kind.is_dynamic_dim(d) else kind.shape[d] for d in range(kind.rank))

    @property
    def dtype(self) -> str:
        """Returns the data type of the first result."""
        return self.dtype_of(0)

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Returns the shape of the first result."""
        return self.shape_of(0)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Returns an attribute as a plain number, text or list."""
        attributes = self.operation.attributes
        return plain(attributes[name]) if name in attributes else default

    @property
    def regions(self) -> list[Any]:
        """Returns the regions."""
        return list(self.operation.regions)

    # operands

    def value(self, n: int | Given) -> Value:
        """Returns an operand as a value of the graph."""
        given = self.args[n] if isinstance(n, int) else n
        if isinstance(given, Value):
            return given
        if given.is_symbolic:
            return self.size(given.data, given.dtype)
        first = given.data.reshape(-1)[:1]
        if given.data.size > 1 and given.data.tobytes() == first.tobytes() * given.data.size:
            return self.full(given.shape, first[0], given.dtype)
        return self.builder.constant(given.data, "c", given.dtype)

    @property
    def values(self) -> list[Value]:
        """Returns all operands as values."""
        return [self.value(n) for n in range(len(self.args))]

    @property
    def x(self) -> Value:
        """Returns the first operand."""
        return self.value(0)

    def numbers(self, n: int, what: str) -> list[Any]:
        """Returns the elements of an operand that has to be known."""
        given = self.args[n]
        if isinstance(given, KnownArray):
            return list(given.data.reshape(-1))
        if given in self.builder.constants:
            return list(self.builder.constants[given].reshape(-1))
        raise self.error(f"{what} has to be known while the program is read")

    def literal(self) -> Given:
        """Returns what the attribute ``value`` holds; few elements are known, and equal ones are one, broadcast."""
        attribute = self.operation.attributes["value"]
        data = elements(attribute)
        shape = tuple(attribute.type.shape)
        if math.prod(shape) <= LARGEST_KNOWN and self.dtype != "bfloat16":
            return known(np.broadcast_to(data, shape), self.dtype)
        if data.shape == shape:
            return self.constant(data, self.dtype)
        return self.full(shape, data, self.dtype)

    # operators

    def broadcast(self, x: Value, shape: Sequence[Any]) -> Value:
        """Returns ``x`` of that shape; operators that broadcast by themselves may take it as it was before."""
        if same_shape(x.shape, tuple(shape)):
            return x
        out = self.op("broadcast_to", x, shape=tuple(shape))
        self.narrow[out] = self.narrow.get(x, x)
        return out

    def full(self, shape: Sequence[Any], number: Any, dtype: str) -> Value:
        """Returns an array of one number."""
        return self.broadcast(self.constant(number, dtype), shape)

    def together(self, op: str, *inputs: Value) -> Value:
        """Add an element-wise operator of operands of one shape. Operands that were broadcast are taken as before, as
        long as one has the whole shape."""
        shape = max((v.shape for v in inputs), key=len)
        before = [self.narrow.get(v, v) for v in inputs]
        if not any(same_shape(v.shape, shape) for v in before):
            whole = next(n for n, v in enumerate(inputs) if same_shape(v.shape, shape))
            before[whole] = inputs[whole]
        return self.op(op, *before)

    def cut(self, x: Value, begin: Sequence[int], end: Sequence[Any], strides: Sequence[int] | None = None) -> Value:
        """Returns a part of ``x``; ``x`` itself where that is all."""
        steps = tuple(strides or [1] * x.ndim)
        if not any(begin) and same_shape(tuple(end), x.shape) and all(s == 1 for s in steps):
            return x
        return self.op("strided_slice", x, begin=tuple(begin), end=tuple(end), strides=steps)


CONVERTERS: dict[str, Converter] = {}
"""All converters by the operation's full name, such as ``stablehlo.add``; custom calls as ``custom_call @target``. They take
an :class:`.hlo_call.HloCall`, and may return known arrays."""


def op(*names: str) -> Callable[[C], C]:
    """Returns a decorator that enters a converter under the full names of operations.

    >>> @op("custom_call @twice")
    ... def twice(c):
    ...     return c.op("add", c.x, c.x)
    >>> del CONVERTERS["custom_call @twice"]
    """
    return entering(CONVERTERS, *names)


def hlo(*names: str) -> Callable[[C], C]:
    """Returns :func:`op` for names of ``stablehlo``."""
    return op(*[f"stablehlo.{name}" for name in names])


COMMUTATIVE = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")


def meaning(region: Any) -> str:
    """Returns the name of the one operation that a region applies to its two arguments. It is ``second`` where the
    region returns its second argument, and an empty text for other regions."""
    (block,) = region.blocks
    *items, end = [item.operation for item in block.operations]
    if len(block.arguments) != 2 or len(end.operands) != 1:
        return ""
    if not items:
        return "second" if end.operands[0] == block.arguments[1] else ""
    (only, *more) = items
    name = str(only.name).removeprefix("stablehlo.")
    if more or name not in COMMUTATIVE or end.operands[0] != only.results[0]:
        return ""
    straight = list(only.operands) in (list(block.arguments), list(reversed(list(block.arguments))))
    return name if straight else ""


def neutral(name: str, dtype: str) -> Any:
    """Returns the number that does not change the other operand; None where there is none."""
    kind = DType(dtype)
    if name in ("add", "or", "xor"):
        return 0
    if name == "multiply":
        return 1
    if name == "and":
        return 1 if kind.is_bool else -1
    if name not in ("maximum", "minimum"):
        return None
    return max_identity(dtype) if name == "maximum" else min_identity(dtype)


def is_neutral(c: HloCall, name: str, given: Given) -> bool:
    """Returns whether a start value is known to be the neutral one."""
    data = given.data if isinstance(given, KnownArray) else c.builder.constants.get(given)
    if data is None or data.dtype == object or data.size != 1 or given.dtype == "bfloat16":
        return False
    wanted = neutral(name, given.dtype)
    number = data.item()
    return wanted is not None and (number == wanted or (name == "and" and number in (wanted, True)))


def applied(c: HloCall, region: Any, args: list[Value]) -> list[Value]:
    """Returns the results of a region of single elements, applied to arrays of one shape element by element."""
    shape = args[0].shape
    out = []
    for r in c.run(region, *args):
        v = c.value(r)
        out.append(v if same_shape(v.shape, shape) else c.broadcast(v, shape))
    return out
