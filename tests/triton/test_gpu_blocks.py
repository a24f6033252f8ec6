"""Kernels in blocks on GPUs: the simulated one gives what processors give, and NVIDIA's assembler takes the PTX."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.gpu import RaceError
from tilewright.gpu.ptx.ptxas import find_ptxas, run_ptxas

from . import block_kernels as kernels
from .test_against_triton import CASES

NAMES = [f"{c[0]}{n}" for n, c in enumerate(CASES)]


def copied(args):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in args]


@pytest.mark.parametrize("n", range(len(CASES)), ids=NAMES)
def test_simulated_gpu_gives_what_processors_give(n):
    kernel, grid, args, named = CASES[n]
    want, found = copied(args), copied(args)
    getattr(kernels, kernel)[grid](*want, **named)
    getattr(kernels, kernel)[grid](*found, **named, target="gpu-sim")
    for a, b in zip(found, want, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            scale = 2e-3 if a.dtype == np.float16 else 2e-6
            np.testing.assert_allclose(a, b, rtol=scale, atol=scale * 4)
        elif isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("n", range(len(CASES)), ids=NAMES)
def test_ptx_is_assembled_without_spills(n):
    kernel, grid, args, named = CASES[n]
    made = getattr(kernels, kernel).warmup(*args, **named, grid=grid, target="cuda -arch=sm_90")
    ((report,), _) = run_ptxas(made.module.get_source("ptx"), "sm_90")
    assert report.spill_bytes == 0 and report.warnings == ()


@pytest.mark.parametrize("warps", [1, 2, 8])
def test_any_number_of_warps_gives_the_same(warps):
    n = NAMES.index(next(name for name in NAMES if name.startswith("matmul")))
    _, grid, args, named = CASES[n]
    want, found = copied(args), copied(args)
    kernels.matmul[grid](*want, **named)
    made = kernels.matmul[grid](*found, **named, num_warps=warps, target="gpu-sim")
    np.testing.assert_allclose(found[2], want[2], rtol=1e-5, atol=1e-5)
    assert f"T.thread_binding({warps * 32}, " in made.module.get_source("lowered")


def test_values_of_single_threads_stay_in_registers():
    x = np.ones(512, np.float32)
    made = kernels.softmax.warmup(x, x, 512, 512, 1, 512, grid=(1,), BLOCK=512, num_stages=1, target="gpu-sim")
    lowered = made.module.get_source("lowered")
    assert 'powers = T.decl_buffer((4,), scope="local")' in lowered and lowered.count('scope="shared"') == 2


def test_programs_are_blocks_along_three_axes():
    out = np.zeros(2 * 3 * 4, np.int32)
    numbered[(2, 3, 4)](out, target="gpu-sim")
    assert out.tolist() == list(range(24))


@triton.jit
def numbered(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    tl.store(out_ptr + at, at)


@triton.jit
def stored_twice(out_ptr, x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out_ptr + at, tl.load(x_ptr + at))
    tl.store(out_ptr + (N - 1 - at), tl.load(x_ptr + at) + 1)
    for k in range(3):
        tl.store(out_ptr + (at + k) % N, tl.load(x_ptr + at) + k)


def test_stores_of_one_program_keep_their_order():
    x, want, found = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32)
    stored_twice[(1,)](want, x, N=64)
    stored_twice[(1,)](found, x, N=64, target="gpu-sim")
    assert want.tolist() == found.tolist() == (np.roll(x, 2) + 2).tolist()


@triton.jit
def shifted(x_ptr, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(x_ptr + at, tl.load(x_ptr + at + N))


def test_races_between_programs_are_found():
    with pytest.raises(RaceError, match="x_ptr"):
        shifted[(3,)](np.arange(4 * 32, dtype=np.float32), N=32, target="gpu-sim")


def test_access_outside_of_an_array_is_an_error_with_its_line():
    x, y, out = np.ones(10, np.float32), np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(IndexError, match=r"reads x_ptr\[\d+\][^$]*x = tl.load"):
        kernels.add[(1,)](x, y, out, 64, BLOCK=64, target="gpu-sim")
    assert out[:10].tolist() == [2.0] * 10


def test_default_target_is_set_and_taken_back():
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    triton.set_target("gpu-sim")
    try:
        made = kernels.add[(1,)](x, x, out, 8, BLOCK=8)
    finally:
        triton.set_target(None)
    assert made.module.target.kind == "gpu-sim" and out.tolist() == [2.0] * 8
    assert kernels.add[(1,)](x, x, out, 8, BLOCK=8).module is not made.module


def test_what_does_not_run_blocks_is_refused():
    x = np.ones(8, np.float32)
    with pytest.raises(ValueError, match="num_warps=3; on GPUs it is a power of two up to 32"):
        kernels.add[(1,)](x, x, x, 8, BLOCK=8, num_warps=3, target="gpu-sim")
    with pytest.raises(ValueError, match="run on processors and GPUs, not on verilog"):
        kernels.add[(1,)](x, x, x, 8, BLOCK=8, target="verilog")
    with pytest.raises(ValueError):
        triton.set_target("nothing of this name")
