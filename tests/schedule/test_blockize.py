"""blockize: what comes out, that it computes the same, and what is refused."""

import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import assert_structural_equal, parse

PLAIN = """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32")):
    for i, j in T.grid(64, 32):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""

ROWSUM = """
@T.prim_func
def main(A: T.Buffer((24, 30), "float32"), B: T.Buffer((24,), "float32")):
    for k, i in T.grid(30, 24):
        with T.block("B"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
"""


def schedule(text):
    func = parse(text)
    return func, Schedule(func, debug_mask="all")


def test_outermost_loop(agree, replays, same):
    func, sch = schedule(PLAIN)
    outer = sch.blockize(sch.get_loops("B")[0])
    assert outer.name == "B_o"
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32")):
    with T.block("B_o"):
        vi_o = T.axis.spatial(1, 0)
        vj_o = T.axis.spatial(1, 0)
        T.reads(A[0:64, 0:32])
        T.writes(B[0:64, 0:32])
        for i, j in T.grid(64, 32):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


def test_axes_of_one_value_are_left_out_of_the_inner_block(agree, replays, same):
    func, sch = schedule(PLAIN)
    sch.blockize(sch.get_loops("B")[1])
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32")):
    for i in range(64):
        with T.block("B_o"):
            vi_o = T.axis.spatial(64, i)
            vj_o = T.axis.spatial(1, 0)
            T.reads(A[vi_o, 0:32])
            T.writes(B[vi_o, 0:32])
            for j in range(32):
                with T.block("B"):
                    vj_i = T.axis.spatial(32, j)
                    B[vi_o, vj_i] = A[vi_o, vj_i] * T.float32(2)
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


def test_tiles(agree, replays, same):
    func, sch = schedule(PLAIN)
    i, j = sch.get_loops("B")
    i0, i1 = sch.split(i, [None, 8])
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(i0, j0, i1, j1)
    outer = sch.blockize(i1)
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((64, 32), "float32"), B: T.Buffer((64, 32), "float32")):
    for i0, j0 in T.grid(8, 2):
        with T.block("B_o"):
            vi_o, vj_o = T.axis.remap("SS", [i0, j0])
            T.reads(A[vi_o * 8 : vi_o * 8 + 8, vj_o * 16 : vj_o * 16 + 16])
            T.writes(B[vi_o * 8 : vi_o * 8 + 8, vj_o * 16 : vj_o * 16 + 16])
            for i1, j1 in T.grid(8, 16):
                with T.block("B"):
                    vi_i, vj_i = T.axis.remap("SS", [i1, j1])
                    B[vi_o * 8 + vi_i, vj_o * 16 + vj_i] = A[vi_o * 8 + vi_i, vj_o * 16 + vj_i] * T.float32(2)
""")  # fmt: skip
    # the loops keep their handles, on either side
    assert sch.get_loops(outer) == [i0, j0] and sch.get_loops("B") == [i1, j1]
    sch.parallel(i0)
    sch.vectorize(j1)
    agree(func, sch.func)
    replays(sch, func)


def test_a_block_inside_a_block_again(agree, replays):
    func, sch = schedule(PLAIN)
    i, j = sch.get_loops("B")
    i0, i1, i2 = sch.split(i, [4, 4, 4])
    sch.reorder(i0, i1, j, i2)
    first = sch.blockize(i1)
    second = sch.blockize(j)
    assert (first.name, second.name) == ("B_o", "B_o_1")
    assert [loop.name for loop in sch.get_loops(second)] == [i1.name]
    agree(func, sch.func)
    replays(sch, func)


def test_an_init_gets_a_nest_of_its_own(agree, replays, same):
    func, sch = schedule(ROWSUM)
    sch.blockize(sch.get_loops("B")[0])
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((24, 30), "float32"), B: T.Buffer((24,), "float32")):
    with T.block("B_o"):
        vk_o = T.axis.reduce(1, 0)
        vi_o = T.axis.spatial(1, 0)
        T.reads(A[0:24, 0:30])
        T.writes(B[0:24])
        with T.init():
            for i_init in range(24):
                with T.block("B_init"):
                    vi_init = T.axis.spatial(24, i_init)
                    T.reads()
                    T.writes(B[vi_init])
                    B[vi_init] = T.float32(0)
        for k, i in T.grid(30, 24):
            with T.block("B"):
                vk_i, vi_i = T.axis.remap("RS", [k, i])
                T.reads(B[vi_i], A[vi_i, vk_i])
                T.writes(B[vi_i])
                B[vi_i] = B[vi_i] + A[vi_i, vk_i]
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (7, 16, 13), (16, 17, 16), (13, 1, 17)])
def test_a_matmul_with_its_init(matmul, agree, replays, m, n, k):
    func = matmul(m, n, k)
    for level in range(4):
        sch = Schedule(func, debug_mask="all")
        i, j, r = sch.get_loops("C")
        order = [i, j, r] if level % 2 else [j, r, i]
        sch.reorder(*order)
        if level < 3:
            sch.blockize(order[level])
        agree(func, sch.func)
        replays(sch, func)


UNITS = """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    for i0, j0, i1, j1 in T.grid(1, 4, 16, 8):
        with T.block("B"):
            vi = T.axis.spatial(16, i0 * 16 + i1)
            vj = T.axis.spatial(32, j0 * 8 + j1)
            B[vi, vj] = A[vi, vj] + T.float32(1)
"""


@pytest.mark.parametrize("keep, value", [(True, "i0"), (False, "0")])
def test_loops_of_one_turn(agree, replays, same, keep, value):
    func, sch = schedule(UNITS)
    sch.blockize(sch.get_loops("B")[2], preserve_unit_iters=keep)
    same(sch.func, f"""
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32")):
    for i0, j0 in T.grid(1, 4):
        with T.block("B_o"):
            vi_o = T.axis.spatial(1, {value})
            vj_o = T.axis.spatial(4, j0)
            T.reads(A[0:16, vj_o * 8 : vj_o * 8 + 8])
            T.writes(B[0:16, vj_o * 8 : vj_o * 8 + 8])
            for i1, j1 in T.grid(16, 8):
                with T.block("B"):
                    vi_i, vj_i = T.axis.remap("SS", [i1, j1])
                    B[vi_i, vj_o * 8 + vj_i] = A[vi_i, vj_o * 8 + vj_i] + T.float32(1)
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


def test_64_bit_loops(agree, replays):
    text = PLAIN.replace("T.grid(64, 32)", "T.grid(T.int64(64), T.int64(32))")
    func, sch = schedule(text.replace("(64, 32)", "(T.int64(64), T.int64(32))").replace("T.grid(T.int64(T.int64", "T."))
    i, j = sch.get_loops("B")
    i0, i1 = sch.split(i, [None, 8])
    sch.blockize(i1)
    assert all(iv.var.dtype == "int64" for iv in sch.get(sch.get_block("B_o")).iter_vars)
    agree(func, sch.func)
    replays(sch, func)


def test_fused_loops(agree, replays):
    func, sch = schedule(PLAIN)
    fused = sch.fuse(*sch.get_loops("B"))
    a, b, c = sch.split(fused, [16, 8, 16])
    sch.blockize(c)
    block = sch.get(sch.get_block("B_o"))
    assert [str(iv.dom.extent) for iv in block.iter_vars] == ["64", "2"]
    agree(func, sch.func)
    replays(sch, func)


def test_annotations_and_kinds_stay_where_they_are(agree):
    func, sch = schedule(PLAIN)
    i, j = sch.get_loops("B")
    sch.annotate(j, "remark", 3)
    sch.annotate("B", "about", "B")
    sch.vectorize(j)
    sch.blockize(j)
    assert sch.get(j).kind == "vectorized" and dict(sch.get(j).annotations) == {"remark": 3}
    assert dict(sch.get(sch.get_block("B")).annotations) == {"about": "B"}
    assert not sch.get(sch.get_block("B_o")).annotations
    agree(func, sch.func)


def test_a_condition_on_outer_loops_alone(agree, replays, same):
    func, sch = schedule("""
@T.prim_func
def main(A: T.Buffer((100, 16), "float32"), B: T.Buffer((100, 16), "float32")):
    for i0, i1, j in T.grid(4, 32, 16):
        with T.block("B"):
            vi = T.axis.spatial(100, i0 * 32 + i1)
            vj = T.axis.spatial(16, j)
            T.where(i0 * 32 + i1 < 100)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""")
    i0, i1, j = sch.get_loops("B")
    sch.blockize(j)
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((100, 16), "float32"), B: T.Buffer((100, 16), "float32")):
    for i0, i1 in T.grid(4, 32):
        with T.block("B_o"):
            vi_o = T.axis.spatial(100, i0 * 32 + i1)
            vj_o = T.axis.spatial(1, 0)
            T.where(i0 * 32 + i1 < 100)
            T.reads(A[vi_o, 0:16])
            T.writes(B[vi_o, 0:16])
            for j in range(16):
                with T.block("B"):
                    vj_i = T.axis.spatial(16, j)
                    B[vi_o, vj_i] = A[vi_o, vj_i] * T.float32(2)
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


def test_a_condition_on_inner_loops_alone(agree, replays):
    func, sch = schedule("""
@T.prim_func
def main(A: T.Buffer((16, 100), "float32"), B: T.Buffer((16, 100), "float32")):
    for j, i0, i1 in T.grid(16, 4, 32):
        with T.block("B"):
            vi = T.axis.spatial(100, i0 * 32 + i1)
            vj = T.axis.spatial(16, j)
            T.where(i0 * 32 + i1 < 100)
            B[vj, vi] = A[vj, vi] * T.float32(2)
""")
    sch.blockize(sch.get_loops("B")[1])
    block = sch.get(sch.get_block("B_o"))
    assert str(block.writes[0]) == "B[vj_o, 0:100]"
    agree(func, sch.func)
    replays(sch, func)


def test_bindings_that_begin_elsewhere(agree, replays):
    func, sch = schedule("""
@T.prim_func
def main(A: T.Buffer((40, 16), "float32"), B: T.Buffer((40, 16), "float32")):
    for i0, i1 in T.grid(4, 8):
        with T.block("B"):
            vi = T.axis.spatial(40, i0 * 8 + i1 + 3)
            vj = T.axis.spatial(16, 5)
            B[vi, vj] = A[vi, vj] * T.float32(2)
""")
    sch.blockize(sch.get_loops("B")[1])
    inner = sch.get(sch.get_block("B"))
    assert str(inner.body).startswith("B[vi_o * 8 + vi_i + 3, vj_o + 5] =")
    agree(func, sch.func)
    replays(sch, func)


def test_an_index_that_is_no_interval_takes_the_whole_dimension(agree):
    func, sch = schedule("""
@T.prim_func
def main(A: T.Buffer((64,), "float32"), P: T.Buffer((16,), "int32"), B: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            T.reads(A[0:64], P[vi])
            T.writes(B[vi])
            B[vi] = A[T.bitwise_and(P[vi], 63)]
""")
    sch.blockize(sch.get_loops("B")[0])
    assert [str(r) for r in sch.get(sch.get_block("B_o")).reads] == ["A[0:64]", "P[0:16]"]
    agree(func, sch.func)


# -- lists of blocks -----------------------------------------------------------------------------------------------------

TWO = """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    for m in range(4):
        for i, j in T.grid(4, 32):
            with T.block("B"):
                vi = T.axis.spatial(16, m * 4 + i)
                vj = T.axis.spatial(32, j)
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(4, 32):
            with T.block("C"):
                vi = T.axis.spatial(16, m * 4 + i)
                vj = T.axis.spatial(32, j)
                C[vi, vj] = B[vi, vj] + T.float32(1)
"""


def test_blocks_side_by_side(agree, replays, same):
    func, sch = schedule(TWO)
    both = sch.blockize([sch.get_block("C"), sch.get_block("B")])  # program order counts, not the list's
    assert both.name == "outer_B_C_"
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), B: T.Buffer((16, 32), "float32"), C: T.Buffer((16, 32), "float32")):
    for m in range(4):
        with T.block("outer_B_C_"):
            vi_o = T.axis.spatial(4, m)
            vj_o = T.axis.spatial(1, 0)
            T.reads(B[vi_o * 4 : vi_o * 4 + 4, 0:32], A[vi_o * 4 : vi_o * 4 + 4, 0:32])
            T.writes(C[vi_o * 4 : vi_o * 4 + 4, 0:32], B[vi_o * 4 : vi_o * 4 + 4, 0:32])
            for i, j in T.grid(4, 32):
                with T.block("B"):
                    vi_i, vj_i = T.axis.remap("SS", [i, j])
                    B[vi_o * 4 + vi_i, vj_i] = A[vi_o * 4 + vi_i, vj_i] * T.float32(2)
            for i, j in T.grid(4, 32):
                with T.block("C"):
                    vi_i, vj_i = T.axis.remap("SS", [i, j])
                    C[vi_o * 4 + vi_i, vj_i] = B[vi_o * 4 + vi_i, vj_i] + T.float32(1)
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


def test_blocks_of_other_parts_of_a_buffer(agree, replays, same):
    func, sch = schedule("""
@T.prim_func
def main(A: T.Buffer((32, 64), "float32"), B: T.Buffer((32, 64), "float32")):
    for m in range(3):
        for i, j in T.grid(5, 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(32, 32):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj + 32] = A[vi, vj + 32] * T.float32(3)
""")
    sch.blockize([sch.get_block("B"), sch.get_block("C")], preserve_unit_iters=False)
    same(sch.func, """
@T.prim_func
def main(A: T.Buffer((32, 64), "float32"), B: T.Buffer((32, 64), "float32")):
    for m in range(3):
        with T.block("outer_B_C_"):
            vi_o = T.axis.spatial(1, 0)
            vj_o = T.axis.spatial(1, 0)
            T.reads(A[0:32, 0:64])
            T.writes(B[0:32, 0:64])
            for i, j in T.grid(5, 1):
                with T.block("B"):
                    vi_i = T.axis.spatial(5, i)
                    T.reads(A[vi_i, 0])
                    T.writes(B[vi_i, 0])
                    B[vi_i, 0] = A[vi_i, 0] * T.float32(2)
            for i, j in T.grid(32, 32):
                with T.block("C"):
                    vi_i, vj_i = T.axis.remap("SS", [i, j])
                    B[vi_i, vj_i + 32] = A[vi_i, vj_i + 32] * T.float32(3)
""")  # fmt: skip
    agree(func, sch.func)
    replays(sch, func)


def test_neighbours_of_the_blocks_stay(agree, replays):
    func, sch = schedule(TWO)
    copy = sch.cache_write("C", 0, "local")
    sch.reverse_compute_at(copy, sch.get_loops("B")[0])
    sch.blockize(["B", "C"])
    text = sch.func.script()
    assert text.index('"outer_B_C_"') < text.index(f'"{copy.name}"')
    agree(func, sch.func)
    replays(sch, func)


# -- what is refused -----------------------------------------------------------------------------------------------------


def refused(text, *words, loop=None, block="B", target=None):
    func, sch = schedule(text)
    with pytest.raises(ScheduleError) as error:
        sch.blockize(target if target is not None else sch.get_loops(block)[loop])
    for word in words:
        assert word in str(error.value), str(error.value)
    assert "blockize:" in str(error.value)
    assert_structural_equal(sch.func, func)


def test_a_tile_that_sticks_out():
    refused("""
@T.prim_func
def main(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
    for i0, i1 in T.grid(4, 32):
        with T.block("B"):
            vi = T.axis.spatial(100, i0 * 32 + i1)
            T.where(i0 * 32 + i1 < 100)
            B[vi] = A[vi] * T.float32(2)
""", "cannot be divided", "joins outer and inner", "hint", loop=1)  # fmt: skip


def test_digits_the_wrong_way_round():
    refused("""
@T.prim_func
def main(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "float32")):
    for i1, i0 in T.grid(16, 8):
        with T.block("B"):
            vi = T.axis.spatial(128, i0 * 16 + i1)
            B[vi] = A[vi] * T.float32(2)
""", "cannot be divided", "has a larger scale", loop=1)  # fmt: skip


def test_two_blocks_below_the_loop():
    refused(TWO, "holds 2 blocks ('B', 'C')", "as a list", loop=0)


def test_something_else_on_the_way():
    refused("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    for i in range(16):
        if i < n:
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] * T.float32(2)
""", "stands a IfThenElse", loop=0)  # fmt: skip


def test_a_loop_that_repeats_a_reduction():
    refused("""
@T.prim_func
def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8,), "float32")):
    for m, i, k in T.grid(2, 8, 16):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""", "loop m repeats the reduction", loop=0)  # fmt: skip


def test_a_reduction_that_begins_late():
    refused("""
@T.prim_func
def main(A: T.Buffer((8, 17), "float32"), B: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 16):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            vk = T.axis.reduce(17, k + 1)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""", "starts at 1, not at the start 0", "decompose_reduction", loop=0)  # fmt: skip


def test_a_reduction_that_reads_its_neighbours():
    refused("""
@T.prim_func
def main(A: T.Buffer((8, 16), "float32"), B: T.Buffer((9,), "float32")):
    for i, k in T.grid(8, 16):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.reads(A[vi, vk], B[vi + 1])
            T.writes(B[vi])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk] * B[vi + 1]
""", "reads B[vi + 1] beside", loop=0)  # fmt: skip


def test_lists_that_make_no_block(matmul):
    with pytest.raises(ScheduleError, match="reduces"):
        Schedule(matmul(8, 8, 8)).blockize(["C"])
    with pytest.raises(ScheduleError, match="given a block twice"):
        Schedule(parse(TWO)).blockize(["B", "B"])
    with pytest.raises(ScheduleError, match="no block 'D'"):
        Schedule(parse(TWO)).blockize(["B", "D"])
    with pytest.raises(ScheduleError, match="root block"):
        Schedule(parse(TWO)).blockize(["root"])
    with pytest.raises(TypeError, match="a loop, a block"):
        Schedule(parse(TWO)).blockize([])


def test_blocks_that_do_not_follow_one_another():
    text = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"),
         D: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi]
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = A[vi]
"""
    refused(text, "do not follow one another", "in between", target=["B", "D"])


def test_blocks_that_run_over_shared_loops_differently():
    text = TWO.replace("C[vi, vj] = B[vi, vj]", "C[vi, vj] = B[vi, vj]").replace(
        """vi = T.axis.spatial(16, m * 4 + i)
                vj = T.axis.spatial(32, j)
                C""",
        """vi = T.axis.spatial(16, i)
                vj = T.axis.spatial(32, m * 8 + j)
                C""",
    ).replace('for i, j in T.grid(4, 32):\n            with T.block("C")', 'for i, j in T.grid(16, 8):\n            with T.block("C")')  # fmt: skip
    refused(text, "in different ways", "same factors", target=["B", "C"])


def test_an_index_that_may_be_any_number_reads_the_whole_dimension():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((17, 8), "int32"), B: T.Buffer((17, 8), "int32")):
    for i, j in T.grid(17, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, T.max(T.min(A[vi, vj] * 2147483646, 7), 0)]
""")
    sch = Schedule(func, debug_mask="all")
    sch.blockize(sch.get_loops("B")[0])
    outer = sch.func.script().split("T.reads(")[1]
    assert outer.startswith("A[0:17, 0:8]")


def test_the_digits_of_an_axis_have_its_type():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((T.int64(4), T.int64(16))), B: T.Buffer((T.int64(4), T.int64(14)))):
    for i, j, w in T.grid(T.int64(4), T.int64(14), 3):
        with T.block("B"):
            vi, vj, vw = T.axis.remap("SSR", [i, j, w])
            with T.init():
                B[vi, vj] = T.float32(0)
            B[vi, vj] = B[vi, vj] + A[vi, vj + T.Cast("int64", vw)]
""")
    sch = Schedule(func, debug_mask="all")
    _, j, w = sch.get_loops("B")
    sch.fuse(j, w)
    block = sch.get(sch.blockize(sch.get_loops("B")[0]))
    assert [iv.var.dtype for iv in block.iter_vars] == ["int64", "int64", "int32"]


def test_an_axis_of_several_blocks_is_used_in_the_type_of_each():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((T.int64(4), 5)), B: T.Buffer((T.int64(4), 5)), C: T.Buffer((1, 5))):
    for i, j in T.grid(T.int64(4), 5):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i, j in T.grid(1, 5):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[T.int64(0), vj]
""")
    sch = Schedule(func, debug_mask="all")
    sch.blockize(["B", "C"])
    assert_structural_equal(parse(sch.func.script()), sch.func)
