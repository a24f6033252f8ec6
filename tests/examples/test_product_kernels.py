"""Convolutions and products scheduled by hand: on sizes that divide nothing, against NumPy."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "kernels"))

TARGETS = ["native -num-cores=1", "native -num-cores=2", "llvm -mcpu=x86-64-v3 -num-cores=1"]


def check(kernel, func, target, schedule=None):
    small = replace(kernel, func=func, schedule=schedule or kernel.schedule)
    module = small.build(tw.Target(target))
    small.check(module, small.arrays())
    return module


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("shape", "window", "stride", "padding"),
    [
        ((1, 1, 1, 1), 1, 1, 0),
        ((7, 13, 3, 17), 3, 1, 1),
        ((17, 16, 7, 33), 7, 2, 3),
        ((16, 15, 13, 16), 1, 2, 0),
    ],
    ids=str,
)
def test_convolutions(shape, window, stride, padding, target):
    conv = importlib.import_module("conv")
    func = conv.declare(shape, window, stride, padding)
    schedules = [conv.tiled(1, 6, 2, 3, unroll=2), conv.tiled(2, 3, 1, 4, unroll=2, fetch="WX")]
    for schedule in schedules:
        kernel = replace(conv.KERNELS[0], reference=conv.reference_of(window, stride, padding))
        check(kernel, func, target, schedule)


def test_the_schedules_of_the_table_on_a_small_image():
    conv = importlib.import_module("conv")
    for kernel in conv.KERNELS:
        window = kernel.func.buffer_map[kernel.func.params[1]].shape[0].value
        stride, padding = kernel.options["stride"], kernel.options["padding"]
        check(kernel, conv.declare((17, 16, 5, 40), window, stride, padding), "native -num-cores=1")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 13, 17, 7), (3, 7, 70, 16)], ids=str)
def test_batches(shape, target):
    example = importlib.import_module("matmul")
    kernel = next(k for k in example.KERNELS if k.name.startswith("batch"))
    check(kernel, example.declare_batch(*shape), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 17, 7), (14, 70, 16)], ids=str)
def test_bias_and_gelu(shape, target):
    example = importlib.import_module("matmul")
    kernel = next(k for k in example.KERNELS if "gelu" in k.name)
    check(kernel, example.declare_gelu(*shape), target, example.tiled(4, 2, 2, ahead=True, fetch="B", unroll=2))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (2, 13, 17, 7), (3, 7, 130, 16), (2, 49, 64, 64), (1, 50, 33, 80)], ids=str
)
def test_attention(shape, target):
    """m rows of Q, n of K and V, d features."""
    example = importlib.import_module("attention")
    check(example.KERNELS[0], example.declare(*shape), target, example.fused(24, (12, 2), (6, 4), unroll=2))
    check(example.KERNELS[0], example.declare(*shape), target, example.fused(8, (4, 3), (4, 1), unroll=1))


def test_attention_to_what_is_far_ahead():
    """Scores that no power holds: each row takes the value of its largest score."""
    example = importlib.import_module("attention")
    kernel = replace(example.KERNELS[0], func=example.declare(2, 13, 40, 16))
    rng = np.random.default_rng(0)
    k, v = (rng.standard_normal((2, 40, 16)).astype("float32") for _ in range(2))
    q = 1e4 * k[:, 3:29:2]  # no row of K is longer than it is along itself, but by chance
    scores = q @ k.transpose(0, 2, 1)
    out = np.full((2, 13, 16), np.nan, "float32")
    kernel.build(tw.Target("native -num-cores=1"))(q, k, v, out)
    np.testing.assert_allclose(out, np.stack([v[h, scores[h].argmax(-1)] for h in range(2)]), rtol=1e-6)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 64, 8), (13, 64, 16), (7, 128, 52)], ids=str)
def test_int8(shape, target):
    example = importlib.import_module("int8_matmul")
    module = check(example.KERNELS[0], example.declare(*shape), target, example.tiled(6, 4, unroll=1))
    if tw.Target(target).has_vnni:
        assert module.get_source("asm").count("vpdpbusd") >= 4


@pytest.mark.parametrize("target", [*TARGETS, "native -mattr=-amx-tile -num-cores=1"])
@pytest.mark.parametrize(
    "dtype, feature, word", [("int8", "amx-int8", "tdpbssd"), ("bfloat16", "amx-bf16", "tdpbf16ps")]
)
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 17, 7), (32, 64, 128), (33, 70, 130)], ids=str)
def test_the_matrix_unit(shape, dtype, feature, word, target):
    example = importlib.import_module("matrix_unit")
    kernel = next(k for k in example.KERNELS if dtype in k.name)
    module = check(kernel, example.declare(*shape, dtype), target)
    assert (word in module.get_source("asm")) == (tw.Target(target).has_amx and tw.Target(target).has(feature))


def test_columns_that_stay_in_the_cache():
    columns, target = importlib.import_module("matrix_unit").columns_at_once, tw.Target("llvm -mcpu=skylake")
    half = target.l2_bytes // 2
    assert columns(1024, half // 256, target) == 256 and columns(96, half // 64, target) == 32
    assert columns(32, 1 << 30, target) == 32 and columns(1024, 1, target) == 1024


def test_weights_are_packed_ahead():
    """What reads a packed operand through an intrinsic does not keep it from being packed before the calls."""
    conv, matmul, int8 = (importlib.import_module(name) for name in ("conv", "matmul", "int8_matmul"))
    for kernel, func in (
        (conv.KERNELS[0], conv.declare((7, 7, 3, 16))),
        (next(k for k in matmul.KERNELS if "gelu" in k.name), matmul.declare_gelu(7, 16, 8)),
        (int8.KERNELS[0], int8.declare(7, 64, 8)),
    ):
        module = check(kernel, func, "native -num-cores=1")
        assert "kernel_pack_" in module.get_source("ll")
