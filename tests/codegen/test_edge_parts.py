"""Tests of tiles at the end of symbolic sizes, whose rows run in parts of powers of two."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.lower.edge_parts import _rolled
from tilewright.codegen.lower.pipeline import run_passes
from tilewright.driver.building import plan
from tilewright.schedule import Schedule
from tilewright.tir import PrimFunc, parse
from tilewright.tir.interpret import interpret

ONE = "native -num-cores=1"
RNG = np.random.default_rng(7)


def hoisted(func: PrimFunc) -> str:
    """Returns the text behind the pass that makes edges."""
    found: list[str] = []
    run_passes(func, ONE, seen=lambda name, f: found.append(f.script()) if name == "hoist_guards" else None)
    return found[0]


def product(rows: int, wide: int) -> Schedule:
    n = te.size_var("n")
    a, b = te.placeholder((n, 20), name="A"), te.placeholder((20, 48), name="B")
    k = te.reduce_axis((0, 20), name="k")
    sch = Schedule(
        te.create_prim_func([a, b, te.compute((n, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])
    )
    block = sch.get_block("C")
    sch.cache_write(block, 0, "local")
    i, j, step = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, rows])
    j0, j1 = sch.split(j, [None, wide])
    sch.reorder(j0, i0, step, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)
    copy = sch.get_block("C_local")
    sch.reverse_compute_at(copy, i0)
    _, _, x, y = sch.get_loops(copy)
    sch.unroll(x)
    sch.vectorize(y)
    sch.decompose_reduction(block, step)
    return sch


@pytest.mark.parametrize(("rows", "parts"), [(2, 1), (3, 2), (4, 3), (5, 3), (8, 3), (13, 4), (16, 4)])
def test_rows_at_the_end_of_a_product(rows: int, parts: int) -> None:
    sch = product(rows, 16)
    runs = "_left == " if rows <= 4 else "% 2 == 1"  # each number of rows, or each binary digit of it
    assert hoisted(sch.func).count(runs) == parts
    module = tw.build(sch, ONE)
    b = RNG.standard_normal((20, 48), np.float32)
    for n in (*range(2 * rows + 2), 67):
        room = np.full((n + 4, 48), 5.0, np.float32)
        a, c = RNG.standard_normal((n, 20), np.float32), room[:n]
        module(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
        assert (room[n:] == 5.0).all()


def test_more_rows_than_parts_can_hold_keep_their_checks() -> None:
    assert "% 2 == 1" not in hoisted(product(17, 16).func)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_vectors_at_the_end_of_a_row(dtype: str) -> None:
    n = te.size_var("n")
    x, y = te.placeholder((n,), dtype, name="x"), te.placeholder((n,), dtype, name="y")
    sch = Schedule(te.create_prim_func([x, y, te.compute((n, n), lambda i, j: x[i] - y[j], name="z")]))
    _, j = sch.get_loops(sch.get_block("z"))
    sch.vectorize(sch.split(j, [None, 64])[1])
    assert hoisted(sch.func).count("% 2 == 1") >= 2
    module = tw.build(sch, ONE)
    for size in (0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 130):
        a, b = (RNG.integers(-50, 50, size).astype(dtype) for _ in range(2))
        z = np.empty((size, size), dtype)
        module(a, b, z)
        np.testing.assert_array_equal(z, a[:, None] - b[None])


@pytest.mark.parametrize("distance", [2, 3])
def test_vectors_of_spaced_elements_at_the_end_of_a_row(distance: int) -> None:
    """What is read lies farther apart than what is written."""
    n = te.size_var("n")
    x = te.placeholder((n, distance * n), name="x")
    sch = Schedule(te.create_prim_func([x, te.compute((n, n), lambda i, j: x[i, distance * j + 1], name="z")]))
    _, j = sch.get_loops(sch.get_block("z"))
    sch.vectorize(sch.split(j, [None, 64])[1])
    assert hoisted(sch.func).count("% 2 == 1") == 2
    module = tw.build(sch, ONE)
    for size in (0, 1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 130):
        a = np.arange(size * distance * size, dtype=np.float32).reshape(size, distance * size)
        z = np.empty((size, size), np.float32)
        module(a, z)
        np.testing.assert_array_equal(z, a[:, 1::distance])


NEIGHBOURS = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n,))
    for i in range((n + 7) // 8):
        S = T.decl_buffer((9,), scope="local")
        S[0] = T.float32(0)
        for r in T.unroll(8):
            if i * 8 + r < n:
                S[r + 1] = A[i * 8 + r] * T.float32(2)
        for r in T.unroll(8):
            if i * 8 + r < n:
                C[i * 8 + r] = S[r + 1] + S[r]
"""

SUMMED = """
@T.prim_func
def main(a: T.handle, C: T.Buffer((4,), "float32")):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    for i in range((n + 7) // 8):
        C[0] = C[0] + T.float32(1)
        for r in T.unroll(8):
            if i * 8 + r < n:
                C[1] = C[1] + A[i * 8 + r]
"""

PLACES = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n,))
    C = T.match_buffer(c, (n,))
    for i in range((n + 7) // 8):
        for r in T.unroll(8):
            if i * 8 + r < n:
                C[i * 8 + r] = A[i * 8 + r] * T.cast(r, "float32") + T.cast(i, "float32")
"""


NAMED = PLACES.replace(
    """                C[i * 8 + r] = A[i * 8 + r] * T.cast(r, "float32") + T.cast(i, "float32")
""",
    """                place: T.int32 = r * 1
                C[i * 8 + place] = A[i * 8 + r]
""",
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [(NEIGHBOURS, 0), (SUMMED, 0), (NAMED, 0), (PLACES, 3)],
    ids=["neighbours", "summed", "named", "places"],
)
def test_rows_that_are_not_independent_keep_their_checks(text: str, parts: int) -> None:
    func = parse(text)
    assert isinstance(func, PrimFunc)
    assert hoisted(func).count("% 2 == 1") == parts
    module = tw.codegen.compile(func, ONE)
    for n in (0, 1, 3, 7, 8, 9, 21):
        a = RNG.standard_normal(n).astype(np.float32)
        shape = (4,) if text is SUMMED else (n,)
        got, expected = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        module(a, got)
        interpret(func, a, expected)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_columns_at_the_end_of_a_packed_operand() -> None:
    n = te.size_var("n")
    a, b = te.placeholder((20, 24), name="A"), te.placeholder((24, n), name="B")
    k = te.reduce_axis((0, 24), name="k")
    func = te.create_prim_func([a, b, te.compute((20, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")])
    sch = Schedule(func)
    block = sch.get_block("C")
    copy = sch.cache_read(block, 1, "global")
    sch.transform_layout(block, ("read", 1), lambda k, j: (j // 64, k, j % 64), leave_padding=True)
    sch.cache_write(block, 0, "local")
    i, j, step = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 64])
    sch.reorder(j0, i0, step, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)
    sch.reverse_compute_at(sch.get_block("C_local"), i0)
    _, _, x, y = sch.get_loops("C_local")
    sch.unroll(x)
    sch.vectorize(y)
    sch.decompose_reduction(block, step)
    assert sch.get_loops(copy)
    assert hoisted(sch.func).count("% 2 == 1") == 2  # 32 columns, and 16
    module = tw.build(sch, ONE)
    left = RNG.integers(-4, 5, (20, 24)).astype(np.float32)
    for size in (0, 1, 2, 15, 16, 17, 31, 33, 47, 48, 50, 63, 64, 65, 100, 129):
        right = RNG.integers(-4, 5, (24, size)).astype(np.float32)
        module(left, right, c := np.full((20, size), 5.0, np.float32))
        np.testing.assert_array_equal(c, left @ right, err_msg=str(size))


@pytest.mark.parametrize("name", ["convolution", "attention", "stencil"])
def test_kernels_of_several_stages_at_every_small_size(name: str) -> None:
    n = te.size_var("n")
    if name == "convolution":
        x, w = te.placeholder((1, 8, n), name="x"), te.placeholder((16, 8, 3), name="w")
        made, fixed = [x, w, te.ops.conv1d(x, w, padding=1)], lambda s: [(1, 8, s), (16, 8, 3)]
    elif name == "attention":
        q, k, v = (te.placeholder((2, n, 16), name=name) for name in "qkv")
        made, fixed = [q, k, v, te.ops.attention(q, k, v)], lambda s: [(2, s, 16)] * 3
    else:
        x = te.placeholder((n + 2, 40), name="x")
        made = [x, te.compute((n, 40), lambda i, j: x[i, j] - x[i + 2, j], name="y")]
        fixed = lambda s: [(s + 2, 40)]  # noqa: E731
    func = te.create_prim_func(made)
    module = tw.build(made, ONE)
    for size in range(1, 40, 3 if name == "attention" else 1):
        inputs = [RNG.standard_normal(shape).astype(np.float32) for shape in fixed(size)]
        got = module(*inputs)
        expected = np.zeros_like(got)
        tw.codegen.compile(func, ONE)(*inputs, expected)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_edges_of_functions_that_are_written_out_run_in_parts() -> None:
    n = te.size_var("n")
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    made = plan([x, y, te.compute((n, n), lambda i, j: te.exp(x[i] + y[j]), name="z")], ONE)
    assert "_left // 16 % 2 == 1" in hoisted(made.scheduled)
    module = made.compile()
    for size in (1, 2, 3, 7, 15, 16, 17, 33, 50, 64, 65):
        a, b = RNG.standard_normal((2, size), np.float32)
        z = np.full((size, size), np.nan, np.float32)
        module(a, b, z)
        np.testing.assert_allclose(z, np.exp(a[:, None] + b), rtol=1e-5)


@pytest.mark.parametrize("lanes", [32, 96, 112])
def test_elements_behind_a_limit_have_the_other_value(lanes):
    """What a condition chooses between is stored everywhere; only what is not stored may be left out."""
    x, y = te.placeholder((9, 2 * lanes), name="x"), te.placeholder((9,), name="y")
    out = te.compute((9, 2 * lanes), lambda i, j: te.if_then_else(j <= 20 * i, x[i, j] + 1, y[i]), name="out")
    sch = Schedule(te.create_prim_func([x, y, out]))
    sch.vectorize(sch.split(sch.get_loops("out")[-1], [None, lanes])[1])
    given = [RNG.random([int(e) for e in t.shape], dtype="float32") for t in (x, y)]
    made = np.zeros((9, 2 * lanes), "float32")
    tw.build(sch, target=ONE)(*given, made)
    i, j = np.ogrid[:9, : 2 * lanes]
    np.testing.assert_array_equal(made, np.where(j <= 20 * i, given[0] + 1, given[1][:, None]))


@pytest.mark.parametrize(("lanes", "parts"), [(32, 2), (48, 2), (64, 3), (128, 4)])
def test_what_is_chosen_at_the_ends_of_rows_stays_a_mask_of_each_part(lanes: int, parts: int) -> None:
    """A padded row has other values at both ends than inside: only the elements behind its end are left out."""
    n = te.size_var("n")
    x = te.placeholder((n, n), name="x")

    def padded(i: te.Var, j: te.Var) -> te.Expr:
        return te.if_then_else((j >= 1) & (j < n + 1), x[i, j - 1] * 2, te.const(3, "float32"))

    sch = Schedule(te.create_prim_func([x, te.compute((n, n + 2), padded, name="y")]))
    sch.vectorize(sch.split(sch.get_loops("y")[-1], [None, lanes])[1])
    assert hoisted(sch.func).count("% 2 == 1") == parts
    module = tw.build(sch, target=ONE)
    for size in (1, 2, 3, 5, 13, 14, 15, 16, 29, 30, 31, 46, 47, 61, 62, 64, 94, 100, 126, 127, 130):
        a = RNG.standard_normal((size, size), np.float32)
        room = np.full((size + 1, size + 2), 5.0, np.float32)
        module(a, room[:size])
        np.testing.assert_array_equal(room[:size], np.pad(2 * a, ((0, 0), (1, 1)), constant_values=3), str(size))
        assert (room[size] == 5).all()


@pytest.mark.parametrize("shape", ["(n, 256)", "(n, 7)", "(n, n)"])
def test_transposes_that_end_inside_a_square(shape: str) -> None:
    """Squares behind the end are left out, and rows behind it are not stored."""
    n = te.size_var("n")
    rows, columns = eval(shape, {"n": n})
    x, y = te.placeholder((rows, columns), name="x"), te.placeholder((columns, rows), name="y")
    built = tw.build([x, y, te.compute((rows, columns), lambda i, j: x[i, j] + y[j, i], name="z")], ONE)
    for size in range(71):
        rows, columns = eval(shape, {"n": size})
        a, b = RNG.random((rows, columns), np.float32), RNG.random((columns, rows), np.float32)
        memory = np.full(rows * columns + 32, -1, np.float32)
        out = memory[16 : 16 + rows * columns].reshape(rows, columns)
        built(a, b, out)
        np.testing.assert_array_equal(out, a + b.T)
        assert (memory[:16] == -1).all() and (memory[16 + rows * columns :] == -1).all()


def test_each_number_of_rows_of_a_sum_has_code_of_few_steps() -> None:
    """A part per power of two would wait for its own sums: 7 rows are one part, with 2 steps written out for 8."""
    n = te.size_var("n")
    a, b = te.placeholder((n, 64), name="a"), te.placeholder((64, 32), name="b")
    func = te.create_prim_func([a, b, te.ops.matmul(a, b)])
    made = plan(func, ONE)
    (left,) = [line for line in hoisted(made.scheduled).splitlines() if "_left: T.int32" in line]
    name = left.split(":")[0].strip()
    text = hoisted(made.scheduled)
    tall = 1 + text.count(f"if {name} == ")
    assert tall > 4
    assert all(f"if {name} == {count}:" in text for count in range(1, tall))
    assert "T.unroll(8)" in text and "T.unroll(2)" in text
    built = tw.build(func, ONE)
    for size in range(71):
        x, y = RNG.integers(-4, 5, (size, 64)).astype("float32"), RNG.integers(-4, 5, (64, 32)).astype("float32")
        out = np.full((size, 32), -1, np.float32)
        built(x, y, out)
        np.testing.assert_array_equal(out, x @ y)


def test_steps_that_are_no_single_loop_stay_written_out() -> None:
    func = parse("""
@T.prim_func
def main(A: T.Buffer((64,)), C: T.Buffer((1,))):
    for a in range(8):
        for b in T.unroll(8): C[0] = C[0] + A[a + b * 8]
    for a in range(8):
        for b in T.unroll(8): C[0] = C[0] + A[a * 8 + b]
""")
    first, second = _rolled(func.body).seq
    assert first is func.body.seq[0]
    assert (second.extent.value, second.body.extent.value) == (32, 2)


def test_rows_of_one_vector_share_the_loop_over_more_of_them() -> None:
    """The schedule for rows of 16 serves rows of up to 24: all rows take a vector before the next one."""
    n = te.size_var("n")
    x = te.placeholder((64, n), name="x")
    func = te.create_prim_func([x, te.ops.softmax(x, axis=1)])
    lines = plan(func, ONE).scheduled.script().splitlines()
    over = [at for at, line in enumerate(lines) if "T.unroll((n + 15) // 16)" in line]
    assert any("T.unroll(16)" in lines[at + 1] for at in over)
    built = tw.build(func, ONE)
    for size in range(1, 40):
        a, out = RNG.standard_normal((64, size)).astype("float32"), np.full((64, size), -1, np.float32)
        built(a, out)
        wanted = np.exp(a - a.max(1, keepdims=True))
        np.testing.assert_allclose(out, wanted / wanted.sum(1, keepdims=True), rtol=1e-5)


def window_sums(rows: list[int | None], ahead: int, behind: int) -> Schedule:
    """Sums of windows of three rows, of which ``ahead`` and ``behind`` may lie outside, in tiles of rows."""
    n = te.size_var("n")
    x, k = te.placeholder((n, 40), name="X"), te.reduce_axis((0, 3), name="k")

    def element(i: te.Expr, j: te.Expr, k: te.Expr) -> te.Expr:
        inside = te.all(i + k >= ahead, i + k < n + ahead) if behind else i + k >= ahead
        return te.if_then_else(inside, x[i + k - ahead, j], 0.0)

    extent = n + ahead + behind - 2
    sch = Schedule(
        te.create_prim_func([x, te.compute((extent, 40), lambda i, j: te.sum(element(i, j, k), axis=k), name="C")])
    )
    block = sch.get_block("C")
    sch.cache_write(block, 0, "local")
    i, j, step = sch.get_loops(block)
    *outer, i1 = sch.split(i, rows)
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(j0, *outer, step, i1, j1)
    sch.unroll(i1)
    sch.unroll(step)
    sch.vectorize(j1)
    copy = sch.get_block("C_local")
    sch.reverse_compute_at(copy, outer[-1])
    *_, x_loop, y_loop = sch.get_loops(copy)
    sch.unroll(x_loop)
    sch.vectorize(y_loop)
    sch.decompose_reduction(block, step)
    return sch


@pytest.mark.parametrize("rows", [[None, 3], [None, 8], [None, 2, 8]])
@pytest.mark.parametrize(("ahead", "behind"), [(1, 1), (2, 2), (0, 2), (2, 1)])
def test_rows_at_both_ends_of_a_padded_image(rows: list[int | None], ahead: int, behind: int) -> None:
    sch = window_sums(rows, ahead, behind)
    text = hoisted(sch.func)
    assert "_row in " in text  # rows at the ends are computed one by one
    assert text.count("_left % 2 == 1" if rows[-1] == 8 else "_left == 1") > 0
    module = tw.build(sch, ONE)
    for n in range(max(3 - ahead - behind, 1), 42):
        a, size = RNG.standard_normal((n, 40)).astype(np.float32), n + ahead + behind - 2
        room = np.full((size + 4, 40), 5.0, np.float32)
        module(a, room[:size])
        padded = np.pad(a, ((ahead, behind), (0, 0)))
        np.testing.assert_allclose(room[:size], padded[:-2] + padded[1:-1] + padded[2:], rtol=1e-5, atol=1e-5)
        assert (room[size:] == 5.0).all(), n


@pytest.mark.parametrize(("rows", "loops"), [(13, 0), (15, 0), (9, 1), (5, 1)])
def test_tiles_of_which_none_is_whole_stand_apart(rows: int, loops: int) -> None:
    """Of two tiles of a padded image one has the row above, the other one that below: no check depends on the tile."""
    x, k = te.placeholder((26, 16), name="X"), te.reduce_axis((0, 3), name="k")

    def inside(i, k):
        return te.all(i + k >= 1, i + k < 27)

    total = te.compute(
        (26, 16),
        lambda i, j: te.max(te.if_then_else(inside(i, k), x[i + k - 1, j], te.min_value("float32")), axis=k),
        name="C",
    )
    sch = Schedule(te.create_prim_func([x, total]))
    block = sch.get_block("C")
    i, j, step = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, rows])
    sch.reorder(i0, step, i1, j)
    sch.unroll(i1)
    sch.unroll(step)
    sch.vectorize(j)
    sch.decompose_reduction(block, step)
    text = hoisted(sch.func)
    choices = [line for line in text.splitlines() if "T.if_then_else" in line]
    assert choices and not any("i_0" in line.split("T.if_then_else(")[1].split(",")[0] for line in choices)
    assert text.count("for i_0") == loops
    a, out = RNG.standard_normal((26, 16)).astype(np.float32), np.zeros((26, 16), np.float32)
    tw.build(sch, ONE)(a, out)
    padded = np.pad(a, ((1, 1), (0, 0)), constant_values=-np.inf)
    np.testing.assert_array_equal(out, np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:]))


def test_rows_that_some_steps_alone_store_keep_their_checks() -> None:
    """No check says for all steps where the rows end: behind those of all steps some store yet."""
    func = parse("""
@T.prim_func
def main(C: T.Buffer((64,)), n: T.int32):
    for i0 in range((n + 7) // 8):
        for k in T.unroll(3):
            for i1 in T.unroll(8):
                if i0 * 8 + i1 + k < n:
                    C[i0 * 8 + i1] = C[i0 * 8 + i1] + T.float32(1.0)
""")
    assert "_left" not in hoisted(func)
    built = tw.build(func, ONE)
    for n in range(40):
        made = np.zeros(64, np.float32)
        built(made, n)
        np.testing.assert_array_equal(made, np.clip(n - np.arange(64), 0, 3))


def sums_by_lanes(kind: str, wide: int, around: int) -> Schedule:
    """Returns sums of a matrix padded by ``around`` at both sides of its rows, ``wide`` lanes at a time."""
    n = te.size_var("n")
    x = te.placeholder((n, n), name="x")
    r, c = te.reduce_axis((0, n), name="r"), te.reduce_axis((0, n + 2 * around), name="c")
    combine = {"sum": te.sum, "max": te.max}[kind]
    at = c - around
    value = te.if_then_else(te.all(at >= 0, at < n), x[r, at], 0.25) if around else x[r, c]
    sch = Schedule(te.create_prim_func([x, te.compute((), lambda: combine(value * value, axis=[r, c]), name="y")]))
    block = sch.get_block("y")
    _, columns = sch.get_loops(block)
    partial = sch.rfactor(sch.split(columns, [None, wide])[1], 0)
    sch.set_scope(partial, 0, "local")
    sch.vectorize(sch.get_loops(partial)[2])
    start = sch.decompose_reduction(partial, sch.get_loops(partial)[0])
    sch.vectorize(sch.get_loops(start)[0])
    return sch


@pytest.mark.parametrize("around", [0, 1, 5, 20])
@pytest.mark.parametrize(("kind", "wide"), [("sum", 64), ("max", 32), ("sum", 16)])
def test_sums_of_a_row_end_in_vectors_of_their_own(kind: str, wide: int, around: int) -> None:
    sch = sums_by_lanes(kind, wide, around)
    text = hoisted(sch.func)
    assert ("_left" in text) == (wide > 16)
    module = tw.build(sch, ONE)
    for n in (0, 1, 2, 11, 15, 16, 17, 31, 33, 54, 62, 63, 64, 65, 90, 128, 129):
        x = RNG.standard_normal((n, n), np.float32)
        y = np.full((), 7.0, np.float32)
        module(x, y)
        wide_x = np.pad(x, ((0, 0), (around, around)), constant_values=0.25).astype(np.float64) ** 2
        right = wide_x.sum() if kind == "sum" else wide_x.max(initial=-np.inf)
        np.testing.assert_allclose(y, right, rtol=1e-5)
