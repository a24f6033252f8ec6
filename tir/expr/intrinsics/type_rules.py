"""This module has the type rules that several operations share: which arguments fit, and what type the result has.

A rule is called with the arguments and with the type that the program states, or None. It raises TypeError when the
arguments do not fit. A rule whose arguments do not determine the result returns the stated type when that is possible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..base.dtype import DType
from ..nodes.expr import BufferLoad, Expr, StringImm
from .operation_row import TypeRule


def same(fits: Callable[[DType], bool], what: str) -> TypeRule:
    """Return the rule that all arguments and the result have one type, which ``fits``; ``what`` describes it."""
    fitting: dict[DType, bool] = {}

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        first = args[0].dtype
        for a in args:
            if a.dtype != first:
                break
        else:
            if first not in fitting:
                fitting[first] = fits(first)
            if fitting[first]:
                return first
        raise TypeError(f"takes {what}, not {types_text(args)}")

    return rule


def types_text(args: Sequence[Expr]) -> str:
    """Return the types of arguments, for messages."""
    return ", ".join([a.dtype for a in args])


def is_int_or_bool(dtype: DType) -> bool:
    """Return whether a type is one of integers or bools."""
    return dtype.is_int or dtype.is_bool


floats = same(lambda t: t.is_float, "floats of one type")
integers = same(lambda t: t.is_int, "integers of one type")
bits = same(is_int_or_bool, "integers or bools of one type")
numbers = same(lambda t: t.is_int or t.is_float, "numbers")
condition = same(lambda t: t.is_bool, "a bool")
anything = same(lambda dtype: True, "values of one type")


def choice(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type that both values have. The first argument is a bool, with one lane or with as many as they."""
    cond, yes, no = [a.dtype for a in args]
    if not cond.is_bool:
        raise TypeError(f"the condition is {cond}, not bool")
    if yes != no:
        raise TypeError(f"the values are {yes} and {no}, of two types")
    if cond.lanes not in (1, yes.lanes):
        raise TypeError(f"the condition is {cond}, the values are {yes}")
    return yes


def stated(default: str | None = None, name_first: bool = False) -> TypeRule:
    """Return the rule that the program states the type, or it is ``default``.

    ``name_first``: the first argument is a text, the name of a function.
    """

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        if name_first and not isinstance(args[0], StringImm):
            raise TypeError(f"the first argument is the name of a function, not {args[0]}")
        if dtype is None and default is None:
            raise TypeError("state the type of the result")
        return default if dtype is None else dtype or "void"  # type: ignore[return-value]

    return rule


def address(args: Sequence[Expr], dtype: str | None) -> str:
    """Return handle; the argument is an element of a buffer."""
    if not isinstance(args[0], BufferLoad):
        raise TypeError(f"takes an element of a buffer, not {args[0]}")
    return "handle"
