"""The canonical form: stages of one element and divided axes do not keep rules from tiles, and traces replay."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.driver.building import plan
from tilewright.schedule import Schedule, Trace
from tilewright.tir import assert_structural_equal, parse
from tilewright.tir.expr import FloorMod, IntImm
from tilewright.tir.interpret import interpret
from tilewright.tir.walk import pre_order
from tilewright.tuner import Space, default_schedule
from tilewright.tuner.canonical_form import bring_into_canonical_form, split_axes_by_sizes, write_in_order

WIDE = Target("llvm -mcpu=x86-64-v3 -num-cores=1")
THREADS = Target("llvm -mcpu=x86-64-v3 -num-cores=2")


def number(name):
    return te.placeholder((), name=name)


def scalar(value, name):
    return te.compute((), value, name=name)


def product(a, b, rows=24, columns=48, steps=16, name="acc"):
    r = te.reduce_axis((0, steps), name="r")
    return te.compute((rows, columns), lambda i, j: te.sum(a(i, r) * b(r, j), axis=r), name=name)


def operands(a=(24, 16), b=(16, 48)):
    return te.placeholder(a, name="A"), te.placeholder(b, name="B")


def scaled(*, by, before=False, after=True):
    """A product times a number that is computed from two others: in its operand, or in its result."""
    A, B = operands()
    s, t = number("s"), number("t")
    u = scalar(lambda: by(s(), t()), "u")
    acc = product(lambda i, r: A[i, r] * u() if before else A[i, r], lambda r, j: B[r, j])
    out = te.compute((24, 48), lambda i, j: acc[i, j] * u() + 1.0, name="y") if after else acc
    return te.create_prim_func([A, B, s, t, out])


def zero_point():
    """The scale and the zero point of all values, from their minimum and maximum, as in QuantizeLinear."""
    A, B = operands()
    axes = [te.reduce_axis((0, n), name=f"k{m}") for m, n in enumerate((24, 16, 24, 16))]
    hi = scalar(lambda: te.max(A[axes[0], axes[1]], axis=axes[:2]), "hi")
    lo = scalar(lambda: te.min(A[axes[2], axes[3]], axis=axes[2:]), "lo")
    scale = scalar(lambda: (te.max(hi(), 0.0) - te.min(lo(), 0.0)) / 255.0, "scale")
    zero = scalar(lambda: te.round(-te.min(lo(), 0.0) / scale()), "zero")
    q = te.compute((24, 16), lambda i, j: te.round(A[i, j] / scale()) + zero(), name="q")
    acc = product(lambda i, r: q[i, r] - zero(), lambda r, j: B[r, j])
    return te.create_prim_func([A, B, te.compute((24, 48), lambda i, j: acc[i, j] * scale(), name="y")])


def row_scale():
    A, B = operands()
    k = te.reduce_axis((0, 16), name="k")
    largest = te.compute((24,), lambda i: te.max(te.abs(A[i, k]), axis=k), name="largest")
    scale = te.compute((24,), lambda i: largest[i] / 127.0, name="scale")
    q = te.compute((24, 16), lambda i, j: te.round(A[i, j] / scale[i]), name="q")
    acc = product(lambda i, r: q[i, r], lambda r, j: B[r, j])
    return te.create_prim_func([A, B, te.compute((24, 48), lambda i, j: acc[i, j] * scale[i], name="y")])


def divided(a, b, left, right, **sizes):
    A, B = operands(a, b)
    return te.create_prim_func([A, B, product(lambda i, r: left(A, i, r), lambda r, j: right(B, r, j), **sizes)])


def plain(X, *index):
    return X[index]


def attention(kv, group, depth=16, length=24):
    """One token of grouped queries: several heads share keys and values."""
    heads = kv * group
    q = te.placeholder((heads, depth), name="q")
    K, V = te.placeholder((kv, length, depth), name="K"), te.placeholder((kv, length, depth), name="V")
    r, u = te.reduce_axis((0, depth), name="r"), te.reduce_axis((0, length), name="u")
    s = te.compute((heads, length), lambda h, t: te.sum(q[h, r] * K[h // group, t, r], axis=r), name="s")
    p = te.ops.softmax(s)
    o = te.compute((heads, depth), lambda h, j: te.sum(p[h, u] * V[h // group, u, j], axis=u), name="o")
    return te.create_prim_func([q, K, V, o])


def grouped_convolution():
    x, w = te.placeholder((1, 16, 12, 12), name="x"), te.placeholder((24, 4, 3, 3), name="w")
    c, y, v = (te.reduce_axis((0, n), name=name) for n, name in ((4, "c"), (3, "y"), (3, "v")))
    out = te.compute(
        (1, 24, 10, 10),
        lambda n, f, i, j: te.sum(x[n, f // 6 * 4 + c, i + y, j + v] * w[f, c, y, v], axis=[c, y, v]), name="out",
    )  # fmt: skip
    return te.create_prim_func([x, w, te.ops.relu(out)])


SCALED = {
    "result": lambda: scaled(by=lambda s, t: s * t),
    "result, divided": lambda: scaled(by=lambda s, t: s / t),
    "result, many operations": lambda: scaled(by=lambda s, t: te.tanh(te.exp(s) / t)),
    "operand": lambda: scaled(by=lambda s, t: s * t, before=True, after=False),
    "operand and result": lambda: scaled(by=lambda s, t: s / t, before=True),
    "zero point": zero_point,
    "row scale": row_scale,
}
DIVIDED = {
    "i // 4": lambda: divided((6, 16), (16, 48), lambda A, i, r: A[i // 4, r], plain),
    "i // 3 and i % 3": lambda: divided((8, 3, 16), (16, 48), lambda A, i, r: A[i // 3, i % 3, r], plain),
    "i % 8": lambda: divided((8, 16), (16, 48), lambda A, i, r: A[i % 8, r], plain),
    "three digits": lambda: divided(
        (2, 3, 4, 16), (16, 48), lambda A, i, r: A[i // 12, i // 4 % 3, i % 4, r], plain
    ),
    "r // 4": lambda: divided((24, 16), (4, 48), plain, lambda B, r, j: B[r // 4, j]),
    "j // 2": lambda: divided((24, 16), (16, 24), plain, lambda B, r, j: B[r, j // 2]),
    "attention 4 x 2": lambda: attention(4, 2),
    "attention 2 x 3": lambda: attention(2, 3),
    "attention 2 x 8": lambda: attention(2, 8, length=13),
    "grouped convolution": grouped_convolution,
}  # fmt: skip


def check_candidates(func, target, rows=1):
    """The default schedule and the best rows of some sketches give the interpreter's numbers, and replay."""
    rng = np.random.default_rng(3)
    args = [rng.standard_normal([int(n) for n in func.buffer_map[p].shape]) for p in func.params]
    args = [np.asarray(a if np.ndim(a) else abs(a) + 1, "float32") for a in args]
    expected = args[-1].copy()
    interpret(func, *args[:-1], expected)
    space = Space(func, target)
    schedules = [default_schedule(func, target)]
    schedules += [space.schedule(sketch, row) for sketch in space.sketches[:3] for row in space.best_rows(sketch, rows)]
    for sch in schedules:
        again = Schedule(func)
        Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
        assert_structural_equal(again.func, sch.func)
        out = np.zeros_like(expected)
        tw.codegen.compile(sch.func, target)(*args[:-1], out)
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    return space, schedules[0]


@pytest.mark.parametrize("target", [WIDE, THREADS], ids=["one thread", "threads"])
@pytest.mark.parametrize("name", SCALED)
def test_stages_of_one_element(name, target):
    space, default = check_candidates(SCALED[name](), target)
    assert not space.left
    assert all("tile_acc_" in sketch.name or "fused" in sketch.name for sketch in space.sketches)
    assert "T.vectorized" in default.func.script()


@pytest.mark.parametrize(("name", "target"), [
    *((name, WIDE) for name in DIVIDED),
    *((name, THREADS) for name in ("i // 4", "attention 2 x 3", "grouped convolution")),
    ("i // 4", Target("gpu-sim")), ("attention 2 x 3", Target("gpu-sim")),
], ids=str)  # fmt: skip
def test_divided_axes(name, target):
    space, _ = check_candidates(DIVIDED[name](), target)
    assert not space.left
    assert target.is_gpu or any("tile_" in sketch.name for sketch in space.sketches)
    assert all(use.affine for block in space.program.blocks if block.is_reduction for use in block.loads)


def test_the_scale_is_computed_with_the_tile():
    """The stage between the sums and what reads them is no obstacle to an epilogue in registers."""
    space = Space(scaled(by=lambda s, t: s / t), WIDE)
    assert space.inlined == ["u"]
    assert {sketch.name for sketch in space.sketches} == {
        sketch.name for sketch in Space(scaled(by=lambda s, t: 2.0), WIDE).sketches
    }


def test_what_inlining_leaves_is_brought_into_form():
    """The stage is the same along h, so the sums of it are computed once."""
    A, r = te.placeholder((24, 16), name="A"), te.reduce_axis((0, 16), name="r")
    stage = te.compute((24, 8, 16), lambda i, h, r: A[i, r] * 2.0, name="stage")
    acc = te.compute((24, 8), lambda i, h: te.sum(stage[i, h, r], axis=r), name="acc")
    space, _ = check_candidates(te.create_prim_func([A, acc]), WIDE)
    assert "stage" in space.inlined
    assert [b.spatial_size for b in space.program.blocks if b.is_reduction] == [24]


@pytest.mark.parametrize(("by", "divided"), [(4, False), (32, True)])
def test_rows_whose_vectors_would_become_short_are_not_divided(by, divided):
    """One sum of all elements: its vectors go along the row, which is read again and again."""
    A = te.placeholder((24, by), name="A")
    i, r = te.reduce_axis((0, 24), name="i"), te.reduce_axis((0, 96), name="r")
    func = te.create_prim_func(
        [A, te.compute((), lambda: te.sum(te.if_then_else(r < 90, A[i, r % by], 0.0), axis=[i, r]), name="acc")]
    )
    space, _ = check_candidates(func, WIDE)
    (block,) = [b for b in space.program.blocks if b.is_reduction]
    assert (len(block.reduce) == 3) == divided


@pytest.mark.parametrize("rows", [24, 25])
def test_what_axes_that_do_not_divide_address_is_copied(rows):
    """Divisors of which none divides the next: the axes stay, and the product reads a copy laid out by them."""
    func = divided((10, 16), (16, 48), lambda A, i, r: A[i // 5 + i // 7, r], plain, rows=rows)
    sch = Schedule(func)
    bring_into_canonical_form(sch)
    assert [step.kind.name for step in sch.trace.insts if "eindex" in step.kind.name] == ["reindex"]
    check_candidates(func, WIDE)


def test_a_buffer_that_is_read_elsewhere_keeps_its_shape():
    """The sums are also read one row later, so their buffer is not split. The product has its tiles all the same."""
    A, B = operands((6, 16), (16, 48))
    acc = product(lambda i, r: A[i // 4, r], lambda r, j: B[r, j])
    y = te.compute((23, 48), lambda i, j: acc[i, j] - acc[i + 1, j], name="y")
    space, _ = check_candidates(te.create_prim_func([A, B, y]), WIDE)
    assert any("tile_acc" in sketch.name for sketch in space.sketches)


def test_buffers_of_one_name():
    """Two buffers inside the function have the name T; each is split by what divides its own axis."""
    text = """
@T.prim_func
def main(A: T.Buffer((6, 16)), B: T.Buffer((8, 24)), C: T.Buffer((24,)), D: T.Buffer((24,))):
    S = T.alloc_buffer((24,))
    T_1 = T.alloc_buffer((24,))
    for i, k in T.grid(24, 16):
        with T.block("one"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = T.float32(0)
            S[vi] = S[vi] + (A[vi // 4, vk] + A[vi % 4, vk])
    for i, k in T.grid(24, 24):
        with T.block("two"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                T_1[vi] = T.float32(0)
            T_1[vi] = T_1[vi] + (B[vi // 3, vk] + B[vi % 3, vk])
    for i in range(24):
        with T.block("three"):
            vi = T.axis.spatial(24, i)
            C[vi] = S[vi]
    for i in range(24):
        with T.block("four"):
            vi = T.axis.spatial(24, i)
            D[vi] = T_1[vi]
"""
    func = parse(text)
    sch = Schedule(func)
    bring_into_canonical_form(sch)
    assert [tuple(map(int, b.shape)) for b in sch.func.body.block.alloc_buffers] == [(6, 4), (8, 3)]
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((6, 16)).astype("float32"), rng.standard_normal((8, 24)).astype("float32")
    c, d = np.zeros(24, "float32"), np.zeros(24, "float32")
    interpret(sch.func, a, b, c, d)
    np.testing.assert_allclose(c, np.repeat(a.sum(1), 4) + np.tile(a.sum(1)[:4], 6), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(d, np.repeat(b.sum(1), 3) + np.tile(b.sum(1)[:3], 8), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("group", [2, 3, 4])
def test_a_symbolic_number_of_groups(group):
    """The schedule of an example replays with n groups: n * group heads."""
    n = te.var("n")
    A, B = te.placeholder((n * group, 24, 16), name="A"), te.placeholder((n, 16, 32), name="B")
    r = te.reduce_axis((0, 16), name="r")
    C = te.compute(
        (n * group, 24, 32), lambda h, i, j: te.sum(A[h, i, r] * B[h // group, r, j], axis=r), name="C"
    )  # fmt: skip
    module = tw.build([A, B, C], target=WIDE)
    for size in (1, 2, 5, 0):
        rng = np.random.default_rng(size)
        a = rng.standard_normal((size * group, 24, 16)).astype("float32")
        b = rng.standard_normal((size, 16, 32)).astype("float32")
        out = np.zeros((size * group, 24, 32), "float32")
        module(a, b, out)
        np.testing.assert_allclose(out, a @ np.repeat(b, group, 0), rtol=1e-4, atol=1e-4)


BY_SIZES = {
    "i % n": (lambda n: 4 * n, lambda n: n),
    "i % (n - 2)": (lambda n: 4 * (n - 2), lambda n: n - 2),
    "i % (n // 2)": (lambda n: 3 * (n // 2), lambda n: n // 2),
    "i % (2 * n)": (lambda n: 8 * n, lambda n: 2 * n),
}


@pytest.mark.parametrize("read_later", [False, True], ids=["", "read through a table"])
@pytest.mark.parametrize("name", BY_SIZES)
def test_axes_divided_by_a_symbolic_size(name, read_later):
    """The axis becomes two, by the size itself. The sums that a table reads are copied from ones of two dimensions."""
    long, short = BY_SIZES[name]
    n = te.var("n")
    A, B = te.placeholder((long(n), 16), name="A"), te.placeholder((short(n), 16), name="B")
    t = te.placeholder((long(n),), "int32", name="t")
    r = te.reduce_axis((0, 16), name="r")
    acc = te.compute((long(n),), lambda i: te.sum(A[i, r] * B[i % short(n), r], axis=r), name="acc")
    u = te.placeholder((n,), name="u")  # from which n is known
    out = te.compute((long(n),), lambda i: (acc[t[i]] if read_later else acc[i]) + u[0], name="out")
    func = te.create_prim_func([u, A, B, t, out] if read_later else [u, A, B, out])
    made = plan(func, target=WIDE)
    assert made.origin.startswith("the analytic model's best schedule for n = 64")
    split = Schedule(func)
    split_axes_by_sizes(split)
    assert [step.kind.name for step in split.trace.insts if "block_layout" in step.kind.name]
    assert not any(isinstance(node, FloorMod) for node in pre_order(split.func.body))
    assert_symbolic_trace(func, made)
    module = made.compile()
    for size in (1, 2, 3, 4, 9, 33, 64, 65):
        if (rows := short(size)) < 1:
            continue
        rng = np.random.default_rng(size)
        a = rng.integers(-4, 5, (long(size), 16)).astype("float32")
        b = rng.integers(-4, 5, (rows, 16)).astype("float32")
        table = rng.integers(0, len(a), len(a)).astype("int32")
        result = np.full(len(a), np.nan, "float32")
        sums = (a * np.tile(b, (len(a) // rows, 1))).sum(1)
        module(np.ones(size, "float32"), a, b, *([table] if read_later else []), result)
        np.testing.assert_array_equal(result, (sums[table] if read_later else sums) + 1, err_msg=str(size))


def assert_symbolic_trace(func, made):
    """Asserts that the steps of a plan replay on the function as written, whatever its size."""
    again = Schedule(func)
    Trace.from_json(made.trace.dumps()).apply_to_schedule(again)
    assert "T.vectorized" in again.func.script()


@pytest.mark.parametrize("both", [False, True], ids=["the last axis", "both axes"])
def test_element_wise_axes_divided_by_a_symbolic_size(both):
    """Rows that repeat are read without remainders, and in vectors."""
    n = te.var("n")
    x = te.placeholder((3, 4 * n), name="x")
    row = (lambda i: i % n) if both else (lambda i: i % 3)
    count = 2 * n if both else 6
    y = te.placeholder((n if both else 3, n), name="y")
    out = te.compute((count, 4 * n), lambda i, h: x[i % 3, h] + y[row(i), h % n], name="out")
    func = te.create_prim_func([x, y, out])
    made = plan(func, target=WIDE)
    divided = [k for k in pre_order(made.scheduled.body) if isinstance(k, FloorMod) and not isinstance(k.b, IntImm)]
    assert not divided
    assert_symbolic_trace(func, made)
    module = made.compile()
    for size in (1, 2, 7, 16, 17, 61, 64, 65):
        rng = np.random.default_rng(size)
        a = rng.random((3, 4 * size), np.float32)
        b = rng.random((size if both else 3, size), np.float32)
        rows = 2 * size if both else 6
        result = np.full((rows, 4 * size), np.nan, "float32")
        module(a, b, result)
        wanted = a[np.arange(rows) % 3] + np.tile(b, (rows // len(b), 4))
        np.testing.assert_array_equal(result, wanted, err_msg=str(size))


def test_a_size_that_does_not_divide_the_axis_stays():
    n = te.var("n")
    A, B = te.placeholder((4 * n + 1, 16), name="A"), te.placeholder((n, 16), name="B")
    r = te.reduce_axis((0, 16), name="r")
    out = te.compute((4 * n + 1,), lambda i: te.sum(A[i, r] * B[i % n, r], axis=r), name="out")
    sch = Schedule(te.create_prim_func([A, B, out]))
    split_axes_by_sizes(sch)
    assert not sch.trace.insts


@pytest.mark.parametrize("rows", [1, 8, 24])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_halves_read_copies_of_what_they_read_often(rows, dtype):
    a, b = te.placeholder((rows, 16), dtype, name="A"), te.placeholder((16, 48), dtype, name="B")
    func = te.create_prim_func([a, b, te.ops.matmul(a, b)])
    sch = Schedule(func)
    program = bring_into_canonical_form(sch)
    converted = {
        u.buffer.name for p in program.blocks if not p.is_reduction for u in p.loads if u.buffer.dtype == dtype
    }
    assert converted == ({"A"} if rows < 16 else {"A", "B"})
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)
    if dtype == "float16":
        rng = np.random.default_rng(rows)
        left, right = [rng.integers(-4, 5, [int(n) for n in t.shape]).astype(dtype) for t in (a, b)]
        result = np.zeros((rows, 48), dtype)
        tw.build(func, WIDE)(left, right, result)
        np.testing.assert_array_equal(result, left.astype("float32") @ right.astype("float32"))


def test_products_on_targets_that_multiply_halves_read_them_as_they_are():
    a, b = te.placeholder((24, 16), "float16", name="A"), te.placeholder((16, 48), "float16", name="B")
    sch = Schedule(te.create_prim_func([a, b, te.ops.matmul(a, b)]))
    bring_into_canonical_form(sch, multiplied=lambda block: True)
    assert not sch.trace.insts


def test_an_array_times_itself_has_one_copy():
    a = te.placeholder((24, 24), "float16", name="A")
    sch = Schedule(te.create_prim_func([a, te.ops.matmul(a, a)]))
    program = bring_into_canonical_form(sch)
    (product,) = [block for block in program.blocks if block.is_reduction]
    assert [use.buffer.dtype for use in product.loads] == ["float32", "float32"]
    assert len({use.buffer for use in product.loads}) == 1


def test_steps_that_come_again_are_left_out_of_what_inlining_leaves():
    """The sum of exp(S[i, r]) over r in range(64), where S repeats 16 elements four times."""
    A, r = te.placeholder((24, 16), name="A"), te.reduce_axis((0, 64), name="r")
    S = te.compute((24, 64), lambda i, j: A[i, j % 16] * 2.0, name="S")
    C = te.compute((24,), lambda i: te.sum(te.exp(S[i, r]), axis=r), name="C")
    func = te.create_prim_func([A, C])
    space = Space(func, "llvm -mcpu=x86-64-v4 -num-cores=1")
    assert [b.reduce_size for b in space.program.blocks] == [16]
    a, c = np.random.default_rng(0).uniform(0, 1, (24, 16)).astype("float32"), np.zeros(24, "float32")
    interpret(space.variants[0].base.func, a, c)
    np.testing.assert_allclose(c, 4 * np.exp(2 * a).sum(1), rtol=1e-5)


def test_axes_that_inlining_leaves_divided_are_split_only_where_that_is_predicted_to_pay():
    """Vectors of steps would become those of 12 elements."""
    A, B = te.placeholder((32, 48, 12), "float64", name="A"), te.placeholder((16, 24, 48), "float64", name="B")
    r = te.reduce_axis((0, 48), name="r")
    S = te.compute((32, 96, 48), lambda i, j, h: te.if_then_else(h >= 1, A[i, j % 48, h % 12], -1.0), name="S")
    C = te.compute((16, 96), lambda i, j: te.max(S[2 * i, j, r] * B[i, j // 4, r], axis=r), name="C")
    space = Space(te.create_prim_func([A, B, C]), "llvm -mcpu=x86-64-v4 -num-cores=1")
    assert [b.reduce_size for b in space.program.blocks] == [48]
    assert [len(b.axes) for b in space.program.blocks] == [3]


def values_of(func, *arrays, out):
    """What the interpreter computes by a function."""
    result = np.zeros(out, "float32")
    interpret(func, *arrays, result)
    return result


def test_a_sum_of_what_is_reversed_and_repeated_reads_rows_once():
    """The copy is inlined into the sum, whose steps are 4 times those of the input, some of them backwards."""
    A = te.placeholder((8, 6, 2), name="A")
    S = te.compute((32, 6, 2), lambda i, j, h: A[i % 8, 5 - j, h], name="S")
    r = [te.reduce_axis((0, n), name=f"r{n}") for n in (32, 6, 2)]
    func = te.create_prim_func([A, te.compute((1,), lambda i: te.sum(S[r[0], r[1], r[2]], axis=r), name="C")])
    space = Space(func, "llvm -mcpu=x86-64-v4 -num-cores=1")
    (block,) = space.program.blocks
    assert block.reduce_size == 96
    (use,) = block.loads
    assert [use.stride(v) for v in block.reduce] == [12, 2, 1]
    a = np.random.default_rng(0).uniform(0, 1, (8, 6, 2)).astype("float32")
    made = default_schedule(func, "llvm -mcpu=x86-64-v4 -num-cores=1")
    np.testing.assert_allclose(values_of(made.func, a, out=(1,)), [4 * a.sum()], rtol=1e-5)
    again = Schedule(func)
    made.trace.apply_to_schedule(again)
    assert_structural_equal(made.func, again.func)


@pytest.mark.parametrize("forward", [False, True])
def test_reductions_turn_only_what_all_operands_read_backwards(forward):
    A, B, r = te.placeholder((5, 24), name="A"), te.placeholder((24,), name="B"), te.reduce_axis((0, 24), name="r")
    read = (lambda k: k) if forward else (lambda k: 23 - k)
    func = te.create_prim_func([A, B, te.compute((5,), lambda i: te.sum(A[i, 23 - r] * B[read(r)], axis=r), name="C")])
    sch = Schedule(func)
    (block,) = bring_into_canonical_form(sch).blocks
    assert [use.step(block.reduce[0]) for use in block.loads] == ([-1, 1] if forward else [1, 1])
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, (5, 24)).astype("float32"), rng.uniform(0, 1, 24).astype("float32")
    expected = a[:, ::-1] @ (b if forward else b[::-1])
    np.testing.assert_allclose(values_of(sch.func, a, b, out=(5,)), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["transposed", "in rows", "one of two"])
def test_transposes_run_along_the_rows_that_they_read_backwards(kind):
    """Not where results are contiguous along the same axis, nor where another operand is read forwards."""
    A, B = te.placeholder((40, 96), name="A"), te.placeholder((40, 96), name="B")
    element, shape = {
        "transposed": (lambda i, j: A[j, 95 - i], (96, 40)),
        "in rows": (lambda i, j: A[i, 95 - j], (40, 96)),
        "one of two": (lambda i, j: A[j, 95 - i] + B[j, i], (96, 40)),
    }[kind]
    func = te.create_prim_func([A, B, te.compute(shape, element, name="C")])
    sch = Schedule(func)
    (block,) = bring_into_canonical_form(sch).blocks
    (step,) = {
        use.step(v) for use in block.loads for v in block.spatial if use.buffer.name == "A" and abs(use.step(v)) == 1
    }
    assert step == (1 if kind == "transposed" else -1)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, (40, 96)).astype("float32"), rng.uniform(0, 1, (40, 96)).astype("float32")
    want = {"transposed": a[:, ::-1].T, "in rows": a[:, ::-1], "one of two": a[:, ::-1].T + b.T}[kind]
    made = default_schedule(func, WIDE)
    np.testing.assert_array_equal(values_of(made.func, a, b, out=shape), want)
    again = Schedule(func)
    made.trace.apply_to_schedule(again)
    assert_structural_equal(made.func, again.func)


def test_a_transpose_of_reversed_rows_is_one_of_squares():
    """The two stages are one, which reads backwards only then."""
    A = te.placeholder((40, 96), name="A")
    back = te.compute((40, 96), lambda i, j: A[i, 95 - j], name="back")
    func = te.create_prim_func([A, te.compute((96, 40), lambda i, j: back[j, i], name="C")])
    space = Space(func, WIDE)
    (block,) = space.program.blocks
    assert [use.step(block.spatial[0]) for use in (*block.loads, *block.stores)] == [1, -40]
    a = np.random.default_rng(0).uniform(0, 1, (40, 96)).astype("float32")
    np.testing.assert_array_equal(values_of(default_schedule(func, WIDE).func, a, out=(96, 40)), a[:, ::-1].T)


def test_a_reversed_sum_over_a_symbolic_size_replays():
    """The step that turns a constant number of steps would not fit other sizes."""
    n = te.var("n")
    A, r = te.placeholder((5, n), name="A"), te.reduce_axis((0, n), name="r")
    module = tw.build([A, te.compute((5,), lambda i: te.sum(A[i, n - 1 - r] * A[i, n - 1 - r], axis=r), name="C")])
    for size in (1, 7, 64, 100):
        a = np.random.default_rng(0).uniform(0, 1, (5, size)).astype("float32")
        c = np.zeros(5, "float32")
        module(a, c)
        np.testing.assert_allclose(c, (a * a).sum(1), rtol=1e-5)


def test_what_lies_across_quotients_is_copied():
    """Vectors of the steps r load B at r // 3, so that A is turned for them."""
    A, B = te.placeholder((25, 64), name="A"), te.placeholder((64, 4, 9), name="B")
    r = te.reduce_axis((0, 25), name="r")
    func = te.create_prim_func([A, B, te.compute((4, 64), lambda i, j: te.sum(A[r, j] * B[j, i, r // 3], axis=r))])
    sch, turned = Schedule(func), []
    program = bring_into_canonical_form(sch, turned=turned)
    block = next(b for b in program.blocks if b.is_reduction)
    assert [use.step(block.reduce[0]) for use in block.loads] == [1, None] and turned == [block.name]
    plain = Schedule(func)
    assert [use.step(block.reduce[0]) for use in bring_into_canonical_form(plain).blocks[0].loads] == [64, None]
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0, 1, (25, 64)).astype("float32"), rng.uniform(0, 1, (64, 4, 9)).astype("float32")
    expected = np.einsum("rj,jir->ij", a, b[:, :, np.arange(25) // 3])
    np.testing.assert_allclose(values_of(sch.func, a, b, out=(4, 64)), expected, rtol=1e-5)


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4"])
def test_what_lies_across_is_turned_or_gathered(target):
    """The copy runs through its result as that lies, in tiles, and costs say which of the two schedules it is."""
    n, r = 96, te.reduce_axis((0, 96), name="r")
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    func = te.create_prim_func([A, B, te.compute((n,), lambda i: te.sum(A[r, i] * B[i, r], axis=r), name="C")])
    space = Space(func, Target(target))
    turned, gathered = space.sketches
    assert turned.name.startswith("transpose_B_global+") and gathered.name == "rows_C_gathered"
    a, b = np.random.default_rng(0).integers(-4, 5, (2, n, n)).astype("float32")
    for sketch in space.sketches:
        sch = space.schedule(sketch, [int(x) for x in space.best_rows(sketch, 1)[0]])
        np.testing.assert_array_equal(values_of(sch.func, a, b, out=(n,)), (a * b.T).sum(0))


def test_stages_run_through_their_results():
    """A stage that writes across its loops gets the loops of its result, also where only a part of its axes is stored at."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((8, 5, 6)), B: T.Buffer((6, 8, 5))):
    for i, j, k in T.grid(8, 5, 6):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vk, vi, vj] = A[vi, vj, vk] + T.float32(1)
""")
    sch = Schedule(func)
    (block,) = write_in_order(sch).blocks
    assert block.writes_in_order and [block.extents[v] for v in block.axes] == [6, 8, 5]
    a = np.random.default_rng(0).uniform(0, 1, (8, 5, 6)).astype("float32")
    np.testing.assert_array_equal(values_of(sch.func, a, out=(6, 8, 5)), a.transpose(2, 0, 1) + np.float32(1))


def batches_last(n=40, rows=8, columns=12, steps=24):
    """A batch of products whose number is the last axis of the results, and of no other array."""
    A, B = te.placeholder((rows, steps, n), name="A"), te.placeholder((n, columns, steps), name="B")
    r = te.reduce_axis((0, steps), name="r")
    out = te.compute((rows, columns, n), lambda i, j, b: te.sum(A[i, r, n - 1 - b] * B[b, j, r], axis=r), name="C")
    return A, B, out


def test_what_lies_far_apart_for_results_is_copied_in_their_order():
    func = te.create_prim_func([*batches_last()])
    sch, turned = Schedule(func), []
    program = bring_into_canonical_form(sch, turned=turned)
    block = next(b for b in program.blocks if b.is_reduction)
    assert [use.step(block.spatial[-1]) for use in block.loads] == [-1, 1] and turned == ["C"]
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (8, 24, 40)).astype("float32"), rng.integers(-4, 5, (40, 12, 24)).astype("float32")
    want = np.einsum("irb,bjr->ijb", a[:, :, ::-1], b)
    np.testing.assert_array_equal(values_of(sch.func, a, b, out=(8, 12, 40)), want)
    space = Space(func, WIDE)
    assert space.sketches[0].name.endswith("B_reindex+tile_C_v2")
    for sketch in space.sketches:
        made = space.schedule(sketch, [int(x) for x in space.best_rows(sketch, 1)[0]])
        np.testing.assert_array_equal(values_of(made.func, a, b, out=(8, 12, 40)), want)
    A, B, out = batches_last(n=16, rows=2)  # each element of B is read twice
    turned = []
    bring_into_canonical_form(Schedule(te.create_prim_func([A, B, out])), turned=turned)
    assert turned == []


@pytest.mark.parametrize("size", [1, 5, 16, 40, 100])
def test_symbolic_batches_that_come_last(size):
    A, B, out = batches_last(tw.tir.Var("n", "int64"))
    module = tw.build([A, B, out])
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (8, 24, size)).astype("float32"), rng.integers(-4, 5, (size, 12, 24)).astype("float32")
    made = np.full((8, 12, size), np.nan, "float32")
    module(a, b, made)
    np.testing.assert_array_equal(made, np.einsum("irb,bjr->ijb", a[:, :, ::-1], b))
    assert "as written" not in module.origin


@pytest.mark.parametrize("followed", [False, True])
def test_results_are_computed_in_the_order_of_what_is_read(followed):
    """The batch comes last in the results and first in what has the columns: products in that order, then a transpose."""
    A, B = te.placeholder((24, 40, 6), name="A"), te.placeholder((40, 24, 32), name="B")
    r = te.reduce_axis((0, 24), name="r")
    out = te.compute((6, 32, 40), lambda i, j, b: te.sum(A[r, b, i] * B[b, r, j], axis=r), name="C")
    last = te.compute((6, 32, 40), lambda i, j, b: out[i, j, b] * A[0, b, i], name="D") if followed else out
    space = Space(te.create_prim_func([A, B, last]), WIDE)
    turned = [s for s in space.sketches if s.name.endswith("_turned")]
    assert any(s.name.startswith("tile_C_v2+transpose_") for s in turned)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (24, 40, 6)).astype("float32"), rng.integers(-4, 5, (40, 24, 32)).astype("float32")
    want = np.einsum("rbi,brj->ijb", a, b) * (a[0].T[:, None] if followed else 1)
    for sketch in turned[:2]:
        made = space.schedule(sketch, [int(x) for x in space.best_rows(sketch, 1)[0]])
        np.testing.assert_array_equal(values_of(made.func, a, b, out=(6, 32, 40)), want)


def test_copies_that_only_the_example_takes_are_not_made():
    """At example sizes an axis of one value is left out of the copy, and the steps would not apply to all sizes."""
    n = tw.tir.Var("n", "int64")
    A, B = te.placeholder((1, 8, 24, n), name="A"), te.placeholder((1, n, 12, 24), name="B")
    r = te.reduce_axis((0, 24), name="r")
    out = te.compute((1, 8, 12, n), lambda u, i, j, b: te.sum(A[u, i, r, n - 1 - b] * B[u, b, j, r], axis=r), name="C")
    made = plan([A, B, out], target=WIDE)
    assert "does not apply" not in made.origin and "as written" not in made.origin
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (1, 8, 24, 19)).astype("float32"), rng.integers(-4, 5, (1, 19, 12, 24)).astype("float32")
    result = np.full((1, 8, 12, 19), np.nan, "float32")
    made.compile()(a, b, result)
    np.testing.assert_array_equal(result[0], np.einsum("irb,bjr->ijb", a[0, :, :, ::-1], b[0]))


def turned_products():
    """Products whose results lie in another order than what they read: the inputs, NumPy's sum, the results' shape."""
    r = te.reduce_axis((0, 32), name="r")
    weights, matrices = te.placeholder((32, 12, 32), name="A"), te.placeholder((128, 32, 96), name="B")
    shared = te.compute(
        (12, 96, 128), lambda i, j, h: te.sum(weights[r, i, h // 4] * matrices[h, r, j], axis=r), name="C"
    )
    left, right = te.placeholder((32, 8, 32, 32), name="A"), te.placeholder((32, 16, 32), name="B")
    batched = te.compute(
        (16, 32, 8, 32), lambda i, j, h, b: te.sum(left[b, h, j, r] * right[b, i, r], axis=r), name="C"
    )
    return {
        "heads share weights": ((weights, matrices, shared), lambda a, b: np.einsum("rih,hrj->ijh", a.repeat(4, 2), b)),
        "the batch is last": ((left, right, batched), lambda a, b: np.einsum("bhjr,bir->ijhb", a, b)),
    }


@pytest.mark.parametrize("name", turned_products())
def test_what_is_read_most_lies_along_the_vectors(name):
    tensors, numpy_sum = turned_products()[name]
    space = Space(te.create_prim_func([*tensors]), Target("llvm -mcpu=x86-64-v4 -num-cores=1"))
    turned = [s for s in space.sketches if s.name.endswith("_turned")]
    assert any("transpose_C" in s.name for s in turned)  # the copy that turns them stands alone, in registers
    rng = np.random.default_rng(0)
    a, b = [rng.integers(-4, 5, [int(e) for e in t.shape]).astype("float32") for t in tensors[:2]]
    out = np.full([int(e) for e in tensors[-1].shape], np.nan, "float32")
    tw.build(space.schedule(turned[0], [int(x) for x in space.best_rows(turned[0], 1)[0]]))(a, b, out)
    np.testing.assert_array_equal(out, numpy_sum(a, b))


def windows(rows, columns, channels, *, padded=False, followed=False):
    """Sums of weighted windows of 3 by 3 over images of few channels, which are the last dimension."""
    around = 0 if padded else 2
    x, w = te.placeholder((rows + around, columns + around, channels), name="x"), te.placeholder((3, 3), name="w")
    a, b = te.reduce_axis((0, 3), name="a"), te.reduce_axis((0, 3), name="b")

    def pixel(i, j, c):
        if not padded:
            return x[i + a, j + b, c]
        inside = te.all(i + a >= 1, i + a <= rows, j + b >= 1, j + b <= columns)
        return te.if_then_else(inside, x[i + a - 1, j + b - 1, c], 0.0)

    y = te.compute((rows, columns, channels), lambda i, j, c: te.sum(pixel(i, j, c) * w[a, b], axis=[a, b]), name="y")
    return [x, w, te.ops.relu(y) if followed else y]


def summed(x, w, *, padded=False, followed=False):
    wide = np.pad(x, ((1, 1), (1, 1), (0, 0))) if padded else x
    rows, columns = wide.shape[0] - 2, wide.shape[1] - 2
    y = sum(wide[i : i + rows, j : j + columns] * w[i, j] for i in range(3) for j in range(3))
    return np.maximum(y, 0) if followed else y


@pytest.mark.parametrize("channels", [2, 3, 5, 7])
@pytest.mark.parametrize("more", [{}, {"padded": True}, {"followed": True}])
def test_windows_over_images_of_few_channels_take_whole_vectors(channels, more):
    """Neighbours along (column, channel) are neighbours in memory, also in a window."""
    space = Space(te.create_prim_func(windows(12, 37, channels, **more)), WIDE)
    joined = [s for s in space.sketches if s.name.endswith("_joined")]
    assert any(s.name.startswith("tile_y_v1") for s in joined)
    rng = np.random.default_rng(0)
    around = 0 if more.get("padded") else 2
    x = rng.integers(-4, 5, (12 + around, 37 + around, channels)).astype("float32")
    w = rng.integers(-4, 5, (3, 3)).astype("float32")
    made = space.schedule(joined[0], [int(v) for v in space.best_rows(joined[0], 1)[0]])
    np.testing.assert_array_equal(values_of(made.func, x, w, out=(12, 37, channels)), summed(x, w, **more))


@pytest.mark.parametrize("more", [{}, {"padded": True}, {"followed": True}])
def test_windows_over_images_of_symbolic_sizes_and_few_channels(more):
    n, m = te.size_var("n"), te.size_var("m")
    module = tw.build(windows(n, m, 3, **more), "native -num-cores=1")
    rng = np.random.default_rng(0)
    around = 0 if more.get("padded") else 2
    for rows, columns in ((1, 1), (2, 5), (7, 16), (9, 33), (5, 64), (3, 101)):
        x = rng.integers(-4, 5, (rows + around, columns + around, 3)).astype("float32")
        w = rng.integers(-4, 5, (3, 3)).astype("float32")
        out = np.full((rows, columns, 3), np.nan, "float32")
        module(x, w, out)
        np.testing.assert_array_equal(out, summed(x, w, **more))


def test_steps_of_two_pixels_are_no_line():
    x = te.placeholder((20, 40, 3), name="x")
    a, b = te.reduce_axis((0, 2), name="a"), te.reduce_axis((0, 2), name="b")
    out = te.compute((10, 20, 3), lambda i, j, c: te.max(x[2 * i + a, 2 * j + b, c], axis=[a, b]), name="y")
    assert not any(s.name.endswith("_joined") for s in Space(te.create_prim_func([x, out]), WIDE).sketches)


def read_at(place, extents, n=48):
    """A product of which a stage reads a part, and its reference in NumPy."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    acc = product(lambda i, r: A[i, r], lambda r, j: B[r, j], n, n, n)
    y = te.compute(extents, lambda *i: te.tanh(acc[place(*i)]), name="y")
    where = np.indices(extents) if extents else ()
    return [A, B, y], lambda a, b: np.tanh((a @ b)[place(*where)])


@pytest.mark.parametrize("target", [WIDE, Target("nvidia/nvidia-h100")], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    ("place", "extents"),
    [
        (lambda i: (i, i), (48,)),
        (lambda i: (47, i), (48,)),
        (lambda i, j: (2 * i + 1, j), (24, 48)),
        (lambda: (3, 5), ()),
    ],
)
def test_only_results_that_are_read_are_computed(place, extents, target):
    args, numpy = read_at(place, extents)
    sch = Schedule(te.create_prim_func(args))
    program = bring_into_canonical_form(sch)
    assert [b.spatial_size for b in program.blocks if b.is_reduction] == [int(np.prod(extents))]
    scheduled = default_schedule(te.create_prim_func(args), target=target)
    g = np.random.default_rng(0)
    a, b = (g.standard_normal((48, 48)).astype("float32") for _ in range(2))
    y = np.zeros(extents, "float32")
    if target is WIDE:
        tw.build(scheduled, target=target)(a, b, y)
        np.testing.assert_allclose(y, numpy(a, b), rtol=1e-5, atol=1e-5)


def test_results_of_which_most_are_read_are_computed_together():
    args, _ = read_at(lambda i, j: (47 - i, j + 1), (48, 47))
    program = bring_into_canonical_form(Schedule(te.create_prim_func(args)))
    assert [b.spatial_size for b in program.blocks if b.is_reduction] == [48 * 48]
