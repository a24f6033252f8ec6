import numpy as np
import pytest

from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse

# -- cache_inplace -------------------------------------------------------------------------------------------------------


def _update(rows=13):
    return parse(f"""
@T.prim_func
def main(A: T.Buffer(({rows}, 7))):
    for i in range({rows}):
        with T.block("A"):
            vi = T.axis.spatial({rows}, i)
            T.reads(A[vi, 0:7])
            T.writes(A[vi, 0:7])
            for k in range(6):
                A[vi, k + 1] = A[vi, k + 1] + A[vi, k]
""")


def _run(func, *shapes):
    from tilewright.tir.interpret import interpret

    rng = np.random.default_rng(3)
    arrays = [rng.integers(-4, 5, s).astype("float32") for s in shapes]
    interpret(func, *arrays, check_regions=True)
    return arrays


@pytest.mark.parametrize("rows", [1, 7, 13])
def test_cache_inplace_copies_in_and_back(same, replays, rows):
    func = _update(rows)
    sch = Schedule(func)
    into, back = sch.cache_inplace("A", 0, "local")
    assert [into.name, back.name] == ["A_local", "A_local_1"]
    same(
        sch.func,
        f"""
@T.prim_func
def main(A: T.Buffer(({rows}, 7))):
    A_local = T.alloc_buffer(({rows}, 7), scope="local")
    for i in range({rows}):
        for ax0, ax1 in T.grid(1, 7):
            with T.block("A_local"):
                v0 = T.axis.spatial({rows}, i + ax0)
                v1 = T.axis.spatial(7, ax1)
                A_local[v0, v1] = A[v0, v1]
        with T.block("A"):
            vi = T.axis.spatial({rows}, i)
            T.reads(A_local[vi, 0:7])
            T.writes(A_local[vi, 0:7])
            for k in range(6):
                A_local[vi, k + 1] = A_local[vi, k + 1] + A_local[vi, k]
        for ax0, ax1 in T.grid(1, 7):
            with T.block("A_local_1"):
                v0 = T.axis.spatial({rows}, i + ax0)
                v1 = T.axis.spatial(7, ax1)
                A[v0, v1] = A_local[v0, v1]
""",
    )
    np.testing.assert_array_equal(*_run(func, (rows, 7)), *_run(sch.func, (rows, 7)))
    replays(sch, func)


def test_cache_inplace_takes_pointers_along(same):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((64,), "int32")):
    for i in range(1):
        with T.block("call"):
            T.reads(A[0:64])
            T.writes(A[0:64])
            T.evaluate(T.call_extern("int32", "work", A.data))
""")
    sch = Schedule(func)
    into, back = sch.cache_inplace("call", 0, "local")
    sch.cache_read(into, 0, "global", [into])
    sch.cache_write(back, 0, "global")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((64,), "int32")):
    A_local = T.alloc_buffer((64,), "int32", scope="local")
    A_global = T.alloc_buffer((64,), "int32")
    A_global_1 = T.alloc_buffer((64,), "int32")
    for ax0 in range(64):
        with T.block("A_global"):
            v0 = T.axis.spatial(64, ax0)
            A_global[v0] = A[v0]
    for i in range(1):
        for ax0 in range(64):
            with T.block("A_local"):
                v0 = T.axis.spatial(64, ax0)
                A_local[v0] = A_global[v0]
        with T.block("call"):
            T.reads(A_local[0:64])
            T.writes(A_local[0:64])
            T.evaluate(T.call_extern("int32", "work", A_local.data))
        for ax0 in range(64):
            with T.block("A_local_1"):
                v0 = T.axis.spatial(64, ax0)
                A_global_1[v0] = A_local[v0]
    for ax0 in range(64):
        with T.block("A_global_1"):
            v0 = T.axis.spatial(64, ax0)
            A[v0] = A_global_1[v0]
""",
    )


@pytest.mark.parametrize(
    "reads, writes, words",
    [
        ("A[0:4]", "A[0:8]", "which is not known to be part of what it reads"),
        ("A[0:9]", "A[0:8]", "not known to lie inside buffer A"),
        ("A[0:8]", "", "reads buffer A and does not write it"),
    ],
)
def test_cache_inplace_refuses(reads, writes, words):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((8,), "int32")):
    for i in range(1):
        with T.block("call"):
            T.reads({reads})
            T.writes({writes})
            T.evaluate(T.call_extern("int32", "work", A.data))
""")
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).cache_inplace("call", 0, "local")


# -- cache_index ---------------------------------------------------------------------------------------------------------

_RESIZE = """
@T.prim_func
def main(A: T.Buffer((1, 3, 7, 7)), B: T.Buffer((1, 3, 13, 13))):
    for i0, i1, i2, i3 in T.grid(1, 3, 13, 13):
        with T.block("B"):
            n, c, vi, vj = T.axis.remap("SSSS", [i0, i1, i2, i3])
            B[n, c, vi, vj] = A[n, c, vi // 4 + vj // 4, vj // 2]
"""


def test_cache_index(same, agree, replays):
    func = parse(_RESIZE)
    sch = Schedule(func)
    assert [b.name for b in sch.cache_index("B", "global")] == ["index_0", "index_1"]
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((1, 3, 7, 7)), B: T.Buffer((1, 3, 13, 13))):
    index_var_0 = T.alloc_buffer((13, 13), "int32")
    index_var_1 = T.alloc_buffer((13,), "int32", strides=(1,))
    for ax0, ax1 in T.grid(13, 13):
        with T.block("index_0"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            index_var_0[v0, v1] = v0 // 4 + v1 // 4
    for ax0 in range(13):
        with T.block("index_1"):
            v0 = T.axis.spatial(13, ax0)
            index_var_1[v0] = v0 // 2
    for i0, i1, i2, i3 in T.grid(1, 3, 13, 13):
        with T.block("B"):
            n, c, vi, vj = T.axis.remap("SSSS", [i0, i1, i2, i3])
            T.reads(A[n, c, vi // 4 + vj // 4, vj // 2], index_var_0[vi, vj], index_var_1[vj])
            T.writes(B[n, c, vi, vj])
            B[n, c, vi, vj] = A[n, c, index_var_0[vi, vj], index_var_1[vj]]
""",
    )
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("least, tables", [(0, 2), (1, 2), (2, 1), (3, 0)])
def test_cache_index_counts(agree, least, tables):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13,)), B: T.Buffer((7, 7))):
    for i, j in T.grid(7, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi + vj] * A[(vi + vj) // 2]
""")
    sch = Schedule(func)
    assert len(sch.cache_index("B", "global", least)) == tables
    agree(func, sch.func)


def test_cache_index_after_an_uneven_split(agree, replays):
    func = parse(_RESIZE)
    sch = Schedule(func)
    sch.split(sch.get_loops("B")[3], [None, 4])
    sch.cache_index("B", "global")
    agree(func, sch.func)
    replays(sch, func)


def test_cache_index_needs_loops_that_it_can_copy():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((17,)), B: T.Buffer((17, 17))):
    for i in range(17):
        for j_0, j_1 in T.grid(T.max(i, 5) // 4 + 1, 4):
            with T.block("B"):
                vi = T.axis.spatial(17, i)
                vj = T.axis.spatial(17, j_0 * 4 + j_1)
                T.where(j_0 * 4 + j_1 < T.max(i, 5) + 1)
                B[vi, vj] = A[vj // 2]
""")
    with pytest.raises(ScheduleError, match="the range of a loop depends on another loop"):
        Schedule(func).cache_index("B", "global", 0)


def test_cache_index_leaves_alone_what_may_fail(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), N: T.Buffer((7,), "int32"), B: T.Buffer((7,))):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[T.if_then_else(vi > 0, 6 // vi, 0)] + A[T.max(T.min(N[vi], 6), 0)]
""")
    sch = Schedule(func)
    (table,) = sch.cache_index("B", "global")
    assert str(sch.get(table).body).strip().endswith("= v0 > 0")  # neither 6 // vi nor what comes from N
    agree(func, sch.func)
    with pytest.raises(ScheduleError, match="cse_thresh is a number of occurrences, not -1"):
        sch.cache_index("B", "global", -1)
    with pytest.raises(ScheduleError, match="'test_scope' is not a storage scope"):
        sch.cache_index("B", "test_scope")


# -- read_at, write_at ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factors", [[None, 4], [None, 5], [1, None], [None, 1]])
def test_read_at_and_write_at_of_tiles(matmul, agree, replays, factors):
    func = matmul(13, 17, 7)
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, factors)
    j0, j1 = sch.split(j, [None, 8])
    k0, k1 = sch.split(k, [None, 3])
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.read_at(k0, "C", 0, "shared")
    sch.read_at(k0, "C", "B", "local")
    copy = sch.write_at(j0, "C", 0, "local")
    assert sch.get(copy).annotations == {"auto_copy": True}
    agree(func, sch.func)
    replays(sch, func)


def test_read_at_shows_the_tile(same):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16, 8)), B: T.Buffer((8, 16))):
    for i0, j0, i1, j1 in T.grid(2, 4, 4, 4):
        with T.block("B"):
            vi = T.axis.spatial(8, i0 * 4 + i1)
            vj = T.axis.spatial(16, j0 * 4 + j1)
            B[vi, vj] = A[vj, vi]
""")
    sch = Schedule(func)
    sch.read_at(sch.get_loops("B")[1], "B", 0, "shared")
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((16, 8)), B: T.Buffer((8, 16))):
    A_shared = T.alloc_buffer((16, 8), scope="shared")
    for i0, j0 in T.grid(2, 4):
        with T.block("A_shared"):
            v0, v1 = T.axis.remap("SS", [j0, i0])
            T.reads(A[v0 * 4:v0 * 4 + 4, v1 * 4:v1 * 4 + 4])
            T.writes(A_shared[v0 * 4:v0 * 4 + 4, v1 * 4:v1 * 4 + 4])
            T.block_attr({"auto_copy": True})
            for ax0, ax1 in T.grid(4, 4):
                A_shared[v0 * 4 + ax0, v1 * 4 + ax1] = A[v0 * 4 + ax0, v1 * 4 + ax1]
        for i1, j1 in T.grid(4, 4):
            with T.block("B"):
                vi = T.axis.spatial(8, i0 * 4 + i1)
                vj = T.axis.spatial(16, j0 * 4 + j1)
                B[vi, vj] = A_shared[vj, vi]
""",
    )


def test_memory_that_threads_share_takes_what_all_threads_touch(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 12)), B: T.Buffer((12, 8)), C: T.Buffer((8, 8))):
    for by in T.thread_binding(2, thread="blockIdx.y"):
        for ty in T.thread_binding(4, thread="threadIdx.y"):
            for k0 in range(3):
                for k1, j in T.grid(4, 8):
                    with T.block("C"):
                        vi = T.axis.spatial(8, by * 4 + ty)
                        vj = T.axis.spatial(8, j)
                        vk = T.axis.reduce(12, k0 * 4 + k1)
                        with T.init():
                            C[vi, vj] = T.float32(0)
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""")
    sch = Schedule(func)
    by, ty, k0, _, _ = sch.get_loops("C")
    shared = sch.read_at(k0, "C", 0, "shared")
    alone = sch.read_at(k0, "C", 1, "local")
    out = sch.write_at(ty, "C", 0, "shared")
    regions = [str(sch.get(b).reads[0]) for b in (shared, alone, out)]
    assert regions == ["A[v0 * 4:v0 * 4 + 4, v1 * 4:v1 * 4 + 4]", "B[v0 * 4:v0 * 4 + 4, 0:8]",
                       "C_shared[v0 * 4:v0 * 4 + 4, 0:8]"]  # fmt: skip
    agree(func, sch.func)


def test_read_at_stays_inside_the_buffer(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13,)), B: T.Buffer((13,))):
    for i0, i1 in T.grid(4, 4):
        with T.block("B"):
            vi = T.axis.spatial(13, i0 * 4 + i1)
            T.where(i0 * 4 + i1 < 13)
            B[vi] = T.if_then_else(vi >= 2, A[vi - 2], T.float32(0))
""")
    sch = Schedule(func)
    sch.read_at(sch.get_loops("B")[0], "B", 0, "local")
    agree(func, sch.func)


def test_write_at_of_an_init_and_an_update(matmul, agree):
    func = matmul(13, 17, 7)
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    sch.write_at(i, "C_update", 0, "local")
    agree(func, sch.func)


def test_write_at_keeps_a_sum_that_goes_on_over_the_loop():
    """The sum over the outer loop goes on from the iteration before, in a buffer that another block has filled."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 5)), C: T.Buffer((5,))):
    for j in range(5):
        with T.block("fill"):
            vj = T.axis.spatial(5, j)
            C[vj] = T.float32(7)
    for k, i in T.grid(3, 5):
        with T.block("C"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vk, vi]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="uses what buffer C held before the iteration of loop k"):
        sch.write_at(sch.get_loops("C")[0], "C", 0, "local")


def test_read_at_and_write_at_refuse(chain, matmul):
    sch = Schedule(chain())
    sch.compute_at("B", sch.get_loops("C")[0])
    i = sch.get_loops("C")[0]
    with pytest.raises(ScheduleError, match="block 'B' does not stand under loop"):
        Schedule(chain()).copy() and sch.read_at(sch.get_loops("C")[1], "B", 0, "local")
    with pytest.raises(ScheduleError, match="read under loop i behind its last write"):
        sch.write_at(i, "B", 0, "local")
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    sch.decompose_reduction("C", i)
    with pytest.raises(ScheduleError, match="uses what buffer C held before the iteration of loop i"):
        sch.write_at(i, "C_update", 0, "local")
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((15,))):
    for i in range(7):
        for j in range(1):
            with T.block("B"):
                vi = T.axis.spatial(7, i)
                T.where(i < 5)
                B[vi * 2 + 1] = A[vi]
""")
    with pytest.raises(ScheduleError, match="not known to be a box without holes"):
        Schedule(func).write_at(Schedule(func).get_loops("B")[0], "B", 0, "local")
