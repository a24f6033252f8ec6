"""The ways in which a target multiplies and adds several steps of a reduction in each lane."""

from __future__ import annotations

from dataclasses import dataclass

from ...codegen.machine.target import Target
from ...schedule.intrin import (
    INT8_DOT_INTRINS,
    INT16_DOT_INTRINS,
    BF16_DOT_4x2_INTRIN,
    BF16_DOT_8x2_INTRIN,
    BF16_DOT_16x2_INTRIN,
)

_TURNED = {"int8": "uint8", "uint8": "int8"}
_BF16_DOTS = {16: BF16_DOT_16x2_INTRIN, 8: BF16_DOT_8x2_INTRIN, 4: BF16_DOT_4x2_INTRIN}
_PAIR_WORK = 1.5
"""The time of ``vpmaddwd`` and a sum, in multiplications: sums run on a third pipe, too."""


@dataclass(frozen=True)
class DotForm:
    """A way of products of ``left`` by ``right``: the intrinsic takes ``lanes`` columns and ``width`` steps at once.

    ``shifts``: the right factor is shifted by 128 to the other signedness, and sums are corrected. ``widens``: the left
    factor is copied as int16. ``work``: how long it takes, in multiplications of vectors.
    """

    left: str
    right: str
    intrinsic: str
    lanes: int
    width: int
    shifts: bool = False
    widens: bool = False
    work: float = 1.0


def dot_forms(target: Target) -> tuple[DotForm, ...]:
    """Returns the best way of each pair of types for which the target has instructions.

    Of bfloat16 they are those that take the time of a multiplication of float32: of AArch64, and of AMD's processors.
    Intel's take as long as two.
    """
    found = [_int8_form(target, left, right) for left in _TURNED for right in _TURNED]
    lanes = target.dot_lanes("tir.dot2_bf16")
    if lanes and (target.arch == "aarch64" or target.mcpu.startswith("znver")):
        found.append(DotForm("bfloat16", "bfloat16", _BF16_DOTS[lanes[0]], lanes[0], 2))
    return tuple(form for form in found if form is not None)


def _int8_form(target: Target, left: str, right: str) -> DotForm | None:
    """Returns the form with the most lanes: the instruction for these types, that for a shifted factor, pairs of int16."""
    direct, shifted = _int8_lanes(target, left, right), _int8_lanes(target, left, _TURNED[right])
    if direct and direct >= shifted:
        return DotForm(left, right, INT8_DOT_INTRINS[direct, left, right], direct, 4)
    if shifted:
        return DotForm(left, right, INT8_DOT_INTRINS[shifted, left, _TURNED[right]], shifted, 4, shifts=True)
    pairs = target.dot_lanes("tir.dot2_i16")
    if not pairs:
        return None
    return DotForm(left, right, INT16_DOT_INTRINS[pairs[0], right], pairs[0], 2, widens=True, work=_PAIR_WORK)


def _int8_lanes(target: Target, left: str, right: str) -> int:
    """Returns the lanes of the instruction for these types, 0 where there is none."""
    op = "tir.dot4_u8i8" if left != right else "tir.dot4_i8i8" if left == "int8" else "tir.dot4_u8u8"
    return max(target.dot_lanes(op), default=0)
