"""This module defines what an operation is: the row that every layer reads, and the type rules that rows share.

A type rule is called with the arguments and with the type that the program states, or None. It raises TypeError when the
arguments do not fit. A rule whose arguments do not determine the result returns the stated type when that is possible.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..dtype import DType
from ..nodes import BufferLoad, Call, Expr, StringImm
from ..op import as_exprs, refuse_storage

TypeRule = Callable[[Sequence[Expr], "str | None"], str]
"""``rule(arguments, wanted)`` returns the type of the result, and raises TypeError for unfit arguments.

``wanted`` is the type that the program states; an operation whose arguments do not determine its type returns it.
"""
Evaluator = Callable[[DType, Sequence[DType]], Callable[..., Any]]
"""``evaluator(dtype, types)`` returns the function of NumPy values for these types of the result and the arguments."""


class Effect(Enum):
    """Says what a call does besides computing a value from its arguments."""

    NONE = "nothing: equal arguments give equal values"
    ADDRESS = "it makes a pointer, through which others may write"
    READS = "it looks at memory, or at an address, and writes nothing"
    WRITES = "it may write memory or end the program"


class Lanes(Enum):
    """Says what a call becomes when its loop is vectorized and its arguments become vectors."""

    EACH = "the same operation on vectors"
    FIRST = "the same operation, with lanes in the first argument only"
    ONE_BY_ONE = "a call for each lane"
    NEVER = "nothing: the loop stays a loop, because lanes have another meaning here"
    IN_ORDER = "nothing: the effects of the iterations have an order"


class Spelling(Enum):
    """Says how the text form writes a call."""

    PLAIN = "T.name(arguments): the arguments determine the type of the result"
    TYPED = "T.name(type, arguments)"
    CALL = 'T.call("tir.name", arguments, dtype=type)'


KEEPS_NUMBERS = frozenset("tir.if_then_else tir.likely tir.address_of tir.type_annotation tir.reinterpret".split())
"""The operations that take values of storage types: they keep them as they are."""


@dataclass(frozen=True, eq=False)
class Operation:
    """Represents the operation that ``tir.<name>`` names in a :class:`Call`; calling it builds such a call.

    ``parameters`` are the names of the arguments; the last one may be ``*name`` for any number of them. ``prepare``
    converts what the caller gives, and may return another expression altogether. ``evaluate`` is the meaning on NumPy
    values; the interpreter itself evaluates operations without one. ``flops`` is what :mod:`...cost` counts,
    ``instructions`` the approximate number of vector instructions in float32, and ``c_name`` the function of C's
    mathematical library, without the ``f`` of float. ``exact``: of floats, the result is a number of their type.
    ``as_stored``: it loads or multiplies numbers of storage types, whose type lowering leaves to it.
    """

    name: str
    parameters: tuple[str, ...]
    meaning: str
    rule: TypeRule
    prepare: Callable[[Sequence[Any]], Sequence[Expr] | Expr] = as_exprs
    evaluate: Evaluator | None = None
    effect: Effect = Effect.NONE
    lanes: Lanes = Lanes.EACH
    spelling: Spelling = Spelling.PLAIN
    flops: int = 1
    instructions: int = 1
    c_name: str = ""
    exact: bool = False
    as_stored: bool = False
    op: str = field(init=False)
    """The name in a :class:`Call`."""
    count: int | None = field(init=False)
    """The number of arguments; None for any number of them."""

    def __post_init__(self) -> None:
        kinds = inspect.Parameter
        signature = [
            kinds(p.lstrip("*"), kinds.VAR_POSITIONAL if p.startswith("*") else kinds.POSITIONAL_OR_KEYWORD)
            for p in self.parameters
        ]
        for key, value in (
            ("op", f"tir.{self.name}"),
            ("count", None if "*" in "".join(self.parameters) else len(self.parameters)),
            ("__doc__", f"Returns {self.meaning}."),
            ("__name__", self.name),
            ("__signature__", inspect.Signature(signature)),
        ):
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return f"<operation {self.name}({', '.join(self.parameters)})>"

    def __call__(self, *args: Any, dtype: Any = None, **named: Any) -> Expr:
        """Return a call; TypeError or ValueError when the arguments do not fit. ``dtype`` states the result's type."""
        if self.spelling is Spelling.TYPED and dtype is None:
            if not args or not isinstance(getattr(args[0], "dtype", args[0]), str) or isinstance(args[0], Expr):
                raise TypeError(f"T.{self.name} takes the result's type first, or dtype=")
            dtype, args = args[0], args[1:]
        if named:
            args = self._in_order(args, named)
        if len(args) != self.count:
            self.check_count(len(args))
        made = self.prepare(args)
        if isinstance(made, Expr):
            return made
        return Call(self.op, tuple(made), self.result_type(made, getattr(dtype, "dtype", dtype)))

    def result_type(self, args: Sequence[Expr], dtype: str | None = None) -> str:
        """Return the type of a call with these arguments; TypeError when they do not fit, or ``dtype`` is another."""
        if len(args) != self.count:
            self.check_count(len(args))
        try:
            found = self.rule(args, dtype)
        except (TypeError, ValueError) as e:
            joint = " " if str(e).startswith("takes ") else ": "
            raise type(e)(f"{self.name}{joint}{e}") from None
        kept = [a.dtype for a in args if a.dtype.is_storage]
        if kept and self.op not in KEEPS_NUMBERS and not self.as_stored:
            raise refuse_storage(kept[0], self.name)
        if dtype and dtype != found:
            raise TypeError(f"{self.name}: the result is {found}, not {dtype}")
        return found

    def check_count(self, count: int) -> None:
        """Raise TypeError unless the operation takes ``count`` arguments."""
        if self.count is None and count < len(self.parameters) - 1:
            raise TypeError(f"{self.name} takes at least {_arguments(len(self.parameters) - 1)}, not {count}")
        if self.count is not None and count != self.count:
            raise TypeError(f"{self.name} takes {_arguments(self.count)}, not {count}")

    def _in_order(self, args: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arguments by position."""
        rest = self.parameters[len(args) :]
        unknown = [key for key in named if key not in rest]
        if unknown:
            raise TypeError(f"{self.name} has no argument {unknown[0]!r} left; it takes {', '.join(self.parameters)}")
        return (*args, *[named[key] for key in rest if key in named])


def _arguments(count: int) -> str:
    return f"{count} argument{'s' * (count != 1)}"


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
