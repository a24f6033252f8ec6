"""This module defines compute_inline and reverse_compute_inline, which compute a stage inside another."""

from __future__ import annotations

from ...tir.stmt import PrimFunc
from ..edit.inlining import inlined, inlined_into_producer
from ..primitive import primitive


@primitive
def compute_inline(func: PrimFunc, block: str, *blocks: str) -> PrimFunc:
    """Compute the value of ``block`` where it is read, and remove the block and its buffer.

    Further blocks, ``blocks``, are inlined in the same step, whose time is in proportion to the program; one step for each
    goes through the whole program every time. What is inlined may read what is inlined.

    Applies to a complete block that stores one value, at a place that determines its axes (axes, also descending or
    shifted, digits such as ``v // 16, v % 16``, or sums of these), into a buffer that does not live on after the scope.
    Its readers read only elements that it has written. A block that nothing reads is removed. The expressions of a
    reader may not grow beyond a fixed limit.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    ...     B = T.alloc_buffer((8, 8))
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("C"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             C[vi, vj] = B[vi, vj] + T.float32(1)
    ... '''))
    >>> sch.compute_inline("B")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)
    """
    return inlined(func, block, *blocks)


@primitive
def reverse_compute_inline(func: PrimFunc, block: str) -> PrimFunc:
    """Compute the value of ``block`` directly where its only producer computes its input, and remove the block.

    Applies to a complete block that stores one value and reads its producer's buffer at one place, which determines its
    axes (axes, or digits such as ``v // 16, v % 16``). It must be the only reader of the buffer. The producer must be a
    complete block that stores one value, and computes all that the block reads; elements that it computes beyond those
    are excluded by a predicate. The producer may also be a reduction block when the block just copies its result: it
    then accumulates in the buffer that the block writes.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    ...     B = T.alloc_buffer((8, 8))
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("C"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             C[vi, vj] = B[vi, vj] + T.float32(1)
    ... '''))
    >>> sch.reverse_compute_inline("C")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = A[vi, vj] * T.float32(2.0) + T.float32(1.0)
    """
    return inlined_into_producer(func, block)
