"""The rule for int8 products: what it takes, that its candidates are right, and that they use the instruction."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile
from tilewright.schedule import Schedule
from tilewright.tir.interpret import interpret
from tilewright.tuner.space import Space

VNNI = "llvm -mcpu=cascadelake -num-cores=1"


def product(m, n, k, left="int8", right="int8"):
    a, b = te.placeholder((m, k), left, name="A"), te.placeholder((k, n), right, name="B")
    return te.create_prim_func([a, b, te.ops.matmul(a, b)])


def operands(m, n, k, left):
    rng = np.random.default_rng(0)
    low, high = (-128, 128) if left == "int8" else (0, 256)
    a, b = rng.integers(low, high, (m, k)).astype(left), rng.integers(-128, 128, (k, n)).astype("int8")
    a[0], b[:, 0] = low, -128  # the extremes
    return a, b, a.astype("int32") @ b.astype("int32")


@pytest.mark.parametrize("left", ["int8", "uint8"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 64, 4), (13, 64, 16), (17, 128, 28)])
def test_candidates_compute_the_product(m, n, k, left):
    func = product(m, n, k, left)
    space = Space(func, Target(VNNI))
    (sketch,) = space.sketches
    assert sketch.name == "dots_matmul"
    a, b, want = operands(m, n, k, left)
    rows = sketch.all_rows()
    for row in (rows[0], rows[len(rows) // 2], space.best_rows(sketch, 1)[0]):
        sch = space.schedule(sketch, [int(x) for x in row])
        out = np.full((m, n), 77, "int32")
        interpret(sch.func, a, b, out)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("left", ["int8", "uint8"])
def test_the_instruction_is_used(left):
    target = Target("native -num-cores=2")
    if not target.has_vnni or target.vector_bits < 512:
        pytest.skip("this machine has no AVX-512 VNNI")
    func = product(17, 128, 36, left)
    space = Space(func, target)
    (sketch,) = space.sketches
    module = compile(space.schedule(sketch, [int(x) for x in space.best_rows(sketch, 1)[0]]), target, "product")
    assert "vpdpbusd" in module.get_source("asm")
    a, b, want = operands(17, 128, 36, left)
    out = np.full((17, 128), 77, "int32")
    module(a, b, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("func", "target"),
    [
        (product(16, 64, 16), "llvm -mcpu=skylake -num-cores=1"),
        (product(16, 64, 16, "float32", "float32"), VNNI),
        (product(16, 64, 18), VNNI),
        (product(16, 60, 16), VNNI),
        (product(16, 64, 16, "int8", "uint8"), VNNI),
        (product(16, 64, 16, "int16", "int16"), VNNI),
    ],
    ids=["no instruction", "float32", "steps", "columns", "unsigned right operand", "int16"],
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
