"""This module has the operations in which lanes of a vector meet: reductions, halves, dot products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..nodes.expr import Expr
from .numpy_values import always, on_lanes
from .numpy_values import dot2_bf16 as sum_of_two
from .numpy_values import dot4_u8i8 as sum_of_four
from .operation_row import Lanes, Operation, TypeRule, types_text


def _combined_lanes(fits: Callable[[DType], bool], what: str) -> TypeRule:
    """Return the rule of a reduction of lanes; r lanes of a stated result combine each of r equal parts."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        (have,) = [a.dtype for a in args]
        if not fits(have):
            raise TypeError(f"takes a vector of {what}, not {have}")
        whole = have.element
        if dtype and DType(dtype).element == whole and have.lanes % DType(dtype).lanes == 0:
            return dtype
        return whole

    return rule


def _half_the_lanes(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type of one vector with half as many lanes."""
    (have,) = [a.dtype for a in args]
    if have.lanes % 2:
        raise TypeError(f"takes a vector of an even number of lanes, not {have}")
    return have.with_lanes(have.lanes // 2)


def _dot_product(width: int, *kinds: str) -> TypeRule:
    """Return the rule of a dot product of ``width`` numbers per lane: the sum, and two vectors of ``kinds``."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        lanes = args[0].dtype.lanes
        wanted = [DType(kinds[0]).with_lanes(lanes), *[DType(k).with_lanes(width * lanes) for k in kinds[1:]]]
        if [a.dtype for a in args] != wanted:
            raise TypeError(f"takes {', '.join(wanted)}, not {types_text(args)}")
        return wanted[0]

    return rule


def _reduction(name: str, what: str, reduce: Any, only_floats: bool = False) -> Operation:
    meaning = f"the {what} of the lanes of one vector, in no stated order; r lanes of the result combine r equal parts"
    rule = _combined_lanes(lambda t: t.is_float, "floats") if only_floats else _combined_lanes(_is_number, "numbers")
    return Operation(f"vector_reduce_{name}", ("vector",), meaning, rule, evaluate=on_lanes(reduce), lanes=Lanes.NEVER)


def _is_number(dtype: DType) -> bool:
    return dtype.is_int or dtype.is_float


vector_reduce_add = _reduction("add", "sum", np.add.reduce)
vector_reduce_mul = _reduction("mul", "product", np.multiply.reduce)
vector_reduce_max = _reduction("max", "maximum", np.maximum.reduce)
vector_reduce_min = _reduction("min", "minimum", np.minimum.reduce)
vector_reduce_fmax = _reduction("fmax", "largest number that is not NaN", np.fmax.reduce, True)
vector_reduce_fmin = _reduction("fmin", "smallest number that is not NaN", np.fmin.reduce, True)
vectorlow = Operation(
    "vectorlow", ("vector",), "the first half of a vector's lanes", _half_the_lanes,
    evaluate=always(lambda v: v[: len(v) // 2]), lanes=Lanes.NEVER,
)  # fmt: skip
vectorhigh = Operation(
    "vectorhigh", ("vector",), "the second half of a vector's lanes", _half_the_lanes,
    evaluate=always(lambda v: v[len(v) // 2 :]), lanes=Lanes.NEVER,
)  # fmt: skip
dot4_u8i8 = Operation(
    "dot4_u8i8", ("c", "a", "b"),
    "c[i] + sum(a[4*i + k] * b[4*i + k] for k in range(4)), uint8 by int8 into int32, the instruction vpdpbusd; the "
    "products are exact, the sum wraps",
    _dot_product(4, "int32", "uint8", "int8"), evaluate=always(sum_of_four),
)  # fmt: skip
dot2_bf16 = Operation(
    "dot2_bf16", ("c", "a", "b"),
    "c[i] + a[2*i] * b[2*i] + a[2*i+1] * b[2*i+1], bfloat16 into float32, the instruction vdpbf16ps; the products are "
    "exact in float32, the sums are rounded to nearest even in an order that the machine chooses (the interpreter adds "
    "the odd product first, as in Intel's manual), and subnormal numbers may count as zero",
    _dot_product(2, "float32", "bfloat16", "bfloat16"), evaluate=always(sum_of_two),
)  # fmt: skip
