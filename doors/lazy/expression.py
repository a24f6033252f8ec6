"""This module records operators: an expression is data, or an operator of the graph applied to other expressions."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...graph.graph_operators import infer
from .lazy_types import DType

DEEPEST = 256
"""Expressions of more operators one on the other are computed in pieces."""


class Expression:
    """An expression has a data type and a shape, and either ``data`` or what computes it.

    ``which`` is the number of the result of an operator with several. ``is_number``: the data is a Python number, which
    may become a constant. ``holder``: the array that stands for the expression, as long as somebody has it.
    """

    __slots__ = ("attrs", "data", "depth", "dtype", "holder", "inputs", "is_number", "op", "shape", "which")

    def __init__(self, dtype: DType, shape: tuple[int, ...], data: Any = None, is_number: bool = False) -> None:
        self.dtype, self.shape, self.data, self.is_number = dtype, shape, data, is_number
        self.op, self.which, self.depth = "", 0, 0
        self.inputs: tuple[Expression, ...] = ()
        self.attrs: dict[str, Any] = {}
        self.holder: weakref.ref[Any] | None = None

    @property
    def is_held(self) -> bool:
        """Returns whether somebody has the array, so that its value is worth keeping. Those made of numbers alone are not."""
        held = self.holder is not None and self.holder() is not None
        return held and not all(e.is_number for e in self.inputs)

    def known(self, data: Any) -> None:
        """Set the value; what computed it is forgotten."""
        self.data, self.inputs, self.attrs, self.depth = data, (), {}, 0


def leaf(data: Any) -> Expression:
    """Returns an expression of data that is there."""
    return Expression(data.dtype, data.shape, data)


def number(value: Any, dtype: DType) -> Expression:
    """Returns an expression of a Python number."""
    return Expression(dtype, (), np.asarray(value, dtype), is_number=True)


def record(op: str, *inputs: Expression, which: int = 0, **attrs: Any) -> Expression:
    """Returns the expression of an operator; :class:`~tilewright.graph.GraphError` where it does not fit its operands."""
    given = [Value("x", e.dtype.name, e.shape) for e in inputs]
    dtype, shape = infer(op, given, attrs)[which]
    out = Expression(np.dtype(dtype), shape)
    if 0 in shape:
        out.data = np.empty(shape, out.dtype)
        return out
    out.op, out.inputs, out.attrs, out.which = op, inputs, attrs, which
    out.depth = 1 + max([e.depth for e in inputs], default=0)
    return out


def unknown_in_order(asked: Iterator[Expression] | list[Expression]) -> list[Expression]:
    """Returns the expressions to compute for those asked for, each after its operands."""
    out: dict[Expression, None] = {}
    waiting = [(e, False) for e in asked]
    while waiting:
        e, ready = waiting.pop()
        if e.data is not None or e in out:
            continue
        if ready:
            out[e] = None
        else:
            waiting += [(e, True), *[(inner, False) for inner in e.inputs]]
    return list(out)
