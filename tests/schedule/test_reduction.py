import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError, register_reducer
from tilewright.tir import parse
from tilewright.tir.expr.reducers import REDUCERS
from tilewright.tir.interpret import interpret


def test_decompose_reduction(matmul, same, agree, replays):
    func = matmul(7, 13, 5)
    sch = Schedule(func)
    block = sch.get_block("C")
    init = sch.decompose_reduction(block, sch.get_loops(block)[2])
    assert init.name == "C_init"
    assert sch.get(block).name == "C_update"  # the old handle means the update
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 5)), B: T.Buffer((5, 13)), C: T.Buffer((7, 13))):
    for i, j in T.grid(7, 13):
        with T.block("C_init"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.reads()
            T.writes(C[vi, vj])
            C[vi, vj] = T.float32(0)
        for k in range(5):
            with T.block("C_update"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                T.writes(C[vi, vj])
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
""",
    )
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 13, 17), (16, 16, 16)])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_decompose_reduction_of_uneven_tiles(matmul, agree, replays, shape, at):
    func = matmul(*shape)
    sch = Schedule(func)
    i, j, k = sch.get_loops("C")
    (i0, i1), (j0, j1), (k0, k1) = (sch.split(v, [None, f]) for v, f in ((i, 4), (j, 6), (k, 3)))
    sch.reorder(i0, j0, k0, i1, j1, k1)
    sch.decompose_reduction("C", [i0, j0, k0][at])
    agree(func, sch.func)
    replays(sch, func)


def test_the_init_loops_keep_their_kinds(matmul):
    sch = Schedule(matmul(8, 16, 4))
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    sch.vectorize(j)
    init = sch.decompose_reduction("C", k)
    assert [sch.get(v).kind for v in sch.get_loops(init)] == ["serial", "vectorized"]


def test_decompose_reduction_refuses_a_loop_inside_the_reduction(matmul):
    sch = Schedule(matmul())
    i, j, k = sch.get_loops("C")
    sch.reorder(k, j)
    with pytest.raises(ScheduleError, match="loop k carries the reduction over v_k and lies outside"):
        sch.decompose_reduction("C", j)


def test_decompose_reduction_refuses_other_blocks(chain, matmul):
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="'B' is not a reduction block: it has no init"):
        sch.decompose_reduction("B", sch.get_loops("B")[0])
    sch = Schedule(matmul())
    copy = sch.cache_write("C", 0, "local")
    with pytest.raises(ScheduleError, match="loop ax0 is not around block 'C'(?s:.*)its loops: i, j, k"):
        sch.decompose_reduction("C", sch.get_loops(copy)[0])


def test_decompose_reduction_refuses_a_first_element_left_out():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 5)), B: T.Buffer((7,))):
    for i, k in T.grid(7, 5):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k >= 2)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="under k >= 2 the reduction may leave out its first element"):
        sch.decompose_reduction("B", sch.get_loops("B")[1])


def row_sum(n=7, m=13, reduce=te.sum):
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: reduce(A[i, k], axis=k), name="B")
    return te.create_prim_func([A, B])


def test_rfactor(same, agree, replays):
    func = row_sum(7, 16)
    sch = Schedule(func)
    i, k = sch.get_loops("B")
    k0, k1 = sch.split(k, [None, 4])
    partial = sch.rfactor(k1, 0)
    assert partial.name == "B_rf"
    same(
        sch.func,
        """
@T.prim_func
def main(A: T.Buffer((7, 16)), B: T.Buffer((7,))):
    B_rf = T.alloc_buffer((4, 7))
    for i, k_0, k_1 in T.grid(7, 4, 4):
        with T.block("B_rf"):
            vk_1, vi, vk_0 = T.axis.remap("SSR", [k_1, i, k_0])
            with T.init():
                B_rf[vk_1, vi] = T.float32(0)
            B_rf[vk_1, vi] = B_rf[vk_1, vi] + A[vi, vk_0 * 4 + vk_1]
    for i, k_1 in T.grid(7, 4):
        with T.block("B"):
            vk_1, vi = T.axis.remap("RS", [k_1, i])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + B_rf[vk_1, vi]
""",
    )
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("axis", [-2, -1, 0, 1])
@pytest.mark.parametrize("reduce", [te.sum, te.max, te.min, te.prod])
@pytest.mark.parametrize("m", [7, 13, 16])
def test_rfactor_of_any_reduction_with_tails(agree, replays, axis, reduce, m):
    func = row_sum(5, m, reduce)
    sch = Schedule(func)
    _, k = sch.get_loops("B")
    _, k1 = sch.split(k, [None, 4])
    sch.rfactor(k1, axis)
    agree(func, sch.func)
    replays(sch, func)


def test_rfactor_of_the_outer_loop_of_a_matmul(matmul, agree):
    func = matmul(5, 7, 13)
    sch = Schedule(func)
    k0, _ = sch.split(sch.get_loops("C")[2], [3, None])
    sch.rfactor(k0, 2)
    agree(func, sch.func)


def argmax(better):
    return te.comm_reducer(
        lambda x, y: (te.select(better(x[1], y[1]), x[0], y[0]), te.select(better(x[1], y[1]), x[1], y[1])),
        lambda index, value: (te.const(-1, index), te.min_value(value)),
        name="argmax",
    )


@pytest.mark.parametrize("m", [7, 13])
def test_rfactor_of_argmax(replays, m):
    val = te.placeholder((3, m), name="val")
    k = te.reduce_axis((0, m), name="k")
    index, value = te.compute((3,), lambda i: argmax(lambda a, b: a >= b)((k.var, val[i, k]), axis=k), name="T")
    func = te.create_prim_func([val, index, value])
    sch = Schedule(func)
    _, k1 = sch.split(sch.get_loops("T")[1], [None, 4])
    sch.rfactor(k1, 0)
    replays(sch, func)
    a = np.random.default_rng(0).permutation(3 * m).reshape(3, m).astype("float32")
    best, most = np.zeros(3, "int32"), np.zeros(3, "float32")
    interpret(sch.func, a, best, most)
    np.testing.assert_array_equal(best, a.argmax(1))
    np.testing.assert_array_equal(most, a.max(1))


def test_rfactor_refuses_spatial_loops(matmul):
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="loop j does not carry the reduction of block 'C'(?s:.*)loops: k"):
        sch.rfactor(sch.get_loops("C")[1], 0)


def test_rfactor_refuses_a_place_that_is_none():
    sch = Schedule(row_sum())
    with pytest.raises(ScheduleError, match="factor_axis 2 is not a place in the 2 dimensions(?s:.*)from -2 to 1"):
        sch.rfactor(sch.get_loops("B")[1], 2)


@pytest.mark.parametrize("reduce", [te.sum, te.max, te.min, te.prod])
@pytest.mark.parametrize("n, m", [(1, 1), (5, 7), (3, 16), (2, 17)])
def test_rfactor_starts_partial_results_without_elements(agree, replays, reduce, n, m):
    for sizes in ((n, m), (te.var("n"), te.var("m"))):  # TVM's tutorial on reductions: A[n, m], split by 16
        func = row_sum(*sizes, reduce)
        sch = Schedule(func, debug_mask="all")
        k0, k1 = sch.split(sch.get_loops("B")[1], [None, 16])
        sch.rfactor(k1, 0)
        agree(func, sch.func, n=n, m=m)
        replays(sch, func)
    sch = Schedule(row_sum(n, m, reduce))  # the parts the other way about: each of few turns
    k0, k1 = sch.split(sch.get_loops("B")[1], [16, None])
    sch.rfactor(k0, 1)
    agree(row_sum(n, m, reduce), sch.func)


def test_rfactor_guards_only_what_may_be_missing(same):
    sch = Schedule(row_sum(5, 7))
    _, k1 = sch.split(sch.get_loops("B")[1], [None, 8])
    sch.rfactor(k1, 0)
    assert "T.if_then_else(vk_0 * 8 + vk_1 < 7, A[v_i, vk_0 * 8 + vk_1], T.float32(0.0))" in sch.func.script()
    assert "T.where" not in sch.func.script()
    sch = Schedule(row_sum(5, 17))
    _, k1 = sch.split(sch.get_loops("B")[1], [None, 8])
    sch.rfactor(k1, 0)
    assert "if_then_else" not in sch.func.script() and "T.where(k_0 * 8 + k_1 < 17)" in sch.func.script()


@pytest.mark.parametrize("m", [1, 7])
def test_rfactor_of_a_loop_of_one_iteration(agree, replays, m):
    func = row_sum(3, m)
    sch = Schedule(func, debug_mask="all")
    unit = sch.add_unit_loop("B")
    sch.rfactor(unit, 0)
    sch.rfactor(sch.get_loops("B_rf")[1], -1)
    agree(func, sch.func)
    replays(sch, func)
    sch = Schedule(func)
    i, k = sch.get_loops("B")
    unit = sch.add_unit_loop(i)
    sch.rfactor(unit, 1)
    agree(func, sch.func)


COMPLEX = """
@T.prim_func
def main(A: T.Buffer((5, 13, 2)), R: T.Buffer((5,)), I: T.Buffer((5,))):
    for i, k in T.grid(5, 13):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                R[vi] = T.float32(1)
                I[vi] = T.float32(0)
            BODY
"""
REAL, IMAGINARY = "R[vi] * A[vi, vk, 0] - I[vi] * A[vi, vk, 1]", "R[vi] * A[vi, vk, 1] + I[vi] * A[vi, vk, 0]"
BOTH_LET = [f"r: T.float32 = {REAL}", f"i: T.float32 = {IMAGINARY}", "R[vi] = r", "I[vi] = i"]
LET_WHAT_IS_READ_LATE = [f"i: T.float32 = {IMAGINARY}", f"R[vi] = {REAL}", "I[vi] = i"]
IMAGINARY_FIRST = [f"r: T.float32 = {REAL}", f"I[vi] = {IMAGINARY}", "R[vi] = r"]
LET_TOO_LITTLE = [f"r: T.float32 = {REAL}", "R[vi] = r", f"I[vi] = {IMAGINARY}"]
ONE_BY_ONE = [f"R[vi] = {REAL}", f"I[vi] = {IMAGINARY}"]


@pytest.fixture
def complex_product():
    def combine(x, y):
        return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]

    known = REDUCERS.copy()
    register_reducer("complex product", 2, combine, lambda s: (s[0].value, s[1].value) == (1, 0))
    yield
    REDUCERS[:] = known


@pytest.mark.parametrize("factor", [4, 16])
@pytest.mark.parametrize("body", [BOTH_LET, LET_WHAT_IS_READ_LATE, IMAGINARY_FIRST])
def test_rfactor_of_a_complex_product(complex_product, replays, body, factor):
    func = parse(COMPLEX.replace("BODY", "\n            ".join(body)))
    sch = Schedule(func, debug_mask="all")
    _, k1 = sch.split(sch.get_loops("B")[1], [None, factor])
    sch.rfactor(k1, 0)
    replays(sch, func)
    a = np.random.default_rng(0).integers(-1, 2, (5, 13, 2)).astype("float32")
    a[..., 0] += a[..., 0] == 0  # no factor is 0
    r, i = np.full(5, np.nan, "float32"), np.full(5, np.nan, "float32")
    interpret(sch.func, a, r, i)
    np.testing.assert_array_equal(r + 1j * i, (a[..., 0] + 1j * a[..., 1]).prod(1))


@pytest.mark.parametrize("body", [LET_TOO_LITTLE, ONE_BY_ONE])
def test_rfactor_refuses_updates_one_after_the_other(complex_product, body):
    sch = Schedule(parse(COMPLEX.replace("BODY", "\n            ".join(body))))
    _, k1 = sch.split(sch.get_loops("B")[1], [None, 4])
    with pytest.raises(ScheduleError, match="its store to I reads R after the store to R(?s:.*)in let statements"):
        sch.rfactor(k1, 0)


@pytest.mark.parametrize("m, factor", [(7, 4), (13, 16)])
def test_rfactor_of_a_value_and_its_index(replays, m, factor):
    val = te.placeholder((3, m), name="val")
    k = te.reduce_axis((0, m), name="k")
    best = te.comm_reducer(
        lambda x, y: (te.select(x[0] >= y[0], x[0], y[0]), te.select(x[0] >= y[0], x[1], y[1])),
        lambda value, index: (te.min_value(value), te.const(-1, index)),
    )
    value, index = te.compute((3,), lambda i: best((val[i, k], k.var), axis=k), name="T")
    func = te.create_prim_func([val, value, index])
    sch = Schedule(func, debug_mask="all")
    _, k1 = sch.split(sch.get_loops("T")[1], [None, factor])
    sch.rfactor(k1, 0)
    replays(sch, func)
    a = np.random.default_rng(0).permutation(3 * m).reshape(3, m).astype("float32")
    most, where = np.zeros(3, "float32"), np.zeros(3, "int32")
    interpret(sch.func, a, most, where)
    np.testing.assert_array_equal(where, a.argmax(1))
    np.testing.assert_array_equal(most, a.max(1))


def test_rfactor_of_a_conditional_update(agree, replays):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((5, 13)), B: T.Buffer((5,))):
    for i, k in T.grid(5, 13):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            if A[vi, vk] > T.float32(0):
                B[vi] = B[vi] + A[vi, vk]
""")
    for factors in ([None, 4], [None, 16], [4, None]):
        for part in (0, 1):
            sch = Schedule(func, debug_mask="all")
            sch.rfactor(sch.split(sch.get_loops("B")[1], factors)[part], 0)
            agree(func, sch.func)
    sch = Schedule(func, debug_mask="all")
    sch.rfactor(sch.get_loops("B")[1], 0)
    agree(func, sch.func)
    replays(sch, func)


def test_rfactor_refuses_a_loop_of_both_kinds():
    sch = Schedule(row_sum(5, 8))
    i, k = sch.get_loops("B")
    f = sch.fuse(i, k)
    with pytest.raises(ScheduleError, match="loop i_k_fused runs over spatial and reduce axes at once"):
        sch.rfactor(f, 0)


@pytest.mark.parametrize(
    "init, update, words",
    [
        ("T.float32(0)", "B[vi] - A[vi, vk]", "is not a known reduction: init .*, update"),
        ("T.float32(1)", "B[vi] + A[vi, vk]", "is not a known reduction"),
        ("T.float32(0)", "B[vi] + B[vi] * A[vi, vk]", "beyond accumulating"),
    ],
)
def test_rfactor_refuses_what_it_does_not_know(init, update, words):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((7, 5)), B: T.Buffer((7,))):
    for i, k in T.grid(7, 5):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = {init}
            B[vi] = {update}
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=words):
        sch.rfactor(sch.get_loops("B")[1], 0)


def test_rfactor_under_a_shared_row_loop(agree):
    A = te.placeholder((5, 13), name="A")
    k = te.reduce_axis((0, 13), name="k")
    B = te.compute((5,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((5, 13), lambda i, j: A[i, j] - B[i], name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    i, _ = sch.get_loops("C")
    sch.compute_at("B", i)
    _, k1 = sch.split(sch.get_loops("B")[1], [None, 4])
    sch.rfactor(k1, 1)
    assert [b.name for b in sch.get_child_blocks(i)] == ["B_rf", "B", "C"]
    agree(func, sch.func)


@pytest.mark.parametrize("n, m, lanes", [(1, 7, 7), (3, 13, 1), (5, 17, 4)])
def test_softmax_in_one_row_loop(n, m, lanes):
    A = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "r")
    M = te.compute((n,), lambda i: te.max(A[i, k], axis=k), name="M")
    E = te.compute((n, m), lambda i, j: te.exp(A[i, j] - M[i]), name="E")
    S = te.compute((n,), lambda i: te.sum(E[i, r], axis=r), name="S")
    N = te.compute((n, m), lambda i, j: E[i, j] / S[i], name="N")
    sch = Schedule(te.create_prim_func([A, N]))
    for block in ("M", "S"):
        _, inner = sch.split(sch.get_loops(block)[1], [None, lanes])
        sch.rfactor(inner, 1)
    row, _ = sch.get_loops("N")
    for block in ("S", "S_rf", "E", "M", "M_rf"):
        sch.compute_at(block, row)
    a = np.random.default_rng(0).normal(size=(n, m)).astype("float32")
    out = np.full((n, m), np.nan, "float32")
    interpret(sch.func, a, out)
    e = np.exp(a - a.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("factor", [4, 16, 64])
def test_fused_reduction_loops_split_unevenly(agree, replays, factor):
    A = te.placeholder((7, 13), name="A")
    k, r = te.reduce_axis((0, 7), "k"), te.reduce_axis((0, 13), "r")
    B = te.compute((1,), lambda i: te.sum(A[k, r], axis=[k, r]), name="B")
    C = te.compute((1,), lambda i: B[i] * 2.0, name="C")
    func = te.create_prim_func([A, C])
    sch = Schedule(func)
    _, k, r = sch.get_loops("B")
    _, inner = sch.split(sch.fuse(k, r), [None, factor])
    partial = sch.rfactor(inner, 1)
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.decompose_reduction(partial, sch.get_loops(partial)[1])
    agree(func, sch.func)
    replays(sch, func)


def test_a_reduction_that_meets_points_twice_stays():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7, 5)), B: T.Buffer((7,)), C: T.Buffer((7,))):
    for i, k in T.grid(7, 10):
        with T.block("B"):
            vi = T.axis.spatial(7, i)
            vk = T.axis.reduce(5, k // 2)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    for i in range(7):
        with T.block("C"):
            vi = T.axis.spatial(7, i)
            C[vi] = B[vi]
""")
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match="not known to run block 'B' once on each point of its axes"):
        sch.decompose_reduction("B", sch.get_loops("B")[1])
    with pytest.raises(ScheduleError, match="not known to run block 'B' once on each point of its axes"):
        sch.rfactor(sch.get_loops("B")[1], 0)


def test_rfactor_under_a_condition_on_a_loop_that_no_axis_names(agree):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32")):
    for i, k in T.grid(7, 1):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 2147483647
            B[vi] = T.min(B[vi], A[vi + vk])
""")
    sch = Schedule(func, debug_mask="all")
    _, inner = sch.split(sch.get_loops("B")[1], [None, 8], preserve_unit_iters=False)
    sch.rfactor(inner, -1)
    agree(func, sch.func)


def repeated(place, shape, extents, dtype="int32"):
    """Sums over k of A, which is read at ``place`` of the axes."""
    A, k = te.placeholder(shape, dtype, name="A"), te.reduce_axis((0, shape[-1]), name="k")
    return te.create_prim_func([A, te.compute(extents, lambda *i: te.sum(A[(*place(*i), k)], axis=k), name="B")])


@pytest.mark.parametrize(
    ("place", "shape", "extents", "once"),
    [
        (lambda i, j: (i // 3,), (5, 7), (13, 4), (5,)),
        (lambda i, j: (j % 4, i), (4, 13, 7), (13, 17), (13, 4)),
        (lambda i, j: (i // 2, j % 3), (7, 3, 1), (13, 16), (7, 3)),
        (lambda i, j: (i % 4 + i % 4,), (8, 7), (13, 2), (4,)),
        (lambda i, j: (), (7,), (13, 2), ()),
        (lambda i, j: (2 * i % 8, j), (8, 2, 7), (13, 2), (4, 2)),
        (lambda i, j: ((2 * i + 1) // 6, j), (5, 2, 7), (13, 2), (5, 2)),
    ],
)
def test_results_that_are_the_same_along_axes_are_reduced_once(place, shape, extents, once, agree, replays):
    func = repeated(place, shape, extents)
    sch = Schedule(func)
    copy = sch.reduce_once("B")
    assert sch.get(copy).name_hint == "B_once"
    assert [e.value for e in sch.get(sch.get_block("B")).writes[0].buffer.shape] == list(once)
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("size", [0, 1, 7, 13])
def test_results_that_repeat_by_a_size_are_reduced_once(size):
    n = te.var("n")
    sch = Schedule(repeated(lambda i: (i % n,), (n, 5), (4 * n,)))
    sch.reduce_once("B")
    a, b = np.random.default_rng(0).integers(0, 99, (size, 5)).astype("int32"), np.zeros(4 * size, "int32")
    interpret(sch.func, a, b)
    np.testing.assert_array_equal(b, np.tile(a.sum(1), 4))


@pytest.mark.parametrize(
    "place",
    [
        lambda i: (i,),
        lambda i: (i // 3 + i % 3,),
        lambda i: (i // 3 + i // 4,),
        lambda i: ((i + 1) // 3,),
        lambda i: (i % 40,),  # more than there are values of the axis
    ],
)
def test_results_that_differ_are_not_reduced_once(place):
    sch = Schedule(repeated(place, (40, 5), (13,)))
    with pytest.raises(ScheduleError, match="depend on all of its axes"):
        sch.reduce_once("B")


def test_reduce_once_refuses_ends_that_name_a_loop():
    """The end of the reduction names a loop of one iteration, which would be gone."""
    program = parse("""
@T.prim_func
def main(A: T.Buffer((6, 9)), B: T.Buffer((6, 1))):
    for i, j in T.grid(6, 1):
        for k in range(j + 1):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                vk = T.axis.reduce(j + 1, k)
                with T.init():
                    B[vi, vj] = T.float32(0)
                B[vi, vj] = B[vi, vj] + A[vi, vk]
""")
    with pytest.raises(ScheduleError, match="ends where another one says"):
        Schedule(program).reduce_once("B")


REDUCED = {"sum": te.sum, "max": te.max, "min": te.min}


def combined_again(place, shape, steps, reduce, dtype="int32"):
    """A reduction over r and s of A, which is read at ``place`` of the axes."""
    A = te.placeholder(shape, dtype, name="A")
    r, s = te.reduce_axis((0, steps[0]), name="r"), te.reduce_axis((0, steps[1]), name="s")
    B = te.compute((5,), lambda i: REDUCED[reduce](A[(i, *place(r, s))], axis=[r, s]), name="B")
    return te.create_prim_func([A, B])


@pytest.mark.parametrize("reduce", sorted(REDUCED))
@pytest.mark.parametrize("dtype", ["int32", "int8", "float32"])
@pytest.mark.parametrize(
    ("place", "shape", "steps", "left"),
    [
        (lambda r, s: (r % 4, s), (5, 4, 3), (12, 3), [4, 3]),
        (lambda r, s: (r // 3, s), (5, 4, 3), (12, 3), [4, 3]),
        (lambda r, s: (s,), (5, 3), (7, 3), [3]),
        (lambda r, s: (s % 2 + s % 2, r % 1), (5, 3, 1), (7, 4), [2]),
        (lambda r, s: (), (5,), (7, 3), [1]),
    ],
)
def test_steps_that_come_again_are_left_out(place, shape, steps, left, dtype, reduce, agree, replays):
    func = combined_again(place, shape, steps, reduce, dtype)
    sch = Schedule(func)
    sch.drop_equal_steps("B")
    assert [iv.dom.extent.value for iv in sch.get(sch.get_block("B")).iter_vars if iv.kind == "reduce"] == left
    agree(func, sch.func)
    replays(sch, func)


@pytest.mark.parametrize("reduce", sorted(REDUCED))
@pytest.mark.parametrize("size", [0, 1, 7, 13])
def test_steps_that_come_again_by_a_size_are_left_out(size, reduce):
    n = te.var("n")
    func = combined_again(lambda r, s: (r % n, s), (5, n, 2), (4 * n, 2), reduce, "float32")
    sch = Schedule(func)
    sch.drop_equal_steps("B")
    a = np.random.default_rng(0).standard_normal((5, size, 2)).astype("float32")
    got, want = np.zeros(5, "float32"), np.zeros(5, "float32")
    interpret(sch.func, a, got)
    interpret(func, a, want)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("place", "steps"),
    [
        (lambda r, s: (r, s), (4, 3)),
        (lambda r, s: (r % 4, s), (13, 3)),  # the first value comes once more
        (lambda r, s: (r // 4, s), (13, 3)),
        (lambda r, s: (r // 4 + r % 4, s), (12, 3)),
    ],
)
def test_steps_that_differ_are_not_left_out(place, steps):
    sch = Schedule(combined_again(place, (5, 40, 5), steps, "max"))
    with pytest.raises(ScheduleError, match="combine different values"):
        sch.drop_equal_steps("B")


def test_steps_of_which_there_may_be_none_are_not_left_out():
    n = te.var("n")
    A, W, r = te.placeholder((n,), name="A"), te.placeholder((5,), name="W"), te.reduce_axis((0, n), name="r")
    sch = Schedule(te.create_prim_func([A, W, te.compute((5,), lambda i: te.max(W[i], axis=r), name="B")]))
    with pytest.raises(ScheduleError, match="combine different values"):
        sch.drop_equal_steps("B")


def test_a_product_keeps_steps_that_come_again():
    A, r = te.placeholder((5,), "int32", name="A"), te.reduce_axis((0, 3), name="r")
    times = te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, t))
    sch = Schedule(te.create_prim_func([A, te.compute((5,), lambda i: times(A[i], axis=r), name="B")]))
    with pytest.raises(ScheduleError, match="once for many times"):
        sch.drop_equal_steps("B")


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_a_sum_keeps_steps_that_come_more_often_than_its_type_counts(dtype):
    times = 1 << (7 if dtype == "int8" else 15)
    sch = Schedule(combined_again(lambda r, s: (s,), (5, 3), (times, 3), "sum", dtype))
    with pytest.raises(ScheduleError, match="combine different values"):
        sch.drop_equal_steps("B")


def read_somewhere(place, extents, more=0):
    """Sums of the rows of A, which a second stage reads at ``place``; a third one reads them where ``more``."""
    A, t, k = (
        te.placeholder((12, 10, 5), "int32", name="A"),
        te.placeholder((6,), "int32", name="t"),
        te.reduce_axis((0, 5)),
    )
    B = te.compute((12, 10), lambda i, j: te.sum(A[i, j, k] * (i + 1), axis=k), name="B")
    C = te.compute(extents, lambda *i: B[place(t, *i)], name="C")
    users = [te.compute((12,), lambda i: B[i, 0], name="D")] if more else []
    return te.create_prim_func([A, t, C, *users])


@pytest.mark.parametrize(
    ("place", "extents"),
    [
        (lambda t, i: (i, i), (10,)),
        (lambda t, i: (11, i * 2 + 1), (5,)),
        (lambda t, i, j: (11 - i, j), (12, 10)),
        (lambda t, i, j: (i // 2, j % 3), (8, 7)),
        (lambda t, i, j: (t[i], 9 - j * 3), (6, 4)),
        (lambda t: (3, 4), ()),
    ],
)
def test_results_are_reduced_where_they_are_copied(place, extents, agree, replays):
    func = read_somewhere(place, extents)
    sch = Schedule(func, debug_mask="all")
    sch.reduce_where_copied("B")
    assert [w.buffer.name for w in sch.get(sch.get_block("B")).writes] == ["C"]
    assert not sch.get_consumers("B")
    A, t = np.random.default_rng(0).integers(-9, 9, (12, 10, 5)).astype("int32"), np.array([0, 11, 3, 3, 7, 1], "int32")
    got, want = np.zeros(extents, "int32"), np.zeros(extents, "int32")
    interpret(sch.func, A, t, got)
    interpret(func, A, t, want)
    np.testing.assert_array_equal(got, want)
    replays(sch, func)


@pytest.mark.parametrize("size", [0, 1, 7, 12])
def test_symbolic_results_are_reduced_where_they_are_copied(size):
    n, k = te.var("n"), te.reduce_axis((0, 5), name="k")
    A = te.placeholder((n, n, 5), "int32", name="A")
    B = te.compute((n, n), lambda i, j: te.sum(A[i, j, k], axis=k), name="B")
    func = te.create_prim_func([A, te.compute((n,), lambda i: B[i, n - 1 - i], name="C")])
    sch = Schedule(func)
    sch.reduce_where_copied("B")
    a, c = np.random.default_rng(0).integers(-9, 9, (size, size, 5)).astype("int32"), np.zeros(size, "int32")
    interpret(sch.func, a, c)
    np.testing.assert_array_equal(c, np.fliplr(a.sum(2)).diagonal())


def test_what_several_blocks_read_is_reduced_everywhere():
    sch = Schedule(read_somewhere(lambda t, i: (i, i), (10,), more=1))
    with pytest.raises(ScheduleError, match="not for one other block alone"):
        sch.reduce_where_copied("B")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("B[vi * 2] + T.float32(1)", "does more than copy"),
        ("B[u[vi]]", "which says what block 'C' copies"),
        ("A[vi, 0]", "not for one other block alone"),
    ],
)
def test_other_readers_leave_a_reduction_as_it_is(value, said):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((8, 5)), t: T.Buffer((4,), "int32"), C: T.Buffer((4,))):
    B = T.alloc_buffer((8,))
    u = T.alloc_buffer((4,), "int32")
    for i in range(4):
        with T.block("u"):
            vi = T.axis.spatial(4, i)
            u[vi] = t[vi] + 1
    for i, k in T.grid(8, 5):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = {value}
""")
    with pytest.raises(ScheduleError, match=said):
        Schedule(func).reduce_where_copied("B")


SYMBOLIC = """
@T.prim_func
def main(a: T.handle, B: T.Buffer((), "float32")):
    n = T.int32()
    m = T.int32()
    A = T.match_buffer(a, (n, m, 6))
    for f0, f1 in T.grid((n * m * 6 + 15) // 16, 16):
        with T.block("B"):
            vi = T.axis.reduce(n, (f0 * 16 + f1) // (m * 6))
            vj = T.axis.reduce(m, (f0 * 16 + f1) % (6 * m) // 6)
            vk = T.axis.reduce(6, (f0 * 16 + f1) % 6)
            T.where(f0 * 16 + f1 < LIMIT)
            with T.init():
                B[()] = T.float32(0)
            B[()] = B[()] + A[vi, vj, vk]
"""


def test_rfactor_of_a_split_loop_over_symbolic_sizes():
    func = parse(SYMBOLIC.replace("LIMIT", "n * m * 6"))
    sch = Schedule(func)
    sch.rfactor(sch.get_loops("B")[1], 0)
    for n, m in [(1, 1), (2, 3), (5, 1), (7, 4)]:
        x = np.arange(n * m * 6, dtype=np.float32).reshape(n, m, 6)
        got = np.zeros((), np.float32)
        interpret(sch.func, x, got)
        assert got == x.sum()


@pytest.mark.parametrize("part", ["n * m * 5", "n * m * 6 - 1", "n * m * 3 * n"])
def test_rfactor_of_a_loop_that_does_not_go_through_all_digits(part):
    sch = Schedule(parse(SYMBOLIC.replace("LIMIT", part)))
    with pytest.raises(ScheduleError, match="not known to run block 'B' once on each point of its axes"):
        sch.rfactor(sch.get_loops("B")[1], 0)
