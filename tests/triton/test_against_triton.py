"""Kernels in blocks give what the package ``triton`` gives in its interpreter, and what NumPy and PyTorch give."""

import numpy as np
import pytest

from . import block_kernels as kernels
from .triton_oracle import asked_of_triton

RNG = np.random.default_rng(7)


def f32(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*shape, low=-(2**31), high=2**31):
    return RNG.integers(low, high, shape, dtype=np.int64).astype(np.int32)


def product(m, n, k, bm, bn, bk, dtype, activation="", columns=False):
    a, b = f32(m, k).astype(dtype), f32(k, n).astype(dtype)
    b = np.asfortranarray(b) if columns else b
    strides = [s // a.itemsize for x in (a, b) for s in x.strides] + [n, 1]
    grid = (-(-m // bm) * -(-n // bn),)
    flat = b.T.reshape(-1) if columns else b.reshape(-1)
    named = {"BM": bm, "BN": bn, "BK": bk, "GROUP": 2, "ACTIVATION": activation}
    return "matmul", grid, [a.reshape(-1), flat, np.zeros(m * n, dtype), m, n, k, *strides], named


def grouped(shapes):
    a, b = f32(sum(m * k for m, n, k in shapes)), f32(sum(n * k for m, n, k in shapes))
    sizes = [(m * k, k * n, m * n) for m, n, k in shapes]
    starts = np.cumsum([(0, 0, 0), *sizes], axis=0).astype(np.int32)
    args = [
        a,
        b,
        np.zeros(starts[-1][2], np.float32),
        np.array(shapes, np.int32).reshape(-1),
        starts[:-1].reshape(-1),
        len(shapes),
    ]
    return "grouped_products", (3,), args, {"PROGRAMS": 3, "BM": 16, "BN": 16, "BK": 16}


def attended(stage, length=64, head=16, dtype=np.float32):
    q, k, v = (f32(2 * length * head).astype(dtype) for _ in range(3))
    args = [q, k, v, np.zeros(2 * length * head, dtype), np.zeros(2 * length, np.float32), 0.3, length]
    return "attention", (length // 32, 2), args, {"HEAD": head, "BM": 32, "BN": 16, "STAGE": stage}


CASES = [
    *[("add", (-(-n // 64),), [f32(n), f32(n), np.zeros(n, np.float32), n], {"BLOCK": 64}) for n in (1, 7, 63, 64, 65, 200)],
    ("add", (2,), [f32(100).astype(np.float16), f32(100), np.zeros(100, np.float16), 100], {"BLOCK": 64}),
    ("add", (2,), [i32(100), i32(100), np.zeros(100, np.int32), 100], {"BLOCK": 64}),
    ("add", (2,), [i32(100, low=-128, high=128).astype(np.int8), i32(100), np.zeros(100, np.int64), 100], {"BLOCK": 64}),
    ("softmax", (3,), [np.zeros(13 * 50, np.float32), f32(13 * 50), 50, 50, 13, 50], {"BLOCK": 64, "num_stages": 2}),
    ("softmax", (2,), [np.zeros(4, np.float32), f32(4), 1, 1, 4, 1], {"BLOCK": 2, "num_stages": 1}),
    product(40, 35, 27, 16, 16, 16, np.float32),
    product(40, 35, 27, 32, 16, 16, np.float16, "leaky_relu"),
    product(33, 64, 32, 16, 64, 32, np.float32, columns=True),
    ("reductions", (1,), [f32(16 * 64), *[np.zeros(n, t) for n, t in ((16, "f4"), (16, "f4"), (16, "i4"), (64, "f4"), (64, "i4"), (64, "f4"), (1, "i4"))], i32(16 * 64)], {"N": 16, "M": 64}),
    ("elements", (2,), [f32(100), f32(100), i32(100), np.zeros(100, np.float32), np.zeros(100, np.int32), 100], {"BLOCK": 64}),
    *[("control", (4,), [f32(100), np.zeros(100, np.float32), np.zeros(4, np.int32), 100, limit], {"BLOCK": 32, "MODE": mode}) for limit, mode in ((3.5, "once"), (300.0, "twice"))],
    ("reversed_in_place", (1,), [f32(64)], {"SIZE": 64}),
    ("gathered", (1,), [f32(10 * 32), i32(8, low=0, high=10), np.zeros(8 * 32, np.float32), 10], {"ROWS": 8, "SIZE": 32}),
    ("combined", (1,), [f32(8 * 32), i32(8 * 32), *[np.zeros(n, t) for n, t in ((8, "f4"), (1, "f4"), (256, "f4"), (256, "f4"), (256, "i4"), (256, "f4"))]], {"N": 8, "M": 32}),
    ("shuffled", (1,), [f32(32), f32(32), np.zeros(64, np.float32), np.zeros(64, np.float32)], {"N": 32}),
    ("dropout", (2,), [f32(100), np.zeros(100, np.float32), np.zeros(100, np.int32), np.zeros(100, np.float32), 100, 0.3, 42], {"BLOCK": 64}),
    ("dropout", (2,), [f32(100), np.zeros(100, np.float32), np.zeros(100, np.int32), np.zeros(100, np.float32), 100, 0.5, -7], {"BLOCK": 64}),
    ("counted", (4,), [i32(100), np.zeros(8, np.int32), np.zeros(100, np.int32), np.array([0, 0, 0, 0, 0, -1, -1], np.int32), 100], {"BLOCK": 32}),
    ("locked_sums", (7,), [f32(7 * 13), np.zeros(3 * 13, np.float32), np.zeros(3, np.int32), np.zeros(3, np.int32), 13], {"GROUPS": 3, "BLOCK": 16}),
    ("norm_forward", (5,), [f32(5 * 50), np.zeros(250, np.float32), f32(50), f32(50), np.zeros(5, np.float32), np.zeros(5, np.float32), 50, 50, 1e-5], {"BLOCK": 32}),
    ("norm_backward", (7,), [np.zeros(7 * 50, np.float32), f32(350), np.zeros(150, np.float32), np.zeros(150, np.float32), f32(350), f32(50), f32(7), np.abs(f32(7)), np.zeros(6, np.int32), 50, 50], {"GROUPS": 3, "BLOCK": 64}),
    ("norm_weights", (2,), [f32(19 * 50), np.zeros(50, np.float32), 19, 50], {"BM": 8, "BN": 32}),
    attended(1), attended(3), attended(3, head=32, dtype=np.float16),
    grouped([(20, 17, 33), (16, 16, 16), (1, 40, 5)]),
    *[("persistent_matmul", (3,), [f32(40 * 48).astype(t), f32(40 * 48).astype(t), np.zeros(40 * 40, t), 40, 40, 48], {"BM": 16, "BN": 16, "BK": 16, "GROUP": 2, "PROGRAMS": 3, "HALVES": h}) for t, h in ((np.float32, True), (np.float16, False))],
    *[("left_early", (6,), [f32(6 * 37), np.zeros(6 * 8, np.float32), np.full(24, -5, np.int32), 37, limit], {"BLOCK": 8, "STOP": stop}) for limit, stop in ((1.7, 2), (3.0, 0), (0.2, 1))],
    *[("ordered", (1,), [x, *[np.zeros(n, x.dtype) for n in (x.size, m, x.size // m * k, x.size // m * k, x.size // m, 2 * m)]], {"N": x.size // m, "M": m, "K": k}) for x, m, k in ((f32(4 * 64), 64, 8), (i32(2 * 16, low=-9, high=9), 16, 16), (i32(8 * 4), 4, 2), (f32(32).astype(np.float16), 8, 4))],
    ("picked", (1,), [f32(8 * 16), i32(8 * 16, low=0, high=16), np.zeros(8 * 16, np.float32), np.zeros(8, np.int32), np.zeros(40, np.int32), 100], {"N": 8, "M": 16, "B": 8}),
    ("picked", (5,), [f32(4 * 4), i32(4 * 4, low=0, high=4), np.zeros(5 * 16, np.float32), np.zeros(5 * 4, np.int32), np.zeros(5 * 4, np.int32), 7], {"N": 4, "M": 4, "B": 4}),
    ("windows", (3, 2), [f32(36 * 32), np.zeros(36 * 28, np.float32), 36, 28, 32], {"BM": 16, "BN": 16}),
]  # fmt: skip


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """What Triton's interpreter makes of all cases, by the numbers of case and argument."""
    return asked_of_triton("block_kernels.py", CASES, tmp_path_factory.mktemp("oracle"))


@pytest.mark.parametrize("n", range(len(CASES)), ids=[f"{c[0]}{n}" for n, c in enumerate(CASES)])
def test_kernel_gives_what_triton_gives(n, expected):
    kernel, grid, args, named = CASES[n]
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    getattr(kernels, kernel)[grid](*given, **named)
    for k, a in enumerate(given):
        if isinstance(a, np.ndarray):
            want = expected[f"{n}_{k}"]
            if a.dtype.kind == "f":
                scale = 2e-3 if a.dtype == np.float16 else 2e-6
                np.testing.assert_allclose(a, want, rtol=scale, atol=scale * 4)
            else:
                np.testing.assert_array_equal(a, want)
