"""Block pointers of older kernels, and what loops and branches carry in parts: tuples and block pointers."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl

RNG = np.random.default_rng(1)
MACHINES = pytest.mark.parametrize("machine", [{}, {"target": "gpu-sim"}], ids=["cpu", "gpu-sim"])


@triton.jit
def gated_chunks(q_ptr, k_ptr, v_ptr, o_ptr, scale, T, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):  # fmt: skip
    i_v, i_t, i_h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    p_o = tl.make_block_ptr(o_ptr + i_h * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0))
    p_v = tl.make_block_ptr(v_ptr + i_h * T * V, (T, V), (V, 1), (0, i_v * BV), (BT, BV), (1, 0))
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    o_i = tl.arange(0, BT)
    for i_s in range(0, i_t + 1):
        b_s = tl.zeros([BT, BT], dtype=tl.float32)
        for i_k in range(tl.cdiv(K, BK)):
            p_q = tl.make_block_ptr(q_ptr + i_h * T * K, (T, K), (K, 1), (i_t * BT, i_k * BK), (BT, BK), (1, 0))
            p_k = tl.make_block_ptr(k_ptr + i_h * T * K, (K, T), (1, K), (i_k * BK, i_s * BT), (BK, BT), (0, 1))
            b_q = tl.load(p_q, boundary_check=(0, 1), padding_option="zero")
            b_k = tl.load(p_k, boundary_check=(0, 1))
            b_s += tl.dot((b_q * scale).to(b_q.dtype), b_k)
        b_s = tl.where((i_t * BT + o_i)[:, None] >= (i_s * BT + o_i)[None, :], b_s, 0)
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_o += tl.dot(b_s.to(b_v.dtype), b_v)
        p_v = tl.advance(p_v, (BT, 0))
    tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


@MACHINES
def test_block_pointers_move_in_loops(machine):
    q, k, v = (RNG.standard_normal((2, 50, d)).astype(np.float32) for d in (24, 24, 20))
    o = np.zeros((2, 50, 20), np.float32)
    gated_chunks[(2, 4, 2)](q, k, v, o, 0.5, 50, K=24, V=20, BT=16, BK=16, BV=16, **machine)
    np.testing.assert_allclose(o, np.tril(q @ k.transpose(0, 2, 1) * 0.5) @ v, atol=1e-4)


@triton.jit
def walked(x_ptr, o_ptr, n, STEP: tl.constexpr, B: tl.constexpr):
    p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    pair = (0, tl.zeros([B], tl.float32))
    left = n
    state = (0, 0, "kept")
    while left > 0:
        x = tl.load(p, boundary_check=(0,), padding_option="nan")
        pair = (pair[0] + 1, pair[1] + tl.where(x == x, x, 1.0))
        if left > 40:
            p = p.advance((B * STEP,))
        else:
            p = tl.advance(p, (B,))
        if left > 30:
            state = (pair[0], left, "kept")
        else:
            state = (pair[0] * 10, 7, "kept")
        left -= B
    count, total = pair
    tl.static_assert(state[2] == "kept")
    tl.store(o_ptr + tl.arange(0, B), total + count * 100 + state[0] + state[1])


@MACHINES
def test_tuples_and_block_pointers_are_carried_in_parts(machine):
    x, o = RNG.standard_normal(70).astype(np.float32), np.zeros(16, np.float32)
    walked[(1,)](x, o, 70, STEP=2, B=16, **machine)
    place, left, total, count = 0, 70, np.zeros(16), 0
    while left > 0:
        block = np.ones(16)
        inside = max(0, min(16, 70 - place))
        block[:inside] = x[place : place + inside]
        total, count = total + block, count + 1
        place += 32 if left > 40 else 16
        state = (count, left) if left > 30 else (count * 10, 7)
        left -= 16
    np.testing.assert_allclose(o, total + count * 100 + sum(state), rtol=1e-6)


@triton.jit
def summed_parts(parts, sizes, o_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    acc = tl.zeros((B,), tl.float32)
    for k in tl.static_range(len(parts)):
        acc += tl.load(parts[k] + i, mask=i < sizes[k], other=0.0) * sizes[-1][0]
    tl.store(o_ptr + i, acc)


@MACHINES
def test_tuples_are_arguments(machine):
    a, b = (RNG.standard_normal(16).astype(np.float32) for _ in range(2))
    for sizes in ((5, 9, (2.5,)), (1, 16, (-1.0,)), (16, 3, (7,))):
        o = np.zeros(16, np.float32)
        summed_parts[(1,)]((a, b), sizes, o, B=16, **machine)
        want = sum(np.where(np.arange(16) < n, x, 0) for x, n in zip((a, b), sizes[:2], strict=True)) * sizes[2][0]
        np.testing.assert_allclose(o, want, rtol=1e-6)
    o = np.zeros(16, np.float32)
    summed_parts[(1,)]((a,), (5, (1.0,)), o, B=16, **machine)  # a tuple of another length is another kernel
    np.testing.assert_allclose(o, np.where(np.arange(16) < 5, a, 0))


@triton.jit
def half_sums(x_ptr, o_ptr, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(o_ptr + i % 4, tl.load(x_ptr + i))


def test_atomic_sums_of_float16_are_refused_on_gpus():
    x, o = np.ones(16, np.float16), np.zeros(4, np.float16)
    half_sums[(1,)](x, o, B=16)
    assert o.tolist() == [4.0] * 4
    with pytest.raises(triton.KernelError, match="o_ptr holds float16; collect in an array of float32"):
        half_sums[(1,)](x, o, B=16, target="gpu-sim")


@triton.jit
def largest_of_three(x_ptr):
    x = tl.load(x_ptr)
    tl.store(x_ptr, max(x, -3, 0))


@triton.jit
def third_of_maximum(x_ptr):
    tl.store(x_ptr, tl.maximum(tl.load(x_ptr), -3, 0))


def test_the_largest_of_three_and_what_is_no_propagation():
    x = np.array([-1.0], np.float32)
    largest_of_three[(1,)](x)
    assert x[0] == 0
    with pytest.raises(triton.KernelError, match="propagate_nan is tl.PropagateNan.NONE or ALL, not 0"):
        third_of_maximum[(1,)](x)


@triton.jit
def changing(x_ptr, n):
    state = (0, 1)
    for k in range(n):
        state = (k, 1, 2)
    tl.store(x_ptr, state[0])


@triton.jit
def masked_pointer(x_ptr, n):
    p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (16,), (0,))
    tl.store(p, tl.load(p, mask=tl.arange(0, 16) < n))


@triton.jit
def checked_beyond(x_ptr, n):
    p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (16,), (0,))
    tl.store(p, tl.load(p, boundary_check=(1,)))


@triton.jit
def bare_check(x_ptr, n):
    tl.store(x_ptr, tl.load(x_ptr, boundary_check=(0,)))


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (changing, "state is .* before and .* after"),
        (masked_pointer, "boundary_check= and padding_option="),
        (checked_beyond, "boundary_check names dimensions from 0 to 0, not 1"),
        (bare_check, "for block pointers"),
    ],
)
def test_wrong_uses_are_refused_with_the_line(kernel, reason):
    with pytest.raises(triton.KernelError, match=reason):
        kernel[(1,)](np.zeros(16, np.float32), 16)
