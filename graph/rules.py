"""Rewrite rules over graphs: a pattern of operators, and a function that returns what takes its place.

>>> from tilewright.graph import Builder
>>> from tilewright.graph.rules import any_value, number, rewritten, rule
>>> @rule(any_value("x") * number(1.0))
... def times_one(m):
...     return m["x"]
>>> b = Builder()
>>> x = b.input("x", (3,))
>>> print(rewritten(b.graph([b.op("relu", b.op("multiply", b.constant(1.0), x))]), [times_one]))
def main(x: float32[3]):
    relu: float32[3] = relu(x)
    return relu

Patterns come first, then what a rule may ask and make (:class:`Match`), and the sweeps that apply rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..tir.expr import DType, to_numpy
from ..tir.expr.dtype import from_bits, kept_as_bits, round_float, to_bits
from .graph import Graph, GraphError, Node, Value, same_shape, substituted, without_unread
from .graph_operators import OPERATORS, infer, operator

COMMUTATIVE = frozenset(
    {"add", "multiply", "maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"}
)
"""Operators whose two operands may be exchanged."""

ASSOCIATIVE = COMMUTATIVE - {"equal", "not_equal"}
"""Operators of which a pattern may have more than two operands: it fits any tree of them, in any order."""

Bindings = Mapping[str, Any]


@dataclass(frozen=True)
class KnownGraph:
    """What a pattern is matched against: the operator that computes each value, and the constants."""

    producers: Mapping[Value, Node]
    constants: Mapping[Value, np.ndarray[Any, Any]]


class Pattern:
    """A pattern fits a value, or does not. ``+ - * /`` of patterns and numbers are patterns of these operators."""

    def match(self, value: Value, known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
        """Yields each way to fit ``value``: ``bound`` and what this pattern binds besides."""
        raise NotImplementedError

    def __add__(self, other: Pattern | float) -> Pattern:
        return _arithmetic("add", self, other)

    def __radd__(self, other: float) -> Pattern:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Pattern | float) -> Pattern:
        return _arithmetic("subtract", self, other)

    def __rsub__(self, other: float) -> Pattern:
        return _arithmetic("subtract", other, self)

    def __mul__(self, other: Pattern | float) -> Pattern:
        return _arithmetic("multiply", self, other)

    def __rmul__(self, other: float) -> Pattern:
        return _arithmetic("multiply", other, self)

    def __truediv__(self, other: Pattern | float) -> Pattern:
        return _arithmetic("divide", self, other)

    def __rtruediv__(self, other: float) -> Pattern:
        return _arithmetic("divide", other, self)


def pattern_of(given: Pattern | float) -> Pattern:
    """Returns a pattern itself; of a number the pattern of constants that are it.

    Numbers of more than a few binary digits are programs' own roundings of a formula's: they fit when they are near.
    """
    return given if isinstance(given, Pattern) else number(given, near=is_rounded(given))


def is_rounded(given: float) -> bool:
    """Returns whether a number has more digits than float16 holds."""
    return round_float(given, "float16") != given


def _arithmetic(name: str, a: Pattern | float, b: Pattern | float) -> Pattern:
    """Returns the pattern of ``a`` and ``b``; sums and products of several are one pattern, which fits any order."""
    parts = []
    for p in (pattern_of(a), pattern_of(b)):
        joins = isinstance(p, _Apply) and p.ops == (name,) and name in ASSOCIATIVE and not p.name and p.args is not None
        parts += list(p.args) if joins else [p]  # type: ignore[attr-defined]
    return op(name, *parts)


@dataclass(frozen=True)
class Attribute:
    """Stands for an attribute in a pattern. With a ``name``, any number fits and gets it, else what is near ``number``."""

    name: str = ""
    number: float = 0.0


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

    def match(self, value: Value, known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
        yield from _bind(bound, self.name, value)


@dataclass(frozen=True, eq=False)
class _Constant(Pattern):
    name: str
    number: float | None = None
    near: bool = False

    def match(self, value: Value, known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
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
            return bool(np.all(_is_near(numbers, self.number, dtype)))
        wanted = round_float(self.number, dtype)
        return bool(np.all(numbers == wanted) and np.all(np.signbit(numbers) == np.signbit(wanted)))


def _is_near(numbers: Any, wanted: float, dtype: str) -> Any:
    """Returns where numbers are within four units in the last place of a float type. Other types must be equal."""
    if not DType(dtype).is_float:
        return numbers == wanted
    known = {"bfloat": 2.0**-7, "float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}.get(DType(dtype).kind)
    unit = float(np.finfo(to_numpy(dtype)).eps) if known is None else known
    return np.abs(numbers - wanted) <= 4 * unit * abs(wanted)


def numbers_of(data: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Returns the numbers that the data of a constant mean: bfloat16 is stored as bits and becomes float32."""
    return np.asarray(from_bits(data, dtype)) if kept_as_bits(dtype) else data


@dataclass(frozen=True, eq=False)
class _Apply(Pattern):
    ops: tuple[str, ...]
    args: tuple[Pattern | None, ...] | None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""

    def match(self, value: Value, known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
        node = known.producers.get(value)
        if node is None or node.op not in self.ops or len(node.outputs) != 1:
            return
        told = self._attributes_fit(node)
        if told is None:
            return
        for named in _bind({**bound, **told} if told else bound, self.name, node):
            if self.args is None:
                yield named
            elif node.op in ASSOCIATIVE:
                yield from _spread(node, self.args, known, named)
            else:
                for given in _orders(node):
                    yield from _in_order(given, self.args, known, named)

    def _attributes_fit(self, node: Node) -> Bindings | None:
        """Returns the bindings with those of the attributes, or None when the attributes are not those of the pattern."""
        defaults = OPERATORS[node.op].defaults
        told = {}
        for key, wanted in self.attrs.items():
            value = node.attrs.get(key, defaults.get(key))
            if not isinstance(wanted, Attribute):
                if value != wanted:
                    return None
            elif wanted.name:
                told[wanted.name] = value
            elif not _is_near(value, wanted.number, node.output.dtype):
                return None
        return told


def _orders(node: Node) -> list[tuple[Value | None, ...]]:
    return [node.inputs, node.inputs[::-1]] if node.op in COMMUTATIVE else [node.inputs]


def _in_order(
    given: Sequence[Value | None], args: Sequence[Pattern | None], known: KnownGraph, bound: Bindings
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


def _spread(node: Node, args: Sequence[Pattern | None], known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
    """Yields the ways to divide the patterns among both operands; an operand with several of them has the same operator."""
    wanted = [a for a in args if a is not None]
    left, right = node.inputs
    assert left is not None and right is not None
    for chosen in range(1, 2 ** len(wanted) - 1):
        first = [a for n, a in enumerate(wanted) if chosen >> n & 1]
        second = [a for n, a in enumerate(wanted) if not chosen >> n & 1]
        for more in _side(left, first, node.op, known, bound):
            yield from _side(right, second, node.op, known, more)


def _side(value: Value, wanted: Sequence[Pattern], op: str, known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
    if len(wanted) == 1:
        yield from wanted[0].match(value, known, bound)
        return
    node = known.producers.get(value)
    if node is not None and node.op == op:
        yield from _spread(node, wanted, known, bound)


@dataclass(frozen=True, eq=False)
class _Either(Pattern):
    options: tuple[Pattern, ...]

    def match(self, value: Value, known: KnownGraph, bound: Bindings) -> Iterator[Bindings]:
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


def op(ops: str, *args: Pattern | float | None, bind: str = "", **attrs: Any) -> Pattern:
    """Fits an operator of one of the names in ``ops`` whose operands fit ``args`` and which has the attributes.

    Operands of commutative operators may stand in any order; of ``add``, ``multiply``, ``maximum`` … a pattern may have
    three operands and more, and fits any tree of them. None fits an operand that is left out. ``bind`` names the node.
    """
    return _Apply(_known(ops), tuple([None if a is None else pattern_of(a) for a in args]), attrs, bind)


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


_ROUNDS = 50
"""The most sweeps over a graph; more mean that rules undo each other."""


@dataclass(frozen=True, eq=False)
class Rule:
    """A pattern, and a function that returns the value that replaces what fits, or None to leave it."""

    name: str
    pattern: Pattern
    replace: Callable[[Match], Value | None]


def rule(pattern: Pattern) -> Callable[[Callable[[Match], Value | None]], Rule]:
    """Returns a decorator that makes a rule of the function that replaces ``pattern``."""
    return lambda replace: Rule(getattr(replace, "__name__", "rule"), pattern, replace)


@dataclass(frozen=True)
class Match:
    """A place in a graph that a pattern fits. ``match[name]`` is the value that the pattern's part of that name fits; ``op``
    and ``constant`` make the replacement."""

    bound: Bindings
    root: Node
    _sweep: _Sweep
    rule: str = "a rule"

    def __getitem__(self, name: str) -> Value:
        found: Value = self._named(name)
        return found

    def _named(self, name: str) -> Any:
        if name not in self.bound:
            known = ", ".join(map(repr, self.bound)) or "nothing"
            raise GraphError(f"the rule {self.rule} asks for {name!r}; what fits its pattern here names {known}")
        return self.bound[name]

    def __contains__(self, name: str) -> bool:
        return name in self.bound

    def node(self, name: str) -> Node:
        """Returns the operator that ``bind`` has named."""
        found: Node = self._named(name)
        return found

    @property
    def out(self) -> Value:
        """Returns the value that is replaced."""
        return self.root.output

    def fits(self, value: Value) -> bool:
        """Returns whether a value has the type and the shape of what is replaced: no operand was broadcast or widened."""
        return value.dtype == self.out.dtype and same_shape(value.shape, self.out.shape)

    def attribute(self, name: str) -> Any:
        """Returns the attribute that the pattern's :class:`Attribute` of that name fits."""
        return self._named(name)

    def data(self, value: Value) -> np.ndarray[Any, Any] | None:
        """Returns the data of a constant; None for any other value."""
        return self._sweep.constants.get(value)

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Returns the data of the constant that a part of the pattern stands for: bits, where it is bfloat16."""
        return self._sweep.constants[self[name]]

    def numbers(self, name: str) -> np.ndarray[Any, Any]:
        """Returns the numbers of the constant that a part of the pattern stands for; those of bfloat16 as float32."""
        return numbers_of(self.array(name), self[name].dtype)

    def producer(self, value: Value) -> Node | None:
        """Returns the operator that computes a value."""
        return self._sweep.producers.get(value)

    def readers(self, value: Value) -> int:
        """Returns how many operators read a value, at most; an output of the graph counts as one more."""
        return self._sweep.readers[value]

    def op(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """Returns the result of a new operator."""
        (out,) = self.several(op, *inputs, **attrs)
        return out

    def several(self, op: str, *inputs: Value | None, **attrs: Any) -> tuple[Value, ...]:
        """Returns the results of a new operator."""
        found = infer(op, inputs, attrs)
        outputs = tuple([Value(self._sweep.fresh(op), dtype, shape) for dtype, shape in found])
        self._sweep.append(Node(op, inputs, outputs, attrs))
        return outputs

    def constant(self, data: Any, dtype: str | None = None) -> Value:
        """Returns a new constant. Data of bfloat16 is its bits, or numbers to round."""
        if dtype is not None and kept_as_bits(dtype) and np.asarray(data).dtype != to_numpy(dtype):
            data = to_bits(data, dtype)
        array = np.asarray(data, None if dtype is None else to_numpy(dtype), order="C")
        v = Value(self._sweep.fresh("c"), dtype or array.dtype.name, tuple(array.shape))
        self._sweep.constants[v] = array
        return v


class _Sweep:
    """One walk over the operators of a graph, in order, which makes the new graph.

    ``nodes`` are the operators of the new graph so far, and ``mapping`` has the new value for each value that was replaced."""

    def __init__(self, graph: Graph, names: set[str]) -> None:
        self.graph, self.names = graph, names
        self.producers: dict[Value, Node] = {}
        self.constants = dict(graph.constants)
        self.nodes: list[Node] = []
        self.mapping: dict[Value, Value] = {}
        self.applied: dict[str, str] = {}
        """What each rule did last, by its name."""
        self.readers: Counter[Value] = Counter(graph.outputs)
        for node in graph.nodes:
            self.readers.update(node.given)

    def fresh(self, name: str) -> str:
        out, n = name, 0
        while out in self.names:
            n += 1
            out = f"{name}_{n}"
        self.names.add(out)
        return out

    def append(self, node: Node) -> None:
        self.nodes.append(node)
        for v in node.outputs:
            self.producers[v] = node

    def run(self, rules: Mapping[str, Sequence[Rule]]) -> Graph:
        for old in self.graph.nodes:
            node = substituted(old, self.mapping)
            new = self.replaced(node, rules.get(node.op, ())) if len(node.outputs) == 1 else None
            if new is None:
                self.append(node)
                continue
            self.mapping[old.output] = new
            self.readers[new] += self.readers[old.output]
        if not self.mapping:
            return self.graph
        outputs = tuple([self.mapping.get(v, v) for v in self.graph.outputs])
        return without_unread(self.graph.replaced(self.nodes, outputs=outputs, constants=self.constants))

    def replaced(self, node: Node, rules: Sequence[Rule]) -> Value | None:
        """Returns the value that the first fitting rule puts in the place of the operator's result. None when none fits."""
        self.producers[node.output] = node
        for r in rules:
            for bound in r.pattern.match(node.output, KnownGraph(self.producers, self.constants), {}):
                new = r.replace(Match(bound, node, self, r.name))
                if new is None:
                    continue
                self.applied[r.name] = f"{_said(node)} becomes {_said(self.producers.get(new)) or new.name}"
                if new.dtype != node.output.dtype or not same_shape(new.shape, node.output.shape):
                    raise GraphError(f"the rule {r.name} puts {new} in place of {node.output}")
                return new
        return None


def rewritten(graph: Graph, rules: Iterable[Rule]) -> Graph:
    """Returns the graph after sweeps of the rules, first come first served, until none fits; unread operators are gone.

    GraphError for rules whose replacement has another type, and for rules that do not come to an end.
    """
    by_op: dict[str, list[Rule]] = {}
    for r in rules:
        found = roots(r.pattern)
        if not found:
            raise GraphError(f"the pattern of the rule {r.name} does not begin with an operator")
        for op in found:
            by_op.setdefault(op, []).append(r)
    names = {v.name for v in graph.values()}
    for _ in range(_ROUNDS):
        sweep = _Sweep(graph, names)
        after = sweep.run(by_op)
        if after is graph:
            return graph
        graph = after
    steps = "; ".join([f"{name}: {said}" for name, said in sorted(sweep.applied.items())])
    raise GraphError(
        f"after {_ROUNDS} sweeps there is still something to replace; the last one: {steps}. A rule must not fit what it "
        "makes, nor make what another rule turns back"
    )


def _said(node: Node | None) -> str:
    """Returns an operator and its operands, ``add(x, y)``; empty for none."""
    return "" if node is None else f"{node.op}({', '.join(['None' if v is None else v.name for v in node.inputs])})"
