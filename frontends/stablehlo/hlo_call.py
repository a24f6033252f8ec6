"""What a converter gets: one operation of a StableHLO program, with its operands; and the table of converters.

Reductions, windows, scatters and sorts carry small functions, whose meaning is looked up here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...graph.builder import Builder
from ...graph.graph import Value, same_shape
from ...tir.expr import DType, max_identity, min_identity
from ..common.converters import C, Converter, entering
from ..common.graph_call import GraphCall
from .jaxlib_package import StableHloError, dtype_of, elements, plain
from .known_arrays import LARGEST_KNOWN, KnownArray, known

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
