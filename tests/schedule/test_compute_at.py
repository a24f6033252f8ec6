import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret


def test_compute_at(chain, same, agree, replays):
    func = chain(7, 13)
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("C")[0])
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    for i in range(7):
        for ax0 in range(13):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, ax0])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for j in range(13):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_preserve_unit_loops(chain, same):
    sch = Schedule(chain(7, 13))
    sch.compute_at("B", sch.get_loops("C")[1], preserve_unit_loops=True)
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    for i, j in T.grid(7, 13):
        for ax0, ax1 in T.grid(1, 1):
            with T.block("B"):
                vi = T.axis.spatial(7, i + ax0)
                vj = T.axis.spatial(13, j + ax1)
                B[vi, vj] = A[vi, vj] * T.float32(2)
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + T.float32(1)
""",
    )


def test_a_tile_that_does_not_divide_gets_a_predicate(chain, same, agree, replays):
    func = chain(13, 17)
    sch = Schedule(func)
    i, j = sch.get_loops("C")
    (i0, i1), (j0, j1) = sch.split(i, [None, 4]), sch.split(j, [None, 6])
    sch.reorder(i0, j0, i1, j1)
    sch.compute_at("B", j0)
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((13, 17)), C: T.Buffer((13, 17))):
    B = T.alloc_buffer((13, 17))
    for i_0, j_0 in T.grid(4, 3):
        for ax0, ax1 in T.grid(4, 6):
            with T.block("B"):
                vi = T.axis.spatial(13, i_0 * 4 + ax0)
                vj = T.axis.spatial(17, j_0 * 6 + ax1)
                T.where(i_0 * 4 + ax0 < 13 and j_0 * 6 + ax1 < 17)
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i_1, j_1 in T.grid(4, 6):
            with T.block("C"):
                vi = T.axis.spatial(13, i_0 * 4 + i_1)
                vj = T.axis.spatial(17, j_0 * 6 + j_1)
                T.where(i_0 * 4 + i_1 < 13 and j_0 * 6 + j_1 < 17)
                C[vi, vj] = B[vi, vj] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def stencil(n):
    A = te.placeholder((n + 2, n), name="A")
    B = te.compute((n + 2, n), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, n), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
    return te.create_prim_func([A, C])


@pytest.mark.parametrize("n", [1, 7, 13])
@pytest.mark.parametrize("factor", [1, 4])
def test_a_stencil_computes_its_halo_anew(agree, n, factor):
    func = stencil(n)
    sch = Schedule(func)
    i, _ = sch.get_loops("C")
    i0, _ = sch.split(i, [None, factor])
    sch.compute_at("B", i0)
    rows = sch.get(sch.get_loops("B")[1]).extent if n > 1 or factor > 1 else 3
    assert int(rows) == factor + 2 or n < factor
    agree(func, sch.func)


def test_a_reduction_moves_whole(matmul, agree):
    A = te.placeholder((7, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    B = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((7, 5), lambda i, j: A[i, j] - B[i], name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    sch.compute_at("B", sch.get_loops("C")[0])
    assert [str(sch.get(v).extent) for v in sch.get_loops("B")] == ["7", "5"]
    agree(func, sch.func)


def test_index_chooses_among_the_statements():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: A[i] + 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] + C[i], name="D")
    func = te.create_prim_func([A, D])
    for index, order in ((-1, ["C", "B", "D"]), (-2, ["B", "C", "D"]), (0, ["B", "C", "D"]), (1, ["C", "B", "D"])):
        sch = Schedule(func)
        (i,) = sch.get_loops("D")
        sch.compute_at("C", i)
        sch.compute_at("B", i, index=index)
        assert [b.name for b in sch.get_child_blocks(i)] == order
    with pytest.raises(
        ScheduleError, match="index 2 is not a place for block 'B' under loop i: it may stand at 0 to 1"
    ):
        sch = Schedule(func)
        (i,) = sch.get_loops("D")
        sch.compute_at("C", i)
        sch.compute_at("B", i, index=2)


def test_compute_at_refuses_an_output(chain):
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="'C' writes C, an output of its scope"):
        sch.compute_at("C", sch.get_loops("B")[0])


def test_compute_at_refuses_consumers_elsewhere():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: B[i] + 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] * C[i], name="D")
    sch = Schedule(te.create_prim_func([A, D]))
    with pytest.raises(ScheduleError, match="not all consumers of block 'B' are under loop i: 'D'"):
        sch.compute_at("B", sch.get_loops("C")[0])


def test_compute_at_refuses_its_own_loop(chain):
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="'B' is under loop i already"):
        sch.compute_at("B", sch.get_loops("B")[0])


def test_compute_at_refuses_what_is_neither_complete_nor_reduction(matmul):
    sch = Schedule(matmul())
    copy = sch.cache_write("C", 0, "local")
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    with pytest.raises(ScheduleError, match="'C_update' is neither a complete nor a reduction block"):
        sch.compute_at("C_update", sch.get_loops(copy)[0])


def test_compute_at_refuses_when_an_input_changes_in_between():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,)), C: T.Buffer((7,))):
    B = T.alloc_buffer((7,))
    for i in range(7):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            B[vi] = A[vi]
    for i in range(7):
        with T.block("change"):
            vi = T.axis.spatial(7, i)
            A[vi] = T.float32(1)
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = B[vi]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="'B' reads A, which block 'change' overwrites later"):
        sch.compute_at("B", sch.get_loops("C")[0])


def test_reverse_compute_at(chain, same, agree, replays):
    func = chain(13, 17)
    sch = Schedule(func)
    i, j = sch.get_loops("B")
    j0, j1 = sch.split(j, [None, 6])
    sch.reverse_compute_at("C", j0)
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((13, 17)), C: T.Buffer((13, 17))):
    B = T.alloc_buffer((13, 17))
    for i, j_0 in T.grid(13, 3):
        for j_1 in range(6):
            with T.block("B"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(17, j_0 * 6 + j_1)
                T.where(j_0 * 6 + j_1 < 17)
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for ax0 in range(6):
            with T.block("C"):
                vi = T.axis.spatial(13, i)
                vj = T.axis.spatial(17, j_0 * 6 + ax0)
                T.where(j_0 * 6 + ax0 < 17)
                C[vi, vj] = B[vi, vj] + T.float32(1)
""",
    )
    agree(func, sch.func)
    replays(sch, func)


def test_reverse_compute_at_of_what_runs_on_a_part_of_its_domain():
    """Only the rows that a consumer of half the size needs are there; what follows them moves, and runs on those alone."""
    n = te.size_var("n")
    a = te.placeholder((n, 4), name="A")
    b = te.compute((n // 2 + 1, 4), lambda i, j: a[2 * i % n, j] + 1.0, name="B")
    c = te.compute((n // 4, 4), lambda i, j: b[2 * i, j] + b[2 * i + 1, j], name="C")
    sch = Schedule(te.create_prim_func([a, c]), debug_mask="all")
    copy = sch.cache_write(sch.get_block("B"), 0, "local")
    tile, _ = sch.split(sch.get_loops("C")[0], [None, 4])
    for block in (copy, sch.get_block("B")):
        sch.compute_at(block, tile)
    rows = sch.get_loops("B")[-2]
    sch.reverse_compute_at(copy, rows)
    assert [v.name for v in sch.get_loops(copy)][:2] == [tile.name, rows.name]
    for size in (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 18, 33, 40):
        x = np.random.default_rng(size).standard_normal((size, 4)).astype("float32")
        half = x[2 * np.arange(size // 2 + 1) % size] + 1
        out = np.full((size // 4, 4), np.nan, "float32")
        interpret(sch.func, x, out)
        np.testing.assert_array_equal(out, half[0 : size // 4 * 2 : 2] + half[1 : size // 4 * 2 : 2])


def test_reverse_compute_at_refuses_a_stencil():
    sch = Schedule(stencil(7))
    with pytest.raises(ScheduleError, match=r"reads B\[v_i, v_j\], and it is not shown that this lies in what"):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


def test_reverse_compute_at_refuses_unfinished_sums():
    A = te.placeholder((7, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    B = te.compute((7,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((7,), lambda i: B[i] * B[i], name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    i, k = sch.get_loops("B")
    with pytest.raises(ScheduleError, match="loop k carries the reduction of block 'B'"):
        sch.reverse_compute_at("C", k)
    sch.reverse_compute_at("C", i)


def test_reverse_compute_at_refuses_producers_that_come_later():
    A = te.placeholder((7,), name="A")
    B = te.compute((7,), lambda i: A[i] + 1.0, name="B")
    C = te.compute((7,), lambda i: A[i] + 2.0, name="C")
    D = te.compute((7,), lambda i: B[i] + C[6 - i], name="D")
    func = te.create_prim_func([A, D])
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="not all producers of block 'D' are under loop i: 'C'"):
        sch.reverse_compute_at("D", sch.get_loops("B")[0])
    sch.reverse_compute_at("D", sch.get_loops("C")[0])  # all of B is there when the loop begins
    a, out = np.arange(7, dtype="float32"), np.zeros(7, "float32")
    interpret(sch.func, a, out)
    np.testing.assert_array_equal(out, a + 1 + (6 - a) + 2)


def test_reverse_compute_at_refuses_what_is_only_there_after_the_outer_loop():
    """B is before the loop j, but complete only when i has ended."""
    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((4, 8)), D: T.Buffer((4, 8))):
    B = T.alloc_buffer((4,))
    C = T.alloc_buffer((4, 8))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi, 0]
        for j in range(8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(4, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + B[3 - vi]
""")
    )
    with pytest.raises(ScheduleError, match="not all producers of block 'D' are under loop j: 'B'"):
        sch.reverse_compute_at("D", sch.get_loops("C")[1])


def test_reverse_compute_at_refuses_to_split_a_reduction_into_turns():
    A = te.placeholder((7, 5), name="A")
    B = te.compute((7, 5), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 5), name="k")
    C = te.compute((7,), lambda i: te.sum(B[i, k], axis=k), name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    i, j = sch.get_loops("B")
    sch.parallel(j)
    with pytest.raises(ScheduleError, match="reduce axis v_k of block 'C' would run on the parallel loop j"):
        sch.reverse_compute_at("C", j)


def test_symbolic_sizes(matmul):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * A[j, k], axis=k), name="C")
    D = te.compute((n, n), lambda i, j: C[i, j] + 1.0, name="D")
    sch = Schedule(te.create_prim_func([A, D]))
    i, j, r = sch.get_loops("C")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(v, [None, f]) for v, f in ((i, 4), (j, 6), (r, 3)))
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.reverse_compute_at("D", j0)
    copy = sch.cache_read("C", 0, "global")
    sch.compute_at(copy, i0)
    sch.decompose_reduction("C", k0)
    for rows, columns in ((1, 1), (7, 16), (17, 13)):
        a = np.random.default_rng(0).integers(-3, 4, (rows, columns)).astype("float32")
        d = np.full((rows, rows), np.nan, "float32")
        interpret(sch.func, a, d)
        np.testing.assert_array_equal(d, a @ a.T + 1)


def packed_matmul(func, rows, columns, depth, pad, inside):
    """The schedule of a packed matmul: register tile, copy-out, both operands in panels."""
    sch = Schedule(func)
    out = sch.cache_write("C", 0, "local")
    i, j, k = sch.get_loops("C")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(v, [None, f]) for v, f in ((i, rows), (j, columns), (k, depth)))
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.reverse_compute_at(out, j0)
    b = sch.cache_read("C", 1, "global")
    sch.transform_layout(b, ("write", 0), lambda k, j: (j // columns, k, j % columns), pad, leave_padding=pad is None)
    if pad is None and sch.get(b).iter_vars[1].dom.extent.value % columns == 0:
        sch.transform_block_layout(b, lambda k, j: (j // columns, k, j % columns))
    a = sch.cache_read("C", 0, "global")
    sch.transform_layout(a, ("write", 0), lambda i, k: (i // rows, k, i % rows), pad, leave_padding=pad is None)
    if pad is None and sch.get(a).iter_vars[0].dom.extent.value % rows == 0:
        sch.transform_block_layout(a, lambda i, k: (i // rows, k, i % rows))
    if inside:
        sch.compute_at(b, j0)
        sch.compute_at(a, i0)
    sch.decompose_reduction("C", k0)
    return sch


@pytest.mark.parametrize("pad", [0.0, None])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 13, 17), (16, 16, 16), (17, 13, 7)])
def test_packed_matmul(matmul, agree, replays, shape, pad, inside):
    func = matmul(*shape)
    sch = packed_matmul(func, 4, 6, 3, pad, inside)
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("place", ["root", "inline", "y", "x_0", "rc_0"])
def test_convolution(agree, place):
    n, ci, size, co = 1, 3, 5, 7
    A = te.placeholder((n, ci, size, size), name="A")
    W = te.placeholder((co, ci, 3, 3), name="W")
    P = te.compute(
        (n, ci, size + 2, size + 2),
        lambda b, c, y, x: te.if_then_else(
            te.all(y >= 1, y < size + 1, x >= 1, x < size + 1), A[b, c, y - 1, x - 1], 0.0
        ),
        name="pad",
    )
    rc, ry, rx = (te.reduce_axis((0, e), name=v) for v, e in (("rc", ci), ("ry", 3), ("rx", 3)))
    C = te.compute(
        (n, co, size, size),
        lambda b, f, y, x: te.sum(P[b, rc, y + ry, x + rx] * W[f, rc, ry, rx], axis=[rc, ry, rx]),
        name="C",
    )
    D = te.compute((n, co, size, size), lambda b, f, y, x: C[b, f, y, x] * 2.0, name="D")
    func = te.create_prim_func([A, W, D])
    sch = Schedule(func)
    if place == "inline":
        sch.compute_inline("pad")
    b, f, y, x, c, r, q = sch.get_loops("C")
    (f0, f1), (x0, x1), (c0, c1) = (sch.split(v, [None, e]) for v, e in ((f, 4), (x, 3), (c, 2)))
    sch.reorder(b, f0, y, x0, c0, r, q, c1, x1, f1)
    sch.reverse_compute_at("D", x0)
    w = sch.cache_read("C", "W", "global")
    sch.transform_layout(w, ("write", 0), lambda o, i, a, b: (o // 4, i, a, b, o % 4), 0.0)
    if place in ("y", "x_0", "rc_0"):
        sch.compute_at("pad", {"y": y, "x_0": x0, "rc_0": c0}[place])
    sch.decompose_reduction("C", c0)
    agree(func, sch.func)


@pytest.mark.parametrize("first", ["parallel", "compute_at"])
def test_a_halo_under_a_parallel_loop_is_scratch_of_each_turn(agree, first):
    func = stencil(7)
    sch = Schedule(func)
    i, _ = sch.get_loops("C")
    if first == "parallel":
        sch.parallel(i)
    sch.compute_at("B", i)
    if first == "compute_at":
        sch.parallel(i)
    agree(func, sch.func)


def test_lanes_share_no_scratch():
    A = te.placeholder((7, 8), name="A")
    B = te.compute((7,), lambda i: A[i, 0] * 2.0, name="B")
    C = te.compute((7, 8), lambda i, j: B[i] + A[i, j], name="C")
    sch = Schedule(te.create_prim_func([A, C]))
    _, j = sch.get_loops("C")
    sch.vectorize(j)
    with pytest.raises(ScheduleError, match="iterations of loop j share elements of buffer B(?s:.*)lanes of vectors"):
        sch.compute_at("B", j)


FREE = """
@T.prim_func
def main(A: T.Buffer((7, 13)), C: T.Buffer((7, 13)), D: T.Buffer((7, 13))):
    B = T.alloc_buffer((7, 13))
    E = T.alloc_buffer((7, 13))
    for i, j in T.grid(7, 13):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + T.float32(1)
    for i, j in T.grid(7, 13):
        with T.block("E"):
            vi, vj = T.axis.remap("SS", [i, j])
            E[vi, vj] = C[vi, vj] * T.float32(2)
    for i, j in T.grid(7, 13):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = E[vi, vj] * T.float32(2)
    for i, j in T.grid(7, 13):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] - T.float32(1)
"""


def test_a_block_without_partners_moves_as_a_whole(agree):
    func = parse(FREE)
    for step in (
        lambda s: s.compute_at("B", s.get_loops("D")[0]),
        lambda s: s.reverse_compute_at("D", s.get_loops("C")[1]),
        lambda s: s.reverse_compute_at("D", s.get_loops("B")[0], index=0),
    ):
        sch = Schedule(func)
        step(sch)
        agree(func, sch.func)


def test_a_block_without_partners_stays_between_producers_and_consumers():
    with pytest.raises(ScheduleError, match="'E' writes what block 'B' reads, and comes after loop i"):
        sch = Schedule(parse(FREE))
        sch.compute_at("B", sch.get_loops("C")[0])
    with pytest.raises(ScheduleError, match="'E' reads what block 'C' writes, and comes before loop i"):
        sch = Schedule(parse(FREE))
        sch.reverse_compute_at("C", sch.get_loops("D")[0])


def test_a_block_without_partners_is_not_run_by_several_threads_at_once():
    sch = Schedule(parse(FREE))
    i, _ = sch.get_loops("C")
    sch.parallel(i)
    with pytest.raises(ScheduleError, match="iterations of loop i share elements of buffer D"):
        sch.reverse_compute_at("D", i)


@pytest.mark.parametrize("step, width, extent", [(360, 16, 23), (24, 16, 2), (24, 8, 3), (40, 16, 3)])
def test_compute_at_finds_that_an_extent_is_always_the_same(agree, step, width, extent):
    """Rows of ``step`` places that read ``width`` by ``width``: (c*360 + 359) // 16 - c*360 // 16 + 1 is 23 for all c."""
    A = te.placeholder((7 * step // width + 1,), name="A")
    B = te.compute(A.shape, lambda i: A[i] * 2.0, name="B")
    C = te.compute((7, step), lambda c, x: B[(c * step + x) // width] + 1.0, name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func, debug_mask="all")
    sch.compute_at("B", sch.get_loops("C")[0])
    assert f"for ax0 in range({extent}):" in sch.func.script()
    agree(func, sch.func)


SYMBOLIC_DIGITS = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (SHAPE), "float32")
    C = T.match_buffer(c, (SHAPE), "float32")
    B = T.alloc_buffer((SHAPE))
    for f in range(EXTENT):
        with T.block("B"):
            AXES
            B[VARS] = A[VARS] * T.float32(2)
    for LOOPS in T.grid(SHAPE):
        with T.block("C"):
            VARS = T.axis.remap("KINDS", [LOOPS])
            C[VARS] = B[VARS] + T.float32(1)
"""
DIGITS = {  # shape, and the values of the axes; f runs over the product of the shape
    "size inside": ("32, n", ("f // n", "f % n")),
    "number inside": ("n, 32", ("f // 32", "f % 32")),
    "two sizes": ("m, n", ("f // n", "f % n")),
    "three": ("m, 4, n", ("f // (n * 4)", "f // n % 4", "f % n")),
    "three, the middle from a remainder": ("m, 4, n", ("f // (n * 4)", "f % (n * 4) // n", "f % n")),
    "exchanged": ("n, 32", ("f % n", "f // n")),
}


def symbolic_digits(name):
    shape, values = DIGITS[name]
    dims = shape.split(", ")
    axes = [f"v{k} = T.axis.spatial({d}, {v})" for k, (d, v) in enumerate(zip(dims, values, strict=True))]
    text = SYMBOLIC_DIGITS.replace("SHAPE", shape).replace("EXTENT", " * ".join(dims))
    text = text.replace("AXES", "\n            ".join(axes)).replace("KINDS", "S" * len(dims))
    text = text.replace("VARS", ", ".join(f"v{k}" for k in range(len(dims))))
    return parse(text.replace("LOOPS", ", ".join(f"i{k}" for k in range(len(dims)))))


@pytest.mark.parametrize("name", DIGITS)
@pytest.mark.parametrize("n, m", [(1, 1), (7, 3), (2, 13)])
def test_reverse_compute_at_of_digits_of_symbolic_places(agree, replays, name, n, m):
    func = symbolic_digits(name)
    sch = Schedule(func, debug_mask="all")
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    assert "T.where" not in sch.func.script()
    agree(func, sch.func, n=n, m=m)
    replays(sch, func)


@pytest.mark.parametrize("old, new", [("f % n", "f % n // 2 * 2"), ("f // n", "f // (n + 1)"), ("f % n", "f % 7")])
def test_reverse_compute_at_refuses_digits_that_leave_holes(old, new):
    func = parse(symbolic_digits("size inside").script().replace(f", {old})", f", {new})"))
    sch = Schedule(func)
    with pytest.raises(ScheduleError):
        sch.reverse_compute_at("C", sch.get_loops("B")[0])


def test_compute_at_of_fused_loops_of_symbolic_extent(agree, replays):
    func = symbolic_digits("size inside")
    sch = Schedule(func, debug_mask="all")
    sch.compute_at("B", sch.fuse(*sch.get_loops("C")))
    agree(func, sch.func, n=7, m=1)
    replays(sch, func)


def test_an_index_of_another_width_gives_an_axis_of_its_own_width(agree, replays):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((3, 17)), B: T.Buffer((3, 17))):
    for i, j in T.grid(3, 17):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[T.int64(2), vj]
""")
    sch = Schedule(func, debug_mask="all")
    copy = sch.cache_read("B", 0, "local")
    sch.compute_at(copy, sch.get_loops("B")[0])
    agree(func, sch.func)
    replays(sch, func)


def test_a_sum_over_windows_that_overlap_stays():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,)), S: T.Buffer((1,))):
    B = T.alloc_buffer((16,))
    for k, j in T.grid(3, 8):
        with T.block("B"):
            v = T.axis.spatial(16, k * 4 + j)
            B[v] = A[v] * T.float32(2)
    for r in range(16):
        with T.block("S"):
            vr = T.axis.reduce(16, r)
            with T.init():
                S[0] = T.float32(0)
            S[0] = S[0] + B[vr]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="exactly once per point"):
        sch.reverse_compute_at("S", sch.get_loops("B")[0])


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("fused", [False, True])
def test_what_nobody_reads_asks_for_nothing(agree, used, fused):
    """One value of a pair is read, so one pair is made at a time, not all of them."""
    a, k = te.placeholder((5, 7, 6), "int32", name="A"), te.reduce_axis((0, 6), name="k")
    argmax = te.comm_reducer(
        lambda x, y: (te.select(x[1] >= y[1], x[0], y[0]), te.select(x[1] >= y[1], x[1], y[1])),
        lambda i, v: (te.max_value(i), te.min_value(v)),
    )
    pair = te.compute((5, 7), lambda i, j: argmax((k.var, a[i, j, k]), axis=k), name="P")
    out = te.compute((5, 7), lambda i, j: pair[used][i, j] + 1, name="C")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    loops = sch.get_loops("C")
    sch.compute_at("P", sch.fuse(*loops) if fused else loops[1])
    assert [sch.get(loop).extent.value for loop in sch.get_loops("P")] == ([35, 6] if fused else [5, 7, 6])
    agree(func, sch.func)
