"""Convolutions and products scheduled by hand: on sizes that divide nothing, against NumPy."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

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
    schedules = [conv.tiled(1, 6, 2, 3, unroll=2), conv.tiled(2, 3, 1, 4, unroll=2, fetch=True)]
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
    example = importlib.import_module("batch_matmul")
    check(example.KERNELS[0], example.declare(*shape), target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (13, 17, 7), (14, 70, 16)], ids=str)
def test_bias_and_gelu(shape, target):
    example = importlib.import_module("matmul_bias_gelu")
    check(example.KERNELS[0], example.declare(*shape), target, example.tiled(4, 2, 2, unroll=2))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 64, 8), (13, 64, 16), (7, 128, 52)], ids=str)
def test_int8(shape, target):
    example = importlib.import_module("int8_matmul")
    module = check(example.KERNELS[0], example.declare(*shape), target, example.tiled(6, 4, unroll=1))
    if tw.Target(target).has_vnni:
        assert module.get_source("asm").count("vpdpbusd") >= 4


def test_weights_are_packed_ahead():
    """What reads a packed operand through an intrinsic does not keep it from being packed before the calls."""
    for name, func in (("conv", (7, 7, 3, 16)), ("matmul_bias_gelu", (7, 16, 8)), ("int8_matmul", (7, 64, 8))):
        example = importlib.import_module(name)
        declared = example.declare(func) if name == "conv" else example.declare(*func)
        module = check(replace(example.KERNELS[0]), declared, "native -num-cores=1")
        assert "kernel_pack_" in module.get_source("ll")
