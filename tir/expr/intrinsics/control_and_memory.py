"""This module has the operations that choose, remark, return, or get the address of an element.

The interpreter evaluates them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..nodes.arithmetic import match_types
from ..nodes.constants import convert
from ..nodes.expr import Expr
from .operation_row import Effect, Lanes, Operation, Spelling
from .type_rules import address, anything, choice, condition, stated


def _as_choice(args: Sequence[Any]) -> Sequence[Expr]:
    cond = convert(args[0])
    if not cond.dtype.is_bool:
        raise TypeError(f"if_then_else: the condition is {cond.dtype}, not bool")
    return cond, *match_types(args[1], args[2])


if_then_else = Operation(
    "if_then_else", ("cond", "t", "f"),
    "t where cond holds, else f; only the chosen side is evaluated, so that it may guard a read", choice, _as_choice,
)  # fmt: skip
likely = Operation("likely", ("cond",), "cond, which holds most of the time", anything, flops=0)
assume = Operation("assume", ("condition",), "a condition that always holds", condition, effect=Effect.WRITES)
ret = Operation(
    "ret", ("value",), "return from the function with a value", anything, effect=Effect.WRITES, lanes=Lanes.IN_ORDER
)
undef = Operation("undef", (), "an unspecified value", stated(), lanes=Lanes.NEVER, spelling=Spelling.TYPED)
address_of = Operation(
    "address_of", ("load",), "the address of an element", address, effect=Effect.ADDRESS, lanes=Lanes.NEVER
)
