"""The programs of the tutorials give what PyTorch gives, at sizes that no block divides."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl

from .block_kernels import (
    affine,
    attention,
    dropout,
    grouped_products,
    norm_backward,
    norm_forward,
    norm_weights,
    persistent_matmul,
)

torch = pytest.importorskip("torch")


def test_random_numbers_are_those_of_philox():
    x, out, normal = np.ones(4096, np.float32), np.zeros(4096, np.float32), np.zeros(4096, np.float32)
    whole = np.zeros(4096, np.int32)
    dropout[(4,)](x, out, whole, normal, 4096, 0.25, 42, BLOCK=1024)
    assert whole[:4].tolist() == [-1662324653, -52747993, -747896283, -1161362315]
    signed = np.where(whole < 0, ~whole, whole) * np.float32(4.6566127342e-10)
    np.testing.assert_allclose(signed[:4], [0.7740802, 0.0245627, 0.3482663, 0.5408014], atol=1e-7)
    np.testing.assert_array_equal(out, np.where(signed > 0.25, np.float32(1 / 0.75), 0).astype(np.float32))
    spread = np.sqrt(1 + (2**32 * 1e-9) ** 2 / 12)  # of a normal number and a random integer * 1e-9
    assert abs(signed.mean() - 0.5) < 0.02 and abs(normal.std() - spread) < 0.05 and abs(normal.mean()) < 0.1


@pytest.mark.parametrize(("rows", "columns", "groups"), [(13, 50, 4), (1, 7, 1), (40, 64, 64)])
def test_layer_norm_and_its_gradients(rows, columns, groups):
    x = torch.randn(rows, columns, requires_grad=True)
    w, b = torch.randn(columns, requires_grad=True), torch.randn(columns, requires_grad=True)
    dy = torch.randn(rows, columns)
    want = torch.nn.functional.layer_norm(x, (columns,), w, b, 1e-5)
    want.backward(dy)
    out, mean, scale = torch.empty(rows, columns), torch.empty(rows), torch.empty(rows)
    norm_forward[(rows,)](x, out, w, b, mean, scale, columns, columns, 1e-5, BLOCK=32)
    torch.testing.assert_close(out, want.detach(), rtol=2e-5, atol=2e-5)
    dx, dw, db = torch.empty(rows, columns), torch.zeros(groups, columns), torch.zeros(groups, columns)
    locks = torch.zeros(2 * groups, dtype=torch.int32)
    norm_backward[(rows,)](dx, dy, dw, db, x, w, mean, scale, locks, columns, columns, GROUPS=groups, BLOCK=64)
    torch.testing.assert_close(dx, x.grad, rtol=1e-4, atol=1e-4)
    assert locks[:groups].tolist() == [0] * groups
    for part, grad in ((dw, w.grad), (db, b.grad)):
        found = torch.empty(columns)
        norm_weights[(triton.cdiv(columns, 32),)](part, found, min(rows, groups), columns, BM=8, BN=32)
        torch.testing.assert_close(found, grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    q, k, v = (torch.randn(3, 128, 32) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(3, 128)
    attention[(4, 3)](q, k, v, out, lse, 0.2, 128, HEAD=32, BM=32, BN=32, STAGE=3 if causal else 1)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=0.2)
    torch.testing.assert_close(out, want, rtol=1e-4, atol=1e-4)


def test_grouped_products():
    shapes = [(33, 20, 50), (1, 1, 1), (16, 64, 3), (70, 5, 16)]
    a, b = ([torch.randn(*(s[0], s[2]) if n == 0 else (s[2], s[1])) for s in shapes] for n in range(2))
    sizes = torch.tensor([(m * k, k * n, m * n) for m, n, k in shapes])
    starts = torch.cat([torch.zeros(1, 3, dtype=torch.int64), sizes.cumsum(0)]).to(torch.int32)
    c = torch.empty(int(starts[-1, 2]))
    table = torch.tensor(shapes, dtype=torch.int32)
    joined = [torch.cat([x.reshape(-1) for x in part]) for part in (a, b)]
    grouped_products[(4,)](*joined, c, table, starts, len(shapes), PROGRAMS=4, BM=16, BN=16, BK=32)
    want = torch.cat([(x @ y).reshape(-1) for x, y in zip(a, b, strict=True)])
    torch.testing.assert_close(c, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("halves", [False, True])
def test_persistent_products(halves):
    a, b, c = torch.randn(70, 33), torch.randn(50, 33), torch.empty(70, 50)
    persistent_matmul[(4,)](a, b, c, 70, 50, 33, BM=32, BN=16, BK=16, GROUP=2, PROGRAMS=4, HALVES=halves)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-5, atol=1e-5)


@triton.jit
def wrong_types(a, b):
    return a > b


@triton.jit
def pairs(x_ptr, out_ptr, N: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    if KIND == "pair":
        slope, height = tl.reduce((x, x * x), 0, affine)
        tl.store(out_ptr, slope)
        tl.store(out_ptr + 1, height)
    elif KIND == "wrong":
        tl.store(out_ptr, tl.reduce(x, 0, wrong_types))
    else:
        tl.store(out_ptr, tl.reduce(x, None, min))


@pytest.mark.parametrize("size", [1, 2, 32])
def test_reduction_of_pairs_keeps_the_order(size):
    x, out = np.random.default_rng(3).uniform(0.5, 1.1, size), np.zeros(2)
    pairs[(1,)](x, out, N=size, KIND="pair")
    slope, height = x[0], x[0] ** 2
    for one in x[1:]:
        slope, height = slope * one, height * one + one**2
    np.testing.assert_allclose(out, [slope, height], rtol=1e-12)


def test_functions_that_do_not_combine_are_refused():
    x, out = np.ones(8), np.zeros(2)
    with pytest.raises(triton.KernelError, match="combines float64.*returns bool"):
        pairs[(1,)](x, out, N=8, KIND="wrong")
    with pytest.raises(triton.KernelError, match="a function with @triton.jit"):
        pairs[(1,)](x, out, N=8, KIND="")
