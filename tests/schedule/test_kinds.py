"""parallel, vectorize, unroll, bind: what may run side by side, and what may not."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse


def start(text, block="B"):
    sch = Schedule(parse(text), debug_mask="all")
    return sch, sch.get_loops(sch.get_block(block))


def refused(words, step):
    with pytest.raises(ScheduleError) as info:
        step()
    assert words in str(info.value)
    return str(info.value)


def test_kinds_of_a_matmul(matmul, agree, replays):
    func = matmul(13, 17, 7)
    sch = Schedule(func, debug_mask="all")
    i, j, k = sch.get_loops("C")
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i, j0, k, j1)
    sch.parallel(i)
    sch.vectorize(j1)
    sch.unroll(k)
    assert [sch.get(v).kind for v in (i, j0, k, j1)] == ["parallel", "serial", "unrolled", "vectorized"]
    agree(func, sch.func)
    replays(sch, func)


def test_an_inner_loop_may_stay_inside_a_vectorized_one(matmul, agree):
    func = matmul(4, 16, 7)
    sch = Schedule(func)
    _, j, k = sch.get_loops("C")
    sch.vectorize(j)
    sch.unroll(k)
    agree(func, sch.func)


@pytest.mark.parametrize("step", ["parallel", "vectorize"])
def test_a_reduction_is_refused(matmul, step):
    sch = Schedule(matmul())
    _, _, k = sch.get_loops("C")
    text = refused("loop k carries the reduction of block 'C' (axis v_k)", lambda: getattr(sch, step)(k))
    assert "hint: choose a spatial loop, or rfactor the reduction first" in text and "^^^" in text
    assert text.startswith(f"{step}: ")


def test_fused_loops_run_in_parallel(matmul, agree):
    func = matmul(13, 17, 7)
    sch = Schedule(func, debug_mask="all")
    i, j, _ = sch.get_loops("C")
    fused = sch.fuse(i, j)
    outer, inner = sch.split(fused, [None, 8])  # 8 divides neither 17 nor 221
    sch.parallel(outer)
    sch.vectorize(inner)
    agree(func, sch.func)


def test_fused_with_the_reduction_is_refused(matmul):
    sch = Schedule(matmul())
    _, j, k = sch.get_loops("C")
    refused("share elements of buffer C", lambda: sch.parallel(sch.fuse(j, k)))


def test_overlapping_writes_are_refused():
    sch, (i, j) = start("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((20,), "float32")):
    for i, j in T.grid(4, 8):
        with T.block("B"):
            vi = T.axis.spatial(20, i * 4 + j)
            B[vi] = A[vi - 4]
""")
    refused("share elements of buffer B", lambda: sch.parallel(i))
    sch.parallel(j)  # one row touches eight different elements


def test_reading_a_neighbour_is_refused():
    sch, (i,) = start("""
@T.prim_func
def main(B: T.Buffer((16,), "float32")):
    for i in range(15):
        with T.block("B"):
            vi = T.axis.spatial(15, i)
            B[vi + 1] = B[vi] + T.float32(1)
""")
    text = refused("B[i + 1] is written and B[i] read", lambda: sch.parallel(i))
    assert "give each iteration elements of its own" in text


def test_reading_far_away_is_allowed():
    func = parse("""
@T.prim_func
def main(B: T.Buffer((32,), "float32")):
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            T.reads(B[vi + 16])
            T.writes(B[vi])
            B[vi] = B[vi + 16] + T.float32(1)
""")
    sch = Schedule(func)
    (i,) = sch.get_loops("B")
    sch.parallel(i)
    assert sch.get(i).kind == "parallel"


def test_bindings_that_are_not_quasi_affine_are_refused():
    sch, (i, _) = start("""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            vk = T.axis.reduce(16, k * k // 2)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""")
    refused("axis vk of block 'B' is bound to k * k // 2, which multiplies loops", lambda: sch.parallel(i))


def test_an_output_addressed_by_the_reduce_axis_is_refused():
    sch, (i, k) = start("""
@T.prim_func
def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 16):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vk] = T.float32(0)
            B[vk] = B[vk] + A[vi, vk]
""")
    refused("share elements of buffer B", lambda: sch.parallel(i))


def test_a_halo_computed_in_every_turn_is_no_obstacle(agree):
    """Rows of B overlap between tiles: each turn computes those it needs itself."""
    A = te.placeholder((18, 5), name="A")
    B = te.compute((18, 5), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((16, 5), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func, debug_mask="all")
    i, _ = sch.get_loops("C")
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at("B", i0)
    sch.parallel(i0)
    assert sch.get(i0).kind == "parallel"
    agree(func, sch.func)


def test_scratch_used_outside_the_loop_is_refused():
    sch, (i, _) = start("""
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i, k in T.grid(4, 8):
        with T.block("B"):
            vi, vk = T.axis.remap("SS", [i, k])
            T.reads(A[vi, vk])
            T.writes(B[vk])
            B[vk] = A[vi, vk]
    for k in range(8):
        with T.block("C"):
            vk = T.axis.spatial(8, k)
            C[vk] = B[vk]
""")
    refused("B is used outside loop i too", lambda: sch.parallel(i))


def test_bind(matmul):
    sch = Schedule(matmul())
    i, _, k = sch.get_loops("C")
    sch.bind(i, "blockIdx.x")
    sch.bind(k, "threadIdx.x")  # the lowering makes a reduction across threads of it
    assert sch.get(i).thread_binding == "blockIdx.x"
    refused("'threadIdx.q' is not a thread axis", lambda: sch.bind(i, "threadIdx.q"))
    sch = Schedule(matmul())
    k = sch.get_loops("C")[2]
    refused("carries the reduction", lambda: sch.bind(k, "blockIdx.x"))


@pytest.mark.parametrize("before", ["parallel", "vectorize", "unroll", "bind"])
@pytest.mark.parametrize("after", ["parallel", "vectorize", "unroll", "bind"])
def test_the_last_kind_of_a_loop_counts(chain, agree, replays, before, after):
    func = chain(13, 17)
    sch = Schedule(func, debug_mask="all")
    i, _ = sch.get_loops("C")

    def give(kind):
        return sch.bind(i, "threadIdx.x") if kind == "bind" else getattr(sch, kind)(i)

    give(before)
    give(after)
    kinds = {"parallel": "parallel", "vectorize": "vectorized", "unroll": "unrolled", "bind": "thread_binding"}
    assert sch.get(i).kind == kinds[after]
    assert sch.get(i).thread_binding == ("threadIdx.x" if after == "bind" else None)
    agree(func, sch.func)
    replays(sch, func)


def test_a_reduction_that_threads_share_may_be_unrolled_and_not_parallel(matmul, agree):
    func = matmul(7, 13, 5)
    sch = Schedule(func, debug_mask="all")
    k = sch.get_loops("C")[2]
    sch.bind(k, "threadIdx.x")
    for step in (sch.parallel, sch.vectorize):
        refused("loop k carries the reduction of block 'C'", lambda step=step: step(k))
    sch.unroll(k)
    assert (sch.get(k).kind, sch.get(k).thread_binding) == ("unrolled", None)
    agree(func, sch.func)


POINTERS = """
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    for i, j in T.grid(4, 2):
        with T.block("copy"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads(A[vi, vj * 4 : vj * 4 + 4])
            T.writes(B[vi, vj * 4 : vj * 4 + 4])
            T.evaluate(T.call_extern("int32", "copy4", B.data, A.data, vi, vj))
"""


def test_what_pointers_touch_is_what_the_block_declares():
    sch, (i, j) = start(POINTERS, "copy")
    sch.parallel(j)
    sch.reorder(j, i)
    sch, (i, j) = start(
        POINTERS.replace("T.writes(B[vi, vj * 4 : vj * 4 + 4])", "T.writes(B[vi, vj : vj + 4])"), "copy"
    )
    refused("B[i, j:j + 4] is written", lambda: sch.parallel(j))
    sch.parallel(i)


def test_pointers_outside_blocks_are_refused():
    text = """
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    for i in range(4):
        T.evaluate(T.call_extern("int32", "touch", A.data, i))
        with T.block("A"):
            vi = T.axis.spatial(4, i)
            A[vi] = T.float32(1)
"""
    sch, (i,) = start(text, "A")
    refused("may touch anything", lambda: sch.parallel(i))


@pytest.mark.parametrize("shape, factor", [((2, 4, 3), 4), ((4, 14, 14), 4), ((1, 64, 56, 56), 16), ((7, 5, 3), 8)])
@pytest.mark.parametrize("order", [1, -1])
def test_all_loops_fused_and_split_by_the_width(shape, factor, order):
    """The lanes are digits of one number, whichever dimension of the result each digit addresses."""
    X = te.placeholder(shape, name="X")
    Y = te.compute(shape[::order], lambda *i: X(*i[::order]) + 1.0, name="Y")
    for step in ("vectorize", "parallel"):
        sch = Schedule(te.create_prim_func([X, Y]))
        outer, inner = sch.split(sch.fuse(*sch.get_loops("Y")), [None, factor])
        sch.vectorize(inner) if step == "vectorize" else sch.parallel(outer)
        x = np.random.default_rng(0).random(shape, "float32")
        want = x.transpose(range(len(shape))[::order]) + 1
        assert np.array_equal(tw.build(sch, target="native -num-cores=1")(x), want)


@pytest.mark.parametrize("last, apart", [(96, True), (80, True), (97, False), (128, False)])
def test_a_condition_keeps_iterations_apart(last, apart):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((2000,)), C: T.Buffer((2000,))):
    for i, p, j, k in T.grid(4, 2, 2, 64):
        with T.block("C"):
            v = T.axis.spatial(2000, i * 192 + p * 96 + (j * 64 + k))
            T.where(j * 64 + k < {last})
            C[v] = A[v] * T.float32(2)
""")
    for number in (0, 1):
        sch = Schedule(func)
        if apart:
            sch.parallel(sch.get_loops("C")[number])
        else:
            with pytest.raises(ScheduleError, match="share elements"):
                sch.parallel(sch.get_loops("C")[number])


@pytest.mark.parametrize("last, apart", [(9, True), (8, False)])
def test_a_condition_leaves_the_digits_of_other_indices_whole(last, apart):
    """``j`` ends inside a tile; the digits of ``i * 8 + k`` tell iterations apart all the same."""
    sch = Schedule(
        parse(f"""
@T.prim_func
def main(A: T.Buffer((144, 7)), C: T.Buffer((2, 8, 9, 7))):
    for i, j, k, m in T.grid(18, 4, 8, 2):
        with T.block("C"):
            v = T.axis.spatial(144, i * 8 + k)
            w = T.axis.spatial(7, j * 2 + m)
            T.where(j * 2 + m < 7)
            C[v // 72, v % 72 // 9, v % {last}, w] = A[v, w]
""")
    )
    for number in (0, 1):
        if apart or number == 1:
            sch.parallel(sch.get_loops("C")[number])
        else:
            with pytest.raises(ScheduleError, match="share elements"):
                sch.parallel(sch.get_loops("C")[number])
