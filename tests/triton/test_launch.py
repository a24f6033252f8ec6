"""Launches of kernels in blocks: what they take, what they refuse, and what they say."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.triton.tools.tensor_descriptor import TensorDescriptor

from .block_kernels import add, counted, matmul

torch = pytest.importorskip("torch")

FACTOR = tl.constexpr(3)


@triton.jit
def misspelled(x_ptr):
    y = tl.lod(x_ptr)
    tl.store(x_ptr, y)


def test_access_outside_of_an_array_is_an_error_with_its_line():
    x, y, out = np.ones(10, np.float32), np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(IndexError, match=r"reads x_ptr\[\d+\][^$]*x = tl.load"):
        add[(1,)](x, y, out, 64, BLOCK=64)
    assert out[:10].tolist() == [2.0] * 10


@triton.jit
def read_at(x_ptr, at):
    tl.store(x_ptr, tl.load(x_ptr + at))


@pytest.mark.parametrize("at", [-1, -2, 4, 5, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("target", [None, "gpu-sim"])
def test_every_place_outside_of_an_array_is_found(at, target):
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(IndexError, match=rf"reads x_ptr\[{at}\]"):
        read_at[(1,)](x, at, target=target)


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


@triton.jit
def scaled(x_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(x_ptr + at, tl.load(x_ptr + at) * FACTOR)


def test_changed_global_is_noticed():
    global FACTOR
    x = np.ones(4, np.float32)
    for factor in (3, 5, 5, -2):
        FACTOR = tl.constexpr(factor)
        x[:] = 1
        scaled[(1,)](x, N=4)
        assert x.tolist() == [factor] * 4
    FACTOR = tl.constexpr(3)


def test_launches_of_one_form_look_at_their_arguments_again():
    for _ in range(2):
        for dtype in (np.float32, np.float64, np.int32):
            x, y, out = np.arange(8).astype(dtype), np.ones(8, dtype), np.zeros(8, dtype)
            add[(1,)](x, y, out, 8, BLOCK=8)
            assert out.tolist() == list(range(1, 9))
            add[lambda meta: (8 // meta["BLOCK"], 1)](x, out, out, 8, BLOCK=4, num_warps=2)  # memory is shared
            assert out.tolist() == list(range(1, 17, 2))
            add[(2, 1, 1)](x.reshape(2, 4), y.reshape(4, 2), out.reshape(2, 2, 2), 8, BLOCK=4)
            assert out.tolist() == list(range(1, 9))
            spread = np.zeros(16, dtype)
            add[(1,)](x, y, spread.reshape(8, 2)[:, 0], 8, BLOCK=8)
            assert spread.tolist() == list(range(1, 9)) + [0] * 8
            out.flags.writeable = False
            with pytest.raises((ValueError, TypeError), match="read-only|writ"):
                add[(1,)](x, y, out, 8, BLOCK=8)
            with pytest.raises(IndexError, match="reads x_ptr"):
                add[(1,)](x[:5], y, np.zeros(8, dtype), 8, BLOCK=8)
            with pytest.raises(ValueError, match="num_warps"):
                add[(1,)](x, y, out, 8, BLOCK=8, num_warps=0)
            with pytest.raises(TypeError, match="missing a required argument"):
                add[(1,)](x, y, BLOCK=8)


def test_atomic_operations_run_programs_in_order():
    kernel = counted.warmup(*[np.zeros(8, np.int32)] * 4, 8, BLOCK=8, grid=(1,))
    assert "parallel" not in kernel.script()


@triton.jit
def turned(x, out, n, BM: tl.constexpr):
    for j in range(0, n, BM):
        tile = x.load([tl.program_id(0) * BM, j])
        out.store([j, tl.program_id(0) * BM], tile.trans())


def test_windows_of_the_host():
    for shape in ((20, 37), (16, 16), (1, 5)):
        x = torch.randn(*shape)
        whole = torch.full((shape[1] + 2, shape[0]), 7.0)
        out = whole[1:-1]
        windows = [TensorDescriptor.from_tensor(t, [16, 16]) for t in (x, out)]
        turned[(triton.cdiv(shape[0], 16),)](*windows, shape[1], BM=16)
        torch.testing.assert_close(out, x.T)
        assert whole[0].tolist() == whole[-1].tolist() == [7.0] * shape[0]
    with pytest.raises(ValueError, match="the last one is 1"):
        TensorDescriptor.from_tensor(x.T, [16, 16])


@triton.jit
def padded(x_ptr, out_ptr, n, N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [N], padding_option="nan")
    tl.store(out_ptr + tl.arange(0, N), x.load([2]))


def test_window_padded_with_nan():
    out = np.zeros(8, np.float32)
    padded[(1,)](np.arange(6, dtype=np.float32), out, 6, N=8)
    np.testing.assert_array_equal(out, [2, 3, 4, 5, *[np.nan] * 4])


@triton.jit
def from_table(table_ptr, out_ptr):
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr, tl.load(x_ptr))


def test_integer_becomes_no_pointer():
    with pytest.raises(triton.KernelError, match="nothing says where the array at an address ends"):
        from_table[(1,)](np.zeros(1, np.int64), np.zeros(1, np.float32))


@triton.jit
def constant_over(y, C: tl.constexpr):
    tl.store(y + tl.arange(0, 4), 1.0 / tl.full([4], C, tl.float32))


def test_constants_are_told_apart_by_their_bits():
    kernel, y = constant_over, np.zeros(4, np.float32)
    for value, want in [(0.0, np.inf), (-0.0, -np.inf), (0.0, np.inf), (2.0, 0.5)]:
        kernel[(1,)](y, C=value)
        np.testing.assert_array_equal(y, np.full(4, want, np.float32))
    assert len(kernel.compiled) == 3
    for _ in range(2):
        kernel[(1,)](y, C=float("nan"))
        assert np.isnan(y).all() and len(kernel.compiled) == 4
