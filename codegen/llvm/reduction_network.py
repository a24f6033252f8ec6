"""Reduces several vectors at once: the rows of a matrix of registers become the lanes of one vector.

Reducing each row by itself takes log2(lanes) shuffles and as many combinations. In a reduction of several rows, each
step combines the halves of two vectors and puts the results into one, which does the work of two steps with the same
three instructions. The steps unpack within 128-bit parts first and then exchange those parts, as in a transpose of
which only the sums of columns are kept.
"""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import DType
from .function_builder import FunctionBuilder
from .llvm_types import llvm_type

Combine = Callable[[str, str, str], str]
"""The combination of two values of a type."""


def reduce_rows(
    fn: FunctionBuilder, rest: list[str], scalar: DType, lanes: int, register_lanes: int, combine: Combine,
    one: Callable[[str, str], str],
) -> str:  # fmt: skip
    """Returns a vector whose lane ``r`` combines the ``lanes`` lanes of row ``r``. ``one`` reduces a vector of a type to
    a scalar, for shapes that the network does not support."""
    rows = len(rest)
    unit = 128 // scalar.bits  # the lanes of one part, within which unpacking works
    if rows & (rows - 1) or lanes & (lanes - 1) or scalar.bits not in (32, 64) or rows > lanes or lanes < unit:
        base = llvm_type(scalar)
        return fn.joined(f"<{rows} x {base}>", base, (one(part, scalar.with_lanes(lanes)) for part in rest))

    def step(a: str, b: str, low: list[int], high: list[int], width: int) -> str:
        halves = [fn.shuffled(llvm_type(scalar.with_lanes(width)), a, b, order) for order in (low, high)]
        return combine(halves[0], halves[1], scalar.with_lanes(len(low)))

    most = max(unit, register_lanes)
    parts, wide = [], lanes
    for part in rest:  # each row is first reduced to one register
        lanes = wide
        while lanes > max(most, rows):
            part = step(part, part, list(range(lanes // 2)), list(range(lanes // 2, lanes)), lanes)
            lanes //= 2
        parts.append(part)
    have = 1  # rows in each unit of a vector
    while len(parts) > 1 and have < unit:
        low, high = _unpacking(lanes, unit, have)
        parts = [step(a, b, low, high, lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        have *= 2
    copies = lanes // unit  # the number of neighbouring units that hold the same rows
    while copies > 1:
        units = range(lanes // unit)
        low = [u for u in units if u % copies < copies // 2]
        high = [u for u in units if u % copies >= copies // 2]
        if len(parts) > 1:
            both = [[*half, *[u + lanes // unit for u in half]] for half in (low, high)]
            orders = [[u * unit + k for u in half for k in range(unit)] for half in both]
            parts = [step(a, b, orders[0], orders[1], lanes) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        else:
            orders = [[u * unit + k for u in half for k in range(unit)] for half in (low, high)]
            parts = [step(parts[0], parts[0], orders[0], orders[1], lanes)]
            lanes //= 2
        copies //= 2
    width = lanes
    while width > rows:  # fewer rows than a unit has lanes
        width //= 2
        parts = [step(parts[0], parts[0], list(range(width)), list(range(width, 2 * width)), 2 * width)]
    return parts[0]


def _unpacking(lanes: int, unit: int, have: int) -> tuple[list[int], list[int]]:
    """Returns the lanes of two vectors that an unpacking of the halves of each unit takes.

    The first list is for the low halves, the second for the high halves; ``have`` lanes stay together.
    """
    low: list[int] = []
    high: list[int] = []
    for start in range(0, lanes, unit):
        for n in range(unit // 2 // have):
            for order, first in ((low, start), (high, start + unit // 2)):
                chunk = [first + n * have + k for k in range(have)]
                order += [*chunk, *[lanes + k for k in chunk]]
    return low, high
