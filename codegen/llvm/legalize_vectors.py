"""Legalizes vectors of any number of lanes for instructions that work on whole registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.expr import DType
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
    source, result = scalars
    register = next((w for w in widths if lanes % w == 0), None) or (widths[-1] if lanes < widths[-1] else 0)
    if not register:  # as many of the smallest registers as hold all lanes
        register = widths[-1]
    room = -(-lanes // register) * register
    if room > lanes:
        values = [_resized(fn, v, source, lanes, room) for v in values]
    parts = [instruction(register, [cut(fn, v, DType(source), room, at, register) for v in values])
             for at in range(0, room, register)]  # fmt: skip
    whole, have = parts[0], register
    for part in parts[1:]:
        whole, have = appended(fn, whole, part, DType(result), have, register), have + register
    return _resized(fn, whole, result, room, lanes) if room > lanes else whole


def _resized(fn: FunctionBuilder, text: str, scalar: str, have: int, want: int) -> str:
    """Returns the first ``want`` lanes; missing lanes hold arbitrary values."""
    one = llvm_type(scalar)
    if have == 1:
        return fn.joined(f"<{want} x {one}>", one, [text])
    if want == 1:
        return fn.lane(f"<{have} x {one}>", text, 0)
    order = [*range(min(have, want)), *[-1] * max(0, want - have)]
    return fn.shuffled(f"<{have} x {one}>", text, "poison", order)


def cut(fn: FunctionBuilder, text: str, scalar: DType, have: int, at: int, lanes: int) -> str:
    """Returns ``lanes`` lanes of a vector of ``have``, from lane ``at`` on."""
    if have == lanes:
        return text
    return fn.shuffled(llvm_type(scalar.with_lanes(have)), text, "poison", range(at, at + lanes))


def appended(fn: FunctionBuilder, whole: str, part: str, scalar: DType, have: int, lanes: int) -> str:
    """Returns the ``have`` lanes of ``whole`` and behind them the ``lanes``, at most as many, of ``part``."""
    wide = _resized(fn, part, scalar, lanes, have)
    return fn.shuffled(llvm_type(scalar.with_lanes(have)), whole, wide, range(have + lanes))
