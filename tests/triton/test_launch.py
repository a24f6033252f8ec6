"""Launches of kernels in blocks: what they take, what they refuse, and what they say."""

import numpy as np
import pytest
import torch

import tilewright.triton as triton
import tilewright.triton.language as tl

from .block_kernels import add, matmul


@triton.jit
def misspelled(x_ptr):
    y = tl.lod(x_ptr)
    tl.store(x_ptr, y)


def test_access_outside_of_an_array_is_an_error_with_its_line():
    x, y, out = np.ones(10, np.float32), np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(IndexError, match=r"reads x_ptr\[\d+\][^$]*x = tl.load"):
        add[(1,)](x, y, out, 64, BLOCK=64)
    assert out[:10].tolist() == [2.0] * 10


def test_unknown_name_is_refused_with_its_line_marked():
    with pytest.raises(triton.KernelError, match=r"tl.lod is not known[^$]*y = tl.lod\(x_ptr\)\n +\^\^\^\^\^\^"):
        misspelled[(1,)](np.zeros(1, np.float32))


def test_unknown_argument_and_option_are_refused():
    x = np.zeros(4, np.float32)
    with pytest.raises(TypeError, match="did you mean BLOCK"):
        add[(1,)](x, x, x, 4, BLOK=4)
    with pytest.raises(ValueError, match="num_warps"):
        add[(1,)](x, x, x, 4, BLOCK=4, num_warps=0)


def test_arguments_may_be_one_array():
    x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    add[(1,)](x, y, x, 8, BLOCK=8)
    assert x.tolist() == list(range(1, 9))


def test_overlapping_parts_of_an_array():
    whole = np.arange(12, dtype=np.float32)
    want = whole[:8] + whole[4:]
    add[(1,)](whole[:8], whole[4:], whole[:8], 8, BLOCK=8)
    np.testing.assert_array_equal(whole[:8], want)


def test_tensors_of_torch_with_strides():
    a, b = torch.randn(20, 24), torch.randn(18, 24).T
    c = torch.empty(20, 18)
    grid = lambda meta: (triton.cdiv(20, meta["BM"]) * triton.cdiv(18, meta["BN"]),)  # noqa: E731
    strides = [*a.stride(), *b.stride(), *c.stride()]
    matmul[grid](a, b, c, 20, 18, 24, *strides, BM=16, BN=16, BK=16, GROUP=8, ACTIVATION="", num_warps=4)
    torch.testing.assert_close(c, a @ b)


def test_one_program_for_one_key():
    x = np.zeros(8, np.float32)
    first = add.warmup(x, x.copy(), x.copy(), 8, BLOCK=8, grid=(1,))
    assert add[(1,)](x, x.copy(), x.copy(), 5, BLOCK=8) is first
    assert add.warmup(x, x.copy(), x.copy(), 8, BLOCK=16, grid=(1,)) is not first


def test_empty_grid_runs_nothing():
    out = np.full(4, 7, np.float32)
    add[(0,)](out, out, out, 4, BLOCK=4)
    assert out.tolist() == [7.0] * 4
