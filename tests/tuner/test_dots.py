"""The rules for products of int8 and bfloat16: what they take, that their candidates are right, and that they use the instructions."""

import re

import numpy as np
import pytest

from tilewright import build, te
from tilewright.codegen import Target, compile
from tilewright.schedule import Schedule, Trace
from tilewright.tir.interpret import interpret
from tilewright.tuner import default_schedule, tune
from tilewright.tuner.space import Space
from tilewright.tuning_db import Database

VNNI = "llvm -mcpu=cascadelake -num-cores=1"


def best(func, target):
    """The schedule that the analytic model likes most."""
    return default_schedule(func, Target(target) if isinstance(target, str) else target)


def product(m, n, k, left="int8", right="int8"):
    a, b = te.placeholder((m, k), left, name="A"), te.placeholder((k, n), right, name="B")
    return te.create_prim_func([a, b, te.ops.matmul(a, b)])


def operands(m, n, k, left, right):
    rng = np.random.default_rng(0)
    lows, highs = zip(*[(-128, 127) if t == "int8" else (0, 255) for t in (left, right)], strict=True)
    a = rng.integers(lows[0], highs[0], (m, k), endpoint=True).astype(left)
    b = rng.integers(lows[1], highs[1], (k, n), endpoint=True).astype(right)
    a[0], b[:, 0], b[:, 1] = lows[0], lows[1], highs[1]  # the extremes
    return a, b, a.astype("int32") @ b.astype("int32")


def pixelwise(shape, outputs, left="int8", right="uint8", followed=True):
    """A convolution over NCHW whose window is one element, scaled and cut off afterwards."""
    x = te.placeholder(shape, right, name="X")
    w = te.placeholder((outputs, shape[1], 1, 1), left, name="W")
    sums = te.ops.conv2d(x, w, out_dtype="int32")
    scaled = te.compute(
        sums.shape, lambda *i: te.min(te.max(sums[i].astype("float32") * 0.25, -900.0), 900.0), name="scaled"
    )
    return te.create_prim_func([x, w, scaled if followed else sums])


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(("left", "right"), [("int8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
@pytest.mark.parametrize(("shape", "outputs"), [((1, 16, 5, 32), 6), ((2, 6, 3, 19), 10), ((1, 33, 4, 8), 5)])
def test_windows_of_one_element_are_products_and_end_in_registers(shape, outputs, left, right, followed):
    func = pixelwise(shape, outputs, left, right, followed)
    space = Space(func, Target(VNNI))
    (sketch,) = space.sketches
    assert sketch.name == "dots_conv2d_nchw"
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(
            *((-128, 127) if b.dtype == "int8" else (0, 255)), [int(n) for n in b.shape], endpoint=True
        ).astype(b.dtype)
        for b in func.buffers[:2]
    )
    want = np.einsum("nchw,fc->nfhw", x.astype("int32"), w[:, :, 0, 0].astype("int32"))
    want = np.clip(want.astype("float32") * np.float32(0.25), -900, 900) if followed else want
    rows = sketch.all_rows()
    for row in (rows[0], rows[len(rows) // 2], space.best_rows(sketch, 1)[0]):
        sch = space.schedule(sketch, [int(v) for v in row])
        assert "dot4" in sch.func.script()
        wide = [b for b in sch.func.body.block.alloc_buffers if b.dtype == "int32" and len(b.shape) == 4]
        assert all(b.scope == "local" for b in wide)
        out = np.full(want.shape, 77, want.dtype)
        interpret(sch.func, x, w, out)
        np.testing.assert_array_equal(out, want)


SIGNS = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]


@pytest.mark.parametrize(("left", "right"), SIGNS)
@pytest.mark.parametrize(("m", "n", "k"), [(4, 64, 4), (13, 48, 16), (17, 128, 28)])
def test_candidates_compute_the_product(m, n, k, left, right):
    func = product(m, n, k, left, right)
    space = Space(func, Target(VNNI))
    (sketch,) = space.sketches
    assert sketch.name == "dots_matmul"
    a, b, want = operands(m, n, k, left, right)
    rows = sketch.all_rows()
    for row in (rows[0], rows[len(rows) // 2], space.best_rows(sketch, 1)[0]):
        sch = space.schedule(sketch, [int(x) for x in row])
        out = np.full((m, n), 77, "int32")
        interpret(sch.func, a, b, out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("k", [8, 32, 64])
def test_panels_of_all_steps_are_in_registers_or_loaded_in_a_loop(k):
    (sketch,) = Space(product(196, 64, k, "uint8"), Target(VNNI)).sketches
    rows = [dict(zip(("rows", "vectors", "unroll"), (int(x) for x in row), strict=False)) for row in sketch.all_rows()]
    whole = [row for row in rows if row["unroll"] >= k // 4]
    assert whole
    assert all(row["rows"] * row["vectors"] + k // 4 * row["vectors"] < 32 for row in whole)


def window_product(size, channels, outputs, window, stride, left="uint8", right="int8"):
    x = te.placeholder((1, *size, channels), left, name="X")
    w = te.placeholder((window, window, channels, outputs), right, name="W")
    return te.create_prim_func([x, w, te.ops.conv2d(x, w, stride, window // 2, layout="NHWC", out_dtype="int32")])


def given_and_wanted(func):
    """Random arguments over all values of their types, and what the function as it is declared makes of them."""
    rng = np.random.default_rng(0)
    given = []
    for buffer in func.buffers[:2]:
        low, high = (-128, 127) if buffer.dtype == "int8" else (0, 255)
        given.append(rng.integers(low, high, [int(n) for n in buffer.shape], endpoint=True).astype(buffer.dtype))
    want = np.full([int(n) for n in func.buffers[-1].shape], 77, "int32")
    compile(func, Target("native -num-cores=1"), "plain")(*given, want)
    return given, want


WINDOWS = [((3, 4), 8, 16, 3, 1), ((4, 3), 20, 48, 3, 2), ((2, 5), 36, 32, 1, 1), ((1, 9), 4, 128, 1, 2)]


@pytest.mark.parametrize(("left", "right"), SIGNS)
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_candidates_compute_the_convolution(case, left, right):
    func = window_product(*case, left, right)
    given, want = given_and_wanted(func)
    for cores, best in ((1, False), (2, True)):
        target = Target(VNNI.replace("=1", f"={cores}"))
        space = Space(func, target)
        sketch = next(s for s in space.sketches if "dots_conv2d" in s.name)
        rows = sketch.all_rows()
        row = space.best_rows(sketch, 1)[0] if best else rows[len(rows) // 2]
        sch = space.schedule(sketch, [int(x) for x in row])
        out = np.full_like(want, 77)
        interpret(sch.func, *given, out)
        np.testing.assert_array_equal(out, want)
        assert "vpdpbusd" in compile(sch, target, "conv").get_source("asm")


def other_products(left):
    """Sums of products that are no plain matrix product: by name, the function."""

    def total(a, b, *axes):
        return te.sum(a.astype("int32") * b.astype("int32"), axis=list(axes))

    def axes(**extents):
        return [te.reduce_axis((0, e), name=n) for n, e in extents.items()]

    a, b = te.placeholder((7, 24), left, name="A"), te.placeholder((64, 24), "int8", name="B")
    (k,) = axes(k=24)
    yield "transposed", [a, b, te.compute((7, 64), lambda i, j: total(a[i, k], b[j, k], k), name="C")]
    a, b = te.placeholder((2, 7, 24), left, name="A"), te.placeholder((24, 48), "int8", name="B")
    yield "batch", [a, b, te.compute((2, 7, 48), lambda n, i, j: total(a[n, i, k], b[k, j], k), name="C")]
    x, w = te.placeholder((2, 4, 10, 8), left, name="X"), te.placeholder((16, 8, 2, 3), "int8", name="W")
    z, r, c = axes(z=2, r=3, c=8)
    yield (
        "OIHW",
        [
            x,
            w,
            te.compute(
                (2, 3, 8, 16), lambda n, i, j, f: total(x[n, i + z, j + r, c], w[f, c, z, r], z, c, r), name="Y"
            ),
        ],
    )
    x, w = te.placeholder((2, 9, 8, 12), left, name="X"), te.placeholder((3, 3, 12, 32), "int8", name="W")
    yield "dilated", [x, w, te.ops.conv2d(x, w, 1, 2, dilation=2, layout="NHWC", out_dtype="int32")]


@pytest.mark.parametrize("left", ["uint8", "int8"])
@pytest.mark.parametrize("case", ["transposed", "batch", "OIHW", "dilated"])
def test_other_sums_of_products(case, left):
    func = te.create_prim_func(dict(other_products(left))[case])
    given, want = given_and_wanted(func)
    space = Space(func, Target(VNNI.replace("=1", "=2")))
    sketches = [s for s in space.sketches if "dots" in s.name]
    assert sketches  # several, where the border is copied in more than one way
    for sketch in sketches:
        rows = sketch.all_rows()
        for row in (rows[0], rows[len(rows) // 3], rows[-1], *space.best_rows(sketch, 2)):
            out = np.full_like(want, 77)
            sch = space.schedule(sketch, [int(x) for x in row])
            compile(sch, Target("native -num-cores=2"), "dots")(*given, out)
            np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("rows", "turned", "packed"), [(1, True, False), (2, True, True), (2, False, False), (4, False, True)]
)
def test_what_is_read_once_is_not_packed(rows, turned, packed):
    a, b = te.placeholder((rows, 64), "int8", name="A"), te.placeholder((64, 64), "int8", name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute(
        (rows, 64),
        lambda i, j: te.sum(a[i, k].astype("int32") * (b[j, k] if turned else b[k, j]).astype("int32"), axis=k),
        name="C",
    )
    sketches = Space(te.create_prim_func([a, b, c]), Target(VNNI)).sketches
    assert all(sketch.name.startswith("dots_") == packed for sketch in sketches)


@pytest.mark.parametrize(("left", "right"), SIGNS)
@pytest.mark.parametrize("target", [VNNI, VNNI.replace("=1", "=2")])
def test_the_loop_holds_the_instruction_and_loads(left, right, target):
    """No shift and no correction of signs among the steps of the reduction."""
    sch = best(product(17, 128, 1024, left, right), target)
    blocks = re.split(r"^\S+:$", compile(sch, Target(target), "product").get_source("asm"), flags=re.MULTILINE)
    lines = max(blocks, key=lambda text: text.count("vpdpbusd")).splitlines()
    used = [line.split()[0] for line in lines if line.strip() and not line.strip().startswith((".", "#"))]
    dots = used.count("vpdpbusd")
    assert dots >= 24 and sum(not op.startswith(("vpdpbusd", "vmov", "vpbroadcast")) for op in used) < dots / 3
    assert not {"vpxord", "vpxorq", "vpsubd"} & set(used[: used.index("vpdpbusd") + dots])


@pytest.mark.parametrize(("left", "right"), SIGNS)
def test_the_instruction_is_used(left, right):
    target = Target("native -num-cores=2")
    if not target.has_vnni or target.vector_bits < 512:
        pytest.skip("this machine has no AVX-512 VNNI")
    module = compile(best(product(17, 128, 36, left, right), target), target, "product")
    assert "vpdpbusd" in module.get_source("asm")
    a, b, want = operands(17, 128, 36, left, right)
    out = np.full((17, 128), 77, "int32")
    module(a, b, out)
    np.testing.assert_array_equal(out, want)


def test_a_tuning_run_of_signed_products(tmp_path):
    """Every candidate that is measured is right (the runner compares), and the record replays."""
    target = Target("native -num-cores=1")
    if not target.has_vnni or target.vector_bits < 512:
        pytest.skip("this machine has no AVX-512 VNNI")
    func = product(33, 128, 100)
    with Database(str(tmp_path / "tuning.db")) as db:
        found = tune(func, target, trials=6, db=db)
        assert len(found.records) == 6 and not found.failures
        again = Schedule(func)
        Trace.from_json(db.best(func, target).trace).apply_to_schedule(again)
    a, b, want = operands(33, 128, 100, "int8", "int8")
    out = np.full((33, 128), 77, "int32")
    compile(again, target, "product")(a, b, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("func", "target"),
    [
        (product(16, 64, 16), "llvm -mtriple=riscv64-linux-gnu -num-cores=1"),
        (product(16, 64, 16, "float32", "float32"), VNNI),
        (product(16, 6, 16), VNNI),
        (product(16, 64, 16, "int16", "int16"), VNNI),
    ],
    ids=["no instruction", "float32", "few columns", "int16"],
)
def test_what_it_leaves_to_others(func, target):
    assert all("dots" not in sketch.name for sketch in Space(func, Target(target)).sketches)


def test_the_signed_intrinsic_on_extremes():
    """(A + 128)·B - 128·B is A·B for all values, and on machines without the instruction."""
    a, b = te.placeholder((5, 8), "int8", name="A"), te.placeholder((2, 16, 4), "int8", name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute(
        (5, 16),
        lambda i, j: te.sum(a[i, k].astype("int32") * b[k // 4, j, k % 4].astype("int32"), axis=k),
        name="C",
    )
    sch = Schedule(te.create_prim_func([a, b, c]))
    _, j, kk = sch.get_loops("C")
    k0, k1 = sch.split(kk, [None, 4])
    sch.reorder(k0, j, k1)
    sch.decompose_reduction("C", k0)
    sch.tensorize(j, "dot_16x4_i8_vnni")
    rng = np.random.default_rng(1)
    x = rng.choice(np.array([-128, -1, 0, 127], "int8"), (5, 8))
    w = rng.choice(np.array([-128, -1, 1, 127], "int8"), (2, 16, 4))
    want = x.astype("int32") @ w.transpose(0, 2, 1).reshape(8, 16).astype("int32")
    for run in (compile(sch, Target("llvm -mcpu=x86-64-v3 -num-cores=1"), "dot"), lambda *v: interpret(sch.func, *v)):
        out = np.full((5, 16), 77, "int32")
        run(x, w, out)
        np.testing.assert_array_equal(out, want)


# -- the matrix unit -----------------------------------------------------------------------------------------------------

UNIT = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-cores=1"
unit = pytest.mark.skipif(
    not Target("native").has_amx_int8, reason="this machine has no AMX, or does not let this process use it"
)


def on_tiles(space):
    """The one sketch in which tiles are multiplied."""
    (sketch,) = [sketch for sketch in space.sketches if "tiles_" in sketch.name]
    return sketch


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 64), (48, 128, 192), (45, 100, 190)])
def test_tiles_compute_the_product(m, n, k, left):
    func = product(m, n, k, left)
    space = Space(func, Target(UNIT))
    sketch = on_tiles(space)
    a, b, want = operands(m, n, k, left, "int8")
    rows = sketch.all_rows()
    for row in (rows[0], rows[len(rows) // 2], rows[-1], space.best_rows(sketch, 1)[0]):
        sch = space.schedule(sketch, [int(x) for x in row])
        out = np.full((m, n), 77, "int32")
        interpret(sch.func, a, b, out)
        np.testing.assert_array_equal(out, want)


def test_tiles_of_operands_the_other_way_round():
    a, b = te.placeholder((64, 64), "int8", name="A"), te.placeholder((32, 64), "int8", name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((32, 64), lambda i, j: te.sum(a[k, j].astype("int32") * b[i, k].astype("int32"), axis=k), name="C")
    space = Space(te.create_prim_func([a, b, c]), Target(UNIT))
    sketch = on_tiles(space)
    x, y, want = operands(32, 64, 64, "int8", "int8")
    for row in sketch.all_rows()[::5]:
        out = np.full((32, 64), 77, "int32")
        interpret(space.schedule(sketch, [int(n) for n in row]).func, y, x, out)
        np.testing.assert_array_equal(out, want)


def test_the_model_likes_two_by_two_tiles_whose_sums_stay_in_registers():
    func, target = product(1024, 1024, 1024), Target(UNIT)
    space = Space(func, target)
    sketch = on_tiles(space)
    assert [int(n) for n in space.best_rows(sketch, 1)[0]][:2] == [2, 2]
    lines = compile(best(func, target), target, "product").get_source("asm").splitlines()
    steps = [n for n, line in enumerate(lines) if "tdpbssd" in line]
    loop = lines[max(n for n in range(steps[0]) if lines[n].startswith(".LBB")) : steps[-1]]
    assert len(steps) == 4 and sum("tileload" in line for line in loop) == 4 and not any("rsp" in line for line in loop)


@unit
@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize("cores", [1, 2])
def test_the_unit_is_used(left, cores):
    target = Target(f"native -num-cores={cores}")
    module = compile(best(product(96, 192, 320, left), target), target, "product")
    assert ("tdpbssd" if left == "int8" else "tdpbusd") in module.get_source("asm")
    a, b, want = operands(96, 192, 320, left, "int8")
    out = np.full((96, 192), 77, "int32")
    module(a, b, out)
    np.testing.assert_array_equal(out, want)


@unit
def test_a_tuning_run_with_tiles(tmp_path):
    """Every candidate that is measured is right (the runner compares), and the record replays."""
    func, target = product(64, 128, 128), Target("native -num-cores=1")
    with Database(str(tmp_path / "tuning.db")) as db:
        found = tune(func, target, trials=6, db=db)
        assert len(found.records) == 6 and not found.failures
        again = Schedule(func)
        Trace.from_json(db.best(func, target).trace).apply_to_schedule(again)
    a, b, want = operands(64, 128, 128, "int8", "int8")
    out = np.full((64, 128), 77, "int32")
    compile(again, target, "product")(a, b, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("func", "target"),
    [
        (product(32, 64, 64), UNIT + " -mattr=-amx-int8"),
        (product(6, 64, 64), UNIT),
        (product(32, 64, 24), UNIT),
    ],
    ids=["no unit", "rows", "steps"],
)
def test_what_tiles_leave_to_dot_products(func, target):
    assert [sketch.name for sketch in Space(func, Target(target)).sketches] == ["dots_matmul"]


@pytest.mark.parametrize(("left", "right"), SIGNS)
@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("case", [(17, 1000, 36), (5, 64, 18), (4, 40, 27), "images"], ids=str)
def test_columns_and_steps_are_padded(case, left, right, followed):
    """Sizes that the instruction does not divide: weights are padded where they are packed."""
    func = window_product((5, 6), 3, 40, 3, 2, left, right) if case == "images" else product(*case, left, right)
    if followed:
        *given, out = [te.placeholder([int(d) for d in b.shape], b.dtype, name=b.name) for b in func.buffers]
        made = (
            te.ops.conv2d(*given, 2, 1, layout="NHWC", out_dtype="int32") if case == "images" else te.ops.matmul(*given)
        )
        func = te.create_prim_func([*given, te.ops.maximum(made, te.const(-5, "int32"))])
    given, want = given_and_wanted(func)
    space = Space(func, Target(VNNI.replace("=1", "=2")))
    sketch = next(s for s in space.sketches if "dots" in s.name)
    rows = sketch.all_rows()
    for row in (rows[0], rows[len(rows) // 2], *space.best_rows(sketch, 1)):
        out = np.full_like(want, 77)
        sch = space.schedule(sketch, [int(x) for x in row])
        assert "dot4" in str(sch.func)
        compile(sch, Target("native -num-cores=2"), "dots")(*given, out)
        np.testing.assert_array_equal(out, want)


# -- bfloat16 ------------------------------------------------------------------------------------------------------------

BF16 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 -num-cores=1"


def halves(m, n, k, turned=False, rounded=False):
    """A product of bfloat16, of a matrix that is turned or not, summed in float32."""
    a = te.placeholder((m, k), "bfloat16", name="A")
    b = te.placeholder((n, k) if turned else (k, n), "bfloat16", name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(a[i, r].astype("float32") * (b[j, r] if turned else b[r, j]).astype("float32"), axis=r),
        name="C",
    )
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: c[i, j].astype("bfloat16")) if rounded else c])


def wide(bits):
    """The float32 of bfloat16 numbers given by their bits."""
    return (bits.astype("uint32") << 16).view("float32")


def half_operands(m, n, k, turned):
    rng = np.random.default_rng(1)
    a, b = [(rng.standard_normal(s).astype("float32").view("uint32") >> 16).astype("uint16") for s in ((m, k), (k, n))]
    a[0, 0], a[-1, -1] = 0x7E00, 0x8000  # 4.3e37, -0.0
    b = np.ascontiguousarray(b.T) if turned else b
    want = wide(a).astype("float64") @ wide(b.T if turned else b).astype("float64")
    scale = np.abs(wide(a)).astype("float64") @ np.abs(wide(b.T if turned else b)).astype("float64")
    return a, b, want, scale * 2.0**-21


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(8, 16, 2), (9, 33, 19), (64, 64, 64), (45, 100, 190)])
@pytest.mark.parametrize(("target", "word"), [(BF16, "dots"), (UNIT, "tiles")])
def test_products_of_bfloat16_are_right(m, n, k, turned, target, word):
    space = Space(halves(m, n, k, turned), Target(target))
    a, b, want, error = half_operands(m, n, k, turned)
    unit_pays = (m, n, k) in [(64, 64, 64), (45, 100, 190)]
    for sketch in space.sketches:
        assert sketch.name.startswith(word) == (word == "dots" or unit_pays)
        rows = sketch.all_rows()
        for row in (rows[0], rows[len(rows) // 2], rows[-1]):
            out = np.full((m, n), 77, "float32")
            interpret(space.schedule(sketch, [int(x) for x in row]).func, a, b, out)
            assert (np.abs(out - want) <= error).all()


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize(("target", "instruction"), [(BF16, "vdpbf16ps"), (UNIT, "tdpbf16ps")])
def test_products_of_bfloat16_take_the_instruction(target, instruction, rounded):
    built = build(halves(64, 128, 96, rounded=rounded), Target(target))
    assert instruction in built.get_source("asm")


def test_products_of_bfloat16_are_of_float32_where_the_instruction_is_as_slow():
    built = build(halves(64, 128, 96), Target("llvm -mcpu=cooperlake -num-cores=1"))
    assert "vdpbf16ps" not in built.get_source("asm") and "vfmadd" in built.get_source("asm")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (45, 100, 190), (1, 70, 30), (3, 64, 66)])
def test_compiled_products_of_bfloat16_are_right(m, n, k, turned):
    module = build(halves(m, n, k, turned), Target("native -num-cores=1"))
    a, b, want, error = half_operands(m, n, k, turned)
    out = np.full((m, n), 77, "float32")
    module(a, b, out)
    assert (np.abs(out - want) <= error).all()


@pytest.mark.parametrize("turned", [False, True])
def test_columns_and_rows_are_packed_by_vectors(turned):
    """Where steps are contiguous, the steps of a column are a vector; else the columns of several steps are interleaved."""
    func = halves(64, 128, 96, turned)
    assembly = build(func, Target(BF16)).get_source("asm")
    assert "vpextrw" not in assembly and "vpinsrw" not in assembly


def less_zero_points(form, left, right, where, m=13, n=37, k=50):
    """A product of bytes less zero points: its program, random arguments, and its result in whole numbers by NumPy."""
    rng = np.random.default_rng(0)

    def numbers(shape, dtype):
        info = np.iinfo(dtype)
        made = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
        made.flat[0] = info.min
        made.flat[-1] = info.max
        return made

    a, b = numbers((m, k), left), numbers((n, k) if form == "turned" else (k, n), right)
    A, B = te.placeholder(a.shape, left, name="A"), te.placeholder(b.shape, right, name="B")
    extra, arrays = [], []

    def zero(name, shape, dtype):
        extra.append(te.placeholder(shape, dtype, name=name))
        arrays.append(numbers(shape, dtype))
        return extra[-1], arrays[-1].astype("int64")

    if where == "constants":
        of_a, of_b = (lambda i: te.const(-7, "int32")), (lambda j: te.const(121, "int32"))
        za, zb = -7, 121
    elif where == "scalars":
        (pa, za), (pb, zb) = zero("za", (1,), left), zero("zb", (1,), right)
        of_a, of_b = (lambda i: pa[0].astype("int32")), (lambda j: pb[0].astype("int32"))
    else:
        (pa, za), (pb, zb) = zero("za", (m,), left), zero("zb", (n,), right)
        of_a, of_b, za = (lambda i: pa[i].astype("int32")), (lambda j: pb[j].astype("int32")), za[:, None]

    def of_left(i, q):
        return A[i, q].astype("int32") - of_a(i)

    def of_right(q, j):
        return (B[j, q] if form == "turned" else B[q, j]).astype("int32") - of_b(j)

    if form == "stages":
        SA = te.compute((m, k), of_left, name="SA")
        SB = te.compute((k, n), of_right, name="SB")
        of_left, of_right = (lambda i, q: SA[i, q]), (lambda q, j: SB[q, j])
    step = te.reduce_axis((0, k), "k")
    C = te.compute((m, n), lambda i, j: te.sum(of_left(i, step) * of_right(step, j), axis=step), name="C")
    if form == "followed":
        C = te.compute((m, n), lambda i, j: te.max(C[i, j], 0), name="D")
    want = (a.astype("int64") - za) @ ((b.T if form == "turned" else b).astype("int64") - zb)
    func = te.create_prim_func([A, B, *extra, C])
    return func, [a, b, *arrays], np.maximum(want, 0) if form == "followed" else want


WHERE = ["constants", "scalars", "rows and columns"]
FORMS = ["plain", "stages", "turned", "followed"]


@pytest.mark.parametrize(
    ("form", "where", "signs"), [(f, w, SIGNS[(n + m) % 4]) for n, f in enumerate(FORMS) for m, w in enumerate(WHERE)]
)
def test_products_less_zero_points_are_dot_products(form, where, signs):
    left, right = signs
    func, given, want = less_zero_points(form, left, right, where)
    sch = best(func, VNNI)
    assert "dot4" in sch.func.script()
    got = np.full(want.shape, 77, "int32")
    interpret(sch.func, *given, got)
    np.testing.assert_array_equal(got, want)
    got[:] = 77
    build(func, "native -num-cores=1")(*given, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("change", ["few rows", "no dot products", "a zero point for each step"])
def test_products_less_zero_points_that_stay(change):
    rows = 1 if change == "few rows" else 8
    A, B, z = te.placeholder((rows, 32), "uint8", name="A"), te.placeholder((32, 16), "int8", name="B"), te.placeholder((32,), "uint8", name="z")  # fmt: skip
    k = te.reduce_axis((0, 32), "k")
    C = te.compute(
        (rows, 16),
        lambda i, j: te.sum(
            (A[i, k].astype("int32") - z[k if change.startswith("a zero") else 0].astype("int32"))
            * B[k, j].astype("int32"),
            axis=k,
        ),
        name="C",
    )
    target = "llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-u74 -num-cores=1" if change == "no dot products" else VNNI
    func = te.create_prim_func([A, B, z, C])
    sch = best(func, target)
    assert "dot4" not in sch.func.script() and "expand_offsets" not in str(sch.trace)
    rng = np.random.default_rng(0)
    a, b, zero = rng.integers(0, 256, (rows, 32)).astype("uint8"), rng.integers(-128, 128, (32, 16)).astype("int8"), rng.integers(0, 256, 32).astype("uint8")  # fmt: skip
    got = np.full((rows, 16), 77, "int32")
    interpret(sch.func, a, b, zero, got)
    less = zero.astype("int32") if change.startswith("a zero") else zero[0].astype("int32")
    np.testing.assert_array_equal(got, (a - less) @ b.astype("int32"))


def channels_first(rank, shape, outputs, window, types, zero=0, **how):
    """A convolution over channels, then places, less a zero point: its program, its arguments, its result by loops of NumPy."""
    rng = np.random.default_rng(0)

    def numbers(size, dtype):
        info = np.iinfo(dtype)
        made = rng.integers(info.min, info.max, size, endpoint=True).astype(dtype)
        made.flat[0], made.flat[-1] = info.min, info.max
        return made

    groups, stride, padding, dilation = (how.get(n, d) for n, d in [("groups", 1), ("stride", 1), ("padding", 0), ("dilation", 1)])  # fmt: skip
    x, w = numbers(shape, types[0]), numbers((outputs, shape[1] // groups, *[window] * rank), types[1])
    X, W = te.placeholder(shape, types[0], name="X"), te.placeholder(w.shape, types[1], name="W")
    data = X
    if zero:
        data = te.compute(shape, lambda *i: X[i].astype("int32") - zero, name="less")
    conv = {1: te.ops.conv1d, 2: te.ops.conv2d, 3: te.ops.conv3d}[rank]
    func = te.create_prim_func([X, W, conv(data, W, stride, padding, dilation, groups, out_dtype="int32")])
    padded = np.pad(x.astype("int64") - zero, [(0, 0), (0, 0), *[(padding, padding)] * rank])
    places = [(n - dilation * (window - 1) - 1) // stride + 1 for n in padded.shape[2:]]
    want = np.zeros((shape[0], outputs, *places), "int64")
    each, share = shape[1] // groups, outputs // groups
    for at in np.ndindex(*[window] * rank):
        part = padded[(slice(None), slice(None), *[slice(a * dilation, a * dilation + (p - 1) * stride + 1, stride) for a, p in zip(at, places, strict=True)])]  # fmt: skip
        for g in range(groups):
            taken = w[(slice(g * share, (g + 1) * share), slice(None), *at)].astype("int64")
            want[:, g * share : (g + 1) * share] += np.einsum(
                "nc...,oc->no...", part[:, g * each : (g + 1) * each], taken
            )
    return func, [x, w], want


CHANNELS_FIRST = {
    "window": (2, (1, 8, 6, 7), 16, 3, {}),
    "stride": (2, (2, 12, 9, 8), 32, 3, {"stride": 2}),
    "place": (2, (1, 20, 6, 8), 16, 1, {"stride": 2}),
    "padded": (2, (1, 8, 5, 6), 19, 3, {"padding": 1}),
    "dilated": (2, (1, 8, 8, 7), 16, 3, {"padding": 2, "dilation": 2}),
    "groups": (2, (1, 24, 5, 6), 48, 3, {"groups": 3}),
    "groups, stride": (2, (2, 16, 7, 9), 32, 3, {"groups": 2, "stride": 2, "padding": 1}),
    "one dimension": (1, (2, 16, 20), 16, 3, {"padding": 1}),
    "three dimensions": (3, (1, 8, 4, 5, 4), 16, 2, {}),
}


@pytest.mark.parametrize(("case", "types"), [(c, SIGNS[n % 4]) for n, c in enumerate(CHANNELS_FIRST)])
@pytest.mark.parametrize("target", [VNNI, UNIT])
def test_convolutions_of_channels_first_are_dot_products(case, types, target):
    *sizes, how = CHANNELS_FIRST[case]
    func, given, want = channels_first(*sizes, types, **how)
    space = Space(func, Target(target))
    dots = [s for s in space.sketches if "dots_" in s.name or "tiles_" in s.name]
    assert dots == space.sketches
    for sketch in dots:
        sch = space.schedule(sketch, [int(v) for v in space.best_rows(sketch, 1)[0]])
        got = np.full(want.shape, 77, "int32")
        interpret(sch.func, *given, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", CHANNELS_FIRST)
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled_convolutions_of_channels_first(case, threads):
    *sizes, how = CHANNELS_FIRST[case]
    func, given, want = channels_first(*sizes, ("uint8", "int8"), **how)
    got = np.full(want.shape, 77, "int32")
    build(func, f"native -num-cores={threads}")(*given, got)
    np.testing.assert_array_equal(got, want)


def test_convolutions_of_any_batch_with_channels_first():
    """The steps apply to all sizes, not only to those of the example."""
    n = te.var("n")
    X, W = te.placeholder((n, 16, 9, 8), "uint8", name="X"), te.placeholder((32, 16, 3, 3), "int8", name="W")
    func = te.create_prim_func([X, W, te.ops.conv2d(X, W, out_dtype="int32")])
    target = Target("native -num-cores=1")
    module = build(func, target)
    if target.has_vnni:
        assert re.search("vpdpbusd|tdpbusd", module.get_source("asm"))
    for batch in (1, 3):
        _, given, want = channels_first(2, (batch, 16, 9, 8), 32, 3, ("uint8", "int8"))
        got = np.full(want.shape, 77, "int32")
        module(*given, got)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 48, 32), (33, 20, 50), (64, 6, 64)])
@pytest.mark.parametrize(("left", "right"), SIGNS)
def test_products_of_rows_that_lie_across(m, n, k, left, right, turned):
    """The steps of the operand with the rows do not lie in line; where columns are few, rows take their place."""
    a, b, want = operands(m, n, k, left, right)
    a, b = np.ascontiguousarray(a.T), np.ascontiguousarray(b.T) if turned else b
    A, B, r = te.placeholder((k, m), left, name="A"), te.placeholder(b.shape, right, name="B"), te.reduce_axis((0, k), "r")  # fmt: skip
    C = te.compute(
        (m, n),
        lambda i, j: te.sum(A[r, i].astype("int32") * (B[j, r] if turned else B[r, j]).astype("int32"), axis=r),
        name="C",
    )
    func = te.create_prim_func([A, B, C])
    sch = best(func, VNNI)
    assert "dot4" in sch.func.script()
    got = np.full((m, n), 77, "int32")
    interpret(sch.func, a, b, got)
    np.testing.assert_array_equal(got, want)
    got[:] = 77
    build(func, "native -num-cores=1")(a, b, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("order", ["less, padded", "padded, less"])
@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("target", [VNNI, UNIT])
def test_padded_convolutions_less_zero_points_are_dot_products(layout, order, scalar, target):
    """The bytes are padded with the zero point, or with zeros from which it is taken, too."""
    first = layout == "NCHW"
    _, (x, w), _ = channels_first(2, (2, 8, 5, 6), 16, 3, ("uint8", "int8"))
    zero = np.array([131], "uint8")
    wide = x.astype("int64")
    padded = np.pad(wide - 131 if order == "less, padded" else wide, [(0, 0), (0, 0), (1, 1), (1, 1)])
    padded = padded - 131 if order == "padded, less" else padded
    want = np.einsum("nchwyx,ocyx->nohw", np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)), w.astype("int64"))  # fmt: skip
    if not first:
        x, w, want = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), want.transpose(0, 2, 3, 1)
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    X, W, z = te.placeholder(x.shape, "uint8", name="X"), te.placeholder(w.shape, "int8", name="W"), te.placeholder((1,), "uint8", name="z")  # fmt: skip
    ends = [0, 0, 1, 1] if first else [0, 1, 1, 0]

    def less(A):
        return te.compute(
            A.shape, lambda *i: A[i].astype("int32") - (z[0].astype("int32") if scalar else 131), name="less"
        )

    data = te.ops.pad(less(X), ends, ends) if order == "less, padded" else less(te.ops.pad(X, ends, ends))
    func = te.create_prim_func([X, W, z, te.ops.conv2d(data, W, layout=layout, out_dtype="int32")])
    space = Space(func, Target(target))
    dots = [s for s in space.sketches if "dots_" in s.name or "tiles_" in s.name]
    assert dots == space.sketches
    for sketch in dots:
        sch = space.schedule(sketch, [int(v) for v in space.best_rows(sketch, 1)[0]])
        got = np.full(want.shape, 77, "int32")
        interpret(sch.func, x, w, zero, got)
        np.testing.assert_array_equal(got, want)
    got[:] = 77
    build(func, "native -num-cores=1")(x, w, zero, got)
    np.testing.assert_array_equal(got, want)
