"""This package has one row per operation that a :class:`Call` may name: :data:`OPERATIONS`, by ``tir.<name>``.

A row (:class:`Operation`) says what the arguments are and which types fit, what the result is, what it means on NumPy
values, what else the call does, how it is vectorized and written, and what it costs. Parser, printer, verifier,
interpreter, simplifier, ``te``, ``T`` and both back ends read it. A row is also the function that builds the call:

>>> from tilewright.tir.expr.intrinsics import OPERATIONS
>>> from tilewright.tir.expr.intrinsics.number_operations import fma
>>> fma(3.0, 4.0, 0.5).script()
'T.fma(T.float32(3.0), T.float32(4.0), T.float32(0.5))'
>>> OPERATIONS["tir.fma"] is fma
True

:func:`register_operation` adds a row.
"""

from __future__ import annotations

from ..nodes import Call
from . import control_and_memory, matrix_operations, number_operations, warp_fragments
from .operation_row import KEEPS_NUMBERS, Effect, Evaluator, Lanes, Operation, Spelling, TypeRule

__all__ = [
    "Effect", "Evaluator", "KEEPS_NUMBERS", "Lanes", "OPERATIONS", "Operation", "Spelling", "TypeRule", "effect_of",
    "lanes_of_call", "operation_named", "register_operation",
]  # fmt: skip

OPERATIONS: dict[str, Operation] = {}
"""The operations, by the name that a call holds."""


def register_operation(operation: Operation) -> Operation:
    """Add an operation, and return it. ValueError when there is one of this name."""
    if operation.op in OPERATIONS:
        raise ValueError(f"there is an operation {operation.name} already")
    OPERATIONS[operation.op] = operation
    return operation


def operation_named(name: str) -> Operation:
    """Return the operation ``tir.<name>``; ValueError when there is none."""
    if f"tir.{name}" not in OPERATIONS:
        raise ValueError(f"there is no operation {name!r}")
    return OPERATIONS[f"tir.{name}"]


def effect_of(call: Call) -> Effect:
    """Return what ``call`` does besides computing a value; an unknown operation may write memory."""
    row = OPERATIONS.get(call.op)
    return Effect.WRITES if row is None else row.effect


def lanes_of_call(call: Call) -> Lanes:
    """Return what ``call`` becomes in a vectorized loop; a loop around an unknown operation stays a loop."""
    row = OPERATIONS.get(call.op)
    return Lanes.NEVER if row is None else row.lanes


for _module in (number_operations, matrix_operations, warp_fragments, control_and_memory):
    for _row in (*vars(_module).values(), *getattr(_module, "UNSUPPORTED", ())):
        if isinstance(_row, Operation):
            register_operation(_row)
