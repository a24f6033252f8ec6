"""The matrix products of ``examples/kernels``: each schedule on sizes that divide nothing, against NumPy."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "kernels"))
import matmul  # noqa: E402

SHAPES = [(1, 1, 1), (7, 13, 17), (16, 64, 16), (30, 130, 33)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("kernel", [k for k in matmul.KERNELS if k.name.startswith("matmul ")], ids=lambda k: k.name)
@pytest.mark.parametrize("cores", [1, 2])
def test_any_shape(kernel, shape, cores):
    constant = "packed ahead" in kernel.name
    small = replace(kernel, func=matmul.declare(*shape, constant))
    module = small.build(tw.Target(f"native -num-cores={cores}"))
    small.check(module, small.arrays())


def test_what_stays_constant_is_packed_ahead():
    kernel = next(k for k in matmul.KERNELS if "packed ahead" in k.name)
    module = replace(kernel, func=matmul.declare(16, 64, 16, True)).build(tw.Target("native -num-cores=1"))
    assert list(module) == ["kernel", "kernel_pack_B"]
