"""The examples whose limit is memory, or that go row by row: on sizes that divide nothing, against NumPy."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "kernels"))

SHAPES = {
    "elementwise": [(1,), (7,), (16,), (1000,)],
    "row_sum": [(1, 1), (7, 13), (13, 400)],
    "gemv": [(1, 1), (7, 13), (17, 400)],
}
CASES = [(name, shape) for name, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize(("name", "shape"), CASES, ids=lambda v: v if isinstance(v, str) else "x".join(map(str, v)))
@pytest.mark.parametrize("target", ["native -num-cores=1", "native -num-cores=2", "llvm -mcpu=x86-64-v3 -num-cores=1"])
def test_any_shape(name, shape, target):
    example = importlib.import_module(name)
    for kernel in example.KERNELS:
        small = replace(kernel, func=example.declare(*shape))
        module = small.build(tw.Target(target))
        small.check(module, small.arrays())


@pytest.mark.parametrize("name", SHAPES)
def test_the_declared_sizes_are_those_of_the_names(name):
    for kernel in importlib.import_module(name).KERNELS:
        assert kernel.yardstick in ("peak", "read", "copy", "triad") and kernel.goal
        assert kernel.bytes > 1e5
