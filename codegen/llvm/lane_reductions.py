"""Emits horizontal reductions, which combine the lanes of a vector, or of several vectors at once."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import Call, DType, Shuffle
from .function_builder import FunctionBuilder
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, suffix


def _vector_reduce(em: LlvmScope, e: Call) -> str:
    """Returns the combined lanes of a vector, in log2(lanes) steps of halves; several vectors side by side are combined
    together."""
    (vector,) = e.args
    how, rows = e.op.removeprefix("tir.vector_reduce_"), e.dtype.lanes
    if rows == 1:
        return _halved(em, how, em.value(vector), vector.dtype)
    lanes = vector.dtype.lanes // rows
    if isinstance(vector, Shuffle) and len(vector.vectors) == rows and [*vector.indices] == [*range(rows * lanes)]:
        parts = em.values(vector.vectors)
    else:
        text = em.value(vector)
        cuts = [range(n * lanes, (n + 1) * lanes) for n in range(rows)]
        parts = [em.fn.shuffled(em.type(vector), text, "poison", cut) for cut in cuts]
    scalar = e.dtype.element
    return reduce_rows(
        em.fn, parts, scalar, lanes, em.target.vector_lanes(scalar),
        lambda a, b, dtype: _combine(em, how, a, b, DType(dtype)), lambda v, dtype: _halved(em, how, v, DType(dtype)),
    )  # fmt: skip


def _halved(em: LlvmScope, how: str, text: str, dtype: DType) -> str:
    """Returns the combined lanes of one vector.

    Sums of integers are left to LLVM's intrinsic: where halves of halves are added, LLVM 22 takes the sum of bytes times
    bytes, or of their differences, for one of as many bytes as the last half has, and leaves lanes out.
    """
    lanes, scalar = dtype.lanes, dtype.element
    if how == "add" and scalar.is_int and lanes > 1:
        return em.fn.pure(
            em.fn.intrinsic(f"llvm.vector.reduce.add.{suffix(dtype)}", llvm_type(scalar), [llvm_type(dtype)], [text])
        )
    while lanes > 1:
        half, type_ = lanes // 2, llvm_type(scalar.with_lanes(lanes))
        if half == 1:
            low, high = (em.fn.lane(type_, text, n) for n in (0, 1))
        else:
            low, high = (em.fn.shuffled(type_, text, "poison", range(n, n + half)) for n in (0, half))
        text = _combine(em, how, low, high, scalar.with_lanes(half))
        lanes = half
    return text


def _combine(em: LlvmScope, how: str, a: str, b: str, dtype: DType) -> str:
    type_ = llvm_type(dtype)
    if how in ("fmax", "fmin"):
        test = em.fn.pure(f"fcmp {'ogt' if how == 'fmax' else 'olt'} {type_} {a}, {b}")
        return em.fn.chosen(llvm_type(DType("bool").with_lanes(dtype.lanes)), test, type_, a, b)
    if how in ("max", "min"):
        if dtype.is_float:
            return em.float_extreme(how == "max", a, b, dtype)
        return em.fn.called(f"llvm.{'s' if dtype.is_signed else 'u'}{how}.{suffix(dtype)}", type_, a, b)
    return em.fn.pure(f"{'f' if dtype.is_float else ''}{how} {type_} {a}, {b}")


LANE_REDUCTIONS: dict[str, Callable[[LlvmScope, Call], str]] = dict.fromkeys(
    [f"vector_reduce_{how}" for how in ("add", "mul", "fmax", "fmin", "max", "min")], _vector_reduce
)
"""Emitters by the operation's name."""


# Reduces several vectors at once: the rows of a matrix of registers become the lanes of one vector.
#
# Reducing each row by itself takes log2(lanes) shuffles and as many combinations. In a reduction of several rows, each
# step combines the halves of two vectors and puts the results into one, which does the work of two steps with the same
# three instructions. The steps unpack within 128-bit parts first and then exchange those parts, as in a transpose of
# which only the sums of columns are kept.

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
