"""This module finds which results of a graph share memory: they are views of an input, or of one tensor."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

View = Callable[[Any], Any]


@dataclass(frozen=True)
class Returned:
    """A result: the node that computes it, and the views that are taken of that in turn."""

    root: Any
    views: Sequence[View]

    def of(self, tensor: Any) -> Any:
        """Returns the result, given what the root is."""
        for view in self.views:
            tensor = view(tensor)
        return tensor


def returned(results: Sequence[Any]) -> list[Returned]:
    """Returns a view for each result that shares memory with an input or another result, else the node itself."""
    found = [_followed(r) if hasattr(r, "op") else Returned(r, ()) for r in results]
    count = Counter(id(f.root) for f in found)
    return [
        f if _is_input(f.root) or count[id(f.root)] > 1 else Returned(r, ())
        for f, r in zip(found, results, strict=True)
    ]


def memory_order(node: Any) -> tuple[int, ...] | None:
    """Returns the dimensions of a result in the order in which PyTorch lays it out. None stands for row-major and for
    other layouts.

    Views of a result are those of its layout in PyTorch, such as that of ``transpose(1, 2).flatten(2)`` without a copy.
    """
    val = node.meta.get("val")
    if not hasattr(val, "stride") or not all(isinstance(d, int) for d in (*val.shape, *val.stride())):
        return None
    order = sorted(range(len(val.shape)), key=lambda d: (-val.stride(d), d))
    dense = 1
    for d in reversed(order):
        if val.shape[d] != 1 and val.stride(d) != dense:
            return None
        dense *= val.shape[d]
    return None if order == sorted(order) else tuple(order)


def _is_input(node: Any) -> bool:
    return getattr(node, "op", "") == "placeholder"


def _followed(node: Any) -> Returned:
    views: list[View] = []
    while (step := _view(node)) is not None:
        views.append(step)
        node = node.args[0]
    return Returned(node, views[::-1])


def _view(node: Any) -> View | None:
    """Returns the function that a node applies to its first argument, when its result shares that argument's memory."""
    if (
        node.op != "call_function"
        or not node.args
        or any(_has_nodes(a) for a in (*node.args[1:], *node.kwargs.values()))
    ):
        return None
    target, rest, named = node.target, node.args[1:], dict(node.kwargs)
    if target is operator.getitem:
        return (lambda parts: parts[rest[0]]) if _view(node.args[0]) is not None else None
    schema = getattr(target, "_schema", None)
    first = schema.returns[0].alias_info if schema is not None and schema.returns else None
    if first is None or first.is_write:
        return None
    return lambda tensor: target(tensor, *rest, **named)


def _has_nodes(a: Any) -> bool:
    return any(map(_has_nodes, a)) if isinstance(a, (list, tuple)) else hasattr(a, "op")
