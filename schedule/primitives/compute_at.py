"""This module defines compute_at and reverse_compute_at, which move a block under a loop."""

from __future__ import annotations

from ...tir.expr import Var
from ...tir.stmt import PrimFunc
from ..edit.moved_block import moved_block
from ..primitive import primitive


@primitive
def compute_at(func: PrimFunc, block: str, loop: Var, preserve_unit_loops: bool = False, index: int = -1) -> PrimFunc:
    """Move a producer under ``loop``, where it computes the elements that its consumers there need.

    Loops of one iteration are left out unless ``preserve_unit_loops``. ``index`` is the position among the statements
    under the loop: -1 the last possible (just before the first consumer), -2 the first possible.

    The loops of the block are made anew, in the order of its axes, over the elements that its consumers read in one
    iteration of the loop. A predicate excludes values outside of the axes' domains; a condition of the block is kept.

    Applies when the block is complete or a reduction block, writes no buffer that lives on after the scope, and all its
    consumers are under the loop and read nothing that it does not compute there. A block that nothing reads may be
    moved as a whole under any loop after its producers.

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
    >>> i, j = sch.get_loops("C")
    >>> sch.compute_at("B", i)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((8, 8))
        for i in range(8):
            for ax0 in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = B[vi, vj] + T.float32(1.0)
    """
    return moved_block(func, block, loop, preserve_unit_loops, index, forward=True)


@primitive
def reverse_compute_at(
    func: PrimFunc, block: str, loop: Var, preserve_unit_loops: bool = False, index: int = -1
) -> PrimFunc:
    """Move a consumer under ``loop``, where it consumes the elements that its producers there compute.

    Loops of one iteration are left out unless ``preserve_unit_loops``. ``index`` is the position among the statements
    under the loop: -1 the last possible, -2 the first possible (just after the last producer).

    Applies when the block is complete or a reduction block, all its producers are under the loop or done before it
    begins, what it reads is final and complete there in each iteration, and all iterations together run it on the whole
    domain of its axes. A block without producers may be moved as a whole under any loop before its consumers.

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
    >>> i, j = sch.get_loops("B")
    >>> sch.reverse_compute_at("C", i)
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B = T.alloc_buffer((8, 8))
        for i in range(8):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2.0)
            for ax0 in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, ax0])
                    T.reads(B[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = B[vi, vj] + T.float32(1.0)
    """
    return moved_block(func, block, loop, preserve_unit_loops, index, forward=False)
