"""Functions of CUDA's library, NaN in extremes, floats of 8 bits, questions to types, and checks while a kernel runs."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.gpu.ptx.ptxas import find_ptxas, run_ptxas
from tilewright.triton.language.extra import libdevice
from tilewright.triton.language.extra.cuda.libdevice import tanh

MACHINES = pytest.mark.parametrize("machine", [{}, {"target": "gpu-sim"}], ids=["cpu", "gpu-sim"])
inf, nan = np.inf, np.nan


@triton.jit
def functions(x_ptr, o_ptr, i_ptr, w_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, w = tl.load(x_ptr + i), tl.load(w_ptr + i)
    tl.store(o_ptr + i, tanh(x))
    tl.store(o_ptr + N + i, libdevice.pow(tl.abs(x), 1.5))
    tl.store(o_ptr + 2 * N + i, tl.extra.cuda.libdevice.round(x))
    tl.store(o_ptr + 3 * N + i, libdevice.rint(x))
    tl.store(o_ptr + 4 * N + i, libdevice.log1p(tl.abs(x)) + libdevice.expm1(x) + libdevice.atan2(x, 2.0))
    tl.store(o_ptr + 5 * N + i, libdevice.fdim(x, 0.5) + libdevice.saturatef(x) + libdevice.trunc(x))
    tl.store(i_ptr + i, libdevice.popc(w))
    tl.store(i_ptr + N + i, libdevice.clz(w))
    tl.store(i_ptr + 2 * N + i, libdevice.ffs(w))
    tl.store(i_ptr + 3 * N + i, libdevice.brev(w))
    tl.store(i_ptr + 4 * N + i, libdevice.float2int_rn(tl.where(tl.abs(x) < 1e9, x, 0.0)))
    tl.store(i_ptr + 5 * N + i, libdevice.float_as_int(x))
    kinds = (
        libdevice.isnan(x).to(tl.int32) + 2 * libdevice.isinf(x) + 4 * libdevice.finitef(x) + 8 * libdevice.signbit(x)
    )
    tl.store(i_ptr + 6 * N + i, kinds)
    tl.store(i_ptr + 7 * N + i, libdevice.mulhi(w, w - 5))


X = np.array(
    [0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, nan, -0.0, 3.3, -3.7, 8388609.0, 1e-3, inf, -inf, 7.5, 30], np.float32
)
W = [0, 1, -1, 2**31 - 1, -(2**31), 12, 255, 256, 65536, 3, 5, 7, -7, 1000, 12345678, -12345678]
W = np.array(W, np.int32)


@MACHINES
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_library_functions_are_those_of_numpy(machine):
    o, q = np.zeros((6, 16), np.float32), np.zeros((8, 16), np.int32)
    functions[(1,)](X, o, q, W, N=16, **machine)
    x, u = X.astype(np.float64), W.view(np.uint32).tolist()
    whole = np.trunc(x)
    want = [
        np.tanh(x), np.abs(x) ** 1.5, whole + np.copysign(np.abs(x - whole) >= 0.5, x), np.rint(x),
        np.log1p(np.abs(x)) + np.expm1(x) + np.arctan2(x, 2),
        np.where(x <= 0.5, 0, x - 0.5) + np.where(x > 0, np.minimum(x, 1), 0) + whole,
    ]  # fmt: skip
    for found, wanted in zip(o, want, strict=True):
        np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=3e-6)
    assert q[0].tolist() == [n.bit_count() for n in u] and q[1].tolist() == [32 - n.bit_length() for n in u]
    assert q[2].tolist() == [(n & -n).bit_length() for n in u]
    assert q[3].view(np.uint32).tolist() == [int(f"{n:032b}"[::-1], 2) for n in u]
    assert q[4].tolist() == np.rint(np.where(np.abs(x) < 1e9, x, 0)).astype(int).tolist()
    assert q[5].tolist() == X.view(np.int32).tolist()
    kinds = np.isnan(X) + 2 * np.isinf(X) + 4 * np.isfinite(X) + 8 * np.signbit(X)
    assert q[6].tolist() == kinds.tolist()
    assert q[7].tolist() == ((W.astype(np.int64) * (W - np.int32(5)).astype(np.int64)) >> 32).tolist()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_library_functions_are_assembled():
    made = functions.warmup(X, np.zeros(96, "f4"), np.zeros(128, "i4"), W, N=16, grid=(1,), target="cuda -arch=sm_90")
    ((report,), _) = run_ptxas(made.module.get_source("ptx"), "sm_90")
    assert report.spill_bytes == 0 and report.warnings == ()


@triton.jit
def extremes(x_ptr, y_ptr, o_ptr, s_ptr, p_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(o_ptr + i, tl.maximum(x, y))
    tl.store(o_ptr + N + i, tl.minimum(x, y))
    tl.store(o_ptr + 2 * N + i, tl.clamp(x, -1.0, 1.0))
    tl.store(o_ptr + 3 * N + i, tl.maximum(x, 0.5))
    tl.store(o_ptr + 4 * N + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(o_ptr + 5 * N + i, tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(s_ptr, tl.max(x, 0))
    tl.store(s_ptr + 1, tl.min(x, 0))
    best, place = tl.max(x, 0, return_indices=True)
    tl.store(s_ptr + 2, best)
    tl.store(p_ptr, place)
    tl.store(p_ptr + 1, tl.argmin(y, 0))
    block = tl.where((i < 3)[:, None] | (x != x)[None, :], x[None, :], -float("inf"))
    tl.store(s_ptr + 3, tl.max(tl.max(block, 1), 0))
    tl.store(s_ptr + 4, tl.min(tl.max(block, 0), 0))
    tl.store(s_ptr + 5, tl.max(x * float("nan"), 0))
    tl.store(s_ptr + 6, tl.max(tl.where(i == 0, float("nan"), -float("inf")), 0))


@MACHINES
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_extremes_are_those_of_the_numbers(machine):
    x = np.array([nan, 1, 2, nan, inf, -inf, 0.5, -1, 3, 4, 5, 1e30, -1e30, 2.5, -2.5, 7], np.float32)
    y = np.array([1, nan, 2, nan, 2, 3, 6, 8, inf, -inf, nan, 1, 1, 2, 2, -3], np.float32)
    o, s, p = np.zeros((6, 16), np.float32), np.zeros(7, np.float32), np.zeros(2, np.int32)
    extremes[(1,)](x, y, o, s, p, N=16, **machine)
    both = [
        np.fmax(x, y),
        np.fmin(x, y),
        np.fmin(np.fmax(x, -1), 1),
        np.fmax(x, 0.5),
        np.maximum(x, y),
        np.minimum(x, y),
    ]
    np.testing.assert_array_equal(o, np.array(both, np.float32))
    np.testing.assert_array_equal(s, np.array([inf, -inf, inf, inf, -inf, nan, -inf], np.float32))
    assert p.tolist() == [4, 9]


@triton.jit
def quantized(x_ptr, q_ptr, s_ptr, eps, high, GROUP: tl.constexpr):
    g = tl.program_id(0).to(tl.int64)
    at = g * GROUP + tl.arange(0, GROUP)
    x = tl.load(x_ptr + at)
    scale = tl.maximum(tl.max(tl.abs(x)), eps) / high
    tl.store(q_ptr + at, tl.clamp(x / scale, -high, high).to(q_ptr.dtype.element_ty))
    tl.store(s_ptr + g, scale)


@triton.jit
def scaled_product(a_ptr, b_ptr, c_ptr, as_ptr, bs_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm, pn = tl.program_id(0), tl.program_id(1)
    rm, rn, rk = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptr + rm[:, None] * K + (k * BK + rk)[None, :], mask=rm[:, None] < M, other=0.0)
        b = tl.load(b_ptr + rn[None, :] * K + (k * BK + rk)[:, None], mask=rn[None, :] < N, other=0.0)
        sa = tl.load(as_ptr + rm * tl.cdiv(K, BK) + k, mask=rm < M, other=0.0)
        sb = tl.load(bs_ptr + rn * tl.cdiv(K, BK) + k, mask=rn < N, other=0.0)
        acc += tl.dot(a, b) * sa[:, None] * sb[None, :]
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def narrowed(x_ptr, a_ptr, b_ptr, bits_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    a = x.to(tl.float8e4nv)
    tl.store(a_ptr + i, a)
    tl.store(b_ptr + i, tl.where(x > 1, x.to(tl.float8e5), 0.0))
    tl.store(bits_ptr + i, a.to(tl.uint8, bitcast=True))


@MACHINES
@pytest.mark.parametrize(("name", "high"), [("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)])
def test_floats_of_8_bits_are_those_of_torch(machine, name, high):
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(8, 32, generator=generator)
    q, s = torch.zeros(8, 32, dtype=kind), torch.zeros(8)
    quantized[(8,)](x, q, s, 1e-10, high, GROUP=32, **machine)
    scale = x.abs().max(1)[0] / high
    want = (x / scale[:, None]).clamp(-high, high).to(kind)
    assert torch.equal(q.view(torch.uint8), want.view(torch.uint8)) and torch.allclose(s, scale)
    a, b = (torch.randn(n, 64, generator=generator).to(kind) for n in (20, 24))
    sa, sb, c = torch.rand(20, 2, generator=generator), torch.rand(24, 2, generator=generator), torch.zeros(20, 24)
    scaled_product[(2, 2)](a, b, c, sa, sb, 20, 24, 64, BM=16, BN=16, BK=32, **machine)
    parts = [a.float()[:, k : k + 32] @ b.float()[:, k : k + 32].T for k in (0, 32)]
    torch.testing.assert_close(
        c, sum(p * sa[:, n : n + 1] * sb[:, n] for n, p in enumerate(parts)), rtol=1e-5, atol=1e-5
    )


@MACHINES
def test_what_a_float_of_8_bits_cannot_hold_becomes_its_largest_number(machine):
    torch = pytest.importorskip("torch")
    x = torch.tensor([0, -0.0, 1, 447, 449, 465, 1e6, -1e6, inf, -inf, nan, 2**-9, 2**-10, 1.5 * 2**-10, 57345, 2])
    a, b = torch.zeros(16, dtype=torch.float8_e4m3fn), torch.zeros(16, dtype=torch.float8_e5m2)
    bits = torch.zeros(16, dtype=torch.uint8)
    narrowed[(1,)](x, a, b, bits, N=16, **machine)
    torch.testing.assert_close(a.float(), x.clamp(-448, 448).to(a.dtype).float(), equal_nan=True, rtol=0, atol=0)
    want = torch.where(x > 1, x.clamp(-57344, 57344), 0.0).to(b.dtype).float()
    torch.testing.assert_close(b.float(), want, rtol=0, atol=0)
    assert torch.equal(bits, a.view(torch.uint8))


@triton.jit
def asserted(x_ptr, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i, mask=i < n, other=-1)
    tl.device_assert(x >= 0, "indices are not negative", mask=i < n)
    total = tl.sum(x)
    assert total < 1000, f"too many of {N}"


@MACHINES
def test_assertions_are_checked_while_a_kernel_runs(machine):
    x = np.arange(8, dtype=np.int32)
    asserted[(2,)](x, 7, N=16, **machine)
    with pytest.raises(AssertionError, match=r"indices are not negative\n.*tl.device_assert"):
        asserted[(2,)](-x, 7, N=16, **machine)
    with pytest.raises(AssertionError, match="too many of 16"):
        asserted[(2,)](200 * x, 7, N=16, **machine)


@triton.constexpr_function
def half_of(n):
    return n // 2


@triton.jit
def asked(x_ptr, o_ptr, h_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, half_of(N)))
    tl.static_assert(x.dtype.is_fp16() and x.dtype.is_floating() and not x.dtype.is_int() and x_ptr.dtype.is_ptr())
    tl.static_assert(x.dtype.primitive_bitwidth == 16 and not x.dtype.is_ptr() and o_ptr.dtype.element_ty.is_int32())
    tl.store(o_ptr, x.dtype.primitive_bitwidth)


@triton.jit
def misspelled(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr).dtype.is_fp17())


@triton.jit
def assembly(x_ptr):
    tl.store(x_ptr, tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [1.0], tl.float32, True, 1))


@triton.jit
def printed(x_ptr):
    tl.device_print("x", tl.load(x_ptr))


@triton.jit
def added_bytes(x_ptr):
    x = tl.load(x_ptr).to(tl.float8e5)
    tl.store(x_ptr, x + x)


@triton.jit
def unknown(x_ptr):
    tl.store(x_ptr, libdevice.erfcinv(tl.load(x_ptr)))


def test_types_answer_questions():
    o = np.zeros(1, np.int32)
    asked[(1,)](np.zeros(8, np.float16), o, o[:0], N=16)
    assert o[0] == 16 and half_of(6) == 3


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (misspelled, "the type float32 has no is_fp17; there are"),
        (assembly, "write the operation with tl or tl.extra.libdevice"),
        (printed, "check them with tl.device_assert"),
        (added_bytes, r"convert it with .to\(tl.float32\) first"),
        (unknown, "libdevice.erfcinv is not known here"),
    ],
)
def test_what_is_not_known_says_what_to_write(kernel, reason):
    with pytest.raises(triton.KernelError, match=reason):
        kernel[(1,)](np.zeros(1, np.float32))


@triton.jit
def bytes_multiplied(a_ptr, b_ptr, o_ptr, M: tl.constexpr, K: tl.constexpr):
    i, k = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(a_ptr + i[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * M + i[None, :])
    acc = tl.full((M, M), 7, tl.int32)
    tl.store(o_ptr + i[:, None] * M + i[None, :], tl.dot(a, b, acc))


@MACHINES
@pytest.mark.parametrize(
    ("kind", "inner"), [("int8", 64), ("int8", 1024), ("int8", 2048), ("uint8", 256), ("uint8", 512)]
)
def test_products_of_bytes_are_exact(machine, kind, inner):
    rng, ends = np.random.default_rng(inner), np.iinfo(kind)
    a, b = (rng.integers(ends.min, ends.max + 1, (16, inner)).astype(kind) for _ in range(2))
    a[0], b[0], a[1], b[1] = ends.min, ends.min, ends.max, ends.max
    o = np.zeros((16, 16), np.int32)
    bytes_multiplied[(1,)](a, np.ascontiguousarray(b.T), o, M=16, K=inner, **machine)
    np.testing.assert_array_equal(o, a.astype(np.int32) @ b.T.astype(np.int32) + 7)
