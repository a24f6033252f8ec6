"""This module says where two programs that should be equal differ first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .expr import BUFFER_VALUES, Comparison, Expr, FloatImm, IntImm, plain
from .expr.deep_recursion import with_room
from .expr.node import NodePart
from .printer import script
from .stmt import PrimFunc, Stmt


@with_room
def assert_structural_equal(a: Any, b: Any, map_free_vars: bool = False) -> None:
    """Raise AssertionError, with the first difference marked in both texts, unless the two are structurally equal."""
    comparison = _Traced(map_free_vars)
    if comparison.same(a, b):
        return
    pairs = comparison.unequal[::-1]
    spots = next((p for p in reversed(pairs) if isinstance(p[0], (Stmt, PrimFunc)) and type(p[0]) is type(p[1])), None)
    texts = [script(x, highlight={} if spots is None else {spots[n]: "differs here"}) for n, x in enumerate((a, b))]
    where = "".join([_step(up[0], down[0]) for up, down in zip(pairs, pairs[1:], strict=False)])
    raise AssertionError(
        f"not structurally equal, first at {where.lstrip('.') or 'the top'}: {comparison.reason(*pairs[-1])}\n"
        f"--- left\n{texts[0]}\n--- right\n{texts[1]}"
    )


class _Traced(Comparison):
    """A comparison that keeps the pairs that are not equal, innermost first."""

    rules = Comparison.rules

    def __init__(self, map_free_vars: bool) -> None:
        super().__init__(map_free_vars)
        self.unequal: list[tuple[Any, Any]] = []

    def noted(self, equal: bool, a: Any, b: Any) -> bool:
        """Return ``equal``, and note a pair that is not."""
        if not equal:
            self.unequal.append((a, b))
        return equal

    def same(self, a: Any, b: Any) -> bool:
        return self.noted(super().same(a, b), a, b)

    def define(self, a: Any, b: Any) -> bool:
        return self.noted(super().define(a, b), a, b)

    def declare(self, a: Any, b: Any) -> bool:
        return self.noted(super().declare(a, b), a, b)

    def buffer(self, a: Any, b: Any) -> bool:
        known = len(self.unequal)
        return super().buffer(a, b) or self.noted(len(self.unequal) > known, a, b)

    def reason(self, a: Any, b: Any) -> str:
        """Return how the innermost pair differs."""
        if type(a) is not type(b):
            return f"{_kind(a)} against {_kind(b)}"
        if not isinstance(a, NodePart):
            return f"{a!r} against {b!r}"
        if isinstance(a, (IntImm, FloatImm)):
            return f"{a} ({a.dtype}) against {b} ({b.dtype})"
        differing = _differing_field(a, b)
        if differing:
            return differing
        if a.identity:
            what = "variable" if a.identity == "var" else a.identity
            if b is not self.to_right.get(a, b):
                return f"{what} {a.name} corresponds to {self.to_right[a].name}, not to {b.name}"  # type: ignore[attr-defined]
            if a is not self.to_left.get(b, a):
                return f"{b.name} corresponds to {self.to_left[b].name}, not to {a.name}"  # type: ignore[attr-defined]
            return f"free {what}s {a.name} and {b.name} are different objects"  # type: ignore[attr-defined]
        return f"{_kind(a)} against {_kind(b)}"


def _differing_field(a: Any, b: Any) -> str:
    """Return how plain values or the lengths of two parts differ; an empty text if they do not."""
    fields = BUFFER_VALUES if a.identity == "buffer" else [n for n in type(a).__dataclass_fields__ if n != "name"]
    for name in fields:
        x, y = getattr(a, name), getattr(b, name)
        if isinstance(x, tuple) and isinstance(y, tuple):
            if len(x) != len(y):
                return f"{len(x)} {name} against {len(y)}"
        elif isinstance(x, Mapping):
            if sorted(map(str, x)) != sorted(map(str, y)):
                return f"{name} {sorted(map(str, x))} against {sorted(map(str, y))}"
        elif not isinstance(x, (NodePart, type(None))) and x != y and name not in a.names:
            return f"{name} {x!r} against {y!r}"
    return ""


def _step(parent: Any, child: Any) -> str:
    """Return how the text of a path goes from an object to one that it holds."""
    for name in getattr(type(parent), "__dataclass_fields__", ()):
        value = getattr(parent, name)
        if value is child:
            return f".{name}"
        items = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, tuple) else ()
        for key, item in items:
            if (
                item is child
                or not isinstance(item, NodePart)
                and not isinstance(child, NodePart)
                and plain(item) == child
            ):
                return f".{name}[{getattr(key, 'name', key)!r}]"
    return ""


def _kind(x: Any) -> str:
    if not isinstance(x, NodePart):
        return repr(x)
    text = str(x) if isinstance(x, Expr) else ""
    return f"{type(x).__name__}{f' {text}' if text and len(text) < 60 else ''}"
