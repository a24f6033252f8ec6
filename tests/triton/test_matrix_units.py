"""Products of blocks on matrix units: the simulated GPU gives NumPy's results, and PTX has ``mma`` without spills."""

import re

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.gpu.ptx.ptxas import find_ptxas, run_ptxas

from . import block_kernels as kernels

SM90 = "cuda -arch=sm_90"


def product(m, n, k, dtype="float16", turned=(False, False), out="float32"):
    """Returns the arguments of the tutorial's matrix product on small whole numbers, and what it gives."""
    rng = np.random.default_rng(m + n + k)
    a, b = [
        rng.integers(-4, 5, shape[::-1] if turn else shape).astype(dtype)
        for shape, turn in zip(((m, k), (k, n)), turned, strict=True)
    ]
    a, b = [x.T if turn else x for x, turn in zip((a, b), turned, strict=True)]
    steps = [s // x.itemsize for x in (a, b) for s in x.strides]
    return (a, b, np.zeros((m, n), out), m, n, k, *steps, n, 1), a.astype("float32") @ b.astype("float32")


def blocks(bm, bn, bk):
    return {"BM": bm, "BN": bn, "BK": bk, "GROUP": 2, "ACTIVATION": ""}


def ptx(args, named, **options):
    made = kernels.matmul.warmup(*args, **named, **options, grid=(1,), target=SM90)
    text = made.module.get_source("ptx")
    return text, None if find_ptxas() is None else run_ptxas(text, "sm_90")[0][0]


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("sizes", [(64, 64, 64), (40, 35, 50)], ids=["whole", "edges"])
def test_operands_lie_either_way(sizes, turned):
    args, want = product(*sizes, turned=turned)
    grid = (triton.cdiv(sizes[0], 32) * triton.cdiv(sizes[1], 32),)
    made = kernels.matmul[grid](*args, **blocks(32, 32, 32), target="gpu-sim")
    np.testing.assert_array_equal(args[2], want)
    text = made.module.get_source("lowered")
    assert "T.mma(" in text and "T.ldmatrix" in text


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("shape", [(16, 16), (16, 64), (64, 16), (64, 32)])
def test_any_number_of_warps_shares_the_tiles(shape, warps):
    args, want = product(*shape, 32)
    kernels.matmul[(1,)](*args, **blocks(*shape, 32), num_warps=warps, target="gpu-sim")
    np.testing.assert_array_equal(args[2], want)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_of_eight_bits(dtype):
    args, want = product(32, 32, 64, "int8", out="int32")
    args = tuple(np.abs(x).astype(dtype) if isinstance(x, np.ndarray) and x.dtype == np.int8 else x for x in args)
    kernels_out = np.zeros((32, 32), np.int32)
    made = whole[(1,)](args[0], args[1], kernels_out, N=32, K=64, target="gpu-sim")
    np.testing.assert_array_equal(kernels_out, args[0].astype(np.int64) @ args[1].astype(np.int64))
    assert "T.mma(" in made.module.get_source("lowered")


@triton.jit
def whole(a_ptr, b_ptr, o_ptr, N: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, N), tl.arange(0, K)
    a, b = tl.load(a_ptr + i[:, None] * K + k[None, :]), tl.load(b_ptr + k[:, None] * N + i[None, :])
    tl.store(o_ptr + i[:, None] * N + i[None, :], tl.dot(a, b, out_dtype=tl.int32))


@triton.jit
def read_otherwise(a_ptr, o_ptr, s_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    a = tl.load(a_ptr + at)
    c = tl.dot(a, a)
    tl.store(o_ptr + at, tl.trans(c) + c)
    tl.store(s_ptr + i, tl.sum(c, 0) + tl.max(c, 1))


def test_sums_that_others_read_are_shared():
    a = np.random.default_rng(0).integers(-4, 5, (32, 32)).astype("float16")
    out, rows = np.zeros((32, 32), "float32"), np.zeros(32, "float32")
    read_otherwise[(1,)](a, out, rows, N=32, target="gpu-sim")
    c = a.astype("float32") @ a.astype("float32")
    np.testing.assert_array_equal(out, c.T + c)
    np.testing.assert_array_equal(rows, c.sum(0) + c.max(1))


@pytest.mark.parametrize("warps, count", [(4, 64), (8, 32)])
def test_tutorial_sizes_have_no_spills(warps, count):
    text, report = ptx(product(128, 128, 64)[0], blocks(128, 128, 32), num_warps=warps)
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32", text)) == count
    assert re.search(r"cp\.async\.cg\.shared\.global[^;]*, 16", text)
    assert report is None or report.spill_bytes == 0


def test_strides_that_are_no_multiples_are_copied_in_turn():
    args, _ = product(32, 32, 56)
    text, _ = ptx(args, blocks(32, 32, 32))
    assert "mma.sync" in text and not re.search(r"cp\.async\.cg[^;]*\], \[[^;]*, 16", text)


def test_older_devices_multiply_without():
    args, _ = product(32, 32, 32)
    made = kernels.matmul.warmup(*args, **blocks(32, 32, 32), grid=(1,), target="cuda -arch=sm_75")
    assert "mma" not in made.module.get_source("ptx")


def test_floats_of_32_bits_keep_their_digits():
    args, _ = product(32, 32, 32, "float32")
    assert "mma" not in ptx(args, blocks(32, 32, 32))[0]


def test_multiples_of_sixteen_are_part_of_the_key():
    """A launch with other strides is another kernel, and gives the right result, too."""
    for k in (64, 50, 64):
        args, want = product(32, 32, k)
        kernels.matmul[(1,)](*args, **blocks(32, 32, 32), target="gpu-sim")
        np.testing.assert_array_equal(args[2], want)


@triton.jit
def below_zero(a_ptr, b_ptr, o_ptr, start, n, N: tl.constexpr):
    i = tl.arange(0, N)
    columns = (start + i) % n
    a = tl.load(a_ptr + i[:, None] * N + i[None, :])
    b = tl.load(b_ptr + 32 + i[:, None] * 64 + columns[None, :])
    tl.store(o_ptr + i[:, None] * N + i[None, :], tl.dot(a, b))


@pytest.mark.parametrize("start", [-32, -16, 0, 16])
def test_remainders_below_zero_are_rounded_to_zero(start):
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 5, (16, 16)).astype("float16"), rng.integers(-4, 5, (16, 64)).astype("float16")
    out, want = np.zeros((16, 16), "float32"), np.zeros((16, 16), "float32")
    below_zero[(1,)](a, b, want, start, 32, N=16)
    below_zero[(1,)](a, b, out, start, 32, N=16, target="gpu-sim")
    np.testing.assert_array_equal(out, want)
