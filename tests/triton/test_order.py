"""Sorting, and elements by the numbers of their places, in kernels in blocks."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl

RNG = np.random.default_rng(11)


@triton.jit
def sorted_rows(x_ptr, out_ptr, down_ptr, top_ptr, N: tl.constexpr, M: tl.constexpr, K: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    x = tl.load(x_ptr + rows * M + columns)
    tl.store(out_ptr + rows * M + columns, tl.sort(x, dim=1))
    tl.store(down_ptr + rows * M + columns, tl.sort(x, descending=True))
    tl.store(top_ptr + rows * K + tl.arange(0, K)[None, :], tl.topk(x, K))


def bits(x):
    return np.sort(x.view(f"i{x.itemsize}"), axis=1)


@pytest.mark.parametrize("target", [None, "gpu-sim"])
@pytest.mark.parametrize("dtype, m", [("f4", 1), ("f4", 16), ("f2", 8), ("f8", 32), ("i1", 16), ("u4", 8), ("i8", 4)])
def test_sorting_keeps_all_elements(dtype, m, target):
    x = RNG.standard_normal((4, m)).astype(dtype) if dtype[0] == "f" else None
    if x is None:
        info = np.iinfo(dtype)
        x = RNG.integers(info.min, info.max, (4, m), dtype=dtype, endpoint=True)
        x.reshape(-1)[:4] = info.min, info.max, info.max, 0
    else:
        flat = x.reshape(-1)
        flat[::5], flat[1::7], flat[2::7], flat[3::11], flat[4::11] = np.nan, 0.0, -0.0, np.inf, -np.inf
    k = max(1, m // 4)
    out, down, top = np.zeros_like(x), np.zeros_like(x), np.zeros((4, k), dtype)
    sorted_rows[(1,)](x, out, down, top, N=4, M=m, K=k, target=target)
    want = np.sort(x, axis=1)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(down, want[:, ::-1])
    np.testing.assert_array_equal(top, want[:, ::-1][:, :k])
    np.testing.assert_array_equal(bits(out), bits(x))
    np.testing.assert_array_equal(bits(down), bits(x))


@triton.jit
def taken(x_ptr, i_ptr, out_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    found = tl.load(x_ptr + at).gather(tl.load(i_ptr + at), 0)
    tl.store(out_ptr + at, found)


@pytest.mark.parametrize("target", [None, "gpu-sim"])
@pytest.mark.parametrize("wrong", [-1, 8, 2**31 - 1, -(2**31)])
def test_gather_beyond_the_block_is_an_error(wrong, target):
    x, i, out = np.arange(8, dtype=np.float32) + 1, np.arange(8, dtype=np.int32)[::-1].copy(), np.zeros(8, np.float32)
    taken[(1,)](x, i, out, N=8, target=target)
    assert out.tolist() == x[::-1].tolist()
    i[3] = wrong
    with pytest.raises(IndexError, match=r"gathers from dimension 0 of the block\[[^$]*found = tl.load"):
        taken[(1,)](x, i, out, N=8, target=target)
    assert out.tolist() == [8, 7, 6, 0, 4, 3, 2, 1]


@triton.jit
def counted_bins(x_ptr, out_ptr, N: tl.constexpr, B: tl.constexpr):
    tl.store(out_ptr + tl.arange(0, B), tl.load(x_ptr + tl.arange(0, N)).histogram(B))


@pytest.mark.parametrize("target", [None, "gpu-sim"])
def test_histogram_counts_what_lies_in_its_bins(target):
    x, out = RNG.integers(-5, 40, 256).astype(np.int32), np.zeros(32, np.int32)
    counted_bins[(1,)](x, out, N=256, B=32, target=target)
    assert out.tolist() == np.bincount(x[(x >= 0) & (x < 32)], minlength=32).tolist()


@triton.jit
def sorted_down(x_ptr):
    tl.store(x_ptr + tl.arange(0, 8), tl.ravel(tl.sort(tl.reshape(tl.load(x_ptr + tl.arange(0, 8)), (4, 2)), dim=0)))


@triton.jit
def too_many(x_ptr):
    tl.store(x_ptr + tl.arange(0, 16), tl.topk(tl.load(x_ptr + tl.arange(0, 8)), 16))


@triton.jit
def no_power(x_ptr):
    tl.store(x_ptr + tl.arange(0, 4), tl.topk(tl.load(x_ptr + tl.arange(0, 8)), 3))


@triton.jit
def of_floats(x_ptr):
    tl.store(x_ptr + tl.arange(0, 8), tl.histogram(tl.load(x_ptr + tl.arange(0, 8)), 8))


@triton.jit
def by_floats(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(x_ptr + tl.arange(0, 8), tl.gather(x, x, 0))


@triton.jit
def of_other_rows(x_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(x_ptr + tl.arange(0, 4), tl.gather(x[None, :], tl.arange(0, 4)[:, None], 1))


@pytest.mark.parametrize(
    "kernel, message",
    [
        (sorted_down, "sort along dimension 0"),
        (too_many, "topk of 16 elements, and the last dimension has 8"),
        (no_power, "powers of two"),
        (of_floats, "histogram counts int32"),
        (by_floats, "index of gather holds integers"),
        (of_other_rows, "differ in other dimensions"),
    ],
)
def test_what_is_refused(kernel, message):
    with pytest.raises(triton.KernelError, match=message):
        kernel[(1,)](np.zeros(16, np.float32))
