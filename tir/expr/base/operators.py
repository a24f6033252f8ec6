"""This module gives expressions and axes Python's operators; :mod:`..nodes.arithmetic` says what each of them builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..nodes.expr import Expr

_NUMPY_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "bitwise_and": "&",
    "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=", "negative": "negative", "invert": "~",
}  # fmt: skip
"""Python's operators by NumPy's names for them."""

_SPELLED = {
    "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "absolute": "abs", "fabs": "abs", "fmod": "truncmod",
    "rint": "round", "logical_and": "all", "logical_or": "any", "square": "power", "float_power": "power", "arctan2": "atan2",
}  # fmt: skip
"""What te calls NumPy's functions, where the names differ."""


def _as_object(e: Any) -> np.ndarray:
    """Returns an array of no dimensions that holds an expression, to which NumPy applies Python's operators."""
    out = np.empty((), object)
    out[()] = e
    return out


BUILDERS: dict[str, Callable[[Any, Any], Any]] = {}
"""What builds the node of an operator from two operands."""


class Operators:
    """The base class of what may stand in arithmetic: expressions, and axes in place of their variables.

    Operands are expressions, axes and Python's numbers. ``==`` builds a node as well, whose truth value is identity, so
    that containers work.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Apply an operator between NumPy's numbers or arrays and expressions; TypeError for NumPy's functions."""
        name = ufunc.__name__
        if name not in _NUMPY_OPERATORS or method != "__call__":
            there = _SPELLED.get(name, name.replace("arc", "a"))
            raise TypeError(f"np.{name} computes on arrays, and {self} is an expression; te.{there} is for expressions")
        inputs = tuple(
            [x[()] if isinstance(x, np.ndarray) else x for x in inputs]
        )  # numbers, of arrays without dimensions
        if any(isinstance(x, np.ndarray) for x in inputs):
            return ufunc(*[_as_object(x) if isinstance(x, Operators) else x for x in inputs], **options)
        return BUILDERS[_NUMPY_OPERATORS[name]](inputs[0], inputs[-1])

    def __add__(self, other: Any) -> Expr:
        return BUILDERS["+"](self, other)

    def __radd__(self, other: Any) -> Expr:
        return BUILDERS["+"](other, self)

    def __sub__(self, other: Any) -> Expr:
        return BUILDERS["-"](self, other)

    def __rsub__(self, other: Any) -> Expr:
        return BUILDERS["-"](other, self)

    def __mul__(self, other: Any) -> Expr:
        return BUILDERS["*"](self, other)

    def __rmul__(self, other: Any) -> Expr:
        return BUILDERS["*"](other, self)

    def __truediv__(self, other: Any) -> Expr:
        return BUILDERS["/"](self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return BUILDERS["/"](other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return BUILDERS["//"](self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return BUILDERS["//"](other, self)

    def __mod__(self, other: Any) -> Expr:
        return BUILDERS["%"](self, other)

    def __rmod__(self, other: Any) -> Expr:
        return BUILDERS["%"](other, self)

    def __and__(self, other: Any) -> Expr:
        return BUILDERS["&"](self, other)

    def __rand__(self, other: Any) -> Expr:
        return BUILDERS["&"](other, self)

    def __or__(self, other: Any) -> Expr:
        return BUILDERS["|"](self, other)

    def __ror__(self, other: Any) -> Expr:
        return BUILDERS["|"](other, self)

    def __xor__(self, other: Any) -> Expr:
        return BUILDERS["^"](self, other)

    def __lshift__(self, other: Any) -> Expr:
        return BUILDERS["<<"](self, other)

    def __rshift__(self, other: Any) -> Expr:
        return BUILDERS[">>"](self, other)

    def __lt__(self, other: Any) -> Expr:
        return BUILDERS["<"](self, other)

    def __le__(self, other: Any) -> Expr:
        return BUILDERS["<="](self, other)

    def __gt__(self, other: Any) -> Expr:
        return BUILDERS[">"](self, other)

    def __ge__(self, other: Any) -> Expr:
        return BUILDERS[">="](self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return BUILDERS["=="](self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return BUILDERS["!="](self, other)

    def __neg__(self) -> Expr:
        return BUILDERS["negative"](self, self)

    def __invert__(self) -> Expr:
        return BUILDERS["~"](self, self)

    def astype(self, dtype: str) -> Expr:
        """Return the value converted to ``dtype``, with the same lanes; the same object when it has the type
        already."""
        return BUILDERS["astype"](self, dtype)

    def equal(self, other: Any) -> Expr:
        """Return the expression ``self == other``."""
        return BUILDERS["equal"](self, other)
