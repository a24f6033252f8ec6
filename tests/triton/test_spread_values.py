"""Blocks of which several elements of larger ones are made: what costs something is computed once, and gathers are still checked."""

import numpy as np
import pytest

import tilewright.triton as triton
import tilewright.triton.language as tl
from tilewright.tir import For
from tilewright.tir.expr import FloorDiv, FloorMod, IntImm, TruncDiv, TruncMod
from tilewright.tir.stmt import BufferStore, Stmt
from tilewright.tir.walk import loads_and_stores, pre_order, vars_in

from . import published_kernels as published


@triton.jit
def unpacked(q_ptr, g_ptr, s_ptr, out_ptr, K, N, bits, mask, BK: tl.constexpr, BN: tl.constexpr):
    """Numbers of some bits, several in an integer along the rows, scaled by the group that is looked up for the row."""
    per = 32 // bits
    k, n = tl.program_id(0) * BK + tl.arange(0, BK), tl.program_id(1) * BN + tl.arange(0, BN)
    g = tl.load(g_ptr + k)
    scales = tl.load(s_ptr + g[:, None] * N + n[None, :])
    q = tl.load(q_ptr + (k[:, None] // per) * N + n[None, :])
    shifts = (k % per) * bits
    tl.store(out_ptr + k[:, None] * N + n[None, :], ((q >> shifts[:, None]) & mask) * scales)


def case(bits, k=64, n=32):
    rng, per = np.random.default_rng(bits), 32 // bits
    q = rng.integers(-(2**31), 2**31, (k // per, n)).astype("int32")
    g, s = rng.integers(0, 4, k).astype("int32"), rng.standard_normal((4, n)).astype("float32")
    plain = (q[:, None, :] >> (np.arange(per) * bits)[None, :, None]) & (2**bits - 1)
    return q, g, s, plain.reshape(k, n) * s[g]


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("target", [None, "gpu-sim"])
def test_numbers_of_any_bits(bits, target):
    q, g, s, want = case(bits)
    out = np.zeros((64, 32), "float32")
    unpacked[(2, 1)](q, g, s, out, 64, 32, bits, 2**bits - 1, BK=32, BN=32, target=target)
    np.testing.assert_allclose(out, want, rtol=1e-6)


def divisions(node, around=1, lanes=frozenset()):
    """The number of times that places along an innermost loop are divided by numbers of the launch, in one step of a loop whose length
    it says. Others are the same for a whole vector.

    What only notes wrong places does not run where there are none.
    """
    stores = [a for a in loads_and_stores(node) if isinstance(a, BufferStore)] if isinstance(node, Stmt) else []
    if stores and all(a.buffer.name == "faults" for a in stores):
        return 0
    if isinstance(node, For) and isinstance(node.extent, IntImm):
        return divisions(node.body, around * node.extent.value, {node.loop_var})
    kinds = (FloorDiv, FloorMod, TruncDiv, TruncMod)
    own = isinstance(node, kinds) and not isinstance(node.b, IntImm) and not lanes.isdisjoint(vars_in(node.a))
    return around * own + sum(divisions(child, around, lanes) for child in node.children())


def body_of(kernel):
    return next(n.body for n in pre_order(kernel.func.body) if isinstance(n, For) and n.kind == "parallel")


def test_a_row_divides_once_and_not_each_element():
    q, g, s, want = case(4)
    out = np.zeros((64, 32), "float32")
    made = unpacked.warmup(q, g, s, out, 64, 32, 4, 15, BK=32, BN=32, grid=(2, 1))
    assert divisions(body_of(made)) <= 4 * 32  # of all rows, a few times


def test_a_product_of_packed_weights_divides_by_rows_and_columns():
    a, c = np.zeros((32, 64), "float32"), np.zeros((32, 64), "float32")
    q, zeros, g = np.zeros((8, 64), "int32"), np.zeros((1, 8), "int32"), np.zeros(64, "int32")
    scales = np.zeros((1, 64), "float32")
    made = published.gptq_matmul.warmup(a, q, c, scales, zeros, g, 32, 64, 64, 4, 15, BM=32, BN=64, BK=32, grid=(1, 1))
    assert 0 < divisions(body_of(made)) <= 4 * (32 + 64)


def test_wrong_places_that_memory_says_are_reported():
    q, g, s, want = case(8)
    out = np.zeros((64, 32), "float32")
    for wrong in (4, -1, 2**26, -(2**26), 2**31 - 1):
        bad = g.copy()
        bad[37] = wrong
        with pytest.raises(IndexError, match=r"reads s_ptr\[-?\d+\], outside of its elements[^$]*scales = tl.load"):
            unpacked[(2, 1)](q, bad, s, out, 64, 32, 8, 255, BK=32, BN=32)
        good = np.arange(64) != 37
        np.testing.assert_allclose(out[good], want[good], rtol=1e-6)


@triton.jit
def moving(table_ptr, x_ptr, out_ptr, steps, N: tl.constexpr):
    """Pointers to rows that memory says, which move by a row of N in each step."""
    i, j = tl.arange(0, N), tl.arange(0, N)
    at = x_ptr + tl.load(table_ptr + i)[:, None] * N + j[None, :]
    total = tl.zeros((N, N), tl.float32)
    for _ in range(steps):
        total += tl.load(at)
        at += N
    tl.store(table_ptr + i, i * 0)
    tl.store(out_ptr + i[:, None] * N + j[None, :], total + tl.load(at))


@pytest.mark.parametrize("target", [None, "gpu-sim"])
def test_pointers_by_a_table_move_and_keep_what_it_said(target):
    rng = np.random.default_rng(0)
    x, table = rng.integers(0, 9, (40, 16)).astype("float32"), rng.integers(0, 30, 16).astype("int32")
    out, rows = np.zeros((16, 16), "float32"), table.copy()
    moving[(1,)](table, x, out, 3, N=16, target=target)
    np.testing.assert_array_equal(out, sum(x[rows + n] for n in range(4)))
    assert not table.any()
