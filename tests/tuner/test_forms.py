"""The same work written in other forms: it gets the vectors, tiles and registers of the form that rules know."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import compile
from tilewright.te import ops
from tilewright.tuner import Space

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1"
NATIVE = "native -num-cores=1"


def compiled(*tensors, target=AVX512):
    return tw.build(te.create_prim_func([*tensors]), target=target)


def ph(*shape, name="A", dtype="float32"):
    return te.placeholder(shape, dtype, name)


def computed(out, *inputs):
    """The result on this machine of random inputs, and those; integers are small."""
    rng = np.random.default_rng(0)
    given = [rng.integers(0, 5, [int(e) for e in t.shape]).astype(str(t.dtype)) for t in inputs]
    made = np.zeros([int(e) for e in out.shape], str(out.dtype))
    compiled(*inputs, out, target=NATIVE)(*given, made)
    return made, given


@pytest.mark.parametrize(
    "shape", [(2, 16, 40, 40), (2, 64, 56, 56), (8, 64, 28, 28), (1, 3, 20, 20, 85), (3, 6, 20, 80)]
)
def test_elements_of_any_shape_are_vectors(shape):
    x = ph(*shape)
    lowered = compiled(x, ops.exp(x)).get_source("lowered")
    assert "T.Ramp" not in lowered.split("T.Let")[0]  # the place that is written is one stretch of memory
    assert "// T.Broadcast" not in lowered and "% T.Broadcast" not in lowered


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("columns", [2, 3, 5])
def test_short_rows_that_lie_side_by_side_are_one(columns, repeated):
    x = ph(18, 7, 16, columns)
    rows = 54 if repeated else 18
    out = te.compute((rows, 7, 14, columns), lambda i, j, h, v: te.sqrt(x[i // 3 if repeated else i, j, h + 1, v]))
    assert f"0:{columns}]" not in compiled(x, out).get_source("lowered")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, np.sqrt(x[:, :, 1:15].repeat(3, 0) if repeated else x[:, :, 1:15]))


def products():
    a, b, t, r = ph(20, 64), ph(64, 48, name="B"), ph(96, name="t", dtype="int32"), te.reduce_axis((0, 64), "r")
    wide = ph(96, 64)
    yield "rows that are looked up", te.compute((96, 48), lambda i, j: te.sum(a[t[i], r] * b[r, j], axis=r), name="rows"), (
        (a, b, t), lambda a, b, t: a[t] @ b)  # fmt: skip
    yield "columns that are looked up", te.compute((96, 96), lambda i, j: te.sum(wide[i, r] * b[r, t[j]], axis=r)), (
        (wide, b, t), lambda a, b, t: a @ b[:, t])  # fmt: skip
    yield "steps that are looked up", te.compute((96, 48), lambda i, j: te.sum(wide[i, t[r]] * b[r, j], axis=r)), (
        (wide, b, t), lambda a, b, t: a[:, t[:64]] @ b)  # fmt: skip
    x, w = ph(8, 15, 15), ph(16, 8, 3, 3, name="W")
    k, u, v = [te.reduce_axis((0, n)) for n in (8, 3, 3)]
    body = te.compute(
        (16, 28, 28), lambda f, i, j: te.sum(x[k, (i + u) // 2, (j + v) // 2] * w[f, k, u, v], axis=[k, u, v])
    )

    def upsampled(x, w):
        x = x.repeat(2, 1).repeat(2, 2)
        return sum(
            np.einsum("kij,fk->fij", x[:, a : a + 28, b : b + 28], w[:, :, a, b]) for a in range(3) for b in range(3)
        )

    yield "a convolution of an enlarged image", body, ((x, w), upsampled)


@pytest.mark.parametrize(("out", "case"), [pytest.param(o, c, id=n) for n, o, c in products()])
def test_products_read_what_they_gather_through_a_copy(out, case):
    inputs, reference = case
    scheduled = compiled(*inputs, out).get_source("tir")
    assert "T.vectorized" in scheduled
    assert "_reindex" in scheduled or out.op.name == "rows"  # rows of one factor are single numbers, wherever they lie
    made, given = computed(out, *inputs)
    np.testing.assert_array_equal(made, reference(*given))


def test_what_is_gathered_once_is_not_copied():
    a, t, r = ph(20, 64), ph(96, 4, name="t", dtype="int32"), te.reduce_axis((0, 4), "r")
    out = te.compute((96, 64), lambda i, j: te.sum(a[t[i, r], j], axis=r))
    assert "_reindex" not in compiled(a, t, out).get_source("tir")
    made, (a, t) = computed(out, a, t)
    np.testing.assert_array_equal(made, a[t].sum(1))


def test_a_product_with_one_column_has_vectors_along_rows():
    a, y, r = ph(64, 96), ph(64, 1, name="y"), te.reduce_axis((0, 64), "r")
    out = te.compute((96, 1), lambda i, j: te.sum(a[r, i] * y[r, j], axis=r), name="C")
    lowered = compiled(a, y, out).get_source("lowered")
    assert "A[" in lowered and "gather" not in compiled(a, y, out).get_source("ll")
    made, (a, y) = computed(out, a, y)
    np.testing.assert_array_equal(made, a.T @ y)


@pytest.mark.parametrize("extent", [7, 8, 12, 16, 17, 33])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_short_rows_are_added_up_as_vectors(extent, op):
    x = ph(40, extent)
    out = getattr(ops, op)(x, axis=1)
    assert "vector_reduce" in compiled(x, out).get_source("lowered")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, getattr(np, op)(x, axis=1))


@pytest.mark.parametrize("extent", [6, 8, 13])
@pytest.mark.parametrize("other", ["rows", "rows of columns", "one row", "sizes"])
def test_products_of_short_rows_are_added_up_as_vectors(extent, other):
    x, r = ph(24, 32, extent), te.reduce_axis((0, extent), "r")
    y = ph(*{"rows": (24, 32, extent), "rows of columns": (32, extent), "one row": (extent,), "sizes": (24, 32)}[other])

    def factor(i, j):
        return {"rows": (i, j, r), "rows of columns": (j, r), "one row": (r,), "sizes": (i, j)}[other]

    out = te.compute((24, 32), lambda i, j: te.sum(x[i, j, r] * y[factor(i, j)], axis=r), name="C")
    lowered = compiled(x, y, out).get_source("lowered")
    assert "vector_reduce" in lowered or "T.Shuffle" in lowered
    assert f"T.Ramp(0, {extent}" not in lowered  # no lanes of different rows
    made, (x, y) = computed(out, x, y)
    np.testing.assert_array_equal(made, (x * (y[..., None] if other == "sizes" else y)).sum(2))


@pytest.mark.parametrize(("shape", "axes"), [((64, 56, 56), (0, 2)), ((6, 96, 96), None), ((5, 7, 11), None)])
def test_reductions_over_several_axes(shape, axes):
    x = ph(*shape)
    out = ops.sum(x, axis=axes)
    lowered = compiled(x, out).get_source("lowered")
    assert "vector_reduce" in lowered and "// T.Broadcast" not in lowered
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.sum(axes))


def test_sums_of_odd_width_stay_in_registers():
    a, b, r = ph(3, 40, 12), ph(3, 40, 8, name="B"), te.reduce_axis((0, 40), "r")
    out = te.compute((3, 12, 8), lambda n, i, j: te.sum(a[n, r, i] * b[n, r, j], axis=r), name="C")
    lowered = compiled(a, b, out).get_source("lowered")
    sums = lowered[lowered.index("for r") :]
    assert 'scope="register"' in lowered and "T.Select" not in sums.split("row0")[0]
    made, (a, b) = computed(out, a, b)
    np.testing.assert_array_equal(made, np.einsum("nri,nrj->nij", a, b))


def test_a_transposed_operand_goes_through_squares():
    a, b = ph(64, 96), ph(96, 64, name="B")
    out = te.compute((64, 96), lambda i, j: a[i, j] + b[j, i], name="C")
    made = compiled(a, b, out)
    assert "gather" not in made.get_source("ll") and "T.Shuffle" in made.get_source("lowered")
    made, (a, b) = computed(out, a, b)
    np.testing.assert_array_equal(made, a + b.T)


@pytest.mark.parametrize("shape", [(96, 96), (3, 64, 64), (100, 100)])
def test_an_array_and_its_transpose_go_through_squares(shape):
    x = ph(*shape)
    out = te.compute(shape, lambda *at: 2.0 * x(*at) - x(*at[:-2], at[-1], at[-2]) * x(*at), name="C")
    made = compiled(x, out)
    assert "gather" not in made.get_source("ll") and "T.Shuffle" in made.get_source("lowered")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, 2 * x - x.swapaxes(-1, -2) * x)


@pytest.mark.parametrize("shape", [(33, 70), (197, 48)])
def test_a_flattened_transpose_goes_through_registers(shape):
    x = ph(*shape)
    out = ops.reshape(ops.transpose(x), (shape[0] * shape[1],))
    text = compiled(x, out).get_source("lowered")
    assert "// T.Broadcast" not in text and "% T.Broadcast" not in text
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.T.reshape(-1))


@pytest.mark.parametrize(("shape", "times"), [((16, 16, 65), (3, 3, 2)), ((5, 33), (1, 4)), ((7, 70), (2, 2))])
def test_repeated_rows_are_copied_by_vectors(shape, times):
    x = ph(*shape)
    out = ops.tile(x, times)
    assert "% T.Broadcast" not in compiled(x, out).get_source("lowered")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, np.tile(x, times))


@pytest.mark.parametrize("shape", [(3, 63, 63, 4), (7, 13, 3), (5, 7, 17)])
def test_short_rows_of_any_number_are_one_axis(shape):
    x = ph(*shape)
    out = te.compute(shape, lambda *at: x(*at) * 2.0 + 1.0, name="C")
    assert "A_flat" in compiled(x, out).get_source("lowered")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x * 2 + 1)


@pytest.mark.parametrize("first", ["transpose", "concatenate"])
def test_transposes_beside_concatenations_are_stored(first):
    """Tiles of one place are transposed in fast memory, so that the other places are not strided through."""
    x = ph(70, 33)
    turned = ops.transpose(x)
    out = ops.concatenate([turned, turned], 0) if first == "transpose" else None
    if out is None:
        doubled = ops.concatenate([x, x], 1)
        out = ops.transpose(te.compute(doubled.shape, lambda *at: doubled(*at) * 2.0, name="C"))
    made = compiled(x, out)
    assert "as written" not in made.origin and "masked.gather" not in made.get_source("ll")
    made, (x,) = computed(out, x)
    want = np.concatenate([x.T, x.T])
    np.testing.assert_array_equal(made, want if first == "transpose" else 2 * want)


@pytest.mark.parametrize("kind", ["repeated", "padded with edges", "gathered rows"])
def test_what_a_transpose_would_stride_through_is_stored(kind):
    """Rows that are copied at indices that are not affine are turned afterwards, and repeated ones once."""
    x = ph(70, 33)
    t = te.compute((64,), lambda i: te.cast("int64", i * i % 70), name="t")
    out = {
        "repeated": lambda: ops.tile(ops.transpose(x), (3, 1)),
        "padded with edges": lambda: ops.transpose(ops.pad(x, (2, 1), (0, 3), mode="edge")),
        "gathered rows": lambda: ops.transpose(te.compute((64, 33), lambda i, j: x[t[i], j], name="taken")),
    }[kind]()
    made = compiled(x, out)
    assert "as written" not in made.origin and "masked.gather" not in made.get_source("ll")
    made, (x,) = computed(out, x)
    rows = np.arange(64) ** 2 % 70
    want = {
        "repeated": np.tile(x.T, (3, 1)),
        "padded with edges": np.pad(x, ((2, 0), (1, 3)), "edge").T,
        "gathered rows": x[rows].T,
    }
    np.testing.assert_array_equal(made, want[kind])


@pytest.mark.parametrize("op", ["sum", "max"])
def test_rows_of_vectors_and_one_element_have_no_scalar_loop(op):
    """The last step has one lane: it is a masked vector of the sums in registers, whatever it is unrolled by."""
    x = ph(5, 65)
    func = te.create_prim_func([x, getattr(ops, op)(x, 1)])
    space = Space(func, AVX512, where={"accumulators": 2, "unroll": 2, "vectors": 1, "rows": 1})
    (sketch,) = [one for one in space.sketches if len(one.all_rows())]
    made = compile(space.schedule(sketch, sketch.all_rows()[0]).func, AVX512)
    assert "range(32)" not in made.get_source("lowered") and "predicate=" in made.get_source("lowered")
    data = np.random.default_rng(0).integers(-9, 9, (5, 65)).astype("float32")
    out = np.zeros(5, "float32")
    made(data, out)
    np.testing.assert_array_equal(out, getattr(data, op)(1))


@pytest.mark.parametrize("each", [2, 4, 8])
def test_lanes_near_one_another_come_from_one_vector(each):
    x = ph(128)
    out = te.compute((1024 // 8 * each,), lambda i: x[i // each] * 2.0)
    assert "masked.gather" not in compiled(x, out).get_source("ll")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.repeat(each) * 2)


@pytest.mark.parametrize("size", [960, 1000, 20])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float64"])
@pytest.mark.parametrize("count", [3, 5, 6, 7, 24])
def test_short_arrays_are_repeated_by_permutations(count, dtype, size):
    x, y = ph(2, size, dtype=dtype), ph(size, name="B", dtype=dtype)
    out = te.compute((2, size), lambda n, i: x[n, i] + y[i % count] + y[i // count])
    if dtype == "float32" and size > 20:
        assert "masked.gather" not in compiled(x, y, out).get_source("ll")
    made, (x, y) = computed(out, x, y)
    i = np.arange(size)
    np.testing.assert_array_equal(made, x + y[i % count] + y[i // count])


def test_lanes_of_two_arrays_are_interleaved():
    a, b = ph(128), ph(128, name="B")
    out = te.compute((256,), lambda i: te.if_then_else(i % 2 == 0, a[i // 2], b[i // 2]))
    assert "masked.gather" not in compiled(a, b, out).get_source("ll")
    made, (a, b) = computed(out, a, b)
    np.testing.assert_array_equal(made, np.stack([a, b], 1).reshape(-1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums_take_one_step_for_each_element(axis):
    x = ph(6, 40, 33)
    out = ops.cumsum(x, axis)
    made = compiled(x, out)
    assert "T.axis.scan" in made.get_source("tir")
    assert ("T.vectorized" if axis < 2 else "tir.horizontal_reduce") in made.get_source("tir")
    assert axis < 2 or "T.Shuffle" in made.get_source("lowered")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.cumsum(axis))


def test_running_sums_of_half_floats_add_up_in_float32():
    x = ph(3000, dtype="float16")
    out = ops.cumsum(x, 0)
    run, data = compiled(x, out, target=NATIVE), np.full(3000, 0.1, np.float16)
    made = np.zeros(3000, np.float16)
    run(data, made)
    np.testing.assert_allclose(made, data.astype(np.float64).cumsum(), rtol=1e-3)


def test_windows_of_windows_of_a_symbolic_size_are_computed_tile_by_tile():
    """The tiles of the last stage leave out rows of the one before that nothing reads."""

    def halved(x, size, name):
        r = te.reduce_axis((0, size), "r")
        rows = (x.shape[0] - size) // 2 + 1
        return te.compute((rows, 256), lambda i, j: te.sum(x[i * 2 + r, j], axis=r), name=name)

    x = ph(te.size_var("n"), 256)
    built = compiled(x, halved(halved(x, 3, "B"), 2, "C"), target=NATIVE)
    assert "whose steps apply to all sizes" not in built.origin
    for n in (5, 6, 7, 8, 9, 63, 64, 65, 66, 130):
        data = np.random.default_rng(n).integers(-9, 9, (n, 256)).astype("float32")
        first = np.stack([data[i : i + 3].sum(0) for i in range(0, n - 2, 2)])
        out = np.full((len(first) // 2, 256), np.nan, "float32")
        built(data, out)
        np.testing.assert_array_equal(out, first[: len(first) // 2 * 2].reshape(-1, 2, 256).sum(1))


SYMBOLIC = {
    "elements of four sizes": (ops.relu, [(2, 3, 5, 7)]),
    "a product with one column": (lambda x, y: ops.matmul(ops.transpose(x), y), [(9, 33), (9, 1)]),
    "a convolution of one image": (lambda x, w: ops.conv1d(x, w, padding=1), [(1, 4, 37), (6, 4, 3)]),
    "the sum of all": (ops.sum, [(9, 33)]),
    "the largest over outer axes": (lambda x: ops.max(x, axis=(0, 2)), [(5, 6, 70)]),
    "positions of the largest": (lambda x: ops.argmax(x, 1), [(9, 33)]),
    "running sums": (lambda x: ops.cumsum(x, 0), [(9, 33)]),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes_get_the_schedules_of_fixed_ones(name):
    make, shapes = SYMBOLIC[name]
    sizes = {e: te.var(f"n{e}") for shape in shapes for e in shape if e not in (1, 3)}
    symbolic = [ph(*[sizes.get(e, e) for e in shape], name=f"A{n}") for n, shape in enumerate(shapes)]
    fixed = [ph(*shape, name=f"A{n}") for n, shape in enumerate(shapes)]
    built = compiled(*symbolic, make(*symbolic), target=NATIVE)
    assert built.origin.startswith("the analytic model's best schedule for ") and "left as written" not in built.origin
    assert "T.vectorized" in built.get_source("tir") or "horizontal_reduce" in built.get_source("tir")
    out = make(*fixed)
    want, got = [np.zeros([int(e) for e in out.shape], str(out.dtype)) for _ in range(2)]
    given = [np.random.default_rng(n).integers(-4, 5, s).astype(np.float32) for n, s in enumerate(shapes)]
    compiled(*fixed, out, target=NATIVE)(*given, want)
    built(*given, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", [te.sum, te.max])
@pytest.mark.parametrize(("first", "step"), [(0, 1), (99, -1), (0, 2), (198, -2), (1, 3), (400, -4)])
def test_rows_read_backwards_or_in_steps_are_reduced_as_vectors(op, first, step):
    x, r = ph(40, 401), te.reduce_axis((0, 100), "r")
    out = te.compute((40,), lambda i: op(x[i, first + step * r], axis=r), name="C")
    made = compiled(x, out)
    assert "vector_reduce" in made.get_source("lowered") and "masked.gather" not in made.get_source("ll")
    made, (x,) = computed(out, x)
    places = first + step * np.arange(100)
    np.testing.assert_array_equal(made, (np.sum if op is te.sum else np.max)(x[:, places], axis=1))


def test_products_of_pairs_have_vectors_of_columns():
    a, b, r = ph(24, 40, 2), ph(40, 48, 2, name="B"), te.reduce_axis((0, 40), "r")
    out = te.compute((24, 48), lambda i, j: te.sum(a[i, r, 0] * b[r, j, 0] - a[i, r, 1] * b[r, j, 1], axis=r), name="C")
    assert "masked.gather" not in compiled(a, b, out).get_source("ll")
    made, (a, b) = computed(out, a, b)
    np.testing.assert_array_equal(made, a[..., 0] @ b[..., 0] - a[..., 1] @ b[..., 1])


SQUARES = ph(40, 40), ph(40, 40, name="B")


def triangles():
    a, b = SQUARES

    def reduced(op, begin, end, term):
        def body(*at):
            r = te.reduce_axis((begin(*at), end(*at)), "r")
            return op(term(*at, r), axis=r)

        return body

    def product(i, j, r):
        return a[i, r] * b[r, j]

    yield "lower", (40, 40), reduced(te.sum, lambda i, j: 0, lambda i, j: i + 1, product), lambda a, b: np.tril(a) @ b
    yield "upper", (40, 40), reduced(te.sum, lambda i, j: i, lambda i, j: 40, product), lambda a, b: np.triu(a) @ b
    yield "right", (40, 40), reduced(te.sum, lambda i, j: j, lambda i, j: 40, product), lambda a, b: a @ np.tril(b)
    yield "empty first row", (40,), reduced(te.sum, lambda i: 0, lambda i: i, lambda i, r: a[i, r] * b[i, r]), (
        lambda a, b: np.tril(a * b, -1).sum(1))  # fmt: skip
    yield "maximum", (40,), reduced(te.max, lambda i: i, lambda i: 40, lambda i, r: a[i, r] - b[i, r]), (
        lambda a, b: np.where(np.tri(40).T > 0, a - b, -np.inf).max(1))  # fmt: skip
    chosen = reduced(
        te.sum, lambda i, j: 0, lambda i, j: 40, lambda i, j, r: te.if_then_else(r <= i, product(i, j, r), 0.0)
    )
    yield "conditions", (40, 40), chosen, lambda a, b: np.tril(a) @ b


@pytest.mark.parametrize(("shape", "body", "reference"), [pytest.param(*case, id=n) for n, *case in triangles()])
def test_reductions_over_triangles_have_vectors(shape, body, reference):
    out = te.compute(shape, body, name="C")
    assert "T.vectorized" in compiled(*SQUARES, out).get_source("tir")
    made, (a, b) = computed(out, *SQUARES)
    np.testing.assert_array_equal(made, reference(a, b))


def test_a_narrow_band_is_no_rectangle():
    x = ph(96, 104)
    out = te.compute((96,), lambda i: (lambda r: te.sum(x[i, r], axis=r))(te.reduce_axis((i, i + 8), "r")), name="C")
    assert "if_then_else" not in compiled(x, out).get_source("tir")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, [x[i, i : i + 8].sum() for i in range(96)])


def test_triangles_of_symbolic_size():
    n = te.var("n")
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")

    def product(i, j):
        r = te.reduce_axis((0, i + 1), "r")
        return te.sum(a[i, r] * b[r, j], axis=r)

    out = te.compute((n, n), product, name="C")
    module = compiled(a, b, out, target=NATIVE)
    assert "T.vectorized" in module.get_source("tir")
    for size in (1, 17, 40, 100):
        x, y = np.random.default_rng(0).integers(0, 5, (2, size, size)).astype("float32")
        made = np.zeros((size, size), "float32")
        module(x, y, made)
        np.testing.assert_array_equal(made, np.tril(x) @ y, err_msg=str(size))


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
@pytest.mark.parametrize("shape", [(3, 40), (5, 129), (2, 3, 58)])
def test_padded_rows_are_vectors_without_gathers(mode, shape):
    x = te.placeholder(shape, name="x")
    before, after = [0] * (len(shape) - 2) + [1, 2], [0] * (len(shape) - 2) + [2, 1]
    args = [x, te.ops.pad(x, before, after, mode=mode)]
    module = compiled(*args)
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    np.testing.assert_array_equal(module(data), np.pad(data, list(zip(before, after, strict=True)), mode=mode))
    if mode != "wrap":  # whose first and last vectors come from both ends
        assert "masked.gather" not in module.get_source("ll")


CHOSEN = ph(4, 321), ph(4, 160, name="B"), ph(4, 8, name="few")


def chosen_forms():
    x, y, few = CHOSEN
    yield "every second", lambda i, j: (x[i, 2 * j + 1],) * 2, lambda x, y, few: (x[:, 1::2],) * 2
    yield "backwards", lambda i, j: (x[i, 320 - 2 * j],) * 2, lambda x, y, few: (x[:, :1:-2],) * 2
    yield "a third", lambda i, j: (x[i, j // 3],) * 2, lambda x, y, few: (x[:, np.arange(160) // 3],) * 2
    yield "another array", lambda i, j: (y[i, j], few[i, j % 8]), lambda x, y, few: (y, few[:, np.arange(160) % 8])


@pytest.mark.parametrize(("pair", "reference"), [pytest.param(*case, id=n) for n, *case in chosen_forms()])
def test_lanes_under_a_condition_are_picked_out_of_whole_vectors(pair, reference):
    def body(i, j):
        condition, value = pair(i, j)
        return te.if_then_else(condition > 2, value, te.const(-1, "float32"))

    out = te.compute((4, 160), body, name="C")
    assert "masked.gather" not in compiled(*CHOSEN, out).get_source("ll")
    made, given = computed(out, *CHOSEN)
    condition, value = reference(*given)
    np.testing.assert_array_equal(made, np.where(condition > 2, value, -1))


@pytest.mark.parametrize(("size", "by"), [(480, 3), (490, 3), (1000, 5), (640, 7)])
def test_reductions_by_quotients_have_vectors_without_gathers(size, by):
    x, y, r = ph(size), ph(-(-size // by), name="B"), te.reduce_axis((0, size), "r")
    out = te.compute((), lambda: te.sum(x[r] * y[r // by] + y[r % by], axis=r), name="C")
    assert "masked.gather" not in compiled(x, y, out).get_source("ll")
    made, (x, y) = computed(out, x, y)
    at = np.arange(size)
    np.testing.assert_array_equal(made, (x * y[at // by] + y[at % by]).sum())


@pytest.mark.parametrize("times", [2, 3, 4])
def test_results_that_repeat_are_stored_as_whole_vectors(times):
    x, r = ph(6, 5, 96), te.reduce_axis((0, 2), "r")
    out = te.compute((3, 5, 96 * times), lambda i, j, h: te.max(x[2 * i + r, j, h // times], axis=r), name="C")
    assert "masked.scatter" not in compiled(x, out).get_source("ll")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.reshape(3, 2, 5, 96).max(1).repeat(times, 2))


@pytest.mark.parametrize("rows", [4, 12])
def test_results_whose_contiguous_axis_is_far_in_an_operand_are_transposed_in_registers(rows):
    x, y, r = ph(rows, 14, 8), ph(rows, 8, 16, name="B"), te.reduce_axis((0, 8), "r")
    out = te.compute((14, 16, rows), lambda i, h, v: te.sum(x[v, i, r] * y[v, r, h], axis=r), name="C")
    text = compiled(x, y, out).get_source("ll")
    assert "masked.scatter" not in text and "masked.gather" not in text and "shufflevector" in text
    made, (x, y) = computed(out, x, y)
    np.testing.assert_array_equal(made, np.einsum("vir,vrh->ihv", x, y))


def test_vectors_lie_along_the_axis_that_is_contiguous_in_an_operand():
    x, y, r = ph(28, 28, 4, 14), ph(7, 14, 16, name="B"), te.reduce_axis((0, 14), "r")
    out = te.compute((16, 4, 28, 28), lambda i, j, h, v: te.sum(x[v, h, j, r] * y[v // 4, r, i], axis=r), name="C")
    text = compiled(x, y, out).get_source("ll")
    assert "masked.scatter" not in text and "masked.gather" not in text
    made, (x, y) = computed(out, x, y)
    np.testing.assert_array_equal(made, np.einsum("vhjr,vri->ijhv", x, y.repeat(4, 0)))


@pytest.mark.parametrize("width", [47, 48, 130])
def test_small_reductions_that_divide_their_axes_have_vectors_of_results(width):
    x, y = ph(5, 40, 2 * width), ph(5, 5, 4, 3, name="B")
    r, q = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, 2), "q")
    out = te.compute(
        (5, 19, width),
        lambda i, j, h: te.sum(x[i, 2 * j + r, 2 * h + q] * y[i, j // 4, h % 4, r], axis=[r, q]),
        name="C",
    )
    assert "T.vectorized" in compiled(x, y, out).get_source("tir")
    assert "masked.gather" not in compiled(x, y, out).get_source("ll") or width % 16
    made, (x, y) = computed(out, x, y)
    by = y[:, np.arange(19) // 4][:, :, np.arange(width) % 4]
    pairs = x.reshape(5, 40, width, 2).sum(3)
    np.testing.assert_array_equal(made, sum(pairs[:, n : n + 37 : 2] * by[..., n] for n in range(3)))


@pytest.mark.parametrize("columns", [14, 16, 28, 33, 64])
def test_registers_hold_the_exponentials_of_short_rows(columns):
    """They are stored for the sum and for the result, and are no array in memory; no lane of them is masked twice."""
    x = ph(48, columns)
    made = compiled(x, ops.softmax(x, 1))
    lowered = made.get_source("lowered")
    assert "T_softmax_exp = T.decl_buffer" not in lowered and 'scope="register"' in lowered
    rng = np.random.default_rng(0)
    given, got = rng.standard_normal((48, columns)).astype("float32"), np.zeros((48, columns), "float32")
    compiled(x, ops.softmax(x, 1), target=NATIVE)(given, got)
    want = np.exp(given - given.max(1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(1, keepdims=True), rtol=3e-6)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3, 130, 66), "float16"), ((2, 28, 66), "float32"), ((40, 65, 9), "int8")]
)
def test_transposes_of_any_length_go_through_registers(shape, dtype):
    x = ph(*shape, dtype=dtype)
    out = ops.transpose(x, (0, 2, 1))
    lowered = compiled(x, out).get_source("lowered")
    assert "T.Shuffle" in lowered and "A[i0, T.Ramp" not in lowered
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.transpose(0, 2, 1))


@pytest.mark.parametrize("shape", [(20, 3, 33), (5, 4, 3, 33), (30, 2, 33)])
def test_a_transpose_whose_rows_are_divided_goes_through_registers(shape):
    x = ph(33, 60)
    out = ops.reshape(ops.transpose(x, (1, 0)), shape)
    lowered = compiled(x, out).get_source("lowered")
    assert "T.Shuffle" in lowered and "A[T.Ramp" not in lowered and "A.vload([T.Ramp" not in lowered
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, x.T.reshape(shape))


@pytest.mark.parametrize("size", [4, 16, 64])
def test_the_largest_along_fixed_and_symbolic_axes_has_vectors(size):
    n = te.var("n")
    x = te.placeholder((48, 16, n // 2), name="A")
    r = [te.reduce_axis((0, e), f"r{k}") for k, e in enumerate(x.shape)]
    y = te.placeholder((n,), name="B")
    out = te.compute((), lambda: te.max(x[r[0], r[1], r[2]], axis=r), name="C")
    double = te.compute((n,), lambda i: y[i] * 2, name="D")
    built = compiled(x, y, out, double, target=NATIVE)
    assert "not scheduled" not in built.origin and "vector_reduce" in built.get_source("lowered")
    rng = np.random.default_rng(0)
    given = rng.standard_normal((48, 16, size // 2)).astype(np.float32), rng.standard_normal(size).astype(np.float32)
    made = np.zeros((), np.float32), np.zeros(size, np.float32)
    built(*given, *made)
    np.testing.assert_array_equal(made[0], given[0].max())
    np.testing.assert_array_equal(made[1], 2 * given[1])


def test_results_that_are_the_same_along_axes_are_computed_once():
    x, r = ph(14, 64, 28, 26), te.reduce_axis((0, 26), "r")
    out = te.compute((14, 256, 84), lambda i, j, h: te.min(x[i, j % 64, h // 3, r], axis=r), name="C")
    text = compiled(x, out).get_source("tir")
    assert "C_once" in text
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, np.tile(x.min(3), (1, 4, 1)).repeat(3, 2))


def test_stages_of_a_row_whose_axes_lie_apart_are_not_joined():
    x, t = ph(98, 100), ph(100, name="T", dtype="int32")
    taken = te.compute((98, 100), lambda i, j: x[i, t[j]], name="taken")
    r = [te.reduce_axis((0, e), f"r{e}") for e in (98, 100)]
    out = te.compute((), lambda: te.sum(taken[r[0], r[1]], axis=r), name="C")
    assert "// 100" not in compiled(x, t, out).get_source("tir")
    made, (x, t) = computed(out, x, t)
    np.testing.assert_array_equal(made, x[:, t].sum())


@pytest.mark.parametrize("steps", [250, 331])
def test_an_operand_by_remainders_of_the_steps_is_turned(steps):
    x, y, r = ph(steps, 96), ph(96, 8, name="B"), te.reduce_axis((0, steps), "r")
    out = te.compute((96,), lambda i: te.min(x[r, i] * y[i, r % 8], axis=r), name="C")
    assert "gather" not in compiled(x, y, out).get_source("ll")
    made, (x, y) = computed(out, x, y)
    np.testing.assert_array_equal(made, (x * y.T[np.arange(steps) % 8]).min(0))


@pytest.mark.parametrize("chosen", [False, True])
def test_running_sums_of_chosen_elements_are_not_turned(chosen):
    """What a condition chooses is no square to transpose: with rows as lanes it would be gathered."""
    x = ph(12, 32, 22)

    def element(i, j, h):
        return te.if_then_else((h + i) % 2 < 1, x[i, j, h], 1.0) if chosen else x[i, j, h] * 2.0

    out = ops.cumsum(te.compute((12, 32, 22), element, name="chosen"), 2)
    space = Space(te.create_prim_func([x, out]), AVX512)
    (part,) = {part for sketch in space.sketches for part in sketch.parts if part.name.startswith("recurrence")}
    assert [d.name for d in part.decisions] == (["rows", "within"] if chosen else ["rows", "turned", "within"])
    made, (x,) = computed(out, x)
    even = (np.arange(22) + np.arange(12)[:, None, None]) % 2 < 1
    np.testing.assert_allclose(made, (np.where(even, x, 1.0) if chosen else x * 2).cumsum(2), rtol=1e-4, atol=1e-4)


SHORT = {
    "repeated": ((9, 4, 2), lambda x, i, j, h: x[i, j % 4, h]),
    "divided": ((9, 24, 3), lambda x, i, j, h: x[i, j // 2, h]),
    "backwards": ((9, 24, 3), lambda x, i, j, h: x[i, 23 - j, h]),
    "in steps": ((9, 48, 3), lambda x, i, j, h: x[i, 2 * j + 1, h]),
    "bordered": ((9, 22, 3), lambda x, i, j, h: te.if_then_else(te.all(j >= 1, j < 23), x[i, j - 1, h], 0.0)),
    "by columns": ((24, 2), lambda x, i, j, h: x[j, h]),
}


@pytest.mark.parametrize("form", SHORT)
@pytest.mark.parametrize("target", [AVX512, "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell -num-cores=1"])
def test_short_axes_fill_vectors_together(form, target):
    """Their lanes are known in iterations of whole periods, so that nothing is gathered."""
    shape, element = SHORT[form]
    x = ph(*shape)
    out = te.compute((9, 24, shape[-1]), lambda *i: element(x, *i) * 2.0, name="C")
    built = compiled(x, out, target=target)
    assert "fused" in built.get_source("tir")
    assert form == "in steps" or "gather" not in built.get_source("ll")
    made, (x,) = computed(out, x)
    i, j, h = np.indices(made.shape)
    kept = (j >= 1) & (j < 23) if form == "bordered" else True
    read = {"bordered": (i, np.clip(j - 1, 0, 21), h), "by columns": (j, h), "repeated": (i, j % 4, h)}
    read |= {"divided": (i, j // 2, h), "backwards": (i, 23 - j, h), "in steps": (i, 2 * j + 1, h)}
    np.testing.assert_array_equal(made, np.where(kept, x[read[form]], 0) * 2)


@pytest.mark.parametrize("shape", [(4096,), (50, 1000), (300, 32), (9, 7)])
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_running_sums_along_the_last_axis_are_prefix_sums_of_vectors(op, shape):
    x = ph(*shape)
    out = getattr(ops, op)(x, len(shape) - 1)
    built = compiled(x, out)
    assert "shufflevector" in built.get_source("ll") and "gather" not in built.get_source("ll")
    made, (x,) = computed(out, x)
    np.testing.assert_allclose(made, getattr(np, op)(x.astype("float64"), -1), rtol=1e-4, atol=1e-3)


def test_costly_elements_of_few_steps_are_computed_as_vectors_before():
    x = ph(50, 30, 2)
    out = ops.cumsum(te.compute((50, 30, 2), lambda i, j, h: te.tanh(x[i, 29 - j, h]), name="costly"), 2)
    assert "T.vectorized" in compiled(x, out).get_source("tir")
    made, (x,) = computed(out, x)
    np.testing.assert_allclose(made, np.tanh(x[:, ::-1]).cumsum(2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [9, 12, 16, 20])
def test_results_beside_each_other_that_are_looked_up_are_vectors(columns):
    x, t, y = ph(40, 33, columns), ph(columns, name="T", dtype="int32"), ph(40, name="B")
    r = te.reduce_axis((0, 3), "r")
    out = te.compute((40, 16, columns), lambda i, j, h: te.sum(te.sqrt(x[i, 2 * j + r, t[h]]) * y[i], axis=r), name="C")
    text = compiled(x, t, y, out).get_source("tir")
    assert "T.vectorized" in text and "rf" not in text
    made, (x, t, y) = computed(out, x, t, y)
    taken = np.sqrt(x[:, :, t])
    np.testing.assert_allclose(made, (taken[:, 0:32:2] + taken[:, 1:33:2] + taken[:, 2:33:2]) * y[:, None, None], 1e-5)


@pytest.mark.parametrize("shared", ["none", "the turned one", "the other one"])
def test_inputs_that_lie_across_each_other_are_turned(shared):
    """Whatever vectors are made of, one of the two would be gathered."""
    rows, steps, columns = 12, 33, 40
    x = ph(steps, columns) if shared == "the other one" else ph(steps, rows, columns)
    y = ph(columns, steps, name="B") if shared == "the turned one" else ph(rows, columns, steps, name="B")
    r = te.reduce_axis((0, steps), "r")
    out = te.compute(
        (rows, columns),
        lambda i, j: te.sum(x[(r, j) if x.ndim == 2 else (r, i, j)] * y[(j, r) if y.ndim == 2 else (i, j, r)], axis=r),
        name="C",
    )
    built = compiled(x, y, out)
    assert ("A_global" if shared == "the other one" else "B_global") in built.get_source("tir")
    assert "gather" not in built.get_source("ll")
    made, (x, y) = computed(out, x, y)
    x = x[:, None] if x.ndim == 2 else x
    np.testing.assert_array_equal(made, (x * np.moveaxis(y, -1, 0).reshape(steps, -1, columns)).sum(0))


def test_an_array_and_its_transpose_are_read_where_they_lie():
    x, r = ph(40, 40), te.reduce_axis((0, 40), "r")
    out = te.compute((40,), lambda i: te.sum(x[i, r] * x[r, i], axis=r), name="C")
    assert "global" not in compiled(x, out).get_source("tir").replace('scope="global"', "")
    made, (x,) = computed(out, x)
    np.testing.assert_array_equal(made, (x * x.T).sum(1))


def test_an_array_that_is_looked_up_by_rows_is_turned_in_tiles():
    x, t = ph(20, 48, 64), ph(96, name="T", dtype="int32")
    turned = te.compute((64, 96, 48), lambda i, j, k: x[t[j], k, i], name="turned")
    assert "gather" not in compiled(x, t, turned).get_source("ll")
    made, (x, t) = computed(turned, x, t)
    np.testing.assert_array_equal(made, x[t].transpose(2, 0, 1))


def test_short_sums_over_halved_places_keep_their_vectors():
    x, w, r = ph(400), ph(100, 2, name="W"), te.reduce_axis((0, 2), "r")
    out = te.compute((200,), lambda i: te.sum(te.sqrt(x[2 * i + r]) * w[i // 2, r], axis=r), name="C")
    text = compiled(x, w, out).get_source("tir")
    assert "(100, 2), scope" not in text and "T.vectorized(16)" in text
    made, (x, w) = computed(out, x, w)
    expected = (np.sqrt(x).reshape(200, 2) * w.repeat(2, 0)).sum(1)
    np.testing.assert_allclose(made, expected, 1e-6)


def test_steps_that_go_far_are_rows_of_results():
    """Rows that are gathered would read each line once for each result; beside each other results share lines."""
    x, y, r = ph(48, 96, 64), ph(3, 96, 64, name="B"), [te.reduce_axis((0, 24), "r"), te.reduce_axis((0, 96), "s")]
    out = te.compute((32,), lambda i: te.sum(x[2 * r[0], r[1], 2 * i] * y[r[0] % 3, r[1], 2 * i + 1], axis=r), name="C")
    assert "rf" not in compiled(x, y, out).get_source("tir")
    made, (x, y) = computed(out, x, y)
    np.testing.assert_array_equal(made, (x[::2, :, ::2] * np.tile(y, (8, 1, 1))[:, :, 1::2]).sum((0, 1)))


@pytest.mark.parametrize("columns", [1000, 37])
def test_looked_up_columns_are_reduced_by_steps(columns):
    """Some rows at a time are added to all results, so that each row is read once; few columns are summed in registers."""
    x, places, r = ph(500, 1000), ph(columns, name="t", dtype="int32"), te.reduce_axis((0, 500), name="r")
    out = te.compute((columns,), lambda i: te.max(x[r, places[i]], axis=r), name="out")
    func = te.create_prim_func([x, places, out])
    space = Space(func, tw.Target(AVX512))
    sketch = next(s for s in space.sketches if s.name.startswith("columns"))
    rng = np.random.default_rng(0)
    given = rng.standard_normal((500, 1000)).astype("float32"), rng.integers(0, 1000, columns).astype("int32")
    for row in sketch.all_rows():
        made = np.full(columns, np.nan, "float32")
        tw.build(space.schedule(sketch, [int(n) for n in row]), NATIVE)(*given, made)
        np.testing.assert_array_equal(made, given[0][:, given[1]].max(0))
    best = dict(zip([d.name for d in sketch.decisions], space.best_rows(sketch, 1)[0], strict=True))
    assert best["steps"] > 0 or columns == 37


@pytest.mark.parametrize("last", [12, 5])
def test_a_run_of_short_axes_is_summed_as_one(last):
    """The innermost two axes are one run of memory, though the factor moves along the outermost one: vectors stay full."""
    x, y = ph(96, 48, last), ph(192, name="y")
    r = [te.reduce_axis((0, n), name=f"r{n}") for n in (96, 48, last)]
    out = te.compute((), lambda: te.sum(x[r[0], r[1], r[2]] * y[2 * r[0]], axis=r), name="out")
    made, (a, b) = computed(out, x, y)
    assert made == (a * b[::2, None, None]).sum()
    lowered = compiled(x, y, out).get_source("lowered")
    assert "T.Ramp" not in lowered and "masked" not in lowered.split("for")[1]
