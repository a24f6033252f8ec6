"""This module defines shift_operand, which changes the signedness of a factor and corrects the sum of products."""

from __future__ import annotations

from ...tir.stmt import PrimFunc
from ...tir.walk import loads_and_stores
from ..edit.buffers import pick_buffer
from ..edit.sums_of_products import expanded, factors_with_offsets, product_alone
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive


@primitive
def shift_operand(func: PrimFunc, block: str, read_buffer_index: int | str) -> tuple[PrimFunc, list[BlockRV]]:
    """Turn an int8 factor of a sum of products into uint8, or a uint8 one into int8. It adds 128, or subtracts 128.

    It is meant for machines whose multiply-add takes one signed and one unsigned factor: A·B = A·(B + 128) - 128·ΣA,
    where the sum on the right does not depend on B's own axes. The result is exact, as sums of integers wrap. int16 and
    uint16 factors are shifted by 2¹⁵. Zero points of factors are taken out of the sum as well, as ``expand_offsets`` does. Returns the
    blocks that shift the buffer, that sum the other factor (and, for its zero point, the shifted one), and that correct the
    sums; the block itself writes to a new buffer.

    Applies to a reduction whose loops hold only this block and run once over its domain, and whose body is
    ``C[...] = C[...] + cast(A[...]) * cast(B[...])`` from zero, in wider integers, where a number that no reduced axis changes may be subtracted from
    each factor. The buffer must not be both factors.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((3, 8), "int8"), B: T.Buffer((8, 5), "int8"), C: T.Buffer((3, 5), "int32")):
    ...     for i, j, k in T.grid(3, 5, 8):
    ...         with T.block("C"):
    ...             vi, vj, vk = T.axis.remap("SSR", [i, j, k])
    ...             with T.init():
    ...                 C[vi, vj] = 0
    ...             C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "int32") * T.cast(B[vk, vj], "int32")
    ... '''))
    >>> shifted, sums, result = sch.shift_operand("C", "B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((3, 8), "int8"), B: T.Buffer((8, 5), "int8"), C: T.Buffer((3, 5), "int32")):
        # with T.block("root"):
        B_shifted = T.alloc_buffer((8, 5), "uint8")
        A_sums = T.alloc_buffer((3,), "int32")
        C_shifted = T.alloc_buffer((3, 5), "int32")
        for ax0, ax1 in T.grid(8, 5):
            with T.block("B_shifted"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(B[v0, v1])
                T.writes(B_shifted[v0, v1])
                B_shifted[v0, v1] = T.Cast("uint8", T.Cast("int32", B[v0, v1]) + 128)
        for ax0, ax1 in T.grid(3, 8):
            with T.block("A_sums"):
                vi, vk = T.axis.remap("SR", [ax0, ax1])
                T.reads(A[vi, vk])
                T.writes(A_sums[vi])
                with T.init():
                    A_sums[vi] = 0
                A_sums[vi] = A_sums[vi] + T.Cast("int32", A[vi, vk])
        for i, j, k in T.grid(3, 5, 8):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(A[vi, vk], B_shifted[vk, vj])
                T.writes(C_shifted[vi, vj])
                with T.init():
                    C_shifted[vi, vj] = 0
                C_shifted[vi, vj] = C_shifted[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B_shifted[vk, vj])
        for ax0, ax1 in T.grid(3, 5):
            with T.block("C_unshifted"):
                vi, vj = T.axis.remap("SS", [ax0, ax1])
                T.reads(C_shifted[vi, vj], A_sums[vi])
                T.writes(C[vi, vj])
                C[vi, vj] = C_shifted[vi, vj] - A_sums[vi] * 128
    """
    tree, realize = product_alone(func, block)
    buffer = pick_buffer(realize, read_buffer_index, "read")
    total, factors = factors_with_offsets(realize, _FORM)
    wide = total.dtype.kind == "int" and total.dtype.bits >= 32
    if not wide or any(f.load.dtype.bits not in (8, 16) or f.load.dtype.lanes > 1 for f in factors):
        raise ScheduleError(
            f"block {block!r} is not a product of narrow integers, made wider", where=realize, hint=_FORM
        )  # fmt: skip
    uses = [n for n in loads_and_stores(realize.block.body) if n.buffer is buffer]
    if len(uses) != 1 or not any(f.load.buffer is buffer for f in factors):
        raise ScheduleError(
            f"{buffer.name} is not one of the two factors of block {block!r} and nothing else", where=realize,
            hint="a buffer that is read twice needs a copy for one of the uses first",
        )  # fmt: skip
    return expanded(func, tree, realize, total, factors, buffer, ("shifted", "unshifted"))


_FORM = "its body must be C[...] = C[...] + cast(A[...]) * cast(B[...]), with A and B of 8 or 16 bits, less zero points or not"
