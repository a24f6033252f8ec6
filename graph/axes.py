"""Orders of dimensions, and the axes over which an operator reduces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .graph import Node


def axes_of(node: Node) -> tuple[int, ...]:
    """Returns the order of a transpose: dimension ``d`` of the result is dimension ``axes[d]`` of the operand."""
    n = node.output.ndim
    axes = node.attrs.get("axes")
    return tuple(reversed(range(n))) if axes is None else tuple([a % n for a in axes])


def inverse(axes: Sequence[int]) -> tuple[int, ...]:
    """Returns the order that undoes ``axes``."""
    return tuple([list(axes).index(d) for d in range(len(axes))])


def moves_only_ones(shape: Sequence[Any], axes: Sequence[int]) -> bool:
    """Returns whether a transpose leaves all elements where they are: other dimensions than those of extent 1 keep their
    order."""
    kept = [a for a in axes if not (isinstance(shape[a], int) and shape[a] == 1)]
    return kept == sorted(kept)


def axes_without_negatives(axis: object, ndim: int) -> tuple[int, ...]:
    """Returns the dimensions that ``axis`` (None: all, one, or several) names, in order."""
    if axis is None:
        return tuple(range(ndim))
    every = axis if isinstance(axis, (tuple, list)) else (axis,)
    return tuple(sorted({int(a) % max(ndim, 1) for a in every}))


def reduced_axes(node: Node, keepdims: bool = True) -> tuple[int, ...] | None:
    """Returns the dimensions that a reduction goes over; None unless it keeps them (or not) as ``keepdims`` says."""
    if bool(node.attrs.get("keepdims", False)) is not keepdims:
        return None
    (x,) = node.given
    return axes_without_negatives(node.attrs.get("axis"), x.ndim)
