"""Chains that the fuzzer found to be taken wrongly, small."""

import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse, verify
from tilewright.tir.interpret import interpret

POOL = """
@T.prim_func
def main(A: T.Buffer((3, 4)), C: T.Buffer((3,))):
    for i, k in T.grid(3, 4):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vk]
"""


def computes(sch):
    verify(sch.func)
    a, c = np.arange(12, dtype="float32").reshape(3, 4), np.full(3, np.nan, "float32")
    interpret(sch.func, a, c, check_regions=True)
    assert (c == a.sum(1)).all()


def test_the_scratch_of_an_init_goes_with_it():
    sch = Schedule(parse(POOL))
    i, k = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [1, 3])
    outer = sch.blockize(i_1)
    sch.write_at(sch.get_loops("C_init")[0], "C_init", 0, "local")
    init = sch.decompose_reduction(outer, i_0)
    assert [b.name for b in sch.get(init).alloc_buffers] == ["C_local"]
    assert not sch.get(sch.get_block("C_o_update")).alloc_buffers
    computes(sch)


def test_write_at_does_not_take_what_is_written_later_for_a_start():
    sch = Schedule(parse(POOL))
    i, k = sch.get_loops("C")
    sch.decompose_reduction("C", i)
    _, back = sch.cache_inplace("C_update", 0, "global")
    with pytest.raises(ScheduleError, match="goes on from what buffer C held before the turn of loop i"):
        sch.write_at(sch.get_loops(back)[0], back, 0, "local")
    computes(sch)


def test_blockize_in_a_group_that_uses_loops_around_it():
    text = """
@T.prim_func
def main(A: T.Buffer((3,)), B: T.Buffer((3,))):
    for i in range(2):
        with T.block("group"):
            T.where(i < 1)
            T.reads()
            T.writes()
            for j in range(2):
                with T.block("B"):
                    v = T.axis.spatial(3, j)
                    T.where(j < 3 - i * 5)
                    B[v] = A[v]
            for j in range(2, 3):
                with T.block("rest"):
                    v = T.axis.spatial(3, i * 5 + j)
                    B[v] = A[v]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="uses a loop outside the block around"):
        sch.blockize(sch.get_loops("B")[0])
