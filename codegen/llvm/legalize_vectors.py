"""Legalizes vectors of any number of lanes for instructions that work on whole registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .function_builder import FunctionBuilder
from .llvm_types import llvm_type


def by_registers(
    fn: FunctionBuilder, values: list[str], scalars: tuple[str, str], lanes: int, widths: Sequence[int],
    instruction: Callable[[int, list[str]], str],
) -> str:  # fmt: skip
    """Apply ``instruction`` to one register of lanes at a time. A vector with few lanes occupies the front of one
    register.

    ``scalars``: the element types of the values and of the result; ``widths``: the numbers of lanes of a register, the
    largest first; ``instruction`` gets the number of lanes to work on, and a register of each value.
    """
    ours, theirs = map(llvm_type, scalars)
    register = next((w for w in widths if lanes % w == 0), None) or (widths[-1] if lanes < widths[-1] else 0)
    if not register:  # as many of the smallest registers as hold all lanes
        register = widths[-1]
    room = -(-lanes // register) * register
    if room > lanes:
        values = [fn.resized(ours, v, lanes, room) for v in values]
    parts = [instruction(register, [fn.cut(ours, v, room, at, register) for v in values])
             for at in range(0, room, register)]  # fmt: skip
    whole, have = parts[0], register
    for part in parts[1:]:
        whole, have = fn.appended(theirs, whole, part, have, register), have + register
    return fn.resized(theirs, whole, room, lanes) if room > lanes else whole
