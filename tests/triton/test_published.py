"""Kernels as projects publish them give what Triton gives, on processors and on the simulated GPU; their PTX is assembled."""

import re

import numpy as np
import pytest

import tilewright.triton.language as tl
from tilewright.gpu.ptx.ptxas import find_ptxas, run_ptxas

from . import published_kernels as kernels
from .test_against_triton import f32, i32
from .triton_oracle import asked_of_triton


def f16(*shape):
    return f32(*shape).astype(np.float16)


def zeros(n, dtype="f4"):
    return np.zeros(n, dtype)


def ones_below(*shape):
    return np.abs(f32(*shape)).clip(0, 0.99)


def routed(dtype):
    """Tokens that are sent to two of three experts each, sorted and padded to blocks; the second expert is elsewhere."""
    tokens, inner, columns, experts, block, top = 10, 40, 24, 3, 16, 2
    ids = np.stack([np.random.default_rng(n).permutation(2)[:top] for n in range(tokens)]).reshape(-1)
    order, owners = [], []
    for e in range(experts):
        mine = list(np.flatnonzero(ids == e))
        mine += [tokens * top] * (-len(mine) % block)
        order += mine
        owners += [e if e != 1 else -1] * (len(mine) // block)
    padded = len(order)
    order, owners = order + [tokens * top] * block, [*owners, 0]
    arrays = [
        f32(tokens * inner).astype(dtype),
        f32(experts * inner * columns).astype(dtype),
        zeros(tokens * top * columns, dtype),
    ]
    arrays += [f32(tokens * top), np.array(order, np.int32), np.array(owners, np.int32), np.array([padded], np.int32)]
    numbers = [columns, inner, len(order), tokens * top, inner, 1, inner * columns, columns, 1, columns, 1]
    named = {
        "BM": block,
        "BN": 16,
        "BK": 16,
        "GROUP_M": 2,
        "WEIGHTED": True,
        "top_k": top,
        "compute_type": f"tl.{np.dtype(dtype)}",
    }
    return "fused_moe", ((padded // block + 1) * 2,), [*arrays, *numbers], named


LENS = np.array([0, 20, 21, 70], np.int32)
CASES = [
    *[("rms_norm_forward", (5,), [zeros(5 * 50, t), 50, f32(250).astype(t), 50, f32(50).astype(t), zeros(5), 50, 1e-5, o], {"CASTING": c, "BLOCK": 64}) for t, o, c in ((np.float32, 0.0, "llama"), (np.float16, 1.0, "gemma"), (np.float16, 0.0, "llama"), (np.float16, 0.5, "none"))],
    ("rms_norm_backward", (3,), [f32(7 * 50), zeros(350), f32(350), f32(50), ones_below(7), zeros(150), 50, 7, 50, 3], {"BLOCK": 64}),
    *[("online_cross_entropy", (4,), [f32(4 * 70), 70, np.array([3, -100, 69, 0], np.int64), zeros(4), lse, 70, -100, s], {"HAS_SMOOTHING": s > 0, "BLOCK": 32}) for s, lse in ((0.0, None), (0.1, zeros(4)))],
    *[("swiglu", (3,), [f32(150).astype(t), f32(150).astype(t), zeros(150, t), 50], {"n": 50, "BLOCK": 64}) for t in (np.float32, np.float16)],
    ("geglu_backward", (2,), [f32(100), f32(100), f32(100), 100], {"BLOCK": 64}),
    *[("rope", (6,), [f32(6 * 3 * 12), 36, f32(6 * 12), 12, f32(3 * 12), 12, f32(3 * 12), 12, 3], {"QH": 3, "KH": 1, "HEAD": 12, "PQ": 4, "PK": 1, "PH": 16, "BACKWARD": b}) for b in (False, True)],
    *[("varlen_attention", (2, 4, 3), [f32(70 * 64).astype(t), f32(70 * 32).astype(t), f32(70 * 32).astype(t), zeros(70 * 64, t), LENS, 0.25, 64, 16, 32, 16], {"GROUP": 2, "HEAD": 16, "BM": 32, "BN": 16}) for t in (np.float32, np.float16)],
    *[("paged_attention", (3, 2), [zeros(3 * 6 * 16), f32(3 * 6 * 16), f32(10 * 16 * 2 * 16), f32(10 * 16 * 2 * 16), i32(3 * 4, low=0, high=10), np.array([33, 0, 7], np.int32), 0.25, 4, 16 * 2 * 16, 32, 16], {"QPKV": 3, "PQ": 4, "PAGE": 16, "HEAD": 16, "KV_HEADS": 2, "SOFTCAP": c}) for c in (0, 2.0)],
    ("reshape_and_cache", (5,), [f32(5 * 24), f32(5 * 24), zeros(3 * 4 * 24), zeros(3 * 4 * 24), np.array([7, -1, 0, 11, 5], np.int64), 24], {"PAGE": 4, "WIDTH": 32}),
    routed(np.float32), routed(np.float16),
    ("gptq_matmul", (1, 2), [f16(10 * 64), i32(8 * 32), zeros(10 * 32, "f2"), f16(4 * 32), i32(4 * 4), (np.arange(64) // 16).astype(np.int32), 10, 32, 64, 4, 15], {"BM": 16, "BN": 16, "BK": 32}),
    ("awq_dequantize", (2, 2), [i32(16 * 3), f16(2 * 24), i32(2 * 3), zeros(16 * 24, "f2"), 3, 16], {"GROUP": 8, "BX": 2, "BY": 8}),
    *[("split_k_matmul", (6, s), [f32(40 * k), f32(k * 24), zeros(40 * 24), 40, 24, k, k, 1, 24, 1, 24, 1], {"BM": 16, "BN": 16, "BK": 16, "SPLIT": s, "EVEN_K": e}) for s, k, e in ((1, 64, True), (2, 50, False), (2, 64, True))],
    ("quantize_rows", (5,), [f32(5 * 50), zeros(250, "i1"), zeros(5), 50], {"BLOCK": 64}),
    *[("int8_matmul", (3, 2), [i32(40 * 40, low=-128, high=128).astype(np.int8), i32(24 * 40, low=-128, high=128).astype(np.int8), zeros(40 * 24), ones_below(40), ones_below(24), b, 40, 24, 40], {"HAS_BIAS": b is not None, "BM": 16, "BN": 16, "BK": 32}) for b in (None, f32(24))],
    ("welford_norm", (3,), [f32(5 * 50) + 3, zeros(250), zeros(5), zeros(5), 5, 50, 1e-5], {"XB": 2, "RB": 16}),
    ("recurrence", (2, 2), [ones_below(2 * 20 * 5), f32(200), zeros(200), zeros(10), 20, 5], {"BLOCK": 8, "BC": 4}),
    *[("chunk_cumsum", (2, 3), [f32(20 * 3), zeros(60), 20], {"H": 3, "BT": 16, "REVERSE": r, "HEAD_FIRST": h}) for r in (False, True) for h in (False, True)],
    ("retention_chunk", (2,), [f32(2 * 20 * 16), f32(2 * 20 * 16), f32(2 * 20 * 32), zeros(2 * 16 * 32), zeros(2 * 20 * 32), 0.25, 20], {"K": 16, "V": 32, "BT": 16}),
    *[("causal_conv1d", (2, 2, 2), [f32(2 * 20 * 12), f32(12 * 4), f32(12), zeros(480), 12, 20], {"WIDTH": 4, "HAS_BIAS": b, "SILU": b, "BL": 16, "BD": 8}) for b in (False, True)],
    ("adamw", (2,), [f32(100), f32(100), f32(100), ones_below(100), 100, 0.01, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001], {"BLOCK": 64}),
    ("embedding_backward", (2, 2), [f32(13 * 20), i32(13, low=0, high=5).astype(np.int64), zeros(100), 13, 20], {"BN": 8, "BD": 16}),
    *[("top_k_gating", (5,), [f32(5 * 12), zeros(15), zeros(15, "i4"), 12], {"K": 3, "BLOCK": 16, "RENORMALIZE": r}) for r in (False, True)],
    ("count_experts", (1,), [i32(100, low=0, high=8), zeros(8, "i4"), zeros(8, "i4"), 100], {"EXPERTS": 8, "BLOCK": 32}),
    ("stochastic_round", (2,), [f32(100), zeros(100), 42, 100], {"BLOCK": 64}),
    ("apply_penalties", (3,), [f32(3 * 50), i32(150, low=0, high=2), np.array([1.0, 0.7, 0.0], "f4"), np.array([0.0, 0.1, 0.05], "f4"), np.array([2, 1, 0], np.int32), 50], {"BLOCK": 32}),
    *[("group_norm", (2, 3), [f32(2 * 6 * 9), zeros(108), w, b, zeros(6), 9, 6, 2], {"BLOCK": 32}) for w, b in ((f32(6), f32(6)), (None, None))],
    ("bit_tricks", (2,), [i32(100), i32(100), f32(100), zeros(100, "i4"), zeros(100), 100], {"BLOCK": 64}),
    ("bucket_sort", (1,), [i32(64, low=-1000, high=1000), zeros(64, "i4"), zeros(64, "i4"), zeros(64, "i4"), zeros(64, "i4")], {"N": 4, "M": 16}),
    ("layer_norm_backward_locked", (7,), [f32(7 * 13), f32(91), f32(7), ones_below(7), zeros(39), zeros(6, "i4"), 13], {"GROUPS": 3, "BLOCK": 16}),
    ("stream_k_partials", (4,), [i32(100), zeros(1, "i4"), zeros(1, "i4"), zeros(4, "i4"), 100], {"BLOCK": 32}),
    *[("many_forms", (1,), [f32(16), zeros(17), n, *rest], named) for n, rest, named in ((13, [], {"B": 16}), (9, [], {"B": 16, "FLAG": False}), (9, [16, True, f32(16)], {}))],
    ("batched_products", (1,), [f32(2 * 16 * 16), f32(2 * 16 * 16), zeros(512)], {"G": 2, "N": 16}),
    ("scans_back", (1,), [f32(16), zeros(16), zeros(32, "i4")], {"B": 16}),
    *[("moving_pointers", (1,), [f32(64) * scale, zeros(16), 12, step], {"B": 16}) for scale, step in ((1, 2), (9, 3))],
]  # fmt: skip


NAMES = [f"{c[0]}{n}" for n, c in enumerate(CASES)]
EVERY_CASE = pytest.mark.parametrize("n", range(len(CASES)), ids=NAMES)


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """What Triton's interpreter makes of all cases, by the numbers of case and argument."""
    return asked_of_triton("published_kernels.py", CASES, tmp_path_factory.mktemp("published"))


def launched(n, **options):
    """Return the arguments of a case after its launch."""
    kernel, grid, args, named = CASES[n]
    named = {k: getattr(tl, v[3:]) if str(v).startswith("tl.") else v for k, v in named.items()}
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    made = getattr(kernels, kernel).run(*given, **named, grid=grid, **options)
    return given, made


def assert_near(found, want):
    if found.dtype.kind == "f":
        scale = 2e-3 if found.dtype == np.float16 else 3e-6
        np.testing.assert_allclose(found, want, rtol=scale, atol=scale * 4)
    else:
        np.testing.assert_array_equal(found, want)


@EVERY_CASE
def test_published_kernel_gives_what_triton_gives(n, expected):
    for k, a in enumerate(launched(n)[0]):
        if isinstance(a, np.ndarray):
            assert_near(a, expected[f"{n}_{k}"])


@EVERY_CASE
def test_simulated_gpu_gives_what_processors_give(n):
    for a, b in zip(launched(n, target="gpu-sim")[0], launched(n)[0], strict=True):
        if isinstance(a, np.ndarray):
            assert_near(a, b)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@EVERY_CASE
def test_ptx_is_assembled(n):
    made = launched(n, warmup=True, target="cuda -arch=sm_90")[1]
    ((report,), _) = run_ptxas(made.module.get_source("ptx"), "sm_90")
    assert report.warnings == ()


PRODUCTS = ("varlen_attention", "fused_moe", "gptq_matmul", "int8_matmul")
NARROW = [
    n for n, (name, _, args, _) in enumerate(CASES)
    if name in PRODUCTS and any(isinstance(a, np.ndarray) and a.dtype in (np.float16, np.int8) for a in args)
]  # fmt: skip


@pytest.mark.parametrize("n", NARROW, ids=[NAMES[n] for n in NARROW])
def test_products_of_narrow_types_run_on_matrix_units(n):
    text = launched(n, warmup=True, target="cuda -arch=sm_90")[1].module.get_source("ptx")
    assert len(re.findall(r"mma\.sync\.aligned\.m16n8k(?:16|32)", text)) >= 2
    assert "ldmatrix" in text
