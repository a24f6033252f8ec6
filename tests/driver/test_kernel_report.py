"""What kernels of GPUs take: as the assembler says, with the occupancy that NVIDIA's rules give."""

import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.machine.target_text import TargetError
from tilewright.driver.kernel_report import kernel_resources, occupancy, resources_text
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.tuner.cost.machine_model import MachineModel


def product(target):
    a, b = te.placeholder((512, 512), name="A"), te.placeholder((512, 512), name="B")
    return tw.build([a, b, te.ops.softmax(te.ops.matmul(a, b))], target)


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
def test_kernels_of_nvidia():
    module = product("cuda -arch=sm_80")
    rows, (said, _) = kernel_resources(module), run_ptxas(module.get_source("ptx"), "sm_80")
    known = {report.kernel: report for report in said}
    assert [r.name for r in rows] == ["main_kernel0", "main_kernel1"]
    for row in rows:
        assert (row.registers, row.spilled_bytes) == (known[row.name].registers, known[row.name].spill_bytes)
        assert row.shared_bytes == known[row.name].shared_bytes and 0 < row.occupancy <= 1
    assert "main_kernel1  512 x 1 x 1" in resources_text(rows)


# NVIDIA's occupancy calculator for compute capability 8.0: 64 warps, 65536 registers, 164 KiB of shared memory, 32 blocks
@pytest.mark.parametrize(("threads", "registers", "shared", "share"), [
    (256, 32, 0, 1.0),  # 8 blocks of 8 warps
    (256, 64, 0, 0.5),  # registers: 4 blocks
    (1024, 64, 0, 0.5),  # registers: 1 block
    (32, 16, 0, 0.5),  # 32 blocks of 1 warp
    (128, 32, 48 << 10, 0.1875),  # shared memory: 3 blocks of 4 warps
    (1024, 255, 0, 0.0),  # more registers than there are
])  # fmt: skip
def test_occupancy(threads, registers, shared, share):
    assert occupancy(MachineModel.of(tw.Target("cuda -arch=sm_80")), threads, registers, shared) == share


def test_kernels_of_other_gpus():
    (first, second) = kernel_resources(product("rocm -mcpu=gfx1100"))
    assert first.registers > 0 and first.spilled_bytes == 0 and first.occupancy is None and second.grid == "512 x 1 x 1"
    rows = kernel_resources(product("opencl"))
    assert (
        [r.registers for r in rows] == [None, None]
        and rows[0].shared_bytes > 0
        and resources_text(rows).count(" - ") >= 2
    )


def test_other_modules_are_refused():
    x = te.placeholder((8,), name="X")
    with pytest.raises(TargetError, match="modules for native do not say what their kernels take"):
        kernel_resources(tw.build([x, te.ops.relu(x)], "native"))
