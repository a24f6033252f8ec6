"""This module tells whether two parts of programs are equal, by what their classes declare.

There are two notions of equal beside identity. :func:`structural_equal`: the programs differ only in names, of
variables, buffers, blocks and the function (``global_symbol``). :func:`same`: two expressions have one value wherever
both are evaluated; their variables and buffers are the same objects, and no call has an effect. Floats are compared by
their bits, and NaN equals NaN. In attributes a constant node and the Python number of the same value are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from .deep_recursion import with_room
from .intrinsics import Effect, effect_of
from .node import declared_fields, plain_fields
from .nodes import Add, Call, FloatImm, FloorDiv, FloorMod, IntImm, Max, Min, Mul, StringImm, Sub, Var


@with_room
def structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> bool:
    """Return whether ``a`` and ``b`` (nodes, regions, ranges) are equal up to renaming.

    Variables and buffers that neither side defines must be the same objects, unless ``map_free_vars`` lets them
    correspond as well.
    """
    return Comparison(map_free_vars).same(a, b)


def same(a: Any, b: Any) -> bool:
    """Return whether two expressions have one value: the same structure over the same variables and buffers."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b) or kind is Var:
        return False
    if kind is IntImm:
        return bool(a.value == b.value) and a.dtype is b.dtype
    if kind in _BINARY:
        return same(a.a, b.a) and same(a.b, b.b)
    return _ValueComparison().same(a, b)


_BINARY = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))
"""Operations on indices, which make up most of what is compared."""


def plain(value: Any) -> Any:
    """Return the value of an attribute in Python's own types: numbers for constants, lists for tuples."""
    if isinstance(value, IntImm):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, FloatImm):
        return value.value
    if isinstance(value, StringImm):
        return value.value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    return value


class Itself:
    """A key that is equal to no other object's key."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Itself) and other.node is self.node


def value_key(e: Any, below: Callable[[Any], Hashable] | None = None) -> Hashable:
    """Return a key that is equal for expressions that are :func:`same`; ``below`` makes the keys of its operands.

    An expression that defines variables, and a call with an effect, have keys of their own.
    """
    cls = type(e)
    rule = _KEYS.get(cls)
    if rule is None:
        rule = _KEYS[cls] = _key_of(cls)
    return rule(e, value_key if below is None else below)


_KEYS: dict[type, Callable[[Any, Callable[[Any], Hashable]], Hashable]] = {}


def _key_of(cls: Any) -> Callable[[Any, Callable[[Any], Hashable]], Hashable]:
    """Return how the key of an object of a class is made."""
    if cls is type(None) or getattr(cls, "identity", None):
        return lambda e, k: e
    if cls is Call:
        return lambda e, k: (e.op, e.dtype, *map(k, e.args)) if effect_of(e) is Effect.NONE else Itself(e)
    parts = declared_fields(cls) if hasattr(cls, "__dataclass_fields__") else [("binds", "", "")]
    if not all(role in ("nodes", "counts", "uses") for role, _, _ in parts):
        return lambda e, k: Itself(e)
    items = ["cls"]
    for name in plain_fields(cls):
        items.append(f"repr(e.{name})" if cls.__dataclass_fields__[name].type == "float" else f"e.{name}")
    for role, name, many in parts:
        form = "e.{}" if role == "uses" else "tuple(map(k, e.{}))" if many == "tuple" else "k(e.{})"
        items.append(form.format(name))
    made: Callable[[Any, Callable[[Any], Hashable]], Hashable] = eval(
        f"lambda e, k: ({', '.join(items)})", {"cls": cls}
    )
    return made


Rule = Callable[[Any, Any, Any], bool]


class Comparison:
    """Compares two programs; it knows which variables and buffers of the left side correspond to which of the right."""

    rules: dict[type, Rule] = {}
    """How objects of one class are compared, made from the declaration of the class at its first use."""

    def __init__(self, map_free_vars: bool = False) -> None:
        self.map_free = map_free_vars
        self.in_func = False
        self.to_right: dict[Any, Any] = {}
        self.to_left: dict[Any, Any] = {}

    def same(self, a: Any, b: Any) -> bool:
        """Return whether two objects of any kind are equal; what they define corresponds from here on."""
        cls = type(a)
        if cls is not type(b):
            return False
        rule = self.rules.get(cls)
        if rule is None:
            rule = self.rules[cls] = _rule_of(cls)
        return rule(self, a, b)

    def each(self, compare: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
        """Return whether two sequences have one length and their items are equal."""
        return len(a) == len(b) and all(map(compare, a, b))

    def attrs(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        """Return whether two mappings have the same keys and values; the name of a function does not count."""
        if not a and not b:
            return True
        left = {k: plain(v) for k, v in a.items() if k != "global_symbol"}
        right = {k: plain(v) for k, v in b.items() if k != "global_symbol"}
        return left.keys() == right.keys() and all([self.same(left[k], right[k]) for k in left])

    # Correspondence

    def bind(self, a: Any, b: Any) -> None:
        """Let ``a`` on the left correspond to ``b`` on the right from here on."""
        old = self.to_right.get(a)
        if old is not None:
            self.to_left.pop(old, None)
        old = self.to_left.get(b)
        if old is not None:
            self.to_right.pop(old, None)
        self.to_right[a], self.to_left[b] = b, a

    def define(self, a: Any, b: Any) -> bool:
        """Let two variables correspond; false when their types differ."""
        if a.dtype != b.dtype:
            return False
        self.bind(a, b)
        return True

    def var(self, a: Any, b: Any) -> bool:
        """Return whether two variables correspond."""
        mapped = self.to_right.get(a)
        if mapped is not None or b in self.to_left:
            return mapped is b
        return self.define(a, b) if self.map_free else a is b

    def buffer(self, a: Any, b: Any) -> bool:
        """Return whether two buffers correspond; inside a function an unknown one is another view, declared here."""
        mapped = self.to_right.get(a)
        if mapped is not None or b in self.to_left:
            return mapped is b
        return self.declare(a, b) if self.map_free or self.in_func else a is b

    def declare(self, a: Any, b: Any) -> bool:
        """Compare the types of two buffers, then let them and their pointers correspond."""
        if (
            any([getattr(a, name) != getattr(b, name) for name in BUFFER_VALUES])
            or not self.each(self.same, a.shape, b.shape)
            or not self.each(self.same, a.strides, b.strides)
            or not self.same(a.elem_offset, b.elem_offset)
        ):
            return False
        if a.data in self.to_right or b.data in self.to_left:
            if not self.var(a.data, b.data):
                return False
        else:
            self.bind(a.data, b.data)
        self.bind(a, b)
        return True

    def match(self, a: Any, b: Any) -> bool:
        """Declare two buffers whose sizes may be new variables."""
        free, self.map_free = self.map_free, True
        out = self.declare(a, b)
        self.map_free = free
        return out

    def parameters(self, a: Mapping[Any, Any], b: Mapping[Any, Any]) -> bool:
        """Compare the buffers of two functions, by parameters that correspond."""
        self.in_func = True
        return len(a) == len(b) and all(
            [self.to_right[p] in b and self.match(buffer, b[self.to_right[p]]) for p, buffer in a.items()]
        )


class _ValueComparison(Comparison):
    """Compares the values of expressions."""

    rules: dict[type, Rule] = {}

    def same(self, a: Any, b: Any) -> bool:
        return a is b and not self.to_right or Comparison.same(self, a, b)


BUFFER_VALUES = ("dtype", "scope", "data_alignment", "offset_factor", "axis_separators")


def same_float(x: float, y: float) -> bool:
    """Return whether two floats are the same number or both NaN; 0.0 and -0.0 differ."""
    return x == y and math.copysign(1.0, x) == math.copysign(1.0, y) or x != x and y != y


def _rule_of(cls: Any) -> Rule:
    """Return how two objects of a class are compared."""
    if cls in (tuple, list):
        return lambda c, a, b: c.each(c.same, a, b)
    if issubclass(cls, float):
        return lambda c, a, b: same_float(a, b)
    if hasattr(cls, "items"):
        return lambda c, a, b: c.attrs(a, b)
    if not hasattr(cls, "parts"):
        return lambda c, a, b: bool(a == b)
    if cls.identity:
        return eval(f"lambda c, a, b: c.{cls.identity}(a, b)")
    if not hasattr(cls, "__dataclass_fields__"):
        return lambda c, a, b: a is b
    made: Rule = eval(f"lambda c, a, b: {' and '.join(_tests(cls)) or True}", {"same_float": same_float})
    return made


def _tests(cls: Any) -> list[str]:
    """Return the tests that make two objects of a class equal. They test plain values first, then parts in their
    order."""
    out = []
    for name in plain_fields(cls):
        kind = cls.__dataclass_fields__[name].type
        form = "same_float({})" if kind == "float" else "c.attrs({})" if kind.startswith("Mapping[") else ""
        if not form:
            form = "c.same({})" if kind == "Any" else ""
        out.append(form.format(f"a.{name}, b.{name}") if form else f"a.{name} == b.{name}")
    methods = {"binds": "define", "uses": "buffer", "declares": "declare", "matches": "match"}
    for role, name, many in declared_fields(cls):
        pair, method = f"a.{name}, b.{name}", f"c.{methods.get(role, 'same')}"
        out.append(
            {"tuple": f"c.each({method}, {pair})", "map": f"c.parameters({pair})"}.get(many, f"{method}({pair})")
        )
    return out


def _pure_calls(c: Any, a: Call, b: Call) -> bool:
    return a.op == b.op and a.dtype == b.dtype and effect_of(a) is Effect.NONE and bool(c.each(c.same, a.args, b.args))


_ValueComparison.rules[Call] = _pure_calls
