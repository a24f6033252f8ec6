"""Chains that the fuzzer found to be taken wrongly, small."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile
from tilewright.codegen.llvm.function_builder import FunctionBuilder
from tilewright.schedule import Schedule, ScheduleError, TensorIntrin
from tilewright.tir import Var, assert_structural_equal, parse, verify
from tilewright.tir.arith import Analyzer
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
    with pytest.raises(ScheduleError, match="uses what buffer C held before the iteration of loop i"):
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


def test_blocks_of_an_init_and_a_body_are_not_side_by_side():
    sch = Schedule(parse(POOL))
    sch.blockize(sch.get_loops("C")[0])
    sch.cache_read("C", "A", "global")
    with pytest.raises(ScheduleError, match="block 'C_init' stands in the init of the block around"):
        sch.blockize(["C_init", "A_global"])


def test_an_init_stays_behind_what_it_reads():
    text = """
@T.prim_func
def main(A: T.Buffer((3, 4)), I: T.Buffer((3,), "int32"), C: T.Buffer((3,))):
    J = T.alloc_buffer((3,), "int32")
    for i in range(3):
        with T.block("J"):
            v = T.axis.spatial(3, i)
            J[v] = I[v]
        for k in range(4):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.Cast("float32", J[vi])
                C[vi] = C[vi] + A[vi, vk]
"""
    sch = Schedule(parse(text))
    i, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="the init of block 'C' reads J, which block 'J' writes inside loop i"):
        sch.decompose_reduction("C", i)
    sch.decompose_reduction("C", k)


def test_an_init_does_not_run_where_there_is_nothing_to_run():
    sch = Schedule(parse(POOL.replace("(3, 4)", "(0, 4)").replace("(3,)", "(0,)")))
    i, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="axis vi of block 'C' has no values"):
        sch.blockize(sch.fuse(i, k))


def tensorized_copy(n):
    text = f"""
@T.prim_func
def main(A: T.Buffer(({n},)), B: T.Buffer(({n},))):
    for i, j in T.grid({n // 4}, 4):
        with T.block("B"):
            v = T.axis.spatial({n}, i * 4 + j)
            B[v] = A[v]
"""
    head = "@T.prim_func\ndef {}(A: T.Buffer((4,), offset_factor=1), B: T.Buffer((4,), offset_factor=1)):\n"
    head += '    with T.block("root"):\n        T.reads(A[0:4])\n        T.writes(B[0:4])\n'
    loop = '        for i in range(4):\n            with T.block("B"):\n                v = T.axis.spatial(4, i)\n'
    TensorIntrin.register(
        "fuzzed_copy4",
        parse(head.format("desc") + loop + "                B[v] = A[v]\n"),
        parse(head.format("impl") + "        for i in T.vectorized(4):\n            B[i] = A[i]\n"),
        override=True,
    )
    sch = Schedule(parse(text))
    sch.tensorize(sch.get_loops("B")[1], "fuzzed_copy4")
    return sch


def test_blocks_with_matched_buffers_get_new_axes():
    sch = tensorized_copy(16)
    sch.transform_block_layout("B_o", lambda v: (v // 2, v % 2))
    verify(sch.func)
    a, b = np.arange(16, dtype="float32"), np.full(16, np.nan, "float32")
    interpret(sch.func, a, b, check_regions=True)
    assert (a == b).all()


def test_parts_of_a_loop_have_matched_buffers_of_their_own():
    sch = tensorized_copy(28)
    sch.loop_partition(sch.get_loops("B_o")[0], [2, None])
    verify(sch.func)
    a, b = np.arange(28, dtype="float32"), np.full(28, np.nan, "float32")
    interpret(sch.func, a, b, check_regions=True)
    assert (a == b).all()


def test_a_consumer_does_not_go_under_a_loop_that_never_runs():
    text = """
@T.prim_func
def main(A: T.Buffer((0,)), C: T.Buffer((3,))):
    B = T.alloc_buffer((1, 2))
    for i in range(0):
        with T.block("B"):
            v = T.axis.spatial(0, i)
            B[v // 2, v % 2] = A[v]
    for j in range(3):
        with T.block("C"):
            v = T.axis.spatial(3, j)
            C[v] = T.if_then_else(v >= 2 and v < 2, B[v // 2 - 1, v % 2], T.float32(1))
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="under loop i block 'C' would not be known to run on the whole domain"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


def test_extents_that_may_both_be_negative_do_not_fuse():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8))):
    for i in range(8):
        for j, k in T.grid(i - 2, i - 3):
            with T.block("B"):
                vj, vk = T.axis.remap("SS", [j, k])
                B[vj, vk] = A[vj, vk]
"""
    sch = Schedule(parse(text))
    i, j, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="the extents i - 2 and i - 3 may both be below zero"):
        sch.fuse(j, k)


def test_padding_is_not_put_into_a_block_that_fills_a_part():
    text = """
@T.prim_func
def main(A: T.Buffer((5,)), C: T.Buffer((6,))):
    B = T.alloc_buffer((6,))
    for i in range(6):
        with T.block("zero"):
            v = T.axis.spatial(6, i)
            B[v] = T.float32(0)
    for i in range(5):
        with T.block("B"):
            v = T.axis.spatial(5, i)
            B[v] = A[v]
    for i in range(6):
        with T.block("C"):
            v = T.axis.spatial(6, i)
            C[v] = B[v]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="B is written by 2 blocks"):
        sch.transform_layout("B", ("write", 0), lambda v: (v // 4, v % 4), 0.0)


def test_names_that_end_in_digits_stay_apart_in_machine_code():
    """i0 made 120th and i01 made 20th are two values."""
    fn = FunctionBuilder("define void @f()")
    names = [fn.fresh(hint) for _ in range(100) for hint in ("i0", "i01", "i012")]
    assert len(set(names)) == len(names)


def test_a_reduction_does_not_run_backwards():
    text = """
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((1,))):
    B = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            v = T.axis.spatial(7, 6 - i)
            B[v] = A[v]
    for k in range(7):
        with T.block("C"):
            v = T.axis.reduce(7, k)
            with T.init():
                C[0] = T.float32(0)
            C[0] = C[0] + B[v]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="reduce axis v of block 'C' would be 6 - i.* does not start at 0"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


def test_lowering_keeps_an_init_behind_what_it_reads():
    text = """
@T.prim_func
def main(A: T.Buffer((3, 4)), C: T.Buffer((3,))):
    J = T.alloc_buffer((3,), "int32")
    for k in range(4):
        for i in range(3):
            with T.block("J"):
                v = T.axis.spatial(3, i)
                J[v] = 2 - v
        for i in range(3):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[J[vi]] = T.float32(0)
                C[J[vi]] = C[J[vi]] + A[vi, vk]
"""
    a, c = np.arange(12, dtype="float32").reshape(3, 4), np.full(3, np.nan, "float32")
    compile(parse(text))(a, c)
    assert (c == a.sum(1)[::-1]).all()


def test_indices_of_32_bits_into_axes_of_64():
    text = """
@T.prim_func
def main(I: T.Buffer((T.int64(5),), "int32"), A: T.Buffer((T.int64(6),)), C: T.Buffer((T.int64(5),))):
    B = T.alloc_buffer((T.int64(3),))
    for i in range(T.int64(3)):
        with T.block("B"):
            v = T.axis.spatial(T.int64(3), i)
            B[v] = A[v * T.int64(2)] + A[v * T.int64(2) + T.int64(1)]
    for i in range(T.int64(5)):
        with T.block("C"):
            v = T.axis.spatial(T.int64(5), i)
            C[v] = B[T.max(T.min(I[v], 2), 0)]
"""
    sch = Schedule(parse(text))
    sch.compute_inline("B")
    verify(sch.func)
    i, a, c = np.array([2, 0, 1, 1, 9], "int32"), np.arange(6, dtype="float32"), np.full(5, np.nan, "float32")
    interpret(sch.func, i, a, c, check_regions=True)
    assert c.tolist() == [9, 1, 5, 5, 9]


def test_views_of_scratch_memory_that_is_unrolled():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "int32"), C: T.Buffer((3,))):
    B = T.alloc_buffer((2, 2))
    for i in T.unroll(3):
        for j in T.vectorized(2):
            with T.block("B"):
                v = T.axis.spatial(4, i + j)
                B[v // 2, v % 2] = T.Cast("float32", A[v])
        for w in range(2):
            with T.block("C"):
                vi, vw = T.axis.remap("SR", [i, w])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + B[(vi + vw) // 2, (vi + vw) % 2]
"""
    a, c = np.array([1, 2, 4, 8], "int32"), np.full(3, np.nan, "float32")
    compile(parse(text))(a, c)
    assert c.tolist() == [3, 6, 12]


def test_a_loop_that_may_not_run_sweeps_nothing():
    """The inner loop runs once or not at all: its variable is 0 in any case, and the box does not show when it is empty."""
    text = """
@T.prim_func
def main(A: T.Buffer((6,)), B: T.Buffer((6,))):
    for i in range(8):
        for j in range(6 - T.max(i, 5)):
            with T.block("B"):
                v = T.axis.spatial(6, i + j)
                B[v] = A[v]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="not known to be a box without holes"):
        sch.write_at(sch.get_loops("B")[0], "B", 0, "local")


def test_rolling_under_a_block_with_scratch_of_its_own():
    text = """
@T.prim_func
def main(A: T.Buffer((10,)), C: T.Buffer((8,))):
    B = T.alloc_buffer((10,))
    for i in range(10):
        with T.block("B"):
            v = T.axis.spatial(10, i)
            B[v] = A[v]
    for i in range(8):
        with T.block("C"):
            v = T.axis.spatial(8, i)
            D = T.alloc_buffer((3,))
            for k in range(3):
                with T.block("D"):
                    vk = T.axis.spatial(3, k)
                    D[vk] = B[v + vk]
            with T.block("sum"):
                C[v] = D[0] + D[1] + D[2]
"""
    sch = Schedule(parse(text))
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.rolling_buffer("B", 0)
    verify(sch.func)
    a, c = np.arange(10, dtype="float32"), np.full(8, np.nan, "float32")
    interpret(sch.func, a, c, check_regions=True)
    assert (c == 3 * a[1:9]).all()


def test_a_copy_for_a_block_of_an_init_would_come_too_late():
    text = """
@T.prim_func
def main(A: T.Buffer((8, 8)), B: T.Buffer((8,))):
    for i in range(8):
        with T.block("outer"):
            vi = T.axis.spatial(8, i)
            vo = T.axis.reduce(1, 0)
            T.reads(A[vi, 0:8])
            T.writes(B[vi])
            with T.init():
                with T.block("start"):
                    B[vi] = A[vi, 0]
            for k in range(8):
                with T.block("B"):
                    vk = T.axis.reduce(8, k)
                    B[vi] = B[vi] + A[vi, vk]
"""
    sch = Schedule(parse(text))
    with pytest.raises(ScheduleError, match="block 'start' stands in the init of block 'outer'"):
        sch.cache_read("start", 0, "global")
    sch.cache_read("B", "A", "global", consumer_blocks=["B"])
    verify(sch.func)


def test_a_reduction_that_is_computed_again_does_not_become_a_block_with_one_init():
    text = """
@T.prim_func
def main(A: T.Buffer((7, 5)), B: T.Buffer((7,))):
    for i, j, k in T.grid(6, 2, 5):
        with T.block("B"):
            vi = T.axis.spatial(7, i + j)
            vk = T.axis.reduce(5, k)
            with T.init():
                B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vk]
"""
    sch = Schedule(parse(text))
    i, j, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="may run the reduction of block 'B' several times for one element"):
        sch.blockize(i)
    sch.blockize(k)
    verify(sch.func)


def test_an_axis_of_one_value_split_twice_keeps_its_predicate(agree):
    text = """
@T.prim_func
def main(A: T.Buffer((8, 1)), B: T.Buffer((8, 1))):
    for i, j in T.grid(8, 1):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
    sch = Schedule(parse(text))
    i, j = sch.get_loops("B")
    _, inner = sch.split(j, [2, None])
    sch.split(inner, [2, None], preserve_unit_iters=False)
    sch.blockize(i)
    assert "T.where(j_1_0 < 1 and j_0 < 1)" in sch.func.script()
    agree(parse(text), sch.func)


def test_regions_addressed_by_what_is_reindexed_are_addressed_by_the_copy():
    text = """
@T.prim_func
def main(A: T.Buffer((7,)), I: T.Buffer((7,), "int32"), B: T.Buffer((7,))):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[T.max(T.min(I[vi], 6), 0)]
"""
    sch = Schedule(parse(text))
    sch.reindex("B", ("read", 1))
    assert "T.reads(A[T.max(T.min(I_reindex[vi], 6), 0)], I_reindex[vi])" in sch.func.script()
    sch.blockize(sch.get_loops("B")[0])
    verify(sch.func)


GROUP = """
@T.prim_func
def main(A: T.Buffer((3, 7)), S: T.Buffer((3,)), C: T.Buffer((3,))):
    for i in range(3):
        with T.block("S_init"):
            vi = T.axis.spatial(3, i)
            S[vi] = T.float32(0)
        with T.block("group"):
            T.reads()
            T.writes()
            for k in range(7):
                with T.block("S"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    S[vi] = S[vi] + A[vi, vk]
        with T.block("C"):
            vi = T.axis.spatial(3, i)
            C[vi] = S[vi] + T.float32(2)
"""


def test_copies_know_what_a_group_touches_that_declares_nothing():
    sch = Schedule(parse(GROUP))
    (i,) = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="buffer S is written under loop i after, or together with, its first read"):
        sch.read_at(i, "C", 0, "local")
    with pytest.raises(ScheduleError, match="buffer S is read under loop i behind its last write there"):
        sch.write_at(i, "S_init", 0, "local")


def test_an_init_goes_behind_a_group_that_makes_what_it_reads():
    text = """
@T.prim_func
def main(A: T.Buffer((3, 4)), C: T.Buffer((3,))):
    B = T.alloc_buffer((3,))
    for i in range(3):
        with T.block("group"):
            T.reads()
            T.writes()
            with T.block("B"):
                vi = T.axis.spatial(3, i)
                B[vi] = A[vi, 0]
        for k in range(4):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = B[vi]
                C[vi] = C[vi] + A[vi, vk]
"""
    sch = Schedule(parse(text))
    i, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="the init of block 'C' reads B, which block 'group' writes inside loop i"):
        sch.decompose_reduction("C", i)
    sch.decompose_reduction("C", k)


def test_loops_that_never_run_are_not_divided_by_zero(agree):
    text = """
@T.prim_func
def main(A: T.Buffer((15, 0)), B: T.Buffer((15, 0))):
    for f in range(0):
        with T.block("B"):
            vi = T.axis.spatial(15, f // 0)
            vj = T.axis.spatial(0, f % 0 * 3 + f % 3)
            B[vi, vj] = A[vi, vj]
"""
    sch = Schedule(parse(text))
    sch.blockize(sch.get_loops("B")[0])
    verify(sch.func)
    agree(parse(text), sch.func)


@pytest.mark.parametrize("value", ["A[vi]", "A[vi] * T.Cast('float32', I[vi])"])
def test_a_computed_index_of_a_store_goes_into_its_producer(agree, value):
    text = f"""
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    I = T.alloc_buffer((7,), "int32")
    for i in range(7):
        with T.block("I"):
            vi = T.axis.spatial(7, i)
            I[vi] = 6 - vi
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[I[vi]] = {value}
"""
    sch = Schedule(parse(text))
    sch.reverse_compute_inline("C")
    assert "C[6 - vi] = A[vi]" in sch.func.script()
    verify(sch.func)
    agree(parse(text), sch.func)


MATCHED = """
@T.prim_func
def main(A: T.Buffer((7, 8), "int32"), I: T.Buffer((8,), "int32"), C: T.Buffer((8, 8), "int32")):
    for i, j in T.grid(8, 2):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[T.max(T.min(I[vi], 6), 0), vj * 4:vj * 4 + 4], I[vi])
            T.writes(C[vi, vj * 4:vj * 4 + 4])
            M = T.match_buffer(A[T.max(T.min(I[vi], 6), 0), vj * 4:vj * 4 + 4], (4,), "int32", offset_factor=1)
            for u in range(4):
                C[vi, vj * 4 + u] = M[u]
"""


@pytest.mark.parametrize("loop", [0, 1])
def test_what_says_where_a_matched_buffer_lies_is_read(loop):
    """A copy of it holds what is read there, and is allocated around the block that reads it there."""
    func = parse(MATCHED)
    sch = Schedule(func, debug_mask="all")
    sch.read_at(sch.get_loops("C")[loop], "C", 1, "global")
    rng = np.random.default_rng(0)
    a, i = rng.integers(-9, 9, (7, 8)).astype("int32"), rng.integers(-2, 9, 8).astype("int32")
    want = a[np.clip(i, 0, 6)]
    for run in (lambda *x: interpret(sch.func, *x, check_regions=True), compile(sch.func)):
        got = np.full((8, 8), 77, "int32")
        run(a, i, got)
        np.testing.assert_array_equal(got, want)


def test_an_init_that_no_iteration_would_write_back_is_kept():
    """In the first row the reduction is over nothing, and its result is the init."""
    A = te.placeholder((5, 4), "int64", "A")

    def row(i, j):
        k = te.reduce_axis((0, i), "k")
        return te.sum(A[k, j], axis=k)

    sch = Schedule(te.create_prim_func([A, te.compute((5, 4), row, name="B")]))
    *_, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="loop k reduces and may have no iterations"):
        sch.write_at(k, "B", 0, "local")


@pytest.mark.parametrize("axis", [0, -1])
def test_a_loop_that_only_a_predicate_uses_is_rfactored_under_it(agree, axis):
    """The predicate keeps the spatial axis in its domain, so it guards the whole block and no element."""
    sch = Schedule(parse(POOL))
    outer, _ = sch.split(sch.get_loops("C")[0], [None, 4], preserve_unit_iters=False)
    sch.rfactor(outer, axis)
    assert sch.func.script().count("T.where(i_0 * 4 + i_1 < 3)") == 2
    agree(parse(POOL), sch.func)


@pytest.mark.parametrize("tile", [None, 2])
def test_a_copy_goes_into_a_reduction_of_blocks(agree, tile):
    """The blocks inside accumulate in the other buffer, and declare that."""
    sch = Schedule(parse(POOL))
    outer = sch.blockize(sch.get_loops("C")[1])
    sch.cache_write(outer, 0, "local")
    if tile:
        sch.split(sch.get_loops(outer)[0], [None, tile])
    sch.reverse_compute_inline("C_local")
    assert "C_local" not in sch.func.script()
    agree(parse(POOL), sch.func)


def test_what_a_result_addresses_is_no_copy_of_it():
    text = """
@T.prim_func
def main(A: T.Buffer((3, 4), "int32"), I: T.Buffer((9,), "int32"), C: T.Buffer((3,), "int32")):
    B = T.alloc_buffer((3,), "int32")
    for i, k in T.grid(3, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vi, vk]
    for i in range(3):
        with T.block("C"):
            vi = T.axis.spatial(3, i)
            C[vi] = I[T.max(T.min(B[vi], 8), 0)]
"""
    with pytest.raises(ScheduleError, match="more than a copy of its result"):
        Schedule(parse(text)).reverse_compute_inline("C")


def test_partial_results_over_a_domain_that_depends_on_a_loop(agree):
    func = parse("""
@T.prim_func
def main(B: T.Buffer((4, 1), "int32"), S: T.Buffer((4,), "int32")):
    for i in range(4):
        for j in range(i + 1):
            for k in range(T.min(j, 0), T.min(j, 0) + (1 - T.min(j, 0))):
                with T.block("S"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.reduce(i + 1, j)
                    vk = T.axis.reduce((T.min(j, 0), T.min(j, 0) + (1 - T.min(j, 0))), k)
                    with T.init():
                        S[vi] = 0
                    S[vi] = S[vi] + B[vj, vk]
""")
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops("S")[1], [None, 4])
    sch.rfactor(outer, 0)
    agree(func, sch.func)


def test_blocks_that_declare_nothing_are_blockized_with_their_accesses(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5, 13), "int64"), C: T.Buffer((5, 13), "int64")):
    S = T.alloc_buffer((1,), "int64")
    with T.block("s"):
        S[0] = A[4, 0] * T.int64(3)
    for i, j in T.grid(5, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + S[0]
""")
    sch = Schedule(func)
    sch.loop_partition(sch.get_loops("C")[1], [2, None, 1])
    made = sch.get(sch.blockize(["s", "C_j_common"]))
    assert {r.buffer.name for r in made.writes} == {"S", "C"} and {r.buffer.name for r in made.reads} >= {"A"}
    agree(func, sch.func)


def test_empty_axes_are_not_blockized():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((2, 0, 7)), C: T.Buffer((2, 0, 7))):
    for i, j, k in T.grid(2, 0, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            C[vi, vj, vk] = A[vi, vj, vk]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="axis vj of block 'C' has no values"):
        i, j, k = sch.get_loops("C")
        sch.blockize(sch.fuse(sch.fuse(i, j), k))


def test_copies_wait_for_the_place_they_are_read_from(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32"), C: T.Buffer((3,), "int32")):
    for i in range(3):
        with T.block("C"):
            vi = T.axis.spatial(3, i)
            C[vi] = A[T.max(T.min(B[vi], 2), 0)]
""")
    sch = Schedule(func)
    copy = sch.cache_read("C", 1, "local")
    sch.reverse_compute_at("C", sch.get_loops(copy)[0])
    sch.blockize([copy, "C"])
    sch.cache_read("C", 0, "shared")
    agree(func, sch.func)


@pytest.mark.parametrize("by", [1 << 31, -(1 << 31) + 1, 1000])
@pytest.mark.parametrize("op", ["-", "*"])
@pytest.mark.parametrize("step", [("compute_inline", "B"), ("reverse_compute_inline", "C")])
def test_places_inlined_into_arithmetic_that_wraps(agree, step, op, by):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((8,), "int32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = T.max(vi * 13 - 6, 2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[T.max(T.min(B[vi] {op} T.int32({by - (1 << 32) if by >= 1 << 31 else by}), 7), 0)]
""")
    sch = Schedule(func)
    getattr(sch, step[0])(step[1])
    agree(func, sch.func)
    a, found = np.arange(10, 18, dtype="int32"), [np.zeros(8, "int32") for _ in range(2)]
    interpret(func, a, found[0])
    compile(sch.func, "native")(a, found[1])
    np.testing.assert_array_equal(*found)


ROWS_OF_GIVEN_LENGTH = """
@T.prim_func
def main(A: T.Buffer((7, 13)), L: T.Buffer((7,), "int16"), C: T.Buffer((7,))):
    for i in range(7):
        for k in range(T.max(T.min(T.cast(L[i], "int32"), 13), 0)):
            with T.block("C"):
                vi = T.axis.spatial(7, i)
                vk = T.axis.reduce(T.max(T.min(T.cast(L[i], "int32"), 13), 0), k)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
"""


def test_copies_read_what_their_region_depends_on(agree):
    func = parse(ROWS_OF_GIVEN_LENGTH)
    sch = Schedule(func)
    copy = sch.read_at(sch.get_loops("C")[0], "C", 0, "shared")
    assert [r.buffer.name for r in sch.get(copy).reads] == ["A", "L"]
    agree(func, sch.func)


def test_a_region_that_changes_under_the_loop_is_copied_whole(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 13)), L: T.Buffer((7,), "int32"), C: T.Buffer((7,))):
    for i in range(7):
        with T.block("first"):
            vi = T.axis.spatial(7, i)
            C[vi] = A[vi, 12]
        with T.block("L"):
            vi = T.axis.spatial(7, i)
            L[vi] = vi
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            T.reads(C[vi], A[vi, 0:13], L[vi])
            T.writes(C[vi])
            C[vi] = C[vi] + A[vi, T.max(T.min(L[vi], 12), 0)]
""")
    sch = Schedule(func)
    copy = sch.read_at(sch.get_loops("C")[0], "C", "A", "shared")
    assert [r.buffer.name for r in sch.get(copy).reads] == ["A"]
    agree(func, sch.func)


@pytest.mark.parametrize("layout", [lambda i, j: (i, j // 4, j % 4), lambda i, j: (i // 4, i % 4, j)])
def test_padding_beside_a_triangle_has_a_block_of_its_own(agree, layout):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 5), "int64"), C: T.Buffer((7, 5), "int64")):
    S = T.alloc_buffer((7, 5), "int64")
    for i, j in T.grid(7, 5):
        for k in range(j + 1):
            with T.block("S"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(j + 1, k)
                with T.init():
                    S[vi, vj] = T.int64(0)
                S[vi, vj] = S[vi, vj] + A[vi, vk]
    for i, j in T.grid(7, 5):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = S[vi, vj]
""")
    sch = Schedule(func)
    sch.transform_layout("S", ("write", 0), layout, pad_value=1)
    agree(func, sch.func)


def test_merged_triangles_end_at_the_merged_loops(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,)), D: T.Buffer((7,))):
    for i in range(7):
        for k in range(i + 1):
            with T.block("C"):
                vi = T.axis.spatial(7, i)
                vk = T.axis.reduce(i + 1, k)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vk]
    for i in range(7):
        for k in range(i + 1):
            with T.block("D"):
                vi = T.axis.spatial(7, i)
                vk = T.axis.reduce(i + 1, k)
                with T.init():
                    D[vi] = T.float32(0)
                D[vi] = D[vi] + A[vk] * A[vk]
""")
    sch = Schedule(func)
    sch.merge(sch.get_loops("C")[1], sch.get_loops("D")[1])
    agree(func, sch.func)


def test_scratch_of_blocks_that_declare_nothing_stays_theirs(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 7)), C: T.Buffer((6, 7))):
    for i, j, k in T.grid(6, 7, 3):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi + vk, vj]
""")
    sch = Schedule(func)
    sch.loop_partition(sch.get_loops("C")[0], [4, None])
    names = [r.name for r in sch.get_child_blocks(sch.get_child_blocks("root")[0])]
    sch.rfactor(sch.get_loops(sch.get_child_blocks(names[1])[0])[2], factor_axis=-1)
    made = sch.get(sch.blockize(names))
    assert {r.buffer.name for r in (*made.reads, *made.writes)} == {"A", "C"}
    agree(func, sch.func)


def test_blocks_without_axes_are_blockized_with_their_loops(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16, 7)), C: T.Buffer((16, 7)), D: T.Buffer((1,))):
    with T.block("D"):
        T.reads(A[15, 0])
        T.writes(D[0])
        D[0] = A[15, 0] * T.float32(3)
    for i in range(4):
        with T.block("rows"):
            T.reads()
            T.writes()
            for j, k in T.grid(4, 7):
                with T.block("C"):
                    vj = T.axis.spatial(16, i * 4 + j)
                    vk = T.axis.spatial(7, k)
                    C[vj, vk] = A[vj, vk] + D[0]
""")
    sch = Schedule(func)
    made = sch.get(sch.blockize(["D", "rows"]))
    assert "C[0:16, 0:7]" in [str(r) for r in made.writes]
    agree(func, sch.func)


def test_places_of_another_type_are_copied_in_place(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((T.int64(7),), "int8"), B: T.Buffer((T.int64(7),), "int32"), C: T.Buffer((T.int64(7),), "int8")):
    S = T.alloc_buffer((T.int64(7),), "int8")
    for i in range(T.int64(7)):
        with T.block("S"):
            vi = T.axis.spatial(T.int64(7), i)
            S[vi] = A[vi]
    with T.block("C"):
        T.reads(S[T.max(T.min(B[T.int64(0)], 6), 0)], B[T.int64(0)])
        T.writes(S[T.max(T.min(B[T.int64(0)], 6), 0)])
        S[T.max(T.min(B[T.int64(0)], 6), 0)] = S[T.max(T.min(B[T.int64(0)], 6), 0)] + T.int8(1)
    for i in range(T.int64(7)):
        with T.block("out"):
            vi = T.axis.spatial(T.int64(7), i)
            C[vi] = S[vi]
""")
    sch = Schedule(func)
    sch.cache_inplace("C", 0, "shared")
    agree(func, sch.func)


def test_rfactor_under_a_loop_of_one_iteration_that_holds_more():
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((3, 1)), B: T.Buffer((3,)), C: T.Buffer((3,))):
    for i, k_0 in T.grid(3, 1):
        with T.block("B"):
            vi = T.axis.spatial(3, i)
            B[vi] = A[vi, 0] * T.float32(2)
        for k_1 in range(2):
            with T.block("C"):
                vi = T.axis.spatial(3, i)
                vk = T.axis.reduce(1, k_1)
                T.where(k_0 * 2 + k_1 < 1)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
""")
    )
    sch.rfactor(sch.get_loops("C")[-1], 0)
    verify(sch.func)
    a, b, c = np.arange(3, dtype="float32").reshape(3, 1), np.zeros(3, "float32"), np.full(3, np.nan, "float32")
    interpret(sch.func, a, b, c, check_regions=True)
    assert (c == a[:, 0]).all()


TRIANGLE_IN_A_GROUP = """
@T.prim_func
def main(A: T.Buffer((3, 4)), C: T.Buffer((3, 4)), D: T.Buffer((3, 4))):
    for i in range(3):
        with T.block("group"):
            T.reads()
            T.writes()
            for j in range(4):
                for k in range(i + 1):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        vk = T.axis.reduce(i + 1, k)
                        C[vi, vj] = C[vi, vj] + A[vk, vj]
            for j in range(4):
                for k in range(i + 1):
                    with T.block("D"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        vk = T.axis.reduce(i + 1, k)
                        D[vi, vj] = D[vi, vj] + A[vk, vj]
"""


@pytest.mark.parametrize("target", [lambda s: s.get_loops("C")[0], lambda s: ["C", "D"]])
def test_blockize_sees_the_loops_around_a_group(target):
    sch = Schedule(parse(TRIANGLE_IN_A_GROUP))
    with pytest.raises(ScheduleError, match="depend on loop i, which the new block could not see"):
        sch.blockize(target(sch))
    verify(sch.func)


def test_padding_is_not_filled_by_a_block_that_runs_under_a_condition():
    sch = Schedule(parse(POOL))
    k = sch.get_loops("C")[1]
    sch.fuse(*sch.split(k, [None, 3]))
    sch.cache_write("C", 0, "global")
    sch.transform_layout("C", ("write", 0), lambda i: (4 - i,), pad_value=1.0)
    assert "C_global = T.alloc_buffer((5,))" in sch.func.script()
    computes(sch)


def test_read_at_of_a_row_whose_number_has_another_type():
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((T.int64(1), T.int64(13))), B: T.Buffer((1, T.int64(13), 2))):
    for i, j, k in T.grid(1, T.int64(13), 2):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = T.if_then_else(1 <= vk, T.float32(1), A[vi * 2 + vk, vj])
""")
    )
    sch.read_at(sch.get_loops("B")[0], "B", 0, "shared")
    assert_structural_equal(parse(sch.func.script()), sch.func)


def test_cache_write_in_a_group_of_empty_loops():
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((0,)), C: T.Buffer((0,))):
    B = T.alloc_buffer((1, 5))
    with T.block("group"):
        g = T.axis.spatial(1, 0)
        T.reads(A[0:0])
        T.writes(C[0:0], B[0:0, 0:5])
        for i, j in T.grid(0, 8):
            with T.block("B"):
                v = T.axis.spatial(0, i * 8 + j)
                B[v // 5, v % 5] = A[v]
        for i in range(0):
            with T.block("C"):
                v = T.axis.spatial(0, i)
                C[v] = B[v // 5, v % 5]
""")
    )
    with pytest.raises(ScheduleError, match="loop i never runs block 'B'"):
        sch.cache_write("B", 0, "global")
    verify(sch.func)


def test_quotients_in_a_loop_without_iterations():
    analyzer = Analyzer()
    n, i = Var("n", "int32"), Var("i", "int32")
    analyzer.bind(n, (1, 0))
    analyzer.bind(i, (0, 7))
    assert analyzer.const_int_bound(i // n) is not None and analyzer.simplify(i // n + 1) is not None


def test_read_at_reads_no_more_than_the_block_around_declares():
    """The window of the last step ends at element 15, of which ``S0_o`` reads nothing."""
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((8, 16)), S0: T.Buffer((8, 45))):
    for i0, i1 in T.grid(8, 45):
        with T.block("S0"):
            v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
            S0[v_i0, v_i1] = A[v_i0, v_i1 // 3]
""")
    )
    sch.split(sch.get_loops("S0")[1], [8, None])
    sch.blockize(sch.get_loops("S0")[1], preserve_unit_iters=False)
    sch.read_at(sch.get_loops("S0")[0], "S0", 0, "shared")
    verify(sch.func)
    a, c = np.random.rand(8, 16).astype("float32"), np.full((8, 45), np.nan, "float32")
    interpret(sch.func, a, c, check_regions=True)
    assert (c == np.repeat(a, 3, 1)[:, :45]).all()


def test_read_at_stays_inside_the_buffer_where_the_block_around_declares_more():
    """The region of ``S0_o`` covers the guarded neighbours of ``A``, which do not exist."""
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((1, 4)), S0: T.Buffer((4, 7))):
    for i0, i1 in T.grid(4, 7):
        with T.block("S0"):
            v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
            S0[v_i0, v_i1] = T.if_then_else(
                v_i0 >= 2 and v_i0 < 3 and v_i1 >= 2 and v_i1 < 6, A[v_i0 - 2, v_i1 - 2], T.float32(1.0)
            )
""")
    )
    sch.blockize(sch.get_loops("S0")[0])
    sch.read_at(sch.get_loops("S0")[1], "S0", 0, "global")
    verify(sch.func)
    a, c = np.random.rand(1, 4).astype("float32"), np.full((4, 7), np.nan, "float32")
    interpret(sch.func, a, c, check_regions=True)
    wanted = np.ones((4, 7), "float32")
    wanted[2, 2:6] = a[0]
    assert (c == wanted).all()


def test_an_inlined_consumer_keeps_its_conditions_on_loops_around_both():
    """In iterations behind the tail the scratch of ``S0`` holds nothing."""
    B = te.placeholder((2,), "int64", name="B")
    w = te.reduce_axis((0, 2), name="w")
    S0 = te.compute((1,), lambda i: te.max(B[i + w], axis=w), name="S0")
    S1 = te.compute((1,), lambda i: S0[i] * te.const(-2, "int64") + te.const(2, "int64"), name="S1")
    sch = Schedule(te.create_prim_func([B, S1]))
    sch.compute_at("S0", sch.get_loops("S1")[0])
    sch.split(sch.get_loops("S1")[0], [None, 4], preserve_unit_iters=False)
    sch.cache_write("S0", 0, "shared")
    sch.split(sch.get_loops("S0_shared")[2], [None, 2])
    sch.reverse_compute_inline("S1")
    verify(sch.func)
    made = np.zeros(1, "int64")
    compile(sch)(np.array([2, 1], "int64"), made)
    assert made == [-2]


def test_the_range_of_a_loop_is_not_learned_under_a_condition_inside_it():
    """Where ``j`` is 2 the inner loop has one iteration; elsewhere it may have two."""
    func = parse("""
@T.prim_func
def main(S: T.Buffer((17, 40)), A: T.Buffer((40,))):
    for j in range(17):
        for a in range((T.max(16 - j, j) - T.min(16 - j, j)) // 16 + 1):
            if j < 3 and j > 1:
                for v in T.vectorized(8):
                    S[j, a * 16 + v] = A[v]
            else:
                for v in T.vectorized(8):
                    S[j, a * 16 + v] = A[v] + T.float32(1)
""")
    a = np.arange(40, dtype="float32")
    expected, made = np.zeros((17, 40), "float32"), np.zeros((17, 40), "float32")
    interpret(func, expected, a)
    compile(func)(made, a)
    assert (made == expected).all() and made[0, 16] == 1


@pytest.mark.parametrize(("extent", "taken"), [("n * 3", False), ("n + 2", True)])
def test_the_part_inside_a_padding_may_be_longer_than_an_empty_axis(extent, taken):
    """Where ``n`` is 0 the axis of ``3 * n`` has no elements, and the copy of two would write behind the array."""
    sch = Schedule(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((2,)), n: T.int32, b: T.handle):
    B = T.match_buffer(b, ({extent},))
    for i in range({extent}):
        with T.block("B"):
            vi = T.axis.spatial({extent}, i)
            B[vi] = T.if_then_else(vi < 2, A[vi], T.float32(0))
""")
    )
    if taken:
        sch.decompose_padding("B", sch.get_loops("B")[0])
        return
    with pytest.raises(ScheduleError, match="which may lie beyond the end of the axis"):
        sch.decompose_padding("B", sch.get_loops("B")[0])
