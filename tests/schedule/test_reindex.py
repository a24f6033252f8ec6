import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret


def _conv(n=7, channels=3):
    data = te.placeholder((1, n, n, channels), name="data")
    weight = te.placeholder((3, 3, channels, 5), name="weight")
    padded = te.compute(
        (1, n + 2, n + 2, channels),
        lambda b, h, w, c: te.if_then_else(
            te.all(h >= 1, h < n + 1, w >= 1, w < n + 1), data[b, h - 1, w - 1, c], te.const(0, "float32")
        ),
        name="padded",
    )
    rh, rw, rc = (
        te.reduce_axis((0, 3), name="rh"),
        te.reduce_axis((0, 3), name="rw"),
        te.reduce_axis((0, channels), "rc"),
    )
    out = te.compute(
        (1, n, n, 5),
        lambda b, h, w, o: te.sum(padded[b, h + rh, w + rw, o // 5 + rc] * weight[rh, rw, rc, o], axis=[rh, rw, rc]),
        name="conv",
    )
    return te.create_prim_func([data, weight, out])


def _shape(sch, buffer):
    root = sch.get(sch.get_block("root"))
    return [int(e) for b in root.alloc_buffers if b.name == buffer for e in b.shape]


def test_reindex_read(same, agree, replays):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13, 7)), B: T.Buffer((7, 13))):
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi] * T.float32(2)
""")
    for buffer in (("read", 0), "A"):
        sch = Schedule(func)
        assert sch.reindex("B", buffer).name == "A_reindex"
        same(
            sch.func,
            """
@T.prim_func
def main(A: T.Buffer((13, 7)), B: T.Buffer((7, 13))):
    A_reindex = T.alloc_buffer((7, 13))
    for i, j in T.grid(7, 13):
        with T.block("A_reindex"):
            vi, vj = T.axis.remap("SS", [i, j])
            A_reindex[vi, vj] = A[vj, vi]
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A_reindex[vi, vj] * T.float32(2)
""",
        )
        agree(func, sch.func)
        replays(sch, func)


@pytest.mark.parametrize("n, channels", [(1, 1), (7, 3), (13, 1)])
def test_reindex_of_a_convolution(agree, replays, n, channels):
    func = _conv(n, channels)
    sch = Schedule(func)
    sch.reindex("conv", ("read", 0))
    sch.reindex("conv", ("read", 1))
    sch.reindex("conv", ("write", 0))
    assert _shape(sch, "weight_reindex") == [5, 3, 3, channels]  # in the order of the block's axes
    assert _shape(sch, "conv_reindex") == [1, n, n, 5]
    if n > 1 < channels:
        assert _shape(sch, "padded_reindex") == [1, n, n, 3, 3, channels]
    agree(func, sch.func)
    replays(sch, func)


def test_axes_that_do_not_matter_give_no_dimension(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((7, 5))):
    for i, j in T.grid(7, 5):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj // 5 + vi]
""")
    for skip, shape in ((False, [7]), (True, [7, 5])):
        sch = Schedule(func)
        sch.reindex("B", "A", skip_simplify=skip)
        assert _shape(sch, "A_reindex") == shape
        agree(func, sch.func)


def test_reindex_write_of_a_reduction(matmul, same, agree, replays):
    func = matmul(13, 1, 7)
    sch = Schedule(func)
    sch.reindex("C", ("write", 0))
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((13, 7)), B: T.Buffer((7, 1)), C: T.Buffer((13, 1))):
    C_reindex = T.alloc_buffer((13, 1))
    for i, j, k in T.grid(13, 1, 7):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C_reindex[vi, vj] = T.float32(0)
            C_reindex[vi, vj] = C_reindex[vi, vj] + A[vi, vk] * B[vk, vj]
    for ax0, ax1 in T.grid(13, 1):
        with T.block("C_reindex"):
            v0, v1 = T.axis.remap("SS", [ax0, ax1])
            C[v0, v1] = C_reindex[v0, v1]
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_reindex_after_an_uneven_split(matmul, agree):
    func = matmul(13, 17, 7)
    sch = Schedule(func)
    i, _, _ = sch.get_loops("C")
    sch.split(i, [None, 4])
    sch.reindex("C", ("write", 0))
    sch.reindex("C", ("read", 1))
    agree(func, sch.func)


@pytest.mark.parametrize(
    "body, buffer, words",
    [
        ("B[vi, vj] = A[vj, vi] + A[vi, vj]", ("read", 0), "accesses buffer A at more than one place: A\\[vj, vi\\] and A\\[vi, vj\\]"),
        ("B[vi, vj] = A[vi, vj] + B[vi, vj]", ("write", 0), "reads buffer B, which it writes, and has no init"),
        ("B[vi, vj] = A[vi, vj] + B[vi, vj]", ("read", 1), "a copy made before it runs would be out of date"),
        ("B[vi, vi] = A[vi, vj]", ("write", 0), "two values of the axes of block 'B' may meet"),
        ("B[vi // 2, vj] = A[vi, vj]", ("write", 0), "two values of the axes of block 'B' may meet"),
        ("B[vi, vj] = T.if_then_else(vi > 0, A[vi - 1, vj], T.float32(0))", ("read", 0), "would read outside the buffer"),
        ("B[vi, vj] = A[vi, vj]", ("read", 3), "block 'B' has no read buffer 3"),
    ],
)  # fmt: skip
def test_reindex_refuses(body, buffer, words):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 7)), B: T.Buffer((7, 7))):
    for i, j in T.grid(7, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            {body}
""")
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).reindex("B", buffer)


def test_reindex_refuses_shared_loops_and_partial_domains(chain):
    sch = Schedule(chain())
    sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="not alone in the loops around it"):
        sch.reindex("C", ("read", 0))
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), B: T.Buffer((7,))):
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            T.where(i < 5)
            B[vi] = A[vi]
""")
    with pytest.raises(ScheduleError, match="not known to run on the whole domain"):
        Schedule(func).reindex("B", ("write", 0))


def test_reindex_cache_read(chain, same, agree, replays):
    func = chain(13, 7)
    sch = Schedule(func)
    assert sch.reindex_cache_read("C", 0, "shared", lambda i, j: (j, i // 2, i % 2)).name == "B_shared"
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((13, 7)), C: T.Buffer((13, 7))):
    B = T.alloc_buffer((13, 7))
    B_shared = T.alloc_buffer((7, 7, 2), scope="shared")
    for i, j in T.grid(13, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(13, 7):
        with T.block("B_shared"):
            vi, vj = T.axis.remap("SS", [i, j])
            B_shared[vj, vi // 2, vi % 2] = B[vi, vj]
    for i, j in T.grid(13, 7):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B_shared[vj, vi // 2, vi % 2] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


_TWO_CONSUMERS = """
@T.prim_func
def main(C: T.Buffer((128,)), B: T.Buffer((128,))):
    A = T.alloc_buffer((128,))
    for i in range(8):
        for j in range(16):
            with T.block("A"):
                vi = T.axis.spatial(128, i * 16 + j)
                A[vi] = T.float32(1)
        for j in range(16):
            with T.block("B"):
                vi = T.axis.spatial(128, i * 16 + j)
                B[vi] = A[vi] + T.float32(1)
    for i in range(128):
        with T.block("C"):
            vi = T.axis.spatial(128, i)
            C[vi] = A[vi]
"""


def test_reindex_cache_read_runs_in_loops_like_the_readers(agree):
    func = parse(_TWO_CONSUMERS)
    sch = Schedule(func)
    copy = sch.reindex_cache_read("B", 0, "shared", lambda i: (i // 32, i % 32))
    i, j = sch.get_loops(copy)
    assert i is sch.get_loops("B")[0] and str(sch.get(j).body.iter_values[0]) == "i * 16 + j"
    assert sch.get(sch.get_block("C")).reads[0].buffer.name == "A"
    agree(func, sch.func)


@pytest.mark.parametrize("factor", [1, 4, 5, 16])
def test_reindex_cache_under_splits(chain, agree, replays, factor):
    func = chain(13, 17)
    sch = Schedule(func)
    for block in ("B", "C"):
        i, j = sch.get_loops(block)
        sch.split(j, [None, factor])
    sch.reindex_cache_read("C", 0, "local", lambda i, j: (j, i))
    sch.reindex_cache_write("C", 0, "local", lambda i, j: (i * 17 + j,))
    sch.reindex_cache_write("B", 0, "global", lambda i, j: (j % 3, i, j // 3))
    agree(func, sch.func)
    replays(sch, func)


def test_reindex_cache_write_of_a_reduction(agree, replays):
    A = te.placeholder((5, 4, 3, 7), name="A")
    r, s = te.reduce_axis((0, 7), name="r"), te.reduce_axis((0, 3), name="s")
    B = te.compute((5, 4, 3), lambda i, j, k: te.sum(A[i, j, k, r], axis=r), name="B")
    C = te.compute((5, 4), lambda i, j: te.sum(B[i, j, s], axis=s), name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    i, j, k, _ = sch.get_loops("B")
    sch.compute_at("B", sch.get_loops("C")[2])
    copy = sch.reindex_cache_write("B", 0, "shared", lambda i, j, k, r: (j, i, k))
    assert len(sch.get_loops(copy)) == 3  # the loops that B and C share; the reduction's own stays with B
    sch.reindex_cache_write("C", 0, "shared", lambda i, j, k: [j, i])
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize(
    "index_map, words",
    [
        (lambda i, j: j * 2, "axis v_i of block 'C' addresses the buffer, but not the index map"),
        (lambda i, j: (i, i), "axis v_j of block 'C' addresses the buffer, but not the index map"),
        (lambda i, j: (i + j,), "two values of the axes of block 'C' may meet at \\[v_i \\+ v_j\\]"),
        (lambda i, j: (i // 2, j), "two values of the axes of block 'C' may meet"),
    ],
)  # fmt: skip
def test_reindex_cache_refuses_maps_that_lose_elements(chain, index_map, words):
    with pytest.raises(ScheduleError, match=words):
        Schedule(chain()).reindex_cache_read("C", 0, "shared", index_map)
    with pytest.raises(ScheduleError, match=words):
        Schedule(chain()).reindex_cache_write("C", 0, "shared", index_map)


def test_reindex_cache_needs_single_elements():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16, 16)), B: T.Buffer((16, 16))):
    for i in range(4):
        with T.block("scope"):
            vo = T.axis.spatial(4, i)
            for x, y in T.grid(4, 16):
                with T.block("B"):
                    vi = T.axis.spatial(16, vo * 4 + x)
                    vj = T.axis.spatial(16, y)
                    B[vi, vj] = A[vi, vj]
""")
    with pytest.raises(
        ScheduleError, match="reads A\\[vo \\* 4:vo \\* 4 \\+ 4, 0:16\\], which is more than one element"
    ):
        Schedule(func).reindex_cache_read("scope", 0, "shared", lambda i: (i,))
    with pytest.raises(ScheduleError, match="more than one element"):
        Schedule(func).reindex_cache_write("scope", 0, "shared", lambda i: (i,))


def test_what_an_earlier_block_reads_in_the_next_turn_is_no_copys_business():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((9,)), D: T.Buffer((8,))):
    for i in range(8):
        with T.block("R"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi]
        with T.block("W"):
            vi = T.axis.spatial(8, i)
            C[vi + 1] = A[vi]
""")
    words = "'R' reads buffer C in later iterations of loop i, before block 'W' would have written it back"
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).reindex_cache_write("W", 0, "local", lambda i: (i,))
    with pytest.raises(ScheduleError, match=words):
        Schedule(func).cache_write("W", 0, "local")


def test_a_copy_holds_only_what_was_written():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8,)), C: T.Buffer((8,))):
    for i in range(4):
        with T.block("W"):
            vi = T.axis.spatial(4, i)
            A[vi] = T.float32(1)
    for i in range(8):
        with T.block("R"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi]
""")
    with pytest.raises(ScheduleError, match="it is not shown that this lies in what block 'W' has written"):
        Schedule(func).cache_read("R", 0, "local")
    sch = Schedule(func)
    sch.reindex_cache_read("R", 0, "local", lambda i: (i % 2, i // 2))
    arrays = [np.arange(8, dtype="float32"), np.zeros(8, "float32")]
    interpret(sch.func, *arrays)
    np.testing.assert_array_equal(arrays[1], [1, 1, 1, 1, 4, 5, 6, 7])


LOOKED_UP = """
@T.prim_func
def main(A: T.Buffer((5, 4)), t: T.Buffer((6,), "int32"), B: T.Buffer((4, 3)), C: T.Buffer((6, 3))):
    for i, j, k in T.grid(6, 3, 4):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[t[vi], vk] * B[vk, vj]
"""


def test_rows_that_are_looked_up_are_copied_by_the_axes_that_look_them_up():
    sch = Schedule(parse(LOOKED_UP))
    sch.reindex("C", ("read", "A"))
    assert "A_reindex[v0, v1] = A[t[v0], v1]" in sch.func.script()
    rng = np.random.default_rng(0)
    a, t, b = rng.random((5, 4), np.float32), rng.integers(0, 5, 6).astype(np.int32), rng.random((4, 3), np.float32)
    out = np.zeros((6, 3), np.float32)
    interpret(sch.func, a, t, b, out)
    np.testing.assert_allclose(out, a[t] @ b, rtol=1e-6)


def test_indices_from_memory_that_the_block_writes_are_refused():
    text = LOOKED_UP.replace('t: T.Buffer((6,), "int32")', 't: T.Buffer((6, 3), "int32")')
    text = text.replace(
        "C[vi, vj] = C[vi, vj] + A[t[vi], vk] * B[vk, vj]", "C[vi, vj] = A[t[vi, vj], vk]\n            t[vi, vj] = 0"
    )
    with pytest.raises(ScheduleError, match="at indices from memory"):
        Schedule(
            parse(text.replace("            with T.init():\n                C[vi, vj] = T.float32(0)\n", ""))
        ).reindex("C", ("read", "A"))


def test_a_buffer_that_bounds_an_axis_is_refused():
    text = """
@T.prim_func
def main(A: T.Buffer((5, 4)), L: T.Buffer((5,), "int32"), C: T.Buffer((5,))):
    for i in range(5):
        for k in range(T.max(T.min(L[i], 4), 0)):
            with T.block("C"):
                vi = T.axis.spatial(5, i)
                vk = T.axis.reduce(T.max(T.min(L[i], 4), 0), k)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk] * T.cast(L[vi], "float32")
"""
    with pytest.raises(ScheduleError, match="the range of axis vk of block 'C' is read from buffer L"):
        Schedule(parse(text)).reindex("C", ("read", "L"))


PLACES = """
@T.prim_func
def main(A: T.Buffer((7, 7)), B: T.Buffer((7, 7))):
    for i, j in T.grid(7, 7):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = (A[vi, vj] + A[vj, vi]) * A[6 - vj, vi] + A[vj, 0 + vi]
"""


@pytest.mark.parametrize(
    ("place", "left"),
    [
        (0, "(A_reindex[vi, vj] + A[vj, vi]) * A[6 - vj, vi] + A[vj, vi]"),
        (1, "(A[vi, vj] + A_reindex[vi, vj]) * A[6 - vj, vi] + A_reindex[vi, vj]"),
        (2, "(A[vi, vj] + A[vj, vi]) * A_reindex[vi, vj] + A[vj, vi]"),
    ],
)
def test_reindex_of_one_of_several_places(agree, replays, place, left):
    func = parse(PLACES)
    sch = Schedule(func, debug_mask="all")
    sch.reindex("B", ("read", 0), place=place)
    assert left in sch.func.script()
    agree(func, sch.func)
    replays(sch, func)


def test_reindex_of_no_place():
    sch = Schedule(parse(PLACES))
    with pytest.raises(ScheduleError, match="at 3 places, of which none has the number 3"):
        sch.reindex("B", "A", place=3)
    with pytest.raises(ScheduleError, match="places are numbered in buffers that the block reads"):
        sch.reindex("B", ("write", 0), place=0)
