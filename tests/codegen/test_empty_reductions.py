"""Reductions over a size that is 0 when the function runs: compiled code and the interpreter give the same."""

import itertools
from contextlib import suppress

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import parse
from tilewright.tir.interpret import interpret


def program(reducer):
    n = te.var("n")
    a = te.placeholder((3, n), name="A")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([a, te.compute((3,), lambda i: reducer(a[i, k], axis=k), name="C")])


def results(func, n):
    """What the interpreter and compiled code make of ``n`` columns of ones, into an output of 7s."""
    out = []
    for run in (lambda *args: interpret(func, *args, check_regions=True), compile(func, Target("native -num-cores=1"))):
        c = np.full(3, 7, "float32")
        run(np.ones((3, n), "float32"), c)
        out.append(c.tolist())
    return out


def plain(sch):
    pass


def split(sch):
    sch.split(sch.get_loops("C")[1], [None, 4])


def reordered(sch):
    i, k = sch.get_loops("C")
    sch.reorder(k, i)


def tiled(sch):
    i, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(k0, i, k1)


def decomposed(sch):
    sch.decompose_reduction("C", sch.get_loops("C")[1])


def blockized(sch):
    sch.blockize(sch.get_loops("C")[1])


@pytest.mark.parametrize("schedule", [plain, split, reordered, tiled, decomposed, blockized])
@pytest.mark.parametrize("reducer, start", [(te.sum, 0.0), (te.max, -np.inf), (te.prod, 1.0)])
def test_the_result_is_the_identity(reducer, start, schedule):
    sch = tw.Schedule(program(reducer))
    schedule(sch)
    assert results(sch.func, 0) == [[start] * 3] * 2
    expected = 5.0 if reducer is te.sum else 1.0
    assert results(sch.func, 5) == [[expected] * 3] * 2


def test_a_loop_of_elements_and_steps_at_once_is_refused():
    """Where the size is 0, no iteration of the fused loop runs, and nothing writes the output."""
    sch = tw.Schedule(program(te.sum))
    with pytest.raises(ScheduleError, match="may be over no elements"):
        sch.fuse(*sch.get_loops("C"))


@pytest.mark.parametrize(
    "loops, where", [("T.grid(3, n)", "True"), ("T.grid(n, 3)", "True"), ("T.grid(3, 2)", "vj < n")]
)
def test_one_loop_of_two_without_steps(loops, where):
    text = f"""
@T.prim_func
def main(a: T.handle, C: T.Buffer((3,))):
    n = T.int32()
    A = T.match_buffer(a, (3, n))
    for m in range(3):
        for i, j in {loops}:
            with T.block("C"):
                vm = T.axis.spatial(3, m)
                vi, vj = T.axis.remap("RR", [i, j])
                T.where({where.replace("vj", "j")})
                with T.init():
                    C[vm] = T.float32(0)
                C[vm] = C[vm] + T.float32(1)
"""
    assert results(parse(text), 0) == [[0.0] * 3] * 2
    assert results(parse(text), 2) == [[6.0] * 3] * 2


@pytest.mark.parametrize("size", ["0", "n"])
def test_no_elements_start_nothing(size):
    """The axis of the output has no value, and the loop that would say so has become one with the reduction."""
    text = f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (3, n))
    C = T.match_buffer(c, ({size},))
    for f in range({size} * 5):
        with T.block("C"):
            vm = T.axis.spatial({size}, 0)
            vk = T.axis.reduce(5, f)
            with T.init():
                C[vm] = T.float32(0)
            C[vm] = C[vm] + T.float32(1)
"""
    func = parse(text)
    around = np.full(3, 7, "float32")
    interpret(func, np.ones((3, 0), "float32"), around[1:1], check_regions=True)
    compile(func, Target("native -num-cores=1"))(np.ones((3, 0), "float32"), around[1:1])
    assert around.tolist() == [7.0] * 3
    if size == "n":
        compile(func, Target("native -num-cores=1"))(np.ones((3, 1), "float32"), around[1:2])
        assert around.tolist() == [7.0, 5.0, 7.0]


def test_what_is_left_of_a_split_axis_starts_nothing():
    a = te.placeholder((0, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    func = te.create_prim_func([a, te.compute((0,), lambda i: te.sum(a[i, k], axis=k), name="C")])
    sch = tw.Schedule(func)
    i, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, 3])
    sch.reorder(i1, i0, k)
    sch.fuse(i0, k)
    around = np.full(3, 7, "float32")
    interpret(sch.func, np.ones((0, 5), "float32"), around[1:1], check_regions=True)
    compile(sch.func, Target("native -num-cores=1"))(np.ones((0, 5), "float32"), around[1:1])
    assert around.tolist() == [7.0] * 3


def rows_of_a_triangle(n):
    a = te.placeholder((n, n), name="A")

    def row(i):
        k = te.reduce_axis((0, i), "k")
        return te.sum(a[i, k], axis=k)

    return te.create_prim_func([a, te.compute((n,), row, name="C")])


def rows_split(sch):
    i, _ = sch.get_loops("C")
    sch.split(i, [None, 4])


def split_twice(sch):
    i, k = sch.get_loops("C")
    sch.split(k, [None, 4])
    sch.parallel(i)


@pytest.mark.parametrize("schedule", [plain, split, rows_split, split_twice, decomposed])
@pytest.mark.parametrize("n", [1, 7, 16, 17])
def test_a_row_of_a_triangle_may_be_empty(n, schedule):
    sch = tw.Schedule(rows_of_a_triangle(n), debug_mask="all")
    schedule(sch)
    a = np.arange(n * n, dtype="float32").reshape(n, n)
    for run in (lambda *args: interpret(sch.func, *args), compile(sch.func, Target("native -num-cores=1"))):
        c = np.full(n, np.nan, "float32")
        run(a, c)
        assert c.tolist() == [a[i, :i].sum() for i in range(n)]


EXTENTS = {"i": 5, "k": 3, "l": 4, "il": 20}
AXES = {
    False: ("T.axis.spatial(5, i)", "T.axis.reduce(3, k)", "T.axis.reduce(4, l)"),
    True: ("T.axis.spatial(5, il // 4)", "T.axis.reduce(3, k)", "T.axis.reduce(4, il % 4)"),
}


@pytest.mark.parametrize("loops", [*itertools.permutations("ikl"), ("k", "il"), ("il", "k")])
def test_every_reduction_axis_decides_when_to_start(loops):
    """Whatever loop is the outermost, and where one carries an element and a step, so that the init stays inside."""
    i, k, l = AXES["il" in loops]  # noqa: E741
    func = parse(f"""
@T.prim_func
def f(A: T.Buffer((5, 3, 4), "float32"), B: T.Buffer((5,), "float32")):
    for {", ".join(loops)} in T.grid({", ".join(str(EXTENTS[name]) for name in loops)}):
        with T.block("B"):
            vi = {i}
            vk = {k}
            vl = {l}
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk, vl]
""")
    a = np.arange(60, dtype="float32").reshape(5, 3, 4)
    for call in (compile(func, "native -num-cores=1"), lambda *args: interpret(func, *args)):
        b = np.full(5, np.nan, "float32")
        call(a, b)
        np.testing.assert_array_equal(b, a.sum((1, 2)))


OUTER_LOOP = """
@T.prim_func
def main(A: T.Buffer((1, 3)), C: T.Buffer((1,))):
    for o in range(4):
        for i_k in range(6):
            with T.block("C"):
                vi = T.axis.spatial(1, 0)
                vk = T.axis.reduce(3, i_k % 3)
                T.where(o * 2 + i_k // 3 < 1)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]
"""
OUTER_BLOCK = """
@T.prim_func
def main(A: T.Buffer((1, 3)), C: T.Buffer((1,))):
    for o in range(4):
        with T.block("group"):
            vo = T.axis.spatial(4, o)
            T.reads(A[0, 0:3])
            T.writes(C[0])
            for i_k in range(6):
                with T.block("C"):
                    vi = T.axis.spatial(1, 0)
                    vk = T.axis.reduce(3, i_k % 3)
                    T.where(vo * 2 + i_k // 3 < 1)
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + A[vi, vk]
"""
OUTER_LET = """
@T.prim_func
def main(A: T.Buffer((1, 3)), C: T.Buffer((1,))):
    for o in range(4):
        with T.let(o * 2) as x:
            for i_k in range(6):
                with T.block("C"):
                    vi = T.axis.spatial(1, 0)
                    vk = T.axis.reduce(3, i_k % 3)
                    T.where(x + i_k // 3 < 1)
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + A[vi, vk]
"""


@pytest.mark.parametrize("text", [OUTER_LOOP, OUTER_BLOCK, OUTER_LET])
def test_a_condition_that_an_outer_loop_ends_does_not_start_the_reduction_again(text):
    assert ones_summed(parse(text)) == [3.0, 3.0]


def ones_summed(func):
    """What the interpreter and compiled code make of a row of three ones."""
    out = []
    for run in (lambda *args: interpret(func, *args, check_regions=True), compile(func, Target("native -num-cores=1"))):
        c = np.full(1, np.nan, "float32")
        run(np.ones((1, 3), "float32"), c)
        out.append(float(c[0]))
    return out


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("factor", [2, 3, 5])
def test_triangles_whose_loops_are_exchanged(order, factor):
    """Row i has i terms: none in row 0, whatever loop is outermost."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((6,), "int32"), C: T.Buffer((6,), "int32")):
    for i in range(6):
        for k in range(i):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + A[vk]
""")
    sch = Schedule(func)
    sch.split(sch.get_loops("C")[1], [None, factor])
    loops = sch.get_loops("C")
    with suppress(ScheduleError):  # the number of outer iterations depends on i
        sch.reorder(*[loops[n] for n in order])
    given = np.arange(1, 7, dtype="int32")
    for run in (lambda *args: interpret(sch.func, *args, check_regions=True), compile(sch.func, Target("native"))):
        c = np.full(6, 77, "int32")
        run(given, c)
        np.testing.assert_array_equal(c, np.cumsum(given) - given)
