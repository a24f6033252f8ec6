"""Ten kinds of kernels, scheduled by the recipes for GPUs: equal to NumPy, and taken by ptxas."""

import pytest

from tilewright.gpu.ptx import find_ptxas

from .kernel_table import ARCHITECTURES, CASES, assembled, error_on_gpu, is_assembled


@pytest.mark.parametrize("name", CASES)
def test_simulated(name):
    assert error_on_gpu(CASES[name], "gpu-sim") <= CASES[name].tolerance


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(
    ("name", "arch"), [(name, arch) for name in CASES for arch in ARCHITECTURES if is_assembled(name, arch)]
)
def test_assembled(name, arch):
    reports = assembled(CASES[name], arch)
    assert reports and all(r.registers <= 255 and r.spill_bytes == 0 and r.shared_bytes <= 48 << 10 for r in reports)
