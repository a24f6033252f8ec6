"""This module says over which dimensions a reduction goes."""

from __future__ import annotations

from .graph import Node


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
