"""Runs circuits in the installed simulators of Verilog, with a test bench of memories around the module."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .memories import Bank, BankedMemory, HardwareError
from .module_text import Circuit, port_wires

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


# Writes a test bench: memories around a module, filled from files, and written to files when it is done.

MOST_CYCLES = 1 << 30
"""After so many cycles a test bench gives up."""


def banks_outside(circuit: Circuit) -> list[Bank]:
    """Returns the banks that the module's user has."""
    return [bank for memory in circuit.memories for bank in memory.banks.values()]


def testbench(circuit: Circuit) -> str:
    """Returns the module ``NAME_bench``. It reads ``BANK.in`` for each bank and ``NAME.in`` for each number, hexadecimal
    words for ``$readmemh``; it writes ``BANK.out`` for each bank that the module writes, and prints the cycles from the
    start to the result."""
    name, banks = circuit.lowered.name, banks_outside(circuit)
    lines = ["`timescale 1ns/1ps", f"module {name}_bench;", "  reg clk = 0, rst = 1, start = 0;", "  wire done;",
             "  integer cycles = 0;", "  always #5 clk = ~clk;"]  # fmt: skip
    pins = ["clk", "rst", "start", "done"]
    reads, writes = [], []
    for scalar, width in circuit.scalars:
        lines.append(f"  reg [{width - 1}:0] {scalar}_value [0:0];")
        reads.append(f'    $readmemh("{scalar}.in", {scalar}_value);')
        pins.append(f"{scalar}({scalar}_value[0])")
    for bank in banks:
        memory = f"{bank.name}_memory"
        lines.append(f"  reg [{bank.width - 1}:0] {memory} [0:{bank.words - 1}];")
        for way, width, pin in port_wires(bank):
            lines.append(f"  {'reg ' if way == 'input' else 'wire'} [{width - 1}:0] {pin};")
            pins.append(pin)
        lines.append("  always @(posedge clk) begin")
        if bank.writes:
            lines.append(
                f"    if ({bank.name}_write_enable) {memory}[{bank.name}_write_address] <= {bank.name}_write_data;"
            )
            writes.append(f'    $writememh("{bank.name}.out", {memory});')
        lines += [f"    {bank.name}_read_data <= {memory}[{bank.name}_read_address];"] if bank.reads else []
        lines.append("  end")
        reads.append(f'    $readmemh("{bank.name}.in", {memory});')
    ports = ", ".join([f".{pin}" if "(" in pin else f".{pin}({pin})" for pin in pins])
    return "\n".join([
        *lines, f"  {name} unit ({ports});", "  initial begin", *reads,
        "    @(negedge clk) @(negedge clk) rst = 0; start = 1;", "    @(negedge clk) start = 0;",
        f"    while (!done && cycles < {MOST_CYCLES}) @(negedge clk) cycles = cycles + 1;",
        *writes, '    $display("cycles %0d", cycles);', "    $finish;", "  end", "endmodule", "",
    ])  # fmt: skip


def _bank_part(memory: BankedMemory, numbers: Sequence[int]) -> tuple[Any, ...]:
    """Returns the indices of a bank's elements in the array, a view also where it has no dimensions."""
    return (*[slice(n, None, f) for n, f in zip(numbers, memory.factors, strict=True)], ...)


def write_inputs(circuit: Circuit, folder: Path, args: Sequence[Any]) -> None:
    """Write the files that the test bench reads, from the arrays and numbers of a call."""
    memories, scalars = iter(circuit.memories), iter(circuit.scalars)
    for param, arg in zip(circuit.lowered.params, args, strict=True):
        if param.buffer is None:
            scalar, width = next(scalars)
            (folder / f"{scalar}.in").write_text(f"{int(arg) & ((1 << width) - 1):x}\n")
            continue
        memory = next(memories)
        array = np.asarray(arg).reshape(memory.shape)
        for numbers, bank in memory.banks.items():
            part = array[_bank_part(memory, numbers)]
            words = np.zeros(memory.bank_shape, part.dtype)
            words[tuple([slice(n) for n in part.shape])] = part
            mask = (1 << bank.width) - 1
            values = words.reshape(-1).tolist() or [0]
            (folder / f"{bank.name}.in").write_text("".join([f"{int(v) & mask:x}\n" for v in values]))


def read_outputs(circuit: Circuit, folder: Path, args: Sequence[Any]) -> None:
    """Read the files that the test bench wrote into the arrays of a call."""
    arrays = [arg for param, arg in zip(circuit.lowered.params, args, strict=True) if param.buffer is not None]
    for memory, array in zip(circuit.memories, arrays, strict=True):
        if not any(bank.writes for bank in memory.banks.values()):
            continue
        view = array.reshape(memory.shape)
        for numbers, bank in memory.banks.items():
            part = view[_bank_part(memory, numbers)]
            lines = (folder / f"{bank.name}.out").read_text().splitlines()
            words = itertools.chain.from_iterable([line.split() for line in lines if not line.startswith("//")])
            values = [_number(word, bank) for word in words]
            if part.size:
                box = np.array(values[: int(np.prod(memory.bank_shape))], object).reshape(memory.bank_shape)
                inside: Any = (*[slice(n) for n in part.shape], ...)
                part[...] = box[inside].astype(part.dtype)


def _number(word: str, bank: Bank) -> int:
    if set(word.lower()) & set("xz"):
        raise HardwareError(
            f"the simulation left a word of {bank.name} undefined: the function reads what it never wrote"
        )
    value = int(word, 16)
    return value - (1 << bank.width) if bank.low < 0 and value >> (bank.width - 1) else value
