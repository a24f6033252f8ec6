"""Runs a module in its test bench: Icarus Verilog or Verilator, where they are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .circuit.memories import HardwareError
from .text.module_text import Circuit
from .text.testbench import read_outputs, testbench, write_inputs

SIMULATORS = {"icarus": ("iverilog", "vvp"), "verilator": ("verilator", "g++", "make")}
"""The programs that each simulator needs."""


def installed_simulators() -> list[str]:
    """Returns the simulators whose programs this machine has."""
    return [name for name, programs in SIMULATORS.items() if all([shutil.which(p) for p in programs])]


def simulate(circuit: Circuit, args: Sequence[Any], simulator: str | None = None) -> int:
    """Run a circuit on arrays, which get its results; return the cycles. ``simulator``: a word of :data:`SIMULATORS`, or
    None for the first that is installed. HardwareError when it is not."""
    found = installed_simulators()
    if simulator is not None and simulator not in SIMULATORS:
        raise HardwareError(f"no simulator {simulator!r}; there are {', '.join(SIMULATORS)}")
    if not found or simulator not in (None, *found):
        missing = " or ".join([" and ".join(SIMULATORS[name]) for name in ([simulator] if simulator else SIMULATORS)])
        raise HardwareError(f"a module in Verilog runs in a simulator, and this machine lacks {missing}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        name = circuit.lowered.name
        (folder / f"{name}.v").write_text(circuit.text)
        (folder / f"{name}_bench.v").write_text(testbench(circuit))
        write_inputs(circuit, folder, args)
        for command in _commands(simulator or found[0], name):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise HardwareError(f"{command[0]} failed on {name}: {(done.stdout + done.stderr)[-2000:]}")
        cycles = re.search(r"^cycles (\d+)$", done.stdout, re.MULTILINE)
        if cycles is None:
            raise HardwareError(f"the simulation of {name} did not end: {done.stdout[-500:]}")
        read_outputs(circuit, folder, args)
    return int(cycles[1])


def _commands(simulator: str, name: str) -> list[list[str]]:
    files = [f"{name}_bench.v", f"{name}.v"]
    if simulator == "icarus":
        return [["iverilog", "-g2005", "-o", "run.vvp", *files], ["vvp", "run.vvp"]]
    make = ["verilator", "--binary", "-Wno-fatal", "--top-module", f"{name}_bench", "-o", "run", "-O1"]
    return [[*make, *files], ["obj_dir/run"]]
