"""Circuits are synthesizable (Yosys), and run in Verilator as in Icarus."""

import shutil
import subprocess

import pytest

import tilewright as tw
from tilewright.circuits import installed_simulators

from .int8_kernels import SCHEDULES, matmul
from .test_circuits import agree, program


@pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")
@pytest.mark.parametrize("what", [*SCHEDULES, "a memory inside", "conditions around loops", "fixed point"])
def test_yosys_synthesizes(what, tmp_path):
    func = SCHEDULES[what](matmul(4, 3, 4), "C").func if what in SCHEDULES else program(what)
    tw.build(func, "verilog").export(tmp_path / "kernel.v")
    script = f"read_verilog kernel.v; synth -noabc -top {func.name}; check -assert; stat"
    done = subprocess.run(["yosys", "-p", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr
    assert "Warning" not in done.stdout
    assert "latch" not in done.stdout.split("Printing statistics")[-1].lower()


@pytest.mark.skipif("verilator" not in installed_simulators(), reason="verilator is not installed")
def test_verilator_counts_the_same_cycles():
    func = SCHEDULES["unrolled and pipelined"](matmul(5, 3, 4), "C").func
    assert agree(func, simulator="verilator") == (
        agree(func, simulator="icarus") if "icarus" in installed_simulators() else 17
    )
