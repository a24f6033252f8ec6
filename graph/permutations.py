"""This module has what is known of orders of dimensions, as transposes have them."""

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
