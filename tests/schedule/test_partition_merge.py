"""loop_partition and merge: what comes out, that it computes the same, and what they refuse."""

import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse


def test_parts_of_parts(chain, agree, replays):
    func = chain(13, 17)
    sch = Schedule(func, debug_mask="all")
    i, _ = sch.get_loops("B")
    parts = sch.loop_partition(i, [2, 1, 6])
    assert [(sch.get(v).min.value, sch.get(v).extent.value) for v in parts] == [(0, 2), (2, 1), (3, 6), (9, 4)]
    inner = sch.get_loops("B_i0")
    assert inner[0] is parts[0] and len(inner) == 2
    sch.loop_partition(inner[1], [None, 16])
    names = ["B_i0_j_common", "B_i0_j0_partition", "B_i0_j0", "B_i0_j1_partition", "B_i0_j1", "B_i1"]
    for name in names:
        sch.get_block(name)
    with pytest.raises(ScheduleError, match="no block 'B'"):
        sch.get_block("B")
    agree(func, sch.func)
    replays(sch, func)


def test_what_a_part_looks_like(same):
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((7, 8)), B: T.Buffer((7, 8))):
    for i, j in T.grid(7, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""),
        debug_mask="all",
    )
    sch.loop_partition(sch.get_loops("B")[0], [None, 1])
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 8)), B: T.Buffer((7, 8))):
    with T.block("root"):
        T.reads()
        T.writes()
        with T.block("B_i_common"):
            T.reads()
            T.writes()
            with T.block("B_i0_partition"):
                T.reads()
                T.writes()
                for i0, j in T.grid(6, 8):
                    with T.block("B_i0"):
                        vi, vj = T.axis.remap("SS", [i0, j])
                        T.reads(A[0:6, 0:8])
                        T.writes(B[0:6, 0:8])
                        B[vi, vj] = A[vi, vj] * T.float32(2)
            with T.block("B_i1_partition"):
                T.reads()
                T.writes()
                for i1 in range(6, 7):
                    for j in range(8):
                        with T.block("B_i1"):
                            vi = T.axis.spatial((6, 7), i1)
                            vj = T.axis.spatial(8, j)
                            T.reads(A[6, 0:8])
                            T.writes(B[6, 0:8])
                            B[vi, vj] = A[vi, vj] * T.float32(2)
""",
    )


def test_a_part_of_a_part_declares_what_it_touches(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((17, 13)), B: T.Buffer((17, 13))):
    for i, j in T.grid(17, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
""")
    sch = Schedule(func, debug_mask="all")
    i, _ = sch.get_loops("B")
    first, _ = sch.loop_partition(i, [10, None])
    sch.loop_partition(first, [7, None])
    sch.loop_partition(sch.get_loops("B_i0_i01")[1], [None, 1])
    regions = {
        name: [str(r) for r in (*sch.get(sch.get_block(name)).reads, *sch.get(sch.get_block(name)).writes)]
        for name in ("B_i1", "B_i0_i00", "B_i0_i01_j0", "B_i0_i01_j1")
    }
    assert regions == {
        "B_i1": ["A[10:17, 0:13]", "B[10:17, 0:13]"],
        "B_i0_i00": ["A[0:7, 0:13]", "B[0:7, 0:13]"],
        "B_i0_i01_j0": ["A[7:10, 0:12]", "B[7:10, 0:12]"],
        "B_i0_i01_j1": ["A[7:10, 12]", "B[7:10, 12]"],
    }
    agree(func, sch.func)


def test_parts_of_what_is_addressed_from_memory(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[T.max(T.min(A[vi], 7), 0)]
""")
    sch = Schedule(func, debug_mask="all")
    sch.loop_partition(sch.get_loops("B")[0], [3, None])
    agree(func, sch.func)


def test_a_decomposed_reduction(matmul, agree, replays):
    func = matmul(13, 17, 7)
    sch = Schedule(func, debug_mask="all")
    i, _, k = sch.get_loops("C")
    with pytest.raises(ScheduleError, match="loop k carries the reduction of block 'C'.*start anew in each part"):
        sch.loop_partition(k, [4, None])
    sch.decompose_reduction("C", i)
    sch.loop_partition(k, [4, None])
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([1000, 2, 3], "leave -992 of the 13 iterations"),
        ([-2, -64], "factor -2 of loop i is not a positive number"),
        ([0, None], "factor 0 of loop i is not a positive number"),
        ([13, None], "leave 0 of the 13 iterations"),
        ([None, None], "at most one None"),
        ([], "not a list of sizes"),
    ],
)
def test_factors(chain, factors, words):
    sch = Schedule(chain(13, 17))
    with pytest.raises(ScheduleError) as info:
        sch.loop_partition(sch.get_loops("B")[0], factors)
    assert words in str(info.value)


def test_loops_that_cannot_be_parted(chain):
    sch = Schedule(chain())
    i, j = sch.get_loops("B")
    sch.annotate(i, "note", 1)
    sch.bind(j, "threadIdx.x")
    with pytest.raises(ScheduleError, match="has annotations"):
        sch.loop_partition(i, [4, None])
    with pytest.raises(ScheduleError, match="is bound to threadIdx.x"):
        sch.loop_partition(j, [4, None])
    symbolic = Schedule(
        parse("""
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    B = T.match_buffer(b, (n,))
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[vi]
""")
    )
    with pytest.raises(ScheduleError, match="which is not constant"):
        symbolic.loop_partition(symbolic.get_loops("B")[0], [10, None])


def test_others_know_who_writes_in_the_parts(chain, agree):
    """The blocks around the parts declare nothing, yet their stores are stores."""
    func = chain(13, 17)
    sch = Schedule(func, debug_mask="all")
    sch.loop_partition(sch.get_loops("B")[0], [4, None])
    assert [b.name for b in sch.get_producers("C")] == ["B_i_common"]
    agree(func, sch.func)
    for step in (
        lambda: sch.compute_at("B_i_common", sch.get_loops("C")[0]),
        lambda: sch.compute_inline("B_i_common"),
    ):
        with pytest.raises(ScheduleError, match="it holds blocks that touch more than it declares|more than store one"):
            step()


# -- merge -----------------------------------------------------------------------------------------------------------------

TWO = """
@T.prim_func
def main(A: T.Buffer((16, 8)), C: T.Buffer((16, 8)), D: T.Buffer((8, 4))):
    B = T.alloc_buffer((16, 8))
    for i, j in T.grid(16, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i_0, j_0, i_1, j_1 in T.grid(4, 2, 4, 4):
        with T.block("C"):
            vi = T.axis.spatial(16, i_0 * 4 + i_1)
            vj = T.axis.spatial(8, j_0 * 4 + j_1)
            C[vi, vj] = B[vi, vj] + T.float32(1)
    for i_0, j_0, i_1, j_1 in T.grid(4, 2, 2, 2):
        with T.block("D"):
            vi = T.axis.spatial(8, i_0 * 2 + i_1)
            vj = T.axis.spatial(4, j_0 * 2 + j_1)
            D[vi, vj] = B[vi, vj] + T.float32(2)
"""


@pytest.mark.parametrize("depth", [0, 1])
def test_merge(agree, replays, depth):
    func = parse(TWO)
    sch = Schedule(func, debug_mask="all")
    merged = sch.merge(sch.get_loops("C")[depth], sch.get_loops("D")[depth])
    assert sch.get_loops("C")[: depth + 1] == sch.get_loops("D")[: depth + 1]
    assert (
        sch.get_loops("C")[depth] is merged
        and [v.name for v in sch.get_loops("C")][: depth + 1]
        == [
            "i_0_m",
            "j_0_m",
        ][: depth + 1]
    )
    agree(func, sch.func)
    replays(sch, func)


def test_what_the_next_iteration_makes(agree):
    def stages(index):
        return parse(f"""
@T.prim_func
def main(A: T.Buffer((17,)), C: T.Buffer((16,))):
    B = T.alloc_buffer((17,))
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[{index}] + T.float32(1)
""")

    sch = Schedule(stages("vi"))
    sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])
    agree(stages("vi"), sch.func)
    for index in ("vi + 1", "15 - vi", "0"):
        sch = Schedule(stages(index))
        with pytest.raises(
            ScheduleError, match="different iterations of loop i and loop i may share elements of buffer B"
        ):
            sch.merge(sch.get_loops("B")[0], sch.get_loops("C")[0])


def test_loops_that_do_not_merge():
    sch = Schedule(parse(TWO))
    b, c, d = (sch.get_loops(name) for name in "BCD")
    for loops, words in (
        ((b[0], c[0]), "loop i has 16 iterations, loop i_0 4"),
        ((b[0], d[0]), "something stands between loop i and loop i_0"),
        ((c[0], d[1]), "is 1 loops deep, loop j_0 2"),
        ((c[2], d[2]), "loop i_1 has|loop i_0 has|4 iterations, loop i_1 2"),
        ((c[0], c[0]), "merge takes two loops or more"),
        ((c[0],), "merge takes two loops or more"),
        ((c[0], c[1]), "are not in one scope, one after the other"),
    ):
        with pytest.raises(ScheduleError, match=words):
            sch.merge(*loops)
    sch.annotate(c[0], "note", 1)
    with pytest.raises(ScheduleError, match="annotations"):
        sch.merge(c[0], d[0])


@pytest.mark.parametrize("inner", [False, True])
def test_regions_of_a_triangle_name_axes_not_loops(agree, replays, inner):
    """The domain of the reduction depends on a loop, which the region names as the axis that it is bound to."""
    A = te.placeholder((3, 13), name="A")

    def rows(b, i):
        k = te.reduce_axis((i // 2, i + 1), name="k")
        return te.max(A[b, k], axis=k)

    func = te.create_prim_func([A, te.compute((3, 13), rows, name="B")])
    sch = Schedule(func, debug_mask="all")
    loops = sch.get_loops("B")
    if inner:
        sch.loop_partition(loops[1], [4, None])
    else:
        sch.split(loops[1], [None, 4])  # the domain depends on a sum of loops, which is no axis
        sch.loop_partition(loops[0], [None, 1])
    assert ("T.reads(A[0:3, v_i // 2:" if inner else "T.reads(A[0:2, 0:13])") in sch.func.script()
    agree(func, sch.func)
    replays(sch, func)


def test_a_part_of_a_part_names_no_loop_around_the_first():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((1, 7, 2)), B: T.Buffer((1, 7, 2))):
    for i, j, l in T.grid(1, 7, 2):
        for k in range(i + 1):
            with T.block("B"):
                vi = T.axis.spatial(1, 0)
                vj, vl = T.axis.remap("SS", [j, l])
                vk = T.axis.reduce(i + 1, k)
                with T.init():
                    B[vi, vj, vl] = T.float32(0)
                B[vi, vj, vl] = B[vi, vj, vl] + A[vk, vj, vl]
""")
    sch = Schedule(func, debug_mask="all")
    sch.loop_partition(sch.get_loops("B")[1], [None, 1])
    sch.loop_partition(sch.get_loops("B_j0")[1], [None, 1])
    assert "T.reads(A[0, 0:6, 0])" in sch.func.script()
