"""This module keeps the results of arithmetic when an expression of places is written in the stead of a load.

A load is data, whose arithmetic wraps around in its type; arithmetic of places (of axes, loops and constants) never wraps
(``tir/expr/nodes/index_types.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.arith import Analyzer
from ...tir.expr import INDEX_TYPES, Add, BufferLoad, Expr, Mul, Sub, cast, max_value, min_value
from ...tir.expr.base.node import Node
from ...tir.expr.nodes.index_types import index_like
from ...tir.walk import pre_order, transform


def as_data(value: Expr) -> Expr:
    """Return a value whose arithmetic wraps around in its type, as that of a load of it does."""
    return cast(value.dtype, cast(f"u{value.dtype}", value))


def may_wrap(analyzer: Analyzer, reader: Node, value_of: Callable[[BufferLoad], Expr | None]) -> bool:
    """Return whether arithmetic of data in ``reader`` becomes arithmetic of places that may leave its type.

    ``value_of`` gives the value in the stead of a load, or None; ``analyzer`` knows the ranges of the variables in it.
    """

    def post(n: Any) -> Any:
        return value_of(n) if isinstance(n, BufferLoad) else None

    for n in pre_order(reader):
        if isinstance(n, (Add, Sub, Mul)) and n.dtype in INDEX_TYPES and not index_like(n):
            new = transform(n, post=post)
            if index_like(new):
                low, high = analyzer.const_int_bound(new)
                if low is None or high is None or low < min_value(n.dtype) or high > max_value(n.dtype):
                    return True
    return False
