"""Arithmetic on tiles that warp groups hold in registers, numbers of rows, operands from registers: values, the assembler, what is refused."""

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu import GpuError
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.tir.expr.dtype import bfloat16_from_bits, bfloat16_to_bits
from tilewright.tir.expr.intrinsics import OPERATIONS
from tilewright.tir.parser import parse


def program(lines, n=64, out="float32", groups=2, k=64):
    """A program in which each group multiplies 64 rows of A by B transposed into C, and goes on with ``lines``; TILE stands for the sums."""
    lanes, steps = 64 * n, []
    for s in range(0, k, 16):
        sums = f'C.vload([0, 0], "float32x{lanes}")' if s else f"T.Broadcast(T.float32(0), {lanes})"
        steps.append(
            f'C.vstore([0, 0], T.wgmma_dot({sums}, T.wgmma_left("bfloat16x1024", T.address_of(SA[y * 64, {s}]), 64), '
            f'T.wgmma_right_t("bfloat16x{16 * n}", T.address_of(SB[0, 0, {s}]), 64)))'
        )
    text = f"""
@T.prim_func
def main(A: T.Buffer(({64 * groups}, {k}), "bfloat16"), B: T.Buffer(({n}, {k}), "bfloat16"), D: T.Buffer(({64 * groups}, {n}), "{out}")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        SA = T.decl_buffer(({64 * groups}, {k}), "bfloat16", scope="shared.swizzled")
        SB = T.decl_buffer((1, {n}, {k}), "bfloat16", scope="shared.swizzled")
        for y in T.thread_binding({groups}, thread="threadIdx.y"):
            for x in T.thread_binding(128, thread="threadIdx.x"):
                C = T.decl_buffer((64, {n}), "float32", scope="wgmma.accumulator")
                E = T.decl_buffer((64, {n}), "float32", scope="wgmma.accumulator")
                P = T.decl_buffer((64, {n}), "bfloat16", scope="wgmma.accumulator")
                R = T.decl_buffer((64,), "float32", scope="wgmma.rows")
                for o in range({k * 64 // 128}):
                    SA[y * 64 + (o * 128 + x) // {k}, (o * 128 + x) % {k}] = A[y * 64 + (o * 128 + x) // {k}, (o * 128 + x) % {k}]
                for o in range({-(-n * k // 128 // groups)}):
                    SB[0, ((o * {groups} + y) * 128 + x) // {k}, x % {k}] = B[((o * {groups} + y) * 128 + x) // {k}, x % {k}]
                STEPS
                T.evaluate(T.wgmma_commit())
                C.vstore([0, 0], T.wgmma_wait(C.vload([0, 0], "float32x{lanes}"), 0))
                LINES
                T.evaluate(T.wgmma_store(T.address_of(D[y * 64, 0]), {n}, RESULT))
"""
    *before, result = lines
    indent = "\n" + " " * 16
    text = (
        text.replace("STEPS", indent.join(steps))
        .replace("LINES", indent.join(before) or "pass")
        .replace("RESULT", result)
    )
    text = text.replace(indent + "pass", "").replace("TILE", f'C.vload([0, 0], "float32x{lanes}")')
    return parse(text.replace("LANES", str(lanes)))


def softmax_of(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def rounded(x):
    return bfloat16_from_bits(bfloat16_to_bits(np.asarray(x, "float32")))


ROWS = 'R.vload([0], "float32x64")'
CASES = [
    ("arithmetic", ["T.max(TILE * T.Broadcast(T.float32(0.5), LANES) - TILE * TILE, T.Broadcast(T.float32(-3), LANES))"],
     lambda c, b: np.maximum(c * 0.5 - c * c, -3)),
    ("functions", ["T.tanh(TILE)"], lambda c, b: np.tanh(c)),
    ("numbers", ["T.Select(T.Ramp(0, 1, LANES) % T.Broadcast(64, LANES) <= T.Ramp(0, 1, LANES) // T.Broadcast(64, LANES), TILE, "
                 "T.Broadcast(T.float32(-1), LANES))"],
     lambda c, b: np.concatenate([np.where(np.tri(64) > 0, half, -1) for half in (c[:64], c[64:])])),
    ("uniform scalars", ["TILE + T.Broadcast(T.cast(y, 'float32'), LANES)"], lambda c, b: c + np.arange(128)[:, None] // 64),
    ("rows", ["R.vstore([0], T.wgmma_row_max(TILE))",
              'E.vstore([0, 0], T.exp2_approx((TILE - T.wgmma_across("float32xLANES", ' + ROWS
              + ")) * T.Broadcast(T.float32(1.4426950408889634), LANES)))",
              'R.vstore([0], T.Broadcast(T.float32(1), 64) / T.wgmma_row_sum(E.vload([0, 0], "float32xLANES")))',
              'E.vload([0, 0], "float32xLANES") * T.wgmma_across("float32xLANES", ' + ROWS + ")"],
     lambda c, b: softmax_of(c)),
    ("operands", ['P.vstore([0, 0], T.Cast("bfloat16xLANES", TILE * T.Broadcast(T.float32(0.125), LANES)))',
                  'C.vstore([0, 0], T.wgmma_fence(TILE))',
                  *['C.vstore([0, 0], T.wgmma_dot(TILE, T.wgmma_columns("bfloat16x1024", P.vload([0, 0], "bfloat16xLANES"), '
                    f'{s}), T.wgmma_right("bfloat16x1024", T.address_of(SB[0, {s}, 0]), 64, 4096)))' for s in range(0, 64, 16)],
                  "T.evaluate(T.wgmma_commit())", "C.vstore([0, 0], T.wgmma_wait(TILE, 0))", "TILE"],
     lambda c, b: c + rounded(c * 0.125) @ b),
]  # fmt: skip


def given():
    rng = np.random.default_rng(0)
    return rounded(rng.standard_normal((128, 64))), rounded(rng.standard_normal((64, 64)))


@pytest.mark.parametrize(("lines", "want"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_equal_on_the_simulated_gpu(lines, want):
    a, b = given()
    out = np.full((128, 64), np.nan, "float32")
    tw.build(program(lines), "gpu-sim")(bfloat16_to_bits(a), bfloat16_to_bits(b), out)
    np.testing.assert_allclose(out, want(a @ b.T, b), rtol=2e-5, atol=1e-4)


def test_sums_are_stored_in_the_type_of_operands():
    a, b = given()
    out = np.zeros((128, 64), "uint16")
    tw.build(program(['T.Cast("bfloat16xLANES", TILE)'], out="bfloat16"), "gpu-sim")(
        bfloat16_to_bits(a), bfloat16_to_bits(b), out
    )
    np.testing.assert_allclose(bfloat16_from_bits(out), a @ b.T, rtol=2**-8, atol=1e-4)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(
    ("lines", "out", "words"),
    [
        *[(c[1], "float32", "") for c in CASES[:4]],
        (CASES[4][1], "float32", "ex2.approx.ftz.f32"),
        (CASES[5][1], "float32", "cvt.rn.bf16x2.f32"),
        (['T.Cast("bfloat16xLANES", TILE)'], "bfloat16", "cvt.rn.bf16x2.f32"),
    ],
)
def test_assembler_takes_it(lines, out, words):
    """Tiles stay in registers: there is no local memory, and products are not run one after the other."""
    (text,) = tw.build(program(lines, out=out), "cuda -arch=sm_90a").ptx.values()
    assert words in text and "ld.local" not in text
    (report,), _ = run_ptxas(text, "sm_90a")
    assert report.spill_bytes == report.stack_bytes == 0 and not report.warnings


def test_a_thread_holds_two_rows_of_numbers():
    """A row's maximum is found among the numbers of a thread, then among four neighbours."""
    ir = tw.build(program(CASES[4][1]), "cuda -arch=sm_90a").get_source("ir")
    assert (
        len(re.findall(r"call float @llvm.nvvm.shfl.sync.bfly.f32", ir)) == 8
    )  # two rows, two exchanges, maximum and sum


def test_each_register_has_its_own_number():
    """A thread compares the row and the column of each of its 32 numbers."""
    ir = tw.build(program(CASES[2][1]), "cuda -arch=sm_90a").get_source("ir")
    assert len(set(re.findall(r"icmp sle \w+ (.*)", ir))) >= 32


def test_scalars_are_the_same_in_all_threads():
    a, b = given()
    with pytest.raises(GpuError, match="the threads of a tile have different values of "):
        f = tw.build(program(["TILE + T.Broadcast(T.cast(x, 'float32'), LANES)"]), "gpu-sim")
        f(bfloat16_to_bits(a), bfloat16_to_bits(b), np.zeros((128, 64), "float32"))


def test_products_begin_with_zeros_or_sums():
    func = program(["TILE"]).script().replace("T.float32(0.0)", "T.float32(1.0)")
    with pytest.raises(EmitError, match=r"tiles of warps begin with zeros, not with T.float32\(1.0\)"):
        tw.build(parse(func), "cuda -arch=sm_90a").get_source()
    with pytest.raises(GpuError, match="products of warp groups begin with zeros, not with "):
        tw.build(parse(func), "gpu-sim")(*[bfloat16_to_bits(x) for x in given()], np.zeros((128, 64), "float32"))


WRONG = [
    ("wgmma_row_max", "float32x64", (), "float32x64 is not the sums of a warp group"),
    ("wgmma_across", "float32x4096", ("float32x4096",), "takes float32x64, a number for each row"),
    ("wgmma_columns", "bfloat16x4096", (8, "bfloat16x1024"), "the first column, 8, is no multiple of 16 below 64"),
    ("wgmma_columns", "bfloat16x4096", (64, "bfloat16x1024"), "the first column, 64, is no multiple of 16 below 64"),
    ("wgmma_columns", "float32x4096", (0, "bfloat16x1024"), "takes a tile such as bfloat16x4096"),
]


@pytest.mark.parametrize(("name", "dtype", "rest", "words"), WRONG)
def test_unfit_types(name, dtype, rest, words):
    *more, wanted = rest or (None,)
    with pytest.raises(TypeError, match=re.escape(words)):
        OPERATIONS[f"tir.{name}"](tw.tir.Var("v", dtype), *more, dtype=wanted)
