"""Legalizes vectors of any number of lanes for instructions that work on whole registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...tir.dtype import with_lanes
from .llvm_types import llvm_type

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


def by_registers(
    em: ExprEmitter, values: list[str], scalars: tuple[str, str], lanes: int, widths: Sequence[int],
    instruction: Callable[[ExprEmitter, int, list[str]], str],
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
        values = [_resized(em, v, source, lanes, room) for v in values]
    parts = [instruction(em, register, [_cut(em, v, source, room, at, register) for v in values])
             for at in range(0, room, register)]  # fmt: skip
    whole, have = parts[0], register
    for part in parts[1:]:
        whole, have = _appended(em, whole, part, result, have, register), have + register
    return _resized(em, whole, result, room, lanes) if room > lanes else whole


def _shuffled(em: ExprEmitter, a: str, b: str, type_: str, order: list[int]) -> str:
    picks = ", ".join(f"i32 {'poison' if k < 0 else k}" for k in order)
    return em.fn.pure(f"shufflevector {type_} {a}, {type_} {b}, <{len(order)} x i32> <{picks}>")


def _resized(em: ExprEmitter, text: str, scalar: str, have: int, want: int) -> str:
    """Returns the first ``want`` lanes; missing lanes hold arbitrary values."""
    one = llvm_type(scalar)
    if have == 1:
        return em.fn.pure(f"insertelement <{want} x {one}> poison, {one} {text}, i64 0")
    if want == 1:
        return em.fn.pure(f"extractelement <{have} x {one}> {text}, i64 0")
    return _shuffled(em, text, "poison", f"<{have} x {one}>", list(range(min(have, want))) + [-1] * max(0, want - have))


def _cut(em: ExprEmitter, text: str, scalar: str, have: int, at: int, lanes: int) -> str:
    if have == lanes:
        return text
    return _shuffled(em, text, "poison", llvm_type(with_lanes(scalar, have)), list(range(at, at + lanes)))


def _appended(em: ExprEmitter, whole: str, part: str, scalar: str, have: int, lanes: int) -> str:
    wide = _resized(em, part, scalar, lanes, have)
    return _shuffled(em, whole, wide, llvm_type(with_lanes(scalar, have)), list(range(have + lanes)))
