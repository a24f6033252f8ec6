"""TVM's classic schedules: the block schedule that they amount to, and that nothing computed changes."""

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import ScheduleError
from tilewright.tir.interpret import interpret
from tilewright.tir.verify import verify


def matmul(m=16, n=16, k=16):
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    axis = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, axis] * B[axis, j], axis=axis), name="C")
    return A, B, C, axis


def check_matmul(s, A, B, C):
    """The scheduled function multiplies matrices."""
    rng = np.random.default_rng(0)
    func = s.prim_func([A, B, C])
    verify(func)
    a, b = (rng.integers(-3, 4, [int(d) for d in t.shape]).astype("float32") for t in (A, B))
    c = np.full([int(d) for d in C.shape], np.nan, "float32")
    interpret(func, a, b, c, check_regions=True)
    np.testing.assert_array_equal(c, a @ b)
    return func.script()


SIZES = [(16, 16, 16), (13, 17, 7), (1, 7, 1)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_classic_program(size):
    A, B, C, k = matmul(*size)
    s = te.create_schedule(C.op)
    xo, xi = s[C].split(s[C].op.axis[0], factor=4)
    yo, yi = s[C].split(s[C].op.axis[1], factor=4)
    ko, ki = s[C].split(k, factor=2)
    s[C].reorder(xo, yo, ko, xi, yi, ki)
    s[C].vectorize(yi)
    s[C].unroll(ki)
    text = check_matmul(s, A, B, C)
    if size == SIZES[0]:
        assert "for i_0, j_0, k_0, i_1 in T.grid(4, 4, 8, 4):" in text
        assert "for j_1 in T.vectorized(4):" in text and "for k_1 in T.unroll(2):" in text


@pytest.mark.parametrize("attach_first", [True, False])
def test_cache_write_in_either_order(attach_first):
    A, B, C, k = matmul()
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "global")
    xo, yo, xi, yi = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    if attach_first:
        s[CC].compute_at(s[C], yo)
    xc, yc = s[CC].op.axis
    (axis,) = s[CC].op.reduce_axis
    assert axis is k
    ko, ki = s[CC].split(axis, factor=4)
    s[CC].reorder(ko, xc, ki, yc)
    s[CC].unroll(ki)
    s[CC].vectorize(yc)
    s[C].parallel(xo)
    if not attach_first:
        s[CC].compute_at(s[C], yo)
    text = check_matmul(s, A, B, C)
    assert text.index('T.block("C")') < text.index('T.block("C_global")')
    assert "in T.parallel(2)" in text


def test_packing_with_an_inlined_or_attached_stage():
    A, B, _, k = matmul()
    packed = te.compute((4, 16, 4), lambda bn, kk, n: B[kk, bn * 4 + n], name="packed")
    C = te.compute((16, 16), lambda i, j: te.sum(A[i, k] * packed[j // 4, k, j % 4], axis=k), name="C")
    s = te.create_schedule(C.op)
    xo, yo, xi, yi = s[C].tile(C.op.axis[0], C.op.axis[1], 4, 4)
    s[C].reorder(xo, yo, k_of(s[C]), xi, yi)
    s[packed].compute_inline()
    assert "packed" not in check_matmul(s, A, B, C).split("root")[1]
    s[packed].compute_root()
    bn, kk, n = s[packed].op.axis
    s[packed].parallel(bn)
    s[packed].vectorize(n)
    text = check_matmul(s, A, B, C)
    assert "for bn in T.parallel(4):" in text and "for n in T.vectorized(4):" in text


def k_of(stage):
    return stage.op.reduce_axis[0]


def test_cache_read():
    A, B, C, k = matmul()
    s = te.create_schedule(C.op)
    AA = s.cache_read(A, "local", [C])
    xo, xi = s[C].split(C.op.axis[0], factor=4)
    s[AA].compute_at(s[C], xo)
    ax0, ax1 = s[AA].op.axis
    s[AA].split(ax1, nparts=2)
    text = check_matmul(s, A, B, C)
    assert 'A_local = T.alloc_buffer((16, 16), scope="local")' in text
    assert text.index("for i_0") < text.index('T.block("A_local")') < text.index('T.block("C")')


def test_producer_at_consumer():
    A, B, C, k = matmul(8, 8, 8)
    D = te.compute((8, 8), lambda i, j: te.max(C[i, j], 0.0), name="D")
    s = te.create_schedule(D.op)
    s[C].compute_at(s[D], D.op.axis[0])
    s[C].reorder(k, C.op.axis[1])
    s[D].parallel(D.op.axis[0])
    func = s.prim_func([A, B, D])
    a, b, d = np.eye(8, dtype="float32"), -np.eye(8, dtype="float32"), np.full((8, 8), np.nan, "float32")
    interpret(func, a, b, d)
    np.testing.assert_array_equal(d, np.zeros((8, 8)))
    assert "for i in T.parallel(8)" in func.script()


@pytest.mark.parametrize("factor_axis", [0, 1])
def test_rfactor(factor_axis):
    A = te.placeholder((5, 24), name="A")
    k = te.reduce_axis((0, 24), name="k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(k, factor=4)
    BF = s.rfactor(B, ki, factor_axis)
    assert [len(s[BF].op.axis), len(s[BF].op.reduce_axis)] == [2, 1]
    s[BF].vectorize(s[BF].op.axis[factor_axis])
    s[B].unroll(s[B].op.reduce_axis[0])
    func = s.prim_func([A, B])
    a, b = np.arange(120, dtype="float32").reshape(5, 24), np.full(5, np.nan, "float32")
    interpret(func, a, b)
    np.testing.assert_array_equal(b, a.sum(1))
    text = func.script()
    shape = "(4, 5)" if factor_axis == 0 else "(5, 4)"
    assert f"B_rf = T.alloc_buffer({shape})" in text
    assert "T.vectorized(4)" in text and "T.unroll(4)" in text


def test_rfactor_of_a_symbolic_size():
    """TVM's tutorial on reductions: the rows of A, 16 partial sums of each."""
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    ko, ki = s[B].split(B.op.reduce_axis[0], factor=16)
    BF = s.rfactor(B, ki)
    s[BF].compute_at(s[B], s[B].op.axis[0])
    func = s.prim_func([A, B])
    for shape in ((1, 1), (7, 13), (3, 16), (2, 33)):
        a, b = np.arange(np.prod(shape), dtype="float32").reshape(shape), np.full(shape[0], np.nan, "float32")
        interpret(func, a, b)
        np.testing.assert_array_equal(b, a.sum(1))


def test_fuse_and_pragma_and_nparts():
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] * 2.0, name="B")
    s = te.create_schedule(B.op)
    fused = s[B].fuse(*s[B].op.axis)
    outer, inner = s[B].split(fused, nparts=5)
    s[B].pragma(outer, "auto_unroll_max_step", 16)
    assert s[B].leaf_iter_vars == [outer, inner]
    text = s.func.script()
    assert "for i_j_fused_0 in " in text and '"pragma_auto_unroll_max_step": 16' in text
    a, b = np.arange(48, dtype="float32").reshape(6, 8), np.full((6, 8), np.nan, "float32")
    interpret(s.func, a, b)
    np.testing.assert_array_equal(b, a * 2)
    assert s.schedule is s.schedule and [x.name for x in s.mod["main"].buffers] == ["A", "B"]


def test_symbolic_size():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    bx, tx = s[B].split(B.op.axis[0], factor=4)
    s[B].vectorize(tx)
    s[B].parallel(bx)
    for size in (1, 7, 16):
        a, b = np.arange(size, dtype="float32"), np.full(size, np.nan, "float32")
        interpret(s.prim_func([A, B]), a, b)
        np.testing.assert_array_equal(b, a + 1)


def test_bind():
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    bx, tx = s[B].split(B.op.axis[0], factor=16)
    s[B].bind(bx, te.thread_axis("blockIdx.x"))
    s[B].bind(tx, te.thread_axis("threadIdx.x"))
    assert 'T.thread_binding(4, thread="blockIdx.x")' in s.func.script()


def test_several_outputs():
    A = te.placeholder((8,), name="A")
    x, y = te.compute((8,), lambda i: (A[i] + 1.0, A[i] * 2.0), name="P")
    s = te.create_schedule(x.op)
    s[x].split(x.op.axis[0], factor=4)
    a, p, q = np.arange(8, dtype="float32"), np.zeros(8, "float32"), np.zeros(8, "float32")
    interpret(s.prim_func([A, x, y]), a, p, q)
    np.testing.assert_array_equal(p, a + 1)
    np.testing.assert_array_equal(q, a * 2)


def test_errors_at_the_call():
    A, B, C, k = matmul()
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    io, ii = s[C].split(i, factor=4)
    with pytest.raises(
        ValueError, match=r"s\[C\].vectorize: i: it was used up by split at test_classic_schedule.py:\d+"
    ):
        s[C].vectorize(i)
    with pytest.raises(ValueError, match="either factor or nparts"):
        s[C].split(j)
    with pytest.raises(ValueError, match="split: factor=0"):
        s[C].split(j, factor=0)
    with pytest.raises(ValueError, match="are not neighbours in this order"):
        s[C].fuse(io, j)
    with pytest.raises(ValueError, match="an axis is given twice"):
        s[C].reorder(j, j)
    with pytest.raises(TypeError, match="takes axes, got 3"):
        s[C].unroll(3)
    with pytest.raises(ValueError, match=r"it is not an axis of C; the loops are i.outer, i.inner, j, k"):
        s[C].unroll(te.reduce_axis((0, 4), "z"))
    with pytest.raises(ValueError, match="it is not an axis of A; the loops are none"):
        s[A].unroll(j)
    other = te.placeholder((4,), name="other")
    with pytest.raises(KeyError, match="is not part of this schedule; there are A, B, C"):
        s[other]
    with pytest.raises(TypeError, match="takes operations and tensors"):
        te.create_schedule("C")


def test_errors_name_the_classic_step():
    A, B, C, k = matmul()
    s = te.create_schedule(C.op)
    s[C].parallel(k)
    with pytest.raises(ScheduleError, match=r"s\[C\]\.parallel\(k\) \(test_classic_schedule.py:\d+\)"):
        s.func  # noqa: B018
    with pytest.raises(ScheduleError, match="reduction was scheduled already"):
        s.cache_write(C, "local")
    s = te.create_schedule(C.op)
    s[C].split(C.op.axis[0], factor=4)
    with pytest.raises(ScheduleError, match="C was scheduled already"):
        s.rfactor(C, k)


def test_rows_are_kept_apart():
    A = te.placeholder((7, 16), name="A")
    B = te.compute((7, 16), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((7, 16), lambda i, j: B[i, j] + 1.0, name="C")
    s = te.create_schedule(C.op)
    s[B].storage_align(B.op.axis[0], 16, 3)
    assert s.schedule.get(s.schedule.get_block("B")).annotations["buffer_dim_align"] == [[0, 0, 16, 3]]
    a, c = np.ones((7, 16), "float32"), np.zeros((7, 16), "float32")
    interpret(s.prim_func([A, C]), a, c)
    assert (c == 3).all()
    with pytest.raises(ValueError, match="i is not an axis of the tensor B"):
        s[B].storage_align(C.op.axis[0], 16, 3)
    with pytest.raises(TypeError, match=r"s\[B\].split: factor is float32, not an integer"):
        s[B].split(B.op.axis[0], factor=2.5)
