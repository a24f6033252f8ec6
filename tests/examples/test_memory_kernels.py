"""The examples whose limit is memory, or that go row by row: on sizes that divide nothing, against NumPy."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "kernels"))

SHAPES = {
    "memory.fma": [(1,), (7,), (16,), (1000,)],
    "memory.blur": [(4, 3), (7, 13), (17, 70)],
    "memory.transpose": [(1, 1), (7, 13), (17, 40), (64, 80)],
    "depthwise": [(1, 1, 7), (7, 13, 16), (16, 17, 40), (2, 3, 48, 16), (9, 14, 60, 12)],
    "row_sums.sum": [(1, 1), (7, 13), (13, 400)],
    "row_sums.gemv": [(1, 1), (7, 13), (17, 400)],
    "row_sums.argmax": [(1, 16), (7, 13), (13, 400)],
    "norms.layer_norm": [(1, 16), (7, 13), (13, 150)],
    "norms.softmax": [(1, 16), (7, 13), (13, 150)],
    "norms.online": [(2, 65), (7, 130), (13, 1000)],
}
WORDS = {"fma": "relu", "sum": "row sum", "softmax": "softmax 1"}
CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda v: v if isinstance(v, str) else "x".join(map(str, v)))
@pytest.mark.parametrize("target", ["native -num-cores=1", "native -num-cores=2", "llvm -mcpu=x86-64-v3 -num-cores=1"])
def test_any_shape(name, shape, target):
    module, _, kind = name.partition(".")
    example = importlib.import_module(module)
    declare = getattr(example, f"declare_{kind}" if kind else "declare")
    kernels = [k for k in example.KERNELS if WORDS.get(kind, kind) in k.name]
    assert kernels
    for kernel in kernels:
        small = replace(kernel, func=declare(*shape))
        small.check(small.build(tw.Target(target)), small.arrays())


@pytest.mark.parametrize("name", ["depthwise", "memory", "norms", "row_sums"])
def test_the_declared_sizes_are_those_of_the_names(name):
    for kernel in importlib.import_module(name).KERNELS:
        assert kernel.yardstick in ("peak", "read", "copy", "triad", "quad") and kernel.goal
        assert kernel.bytes > 1e5


def test_softmax_of_what_is_no_number():
    example = importlib.import_module("norms")
    x = np.random.default_rng(0).standard_normal((7, 40)).astype("float32")
    x[1, 3], x[2, :], x[3, 5], x[4, :7], x[5, 9] = np.nan, -np.inf, np.inf, -np.inf, 3e38
    with np.errstate(all="ignore"):
        expected = np.empty_like(x)
        example.reference_softmax(x, out=expected)
    for kernel in [kernel for kernel in example.KERNELS if kernel.name.startswith("softmax")]:
        out = np.full_like(x, 7)
        replace(kernel, func=example.declare_softmax(*x.shape)).build(tw.Target("native -num-cores=1"))(x, out)
        np.testing.assert_allclose(out, expected, rtol=2e-6, atol=1e-38)
