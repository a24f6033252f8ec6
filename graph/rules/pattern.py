"""This module describes parts of graphs: operators with operands that are anything, constants, or operators again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...tir.expr import DType
from ...tir.expr.base.rounding import bfloat16_from_bits, round_float
from ..graph import Node, Value
from ..graph_operators import OPERATORS, operator

COMMUTATIVE = frozenset(
    {"add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"}
)
"""Operators whose two operands may be exchanged."""

ASSOCIATIVE = COMMUTATIVE - {"equal", "not_equal"}
"""Operators of which a pattern may have more than two operands: it fits any tree of them, in any order."""

Bindings = Mapping[str, Any]


@dataclass(frozen=True)
class Known:
    """What a pattern is matched against: the operator that computes each value, and the constants."""

    producers: Mapping[Value, Node]
    constants: Mapping[Value, np.ndarray[Any, Any]]


class Pattern:
    """A pattern fits a value, or does not. ``+ - * /`` of patterns are patterns of these operators."""

    def match(self, value: Value, known: Known, bound: Bindings) -> Iterator[Bindings]:
        """Yields each way to fit ``value``: ``bound`` and what this pattern binds besides."""
        raise NotImplementedError

    def __add__(self, other: Pattern) -> Pattern:
        return op("add", self, other)

    def __sub__(self, other: Pattern) -> Pattern:
        return op("subtract", self, other)

    def __mul__(self, other: Pattern) -> Pattern:
        return op("multiply", self, other)

    def __truediv__(self, other: Pattern) -> Pattern:
        return op("divide", self, other)


def _bind(bound: Bindings, name: str, found: Any) -> Iterator[Bindings]:
    """Yields ``bound`` with ``name``; nothing when the name stands for something else already."""
    if not name:
        yield bound
    elif name not in bound:
        yield {**bound, name: found}
    elif bound[name] is found:
        yield bound


@dataclass(frozen=True, eq=False)
class _Anything(Pattern):
    name: str

    def match(self, value: Value, known: Known, bound: Bindings) -> Iterator[Bindings]:
        yield from _bind(bound, self.name, value)


@dataclass(frozen=True, eq=False)
class _Constant(Pattern):
    name: str
    number: float | None = None
    near: bool = False

    def match(self, value: Value, known: Known, bound: Bindings) -> Iterator[Bindings]:
        data = known.constants.get(value)
        if data is None or self.number is not None and not self._is_everywhere(data, value.dtype):
            return
        yield from _bind(bound, self.name, value)

    def _is_everywhere(self, data: np.ndarray[Any, Any], dtype: str) -> bool:
        """Returns whether all elements are the number, with its sign where both are zeros of floats."""
        assert self.number is not None
        numbers = numbers_of(data, dtype)
        if not data.size or numbers.dtype.kind not in "fiu":
            return False
        if numbers.dtype.kind != "f":
            return bool(np.all(numbers == self.number))
        if self.near:
            unit = 2.0**-7 if DType(dtype).kind == "bfloat" else float(np.finfo(numbers.dtype).eps)
            return bool(np.all(np.abs(numbers - self.number) <= 4 * unit * abs(self.number)))
        wanted = round_float(self.number, dtype)
        return bool(np.all(numbers == wanted) and np.all(np.signbit(numbers) == np.signbit(wanted)))


def numbers_of(data: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Returns what the data of a constant stand for: bits of bfloat16 as float32, others as they are."""
    return np.asarray(bfloat16_from_bits(data)) if DType(dtype).kind == "bfloat" else data


@dataclass(frozen=True, eq=False)
class _Apply(Pattern):
    ops: tuple[str, ...]
    args: tuple[Pattern | None, ...] | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def match(self, value: Value, known: Known, bound: Bindings) -> Iterator[Bindings]:
        node = known.producers.get(value)
        if node is None or node.op not in self.ops or len(node.outputs) != 1 or not self._attributes_fit(node):
            return
        for named in _bind(bound, self.name, node):
            if self.args is None:
                yield named
            elif node.op in ASSOCIATIVE:
                yield from _spread(node, self.args, known, named)
            else:
                for given in _orders(node):
                    yield from _in_order(given, self.args, known, named)

    def _attributes_fit(self, node: Node) -> bool:
        defaults = OPERATORS[node.op].defaults
        return all(node.attrs.get(key, defaults.get(key)) == value for key, value in self.attrs.items())


def _orders(node: Node) -> list[tuple[Value | None, ...]]:
    return [node.inputs, node.inputs[::-1]] if node.op in COMMUTATIVE else [node.inputs]


def _in_order(
    given: Sequence[Value | None], args: Sequence[Pattern | None], known: Known, bound: Bindings
) -> Iterator[Bindings]:
    """Yields the ways in which each operand fits its pattern. An operand that is left out fits None, as does a missing
    one."""
    if not args:
        if not any(v is not None for v in given):
            yield bound
        return
    first, wanted = given[0] if given else None, args[0]
    if first is None or wanted is None:
        if first is None and wanted is None:
            yield from _in_order(given[1:], args[1:], known, bound)
        return
    for more in wanted.match(first, known, bound):
        yield from _in_order(given[1:], args[1:], known, more)


def _spread(node: Node, args: Sequence[Pattern | None], known: Known, bound: Bindings) -> Iterator[Bindings]:
    """Yields the ways to divide the patterns among both operands; an operand with several of them has the same operator."""
    wanted = [a for a in args if a is not None]
    left, right = node.inputs
    assert left is not None and right is not None
    for chosen in range(1, 2 ** len(wanted) - 1):
        first = [a for n, a in enumerate(wanted) if chosen >> n & 1]
        second = [a for n, a in enumerate(wanted) if not chosen >> n & 1]
        for more in _side(left, first, node.op, known, bound):
            yield from _side(right, second, node.op, known, more)


def _side(value: Value, wanted: Sequence[Pattern], op: str, known: Known, bound: Bindings) -> Iterator[Bindings]:
    if len(wanted) == 1:
        yield from wanted[0].match(value, known, bound)
        return
    node = known.producers.get(value)
    if node is not None and node.op == op:
        yield from _spread(node, wanted, known, bound)


@dataclass(frozen=True, eq=False)
class _Either(Pattern):
    options: tuple[Pattern, ...]

    def match(self, value: Value, known: Known, bound: Bindings) -> Iterator[Bindings]:
        for option in self.options:
            yield from option.match(value, known, bound)


def any_value(name: str = "") -> Pattern:
    """Fits every value; the same name fits the same value only."""
    return _Anything(name)


def constant(name: str = "") -> Pattern:
    """Fits a constant."""
    return _Constant(name)


def number(value: float, name: str = "", near: bool = False) -> Pattern:
    """Fits a constant of any shape whose elements are all ``value``, rounded to its data type.

    Floats tell 0.0 and -0.0 apart. ``near`` allows four units in the last place, for numbers such as √2 that programs
    round in their own way; it has no place where the number decides what a value becomes exactly, as in x · 1.
    """
    return _Constant(name, value, near)


def op(ops: str, *args: Pattern | None, bind: str = "", **attrs: Any) -> Pattern:
    """Fits an operator of one of the names in ``ops`` whose operands fit ``args`` and which has the attributes.

    Operands of commutative operators may stand in any order; of ``add``, ``multiply``, ``maximum`` … a pattern may have
    three operands and more, and fits any tree of them. None fits an operand that is left out. ``bind`` names the node.
    """
    return _Apply(_known(ops), args, attrs, bind)


def produced(ops: str, bind: str) -> Pattern:
    """Fits an operator of one of the names in ``ops``, whatever its operands; ``bind`` names the node."""
    return _Apply(_known(ops), None, {}, bind)


def _known(ops: str) -> tuple[str, ...]:
    """Returns the names of operators; GraphError for one that there is not."""
    for name in ops.split():
        operator(name)
    return tuple(ops.split())


def either(*options: Pattern) -> Pattern:
    """Fits what one of the patterns fits."""
    return _Either(options)


def optional(ops: str, inner: Pattern, bind: str = "") -> Pattern:
    """Fits ``inner``, or one of the operators applied to it."""
    return _Either((_Apply(_known(ops), (inner,), {}, bind), inner))


def roots(pattern: Pattern) -> frozenset[str] | None:
    """Returns the operators whose results may fit the pattern; None when it may be any."""
    if isinstance(pattern, _Apply):
        return frozenset(pattern.ops)
    if isinstance(pattern, _Either):
        found = [roots(option) for option in pattern.options]
        return None if None in found else frozenset().union(*[f for f in found if f is not None])
    return None
