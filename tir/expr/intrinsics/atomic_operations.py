"""This module has the operations with which threads of all blocks of a GPU add to elements.

``atomic_add(address, value)`` adds to the element at an address (``T.address_of(C[i])``). It returns nothing. Sums of
floats come out in the order of the threads' arrival, which differs from run to run. ``atomic_add_pair(address, first, second)`` adds to an
element at a multiple of four bytes and to the next one, each for itself: two numbers of 16 bits by one instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..nodes.expr import Call, Expr
from .operation_row import Effect, Lanes, Operation

ATOMIC_TYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint32")
"""What can be added."""
PAIR_TYPES = ("float16", "bfloat16")
"""What can be added in pairs."""


def _added(args: Sequence[Expr], dtype: str | None) -> str:
    address, value = args
    if not (isinstance(address, Call) and address.op == "tir.address_of"):
        raise TypeError(f"takes T.address_of(an element), not {address}")
    if value.dtype not in ATOMIC_TYPES:
        raise TypeError(f"adds {', '.join(ATOMIC_TYPES)}, not {value.dtype}")
    if address.args[0].dtype != value.dtype:
        raise TypeError(f"adds {value.dtype} to an element of type {address.args[0].dtype}; cast the value")
    return "void"


def _added_pair(args: Sequence[Expr], dtype: str | None) -> str:
    for value in args[1:]:
        _added((args[0], value), dtype)
        if value.dtype not in PAIR_TYPES:
            raise TypeError(f"adds pairs of {', '.join(PAIR_TYPES)}, not {value.dtype}")
    return "void"


def _add(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    def run(there: np.ndarray, value: Any) -> None:
        there[:1] += np.asarray(value, there.dtype)

    return run


atomic_add = Operation(
    "atomic_add", ("address", "value"), "add to the element at an address at once, whichever threads do so meanwhile",
    _added, evaluate=_add, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip


def _add_pair(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    def run(there: np.ndarray, first: Any, second: Any) -> None:
        there[:2] += np.asarray([first, second], there.dtype)

    return run


atomic_add_pair = Operation(
    "atomic_add_pair", ("address", "first", "second"), "add to two neighbouring elements, to each of them at once",
    _added_pair, evaluate=_add_pair, effect=Effect.WRITES, lanes=Lanes.IN_ORDER,
)  # fmt: skip
