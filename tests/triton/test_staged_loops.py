"""``num_stages``: loads of loops with products run ahead in so many versions of shared memory, and nothing else changes."""

import re
import warnings

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.gpu.ptx.ptxas import find_ptxas, run_ptxas

from . import block_kernels as kernels
from .test_against_triton import CASES

_, GRID, ARGS, NAMED = next(case for case in CASES if case[0] == "matmul")
COPIES = r"cp\.async\.(?:ca|cg)\.shared"


def made(target, **options):
    return kernels.matmul.warmup(*ARGS, **NAMED, **options, grid=GRID, target=target)


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_loads_are_copies_in_so_many_versions(stages):
    text = made("cuda -arch=sm_80", num_stages=stages).module.get_source("ptx")
    one = made("cuda -arch=sm_80", num_stages=1).module.get_source("ptx")
    assert not re.search(r"cp\.async", one)
    # each thread copies two elements of both operands: ahead of the loop for all stages but the last, and once in it
    assert len(re.findall(COPIES, text)) == 4 * stages
    assert len(re.findall(r"cp\.async\.wait_group", text)) == 1
    if find_ptxas() is not None:
        (before,), (after,) = run_ptxas(one, "sm_80")[0], run_ptxas(text, "sm_80")[0]
        assert after.shared_bytes == stages * before.shared_bytes == stages * 2 * 16 * 16 * 4
        assert after.spill_bytes == 0


@pytest.mark.parametrize("arch", ["sm_86", "sm_90", "sm_90a"])
def test_three_stages_unless_something_is_said(arch):
    text = made(f"cuda -arch={arch}").module.get_source("ptx")
    assert len(re.findall(COPIES, text)) == 4 * 3


def test_older_devices_copy_in_turn():
    text = made("cuda -arch=sm_75", num_stages=4).module.get_source("ptx")
    assert "cp.async" not in text


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 7, None])
@pytest.mark.parametrize("k", [1, 16, 27, 33, 100])
def test_the_simulated_device_gives_the_same(stages, k):
    """Loops of one step to seven, with fewer steps than stages and more; the device reports a race where a copy is not awaited."""
    rng = np.random.default_rng(k)
    a, b = rng.integers(-4, 5, (40, k)).astype("float32"), rng.integers(-4, 5, (k, 35)).astype("float32")
    out = np.zeros((40, 35), "float32")
    grid = (triton.cdiv(40, 16) * triton.cdiv(35, 16),)
    kernels.matmul[grid](
        a,
        b,
        out,
        40,
        35,
        k,
        k,
        1,
        35,
        1,
        35,
        1,
        BM=16,
        BN=16,
        BK=16,
        GROUP=2,
        ACTIVATION="",
        num_stages=stages,
        target="gpu-sim",
    )
    np.testing.assert_array_equal(out, a @ b)


@triton.jit
def squares(x_ptr, out_ptr, tiles, S: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr):
    """Adds up the squares of S matrices in each tile, which the loop around it goes through: the inner loop is filled again."""
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    for tile in range(tiles):
        total = tl.zeros((N, N), tl.float32)
        for k in tl.range(S, num_stages=STAGES):
            x = tl.load(x_ptr + (tile * S + k) * N * N + i * N + j)
            total += tl.dot(x, x)
        tl.store(out_ptr + tile * N * N + i * N + j, total)


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_a_loop_says_its_own_stages(stages):
    rng = np.random.default_rng(0)
    x, out = rng.integers(-3, 4, (3, 5, 16, 16)).astype("float32"), np.zeros((3, 16, 16), "float32")
    squares[(1,)](x, out, 3, S=5, N=16, STAGES=stages, num_stages=6, target="gpu-sim")
    np.testing.assert_array_equal(out, (x @ x).sum(1))
    text = squares.warmup(
        x, out, 3, S=5, N=16, STAGES=stages, num_stages=6, grid=(1,), target="cuda"
    ).module.get_source("ptx")
    assert bool(re.search(COPIES, text)) == (stages > 1)


@triton.jit
def powers(x_ptr, N: tl.constexpr, STEPS: tl.constexpr):
    """Squares a matrix in place: what a step reads is what the step before wrote."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    for _ in range(STEPS):
        x = tl.load(x_ptr + at)
        tl.store(x_ptr + at, tl.dot(x, x))


def test_memory_that_the_kernel_writes_is_not_read_ahead():
    x = np.roll(np.eye(16, dtype="float32"), 1, axis=1)
    want = np.linalg.matrix_power(x, 8)
    powers[(1,)](x, N=16, STEPS=3, num_stages=3, target="gpu-sim")
    np.testing.assert_array_equal(x, want)


@triton.jit
def chosen(table_ptr, x_ptr, out_ptr, S: tl.constexpr, N: tl.constexpr):
    """Multiplies matrices whose numbers stand in memory."""
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    total = tl.zeros((N, N), tl.float32)
    for k in range(S):
        x = tl.load(x_ptr + tl.load(table_ptr + k) * N * N + at)
        total += tl.dot(x, x)
    tl.store(out_ptr + at, total)


@pytest.mark.parametrize("stages", [1, 3])
def test_places_that_memory_says(stages):
    rng = np.random.default_rng(0)
    x, table, out = (
        rng.integers(-3, 4, (4, 16, 16)).astype("float32"),
        np.array([2, 0, 3, 3, 1], "int32"),
        np.zeros((16, 16), "float32"),
    )
    chosen[(1,)](table, x, out, S=5, N=16, num_stages=stages, target="gpu-sim")
    np.testing.assert_array_equal(out, (x @ x)[table].sum(0))


def test_stages_without_room_are_said():
    x, out = np.zeros((1, 4, 64, 64), "float32"), np.zeros((1, 64, 64), "float32")
    with pytest.warns(
        UserWarning, match=r"num_stages=20 takes \d+ bytes of shared memory, and a block has 101376 .*the loop has 3"
    ):
        kernel = squares.warmup(x, out, 1, S=4, N=64, STAGES=20, grid=(1,), target="cuda -arch=sm_86")
    assert re.search(COPIES, kernel.module.get_source("ptx"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        squares.warmup(x, out, 1, S=4, N=64, STAGES=3, grid=(1,), target="cuda -arch=sm_86")


def test_stages_are_numbers_that_are_known():
    x = np.zeros((1, 1, 16, 16), "float32")
    with pytest.raises(Exception, match="num_stages=-1 of tl.range; it is a whole number"):
        squares.warmup(x, x, 1, S=1, N=16, STAGES=-1, grid=(1,))
    with pytest.raises(ValueError, match="num_stages=0; it is a positive integer"):
        squares.warmup(x, x, 1, S=1, N=16, STAGES=1, num_stages=0, grid=(1,))
