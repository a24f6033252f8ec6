"""This module defines expand_offsets, which takes the zero points of factors out of a sum of products."""

from __future__ import annotations

from ...tir.expr import is_const_int
from ...tir.stmt import PrimFunc
from ..edit.sums_of_products import OFFSETS_FORM, expanded, factors_with_offsets, product_alone
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive


@primitive
def expand_offsets(func: PrimFunc, block: str) -> tuple[PrimFunc, list[BlockRV]]:
    """Sum the products of the elements alone where factors are elements less a zero point, and correct the sums.

    It is meant for multiply-adds of narrow integers: Σ(A - a)(B - b) = ΣAB - a·ΣB - b·ΣA + K·a·b for K products, where a and b do not depend on
    the reduction's axes: constants, scalars in memory, or elements for each row or column. The result is exact, as sums of
    integers wrap. Returns the blocks that sum a factor, those that are needed, and last the one that corrects the sums.

    Applies to a reduction whose loops hold only this block and run once over its domain, and whose body is
    ``C[...] = C[...] + (cast(A[...]) - a) * (cast(B[...]) - b)`` from zero, in integers.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((3, 8), "uint8"), z: T.Buffer((3,), "uint8"), B: T.Buffer((8, 5), "int8"), C: T.Buffer((3, 5), "int32")):
    ...     for i, j, k in T.grid(3, 5, 8):
    ...         with T.block("C"):
    ...             vi, vj, vk = T.axis.remap("SSR", [i, j, k])
    ...             with T.init():
    ...                 C[vi, vj] = 0
    ...             C[vi, vj] = C[vi, vj] + (T.cast(A[vi, vk], "int32") - T.cast(z[vi], "int32")) * T.cast(B[vk, vj], "int32")
    ... '''))
    >>> sums, result = sch.expand_offsets("C")
    >>> print(sch.get(sums).body)
    B_sums[vj] = B_sums[vj] + T.Cast("int32", B[vk, vj])
    >>> print(sch.get(result).body)
    C[vi, vj] = C_products[vi, vj] - T.Cast("int32", z[vi]) * B_sums[vj]
    """
    tree, realize = product_alone(func, block)
    total, factors = factors_with_offsets(realize, OFFSETS_FORM)
    if total.dtype.kind != "int" or total.dtype.bits < 32 or all(is_const_int(f.offset, 0) for f in factors):
        raise ScheduleError(
            f"block {block!r} has no product of integers less zero points", where=realize, hint=OFFSETS_FORM
        )
    return expanded(func, tree, realize, total, factors, None, ("products", "expanded"))
