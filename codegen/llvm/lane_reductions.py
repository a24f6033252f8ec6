"""Emits horizontal reductions, which combine the lanes of a vector."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import Call, DType, Shuffle
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, suffix
from .reduction_network import reduce_rows


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
